"""What lies between the model that training began with and the one that it ended with?

A weighted mean of the two sets of weights gives up a little of the gain on the training sources
and keeps the conditionals less sharp.
"""

from __future__ import annotations

import argparse
import shutil

from safetensors.torch import load_file, save_file


def average(args: argparse.Namespace) -> None:
    """Writes share * trained + (1 - share) * init, in fp16, with the trained model's files."""
    first = load_file(args.init / "model.safetensors")
    last = load_file(args.trained / "model.safetensors")
    mean = {
        name: (args.share * last[name].float() + (1 - args.share) * first[name].float()).half()
        for name in last
    }
    args.out.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "training.json"):
        shutil.copyfile(args.trained / name, args.out / name)
    save_file(mean, args.out / "model.safetensors", metadata={"format": "pt"})
