"""The influence of each token of a text on each other one, and what follows for mixing.

c_ij = sup over contexts and over two tokens at j of TV(pi_i, pi_i'), and delta_ij = sup of
max_v - min_v of the difference of the two score vectors at i. Here i is the row and j the column:
the column sum is all the influence that site j exerts, and the contraction theorem speaks of the
largest column sum alpha. A token that only one of two contexts allows makes delta infinite.

The suprema run over every context and every change of one token. On the text of a real model some
contexts are sampled, and what is measured on them is a lower bound. Paper A takes the largest value
over tokens within each context and its mean over the contexts (appendix A.1), which is lower still;
both are reported. The coherence of a context is its pseudo-log-likelihood per token.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from torch import Tensor

from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import (
    ModelOrName,
    Seed,
    Temperature,
    Unknown,
    WhereAndDtype,
    check_temperatures,
)
from glauber.foundation.progress import check_memory, say, track
from glauber.foundation.statistics import (
    Estimate,
    mean_over_chains,
    rank_correlation,
    standard_error,
)
from glauber.foundation.study import Result, internal, needed, reported, study
from glauber.models.base import Conditionals, scores_alone
from glauber.models.batching import in_parts
from glauber.models.load import load
from glauber.studies.mixing.coherence import mean_log_prob
from glauber.texts.starts import starts

Floats = NDArray[np.float64]
PLOTS = "glauber.interfaces.plots.mixing"


def check_epsilon(name: str, value: float) -> None:
    """Refuses a distance that no two distributions have, or that all have."""
    if not 0 < value < 1:
        raise GlauberError(f"{name} is {value}, but it must lie between 0 and 1.")


Epsilon = Annotated[float, "epsilon of the mixing time t_mix(epsilon).", check_epsilon]


@study
def influence(
    model: ModelOrName = "bundled:english",
    text: Annotated[str | None, "The sentence."] = None,
    *,
    temperature: Temperature = 1.0,
    samples: Annotated[int, "Contexts: the text, and states of chains from it.", Whole()] = 4,
    replacements: Annotated[int, "Tokens tried at each site.", Whole()] = 4,
    against: Annotated[
        Sequence[float] | None,
        "Temperatures of the averaged influence, such as 0.5,1,2.",
        check_temperatures,
    ] = None,
    chains: Annotated[int, "Chains of the averaged influence.", Whole()] = 8,
    sweeps: Annotated[int, "Steps of a chain, in multiples of the length.", Whole(0, 10**6)] = 5,
    epsilon: Epsilon = 0.25,
    seed: Seed = 0,
    unknown: Unknown = "error",
    **where: Unpack[WhereAndDtype],
) -> "Influence":
    """Measure the influence between the tokens of a text, and what it implies for mixing.

    c_ij is the largest total variation at site i when the token at site j changes, alpha the
    largest sum of a column, and below alpha = 1 the chain mixes within n / (1 - alpha) log(n /
    epsilon) steps (paper A, Theorem 5 and appendix A.1). The suprema run over sampled contexts, so
    they are lower bounds; the temperatures above which the bounds delta / 4T (Corollary 7) and
    tanh(delta / 4T) contract, and the mixing time, are estimates. The paper's estimator, the mean
    over contexts in place of the supremum, is reported next to it, with the coherence of the
    contexts that attain the supremum. The influence that a chain meets on average is also
    estimated.
    """
    text = needed("text", text)
    temperatures = [temperature] if against is None else list(against)
    loaded_model = load(model, exact=True, **where)
    conditionals = loaded_model.conditionals()
    tokens, free = (
        part[0].to(loaded_model.state_device)
        for part in starts(loaded_model, [text], unknown=unknown)
    )
    _say_cost(int(free.sum()), samples, replacements, chains * len(temperatures), sweeps)
    contexts = sampled_contexts(
        conditionals,
        tokens,
        free,
        n_contexts=samples,
        n_values=replacements,
        temperature=temperature,
        n_sweeps=sweeps,
        seed=seed,
    )
    matrix = measure_influence(conditionals, contexts, temperature=temperature)
    averages = [
        averaged_influence(
            conditionals,
            tokens,
            free,
            temperature=value,
            n_chains=chains,
            n_sweeps=sweeps,
            seed=seed,
        )
        for value in temperatures
    ]
    return Influence(
        model=loaded_model.name,
        tokens=[loaded_model.vocabulary.spell(int(tokens[site])) for site in matrix.sites],
        matrix=matrix,
        averages=averages,
        n_contexts=samples,
        n_values=replacements,
        n_sweeps=sweeps,
        epsilon=epsilon,
    )


@dataclass(frozen=True, eq=False)
class ContextInfluence:
    """The largest values over tokens within each context, and how coherent the contexts are."""

    coherence: Floats  # (contexts,) pseudo-log-likelihood per token, in nats at temperature 1
    total_variation: Floats = internal()  # (contexts, n, n)
    oscillation: Floats = internal()  # (contexts, n, n)

    @reported
    def alpha(self) -> Floats:
        """The largest column sum within each context (contexts,)."""
        return np.asarray(self.total_variation.sum(axis=1).max(axis=1))

    @reported
    def shares_of_suprema(self) -> Floats:
        """The share of the pairs of sites whose supremum each context attains (contexts,)."""
        n = self.total_variation.shape[1]
        others = ~np.eye(n, dtype=bool)
        first = self.total_variation.argmax(axis=0)[others]
        return np.asarray(np.bincount(first, minlength=len(self.coherence)) / first.size)

    @reported
    def coherence_correlation(self) -> Estimate:
        """Rank correlation over contexts of coherence and alpha: above 0, coherent ones lead."""
        return rank_correlation(self.coherence, self.alpha)


@dataclass(frozen=True, eq=False)
class InfluenceMatrix:
    """Suprema over some contexts (lower bounds) or over all of them (exact)."""

    total_variation: Floats  # (n, n): c_ij, the influence of site j on site i; 0 at i = j
    oscillation: Floats  # (n, n): delta_ij, of the scores, before the temperature
    sites: tuple[int, ...]  # the n free sites, numbered in the row of tokens
    temperature: float
    kind: Literal["exact", "lower bound"]  # of both matrices, and of alpha
    contexts: ContextInfluence | None = None  # what the suprema were taken over

    @reported
    def mean_over_contexts(self) -> "InfluenceMatrix | None":
        """The paper's estimator: each entry is a mean over contexts, never above the supremum."""
        if self.contexts is None:
            return None
        each = self.contexts.total_variation, self.contexts.oscillation
        variation, oscillation = (np.asarray(values.mean(axis=0)) for values in each)
        return InfluenceMatrix(variation, oscillation, self.sites, self.temperature, "lower bound")

    @reported
    def column_sums(self) -> Floats:
        """All the influence that each site exerts (n,)."""
        return np.asarray(self.total_variation.sum(axis=0))

    @reported
    def alpha(self) -> float:
        """The largest column sum; below 1 the chain contracts."""
        return float(self.column_sums.max())

    @reported
    def threshold(self) -> float:
        """The temperature above which the tanh bound on alpha is below 1 (see threshold_kind)."""
        return contraction_temperature(self.oscillation)

    @reported
    def linear_threshold(self) -> float:
        """max_j sum_i delta_ij / 4, the temperature of Corollary 7; never below `threshold`."""
        return linear_threshold(self.oscillation)

    @reported
    def threshold_kind(self) -> Literal["upper bound", "estimate"]:
        """An upper bound on where contraction sets in, or an estimate from sampled suprema."""
        return "upper bound" if self.kind == "exact" else "estimate"

    def mixing_time(self, epsilon: float = 0.25) -> int | None:
        """ceil(n / (1 - alpha) * log(n / epsilon)), or None where alpha >= 1.

        An upper bound on t_mix(epsilon) for an exact alpha, an estimate for a sampled one.
        """
        if self.alpha >= 1:
            return None
        n = len(self.sites)
        return math.ceil(n / (1 - self.alpha) * math.log(n / epsilon))


