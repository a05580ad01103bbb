"""Does the number of copies of one token tend to grow?

N(x) counts the sites that hold token w. In one step it changes on average by
D(x) = 1/n sum_i (pi_i(w | x_-i) - 1[x_i = w]), by at most one. If D >= epsilon > 0 at every state
of the levels N = k .. k + m, then r^N with r = (1 - epsilon) / (1 + epsilon) is a supermartingale
there, and a chain at level k + m comes down to k before it climbs above k + m with chance at most
r^m. Drift at level k alone bounds nothing: a walk that is pushed back at its boundary only leaves
in polynomial time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import Conditionals, Restricted, check_temperature, scores_alone
from glauber.conditionals.batching import in_parts
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.errors import GlauberError
from glauber.progress import track
from glauber.statistics import clopper_pearson

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LevelDrift:
    """D at states with exactly `count` copies: a sample of them, or all."""

    count: int
    drifts: Floats  # (states,)

    @property
    def smallest(self) -> float:
        return float(self.drifts.min())

    @property
    def median(self) -> float:
        return float(np.median(self.drifts))

    @property
    def positive(self) -> int:
        """How many of the states have D > 0."""
        return int((self.drifts > 0).sum())

    def positive_share(self, confidence: float = 0.95) -> float:
        """Clopper-Pearson lower bound on the share of the sampled law with D > 0."""
        return lower_share(self.positive, len(self.drifts), confidence=confidence)


@dataclass(frozen=True, eq=False)
class DriftCertificate:
    """What the drift at levels k .. k + m says of the descent from k + m to k.

    From every state of those levels the bound is one. From samples it is an estimate: epsilon is
    the smallest D seen, and at least `share` of the sampled law of each level lies at or above
    it, at all levels together with the stated confidence.
    """

    levels: tuple[LevelDrift, ...]  # of k, k + 1, …, k + m
    kind: Literal["upper bound", "estimate"]  # of the time to descend
    confidence: float  # of all levels together

    @property
    def epsilon(self) -> float:
        """The smallest D over all levels."""
        return min(level.smallest for level in self.levels)

    @property
    def descent(self) -> float | None:
        """((1 - epsilon) / (1 + epsilon))^m; None where some D is not positive."""
        if self.epsilon <= 0:
            return None
        return float(((1 - self.epsilon) / (1 + self.epsilon)) ** (len(self.levels) - 1))

    @property
    def share(self) -> float:
        """Share of each level's law with D >= epsilon, at all levels together (1 if all known).

        The law's share above the smallest of s samples is Beta(s, 1), whatever the law; each
        level gets an equal part of the chance to be wrong.
        """
        if self.kind == "upper bound":
            return 1.0
        each = 1 - (1 - self.confidence) / len(self.levels)
        fewest = min(len(level.drifts) for level in self.levels)
        return lower_share(fewest, fewest, confidence=each)


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
    found = []
    with track("states", len(tokens)) as advance:
        for rows in in_parts(torch.arange(len(tokens)), len(sites) * conditionals.vocab_size):
            scores = scores_alone(conditionals, tokens[rows], sites)
            law = torch.softmax(scores / temperature, dim=-1)[:, :, token]
            found.append((law - (tokens[rows][:, sites] == token).double()).mean(1).cpu())
            advance(len(rows))
    return np.asarray(torch.cat(found).numpy())


def certify(
    levels: Sequence[LevelDrift], *, exhaustive: bool, confidence: float = 0.95
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


def settle(
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


def drift_study(
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
        states = settle(
            conditionals,
            states,
            free,
            token=token,
            n_steps=n_steps,
            temperature=temperature,
            seed=seed,
        )
        found = expected_change(conditionals, states, free, token=token, temperature=temperature)
        return LevelDrift(count, found)

    return certify([level(count) for count in counts], exhaustive=False)
