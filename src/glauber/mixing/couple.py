"""Do two chains that share their randomness meet, and when?"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import Model, check_temperature
from glauber.conditionals.load import load
from glauber.conditionals.starts import starts
from glauber.conditionals.texts import Corpus
from glauber.dynamics.coupled import COUPLINGS, MOST_STEPS
from glauber.dynamics.noise import random_bits, uniform
from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.mixing.contexts import sampled_contexts
from glauber.mixing.influence_matrix import check_epsilon, measure_influence
from glauber.mixing.meeting import Meetings, meet
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
from glauber.progress import check_count, check_memory, check_seed, say
from glauber.result import Result, model_parts, one_of, plain, signature, study
from glauber.statistics import CONFIDENCE, MedianTime, clopper_pearson, median_time

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

LENGTH = 10  # tokens of the bundled passages, if no length is given
MOMENTS = 400  # distances kept of a pair, at most about
BOUNDS = 200  # moments of the bound on total variation in the JSON object, about
SLOT = 2  # of the noise that pairs texts; the steps of a pair use 0 and 1


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
    one_of("the coupling", coupling, COUPLINGS)
    opened = load(
        model, device=device, dtype=dtype, trust_remote_code=trust_remote_code, exact=True
    )
    conditionals = opened.conditionals()
    cut = length or LENGTH if texts is None else length
    left, right, free, changed = draw_text_pairs(opened, texts, pairs, cut, freeze, seed)
    limits = torch.full((pairs,), steps) if sweeps is None else (sweeps * free.sum(dim=1)).cpu()
    most = int(limits.max())
    meet_pairs = partial(
        meet,
        conditionals,
        left,
        free=free,
        temperature=temperature,
        seed=seed,
        steps=limits,
        coupling=coupling,
        batch_size=batch_size,
    )
    say(f"{pairs:,} pairs of at most {most:,} steps: up to {2 * int(limits.sum()):,} rows")
    meetings = meet_pairs(right, every=-(-most // MOMENTS))
    lagged = None
    single_pair = is_pair(texts)
    if lag is not None:
        # Two given texts are two distributions of the start; the bound is on the chain from the
        # first.
        lagged = meet_pairs(left if single_pair else right, lag=lag)
    alpha_kind = "given"
    if measure_alpha and alpha is None:
        contexts = sampled_contexts(
            conditionals, left[0], free[0], n_contexts=4, temperature=temperature, seed=seed
        )
        alpha = measure_influence(conditionals, contexts, temperature=temperature).alpha
        alpha_kind = "lower bound"
    return Coupling(
        meetings=meetings,
        lagged=lagged,
        alpha=alpha,
        alpha_kind=alpha_kind,
        n_steps=most,
        epsilon=epsilon,
        texts=list(zip(decode_rows(opened, left), decode_rows(opened, right), strict=True)),
        n_sites=free.sum(dim=1).tolist(),
        temperature=temperature,
        seed=seed,
        name=opened.name,
        changed=changed,
        start="the first text" if single_pair else "a text drawn at random",
        signature=signature(
            **model_parts(opened),
            pairs=pairs,
            length=length,
            temperature=temperature,
            steps=steps if sweeps is None else None,
            sweeps=sweeps,
            coupling=coupling,
            lag=lag,
            seed=seed,
        ),
    )


@dataclass(frozen=True, eq=False)
class Coupling(Result):
    """Pairs of chains: when they met, how far apart they were, and what that bounds."""

    meetings: Meetings
    lagged: Meetings | None
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
        return self.meetings.times

    @property
    def met(self) -> NDArray[np.bool_]:
        """Whether each pair met (pairs,); where not, its time is censored."""
        return self.meetings.met

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
        if self.alpha is None or self.meetings.coupling != "maximal":
            return None
        return self.meetings.contraction(self.alpha, self.n_sites)

    @property
    def share(self) -> tuple[float, float, float]:
        """The share of pairs that met, and the ends of its 95% interval."""
        n_met, n = int(self.met.sum()), len(self.met)
        return n_met / n, *clopper_pearson(n_met, n)

    def to_dict(self) -> Record:
        meetings, (share, *interval) = self.meetings, self.share
        record = {
            "model": self.name,
            "coupling": meetings.coupling,
            "temperature": self.temperature,
            "lengths": sorted(set(self.n_sites)),
            "steps": self.n_steps,
            "seed": self.seed,
            "pairs": self.frame().to_dict(orient="records"),
            "met": {
                "value": share,
                "count": self.met.sum(),
                "of": len(self.met),
                "interval": interval,
                "confidence": CONFIDENCE,
                "kind": "estimate",
            },
            "median": dict(zip(("steps", "sweeps"), self.medians, strict=True)),
            "distance": {
                "steps": meetings.moments,
                "value": meetings.mean_distance,
                "standard_error": None if len(self.met) < 2 else meetings.standard_error,
                "kind": "estimate",
            },
            "contraction": self._contraction(),
            "total_variation": None if self.lagged is None else self._total_variation(self.lagged),
            "changed_at_frozen_sites": self.changed,
            "signature": self.signature,
        }
        return dict(plain(record))

    def _contraction(self) -> dict[str, Any] | None:
        if self.alpha is None:
            return None
        bound = self.contraction
        if self.meetings.coupling != "maximal":
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

    def _total_variation(self, lagged: Meetings) -> Record:
        last = int(lagged.times.max()) - lagged.lag
        steps = np.arange(0, last + 1, max(1, -(-last // BOUNDS)))
        bound = lagged.tv_bound(steps)
        return {
            "lag": lagged.lag,
            "start": self.start,
            "times": lagged.times,
            "met": lagged.met,
            "steps": steps,
            "value": bound.value,
            "low": bound.low,
            "high": None if lagged.n_censored else bound.high,
            "confidence": CONFIDENCE,
            "kind": lagged.bound_kind,
            "mixing_time": {
                "value": lagged.mixing_time(self.epsilon),
                "high": lagged.mixing_time_high(self.epsilon),
                "epsilon": self.epsilon,
                "kind": lagged.bound_kind,
            },
        }

    def lines(self) -> Iterable[str]:
        meetings, (_, low, high) = self.meetings, self.share
        lengths = " or ".join(map(str, sorted(set(self.n_sites))))
        yield (
            f"{meetings.coupling} coupling on {self.name} at temperature {self.temperature:g}, "
            f"{lengths} free tokens, at most {self.n_steps:,} steps"
        )
        if self.changed:
            yield f"{self.changed} second texts took the tokens of the first at the frozen sites"
        yield " pair  distance     step"
        rows = zip(meetings.initial, meetings.times, meetings.met, strict=True)
        for number, (far, time, met) in enumerate(rows):
            yield f"{number:>5}  {far:>8}  {time:>7,}  {'met' if met else 'not met (censored)'}"
        yield (
            f"met: {int(self.met.sum())} of {len(self.met)} (estimate; at 95% between {low:.0%} "
            f"and {high:.0%})"
        )
        yield self._median_line()
        mean, last = meetings.mean_distance, meetings.moments[-1]
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
                last = self.meetings.moments[-1]
                yield f"{head}: at most {bound['value'][-1]:.3g} at step {last:,} ({bound['kind']})"
        if self.lagged is not None:
            yield self._variation_line(self.lagged)

    def _variation_line(self, lagged: Meetings) -> str:
        first, sure = lagged.mixing_time(self.epsilon), lagged.mixing_time_high(self.epsilon)
        when = f"at most {self.epsilon:g} from step {first:,} on"
        if lagged.n_censored:
            when = f"above {self.epsilon:g} up to step {first:,} at least"
        elif sure is not None:
            when += f", at 95% from step {sure:,} on"
        return (
            f"bound on total variation from {self.start}, by couplings of lag {lagged.lag}: {when} "
            f"({lagged.bound_kind})"
        )

    def frame(self) -> "pandas.DataFrame":
        """One row per pair."""
        import pandas

        left, right = zip(*self.texts, strict=True)
        return pandas.DataFrame(
            {
                "left": left,
                "right": right,
                "distance": self.meetings.initial,
                "time": self.times,
                "sweeps": self.sweeps,
                "met": self.met,
            }
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.mixing import plot_distance, plot_total_variation

        figures = {"distance": plot_distance(self.meetings, self.contraction)}
        if self.lagged is not None:
            figures["total_variation"] = plot_total_variation(self.lagged, epsilon=self.epsilon)
        return figures


def draw_text_pairs(
    model: Model, texts: Texts, pairs: int, length: int | None, freeze: Any, seed: int
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Left and right tokens and free sites (pairs, length), and how many right ones changed.

    Two chains must have the same tokens where nothing is redrawn: those of the left one.
    """
    tokens, free = (
        part.to(model.state_device)
        for part in distinct_texts(*starts(model, texts, length=length, freeze=freeze))
    )
    check_memory(pairs * tokens.shape[1] * 60, f"{pairs:,} pairs of chains")
    numbers = pairs_of_texts(len(tokens), pairs, seed=seed).to(tokens.device)
    if is_pair(texts):
        numbers = numbers.sort(dim=1).values
    _check_lengths((tokens >= 0).sum(dim=1)[numbers], free.sum(dim=1)[numbers])
    left, right, free = tokens[numbers[:, 0]], tokens[numbers[:, 1]], free[numbers[:, 0]]
    shared = torch.where(free, right, left)
    return left, shared, free, int((shared != right).any(dim=1).sum())


