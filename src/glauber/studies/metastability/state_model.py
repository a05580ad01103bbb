"""A Markov state model of snapshots: how a chain goes from state to state.

Snapshots of a chain become a sequence of states (clusters of embeddings, topics, or any labels).
The matrix T(lag) has the share of the visits to state i that are followed by state j after the lag.
Nothing makes it reversible. Its eigenvalues give timescales -lag / log|eigenvalue|: they do not
depend on the lag where the states keep enough of the text.

If they do, T(lag)^k = T(k lag): what the model predicts over k lags is what is counted over k lags,
the check of Chapman and Kolmogorov, made between basins.

What is counted depends on where a chain is, not on how it came there. So chains need not start
in their stationary distribution. Counts, connected sets and spectra are deeptime's; errors come
from leaving out each chain once, for which deeptime has no models.
"""

import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.errors import GlauberError
from glauber.foundation.extras import need
from glauber.foundation.statistics import MIN_CHAINS, Estimates, Floats, jackknife
from glauber.foundation.study import reported

Labels = NDArray[np.int64]  # (chains, snapshots): a state for each snapshot
Assignment = NDArray[np.int64]  # (n,): the basin of each state
SHOWN = 5  # timescales
MULTIPLES = (2, 3, 4, 5)  # lags of the check


@dataclass(frozen=True, eq=False)
class StateModel:
    """The transition matrix at a lag, over the states that all lead to each other."""

    states: NDArray[np.int64]  # (n,): which labels these are
    matrix: Floats  # (n, n), rows sum to 1
    lag: int  # snapshots
    every: int  # steps between snapshots
    share: float  # of the transitions counted, those within these states
    kind: str = "estimate"

    @property
    def lag_steps(self) -> int:
        return self.lag * self.every

    @cached_property
    def stationary(self) -> Floats:
        """The stationary distribution (n,) of the matrix."""
        find = deeptime().markov.tools.analysis.stationary_distribution
        return np.asarray(find(self.matrix, check_inputs=False))


@dataclass(frozen=True, eq=False)
class ImpliedTimescales:
    """Timescales in steps at several lags; nan where a lag has fewer of them."""

    lags: NDArray[np.int64]  # (lags,), in steps
    steps: Estimates  # (lags, timescales), slowest first


def check_labels(labels: Labels, lag: int) -> None:
    """Refuses labels (chains, snapshots) that the lag is too long for."""
    if labels.shape[1] < 2 * lag:
        raise GlauberError(
            f"a chain has {labels.shape[1]} snapshots, too short for a lag of {lag} snapshots, "
            f"which needs at least {2 * lag}: make the run longer, take snapshots more often, or "
            "shorten the lag."
        )


def transition_counts(labels: Labels, lag: int) -> Floats:
    """How often each chain goes from i to j in the lag: (chains, states, states)."""
    count = deeptime().markov.tools.estimation.count_matrix
    size = int(labels.max()) + 1
    rows = [count(row, lag, sliding=True, sparse_return=False, nstates=size) for row in labels]
    return np.stack(rows).astype(np.float64)


def state_model(counts: Floats, *, lag: int = 1, every: int = 1) -> StateModel:
    """The model of counts (states, states), over the connected set with the most of them."""
    states = largest_set(counts)
    inside = counts[np.ix_(states, states)]
    matrix = inside / inside.sum(axis=1, keepdims=True)
    return StateModel(states, matrix, lag, every, share=float(inside.sum() / counts.sum()))


def largest_set(counts: Floats) -> NDArray[np.int64]:
    """The states (n,) that all lead to each other, in the set that holds the most counts."""
    sets = deeptime().markov.tools.estimation.connected_sets(counts, directed=True)
    within = [counts[np.ix_(states, states)].sum() for states in sets]
    if max(within) == 0:
        raise GlauberError(
            "no chain comes back to a state that it left, so there are no transitions to learn "
            "from: take fewer clusters, or make the run longer."
        )
    return np.sort(np.asarray(sets[int(np.argmax(within))], np.int64))


