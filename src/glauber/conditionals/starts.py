"""Which texts do chains begin from? The one place where texts become tokens and free sites.

Sites have one numbering for people, everywhere: from 0, without special tokens and without the
prefix. `people_of` and `positions_of` go between these numbers and the columns of `tokens`.
"""

import warnings
from collections.abc import Iterable, Sequence
from itertools import compress, groupby
from typing import Any, NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor

from glauber.conditionals.base import PAD, Reader
from glauber.conditionals.files import Row
from glauber.conditionals.texts import Corpus, Texts, passages, read_texts
from glauber.conditionals.vocabulary import Text, Vocabulary
from glauber.errors import GlauberError, GlauberWarning
from glauber.progress import check_count, check_memory
from glauber.result import Skipped, record_skipped, report_skipped

__all__ = [
    "bundled_texts", "called", "check_length", "legible", "length_fault", "named_starts",
    "passages", "people_of", "positions_of", "read_sites", "read_texts", "readable",
    "reads_english", "skip", "spell_sites", "starts",
]  # fmt: skip

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
        in_turn = len(set(numbers)) == max(numbers)
        return [] if in_turn else [f"text {number}" for number in numbers]


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
    before = _prefix(vocabulary, prefix)
    rows, skipped = legible(vocabulary, corpus)
    pieces = [_behind(vocabulary, prefix, before, row.text) for row in rows]
    faults = [_size_fault(model, before, own[:length]) for own in pieces]
    skipped += [skip(row, fault) for row, fault in zip(rows, faults, strict=True) if fault]
    report_skipped(skipped, len(corpus))
    rows, pieces = _where([not fault for fault in faults], rows, pieces)
    if length is not None:
        enough = length if least is None or bundled else min(least, length)
        long_enough = [len(own) >= enough for own in pieces]
        numbers = [row.number for row in rows]
        pieces = _long_enough(pieces, numbers, length, least=enough, quiet=bundled)
        if not bundled:
            reason = f"has fewer than {enough} tokens"
            short = compress(rows, (not is_long for is_long in long_enough))
            record_skipped([skip(row, reason) for row in short])
        rows = list(compress(rows, long_enough))
    if chains is not None:
        size = max(map(len, pieces)) + len(before) + 2
        check_memory(32.0 * chains * size, f"{chains:,} chains")
        rows = [rows[i % len(pieces)] for i in range(chains)]
        pieces = [pieces[i % len(pieces)] for i in range(chains)]
    tokens, free = vocabulary.rows(pieces, before=before)
    return Starts(tokens, _freeze(free, frozen), rows)


def _where(chosen: list[bool], *columns: list[Any]) -> list[list[Any]]:
    """The chosen entries of each column."""
    return [list(compress(column, chosen)) for column in columns]


def _size_fault(model: Reader, before: Sequence[int], pieces: Sequence[int]) -> str:
    """Why a text of these tokens cannot be read; empty if it can."""
    if not pieces:
        return "is empty"
    opening, closing = model.vocabulary.text.around
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


def _prefix(vocabulary: Vocabulary, prefix: str) -> list[int]:
    """The tokens of the prefix."""
    if not isinstance(prefix, str):
        raise GlauberError(f"the prefix is {prefix!r}, but it must be one text.")
    vocabulary.check(prefix, "the prefix")
    return vocabulary.pieces(prefix)


def _behind(vocabulary: Vocabulary, prefix: str, before: list[int], text: str) -> list[int]:
    """The tokens of a text behind a prefix: as one text, if its first tokens are the prefix's."""
    if not before:
        return vocabulary.pieces(text)
    blank = "" if vocabulary.text.letters or prefix[-1].isspace() else " "
    whole = vocabulary.pieces(f"{prefix}{blank}{text}")
    same = whole[: len(before)] == before and len(whole) > len(before)
    return whole[len(before) :] if same else vocabulary.pieces(text)


def _long_enough(
    pieces: list[list[int]], numbers: list[int], length: int, *, least: int, quiet: bool
) -> list[list[int]]:
    """The texts cut to that length, without those that have fewer tokens than the least."""
    short = [i for i, own in zip(numbers, pieces, strict=True) if len(own) < least]
    if len(short) == len(pieces):
        longest = max(map(len, pieces))
        raise GlauberError(
            f"no starting text has {least} tokens or more; the longest has {longest}."
        )
    whole = [i for i, own in zip(numbers, pieces, strict=True) if least <= len(own) < length]
    for which, limit, what in ((short, least, "left out"), (whole, length, "taken whole")):
        if which and not quiet:
            few = f"have fewer than {limit} tokens and are {what}: {_numbered(which)}."
            alone = f"the text has fewer than {limit} tokens and is {what}."
            _warn(alone if len(pieces) == 1 else f"{len(which)} of {len(pieces)} texts {few}")
    return [own[:length] for own in pieces if len(own) >= least]


def check_length(model: Reader, tokens: Tensor) -> None:
    """Refuses rows that are longer than the model reads, or that its law is not about."""
    for number, n_tokens in enumerate((tokens != PAD).sum(dim=1).tolist(), start=1):
        fault = length_fault(model, n_tokens)
        if fault:
            raise GlauberError(f"text {number} {fault}.")


