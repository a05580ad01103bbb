"""The traps that paper A quotes, and sentences of facts: how firmly a model holds each of them.

Table 5 and appendix C.2 quote fourteen traps of BERT, nine of them in full. The gaps of an excerpt
are those of the excerpt, not of the trap. A final period that the quotation leaves out is added,
since without it no model prefers the last word; quotation marks are the plain ones.

Appendix A.1 supposes that facts make strong traps, because the training data nearly determine each
token given the rest. `FACTS` pairs sentences of well-known facts with sentences of equally many
words and a similar form that state none. The choice is ours.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Unpack

import numpy as np

from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import ModelOrName, Temperature, Where
from glauber.foundation.progress import say, track
from glauber.foundation.statistics import Estimate, mean_over_chains
from glauber.foundation.study import (
    Result,
    Skipped,
    counted,
    internal,
    record_skipped,
    reported,
    study,
)
from glauber.foundation.tables import table
from glauber.models.load import load
from glauber.studies.metastability.margins import (
    APPROXIMATE,
    PERFECT,
    Firmness,
    Margins,
    Neighbourhood,
    Neighbours,
    format_log,
    log_to_json,
    margins_of,
    neighbourhood_of,
)
from glauber.texts.starts import named_starts

NO_PAIR = "the model reads no pair of a fact and another sentence"


class Quotation(NamedTuple):
    """A trap as the paper quotes it, with what it publishes; None: not given, or lost."""

    name: str
    text: str
    source: str  # the number in table 5, or the appendix
    type: str | None = None  # perfect or approximate
    duration: int | None = None
    mean_gap: float | None = None
    min_gap: float | None = None
    meaning: str | None = None  # coherent or nonsensical
    seen: str = ""  # steps in which it was seen, where no duration is given
    excerpt: bool = False  # the paper quotes a part of it


COHERENT, NONSENSICAL = "coherent", "nonsensical"
QUOTED = (
    Quotation("periods", " ".join(["."] * 15), "table 5, No. 1", PERFECT, 4950, 9.14, 7.46),
    Quotation(
        "theme song",
        "it has been used as the theme song for jesus christ superstar.",
        *("table 5, No. 11", PERFECT, 650, 5.44, 0.56),
    ),
    Quotation(
        "scoring, present",
        "winners are awarded 2 points",
        *("table 5, No. 4", PERFECT, 350, 4.16, 0.06),
        excerpt=True,
    ),
    Quotation(
        "a moment",
        "it took me a moment to figure out",
        *("table 5, No. 6", PERFECT, 350, 5.78, 0.01),
        excerpt=True,
    ),
    Quotation(
        "scoring",
        "winners were awarded 2 points, while losers would be awarded 1 point.",
        *("table 5, No. 5", APPROXIMATE, 1200, 4.12),
    ),
    Quotation(
        "six months",
        "'six months ago, you mean.' 'six",
        *("table 5, No. 16", APPROXIMATE, 1050, 4.99),
        excerpt=True,
    ),
    Quotation(
        "population density",
        "population density was (approx.) 7.5",
        *("table 5, No. 10", APPROXIMATE, 300, 9.23),
        excerpt=True,
    ),
    Quotation(
        "list",
        "9. honest response to you. 10. fan",
        *("table 5, No. 15", APPROXIMATE, 650, 3.10),
        excerpt=True,
    ),
    Quotation(
        "guacamole",
        "In 20th century England, ornamental guacamole was made by filling wooden sauce jars with "
        "vegetables, and served with boiled cigars.",
        "appendix C.2",
        meaning=COHERENT,
        seen="2k to 10k",
    ),
    Quotation(
        "Brett Kavanaugh",
        "Donald Trump said that he would support Brett Kavanaugh for the Supreme Court, though he "
        "will think about future judicial nominations. But for now, Brett Kavanaugh is in fact "
        "dead.",
        "appendix C.2",
        meaning=COHERENT,
        seen="from 8k",
    ),
    Quotation(
        "kissing modern European men",
        "The fool always says, don't be jealous of kissing modern European men, but that's a "
        "nonsense statement. You were never meant to be jealous of kissing modern European men.",
        "appendix C.2",
        meaning=COHERENT,
        seen="6k to 10k",
    ),
    Quotation(
        "Night of the Living Dead",
        "It's a shame that Night of the Living Dead featured so many creepy aliens we never knew "
        "existed, so who can blame us for asking? What are your two favorite characters?",
        "appendix C.2",
        meaning=COHERENT,
        seen="from 8k",
    ),
    Quotation(
        "coathoses",
        "It can be caused by one or more of the three coathoses, the voltage on top of the trap "
        "used to control movement of the contents from one part of the wall to another.",
        "appendix C.2",
        meaning=NONSENSICAL,
        seen="8k",
    ),
    Quotation(
        "spin",
        "The spin is defined in one or more of the following ways: by decreasing the periodic "
        "table so that no sufficiently large spike exists, or by increasing the periodic table "
        "again through time until a sufficiently large spike is observed.",
        "appendix C.2",
        meaning=NONSENSICAL,
        seen="10k",
    ),
)
FACTS = (
    ("paris is the capital of france.", "lunch is the start of trouble."),
    ("the earth moves around the sun.", "the girl walked around the shop."),
    ("water is made of hydrogen and oxygen.", "it was full of letters and boxes."),
    ("world war ii ended in 1945.", "the long meeting ended in silence."),
    (
        "george washington was the first president of the united states.",
        "my neighbor was the last visitor of the old museum.",
    ),
    (
        "albert einstein won the nobel prize in physics.",
        "a stranger won the small prize in cards.",
    ),
    ("shakespeare wrote romeo and juliet.", "someone wrote letters and reports."),
    (
        "neil armstrong walked on the moon in 1969.",
        "that man walked on the grass in silence.",
    ),
    (
        "mount everest is the highest mountain in the world.",
        "this painting is the strangest object in the room.",
    ),
    (
        "the united kingdom left the european union.",
        "the younger brother left the crowded station.",
    ),
    (
        "the titanic sank in the north atlantic ocean.",
        "the parcel came in the late afternoon mail.",
    ),
    ("the berlin wall fell in november 1989.", "the garden gate fell in strong wind."),
    (
        "the amazon river flows into the atlantic ocean.",
        "the narrow path leads into the old forest.",
    ),
    ("light travels faster than sound.", "dogs bark louder than cats."),
)


@study
def quoted_traps(
    model: ModelOrName = "bundled:english",
    *,
    temperature: Temperature = 1.0,
    neighbours: Neighbours = 0,
    **where: Unpack[Where],
) -> "QuotedTraps":
    """Measure the gaps of the traps that paper A quotes, and compare facts with other sentences.

    Paper A, table 5 and appendices A.1 and C.2: each quoted text with what the paper publishes of
    it, and its gaps, type, holding time and pseudo-log-likelihood per token on this model, in
    float64. Texts that the model cannot read are left out. The facts and the sentences next to them
    are our choice.
    """
    opened = load(model, exact=True, dtype="float64", **where)
    if opened.vocabulary.text.letters:
        raise GlauberError(
            f"the quoted traps are English sentences, but {opened.name} reads single letters."
        )
    conditionals = opened.conditionals()
    every = [quote.text for quote in QUOTED] + [text for pair in FACTS for text in pair]
    strange = {text: opened.vocabulary.strange(text) for text in dict.fromkeys(every)}
    texts = [text for text, fault in strange.items() if fault is None]
    left_out = [
        Skipped(
            every.index(text) + 1, "", text, f"has {fault[1]!r}, which is not in the vocabulary"
        )
        for text, fault in strange.items()
        if fault is not None
    ]
    if not texts:
        raise GlauberError(
            f"{opened.name} reads none of the texts: the first {left_out[0].reason}."
        )
    record_skipped(left_out)
    tokens, free, rows = named_starts(opened, texts)
    say(f"{len(rows)} texts: {int(free.sum()):,} rows through the model")
    measured: dict[str, HeldText] = {}
    with track("texts", len(rows)) as advance:
        for row, states, is_free in zip(rows, tokens, free, strict=True):
            state = states.to(opened.state_device), is_free.to(opened.state_device)
            around = None
            text = texts[row.number - 1]
            if neighbours and any(quote.text == text for quote in QUOTED):
                around = neighbourhood_of(
                    conditionals, *state, temperature=temperature, neighbours=neighbours
                )
            exact = margins_of(conditionals, *state, temperature=temperature)
            spelled = [opened.vocabulary.spell(int(states[site])) for site in exact.sites]
            measured[text] = HeldText(row.text, spelled, exact, around)
            advance()
    return QuotedTraps(
        model=opened.name,
        temperature=float(temperature),
        traps=[QuotedTrap(q, measured[q.text]) for q in QUOTED if q.text in measured],
        facts=[
            FactPair(measured[fact], measured[other])
            for fact, other in FACTS
            if fact in measured and other in measured
        ],
    )


@dataclass(frozen=True, eq=False)
class HeldText(Firmness):
    """How firmly the model holds a text."""

    text: str
    tokens: list[str]
    margins: Margins = internal()
    neighbourhood: Neighbourhood | None = field(default=None)

    @reported
    def gaps(self) -> list[float]:
        """Of each token."""
        return [float(gap) for gap in self.margins.gaps]

    @reported
    def not_likeliest(self) -> list[str]:
        """The tokens that are not the most probable ones at their sites."""
        return [
            token for token, gap in zip(self.tokens, self.margins.gaps, strict=True) if gap <= 0
        ]

    @reported
    def holding_time(self) -> dict[str, object]:
        """Mean number of steps until the text is left."""
        return log_to_json(-self.margins.log_escape_rate, self.margins.kind)

    def gap_of(self, word: str) -> float | None:
        """The gap of a word that is one token of the text; None where it is not."""
        found = [i for i, token in enumerate(self.tokens) if token.strip("Ġ▁ ").lower() == word]
        return float(self.margins.gaps[found[0]]) if found else None


@dataclass(frozen=True, eq=False)
class QuotedTrap:
    """A trap of the paper: what is published of it, and how firmly this model holds it."""

    published: Quotation
    ours: HeldText


@dataclass(frozen=True, eq=False)
class FactPair:
    """The sentence of a fact, and one of the same form without."""

    fact: HeldText
    other: HeldText


@dataclass(frozen=True, eq=False)
class QuotedTraps(Result):
    """The traps that the paper quotes on one model, and facts next to other sentences."""

    model: str
    temperature: float
    traps: list[QuotedTrap]
    facts: list[FactPair]

    FIGURES = {"gaps": "glauber.interfaces.plots.metastability:plot_quoted_traps"}

    def trap(self, name: str) -> HeldText | None:
        """The trap of that name, if the model reads it."""
        return next((each.ours for each in self.traps if each.published.name == name), None)

    @reported
    def fact_gap(self) -> Estimate:
        """Mean gap of a fact less that of the other sentence, over pairs."""
        return self._difference([(f.fact.mean_gap, f.other.mean_gap) for f in self.facts])

    @reported
    def fact_min_gap(self) -> Estimate:
        """The same for the smallest gap."""
        return self._difference([(f.fact.min_gap, f.other.min_gap) for f in self.facts])

    def _difference(self, pairs: list[tuple[float, float]]) -> Estimate:
        if not pairs:
            return Estimate(float("nan"), None, reason=NO_PAIR)
        return mean_over_chains([fact - other for fact, other in pairs])

    def rows(self) -> list[dict[str, object]]:
        """One row per quoted trap: published, and ours."""
        return [
            {
                "trap": quote.name + (" (excerpt)" if quote.excerpt else ""),
                "published": quote.type or quote.meaning,
                "duration": quote.duration or quote.seen,
                "published_mean_gap": quote.mean_gap,
                "published_min_gap": quote.min_gap,
                "mean_gap": ours.mean_gap,
                "min_gap": ours.min_gap,
                "type": ours.type,
                "holding_time": format_log(-ours.margins.log_escape_rate),
                "coherence": ours.coherence,
                "text": ours.text,
            }
            for quote, ours in ((each.published, each.ours) for each in self.traps)
        ]

    def lines(self) -> Iterable[str]:
        yield (
            f"traps that paper A quotes, on {self.model} at temperature {self.temperature:g} "
            "(gaps and holding times exact; coherence: pseudo-log-likelihood per token)"
        )
        yield from table(self.rows())
        if self.skipped:
            left_out = counted(len(self.skipped), "text")
            yield f"left out: {left_out} with words that are not in the model's vocabulary"
        if self.facts:
            yield (
                f"mean gap of {len(self.facts)} facts less that of other sentences of the same "
                f"form: {self.fact_gap.text(2)}; smallest gap: {self.fact_min_gap.text(2)} "
                "(estimates over pairs; the sentences are our choice)"
            )

    def table(self) -> Mapping[str, object] | list[dict[str, object]]:
        """One row per text: quoted, fact, and other."""
        texts = [("quoted", each.published.name, each.ours) for each in self.traps]
        for number, pair in enumerate(self.facts):
            texts += [("fact", str(number), pair.fact), ("other", str(number), pair.other)]
        return [
            {
                "group": group,
                "name": name,
                "text": held.text,
                "mean_gap": held.mean_gap,
                "min_gap": held.min_gap,
                "type": held.type,
                "coherence": held.coherence,
                "escape_moves": held.escape_moves,
                "log10_holding_time": -held.margins.log_escape_rate / np.log(10),
            }
            for group, name, held in texts
        ]
