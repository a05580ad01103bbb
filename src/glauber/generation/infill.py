"""What stands in the blanks of a text, and how many tokens should each have?"""

import math
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from glauber.conditionals.base import Model, mask_token_of
from glauber.conditionals.constraints import Allow, Constraints, read_constraints
from glauber.conditionals.starts import called, legible, length_fault, read_texts, skip
from glauber.conditionals.texts import Corpus, Row
from glauber.conditionals.vocabulary import Vocabulary
from glauber.dynamics.constrained import Constrained
from glauber.dynamics.unmasking import Unmasking
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
from glauber.generation.writing import (
    check,
    check_out,
    check_passes,
    open_masked,
    plan_generation,
    write,
)
from glauber.parameters import Device, Dtype, MaskToken, ModelOrName, Seed, Trust
from glauber.progress import check_count
from glauber.result import model_parts, report_skipped, signature, study

MOST = 64  # combinations of lengths of one text
LONGEST = 10**6  # tokens of a blank
BLANK = re.compile(r"\[MASK(?::([^\]]*))?\]")
NO_BLANK = "has no blank: write [MASK] where tokens are to be filled"
EMPTY = "has only blanks of length 0: there is nothing to fill"


@study
def infill(
    model: ModelOrName = "bundled:english",
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
    allow: Annotated[Allow, "The tokens a site may take, such as 3:king|queen,5-7:ST."] = "",
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
    corpus = _with_blanks(texts)
    constraints = read_constraints(allow=allow)
    if constraints and out is not None:
        raise GlauberError("a stored run does not record allowed tokens: leave out one of the two.")
    check_out(out)
    opened = open_masked(
        model,
        device=device,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
        mask_token=mask_token,
    )
    fills = _all_fills(opened, corpus)
    if constraints:
        opened = _allowing(opened, constraints, fills)
    check_passes(how, min(sum(fill.lengths) for fill in fills))
    rows = [fill for fill in fills for _ in range(chains)]
    tokens = rows_of(opened, [fill.pieces for fill in rows])
    first = min(fill.pieces.index(mask_token_of(opened)) for fill in rows)
    planned = plan_generation(
        opened,
        how,
        tokens,
        temperature=temperature,
        seed=seed,
        frozen=range(first),
        trust_remote_code=trust_remote_code,
    )
    made = signature(
        **model_parts(opened),
        texts=len({fill.row for fill in fills}),
        chains=chains,
        **spoken(how),
        allow=str(allow) or None,
        temperature=float(temperature),
        seed=seed,
    )
    blanks = Blanks(tuple(fill.row for fill in rows), tuple(fill.lengths for fill in rows))
    return generation(planned, write(planned, out=out, batch_size=batch_size), made, blanks)


class Fill(NamedTuple):
    """One text with a number of hidden tokens in each of its blanks."""

    row: Row  # the text as it was given
    lengths: tuple[int, ...]
    pieces: list[int]  # its tokens, without special ones


class Unfillable(GlauberError):
    """Why a text cannot be filled; completes "text 7 …"."""


class Unreadable(Unfillable):
    """A character outside the vocabulary."""


def _with_blanks(texts: Any) -> Corpus:
    """The texts; those without a blank, as far as that is seen without the model, have a fault."""
    if texts is None:
        raise GlauberError("a text with blanks is needed, such as 'the [MASK] of [MASK]'.")
    corpus = read_texts(texts)
    rows = [row if row.fault else row._replace(fault=_blank_fault(row.text)) for row in corpus.rows]
    faulty = [skip(row, row.fault) for row in rows if row.fault]
    if len(faulty) == len(rows):
        report_skipped(faulty, len(rows))
    return Corpus(rows, unknown=corpus.unknown)


def _blank_fault(text: str) -> str:
    try:
        if not re.search(r"mask|[\[<]", text, re.IGNORECASE):  # a mask token may be <special1>
            raise Unfillable(NO_BLANK)
        _check_lengths(text)
    except Unfillable as fault:
        return str(fault)
    return ""


def _check_lengths(text: str) -> None:
    """Refuses blanks that are none, that are all empty, and too many combinations of lengths."""
    spans = [_range(blank.group(1), blank.group()) for blank in BLANK.finditer(text)]
    if spans and not any(span[-1] for span in spans) and "mask" not in BLANK.sub("", text).lower():
        raise Unfillable(EMPTY)
    many = math.prod(len(span) for span in spans)
    if many > MOST:
        raise Unfillable(
            f"has {many:,} combinations of lengths, but at most {MOST} are tried: let fewer blanks "
            "vary"
        )


def _range(lengths: str | None, blank: str) -> range:
    """How many tokens a blank may have: 1, or what follows its colon."""
    if lengths is None:
        return range(1, 2)
    ends = lengths.split("-")
    if len(ends) > 2 or not all(end.isascii() and end.isdigit() for end in ends):
        raise Unfillable(f"has {blank}, which is no blank: write [MASK], [MASK:3] or [MASK:1-4]")
    least, most = int(ends[0]), int(ends[-1])
    if most < least:
        raise Unfillable(f"has {blank}, which is upside down: a range goes from fewer to more")
    if most > LONGEST:
        raise Unfillable(f"has {blank}, but a blank has at most {LONGEST:,} tokens")
    return range(least, most + 1)


def _all_fills(model: Model, corpus: Corpus) -> list[Fill]:
    """The fills of all texts; texts that cannot be filled are left out and reported."""
    fills, skipped = [], []
    for row in corpus.rows:
        try:
            if row.fault:
                raise Unfillable(row.fault)
            fills += _fills(model, row, corpus.unknown)
        except Unfillable as fault:
            if isinstance(fault, Unreadable) and corpus.unknown == "error":
                raise GlauberError(f"{called(row)} {fault}.") from fault
            skipped.append(skip(row, str(fault)))
    report_skipped(skipped, len(corpus))
    return fills


def _fills(model: Model, row: Row, unknown: str) -> list[Fill]:
    """A text with every combination of lengths that hides something."""
    hidden, vocabulary = mask_token_of(model), model.vocabulary
    mask = vocabulary.spell(hidden)
    blanks = [*re.finditer(f"{BLANK.pattern}|{re.escape(mask)}", row.text)]
    if not blanks:
        raise Unfillable(NO_BLANK)
    ends = [0, *(edge for blank in blanks for edge in blank.span()), len(row.text)]
    between = [row.text[first:last] for first, last in zip(ends[::2], ends[1::2], strict=True)]
    parts = [row._replace(text=part) for part in between]
    pieces = vocabulary.pieces(mask.join(_readable(vocabulary, parts, ends[::2], unknown)))
    if pieces.count(hidden) != len(blanks):
        raise GlauberError(f"the tokenizer of {model.name} does not read {mask} as its mask token.")
    spans = [_range(blank.group(1), blank.group()) for blank in blanks]
    fills = [
        Fill(row, lengths, _expanded(pieces, hidden, lengths))
        for lengths in product(*spans)
        if any(lengths)
    ]
    if not fills:
        raise Unfillable(EMPTY)
    around = sum(map(len, vocabulary.text.around))
    fault = length_fault(model, around + max(len(fill.pieces) for fill in fills))
    if fault:
        raise Unfillable(fault)
    return fills


def _readable(
    vocabulary: Vocabulary, parts: Sequence[Row], places: Sequence[int], unknown: str
) -> list[str]:
    """The parts of a text between its blanks, as the vocabulary can spell them."""
    policy = "token" if unknown == "token" else "skip"
    spellings = []
    for part, place in zip(parts, places, strict=True):
        rows, skipped = legible(vocabulary, Corpus([part], unknown=policy))
        if skipped:
            at, piece = vocabulary.strange(part.text) or (0, "")
            raise Unreadable(
                f"has {piece!r} at character {place + at + 1}, which is not in the vocabulary"
            )
        spellings.append(rows[0].text)
    return spellings


def _allowing(model: Model, constraints: Constraints, fills: Sequence[Fill]) -> Constrained:
    """The model with the tokens that sites may take."""
    if len(fills) > len({fill.row for fill in fills}):
        raise GlauberError("allow counts sites, which blanks of variable length move: fix them.")
    for site in constraints.allowed:
        if not any(fill.pieces[site : site + 1] == [mask_token_of(model)] for fill in fills):
            raise GlauberError(f"allow names site {site}, but no text has a blank there.")
    constrained = Constrained(model, constraints, None)
    constrained.conditionals()  # refuses unknown tokens
    return constrained


def _expanded(pieces: list[int], hidden: int, lengths: Sequence[int]) -> list[int]:
    """The tokens with so many hidden ones in each blank."""
    left = iter(lengths)
    return [t for piece in pieces for t in ([hidden] * next(left) if piece == hidden else [piece])]
