"""Log-probabilities of tokens where they are hidden, alone or together with others.

The pseudo-log-likelihood hides each token in turn, or with the later pieces of its word; an order
hides each token together with all that come after it.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from glauber.foundation.progress import Advance
from glauber.models.base import PAD, Conditionals, hide, log_probs
from glauber.models.base_model import OnePass
from glauber.models.batching import largest_call, lengths_of, rows_at_once
from glauber.models.forward.packed import BLOCK, LONGEST, PACKED, PackedRows

PACKED_WORK = 2**38  # multiplications between two reports of progress: a second or two


def pseudo_likelihood(
    conditionals: Conditionals,
    tokens: Tensor,
    free: Tensor | None = None,
    *,
    words: Tensor | None = None,
    temperature: float = 1.0,
    advance: Advance | None = None,
) -> Tensor:
    """log pi_i(x_i | visible tokens) of each scored token, (rows, length) float64; NaN elsewhere.

    Exact up to the rounding of the conditionals' own dtype; the pseudo-log-likelihood of a row is
    its sum. tokens (rows, length) have PAD after shorter rows. free (rows, length) marks the
    tokens to score (default: all). With words (rows, length), the number of the word that each
    token is a piece of, it is the within-word left-to-right variant.
    """
    is_token = tokens != PAD
    free = is_token if free is None else free & is_token
    result = torch.full(tokens.shape, torch.nan, dtype=torch.float64)
    rows, sites = free.nonzero(as_tuple=True)
    later = torch.ones_like(rows) if words is None else pieces_left(words)[rows, sites]
    ahead = torch.arange(int(later.max()) if len(later) else 1)
    hidden = torch.where(ahead < later[:, None], sites[:, None] + ahead, PAD)
    result[rows, sites] = hidden_log_probs(
        conditionals, tokens, rows, hidden, temperature=temperature, advance=advance
    )[:, 0]
    return result


def hidden_log_probs(
    conditionals: Conditionals,
    tokens: Tensor,
    rows: Tensor,
    sites: Tensor,
    *,
    n_asked: int = 1,
    temperature: float = 1.0,
    advance: Advance | None = None,
) -> Tensor:
    """log pi of the tokens that stand at hidden sites: (questions, n_asked) float64, NaN for PAD.

    Question q hides the sites[q] (k of them, PAD after fewer) of row rows[q] of tokens together,
    and asks about the first ones. On a CPU the answer to one does not depend on the others.
    """
    result = torch.full((len(rows), n_asked), torch.nan, dtype=torch.float64)
    lengths = lengths_of(tokens)[rows]
    packer = conditionals.packed if isinstance(conditionals, OnePass) and n_asked == 1 else None
    fit = _fits(packer, lengths)
    if packer is not None and bool(fit.any()):
        for part in fit.nonzero()[:, 0].split(_packed_at_once(packer, tokens.shape[1])):
            visible = hide(tokens[rows[part]], sites[part, 1:], packer.hidden_token)
            result[part, 0] = packer.log_probs(visible, sites[part, 0], temperature=temperature)
            _count(advance, len(part))
    chosen = (~fit).nonzero()[:, 0]
    for part, every in conditional_log_probs(
        conditionals, tokens, rows, sites, n_asked=n_asked, temperature=temperature, chosen=chosen
    ):
        about = sites[part, : min(every.shape[1], n_asked)]
        present = tokens[rows[part]].gather(1, about.clamp(min=0))
        own = (
            every[:, : about.shape[1]].gather(2, present[..., None].to(every.device))[..., 0].cpu()
        )
        result[part, : about.shape[1]] = own.masked_fill(about == PAD, torch.nan)
        _count(advance, len(part))
    return result


def likeliest(conditionals: Conditionals, tokens: Tensor, rows: Tensor, sites: Tensor) -> Tensor:
    """Whether no token is likelier than the one that stands at the first hidden site, (questions,).

    Questions as in `hidden_log_probs`.
    """
    result = torch.zeros(len(rows), dtype=torch.bool)
    packer = conditionals.packed if isinstance(conditionals, OnePass) else None
    fit = _fits(packer, lengths_of(tokens)[rows])
    if packer is not None and bool(fit.any()):
        for part in fit.nonzero()[:, 0].split(_packed_at_once(packer, tokens.shape[1])):
            visible = hide(tokens[rows[part]], sites[part, 1:], packer.hidden_token)
            result[part] = packer.likeliest(visible, sites[part, 0])
    chosen = (~fit).nonzero()[:, 0]
    for part, every in conditional_log_probs(conditionals, tokens, rows, sites, chosen=chosen):
        own = every[:, 0].cpu()
        present = own.gather(1, tokens[rows[part]].gather(1, sites[part, :1]))
        result[part] = present[:, 0] >= own.amax(dim=1)
    return result


def conditional_log_probs(
    conditionals: Conditionals,
    tokens: Tensor,
    rows: Tensor,
    sites: Tensor,
    *,
    n_asked: int = 1,
    temperature: float = 1.0,
    chosen: Tensor | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Log-probabilities of every token at hidden sites, part by part as they are asked.

    Questions as in `hidden_log_probs`, all or the chosen ones. Each part is the numbers of some
    questions (n,) and their log-probabilities (n, asked sites, vocab) float64; those at PAD mean
    nothing.
    """
    lengths = lengths_of(tokens)[rows]
    chosen = torch.arange(len(rows)) if chosen is None else chosen
    for part, k in _parts(conditionals, sites, lengths, chosen, n_asked):
        yield (
            part,
            _log_probs(conditionals, tokens[rows[part]], sites[part, :k], n_asked, temperature),
        )


