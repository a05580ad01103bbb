"""What the propositions promise about reaching R1, and the exact chances (paper B).

Proposition 4: k-Gibbs with k >= |C| is in R1 within ceil(log_c delta) steps with chance 1 - delta.
Proposition 5: from sum over C of x_i <= -2, the independent parallel sampler stays there for
floor(delta/2 exp(c_stuck)) steps with chance 1 - delta.
Corollary 3: for a large clique N-Gibbs arrives in one step, the parallel sampler not in M.
"Random" starts have every site of the clique uniform, so that Proposition 5 applies to them with
the chance of sum <= -2, a binomial tail: about 1/2.
Propositions 4 and 5 compare states that agree outside the clique, so that they need J_0 > 0 and,
where h_G enters, no condition on the fields outside.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, comb, exp, floor, inf, log, log1p, tanh
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from scipy.special import expit

from glauber.exact.hitting_times import arrival_within, log_arrival_within
from glauber.exact.models import Clique, Ferromagnet
from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import say, track
from glauber.foundation.study import Result, internal, reported, study
from glauber.studies.ising.model import Delta

if TYPE_CHECKING:
    import plotly.graph_objects as go


@study
def separation(
    *,
    steps: Annotated[int, "Steps M that the parallel sampler may take.", Whole(1, 10**6)] = 1,
    delta: Delta = 0.5,
) -> "Separations":
    """One step of N-Gibbs against M steps of the parallel sampler, by the size of the clique.

    Paper B, Corollary 3, for the weakest models that it allows (N = |C|, no site outside): from a
    size on, N-Gibbs is in R1 after one step and the parallel sampler not within M, with chance
    1 - delta. The exact chances of every smaller clique are compared with the promise.
    """
    largest = corollary_size(steps, delta)
    say(f"{largest - 1} cliques of up to {largest} sites")
    rows = []
    with track("cliques", largest - 1) as advance:
        for size in range(2, largest + 1):
            rows.append(separation_of(steps, delta, size))
            advance()
    return Separations(steps, delta, tuple(rows))


@dataclass(frozen=True)
class Separation:
    """Corollary 3 for one M and delta, and the exact chances of the same model.

    gibbs_misses: N-Gibbs is not in R1 after one step. parallel_arrives: the parallel sampler is
    in R1 within M steps from the best start with sum <= -2 (0 where it is below all floats). Both
    are exact; the corollary promises that together they are at most delta. random_arrives is the
    same from a random start, low_start the chance that such a start has sum <= -2.
    """

    model: Clique
    n_steps: int
    delta: float
    gibbs_misses: float
    parallel_arrives: float
    random_arrives: float
    low_start: float

    @property
    def holds(self) -> bool:
        """Whether both events together have chance at most delta."""
        return self.gibbs_misses + self.parallel_arrives <= self.delta

    def log10_parallel(self) -> float:
        """log10 of parallel_arrives, also below all floats."""
        logs = log_arrival_within(self.model.log_parallel(), self.model.all_ones, self.n_steps)
        return float(logs[: _n_starts(self.model)].max() / log(10))

    def record(self) -> dict[str, object]:
        return {
            "sites": self.model.size,
            "gibbs_misses": self.gibbs_misses,
            "log10_parallel_arrives": self.log10_parallel(),
            "random_arrives": self.random_arrives,
            "low_start": self.low_start,
        }


@dataclass(frozen=True, eq=False)
class Separations(Result):
    """Corollary 3 for every size of the clique up to the corollary's own, which is the last."""

    steps: int
    delta: float
    rows: tuple[Separation, ...] = internal()
    kind = reported(lambda self: "exact")  # nothing is simulated

    @property
    def promised(self) -> Separation:
        """The clique that the corollary asks for."""
        return self.rows[-1]

    @property
    def smallest(self) -> Separation:
        """The smallest clique from which on, up to the corollary's own, the separation holds."""
        falling = self.rows[::-1]
        broken = next((slot for slot, row in enumerate(falling) if not row.holds), len(falling))
        return falling[max(broken - 1, 0)]

    def to_dict(self) -> dict[str, Any]:
        horizon = parallel_horizon(self.promised.model, self.delta / 2)
        return super().to_dict() | {
            "promised": self.promised.record(),
            "smallest": self.smallest.record(),
            "horizon_of_proposition_5": {"value": horizon, "kind": "lower bound"},
        }

    def lines(self) -> Iterable[str]:
        for name, row in (("the corollary asks for", self.promised), ("enough are", self.smallest)):
            yield (
                f"{name} {row.model.size} sites: N-Gibbs is not in R1 after one step with chance "
                f"{row.gibbs_misses:.3g}, the parallel sampler is within {row.n_steps:,} with "
                f"chance 10^{row.log10_parallel():.1f}; a random start has sum <= -2 with chance "
                f"{row.low_start:.3f}, and from it the parallel sampler is within "
                f"{row.n_steps:,} with chance {row.random_arrives:.3g} (all exact)"
            )

    def table(self) -> list[dict[str, object]]:
        """One row per size of the clique."""
        return [
            {
                "sites": row.model.size,
                "gibbs_misses": row.gibbs_misses,
                "parallel_arrives": row.parallel_arrives,
                "low_start": row.low_start,
                "random_arrives": row.random_arrives,
                "holds": row.holds,
            }
            for row in self.rows
        ]

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.ising import plot_separation

        return {"separation": plot_separation(self.rows)}


