"""What is each choice in a student's training worth? Students that differ in one thing each."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from glauber.translation.data import (
    Corpus,
    Example,
    Pair,
    SubwordVocabulary,
    load_vocabulary,
    read_lines,
    read_pairs,
)
from glauber.translation.decoding import Decoding, translate_texts
from glauber.translation.evaluation import machine
from glauber.translation.model import Shape, Translator, load
from glauber.translation.score import bleu_difference, quality
from glauber.translation.training import DISTILLED, PAIRS, TrainingPlan, take_over, train

SMALL_VOCABULARY = 2000
GENERIC_SHARE = 0.1  # Spanish characters for each English one; T5's other languages have 0.1 each


@dataclass(frozen=True)
class Choice:
    """One student: what is changed, the pairs it learns from, and how it is decoded."""

    change: str
    plan: TrainingPlan
    pairs: str = DISTILLED
    positional: bool = True
    begin_from: str | None = "teacher"
    vocab_size: int | None = None
    generic: bool = False  # a vocabulary of other texts, of the same size
    sizes: dict[str, bool] = field(default_factory=dict)  # of the shape, besides `positional`
    initial: str = "mask"  # what decoding begins with: what the student saw in training
    beside: str = "baseline"  # what it differs from in one thing


def choices(plan: TrainingPlan) -> dict[str, Choice]:
    """The baseline, and each change of it that the paper calls critical."""
    return {
        "baseline": Choice("drafts of MASK, distilled, 2 stages, positional attention", plan),
        "raw": Choice("targets by people, not distilled", plan, PAIRS),
        "no-positional": Choice("no positional attention", plan, positional=False),
        "one-stage": Choice("1 stage", replace(plan, stages=1)),
        "repeats-only": Choice("only repeats hidden again", replace(plan, remask=0.0)),
        "kept-15-random": Choice(
            "drafts of random tokens, 15% kept (the paper's)",
            replace(plan, corruption="random", kept=0.15, remask=0.0),
            initial="random",
        ),
        "kept-50-random": Choice(
            "drafts of random tokens, 50% kept",
            replace(plan, corruption="random", kept=0.5, remask=0.0),
            initial="random",
            beside="kept-15-random",
        ),
        "fresh": Choice("begins from random weights", plan, begin_from=None),
        "vocabulary-2k": Choice(
            "a vocabulary of 2,000, from random weights",
            plan,
            begin_from=None,
            vocab_size=SMALL_VOCABULARY,
            beside="fresh",
        ),
        "generic-vocabulary": Choice(
            "a generic vocabulary of the same size, from random weights",
            plan,
            begin_from=None,
            generic=True,
            beside="fresh",
        ),
        "distances": Choice(
            "scores of distances in self-attention, from random weights",
            plan,
            begin_from=None,
            sizes={"relative": True},
            beside="fresh",
        ),
        "unattended": Choice(
            "hidden positions are not attended to, from random weights",
            plan,
            begin_from=None,
            sizes={"attend_masks": False},
            beside="fresh",
        ),
    }


def ablate(
    folder: Path,
    judged: dict[str, list[Example]],
    *,
    plan: TrainingPlan,
    device: str = "cpu",
    only: tuple[str, ...] = (),
    english: Path | None = None,
) -> dict[str, Any]:
    """Trains each choice from what `prepare`, `learn("teacher")` and `distil` left in the folder.

    Returns the translations of every set of sentences, for `scored`. english: text of no pair, for
    the generic vocabulary, which is left out without it.
    """
    rows = []
    for name, choice in choices(plan).items():
        if (only and name not in only) or (choice.generic and english is None):
            continue
        model, vocabulary, loss = _student(folder, choice, device, english)
        decoder = "refine-remask" if choice.plan.remask else "refine"
        how = Decoding(decoder, initial=choice.initial, remask=choice.plan.remask, judge="itself")
        said = {
            which: [one.text for one in translate_texts(model, vocabulary, texts, decoding=how)]
            for which, texts in _sources(judged).items()
        }
        row = {"name": name, "change": choice.change, "beside": choice.beside, "loss": loss}
        rows.append(row | {"outputs": said})
        print(f"{name}: loss {loss:.3f}", flush=True)
    return {
        "device": machine(device),
        "steps": plan.n_steps,
        "pairs": plan.n_pairs,
        "rows": rows,
    }


def scored(record: dict[str, Any], judged: dict[str, list[Example]]) -> dict[str, Any]:
    """The same with BLEU and stutter in place of the translations.

    And with how far BLEU is from that of the student beside, with the error of that.
    """
    rows, said = [], {row["name"]: row["outputs"] for row in record["rows"]}
    for row in record["rows"]:
        made = {name: row[name] for name in ("name", "change", "beside")} | {"kind": "estimate"}
        others = said.get(row["beside"]) if row["beside"] != row["name"] else None
        for which, outputs in row["outputs"].items():
            found = quality(outputs, judged[which])
            made |= {f"bleu_{which}": found.bleu, f"stutter_{which}": found.stutter}
            if others is not None:
                moved = bleu_difference(outputs, others[which], judged[which])
                made |= {f"less_{which}": moved.value, f"error_{which}": moved.standard_error}
                made[f"interval_{which}"] = moved.interval
        rows.append(made)
    return record | {"rows": rows}


def _student(
    folder: Path, choice: Choice, device: str, english: Path | None = None
) -> tuple[Translator, SubwordVocabulary, float]:
    """A trained student with its vocabulary and last loss."""
    pairs, vocabulary = read_pairs(folder / choice.pairs), load_vocabulary(folder)
    if choice.vocab_size is not None:
        texts = [text for pair in read_pairs(folder / PAIRS) for text in pair]
        vocabulary = SubwordVocabulary.learn(texts, min(choice.vocab_size, vocabulary.size))
    if choice.generic and english is not None:
        vocabulary = generic_vocabulary(read_lines(english), read_pairs(folder / PAIRS), vocabulary)
    torch.manual_seed(choice.plan.seed)
    shape = replace(
        load(folder, "teacher").shape,
        kind="refine",
        vocab_size=vocabulary.size,
        dropout=Shape.dropout,
        positional=choice.positional,
        **choice.sizes,
    )
    model = Translator(shape)
    if choice.begin_from is not None:
        take_over(model, load(folder, choice.begin_from))
    curve = train(model.to(device), Corpus.of(pairs, vocabulary), choice.plan)
    return model, vocabulary, curve[-1][1]


def generic_vocabulary(
    english: list[str], pairs: list[Pair], custom: SubwordVocabulary
) -> SubwordVocabulary:
    """As many tokens as the custom one, of English text and a tenth as much Spanish.

    T5's vocabulary was learnt from English with a tenth as much of each of three other languages.
    """
    left = GENERIC_SHARE * sum(map(len, english))
    spanish = []
    for _, target in pairs:
        if left <= 0:
            break
        spanish.append(target)
        left -= len(target)
    return SubwordVocabulary.learn(english + spanish, custom.size)


def _sources(judged: dict[str, list[Example]]) -> dict[str, list[str]]:
    return {which: [one.source for one in rows] for which, rows in judged.items()}
