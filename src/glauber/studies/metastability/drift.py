"""The drift of the number of copies of one token, and what it certifies.

N(x) counts the sites that have token w. In one step it changes on average by
D(x) = 1/n sum_i (pi_i(w | x_-i) - 1[x_i = w]), by at most one. If D >= epsilon > 0 at every state
of the levels N = k .. k + m, then r^N with r = (1 - epsilon) / (1 + epsilon) is a supermartingale
there, and a chain at level k + m comes down to k before it climbs above k + m with chance at most
r^m. Drift at level k alone bounds nothing: a walk that is pushed back at its boundary only leaves
in polynomial time.

Escape times are measured too: chains begin in the text of copies alone, and the basin of k copies
and more, of depth n - k + 1, is left when so many copies are lost.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom
from torch import Tensor

from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.dynamics.remembered import Memo, run_memoised
from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import ModelOrName, Seed, Temperature, Texts, WhereAndDtype
from glauber.foundation.progress import check_memory, say, track
from glauber.foundation.statistics import (
    Estimate,
    clopper_pearson,
    jackknife,
)
from glauber.foundation.study import Result, internal, reported, study
from glauber.models.base import (
    Conditionals,
    Model,
    Restricted,
    check_temperature,
    scores_alone,
)
from glauber.models.batching import in_parts
from glauber.models.load import load
from glauber.texts.starts import starts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST = 10**6  # samples of a level
CONFIDENCE = 0.95
STEPS = 10**7  # of a chain
FEWEST_DEPTHS = 3  # through which an exponential and a power can be told apart


@study
def drift(
    model: ModelOrName = "bundled:english",
    texts: Texts = None,
    *,
    token: Annotated[str, "The token whose copies are counted."],
    count: Annotated[int, "Copies at the boundary of the basin, k.", Whole()],
    levels: Annotated[int, "Levels above the boundary, m.", Whole(0)] = 2,
    samples: Annotated[int, "States sampled at each level.", Whole(1, MOST)] = 200,
    length: Annotated[int, "Tokens of a state, without special ones.", Whole(1, MOST)] = 20,
    temperature: Temperature = 1.0,
    settle: Annotated[
        int, "Steps of the chain for the other sites (0: as in the texts).", Whole(0, STEPS)
    ] = 0,
    chains: Annotated[
        int, "Chains from copies alone, whose escape times are measured (0: none).", Whole(0, MOST)
    ] = 0,
    steps: Annotated[int, "Steps of these chains.", Whole(1, STEPS)] = 1000,
    seed: Seed = 0,
    **where: Unpack[WhereAndDtype],
) -> "DriftStudy":
    """Sample the drift of a token's copies at levels k to k+m, and say what it certifies.

    D(x) = 1/n sum_i (pi_i(w given the rest) - 1[x_i = w]) at states with exactly so many copies at
    random sites, the others from texts (paper A, table 2). If D is at least epsilon > 0 at every
    state of the levels, a chain comes down from k+m to k before it climbs above k+m with chance at
    most ((1 - epsilon) / (1 + epsilon))^m; from samples this is an estimate. With chains, escape
    times from a text of copies alone are set against the depth of the basin.
    """
    if count > length:
        raise GlauberError(
            f"the count is {count}, but a text of {length} tokens has 1 to {length} copies."
        )
    if count + levels > length:
        raise GlauberError(
            f"there are {levels} levels above {count}, but a text of {length} tokens has "
            f"{length - count}."
        )
    check_memory(64 * samples * length, f"{samples:,} states of {length} tokens")
    opened = load(model, exact=True, **where)
    number = _token_named(opened, token)
    rows, free = (part.to(opened.state_device) for part in starts(opened, texts, length=length))
    say(
        f"{samples * (levels + 1):,} states of {length} tokens: "
        f"{samples * (levels + 1) * length:,} rows through the model"
        + (f", and {settle:,} steps of {samples:,} chains a level" if settle else "")
    )
    certificate = sample_drift(
        opened.conditionals(),
        rows,
        free[0],
        token=number,
        counts=range(count, count + levels + 1),
        samples=samples,
        temperature=temperature,
        n_steps=settle,
        seed=seed,
    )
    escapes = None
    if chains:
        say(f"at most {steps:,} steps of {chains:,} chains from copies alone")
        alone = torch.where(free[0], number, rows[:1]).repeat(chains, 1)
        escapes = escape_times(
            opened.conditionals(),
            alone,
            free[0],
            token=number,
            n_steps=steps,
            temperature=temperature,
            seed=seed,
        )
    return DriftStudy(
        **vars(certificate),
        escapes=escapes,
        model=opened.name,
        token=token,
        length=length,
        temperature=float(temperature),
        settle=settle,
        seed=seed,
    )


@dataclass(frozen=True, eq=False)
class LevelDrift:
    """D at states with exactly `count` copies: a sample of them, or all."""

    count: int
    drifts: Floats = internal()  # (states,)
    kind: str = "estimate"

    @reported
    def smallest(self) -> float:
        return float(self.drifts.min())

    @reported
    def median(self) -> float:
        return float(np.median(self.drifts))

    @reported
    def positive(self) -> int:
        """How many of the states have D > 0."""
        return int((self.drifts > 0).sum())

    @reported
    def positive_share(self) -> dict[str, object]:
        """Share of the sampled distribution with D > 0."""
        value = self.lowest_positive_share
        return {"value": value, "kind": "lower bound", "confidence": CONFIDENCE}

    @reported
    def median_interval(self) -> tuple[float, float] | None:
        """An interval of the median at 95%, from two of the sorted samples; None for too few."""
        n = len(self.drifts)
        below = int(binom.ppf((1 - CONFIDENCE) / 2, n, 0.5))
        if below < 1:
            return None
        ordered = np.sort(self.drifts)
        return float(ordered[below - 1]), float(ordered[n - below])

    @property
    def lowest_positive_share(self) -> float:
        """Clopper-Pearson lower bound on that share."""
        return lower_share(self.positive, len(self.drifts), confidence=CONFIDENCE)


@dataclass(frozen=True, eq=False)
class DriftCertificate:
    """What the drift at levels k .. k + m says of the descent from k + m to k.

    From every state of those levels the bound is one. From samples it is an estimate: epsilon is
    the smallest D seen, and at least `share` of the sampled distribution of each level lies at or
    above it, at all levels together with the stated confidence.
    """

    levels: tuple[LevelDrift, ...]  # of k, k + 1, …, k + m
    kind: Literal["upper bound", "estimate"]  # of the time to descend
    confidence: float  # of all levels together

    @reported
    def epsilon(self) -> float:
        """The smallest D over all levels."""
        return min(level.smallest for level in self.levels)

    @reported
    def descent(self) -> float | None:
        """((1 - epsilon) / (1 + epsilon))^m; None where some D is not positive."""
        if self.epsilon <= 0:
            return None
        return float(((1 - self.epsilon) / (1 + self.epsilon)) ** (len(self.levels) - 1))

    @reported
    def share(self) -> float:
        """Share of each level with D >= epsilon, at all levels together (1 if all are known).

        The share above the smallest of s samples is Beta(s, 1), whatever the distribution; each
        level gets an equal part of the chance to be wrong.
        """
        if self.kind == "upper bound":
            return 1.0
        each = 1 - (1 - self.confidence) / len(self.levels)
        fewest = min(len(level.drifts) for level in self.levels)
        return lower_share(fewest, fewest, confidence=each)


@dataclass(frozen=True, eq=False)
class EscapeTimes:
    """When chains that began with copies alone had fewer than k of them, for each k."""

    n_steps: int  # of the chains
    times: Ints = internal()  # (chains, n): until d copies are lost, in column d - 1
    escaped: NDArray[np.bool_] = internal()  # (chains, n): not where the time is a lower bound

    @reported
    def n_escaped(self) -> list[int]:
        """Chains that left the basin, by depth from 1."""
        return [int(count) for count in self.escaped.sum(axis=0)]

    @reported
    def mean_times(self) -> list[Estimate]:
        """Steps per escape, by depth from 1: the mean time if escapes have no memory."""

        def means(weights: Floats) -> Floats:
            escapes = weights @ self.escaped
            with np.errstate(divide="ignore"):
                return np.where(escapes > 0, weights @ self.times / escapes, np.nan)

        every = jackknife(means, len(self.times), scale="log")
        each = [every.item(depth) for depth in range(self.times.shape[1])]
        return [
            time if count else replace(time, reason="no chain escaped")
            for time, count in zip(each, self.n_escaped, strict=True)
        ]

    @property
    def estimated_depths(self) -> NDArray[np.int64]:
        """The depths at which at least half of the chains escaped."""
        return np.flatnonzero(2 * self.escaped.sum(axis=0) >= len(self.times)) + 1

    @reported
    def growth(self) -> Estimate:
        """Mean slope of the log mean time per copy of depth; 0 if times do not grow."""
        return self._fits(0)

    @reported
    def exponential_less_power(self) -> Estimate:
        """R^2 of the log mean time on the depth, less that on the depth's logarithm.

        Above zero, times grow like an exponential of the depth rather than like a power.
        """
        return self._fits(1)

    def _fits(self, which: int) -> Estimate:
        depths = self.estimated_depths
        if len(depths) < FEWEST_DEPTHS:
            reason = f"half of the chains left basins of {len(depths)} depths only"
            return Estimate(float("nan"), None, n_chains=len(self.times), reason=reason)

        def fits(weights: Floats) -> Floats:
            escapes = weights @ self.escaped[:, depths - 1]
            if (escapes <= 0).any():
                return np.full(2, np.nan)
            logs = np.log(weights @ self.times[:, depths - 1] / escapes)
            by_depth, by_log = np.corrcoef([logs, depths, np.log(depths)])[0, 1:]
            return np.array([np.polyfit(depths, logs, 1)[0], by_depth**2 - by_log**2])

        return jackknife(fits, len(self.times)).item(which)


@dataclass(frozen=True, eq=False, kw_only=True)
class DriftStudy(DriftCertificate, Result):
    """The drift of one token's copies, level by level, and what it certifies."""

    model: str
    token: str
    length: int
    temperature: float
    settle: int = internal()
    seed: int
    escapes: EscapeTimes | None = None

    FIGURES = {"levels": "glauber.interfaces.plots.metastability:plot_drift"}

    @reported
    def samples(self) -> int:
        """States at each level."""
        return len(self.levels[0].drifts)

    @reported
    def others(self) -> str:
        """Where the tokens at the other sites come from."""
        return f"{self.settle} chain steps from texts" if self.settle else "texts"

    def lines(self) -> Iterable[str]:
        yield (
            f"drift of the copies of {self.token!r} among {self.length} tokens at temperature "
            f"{self.temperature:g}; {self.samples} states a level, other sites from {self.others}"
        )
        yield " copies  smallest   median  positive (estimates; the first row is the boundary)"
        for level in self.levels:
            share = level.lowest_positive_share
            yield (
                f"{level.count:>7}  {level.smallest:8.4f} {level.median:8.4f}  "
                f"{level.positive} of {self.samples}: at least {share:.1%} of the sampled "
                f"distribution (lower bound, at {self.confidence:.0%})"
            )
        yield self.verdict
        if self.escapes is not None:
            yield from self._escape_lines(self.escapes)

    def _escape_lines(self, escapes: EscapeTimes) -> Iterable[str]:
        n_chains = len(escapes.times)
        yield (
            f"escapes of {n_chains} chains of {escapes.n_steps:,} steps that began with "
            f"{self.length} copies (estimates)"
        )
        yield "  depth  fewer than  escaped  steps per escape"
        for depth, (count, time) in enumerate(
            zip(escapes.n_escaped, escapes.mean_times, strict=True), start=1
        ):
            mean = time.text(1) if count else "-"
            yield f"{depth:>7}  {self.length - depth + 1:>10}  {count:>7}  {mean}"
        growth, shape = escapes.growth, escapes.exponential_less_power
        if np.isnan(growth.value):
            yield f"growth with the depth: not known ({growth.reason})"
            return
        yield (
            f"log time per copy of depth: {growth.text()}; R^2 of an exponential less that of a "
            f"power: {shape.text()}"
        )

    @property
    def verdict(self) -> str:
        """What the drift certifies, in one sentence."""
        first, last = self.levels[0].count, self.levels[-1].count
        if self.descent is None:
            falling = [str(level.count) for level in self.levels if level.smallest <= 0]
            return (
                f"no certificate: some sampled states with {', '.join(falling)} copies have a "
                "drift that is not positive, and one is enough"
            )
        return (
            f"from {last} copies down to {first} before climbing above {last}: chance at most "
            f"{self.descent:.4g} ({self.kind}: a bound if the drift is at least "
            f"{self.epsilon:.4g} at every state of these levels; it is for at least "
            f"{self.share:.1%} of the sampled distribution of each, at "
            f"{self.confidence:.0%} together)"
        )

    def table(self) -> Mapping[str, object]:
        """One row per sampled state."""
        return {
            "copies": np.repeat([level.count for level in self.levels], self.samples),
            "drift": np.concatenate([level.drifts for level in self.levels]),
        }