def gibbs_horizon(model: Clique, k: int, delta: float) -> int | None:
    """Proposition 4's number of steps, an upper bound; None where it says nothing.

    c = 1 - C(N-|C|, k-|C|) / C(N, k) * A / (A + e^(2 J_0) + 2^|C| - 2),  A = e^(2 (J_0 + h_G)).
    """
    condition = model.ferromagnet
    if k < model.size or condition.margin <= 0:
        return None
    # Below 1 by at least what floats can tell.
    arrives = clique_is_hidden(model, k) * min(least_arrival(condition, model.size), 1 - 2.0**-53)
    return ceil(log(delta) / log1p(-arrives)) if arrives > 0 else None  # None: below all floats


def clique_is_hidden(model: Clique, k: int) -> float:
    """C(N-|C|, k-|C|) / C(N, k), the chance that k random sites contain the clique (F.39)."""
    return comb(model.n_sites - model.size, k - model.size) / comb(model.n_sites, k)


def least_arrival(condition: Ferromagnet, size: int) -> float:
    """A / (A + e^(2 J_0) + 2^|C| - 2), A = e^(2 (J_0 + h_G)): redrawn jointly, it is in R1."""
    other = np.logaddexp(2 * condition.margin, log(2**size - 2) if size > 1 else -inf)
    return float(expit(2 * (condition.margin + condition.clique_field) - other))


def stuck_constant(model: Clique) -> float | None:
    """c_stuck = 2 (-1 + tanh(J_0) |C| / 2)^2 / |C|, or None where the proposition is silent.

    (1 - e^(-2 J_0)) / (1 + e^(-2 J_0)) is tanh(J_0); the bracket must be positive.
    """
    margin = model.ferromagnet.margin
    inner = -1 + tanh(margin) * model.size / 2
    return None if margin <= 0 or inner <= 0 else 2 * inner**2 / model.size


def parallel_horizon(model: Clique, delta: float) -> int | None:
    """Proposition 5's number of steps, a lower bound; None where it says nothing."""
    stuck = stuck_constant(model)
    return None if stuck is None else floor(delta / 2 * exp(min(stuck, 700.0)))


def leaves_within(model: Clique, n_steps: int) -> float:
    """The chance that the parallel sampler leaves sum <= -2 within so many steps, best start."""
    matrix, left = np.exp(model.log_parallel()), 2 * np.arange(model.size + 1) - model.size > -2
    return float(arrival_within(matrix, left, n_steps)[~left].max()) if n_steps else 0.0


def corollary_size(n_steps: int, delta: float) -> int:
    """The |C| that Corollary 3 asks for: at least 8 (1 + ln(4 M / delta))."""
    return ceil(8 * (1 + log(4 * n_steps / delta)))


