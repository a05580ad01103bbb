"""Texts after contexts: which tokens of the two together are the text's own.

Context and text are joined as they are and read as one. The text's tokens are those that contain a
letter of it: a token that has letters of both is the text's, and so are blanks between them. The
context is visible, never hidden and not scored.
"""

import hashlib
import warnings
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.foundation.study import counted
from glauber.models.base import PAD, Model
from glauber.models.vocabulary import Vocabulary
from glauber.texts.read import Row
from glauber.texts.starts import check_length, readable


class Continuation(NamedTuple):
    """A text after a context, in tokens without the special ones around."""

    pieces: list[int]  # of the context, then of the text
    first: int  # the first of them that is the text's own
    whole: str  # context and text as they were read
    dropped: int = 0  # tokens of the whole that come before the first piece, and are not seen

    @property
    def own(self) -> list[int]:
        """The tokens that are scored."""
        return self.pieces[self.first :]


def read_continuations(
    model: Model, contexts: Sequence[str], texts: Sequence[str]
) -> list[Continuation]:
    """Each text after its context, in tokens; as long as they are.

    What the vocabulary cannot spell is read as its unknown token, and a text may have no token of
    its own.
    """
    vocabulary = model.vocabulary
    joined = [context + text for context, text in zip(contexts, texts, strict=True)]
    readings = readable(vocabulary, joined, strict=False)
    continuations = [_split(vocabulary, *pair) for pair in zip(readings, contexts, strict=True)]
    for number, continuation in enumerate(continuations, start=1):
        if any(piece >= model.vocab_size for piece in continuation.pieces):
            vocabulary.check(continuation.whole, f"text {number}")
    return continuations


def split_contexts(
    model: Model, contexts: Sequence[str], rows: Sequence[Row]
) -> list[Continuation]:
    """Contexts with their texts, as they are read together, in tokens."""
    return [
        _split(model.vocabulary, row.text, context)
        for context, row in zip(contexts, rows, strict=True)
    ]


def continuation_fault(model: Model, continuation: Continuation) -> str:
    """Why a text cannot be scored after its context; empty if it can."""
    if not continuation.own:
        return "has no token of its own behind its context"
    if model.length is None and len(continuation.own) > room(model):
        return (
            f"has {len(continuation.own)} tokens of its own, but {model.name} reads at most "
            f"{room(model)}"
        )
    return ""


def _split(vocabulary: Vocabulary, text: str, context: str) -> Continuation:
    """Both in tokens, and the first of them that reaches beyond the context's last letter.

    Letters are counted and blanks are not, since repairs move these.
    """
    letters = sum(not letter.isspace() for letter in context)
    ends = [index + 1 for index, letter in enumerate(text) if not letter.isspace()]
    end = ends[letters - 1] if letters else 0
    if not end:
        return Continuation(vocabulary.pieces(text), 0, text)
    if not getattr(getattr(vocabulary, "tokenizer", None), "is_fast", False):
        pieces, before = vocabulary.pieces(text), vocabulary.pieces(text[:end])
        same = takewhile(lambda pair: pair[0] == pair[1], zip(pieces, before, strict=False))
        return Continuation(pieces, len(list(same)), text)
    read = vocabulary.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    before = [last for _, last in takewhile(lambda span: span[1] <= end, read["offset_mapping"])]
    return Continuation([int(piece) for piece in read["input_ids"]], len(before), text)


def room(model: Model) -> int:
    """Tokens that a model reads at once, without the special ones."""
    opening, closing = model.vocabulary.text.boundary_tokens
    return model.longest - len(opening) - len(closing)


def cut_contexts(model: Model, continuations: Sequence[Continuation]) -> list[Continuation]:
    """The same with contexts cut from the left, where the model does not read as much."""
    if model.length is not None:  # so many sites always: nothing to cut
        return list(continuations)
    most, shortened = room(model), []
    for number, continuation in enumerate(continuations, start=1):
        if len(continuation.own) > most:
            raise GlauberError(
                f"text {number} has {len(continuation.own)} tokens of its own, but {model.name} "
                f"reads at most {most}."
            )
        excess = max(0, len(continuation.pieces) - most)
        shortened.append(
            continuation._replace(
                pieces=continuation.pieces[excess:],
                first=max(0, continuation.first - excess),
                dropped=continuation.dropped + excess,
            )
        )
    cut = sum(len(continuation.pieces) > most for continuation in continuations)
    if cut:
        warnings.warn(
            f"{model.name} reads at most {most} tokens: the context of {counted(cut, 'text')} is "
            "cut from the left.",
            GlauberWarning,
            stacklevel=3,
        )
    return shortened


def windows(text: Continuation, most: int) -> list[Continuation]:
    """A long text as windows of at most so many tokens, each token scored in one of them.

    All but the last follow each other; the last one is as long, and scores what is left.
    """
    n = len(text.pieces)
    ends = [*range(most, n, most), n]
    return [
        Continuation(text.pieces[first:end], scored - first, text.whole, first)
        for scored, end in zip([0, *ends], ends, strict=False)
        for first in [max(0, end - most)]
    ]


def laid_out(model: Model, texts: Sequence[Continuation]) -> tuple[Tensor, Tensor]:
    """Tokens and the sites that are scored (texts, length), with the special tokens around."""
    tokens, inside = model.vocabulary.rows([text.pieces for text in texts])
    check_length(model, tokens)
    first = torch.tensor([text.first for text in texts])
    return tokens, inside & (inside.cumsum(dim=1) > first[:, None])


def keys_of(texts: Sequence[Continuation], *, of: str = "contexts") -> Tensor:
    """32 bits (texts,) that key the noise of each text, whatever else is asked and when.

    Of contexts: continuations of one context meet the same noise, so that their difference is
    less noisy than each of them. Of texts: different texts meet independent noise, so that it
    averages out over them.
    """
    tokens = [text.pieces[: text.first] if of == "contexts" else text.pieces for text in texts]
    digests = [hashlib.blake2b(repr(row).encode(), digest_size=4).digest() for row in tokens]
    return torch.tensor([int.from_bytes(digest, "little") for digest in digests])


def words_of(model: Model, texts: Sequence[Continuation], free: Tensor) -> Tensor:
    """The word that each scored token is a piece of, (texts, length) as `laid_out`; else PAD."""
    opening = len(model.vocabulary.text.boundary_tokens[0])
    all_words = model.vocabulary.words([text.whole for text in texts])
    table = torch.full(free.shape, PAD)
    for row, text in enumerate(texts):
        begin, n = opening + text.dropped, len(text.pieces)
        table[row, opening : opening + n] = all_words[row, begin : begin + n]
    return table.masked_fill(~free, PAD)