def _log_probs(
    conditionals: Conditionals, tokens: Tensor, sites: Tensor, n_asked: int, temperature: float
) -> Tensor:
    """Log-probabilities (rows, n_asked or all sites, vocab) with the sites (rows, k) hidden.

    To a masked LM a hidden token is its mask token, so that the others need not be asked about;
    the width is always the same, since the bits of an answer may depend on it.
    """
    if isinstance(conditionals, OnePass):
        tokens = hide(tokens, sites, conditionals.hidden_token)
        sites = F.pad(sites[:, :n_asked], (0, max(0, n_asked - sites.shape[1])), value=PAD)
    return log_probs(conditionals, tokens, sites, temperature=temperature)


def _count(advance: Advance | None, more: int) -> None:
    if advance is not None and more:
        advance(more)


def _parts(
    conditionals: Conditionals, sites: Tensor, lengths: Tensor, chosen: Tensor, n_asked: int
) -> list[tuple[Tensor, int]]:
    """The chosen questions in parts of one call each, and how many sites those of a part have.

    Rows of one length go together; for rules other than masked LMs also those that hide as many.
    """
    chosen = chosen[lengths[chosen].argsort(stable=True)]
    if isinstance(conditionals, OnePass):
        groups = [(chosen, sites.shape[1], n_asked)] if len(chosen) else []
    else:
        hidden = (sites[chosen] != PAD).sum(dim=1)
        groups = [(chosen[hidden == k], k, k) for k in hidden.unique().tolist()]
    return [
        (part, k)
        for group, k, scored in groups
        for part in group.split(_at_once(conditionals, scored, int(lengths[group].max())))
    ]


def _at_once(conditionals: Conditionals, k: int, length: int) -> int:
    """Rows asked together: what the memory holds, on a CPU a few calls, so that progress shows."""
    device = getattr(conditionals, "device", torch.device("cpu"))
    most = rows_at_once(8 * k * conditionals.vocab_size, device)
    if device.type == "cuda":
        return most
    return min(most, 2 * largest_call(length) * torch.get_num_threads())


def _fits(packer: PackedRows | None, lengths: Tensor) -> Tensor:
    """Which rows are packed: (rows,) bool, from their lengths."""
    if packer is None:
        return torch.zeros_like(lengths, dtype=torch.bool)
    return packer.takes(lengths) & (lengths <= LONGEST)


def _packed_at_once(packer: PackedRows, length: int) -> int:
    """Packed rows between two reports of progress: two calls for each thread, or more if small."""
    together = max(PACKED_WORK // packer.work, 2 * torch.get_num_threads() * PACKED)
    return max(1, together // (length * BLOCK)) * BLOCK


def pieces_left(words: Tensor) -> Tensor:
    """How many pieces of its word there are from each token on, itself among them; PAD: 1."""
    left = torch.ones_like(words)
    for site in reversed(range(words.shape[1] - 1)):
        same = (words[:, site] == words[:, site + 1]) & (words[:, site] != PAD)
        left[:, site] += torch.where(same, left[:, site + 1], 0)
    return left
