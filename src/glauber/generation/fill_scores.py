"""How likely is a fill, and how likely is it that a blank has so many tokens?

A text is context c with blanks of k tokens that hold the fill f. By the chain rule
    log p(k, f | c) = log p(k | c) + log p(f | c, k).
The second term hides all of f and adds the tokens of f from left to right, each given c and those
before it. A masked model has no p(k), but it says how well the context fits around k hidden tokens:
    p(k | c) is proportional to p(k) p(c | k),
with p(c | k) from the chain rule over c, left to right, the blanks hidden throughout, and p(k)
uniform over the combinations of lengths tried. For conditionals of a joint distribution over the
texts of each length, differences of log p(k, f | c) are exactly those of the log-probabilities of
the whole texts, each within its length. For a masked LM, whose conditionals have no joint
distribution, they depend on the order.

All are in the model's own distribution: temperature 1, nothing truncated.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import PAD, Conditionals
from glauber.conditionals.batching import in_parts
from glauber.dynamics.candidates import questions
from glauber.progress import track

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FillScores:
    """In nats, (rows,) each."""

    fill: Floats  # log p(f | c, k): exact for the order from left to right, up to rounding
    length: Floats  # log p(k | c) among the lengths tried: an estimate; 0 where one was tried

    @property
    def total(self) -> Floats:
        """log p(k, f | c): what fills of one text are ranked by."""
        return self.fill + self.length


def fill_scores(
    conditionals: Conditionals,
    tokens: Tensor,
    hidden: Tensor,
    *,
    scored: Tensor,
    groups: list[tuple[int, tuple[int, ...]]],
) -> FillScores:
    """The scores of filled rows, tokens (rows, length); hidden (rows, length) says what was filled.

    scored (rows, length) are the sites of the context that the model can draw: the others (special
    and unknown tokens) are given. groups has the text and the lengths of the blanks of each row.
    """
    texts = torch.cat([tokens, hidden.long()], dim=1)
    _, firsts, which = np.unique(
        texts.cpu().numpy(), axis=0, return_index=True, return_inverse=True
    )
    rows = torch.from_numpy(firsts).to(tokens.device)
    fill = _chain_rule(conditionals, tokens[rows], hidden[rows], hidden[rows])
    return FillScores(
        fill.cpu().numpy()[which.reshape(-1)],
        _length_log_probs(conditionals, tokens, hidden, scored, groups),
    )


def _length_log_probs(
    conditionals: Conditionals,
    tokens: Tensor,
    hidden: Tensor,
    scored: Tensor,
    groups: list[tuple[int, tuple[int, ...]]],
) -> Floats:
    """log p(k | c) (rows,), with one evaluation of the context for each combination of lengths."""
    combinations: dict[int, dict[tuple[int, ...], int]] = {}  # of each text: a row with the lengths
    for row, (text, lengths) in enumerate(groups):
        combinations.setdefault(text, {}).setdefault(lengths, row)
    several = [found for found in combinations.values() if len(found) > 1]
    log_probs = np.zeros(len(groups))
    if not several:
        return log_probs
    firsts = [row for found in several for row in found.values()]
    rows = torch.tensor(firsts, device=tokens.device)
    context = scored[rows]
    values = _chain_rule(conditionals, tokens[rows], context | hidden[rows], context)
    of_row = dict(zip(firsts, values.tolist(), strict=True))
    for row, (text, lengths) in enumerate(groups):
        found = combinations[text]
        if len(found) > 1:
            total = np.logaddexp.reduce([of_row[other] for other in found.values()])
            log_probs[row] = of_row[found[lengths]] - total
    return log_probs


def _chain_rule(
    conditionals: Conditionals, tokens: Tensor, hidden: Tensor, asked: Tensor
) -> Tensor:
    """Sums (rows,) of log-probabilities of the tokens at the asked sites, from left to right.

    All of hidden (rows, length) is hidden at first, asked among it; each asked site is shown after
    its token was added.
    """
    row, site = asked.nonzero(as_tuple=True)
    totals = torch.zeros(len(tokens), dtype=torch.float64, device=tokens.device)
    before = torch.arange(tokens.shape[1], device=tokens.device)
    with track("tokens scored", len(row)) as advance:
        for part in in_parts(torch.arange(len(row), device=row.device), tokens.shape[1]):
            shown = asked[row[part]] & (before < site[part, None])
            log_probs = _at_sites(
                conditionals, tokens[row[part]], hidden[row[part]] & ~shown, site[part]
            )
            totals.index_add_(0, row[part], log_probs)
            advance(len(part))
    return totals


def _at_sites(conditionals: Conditionals, tokens: Tensor, hidden: Tensor, site: Tensor) -> Tensor:
    """The log-probability (rows,) of the token at one site of each row, all of hidden hidden."""
    found = torch.empty(len(tokens), dtype=torch.float64, device=tokens.device)
    visible = tokens.masked_fill(hidden, 0)
    for rows, sites in questions(conditionals, visible, hidden):
        scores = conditionals.scores(visible[rows], sites)
        slot = ((sites == site[rows, None]) & (sites != PAD)).int().argmax(dim=1)
        own = scores[torch.arange(len(rows), device=rows.device), slot].double()
        chosen = tokens[rows, site[rows]][:, None]
        found[rows] = torch.log_softmax(own, dim=-1).gather(1, chosen)[:, 0]
    return found