@dataclass(frozen=True, eq=False)
class AveragedInfluence:
    """The influence that a chain meets on average, where the theorem asks for the worst.

    The average is over states x of n_chains independent chains and over one change at j, drawn
    from pi_j(. | x_-j) among the tokens other than x_j: what a disagreement of two chains would
    look like. Estimates.
    """

    temperature: float
    coherence: Floats  # (n_chains,) pseudo-log-likelihood per token of the states, at temperature 1
    by_chain: Floats = internal()  # (n_chains, n, n): of the change at j on i, in column j

    @property
    def matrix(self) -> Floats:
        """The mean over the chains (n, n)."""
        return np.asarray(self.by_chain.mean(axis=0))

    @property
    def mean(self) -> float:
        """The mean over sites j of the influence that j exerts: 1 is where disagreement grows."""
        return float(self.per_chain.mean())

    @property
    def per_chain(self) -> Floats:
        """The same mean for each chain (n_chains,)."""
        return np.asarray(self.by_chain.sum(axis=1).mean(axis=1))

    @reported
    def estimate(self) -> Estimate:
        """The mean, with its interval over chains."""
        return mean_over_chains(self.per_chain)

    def mixing_time(self, epsilon: float = 0.25) -> int | None:
        """Theorem 5's time with the mean in place of alpha, or None where it is not below 1.

        A heuristic estimate and no bound: the theorem needs the worst case.
        """
        n = self.by_chain.shape[1]
        return None if self.mean >= 1 else math.ceil(n / (1 - self.mean) * math.log(n / epsilon))

    @reported
    def standard_error(self) -> float | None:
        """Of the mean, from the spread between chains; None for a single one."""
        return standard_error(self.per_chain) if len(self.by_chain) > 1 else None


