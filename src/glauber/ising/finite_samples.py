"""What do n sequences with m masks each promise about the distribution that is learnt?

Paper B, Theorem 4. With probability 1 - delta,
    TV(p_hat, p) < sqrt( C_AT/2 * (L_hat + B ln(1/beta) + eps) ) + C,
    B = sqrt( 2^(3N) |Omega|^N C_eps / (m delta) ) + sqrt( ln(8 C_eps/delta) / (2n) ),
    C = sqrt( |Omega|^(3N) / (8 delta n) ).
L_hat is a log loss, which does not go to zero for the true distribution: the first term alone is
often above 1. Beside it stands the excess loss: if, as the theorem has it, the losses of p_hat and
of the truth each deviate by at most B ln(1/beta) + eps, L_hat becomes their difference and that
term counts twice. And
    TV(p_hat, p) <= sqrt( C_AT/2 * (L(p_hat) - L(p)) ),
with the population's loss, which needs no sampling term: what the loss would have to be.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from glauber.errors import GlauberError
from glauber.exact.blocks.ceilings import ceiling
from glauber.exact.blocks.dynamics import mask_conditionals
from glauber.exact.blocks.gap import block_gap
from glauber.exact.blocks.masks import Masks, check_block
from glauber.exact.blocks.pseudolikelihood import (
    Pseudolikelihood,
    draw_counts,
    fit_pairs,
    random_masks,
)
from glauber.exact.models import Ising, ising_family, ising_theta
from glauber.exact.space import Floats, check_positive
from glauber.exact.stationary import total_variation
from glauber.ising.estimation import check_found, drawing_of
from glauber.ising.model import Clique, Coupling, Field, Model, Sites, model_of
from glauber.parameters import Seed
from glauber.progress import check_count, check_seed, say, track
from glauber.result import Result, plain, signature, study

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

SEQUENCES = (1000, 10_000, 100_000, 1_000_000)
LINES = {
    "true distance": "true_total_variation",
    "by the population's excess loss": "by_population_excess",
    "theorem with the excess loss": "with_excess",
    "theorem as written": "as_written",
}


@study
def bound(
    model: Model = None,
    *,
    sequences: Annotated[Sequence[int], "Numbers of sequences n."] = SEQUENCES,
    masks: Annotated[int, "Random masks of each sequence, m."] = 1_000_000,
    k: Annotated[int, "Sites hidden together."] = 1,
    delta: Annotated[float, "Chance that the bound may fail."] = 0.05,
    sites: Sites = 3,
    clique: Clique = None,
    coupling: Coupling = 0.1,
    field: Field = 0.0,
    seed: Seed = 0,
) -> "FiniteSamples":
    """The finite-sample bound on what is learnt, term by term, beside the true distance.

    Paper B, Theorem 4, with the most favourable cover (one member, radius 0) and the upper bound
    on the tensorisation constant in place of the constant.
    """
    check_seed(seed)
    if not len(sequences):
        raise GlauberError("no number of sequences was given: name one at least, such as 1000.")
    for n in sequences:
        check_count("number of sequences", n)
    check_count("number of masks", masks)
    drawing_of(masks, max(sequences))
    Setting(1, masks, delta)
    chosen = model_of(
        model, sites=sites, clique=clique, coupling=coupling, field=field, learnt=True
    )
    if chosen.n_sites <= 64:
        check_block(k, chosen.n_sites)
    problem = Pseudolikelihood.of_size(ising_family(chosen.n_sites), k)
    say(f"{len(sequences)} fits over {problem.family.space.size:,} states")
    rows = []
    with track("fits", len(sequences)) as advance:
        for n in sequences:
            rows.append(_row(problem, chosen, Setting(n, masks, delta), seed))
            advance()
    made = signature(
        study="ising-bound", sites=chosen.n_sites, model="clique" if model is None else "own",
        clique=clique, coupling=coupling if model is None else None,
        field=field if model is None else None, k=k, masks=masks, delta=delta, seed=seed,
    )  # fmt: skip
    return FiniteSamples(tuple(rows), made)


def _row(problem: Pseudolikelihood, model: Ising, given: "Setting", seed: int) -> dict[str, Any]:
    """One number of sequences: the fit, the bound and what is true."""
    generator = np.random.default_rng(seed)
    family, masks, truth = problem.family, problem.masks, ising_theta(model)
    p = family.distribution(truth)
    counts = draw_counts(p, given.n_sequences, 1, generator)[0]
    seen = random_masks(counts, masks, generator, given.n_masks)
    found = fit_pairs(problem, seen)
    check_found(found, given.n_sequences)
    learnt = family.distribution(found.theta)
    above = ceiling(learnt, masks, block_gap(learnt, masks)).value
    losses = float(found.loss), float(problem.loss(truth, seen))
    terms = finite_sample_bound(losses, (learnt, p), masks, tensorisation=above, setting=given)
    return {
        "sequences": given.n_sequences,
        "true_total_variation": total_variation(learnt, p),
        **terms.terms(),
        "by_population_excess": population_bound(learnt, p, masks, tensorisation=above),
    }


@dataclass(frozen=True, eq=False)
class FiniteSamples(Result):
    """The bound and its terms for each number of sequences."""

    rows: tuple[dict[str, Any], ...]
    signature: str

    def to_dict(self) -> dict[str, Any]:
        return {"rows": plain(self.rows), "signature": self.signature}

    def lines(self) -> Iterable[str]:
        yield f"{'sequences':>12}" + "".join(f"{name:>34}" for name in LINES)
        for row in self.rows:
            shown = "".join(f"{row[key]:>34.4g}" for key in LINES.values())
            yield f"{row['sequences']:>12,}{shown}"
        yield "total variation from the truth: the first is exact, the others bound it from above;"
        yield "above 1 a bound says nothing. All terms are in to_dict() and --json"

    def frame(self) -> "pandas.DataFrame":
        """One row per number of sequences."""
        import pandas

        return pandas.DataFrame(list(self.rows))

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.ising import plot_bounds

        lines = {name: [row[key] for row in self.rows] for name, key in LINES.items()}
        return {"bounds": plot_bounds([row["sequences"] for row in self.rows], lines)}


@dataclass(frozen=True)
class Setting:
    """What the theorem is told: n sequences, m masks each, delta, and the cover of the class.

    covering is C_eps, the number of distributions that come within epsilon of every one of the
    class; 1 with epsilon 0 is the most favourable there is.
    """

    n_sequences: int
    n_masks: int
    delta: float = 0.05
    covering: float = 1.0
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        if self.n_sequences < 1 or self.n_masks < 1 or self.covering < 1 or self.epsilon < 0:
            raise GlauberError(
                "the bound needs at least one sequence, one mask and one member of the cover, "
                "and an epsilon that is not negative."
            )
        if not 0 < self.delta < 1:
            raise GlauberError(f"delta is {self.delta}, but it must lie between 0 and 1.")


@dataclass(frozen=True)
class FiniteSampleBound:
    """The bound of Theorem 4 and its terms.

    With probability 1 - delta an upper bound, if the tensorisation constant is one.
    """

    tensorisation: float
    loss: float
    excess: float
    margin: float  # beta
    mask_term: float  # the first summand of B
    sequence_term: float  # the second
    empirical_term: float  # C
    epsilon: float
    delta: float
    kind: Literal["upper bound"] = "upper bound"

    @property
    def deviation(self) -> float:
        """B ln(1/beta) + eps."""
        return (self.mask_term + self.sequence_term) * math.log(1 / self.margin) + self.epsilon

    @property
    def loss_term(self) -> float:
        """sqrt(C_AT/2 * L_hat): the first term alone."""
        return math.sqrt(self.tensorisation / 2 * self.loss)

    @property
    def as_written(self) -> float:
        """The bound of the paper."""
        inside = self.tensorisation / 2 * (self.loss + self.deviation)
        return math.sqrt(inside) + self.empirical_term

    @property
    def with_excess(self) -> float:
        """The bound with the excess loss in place of the loss."""
        inside = self.tensorisation / 2 * (max(0.0, self.excess) + 2 * self.deviation)
        return math.sqrt(inside) + self.empirical_term

    def terms(self) -> dict[str, Any]:
        """All terms in one object."""
        derived = ("deviation", "loss_term", "as_written", "with_excess")
        return asdict(self) | {name: getattr(self, name) for name in derived}


def finite_sample_bound(
    losses: tuple[float, float],
    distributions: tuple[Floats, Floats],
    masks: Masks,
    *,
    tensorisation: float,
    setting: Setting,
) -> FiniteSampleBound:
    """The bound from the empirical losses and the distributions (size,) of p_hat and of the truth.

    tensorisation is (an upper bound on) C_AT(p_hat). beta is worked out: the smallest
    p(x_K | x_{-K}, K) of either distribution.
    """
    sites, tokens = masks.space.length, masks.space.vocab_size
    margin = min(float(_possible(distribution, masks).min()) for distribution in distributions)
    given = setting
    cover = math.log(8 * given.covering / given.delta)
    states = 2.0 ** (3 * sites) * tokens**sites * given.covering
    return FiniteSampleBound(
        tensorisation=tensorisation,
        loss=losses[0],
        excess=losses[0] - losses[1],
        margin=margin,
        mask_term=math.sqrt(states / (given.n_masks * given.delta)),
        sequence_term=math.sqrt(cover / (2 * given.n_sequences)),
        empirical_term=math.sqrt(tokens ** (3 * sites) / (8 * given.delta * given.n_sequences)),
        epsilon=given.epsilon,
        delta=given.delta,
    )


def excess_loss(learnt: Floats, truth: Floats, masks: Masks) -> float:
    """L(p_hat) - L(p) of the population: E_p E_K KL of the truth's conditionals to the learnt."""
    check_positive(truth, masks.space)
    occurs = masks.per_state > 0
    weight = (masks.per_state * truth)[occurs]
    return float(weight @ np.log(_possible(truth, masks) / _possible(learnt, masks)))


def population_bound(learnt: Floats, truth: Floats, masks: Masks, *, tensorisation: float) -> float:
    """sqrt(C_AT/2 * excess): a bound on TV(p_hat, p) if C_AT(p_hat) is at most tensorisation."""
    return math.sqrt(tensorisation / 2 * max(0.0, excess_loss(learnt, truth, masks)))


def _possible(distribution: Floats, masks: Masks) -> Floats:
    """The conditionals of all pairs (mask, state) that occur."""
    return mask_conditionals(distribution, masks)[masks.per_state > 0]
