"""glauber compare: several models from the same starts, in one table and on one page."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options
from glauber.cli.topics import Labels, read_labels

if TYPE_CHECKING:
    from glauber.comparison.models import Comparison, ModelRow, Traps


def compare(
    models: Annotated[str, typer.Option(help="Models with commas: bundled, folders, hub names.")],
    source: options.From = None,
    chains: Annotated[int, typer.Option(help="Chains of each model.")] = 20,
    length: Annotated[int, typer.Option(help="Tokens of each text, in each model's own.")] = 20,
    steps: options.Steps = 200,
    temperature: options.Temperature = 1.0,
    seed: options.Seed = 0,
    rectangles: Annotated[int, typer.Option(help="Random rectangles of each model.")] = 100,
    top: Annotated[int, typer.Option(help="Replacements come from so many likeliest tokens.")] = 50,
    labels: Labels = "topics",
    scorer: Annotated[str, typer.Option(help="similarity, or an NLI model.")] = "similarity",
    every: Annotated[int, typer.Option(help="One look every so many steps.")] = 20,
    shortest: Annotated[
        int, typer.Option(help="Steps within one token of a text that make a trap.")
    ] = 50,
    device: options.Device = "auto",
    out: Annotated[Path | None, typer.Option(help="HTML file of the page.")] = None,
    json: options.Json = False,
) -> None:
    """Compare models: incompatibility, entropy production, moves and topics, same starts."""
    from glauber.cli.screen import emit, say
    from glauber.cli.screen import out as screen
    from glauber.comparison.models import compare_models
    from glauber.conditionals.starts import read_texts
    from glauber.landscape.scorers import load_scorer

    listed = read_labels(labels)
    found = compare_models(
        [name.strip() for name in models.split(",") if name.strip()],
        load_scorer(scorer, listed, device=device),
        texts=None if source is None else read_texts(source),
        chains=chains,
        length=length,
        steps=steps,
        temperature=temperature,
        seed=seed,
        rectangles=rectangles,
        top=top,
        every=every,
        device=device,
        traps=_traps(shortest),
        starting=lambda name: say(f"{name} …", quiet=json),
    )
    if out is not None:
        _draw(found, out)
    if json:
        emit(told(found))
        return
    for row in found.rows:
        screen.print(row.model, style="bold", markup=False, highlight=False)
        for name, written in zip(HEAD[1:], written_row(row)[1:], strict=True):
            screen.print(f"{name:>28}  {written}", markup=False, highlight=False, soft_wrap=True)
        screen.print(row.signature, style="dim", markup=False, highlight=False, soft_wrap=True)
    if out is not None:
        say(f"the page is in {out}")


def _traps(shortest: int) -> "Traps":
    """Traps by Hamming balls of radius 1, in figures."""
    from glauber.conditionals.base import Restricted
    from glauber.metastability.catalogue import hamming_traps

    def found(model: Any, run: Any) -> dict[str, Any]:
        laws = Restricted(model, model.vocabulary.proposable().to(model.state_device))
        told = hamming_traps(run, laws, shortest=shortest, device=model.state_device).summary()
        share = f"{told.share:.0%}"
        return {"found": told.n_traps, "perfect": told.n_perfect, "share of steps": share}

    return found


HEAD = ("model", "mean rectangle Delta", "entropy production", "steps that changed", "topics at the"
        " end", "traps")  # fmt: skip


def written_row(row: "ModelRow") -> list[str]:
    """One model's figures, each with its error, as they are shown."""
    low, high = row.rectangles["interval"]
    made = row.entropy_production
    first, last = row.changed.interval or (row.changed.value, row.changed.value)
    ends = sorted(row.topics_end.items(), key=lambda pair: -pair[1].value)[:3]
    return [
        row.model,
        f"{row.rectangles['mean']:.3f} ({low:.3f} to {high:.3f}), "
        f"{row.rectangles['share_certified']:.0%} certified",
        f"{made.rate:.3f} +- {made.standard_error:.3f} nats a step",
        f"{row.changed.value:.1%} ({first:.1%} to {last:.1%})",
        ", ".join(f"{label} {mean.value:.2f}" for label, mean in ends),
        "not looked for"
        if row.traps is None
        else ", ".join(f"{name} {value}" for name, value in row.traps.items()),
    ]


def told(found: "Comparison") -> dict[str, Any]:
    """In one JSON object."""
    rows = [
        {
            "model": row.model,
            "rectangles": row.rectangles,
            "entropy_production": asdict(row.entropy_production),
            "changed": asdict(row.changed),
            "topics_start": {label: asdict(mean) for label, mean in row.topics_start.items()},
            "topics_end": {label: asdict(mean) for label, mean in row.topics_end.items()},
            "scorer": row.topics.scorer,
            "traps": row.traps,
            "texts": row.texts,
            "signature": row.signature,
            "seconds": row.seconds,
        }
        for row in found.rows
    ]
    return {"models": rows, "chains": found.n_chains, "steps": found.n_steps, "kind": found.kind}


def _draw(found: "Comparison", out: Path) -> None:
    from glauber.figures.page import write_picture
    from glauber.plots.comparison import comparison_table, plot_comparison, plot_topics_by_model

    table = comparison_table(HEAD, [written_row(row) for row in found.rows])
    write_picture(plot_comparison(found), plot_topics_by_model(found), table, path=out)
