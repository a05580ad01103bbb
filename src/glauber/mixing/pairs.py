"""What is a pair of chains, and how does it move?

Both chains redraw the same site, each from its own conditional, the two tokens drawn together:

maximal      the same token as often as any joint law allows, with probability 1 - TV(p, q)
inverse-cdf  both from one uniform number, in the order of the fill (decreasing score)
gumbel-max   both from the same Gumbel variables

Whichever is used, the left token alone has law p and the right one alone has law q. Draws are
made in float64, each row by itself, so a pair's draw does not depend on its neighbours. Where the
two agree everywhere else, the two conditionals are one: the model is asked once and both get the
same token. So a pair that has met stays together.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glauber.conditionals.base import PAD, Conditionals, Model
from glauber.conditionals.starts import starts
from glauber.conditionals.texts import Corpus
from glauber.dynamics import noise
from glauber.dynamics.fills import TOGETHER, Fill, gumbel_max, inverse_cdf
from glauber.dynamics.kernel import State, start
from glauber.dynamics.noise import random_bits
from glauber.dynamics.scans import uniform
from glauber.errors import GlauberError
from glauber.progress import check_memory
from glauber.result import one_of
from glauber.threads import side_by_side

COUPLINGS = ("maximal", "inverse-cdf", "gumbel-max")
SLOT = 2  # of the noise that pairs texts; the steps of a pair use 0 and 1


class Pairs(NamedTuple):
    """Many pairs at once; each has its own step, length, temperature, seed and free sites."""

    left: Tensor  # (pairs, length) int64, PAD behind shorter pairs
    right: Tensor  # (pairs, length) int64
    step: Tensor  # (pairs,) int64: steps made so far; with seed and pair it keys the noise
    pair: Tensor  # (pairs,) int64: the pair's number
    free: Tensor  # (pairs, length) bool
    temperature: Tensor  # (pairs,) float64
    seed: Tensor  # (pairs,) int64

    def rows(self, chosen: Tensor | slice) -> "Pairs":
        """The chosen pairs."""
        return Pairs(*(part[chosen] for part in self))

    @property
    def distance(self) -> Tensor:
        """The number of sites at which the two differ (pairs,)."""
        return (self.left != self.right).sum(dim=1)


class Question(NamedTuple):
    """Two conditionals a pair, and the random bits to draw with."""

    left: Tensor  # (pairs, vocab) scores
    right: Tensor  # (pairs, vocab) scores
    temperature: Tensor  # (pairs,) float64
    bits: Tensor  # (pairs, 3) int64

    def split(self, size: int) -> "list[Question]":
        """The same pairs in parts of at most `size`."""
        return [Question(*part) for part in zip(*(x.split(size) for x in self), strict=True)]


class JointDraw(NamedTuple):
    """together(question) -> tokens (pairs, 2); `alone` draws where both conditionals are one."""

    name: str
    alone: Fill
    together: Callable[[Question], Tensor]


def begin(
    left: Tensor,
    right: Tensor,
    free: Tensor,
    *,
    temperature: float | Tensor,
    seed: int | Tensor,
    pair: Tensor | None = None,
    step: int = 0,
) -> Pairs:
    """The pairs at their start, checked; left, right and free (pairs, length)."""
    if left.shape != right.shape or bool(((left == PAD) != (right == PAD)).any()):
        raise GlauberError(
            "the two texts of a pair have unequal lengths, so they could never become one text."
        )
    if bool((~free & (left != right)).any()):
        raise GlauberError("the two texts of a pair differ at a site that is never redrawn.")
    chains = start(left, free, temperature=temperature, chain=pair, step=step, device=left.device)
    seeds = torch.as_tensor(seed, dtype=torch.int64, device=left.device).expand(len(left)).clone()
    return Pairs(
        chains.tokens, right.long(), chains.step, chains.chain, chains.free,
        chains.temperature, seeds,
    )  # fmt: skip


def step_together(conditionals: Conditionals, joint: JointDraw, pairs: Pairs) -> Pairs:
    """Each pair one step later: one uniformly chosen free site redrawn in both texts."""
    order, fill = random_bits(pairs.seed, pairs.pair, pairs.step, torch.zeros_like(pairs.step))
    site = _sites(conditionals, pairs, order)
    differ = (pairs.left != pairs.right).scatter(1, site, False)
    same = ~differ.any(dim=1)
    apart = (~same).nonzero()[:, 0]
    scores = conditionals.scores(
        torch.cat([pairs.left, pairs.right[apart]]), torch.cat([site, site[apart]])
    )[:, 0]
    tokens = torch.empty_like(site).repeat(1, 2)
    if len(apart):
        question = Question(
            scores[apart], scores[len(site) :], pairs.temperature[apart],
            _bits(pairs.rows(apart), fill[apart]),
        )  # fmt: skip
        tokens[apart] = joint.together(question)
    one = same.nonzero()[:, 0]
    if len(one):
        old = pairs.left[one].gather(1, site[one])[:, 0]
        drawn = joint.alone.draw(scores[one], pairs.temperature[one], fill[one], old)
        tokens[one] = drawn.tokens[:, None]
    return pairs._replace(
        left=pairs.left.scatter(1, site, tokens[:, :1]),
        right=pairs.right.scatter(1, site, tokens[:, 1:]),
        step=pairs.step + 1,
    )


def joint_draw_named(name: str) -> JointDraw:
    """The joint draw of that name."""
    one_of("the coupling", name, COUPLINGS)
    if name == "maximal":
        return maximal()
    return shared(inverse_cdf() if name == "inverse-cdf" else gumbel_max())


def maximal() -> JointDraw:
    """With probability 1 - TV(p, q) one token from min(p, q) for both, else from the residuals.

    The residuals p - min(p, q) and q - min(p, q) have no token in common; they are drawn from
    independently, so 1 - TV is all the agreement there is, and no coupling has more.
    """

    def together(question: Question) -> Tensor:
        if question.left.is_cuda:
            return _maximal(question)
        rows = max(1, TOGETHER // question.left.shape[1])
        return torch.cat(side_by_side(_maximal, question.split(rows)))

    return JointDraw("maximal", inverse_cdf(), together)


def shared(fill: Fill) -> JointDraw:
    """Both tokens drawn by the fill from the same random bits."""

    def together(question: Question) -> Tensor:
        ignored = torch.zeros_like(question.bits[:, 0])  # the old tokens: only reported on
        sides = [
            fill.draw(scores, question.temperature, question.bits[:, 0], ignored).tokens
            for scores in (question.left, question.right)
        ]
        return torch.stack(sides, dim=1)

    return JointDraw(fill.name, fill, together)


def pairs_of_texts(n_texts: int, n_pairs: int, *, seed: int) -> Tensor:
    """Numbers (n_pairs, 2) of two different texts a pair, in an order that the seed decides.

    Every text is used once before any is used again; then they are shuffled anew.
    """
    if n_texts < 2:
        raise GlauberError(
            f"there is {n_texts} text, but a pair needs two: give more texts, or shorter ones."
        )
    per_round = n_texts // 2
    rounds = torch.arange(-(-n_pairs // per_round))[:, None]
    key, _ = random_bits(
        torch.tensor(seed), rounds, torch.arange(n_texts)[None], torch.tensor(SLOT)
    )
    order = noise.uniform(key).argsort(dim=1, stable=True)[:, : 2 * per_round]
    return order.reshape(-1, 2)[:n_pairs]


def different_texts(tokens: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens and free sites (texts, length) of each different text once: equal ones are no pair.

    Texts that begin alike, as proteins of one family do, may be equal once they are cut.
    """
    first: dict[tuple[int, ...], int] = {}
    for place, row in enumerate(tokens.tolist()):
        first.setdefault(tuple(row), place)
    if len(first) == 1 < len(tokens):
        raise GlauberError(
            "all texts are the same, so two chains would have met before the first step: give "
            "different texts, or a larger length."
        )
    kept = torch.tensor(list(first.values()), device=tokens.device)
    return tokens[kept], free[kept]


