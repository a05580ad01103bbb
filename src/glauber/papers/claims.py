"""Verdicts on published sentences: agrees, disagrees, or cannot tell.

A claim is a sentence of a paper with a quantity of ours and the region in which that quantity
agrees. It agrees only if the whole interval lies in the region, and disagrees only if all of it
lies outside. Otherwise we cannot tell: no evidence is not agreement. The power is then the
probability that a sample of this size gives "agrees" if the published effect is true, and the
sample size is that with which this probability would be 80%.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import inf, isfinite, sqrt
from typing import Any, Literal, NamedTuple

from glauber.foundation.statistics import CONFIDENCE, Estimate, mean_over_chains
from glauber.foundation.study import plain

Word = Literal["disagrees", "cannot tell", "agrees"]
WORDS: tuple[Word, ...] = ("disagrees", "cannot tell", "agrees")  # in the order of lists
SEEDS_FOR_INTERVAL = 4  # seeds from which their spread gives an interval
FEWEST = 3  # independent chains of an interval, at least
EXACT = "exact"
LOWER, UPPER = "lower bound", "upper bound"
GRID = 400  # points over which the power is averaged
ENOUGH = 0.8  # power of the sample size that is reported for an undecided claim
MOST_UNITS = 10**12  # of a sample
SAMPLE_SIZE_IS = (
    f"for a power of {ENOUGH:.0%}; approximate: errors and intervals narrow with 1/sqrt(n)"
)


@dataclass(frozen=True)
class Quantity:
    """A number of ours: exact, a bound, or an estimate with its interval.

    n counts independent units: chains, pairs, texts, seeds. An estimate without an interval
    decides nothing.
    """

    name: str
    value: float | None
    interval: tuple[float | None, float | None] | None = None  # an open end is None
    n: int | None = None
    unit: str = "chains"
    kind: str = "estimate"
    level: float = CONFIDENCE
    bounds: tuple[float, float] | None = None  # the smallest and the largest possible value
    reason: str = ""  # of a missing interval or number
    standard_error: float | None = None
    each: tuple["Quantity", ...] = ()  # of the single seeds

    @classmethod
    def of(
        cls,
        name: str,
        estimate: Estimate,
        *,
        unit: str = "chains",
        bounds: tuple[float, float] | None = None,
    ) -> "Quantity":
        """An estimate under a name; bounds are for pooling over seeds."""
        return cls(
            name,
            estimate.value if isfinite(estimate.value) else None,
            estimate.interval,
            estimate.n_chains,
            unit,
            estimate.kind,
            estimate.level,
            bounds,
            estimate.reason,
            estimate.standard_error,
        )

    @property
    def ends(self) -> tuple[float, float] | None:
        """The ends between which the true value lies; None if they are not known."""
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
    """Whether a claim holds, and why."""

    word: Word
    reason: str
    power: float | None  # probability of "agrees" if the published effect is true
    power_is: str  # the effect of the power, or why there is none
    sample_size: int | None  # units that would decide an undecided claim, approximately
    sample_size_is: str  # what it is, or why there is none


@dataclass(frozen=True)
class Claim:
    """A published sentence with its source, our quantity, and the region in which it agrees."""

    sentence: str
    source: str  # such as paper A, table 5
    published: object  # number or words in the paper
    quantity: Quantity
    region: Region
    differs: tuple[str, ...] = ()  # differences from the paper: model, data, sizes
    ours: tuple[str, ...] = ()  # our own choices, which the paper does not give
    effect: float | None = None  # the quantity if the claim is true, or the smallest that matters
    seeds: tuple[int, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Agrees, disagrees or cannot tell."""
        word, reason = self._word()
        sample, power_is = self._sample()
        if sample is None:
            return Verdict(word, reason, None, power_is, None, power_is)
        size, size_is = None, "the claim is decided"
        if word == "cannot tell":
            size = sample_size(*sample)
            size_is = SAMPLE_SIZE_IS if size else "no sample is large enough for this effect"
        return Verdict(word, reason, power(*sample), power_is, size, size_is)

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
        """The common verdict of seeds that are too few for an interval of their own."""
        verdicts = [replace(self, quantity=seed).verdict.word for seed in self.quantity.each]
        word: Word = verdicts[0] if len(set(verdicts)) == 1 else "cannot tell"
        listed = ", ".join(verdicts) if len(set(verdicts)) > 1 else f"each {verdicts[0]}"
        return word, f"{len(verdicts)} seeds, each with its own interval: {listed}"

    def _sample(self) -> "tuple[Sample | None, str]":
        """What the power is computed from, and its effect in words, or why there is none."""
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
        return Sample(effect, ends, ours.n, self.region, error), f"if it were {effect:g}"

    def to_dict(self) -> dict[str, object]:
        """Everything as JSON, with the verdict first."""
        verdict = self.verdict
        return plain(
            {
                "verdict": verdict.word,
                "reason": verdict.reason,
                "power": verdict.power,
                "power_is": verdict.power_is,
                "sample_size": verdict.sample_size,
                "sample_size_is": verdict.sample_size_is,
                **{each.name: getattr(self, each.name) for each in fields(self)},
                "agrees_if": str(self.region),
            }
        )

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "Claim":
        """The claim of a stored answer."""
        values = {each.name: record[each.name] for each in fields(cls)}
        lists = {name: tuple(values[name]) for name in ("differs", "ours", "seeds")}
        low, high = _with_infinity((record["region"]["low"], record["region"]["high"]))
        region = Region(low, high, record["region"]["strict"])
        return cls(**{**values, **lists, "quantity": _read(record["quantity"]), "region": region})


