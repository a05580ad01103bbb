"""glauber basins: among which kinds of text a run's chains stay, and how they change over."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options
from glauber.errors import GlauberError

if TYPE_CHECKING:
    from glauber.metastability.basin_model import BasinModel
    from glauber.metastability.clusters import Readable
    from glauber.metastability.looks import Looks
    from glauber.statistics import Estimate


def basins(
    run: options.RunFolder,
    embedder: Annotated[
        str | None,
        typer.Option(help="A sentence-transformers model (default: the one in the package)."),
    ] = None,
    clusters: Annotated[
        int | None,
        typer.Option(help="States of the model (default: half the root of the texts, 2 to 40)."),
    ] = None,
    lag: Annotated[int | None, typer.Option(help="Steps of a move (default: five looks).")] = None,
    every: Annotated[
        int | None, typer.Option(help="One look every so many steps (default: about 200 looks).")
    ] = None,
    sets: Annotated[
        int | None, typer.Option(help="Basins (default: by the largest eigenvalue gap).")
    ] = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="HTML file of the pictures.")] = None,
    json: options.Json = False,
) -> None:
    """Find the basins of a run: their texts, their timescales, the times and ways between them."""
    from glauber.cli.basin_lines import basin_lines
    from glauber.cli.screen import answer, looking
    from glauber.metastability.basin_model import basin_model
    from glauber.metastability.clusters import cluster, readable
    from glauber.metastability.looks import check_looks, read_looks, usual_stride
    from glauber.runs.embedding import load_embedder
    from glauber.runs.run import Run
    from glauber.runs.signature import signature

    opened = Run(run)
    stride = usual_stride(opened) if every is None else every
    check_looks(opened, stride)
    in_looks = _lag_in_looks(lag, stride)
    loaded = load_embedder(embedder, device, trust_remote_code=trust_remote_code)
    with looking(quiet=json) as listener:
        looks = read_looks(opened, loaded.embed, every=stride, listener=listener)
    labels = cluster(looks.vectors, clusters, seed=seed)
    found = basin_model(labels, every=stride, lag=in_looks, n_sets=sets, seed=seed)
    words = readable(looks.texts, looks.vectors, found.basin_of)
    if out is not None:
        _draw(looks, found, words, out)
    told = _plain(found, words) | {
        "clusters": int(labels.max()) + 1, "every": stride, "run": str(run), "chains": len(labels),
        "embedder": loaded.name, "signature": signature(opened.spec),
    }  # fmt: skip
    answer(told, basin_lines(told), json=json, picture=out)


def _lag_in_looks(lag: int | None, every: int) -> int:
    from glauber.metastability.basin_model import LAG

    if lag is None:
        return LAG
    if lag < 1 or lag % every:
        raise GlauberError(
            f"the lag is {lag} steps, but it must be a multiple of the {every} steps between looks."
        )
    return lag // every


def _plain(found: "BasinModel", words: "tuple[Readable, ...]") -> dict[str, Any]:
    """The basins in plain numbers and lists."""
    from dataclasses import asdict

    check = found.check
    return {
        "notes": list(found.notes),
        "lag": found.model.lag_steps,
        "states": len(found.model.states),
        "connected_share": found.model.share,
        "basins": [
            {"basin": k, **asdict(own)} | {
                "share": _figures(found.shares.part(k)),
                "staying": _figures(found.staying.part(k)),
            }
            for k, own in enumerate(words)
        ],
        "timescales": _figures(found.slow.part(slice(5))),
        "implied_timescales": {
            "lags": found.timescales.lags.tolist(), **_figures(found.timescales.steps)
        },
        "passage_times": _figures(found.passages),
        "transitions": [
            {
                "source": t.source, "target": t.target, "flux": t.flux, "kind": t.kind,
                "paths": [{"basins": list(path.basins), "share": path.share} for path in t.paths],
            }
            for t in found.transitions
        ],
        "chapman_kolmogorov": None if check is None else {
            "multiples": list(check.multiples), "holds": check.holds, "worst": _finite(check.worst),
            "limit": check.limit, "predicted": _figures(check.predicted),
            "counted": _figures(check.counted), "difference": _figures(check.difference),
        },
    }  # fmt: skip


def _finite(value: float | None) -> float | None:
    import math

    return value if value is not None and math.isfinite(value) else None


def _figures(found: "Estimate") -> dict[str, Any]:
    """An estimate as lists; null where there is no figure."""
    import numpy as np

    def plain(values: Any) -> Any:
        if values is None:
            return None
        array = np.asarray(values, np.float64).astype(object)
        array[~np.isfinite(values)] = None
        return array.tolist()

    return {
        "value": plain(found.value), "standard_error": plain(found.standard_error),
        "low": plain(found.low), "high": plain(found.high), "level": found.level,
        "kind": found.kind,
    }  # fmt: skip


def _draw(looks: "Looks", found: "BasinModel", words: "tuple[Readable, ...]", out: Path) -> None:
    from glauber.figures.metastability import plot_basin_network, plot_implied_timescales
    from glauber.figures.page import write_picture
    from glauber.landscape.trajectory import trajectory_in_plane
    from glauber.plots.trajectory import plot_trajectory

    plane = trajectory_in_plane(looks.vectors, looks.steps, looks.texts)
    most = max(range(looks.n_chains), key=lambda chain: len(set(found.basin_of[chain])))
    write_picture(
        plot_basin_network(found, words),
        plot_implied_timescales(found.timescales, lag=found.model.lag_steps),
        plot_trajectory(plane, chain=most),
        path=out,
    )
