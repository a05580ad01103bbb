"""Texts with blanks, filled by a masked model and ranked by the score of their fills.

A text is context c with blanks of k tokens that contain the fill f. By the chain rule
    log p(k, f | c) = log p(k | c) + log p(f | c, k).
The second term hides all of f and adds the tokens of f from left to right, each given c and those
before it. A masked model has no p(k), but it says how well the context fits around k hidden tokens:
    p(k | c) is proportional to p(k) p(c | k),
with p(c | k) from the chain rule over c, left to right, the blanks hidden throughout, and p(k)
uniform over the combinations of lengths tried. For conditionals of a joint distribution over the
texts of each length, differences of log p(k, f | c) are exactly those of the log-probabilities of
the whole texts, each within its length. For a masked LM, whose conditionals have no joint
distribution, they depend on the order. All are in the model's own distribution: temperature 1,
nothing truncated.
"""

import math
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.dynamics.candidates import log_probs_at
from glauber.dynamics.constrained import Constrained
from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import ModelOrName, Seed
from glauber.foundation.progress import track
from glauber.foundation.study import report_skipped, study
from glauber.models.base import Conditionals, Model, mask_token_of
from glauber.models.batching import in_parts
from glauber.models.vocabulary import Vocabulary
from glauber.sampling.generate import (
    Blanks,
    FillOptions,
    FillScores,
    FillTemperature,
    GeneratedTexts,
    Generation,
    check_out,
    check_passes,
    generation,
    model_options,
    open_masked,
    plan_generation,
    read_unmasking,
    rows_of,
    write,
)
from glauber.texts.constraints import Allow, Constraints, read_constraints
from glauber.texts.read import Corpus, Row
from glauber.texts.starts import legible, length_fault, read_texts, row_name, skip

MAX_COMBINATIONS = 64  # of lengths of one text
MAX_LENGTH = 10**6  # tokens of a blank
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
        int,
        "Fills of each text; at temperature 0 they differ in a random order only.",
        Whole(),
    ] = 1,
    allow: Annotated[Allow, "The tokens a site may take, such as 3:king|queen,5-7:ST."] = "",
    temperature: FillTemperature = 0.0,
    seed: Seed = 0,
    **options: Unpack[FillOptions],
) -> Generation:
    """Fill the blanks of texts with a masked model; the surrounding text is left unchanged.

    A blank is [MASK], or the model's own mask token. By default the most probable token is taken,
    one a pass, where the model is surest first; a temperature and several chains give other fills.
    Where the number of tokens varies, all combinations are filled. The fills of a text are ranked
    by their score at temperature 1: the log-probability of the fill, left to right given the
    context, plus an estimate of that of the lengths, by how likely the context is around so many
    hidden tokens, all combinations being equally likely beforehand.
    """
    how = read_unmasking(options)
    corpus = _texts_with_blanks(texts)
    constraints = read_constraints(allow=allow)
    out = check_out(options.get("out"))
    if constraints and out is not None:
        raise GlauberError("a stored run does not record allowed tokens: leave out one of the two.")
    loaded = open_masked(model, **model_options(options))
    fills = _fills_of_texts(loaded, corpus)
    if constraints:
        loaded = _constrain(loaded, constraints, fills)
    check_passes(how, min(sum(fill.lengths) for fill in fills))
    rows = [fill for fill in fills for _ in range(chains)]
    hidden_token = mask_token_of(loaded)
    planned = plan_generation(
        loaded,
        how,
        rows_of(loaded, [fill.pieces for fill in rows]),
        temperature=temperature,
        seed=seed,
        frozen=range(min(fill.pieces.index(hidden_token) for fill in rows)),
        trust_remote_code=options.get("trust_remote_code", False),
    )
    written = write(planned, out=out, batch_size=options.get("batch_size"))
    texts_of_rows, lengths = tuple(fill.row for fill in rows), tuple(fill.lengths for fill in rows)
    groups = [(row.number, length) for row, length in zip(texts_of_rows, lengths, strict=True)]
    blanks = Blanks(texts_of_rows, lengths, _scores(loaded, written, groups))
    return generation(planned, written, blanks)


# ---- blanks


class TextWithBlanks(NamedTuple):
    """One text with a number of hidden tokens in each of its blanks."""

    row: Row  # the text as its source spells it
    lengths: tuple[int, ...]
    pieces: list[int]  # its tokens, without special ones


