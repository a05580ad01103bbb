"""What do n sequences with m masks each promise about the learnt law? (Paper B, Theorem 4.)

With probability 1 - delta,
    TV(p_hat, p) < sqrt( C_AT/2 * (L_hat + B ln(1/beta) + eps) ) + C,
    B = sqrt( 2^(3N) |Omega|^N C_eps / (m delta) ) + sqrt( ln(8 C_eps/delta) / (2n) ),
    C = sqrt( |Omega|^(3N) / (8 delta n) ).
L_hat is a log loss, which does not go to zero for the true law: the first term alone is often above
1. Beside it stands the excess loss: if, as the theorem has it, the losses of p_hat and of the truth
each deviate by at most B ln(1/beta) + eps, L_hat becomes their difference and that term counts
twice. And
    TV(p_hat, p) <= sqrt( C_AT/2 * (L(p_hat) - L(p)) ),
with the population's loss, which needs no sampling term: what the loss would have to be.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from glauber.errors import GlauberError
from glauber.exact.blocks import check_law
from glauber.exact.inequalities.chain import mask_laws
from glauber.exact.laws import Floats
from glauber.exact.learning.masks import Masks


@dataclass(frozen=True)
class Setting:
    """What the theorem is told: n sequences, m masks each, delta, and the cover of the laws.

    covering is C_eps, the number of laws that come within epsilon of every law of the class; 1 with
    epsilon 0 is the most favourable there is.
    """

    n_sequences: int
    n_masks: int
    delta: float = 0.05
    covering: float = 1.0
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        if self.n_sequences < 1 or self.n_masks < 1 or self.covering < 1 or self.epsilon < 0:
            raise GlauberError(
                "the bound needs at least one sequence, one mask and one law in the cover, "
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

    def told(self) -> dict[str, Any]:
        """All terms in one object."""
        derived = ("deviation", "loss_term", "as_written", "with_excess")
        return asdict(self) | {name: getattr(self, name) for name in derived}


def finite_sample_bound(
    losses: tuple[float, float],
    laws: tuple[Floats, Floats],
    masks: Masks,
    *,
    tensorisation: float,
    setting: Setting,
) -> FiniteSampleBound:
    """The bound from the empirical losses and the laws (size,) of p_hat and of the truth.

    tensorisation is (an upper bound on) C_AT(p_hat). beta is worked out: the smallest
    p(x_K | x_{-K}, K) of either law.
    """
    sites, tokens = masks.space.length, masks.space.vocab_size
    margin = min(float(_possible(law, masks).min()) for law in laws)
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
    check_law(truth, masks.space)
    occurs = masks.per_state > 0
    weight = (masks.per_state * truth)[occurs]
    return float(weight @ np.log(_possible(truth, masks) / _possible(learnt, masks)))


def population_bound(learnt: Floats, truth: Floats, masks: Masks, *, tensorisation: float) -> float:
    """sqrt(C_AT/2 * excess): a bound on TV(p_hat, p) if C_AT(p_hat) is at most tensorisation."""
    return math.sqrt(tensorisation / 2 * max(0.0, excess_loss(learnt, truth, masks)))


def _possible(law: Floats, masks: Masks) -> Floats:
    """The conditionals of all pairs (mask, state) that occur."""
    return mask_laws(law, masks)[masks.per_state > 0]
