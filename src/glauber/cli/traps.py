"""glauber traps: where a run's chains got stuck, in which texts, and for how long."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options
from glauber.errors import GlauberError

if TYPE_CHECKING:
    from glauber.metastability.catalogue import Catalogue
    from glauber.runs.run import Run


def traps(
    run: options.RunFolder,
    detector: Annotated[
        str, typer.Option(help="rolling (embeddings), hamming (exact) or both.")
    ] = "both",
    window: Annotated[int, typer.Option(help="rolling: steps compared with a look.")] = 300,
    stride: Annotated[int, typer.Option(help="rolling: one look every so many steps.")] = 50,
    threshold: Annotated[
        float, typer.Option(help="rolling: a drift below this, 1 - cosine, is a trap's.")
    ] = 0.12,
    radius: Annotated[int, typer.Option(help="hamming: tokens that may differ.")] = 1,
    shortest: Annotated[int, typer.Option(help="Steps below which nothing is a trap.")] = 150,
    reach: Annotated[int, typer.Option(min=0, help="Edits between two traps of a family.")] = 3,
    embedder: Annotated[
        str | None,
        typer.Option(help="A sentence-transformers model (default: the one in the package)."),
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with that model.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="Another device than the run's.")] = None,
    show: Annotated[int, typer.Option(min=0, help="How many traps to print.")] = 20,
    out: Annotated[Path | None, typer.Option(help="HTML file of the pictures.")] = None,
    json: options.Json = False,
) -> None:
    """List the traps of a run: texts, durations, gaps, exact holding times and escapes."""
    from glauber.cli.reading import refuse_int8
    from glauber.metastability.catalogue import hamming_traps, rolling_traps
    from glauber.runs.embedding import load_embedder
    from glauber.runs.run import Run
    from glauber.sampling.sample import reopen

    opened = Run(run)
    rolling: dict[str, Any] = {"window": window, "stride": stride, "threshold": threshold}
    _check(opened, detector, rolling, radius, shortest)
    refuse_int8(opened.spec.dtype)
    plan = reopen(opened, device=device)
    common: dict[str, Any] = {
        "shortest": shortest, "reach": reach, "device": plan.model.state_device
    }  # fmt: skip
    found = []
    if detector != "hamming":
        loaded = load_embedder(embedder, device, trust_remote_code=trust_remote_code)
        found += [rolling_traps(opened, plan.laws, loaded.embed, **rolling, **common)]
    if detector != "rolling":
        found += [hamming_traps(opened, plan.laws, radius=radius, **common)]
    if out is not None:
        _draw(found, out)
    _tell(opened, found, show, out, json=json)


def _check(run: "Run", detector: str, rolling: dict[str, Any], radius: int, shortest: int) -> None:
    """Refuses what cannot be searched, before a model is loaded."""
    from glauber.metastability.episodes import check_ball, check_steps, check_window

    if detector not in ("rolling", "hamming", "both"):
        raise GlauberError(f"the detector is {detector}, but it must be rolling, hamming or both.")
    check_steps(run)
    check_ball(radius, shortest)
    if detector != "hamming":
        check_window(run, **rolling)


def _tell(run: "Run", found: "list[Catalogue]", show: int, out: Path | None, *, json: bool) -> None:
    from glauber.cli.screen import emit, say
    from glauber.cli.screen import out as screen
    from glauber.runs.signature import signature

    made = signature(run.spec)
    if json:
        told = [each.to_dict() for each in found]
        emit({"run": str(run.folder), "signature": made, "catalogues": told})
        return
    for catalogue in found:
        for line in catalogue.lines(show):
            screen.print(line, markup=False, highlight=False, soft_wrap=True)
    screen.print(made, style="dim", markup=False, highlight=False, soft_wrap=True)
    if out is not None:
        say(f"the pictures are in {out}")


def _draw(found: "list[Catalogue]", out: Path) -> None:
    from glauber.figures.metastability import plot_gaps_against_duration, plot_trap_timeline
    from glauber.figures.page import write_picture

    pictures = [
        draw(each) for each in found for draw in (plot_trap_timeline, plot_gaps_against_duration)
    ]
    write_picture(*pictures, path=out)
