"""The antibody model of `glauber models --get antibody`, as a folder of one's own.

python -m recipes.antibody --out antibody
glauber sample --model ./antibody --from sequences.fasta
"""

import argparse
from pathlib import Path

from glauber.studies.proteins.weights import fetch

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path(".cache/antibody"))
    args = parser.parse_args()
    print(fetch("antibody", wheels=args.cache, out=args.out))
