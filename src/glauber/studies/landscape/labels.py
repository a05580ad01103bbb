"""What are the labels about, and which texts carry one?

A label by itself says little to a sentence embedding; several short phrases together say more. The
first bundled passages of each label set a scorer's temperature, the others judge it: no text does
both, and none of the phrases is taken from them. The starts of tables that report scores come from
the second part.
"""

from functools import lru_cache
from typing import NamedTuple

from glauber.models.weights import PACKAGE
from glauber.texts.starts import passages

TOPICS: dict[str, tuple[str, ...]] = {
    "politics": (
        "politics",
        "government, parliament and the laws it passes",
        "an election campaign between parties and candidates",
        "a president, minister or senator speaks about policy",
        "diplomacy, treaties, protest and war between states",
    ),
    "health": (
        "health",
        "illness, symptoms and medical treatment",
        "doctors, nurses and patients in a hospital",
        "medicine, vaccines and the prevention of disease",
        "sleep, fitness and a healthy body",
    ),
    "pop culture": (
        "pop culture",
        "celebrities, fans and gossip",
        "a hit film, television show or video game",
        "pop songs, music charts and concert tours",
        "superheroes, comics and viral trends",
    ),
    "sport": (
        "sport",
        "a match between two teams and its score",
        "football, basketball, tennis or cricket players",
        "athletes race for a medal at the championship",
        "a coach trains the team for the season",
    ),
    "food": (
        "food",
        "cooking a recipe in the kitchen",
        "a meal of meat, vegetables, bread or cheese",
        "restaurants, chefs and the taste of a dish",
        "sweet desserts, spices and drinks",
    ),
    "science": (
        "science",
        "researchers publish the result of an experiment",
        "physics, chemistry, biology and astronomy",
        "a theory about atoms, cells, stars or fossils",
        "scientists measure, observe and explain nature",
    ),
    "technology": (
        "technology",
        "computers, software and the internet",
        "a new phone, chip, robot or gadget",
        "engineers build machines and digital networks",
        "programs, data and artificial intelligence",
    ),
    "finance": (
        "finance",
        "stock markets, shares and investors",
        "banks, loans, debt and interest rates",
        "a company's profit, taxes and budget",
        "money, savings, currency and the economy",
    ),
    "education": (
        "education",
        "teachers and pupils in a classroom",
        "students at a school or university",
        "exams, lessons, homework and degrees",
        "learning to read, write and count",
    ),
    "environment": (
        "environment",
        "climate change, pollution and emissions",
        "conservation of forests, rivers and wildlife",
        "recycling, waste and renewable energy",
        "drought, floods and endangered species",
    ),
    "art": (
        "art",
        "a painting, drawing or sculpture",
        "an artist at work in the studio",
        "an exhibition in a museum or gallery",
        "colour, form and style in fine art",
    ),
}

SENTIMENTS: dict[str, tuple[str, ...]] = {
    "positive": (
        "positive",
        "I am happy and delighted, this is wonderful",
        "good news, success, praise and joy",
        "an excellent, pleasant and beautiful thing",
    ),
    "negative": (
        "negative",
        "I am sad and angry, this is terrible",
        "bad news, failure, blame and grief",
        "a poor, unpleasant and ugly thing",
    ),
    "neutral": (
        "neutral",
        "a plain fact, stated without feeling",
        "instructions, dates, places and quantities",
        "an ordinary thing, neither good nor bad",
    ),
}
DESCRIPTIONS = TOPICS | SENTIMENTS

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
