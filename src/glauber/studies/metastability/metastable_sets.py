"""Which states belong together, because the chain stays among them, and how does it change over?

GPCCA (Reuter, Fackeldey and Weber 2019) works on the real Schur vectors of the transition matrix,
so it also takes chains that are not reversible, as those of masked language models. A pair of
complex eigenvalues must stay together: a number of sets that splits one is not possible, and a
neighbouring number is taken instead.

Between two sets, all of the state model: the mean first-passage time from basin a, entered as the
stationary distribution fills it, to basin b; the committor, the chance to reach b before a; and the
transition paths, the flow of those passages that leave a for good and arrive at b (E and
Vanden-Eijnden 2006).
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.errors import GlauberError
from glauber.foundation.statistics import Floats
from glauber.studies.metastability.gpcca import soft_sets
from glauber.studies.metastability.state_model import Assignment, StateModel, deeptime

MOST = 8  # sets, where the number is not given
PATHS = 5  # of one pair, at most


@dataclass(frozen=True, eq=False)
class MetastableSets:
    """How far each state belongs to each set; sets in order of decreasing weight."""

    memberships: Floats  # (n, sets): each row sums to 1
    assignment: NDArray[np.int64]  # (n,): the set that a state belongs to most
    gap: float  # modulus of the last eigenvalue kept less that of the next
    note: str  # how the number of sets came about
    kind: str = "estimate"

    @property
    def n_sets(self) -> int:
        return self.memberships.shape[1]


def metastable_sets(model: StateModel, n_sets: int | None = None) -> MetastableSets:
    """The sets of a model's states; their number by the largest eigenvalue gap unless given."""
    n = len(model.states)
    if n < 2:
        raise GlauberError(
            "only one state is connected to itself both ways, so there are no basins to tell "
            "apart: take more clusters, or make the run longer."
        )
    if n_sets is not None and not 2 <= n_sets <= n:
        raise GlauberError(
            f"{n_sets} basins are asked for, but it must be 2 to {n}, the connected states."
        )
    moduli = np.append(np.sort(np.abs(np.linalg.eigvals(model.matrix)))[::-1], 0.0)
    gaps = moduli[:-1] - moduli[1:]  # gaps[m - 1] is behind m sets
    wanted = 2 + int(gaps[1 : min(MOST, n)].argmax()) if n_sets is None else n_sets
    for number in sorted(range(2, n + 1), key=lambda other: (abs(other - wanted), -other)):
        found = _memberships(model, number)
        if found is not None:
            return _sorted(
                found, model.stationary, float(gaps[number - 1]), _note(n_sets, wanted, number)
            )
    raise GlauberError("no number of basins fits the eigenvalues: take another lag or clusters.")


def _memberships(model: StateModel, number: int) -> Floats | None:
    """The memberships (n, number); none where equal moduli are split or a set stays empty."""
    sets = soft_sets(model.matrix, model.stationary, number)
    if sets is None:
        return None
    n_nonempty = len(np.unique(sets.memberships.argmax(axis=1)))
    return sets.memberships if n_nonempty == number else None


def _sorted(memberships: Floats, stationary: Floats, gap: float, note: str) -> MetastableSets:
    assignment = memberships.argmax(axis=1)
    weights = np.bincount(assignment, stationary, memberships.shape[1])
    ordered = memberships[:, np.argsort(-weights, kind="stable")]
    return MetastableSets(ordered, ordered.argmax(axis=1), gap, note)


def _note(asked: int | None, wanted: int, number: int) -> str:
    how = "by the largest eigenvalue gap" if asked is None else "as asked"
    if number == wanted:
        return f"There are {number} basins, {how}."
    whose = "the largest eigenvalue gap" if asked is None else "the number asked for"
    return (
        f"There are {number} basins: {whose} is {wanted}, which splits eigenvalues of equal "
        "modulus (a complex pair) or leaves a basin empty."
    )


@dataclass(frozen=True)
class Path:
    """One way from basin to basin, and the share of the flow that takes it."""

    basins: tuple[int, ...]
    share: float
    kind: str = "estimate"


@dataclass(frozen=True, eq=False)
class Transition:
    """What happens between leaving one basin and reaching another."""

    source: int
    target: int
    committor: Floats  # (n,): chance of each state to reach the target before the source
    flux: float  # passages from source to target per step
    paths: tuple[Path, ...]  # the strongest first
    kind: str = "estimate"


def passage_times(model: StateModel, assignment: Assignment, n_basins: int) -> Floats:
    """Mean first-passage times (basins, basins) in steps; nan where a basin has no state."""
    analysis = deeptime().markov.tools.analysis
    found = np.full((n_basins, n_basins), np.nan)
    members = np.eye(n_basins)[assignment] * model.stationary[:, None]  # (n, basins)
    there = members.sum(axis=0) > 0
    within = members[:, there] / members[:, there].sum(axis=0)
    for basin in np.flatnonzero(there):
        target = np.flatnonzero(assignment == basin)
        # A basin that is all of a resample's states is reached at once from everywhere.
        times = (
            analysis.mfpt(model.matrix, target, tau=model.lag_steps)
            if len(target) < len(assignment)
            else np.zeros(len(assignment))
        )
        found[there, basin] = within.T @ times
    return found


def transition(model: StateModel, assignment: Assignment, pair: tuple[int, int]) -> Transition:
    """The committor and the paths from one basin to another."""
    source, target = pair
    if source == target:
        raise GlauberError(f"basin {source} has no transition to itself.")
    ends = [np.flatnonzero(assignment == basin) for basin in pair]
    for basin, members in zip(pair, ends, strict=True):
        if len(members) == 0:
            raise GlauberError(f"there is no basin {basin}.")
    flux = deeptime().markov.reactive_flux(
        model.matrix, *ends, stationary_distribution=model.stationary
    )
    paths = _paths(flux, assignment)
    committor = np.asarray(flux.forward_committor).clip(0, 1)
    return Transition(source, target, committor, float(flux.total_flux) / model.lag_steps, paths)


def _paths(flux: Any, assignment: Assignment) -> tuple[Path, ...]:
    """The flow between whole basins, taken apart into paths."""
    basins = [np.flatnonzero(assignment == basin).tolist() for basin in range(assignment.max() + 1)]
    order, coarse = flux.coarse_grain(basins)
    number = [int(assignment[min(members)]) for members in order]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the first paths are all we ask for
        routes, shares = coarse.pathways(maxiter=PATHS)
    return tuple(
        Path(tuple(number[node] for node in route), float(share / flux.total_flux))
        for route, share in zip(routes, shares, strict=True)
    )
