"""Pairs of chains that share their randomness: when they meet, and what that bounds."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.dynamics.coupled import COUPLINGS, MOST_STEPS
from glauber.dynamics.noise import random_bits, uniform
from glauber.foundation.checks import OneOf, Real, Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import (
    Freeze,
    Length,
    ModelOrName,
    Seed,
    Temperature,
    Texts,
    WhereAndDtype,
)
from glauber.foundation.progress import check_memory, say
from glauber.foundation.statistics import Estimate, Floats, MedianTime, median_time, proportion
from glauber.foundation.study import Result, internal, reported, study
from glauber.models.base import Model
from glauber.models.load import load
from glauber.studies.mixing.influence import Epsilon, measure_influence, sampled_contexts
from glauber.studies.mixing.meeting import Meetings, meet
from glauber.texts.read import Corpus
from glauber.texts.starts import starts

if TYPE_CHECKING:
    import plotly.graph_objects as go

LENGTH = 10  # tokens of the bundled passages, if no length is given
MOMENTS = 400  # distances that are stored of a pair, at most about
BOUNDS = 200  # moments of the bound on total variation in the JSON object, about
SLOT = 2  # of the noise that pairs texts; the steps of a pair use 0 and 1
CouplingName = Annotated[str, "maximal, inverse-cdf or gumbel-max.", OneOf(COUPLINGS)]


@study
def couple(
    model: ModelOrName = "bundled:english",
    texts: Texts = None,
    *,
    pairs: Annotated[int, "Pairs of chains.", Whole()] = 12,
    length: Annotated[Length, Whole()] = None,
    temperature: Temperature = 1.0,
    steps: Annotated[int, "Steps within which a pair may meet.", Whole(1, MOST_STEPS)] = 400,
    sweeps: Annotated[
        int | None, "Steps for each free token, instead of --steps.", Whole(1, MOST_STEPS // 10**6)
    ] = None,
    seed: Seed = 0,
    coupling: CouplingName = "maximal",
    freeze: Freeze = (),
    alpha: Annotated[
        float | None, "Largest influence of a site, for the contraction bound.", Real(0.0)
    ] = None,
    measure_alpha: Annotated[bool, "Sample alpha on the first text."] = False,
    lag: Annotated[
        int | None, "Also bound total variation by couplings of this lag.", Whole()
    ] = None,
    epsilon: Epsilon = 0.25,
    batch_size: Annotated[
        int | None, "Pairs moved together (default: by memory).", Whole(1, MOST_STEPS)
    ] = None,
    **where: Unpack[WhereAndDtype],
) -> "Coupling":
    """Run pairs of chains together until they meet: times, distances, and what they bound.

    Both chains of a pair redraw the same site at each step, the two tokens drawn together. Two
    texts are one pair, run many times; of more texts (default: the bundled passages, 10 tokens of
    each) two different ones are drawn for each pair. Times are exact for these pairs, in steps and
    in sweeps (steps for each free token, which compares texts of several lengths); shares, medians
    and mean distances are estimates. The distance is bounded by contraction if alpha is known
    (paper A, Theorem 5), and the total variation to the stationary distribution by couplings with
    a lag (Biswas, Jacob and Vanetti 2019).
    """
    if isinstance(texts, str) or (isinstance(texts, list | tuple | Corpus) and len(texts) == 1):
        raise GlauberError("a pair needs two texts, but 1 was given.")
    loaded_model = load(model, exact=True, **where)
    conditionals = loaded_model.conditionals()
    cut = length or LENGTH if texts is None else length
    left, right, free, changed = draw_text_pairs(loaded_model, texts, pairs, cut, freeze, seed)
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
    # Two given texts are two distributions of the start; the bound is on the chain from the first.
    single_pair = is_pair(texts)
    lagged = None if lag is None else meet_pairs(left if single_pair else right, lag=lag)
    alpha_kind = "given"
    if measure_alpha and alpha is None:
        contexts = sampled_contexts(
            conditionals, left[0], free[0], n_contexts=4, temperature=temperature, seed=seed
        )
        alpha = measure_influence(conditionals, contexts, temperature=temperature).alpha
        alpha_kind = "lower bound"
    return Coupling(
        model=loaded_model.name,
        temperature=temperature,
        n_steps=most,
        n_sites=free.sum(dim=1).tolist(),
        changed=changed,
        alpha=alpha,
        alpha_kind=alpha_kind,
        epsilon=epsilon,
        start="the first text" if single_pair else "a text drawn at random",
        texts=list(
            zip(decode_rows(loaded_model, left), decode_rows(loaded_model, right), strict=True)
        ),
        meetings=meetings,
        lagged=lagged,
    )


class CoupledPair(NamedTuple):
    """Two texts, and what became of the chains from them."""

    left: str
    right: str
    distance: int  # sites that differ at the start
    time: int  # the step at which they met, or the last one
    sweeps: float  # the same in steps for each free token
    met: bool  # False: the time is censored


@dataclass(frozen=True, eq=False)
class Coupling(Result):
    """Pairs of chains: when they met, how far apart they were, and what that bounds."""

    model: str
    temperature: float
    n_steps: int  # of the pair that may take most
    n_sites: list[int]  # free tokens of each pair
    changed: int  # pairs whose second text took tokens of the first at frozen sites
    alpha: float | None
    alpha_kind: str  # "given", or "lower bound" where it was sampled
    epsilon: float
    start: str  # of the lagged couplings
    meetings: Meetings
    lagged: Meetings | None
    texts: list[tuple[str, str]] = internal()  # left and right

    @property
    def times(self) -> NDArray[np.int64]:
        """The step (pairs,) at which each pair met; the last one where it did not."""
        return self.meetings.times

    @property
    def met(self) -> NDArray[np.bool_]:
        """Whether each pair met (pairs,); where not, its time is censored."""
        return self.meetings.met

    @property
    def sweeps(self) -> Floats:
        """The same times (pairs,) in steps for each free token."""
        return np.asarray(self.times / np.asarray(self.n_sites))

    @reported
    def pairs(self) -> list[CoupledPair]:
        """Number of pairs of chains."""
        left, right = zip(*self.texts, strict=True)
        columns = self.meetings.initial, self.times, self.sweeps, self.met
        rows = zip(left, right, *(column.tolist() for column in columns), strict=True)
        return [CoupledPair(*row) for row in rows]

    @reported
    def share(self) -> Estimate:
        """The share of pairs that met."""
        return proportion(int(self.met.sum()), len(self.met))

    @reported
    def medians(self) -> dict[str, MedianTime]:
        """The median time in steps and in sweeps, with the censored pairs included."""
        times = {"steps": self.times, "sweeps": self.sweeps}
        return {unit: median_time(values, self.met) for unit, values in times.items()}

    @reported
    def contraction(self) -> Floats | None:
        """The contraction bound (moments,): of the maximal coupling, and where alpha < 1."""
        if self.alpha is None or self.meetings.coupling != "maximal":
            return None
        return self.meetings.contraction(self.alpha, self.n_sites)

    @reported
    def contraction_statement(self) -> str | None:
        """What alpha bounds."""
        if self.alpha is None:
            return None
        if self.meetings.coupling != "maximal":
            return "nothing: the bound is about the maximal coupling"
        if self.contraction is None:
            return "nothing: alpha is not below 1"
        sampled = self.alpha_kind == "lower bound"
        return "estimate" if sampled else "upper bound, if alpha is one"

    @reported
    def total_variation(self) -> dict[str, object] | None:
        """The bound on the distance to the stationary distribution, from couplings with a lag."""
        lagged = self.lagged
        if lagged is None:
            return None
        last = int(lagged.times.max()) - lagged.lag
        steps = np.arange(0, last + 1, max(1, -(-last // BOUNDS)))
        bound = lagged.tv_bound(steps)
        return {
            "steps": steps,
            "value": bound.value,
            "low": bound.low,
            "high": None if lagged.n_censored else bound.high,
            "mixing_time": lagged.mixing_time(self.epsilon),
            "mixing_time_high": lagged.mixing_time_high(self.epsilon),
            "kind": lagged.bound_kind,
        }

    def lines(self) -> Iterable[str]:
        meetings, (low, high) = self.meetings, self.share.interval or (0.0, 1.0)
        lengths = " or ".join(map(str, sorted(set(self.n_sites))))
        yield (
            f"{meetings.coupling} coupling on {self.model} at temperature {self.temperature:g}, "
            f"{lengths} free tokens, at most {self.n_steps:,} steps"
        )
        if self.changed:
            yield f"{self.changed} second texts took the tokens of the first at the frozen sites"
        yield " pair  distance     step"
        rows = zip(meetings.initial, meetings.times, meetings.met, strict=True)
        for number, (distance, time, met) in enumerate(rows):
            state = "met" if met else "not met (censored)"
            yield f"{number:>5}  {distance:>8}  {time:>7,}  {state}"
        yield (
            f"met: {int(self.met.sum())} of {len(self.met)} (estimate; at 95% between {low:.0%} "
            f"and {high:.0%})"
        )
        yield self._median_line()
        mean, last = meetings.mean_distance, meetings.moments[-1]
        yield (
            f"mean distance: {mean[0]:.2f} at the start, {mean[-1]:.2f} at step {last:,} (estimate)"
        )
        yield from self._bound_lines()

    def _median_line(self) -> str:
        steps, sweeps = self.medians["steps"], self.medians["sweeps"]
        if steps.value is None or sweeps.value is None:
            return "median time: beyond these steps (fewer than half of the pairs met)"
        low, high = ("open" if end is None else f"{end:,.0f}" for end in steps.interval)
        less, more = ("open" if end is None else f"{end:.3g}" for end in sweeps.interval)
        return (
            f"median time: {steps.value:,.0f} steps ({low} to {high}), {sweeps.value:.3g} sweeps "
            f"({less} to {more}) (Kaplan-Meier estimates, 95%)"
        )

    def _bound_lines(self) -> Iterator[str]:
        if self.alpha is not None:
            head = f"contraction with alpha {self.alpha:.4g} ({self.alpha_kind})"
            bound, last = self.contraction, self.meetings.moments[-1]
            if bound is None:
                yield f"{head} says {self.contraction_statement}"
            else:
                kind = self.contraction_statement
                yield f"{head}: at most {bound[-1]:.3g} at step {last:,} ({kind})"
        if (lagged := self.lagged) is not None:
            first, sure = lagged.mixing_time(self.epsilon), lagged.mixing_time_high(self.epsilon)
            when = f"at most {self.epsilon:g} from step {first:,} on"
            if lagged.n_censored:
                when = f"above {self.epsilon:g} up to step {first:,} at least"
            elif sure is not None:
                when += f", at 95% from step {sure:,} on"
            yield (
                f"bound on total variation from {self.start}, by couplings of lag {lagged.lag}: "
                f"{when} ({lagged.bound_kind})"
            )

    def table(self) -> list[CoupledPair]:
        """One row per pair."""
        return self.pairs

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.mixing import plot_distance, plot_total_variation

        figures = {"distance": plot_distance(self.meetings, self.contraction)}
        if self.lagged is not None:
            figures["total_variation"] = plot_total_variation(self.lagged, epsilon=self.epsilon)
        return figures


def draw_text_pairs(
    model: Model,
    texts: Texts,
    pairs: int,
    length: int | None,
    freeze: Freeze,
    seed: int,
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


def is_pair(texts: object) -> bool:
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
