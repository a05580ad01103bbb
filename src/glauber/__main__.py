"""python -m glauber"""

from glauber.cli import main

main()
