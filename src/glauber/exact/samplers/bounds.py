"""What do the propositions promise about reaching R1, and what really happens?

Proposition 4: k-Gibbs with k >= |C| is in R1 within ceil(log_c delta) steps with chance 1 - delta.
Proposition 5: from sum over C of x_i <= -2, the independent parallel sampler stays there for
floor(delta/2 exp(c_stuck)) steps with chance 1 - delta.
Corollary 3: for a large clique N-Gibbs arrives in one step, the parallel sampler not in M.
Propositions 4 and 5 compare states that agree outside the clique, so that they need J_0 > 0 and,
where h_G enters, no condition on the fields outside.
"""

from dataclasses import dataclass
from math import ceil, comb, exp, floor, inf, log, log1p, tanh

import numpy as np
from scipy.special import expit

from glauber.errors import GlauberError
from glauber.exact.samplers.clique import Clique
from glauber.exact.samplers.constants import constants
from glauber.exact.samplers.hitting_times import arrival_within, log_arrival_within


def gibbs_horizon(model: Clique, k: int, delta: float) -> int | None:
    """Proposition 4's number of steps, an upper bound; None where it says nothing.

    c = 1 - C(N-|C|, k-|C|) / C(N, k) * A / (A + e^(2 J_0) + 2^|C| - 2),  A = e^(2 (J_0 + h_G)).
    """
    check_delta(delta)
    found = constants(model)
    if k < model.size or found.margin <= 0:
        return None
    others = model.n_sites - model.size
    hidden = comb(others, k - model.size) / comb(model.n_sites, k)
    arrives = hidden * _share(found.margin, found.field_sum, model.size)
    return ceil(log(delta) / log1p(-arrives))


def _share(margin: float, field_sum: float, size: int) -> float:
    """A / (A + e^(2 J_0) + 2^|C| - 2), below 1 by at least what floats can tell."""
    other = np.logaddexp(2 * margin, log(2**size - 2) if size > 1 else -inf)
    return float(min(expit(2 * (margin + field_sum) - other), 1 - 2.0**-53))


def stuck_constant(model: Clique) -> float | None:
    """c_stuck = 2 (-1 + tanh(J_0) |C| / 2)^2 / |C|, or None where the proposition is silent.

    (1 - e^(-2 J_0)) / (1 + e^(-2 J_0)) is tanh(J_0); the bracket must be positive.
    """
    found = constants(model)
    inner = -1 + tanh(found.margin) * model.size / 2
    if found.margin <= 0 or inner <= 0:
        return None
    return 2 * inner**2 / model.size


def parallel_horizon(model: Clique, delta: float) -> int | None:
    """Proposition 5's number of steps, a lower bound; None where it says nothing."""
    check_delta(delta)
    stuck = stuck_constant(model)
    return None if stuck is None else floor(delta / 2 * exp(min(stuck, 700.0)))


@dataclass(frozen=True)
class Separation:
    """Corollary 3 for one M and delta, beside the exact chances of the same model.

    gibbs_misses: N-Gibbs is not in R1 after one step. parallel_arrives: the parallel sampler is
    in R1 within M steps from the best start with sum <= -2 (0 where it is below all floats). Both
    are exact; the corollary promises that together they are at most delta.
    """

    model: Clique
    n_steps: int
    delta: float
    gibbs_misses: float
    parallel_arrives: float

    @property
    def holds(self) -> bool:
        """Whether both events together have chance at most delta."""
        return self.gibbs_misses + self.parallel_arrives <= self.delta

    def log10_parallel(self) -> float:
        """log10 of parallel_arrives, also below all floats."""
        logs = log_arrival_within(self.model.log_parallel(), self.model.all_ones, self.n_steps)
        return float(logs[: _starts(self.model)].max() / log(10))


def corollary_size(n_steps: int, delta: float) -> int:
    """The |C| that Corollary 3 asks for: at least 8 (1 + ln(4 M / delta))."""
    check_delta(delta)
    if n_steps < 1:
        raise GlauberError(f"M is {n_steps}, but it must be at least 1.")
    return ceil(8 * (1 + log(4 * n_steps / delta)))


def corollary_model(size: int, delta: float) -> Clique:
    """The weakest clique of that size that Corollary 3 allows: no site outside, N = |C|.

    h_G = 1/2 ln(2 (2 - delta) / delta), spread evenly; J_0 = |C| ln 2 / 2; J = J_0 + h.
    """
    check_delta(delta)
    field = log(2 * (2 - delta) / delta) / 2 / size
    return Clique(size, size, coupling=size * log(2) / 2 + field, field=field)


def separation(n_steps: int, delta: float, size: int | None = None) -> Separation:
    """Corollary 3's model at its own size, or another, and what really happens there."""
    model = corollary_model(size or corollary_size(n_steps, delta), delta)
    if model.size < 2:
        raise GlauberError("with fewer than 2 sites no start has sum <= -2.")
    arrives = arrival_within(np.exp(model.log_parallel()), model.all_ones, n_steps)
    return Separation(
        model,
        n_steps,
        delta,
        gibbs_misses=float(np.exp(model.log_law[:-1]).sum()),
        parallel_arrives=float(arrives[: _starts(model)].max()),
    )


def _starts(model: Clique) -> int:
    """How many values of a have sum 2 a - |C| <= -2."""
    return (model.size - 2) // 2 + 1


def smallest_separation(n_steps: int, delta: float) -> Separation:
    """The smallest clique from which on, up to the corollary's own size, the separation holds."""
    best = separation(n_steps, delta)
    for size in range(best.model.size - 1, 1, -1):
        found = separation(n_steps, delta, size)
        if not found.holds:
            break
        best = found
    return best


def check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise GlauberError(f"delta is {delta}, but it must lie between 0 and 1.")
