"""glauber train-translator: from pairs of sentences to a translator that refines."""

from pathlib import Path
from typing import Annotated

import typer

from glauber.cli import options


def train_translator(
    pairs: Annotated[str, typer.Argument(help="Two-column file, plain or xz, or hub:NAME:CONFIG.")],
    out: Annotated[Path, typer.Option(help="Folder of the translator; goes on if it is there.")],
    steps: Annotated[int, typer.Option(help="Training steps of teacher and student.")] = 5000,
    batch: Annotated[int, typer.Option(help="Pairs of a batch.")] = 2048,
    vocabulary: Annotated[int, typer.Option(help="Tokens of the shared vocabulary.")] = 8000,
    width: Annotated[int, typer.Option(help="Hidden units.")] = 256,
    layers: Annotated[int, typer.Option(help="Layers of encoder and decoder each.")] = 3,
    further: Annotated[
        Path | None, typer.Option(help="Sentences without a translation, one a line.")
    ] = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Train a teacher, distil it and train a student: what `translate --models OUT` uses."""
    from dataclasses import asdict

    from glauber.cli.screen import emit, say
    from glauber.conditionals.weights import choose_device
    from glauber.translation.model import Shape
    from glauber.translation.pipeline import make, read_lines, read_training
    from glauber.translation.train import Plan

    plan = Plan(
        steps, batch, warmup=max(1, min(400, steps // 5)), seed=seed, corruption="mask", kept=None
    )
    plan.check()
    shape = Shape(
        vocab_size=vocabulary, width=width, n_encoder=layers, n_decoder=layers, inner=5 * width // 2
    )
    learnt = make(
        read_training(pairs),
        out,
        plan,
        shape=shape,
        further=read_lines(further) if further else [],
        device=choose_device(device).type,
        hear=say,
    )
    if json:
        emit({"folder": str(out), "models": [asdict(one) for one in learnt]})
    else:
        say(f'{out} holds the translator: glauber translate "…" --models {out}')