class Unfillable(GlauberError):
    """Why a text cannot be filled; completes "text 7 …"."""


class Unreadable(Unfillable):
    """A character outside the vocabulary."""


def _texts_with_blanks(texts: str | Path | Sequence[str] | None) -> Corpus:
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
    """Why the blanks of a text are none, all empty, or too many combinations; or nothing."""
    if not re.search(r"mask|[\[<]", text, re.IGNORECASE):  # a mask token may be <special1>
        return NO_BLANK
    try:
        spans = [_range(blank.group(1), blank.group()) for blank in BLANK.finditer(text)]
    except Unfillable as fault:
        return str(fault)
    if spans and not any(span[-1] for span in spans) and "mask" not in BLANK.sub("", text).lower():
        return EMPTY
    n_combinations = math.prod(len(span) for span in spans)
    if n_combinations > MAX_COMBINATIONS:
        return (
            f"has {n_combinations:,} combinations of lengths, but at most {MAX_COMBINATIONS} are "
            "tried: let fewer blanks vary"
        )
    return ""


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
    if most > MAX_LENGTH:
        raise Unfillable(f"has {blank}, but a blank has at most {MAX_LENGTH:,} tokens")
    return range(least, most + 1)


def _fills_of_texts(model: Model, corpus: Corpus) -> list[TextWithBlanks]:
    """The fills of all texts; texts that cannot be filled are left out and reported."""
    fills, skipped = [], []
    for row in corpus.rows:
        try:
            if row.fault:
                raise Unfillable(row.fault)
            fills += _fills(model, row, corpus.unknown)
        except Unfillable as fault:
            if isinstance(fault, Unreadable) and corpus.unknown == "error":
                raise GlauberError(f"{row_name(row)} {fault}.") from fault
            skipped.append(skip(row, str(fault)))
    report_skipped(skipped, len(corpus))
    return fills


def _fills(model: Model, row: Row, unknown: str) -> list[TextWithBlanks]:
    """A text with every combination of lengths that hides something."""
    hidden, vocabulary = mask_token_of(model), model.vocabulary
    mask = vocabulary.spell(hidden)
    blanks = [*re.finditer(f"{BLANK.pattern}|{re.escape(mask)}", row.text)]
    if not blanks:
        raise Unfillable(NO_BLANK)
    ends = [0, *(edge for blank in blanks for edge in blank.span()), len(row.text)]
    spans = zip(ends[::2], ends[1::2], strict=True)
    visible_texts = [_readable(vocabulary, row, first, last, unknown) for first, last in spans]
    pieces = vocabulary.pieces(mask.join(visible_texts))
    if pieces.count(hidden) != len(blanks):
        raise GlauberError(f"the tokenizer of {model.name} does not read {mask} as its mask token.")
    fills = [
        TextWithBlanks(row, lengths, _expand(pieces, hidden, lengths))
        for lengths in product(*(_range(blank.group(1), blank.group()) for blank in blanks))
        if any(lengths)
    ]
    if not fills:
        raise Unfillable(EMPTY)
    around = sum(map(len, vocabulary.text.boundary_tokens))
    if fault := length_fault(model, around + max(len(fill.pieces) for fill in fills)):
        raise Unfillable(fault)
    return fills


def _readable(vocabulary: Vocabulary, row: Row, first: int, last: int, unknown: str) -> str:
    """A part of a text between its blanks, as the vocabulary can spell it."""
    part = row._replace(text=row.text[first:last])
    policy = "token" if unknown == "token" else "skip"
    rows, skipped = legible(vocabulary, Corpus([part], unknown=policy))
    if skipped:
        at, piece = vocabulary.strange(part.text) or (0, "")
        raise Unreadable(
            f"has {piece!r} at character {first + at + 1}, which is not in the vocabulary"
        )
    return rows[0].text


def _expand(pieces: list[int], hidden: int, lengths: Sequence[int]) -> list[int]:
    """The tokens with so many hidden ones in each blank."""
    left = iter(lengths)
    return [t for piece in pieces for t in ([hidden] * next(left) if piece == hidden else [piece])]


