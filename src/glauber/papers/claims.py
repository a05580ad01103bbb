"""Does a published sentence hold here? It agrees, it disagrees, or we cannot tell.

A claim is a sentence of a paper with a quantity of ours and the region in which that quantity
agrees. It agrees only if the whole interval lies in the region, and disagrees only if all of it
lies outside. Else we cannot tell: no evidence is not agreement. Then the power says how often a
sample of this size would have said "agrees" if the published effect were true.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Any, Literal

from glauber.result import plain
from glauber.statistics import CONFIDENCE, Estimate, mean_over_chains

Word = Literal["disagrees", "cannot tell", "agrees"]
WORDS: tuple[Word, ...] = ("disagrees", "cannot tell", "agrees")  # as they are listed
FEW = 4  # seeds whose spread gives an interval
FEWEST = 3  # independent chains that an interval rests on, at least
EXACT = "exact"
LOWER, UPPER = "lower bound", "upper bound"
GRID = 400  # points over which the sample's spread is averaged


@dataclass(frozen=True)
class Quantity:
    """A number of ours: exact, a bound, or an estimate with its interval.

    n counts what is independent: chains, pairs, texts, seeds. Without an interval nothing can be
    said of an estimate.
    """

    name: str
    value: float | None
    interval: tuple[float | None, float | None] | None = None  # an open end is None
    n: int | None = None
    unit: str = "chains"
    kind: str = "estimate"
    level: float = CONFIDENCE
    bounds: tuple[float, float] | None = None  # the least and the largest value there is
    reason: str = ""  # why there is no interval
    standard_error: float | None = None
    each: tuple["Quantity", ...] = ()  # of the single seeds

    @classmethod
    def of(
        cls,
        name: str,
        found: Estimate,
        *,
        unit: str = "chains",
        bounds: tuple[float, float] | None = None,
    ) -> "Quantity":
        """A figure of `glauber.statistics` under a name; bounds are for pooling over seeds."""
        value = found.value if isfinite(found.value) else None
        return cls(
            name, value, found.interval, found.n_chains, unit, found.kind, found.level, bounds,
            found.reason, found.standard_error,
        )  # fmt: skip

    @property
    def ends(self) -> tuple[float, float] | None:
        """Between which the true value lies; None where that cannot be said."""
        if self.value is None:
            return None
        if self.kind == EXACT:
            return self.value, self.value
        if self.kind in (LOWER, UPPER):
            return (self.value, inf) if self.kind == LOWER else (-inf, self.value)
        if self.interval is None or (self.n is not None and self.n < FEWEST):
            return None
        low, high = self.interval
        return -inf if low is None else low, inf if high is None else high


@dataclass(frozen=True)
class Region:
    """Values that agree with a claim; strict: without its own ends."""

    low: float = -inf
    high: float = inf
    strict: bool = True

    def holds(self, low: float, high: float) -> bool:
        """Whether all values between low and high agree."""
        if self.strict:
            return (self.low < low or self.low == -inf) and (high < self.high or self.high == inf)
        return self.low <= low and high <= self.high

    def misses(self, low: float, high: float) -> bool:
        """Whether none of them does."""
        if self.strict:
            return high <= self.low or self.high <= low
        return high < self.low or self.high < low

    def __str__(self) -> str:
        if self.low == -inf:
            return f"{'below' if self.strict else 'at most'} {self.high:g}"
        if self.high == inf:
            return f"{'above' if self.strict else 'at least'} {self.low:g}"
        middle = (self.low + self.high) / 2
        if self.high - self.low <= 1e-6 * abs(middle):
            return f"equal to {middle:.6g}"
        return f"between {self.low:g} and {self.high:g}"


def above(value: float) -> Region:
    """Greater than the value."""
    return Region(low=value)


def below(value: float) -> Region:
    """Less than the value."""
    return Region(high=value)


def at_least(value: float) -> Region:
    """The value or more."""
    return Region(low=value, strict=False)


def at_most(value: float) -> Region:
    """The value or less."""
    return Region(high=value, strict=False)


def near(value: float, reach: float) -> Region:
    """As far from the published value as its own error goes, or as a stated margin of ours."""
    return Region(value - reach, value + reach, strict=False)


@dataclass(frozen=True)
class Verdict:
    """What the sample says of a claim, and why."""

    word: Word
    reason: str
    power: float | None  # chance of "agrees" if the published effect were true
    power_is: str  # what the power was worked out for, or why there is none


@dataclass(frozen=True)
class Claim:
    """A published sentence with its source, our quantity, and where that agrees."""

    sentence: str
    source: str  # such as paper A, table 5
    published: Any  # the number or the words there
    quantity: Quantity
    region: Region
    differs: tuple[str, ...] = ()  # what is not as in the paper: model, data, sizes
    ours: tuple[str, ...] = ()  # numbers that the paper does not give and we chose
    effect: float | None = None  # the quantity if the claim is true; or the smallest that matters
    seeds: tuple[int, ...] = field(default=())

    @property
    def verdict(self) -> Verdict:
        """Agrees, disagrees or cannot tell."""
        power, power_is = self._power()
        word, reason = self._word()
        return Verdict(word, reason, power, power_is)

    def _word(self) -> tuple[Word, str]:
        ours = self.quantity
        if ours.value is None:
            return "cannot tell", f"there is no number{': ' if ours.reason else ''}{ours.reason}"
        if ours.each and ours.interval is None and ours.kind == "estimate":
            return self._seed_by_seed()
        ends = ours.ends
        if ends is None:
            return "cannot tell", f"no interval: {ours.reason or count(ours)}"
        alone = ours.kind != "estimate"
        what = "the value" if alone else f"the {_basis(ours)}"
        if self.region.holds(*ends):
            return "agrees", f"{what} is {self.region}"
        if self.region.misses(*ends):
            return "disagrees", f"{what} is {'not' if alone else 'nowhere'} {self.region}"
        return "cannot tell", f"{what} is {self.region} only in part"

    def _seed_by_seed(self) -> tuple[Word, str]:
        """Of too few seeds for an interval of their own: what all of them say."""
        words = [replace(self, quantity=one).verdict.word for one in self.quantity.each]
        said: Word = words[0] if len(set(words)) == 1 else "cannot tell"
        told = ", ".join(words) if len(set(words)) > 1 else f"each {words[0]}"
        return said, f"{len(words)} seeds, each with its own interval: {told}"

    def _power(self) -> tuple[float | None, str]:
        ours = self.quantity
        if ours.kind != "estimate":
            return None, f"it is {'exact' if ours.kind == EXACT else 'a bound'}: no sample"
        effect = self.effect
        if effect is None and isinstance(self.published, int | float):
            effect = float(self.published)
        if effect is None:
            return None, "the paper gives no number, and no smallest effect is stated"
        ends = ours.ends
        if ends is None or not all(map(isfinite, ends)) or not ours.n or ours.n < 2:
            return None, "there is no interval to work it out from"
        reach = _reach(ours.n, ours.level)
        error = ours.standard_error or (ends[1] - ends[0]) / 2 / reach
        return power(effect, ends, ours.n, self.region, error), f"if it were {effect:g}"

    def to_dict(self) -> dict[str, Any]:
        """Everything, with the verdict first; JSON can hold it."""
        verdict, ours = self.verdict, self.quantity
        return plain(
            {
                "verdict": verdict.word, "reason": verdict.reason,
                "power": verdict.power, "power_is": verdict.power_is,
                "sentence": self.sentence, "source": self.source, "published": self.published,
                "quantity": _quantity(ours) | {"each": [_quantity(one) for one in ours.each]},
                "agrees_if": str(self.region),
                "region": {
                    "low": self.region.low, "high": self.region.high,
                    "strict": self.region.strict,
                },
                "effect": self.effect, "differs": self.differs, "ours": self.ours,
                "seeds": self.seeds,
            }
        )  # fmt: skip

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "Claim":
        """The claim of a stored answer."""
        ours, region = dict(record["quantity"]), record["region"]
        each = tuple(_read(one) for one in ours.pop("each"))
        low, high = region["low"], region["high"]
        return cls(
            record["sentence"], record["source"], record["published"],
            replace(_read(ours), each=each),
            Region(-inf if low is None else low, inf if high is None else high, region["strict"]),
            tuple(record["differs"]), tuple(record["ours"]), record["effect"],
            tuple(record["seeds"]),
        )  # fmt: skip


def power(effect: float, ends: tuple[float, float], n: int, region: Region, error: float) -> float:
    """The chance that an interval from such a sample lies in the region if the effect is true.

    The sample is taken to be n values of the normal law with this standard error of their mean;
    the width of its interval, on average in the square as here, varies as chi with n - 1 degrees
    of freedom.
    """
    import numpy as np
    from scipy.stats import chi2, norm

    middles = (np.arange(GRID) + 0.5) / GRID
    half = (ends[1] - ends[0]) / 2 * np.sqrt(chi2.ppf(middles, n - 1) / (n - 1))
    error = max(error, 1e-300)
    inside = norm.cdf((region.high - half - effect) / error) - norm.cdf(
        (region.low + half - effect) / error
    )
    return float(np.maximum(inside, 0.0).mean())


def _reach(n: int, level: float) -> float:
    """Standard errors in half of Student's interval."""
    from scipy.special import stdtrit

    return float(stdtrit(n - 1, (1 + level) / 2))


