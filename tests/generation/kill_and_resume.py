"""Writes a stored generation in children that are killed at random moments, then finishes it.

python kill_and_resume.py MODEL RUN KILLS

A child counts its file operations and sends itself SIGKILL at a random one. Prints how often.
"""

import os
import random
import signal
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # no threads are alive when a child is forked
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from test_generate import STORED

import glauber
from glauber.generation import stored


def write_and_die(model: glauber.MaskedLM, out: Path, at: int) -> None:
    left = at

    def hook(event: str, args: object) -> None:
        nonlocal left
        if event in ("open", "os.rename", "os.remove"):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    glauber.generate(model, out=out, **STORED)


def main() -> None:
    name, out, kills = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    stored.COMMIT_SECONDS = 0.0  # every pass is committed
    model = glauber.load(name, device="cpu")
    torch.set_num_threads(1)
    moments = random.Random(1)
    died = 0
    for _ in range(kills):
        child = os.fork()
        if child == 0:
            write_and_die(model, out, moments.randint(30, 330))
            os._exit(0)
        died += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    glauber.generate(model, out=out, **STORED)
    print(died)


if __name__ == "__main__":
    main()
