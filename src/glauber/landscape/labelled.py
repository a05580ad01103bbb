"""Which texts carry a label, to set a scorer's temperature and to judge it?

The first passages of each label calibrate, the others judge: no text does both. The starts of
tables that report scores come from the second part.
"""

from functools import lru_cache
from typing import NamedTuple

from glauber.conditionals.starts import passages
from glauber.conditionals.weights import PACKAGE

CALIBRATE = 8  # of each topic's 18 passages
CALIBRATE_FEELING = 7  # of each sentiment's 14 sentences


class Labelled(NamedTuple):
    """A text and its label."""

    label: str
    text: str


def calibration_passages() -> list[Labelled]:
    """The bundled passages and sentences of feeling that set a temperature."""
    return _part(first=True)


def held_out_passages() -> list[Labelled]:
    """The others, on which accuracy is reported."""
    return _part(first=False)


def sentences(passage: str) -> list[str]:
    """The sentences of a bundled passage: about as long as the texts of a chain."""
    return [part if part.endswith(".") else part + "." for part in passage.split(". ")]


def _part(*, first: bool) -> list[Labelled]:
    seen: dict[str, int] = {}
    part = []
    cuts = [(passages(), CALIBRATE), (feelings(), CALIBRATE_FEELING)]
    for texts, cut in cuts:
        for label, text in texts:
            seen[label] = seen.get(label, 0) + 1
            if (seen[label] <= cut) == first:
                part.append(Labelled(label, text))
    return part


@lru_cache
def feelings() -> list[tuple[str, str]]:
    """(sentiment, sentence) of each bundled sentence with a feeling, or without one."""
    lines = (PACKAGE / "data" / "sentiments.tsv").read_text(encoding="utf-8").splitlines()
    return [(label, text) for label, text in (line.split("\t") for line in lines)]
