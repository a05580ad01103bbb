"""Where chains begin: texts become tokens and free sites.

Sites have one numbering for people, everywhere: from 0, without special tokens and without the
prefix. `people_of` and `positions_of` go between these numbers and the columns of `tokens`.
"""

import warnings
from collections.abc import Iterable, Sequence
from itertools import compress, groupby
from typing import NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.foundation.progress import check_count, check_memory
from glauber.foundation.study import Skipped, record_skipped, report_skipped
from glauber.models.base import PAD, Reader
from glauber.models.vocabulary import Text, Vocabulary
from glauber.texts.read import Corpus, Row, Texts
from glauber.texts.read import passages as passages
from glauber.texts.read import read_texts as read_texts

UNREAD = "what is not in the vocabulary was read as unknown tokens"
ENGLISH = 0.95  # share of the bundled passages that a model must be able to spell


class Cut(TypedDict, total=False):
    """How texts become starts; `named_starts` says what each part does."""

    chains: int | None
    length: int | None
    least: int | None
    prefix: str
    freeze: Sequence[int] | str
    unknown: str | None


class Starts(NamedTuple):
    """Where chains begin."""

    tokens: Tensor  # (chains, length)
    free: Tensor  # (chains, length): sites that are redrawn
    rows: list[Row]  # of each chain: the text as it was read, with its number and id

    @property
    def names(self) -> list[str]:
        """The ids of the texts; their numbers if some were left out; empty if neither says more."""
        if any(row.id for row in self.rows):
            return [row.id or f"text {row.number}" for row in self.rows]
        numbers = [row.number for row in self.rows]
        is_complete = len(set(numbers)) == max(numbers)
        return [] if is_complete else [f"text {number}" for number in numbers]


def starts(model: Reader, texts: Texts = None, **cut: Unpack[Cut]) -> tuple[Tensor, Tensor]:
    """Starting tokens and free sites (chains, length); the parameters are those of named_starts."""
    return named_starts(model, texts, **cut)[:2]


def named_starts(
    model: Reader,
    texts: Texts = None,
    *,
    chains: int | None = None,
    length: int | None = None,
    least: int | None = None,
    prefix: str = "",
    freeze: Sequence[int] | str = (),
    unknown: str | None = None,
) -> Starts:
    """Starting tokens and free sites (chains, length) of texts, and the texts themselves.

    Texts that cannot be read are left out and reported; if none is left, the reason is the error.

    texts   a string is one text, a Path is a file (see `read_texts`); without any, a model that
            reads English gets all bundled passages
    chains  number of chains; they take the texts in turn (default: one per text)
    length  tokens of each text, without special ones and prefix; shorter texts are left out
    least   a shorter text of one's own that has so many tokens is taken whole instead
    prefix  text put before each start and never redrawn
    freeze  sites never redrawn, as a list or as in 0-4,9; counted from 0, without special tokens
            and without the prefix
    unknown  what to do with characters outside the vocabulary (see `Corpus`)
    """
    for name, number in (("number of chains", chains), ("length", length)):
        if number is not None:
            check_count(name, number)
    frozen = read_sites(freeze)
    vocabulary, bundled = model.vocabulary, texts is None
    corpus = read_texts(bundled_texts(model) if texts is None else texts, unknown=unknown)
    if not isinstance(prefix, str):
        raise GlauberError(f"the prefix is {prefix!r}, but it must be one text.")
    vocabulary.check(prefix, "the prefix")
    before = vocabulary.pieces(prefix)
    rows, skipped = legible(vocabulary, corpus)
    pieces = [_pieces_after(vocabulary, prefix, before, row.text) for row in rows]
    faults = [_size_fault(model, before, tokens[:length]) for tokens in pieces]
    skipped += [skip(row, fault) for row, fault in zip(rows, faults, strict=True) if fault]
    report_skipped(skipped, len(corpus))
    is_sound = [not fault for fault in faults]
    rows, pieces = list(compress(rows, is_sound)), list(compress(pieces, is_sound))
    if length is not None:
        enough = length if least is None or bundled else min(least, length)
        is_long = [len(tokens) >= enough for tokens in pieces]
        if not any(is_long):
            longest = max(map(len, pieces))
            raise GlauberError(
                f"no starting text has {enough} tokens or more; the longest has {longest}."
            )
        if not bundled:
            short = [row for row, long in zip(rows, is_long, strict=True) if not long]
            _report_lengths(rows, pieces, length, enough)
            record_skipped([skip(row, f"has fewer than {enough} tokens") for row in short])
        rows = list(compress(rows, is_long))
        pieces = [tokens[:length] for tokens in compress(pieces, is_long)]
    if chains is not None:
        size = max(map(len, pieces)) + len(before) + 2
        check_memory(32.0 * chains * size, f"{chains:,} chains")
        rows = [rows[i % len(pieces)] for i in range(chains)]
        pieces = [pieces[i % len(pieces)] for i in range(chains)]
    tokens, free = vocabulary.rows(pieces, before=before)
    return Starts(tokens, _freeze(free, frozen), rows)


