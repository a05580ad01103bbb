"""Paper A on the drift of meaning by length: figures 3a and 3b.

Section 6.1 says that at sufficiently high temperatures the embedding distance grows logarithmically
with the length at fixed time, and that hitting times scale as n log n, whatever the threshold. The
temperatures, the threshold and its range are lost in our text.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glauber.papers.claims import Claim, Quantity, Region, above
from glauber.papers.mixing import TAKES, differs
from glauber.papers.paper import Reproduction
from glauber.papers.settings import Chains, Piece, Scale, Settings, embeddings
from glauber.statistics import mean_over_chains

if TYPE_CHECKING:
    from glauber.mixing.scaling import LawFit, Scaling
    from glauber.mixing.semantic_drift import HittingTimes
    from glauber.runs.embedding import Embedder
    from glauber.runs.run import Run

THRESHOLD = 0.5
THRESHOLDS = (0.3, 0.4, THRESHOLD, 0.6, 0.7)
EMBEDDER = "jinaai/jina-embeddings-v4?task=text-matching"  # of the paper
SWEEPS = 2  # after which distances are compared too, as a control of figure 3a
SMALLEST = 0.05  # change of the distance with log n that the power is worked out for


@dataclass(frozen=True)
class Conditions:
    """One scale's model, embedding, lengths and sizes of figure 3; chains are the trials."""

    model: str
    embedder: str | None  # none: the one in the package
    lengths: tuple[int, ...]
    chains: int
    step: int  # figure 3a: the fixed step at which distances are compared
    steps: int  # figure 3b: of every chain, at every length
    temperature: float = 1.0
    texts: tuple[str, ...] | None = None


CONDITIONS: dict[Scale, Conditions] = {
    "small": Conditions("bundled:english", None, (6, 9, 13, 19, 28), chains=50, step=20, steps=120),
    "paper": Conditions(
        "bert-base-uncased", EMBEDDER, (5, 10, 15, 20, 25), chains=100, step=20, steps=2000
    ),
}


def figure3a(settings: Settings) -> Reproduction:
    """The distance after the fixed step at each length, as means with intervals."""
    from glauber.figures.mixing import plot_distance_by_length
    from glauber.mixing.semantic_drift import distances

    found = _conditions3(settings, fixed=True)
    runs, embedder = _runs(settings, found)
    values = {n: distances(run, embedder, every=found.step).at(found.step) for n, run in runs}
    claims = [_growth_claim(found, values)]
    if SWEEPS * max(found.lengths) <= found.steps:
        later = {n: SWEEPS * n for n in found.lengths}
        control = {n: distances(run, embedder, every=later[n]).at(later[n]) for n, run in runs}
        claims.append(_growth_claim(found, control, sweeps=SWEEPS))
    means = {
        n: mean_over_chains(each, bounds=(0.0, 2.0), student=True) for n, each in values.items()
    }
    rows = [
        {
            "n": n,
            "mean distance": means[n].value,
            "interval": list(means[n].interval or ()),
            "quartiles": np.quantile(values[n], [0.25, 0.5, 0.75]).tolist(),
            "kind": means[n].kind,
            "step": found.step,
            "trials": found.chains,
            "embedder": embedder.name,
            "published": "the distance grows logarithmically with n; no number in our text",
        }
        for n in found.lengths
    ]
    how = f"version 1, after {found.step} steps; {_place(found)}. {embedder.description}"
    pictures = {"distance": plot_distance_by_length(values, means, step=found.step)}
    return Reproduction.of(
        settings, how, rows, claims=claims, pictures=pictures,
        model=found.model, differs=differs(settings), ours=_lost(found),
    )  # fmt: skip


