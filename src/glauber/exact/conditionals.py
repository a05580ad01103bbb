"""What is a site's new token, from each state? The conditionals, evaluated everywhere.

The softmax is written out here rather than borrowed, so that the oracle shares no arithmetic
with the engine that is tested against it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glauber.conditionals.base import Conditionals, check_temperature
from glauber.conditionals.batching import in_parts
from glauber.errors import GlauberError
from glauber.exact.space import Floats, Space
from glauber.progress import say


def redraw_probabilities(
    conditionals: Conditionals, space: Space, hidden: Sequence[int], *, temperature: float = 1.0
) -> Floats:
    """Probabilities (size, k, vocab) of the new token at each of k sites hidden together.

    Each context is evaluated once, with token 0 at the hidden sites: what stands there does not
    matter. So size / vocab**k rows are asked for.
    """
    check_question(conditionals, space, temperature)
    sites = torch.tensor(hidden)
    states = space.states()
    filled = (states[:, sites] * space.strides[sites]).sum(1)  # (size,) 0 where only token 0 is
    contexts = (filled == 0).nonzero()[:, 0]
    context_of_state = torch.searchsorted(contexts, torch.arange(space.size) - filled)
    probabilities = _evaluate(conditionals, states[contexts], sites, temperature)
    return np.asarray(probabilities[context_of_state].numpy())


def context_scores(conditionals: Conditionals, space: Space, site: int) -> Floats:
    """Scores (vocab, …, vocab, vocab) float64 of a site's tokens in every context.

    One axis per other site, in increasing order, for the token there; the last for the site's own.
    """
    check_question(conditionals, space, 1.0)
    states = space.states()
    contexts = states[states[:, site] == 0]
    scores = _ask(conditionals, contexts, torch.tensor([site]))[:, 0]
    return np.asarray(scores.reshape((space.vocab_size,) * space.length).numpy())


def current_probabilities(
    conditionals: Conditionals, space: Space, hidden: Sequence[int], *, temperature: float = 1.0
) -> Floats:
    """Probabilities (size, k) that k sites hidden together are each given their present token."""
    distributions = redraw_probabilities(conditionals, space, hidden, temperature=temperature)
    tokens = space.states().numpy()[:, list(hidden), None]
    return np.asarray(np.take_along_axis(distributions, tokens, axis=2)[:, :, 0])


def free_sites(space: Space, free: Tensor | None) -> list[int]:
    """The sites that may be redrawn, in increasing order: all of them if none are named."""
    if free is None:
        return list(range(space.length))
    if free.shape != (space.length,) or free.dtype != torch.bool:
        raise GlauberError(
            f"the free sites were given as {tuple(free.shape)} {free.dtype}, "
            f"but they must be one boolean for each of the {space.length} sites."
        )
    sites: list[int] = free.nonzero()[:, 0].tolist()
    if not sites:
        raise GlauberError("no site is free, so the chain would never move.")
    return sites


def check_question(conditionals: Conditionals, space: Space, temperature: float) -> None:
    """Refuses a space over another vocabulary, and a temperature that is not positive."""
    check_temperature(temperature)
    if conditionals.vocab_size != space.vocab_size:
        raise GlauberError(
            f"the space has {space.vocab_size} tokens, "
            f"but the conditionals have {conditionals.vocab_size}."
        )


def _evaluate(
    conditionals: Conditionals, contexts: Tensor, sites: Tensor, temperature: float
) -> Tensor:
    """Probabilities (rows, k, vocab) float64 at the same k hidden sites of every row."""
    scores = _ask(conditionals, contexts, sites)
    probabilities = torch.softmax(scores / temperature, dim=-1)
    if not bool(torch.isfinite(probabilities).all()):
        raise GlauberError(
            f"at sites {sites.tolist()} some context has no distribution: its scores are not "
            "numbers, or they forbid every token."
        )
    return probabilities


def _ask(conditionals: Conditionals, contexts: Tensor, sites: Tensor) -> Tensor:
    """Scores (rows, k, vocab) float64 at the same k hidden sites of every row."""
    chunks = [
        conditionals.scores(rows, sites.repeat(len(rows), 1)).double().cpu()
        for rows in in_parts(contexts, sites.numel() * conditionals.vocab_size)
    ]
    return torch.cat(chunks)


@dataclass(frozen=True, eq=False)
class Few:
    """The single-site conditionals of a few sites, each with its own few tokens, in full."""

    space: Space
    table: Tensor  # (sites, states, tokens) float64: scores at each state

    @property
    def vocab_size(self) -> int:
        return self.space.vocab_size

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        """(rows, 1, tokens), by the numbers of the tokens at each site."""
        site = sites[:, 0]
        there = tokens.scatter(1, sites, 0)
        scores = self.table[site, self.space.index(there)][:, None]
        return scores if candidates is None else scores.gather(-1, candidates)


def candidates(
    conditionals: Conditionals, row: Tensor, columns: Sequence[int], count: int
) -> Tensor:
    """Tokens (sites, count) of each column: its own first, then the likeliest others, if drawn."""
    asked = torch.tensor(columns, device=row.device)[:, None]
    scores = conditionals.scores(row.repeat(len(columns), 1), asked)[:, 0].double()
    scores = scores.scatter(1, row[asked], torch.inf)
    drawn = int((scores > -torch.inf).sum(dim=1).min())
    return scores.topk(min(count, drawn), dim=1).indices


def tabulated(
    conditionals: Conditionals, row: Tensor, columns: Sequence[int], offered: Tensor
) -> Few:
    """The conditionals of those columns (sites,) over the offered tokens, the others as in row."""
    n_sites, n_tokens = offered.shape
    space = Space(n_tokens, n_sites)
    states = space.states().to(row.device)
    say(f"{n_sites * space.size // n_tokens:,} rows through the model for {space.size:,} states")
    table = torch.empty(n_sites, space.size, n_tokens, dtype=torch.float64)
    whole = row.repeat(space.size, 1)
    whole[:, list(columns)] = offered[torch.arange(n_sites, device=row.device), states]
    for site, column in enumerate(columns):
        first = (states[:, site] == 0).nonzero()[:, 0]  # one state of each context
        asked = torch.full((len(first), 1), column, device=row.device)
        wanted = offered[site].expand(len(first), 1, -1).contiguous()
        scores = conditionals.scores(whole[first], asked, wanted)[:, 0].double().cpu()
        for token in range(n_tokens):
            table[site, first.cpu() + token * int(space.strides[site])] = scores
    return Few(space, table)
