"""python -m tests.faults damage|kills|power|readers [--count N] [--seed S] [--broken WRITER]

damage:  one thing befalls a random file of a run.
kills:   SIGKILL at random moments of `sample`, `extend`, `generate` and `repair`.
power:   cuts after random syncs; what was not synced is lost, or a part of it.
readers: everything is read again and again while a process writes.

Prints the counts; the exit code is 1 if anything failed. --broken replaces the writer by one with a
known mistake, so that kills or power cuts must fail.
"""

import argparse
import os
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # no threads are alive when a child is forked
os.environ["HF_HUB_OFFLINE"] = "1"

from tests.faults.damage import damage
from tests.faults.interruptions import BROKEN_WRITERS, kills, power, readers

TRIALS = {"damage": damage, "kills": kills, "power": power, "readers": readers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=TRIALS)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--broken", choices=BROKEN_WRITERS)
    args = parser.parse_args()
    writer = BROKEN_WRITERS[args.broken]() if args.broken else nullcontext()
    with tempfile.TemporaryDirectory() as parent, writer:
        failures = TRIALS[args.which](Path(parent) / "trial", count=args.count, seed=args.seed)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
