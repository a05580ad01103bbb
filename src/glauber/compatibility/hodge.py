"""Which function of the text explains the conditionals best, and how much does none explain?

States that differ at one site are joined by an edge, and the edge from token a to b at site i
carries the flow log pi_i(b | rest) - log pi_i(a | rest). If a joint law owns the conditionals,
the flow is the gradient of its logarithm. If none does, least squares splits the flow into the
gradient of a potential, the nearest thing to a log joint, and a rest that is orthogonal to every
gradient (Hodge decomposition): the part that no joint law can explain.

Do potential, pseudo-log-likelihood and the chain itself put texts in the same order? For a joint
law whose sites are independent they do. In general even a joint law and its pseudo-log-likelihood
rank texts differently; incompatibility adds to that.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, lsqr
from scipy.stats import spearmanr
from torch import Tensor

from glauber.compatibility.pseudo_likelihood import pseudo_likelihood
from glauber.conditionals.base import PAD, Conditionals, check_temperature
from glauber.conditionals.batching import in_parts
from glauber.errors import GlauberError
from glauber.progress import track

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
DIGITS = 9  # values closer than this many decimals (in nats) count as tied: rounding is no rank
ITERATIONS = 50_000  # over all states of a space, `length` of them are enough


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The split of the flow over the edges between the given states.

    The potential has mean zero over each connected set of states; values in different sets do
    not compare. Where `n_checks` is 0 no closed walk tests the conditionals and share is 0 by
    construction. Exact for these states and edges; over part of the space it says nothing about
    the rest of it.
    """

    states: Tensor  # (states, length) int64, each once
    values: Floats  # (states,) the potential, in nats
    component: Ints  # (states,) which connected set a state is in
    n_edges: int
    n_checks: int  # dimensions of the flows that hold together at each site but have no potential
    flow: float  # squared norm of the flow over the edges
    rest: float  # squared norm of what the potential leaves
    kind: str = "exact"

    @property
    def share(self) -> float:
        """Share of the flow's squared norm that no joint law can explain, in [0, 1]."""
        return self.rest / self.flow if self.flow > 0 else 0.0

    @property
    def largest(self) -> Ints:
        """The states of the largest connected set, by their place in `states`."""
        return np.flatnonzero(self.component == np.bincount(self.component).argmax())


