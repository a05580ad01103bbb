"""python -m bench.torture damage|kills|power|readers|crafted [--count N] [--seed S]

damage:  one thing befalls a random file of a run.
kills:   SIGKILL at random moments of `sample`, `extend`, `generate` and `repair`.
power:   cuts after random syncs; what was not synced is lost, or a part of it.
readers: everything is read again and again while a process writes.
crafted: run folders that were made to do harm (tests/runs/test_crafted.py).

Prints the counts; the exit code is 1 if anything failed. --broken replaces the writer by one with a
known mistake, so that kills or power cuts must fail.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # no threads are alive when a child is forked
os.environ["HF_HUB_OFFLINE"] = "1"
CRAFTED = Path(__file__).parents[2] / "tests" / "runs" / "test_crafted.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=("damage", "kills", "power", "readers", "crafted"))
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--broken", choices=("without-sync", "manifest-first"))
    args = parser.parse_args()
    if args.which == "crafted":
        sys.exit(subprocess.run([sys.executable, "-m", "pytest", "-q", "-n0", CRAFTED]).returncode)
    from bench.torture import damage, interruptions  # after the environment is set

    trials = {
        "damage": damage.damage,
        "kills": interruptions.kills,
        "power": interruptions.power,
        "readers": interruptions.readers,
    }
    with tempfile.TemporaryDirectory() as parent, ExitStack() as stack:
        if args.broken is not None:
            stack.enter_context(interruptions.BROKEN[args.broken]())
        failures = trials[args.which](Path(parent) / "trial", count=args.count, seed=args.seed)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
