"""glauber semantic-drift: how far a run's texts moved in meaning, and when."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options
from glauber.errors import GlauberError

if TYPE_CHECKING:
    from glauber.mixing.drift import Distances, Saturation


def semantic_drift(
    run: options.RunFolder,
    embedder: Annotated[
        str | None,
        typer.Option(help="A sentence-transformers model (default: the one in the package)."),
    ] = None,
    every: Annotated[int, typer.Option(help="One look every so many steps.")] = 50,
    threshold: Annotated[float, typer.Option(help="Distance whose first passage counts.")] = 0.5,
    device: options.Device = "auto",
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="HTML file of the picture.")] = None,
    json: options.Json = False,
) -> None:
    """Measure how far a run's texts moved in meaning, where that stays, and when it got there."""
    from glauber.cli.screen import answer, looking
    from glauber.mixing.drift import distances, saturation
    from glauber.mixing.hitting import check_threshold, hitting_times
    from glauber.runs.embedding import load_embedder
    from glauber.runs.run import Run
    from glauber.runs.signature import signature

    check_threshold(threshold)
    opened = Run(run)
    loaded = load_embedder(embedder, device, trust_remote_code=trust_remote_code)
    with looking(quiet=json) as listener:
        found = distances(opened, loaded.embed, every=every, listener=listener)
    level = saturation(found) if len(found.steps) >= 8 else None
    times = hitting_times(found, threshold)
    if out is not None:
        _draw(found, level, threshold, out)
    told = _plain(found, level) | {
        "hitting_time": {
            "threshold": threshold, "hit": times.n_hit, "censored": len(times.hit) - times.n_hit,
            "steps": [int(s) if h else None for s, h in zip(times.steps, times.hit, strict=True)],
            "median": asdict(times.median),
        },
        "run": str(run), "embedder": loaded.name, "signature": signature(opened.spec),
    }  # fmt: skip
    answer(told, _lines(told), json=json, picture=out)


def _plain(found: "Distances", level: "Saturation | None") -> dict[str, Any]:
    import numpy as np

    return {
        "steps": found.steps.tolist(),
        "median": np.median(found.values, axis=0).tolist(),
        "distances": found.values.tolist(),
        "every": found.every,
        "saturation": None if level is None else asdict(level) | {"kind": level.kind},
    }


def _lines(told: dict[str, Any]) -> list[str]:
    """The figures for the terminal, each with its kind."""
    steps, median = told["steps"], told["median"]
    shown = sorted({round(i * (len(steps) - 1) / 5) for i in range(6)})
    lines = ["median distance from the start, 1 - cosine of the embeddings (estimates)"]
    lines += [f"{steps[i]:>10,}  {median[i]:.3f}" for i in shown]
    return [*lines, _level_line(told["saturation"]), _time_line(told), told["signature"]]


def _level_line(level: dict[str, Any] | None) -> str:
    if level is None:
        return "too few looks for a saturation level: look more often, or make the run longer"
    rise = level["rise"]["value"]
    if level["settled"] is None:
        return (
            f"mean of the last quarter {level['level']['value']:.3f}; one chain cannot show "
            "whether that is where distances stay"
        )
    low, high = level["level"]["interval"]
    figure = f"{level['level']['value']:.3f} ({level['kind']}, 95% interval {low:.3f} to {high:.3f}"
    if level["settled"]:
        return f"saturation level {figure})"
    return f"no saturation yet: the last quarter rose by {rise:.3f} to {figure})"


def _time_line(told: dict[str, Any]) -> str:
    time = told["hitting_time"]
    total = time["hit"] + time["censored"]
    line = f"{time['hit']} of {total} chains reached {time['threshold']:g}"
    if time["median"]["value"] is None:
        return f"{line}; the median time lies beyond the run"
    low, high = ("open" if end is None else f"{end:,.0f}" for end in time["median"]["interval"])
    return (
        f"{line}; median time {time['median']['value']:,.0f} steps (Kaplan-Meier estimate, 95% "
        f"interval {low} to {high}, looks {told['every']} steps apart)"
    )


def _draw(found: "Distances", level: "Saturation | None", threshold: float, out: Path) -> None:
    from glauber.plots.semantic_drift import plot_semantic_drift

    drawn = plot_semantic_drift(found, level, threshold=threshold)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(drawn.to_html(config={"displayModeBar": False}), encoding="utf-8")
    except OSError as error:
        raise GlauberError(f"{out} cannot be written: {error.strerror or error}.") from error
