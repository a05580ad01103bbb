"""Which tokens are a text's own, where it stands behind a context?

Context and text are joined as they are and read as one. The text's tokens are those that hold a
letter of it: a token that both have letters in is the text's, and so are blanks between them. The
context is visible, never hidden and not scored.
"""

import hashlib
import warnings
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import torch
from torch import Tensor

from glauber.conditionals.base import PAD, Model
from glauber.conditionals.files import Row
from glauber.conditionals.starts import check_length, readable
from glauber.conditionals.vocabulary import Vocabulary
from glauber.errors import GlauberError, GlauberWarning
from glauber.result import counted


class Continuation(NamedTuple):
    """A text behind a context, in tokens without the special ones around."""

    pieces: list[int]  # of the context, then of the text
    first: int  # the first of them that is the text's own
    whole: str  # context and text as they were read
    dropped: int = 0  # tokens of the whole that stand before the first piece, and are not seen

    @property
    def own(self) -> list[int]:
        """The tokens that are scored."""
        return self.pieces[self.first :]


def read_continuations(
    model: Model, contexts: Sequence[str], texts: Sequence[str]
) -> list[Continuation]:
    """Each text behind its context, in tokens; as long as they are.

    What the vocabulary cannot spell is read as its unknown token, and a text may have no token of
    its own.
    """
    vocabulary = model.vocabulary
    joined = [context + text for context, text in zip(contexts, texts, strict=True)]
    wholes = readable(vocabulary, joined, strict=False)
    found = [_split(vocabulary, *one) for one in zip(wholes, contexts, strict=True)]
    for number, one in enumerate(found, start=1):
        if any(piece >= model.vocab_size for piece in one.pieces):
            vocabulary.check(one.whole, f"text {number}")
    return found


def split_contexts(
    model: Model, contexts: Sequence[str], wholes: Sequence[Row]
) -> list[Continuation]:
    """Contexts with their texts, as they are read together, in tokens."""
    return [
        _split(model.vocabulary, row.text, context)
        for context, row in zip(contexts, wholes, strict=True)
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


def _split(vocabulary: Vocabulary, whole: str, context: str) -> Continuation:
    """The whole in tokens, and the first of them that reaches beyond the context's last letter."""
    end = _behind(whole, sum(not letter.isspace() for letter in context))
    if not end:
        return Continuation(vocabulary.pieces(whole), 0, whole)
    if not getattr(getattr(vocabulary, "tokenizer", None), "is_fast", False):
        pieces, before = vocabulary.pieces(whole), vocabulary.pieces(whole[:end])
        same = takewhile(lambda pair: pair[0] == pair[1], zip(pieces, before, strict=False))
        return Continuation(pieces, len(list(same)), whole)
    read = vocabulary.tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
    before = [last for _, last in takewhile(lambda span: span[1] <= end, read["offset_mapping"])]
    return Continuation([int(piece) for piece in read["input_ids"]], len(before), whole)


def _behind(text: str, letters: int) -> int:
    """The place behind so many letters of a text; blanks do not count, since repairs move them."""
    places = [place + 1 for place, letter in enumerate(text) if not letter.isspace()]
    return places[letters - 1] if letters else 0


def room(model: Model) -> int:
    """Tokens that a model reads at once, without the special ones."""
    opening, closing = model.vocabulary.text.around
    return model.longest - len(opening) - len(closing)


def cut_contexts(model: Model, given: Sequence[Continuation]) -> list[Continuation]:
    """The same with contexts cut from the left, where the model does not read as much."""
    if model.length is not None:  # a law over so many sites: nothing to cut
        return list(given)
    most, short = room(model), [_shortened(one, room(model)) for one in given]
    for number, one in enumerate(given, start=1):
        if len(one.own) > most:
            raise GlauberError(
                f"text {number} has {len(one.own)} tokens of its own, but {model.name} reads at "
                f"most {most}."
            )
    cut = sum(one.dropped > before.dropped for one, before in zip(short, given, strict=True))
    if cut:
        warnings.warn(
            f"{model.name} reads at most {most} tokens: the context of {counted(cut, 'text')} is "
            "cut from the left.",
            GlauberWarning,
            stacklevel=3,
        )
    return short


def _shortened(one: Continuation, most: int) -> Continuation:
    less = max(0, len(one.pieces) - most)
    return one._replace(
        pieces=one.pieces[less:], first=max(0, one.first - less), dropped=one.dropped + less
    )


def windows(one: Continuation, most: int) -> list[Continuation]:
    """A long text as windows of at most so many tokens, each token scored in one of them.

    All but the last follow each other; the last one is as long, and scores what is left.
    """
    n = len(one.pieces)
    ends = [*range(most, n, most), n]
    return [
        Continuation(one.pieces[first:end], scored - first, one.whole, first)
        for scored, end in zip([0, *ends], ends, strict=False)
        for first in [max(0, end - most)]
    ]


def laid_out(model: Model, given: Sequence[Continuation]) -> tuple[Tensor, Tensor]:
    """Tokens and the sites that are scored (texts, length), with the special tokens around."""
    tokens, inside = model.vocabulary.rows([one.pieces for one in given])
    check_length(model, tokens)
    first = torch.tensor([one.first for one in given])
    return tokens, inside & (inside.cumsum(dim=1) > first[:, None])


def keys_of(given: Sequence[Continuation], *, of: str = "contexts") -> Tensor:
    """32 bits (texts,) that key the noise of each text, whatever else is asked and when.

    Of contexts: continuations of one context meet the same noise, so that their difference is
    less noisy than each of them. Of texts: different texts meet independent noise, so that it
    averages out over them.
    """
    said = [one.pieces[: one.first] if of == "contexts" else one.pieces for one in given]
    digests = [hashlib.blake2b(repr(one).encode(), digest_size=4).digest() for one in said]
    return torch.tensor([int.from_bytes(one, "little") for one in digests])


def words_of(model: Model, given: Sequence[Continuation], free: Tensor) -> Tensor:
    """The word that each scored token is a piece of, (texts, length) as `laid_out`; else PAD."""
    opening = len(model.vocabulary.text.around[0])
    whole = model.vocabulary.words([one.whole for one in given])
    words = torch.full(free.shape, PAD)
    for row, one in enumerate(given):
        begin, n = opening + one.dropped, len(one.pieces)
        words[row, opening : opening + n] = whole[row, begin : begin + n]
    return words.masked_fill(~free, PAD)
