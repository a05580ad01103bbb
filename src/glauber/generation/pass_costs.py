"""What does a pass cost that fills several hidden sites at once, and how sure is that?

KL(in turn || at once), where in turn each site is drawn given those before it in the order of the
pass: E sum_t KL(law_t given the past || law_t before the pass), as in `filling`. Every count fills
a head of its order, so one sequential fill of the order tells the cost of every head.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.conditionals.batching import in_parts
from glauber.dynamics.candidates import Candidates, candidates, questions, ranks
from glauber.dynamics.draws import Truncation, first_above
from glauber.dynamics.kernel import start
from glauber.dynamics.noise import random_bits, uniform
from glauber.dynamics.schedules import count_named
from glauber.dynamics.unmasking import Unmasking
from glauber.generation.pair_costs import divergences
from glauber.progress import Advance
from glauber.statistics import (
    Estimate,
    Floats,
    clustered_mean,
    clustered_proportion,
    proportion,
    ratio_over_chains,
)

TOGETHER = 64  # situations between two signs of progress
ALONE = Estimate(1.0, (1.0, 1.0), "exact")  # kept: a site alone costs nothing


def hidden_at_random(free: Tensor, passes: int, seed: int) -> tuple[Tensor, Tensor]:
    """For each text so many sets of hidden sites (texts * passes, length); and the texts' numbers.

    The number hidden is uniform from two to all free sites: where a generation stands on its way.
    """
    sets = []
    for text, row in enumerate(free.cpu().numpy()):
        random, there = np.random.default_rng([seed, text]), row.nonzero()[0]
        for _ in range(passes):
            count = int(random.integers(2, len(there) + 1))
            sets.append(np.isin(np.arange(len(row)), random.permutation(there)[:count]))
    return torch.from_numpy(np.stack(sets)), torch.arange(len(free)).repeat_interleave(passes)


@dataclass(frozen=True, eq=False)
class Situations:
    """States of which a pass is asked: tokens, hidden (passes, length), and what a model says.

    text (passes,) is the number of the text, or the chain, that each belongs to.
    """

    conditionals: Conditionals
    tokens: Tensor
    hidden: Tensor
    text: Tensor
    found: Candidates
    temperature: float
    seed: int

    @classmethod
    def of(
        cls,
        conditionals: Conditionals,
        tokens: Tensor,
        hidden: Tensor,
        text: Tensor,
        *,
        temperature: float = 1.0,
        seed: int = 0,
        advance: Advance | None = None,
    ) -> "Situations":
        """One row through the model for each."""
        nothing = torch.zeros_like(tokens)  # candidates are not used
        found = []
        for rows in torch.arange(len(tokens), device=tokens.device).split(TOGETHER):
            state = start(tokens[rows], hidden[rows], temperature=temperature, device=tokens.device)
            wanted, bits = hidden[rows], nothing[rows]
            cut = Truncation()
            found.append(
                candidates(conditionals, state, wanted, wanted=wanted, bits=bits, truncation=cut)
            )
            if advance is not None:
                advance(len(rows))
        every = Candidates(*(torch.cat(part) for part in zip(*found, strict=True)))
        return cls(conditionals, tokens, hidden, text, every, temperature, seed)


class Probe:
    """The passes of an order from some situations, filled one site after the other.

    `walk` fills the first sites of every order in turn, many samples of it; cost (passes, samples)
    is the sum of KL(law given the past || law at once) over the sites filled so far. The draws of
    a site are stratified over samples, so their mean has less noise than that of independent ones.
    """

    def __init__(self, at: Situations, order: str, samples: int) -> None:
        tokens, hidden = at.tokens, at.hidden
        self.at, self.hidden, self.samples = at, hidden, samples
        self._seed = torch.as_tensor(at.seed, device=tokens.device)
        self._row = torch.arange(len(tokens), device=tokens.device)
        site = torch.arange(tokens.shape[1], device=tokens.device)
        by, _ = random_bits(self._seed, self._row[:, None], site * 0, site)
        self.place = ranks(order, at.found, hidden, by)
        self.sites = self.place.argsort(dim=1)  # in the order; behind the hidden ones: any
        self.done = torch.zeros_like(self._row)
        self.cost = torch.zeros(len(tokens), samples, dtype=torch.float64, device=tokens.device)
        self._filled = tokens.masked_fill(hidden, 0)[:, None].repeat(1, samples, 1)

    def sizes(self, count: str) -> Tensor:
        """How many sites (passes,) a count fills."""
        return count_named(count).chosen(self.at.found, self.hidden, self.place).sum(dim=1)

    def bound(self) -> Tensor:
        """Sum less largest (passes,) of the entropies of the sites filled so far, in nats."""
        within = self.hidden & (self.place < self.done[:, None])
        entropy = self.at.found.entropy * within
        return entropy.sum(dim=1) - entropy.amax(dim=1)

    def walk(self, sizes: Tensor, advance: Advance | None = None) -> None:
        """Fills each order up to so many sites (passes,); those further on stay where they are.

        One site alone costs nothing and is not asked for.
        """
        sizes = torch.where(sizes > 1, sizes, 0)
        while bool((self.done < sizes).any()):
            rows = (self.done < sizes).nonzero()[:, 0]
            for part in in_parts(rows, 3 * self.samples * self.at.conditionals.vocab_size):
                self._step(part)
                if advance is not None:
                    advance(len(part))

    def _step(self, rows: Tensor) -> None:
        """Fills the next site of some passes (n,) in all their samples."""
        n, done = len(rows), self.done[rows]
        site = self.sites[rows, done]
        filled = self._filled[rows]  # (n, samples, length)
        still = self.hidden[rows] & (self.place[rows] >= done[:, None])
        # The same tokens in several samples are one question.
        keyed = torch.cat([self._same(n), filled.flatten(0, 1)], dim=1)
        asked, which = keyed.unique(dim=0, return_inverse=True)
        whose = asked[:, 0]
        own = self._law(asked[:, 1:], still[whose], site[whose])
        if bool((done > 0).any()):
            before = filled[:, 0].masked_fill(self.hidden[rows], 0)
            at_once = self._law(before, self.hidden[rows], site)
            self.cost[rows] += divergences(own, at_once[whose])[which].view(n, self.samples)
        uniforms = self._uniforms(rows, done).flatten().to(own.device)
        drawn = first_above(own[which].exp(), uniforms)[:, None]
        where = site.repeat_interleave(self.samples)[:, None]
        self._filled[rows] = filled.flatten(0, 1).scatter(1, where, drawn).view_as(filled)
        self.done[rows] += 1

    def _same(self, n: int) -> Tensor:
        return torch.arange(n, device=self.done.device).repeat_interleave(self.samples)[:, None]

    def _uniforms(self, rows: Tensor, done: Tensor) -> Tensor:
        """One number (n, samples) in each of `samples` equal strata, in random order."""
        sample = torch.arange(self.samples, device=rows.device)
        chain, step = self._row[rows][:, None], done[:, None] + 1
        order, inside = random_bits(self._seed, chain, step, sample)
        return (order.argsort(dim=1) + uniform(inside)) / self.samples

    def _law(self, tokens: Tensor, hidden: Tensor, site: Tensor) -> Tensor:
        """log_probs (rows, vocab) float64 at one site of each row, with all of hidden hidden."""
        law = torch.empty(
            len(tokens), self.at.conditionals.vocab_size, dtype=torch.float64, device=tokens.device
        )
        for rows, sites in questions(self.at.conditionals, tokens, hidden):
            scores = self.at.conditionals.scores(tokens[rows], sites)
            slot = (sites == site[rows, None]).int().argmax(dim=1)
            own = scores[torch.arange(len(rows), device=rows.device), slot].double()
            law[rows] = torch.log_softmax(own / self.at.temperature, dim=-1)
        return law


@dataclass(frozen=True, eq=False)
class Passes:
    """What passes of a rule cost: (passes,) each."""

    text: NDArray[np.int64]  # the text, or the chain, of each
    sizes: NDArray[np.int64]  # sites filled
    cost: Floats  # estimated, in nats
    noise: Floats  # standard error of it, at most
    bound: Floats  # sum less largest of the entropies, in nats

    def kept(self, error: float, *, least: int = 1, comparisons: int = 1) -> Estimate:
        """The share within the error, of the passes that fill at least so many sites."""
        some = self.sizes >= least
        if least == 1 and (self.sizes == 1).all():
            return ALONE
        n = int(self.text.max()) + 1
        within = np.bincount(self.text[some], self.cost[some] <= error, minlength=n)
        totals = np.bincount(self.text[some], minlength=n)
        return clustered_proportion(within, totals, comparisons=comparisons)

    def texts_kept(self, error: float, *, comparisons: int = 1) -> Estimate:
        """The share of texts of which every pass is within the error."""
        lost = np.bincount(self.text, self.cost > error)
        if (self.sizes == 1).all():
            return ALONE
        return proportion(int((lost == 0).sum()), len(lost), comparisons=comparisons)

    @property
    def tokens(self) -> Estimate:
        return clustered_mean(self.sizes, self.text, bounds=(1.0, np.inf))

    @property
    def cost_to_bound(self) -> Estimate:
        """Cost over bound, sums over the passes of a text."""
        cost, bound = np.bincount(self.text, self.cost), np.bincount(self.text, self.bound)
        if not bound.any():
            return Estimate(np.nan, None, reason="no pass fills two sites")
        return ratio_over_chains(cost, bound, bounds=(0.0, np.inf))


def costs(at: Situations, how: Unmasking, samples: int, advance: Advance | None = None) -> Passes:
    """What the passes of a rule from these situations cost."""
    probe = Probe(at, how.order, samples)
    sizes = probe.sizes(str(how.count))
    probe.walk(sizes, advance)
    cost, noise = probe.cost.mean(dim=1), probe.cost.std(dim=1) / samples**0.5
    found = (at.text, sizes, cost, noise, probe.bound())
    return Passes(*(part.cpu().numpy() for part in found))
