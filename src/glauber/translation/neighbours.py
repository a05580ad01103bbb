"""Attention of two neighbouring positions, if they say the same word and if they do not.

Paper B, section 3.4: a stutter is a failure to model how target positions depend on each other.
Two hypotheses which positions are at risk: those that attend to each other (table 4), and those
that read the same source tokens (table 5). Both are measured in the last decoder layer, in the pass
that wrote the words. Drafts are neither remasked nor cleaned of repeats, since final outputs hardly
stutter.

Every measure is taken for each pair of adjacent positions i, i + 1 of a draft. The two heads of a
table, self- and cross-attention, are those of tables 4 and 5 of paper B:

- `self`: the attention of i to i + 1 and of i + 1 to i, two scores a pair; each the least, mean and
  greatest over the heads. `self_top_k`: the share of heads and directions in which the other
  position is among the k most attended to.
- `variation` and `cosine`: distances of the two cross-attention distributions, half the sum of the
  absolute differences and one minus the cosine; the least, mean and greatest over the heads.
  `cross_top_k`: the share of heads in which the k source positions most attended to have one in
  common.
- `target`: the share of attention that goes to target tokens rather than to source tokens, of i and
  of i + 1, after Ren and others (2020), who measure it where one softmax covers both. Here the two
  blocks are separate; their scores are put into one softmax. No number of paper B is about it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from glauber.foundation.errors import GlauberError
from glauber.foundation.statistics import Estimate, Floats, jackknife
from glauber.translation.data import SubwordVocabulary, pad_rows
from glauber.translation.decoding import Decoding, decode, length_log_probs, likely_lengths
from glauber.translation.model import FIRST_WORD, MASK, PAD, Attention, DecoderLayer, Translator

OVER_HEADS = ("min", "avg", "max")
SELF = tuple(f"self_{name}" for name in OVER_HEADS)
CROSS = tuple(f"{kind}_{name}" for kind in ("variation", "cosine") for name in OVER_HEADS)
TARGET = tuple(f"target_{name}" for name in OVER_HEADS)


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of a measure over pairs; the error counts sentences.

    Pairs of one sentence are not independent: the standard error adds up their deviations by
    sentence before it squares them.
    """

    mean: float
    deviation: float
    standard_error: float


@dataclass(frozen=True)
class PairGroup:
    """The measures of the pairs that stutter, or of those that do not."""

    n_pairs: int
    n_sentences: int
    measures: dict[str, Spread]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Attention of neighbouring positions in one pass, of pairs that stutter and of the others.

    sums: by measure and sentence (sentences, 4), the sum and the count of pairs that stutter, then
    those of the others.
    """

    stuttering: PairGroup
    others: PairGroup
    n_steps: int
    sums: dict[str, Floats]
    kind: str = "estimate"

    def difference(self, measure: str, *, relative: bool = False) -> Estimate:
        """Stuttering less others, optionally relative to the mean of the others, over sentences.

        Pairs of both groups come from the same sentences, so whole sentences are left out.
        """
        sums = self.sums[measure]

        def gap(weights: Floats) -> Floats:
            same, n_same, other, n_other = weights @ sums
            if not n_same or not n_other:
                raise GlauberError("without this sentence there is nothing to compare.")
            mean = other / n_other
            return np.array([(same / n_same - mean) / (mean if relative else 1.0)])

        return jackknife(gap, len(sums)).item(0)


class Pairs(NamedTuple):
    """stutters and sentence (pairs,), and every measure (pairs, values): self has two values."""

    stutters: Tensor
    sentence: Tensor
    measures: dict[str, Tensor]

    @classmethod
    def of(
        cls,
        predicted: Tensor,
        own: Tensor,
        cross: Tensor,
        first: int = 0,
        target: Tensor | None = None,
    ) -> "Pairs":
        """The neighbours of drafts (rows, length), padded, with their attention.

        target (rows, heads, length): the share of each position that goes to target tokens.
        """
        row, left = (predicted[:, 1:] != PAD).nonzero(as_tuple=True)
        right = left + 1
        measures = _self_measures(own, row, left, right)
        measures |= _cross_measures(cross[row, :, left], cross[row, :, right])
        if target is not None:
            both = torch.stack([target[row, :, left], target[row, :, right]], 1)
            measures |= zip(TARGET, _over_heads(both), strict=True)
        return cls(predicted[row, left] == predicted[row, right], row + first, measures)

    @classmethod
    def join(cls, batches: list["Pairs"]) -> "Pairs":
        """The pairs of several batches as one."""
        names = batches[0].measures
        return cls(
            torch.cat([batch.stutters for batch in batches]),
            torch.cat([batch.sentence for batch in batches]),
            {name: torch.cat([batch.measures[name] for batch in batches]) for name in names},
        )


def neighbours(pairs: Pairs, n_steps: int) -> Neighbours:
    """Both groups' means, deviations and errors."""
    if not bool(pairs.stutters.any()) or bool(pairs.stutters.all()):
        which = "no" if not bool(pairs.stutters.any()) else "every"
        raise GlauberError(f"{which} pair of neighbours stutters: there is nothing to compare.")
    sums = {name: _sums(pairs, values) for name, values in pairs.measures.items()}
    groups = _group(pairs, pairs.stutters), _group(pairs, ~pairs.stutters)
    return Neighbours(*groups, n_steps, sums)


