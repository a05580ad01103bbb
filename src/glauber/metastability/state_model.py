"""How does the chain go from state to state, seen only now and then? A Markov state model.

Looks at a chain become a sequence of states (clusters of embeddings, topics, or any labels). The
matrix T(lag) has the share of the visits to state i that are followed by state j after the lag.
Nothing makes it reversible. Its eigenvalues give timescales -lag / log|eigenvalue|: they do not
depend on the lag where the states keep enough of the text.

What is counted depends on where a chain is, not on how it came there. So chains need not start
in their stationary law.
"""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from glauber.errors import GlauberError
from glauber.statistics import Estimate, Floats, over_chains

Labels = NDArray[np.int64]
States = NDArray[np.int64]
SHOWN = 5  # timescales


@dataclass(frozen=True, eq=False)
class StateModel:
    """The transition matrix at a lag, over the states that all lead to each other."""

    states: States  # (n,): which labels these are
    matrix: Floats  # (n, n), rows sum to 1
    law: Floats  # (n,): what the matrix keeps
    lag: int  # looks
    every: int  # steps between looks
    share: float  # of the transitions counted, those within these states
    kind: str = "estimate"

    @property
    def lag_steps(self) -> int:
        return self.lag * self.every


@dataclass(frozen=True, eq=False)
class ImpliedTimescales:
    """Timescales in steps at several lags; nan where a lag has fewer of them."""

    lags: NDArray[np.int64]  # (lags,), in steps
    steps: Estimate  # (lags, timescales), slowest first


def check_labels(labels: Labels, lag: int) -> None:
    """Refuses labels (chains, looks) that the lag is too long for."""
    if labels.ndim != 2 or 0 in labels.shape:
        raise GlauberError("there are no looks, so there is nothing to make a model of.")
    if labels.min() < 0:
        raise GlauberError("a label is below 0, but labels count states from 0.")
    if lag < 1:
        raise GlauberError(f"the lag is {lag} looks, but it must be at least 1.")
    if labels.shape[1] < 2 * lag:
        raise GlauberError(
            f"a chain has {labels.shape[1]} looks, too short for a lag of {lag} looks, which "
            f"needs at least {2 * lag}: make the run longer, look more often, or shorten the lag."
        )


def transition_counts(labels: Labels, lag: int) -> Floats:
    """How often each chain goes from i to j in the lag: (chains, states, states)."""
    size = int(labels.max()) + 1
    found = np.zeros((len(labels), size, size))
    for chain, row in enumerate(labels):
        np.add.at(found[chain], (row[:-lag], row[lag:]), 1.0)
    return found


def state_model(counts: Floats, *, lag: int = 1, every: int = 1) -> StateModel:
    """The model of counts (states, states), over the connected set with the most of them."""
    states = largest_set(counts)
    inside = counts[np.ix_(states, states)]
    matrix = inside / inside.sum(axis=1, keepdims=True)
    share = float(inside.sum() / counts.sum())
    return StateModel(states, matrix, kept_law(matrix), lag, every, share)


def largest_set(counts: Floats) -> States:
    """The states (n,) that all lead to each other, in the set that holds the most counts."""
    _, place = connected_components(csr_array(counts), directed=True, connection="strong")
    within = np.where(place[:, None] == place[None, :], counts, 0.0).sum(axis=1)
    if within.sum() == 0:
        raise GlauberError(
            "no chain comes back to a state that it left, so there are no transitions to learn "
            "from: take fewer clusters, or make the run longer."
        )
    return np.flatnonzero(place == np.bincount(place, within).argmax())


def kept_law(matrix: Floats) -> Floats:
    """The law (n,) with law @ matrix = law, of an irreducible matrix."""
    system = matrix.T - np.eye(len(matrix))
    system[-1] = 1.0  # one equation is redundant; the law sums to 1
    law = np.linalg.solve(system, np.eye(len(matrix))[-1]).clip(min=0)
    return np.asarray(law / law.sum())


def timescales(matrix: Floats, lag_steps: int) -> Floats:
    """-lag / log|eigenvalue| in steps, slowest first, without the stationary one."""
    moduli = np.sort(np.abs(np.linalg.eigvals(matrix)))[::-1][1:]
    with np.errstate(divide="ignore"):
        return np.asarray(-lag_steps / np.log(moduli.clip(max=1 - 1e-15)))


def usual_lags(n_looks: int) -> list[int]:
    """About eight lags in looks, from 1 to a quarter of a chain."""
    return sorted({int(lag) for lag in np.geomspace(1, max(1, n_looks // 4), 8).round()})


def implied_timescales(
    labels: Labels, lags: list[int], *, every: int = 1, seed: int = 0
) -> ImpliedTimescales:
    """The timescales at each lag (in looks), with errors over redrawn chains."""
    for lag in lags:
        check_labels(labels, lag)
    counts = [transition_counts(labels, lag) for lag in lags]
    n_shown = min(SHOWN, counts[0].shape[1] - 1)

    def figures(weights: Floats) -> Floats:
        found = np.full((len(lags), n_shown), np.nan)
        for row, (lag, of_chains) in enumerate(zip(lags, counts, strict=True)):
            with suppress(GlauberError):  # at this lag nothing is connected: nothing to show
                model = state_model(np.tensordot(weights, of_chains, 1))
                slow = timescales(model.matrix, lag * every)[:n_shown]
                found[row, : len(slow)] = slow
        return found

    return ImpliedTimescales(np.array(lags) * every, over_chains(figures, len(labels), seed=seed))
