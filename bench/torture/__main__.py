"""python -m bench.torture damage|kills|power|beside [--count N] [--seed S] [--only NAME]

damage: bits flipped, files lost, cut, blanked, edited, swapped or taken from another run.
kills:  SIGKILL at random moments of `sample`, `extend`, `generate`, `repair` and the migration of
        earlier formats.
power:  cuts after every sync of the same commands; what was not synced is lost, or half of it.
beside: readers while a writer works.

Prints a line for each kind with its counts; the exit code is 1 if anything failed.
"""

import argparse
import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # no threads are alive when a child is forked
os.environ["HF_HUB_OFFLINE"] = "1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=("damage", "kills", "power", "beside"))
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", help="an operation, or a kind of run")
    args = parser.parse_args()
    trials = import_module(f"bench.torture.{args.which}")  # after the environment is set
    options = {"seed": args.seed} | ({} if args.count is None else {"count": args.count})
    options |= {"names": tuple(args.only)} if args.only else {}
    with tempfile.TemporaryDirectory() as home:
        failures = getattr(trials, args.which)(Path(home), **options)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
