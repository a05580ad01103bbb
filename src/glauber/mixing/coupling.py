"""Do two chains that share their randomness meet, and when?"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray

from glauber.conditionals.base import check_temperature
from glauber.conditionals.load import load
from glauber.conditionals.texts import Corpus
from glauber.errors import GlauberError
from glauber.mixing.coalescence import Coalescence, coalesce
from glauber.mixing.contexts import sampled_contexts
from glauber.mixing.influence_matrix import check_epsilon, measure_influence
from glauber.mixing.lagged import Lagged, lagged
from glauber.mixing.pairs import begin_texts, is_pair, joint_draw_named, spelled
from glauber.parameters import (
    Device,
    Dtype,
    Freeze,
    Length,
    ModelOrName,
    Seed,
    Temperature,
    Texts,
    Trust,
)
from glauber.progress import check_count, check_seed, say
from glauber.result import Result, model_parts, plain, signature, study
from glauber.statistics import LEVEL, MedianTime, median_time, share_interval

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

LENGTH = 10  # tokens of the bundled passages, if no length is given
MOMENTS = 400  # distances kept of a pair, at most about
BOUNDS = 200  # moments of the bound on total variation in the JSON object, about
STEPS = 10**12  # more than anybody waits for


@study
def couple(
    model: ModelOrName = "bundled:english",
    texts: Texts = None,
    *,
    pairs: Annotated[int, "Pairs of chains."] = 12,
    length: Length = None,
    temperature: Temperature = 1.0,
    steps: Annotated[int, "Steps within which a pair may meet."] = 400,
    sweeps: Annotated[int | None, "Steps for each free token, instead of --steps."] = None,
    seed: Seed = 0,
    coupling: Annotated[str, "maximal, inverse-cdf or gumbel-max."] = "maximal",
    freeze: Freeze = (),
    alpha: Annotated[
        float | None, "Largest influence of a site, for the contraction bound."
    ] = None,
    measure_alpha: Annotated[bool, "Sample alpha on the first text."] = False,
    lag: Annotated[int | None, "Also bound total variation by couplings of this lag."] = None,
    epsilon: Annotated[float, "epsilon of the mixing time t_mix(epsilon)."] = 0.25,
    batch_size: Annotated[int | None, "Pairs moved together (default: by memory)."] = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
) -> "Coupling":
    """Run pairs of chains together until they meet: times, distances, and what they bound.

    Both chains of a pair redraw the same site at each step, the two tokens drawn together. Two
    texts are one pair, run many times; of more texts (default: the bundled passages, 10 tokens of
    each) two different ones are drawn for each pair. Times are exact for these pairs, in steps and
    in sweeps (steps for each free token, which compares texts of several lengths); shares, medians
    and mean distances are estimates. The distance is bounded by contraction if alpha is known
    (paper A, theorem 2), and the total variation to the stationary law by couplings with a lag
    (Biswas, Jacob and Vanetti 2019).
    """
    _check(texts, pairs, steps, sweeps, length, lag, alpha, batch_size)
    check_epsilon(epsilon)
    check_temperature(temperature)
    check_seed(seed)
    joint_draw_named(coupling)
    opened = load(
        model, device=device, dtype=dtype, trust_remote_code=trust_remote_code, exact=True
    )
    conditionals = opened.conditionals()
    cut = length or LENGTH if texts is None else length
    left, right, free, changed = begin_texts(opened, texts, pairs, cut, freeze, seed)
    allowed = torch.full((pairs,), steps) if sweeps is None else sweeps * free.sum(dim=1)
    most = int(allowed.max())
    given: dict[str, Any] = dict(
        free=free, temperature=temperature, seed=seed, steps=allowed, coupling=coupling,
        batch_size=batch_size,
    )  # fmt: skip
    say(f"{pairs:,} pairs of at most {most:,} steps: up to {2 * int(allowed.sum()):,} rows")
    found = coalesce(conditionals, left, right, every=-(-most // MOMENTS), **given)
    later = None
    one_pair = is_pair(texts)
    if lag is not None:
        # Two given texts are two laws of the start; the bound is on the chain from the first.
        later = lagged(conditionals, left, left if one_pair else right, lag=lag, **given)
    kind = "given"
    if measure_alpha and alpha is None:
        contexts = sampled_contexts(
            conditionals, left[0], free[0], n_contexts=4, temperature=temperature, seed=seed
        )
        alpha = measure_influence(conditionals, contexts, temperature=temperature).alpha
        kind = "lower bound"
    made = signature(
        **model_parts(opened), pairs=pairs, length=length, temperature=temperature,
        steps=steps if sweeps is None else None, sweeps=sweeps, coupling=coupling, lag=lag,
        seed=seed,
    )  # fmt: skip
    return Coupling(
        coalescence=found, lagged=later, alpha=alpha, alpha_kind=kind, n_steps=most,
        epsilon=epsilon, texts=spelled(opened, left, right), n_sites=free.sum(dim=1).tolist(),
        temperature=temperature, seed=seed, name=opened.name, changed=changed,
        start="the first text" if one_pair else "a text drawn at random", signature=made,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Coupling(Result):
    """Pairs of chains: when they met, how far apart they were, and what that bounds."""

    coalescence: Coalescence
    lagged: Lagged | None
    alpha: float | None
    alpha_kind: str  # "given", or "lower bound" where it was sampled
    texts: list[tuple[str, str]]  # left and right
    n_sites: list[int]  # free tokens of each pair
    n_steps: int  # of the pair that may take most
    temperature: float
    seed: int
    name: str  # of the model
    epsilon: float
    start: str  # of the lagged couplings
    changed: int  # pairs whose second text took tokens of the first at frozen sites
    signature: str

    @property
    def times(self) -> NDArray[np.int64]:
        """The step (pairs,) at which each pair met; the last one where it did not."""
        return self.coalescence.times

    @property
    def met(self) -> NDArray[np.bool_]:
        """Whether each pair met (pairs,); where not, its time is censored."""
        return self.coalescence.met

    @property
    def sweeps(self) -> NDArray[np.float64]:
        """The same times (pairs,) in steps for each free token."""
        return np.asarray(self.times / np.asarray(self.n_sites))

    @property
    def medians(self) -> tuple[MedianTime, MedianTime]:
        """The median time in steps and in sweeps, with the censored pairs kept."""
        return median_time(self.times, self.met), median_time(self.sweeps, self.met)

    @property
    def contraction(self) -> NDArray[np.float64] | None:
        """The contraction bound (moments,): of the maximal coupling, and where alpha < 1."""
        if self.alpha is None or self.coalescence.coupling != "maximal":
            return None
        return self.coalescence.contraction(self.alpha, self.n_sites)

    @property
    def share(self) -> tuple[float, float, float]:
        """The share of pairs that met, and the ends of its 95% interval."""
        n_met, n = int(self.met.sum()), len(self.met)
        return n_met / n, *share_interval(n_met, n)

    def to_dict(self) -> dict[str, Any]:
        found, (share, *interval) = self.coalescence, self.share
        distance = {
            "steps": found.moments,
            "value": found.mean_distance,
            "standard_error": None if len(self.met) < 2 else found.standard_error,
            "kind": "estimate",
        }
        record = {
            "model": self.name,
            "coupling": found.coupling,
            "temperature": self.temperature,
            "lengths": sorted(set(self.n_sites)),
            "steps": self.n_steps,
            "seed": self.seed,
            "pairs": self.frame().to_dict(orient="records"),
            "met": {
                "value": share, "count": self.met.sum(), "of": len(self.met),
                "interval": interval, "confidence": LEVEL, "kind": "estimate",
            },
            "median": dict(zip(("steps", "sweeps"), self.medians, strict=True)),
            "distance": distance,
            "contraction": self._contraction(),
            "total_variation": self._total_variation(),
            "changed_at_frozen_sites": self.changed,
            "signature": self.signature,
        }  # fmt: skip
        return dict(plain(record))

    def _contraction(self) -> dict[str, Any] | None:
        if self.alpha is None:
            return None
        bound = self.contraction
        if self.coalescence.coupling != "maximal":
            statement = "nothing: the bound is about the maximal coupling"
        elif bound is None:
            statement = "nothing: alpha is not below 1"
        else:
            statement = "the expected distance is at most this"
        sampled = self.alpha_kind == "lower bound"
        return {
            "alpha": {"value": self.alpha, "kind": self.alpha_kind},
            "value": bound,
            "kind": "estimate" if sampled else "upper bound, if alpha is one",
            "statement": statement,
        }

    def _total_variation(self) -> dict[str, Any] | None:
        found = self.lagged
        if found is None:
            return None
        last = int(found.times.max()) - found.lag
        steps = np.arange(0, last + 1, max(1, -(-last // BOUNDS)))
        low, high = found.band(steps)
        return {
            "lag": found.lag,
            "start": self.start,
            "times": found.times,
            "met": found.met,
            "steps": steps,
            "value": found.bound(steps),
            "low": low,
            "high": None if found.n_censored else high,
            "confidence": LEVEL,
            "kind": found.kind,
            "mixing_time": {
                "value": found.mixing_time(self.epsilon),
                "high": found.mixing_time_high(self.epsilon),
                "epsilon": self.epsilon,
                "kind": found.kind,
            },
        }

    def lines(self) -> Iterable[str]:
        found, (_, low, high) = self.coalescence, self.share
        lengths = " or ".join(map(str, sorted(set(self.n_sites))))
        yield (
            f"{found.coupling} coupling on {self.name} at temperature {self.temperature:g}, "
            f"{lengths} free tokens, at most {self.n_steps:,} steps"
        )
        if self.changed:
            yield f"{self.changed} second texts took the tokens of the first at the frozen sites"
        yield " pair  distance     step"
        rows = zip(found.initial, found.times, found.met, strict=True)
        for number, (far, time, met) in enumerate(rows):
            yield f"{number:>5}  {far:>8}  {time:>7,}  {'met' if met else 'not met (censored)'}"
        yield (
            f"met: {int(self.met.sum())} of {len(self.met)} (estimate; at 95% between {low:.0%} "
            f"and {high:.0%})"
        )
        yield self._median_line()
        mean, last = found.mean_distance, found.moments[-1]
        yield (
            f"mean distance: {mean[0]:.2f} at the start, {mean[-1]:.2f} at step {last:,} (estimate)"
        )
        yield from self._bounds()

    def _median_line(self) -> str:
        steps, sweeps = self.medians
        if steps.value is None or sweeps.value is None:
            return "median time: beyond these steps (fewer than half of the pairs met)"
        low, high = ("open" if end is None else f"{end:,.0f}" for end in steps.interval)
        less, more = ("open" if end is None else f"{end:.3g}" for end in sweeps.interval)
        return (
            f"median time: {steps.value:,.0f} steps ({low} to {high}), {sweeps.value:.3g} sweeps "
            f"({less} to {more}) (Kaplan-Meier estimates, 95%)"
        )

    def _bounds(self) -> Iterator[str]:
        bound = self._contraction()
        if bound is not None:
            head = f"contraction with alpha {self.alpha:.4g} ({self.alpha_kind})"
            if bound["value"] is None:
                yield f"{head} says {bound['statement']}"
            else:
                last = self.coalescence.moments[-1]
                yield f"{head}: at most {bound['value'][-1]:.3g} at step {last:,} ({bound['kind']})"
        if self.lagged is not None:
            yield self._variation_line(self.lagged)

    def _variation_line(self, found: Lagged) -> str:
        first, sure = found.mixing_time(self.epsilon), found.mixing_time_high(self.epsilon)
        when = f"at most {self.epsilon:g} from step {first:,} on"
        if found.n_censored:
            when = f"above {self.epsilon:g} up to step {first:,} at least"
        elif sure is not None:
            when += f", at 95% from step {sure:,} on"
        return (
            f"bound on total variation from {self.start}, by couplings of lag {found.lag}: {when} "
            f"({found.kind})"
        )

    def frame(self) -> "pandas.DataFrame":
        """One row per pair."""
        import pandas

        left, right = zip(*self.texts, strict=True)
        found = self.coalescence
        return pandas.DataFrame(
            {
                "left": left,
                "right": right,
                "distance": found.initial,
                "time": found.times,
                "sweeps": self.sweeps,
                "met": found.met,
            }
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.mixing import plot_distance, plot_total_variation

        found = {"distance": plot_distance(self.coalescence, self.contraction)}
        if self.lagged is not None:
            found["total_variation"] = plot_total_variation(self.lagged, epsilon=self.epsilon)
        return found


def _check(
    texts: Any, pairs: int, steps: int, sweeps: int | None, length: int | None, lag: int | None,
    alpha: float | None, batch_size: int | None,
) -> None:  # fmt: skip
    """Refuses impossible questions before a model is loaded."""
    if isinstance(texts, str) or (isinstance(texts, list | tuple | Corpus) and len(texts) == 1):
        raise GlauberError("a pair needs two texts, but 1 was given.")
    check_count("number of pairs", pairs)
    check_count("number of steps", steps, most=STEPS)
    for name, value, most in (
        ("number of sweeps", sweeps, STEPS // 10**6), ("length", length, 10**9),
        ("lag", lag, STEPS), ("batch size", batch_size, STEPS),
    ):  # fmt: skip
        if value is not None:
            check_count(name, value, most=most)
    if alpha is not None and not alpha >= 0:
        raise GlauberError(f"alpha is {alpha}, but an influence cannot be negative.")
