"""The conditionals of any model at every state of a small space.

The softmax is written out here rather than borrowed, so that the oracle shares no arithmetic
with the engine that is tested against it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glauber.exact.space import Floats, Space
from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import say
from glauber.models.base import Conditionals, check_temperature
from glauber.models.batching import in_parts

__all__ = ["redraw_probabilities"]


def redraw_probabilities(
    conditionals: Conditionals, space: Space, hidden: Sequence[int], *, temperature: float = 1.0
) -> Floats:
    """Probabilities (size, k, vocab) of the new token at each of k sites hidden together.

    Each context is evaluated once, with token 0 at the hidden sites, whose content does not
    matter: size / vocab**k rows.
    """
    scores, contexts = _scores_of_contexts(conditionals, space, hidden, temperature)
    probabilities = torch.softmax(scores / temperature, dim=-1)
    if not bool(torch.isfinite(probabilities).all()):
        raise GlauberError(
            f"at sites {list(hidden)} some context has no distribution: its scores are not "
            "numbers, or they forbid every token."
        )
    slots = torch.searchsorted(contexts, torch.from_numpy(space.contexts(hidden)))
    return np.asarray(probabilities[slots].numpy())


def context_scores(conditionals: Conditionals, space: Space, site: int) -> Floats:
    """Scores (vocab, …, vocab, vocab) float64 of a site's tokens in every context.

    One axis per other site, in increasing order, for the token there; the last for the site's own.
    """
    scores, _ = _scores_of_contexts(conditionals, space, (site,), 1.0)
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
            f"the free sites are {tuple(free.shape)} {free.dtype}, "
            f"but they must be one boolean for each of the {space.length} sites."
        )
    sites: list[int] = free.nonzero()[:, 0].tolist()
    if not sites:
        raise GlauberError("no site is free, so the chain would never move.")
    return sites


def _scores_of_contexts(
    conditionals: Conditionals, space: Space, hidden: Sequence[int], temperature: float
) -> tuple[Tensor, Tensor]:
    """Scores (contexts, k, vocab) float64 at k hidden sites, and the contexts' numbers."""
    check_temperature(temperature)
    if conditionals.vocab_size != space.vocab_size:
        raise GlauberError(
            f"the space has {space.vocab_size} tokens, "
            f"but the conditionals have {conditionals.vocab_size}."
        )
    sites, states = torch.tensor(hidden), space.states()
    contexts = (states[:, sites] == 0).all(dim=1).nonzero()[:, 0]
    scores = [
        conditionals.scores(rows, sites.repeat(len(rows), 1)).double().cpu()
        for rows in in_parts(states[contexts], sites.numel() * space.vocab_size)
    ]
    return torch.cat(scores), contexts


@dataclass(frozen=True, eq=False)
class FewSites:
    """The single-site conditionals of a few sites, each with its own few tokens, in full."""

    space: Space
    table: Tensor  # (sites, states, tokens) float64: scores at each state

    @property
    def vocab_size(self) -> int:
        return self.space.vocab_size

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        """(rows, 1, tokens), by the numbers of the tokens at each site."""
        contexts = self.space.index(tokens.scatter(1, sites, 0))
        scores = self.table[sites[:, 0], contexts][:, None]
        return scores if candidates is None else scores.gather(-1, candidates)


def top_tokens(
    conditionals: Conditionals, row: Tensor, columns: Sequence[int], count: int
) -> Tensor:
    """Tokens (sites, count) of each column: its own first, then the most probable others."""
    sites = torch.tensor(columns, device=row.device)[:, None]
    scores = conditionals.scores(row.repeat(len(columns), 1), sites)[:, 0].double()
    scores = scores.scatter(1, row[sites], torch.inf)
    n_possible = int((scores > -torch.inf).sum(dim=1).min())
    return scores.topk(min(count, n_possible), dim=1).indices


def tabulate(
    conditionals: Conditionals, row: Tensor, columns: Sequence[int], tokens: Tensor
) -> FewSites:
    """The conditionals of those columns (sites,) over tokens (sites, count), the rest as in row."""
    n_sites, n_tokens = tokens.shape
    space = Space(n_tokens, n_sites)
    states = space.states().to(row.device)
    say(f"{n_sites * space.size // n_tokens:,} rows through the model for {space.size:,} states")
    table = torch.empty(n_sites, space.size, n_tokens, dtype=torch.float64)
    rows = row.repeat(space.size, 1)
    rows[:, list(columns)] = tokens[torch.arange(n_sites, device=row.device), states]
    for site, column in enumerate(columns):
        contexts = (states[:, site] == 0).nonzero()[:, 0]
        sites = torch.full((len(contexts), 1), column, device=row.device)
        candidates = tokens[site].expand(len(contexts), 1, -1).contiguous()
        scores = conditionals.scores(rows[contexts], sites, candidates)[:, 0].double().cpu()
        for token in range(n_tokens):
            table[site, contexts.cpu() + token * int(space.strides[site])] = scores
    return FewSites(space, table)