@dataclass(frozen=True, eq=False)
class Influence(Result):
    """The influence of each token of a text on each other one, and what follows from it."""

    model: str
    tokens: list[str]  # (n,) as the vocabulary spells them
    matrix: InfluenceMatrix
    averages: list[AveragedInfluence]  # one for each temperature
    n_contexts: int  # the text, and states of chains that started from it
    n_values: int  # replacements at each site
    n_sweeps: int  # of these chains
    epsilon: float

    FIGURES = {
        "influence": (f"{PLOTS}:plot_influence", "matrix", "tokens"),
        "averaged": (f"{PLOTS}:plot_averaged_influence", "_averages_to_compare"),
    }

    @property
    def total_variation(self) -> Floats:
        """c_ij (n, n): the influence of site j on site i, lower bounds."""
        return self.matrix.total_variation

    @property
    def alpha(self) -> float:
        """The largest column sum of c, a lower bound; below 1 the chain contracts."""
        return self.matrix.alpha

    @property
    def threshold(self) -> float:
        """An estimate of the temperature above which the chain contracts."""
        return self.matrix.threshold

    @reported
    def mixing_time(self) -> int | None:
        """An estimate of a bound on t_mix(epsilon); None where alpha is not below 1."""
        return self.matrix.mixing_time(self.epsilon)

    @property
    def _averages_to_compare(self) -> list[AveragedInfluence] | None:
        return self.averages if len(self.averages) > 1 else None

    def lines(self) -> Iterable[str]:
        matrix = self.matrix
        width = max(len(token) for token in self.tokens)
        yield (
            f"influence that each token exerts on all others, at temperature "
            f"{matrix.temperature:g} ({matrix.kind}s, from {self.n_contexts} contexts and "
            f"{self.n_values} replacements a site)"
        )
        for site, token in enumerate(self.tokens):
            yield f"{site:>4}  {token:>{width}}  {matrix.column_sums[site]:6.3f}"
        yield f"alpha, the largest of these: {matrix.alpha:.4g} ({matrix.kind})"
        yield (
            f"contraction threshold temperature, from tanh(delta / (4 T)): {matrix.threshold:.4g} "
            f"({matrix.threshold_kind}); from delta / (4 T), Corollary 7: "
            f"{matrix.linear_threshold:.4g}"
        )
        yield from self._context_lines()
        name, time = f"t_mix({self.epsilon:g})", self.mixing_time
        if time is None:
            yield f"{name}: alpha is not below 1, so the theorem promises nothing"
        else:
            yield f"{name}: {time:,} steps (estimate)"
        for average in self.averages:
            yield (
                f"influence met on average along a chain at temperature {average.temperature:g}: "
                f"{average.estimate.text()} (estimate)"
            )
            if (heuristic := average.mixing_time(self.epsilon)) is not None:
                yield f"  with it in place of alpha, {name}: {heuristic:,} steps (no bound)"

    def _context_lines(self) -> Iterable[str]:
        """The paper's estimator, and the context that attains most of the suprema."""
        contexts, mean = self.matrix.contexts, self.matrix.mean_over_contexts
        if contexts is None or mean is None:
            return
        yield (
            f"mean over contexts in place of the supremum (the paper's estimator): alpha "
            f"{mean.alpha:.4g} (lower bound), thresholds {mean.threshold:.4g} and "
            f"{mean.linear_threshold:.4g}"
        )
        most, text = int(contexts.shares_of_suprema.argmax()), contexts.coherence[0]
        which = "the text itself" if most == 0 else f"chain {most}"
        yield (
            f"{contexts.shares_of_suprema[most]:.0%} of the suprema are attained in {which}: "
            f"{contexts.coherence[most]:.3g} nats a token, the text {text:.3g} "
            "(pseudo-log-likelihood at temperature 1)"
        )

    def table(self) -> dict[str, object]:
        """One row per ordered pair of sites, counted from 0 without special tokens."""
        n = len(self.tokens)
        onto, by = (axis[~np.eye(n, dtype=bool)] for axis in np.indices((n, n)))
        return {
            "site": by,
            "token": [self.tokens[j] for j in by],
            "on_site": onto,
            "on_token": [self.tokens[i] for i in onto],
            "influence": self.matrix.total_variation[onto, by],
            "oscillation": self.matrix.oscillation[onto, by],
        }


