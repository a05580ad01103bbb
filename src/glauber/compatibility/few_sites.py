"""What is the chain's law where only a few sites are free, with a few tokens each?

All other sites are held. What is left is small enough to be enumerated, so its stationary
distribution is known without sampling. It is the law of the held chain: the full chain, whose other
sites move too, may weigh the same fillings otherwise.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.conditionals.table import choose
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.errors import GlauberError
from glauber.exact import Space, conditional, redraw_probabilities, stationary
from glauber.exact.transition import block_matrix

Floats = NDArray[np.float64]
LARGEST = 2**14  # fillings whose stationary distribution takes seconds


@dataclass(frozen=True, eq=False)
class FewSites:
    """A model's conditionals at k sites of one text, each with m tokens; the others are held.

    template  (length,) the text
    sites     (k,) columns of the free sites
    choices   (k, m) the tokens of each site: token number c of site s stands for choices[s, c]
    """

    base: Conditionals
    template: Tensor
    sites: Tensor
    choices: Tensor

    @property
    def vocab_size(self) -> int:
        return self.choices.shape[1]

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        """The model's scores (rows, 1, m) of the tokens of one hidden site; tokens (rows, k)."""
        places = torch.arange(len(self.sites))
        whole = self.template.repeat(len(tokens), 1)
        whole[:, self.sites] = self.choices[places, tokens]
        asked = self.choices[sites[:, 0]][:, None, :]
        return choose(self.base.scores(whole, self.sites[sites], asked), candidates)


@dataclass(frozen=True, eq=False)
class Enumerated:
    """The chain on a few sites: single-mask conditionals and stationary distribution, in full.

    single  (k, m**k, m) pi_i of each token at site i, given the others of each filling
    mu      (m**k,) the stationary distribution of redrawing a uniformly random site
    """

    space: Space
    single: Floats
    mu: Floats

    def by_context(self, site: int) -> "Contexts":
        """What the single mask and the chain say of one site, context by context."""
        size, length = self.space.vocab_size, self.space.length
        numbers = np.arange(self.space.size).reshape((size,) * length)
        fillings = np.moveaxis(numbers, site, -1).reshape(-1, size)
        law = conditional(self.mu, self.space, (site,))
        return Contexts(
            fillings=fillings,
            weight=self.mu[fillings].sum(axis=1),
            single=np.log(self.single[site, fillings[:, 0]]),
            chain=np.log(law[fillings]),
        )


class Contexts(NamedTuple):
    """One site in every context of the others: contexts as rows, its m tokens as columns."""

    fillings: NDArray[np.int64]  # (contexts, m) the number of the whole filling
    weight: Floats  # (contexts,) how often the chain meets the context
    single: Floats  # (contexts, m) log pi_i of each token, the site hidden alone
    chain: Floats  # (contexts, m) log mu of each token given the context


def enumerate_chain(conditionals: Conditionals, n_sites: int, temperature: float) -> Enumerated:
    """Every filling of the sites, each context asked once."""
    space = Space(conditionals.vocab_size, n_sites, limit=LARGEST)
    single = np.stack(
        [
            redraw_probabilities(conditionals, space, (site,), temperature=temperature)[:, 0]
            for site in range(n_sites)
        ]
    )
    if single.min() < np.finfo(np.float64).tiny:
        raise GlauberError(
            f"at temperature {temperature:g} a token's probability is below what a number can "
            "hold: take a higher temperature or fewer tokens."
        )
    states = space.states().numpy()
    steps = [
        block_matrix(space, (site,), single[site, np.arange(space.size), states[:, site]])
        for site in range(n_sites)
    ]
    mu = stationary(sum(steps[1:], steps[0]) / n_sites)
    return Enumerated(space, single, mu)


@dataclass(frozen=True, eq=False)
class _Windows:
    """Several enumerated chains as one rule: the first token of a row says which of them."""

    scores_of: Tensor  # (windows, k, states, m)
    space: Space
    vocab_size: int

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        state = (tokens[:, 1:] * self.space.strides).sum(dim=1)
        found = self.scores_of[tokens[:, :1], sites - 1, state[:, None]]
        wide = found.new_full((*sites.shape, self.vocab_size), -torch.inf)
        wide[..., : found.shape[-1]] = found
        return choose(wide, candidates)


def frequencies(
    windows: list[Enumerated], *, chains: int, steps: int, seed: int, burn_in: float = 0.1
) -> Floats:
    """How often each chain stood at each filling, (windows, chains, m**k), after the burn-in.

    The chains begin at uniformly random fillings and redraw one random site a step.
    """
    space = windows[0].space
    table = torch.as_tensor(np.log(np.stack([one.single for one in windows])))
    rule = _Windows(table, space, max(space.vocab_size, len(windows)))
    generator = torch.Generator().manual_seed(seed)
    shape = (len(windows) * chains, space.length)
    begun = torch.randint(space.vocab_size, shape, generator=generator)
    whose = torch.arange(len(windows)).repeat_interleave(chains)[:, None]
    tokens = torch.cat([whose, begun], dim=1)
    free = torch.ones_like(tokens, dtype=torch.bool)
    free[:, 0] = False
    counts = torch.zeros(len(tokens), space.size, dtype=torch.int64)
    rows, dropped = torch.arange(len(tokens)), int(steps * burn_in)
    for number, (state, _) in enumerate(run(glauber(rule), start(tokens, free), steps, seed=seed)):
        if number >= dropped:
            counts[rows, (state.tokens[:, 1:] * space.strides).sum(dim=1)] += 1
    found = counts.view(len(windows), chains, space.size).double() / max(1, steps - dropped)
    return np.asarray(found.numpy())