def _token_named(model: Model, name: str) -> int:
    """The token that is spelled so, by itself or as the vocabulary writes it."""
    vocabulary = model.vocabulary
    if not isinstance(name, str):
        raise GlauberError(f"the token is {name!r:.60}, but it must be a text.")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise GlauberError(f"the token {name!a} is not UTF-8 text.") from None
    pieces = vocabulary.tokenizer(name, add_special_tokens=False)["input_ids"]
    known = vocabulary.tokenizer.get_vocab()
    token = known.get(name, pieces[0] if len(pieces) == 1 else None)
    if token is None or not bool(vocabulary.proposable()[token]):
        raise GlauberError(
            f"{name!r} is not a single token of the vocabulary of {model.name} that may be drawn."
        )
    return int(token)


def expected_change(
    conditionals: Conditionals,
    tokens: Tensor,
    free: Tensor,
    *,
    token: int,
    temperature: float = 1.0,
) -> Floats:
    """Expected one-step change (rows,) of the copies of a token, from states tokens (rows, length).

    free (length,) bool: the sites that are redrawn and counted, the same in every row.
    """
    check_temperature(temperature)
    sites = free.nonzero()[:, 0]
    changes = []
    with track("states", len(tokens)) as advance:
        for rows in in_parts(torch.arange(len(tokens)), len(sites) * conditionals.vocab_size):
            scores = scores_alone(conditionals, tokens[rows], sites)
            probability = torch.softmax(scores / temperature, dim=-1)[:, :, token]
            changes.append((probability - (tokens[rows][:, sites] == token).double()).mean(1).cpu())
            advance(len(rows))
    return np.asarray(torch.cat(changes).numpy())


