"""glauber rectangle: is there a joint law behind these conditionals?"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options
from glauber.cli.sample import check_place, read_texts
from glauber.errors import GlauberError

if TYPE_CHECKING:
    from glauber.compatibility import RectangleStudy
    from glauber.conditionals.masked_lm import MaskedLM


def rectangle(
    model: options.Model = "bundled:english",
    source: options.From = None,
    count: Annotated[int, typer.Option(help="How many random rectangles.")] = 300,
    length: options.Length = 20,
    top: Annotated[int, typer.Option(help="Replacements come from so many first choices.")] = 50,
    seed: options.Seed = 0,
    strongest: Annotated[int, typer.Option(min=0, help="How many certificates to write out.")] = 3,
    device: options.Device = "auto",
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="New folder: JSON, pictures.")] = None,
    json: options.Json = False,
) -> None:
    """Measure how far a model's conditionals are from any joint law, by random rectangles."""
    texts = None if source is None else read_texts(source)
    if out is not None:
        check_place(out)
    if length is not None and length < 2:
        raise GlauberError(f"the length is {length}, but a rectangle needs two sites.")
    from glauber.cli.screen import emit
    from glauber.compatibility.draw import check_numbers

    check_numbers(count, seed, top)  # before a model is loaded
    from glauber.compatibility import rectangles_of_model
    from glauber.conditionals.bundled import passages
    from glauber.conditionals.masked_lm import MaskedLM
    from glauber.sampling.plan import starts

    laws = MaskedLM.load(model, device=device, trust_remote_code=trust_remote_code)
    tokens, free = starts(laws, texts or [text for _, text in passages()], length=length)
    study = rectangles_of_model(laws, tokens, free=free, count=count, seed=seed, top=top)
    told = _told(laws, study, strongest)
    told["signature"] = _signature(laws, study, source, length, top)
    if out is not None:
        _write(out, study, told)
    emit(told) if json else _tell(told)


def _told(laws: "MaskedLM", study: "RectangleStudy", strongest: int) -> dict[str, Any]:
    """The study in one JSON object."""
    from glauber.compatibility import read_rectangle

    readings = [
        read_rectangle(study.rectangles, which, laws.vocabulary)
        for which in study.strongest(strongest)
    ]
    return {
        "model": laws.name,
        **study.summary(),
        "strongest": [asdict(reading) for reading in readings],
        "seconds": {"float32": study.seconds, "float64": study.precise_seconds},
    }


def _signature(
    laws: "MaskedLM", study: "RectangleStudy", source: Path | None, length: int | None, top: int
) -> str:
    """How the figures were made, in one line."""
    from glauber.runs.spec import versions

    found = versions()
    parts = {
        "model": laws.name,
        "weights": laws.fingerprint[:12],
        "texts": "bundled" if source is None else source.name,
        "length": "whole" if length is None else str(length),
        "rectangles": str(len(study.rectangles)),
        "replacements": f"uniform-top-{top}",
        "seed": str(study.seed),
        "device": f"{laws.device.type}/float32",
        "glauber": found["glauber"],
        "torch": found["torch"],
    }
    return "|".join(f"{key}:{value}" for key, value in parts.items())


def _write(folder: Path, study: "RectangleStudy", told: dict[str, Any]) -> None:
    """Writes the figures, every rectangle's numbers, and the pictures."""
    from glauber.plots.picture import write_picture
    from glauber.plots.rectangles import plot_delta_against_influence, plot_deltas
    from glauber.runs.spec import write_json

    influence = study.influence
    assert influence is not None
    each = {"delta": study.delta.tolist(), "influence": influence.tolist()}
    pictures = {
        "histogram": plot_deltas(study.delta, study.noise_floor),
        "influence": plot_delta_against_influence(influence, study.delta),
    }
    try:
        folder.mkdir(parents=True)
        write_json(folder / "rectangles.json", told | {"rectangles": each})
        for name, figure in pictures.items():
            write_picture(figure, path=folder / f"{name}.html")
    except OSError as error:
        raise GlauberError(f"{folder} cannot be written: {error.strerror or error}.") from error


def _tell(told: dict[str, Any]) -> None:
    """The study for a person."""
    from glauber.cli.screen import out

    def line(text: str, style: str = "none") -> None:
        out.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    low, high = told["interval"]
    line(f"mean Delta {told['mean']:.3f} (95% bootstrap {low:.3f} to {high:.3f}), an estimate")
    cuts = ", ".join(f"{name}: {value:.3f}" for name, value in told["quantiles"].items())
    line(f"median {told['median']:.3f}; quantiles {cuts}")
    line(
        f"{told['certified']} of {told['count']} rectangles lie above the noise floor of "
        f"{told['noise_floor']:.1e} (the largest float32 - float64 difference): "
        + ("no joint law owns these conditionals" if told["certified"] else "no certificate")
    )
    for reading in told["strongest"]:
        (a, new_a), (b, new_b) = reading["changes"]
        line(f"\nDelta {reading['delta']:.3f}: {a} -> {new_a} and {b} -> {new_b}", "bold")
        names = ("as it was", f"with {new_a}", f"with {new_b}", "with both")
        for name, text in zip(names, reading["corners"], strict=True):
            line(f"  {name:>24}  {text}")
        line(
            f"  log-ratio of the last to the first: {reading['one_way']:+.3f} by way of {new_a}, "
            f"{reading['other_way']:+.3f} by way of {new_b}"
        )
    line(told["signature"], "dim")
