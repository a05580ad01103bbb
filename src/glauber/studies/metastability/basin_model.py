"""Basins: the metastable sets of a Markov state model, and the times and paths between them.

All of it is estimated; the intervals come from leaving out each chain once, with states and basins
fixed as they were found. A basin that no chain left or entered is not reported: only states that
all lead to each other are in the model, and the share of the transitions within them is reported.

The sets are those of generalized Perron cluster analysis (GPCCA), which takes chains that are not
reversible, as those of masked language models. For a transition matrix P and weights eta > 0, the
real Schur vectors of D^(1/2) P D^(-1/2), D = diag(eta), that belong to the m eigenvalues of largest
modulus give vectors X (n, m) with X^T D X = 1, the first of them constant (Reuter, Weber,
Fackeldey, Röblitz and Garcia 2018; Reuter, Fackeldey and Weber 2019). Memberships are chi = X A
with chi >= 0 and rows that sum to 1. Among these A, PCCA+ (Deuflhard and Weber 2005; Röblitz and
Weber 2013) maximises the crispness

    trace(S) / m,  S = diag(A[0])^-1 A^T A,  so  trace(S) = sum_j sum_i A[i, j]^2 / A[0, j],

starting at the inner simplex. The crispness is convex in A and the A allowed are a polytope, so
it never decreases when A moves to the corner that maximises its linear approximation: a linear
program per step, and a local maximum at the end. A pair of complex eigenvalues must stay together:
a number of sets that splits one is not possible, and a neighbouring number is taken instead.

Between two sets, all of the state model: the mean first-passage time from basin a, entered as the
stationary distribution fills it, to basin b; the committor, the chance to reach b before a; and the
transition paths, the flow of those passages that leave a for good and arrive at b (E and
Vanden-Eijnden 2006).
"""

import warnings
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import schur
from scipy.optimize import linprog

from glauber.foundation.errors import GlauberError
from glauber.foundation.statistics import MIN_CHAINS, Estimates, Floats, jackknife
from glauber.foundation.study import internal, reported
from glauber.studies.metastability.state_model import (
    SHOWN,
    Assignment,
    ChapmanKolmogorov,
    ImpliedTimescales,
    Labels,
    StateModel,
    chapman_kolmogorov,
    check_labels,
    deeptime,
    implied_timescales,
    n_chains_in_basins,
    n_moving_chains,
    state_model,
    timescales,
    transition_counts,
    usual_lags,
)

MAX_SETS = 8  # sets, where the number is not given
MAX_PATHS = 5  # of one pair, at most
LAG = 5  # snapshots, where nothing else is said
MOSTLY = 0.9  # share of the transitions below which the model is said to be of a part only
SAME_MODULUS = 1e-9  # eigenvalues whose moduli differ by less are not separated
EMPTY = 1e-9  # weight below which a set has no members
GAIN = 1e-10  # of trace(S), below which the search has ended


@dataclass(frozen=True, eq=False)
class SoftSets:
    """How far each state belongs to each set, and the chain between the sets."""

    memberships: Floats  # (n, m): not negative, each row sums to 1
    coarse_matrix: Floats  # (m, m): rows sum to 1, entries may be slightly negative
    crispness: float  # at most 1, where every state belongs to one set; a local maximum


def soft_sets(matrix: Floats, weights: Floats, number: int) -> SoftSets | None:
    """The sets of a transition matrix (n, n) under weights (n,) that sum to 1.

    None where the number splits eigenvalues of equal modulus, such as a complex pair, or where the
    crispest memberships leave a set empty.
    """
    vectors = schur_vectors(matrix, weights, number)
    if vectors is None:
        return None
    transform = _maximise(vectors, _feasible(_inner_simplex(vectors), vectors))
    if transform is None:
        return None
    memberships = (vectors @ transform).clip(min=0.0)
    memberships /= memberships.sum(axis=1, keepdims=True)
    weighted = memberships.T * weights
    coarse = np.linalg.solve(weighted @ memberships, weighted @ matrix @ memberships)
    return SoftSets(memberships, coarse, _trace(transform) / number)


def schur_vectors(matrix: Floats, weights: Floats, number: int) -> Floats | None:
    """The leading vectors X (n, number), X^T D X = 1, X[:, 0] = 1; None where a pair is split."""
    moduli = np.append(np.sort(np.abs(np.linalg.eigvals(matrix)))[::-1], -1.0)
    if moduli[number - 1] - moduli[number] < SAME_MODULUS:
        return None
    smallest = (moduli[number - 1] + moduli[number]) / 2

    def leading(real: float, imaginary: float = 0.0) -> bool:
        return bool(abs(real + 1j * imaginary) > smallest)

    root = np.sqrt(weights / weights.sum())
    try:
        _, basis, n_leading = schur(root[:, None] * matrix / root, output="real", sort=leading)
    except np.linalg.LinAlgError:  # rounding moves an eigenvalue over the border
        return None
    if n_leading != number:
        return None
    # The constant vector is in the leading space: turn the basis so that it comes first.
    basis = basis[:, :number]
    turn = np.linalg.qr((basis.T @ root)[:, None], mode="complete")[0]
    vectors = basis @ turn / root[:, None]
    vectors /= np.sign(vectors[0, 0])
    vectors[:, 0] = 1.0
    return np.asarray(vectors)


