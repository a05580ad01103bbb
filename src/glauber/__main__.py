"""python -m glauber"""

from glauber.interfaces.cli import main

main()