def _sums(pairs: Pairs, values: Tensor) -> Floats:
    """By sentence (sentences, 4): sum and count of what stutters, and of what does not."""
    _, sentence = pairs.sentence.unique(return_inverse=True)
    sums = torch.zeros(int(sentence.max()) + 1, 4, dtype=torch.double, device=values.device)
    for column, chosen in ((0, pairs.stutters), (2, ~pairs.stutters)):
        group = values[chosen].double()
        both = torch.stack([group.sum(1), torch.full_like(group[:, 0], group.shape[1])], 1)
        sums[:, column : column + 2].index_add_(0, sentence[chosen], both)
    return sums.cpu().numpy()


def _group(pairs: Pairs, chosen: Tensor) -> PairGroup:
    sentence = pairs.sentence[chosen]
    measures = {name: _spread(values[chosen], sentence) for name, values in pairs.measures.items()}
    return PairGroup(int(chosen.sum()), len(sentence.unique()), measures)


def _spread(values: Tensor, sentence: Tensor) -> Spread:
    values = values.double()
    mean = values.mean()
    by_sentence = torch.zeros(int(sentence.max()) + 1, dtype=values.dtype, device=values.device)
    by_sentence.index_add_(0, sentence, (values - mean).sum(1))
    error = by_sentence.square().sum().sqrt() / values.numel()
    return Spread(float(mean), float(values.std(correction=0)), float(error))


def _self_measures(own: Tensor, row: Tensor, left: Tensor, right: Tensor) -> dict[str, Tensor]:
    """Attention between the two, in both directions."""
    forward, back = own[row, :, left, right], own[row, :, right, left]  # (pairs, heads)
    both = torch.stack([forward, back], 1)
    measures = dict(zip(SELF, _over_heads(both), strict=True))
    for k in (1, 2):
        hits = [
            (own[row, :, at] > score[..., None]).sum(-1) < k
            for at, score in ((left, forward), (right, back))
        ]
        measures[f"self_top_{k}"] = torch.stack([hit.double().mean(1) for hit in hits], 1)
    return measures


def _cross_measures(left: Tensor, right: Tensor) -> dict[str, Tensor]:
    """Distances of two distributions over the source: both (pairs, heads, source)."""
    variation = (left - right).abs().sum(-1) / 2
    cosine = 1 - torch.cosine_similarity(left, right, dim=-1)
    distances = _over_heads(variation[:, None]) + _over_heads(cosine[:, None])
    measures = dict(zip(CROSS, distances, strict=True))
    for k in (1, 2):
        top = [side.topk(min(k, side.shape[-1]), -1).indices for side in (left, right)]
        shared = (top[0][..., :, None] == top[1][..., None, :]).flatten(-2).any(-1)
        measures[f"cross_top_{k}"] = shared.double().mean(1, keepdim=True)
    return measures