def certify(
    levels: Sequence[LevelDrift], *, exhaustive: bool, confidence: float = CONFIDENCE
) -> DriftCertificate:
    """The certificate of consecutive levels; exhaustive: each holds all states of its level."""
    counts = [level.count for level in levels]
    if not counts or counts != list(range(counts[0], counts[0] + len(counts))):
        raise GlauberError(f"the levels are {counts}, but they must follow one another.")
    return DriftCertificate(
        tuple(levels),
        "upper bound" if exhaustive else "estimate",
        1.0 if exhaustive else confidence,
    )


def lower_share(successes: int, trials: int, *, confidence: float) -> float:
    """One-sided Clopper-Pearson lower bound on a share: 200 of 200 give 98.5% at 95%."""
    if trials < 1:
        raise GlauberError("there are no samples, so nothing can be said.")
    return clopper_pearson(successes, trials, 2 * confidence - 1)[0]


def with_copies(
    texts: Tensor, free: Tensor, *, token: int, count: int, samples: int, seed: int = 0
) -> Tensor:
    """States (samples, length) with exactly `count` copies of the token, at random free sites.

    The other sites come from texts (rows, length), one drawn at random for each state. Where a
    text holds the token itself at another site, a random other token of that text goes there.
    free (length,) bool is the same for every text.
    """
    _check_copies(int(free.sum()), count, samples)
    usable = texts[((texts != token) & free).any(1)]
    if count < int(free.sum()) and len(usable) == 0:
        raise GlauberError("every text consists of that token alone, so none can fill the rest.")
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randint(max(1, len(usable)), (samples,), generator=generator)
    states = (usable if len(usable) else texts)[chosen].clone()
    sites = free.nonzero()[:, 0]
    for state in states:
        own = state[sites]
        others = own[own != token]
        if len(others):
            picked = torch.randint(len(others), (len(sites),), generator=generator)
            own = torch.where(own == token, others[picked], own)
        own[torch.randperm(len(sites), generator=generator)[:count]] = token
        state[sites] = own
    return states