def _constrain(
    model: Model, constraints: Constraints, fills: Sequence[TextWithBlanks]
) -> Constrained:
    """The model with the tokens that sites may take."""
    if len(fills) > len({fill.row for fill in fills}):
        raise GlauberError("allow counts sites, which blanks of variable length move: fix them.")
    for site in constraints.allowed:
        if not any(fill.pieces[site : site + 1] == [mask_token_of(model)] for fill in fills):
            raise GlauberError(f"allow names site {site}, but no text has a blank there.")
    constrained = Constrained(model, constraints, None)
    constrained.conditionals()  # refuses unknown tokens
    return constrained


# ---- scores


def _scores(
    model: Model, written: GeneratedTexts, groups: list[tuple[int, tuple[int, ...]]]
) -> FillScores:
    tokens = torch.from_numpy(written.tokens).to(model.state_device)
    hidden = torch.from_numpy(written.begin).to(model.state_device)
    proposable = model.vocabulary.proposable().to(model.state_device)
    known = (tokens >= 0) & (tokens < len(proposable))
    scored = known & ~hidden & proposable[torch.where(known, tokens, 0)]
    return fill_scores(model.conditionals(), tokens, hidden, scored=scored, groups=groups)


def fill_scores(
    conditionals: Conditionals,
    tokens: Tensor,
    hidden: Tensor,
    *,
    scored: Tensor,
    groups: list[tuple[int, tuple[int, ...]]],
) -> FillScores:
    """The scores of filled rows, tokens (rows, length); hidden (rows, length) says what was filled.

    scored (rows, length) are the sites of the context that the model can draw: the others (special
    and unknown tokens) are fixed. groups has the text and the lengths of the blanks of each row.
    """
    texts = torch.cat([tokens, hidden.long()], dim=1).cpu().numpy()
    _, firsts, which = np.unique(texts, axis=0, return_index=True, return_inverse=True)
    rows = torch.from_numpy(firsts).to(tokens.device)
    fill = _chain_rule(conditionals, tokens[rows], hidden[rows], hidden[rows])
    return FillScores(
        fill.cpu().numpy()[which.reshape(-1)],
        _length_log_probs(conditionals, tokens, hidden, scored, groups),
    )


def _length_log_probs(
    conditionals: Conditionals,
    tokens: Tensor,
    hidden: Tensor,
    scored: Tensor,
    groups: list[tuple[int, tuple[int, ...]]],
) -> NDArray[np.float64]:
    """log p(k | c) (rows,), with one evaluation of the context for each combination of lengths."""
    combinations: dict[int, dict[tuple[int, ...], int]] = {}  # of each text: a row with the lengths
    for row, (text, lengths) in enumerate(groups):
        combinations.setdefault(text, {}).setdefault(lengths, row)
    firsts = [row for rows in combinations.values() if len(rows) > 1 for row in rows.values()]
    log_probs = np.zeros(len(groups))
    if not firsts:
        return log_probs
    rows = torch.tensor(firsts, device=tokens.device)
    context = scored[rows]
    values = _chain_rule(conditionals, tokens[rows], context | hidden[rows], context)
    of_row = dict(zip(firsts, values.tolist(), strict=True))
    for row, (text, lengths) in enumerate(groups):
        alternatives = combinations[text]
        if len(alternatives) > 1:
            total = np.logaddexp.reduce([of_row[other] for other in alternatives.values()])
            log_probs[row] = of_row[alternatives[lengths]] - total
    return log_probs


def _chain_rule(
    conditionals: Conditionals, tokens: Tensor, hidden: Tensor, scored: Tensor
) -> Tensor:
    """Sums (rows,) of log-probabilities of the tokens at the scored sites, from left to right.

    All of hidden (rows, length) is hidden at first, scored among it; each scored site is shown
    after its token was added.
    """
    row, site = scored.nonzero(as_tuple=True)
    totals = torch.zeros(len(tokens), dtype=torch.float64, device=tokens.device)
    before = torch.arange(tokens.shape[1], device=tokens.device)
    with track("tokens scored", len(row)) as advance:
        for part in in_parts(torch.arange(len(row), device=row.device), conditionals.vocab_size):
            rows, sites = row[part], site[part]
            shown = scored[rows] & (before < sites[:, None])
            still_hidden = hidden[rows] & ~shown
            log_probs = log_probs_at(conditionals, tokens[rows], still_hidden, sites)
            totals.index_add_(0, rows, log_probs.gather(1, tokens[rows, sites][:, None])[:, 0])
            advance(len(part))
    return totals
