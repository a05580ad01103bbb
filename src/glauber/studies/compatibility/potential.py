"""The function of the text that explains the conditionals best, and how much none explains.

States that differ at one site are joined by an edge, and the edge from token a to b at site i
carries the flow log pi_i(b | rest) - log pi_i(a | rest). If the conditionals have a joint
distribution, the flow is the gradient of its logarithm. If not, least squares splits the flow into
the gradient of a potential, the nearest thing to a log joint, and a residual that is orthogonal to
every gradient (Hodge decomposition): the part that no joint distribution can explain.

Whether potential, pseudo-log-likelihood and the chain itself put texts in the same order is another
question. For a joint distribution whose sites are independent they do. In general even a joint
distribution and its pseudo-log-likelihood rank texts differently; incompatibility adds to that.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, lsqr
from scipy.special import log_softmax
from scipy.stats import spearmanr
from torch import Tensor

from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import RunDevice, Trust, check_temperatures
from glauber.foundation.progress import check_memory, say, track
from glauber.foundation.statistics import Estimate, jackknife
from glauber.foundation.study import Result, counted, internal, reported, study
from glauber.models.base import PAD, Conditionals
from glauber.models.batching import in_parts
from glauber.models.weights import check_device
from glauber.runs.run import Run
from glauber.runs.spec import refuse_ties
from glauber.sampling.reopened import COARSE, drawn_from
from glauber.studies.compatibility.entropy_production import check_burn_in
from glauber.studies.compatibility.pseudo_likelihood import pseudo_likelihood

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
COPIES = 8  # of all states, in memory at once while their edges are found
DIGITS = 9  # values closer than this many decimals (in nats) count as tied: rounding is no rank
ITERATIONS = 50_000  # over all states of a space, `length` of them are enough
PAIRS = {
    "pll_visits": "pseudo-log-likelihood and visits",
    "potential_visits": "potential and visits",
    "potential_pll": "potential and pseudo-log-likelihood",
}


@study
def potential(
    run: Annotated[Run | str | Path, "Folder of a run."],
    *,
    states: Annotated[int, "How many of the most visited states.", Whole(2, 10**6)] = 100,
    neighbours: Annotated[
        int, "Most probable tokens of each site to add as neighbours (0: none).", Whole(0)
    ] = 2,
    burn_in: Annotated[int | None, "Steps not counted (default: half)."] = None,
    temperature: Annotated[
        float | None,
        "Of a run with several, the chains at this one (default: the coldest).",
        check_temperatures,
    ] = None,
    show: Annotated[int, "How many texts to print.", Whole(0)] = 5,
    device: RunDevice = None,
    trust_remote_code: Trust = False,
) -> "PotentialStudy":
    """Rank a run's texts by potential, pseudo-log-likelihood and number of visits.

    The flow log pi_i(b) - log pi_i(a) over the edges between the visited states, and their likely
    neighbours, is split into the gradient of a potential and a residual that no joint distribution
    can explain (Hodge decomposition by least squares). Texts compare best where chains come back
    to them: cold runs, or few free sites. Of a run drawn in int8 or bfloat16 the conditionals are
    evaluated in float32.
    """
    check_device(device)
    stored_run = Run.of(run)
    refuse_ties(stored_run.spec, "a potential")
    if stored_run.spec.budget is not None:
        raise GlauberError(
            "a potential compares all states by one rule, but within max-changes each chain has "
            "a rule of its own."
        )
    if stored_run.steps == 0:
        raise GlauberError(f"the run {stored_run.name} has no steps yet, so it visited nothing.")
    chains, temperature = _chains_at(stored_run, temperature)
    visits = count_visits(stored_run, burn_in=burn_in, most=states, chains=chains)
    _check_size(visits, neighbours)
    model = drawn_from(stored_run, device=device, trust_remote_code=trust_remote_code)
    conditionals = model.conditionals
    added = None
    if neighbours:
        added = add_likely_neighbours(conditionals, visits.states, visits.free, top=neighbours)
    ranking = rank(
        conditionals,
        visits.states,
        visits.counts,
        free=visits.free,
        neighbours=added,
        temperature=temperature,
    )
    order = np.argsort(-ranking.potential, kind="stable")
    split = ranking.split
    decode = stored_run.vocabulary.decode
    return PotentialStudy(
        run=stored_run.name,
        temperature=temperature,
        n_chains=len(chains),
        chains_of_run=stored_run.n_chains,
        dtype=stored_run.spec.dtype,
        share=split.share,
        n_states=len(split.states),
        n_edges=split.n_edges,
        n_cycles=split.n_cycles,
        n_visited=visits.n_visited,
        n_steps=visits.n_steps,
        burn_in=visits.burn_in,
        texts=[decode(ranking.states[i].tolist()) for i in order],
        potential=ranking.potential[order],
        pll=ranking.pll[order],
        steps=ranking.weights[order].astype(np.int64),
        by_chain=visits.by_chain[:, places_of(ranking.states, visits.states)[order]],
        show=show,
    )


@dataclass(frozen=True, eq=False)
class PotentialStudy(Result):
    """The visited texts of a run in order of falling potential, and the share none explains."""

    run: str
    temperature: float
    n_chains: int  # at that temperature
    chains_of_run: int  # of all temperatures
    dtype: str  # that the run was drawn in
    share: float  # of the flow's squared norm that no joint distribution can explain, in [0, 1]
    n_states: int  # between which the flow was split
    n_edges: int  # Number of edges between these states
    n_cycles: int  # independent closed walks that test the conditionals
    n_visited: int  # different states in all
    n_steps: int  # counted in all
    burn_in: int
    texts: list[str]
    potential: Floats  # (texts,) in nats, up to a constant
    pll: Floats  # (texts,) in nats
    steps: Ints  # (texts,) that chains spent there
    by_chain: Ints = internal()  # (chains, texts) the same for each chain
    show: int = internal()

    FIGURES = {
        "visits": (
            "glauber.interfaces.plots.compatibility:plot_potential",
            "potential",
            "pll",
            "steps",
            "texts",
        )
    }

    @reported
    def n_ranked(self) -> int:
        """Number of texts that are ranked."""
        return len(self.texts)

    @reported
    def kind(self) -> str:
        """What the share is."""
        if self.dtype in COARSE:
            return f"for these states and edges, in float32; the run was drawn in {self.dtype}"
        return "exact for these states and edges"

    @reported
    def correlations(self) -> dict[str, Estimate | None]:
        """Spearman's, with intervals from leaving out each chain, and what only it visited, once.

        None where one of the two lists has no order.
        """
        lists = {"potential": self.potential, "pll": self.pll, "visits": np.log(self.steps)}

        def correlation(pair: str, weights: Floats) -> Floats:
            steps = weights @ self.by_chain
            columns = lists | {"visits": steps}
            value = _correlation(*(columns[name][steps > 0] for name in pair.split("_")))
            return np.array(np.nan if value is None else value)

        return {
            pair: None
            if _correlation(*(lists[name] for name in pair.split("_"))) is None
            else jackknife(partial(correlation, pair), self.n_chains, scale="atanh").item()
            for pair in PAIRS
        }

    @reported
    def sizes(self) -> dict[str, dict[str, Estimate]]:
        """How exp(potential), and the exponential of the pseudo-log-likelihood, match the visits.

        Among the ranked texts. Few visits differ from any distribution by chance, so that total
        variation and divergence are too large on average; the slope is not.
        """

        def match(score: Floats, weights: Floats) -> Floats:
            seen = (steps := weights @ self.by_chain) > 0
            return np.array(
                size_match(score[seen], steps[seen])[:3] if seen.any() else [np.nan] * 3
            )

        names = SizeMatch._fields[:3]
        sizes = {}
        for name, score in (("potential", self.potential), ("pll", self.pll)):
            estimates = jackknife(partial(match, score), self.n_chains)
            sizes[name] = {measure: estimates.item(k) for k, measure in enumerate(names)}
        return sizes

    def lines(self) -> Iterable[str]:
        yield (
            f"{self.share:.2%} of the flow over {self.n_edges:,} edges between "
            f"{self.n_states:,} states is explained by no joint distribution ({self.kind}; "
            f"{self.n_cycles:,} independent closed walks test it)"
        )
        if self.n_chains < self.chains_of_run:
            yield (
                f"the run has several temperatures: here are its "
                f"{counted(self.n_chains, 'chain')} at {self.temperature:g}"
            )
        yield f"rank correlations over {len(self.texts)} visited states (estimates):"
        correlations = self.correlations
        for pair, name in PAIRS.items():
            value = correlations[pair]
            yield f"  {name:>36}  " + ("no order to compare" if value is None else value.text())
        for name, match in self.sizes.items():
            parts = (
                f"{measure.replace('_', ' ')} {each.text()}" for measure, each in match.items()
            )
            yield f"  exp({name}) against visits, in size: {', '.join(parts)}"
        if self.show:
            yield "  potential     PLL  steps  text"
        rows = zip(self.potential, self.pll, self.steps, self.texts, strict=True)
        for value, pll, steps, text in list(rows)[: self.show]:
            yield f"  {value:9.3f} {pll:7.2f} {steps:6,}  {text}"

    def table(self) -> dict[str, object]:
        """One row per ranked text."""
        columns = {"text": self.texts, "potential": self.potential, "pll": self.pll}
        return columns | {"steps": self.steps}


def _chains_at(run: Run, temperature: float | None) -> tuple[Ints, float]:
    """The chains at that temperature (default: the coldest of the run), and the temperature."""
    temperature = float(run.temperatures.min()) if temperature is None else temperature
    chains = np.flatnonzero(run.temperatures == temperature)
    if len(chains) == 0:
        known = ", ".join(f"{value:g}" for value in np.unique(run.temperatures))
        raise GlauberError(f"no chain has the temperature {temperature:g}: the run has {known}.")
    return chains, temperature


def _check_size(visits: "VisitCounts", neighbours: int) -> None:
    """Says what it will cost, and refuses what does not fit the memory."""
    sites, length = int(visits.free.sum()), visits.states.shape[1]
    rows = len(visits.states) + sites * neighbours
    check_memory(8 * COPIES * rows * length, f"{rows:,} states of {length} tokens")
    questions = sites * (2 + neighbours) if neighbours else sites
    say(f"{len(visits.states)} states, about {questions:,} evaluations of the model")


def _correlation(left: ArrayLike, right: ArrayLike) -> float | None:
    """Spearman's correlation of two lists (states,) of logarithms; ties share their mean rank.

    None where all values of a list are equal, so that there is no order to compare.
    """
    a, b = (np.round(np.asarray(values, np.float64), DIGITS) for values in (left, right))
    if len(a) < 2 or (a == a[0]).all() or (b == b[0]).all():
        return None
    return float(spearmanr(a, b).statistic)


class SizeMatch(NamedTuple):
    """How exp(score) matches a distribution over the same states in size, not in order alone."""

    total_variation: float
    divergence: float  # of Kullback and Leibler in nats, of the distribution from exp(score)
    slope: float  # of log-probabilities on scores, as the distribution weighs states; 1 is equal
    rank: float | None  # Spearman's correlation


def size_match(score: ArrayLike, weights: ArrayLike) -> SizeMatch:
    """The match of scores (states,) in nats with positive weights (states,) of any sum."""
    values, weight = np.asarray(score, np.float64), np.asarray(weights, np.float64)
    log_p, log_q = np.log(weight / weight.sum()), log_softmax(values)
    p, centred = np.exp(log_p), values - np.exp(log_p) @ values
    variance = float(p @ centred**2)
    return SizeMatch(
        total_variation=float(np.abs(p - np.exp(log_q)).sum() / 2),
        divergence=max(0.0, float(p @ (log_p - log_q))),
        slope=float(p @ (centred * log_p)) / variance if variance > 0 else np.nan,
        rank=_correlation(values, log_p),
    )


@dataclass(frozen=True, eq=False)
class HodgeDecomposition:
    """The split of the flow over the edges between the given states.

    The potential has mean zero over each connected set of states; values in different sets do
    not compare. Where `n_cycles` is 0 no closed walk tests the conditionals and share is 0 by
    construction. Exact for these states and edges; over part of the space it says nothing about
    the rest of it.
    """

    states: Tensor  # (states, length) int64, each once
    values: Floats  # (states,) the potential, in nats
    component: Ints  # (states,) which connected set a state is in
    n_edges: int
    n_cycles: int  # dimensions of the flows that agree at each site but have no potential
    squared_flow: float  # squared norm of the flow over the edges
    residual: float  # squared norm of what the potential leaves

    @property
    def share(self) -> float:
        """Share of the flow's squared norm that no joint distribution can explain, in [0, 1]."""
        return self.residual / self.squared_flow if self.squared_flow > 0 else 0.0

    @property
    def unexplained(self) -> float:
        """Root mean square of what the potential leaves, over the edges, in nats."""
        return float(np.sqrt(self.residual / self.n_edges))