def equilibrate_others(
    conditionals: Conditionals,
    states: Tensor,
    free: Tensor,
    *,
    token: int,
    n_steps: int,
    temperature: float = 1.0,
    seed: int = 0,
) -> Tensor:
    """The states (rows, length) after n_steps in which only sites without the token are redrawn.

    The token itself is never drawn, so each state keeps its copies and the rest is a state of
    the chain given them.
    """
    movable = free & (states != token)
    if n_steps == 0 or not bool(movable.any(1).all()):
        return states
    allowed = torch.ones(conditionals.vocab_size, dtype=torch.bool, device=states.device)
    allowed[token] = False
    kernel = glauber(Restricted(conditionals, allowed))
    state = start(states, movable, temperature=temperature, device=states.device)
    with track("steps of the other sites", n_steps) as advance:
        for after, _ in run(kernel, state, n_steps, seed=seed):
            state = after
            advance()
    return state.tokens


def _check_copies(n_sites: int, count: int, samples: int) -> None:
    if samples < 1:
        raise GlauberError(f"the number of samples is {samples}, but it must be at least 1.")
    if not 1 <= count <= n_sites:
        raise GlauberError(
            f"the count is {count}, but {n_sites} free tokens hold 1 to {n_sites} copies."
        )


def sample_drift(
    conditionals: Conditionals,
    texts: Tensor,
    free: Tensor,
    *,
    token: int,
    counts: Iterable[int],
    samples: int = 200,
    temperature: float = 1.0,
    n_steps: int = 0,
    seed: int = 0,
) -> DriftCertificate:
    """Drift at states with k copies of a token at random places, for each k of counts.

    The other sites come from texts (rows, length), moved by n_steps of the chain; free is
    (length,).
    """

    def level(count: int) -> LevelDrift:
        states = with_copies(
            texts, free, token=token, count=count, samples=samples, seed=seed + count
        )
        states = equilibrate_others(
            conditionals,
            states,
            free,
            token=token,
            n_steps=n_steps,
            temperature=temperature,
            seed=seed,
        )
        change = expected_change(conditionals, states, free, token=token, temperature=temperature)
        return LevelDrift(count, change)

    return certify([level(count) for count in counts], exhaustive=False)