def pooled(claims: Sequence[Claim]) -> Claim:
    """One claim from the same claim of several seeds.

    From four seeds on the interval is Student's over the seeds' own values; of fewer each seed
    keeps its interval, and the verdict is what all of them say. A seed without a number is not
    left out: then there is no number. Of bounds the sharpest holds.
    """
    first, each = claims[0], tuple(replace(one.quantity, each=()) for one in claims)
    seeds = tuple(seed for one in claims for seed in one.seeds)
    if len(each) == 1:
        return replace(first, seeds=seeds)
    values = [one.value for one in each if one.value is not None]
    mean = sum(values) / len(values) if len(values) == len(each) else None
    ours = replace(first.quantity, value=mean, interval=None, n=len(each), unit="seeds", each=each)
    if all(one.kind == EXACT for one in each):
        ours = _worst(each, first.region)
    elif mean is not None and {one.kind for one in each} <= {LOWER, UPPER}:
        ours = replace(ours, value=(max if ours.kind == LOWER else min)(values))
    elif mean is not None and len(each) >= FEW:
        mean_of_all = mean_over_chains(values, bounds=ours.bounds)
        ours = replace(
            Quantity.of(ours.name, mean_of_all, unit="seeds", bounds=ours.bounds), each=each
        )
    return replace(first, quantity=ours, seeds=seeds)


