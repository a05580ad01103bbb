"""glauber ising race: how many steps the samplers of the clique model need, exactly."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options
from glauber.cli.ising_options import Clique, Couplings, Field, Picture, Sites, strengths
from glauber.cli.numbers import numbers

if TYPE_CHECKING:
    from glauber.exact.samplers.race import Race, Runner


def race(
    sites: Sites = 10,
    clique: Clique = 4,
    field: Field = 5.0,
    couplings: Couplings = "0.5,1,2,5,8",
    blocks: Annotated[str, typer.Option(help="Block sizes k (default: 1 to N).")] = "",
    budget: Annotated[int, typer.Option(help="Steps of a simulated chain, at most.")] = 1000,
    chains: Annotated[int, typer.Option(help="Simulated chains of each sampler; 0: none.")] = 10,
    delta: Annotated[float, typer.Option(help="Chance that the horizons leave out.")] = 0.1,
    seed: options.Seed = 0,
    out: Picture = None,
    json: options.Json = False,
) -> None:
    """Print the exact steps from R-1 to R1 of k-Gibbs and of the parallel sampler, against J."""
    from glauber.cli.screen import emit, say
    from glauber.cli.screen import out as screen
    from glauber.exact.samplers.clique import Clique as Model
    from glauber.exact.samplers.race import race as run

    ks = [int(k) for k in numbers(blocks, "block sizes", whole=True)] or None
    races = [
        run(Model(sites, clique, j, field), ks=ks, budget=budget, delta=delta, n_chains=chains,
            seed=seed + slot)
        for slot, j in enumerate(strengths(couplings))
    ]  # fmt: skip
    if out is not None:
        from glauber.figures.page import write_picture
        from glauber.plots.race import plot_race

        write_picture(plot_race(races), plot_race(races, up_to=2 * budget), path=out)
    told = [told_race(one) for one in races]
    if json:
        emit({"sites": sites, "clique": clique, "field": field, "seed": seed, "races": told})
        return
    for one in told:
        for line in _race_lines(one):
            screen.print(line, markup=False, highlight=False, soft_wrap=True)
    if out is not None:
        say(f"the pictures are in {out}")


def told_race(one: "Race") -> dict[str, Any]:
    """A race in plain values."""
    return {
        "coupling": one.model.coupling,
        "budget": one.budget,
        "delta": one.delta,
        "condition": one.constants.broken or "strongly ferromagnetic",
        "gibbs": [_runner(runner) for runner in one.gibbs],
        "parallel": _runner(one.parallel),
    }


def _runner(one: "Runner") -> dict[str, Any]:
    seen = one.simulated
    return {
        "k": one.k,
        "mean": {"log10": one.log10_mean, "kind": "exact"},
        "arrives_within_budget": {"value": one.within_budget, "kind": "exact"},
        "mean_up_to_budget": {
            "value": one.budget_mean, "deviation": one.budget_deviation, "kind": "exact",
        },
        "horizon": {
            "value": one.horizon, "kept": one.horizon_kept,
            "kind": "lower bound" if one.k is None else "upper bound",
        },
        "simulated": None if seen is None else {
            "arrived": int(seen.arrived.sum()), "of": len(seen.steps),
            "mean_up_to_budget": seen.mean, "standard_error": seen.standard_error,
            "kind": "estimate",
        },
    }  # fmt: skip


def _race_lines(one: dict[str, Any]) -> list[str]:
    within, drawn = f"in {one['budget']:,} steps", f"simulated to {one['budget']:,}"
    lines = [
        f"J = {one['coupling']:g} ({one['condition']})",
        f"{'k':>10}  {'mean steps':>12}  {within:>14}  {drawn:>24}  "
        f"horizon for {1 - one['delta']:g}",
    ]
    for runner in (*one["gibbs"], one["parallel"]):
        name = "parallel" if runner["k"] is None else str(runner["k"])
        seen, horizon = runner["simulated"], runner["horizon"]["value"]
        drawn = "-"
        if seen is not None:
            drawn = f"{seen['mean_up_to_budget']:.4g} +- {seen['standard_error']:.2g}"
        lines.append(
            f"{name:>10}  {power(runner['mean']['log10']):>12}  "
            f"{runner['arrives_within_budget']['value']:>14.6g}  {drawn:>24}  "
            f"{'-' if horizon is None else format(horizon, ',')}"
        )
    return lines


def power(log10: float) -> str:
    """A number by its logarithm, also where floats end."""
    if log10 < 5:
        return f"{10**log10:,.4g}"
    whole = int(log10 // 1)
    return f"{10 ** (log10 - whole):.2f}e{whole}"