def _say_cost(n: int, samples: int, replacements: int, chains: int, sweeps: int) -> None:
    suprema = samples * n * (2 + replacements * (n - 1))
    averages = chains * n * (2 + n - 1 + sweeps)
    say(f"{suprema + averages + samples * n * (1 + sweeps):,} rows of {n} tokens go through it")


def measure_influence(
    conditionals: Conditionals, contexts: "Contexts", *, temperature: float = 1.0
) -> InfluenceMatrix:
    """c_ij and delta_ij as suprema over the contexts and all pairs of tokens tried at j."""
    n, n_contexts = len(contexts.sites), len(contexts.tokens)
    variation, oscillation = np.zeros((2, n_contexts, n, n))
    coherences = np.zeros(n_contexts)
    n_values = contexts.values.shape[2] + 1
    every = torch.arange(n_contexts)
    batches = list(in_parts(every, n * n_values * conditionals.vocab_size))
    with track("changed sites", n * len(batches)) as advance:
        for rows in batches:
            part = replace(contexts, tokens=contexts.tokens[rows], values=contexts.values[rows])
            coherences[rows.numpy()] = coherence(conditionals, part.tokens, part.sites)
            for j, scores in scores_by_value(conditionals, part):
                where = np.ix_(rows.numpy(), np.arange(n) != j, np.array([j]))
                variation[where] = _largest_variation(_probabilities(scores, temperature))[
                    ..., None
                ]
                oscillation[where] = _largest_swing(scores)[..., None]
                advance()
    return InfluenceMatrix(
        variation.max(axis=0),
        oscillation.max(axis=0),
        tuple(contexts.sites.tolist()),
        temperature,
        contexts.kind,
        ContextInfluence(coherences, variation, oscillation),
    )


def coherence(conditionals: Conditionals, tokens: Tensor, sites: Tensor) -> Floats:
    """The pseudo-log-likelihood per token (rows,) of the sites of each row, at temperature 1."""
    free = torch.zeros_like(tokens, dtype=torch.bool)
    free[:, sites] = True
    return mean_log_prob(conditionals, tokens, free)


def averaged_influence(
    conditionals: Conditionals,
    tokens: Tensor,
    free: Tensor,
    *,
    temperature: float,
    n_chains: int = 8,
    n_sweeps: int = 5,
    seed: int = 0,
) -> AveragedInfluence:
    """The influence met by chains n_sweeps * n steps after the text; tokens and free (length,)."""
    sites = free_sites(free)
    n_steps = n_sweeps * len(sites)
    states = chain_states(conditionals, tokens, free, n_chains, n_steps, temperature, seed)
    return influence_at(conditionals, states, sites, temperature=temperature, seed=seed)


def influence_at(
    conditionals: Conditionals, states: Tensor, sites: Tensor, *, temperature: float, seed: int = 0
) -> AveragedInfluence:
    """The influence of one drawn change at each site of the states (chains, length)."""
    generator = torch.Generator().manual_seed(seed)
    values = draw_replacements(conditionals, states, sites, 1, temperature, generator)
    variation = np.zeros((len(states), len(sites), len(sites)))
    contexts = Contexts(states, sites, values, "lower bound")
    with track(f"changed sites at temperature {temperature:g}", len(sites)) as advance:
        for j, scores in scores_by_value(conditionals, contexts):
            before, after = _probabilities(scores, temperature)
            others = np.arange(len(sites)) != j
            variation[:, others, j] = ((after - before).abs().sum(-1) / 2).cpu().numpy()
            advance()
    return AveragedInfluence(temperature, coherence(conditionals, states, sites), variation)