def begin_texts(
    model: Model, texts: Any, pairs: int, length: int | None, freeze: Any, seed: int
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Left and right tokens and free sites (pairs, length), and how many right ones changed.

    Two chains must hold the same tokens where nothing is redrawn: the left ones are taken.
    """
    begun = different_texts(*starts(model, texts, length=length, freeze=freeze))
    rows, free = (part.to(model.state_device) for part in begun)
    check_memory(pairs * rows.shape[1] * 60, f"{pairs:,} pairs of chains")
    chosen = pairs_of_texts(len(rows), pairs, seed=seed).to(rows.device)
    if is_pair(texts):
        chosen = chosen.sort(dim=1).values
    _check_lengths((rows >= 0).sum(dim=1)[chosen], free.sum(dim=1)[chosen])
    left, right, free = rows[chosen[:, 0]], rows[chosen[:, 1]], free[chosen[:, 0]]
    held = torch.where(free, right, left)
    return left, held, free, int((held != right).any(dim=1).sum())


def is_pair(texts: Any) -> bool:
    """Whether two texts were given, which are one pair."""
    return isinstance(texts, list | tuple | Corpus) and len(texts) == 2


def spelled(model: Model, left: Tensor, right: Tensor) -> list[tuple[str, str]]:
    """The two texts of each pair."""
    sides = [[model.vocabulary.decode(row[row >= 0].tolist()) for row in s] for s in (left, right)]
    return list(zip(*sides, strict=True))


def _check_lengths(lengths: Tensor, free: Tensor) -> None:
    """Refuses pairs (pairs, 2) of unequal lengths, which could never become one text."""
    unequal = (lengths[:, 0] != lengths[:, 1]).nonzero()[:, 0].tolist()
    if unequal:
        one, two = free[unequal[0]].tolist()
        raise GlauberError(
            f"the texts of pair {unequal[0]} have {one} and {two} tokens, but a pair needs equal "
            "lengths: set a length to cut them."
        )


def _sites(conditionals: Conditionals, pairs: Pairs, order: Tensor) -> Tensor:
    """The site (pairs, 1) of the next step, as a single chain of that number would choose it."""
    nothing = torch.zeros((len(pairs.left), 0), device=pairs.left.device)
    state = State(pairs.left, pairs.step, pairs.pair, pairs.free, pairs.temperature, nothing)
    return uniform().choose(conditionals, state, order[:, None])


def _bits(pairs: Pairs, fill: Tensor) -> Tensor:
    """The bits (pairs, 3) of a joint draw: those of a single chain, and two of the next slot."""
    spare = random_bits(pairs.seed, pairs.pair, pairs.step, torch.ones_like(pairs.step))
    return torch.stack([fill, *spare], dim=1)


def _maximal(question: Question) -> Tensor:
    p, q = (_probabilities(scores, question.temperature) for scores in question[:2])
    u, left, right = noise.uniform(question.bits).unbind(dim=1)
    overlap = torch.minimum(p, q)
    heap = overlap.cumsum(dim=1)
    mass = heap[:, -1]
    # Rounding may leave the mass a hair below u where nothing is left over: then the last token.
    point = torch.minimum(u, mass.nextafter(torch.zeros_like(mass)))
    tokens = _first_beyond(heap, point)[:, None].repeat(1, 2)
    apart = (u >= mass).nonzero()[:, 0]
    if len(apart):
        tokens[apart] = _residuals(p[apart], q[apart], left[apart], right[apart], tokens[apart])
    return tokens


def _probabilities(scores: Tensor, temperature: Tensor) -> Tensor:
    """Softmax of each row; the largest score is taken off first, so that no quotient overflows."""
    scores = scores.double()
    return torch.softmax(
        (scores - scores.amax(dim=-1, keepdim=True)) / temperature[:, None], dim=-1
    )


def _residuals(p: Tensor, q: Tensor, left: Tensor, right: Tensor, agreed: Tensor) -> Tensor:
    """Tokens (pairs, 2) from p - min(p, q) and q - min(p, q); `agreed` where one is empty."""
    overlap = torch.minimum(p, q)
    heaps = ((p - overlap).cumsum(dim=1), (q - overlap).cumsum(dim=1))
    empty = (heaps[0][:, -1] <= 0) | (heaps[1][:, -1] <= 0)
    sides = [
        _first_beyond(heap, u * heap[:, -1]).clamp(max=p.shape[1] - 1)
        for heap, u in zip(heaps, (left, right), strict=True)
    ]
    return torch.where(empty[:, None], agreed, torch.stack(sides, dim=1))


def _first_beyond(heap: Tensor, point: Tensor) -> Tensor:
    """The first token (rows,) whose cumulative mass in heap (rows, vocab) exceeds the point."""
    return torch.searchsorted(heap, point[:, None], right=True)[:, 0]
