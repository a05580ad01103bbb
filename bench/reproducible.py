"""Does the bundled model give one trajectory, whatever the batches, threads and kills?

python -m bench.reproducible [--steps 2000] [--chains 8] [--length 10]

Runs the same chains with batches of 1, 7 and 64, with one thread and with two, and once with 20
kills at random moments. Prints a digest of the events of each; they must be equal.
"""

import argparse
import hashlib
import os
import random
import sys
import tempfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # no threads are alive when a child is forked

import torch
from tests.faults.interruptions import kill

from glauber.models.masked_lm import MaskedLM
from glauber.runs.run import Run
from glauber.sampling.sample import begin, plan, resume, sample

KILLS = 20


def digest(run: Run) -> str:
    """SHA-256 over all events and the last tokens."""
    parts = [run.read(name).tobytes() for name in run.fields] + [run.tokens().tobytes()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def resume_with_kills(folder: Path, model: MaskedLM) -> None:
    """Resume a run in processes that are killed after up to 10 seconds, and then to its end."""
    draw = random.Random(1)
    for _ in range(KILLS):
        kill(lambda: resume(folder, model=model), draw.uniform(0.0, 10.0))
        print(f"killed at {Run(folder).steps} steps", flush=True)
    resume(folder, model=model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--length", type=int, default=10)
    args = parser.parse_args()
    options = {"steps": args.steps, "chains": args.chains, "length": args.length, "seed": 1}
    model = MaskedLM.load("bundled:english", device="cpu")
    digests = {}
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "killed"
        begin(plan(model, **options), folder).close()
        resume_with_kills(folder, model)
        digests[f"{KILLS} kills"] = digest(Run(folder))
    for batch_size, threads in ((64, 2), (64, 1), (7, 2), (1, 2)):
        torch.set_num_threads(threads)
        run = sample(model, batch_size=batch_size, **options)
        digests[f"batches of {batch_size}, {threads} threads"] = digest(run)
        print(f"batches of {batch_size}, {threads} threads: done", flush=True)
    for name, value in digests.items():
        print(f"{value}  {name}")
    sys.exit(0 if len(set(digests.values())) == 1 else 1)


if __name__ == "__main__":
    main()