def timescales(matrix: Floats, lag_steps: int) -> Floats:
    """-lag / log|eigenvalue| in steps, slowest first, without the stationary one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # complex eigenvalues are expected: it is not reversible
        slowest_first = deeptime().markov.tools.analysis.timescales(matrix, tau=lag_steps)
    return np.asarray(slowest_first[1:], np.float64)


def usual_lags(n_snapshots: int) -> list[int]:
    """About eight lags in snapshots, from 1 to a quarter of a chain."""
    return sorted({int(lag) for lag in np.geomspace(1, max(1, n_snapshots // 4), 8).round()})


def implied_timescales(labels: Labels, lags: list[int], *, every: int = 1) -> ImpliedTimescales:
    """The timescales at each lag (in snapshots), with intervals over chains."""
    for lag in lags:
        check_labels(labels, lag)
    counts = [transition_counts(labels, lag) for lag in lags]
    n_shown = min(SHOWN, counts[0].shape[1] - 1)

    def figures(weights: Floats) -> Floats:
        steps = np.full((len(lags), n_shown), np.nan)
        for row, (lag, of_chains) in enumerate(zip(lags, counts, strict=True)):
            with suppress(GlauberError):  # at this lag nothing is connected: nothing to show
                model = state_model(np.tensordot(weights, of_chains, 1))
                slow = timescales(model.matrix, lag * every)[:n_shown]
                steps[row, : len(slow)] = slow
        return steps

    steps = jackknife(figures, len(labels), scale="log")
    enough = np.array([n_moving_chains(of_chains) >= MIN_CHAINS for of_chains in counts])
    return ImpliedTimescales(np.array(lags) * every, steps.where(enough[:, None]))


def n_moving_chains(counts: Floats) -> int:
    """How many chains moved within the connected set of counts (chains, states, states)."""
    with suppress(GlauberError):
        states = largest_set(counts.sum(axis=0))
        return int((counts[:, states[:, None], states].sum(axis=(1, 2)) > 0).sum())
    return 0


@dataclass(frozen=True, eq=False)
class ChapmanKolmogorov:
    """Chances to go from basin to basin in k lags: predicted and counted.

    The intervals of the differences between basins hold all together, so that of true models at
    least 95% pass, also with few chains (docs/metastability.md has how many did). The chances to
    stay are not judged: they are what the others leave.
    """

    multiples: tuple[int, ...]  # k
    predicted: Estimates  # (multiples, basins, basins)
    counted: Estimates  # the same
    difference: Estimates  # counted less predicted; its intervals hold all together

    @property
    def is_judged(self) -> NDArray[np.bool_]:
        """Which differences (multiples, basins, basins) have an interval to judge them by."""
        if self.difference.low is None:
            return np.zeros(self.difference.value.shape, bool)
        apart = ~np.eye(self.difference.value.shape[-1], dtype=bool)
        return np.isfinite(self.difference.low) & apart

    @reported
    def worst(self) -> float | None:
        """The largest judged difference in its own standard errors; none where none is judged."""
        error = self.difference.standard_error
        if error is None or not self.is_judged.any():
            return None
        off = np.abs(self.difference.value)[self.is_judged]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(off < 1e-12, 0.0, off / error[self.is_judged])
        return float(np.nanmax(ratios))

    @reported
    def unseen(self) -> float | None:
        """How far off the chance that is known least may be without being noticed."""
        low, high = self.difference.low, self.difference.high
        if low is None or high is None or not self.is_judged.any():
            return None
        return float(((high - low)[self.is_judged] / 2).max())

    @reported
    def holds(self) -> bool | None:
        """Whether nothing speaks against the model; none where too few chains can tell."""
        low, high = self.difference.low, self.difference.high
        if low is None or high is None or not self.is_judged.any():
            return None
        return bool(((low <= 0) & (high >= 0))[self.is_judged].all())

    def note(self) -> str:
        """The verdict as a sentence."""
        over = f"Chapman-Kolmogorov check over {self.multiples[-1]} lags"
        if self.holds is None:
            return f"{over}: too few chains to judge the differences."
        verdict = "nothing speaks against the model" if self.holds else "the model is off"
        advice = "" if self.holds else " A longer lag may help."
        return (
            f"{over}: {verdict} (largest difference {self.worst:.1f} standard errors; with "
            f"{self.difference.n_chains} chains a chance that is off by up to {self.unseen:.2f} "
            f"may go unseen).{advice}"
        )


def chapman_kolmogorov(
    labels: Labels, basin_of: Assignment, *, lag: int
) -> ChapmanKolmogorov | None:
    """The check at 2 to 5 lags, as far as half a chain allows; none where it allows none.

    basin_of (labels,) is the basin of each label, -1 for a label outside the model.
    """
    multiples = tuple(k for k in MULTIPLES if 2 * k * lag <= labels.shape[1])
    if not multiples:
        return None
    states = np.flatnonzero(basin_of >= 0)
    moved = [transition_counts(labels, k * lag) for k in (1, *multiples)]
    counts = [every[:, states[:, None], states] for every in moved]

    known: dict[bytes, Floats] = {}  # asked twice, for intervals alone and for all together

    def both(weights: Floats) -> Floats:
        key = weights.tobytes()
        if key not in known:
            seen = [np.tensordot(weights, at_lag, 1) for at_lag in counts]
            known[key] = _both(seen, basin_of[states], multiples)
        return known[key]

    enough = n_chains_in_basins(basin_of[labels]) >= MIN_CHAINS
    pairs = enough[:, None] & enough
    compared = len(multiples) * int((pairs & ~np.eye(len(enough), dtype=bool)).sum())
    alone = jackknife(lambda weights: both(weights)[:2], len(labels), scale="logit")
    together = jackknife(
        lambda weights: both(weights)[2],
        len(labels),
        bounds=(-1.0, 1.0),
        comparisons=max(1, compared),
    )
    predicted, counted = (alone.at(row).where(pairs) for row in range(2))
    return ChapmanKolmogorov(multiples, predicted, counted, together.where(pairs))


def n_chains_in_basins(basins: Labels) -> Assignment:
    """How many chains were ever in each basin; basins (chains, snapshots), -1 for nowhere."""
    return np.array([(basins == basin).any(axis=1).sum() for basin in range(basins.max() + 1)])


def _both(counts: list[Floats], basin: Assignment, multiples: tuple[int, ...]) -> Floats:
    """Predicted, counted and their difference: (3, multiples, basins, basins)."""
    n_basins = int(basin.max()) + 1
    chances = np.full((3, len(multiples), n_basins, n_basins), np.nan)
    model = state_model(counts[0])
    inside = np.ix_(model.states, model.states)
    members = np.eye(n_basins)[basin[model.states]]  # (n, basins)
    for row, k in enumerate(multiples):
        later = counts[1 + row][inside]
        seen = later.sum(axis=1)
        # States without a count at k say nothing.
        weight = members * (model.stationary * (seen > 0))[:, None]
        seen_basins = weight.sum(axis=0) > 0
        weight = weight[:, seen_basins] / weight[:, seen_basins].sum(axis=0)
        direct = later / np.maximum(seen, 1)[:, None]
        chances[0, row, seen_basins] = weight.T @ np.linalg.matrix_power(model.matrix, k) @ members
        chances[1, row, seen_basins] = weight.T @ direct @ members
    chances[2] = chances[1] - chances[0]
    return chances


def deeptime() -> Any:
    """The library, which is an extra; it warns of what it misses when it is imported."""
    check_basins("deeptime")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import deeptime as library
        import deeptime.markov.tools
    return library


def check_basins(*of: str) -> None:
    """Says which packages a search for basins lacks, all or these, before anything is computed."""
    need("basins", "a search for basins", of=of)
