"""Which texts do chains begin from? The one place where texts become tokens and free sites.

Sites have one numbering for people, everywhere: from 0, without special tokens and without the
prefix. `people_of` and `positions_of` go between these numbers and the columns of `tokens`.
"""

import warnings
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor

from glauber.conditionals.base import PAD
from glauber.conditionals.texts import Given, Texts, passages, read_named, read_texts
from glauber.conditionals.vocabulary import Text, Vocabulary
from glauber.errors import GlauberError, GlauberWarning
from glauber.progress import check_count, check_memory

__all__ = [
    "bundled_texts", "check_length", "named_starts", "passages", "people_of", "positions_of",
    "read_named", "read_sites", "read_texts", "readable", "reads_english", "spell_sites", "starts",
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


def starts(model: Any, texts: Texts = None, **cut: Unpack[Cut]) -> tuple[Tensor, Tensor]:
    """Starting tokens and free sites (chains, length); the parameters are those of named_starts."""
    return named_starts(model, texts, **cut)[:2]


def named_starts(
    model: Any,
    texts: Texts = None,
    *,
    chains: int | None = None,
    length: int | None = None,
    least: int | None = None,
    prefix: str = "",
    freeze: Sequence[int] | str = (),
) -> tuple[Tensor, Tensor, list[str]]:
    """Starting tokens and free sites (chains, length) of texts, with the names that FASTA gives.

    The names are none where there are none.

    texts   a string is one text, a Path is a file (see `read_texts`); without any, a model that
            reads English gets all bundled passages
    chains  number of chains; they take the texts in turn (default: one per text)
    length  tokens of each text, without special ones and prefix; shorter texts are left out
    least   a shorter text of one's own that has so many tokens is taken whole instead
    prefix  text put before each start and never redrawn
    freeze  sites never redrawn, as a list or as in 0-4,9; counted from 0, without special tokens
            and without the prefix
    """
    for name, number in (("number of chains", chains), ("length", length)):
        if number is not None:
            check_count(name, number)
    held = read_sites(freeze)
    vocabulary = model.vocabulary
    given = list(map(Given, bundled_texts(model))) if texts is None else read_named(texts)
    names = [one.name for one in given]
    known = readable(vocabulary, [one.text for one in given], _called(names))
    before = _prefix(vocabulary, prefix)
    rows = [_behind(vocabulary, prefix, before, text) for text in known]
    if length is not None:
        bundled = texts is None
        enough = length if least is None or bundled else min(least, length)
        names = [name for name, row in zip(names, rows, strict=True) if len(row) >= enough]
        rows = _long_enough(rows, length, least=enough, quiet=bundled)
    if chains is not None:
        check_memory(32.0 * chains * (max(map(len, rows)) + len(before) + 2), f"{chains:,} chains")
        names = [names[i % len(rows)] for i in range(chains)]
        rows = [rows[i % len(rows)] for i in range(chains)]
    tokens, free = vocabulary.rows(rows, before=before)
    check_length(model, tokens)
    return tokens, _freeze(free, held), names if any(names) else []


def _called(names: Sequence[str]) -> list[str]:
    """What a refusal calls texts: the record that a file names, or their number."""
    return [f"the record {name!r:.60}" if name else f"text {i}" for i, name in enumerate(names, 1)]


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


def _long_enough(rows: list[list[int]], length: int, *, least: int, quiet: bool) -> list[list[int]]:
    """The rows cut to that length, without those that have fewer than the least."""
    short = [i for i, row in enumerate(rows) if len(row) < least]
    if len(short) == len(rows):
        longest = max(map(len, rows))
        raise GlauberError(
            f"no starting text has {least} tokens or more; the longest has {longest}."
        )
    whole = [i for i, row in enumerate(rows) if least <= len(row) < length]
    for which, limit, what in ((short, least, "left out"), (whole, length, "taken whole")):
        if which and not quiet:
            few = f"have fewer than {limit} tokens and are {what}: {_numbered(which)}."
            alone = f"the text has fewer than {limit} tokens and is {what}."
            _warn(alone if len(rows) == 1 else f"{len(which)} of {len(rows)} texts {few}")
    return [row[:length] for row in rows if len(row) >= least]


def check_length(model: Any, tokens: Tensor) -> None:
    """Refuses rows that are longer than the model reads, or that its law is not about."""
    lengths = (tokens != PAD).sum(dim=1)
    longest, chain = int(lengths.max()), int(lengths.argmax())
    fixed = getattr(model, "length", None)
    if fixed is not None and bool((lengths != fixed).any()):
        wrong = int((lengths != fixed).nonzero()[0])
        raise GlauberError(
            f"text {wrong + 1} has {int(lengths[wrong])} tokens, but {model.name} is a law over "
            f"{fixed} sites."
        )
    if longest > model.longest:
        raise GlauberError(
            f"text {chain + 1} has {longest} tokens with the special ones, but {model.name} reads "
            f"at most {model.longest}: shorten it, or set a length."
        )


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


def bundled_texts(model: Any) -> list[str]:
    """A model's own texts, where it has some; the bundled passages, if it reads English."""
    found = getattr(model, "texts", None) or _english(model.vocabulary)
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


def readable(
    vocabulary: Vocabulary, texts: Sequence[str], names: Sequence[str] = (), *, strict: bool = True
) -> list[str]:
    """The texts as the vocabulary can spell them; what was repaired is said, the rest refused.

    names are what a refusal calls them (default: text 1, text 2, …). Without strict nothing is
    refused: it is said which texts have characters that are read as unknown tokens.

    For a vocabulary of single letters blanks are removed, or put between the letters, and lower
    case becomes upper case, where that makes every character known.
    """
    repaired: dict[str, list[int]] = {}
    found = []
    for i, text in enumerate(texts):
        if vocabulary.strange(text) is None:
            found.append(text)
            continue
        for how, better in _repairs(vocabulary.text.letters, text):
            if vocabulary.strange(better) is None:
                repaired.setdefault(how, []).append(i)
                found.append(better)
                break
        else:
            if strict:
                vocabulary.check(text, names[i] if names else f"text {i + 1}")
            repaired.setdefault(UNREAD, []).append(i)
            found.append(text)
    for how, which in repaired.items():
        end = "." if how == UNREAD else ", so that every character is in the vocabulary."
        _warn(f"{how} in {_numbered(which)}{end}")
    return found


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
    """Texts by their numbers, from 1."""
    shown = ", ".join(str(i + 1) for i in which[:10])
    more = f" and {len(which) - 10} more" if len(which) > 10 else ""
    return f"text {shown}" if len(which) == 1 else f"texts {shown}{more}"


def _warn(message: str) -> None:
    warnings.warn(message, GlauberWarning, stacklevel=4)
