"""The command line: prepare, train, average, evaluate."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from .average import average
from .evaluate import evaluate
from .prepare import prepare
from .train import train


def main() -> None:
    """Reads the command line and runs one of the steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    steps = parser.add_subparsers(required=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    step = steps.add_parser("prepare", help="cut the vocabulary of a model")
    step.set_defaults(run=prepare)
    step.add_argument("--data", type=Path, required=True)
    step.add_argument("--init", type=Path, required=True)
    step.add_argument("--vocab", type=int, default=15360)
    step.add_argument("--out", type=Path, required=True)

    step = steps.add_parser("train", help="train a prepared model")
    step.set_defaults(run=train)
    step.add_argument("--data", type=Path, required=True)
    step.add_argument("--init", type=Path, required=True)
    step.add_argument("--out", type=Path, required=True)
    step.add_argument("--seconds", type=float, default=400.0)
    step.add_argument("--batch", type=int, default=1024, help="rows of the first length")
    step.add_argument(
        "--lengths",
        type=int,
        nargs="+",
        default=[128],
        help="tokens of a row; batches of each length in turns, with as many tokens",
    )
    step.add_argument(
        "--to-write",
        action="store_true",
        help="hide 0 to 100%% in every other row, begin at sentences, count rows alike",
    )
    step.add_argument("--peak", type=float, default=1e-3, help="highest learning rate")
    step.add_argument("--warmup", type=int, default=200, help="steps")
    step.add_argument("--seed", type=int, default=0)
    step.add_argument("--device", default=device)
    step.add_argument("--resume", action="store_true", help="go on from OUT/checkpoint.pt")

    step = steps.add_parser("average", help="a mean of the weights before and after training")
    step.set_defaults(run=average)
    step.add_argument("--init", type=Path, required=True)
    step.add_argument("--trained", type=Path, required=True)
    step.add_argument("--share", type=float, default=0.7, help="of the trained weights")
    step.add_argument("--out", type=Path, required=True)

    step = steps.add_parser("evaluate", help="figures on WikiText-2 test")
    step.set_defaults(run=evaluate)
    step.add_argument("--data", type=Path, required=True)
    step.add_argument("--models", type=Path, nargs="+", required=True)
    step.add_argument("--limit", type=int, default=None, help="passages")
    step.add_argument("--device", default=device)

    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
