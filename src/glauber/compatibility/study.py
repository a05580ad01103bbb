"""How far are a model's conditionals from any joint law, and is that more than rounding?"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor

from glauber.compatibility.bootstrap import LEVEL, bootstrap_mean
from glauber.compatibility.draw import TOP, draw
from glauber.compatibility.rectangles import Rectangles, rectangles
from glauber.conditionals.base import Conditionals, Restricted
from glauber.conditionals.masked_lm import MaskedLM
from glauber.errors import GlauberError

QUANTILES = (0.05, 0.25, 0.75, 0.95)


@dataclass(frozen=True, eq=False)
class RectangleStudy:
    """Random rectangles in the model's dtype, and the same ones in a more precise one."""

    rectangles: Rectangles
    precise: Rectangles
    passages: Tensor  # (count,) the passage that each rectangle came from
    seed: int
    seconds: float  # for drawing and the model's own rectangles
    precise_seconds: float  # for the same rectangles in the more precise dtype

    @property
    def delta(self) -> NDArray[np.float64]:
        """Delta of each rectangle in the model's dtype, (count,)."""
        return np.asarray(self.rectangles.delta.cpu())

    @property
    def noise_floor(self) -> float:
        """The largest |Delta - precise Delta| over the rectangles, and float64's own rounding.

        Measured, not proved: an estimate of what the model's arithmetic can add to a Delta.
        """
        apart = (self.rectangles.delta - self.precise.delta).abs()
        return float(apart.max() + self.precise.rounding.max())

    @property
    def certified(self) -> NDArray[np.bool_]:
        """Which rectangles (count,) lie above the noise floor, in both dtypes.

        Both, because rounding alone can lift the largest Delta of a compatible model to the floor.
        """
        smaller = np.minimum(self.delta, np.asarray(self.precise.delta.cpu()))
        return np.asarray(smaller > self.noise_floor)

    @property
    def influence(self) -> NDArray[np.float64] | None:
        """Mean of the two total variations between the sites of each rectangle, (count,)."""
        both = self.rectangles.influence
        return None if both is None else np.asarray(both.mean(dim=1).cpu())

    def strongest(self, count: int) -> list[int]:
        """The rectangles with the largest certified Deltas, in falling order."""
        falling = np.argsort(-self.delta, kind="stable")
        return [int(which) for which in falling if self.certified[which]][:count]

    def summary(self) -> dict[str, Any]:
        """The figures, and under `kind` what each of them is."""
        delta, certified = self.delta, self.certified
        cuts = {f"{q:g}": float(np.quantile(delta, q)) for q in QUANTILES}
        told: dict[str, Any] = {
            "count": len(delta),
            "mean": float(delta.mean()),
            "interval": list(bootstrap_mean(delta, seed=self.seed)),
            "median": float(np.median(delta)),
            "quantiles": cuts | {"max": float(delta.max())},
            "noise_floor": self.noise_floor,
            "certified": int(certified.sum()),
            "share_certified": float(certified.mean()),
        }
        if self.influence is not None:
            told["influence_rank_correlation"] = _rank_correlation(self.influence, delta)
        return told | {"kind": KINDS}


KINDS = {
    "mean": "estimate",
    "median": "estimate",
    "quantiles": "estimate",
    "interval": f"estimate: {LEVEL:.0%} bootstrap interval of the mean over these passages",
    "noise_floor": "estimate: largest |Delta in float32 - Delta in float64| on these rectangles",
    "certified": "exact up to the noise floor: each rules out every joint law",
    "share_certified": "estimate",
    "influence_rank_correlation": "estimate: Spearman, Delta against the mean of both influences",
}


def rectangle_study(
    conditionals: Conditionals,
    precise: Conditionals,
    tokens: Tensor,
    *,
    free: Tensor,
    count: int = 300,
    seed: int = 0,
    top: int = TOP,
    proposals: Conditionals | None = None,
    influence: bool = True,
) -> RectangleStudy:
    """`count` random rectangles over tokens (passages, length), by the protocol of paper A.

    precise are the same conditionals in float64, which the noise floor is measured against.
    proposals, if given, choose the replacements (an autoregressive model cannot rank a whole
    vocabulary at a site); without influence only candidates are scored.
    """
    begun = time.perf_counter()
    drawn = draw(proposals or conditionals, tokens, free, count=count, seed=seed, top=top)
    chosen = drawn.tokens, drawn.sites, drawn.values
    found = rectangles(conditionals, *chosen, influence=influence)
    between = time.perf_counter()
    again = rectangles(precise, *chosen, influence=False)
    spent = time.perf_counter() - between
    return RectangleStudy(found, again, drawn.passages, seed, between - begun, spent)


def rectangles_of_model(
    model: MaskedLM,
    tokens: Tensor,
    *,
    free: Tensor,
    count: int = 300,
    seed: int = 0,
    top: int = TOP,
) -> RectangleStudy:
    """The study of a masked LM over the tokens it may propose, beside itself in float64."""
    if model.dtype == "int8":
        raise GlauberError("int8 is for drawing samples only: rectangles need float32 or float64.")
    allowed = model.vocabulary.proposable()
    return rectangle_study(
        Restricted(model, allowed),
        Restricted(model.in_float64(), allowed),
        tokens,
        free=free,
        count=count,
        seed=seed,
        top=top,
    )


def _rank_correlation(influence: NDArray[Any], delta: NDArray[Any]) -> float | None:
    """Spearman's rank correlation; None where one of the two is constant."""
    if len(delta) < 2 or np.ptp(influence) == 0 or np.ptp(delta) == 0:
        return None
    return float(spearmanr(influence, delta).statistic)
