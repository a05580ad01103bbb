"""What stands in the blanks of a text, and how many tokens should each have?"""

import math
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

from glauber.conditionals.load import Model as Opened
from glauber.conditionals.starts import read_texts, readable
from glauber.errors import GlauberError
from glauber.generation.generate import (
    Again,
    BatchSize,
    Between,
    Block,
    Correct,
    CorrectBlock,
    Count,
    Heat,
    Order,
    Out,
    PassCount,
    TopK,
    TopP,
    rows_of,
)
from glauber.generation.generated import Blanks, Generation, generation, spoken
from glauber.generation.stored import check_out, write
from glauber.generation.unmasking import Unmasking
from glauber.generation.writing import Job, check, check_passes, open_masked
from glauber.parameters import Device, Dtype, MaskToken, Model, Seed, Trust
from glauber.progress import check_count
from glauber.result import model_parts, signature, study

MOST = 64  # combinations of lengths of one text
BLANK = re.compile(r"\[MASK(?::([^\]]*))?\]")


@study
def infill(
    model: Model = "bundled:english",
    texts: Annotated[
        str | Path | Sequence[str] | None,
        "Texts with blanks: [MASK], [MASK:3] for three tokens, [MASK:1-4] to try one to four.",
    ] = None,
    *,
    chains: Annotated[
        int, "Fills of each text; at temperature 0 they differ in a random order only."
    ] = 1,
    order: Order = "confidence",
    count: Count = "linear",
    passes: PassCount = None,
    block: Block = None,
    remask: Again = "none",
    temperature: Heat = 0.0,
    top_k: TopK = None,
    top_p: TopP = None,
    correct: Correct = 0,
    correct_block: CorrectBlock = None,
    correct_between: Between = False,
    seed: Seed = 0,
    batch_size: BatchSize = None,
    out: Out = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
    mask_token: MaskToken = None,
) -> Generation:
    """Fill the blanks of texts with a masked model; what stands around them is never changed.

    A blank is [MASK], or the model's own mask token. By default the likeliest token is taken, one
    a pass, where the model is surest first; a temperature and several chains give other fills.
    Where the number of tokens varies, all combinations are filled. The fills of a text are ranked
    by their score at temperature 1: the log-probability of the fill, left to right given the
    context, plus an estimate of that of the lengths, by how likely the context is around so many
    hidden tokens, all combinations being equally likely beforehand.
    """
    how = Unmasking(
        order, count, passes, block, remask, top_k, top_p, correct, correct_between, correct_block
    )
    check(how, temperature=temperature, seed=seed, batch_size=batch_size, device=device)
    check_count("number of fills", chains)
    given = _given(texts)
    check_out(out)
    opened = open_masked(
        model,
        device=device,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
        mask_token=mask_token,
    )
    fills = [fill for i, text in enumerate(given, start=1) for fill in _fills(opened, i, text)]
    check_passes(how, min(sum(fill.lengths) for fill in fills))
    rows = [fill for fill in fills for _ in range(chains)]
    tokens = rows_of(opened, [fill.pieces for fill in rows])
    first = min(fill.pieces.index(opened.hidden_token) for fill in rows)
    job = Job(opened, how, tokens, temperature, seed, "", tuple(range(first)), trust_remote_code)
    made = signature(
        **model_parts(opened), texts=len(given), chains=chains, **spoken(how),
        temperature=float(temperature), seed=seed,
    )  # fmt: skip
    blanks = Blanks(tuple(fill.text for fill in rows), tuple(fill.lengths for fill in rows))
    return generation(job, write(job, out=out, batch_size=batch_size), made, blanks)


class Fill(NamedTuple):
    """One text with a number of hidden tokens in each of its blanks."""

    text: int  # its number among the given ones
    lengths: tuple[int, ...]
    pieces: list[int]  # its tokens, without special ones


def _given(texts: Any) -> list[str]:
    """The texts, each with a blank as far as that can be seen without the model."""
    if texts is None:
        raise GlauberError("a text with blanks is needed, such as 'the [MASK] of [MASK]'.")
    given = read_texts(texts)
    for number, text in enumerate(given, start=1):
        if not re.search(r"mask|[\[<]", text, re.IGNORECASE):  # a mask token may be <special1>
            raise _no_blank(number)
        _check_lengths(text, number)
    return given


def _no_blank(number: int) -> GlauberError:
    return GlauberError(f"text {number} has no blank: write [MASK] where tokens are to be filled.")


def _check_lengths(text: str, number: int) -> None:
    """Refuses blanks that are none, that are all empty, and too many combinations of lengths."""
    spans = [_range(blank.group(1), blank.group(), number) for blank in BLANK.finditer(text)]
    if spans and not any(span[-1] for span in spans) and "mask" not in BLANK.sub("", text).lower():
        _nothing(number)
    many = math.prod(len(span) for span in spans)
    if many > MOST:
        raise GlauberError(
            f"text {number} has {many:,} combinations of lengths, but at most {MOST} are tried: "
            "let fewer blanks vary."
        )


def _nothing(number: int) -> NoReturn:
    raise GlauberError(f"every blank of text {number} has length 0: there is nothing to fill.")


def _range(lengths: str | None, blank: str, number: int) -> range:
    """How many tokens a blank may have: 1, or what stands behind its colon."""
    if lengths is None:
        return range(1, 2)
    ends = lengths.split("-")
    if len(ends) > 2 or not all(end.isascii() and end.isdigit() for end in ends):
        raise GlauberError(
            f"the blank {blank} of text {number} is none: write [MASK], [MASK:3] or [MASK:1-4]."
        )
    least, most = int(ends[0]), int(ends[-1])
    if most < least:
        raise GlauberError(
            f"the blank {blank} of text {number} is upside down: a range goes from fewer to more."
        )
    check_count("length of a blank", most, least=0, most=10**6)
    return range(least, most + 1)


def _fills(model: Opened, number: int, text: str) -> list[Fill]:
    """Text number `number`, from 1, with every combination of lengths that hides something."""
    hidden, vocabulary = model.hidden_token, model.vocabulary
    mask = vocabulary.spell(hidden)
    blanks = [*re.finditer(f"{BLANK.pattern}|{re.escape(mask)}", text)]
    if not blanks:
        raise _no_blank(number)
    ends = [0, *(edge for blank in blanks for edge in blank.span()), len(text)]
    between = [text[first:last] for first, last in zip(ends[::2], ends[1::2], strict=True)]
    names = [
        f"text {number}",
        *(f"text {number}, behind blank {i + 1}," for i in range(len(blanks))),
    ]
    pieces = vocabulary.pieces(mask.join(readable(vocabulary, between, names)))
    if pieces.count(hidden) != len(blanks):
        raise GlauberError(f"the tokenizer of {model.name} does not read {mask} as its mask token.")
    spans = [_range(blank.group(1), blank.group(), number) for blank in blanks]
    found = [
        Fill(number - 1, lengths, _expanded(pieces, hidden, lengths))
        for lengths in product(*spans)
        if any(lengths)
    ]
    if not found:
        _nothing(number)
    return found


def _expanded(pieces: list[int], hidden: int, lengths: Sequence[int]) -> list[int]:
    """The tokens with so many hidden ones in each blank."""
    left = iter(lengths)
    return [t for piece in pieces for t in ([hidden] * next(left) if piece == hidden else [piece])]
