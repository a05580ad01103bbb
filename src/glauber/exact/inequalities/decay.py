"""How fast do chi-square and relative entropy fall along the chain, and what is promised?

Both never grow. After t steps, chi-square is at most (1 - gap)^(2t) of what it was, since the
chain has no negative eigenvalue, and KL at most (1 - 1/C)^t, with C the tensorisation constant.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from glauber.errors import GlauberError
from glauber.exact.blocks import check_law
from glauber.exact.inequalities.ceilings import ceiling
from glauber.exact.inequalities.chain import block_chain
from glauber.exact.inequalities.poincare import poincare
from glauber.exact.laws import Floats
from glauber.exact.learning.masks import Masks


@dataclass(frozen=True, eq=False)
class Decay:
    """Chi-square and KL (n_steps + 1,) to the stationary law: exact, beside their upper bounds.

    tensorisation is the upper bound on the constant that kl_bound rests on.
    """

    chi_square: Floats
    kl: Floats
    chi_square_bound: Floats
    kl_bound: Floats
    tensorisation: float
    kind: Literal["exact"] = "exact"
    bound_kind: Literal["upper bound"] = "upper bound"


def decay(law: Floats, masks: Masks, start: Floats, n_steps: int) -> Decay:
    """Both distances after 0, 1, … n_steps steps from a start that is a law (size,)."""
    check_law(law, masks.space)
    if start.shape != law.shape or start.min() < 0 or abs(start.sum() - 1) > 1e-9:
        raise GlauberError(f"the start must be a law over the {law.size:,} states.")
    if n_steps < 1:
        raise GlauberError(f"{n_steps} steps were asked for, but at least one is needed.")
    chain = block_chain(law, masks)
    rows = [start]
    for _ in range(n_steps):
        rows.append(chain.rmatvec(rows[-1]))
    chi = np.array([float(((row - law) ** 2 / law).sum()) for row in rows])
    kl = np.array([_kl(row, law) for row in rows])
    found = poincare(law, masks)
    constant = ceiling(law, masks, found).value
    times = np.arange(n_steps + 1)
    gap = max(0.0, found.gap - found.error)
    return Decay(
        chi, kl, chi[0] * (1 - gap) ** (2 * times), kl[0] * (1 - 1 / constant) ** times, constant
    )


def _kl(row: Floats, law: Floats) -> float:
    return float(np.where(row > 0, row * np.log(np.where(row > 0, row, 1.0) / law), 0.0).sum())
