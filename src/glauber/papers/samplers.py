"""Paper B on samplers: several sites at once (figure 3, Corollary 3), sites chosen by the state."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from glauber.figures.ising import plot_race
from glauber.ising.mode_race import Race, Races, Runner, race
from glauber.ising.sampler_separation import Separations, separation
from glauber.papers.claims import (
    EXACT,
    Claim,
    Quantity,
    Region,
    above,
    at_least,
    at_most,
    below,
)
from glauber.papers.paper import Reproduction
from glauber.papers.settings import Piece, Settings

SITES, CLIQUE, FIELD, BUDGET = 10, 4, 5.0, 1000
PUBLISHED_CHAINS, CHAINS = 10, 100
COUPLINGS = {
    "small": (0.5, 1.0, 2.0, 5.0, 8.0),
    "paper": (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0),
}
CASES = {  # (M, delta) of Corollary 3
    "small": ((1, 0.5), (10, 0.1)),
    "paper": ((1, 0.5), (10, 0.1), (100, 0.1), (1000, 0.1), (1000, 0.01)),
}
CONDITION = "h_G = 20 < 30 breaks the strongly ferromagnetic condition"
RARELY = 1e-6  # a chance below which nobody would have seen it arrive
PUBLISHED = "larger k faster, larger J slower; the parallel sampler never arrives"


def figure3(settings: Settings) -> Reproduction:
    """Steps that k-Gibbs needs from R-1 to R1, and the parallel sampler's failure.

    The couplings are missing from the text of the paper that we have, so they are ours. With h = 5
    at all ten sites h_G = 20 is below 30, so the model is not strongly ferromagnetic, and the
    propositions beside the figure apply only as far as each row says.
    """
    chains = settings.chains or CHAINS
    how = (
        f"N = {SITES}, |C| = {CLIQUE}, h = {FIELD:g}, from all -1 to R1: exact means, "
        f"{chains} simulated chains with a budget of {BUDGET:,} steps; the couplings are ours. "
        f"{CONDITION}; J_0 = J - {FIELD:g}, so the propositions speak of J above {FIELD:g} only"
    )
    found = _race(COUPLINGS[settings.scale], chains=chains, seed=settings.seed).races
    rows = [_row(one, runner) for one in found for runner in one.runners]
    # Exact figures at further couplings, for smooth lines.
    grid = [float(j) for j in np.arange(0.25, 8.0, 0.25) if j not in COUPLINGS[settings.scale]]
    between = _race(grid, chains=0, seed=settings.seed).races
    shown = sorted([*found, *between], key=lambda one: one.model.coupling)
    pictures = {"race": plot_race(shown), "budget": plot_race(shown, up_to=2 * BUDGET)}
    return Reproduction.of(
        settings, how, rows, claims=_claims(found), pictures=pictures,
        differs=[f"{chains} simulated chains, the paper has {PUBLISHED_CHAINS}", CONDITION],
        ours=["the couplings: " + ", ".join(f"{one.model.coupling:g}" for one in found)],
    )  # fmt: skip


def _claims(found: Sequence[Race]) -> list[Claim]:
    """What the figure and the propositions say, from the exact chains."""
    means = np.array([[runner.log10_mean for runner in one.gibbs] for one in found])  # (J, k)
    slower = 10.0 ** (means[-1] - means[0])
    weak, strong = found[0].model.coupling, found[-1].model.coupling
    over = f"mean steps at J = {strong:g} over those at J = {weak:g}"
    kept = [
        bool(run.horizon_kept) for one in found for run in one.runners if run.horizon is not None
    ]
    chances = ", ".join(
        f"{one.parallel.within_budget:.2g} at {one.model.coupling:g}" for one in found
    )
    late = [one for one in found if one.model.coupling >= FIELD]
    return [
        _claim("larger k is faster", "larger k is faster",
               "mean steps of k + 1 over those of k, largest over k and J",
               float(10 ** np.diff(means, axis=1).max()), below(1.0)),
        _claim("larger J is slower (N-Gibbs takes one step at any J)", "larger J is slower",
               f"{over}, smallest over k < N", float(slower[:-1].min()), above(1.0)),
        _claim("the parallel sampler never arrives within the budget, for any J that was tried",
               "never, for any of the J tried",
               f"its chance at these J, which are not in our text; at ours: {chances}",
               None, below(RARELY)),
        _claim(f"the parallel sampler never arrives within the budget, for J >= {FIELD:g}",
               "never, for any of the J tried",
               f"its chance to arrive within {BUDGET:,} steps, largest over these J",
               max(one.parallel.within_budget for one in late), below(RARELY)),
        _claim("k-Gibbs arrives, and the parallel sampler stays, as long as is promised",
               "with probability 1 - delta",
               f"share of {len(kept)} horizons that the exact chain keeps", float(np.mean(kept)),
               at_least(1.0), source="paper B, Propositions 4 and 5"),
    ]  # fmt: skip


def _claim(
    sentence: str,
    published: str,
    name: str,
    value: float | None,
    region: Region,
    source: str = "paper B, figure 3",
) -> Claim:
    return Claim(sentence, source, published, Quantity(name, value, kind=EXACT), region)


def _race(couplings: Any, *, chains: int, seed: int) -> Races:
    return race(
        sites=SITES, clique=CLIQUE, field=FIELD, couplings=couplings, budget=BUDGET, chains=chains,
        seed=seed,
    )  # fmt: skip


def _row(one: Race, runner: Runner) -> dict[str, Any]:
    seen = runner.simulated
    assert seen is not None
    return {
        "J": one.model.coupling,
        "sampler": "parallel" if runner.k is None else f"{runner.k}-Gibbs",
        "log10 of the mean steps": runner.log10_mean,
        "arrives within the budget": runner.within_budget,
        "kind": "exact",
        "simulated mean up to the budget": seen.mean,
        "standard error": seen.standard_error,
        "exact mean up to the budget": runner.budget_mean,
        "simulated arrivals": f"{int(seen.arrived.sum())} of {len(seen.steps)}",
        "horizon of the proposition": runner.horizon,
        "published": PUBLISHED,
    }


def corollary3(settings: Settings) -> Reproduction:
    """N-Gibbs is in R1 after one step, the parallel sampler not within M: promised, and exact.

    The corollary asks for large cliques (25 sites and more), so the chains are lumped by the number
    of ones in the clique. Beside it stands the smallest clique for which the separation holds with
    the same h_G and J_0 = |C| ln 2 / 2.
    """
    how = (
        "the weakest model that the corollary allows (N = |C|, no site outside), from the best "
        "start with sum <= -2; exact chances by lumping"
    )
    found = [separation(steps=steps, delta=delta) for steps, delta in CASES[settings.scale]]
    rows = [_separation_row(each) for each in found]
    failed = max(
        (each.promised.gibbs_misses + each.promised.parallel_arrives) / each.promised.delta
        for each in found
    )
    claim = _claim(
        "N-Gibbs is in R1 after one step and the parallel sampler not within M",
        "with probability 1 - delta", "exact chance of failure over delta, largest", failed,
        at_most(1.0), source="paper B, Corollary 3",
    )  # fmt: skip
    return Reproduction.of(
        settings, how, rows, claims=[claim], pictures=found[0].figures(), ours=["M and delta"]
    )


def _separation_row(found: Separations) -> dict[str, Any]:
    record = found.to_dict()
    names = {
        "gibbs_misses": "N-Gibbs not there after one step",
        "log10_parallel_arrives": "log10 of the chance that parallel is there within M",
    }
    return {
        "M": record["steps"],
        "delta": record["delta"],
        "|C| of the corollary": record["promised"]["sites"],
        "promised chance of failure": record["delta"],
        **{name: record["promised"][key] for key, name in names.items()},
        "horizon of proposition 5": record["horizon_of_proposition_5"]["value"],
        "smallest |C| that separates": record["smallest"]["sites"],
        **{f"there: {name}": record["smallest"][key] for key, name in names.items()},
        "kind": "exact",
    }


def adaptive_dynamics(settings: Settings) -> Reproduction:
    """What the redraw must know of the choice of its site: three redraws on four Ising sites."""
    from glauber.exact.models import Ising
    from glauber.exact.stationary import stationary, total_variation
    from glauber.exact.transition import Measure, Redraw, adaptive_matrix

    ising = Ising.clique(4, 4, coupling=0.05, field=0.2)
    redraws: tuple[Redraw, ...] = ("conditioned", "adaptive", "naive")
    measures: tuple[Measure, ...] = ("confidence", "entropy")
    apart = {
        (redraw, measure): total_variation(
            stationary(adaptive_matrix(ising.joint(), ising.space, redraw=redraw, measure=measure)),
            ising.probabilities,
        )
        for redraw in redraws
        for measure in measures
    }
    rows = [
        {
            "redraw": redraw, "site chosen by": measure, "--scan": f"{redraw}:{measure}",
            "total variation from the joint": value, "kind": EXACT,
        }
        for (redraw, measure), value in apart.items()
    ]  # fmt: skip
    kept = max(value for (redraw, _), value in apart.items() if redraw == "conditioned")
    claims = [
        Claim(
            "adaptive block dynamics, the redraw conditioned on K, keep the joint",
            "paper B, Definition 8", "the joint is stationary",
            Quantity("total variation of its law from the joint", kept, kind=EXACT),
            at_most(1e-12), ours=("one site at a time, chosen by confidence or entropy",),
        ),
        Claim(
            "the redraw must be conditioned on K: without it the law is another",
            "paper B, Lemma 3 and Definition 8", "in general not equal",
            Quantity(
                "total variation of the naive law from the joint, by confidence",
                apart["naive", "confidence"], kind=EXACT,
            ),
            above(1e-6),
        ),
    ]  # fmt: skip
    how = (
        "four Ising sites, J = 0.05, h = 0.2; the state chooses the site; exact stationary laws; "
        "adaptive is a Metropolis correction, which real models can afford"
    )
    return Reproduction.of(settings, how, rows, claims=claims, ours=("the model and its size",))


PIECES = {
    "B-definition8": Piece(
        "adaptive dynamics: which redraw keeps the joint, and how far off the naive one is",
        adaptive_dynamics,
        seconds=1,
    ),
    "B-fig3": Piece(
        "steps from one mode of an Ising model to the other, k-Gibbs and parallel",
        figure3,
        takes=("chains",),
        seconds=9,
    ),
    "B-corollary3": Piece(
        "one step of N-Gibbs against M steps of the parallel sampler", corollary3, seconds=5
    ),
}