def _growth_claim(found: Conditions, values: dict[int, Any], *, sweeps: int = 0) -> Claim:
    """The slope in log n of each trial, which starts from the same passage at every length."""
    logs = np.log(found.lengths) - np.mean(np.log(found.lengths))
    slopes = logs @ np.stack([values[n] for n in found.lengths]) / (logs @ logs)
    slope = mean_over_chains(slopes)
    after = f"{sweeps} sweeps" if sweeps else f"{found.step} steps"
    ours = Quantity(
        f"change of the distance after {after} for each unit of log n", slope.value,
        slope.interval, n=len(slopes), unit="starts",
    )  # fmt: skip
    part = ", ".join(f"{found.step / n:.2g}" for n in found.lengths)
    note = f"{found.step} steps are {part} sweeps: a longer text is redrawn less"
    return Claim(
        "at sufficiently high temperatures the embedding distance grows logarithmically with the "
        f"length at fixed time{' (in sweeps: our control)' if sweeps else ''}",
        "paper A, section 6.1 (figure 3a)", "it grows", ours, above(0.0), effect=SMALLEST,
        ours=(
            "the paper counts steps" if sweeps else note,
            *_lost(found), f"power for {SMALLEST:g}",
        ),
    )  # fmt: skip


def figure3b(settings: Settings) -> Reproduction:
    """The median time at each length, the fits, and the exponent at each threshold."""
    from glauber.figures.mixing import plot_scaling
    from glauber.mixing.scaling import fit_scaling
    from glauber.mixing.semantic_drift import passages_of

    found = _conditions3(settings)
    runs, embedder = _runs(settings, found)
    times = {n: passages_of(run, embedder, THRESHOLDS) for n, run in runs}
    own = {n: each[THRESHOLD] for n, each in times.items()}
    fitted, other = fit_scaling(own), fit_scaling(own, family="log-normal")
    rows = [_time_row(n, each) for n, each in own.items()]
    rows += [_law_row(fit, each) for each in (fitted, other) for fit in each.fits]
    rows += [_power_row(THRESHOLD, each) for each in (fitted, other)]
    grid = {}
    for threshold in THRESHOLDS:
        there = {n: each[threshold] for n, each in times.items()}
        if any(each.n_hit for each in there.values()):
            grid[threshold] = fit_scaling(there, comparisons=len(THRESHOLDS))
            rows.append(_power_row(threshold, grid[threshold]))
    how = (
        f"version 2: first step with a distance of at least {THRESHOLD:g}, within {found.steps} "
        f"steps; {_place(found)}; fits by likelihood with censoring; {fitted.summary}. "
        f"{embedder.description}"
    )
    return Reproduction.of(
        settings, how, rows, claims=_scaling_claims(found, fitted, grid),
        pictures={"times": plot_scaling(own, fitted)}, model=found.model,
        differs=differs(settings), ours=_lost(found),
    )  # fmt: skip


def figure3_chains(settings: Settings) -> list[Chains]:
    """A run for each length, with a seed of its own, so that no noise is shared between lengths."""
    found = _conditions3(settings)
    return [
        Chains(
            found.model, found.texts, steps=found.steps, chains=found.chains, length=n,
            temperature=found.temperature, seed=len(found.lengths) * settings.seed + place,
        )
        for place, n in enumerate(found.lengths)
    ]  # fmt: skip


def _conditions3(settings: Settings, *, fixed: bool = False) -> Conditions:
    """The conditions of figure 3; of figure 3a the steps given are those it looks after."""
    found = settings.over(CONDITIONS[settings.scale])
    return replace(found, step=settings.steps) if fixed and settings.steps else found


def _runs(settings: Settings, found: Conditions) -> "tuple[list[tuple[int, Run]], Embedder]":
    """(n, run) for each length: all trials of a length are the chains of one run."""
    runs = [settings.run(chains) for chains in figure3_chains(settings)]
    return list(zip(found.lengths, runs, strict=True)), embedder_of(runs[-1], found.embedder)


def embedder_of(run: "Run", name: str | None) -> "Embedder":
    """The embedder of that name, or the one in the package where it reads these texts.

    The paper's own brings code along; any other that does is refused.
    """
    from glauber.runs.embedding import choose_embedder

    return choose_embedder(run, name, trust_remote_code=name == EMBEDDER)


