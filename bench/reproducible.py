"""Does the bundled model give one trajectory, whatever the batches, threads and kills?

python -m bench.reproducible [--steps 2000] [--chains 8] [--length 10]

Runs the same chains with batches of 1, 7 and 64, with one thread and with two, and once with 20
kills at random moments. Prints a digest of the events of each; they must be equal.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from glauber.conditionals.masked_lm import MaskedLM
from glauber.runs.run import Run
from glauber.runs.store import FIELDS
from glauber.sampling.sample import begin, plan, sample

KILLER = Path(__file__).parent.parent / "tests" / "runs" / "kill_and_resume.py"


def digest(run: Run) -> str:
    """SHA-256 over all events and the last tokens."""
    parts = [run.read(name).tobytes() for name in FIELDS] + [run.tokens().tobytes()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--length", type=int, default=10)
    args = parser.parse_args()
    options = {"steps": args.steps, "chains": args.chains, "length": args.length, "seed": 1}
    model = MaskedLM.load("bundled:english", device="cpu")
    found = {}
    with tempfile.TemporaryDirectory() as place:
        begin(plan(model, **options), Path(place) / "killed")
        words = [sys.executable, str(KILLER), str(Path(place) / "killed"), "20", "1", "1.0"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        print(done.stdout, end="")
        found["20 kills"] = digest(Run(Path(place) / "killed"))
    for batch_size, threads in ((64, 2), (64, 1), (7, 2), (1, 2)):
        torch.set_num_threads(threads)
        run = sample(model, batch_size=batch_size, **options)
        found[f"batches of {batch_size}, {threads} threads"] = digest(run)
        print(f"batches of {batch_size}, {threads} threads: done", flush=True)
    for name, value in found.items():
        print(f"{value}  {name}")
    sys.exit(0 if len(set(found.values())) == 1 else 1)


if __name__ == "__main__":
    main()
