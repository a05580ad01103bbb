"""Could one joint law own these conditionals? A rectangle that does not close says no.

Two sites i and j, a token changed at each: a -> a' and b -> b'. Under a joint law, going round
the four corners adds up to nothing, because every edge is a difference of one log joint.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from glauber.conditionals.base import PAD, Conditionals
from glauber.errors import GlauberError

AT_ONCE = 64  # rectangles evaluated together: bounds the memory of (4 * rectangles, vocab) scores


@dataclass(frozen=True, eq=False)
class Rectangles:
    """Rectangles and what the conditionals say along their edges.

    tokens     (count, length) the corner a, b, PAD behind shorter texts
    sites      (count, 2) i and j
    values     (count, 2) the replacements a' and b'
    scores     (count, 4, 2) float64: the new and the old token's score, where the four
               evaluations are, in this order, i given b, j given a', j given a, i given b'
    influence  (count, 2) total variation between i's conditionals given b and given b', and
               between j's given a and given a'; None where it was not asked for
    """

    tokens: Tensor
    sites: Tensor
    values: Tensor
    scores: Tensor
    influence: Tensor | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def log_ratios(self) -> Tensor:
        """(count, 4): l_i(a->a'|b), l_j(b->b'|a'), l_j(b->b'|a), l_i(a->a'|b')."""
        return self.scores[..., 0] - self.scores[..., 1]

    @property
    def delta(self) -> Tensor:
        """(count,): | l_i(a->a'|b) + l_j(b->b'|a') - l_j(b->b'|a) - l_i(a->a'|b') |, in nats.

        At temperature 1; at another one it is this divided by the temperature.
        """
        one_way, other_way = self.log_ratios.split(2, dim=1)
        return (one_way.sum(dim=1) - other_way.sum(dim=1)).abs()

    @property
    def rounding(self) -> Tensor:
        """(count,): what float64 rounding of the scores and of their sum may add to delta."""
        return 4 * torch.finfo(torch.float64).eps * self.scores.abs().sum(dim=(1, 2))

    @property
    def corners(self) -> Tensor:
        """(count, 4, length): the texts with a, b; with a', b; with a, b'; with a', b'."""
        return _corners(self.tokens, self.sites, self.values)


def rectangles(
    conditionals: Conditionals,
    tokens: Tensor,
    sites: Tensor,
    values: Tensor,
    *,
    influence: bool = True,
) -> Rectangles:
    """Rectangles at the corners tokens (count, length), four masked evaluations each.

    sites (count, 2) are i and j, values (count, 2) the tokens a' and b' put there. Scores are in
    the conditionals' own dtype, sums over them in float64; the normalisation of a conditional
    cancels in a log-ratio. Without influence only two tokens are asked for in each evaluation,
    which an autoregressive model can answer.
    """
    _check(tokens, sites, values, conditionals.vocab_size)
    parts = [
        _evaluate(conditionals, *part, influence=influence)
        for part in zip(*(t.split(AT_ONCE) for t in (tokens, sites, values)), strict=True)
    ]
    scores = torch.cat([part for part, _ in parts])
    _check_finite(scores)
    spread = torch.cat([part for _, part in parts]) if influence else None
    return Rectangles(tokens, sites, values, scores, spread)


def _evaluate(
    conditionals: Conditionals, tokens: Tensor, sites: Tensor, values: Tensor, *, influence: bool
) -> tuple[Tensor, Tensor]:
    """Scores (count, 4, 2) and influence (count, 2), the latter empty where not asked for."""
    slots = torch.tensor([0, 1, 1, 0])  # which site each evaluation hides: i, j, j, i
    # What stands at a hidden site does not matter, so two evaluations share the corner a, b.
    rows = _corners(tokens, sites, values)[:, [0, 1, 0, 2]].flatten(0, 1)
    hidden = sites[:, slots].reshape(-1, 1)
    old = tokens.gather(1, sites)
    asked = torch.stack([values[:, slots], old[:, slots]], dim=2).reshape(-1, 1, 2)
    if not influence:
        answer = conditionals.scores(rows, hidden, asked).double()
        return answer.view(-1, 4, 2), answer.new_empty(0)
    whole = conditionals.scores(rows, hidden).double()
    laws = torch.softmax(whole, dim=-1).view(len(tokens), 4, -1)
    apart = torch.stack([laws[:, 0] - laws[:, 3], laws[:, 1] - laws[:, 2]], dim=1)
    return whole.gather(-1, asked).view(-1, 4, 2), apart.abs().sum(dim=-1) / 2


def _corners(tokens: Tensor, sites: Tensor, values: Tensor) -> Tensor:
    """The texts (count, 4, length) with a, b; with a', b; with a, b'; with a', b'."""
    at_i = tokens.scatter(1, sites[:, :1], values[:, :1])
    at_j = tokens.scatter(1, sites[:, 1:], values[:, 1:])
    return torch.stack([tokens, at_i, at_j, tokens.scatter(1, sites, values)], dim=1)


def _check(tokens: Tensor, sites: Tensor, values: Tensor, vocab_size: int) -> None:
    if tokens.dim() != 2 or len(tokens) == 0:
        raise GlauberError(
            "there is no text to make a rectangle of: tokens must be (count, length)."
        )
    if sites.shape != (len(tokens), 2) or values.shape != (len(tokens), 2):
        raise GlauberError(
            f"a rectangle has two sites and two replacements, but {len(tokens)} texts came with "
            f"sites of shape {tuple(sites.shape)} and values of shape {tuple(values.shape)}."
        )
    lengths = (tokens != PAD).sum(dim=1)
    if int(lengths.min()) < 2:
        raise GlauberError("a text has only one token, but a rectangle needs two sites.")
    outside = (sites < 0) | (sites >= lengths[:, None])
    if bool(outside.any()):
        row = int(outside.any(dim=1).nonzero()[0])
        raise GlauberError(
            f"the sites {tuple(sites[row].tolist())} of rectangle {row} lie outside its text, "
            f"which has sites 0 to {int(lengths[row]) - 1}."
        )
    if bool((sites[:, 0] == sites[:, 1]).any()):
        raise GlauberError("the two sites of a rectangle are the same site, but they must differ.")
    if bool(((values < 0) | (values >= vocab_size)).any()):
        raise GlauberError(f"a replacement lies outside the vocabulary, 0 to {vocab_size - 1}.")


def _check_finite(scores: Tensor) -> None:
    broken = ~torch.isfinite(scores).all(dim=2).all(dim=1)
    if bool(broken.any()):
        raise GlauberError(
            f"rectangle {int(broken.nonzero()[0])} uses a token of probability 0, such as one "
            "outside the allowed vocabulary: its log-ratios are not finite."
        )