def _over_heads(values: Tensor) -> list[Tensor]:
    """The least, mean and greatest over the heads: (pairs, k, heads) -> three (pairs, k)."""
    return [values.amin(-1), values.mean(-1), values.amax(-1)]


@torch.inference_mode()
def attention_of_neighbours(
    model: Translator,
    vocabulary: SubwordVocabulary,
    texts: Sequence[str],
    *,
    n_steps: int = 1,
    batch_size: int = 32,
) -> Neighbours:
    """Attention between and of neighbouring positions in pass `n_steps`, by whether they stutter.

    The drafts have the most likely length and begin as MASK.
    """
    if model.shape.kind != "refine":
        raise GlauberError("only a translator of kind refine writes neighbours in one pass.")
    if n_steps < 1 or not texts:
        raise GlauberError("at least 1 step and 1 text are needed.")
    sources = [vocabulary.read_source(text, model.shape.max_length) for text in texts]
    batches = []
    for begin in range(0, len(sources), batch_size):
        source = pad_rows(sources[begin : begin + batch_size]).to(model.device)
        batches.append(_pairs(model, source, n_steps, begin))
    return neighbours(Pairs.join(batches), n_steps)


def _pairs(model: Translator, source: Tensor, n_steps: int, first: int) -> Pairs:
    """The neighbours of one batch; its rows are counted from `first`."""
    memory = model.encode(source)
    lengths = likely_lengths(length_log_probs(model, memory, source), 1)[:, 0]
    inside = torch.arange(int(lengths.max()), device=source.device) < lengths[:, None]
    draft = torch.where(inside, MASK, PAD)
    if n_steps > 1:
        plain = Decoding(n_steps=n_steps - 1, remask_repeats=False, remask=0.0, drop_repeats=False)
        draft = decode(model, memory, lengths, plain).tokens
    with last_attention(model) as attention:
        scores = model.denoise(draft, memory)
    predicted = (scores[..., FIRST_WORD:].argmax(-1) + FIRST_WORD).masked_fill(~inside, PAD)
    own, cross, target = (attention[name].float() for name in ("own", "cross", "target"))
    return Pairs.of(predicted, own, cross, first, target)


@contextmanager
def last_attention(model: Translator) -> Iterator[dict[str, Tensor]]:
    """The attention probabilities of the last decoder layer, own and cross, filled as it runs.

    own (rows, heads, length, length), cross (rows, heads, length, source length); target
    (rows, heads, length) is the share of target tokens in one softmax over the scores of both. The
    fused attention of the layer does not return them, so they are computed again from its inputs.
    """
    recorded: dict[str, Tensor] = {}
    mass: dict[str, Tensor] = {}  # logarithms of what the softmax divides by
    layer = model.decoder[-1]
    assert isinstance(layer, DecoderLayer)

    def recorder(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            assert isinstance(module, Attention)
            states, context, visible = inputs
            scores = attention_scores(module, states, context, visible=visible)
            recorded[name], mass[name] = scores.softmax(-1), scores.logsumexp(-1)
            if name == "cross":  # after the layer's own
                recorded["target"] = (mass["own"] - mass["cross"]).sigmoid()

        return hook

    hooks = [
        layer.own.register_forward_pre_hook(recorder("own")),
        layer.cross.register_forward_pre_hook(recorder("cross")),
    ]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()


def attention_scores(
    attention: Attention, states: Tensor, context: Tensor, *, visible: Tensor | None = None
) -> Tensor:
    """Q K^T / sqrt(d), -inf at what is not visible: (rows, heads, states, context)."""
    query, key = attention.split(attention.query(states)), attention.split(attention.key(context))
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    if visible is not None and visible.dtype == torch.bool:
        return scores.masked_fill(~visible, -torch.inf)
    return scores if visible is None else scores + visible  # scores of distances
