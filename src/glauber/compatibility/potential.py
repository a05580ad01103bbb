"""Do potential, pseudo-log-likelihood and the chain itself put texts in the same order?

For a joint law whose sites are independent they do. In general even a joint law and its
pseudo-log-likelihood rank texts differently; incompatibility adds to that.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import spearmanr

from glauber.compatibility.hodge import Decomposition, decompose
from glauber.compatibility.score import pseudo_likelihood
from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError
from glauber.runs.export import trajectory
from glauber.runs.run import Run

DIGITS = 9  # values closer than this many decimals (in nats) count as tied: rounding is no rank


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

    states: torch.Tensor  # (states, length), of one connected set
    potential: NDArray[np.float64]  # (states,) in nats, up to a constant
    pll: NDArray[np.float64]  # (states,) in nats
    law: NDArray[np.float64]  # (states,) probabilities, or how often each was visited
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
    states: torch.Tensor,
    law: ArrayLike,
    *,
    free: torch.Tensor | None = None,
    beside: torch.Tensor | None = None,
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
    states: torch.Tensor,
    law: ArrayLike,
    *,
    temperature: float = 1.0,
    kind: str = "exact",
) -> Ranks:
    """How potential, pseudo-log-likelihood and law rank the states; see `ranking`."""
    found = ranking(conditionals, states, law, temperature=temperature, kind=kind)
    return found.correlations()


def _places(split: Decomposition, states: torch.Tensor) -> NDArray[np.int64]:
    """Where each of the states (states, length) stands among those of the potential."""
    place = {row.tobytes(): i for i, row in enumerate(split.states.numpy())}
    return np.array([place[row.tobytes()] for row in states.numpy()])


@dataclass(frozen=True, eq=False)
class Visits:
    """States in order of how long chains stayed in them, each once."""

    states: torch.Tensor  # (states, length) int64
    free: torch.Tensor  # (states, length) bool: the sites that were redrawn
    counts: NDArray[np.int64]  # (states,) steps spent there, all chains together
    n_visited: int  # different states in all, of which these are the most visited
    n_steps: int  # counted in all
    burn_in: int


def visits(run: Run, *, burn_in: int | None = None, most: int = 100) -> Visits:
    """The `most` states in which the chains spent most steps behind the burn-in (default: half).

    Chains that differ in their frozen tokens never share a state; neither do chains whose free
    sites differ, even where their tokens agree.
    """
    burn_in = run.steps // 2 if burn_in is None else burn_in
    if not 0 <= burn_in < run.steps:
        raise GlauberError(
            f"the burn-in is {burn_in} steps, but it must leave some of the run's {run.steps}."
        )
    if most < 2:
        raise GlauberError(f"{most} states were asked for, but a ranking needs at least 2.")
    frees = [row.tobytes() for row in run.free]
    seen: Counter[tuple[bytes, bytes]] = Counter()
    for step, tokens in trajectory(run):
        if step > burn_in:
            seen.update(zip((row.tobytes() for row in tokens), frees, strict=True))
    chosen = sorted(seen, key=lambda state: (-seen[state], state))[:most]
    return Visits(
        states=torch.from_numpy(np.stack([np.frombuffer(x, np.int64) for x, _ in chosen])),
        free=torch.from_numpy(np.stack([np.frombuffer(f, np.bool_) for _, f in chosen])),
        counts=np.array([seen[state] for state in chosen]),
        n_visited=len(seen),
        n_steps=(run.steps - burn_in) * run.n_chains,
        burn_in=burn_in,
    )
