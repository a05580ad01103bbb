"""Where do two neighbouring positions look, when they say the same word and when they do not?

Paper B, section 3.4: a stutter is a failure to model how target positions depend on each other.
Two guesses which positions are at risk: those that attend to each other (table 4), and those that
read the same source tokens (table 5). Both are looked at in the last decoder layer, in the pass
that wrote the words. Drafts are neither remasked nor cleaned of repeats, since final outputs hardly
stutter.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from glauber.errors import GlauberError
from glauber.translation.data import padded
from glauber.translation.decode import Schedule, decode
from glauber.translation.lengths import length_log_probs, likely_lengths
from glauber.translation.model import FIRST_WORD, MASK, PAD, Attention, DecoderLayer, Translator
from glauber.translation.neighbours import Neighbours, Pairs, neighbours
from glauber.translation.vocabulary import Vocabulary


@torch.inference_mode()
def attention_of_neighbours(
    model: Translator,
    vocabulary: Vocabulary,
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
    found = []
    for begin in range(0, len(sources), batch_size):
        source = padded(sources[begin : begin + batch_size]).to(model.device)
        found.append(_pairs(model, source, n_steps, begin))
    return neighbours(Pairs.joined(found), n_steps)


def _pairs(model: Translator, source: Tensor, n_steps: int, first: int) -> Pairs:
    """The neighbours of one batch; its rows are counted from `first`."""
    memory = model.encode(source)
    lengths = likely_lengths(length_log_probs(model, memory, source), 1)[:, 0]
    inside = torch.arange(int(lengths.max()), device=source.device) < lengths[:, None]
    draft = torch.where(inside, MASK, PAD)
    if n_steps > 1:
        plain = Schedule(n_steps - 1, remask_stutter=False, doubt=0.0, drop_repeats=False)
        draft = decode(model, memory, lengths, plain).tokens
    with last_attention(model) as seen:
        scores = model.denoise(draft, memory)
    said = (scores[..., FIRST_WORD:].argmax(-1) + FIRST_WORD).masked_fill(~inside, PAD)
    return Pairs.of(said, seen["own"].float(), seen["cross"].float(), first)


@contextmanager
def last_attention(model: Translator) -> Iterator[dict[str, Tensor]]:
    """Fills with the probabilities of the last decoder layer, as it runs: own and cross.

    own (rows, heads, length, length), cross (rows, heads, length, source length). The layer's
    attention is fused and keeps none, so they are worked out again from what it is given.
    """
    seen: dict[str, Tensor] = {}
    layer = model.decoder[-1]
    assert isinstance(layer, DecoderLayer)

    def keep(name: str) -> Any:
        def hook(module: nn.Module, given: tuple[Tensor, ...]) -> None:
            assert isinstance(module, Attention)
            asking, asked, visible = given
            seen[name] = probabilities(module, asking, asked, visible=visible)

        return hook

    hooks = [
        layer.own.register_forward_pre_hook(keep("own")),
        layer.cross.register_forward_pre_hook(keep("cross")),
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def probabilities(
    attention: Attention, asking: Tensor, asked: Tensor, *, visible: Tensor | None = None
) -> Tensor:
    """softmax(Q K^T / sqrt(d)) over what is visible: (rows, heads, asking, asked)."""
    query, key = attention.split(attention.query(asking)), attention.split(attention.key(asked))
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    return scores.softmax(-1)
