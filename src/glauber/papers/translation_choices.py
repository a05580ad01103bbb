"""Paper B's choices, one changed at a time: what is each worth here, and what does the paper say?

Choices of decoding are run on the bundled student. Choices of training need a training each: they
are read from the record beside the weights, and say so.
"""

from dataclasses import dataclass, replace
from typing import Any

from glauber.papers import translation_runs as runs
from glauber.papers.paper import Reproduction
from glauber.papers.settings import Settings
from glauber.papers.translation_runs import provenance, recorded, row, sentences, sets
from glauber.translation.data import Judged
from glauber.translation.decoding import Decoding
from glauber.translation.score import Difference, bleu_difference
from glauber.translation.systems import Evaluation, Measures, evaluate

BASELINE = "baseline"


@dataclass(frozen=True)
class Choice:
    """Changed decoding options, what the paper says of them, and where BLEU should go then.

    `expected` is lower, higher, same, or None where the paper makes no claim.
    """

    decoding: Decoding
    paper: str
    expected: str | None = None


PLAIN = Decoding("refine-remask", 4, 5, judge="itself")
CHOICES = {
    BASELINE: Choice(PLAIN, "4 passes, 5 lengths, stutter remasked and dropped"),
    "1 pass": Choice(
        replace(PLAIN, n_steps=1), "one pass often gives a reasonable translation", "lower"
    ),
    "10 passes": Choice(
        replace(PLAIN, n_steps=10), "its table 1: between -0.03 and 0.14 BLEU over 4 passes", "same"
    ),
    "1 length": Choice(replace(PLAIN, n_lengths=1), "always 5; no figure"),
    "random tokens at first": Choice(
        replace(PLAIN, initial="random"), "names both MASK and random tokens; no figure"
    ),
    "stutter alone remasked": Choice(
        replace(PLAIN, decoder="refine"),
        "schedules of remasking made no visible difference",
        "same",
    ),
    "no remasking": Choice(
        replace(PLAIN, decoder="refine", remask_repeats=False),
        "schedules of remasking made no visible difference",
        "same",
    ),
    "no remasking, repeats kept": Choice(
        replace(PLAIN, decoder="refine", remask_repeats=False, drop_repeats=False),
        "repeats can be removed by a rule afterwards; no figure",
    ),
    "1 length, by the ratio": Choice(
        replace(PLAIN, n_lengths=1, length="ratio"), "not in the paper"
    ),
    "1 length, the reference's own": Choice(
        replace(PLAIN, n_lengths=1, length="oracle"), "not in the paper"
    ),
}
# What the paper says of choices in training: a word in the name of the recorded row -> its claim.
TRAINING = (
    ("distil", "distillation from an autoregressive model is critical", "lower"),
    ("raw", "distillation from an autoregressive model is critical", "lower"),
    ("position", "positional attention is among the critical parts", "lower"),
    ("vocab", "a vocabulary of its own for the languages is critical; no figure by size", None),
    ("stage", "one stage never sees the model's own drafts, which is why there are two", "lower"),
    ("kept-15", "its drafts have random tokens; MASK is allowed as well, no figure", None),
    ("kept", "a large share of masked tokens is critical", "lower"),
    ("rate", "a large share of masked tokens is critical", "lower"),
    ("corrupt", "its drafts have random tokens; MASK is allowed as well, no figure", None),
    ("mask", "its drafts have random tokens; MASK is allowed as well, no figure", None),
)


def make_ablation(settings: Settings) -> Reproduction:
    """Each choice on both sets, run or recorded, beside the baseline and the paper's word."""
    judged, rows = sets(settings.scale), []
    systems = {
        name: ("student", replace(one.decoding, seed=settings.seed))
        for name, one in CHOICES.items()
    }
    for name, one_set in judged.items():
        made = evaluate(runs.BUNDLED, one_set, systems, measures=Measures(0))
        rows += [_run_row(name, one, made[0], one_set, settings.seed) for one in made]
    record = recorded()
    how = f"{sentences(judged)}; one choice changed at a time. " + (
        f"Choices of training are recorded: {record.get('steps')} steps on {record.get('device')}"
        if record.get("rows")
        else "Choices of training (mask rate, distillation, positional attention, stages, "
        "vocabulary, corruption) are not recorded beside these weights"
    )
    return Reproduction.of(settings, how, rows + recorded_rows(record))


def _run_row(
    name: str, one: Evaluation, baseline: Evaluation, judged: list[Judged], seed: int
) -> dict[str, Any]:
    choice = CHOICES[one.system]
    made = row(name, one) | {"made": "run"}
    if one.system != BASELINE:
        moved = bleu_difference(one.outputs, baseline.outputs, judged, seed=seed)
        made |= {
            "BLEU less baseline": moved.value,
            "standard error of that": moved.standard_error,
            "moved": moved.word,
            "as the paper says": _agrees(moved.word, choice.expected),
        }
    return made | {"paper": choice.paper}


def recorded_rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The recorded choices of training, each beside the one that it differs from in one thing."""
    listed = record.get("rows", [])
    by_name, rows = {one.get("name"): one for one in listed}, []
    for one in listed:
        paper, expected = _claim(f"{one.get('name')} {one.get('change')}")
        expected = one.get("expected", expected)  # a row may say where it should go
        made = dict(one) | provenance(record)
        beside = by_name.get(one.get("beside", BASELINE))
        if beside is not None and beside is not one:
            for name in ("test", "long"):
                value = one[f"bleu_{name}"] - beside[f"bleu_{name}"]
                moved = Difference(value, one.get(f"error_{name}", 0.0))
                made |= {
                    f"{name}, moved": moved.word,
                    f"{name}, as the paper says": _agrees(moved.word, expected),
                }
                made.setdefault(f"less_{name}", value)
            made["paper"] = paper
        rows.append(made)
    return rows


def _claim(words: str) -> tuple[str, str | None]:
    for word, paper, expected in TRAINING:
        if word in words.lower():
            return paper, expected
    return "no claim", None


def _agrees(word: str, expected: str | None) -> str:
    """Whether the move is the paper's, where it names one."""
    if expected is None:
        return "the paper names no direction"
    if word == "not different from 0":
        return "yes, within two standard errors" if expected == "same" else f"{word} here"
    return "yes" if word == expected else "no"