def linear_threshold(oscillation: Floats) -> float:
    """max_j sum_{i != j} delta_ij / 4: above it alpha < 1, as delta / (4 temperature) >= c_ij.

    The form of Corollary 7, with the sharp constant 1/4; the paper's is lost in our text.
    """
    return (
        float(np.where(np.eye(len(oscillation), dtype=bool), 0, oscillation).sum(axis=0).max()) / 4
    )


def contraction_temperature(oscillation: Floats) -> float:
    """The temperature at which max_j sum_{i != j} tanh(delta_ij / (4 temperature)) is 1.

    oscillation (n, n) contains delta_ij, the influence of j on i in column j. Above the root alpha
    is below 1, because c_ij <= tanh(delta_ij / (4 temperature)). Every term is at most 1, so
    columns with fewer than two entries above zero never exceed 1: then the answer is zero, as
    always at n = 2. It is infinite where a column has an infinite entry and another one.
    """
    delta = np.where(np.eye(len(oscillation), dtype=bool), 0.0, oscillation)
    several = (delta > 0).sum(axis=0) > 1
    if (np.isinf(delta).any(axis=0) & several).any():
        return math.inf
    delta = delta[:, several]
    if delta.size == 0:
        return 0.0

    def excess(temperature: float) -> float:
        return float(np.tanh(delta / (4 * temperature)).sum(axis=0).max()) - 1

    high = float(delta.sum(axis=0).max()) / 4  # tanh(x) < x, so the sum is below 1 here
    low = high
    while excess(low) <= 0:
        low /= 2
    return float(brentq(excess, low, high, xtol=1e-12 * high)) if low < high else high


@dataclass(frozen=True, eq=False)
class Contexts:
    """States, and the tokens tried in place of the one at each of their n free sites."""

    tokens: Tensor  # (rows, length) int64
    sites: Tensor  # (n,) int64: the free sites
    values: Tensor  # (rows, n, m) int64: replacements
    kind: Literal["exact", "lower bound"]  # of a supremum over them


