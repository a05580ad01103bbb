"""How long from one basin to another, and by which way?

The mean first-passage time from basin a, entered as the stationary law fills it, to basin b; the
committor, the chance to reach b before a; and the transition paths, the flow of those passages
that leave a for good and arrive at b (E and Vanden-Eijnden 2006), all of the state model.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.metastability.clusters import MISSING
from glauber.metastability.state_model import StateModel
from glauber.statistics import Floats

Assignment = NDArray[np.int64]  # (n,): the basin of each state
PATHS = 5  # of one pair, at most


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
    analysis = _deeptime().tools.analysis
    found = np.full((n_basins, n_basins), np.nan)
    members = np.eye(n_basins)[assignment] * model.law[:, None]  # (n, basins)
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
    flux = _deeptime().reactive_flux(model.matrix, *ends, stationary_distribution=model.law)
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


def _deeptime() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from deeptime import markov
    except ImportError as error:
        raise GlauberError(MISSING) from error
    return markov
