"""Has the run mixed, as far as its own statistics can tell?

Effective sample size, R-hat and autocorrelation time by ArviZ, made safe: with all chains frozen
in one trap ArviZ reports an effective sample size equal to the number of draws. Here no statistic
gets a figure while a chain is frozen or partly frozen, and a statistic that does not vary in some
chain gets none either. What stands in its place is said in words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.mixing.frozen import Motions, motions
from glauber.mixing.text_statistics import text_statistics
from glauber.runs.run import Run

Floats = NDArray[np.float64]
DRAWS = 5000  # of a chain, at most; a longer window is thinned
FEWEST_DRAWS = 20
REDRAWS = 4  # of each site on average, so that all but one in fifty were chosen at all
AGREE = 1.01  # R-hat up to which chains count as agreeing (Vehtari and others 2021)
ENOUGH = 400  # effective draws for figures that are steady themselves (the same)


@dataclass(frozen=True)
class Diagnosis:
    """One statistic: figures only where they mean something."""

    statistic: str
    state: str  # frozen, partly frozen, constant, disagreeing, short, alone or agreeing
    ess: float | None  # effective draws, all chains together
    r_hat: float | None
    autocorrelation_time: float | None  # in steps
    kind: str = "estimate"


@dataclass(frozen=True)
class Diagnostics:
    """Every statistic of a run, and the verdict in words."""

    rows: tuple[Diagnosis, ...]
    motions: Motions
    verdict: str
    burn_in: int
    n_steps: int  # behind the burn-in
    every: int  # steps between draws


def diagnose(run: Run, *, burn_in: int | None = None) -> Diagnostics:
    """The diagnostics of a stored run behind its burn-in (default: half)."""
    burn_in = run.steps // 2 if burn_in is None else burn_in
    n_steps = run.steps - burn_in
    _check_window(run, burn_in, n_steps)
    every = -(-n_steps // DRAWS)
    moved = motions(run, burn_in)
    state = _held(moved)
    found = text_statistics(run, first=burn_in, every=every)
    rows = diagnoses(found, state=state, every=every)
    return Diagnostics(rows, moved, _verdict(moved, rows), burn_in, n_steps, every)


def diagnoses(
    statistics: Mapping[str, Floats], *, state: str | None = None, every: int = 1
) -> tuple[Diagnosis, ...]:
    """A row for each statistic (chains, draws); a state given here withholds every figure."""
    return tuple(_row(name, values, state, every) for name, values in statistics.items())


def _row(name: str, values: Floats, state: str | None, every: int) -> Diagnosis:
    if state is None and not np.isfinite(values).all():
        state = "not finite"
    if state is None and any(_constant(half) for half in np.array_split(values, 2, axis=1)):
        state = "constant"
    if state is not None:
        return Diagnosis(name, state, None, None, None)
    arviz = _arviz()
    ess = float(arviz.ess(values, method="bulk"))
    r_hat = _r_hat(values) if len(values) > 1 else None
    time = every * values.size / float(arviz.ess(values, method="mean"))
    return Diagnosis(name, _mixed(len(values), ess, r_hat), ess, r_hat, time)


def _constant(values: Floats) -> bool:
    """Whether some chain's values do not vary; R-hat compares halves, so it asks this of each."""
    return bool((values == values[:, :1]).all(axis=1).any())


def _r_hat(values: Floats) -> float:
    """The larger of the rank R-hat of the values and of their distances from the median.

    The latter is not defined where all distances are equal, as for a statistic of two values.
    """
    arviz = _arviz()
    with np.errstate(divide="ignore", invalid="ignore"):
        both = [float(arviz.rhat(values, method=method)) for method in ("z_scale", "folded")]
    return float(np.nanmax(both))


def _mixed(n_chains: int, ess: float, r_hat: float | None) -> str:
    if r_hat is not None and r_hat > AGREE:
        return "disagreeing"
    if ess < ENOUGH:
        return "short"
    return "alone" if n_chains == 1 else "agreeing"


def _held(moved: Motions) -> str | None:
    if moved.of("frozen"):
        return "frozen"
    return "partly frozen" if moved.of("partly frozen") else None


WORDS = {
    "constant": "does not vary in half of some chain although the text moves, so it tells nothing",
    "not finite": "is infinite or missing at some step, so it tells nothing",
    "disagreeing": f"has R-hat above {AGREE}: the chains still tell their starts apart",
    "short": f"has fewer than {ENOUGH} effective draws: the run is too short to judge",
    "alone": "has enough effective draws in its one chain, which no other chain confirms",
}


def _verdict(moved: Motions, rows: tuple[Diagnosis, ...]) -> str:
    """Whether the run mixed, and if not, why not."""
    if _held(moved) is not None:
        return f"not mixed: {moved.words}; no effective sample size is given"
    said = [
        f"{', '.join(row.statistic for row in rows if row.state == state)} {words}"
        for state, words in WORDS.items()
        if any(row.state == state for row in rows)
    ]
    if not said:
        return (
            "no sign against mixing: every chain moves, and the chains agree in every statistic "
            "(this is not a proof: all chains may share one trap larger than a state)"
        )
    return "not shown to be mixed: " + "; ".join(said)


def _check_window(run: Run, burn_in: int, n_steps: int) -> None:
    if not 0 <= burn_in <= run.steps:
        raise GlauberError(
            f"the burn-in is {burn_in} steps, but the run {run.folder} has {run.steps}."
        )
    slots = run.read("site", 0, 1).shape[2]
    needed = max(FEWEST_DRAWS, -(-REDRAWS * int(run.free.sum(axis=1).max()) // slots))
    if n_steps < needed:
        raise GlauberError(
            f"{n_steps} steps behind the burn-in are too few to judge: texts of this length need "
            f"at least {needed}, so that each site is redrawn about {REDRAWS} times."
        )


def _arviz() -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # arviz announces its own next version on import
        import arviz
    return arviz
