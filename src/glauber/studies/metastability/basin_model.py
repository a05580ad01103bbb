"""Among which kinds of text does the chain stay, for how long, and where does it go next?

A Markov state model of the snapshots of a run, its metastable sets, and the times and ways between
them. All of it is estimated; the intervals come from leaving out each chain once, with states and
basins held as they were found. A basin that no chain left or entered has no place here: only states
that all lead to each other are kept, and what share of the transitions that is, is said.
"""

from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.statistics import MIN_CHAINS, Estimates, Floats, jackknife
from glauber.studies.metastability.metastable_sets import (
    MetastableSets,
    Transition,
    metastable_sets,
    passage_times,
    transition,
)
from glauber.studies.metastability.state_model import (
    ChapmanKolmogorov,
    ImpliedTimescales,
    Labels,
    StateModel,
    chains_behind,
    chains_in,
    chapman_kolmogorov,
    check_labels,
    implied_timescales,
    state_model,
    timescales,
    transition_counts,
    usual_lags,
)

LAG = 5  # snapshots, where nothing else is said
MOSTLY = 0.9  # share of the transitions below which the model is said to be of a part only


@dataclass(frozen=True, eq=False)
class BasinModel:
    """The basins of a run, numbered by decreasing share of the stationary distribution."""

    model: StateModel
    sets: MetastableSets
    slow: Estimates  # (states - 1,): the model's timescales in steps, slowest first
    timescales: ImpliedTimescales  # at several lags
    shares: Estimates  # (basins,) of the stationary distribution
    staying: Estimates  # (basins,): chance to be in the same basin one lag later
    passages: Estimates  # (basins, basins): mean first-passage times in steps
    transitions: tuple[Transition, ...]  # of every ordered pair
    check: ChapmanKolmogorov | None
    basin_of: NDArray[np.int64]  # (chains, snapshots): where a snapshot is, -1 outside the model
    notes: tuple[str, ...]  # what to keep in mind, as sentences

    @property
    def n_basins(self) -> int:
        """The number of basins."""
        return self.sets.n_sets


def basin_model(
    labels: Labels,
    *,
    every: int = 1,
    lag: int = LAG,
    n_sets: int | None = None,
    lags: list[int] | None = None,
) -> BasinModel:
    """The basins of chains given as a state at each snapshot, labels (chains, snapshots) from 0.

    lag and lags are in snapshots, which are `every` steps apart.
    """
    check_labels(labels, lag)
    counts = transition_counts(labels, lag)
    model = state_model(counts.sum(axis=0), lag=lag, every=every)
    sets = metastable_sets(model, n_sets)
    basin_of_label = np.full(counts.shape[1], -1)
    basin_of_label[model.states] = sets.assignment
    basin_of = basin_of_label[labels]
    n_chains_in = chains_in(basin_of)
    figures = _figures(counts, model, sets, n_chains_in >= MIN_CHAINS)
    check = chapman_kolmogorov(labels, basin_of_label, lag=lag)
    lags = usual_lags(labels.shape[1]) if lags is None else lags
    pairs = permutations(range(sets.n_sets), 2)
    return BasinModel(
        model,
        sets,
        timescales=implied_timescales(labels, lags, every=every),
        **figures,
        transitions=tuple(transition(model, sets.assignment, pair) for pair in pairs),
        check=check,
        basin_of=basin_of,
        notes=_notes(model, sets, figures["slow"], check, len(labels), n_chains_in),
    )


def _figures(
    counts: Floats, model: StateModel, sets: MetastableSets, enough: NDArray[np.bool_]
) -> dict[str, Estimates]:
    """Timescales, shares, staying and passage times, with intervals over chains.

    enough (basins,): whether enough chains were in a basin for an interval.
    """
    inside = counts[:, model.states[:, None], model.states]
    n, m = len(model.states), sets.n_sets

    def of(weights: Floats) -> tuple[StateModel, NDArray[np.int64]]:
        one = state_model(np.tensordot(weights, inside, 1), lag=model.lag, every=model.every)
        return one, sets.assignment[one.states]

    def times(weights: Floats) -> Floats:
        one, basin = of(weights)
        slow = np.full(n - 1, np.nan)
        slow[: len(one.states) - 1] = timescales(one.matrix, one.lag_steps)
        return np.concatenate([slow, passage_times(one, basin, m).ravel()])

    def chances(weights: Floats) -> Floats:
        one, basin = of(weights)
        members = np.eye(m)[basin] * one.stationary[:, None]  # (states, basins)
        shares = members.sum(axis=0)
        kept = np.einsum("ia,ij,ja->a", members, one.matrix, np.eye(m)[basin])
        return np.stack([shares, np.where(shares > 0, kept / np.maximum(shares, 1e-300), np.nan)])

    time = jackknife(times, len(counts), scale="log")
    chance = jackknife(chances, len(counts), scale="logit")
    passages = time.at(np.arange(n - 1, n - 1 + m * m).reshape(m, m))
    return {
        "slow": time.at(slice(n - 1)).where(np.array(chains_behind(counts) >= MIN_CHAINS)),
        "shares": chance.at(0).where(enough),
        "staying": chance.at(1).where(enough),
        "passages": passages.where(enough[:, None] & enough),
    }


def _notes(
    model: StateModel,
    sets: MetastableSets,
    slow: Estimates,
    check: ChapmanKolmogorov | None,
    n_chains: int,
    n_chains_in: NDArray[np.int64],
) -> tuple[str, ...]:
    """What a reader must know before believing the figures."""
    notes = [sets.note]
    if model.share < MOSTLY:
        notes.append(
            f"Only {model.share:.0%} of the transitions lie within the connected states: the rest "
            "was never left or never come back to, so the figures are of this part."
        )
    if slow.value[0] < model.lag_steps:
        notes.append(
            f"The slowest timescale, {slow.value[0]:,.0f} steps, is shorter than the lag of "
            f"{model.lag_steps:,}: at this lag nothing is metastable."
        )
    rare = [str(basin) for basin in np.flatnonzero(n_chains_in < MIN_CHAINS)]
    if n_chains == 1:
        notes.append(
            "There is one chain only: no interval can be given, and no other chain confirms that "
            "these basins are more than its own path."
        )
    elif rare:
        notes.append(
            f"Fewer than {MIN_CHAINS} chains were in basin {', '.join(rare)}: "
            "too few for an interval."
        )
    unchecked = "The chains are too short to check the model over several lags."
    return (*notes, unchecked if check is None else check.note())