def _size_fault(model: Reader, before: Sequence[int], pieces: Sequence[int]) -> str:
    """Why a text of these tokens cannot be read; empty if it can."""
    if not pieces:
        return "is empty"
    opening, closing = model.vocabulary.text.boundary_tokens
    return length_fault(model, len(opening) + len(before) + len(pieces) + len(closing))


def length_fault(model: Reader, n_tokens: int) -> str:
    """Why a model does not read so many tokens, with the special ones; empty if it does."""
    if model.length not in (None, n_tokens):
        return f"has {n_tokens} tokens, but {model.name} is a law over {model.length} sites"
    if n_tokens > model.longest:
        return (
            f"has {n_tokens} tokens with the special ones, but {model.name} reads at most "
            f"{model.longest}: shorten it, or set a length"
        )
    return ""


def skip(row: Row, reason: str) -> Skipped:
    """The report of a row that is left out."""
    return Skipped(row.number, row.id, row.text, reason)


def _pieces_after(vocabulary: Vocabulary, prefix: str, before: list[int], text: str) -> list[int]:
    """The tokens of a text after a prefix: as one text, if its first tokens are the prefix's."""
    if not before:
        return vocabulary.pieces(text)
    blank = "" if vocabulary.text.letters or prefix[-1].isspace() else " "
    joined = vocabulary.pieces(f"{prefix}{blank}{text}")
    same = joined[: len(before)] == before and len(joined) > len(before)
    return joined[len(before) :] if same else vocabulary.pieces(text)


def _report_lengths(rows: list[Row], pieces: list[list[int]], length: int, least: int) -> None:
    """Warns of the texts that are left out or taken whole."""
    sizes = [(row.number, len(tokens)) for row, tokens in zip(rows, pieces, strict=True)]
    short = [number for number, size in sizes if size < least]
    uncut = [number for number, size in sizes if least <= size < length]
    for which, limit, what in ((short, least, "left out"), (uncut, length, "taken whole")):
        if which:
            few = f"have fewer than {limit} tokens and are {what}: {_list_texts(which)}."
            alone = f"the text has fewer than {limit} tokens and is {what}."
            _warn(alone if len(pieces) == 1 else f"{len(which)} of {len(pieces)} texts {few}")


def check_length(model: Reader, tokens: Tensor) -> None:
    """Refuses rows that are longer than the model reads, or of another length than it is for."""
    for number, n_tokens in enumerate((tokens != PAD).sum(dim=1).tolist(), start=1):
        fault = length_fault(model, n_tokens)
        if fault:
            raise GlauberError(f"text {number} {fault}.")


def _freeze(free: Tensor, frozen: Sequence[int]) -> Tensor:
    """The free sites without the frozen ones."""
    rank = free.cumsum(dim=1) - 1  # the number of each site for people
    shortest = int(free.sum(dim=1).min())
    for site in frozen:
        if site >= shortest:
            raise GlauberError(
                f"site {site} cannot be frozen: a text has sites 0 to {shortest - 1} only."
            )
    free = free & ~torch.isin(rank, torch.tensor(list(frozen), dtype=rank.dtype))
    if not bool(free.any(dim=1).all()):
        raise GlauberError("every site of a text is frozen: there is nothing to redraw.")
    return free


# ---- the numbering of sites for people


def people_of(text: Text, positions: Iterable[int], *, prefix: str = "") -> list[int]:
    """The numbers of sites for people, from columns of tokens; negative before the text."""
    first = _first(text, prefix)
    return [int(position) - first for position in positions]


def positions_of(text: Text, sites: Iterable[int], *, prefix: str = "") -> list[int]:
    """The columns of tokens at which sites stand, from their numbers for people."""
    first = _first(text, prefix)
    return [int(site) + first for site in sites]


def _first(text: Text, prefix: str) -> int:
    return len(text.boundary_tokens[0]) + (len(text.pieces(prefix)) if prefix else 0)


def read_sites(listed: str | Iterable[int]) -> list[int]:
    """Sites from `0-4,9`, or from a list of numbers, in rising order."""
    sites: set[int] = set()
    for part in listed.split(",") if isinstance(listed, str) else listed:
        if isinstance(part, str):
            sites.update(_range(part, str(listed)) if part.strip() else ())
        elif isinstance(part, bool) or not hasattr(part, "__index__") or int(part) < 0:
            raise GlauberError(f"{part!r} is no site: sites are whole numbers from 0.")
        else:
            sites.add(int(part))
    return sorted(sites)


def _range(part: str, listed: str) -> range:
    ends = part.strip().split("-")
    if len(ends) > 2 or not all(end.isascii() and end.isdigit() for end in ends):
        raise GlauberError(f"{listed!r} is not a list of sites such as 0-4,9.")
    first, last = int(ends[0]), int(ends[-1])
    if last < first or last >= 2**24:
        raise GlauberError(f"{part.strip()!r} is not a range of sites such as 0-4.")
    return range(first, last + 1)