def _inner_simplex(vectors: Floats) -> Floats:
    """The inverse of the rows of X that are corners: each is farthest from the span before it."""
    apart = vectors.copy()
    corners = [int(np.linalg.norm(apart, axis=1).argmax())]
    apart -= apart[corners[0]]
    for _ in range(1, vectors.shape[1]):
        distances = np.linalg.norm(apart, axis=1)
        corners.append(int(distances.argmax()))
        direction = apart[corners[-1]] / distances.max()
        apart -= np.outer(apart @ direction, direction)
    return np.asarray(np.linalg.inv(vectors[corners]), np.float64)


def _feasible(transform: Floats, vectors: Floats) -> Floats:
    """The nearby A whose memberships sum to 1 and have a smallest value of 0 in every set."""
    filled = transform.copy()
    filled[1:, 0] = -filled[1:, 1:].sum(axis=1)
    filled[0] = -(vectors[:, 1:] @ filled[1:]).min(axis=0)
    return np.asarray(filled / filled[0].sum())


def _trace(transform: Floats) -> float:
    return float(((transform**2).sum(axis=0) / transform[0]).sum())


def _maximise(vectors: Floats, transform: Floats) -> Floats | None:
    """A local maximum of the crispness; None where it has an empty set."""
    number = vectors.shape[1]
    memberships = np.kron(vectors, np.eye(number))  # of A row by row: (n * number, number^2)
    row_sums = np.kron(np.eye(number), np.ones(number))
    first = np.eye(number)[0]
    while True:
        gradient = 2 * transform / transform[0]
        gradient[0] = 2 - (transform**2).sum(axis=0) / transform[0] ** 2
        corner = linprog(
            -gradient.ravel(),
            A_ub=-memberships,
            b_ub=np.zeros(len(memberships)),
            A_eq=row_sums,
            b_eq=first,
            bounds=(None, None),
            method="highs-ds",
        )
        if not corner.success:  # numbers too far apart for the solver
            return transform
        following = corner.x.reshape(number, number)
        if following[0].min() < EMPTY:
            return None
        if _trace(following) <= _trace(transform) + GAIN:
            return transform
        transform = following


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
    gaps = moduli[:-1] - moduli[1:]  # gaps[m - 1] comes after m sets
    wanted = 2 + int(gaps[1 : min(MAX_SETS, n)].argmax()) if n_sets is None else n_sets
    for number in sorted(range(2, n + 1), key=lambda other: (abs(other - wanted), -other)):
        memberships = _memberships(model, number)
        if memberships is not None:
            note = _note(n_sets, wanted, number)
            return _sort_sets(memberships, model.stationary, float(gaps[number - 1]), note)
    raise GlauberError("no number of basins fits the eigenvalues: take another lag or clusters.")


def _memberships(model: StateModel, number: int) -> Floats | None:
    """The memberships (n, number); none where equal moduli are split or a set stays empty."""
    sets = soft_sets(model.matrix, model.stationary, number)
    if sets is None:
        return None
    n_nonempty = len(np.unique(sets.memberships.argmax(axis=1)))
    return sets.memberships if n_nonempty == number else None


def _sort_sets(memberships: Floats, stationary: Floats, gap: float, note: str) -> MetastableSets:
    assignment = memberships.argmax(axis=1)
    weights = np.bincount(assignment, stationary, memberships.shape[1])
    ordered = memberships[:, np.argsort(-weights, kind="stable")]
    return MetastableSets(ordered, ordered.argmax(axis=1), gap, note)


def _note(n_sets: int | None, wanted: int, number: int) -> str:
    how = "by the largest eigenvalue gap" if n_sets is None else "as asked"
    if number == wanted:
        return f"There are {number} basins, {how}."
    whose = "the largest eigenvalue gap" if n_sets is None else "the number asked for"
    return (
        f"There are {number} basins: {whose} is {wanted}, which splits eigenvalues of equal "
        "modulus (a complex pair) or leaves a basin empty."
    )


@dataclass(frozen=True)
class Path:
    """One way from basin to basin, and the share of the flow that takes it."""

    basins: tuple[int, ...]
    share: float


@dataclass(frozen=True, eq=False)
class Transition:
    """What happens between leaving one basin and reaching another."""

    source: int
    target: int
    flux: float  # passages from source to target per step
    paths: tuple[Path, ...]  # the strongest first
    committor: Floats = internal()  # (n,): chance of a state to reach the target before the source
    kind: str = "estimate"