def distinct_texts(tokens: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens and free sites (texts, length) of each different text once.

    Texts that begin alike, as proteins of one family do, may be equal once they are cut.
    """
    first: dict[tuple[int, ...], int] = {}
    for number, row in enumerate(tokens.tolist()):
        first.setdefault(tuple(row), number)
    if len(first) == 1 < len(tokens):
        raise GlauberError(
            "all texts are the same, so two chains would have met before the first step: give "
            "different texts, or a larger length."
        )
    numbers = torch.tensor(list(first.values()), device=tokens.device)
    return tokens[numbers], free[numbers]


def pairs_of_texts(n_texts: int, n_pairs: int, *, seed: int) -> Tensor:
    """Numbers (n_pairs, 2) of two different texts a pair, in an order that the seed decides.

    Every text is used once before any is used again; then they are shuffled anew.
    """
    if n_texts < 2:
        raise GlauberError(
            f"there is {n_texts} text, but a pair needs two: give more texts, or shorter ones."
        )
    per_round = n_texts // 2
    rounds = torch.arange(-(-n_pairs // per_round))[:, None]
    bits, _ = random_bits(
        torch.tensor(seed), rounds, torch.arange(n_texts)[None], torch.tensor(SLOT)
    )
    order = uniform(bits).argsort(dim=1, stable=True)[:, : 2 * per_round]
    return order.reshape(-1, 2)[:n_pairs]


def is_pair(texts: Any) -> bool:
    """Whether two texts were given, which are one pair."""
    return isinstance(texts, list | tuple | Corpus) and len(texts) == 2


def decode_rows(model: Model, tokens: Tensor) -> list[str]:
    """The texts of rows of tokens (rows, length)."""
    return [model.vocabulary.decode(row[row >= 0].tolist()) for row in tokens]


def _check_lengths(lengths: Tensor, free: Tensor) -> None:
    """Refuses pairs (pairs, 2) of unequal lengths, which can never become one text."""
    unequal = (lengths[:, 0] != lengths[:, 1]).nonzero()[:, 0].tolist()
    if unequal:
        first, second = free[unequal[0]].tolist()
        raise GlauberError(
            f"the texts of pair {unequal[0]} have {first} and {second} tokens, but a pair needs "
            "equal lengths: set a length to cut them."
        )


def _check(
    texts: Texts,
    pairs: int,
    steps: int,
    sweeps: int | None,
    length: int | None,
    lag: int | None,
    alpha: float | None,
    batch_size: int | None,
) -> None:
    """Refuses impossible questions before a model is loaded."""
    if isinstance(texts, str) or (isinstance(texts, list | tuple | Corpus) and len(texts) == 1):
        raise GlauberError("a pair needs two texts, but 1 was given.")
    check_count("number of pairs", pairs)
    check_count("number of steps", steps, most=MOST_STEPS)
    for name, value, most in (
        ("number of sweeps", sweeps, MOST_STEPS // 10**6),
        ("length", length, 10**9),
        ("lag", lag, MOST_STEPS),
        ("batch size", batch_size, MOST_STEPS),
    ):
        if value is not None:
            check_count(name, value, most=most)
    if alpha is not None and not alpha >= 0:
        raise GlauberError(f"alpha is {alpha}, but an influence cannot be negative.")
