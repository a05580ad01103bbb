"""Which states belong together, because the chain stays among them? Metastable sets by GPCCA.

GPCCA (Reuter, Fackeldey and Weber 2019) works on the real Schur vectors of the transition matrix,
so it also takes chains that are not reversible, as those of masked language models. A pair of
complex eigenvalues must stay together: a number of sets that splits one is not possible, and a
neighbouring number is taken instead.
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

MOST = 8  # sets, where the number is not given


@dataclass(frozen=True, eq=False)
class MetastableSets:
    """How far each state belongs to each set; sets in order of decreasing weight."""

    memberships: Floats  # (n, sets): each row sums to 1
    assignment: NDArray[np.int64]  # (n,): the set that a state belongs to most
    gap: float  # modulus of the last eigenvalue kept less that of the next
    words: str  # how the number of sets came about
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
                found, model.law, float(gaps[number - 1]), _words(n_sets, wanted, number)
            )
    raise GlauberError("no number of basins fits the eigenvalues: take another lag or clusters.")


def _memberships(model: StateModel, number: int) -> Floats | None:
    """The memberships (n, number); none where a complex pair is split or a set stays empty."""
    gpcca = _gpcca()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of the crispness of every try
        try:
            found = gpcca.GPCCA(model.matrix, eta=model.law).optimize(number)
        except (ValueError, RuntimeError, AssertionError):
            return None
    memberships = np.asarray(found.memberships, np.float64)
    held = np.unique(memberships.argmax(axis=1))
    return memberships if len(held) == number else None


def _sorted(memberships: Floats, law: Floats, gap: float, words: str) -> MetastableSets:
    assignment = memberships.argmax(axis=1)
    weights = np.bincount(assignment, law, memberships.shape[1])
    ordered = memberships[:, np.argsort(-weights, kind="stable")]
    return MetastableSets(ordered, ordered.argmax(axis=1), gap, words)


def _words(asked: int | None, wanted: int, number: int) -> str:
    how = "by the largest eigenvalue gap" if asked is None else "as asked"
    if number == wanted:
        return f"{number} basins, {how}"
    whose = "the largest eigenvalue gap" if asked is None else "the number asked for"
    return (
        f"{number} basins: {whose} is {wanted}, which splits a pair of complex eigenvalues or "
        "leaves a basin empty"
    )


def _gpcca() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it looks for PETSc and SLEPc
            import pygpcca
    except ImportError as error:
        raise GlauberError(MISSING) from error
    return pygpcca