def spell_sites(sites: Iterable[int]) -> str:
    """Sites as people read them: 0-95,109-119."""
    rising = sorted({int(site) for site in sites})
    runs = [
        [site for _, site in run]
        for _, run in groupby(enumerate(rising), key=lambda pair: pair[1] - pair[0])
    ]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


# ---- what a vocabulary can read


def bundled_texts(model: Reader) -> list[str]:
    """A model's own texts, where it has some; the bundled passages, if it reads English."""
    texts = list(model.texts) or _english(model.vocabulary)
    if not texts:
        raise GlauberError(
            f"{model.name} does not read the bundled English passages: give texts to start from."
        )
    return texts


def reads_english(vocabulary: Vocabulary) -> bool:
    """Whether a vocabulary can spell the bundled passages, and by more than single letters."""
    return bool(_english(vocabulary))


def _english(vocabulary: Vocabulary) -> list[str]:
    if vocabulary.text.letters:
        return []
    texts = [text for _, text in passages()]
    spelled = [text for text in texts if vocabulary.strange(text) is None]
    return spelled if len(spelled) >= ENGLISH * len(texts) else []


def legible(vocabulary: Vocabulary, corpus: Corpus) -> tuple[list[Row], list[Skipped]]:
    """The rows as the vocabulary can spell them, and those that it cannot, or that have a fault.

    What was repaired is reported. For a vocabulary of single letters blanks are removed, or put
    between the letters, and lower case becomes upper case, where that makes every character known.
    """
    rows, skipped = [], []
    repairs: dict[str, list[int]] = {}
    for row in corpus.rows:
        if row.fault:
            skipped.append(skip(row, row.fault))
            continue
        text, repair = _repair(vocabulary, row.text)
        if repair == UNREAD and corpus.unknown != "token":
            index, piece = vocabulary.strange(row.text) or (0, "")
            reason = f"has {piece!r} at character {index + 1}, which is not in the vocabulary"
            if corpus.unknown == "error":
                raise GlauberError(f"{row_name(row)} {reason}.")
            skipped.append(skip(row, reason))
            continue
        if repair == UNREAD and any(token >= vocabulary.size for token in vocabulary.pieces(text)):
            skipped.append(skip(row, "has characters that the model has no unknown token for"))
            continue
        if repair:
            repairs.setdefault(repair, []).append(row.number)
        rows.append(row._replace(text=text))
    _report_repairs(repairs)
    return rows, skipped


def row_name(row: Row) -> str:
    """What a message calls a text: the record that a file names, or its number."""
    return f"the record {row.id!r:.60}" if row.id else f"text {row.number}"


def readable(
    vocabulary: Vocabulary, texts: Sequence[str], names: Sequence[str] = (), *, strict: bool = True
) -> list[str]:
    """Each text as the vocabulary can spell it, as `legible` does; others are refused.

    names are what a refusal calls them (default: text 1, text 2, …). Without strict nothing is
    refused: it is said which texts have characters that are read as unknown tokens.
    """
    spellings = []
    repairs: dict[str, list[int]] = {}
    for number, text in enumerate(texts, start=1):
        spelling, repair = _repair(vocabulary, text)
        if repair == UNREAD and strict:
            vocabulary.check(text, names[number - 1] if names else f"text {number}")
        if repair:
            repairs.setdefault(repair, []).append(number)
        spellings.append(spelling)
    _report_repairs(repairs)
    return spellings


def _repair(vocabulary: Vocabulary, text: str) -> tuple[str, str]:
    """The text so that every character is known, and what was done; UNREAD if nothing helps."""
    if vocabulary.strange(text) is None:
        return text, ""
    letters, bare = vocabulary.text.letters, "".join(text.split())
    spaced = " ".join(bare)
    repairs = [("blanks were removed", bare), ("blanks were put between the letters", spaced)]
    if not any(letter.islower() for letter in letters):
        repairs += [
            ("lower case was read as upper case", text.upper()),
            ("blanks were removed and lower case was read as upper case", bare.upper()),
            ("blanks were put in and lower case was read as upper case", spaced.upper()),
        ]
    for repair, better in repairs if letters else ():
        if vocabulary.strange(better) is None:
            return better, repair
    return text, UNREAD


def _report_repairs(repairs: dict[str, list[int]]) -> None:
    for repair, numbers in repairs.items():
        end = "." if repair == UNREAD else ", so that every character is in the vocabulary."
        _warn(f"{repair} in {_list_texts(numbers)}{end}")


def _list_texts(which: Sequence[int]) -> str:
    """Texts by their numbers."""
    shown = ", ".join(map(str, which[:10]))
    more = f" and {len(which) - 10} more" if len(which) > 10 else ""
    return f"text {shown}" if len(which) == 1 else f"texts {shown}{more}"


def _warn(message: str) -> None:
    warnings.warn(message, GlauberWarning, stacklevel=4)