def _worst(each: tuple[Quantity, ...], region: Region) -> Quantity:
    """Of exact values the one that agrees least: each of them has to agree."""
    wrong = [one for one in each if one.value is None or not region.holds(one.value, one.value)]
    return replace((wrong or list(each))[0], each=each)


def by_verdict(claims: Iterable[Claim]) -> list[Claim]:
    """Disagreements first, then what we cannot tell, then agreements."""
    return sorted(claims, key=lambda one: WORDS.index(one.verdict.word))


def count(ours: Quantity) -> str:
    """On how many independent things the quantity rests."""
    unit = ours.unit.removesuffix("s") if ours.n == 1 else ours.unit
    return f"{'no' if ours.n is None else ours.n} {unit}"


def _basis(ours: Quantity) -> str:
    if ours.kind != "estimate":
        return ours.kind
    return f"{ours.level:.0%} interval over {count(ours)}"


def _quantity(ours: Quantity) -> dict[str, Any]:
    return {
        "name": ours.name, "value": ours.value, "interval": ours.interval, "n": ours.n,
        "unit": ours.unit, "kind": ours.kind, "level": ours.level, "bounds": ours.bounds,
        "reason": ours.reason, "standard_error": ours.standard_error,
    }  # fmt: skip


def _read(record: Mapping[str, Any]) -> Quantity:
    interval, bounds = record["interval"], record["bounds"]
    if bounds is not None:  # JSON has no infinity
        bounds = (-inf if bounds[0] is None else bounds[0], inf if bounds[1] is None else bounds[1])
    pair = None if interval is None else tuple(interval)
    return Quantity(**{**record, "interval": pair, "bounds": bounds})