def passage_times(model: StateModel, assignment: Assignment, n_basins: int) -> Floats:
    """Mean first-passage times (basins, basins) in steps; nan where a basin has no state."""
    analysis = deeptime().markov.tools.analysis
    steps = np.full((n_basins, n_basins), np.nan)
    members = np.eye(n_basins)[assignment] * model.stationary[:, None]  # (n, basins)
    visited = members.sum(axis=0) > 0
    within = members[:, visited] / members[:, visited].sum(axis=0)
    for basin in np.flatnonzero(visited):
        target = np.flatnonzero(assignment == basin)
        # A basin that is all of a resample's states is reached at once from everywhere.
        times = (
            analysis.mfpt(model.matrix, target, tau=model.lag_steps)
            if len(target) < len(assignment)
            else np.zeros(len(assignment))
        )
        steps[visited, basin] = within.T @ times
    return steps


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
    return Transition(source, target, float(flux.total_flux) / model.lag_steps, paths, committor)


def _paths(flux: Any, assignment: Assignment) -> tuple[Path, ...]:
    """The flow between whole basins, taken apart into paths."""
    basins = [np.flatnonzero(assignment == basin).tolist() for basin in range(assignment.max() + 1)]
    order, coarse = flux.coarse_grain(basins)
    number = [int(assignment[min(members)]) for members in order]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the first paths are all we ask for
        routes, shares = coarse.pathways(maxiter=MAX_PATHS)
    return tuple(
        Path(tuple(number[node] for node in route), float(share / flux.total_flux))
        for route, share in zip(routes, shares, strict=True)
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class BasinModel:
    """The basins of a run, numbered by decreasing share of the stationary distribution."""

    model: StateModel = internal()
    sets: MetastableSets = internal()
    slow: Estimates = internal()  # (states - 1,): the model's timescales in steps, slowest first
    shares: Estimates = internal()  # (basins,) of the stationary distribution
    staying: Estimates = internal()  # (basins,): chance to be in the same basin one lag later
    basin_of: NDArray[np.int64] = internal()  # (chains, snapshots): -1 outside the model
    implied_timescales: ImpliedTimescales  # at several lags
    passage_times: Estimates  # (basins, basins): mean first-passage times in steps
    transitions: tuple[Transition, ...]  # of every ordered pair
    chapman_kolmogorov: ChapmanKolmogorov | None
    notes: tuple[str, ...]  # what to keep in mind, as sentences

    @reported
    def lag(self) -> int:
        """Lag of the model in steps."""
        return self.model.lag_steps

    @reported
    def states(self) -> int:
        """States that all lead to each other."""
        return len(self.model.states)

    @reported
    def connected_share(self) -> float:
        """Share of the transitions that lie within these states."""
        return self.model.share

    @reported
    def timescales(self) -> Estimates:
        """The slowest timescales of the model, in steps."""
        return self.slow.at(slice(SHOWN))

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
    n_chains_in = n_chains_in_basins(basin_of)
    figures = _figures(counts, model, sets, n_chains_in >= MIN_CHAINS)
    check = chapman_kolmogorov(labels, basin_of_label, lag=lag)
    lags = usual_lags(labels.shape[1]) if lags is None else lags
    pairs = permutations(range(sets.n_sets), 2)
    return BasinModel(
        model=model,
        sets=sets,
        **figures,
        basin_of=basin_of,
        implied_timescales=implied_timescales(labels, lags, every=every),
        transitions=tuple(transition(model, sets.assignment, pair) for pair in pairs),
        chapman_kolmogorov=check,
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

    def reweight(weights: Floats) -> tuple[StateModel, NDArray[np.int64]]:
        """The model in which each chain counts so often, and the basin of each of its states."""
        other = state_model(np.tensordot(weights, inside, 1), lag=model.lag, every=model.every)
        return other, sets.assignment[other.states]

    def times(weights: Floats) -> Floats:
        other, basin = reweight(weights)
        slow = np.full(n - 1, np.nan)
        slow[: len(other.states) - 1] = timescales(other.matrix, other.lag_steps)
        return np.concatenate([slow, passage_times(other, basin, m).ravel()])

    def chances(weights: Floats) -> Floats:
        other, basin = reweight(weights)
        members = np.eye(m)[basin] * other.stationary[:, None]  # (states, basins)
        shares = members.sum(axis=0)
        stays = np.einsum("ia,ij,ja->a", members, other.matrix, np.eye(m)[basin])
        return np.stack([shares, np.where(shares > 0, stays / np.maximum(shares, 1e-300), np.nan)])

    time = jackknife(times, len(counts), scale="log")
    chance = jackknife(chances, len(counts), scale="logit")
    passages = time.at(np.arange(n - 1, n - 1 + m * m).reshape(m, m))
    return {
        "slow": time.at(slice(n - 1)).where(np.array(n_moving_chains(counts) >= MIN_CHAINS)),
        "shares": chance.at(0).where(enough),
        "staying": chance.at(1).where(enough),
        "passage_times": passages.where(enough[:, None] & enough),
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
