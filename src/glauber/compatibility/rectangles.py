"""How far are a model's conditionals from any joint law, and is that more than rounding?"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from glauber import statistics
from glauber.compatibility.control import CLOSING, Control, control_of
from glauber.compatibility.rectangle_test import (
    TOP,
    Reading,
    Rectangles,
    check_numbers,
    draw,
    evaluate,
    read,
)
from glauber.conditionals.base import Conditionals, Model
from glauber.conditionals.load import load
from glauber.conditionals.starts import starts
from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.parameters import Device, LengthOrWhole, ModelOrName, Seed, Texts, Trust
from glauber.progress import check_count, check_memory, say, track
from glauber.result import Result, model_parts, plain, signature, study
from glauber.statistics import CONFIDENCE, MIN_CHAINS

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

BYTES = 2000  # of memory that a rectangle takes, about: corners, scores and draws
QUANTILES = (0.05, 0.25, 0.75, 0.95)
KINDS = {
    "mean": "estimate",
    "median": "estimate",
    "quantiles": "estimate",
    "interval": f"estimate: {CONFIDENCE:.0%} interval of the mean; see interval_of",
    "noise_floor": "estimate: largest |Delta in the model's dtype - Delta in float64| here",
    "certified": "exact up to the noise floor: each rules out every joint law",
    "share_certified": "estimate",
    "influence_rank_correlation": "estimate: Spearman, Delta against the mean of both influences",
    "influence_rank_interval": f"estimate: {CONFIDENCE:.0%} interval of that correlation",
}


@study
def rectangles(
    model: ModelOrName = "bundled:english",
    texts: Texts = None,
    *,
    count: Annotated[int, "How many random rectangles."] = 300,
    length: LengthOrWhole = 20,
    top: Annotated[int, "Replacements come from so many most probable tokens."] = TOP,
    seed: Seed = 0,
    strongest: Annotated[int, "How many certificates to write out."] = 3,
    control: Annotated[
        str | Conditionals | None,
        "Also an autoregressive LM by name or folder, or left-to-right: this model read so.",
    ] = None,
    device: Device = "auto",
    trust_remote_code: Trust = False,
) -> "RectangleStudy":
    """Measure how far a model's conditionals are from any joint law, by random rectangles.

    The protocol of paper A (section 3, table 1): random rectangles over the texts, in the model's
    dtype, and the same ones in float64, which tells how much of a Delta can be rounding. A
    vocabulary with fewer than `top` tokens is taken whole. An autoregressive model has no
    influence here: only the tokens of the rectangle are scored. A control has a joint law, so its
    rectangles close by construction: it checks the arithmetic and nothing else.
    """
    check_numbers(count, seed, top)
    if length is not None and length < 2:
        raise GlauberError(f"the length is {length}, but a rectangle needs two sites.")
    check_count("number of certificates", strongest, least=0)
    check_memory(BYTES * count, f"{count:,} rectangles")
    opened = load(model, device=device, trust_remote_code=trust_remote_code, exact=True)
    tokens, free = starts(opened, texts, length=length, least=2)
    beside = control and control_of(control, opened, device, trust_remote_code)
    asked, top = top, min(top, replacements_of(opened))
    say(f"{count:,} rectangles: {6 * count:,} rows through the model, {4 * count:,} in float64")
    found = measure(
        opened.conditionals(),
        opened.to(dtype="float64").conditionals(),
        tokens,
        free=free,
        count=count,
        seed=seed,
        top=top,
        proposals=opened.proposals(),
        influence=opened.whole_vocabulary,
    )
    closing = None
    if beside:
        name, reader, own, exact = beside
        tokens, free = starts(reader, texts, length=length, least=2)
        closed = measure(
            own, exact, tokens, free=free, count=min(count, CLOSING), seed=seed,
            top=min(top, replacements_of(reader)), proposals=reader.proposals(), influence=False,
        )  # fmt: skip
        closing = Control(name, closed)
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
        control=beside[0] if beside else None,
    )
    return RectangleStudy(
        **vars(found),
        name=opened.name,
        top=top,
        asked=asked,
        readings=readings,
        signature=made,
        control=closing,
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

    @property
    def _shared(self) -> NDArray[np.int64]:
        """What rectangles (count,) share that may make them alike: a passage, if there are enough.

        Of one or two passages each rectangle counts by itself, and speaks of these alone.
        """
        passages = np.asarray(self.passages.cpu())
        return passages if len(np.unique(passages)) >= MIN_CHAINS else np.arange(len(passages))

    @property
    def population(self) -> str:
        """What the intervals speak of."""
        n = len(np.unique(np.asarray(self.passages.cpu())))
        many = f"passages like these {n}"
        return (
            many
            if n >= MIN_CHAINS
            else f"rectangles of {'this passage' if n == 1 else 'these two'}"
        )

    @property
    def mean(self) -> statistics.Estimate:
        """The mean Delta, with its interval."""
        return statistics.clustered_mean(self.delta, self._shared, bounds=(0.0, np.inf))

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
            "interval": _ends(self.mean),
            "interval_of": self.population,
            "median": float(np.median(delta)),
            "quantiles": cuts | {"max": float(delta.max())},
            "noise_floor": self.noise_floor,
            "certified": int(certified.sum()),
            "share_certified": float(certified.mean()),
        }
        if self.influence is not None:
            ranked = statistics.rank_correlation(self.influence, delta, chain=self._shared)
            found["influence_rank_correlation"] = ranked.value
            found["influence_rank_interval"] = _ends(ranked)
        return found | {"kind": KINDS}


@dataclass(frozen=True, eq=False)
class RectangleStudy(Measured, Result):
    """Random rectangles of one model: how far from closing, and which certify that no law fits."""

    name: str  # of the model
    top: int  # first choices that replacements came from
    asked: int  # the number that was asked for: larger where the vocabulary has fewer
    readings: list[Reading]  # the strongest certificates, as sentences
    signature: str
    control: Control | None = None

    def to_dict(self) -> Record:
        return {
            "model": self.name,
            **plain(self.summary()),
            "top": {"value": self.top, "asked": self.asked},
            "control": None if self.control is None else self.control.to_dict(),
            "strongest": plain(self.readings),
            "seconds": {"model": self.seconds, "float64": self.precise_seconds},
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        found = self.summary()
        yield f"mean Delta {self.mean.text(3)}, an estimate for {self.population}"
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
        if self.control is not None:
            yield self.control.line()
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


def replacements_of(model: Model) -> int:
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


def _ends(found: statistics.Estimate) -> list[float] | None:
    return None if found.interval is None else list(found.interval)