def corollary_model(size: int, delta: float) -> Clique:
    """The weakest clique of that size that Corollary 3 allows: no site outside, N = |C|.

    h_G = 1/2 ln(2 (2 - delta) / delta), spread evenly; J_0 = |C| ln 2 / 2; J = J_0 + h.
    """
    field = log(2 * (2 - delta) / delta) / 2 / size
    return Clique(size, size, coupling=size * log(2) / 2 + field, field=field)


def separation_of(n_steps: int, delta: float, size: int) -> Separation:
    """Corollary 3's model with a clique of that size, and its exact chances."""
    if size < 2:
        raise GlauberError("with fewer than 2 sites no start has sum <= -2.")
    model = corollary_model(size, delta)
    arrives = arrival_within(np.exp(model.log_parallel()), model.all_ones, n_steps)
    starts = np.exp([log(comb(size, ones)) - size * log(2) for ones in range(size + 1)])
    return Separation(
        model,
        n_steps,
        delta,
        gibbs_misses=float(np.exp(model.log_distribution[:-1]).sum()),
        parallel_arrives=float(arrives[: _n_starts(model)].max()),
        random_arrives=float(arrives @ starts),
        low_start=float(starts[: _n_starts(model)].sum()),
    )


def _n_starts(model: Clique) -> int:
    """How many values of a have sum 2 a - |C| <= -2."""
    return (model.size - 2) // 2 + 1


class Step(NamedTuple):
    """One inequality of a proof, smaller <= larger, with both sides computed."""

    source: str
    statement: str
    smaller: float
    larger: float


def proof_steps(model: Clique, k: int, n_steps: int) -> list[Step]:
    """The inequalities behind Propositions 4 and 5 for one model, exact chances in them.

    J counts twice a pair here, so that a site of the clique sees 4 J in the exponent where the
    paper's proof has 2 J: the bounds are the paper's, and the exact sides are further from them.
    """
    condition, stuck = model.ferromagnet, stuck_constant(model)
    assert stuck is not None, "the proposition is silent"
    worst = expit(2 * model.field - 4 * model.coupling)  # the others of the clique sum to -1
    up = float(expit(-2 * condition.margin))
    miss = 2 * exp(-stuck)
    joint = float(np.exp(model.log_distribution[-1]))
    hidden = clique_is_hidden(model, k)
    arrives = float(np.exp(model.log_gibbs(k))[:, -1].min())
    return [
        Step(
            "(F.39)",
            "P(R1 | clique hidden) is at least",
            least_arrival(condition, model.size),
            joint,
        ),
        Step(
            "(F.39)", "P(R1 in a step) is at least P(clique hidden) P(R1)", hidden * joint, arrives
        ),
        Step("(G.41)", "P(X_j = 1) is at most e^(-2 J_0) / (e^(-2 J_0) + 1)", float(worst), up),
        Step("(G.43)", "P(sum > -2 after a step) is at most", leaves_within(model, 1), miss),
        Step("(G.44)", "and after T steps", leaves_within(model, n_steps), n_steps * miss),
    ]


def corollary_steps(n_steps: int, delta: float) -> list[Step]:
    """The inequalities behind Corollary 3, for the weakest model of the size that it asks for."""
    model = corollary_model(corollary_size(n_steps, delta), delta)
    condition, stuck = model.ferromagnet, stuck_constant(model)
    assert stuck is not None
    missed = 1 - least_arrival(condition, model.size)
    return [
        Step("(H.46)", "c_R1 is at most delta / 2", missed, delta / 2),
        Step(
            "(H.49)",
            "(1 - e^(-2 J_0)) / (1 + e^(-2 J_0)) is at least 1/2",
            0.5,
            tanh(condition.margin),
        ),
        Step("(H.49)", "c_stuck is at least ln(4 M / delta)", log(4 * n_steps / delta), stuck),
        Step(
            "(H.50)", "the horizon is at least M", n_steps, parallel_horizon(model, delta / 2) or 0
        ),
    ]