def decompose(
    conditionals: Conditionals, states: Tensor, *, temperature: float = 1.0
) -> HodgeDecomposition:
    """The best potential over the states (rows, length) and all edges between them.

    With all states of a space (`Space.states()`) it is that of the whole model; else that of the
    states which were, say, visited. Repeated rows count once.

    The m states that agree outside site i are all joined to each other, and their m (m - 1) / 2
    edges together ask for  m * sum over them of (r - mean r)^2,  r = potential - log pi_i.  So
    there is one equation for each state in each such clique, not one for each edge.
    """
    states = torch.unique(states, dim=0)
    cliques = _cliques(states)
    if not len(cliques.size):
        raise GlauberError("no two of the states differ at one site only, so there is no edge.")
    gradient = _gradient(cliques, len(states))
    flow = cliques.weight * cliques.deviations(
        _log_probs(conditionals, states, cliques) / temperature
    )
    values, stopped = lsqr(gradient, flow, atol=1e-15, btol=1e-15, conlim=0, iter_lim=ITERATIONS)[
        :2
    ]
    if stopped == 7:
        raise GlauberError(f"least squares did not settle within {ITERATIONS:,} iterations.")
    component, count = _components(cliques, len(states))
    values -= (np.bincount(component, values) / np.bincount(component))[component]
    return HodgeDecomposition(
        states,
        values,
        component,
        n_edges=int((cliques.size * (cliques.size - 1) // 2).sum()),
        n_cycles=int((cliques.size - 1).sum()) - (len(states) - count),
        squared_flow=float(flow @ flow),
        residual=float(((flow - gradient @ values) ** 2).sum()),
    )


class Cliques(NamedTuple):
    """Sets of at least two states that differ at one site only; members of a set together."""

    size: Ints  # (cliques,)
    of: Ints  # (members,) the clique of each member, increasing
    state: Ints  # (members,)
    site: Ints  # (members,)

    @property
    def weight(self) -> Floats:
        """Root of the size of each member's clique, (members,)."""
        return np.sqrt(self.size[self.of])

    def deviations(self, values: Floats) -> Floats:
        """Values (members,) less their mean over each clique."""
        return np.asarray(values - (np.bincount(self.of, values) / self.size)[self.of])


def _cliques(states: Tensor) -> Cliques:
    columns: list[tuple[Ints, Ints, Ints]] = []
    first = 0
    for site in range(states.shape[1]):
        rows = (states[:, site] != PAD).nonzero()[:, 0].numpy()
        others = np.delete(states.numpy()[rows], site, axis=1)
        _, of, size = np.unique(others, axis=0, return_inverse=True, return_counts=True)
        order = np.argsort(of, kind="stable")
        order = order[size[of[order]] > 1]  # a state by itself has no edge here
        _, of = np.unique(of[order], return_inverse=True)
        columns.append((of + first, rows[order], np.full(len(order), site)))
        first += int(of.max(initial=-1)) + 1
    of, state, sites = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Cliques(np.bincount(of), of, state, sites)


def _gradient(cliques: Cliques, n_states: int) -> LinearOperator:
    """The operator from a potential (states,) to its weighted equations (members,)."""

    def forward(values: Floats) -> Floats:
        return cliques.weight * cliques.deviations(values.ravel()[cliques.state])

    def backward(residual: Floats) -> Floats:
        spread = cliques.weight * cliques.deviations(residual.ravel())
        return np.asarray(np.bincount(cliques.state, spread, minlength=n_states), np.float64)

    shape = (len(cliques.state), n_states)
    return LinearOperator(shape, matvec=forward, rmatvec=backward, dtype=np.float64)


def _log_probs(conditionals: Conditionals, states: Tensor, cliques: Cliques) -> Floats:
    """log pi_i of each member's token up to a constant of its clique, (members,)."""
    first = np.cumsum(cliques.size) - cliques.size  # the first member of each clique
    position = np.arange(len(cliques.of)) - first[cliques.of]
    token = states[cliques.state, cliques.site]
    # One question per clique; unused columns of its row of candidates repeat its first member's.
    candidates = token[first][:, None].repeat(1, int(cliques.size.max()))
    candidates[cliques.of, position] = token
    rows, sites = states[cliques.state[first]], torch.from_numpy(cliques.site[first])
    batches = []
    with track("edges", len(rows)) as advance:
        for part in in_parts(torch.arange(len(rows)), conditionals.vocab_size):
            questions = rows[part], sites[part, None], candidates[part, None]
            batches.append(conditionals.scores(*questions)[:, 0].double())
            advance(len(part))
    scores = torch.cat(batches)[cliques.of, position].numpy()
    if not np.isfinite(scores).all():
        raise GlauberError("a state contains a token of probability zero, so its flow is infinite.")
    return np.asarray(scores)


def _components(cliques: Cliques, n_states: int) -> tuple[Ints, int]:
    """The connected set of each state (states,), and how many sets there are."""
    nodes = n_states + len(cliques.size)
    links = (np.ones(len(cliques.of)), (cliques.state, n_states + cliques.of))
    count, label = connected_components(csr_array(links, shape=(nodes, nodes)), directed=False)
    return np.asarray(label[:n_states], np.int64), int(count)


def add_likely_neighbours(
    conditionals: Conditionals, tokens: Tensor, free: Tensor, *, top: int
) -> Tensor:
    """The states tokens (rows, length) and those with one free site refilled: (states, length).

    At each free site (rows, length) the `top` most probable tokens are put in, one at a time.
    Each state is listed once. The states of a trajectory alone close few walks. With their likely
    neighbours, two visited states that differ at one site share squares: the same token put at
    another site of both.
    """
    if top > conditionals.vocab_size:
        raise GlauberError(
            f"the {top} most probable tokens were asked for, but the vocabulary has "
            f"{conditionals.vocab_size}."
        )
    rows, sites = free.nonzero(as_tuple=True)
    states = [tokens]
    with track("sites", len(rows)) as advance:
        for part in in_parts(torch.arange(len(rows)), conditionals.vocab_size):
            texts, site = tokens[rows[part]], sites[part, None]
            best = conditionals.scores(texts, site)[:, 0].topk(top, dim=1)
            filled = texts.repeat_interleave(top, dim=0).scatter(
                1, site.repeat_interleave(top, dim=0), best.indices.reshape(-1, 1)
            )
            states.append(filled[best.values.flatten() > -torch.inf])
            advance(len(part))
    return torch.unique(torch.cat(states), dim=0)


@dataclass(frozen=True, eq=False)
class Ranking:
    """Three values for each of the same states: potential, pseudo-log-likelihood, weight."""

    states: Tensor  # (states, length), of one connected set
    potential: Floats  # (states,) in nats, up to a constant
    pll: Floats  # (states,) in nats
    weights: Floats  # (states,) probabilities, or how often each was visited
    split: HodgeDecomposition  # over all states, and the neighbours that were added


def rank(
    conditionals: Conditionals,
    states: Tensor,
    weights: ArrayLike,
    *,
    free: Tensor | None = None,
    neighbours: Tensor | None = None,
    temperature: float = 1.0,
) -> Ranking:
    """Potential, pseudo-log-likelihood and weight of the states (states, length), each once.

    weights (states,) are stationary probabilities, or how often a chain visited each state. free
    (states, length) marks the sites that the pseudo-log-likelihood counts. The states of
    `neighbours` help to find the potential and are not ranked. Values of the potential compare
    only within a connected set of states, so the set that contains most of them is ranked; states
    of weight zero are left out.
    """
    weights = np.asarray(weights, np.float64)
    possible = torch.from_numpy(np.flatnonzero(weights > 0))
    every = states[possible] if neighbours is None else torch.cat([states[possible], neighbours])
    split = decompose(conditionals, every, temperature=temperature)
    numbers = places_of(states[possible], split.states)
    component = split.component[numbers]
    chosen = np.flatnonzero(component == np.bincount(component).argmax())
    rows = possible[chosen]
    free = None if free is None else free[rows]
    pll = pseudo_likelihood(conditionals, states[rows], free, temperature=temperature)
    values = split.values[numbers[chosen]]
    return Ranking(states[rows], values, pll.nansum(dim=1).numpy(), weights[rows.numpy()], split)


def places_of(states: Tensor, among: Tensor) -> Ints:
    """Where each of the states (states, length) stands among others, which contain them."""
    number_of = {row.tobytes(): i for i, row in enumerate(among.numpy())}
    return np.array([number_of[row.tobytes()] for row in states.cpu().numpy()], np.int64)


class VisitCounts(NamedTuple):
    """States in order of how long chains stayed in them, each once."""

    states: Tensor  # (states, length) int64
    free: Tensor  # (states, length) bool: the sites that were redrawn
    counts: Ints  # (states,) steps spent there, all chains together
    by_chain: Ints  # (chains, states) the same for each chain
    n_visited: int  # different states in all, of which these are the most visited
    n_steps: int  # counted in all
    burn_in: int


def count_visits(
    run: Run, *, burn_in: int | None = None, most: int = 100, chains: Ints | None = None
) -> VisitCounts:
    """The `most` states in which the chains spent most steps after the burn-in (default: half).

    Chains that differ in their frozen tokens never share a state; neither do chains whose free
    sites differ, even where their tokens agree. Without `chains` all of them count.
    """
    burn_in = check_burn_in(burn_in, run.steps)
    chains = np.arange(run.n_chains) if chains is None else chains
    frees = [row.tobytes() for row in run.free[chains]]
    by_chain: list[Counter[tuple[bytes, bytes]]] = [Counter() for _ in chains]
    for step, tokens in run.states():
        if step > burn_in:
            for counts, row, free in zip(by_chain, tokens[chains], frees, strict=True):
                counts[row.tobytes(), free] += 1
    total = sum(by_chain, Counter[tuple[bytes, bytes]]())
    chosen = sorted(total, key=lambda state: (-total[state], state))[:most]
    return VisitCounts(
        states=torch.from_numpy(np.stack([np.frombuffer(x, np.int64) for x, _ in chosen])),
        free=torch.from_numpy(np.stack([np.frombuffer(f, np.bool_) for _, f in chosen])),
        counts=np.array([total[state] for state in chosen]),
        by_chain=np.array([[counts[state] for state in chosen] for counts in by_chain]),
        n_visited=len(total),
        n_steps=(run.steps - burn_in) * len(chains),
        burn_in=burn_in,
    )
