"""Could one joint law own these conditionals? A rectangle that does not close says no.

Two sites i and j, a token changed at each: a -> a' and b -> b'. Under a joint law, going round
the four corners adds up to nothing, because every edge is a difference of one log joint (paper A,
Theorem 1). The paper's protocol looks at random rectangles that the model finds plausible: a random
passage, a random pair of its free sites, and at each site a replacement from the model's own first
choices there, the site hidden and the rest of the passage as it is.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from glauber.conditionals.base import PAD, Conditionals
from glauber.conditionals.batching import in_parts
from glauber.conditionals.vocabulary import Vocabulary
from glauber.errors import GlauberError
from glauber.progress import Advance, check_count, check_seed

TOP = 50  # first choices that a replacement is drawn from, in the paper
ROUNDS = 64  # of drawing again where the current token is one that the conditionals rule out


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


def evaluate(
    conditionals: Conditionals,
    tokens: Tensor,
    sites: Tensor,
    values: Tensor,
    *,
    influence: bool = True,
    advance: Advance | None = None,
) -> Rectangles:
    """Rectangles at the corners tokens (count, length), four masked evaluations each.

    sites (count, 2) are i and j, values (count, 2) the tokens a' and b' put there. Scores are in
    the conditionals' own dtype, sums over them in float64; the normalisation of a conditional
    cancels in a log-ratio. Without influence only two tokens are asked for in each evaluation,
    which an autoregressive model can answer.
    """
    _check(tokens, sites, values, conditionals.vocab_size)
    parts = []
    held = 3 * 4 * conditionals.vocab_size  # scores, probabilities and their differences
    for part in in_parts(torch.arange(len(tokens)), held):
        asked = tokens[part], sites[part], values[part]
        parts.append(_evaluate(conditionals, *asked, influence=influence))
        if advance is not None:
            advance(len(part))
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
    probs = torch.softmax(whole, dim=-1).view(len(tokens), 4, -1)
    apart = torch.stack([probs[:, 0] - probs[:, 3], probs[:, 1] - probs[:, 2]], dim=1)
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


@dataclass(frozen=True)
class Reading:
    """One rectangle as sentences: its four corners, and the two ways round."""

    delta: float
    sites: tuple[int, int]
    changes: tuple[tuple[str, str], tuple[str, str]]  # (a, a') and (b, b'), as they are spelled
    corners: tuple[str, str, str, str]  # a b; a' b; a b'; a' b'
    one_way: float  # log-ratio from a b to a' b' by way of a' b
    other_way: float  # by way of a b'; the two are equal under a joint law

    def lines(self) -> Iterable[str]:
        (a, new_a), (b, new_b) = self.changes
        yield ""
        yield f"Delta {self.delta:.3f}: {a} -> {new_a} and {b} -> {new_b}"
        names = ("as it was", f"with {new_a}", f"with {new_b}", "with both")
        for name, text in zip(names, self.corners, strict=True):
            yield f"  {name:>24}  {text}"
        yield (
            f"  log-ratio of the last to the first: {self.one_way:+.3f} by way of {new_a}, "
            f"{self.other_way:+.3f} by way of {new_b}"
        )


def read(found: Rectangles, which: int, vocabulary: Vocabulary) -> Reading:
    """The rectangle of that number as sentences."""
    ratios = found.log_ratios[which].tolist()
    sites = found.sites[which].tolist()
    olds = found.tokens[which, sites].tolist()
    news = found.values[which].tolist()
    spell = vocabulary.spell
    first, second = ((spell(old), spell(new)) for old, new in zip(olds, news, strict=True))
    ab, a_new, b_new, both = (vocabulary.decode(row.tolist()) for row in found.corners[which])
    return Reading(
        delta=float(found.delta[which]),
        sites=(sites[0], sites[1]),
        changes=(first, second),
        corners=(ab, a_new, b_new, both),
        one_way=ratios[0] + ratios[1],
        other_way=ratios[2] + ratios[3],
    )


class Drawn(NamedTuple):
    """Rectangles to look at: what `evaluate` takes, and the passage that each came from."""

    tokens: Tensor  # (count, length)
    sites: Tensor  # (count, 2)
    values: Tensor  # (count, 2)
    passages: Tensor  # (count,)


def draw(
    conditionals: Conditionals,
    tokens: Tensor,
    free: Tensor,
    *,
    count: int,
    seed: int = 0,
    top: int = TOP,
) -> Drawn:
    """`count` random rectangles over the passages tokens (passages, length) and their free sites.

    Passage, ordered pair of sites and replacements are uniform: a replacement is one of the `top`
    tokens of highest score (ties by id), the current token left out. Where the current token has
    probability 0 (it is outside the allowed vocabulary) the whole rectangle is drawn again. The
    draws are keyed by (seed, round, rectangle): a larger count keeps the first rectangles.
    """
    check_numbers(count, seed, top)
    _check_texts(free)
    found: list[Drawn] = []
    missing = torch.arange(count)
    order: list[Tensor] = []
    for again in range(ROUNDS):
        chance = _uniforms(seed, again, count)[missing]
        rounds = [
            _round(conditionals, tokens, free, part, top)
            for part in in_parts(chance, 2 * 2 * conditionals.vocab_size)
        ]
        found += [part for part, _ in rounds]
        possible = torch.cat([kept for _, kept in rounds])
        order.append(missing[possible])
        missing = missing[~possible]
        if len(missing) == 0:
            back = torch.cat(order).argsort()
            return Drawn(*(torch.cat(column)[back] for column in zip(*found, strict=True)))
    raise GlauberError(
        "too few free sites hold a token of the allowed vocabulary to draw two of them in a text."
    )


def _uniforms(seed: int, again: int, count: int) -> Tensor:
    """Five numbers (count, 5) in [0, 1) for each rectangle, from Philox keyed by seed and round."""
    generator = np.random.Generator(np.random.Philox(key=np.array([seed, again], dtype=np.uint64)))
    return torch.from_numpy(generator.random((count, 5)))


def _round(
    conditionals: Conditionals, tokens: Tensor, free: Tensor, chance: Tensor, top: int
) -> tuple[Drawn, Tensor]:
    """One draw each, without those whose current token is impossible, and which (count,) stay."""
    passages = (chance[:, 0] * len(tokens)).long()
    rows = tokens[passages]
    sites = _pairs(free[passages], chance[:, 1:3])
    old = rows.gather(1, sites).reshape(-1)
    scores = conditionals.scores(rows.repeat_interleave(2, dim=0), sites.reshape(-1, 1))[:, 0]
    values = _replacements(scores, old, chance[:, 3:].reshape(-1), top)
    possible = torch.isfinite(scores.gather(1, old[:, None])).view(-1, 2).all(dim=1)
    drawn = Drawn(rows, sites, values.view(-1, 2), passages)
    return Drawn(*(column[possible] for column in drawn)), possible


def _pairs(free: Tensor, chance: Tensor) -> Tensor:
    """Two different free sites (count, 2) of each row, each ordered pair equally likely."""
    n_free = free.sum(dim=1)
    first = (chance[:, 0] * n_free).long()
    second = (chance[:, 1] * (n_free - 1)).long()
    second += second >= first
    free_first = (~free).byte().argsort(dim=1, stable=True)
    return free_first.gather(1, torch.stack([first, second], dim=1))


def _replacements(scores: Tensor, old: Tensor, chance: Tensor, top: int) -> Tensor:
    """One of the `top` tokens of each row of scores (rows, vocab), but not the old one: (rows,)."""
    count = torch.isfinite(scores).sum(dim=1).clamp(max=top)  # a small vocabulary has fewer
    best = scores.sort(dim=1, descending=True, stable=True).indices[:, :top]
    is_old = (best == old[:, None]) & (torch.arange(best.shape[1]) < count[:, None])
    rank = torch.where(is_old.any(dim=1), is_old.byte().argmax(dim=1), count)
    choice = (chance * (count - is_old.any(dim=1).long())).long()
    choice += choice >= rank
    return best.gather(1, choice[:, None])[:, 0]


def check_numbers(count: int, seed: int, top: int) -> None:
    """Refuses numbers that no rectangles can be drawn with."""
    check_count("number of rectangles", count, most=10**8)
    check_count("number of first choices", top, least=2)
    check_seed(seed)


def _check_texts(free: Tensor) -> None:
    if len(free) == 0:
        raise GlauberError("there is no text to draw rectangles from.")
    n_free = free.sum(dim=1)
    if int(n_free.min()) < 2:
        raise GlauberError(
            f"text {int(n_free.argmin()) + 1} has fewer than two tokens that may be redrawn, "
            "but a rectangle needs two sites."
        )
