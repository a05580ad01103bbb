"""How far are a model's conditionals from any joint law, and is that more than rounding?"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor

from glauber.compatibility.rectangle_test import TOP, Rectangles, check_numbers, draw, evaluate
from glauber.conditionals.base import Conditionals
from glauber.conditionals.load import Model as Opened
from glauber.conditionals.load import load, refuse_int8, starts
from glauber.conditionals.vocabulary import Vocabulary
from glauber.errors import GlauberError
from glauber.parameters import Device, Length, Model, Seed, Texts, Trust
from glauber.progress import check_count, check_memory, say, track
from glauber.result import Result, model_parts, plain, signature, study
from glauber.statistics import LEVEL, bootstrap_mean

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

BYTES = 2000  # of memory that a rectangle takes, about: corners, scores and draws
QUANTILES = (0.05, 0.25, 0.75, 0.95)
KINDS = {
    "mean": "estimate",
    "median": "estimate",
    "quantiles": "estimate",
    "interval": f"estimate: {LEVEL:.0%} bootstrap interval of the mean over these passages",
    "noise_floor": "estimate: largest |Delta in the model's dtype - Delta in float64| here",
    "certified": "exact up to the noise floor: each rules out every joint law",
    "share_certified": "estimate",
    "influence_rank_correlation": "estimate: Spearman, Delta against the mean of both influences",
}


@study
def rectangles(
    model: Model = "bundled:english",
    texts: Texts = None,
    *,
    count: Annotated[int, "How many random rectangles."] = 300,
    length: Length = 20,
    top: Annotated[int, "Replacements come from so many most probable tokens."] = TOP,
    seed: Seed = 0,
    strongest: Annotated[int, "How many certificates to write out."] = 3,
    device: Device = "auto",
    trust_remote_code: Trust = False,
) -> "RectangleStudy":
    """Measure how far a model's conditionals are from any joint law, by random rectangles.

    The protocol of paper A (section 3, table 1): random rectangles over the texts, in the model's
    dtype, and the same ones in float64, which tells how much of a Delta can be rounding. A
    vocabulary with fewer than `top` tokens is taken whole. An autoregressive model has no
    influence here: only the tokens of the rectangle are scored.
    """
    check_numbers(count, seed, top)
    if length is not None and length < 2:
        raise GlauberError(f"the length is {length}, but a rectangle needs two sites.")
    check_count("number of certificates", strongest, least=0)
    check_memory(BYTES * count, f"{count:,} rectangles")
    opened = load(model, device=device, trust_remote_code=trust_remote_code)
    refuse_int8(opened)
    tokens, free = starts(opened, texts, length=length)
    asked, top = top, min(top, replacements_of(opened))
    say(f"{count:,} rectangles: {6 * count:,} rows through the model, {4 * count:,} in float64")
    found = measure(
        opened.conditionals(),
        opened.in_float64().conditionals(),
        tokens,
        free=free,
        count=count,
        seed=seed,
        top=top,
        proposals=opened.proposals(),
        influence=opened.whole_vocabulary,
    )
    readings = [
        read(found.rectangles, which, opened.vocabulary) for which in found.strongest(strongest)
    ]
    made = signature(
        **model_parts(opened),
        texts=len(tokens),
        length=length or "whole",
        rectangles=count,
        replacements=f"uniform-top-{top}",
        seed=seed,
    )
    return RectangleStudy(
        **vars(found), name=opened.name, top=top, asked=asked, readings=readings, signature=made
    )


@dataclass(frozen=True, eq=False)
class Measured:
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
        found: dict[str, Any] = {
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
            found["influence_rank_correlation"] = _rank_correlation(self.influence, delta)
        return found | {"kind": KINDS}


@dataclass(frozen=True, eq=False)
class RectangleStudy(Measured, Result):
    """Random rectangles of one model: how far from closing, and which certify that no law fits."""

    name: str
    top: int  # first choices that replacements came from
    asked: int  # the number that was asked for: larger where the vocabulary has fewer
    readings: list["Reading"]  # the strongest certificates, as sentences
    signature: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.name,
            **plain(self.summary()),
            "top": {"value": self.top, "asked": self.asked},
            "strongest": plain(self.readings),
            "seconds": {"model": self.seconds, "float64": self.precise_seconds},
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        found = self.summary()
        low, high = found["interval"]
        yield f"mean Delta {found['mean']:.3f} (95% bootstrap {low:.3f} to {high:.3f}), an estimate"
        cuts = ", ".join(f"{name}: {value:.3f}" for name, value in found["quantiles"].items())
        yield f"median {found['median']:.3f}; quantiles {cuts}"
        yield (
            f"{found['certified']} of {found['count']} rectangles lie above the noise floor of "
            f"{found['noise_floor']:.1e} (the largest difference to float64): "
            + ("no joint law owns these conditionals" if found["certified"] else "no certificate")
        )
        if self.top < self.asked:
            yield (
                f"replacements come from the {self.top} tokens that the model proposes; "
                f"{self.asked} were asked for"
            )
        for reading in self.readings:
            yield from reading.lines()

    def frame(self) -> "pandas.DataFrame":
        """One row per rectangle."""
        import pandas

        found = self.rectangles
        return pandas.DataFrame(
            {
                "passage": self.passages.tolist(),
                "site_i": found.sites[:, 0].tolist(),
                "site_j": found.sites[:, 1].tolist(),
                "delta": self.delta,
                "influence": np.nan if self.influence is None else self.influence,
                "certified": self.certified,
            }
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.compatibility import plot_delta_against_influence, plot_deltas

        found = {"histogram": plot_deltas(self.delta, self.noise_floor)}
        if self.influence is not None:
            found["influence"] = plot_delta_against_influence(self.influence, self.delta)
        return found


def replacements_of(model: Opened) -> int:
    """Tokens that the model may propose at a site."""
    proposals = model.proposals()
    allowed = getattr(proposals, "allowed", None)
    return int(proposals.vocab_size if allowed is None else allowed.sum())


def measure(
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
) -> Measured:
    """`count` random rectangles over tokens (passages, length), by the protocol of paper A.

    precise are the same conditionals in float64, which the noise floor is measured against.
    proposals, if given, choose the replacements (an autoregressive model cannot rank a whole
    vocabulary at a site); without influence only candidates are scored.
    """
    begun = time.perf_counter()
    drawn = draw(proposals or conditionals, tokens, free, count=count, seed=seed, top=top)
    chosen = drawn.tokens, drawn.sites, drawn.values
    with track("rectangles", 2 * count) as advance:
        found = evaluate(conditionals, *chosen, influence=influence, advance=advance)
        between = time.perf_counter()
        again = evaluate(precise, *chosen, influence=False, advance=advance)
    spent = time.perf_counter() - between
    return Measured(found, again, drawn.passages, seed, between - begun, spent)


@dataclass(frozen=True)
class Reading:
    """One rectangle as sentences: its four corners, and the two ways round."""

    delta: float
    sites: tuple[int, int]
    changes: tuple[tuple[str, str], tuple[str, str]]  # (a, a') and (b, b'), as they are spelled
    corners: tuple[str, str, str, str]  # a b; a' b; a b'; a' b'
    one_way: float  # log-ratio from a b to a' b' by way of a' b
    other_way: float  # by way of a b'; the two are equal under a joint law

    def lines(self) -> Iterable[str]:
        (a, new_a), (b, new_b) = self.changes
        yield f"\nDelta {self.delta:.3f}: {a} -> {new_a} and {b} -> {new_b}"
        names = ("as it was", f"with {new_a}", f"with {new_b}", "with both")
        for name, text in zip(names, self.corners, strict=True):
            yield f"  {name:>24}  {text}"
        yield (
            f"  log-ratio of the last to the first: {self.one_way:+.3f} by way of {new_a}, "
            f"{self.other_way:+.3f} by way of {new_b}"
        )


def read(found: Rectangles, which: int, vocabulary: Vocabulary) -> Reading:
    """The rectangle of that number as sentences."""
    ratios = found.log_ratios[which].tolist()
    sites = found.sites[which].tolist()
    olds = found.tokens[which, sites].tolist()
    news = found.values[which].tolist()
    spell = vocabulary.spell
    first, second = ((spell(old), spell(new)) for old, new in zip(olds, news, strict=True))
    ab, a_new, b_new, both = (vocabulary.decode(row.tolist()) for row in found.corners[which])
    return Reading(
        delta=float(found.delta[which]),
        sites=(sites[0], sites[1]),
        changes=(first, second),
        corners=(ab, a_new, b_new, both),
        one_way=ratios[0] + ratios[1],
        other_way=ratios[2] + ratios[3],
    )


def _rank_correlation(influence: NDArray[Any], delta: NDArray[Any]) -> float | None:
    """Spearman's rank correlation; None where one of the two is constant."""
    if len(delta) < 2 or np.ptp(influence) == 0 or np.ptp(delta) == 0:
        return None
    return float(spearmanr(influence, delta).statistic)
