"""How the distance from the start grows with the length: not at all, as log n, n or a power of n.

    no growth  a        log n  a + b log n        n  a + b n        n^b  a n^b

The mean distance at each length is fitted by maximum likelihood. Distances of one length are normal
about it with a variance of their own, which is fitted too: for m chains with the mean x and the
variance s^2, the log-likelihood of a mean d falls by (m / 2) log(1 + (x - d)^2 / s^2). AIC compares
the laws with one another, and a mean of its own for every length says whether any of them is any
good. The shape q of  a + b (n^q - 1) / q  is log n at q = 0 and n at q = 1; its interval is by
profile likelihood. Lengths count as independent: chains of several lengths that start from one
passage make the interval too wide, if anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.stats import chi2

from glauber.foundation.errors import GlauberError
from glauber.foundation.statistics import MIN_CHAINS, t_quantile
from glauber.studies.mixing.crossover import Ends, most_likely

Floats = NDArray[np.float64]
SHAPES = np.linspace(-3.0, 4.0, 281)  # tried for q
STEEPEST = 5.0  # exponent of the power
ROUNDS = 100  # of reweighting
SURE = 2.0  # difference of AIC from which a law is called worse


@dataclass(frozen=True)
class GrowthFit:
    """One law with its parameters, by maximum likelihood."""

    law: str
    a: float
    b: float  # the slope, or the exponent of the power; 0 without growth
    log_likelihood: float  # less that of a mean of its own for every length
    aic_difference: float  # from the best law
    weight: float  # Akaike's, among the four laws
    misfit: float  # p-value against a mean of its own for every length
    kind: str = "estimate"

    def mean(self, n: Floats) -> Floats:
        """The fitted mean distance at lengths n."""
        if self.law == "n^b":
            return np.asarray(self.a * n**self.b)
        return self.a + self.b * (np.log(n) if self.law == "log n" else n)


@dataclass(frozen=True)
class Growth:
    """The laws compared, and the shape that fits best."""

    fits: tuple[GrowthFit, ...]
    shape: float  # q: 0 for log n, 1 for n
    shape_interval: Ends  # None: nothing bounds it there
    lengths: tuple[int, ...]
    n_chains: int  # the fewest of a length

    @property
    def best(self) -> GrowthFit:
        return min(self.fits, key=lambda fit: fit.aic_difference)

    def fit(self, law: str) -> GrowthFit:
        """The fit of a law by its name."""
        return next(fit for fit in self.fits if fit.law == law)

    @property
    def summary(self) -> str:
        """The laws that the distances do not rule out, and the shape."""
        left = [fit.law for fit in self.fits if fit.aic_difference < SURE]
        low, high = ("open" if end is None else f"{end:.2f}" for end in self.shape_interval)
        return (
            f"{' and '.join(left)} within {SURE:g} of the smallest AIC; shape {self.shape:.2f} "
            f"({low} to {high}; log n is 0, n is 1)"
        )


def fit_growth(values: Mapping[int, Floats]) -> Growth:
    """The four laws and the shape, from distances (chains,) by length."""
    if len(values) < 3:
        raise GlauberError("a law of growth needs distances at three lengths at least.")
    if min(values) < 1 or any(len(each) < MIN_CHAINS for each in values.values()):
        raise GlauberError(f"each length must be positive and have {MIN_CHAINS} chains or more.")
    for length, each in values.items():
        if np.ptp(each) <= 1e-9:
            raise GlauberError(f"all distances at {length} tokens are equal: no law can be fitted.")
    n = np.array(list(values), np.float64)
    data = _Means.of(list(values.values()))
    ones, logs = np.ones((len(n), 1)), np.log(n)
    designs = {"no growth": ones, "log n": _with_slope(logs), "n": _with_slope(n)}
    found = {law: data.fit(design) for law, design in designs.items()}
    power = minimize_scalar(
        lambda b: -data.fit((n**b)[:, None])[1], bounds=(-STEEPEST, STEEPEST), method="bounded"
    )
    scale, top = data.fit((n**power.x)[:, None])
    found["n^b"] = (np.array([scale[0], power.x]), top)
    aic = {law: 2 * len(at) - 2 * value for law, (at, value) in found.items()}
    weights = {law: np.exp((min(aic.values()) - each) / 2) for law, each in aic.items()}
    fits = tuple(
        GrowthFit(
            law,
            a=float(at[0]),
            b=float(at[1]) if len(at) > 1 else 0.0,
            log_likelihood=value,
            aic_difference=aic[law] - min(aic.values()),
            weight=float(weights[law] / sum(weights.values())),
            misfit=float(chi2.sf(-2 * value, len(n) - len(at))) if len(n) > len(at) else np.nan,
        )
        for law, (at, value) in found.items()
    )
    profile = np.array([data.fit(_with_slope(_box_cox(n, q)))[1] for q in SHAPES])
    fewest = min(map(len, values.values()))
    drop = t_quantile(len(n) * (fewest - 1)) ** 2 / 2
    return Growth(fits, *most_likely(SHAPES, profile, drop), tuple(values), fewest)


def _box_cox(n: Floats, q: float) -> Floats:
    return np.log(n) if abs(q) < 1e-9 else (n**q - 1) / q


def _with_slope(g: Floats) -> Floats:
    """The design (lengths, 2) of a + b g, with g scaled so that all shapes are equally exact."""
    return np.stack([np.ones_like(g), g], axis=1)


@dataclass(frozen=True, eq=False)
class _Means:
    """What the likelihood depends on: mean, variance and number of the distances, by length."""

    mean: Floats
    variance: Floats
    count: Floats

    @classmethod
    def of(cls, values: list[Floats]) -> "_Means":
        moments = [(each.mean(), each.var(), len(each)) for each in values]
        return cls(*(np.array(column, np.float64) for column in zip(*moments, strict=True)))

    def fit(self, design: Floats) -> tuple[Floats, float]:
        """Coefficients of the design (lengths, k), and the log-likelihood, at most 0.

        By reweighting: a length that the law misses has a larger variance, and counts less.
        """
        norms = np.abs(design).max(axis=0)
        excess, at = np.zeros_like(self.mean), np.zeros(design.shape[1])
        for _ in range(ROUNDS):
            root = np.sqrt(self.count / (self.variance + excess**2))
            at = np.linalg.lstsq(design / norms * root[:, None], self.mean * root, rcond=None)[0]
            new = self.mean - design / norms @ at
            if np.allclose(new, excess, rtol=0, atol=1e-12):
                break
            excess = new
        log_likelihood = -(self.count / 2 * np.log1p(excess**2 / self.variance)).sum()
        return np.asarray(at / norms), float(log_likelihood)
