"""How much influence does the chain meet on average, where the theorem asks for the worst?

The average is over states x of the chain at a temperature and over one change at j, drawn from
pi_j(. | x_-j) among the tokens other than x_j: what a disagreement of two chains would look like.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import Conditionals, check_temperature
from glauber.mixing.contexts import (
    Contexts,
    chain_states,
    check_positive,
    free_sites,
    replacements,
)
from glauber.mixing.influence import scores_by_value

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AveragedInfluence:
    """Estimates over n_chains independent chains: mean total variation, site by site."""

    by_chain: Floats  # (n_chains, n, n): of the change at site j on site i, in column j
    temperature: float

    @property
    def matrix(self) -> Floats:
        """The mean over the chains (n, n)."""
        return np.asarray(self.by_chain.mean(axis=0))

    @property
    def mean(self) -> float:
        """The mean over sites j of the influence that j exerts: 1 is where disagreement grows."""
        return float(self._per_chain.mean())

    @property
    def standard_error(self) -> float:
        """Of the mean, from the spread between chains (nan for a single one)."""
        n_chains = len(self.by_chain)
        if n_chains < 2:
            return float("nan")
        return float(self._per_chain.std(ddof=1) / np.sqrt(n_chains))

    @property
    def _per_chain(self) -> Floats:
        return np.asarray(self.by_chain.sum(axis=1).mean(axis=1))


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
    check_temperature(temperature)
    check_positive("chains", n_chains)
    sites = free_sites(free)
    states = chain_states(
        conditionals, tokens, free, n_chains=n_chains, n_steps=n_sweeps * len(sites),
        temperature=temperature, seed=seed,
    )  # fmt: skip
    values = replacements(
        conditionals, states, sites, n_values=1, temperature=temperature,
        generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip
    variation = np.zeros((n_chains, len(sites), len(sites)))
    contexts = Contexts(states, sites, values, "lower bound")
    for j, scores in scores_by_value(conditionals, contexts):
        before, after = torch.softmax(scores / temperature, dim=-1)
        others = np.arange(len(sites)) != j
        variation[:, others, j] = ((after - before).abs().sum(-1) / 2).cpu().numpy()
    return AveragedInfluence(variation, temperature)