def escape_times(
    conditionals: Conditionals,
    tokens: Tensor,
    free: Tensor,
    *,
    token: int,
    n_steps: int,
    temperature: float = 1.0,
    seed: int = 0,
) -> EscapeTimes:
    """Steps until chains from tokens (chains, length) have lost 1, 2, … n of their n free copies.

    free (length,) is the same for every chain.
    """
    n = int(free.sum())
    times = np.full((len(tokens), n), n_steps)
    escaped = np.zeros((len(tokens), n), bool)
    state = start(tokens, free.repeat(len(tokens), 1), temperature=temperature, device=free.device)
    with track("steps of the chains from copies alone", n_steps) as advance:
        kernel = glauber(conditionals)
        stream = run(kernel, state, n_steps, seed=seed)
        if state.tokens.device.type == "cpu":  # most steps ask about the same few states
            memo = Memo(conditionals.vocab_size, tokens.shape[1])
            stream = run_memoised(kernel, state, n_steps, seed=seed, memo=memo)
        for step, (after, _) in enumerate(stream, start=1):
            copies = (after.tokens[:, free] == token).sum(1).cpu().numpy()
            lost = n - copies[:, None] > np.arange(n)
            times[lost & ~escaped] = step
            escaped |= lost
            advance()
            if escaped.all():
                break
    return EscapeTimes(n_steps, times, escaped)
