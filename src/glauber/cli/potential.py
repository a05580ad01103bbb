"""glauber potential: the function of the text that explains a run's conditionals best."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options
from glauber.errors import GlauberError

if TYPE_CHECKING:
    from glauber.compatibility.potential import Ranking, Visits
    from glauber.runs.run import Run


def potential(
    run: options.RunFolder,
    states: Annotated[int, typer.Option(help="How many of the most visited states.")] = 100,
    neighbours: Annotated[
        int, typer.Option(min=0, help="Refills of each site that join in (0: none).")
    ] = 2,
    burn_in: Annotated[
        int | None, typer.Option("--burn-in", help="Steps not counted (default: half).")
    ] = None,
    show: Annotated[int, typer.Option(min=0, help="How many texts to print.")] = 5,
    device: Annotated[str | None, typer.Option(help="Another device than the run's.")] = None,
    out: Annotated[Path | None, typer.Option(help="HTML file of the picture.")] = None,
    json: options.Json = False,
) -> None:
    """Rank a run's texts by potential, pseudo-log-likelihood and visits; say what no law explains.

    Texts compare best where chains come back to them: cold runs, or few free sites.
    """
    from glauber.cli.screen import emit, say
    from glauber.runs.run import Run

    opened = Run(run)
    seen, found = _ranking(opened, states, neighbours, burn_in, device)
    told = _told(opened, seen, found)
    if out is not None:
        _draw(out, told["texts"])
    if json:
        emit(told)
        return
    _tell(told, show)
    if out is not None:
        say(f"the picture is in {out}")


def _ranking(
    run: "Run", most: int, top: int, burn_in: int | None, device: str | None
) -> "tuple[Visits, Ranking]":
    from glauber.cli.screen import say
    from glauber.compatibility.hodge import with_neighbours
    from glauber.compatibility.potential import ranking, visits
    from glauber.sampling.sample import reopen

    if run.steps == 0:
        raise GlauberError(f"the run {run.folder} has no steps yet, so it visited nothing.")
    seen = visits(run, burn_in=burn_in, most=most)
    laws = reopen(run, device=device).laws
    asked = int(seen.free.sum())
    say(f"{len(seen.states)} states, about {asked * (2 + top) if top else asked:,} evaluations")
    beside = with_neighbours(laws, seen.states, seen.free, top=top) if top else None
    found = ranking(
        laws,
        seen.states,
        seen.counts,
        free=seen.free,
        beside=beside,
        temperature=run.spec.temperature,
        kind="estimate",
    )
    return seen, found


def _told(run: "Run", seen: "Visits", found: "Ranking") -> dict[str, Any]:
    """Everything in one JSON object; texts in order of falling potential."""
    from glauber.runs.signature import signature

    split = found.split
    order = sorted(range(len(found.states)), key=lambda i: -float(found.potential[i]))
    return {
        "run": str(run.folder),
        "share": {"value": split.share, "kind": "exact for these states and edges"},
        "states": len(split.states),
        "edges": split.n_edges,
        "checks": split.n_checks,
        "visited": {"different": seen.n_visited, "steps": seen.n_steps, "burn_in": seen.burn_in},
        "ranked": len(found.states),
        "correlations": _correlations(found),
        "temperature": run.spec.temperature,
        "texts": [
            {
                "text": run.vocabulary.decode(found.states[i].tolist()),
                "potential": float(found.potential[i]),
                "pll": float(found.pll[i]),
                "steps": int(found.law[i]),
            }
            for i in order
        ],
        "signature": signature(run.spec),
    }


def _correlations(found: "Ranking") -> dict[str, Any]:
    """Spearman's, or null for each where one of the lists has no order."""
    import numpy as np

    from glauber.compatibility.potential import rank_correlation

    lists = {"potential": found.potential, "pll": found.pll, "visits": np.log(found.law)}
    pairs = (("pll", "visits"), ("potential", "visits"), ("potential", "pll"))
    told: dict[str, Any] = {"kind": found.kind}
    for a, b in pairs:
        try:
            told[f"{a}_{b}"] = rank_correlation(lists[a], lists[b])
        except GlauberError:  # such as all states visited once
            told[f"{a}_{b}"] = None
    return told


def _tell(told: dict[str, Any], show: int) -> None:
    from glauber.cli.screen import out

    def line(text: str, style: str = "none") -> None:
        out.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    line(
        f"{told['share']['value']:.2%} of the flow over {told['edges']:,} edges between "
        f"{told['states']:,} states is explained by no joint law (exact for these states; "
        f"{told['checks']:,} independent closed walks test it)"
    )
    line(f"rank correlations over {told['ranked']} visited states (estimates):")
    names = {
        "pll_visits": "pseudo-log-likelihood and visits",
        "potential_visits": "potential and visits",
        "potential_pll": "potential and pseudo-log-likelihood",
    }
    for key, name in names.items():
        value = told["correlations"][key]
        line(f"  {name:>36}  " + ("no order to compare" if value is None else f"{value:+.3f}"))
    if show:
        line("  potential     PLL  steps  text")
    for one in told["texts"][:show]:
        line(f"  {one['potential']:9.3f} {one['pll']:7.2f} {one['steps']:6,}  {one['text']}")
    line(told["signature"], "dim")


def _draw(path: Path, texts: list[dict[str, Any]]) -> None:
    import numpy as np

    from glauber.figures.page import write_picture
    from glauber.plots.potential import plot_potential

    columns = {key: np.array([one[key] for one in texts]) for key in ("potential", "pll", "steps")}
    figure = plot_potential(
        columns["potential"], columns["pll"], columns["steps"], [one["text"] for one in texts]
    )
    write_picture(figure, path=path)
