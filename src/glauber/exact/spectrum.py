"""How fast does the chain forget, in the long run? Its spectral gaps.

For a reversible chain one number says it. For another one there are three: the second eigenvalue
modulus (the rate in the end), the gap of the additive reversibilisation (P + P*)/2, and the
pseudo-spectral gap (Paulin 2015), max over k >= 1 of gap((P*)^k P^k) / k, which bounds the mixing
time as the gap does for a reversible chain.
"""

from dataclasses import dataclass
from typing import Literal

from glauber.errors import GlauberError
from glauber.exact.extremes import largest_eigenvalue, largest_modulus, power_norm
from glauber.exact.laws import Floats
from glauber.exact.reversal import Matrix, Remainder, remainder


@dataclass(frozen=True)
class Spectrum:
    """The gaps of a chain over its recurrent states, each known up to `error` (absolute).

    pseudo_gap was sought over k up to k_max and is reached at pseudo_k. It is "exact" where no
    larger k can do better (a term is at most 1/k), and a "lower bound" otherwise. error is the
    largest residual of the eigenpairs: for the two gaps, which are eigenvalues of symmetric
    matrices, a proved bound; for second_modulus of a chain that is not reversible, an estimate.
    """

    n_states: int
    reversible: bool
    second_modulus: float
    additive_gap: float
    pseudo_gap: float
    pseudo_k: int
    k_max: int
    pseudo_kind: Literal["exact", "lower bound"]
    error: float

    @property
    def absolute_gap(self) -> float:
        """1 - second_modulus."""
        return 1 - self.second_modulus

    @property
    def gap(self) -> float:
        """1 - the second largest eigenvalue, of a reversible chain."""
        if not self.reversible:
            raise GlauberError(
                "the chain is not reversible, so it has no single spectral gap: "
                "use second_modulus, additive_gap or pseudo_gap."
            )
        return self.additive_gap


def spectrum(matrix: Matrix, *, law: Floats | None = None, k_max: int = 10) -> Spectrum:
    """The gaps of a chain (size, size), given as an array, a sparse matrix or an operator."""
    if k_max < 1:
        raise GlauberError(f"k_max is {k_max}, but it must be at least 1.")
    rest = remainder(matrix, law)
    if rest.size < 2:
        raise GlauberError("a chain that stays in one state has no spectral gap.")
    reversible = rest.reversible()
    second, residual = largest_eigenvalue(rest)
    if reversible:  # the eigenvalues of P^k are powers, so the term of k = 1 is the largest
        furthest, other = largest_eigenvalue(rest, "LM")
        modulus = abs(furthest)
        pseudo, best_k, complete = 1 - modulus**2, 1, True
    else:
        modulus, other = largest_modulus(rest)
        pseudo, best_k, complete, worse = _pseudo(rest, k_max)
        other = max(other, worse)
    return Spectrum(
        n_states=rest.size,
        reversible=reversible,
        second_modulus=modulus,
        additive_gap=1 - second,
        pseudo_gap=pseudo,
        pseudo_k=best_k,
        k_max=k_max,
        pseudo_kind="exact" if complete else "lower bound",
        error=max(residual, other),
    )


def _pseudo(rest: Remainder, k_max: int) -> tuple[float, int, bool, float]:
    """The largest gap((P*)^k P^k)/k, its k, whether no k beyond can beat it, and the residual."""
    best, best_k, worst = 0.0, 1, 0.0
    for k in range(1, k_max + 1):
        norm, residual = power_norm(rest, k)
        worst = max(worst, residual)
        if (1 - norm) / k > best:
            best, best_k = (1 - norm) / k, k
        if best >= 1 / (k + 1):
            return best, best_k, True, worst
    return best, best_k, False, worst