def sampled_contexts(
    conditionals: Conditionals,
    tokens: Tensor,
    free: Tensor,
    *,
    n_contexts: int,
    n_values: int = 4,
    temperature: float = 1.0,
    n_sweeps: int = 5,
    seed: int = 0,
) -> Contexts:
    """The text itself and states of chains that started from it, with replacements at each site.

    tokens and free (length,). There are n_contexts - 1 independent chains of n_sweeps * n steps.
    Every second replacement is uniform over the tokens that the model allows there; the others
    (the first among them) are drawn from the conditional at the temperature.
    """
    sites = free_sites(free)
    _check_size(n_contexts, len(sites), n_values, conditionals.vocab_size)
    n_steps = n_sweeps * len(sites)
    chains = chain_states(conditionals, tokens, free, n_contexts - 1, n_steps, temperature, seed)
    states = torch.cat([tokens[None], chains])
    generator = torch.Generator().manual_seed(seed)
    # An infinite temperature would be uniform; at 1e9 the scores no longer matter.
    values = [
        draw_replacements(conditionals, states, sites, count, sampling_temperature, generator)
        for count, sampling_temperature in (
            ((n_values + 1) // 2, temperature),
            (n_values // 2, 1e9),
        )
    ]
    return Contexts(states, sites, torch.cat(values, dim=2), "lower bound")


def free_sites(free: Tensor) -> Tensor:
    """The numbers (n,) of the free sites; at least two, or nothing can influence anything."""
    sites = free.nonzero()[:, 0]
    if len(sites) < 2:
        raise GlauberError(
            f"the text has {len(sites)} free token, but influence needs two: give a longer one."
        )
    return sites


def chain_states(
    conditionals: Conditionals,
    tokens: Tensor,
    free: Tensor,
    n_chains: int,
    n_steps: int,
    temperature: float,
    seed: int,
) -> Tensor:
    """Where independent chains are n_steps after the text: (n_chains, length)."""
    if n_chains == 0:
        return tokens[None][:0]
    rows = tokens.repeat(n_chains, 1), free.repeat(n_chains, 1)
    state = start(*rows, temperature=temperature, device=tokens.device)
    with track("chain steps", n_steps) as advance:
        for after, _ in run(glauber(conditionals), state, n_steps, seed=seed):
            state = after
            advance()
    return state.tokens


def draw_replacements(
    conditionals: Conditionals,
    states: Tensor,
    sites: Tensor,
    n_values: int,
    temperature: float,
    generator: torch.Generator,
) -> Tensor:
    """Tokens (rows, n, n_values) other than the present one, from the conditional of each site.

    Drawn without repeats (the largest of log-probability plus Gumbel noise). Where the model allows
    fewer other tokens than n_values, the first is repeated.
    """
    values = []
    for row in states:
        scores = scores_alone(conditionals, row[None], sites)[0]
        values.append(_other_tokens(scores, row[sites], n_values, temperature, generator))
    return torch.stack(values)


def _other_tokens(
    scores: Tensor, present: Tensor, n_values: int, temperature: float, generator: torch.Generator
) -> Tensor:
    scores = scores.scatter(1, present[:, None], -torch.inf)
    scores = scores - scores.amax(dim=1, keepdim=True).clamp(min=-1e300)  # no overflow when cold
    uniform = torch.rand(scores.shape, generator=generator, dtype=torch.float64)
    keys = scores / temperature - (-uniform.log()).log().to(scores.device)
    best = keys.topk(min(n_values, keys.shape[1]), dim=1)
    first = best.indices[:, :1]
    if bool((best.values[:, :1] == -torch.inf).any()):
        raise GlauberError("at some site only one token is possible, so there is nothing to swap.")
    return torch.where(best.values == -torch.inf, first, best.indices)


def _check_size(n_contexts: int, n_sites: int, n_values: int, vocab: int) -> None:
    """Refuses what would not fit: all contexts at once, and the scores of a single one."""
    stored = n_contexts * (n_sites * n_values + 2 * vocab + 2 * n_sites**2) * 8
    of_one = 3 * n_sites * (1 + min(n_values, vocab)) * vocab * 8
    check_memory(stored + of_one, f"{n_contexts:,} contexts with {n_values:,} replacements a site")


def scores_by_value(conditionals: Conditionals, contexts: Contexts) -> Iterator[tuple[int, Tensor]]:
    """For each j: scores (1 + m, rows, n - 1, vocab) at the other sites, by the token at the j-th.

    The first is the state as it is, the others have the m replacements at that site.
    """
    tokens, sites = contexts.tokens, contexts.sites
    before = scores_alone(conditionals, tokens, sites)
    for j, site in enumerate(sites.tolist()):
        changed = tokens.repeat(contexts.values.shape[2], 1)
        changed[:, site] = contexts.values[:, j].T.flatten()
        others = torch.arange(len(sites), device=sites.device) != j
        after = scores_alone(conditionals, changed, sites[others])
        yield j, torch.cat([before[None, :, others], after.view(-1, *before[:, others].shape)])


def _probabilities(scores: Tensor, temperature: float) -> Tensor:
    """Softmax over the last axis; the largest score first, so that no quotient overflows."""
    return torch.softmax((scores - scores.amax(dim=-1, keepdim=True)) / temperature, dim=-1)


def _largest_variation(probabilities: Tensor) -> Floats:
    """The largest total variation (rows, n - 1) over tokens of (values, rows, n - 1, vocab)."""
    best = probabilities.new_zeros(probabilities.shape[1:3])
    for a, first in enumerate(probabilities[:-1]):
        distances = (probabilities[a + 1 :] - first).abs().sum(-1) / 2
        best = torch.maximum(best, distances.amax(0))
    return np.asarray(best.clamp(max=1).cpu().numpy())


def _largest_swing(scores: Tensor) -> Floats:
    """The largest max - min over tokens (rows, n - 1) of the difference of two score vectors.

    Tokens that are forbidden in both contexts do not count.
    """
    best = scores.new_zeros(scores.shape[1:3])
    for a, first in enumerate(scores[:-1]):
        difference = scores[a + 1 :] - first  # nan where both are -inf
        top = torch.where(difference.isnan(), -torch.inf, difference).amax(-1)
        bottom = torch.where(difference.isnan(), torch.inf, difference).amin(-1)
        best = torch.maximum(best, (top - bottom).amax(0))
    return np.asarray(best.cpu().numpy())