class Sample(NamedTuple):
    """What the power of a claim is computed from."""

    effect: float
    ends: tuple[float, float]  # of the interval
    n: int
    region: Region
    error: float  # of the mean


def power(effect: float, ends: tuple[float, float], n: int, region: Region, error: float) -> float:
    """The probability that such a sample's interval lies in the region if the effect is true.

    The sample is taken as n values of a normal distribution with this standard error of their
    mean; the width of its interval, in the mean square as wide as here, varies as chi with n - 1
    degrees of freedom.
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


@lru_cache(maxsize=4096)
def sample_size(
    effect: float, ends: tuple[float, float], n: int, region: Region, error: float
) -> int | None:
    """The number of units with which the power is 80%; None if no number is enough.

    An approximation: the error and the interval of n units are taken to narrow with 1/sqrt(n).
    """
    if not region.low < effect < region.high:
        return None

    def enough(units: int) -> bool:
        scale = sqrt(n / units)
        scaled = ends[0] * scale, ends[1] * scale
        return power(effect, scaled, units, region, error * scale) >= ENOUGH

    high = FEWEST
    while not enough(high):
        high *= 2
        if high > MOST_UNITS:
            return None
    low = max(FEWEST, high // 2)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return high


def _reach(n: int, level: float) -> float:
    """Standard errors in half of Student's interval."""
    from scipy.special import stdtrit

    return float(stdtrit(n - 1, (1 + level) / 2))


def pool_claims(claims: Sequence[Claim]) -> Claim:
    """One claim from the same claim of several seeds.

    From four seeds on the interval is Student's over the seeds' own values; of fewer each seed
    keeps its interval, and the verdict is their common one. If a seed has no number, there is
    none. Of bounds the sharpest is taken.
    """
    first, each = claims[0], tuple(replace(claim.quantity, each=()) for claim in claims)
    seeds = tuple(seed for claim in claims for seed in claim.seeds)
    if len(each) == 1:
        return replace(first, seeds=seeds)
    values = [seed.value for seed in each if seed.value is not None]
    mean = sum(values) / len(values) if len(values) == len(each) else None
    ours = replace(first.quantity, value=mean, interval=None, n=len(each), unit="seeds", each=each)
    if all(seed.kind == EXACT for seed in each):
        ours = _worst(each, first.region)
    elif mean is not None and {seed.kind for seed in each} <= {LOWER, UPPER}:
        ours = replace(ours, value=(max if ours.kind == LOWER else min)(values))
    elif mean is not None and len(each) >= SEEDS_FOR_INTERVAL:
        mean_of_all = mean_over_chains(values, bounds=ours.bounds)
        ours = replace(
            Quantity.of(ours.name, mean_of_all, unit="seeds", bounds=ours.bounds), each=each
        )
    return replace(first, quantity=ours, seeds=seeds)


def _worst(each: tuple[Quantity, ...], region: Region) -> Quantity:
    """The exact value that agrees least: each of them has to agree."""
    wrong = [
        ours for ours in each if ours.value is None or not region.holds(ours.value, ours.value)
    ]
    return replace((wrong or list(each))[0], each=each)


def by_verdict(claims: Iterable[Claim]) -> list[Claim]:
    """Disagreements first, then what we cannot tell, then agreements."""
    return sorted(claims, key=lambda claim: WORDS.index(claim.verdict.word))


def count(ours: Quantity) -> str:
    """The number of independent units of the quantity, in words."""
    return f"no {ours.unit}" if ours.n is None else units(ours.n, ours.unit)


def units(n: int, unit: str) -> str:
    """A number of independent units, in words."""
    return f"{n:,} {unit.removesuffix('s') if n == 1 else unit}"


def _basis(ours: Quantity) -> str:
    if ours.kind != "estimate":
        return ours.kind
    return f"{ours.level:.0%} interval over {count(ours)}"


def _read(record: Mapping[str, Any]) -> Quantity:
    interval, bounds = record["interval"], record["bounds"]
    return Quantity(
        **{
            **record,
            "interval": None if interval is None else tuple(interval),
            "bounds": None if bounds is None else _with_infinity(bounds),
            "each": tuple(map(_read, record["each"])),
        }
    )


def _with_infinity(ends: Sequence[float | None]) -> tuple[float, float]:
    """Ends of a range as JSON has them, where an infinite one is None."""
    low, high = ends
    return -inf if low is None else low, inf if high is None else high