def _place(found: Conditions) -> str:
    return (
        f"{found.chains} chains a length from passages cut to n tokens, at temperature "
        f"{found.temperature:g}"
    )


def _lost(found: Conditions) -> tuple[str, ...]:
    return (f"temperature {found.temperature:g}: that of figure 3 is lost in our text",)


def _scaling_claims(
    found: Conditions, fitted: "Scaling", grid: "dict[float, Scaling]"
) -> list[Claim]:
    """Nearer to n log n than to n and to n^2, at the threshold and at the one farthest from it."""
    laws = [fitted.exponent(law) for law in ("n", "n log n", "n^2")]
    region = Region((laws[0] + laws[1]) / 2, (laws[1] + laws[2]) / 2)
    near = f"{region}: nearer to n log n ({laws[1]:.2f} over these lengths) than to n and to n^2"
    count = f"chains at {len(found.lengths)} lengths"

    def claim(sentence: str, at: float, one: "Scaling", more: tuple[str, ...]) -> Claim:
        ours = Quantity(
            f"exponent of the hitting time of {at:g} in n", one.power.b, one.power.interval,
            n=found.chains, unit=count, level=one.level,
        )  # fmt: skip
        return Claim(
            sentence, "paper A, section 6.1 (figure 3b)", "n log n", ours, region, effect=laws[1],
            ours=(near, *_lost(found), *more),
        )  # fmt: skip

    claims = [
        claim("hitting times scale as n log n", THRESHOLD, fitted, (f"threshold {THRESHOLD:g}",))
    ]
    if len(grid) > 1:
        worst = max(grid, key=lambda at: abs(grid[at].power.b - laws[1]))
        claims.append(
            claim(
                "the scaling is robust to the choice of the threshold", worst, grid[worst],
                (
                    f"thresholds {', '.join(f'{at:g}' for at in grid)}: the paper's are lost; the "
                    "one farthest from n log n decides, its interval corrected for their number",
                ),
            )
        )  # fmt: skip
    return claims


def _time_row(n: int, times: "HittingTimes") -> dict[str, Any]:
    median = times.median
    return {
        "n": n,
        "median time": median.value,
        "interval": list(median.interval),
        "kind": median.kind,
        "hit": times.n_hit,
        "censored": len(times.hit) - times.n_hit,
        "times": [
            int(step) if hit else None for step, hit in zip(times.steps, times.hit, strict=True)
        ],
    }


def _law_row(fit: "LawFit", scaling: "Scaling") -> dict[str, Any]:
    return {
        "law": fit.law,
        "times vary by": scaling.family,
        "c": fit.c,
        "interval of c": list(fit.interval or ()),
        "kind": fit.kind,
        "AIC difference": fit.aic_difference,
        "weight among the three": fit.weight,
        "misfit p-value": fit.misfit,
        "published": "n log n" if fit.law == "n log n" else None,
    }


def _power_row(threshold: float, scaling: "Scaling") -> dict[str, Any]:
    power = scaling.power
    return {
        "law": "n^b",
        "threshold": threshold,
        "times vary by": scaling.family,
        "c": power.c,
        "b": power.b,
        "interval of b": list(power.interval),
        "level": f"{scaling.level:.1%}",
        "kind": power.kind,
        "AIC difference": power.aic_difference,
        "misfit p-value": power.misfit,
        "censored": f"{scaling.n_censored} of {scaling.n_times}",
        "published": "n log n",
    }


PIECES = {
    "A-fig3a": Piece(
        "embedding distance from the start after a fixed number of steps, by length",
        figure3a, (*TAKES, "temperature", "embedder"), needs=figure3_chains, seconds=175,
        extras=embeddings,
    ),
    "A-fig3b": Piece(
        "hitting time of an embedding distance by length, against n, n log n, n^2 and any power",
        figure3b, (*TAKES, "temperature", "embedder"), needs=figure3_chains, seconds=90,
        extras=embeddings,
    ),
}  # fmt: skip