def decompose(
    conditionals: Conditionals, states: Tensor, *, temperature: float = 1.0
) -> Decomposition:
    """The best potential over the states (rows, length) and all edges between them.

    With all states of a space (`Space.states()`) it is that of the whole model; else that of the
    states which were, say, visited. Repeated rows count once.

    The m states that agree outside site i are all joined to each other, and their m (m - 1) / 2
    edges together ask for  m * sum over them of (r - mean r)^2,  r = potential - log pi_i.  So
    there is one equation for each state in each such clique, not one for each edge.
    """
    check_temperature(temperature)
    states = torch.unique(states, dim=0)
    cliques = _cliques(states)
    if not len(cliques.size):
        raise GlauberError("no two of the states differ at one site only, so there is no edge.")
    gradient = _gradient(cliques, len(states))
    flow = cliques.weight * cliques.centred(_log_probs(conditionals, states, cliques) / temperature)
    values, stopped = lsqr(gradient, flow, atol=1e-15, btol=1e-15, conlim=0, iter_lim=ITERATIONS)[
        :2
    ]
    if stopped == 7:
        raise GlauberError(f"least squares did not settle within {ITERATIONS:,} iterations.")
    component, count = _components(cliques, len(states))
    values -= (np.bincount(component, values) / np.bincount(component))[component]
    return Decomposition(
        states,
        values,
        component,
        n_edges=int((cliques.size * (cliques.size - 1) // 2).sum()),
        n_checks=int((cliques.size - 1).sum()) - (len(states) - count),
        flow=float(flow @ flow),
        rest=float(((flow - gradient @ values) ** 2).sum()),
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

    def centred(self, values: Floats) -> Floats:
        """Values (members,) less their mean over each clique."""
        return np.asarray(values - (np.bincount(self.of, values) / self.size)[self.of])


def _cliques(states: Tensor) -> Cliques:
    found: list[tuple[Ints, Ints, Ints]] = []
    begun = 0
    for site in range(states.shape[1]):
        rows = (states[:, site] != PAD).nonzero()[:, 0].numpy()
        others = np.delete(states.numpy()[rows], site, axis=1)
        _, of, size = np.unique(others, axis=0, return_inverse=True, return_counts=True)
        order = np.argsort(of, kind="stable")
        order = order[size[of[order]] > 1]  # a state by itself has no edge here
        _, of = np.unique(of[order], return_inverse=True)
        found.append((of + begun, rows[order], np.full(len(order), site)))
        begun += int(of.max(initial=-1)) + 1
    of, state, sites = (np.concatenate(column) for column in zip(*found, strict=True))
    return Cliques(np.bincount(of), of, state, sites)


def _gradient(cliques: Cliques, n_states: int) -> LinearOperator:
    """The operator from a potential (states,) to its weighted equations (members,)."""

    def forward(values: Floats) -> Floats:
        return cliques.weight * cliques.centred(values.ravel()[cliques.state])

    def backward(rest: Floats) -> Floats:
        spread = cliques.weight * cliques.centred(rest.ravel())
        return np.asarray(np.bincount(cliques.state, spread, minlength=n_states), np.float64)

    shape = (len(cliques.state), n_states)
    return LinearOperator(shape, matvec=forward, rmatvec=backward, dtype=np.float64)


def _log_probs(conditionals: Conditionals, states: Tensor, cliques: Cliques) -> Floats:
    """log pi_i of each member's token up to a constant of its clique, (members,)."""
    first = np.cumsum(cliques.size) - cliques.size  # the first member of each clique
    rank = np.arange(len(cliques.of)) - first[cliques.of]
    token = states[cliques.state, cliques.site]
    # One question per clique; unused places of its row of candidates repeat its first member's.
    candidates = token[first][:, None].repeat(1, int(cliques.size.max()))
    candidates[cliques.of, rank] = token
    rows, sites = states[cliques.state[first]], torch.from_numpy(cliques.site[first])
    parts = []
    with track("edges", len(rows)) as advance:
        for part in in_parts(torch.arange(len(rows)), conditionals.vocab_size):
            asked = rows[part], sites[part, None], candidates[part, None]
            parts.append(conditionals.scores(*asked)[:, 0].double())
            advance(len(part))
    found = torch.cat(parts)[cliques.of, rank].numpy()
    if not np.isfinite(found).all():
        raise GlauberError("a state holds a token of probability zero, so its flow is infinite.")
    return np.asarray(found)


def _components(cliques: Cliques, n_states: int) -> tuple[Ints, int]:
    """The connected set of each state (states,), and how many sets there are."""
    nodes = n_states + len(cliques.size)
    links = (np.ones(len(cliques.of)), (cliques.state, n_states + cliques.of))
    count, label = connected_components(csr_array(links, shape=(nodes, nodes)), directed=False)
    return np.asarray(label[:n_states], np.int64), int(count)


def with_neighbours(
    conditionals: Conditionals, tokens: Tensor, free: Tensor, *, top: int
) -> Tensor:
    """The states tokens (rows, length) and those with one free site refilled: (states, length).

    At each free site (rows, length) the `top` most probable tokens are put in, one at a time.
    Each state is listed once. The states of a trajectory alone close few walks. With their likely
    neighbours, two visited states that differ at one site share squares: the same token put at
    another site of both.
    """
    if not 1 <= top <= conditionals.vocab_size:
        raise GlauberError(
            f"the {top} most probable tokens were asked for, but the vocabulary has "
            f"{conditionals.vocab_size}."
        )
    rows, sites = free.nonzero(as_tuple=True)
    found = [tokens]
    with track("sites", len(rows)) as advance:
        for part in in_parts(torch.arange(len(rows)), conditionals.vocab_size):
            here, site = tokens[rows[part]], sites[part, None]
            best = conditionals.scores(here, site)[:, 0].topk(top, dim=1)
            filled = here.repeat_interleave(top, dim=0).scatter(
                1, site.repeat_interleave(top, dim=0), best.indices.reshape(-1, 1)
            )
            found.append(filled[best.values.flatten() > -torch.inf])
            advance(len(part))
    return torch.unique(torch.cat(found), dim=0)


@dataclass(frozen=True)
class Ranks:
    """Spearman's rank correlations over the same states."""

    pll_law: float
    potential_law: float
    potential_pll: float
    n_states: int
    kind: str  # exact with a stationary law, an estimate with visit frequencies


def rank_correlation(left: ArrayLike, right: ArrayLike) -> float:
    """Spearman's correlation of two lists (states,) of logarithms; ties share their mean rank."""
    a, b = (np.round(np.asarray(values, np.float64), DIGITS) for values in (left, right))
    if a.shape != b.shape or a.ndim != 1:
        raise GlauberError(f"the two lists to rank have shapes {a.shape} and {b.shape}.")
    if len(a) < 2 or (a == a[0]).all() or (b == b[0]).all():
        raise GlauberError("all values of a list are equal, so there is no ranking to compare.")
    return float(spearmanr(a, b).statistic)


@dataclass(frozen=True, eq=False)
class Ranking:
    """Three values for each of the same states: potential, pseudo-log-likelihood, law."""

    states: Tensor  # (states, length), of one connected set
    potential: Floats  # (states,) in nats, up to a constant
    pll: Floats  # (states,) in nats
    law: Floats  # (states,) probabilities, or how often each was visited
    split: Decomposition  # over all states, and the neighbours that were added
    kind: str  # exact with a stationary law, an estimate with visit frequencies

    def correlations(self) -> Ranks:
        """Spearman's correlation of each two of them."""
        log_law = np.log(self.law)
        return Ranks(
            pll_law=rank_correlation(self.pll, log_law),
            potential_law=rank_correlation(self.potential, log_law),
            potential_pll=rank_correlation(self.potential, self.pll),
            n_states=len(self.states),
            kind=self.kind,
        )


def ranking(
    conditionals: Conditionals,
    states: Tensor,
    law: ArrayLike,
    *,
    free: Tensor | None = None,
    beside: Tensor | None = None,
    temperature: float = 1.0,
    kind: str = "exact",
) -> Ranking:
    """Potential, pseudo-log-likelihood and law of the states (states, length), each once.

    law (states,) is the stationary law, `stationary(transition_matrix(…))`, or how often a chain
    visited each state (then kind is "estimate"). free (states, length) marks the sites that the
    pseudo-log-likelihood counts. The states of `beside` help to find the potential and are not
    ranked. Values of the potential compare only within a connected set of states, so the set that
    holds most of them is ranked; states of probability zero are left out.
    """
    weights = np.asarray(law, np.float64)
    if weights.shape != (len(states),):
        raise GlauberError(f"there are {len(states)} states, but {weights.shape} probabilities.")
    possible = torch.from_numpy(np.flatnonzero(weights > 0))
    if len(torch.unique(states[possible], dim=0)) < len(possible):
        raise GlauberError("a state is listed twice, so its probability is not one number.")
    every = states[possible] if beside is None else torch.cat([states[possible], beside])
    split = decompose(conditionals, every, temperature=temperature)
    place = _places(split, states[possible])
    inside = split.component[place]
    chosen = np.flatnonzero(inside == np.bincount(inside).argmax())
    rows = possible[chosen]
    scored = pseudo_likelihood(
        conditionals,
        states[rows],
        None if free is None else free[rows],
        temperature=temperature,
    )
    values = split.values[place[chosen]]
    return Ranking(states[rows], values, scored.totals.numpy(), weights[rows.numpy()], split, kind)


def ranks(
    conditionals: Conditionals,
    states: Tensor,
    law: ArrayLike,
    *,
    temperature: float = 1.0,
    kind: str = "exact",
) -> Ranks:
    """How potential, pseudo-log-likelihood and law rank the states; see `ranking`."""
    found = ranking(conditionals, states, law, temperature=temperature, kind=kind)
    return found.correlations()


def _places(split: Decomposition, states: Tensor) -> NDArray[np.int64]:
    """Where each of the states (states, length) stands among those of the potential."""
    place = {row.tobytes(): i for i, row in enumerate(split.states.numpy())}
    return np.array([place[row.tobytes()] for row in states.numpy()])
