"""Resumes a run again and again in children that are killed at random moments, then finishes it.

python kill_and_resume.py RUN KILLS SEED [COMMIT_SECONDS]

A child counts its file operations and steps, and sends itself SIGKILL at a random one: in the
middle of a commit or between two.
"""

import os
import random
import signal
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # no threads are alive when a child is forked
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers  # noqa: F401

from glauber.conditionals.masked_lm import MaskedLM
from glauber.runs.run import Run
from glauber.runs.store import committed_steps
from glauber.sampling import sample as sampling
from glauber.sampling import session


class Dying(sampling.Session):
    """A session that kills its process at a given count of steps and file operations."""

    left = 0

    def tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def count(self, *args: object) -> None:
        super().count(*args)
        self.tick()


def resume_and_die(folder: Path, model: MaskedLM, at: int) -> None:
    dying = Dying()
    dying.left = at

    def hook(event: str, args: object) -> None:
        if event in ("open", "os.rename", "os.remove"):
            dying.tick()

    run = Run(folder)
    planned = sampling.Plan(
        model, run.spec, torch.from_numpy(run.tokens(0)), torch.from_numpy(run.free)
    )
    sys.addaudithook(hook)
    sampling.advance(planned, folder, session=dying)


def main() -> None:
    folder, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    session.COMMIT_SECONDS = float(sys.argv[4]) if len(sys.argv) > 4 else 0.02
    moments = random.Random(seed)
    model = MaskedLM.load(Run(folder).spec.model)
    torch.set_num_threads(1)
    planned = Run(folder).spec.steps
    died = 0
    while died < kills:
        left = planned - committed_steps(folder)
        # Kills spread over the run: a child gets so many steps, and the file operations for them.
        steps = moments.randint(1, max(1, min(2 * left // (kills - died), left // 2)))
        operations = 50 * steps.bit_length()
        child = os.fork()
        if child == 0:
            resume_and_die(folder, model, steps + moments.randint(0, operations))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            raise SystemExit(f"the run was finished after {died} kills: use more steps")
        died += 1
        print(f"killed {died}: {committed_steps(folder)} steps committed", flush=True)
    sampling.resume(folder)


main()