def _freeze(free: Tensor, held: Sequence[int]) -> Tensor:
    """The free sites without the held ones."""
    rank = free.cumsum(dim=1) - 1  # the number of each site for people
    shortest = int(free.sum(dim=1).min())
    for site in held:
        if site >= shortest:
            raise GlauberError(
                f"site {site} cannot be frozen: a text has sites 0 to {shortest - 1} only."
            )
    kept = free & ~torch.isin(rank, torch.tensor(list(held), dtype=rank.dtype))
    if not bool(kept.any(dim=1).all()):
        raise GlauberError("every site of a text is frozen: there is nothing to redraw.")
    return kept


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
    return len(text.around[0]) + (len(text.pieces(prefix)) if prefix else 0)


def read_sites(listed: str | Iterable[int]) -> list[int]:
    """Sites from `0-4,9`, or from a list of numbers, in rising order."""
    parts = listed.split(",") if isinstance(listed, str) else list(listed)
    found: set[int] = set()
    for part in parts:
        if isinstance(part, str):
            found.update(_range(part, str(listed)) if part.strip() else ())
        elif isinstance(part, bool) or not hasattr(part, "__index__") or int(part) < 0:
            raise GlauberError(f"{part!r} is no site: sites are whole numbers from 0.")
        else:
            found.add(int(part))
    return sorted(found)


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
    found = list(model.texts) or _english(model.vocabulary)
    if not found:
        raise GlauberError(
            f"{model.name} does not read the bundled English passages: give texts to start from."
        )
    return found


def reads_english(vocabulary: Vocabulary) -> bool:
    """Whether a vocabulary can spell the bundled passages, and by more than single letters."""
    return bool(_english(vocabulary))


def _english(vocabulary: Vocabulary) -> list[str]:
    if vocabulary.text.letters:
        return []
    texts = [text for _, text in passages()]
    found = [text for text in texts if vocabulary.strange(text) is None]
    return found if len(found) >= ENGLISH * len(texts) else []


def legible(vocabulary: Vocabulary, corpus: Corpus) -> tuple[list[Row], list[Skipped]]:
    """The rows as the vocabulary can spell them, and those that it cannot, or that have a fault.

    What was repaired is said. For a vocabulary of single letters blanks are removed, or put between
    the letters, and lower case becomes upper case, where that makes every character known.
    """
    rows, skipped = [], []
    repairs: dict[str, list[int]] = {}
    for row in corpus.rows:
        if row.fault:
            skipped.append(skip(row, row.fault))
            continue
        text, repair = _repaired(vocabulary, row.text)
        if repair == UNREAD and corpus.unknown != "token":
            place, piece = vocabulary.strange(row.text) or (0, "")
            reason = f"has {piece!r} at character {place + 1}, which is not in the vocabulary"
            if corpus.unknown == "error":
                raise GlauberError(f"{called(row)} {reason}.")
            skipped.append(skip(row, reason))
            continue
        if repair == UNREAD and any(token >= vocabulary.size for token in vocabulary.pieces(text)):
            skipped.append(skip(row, "has characters that the model has no unknown token for"))
            continue
        if repair:
            repairs.setdefault(repair, []).append(row.number)
        rows.append(row._replace(text=text))
    _tell(repairs)
    return rows, skipped


def called(row: Row) -> str:
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
        spelling, repair = _repaired(vocabulary, text)
        if repair == UNREAD and strict:
            vocabulary.check(text, names[number - 1] if names else f"text {number}")
        if repair:
            repairs.setdefault(repair, []).append(number)
        spellings.append(spelling)
    _tell(repairs)
    return spellings


def _repaired(vocabulary: Vocabulary, text: str) -> tuple[str, str]:
    """The text so that every character is known, and what was done; UNREAD if nothing helps."""
    if vocabulary.strange(text) is None:
        return text, ""
    for repair, better in _repairs(vocabulary.text.letters, text):
        if vocabulary.strange(better) is None:
            return better, repair
    return text, UNREAD


def _tell(repairs: dict[str, list[int]]) -> None:
    for repair, numbers in repairs.items():
        end = "." if repair == UNREAD else ", so that every character is in the vocabulary."
        _warn(f"{repair} in {_numbered(numbers)}{end}")


def _repairs(letters: set[str], text: str) -> list[tuple[str, str]]:
    """What was done, and the text then."""
    if not letters:
        return []
    bare = "".join(text.split())
    spaced = " ".join(bare)
    found = [("blanks were removed", bare), ("blanks were put between the letters", spaced)]
    if not any(letter.islower() for letter in letters):
        found += [
            ("lower case was read as upper case", text.upper()),
            ("blanks were removed and lower case was read as upper case", bare.upper()),
            ("blanks were put in and lower case was read as upper case", spaced.upper()),
        ]
    return found


def _numbered(which: Sequence[int]) -> str:
    """Texts by their numbers."""
    shown = ", ".join(map(str, which[:10]))
    more = f" and {len(which) - 10} more" if len(which) > 10 else ""
    return f"text {shown}" if len(which) == 1 else f"texts {shown}{more}"


def _warn(message: str) -> None:
    warnings.warn(message, GlauberWarning, stacklevel=4)
