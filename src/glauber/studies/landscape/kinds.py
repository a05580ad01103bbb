"""What kind of text a text is, by simple counts that need no language and no model.

They tell code and prompts, other alphabets, lists of numbers and repetition from plain prose. They
say nothing of meaning; a foreign text in plain Latin letters looks like English to them.
"""

import re
from collections.abc import Callable, Sequence

from glauber.foundation.statistics import Estimate, mean_over_chains

SYMBOLS = frozenset("{}[]()<>=+*/\\|_#$%&@^~`;")  # more frequent in code and mark-up than in prose


def symbols(text: str) -> float:
    """Share of the characters, without blanks, that code and mark-up are full of."""
    return _share([character in SYMBOLS for character in text if not character.isspace()])


def other_letters(text: str) -> float:
    """Share of the letters that are not plain Latin ones (ASCII)."""
    return _share([not character.isascii() for character in text if character.isalpha()])


def digits(text: str) -> float:
    """Share of the words, by blanks, that contain a digit."""
    return _share([any(map(str.isdigit, word)) for word in text.split()])


def non_words(text: str) -> float:
    """Share of the pieces between blanks that contain no letter and no digit."""
    return _share([not any(map(str.isalnum, word)) for word in text.split()])


def repetitions(text: str) -> float:
    """Share of the words that occurred before in the text, whatever their case."""
    words = re.findall(r"\w+", text.casefold())
    return 1 - len(set(words)) / len(words) if words else 0.0


KINDS: dict[str, Callable[[str], float]] = {
    measure.__name__: measure
    for measure in (symbols, other_letters, digits, non_words, repetitions)
}


def text_kinds(texts: Sequence[str]) -> dict[str, Estimate]:
    """The mean of each measure over texts, one of each chain; all intervals hold together."""
    return {
        name: mean_over_chains(list(map(measure, texts)), bounds=(0, 1), comparisons=len(KINDS))
        for name, measure in KINDS.items()
    }


def _share(which: Sequence[bool]) -> float:
    return sum(which) / len(which) if which else 0.0
