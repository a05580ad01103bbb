"""Paper B's choices, one changed at a time: what is each worth here, and what does the paper say?

Choices of decoding are run on the bundled student. Choices of training need a training each: they
are read from the record beside the weights, and say so.
"""

from dataclasses import dataclass, replace
from typing import Any

from glauber.papers import translation_runs as runs
from glauber.papers.claims import Claim, Quantity, above, below, near
from glauber.papers.paper import Reproduction
from glauber.papers.settings import Settings
from glauber.papers.translation_equal import DIFFERS, JOINED, compared, equal
from glauber.papers.translation_runs import provenance, recorded, row, sentences, sets
from glauber.statistics import normal_quantile
from glauber.translation.data import Judged
from glauber.translation.decoding import Decoding
from glauber.translation.evaluation import Evaluation, Measures, evaluate
from glauber.translation.score import Difference, bleu_difference

BASELINE, REMASKED = "baseline", "the least sure remasked too (refine-remask)"
SAME = 0.5  # BLEU: less than this counts as no difference
MATTERS = 1.0  # BLEU: the effect that the power of a direction is worked out for
SIZES = {"test": 1789, "long": 200}  # sentences of the recorded figures


@dataclass(frozen=True)
class Choice:
    """Changed decoding options, what the paper says of them, and where BLEU should go then.

    `expected` is lower, higher, same, or None where the paper makes no claim.
    """

    decoding: Decoding
    paper: str
    expected: str | None = None


PLAIN = Decoding("refine", 4, 5, judge="itself")  # the paper's own
CHOICES = {
    BASELINE: Choice(PLAIN, "4 passes, 5 lengths, stutter remasked and dropped"),
    "1 pass": Choice(
        replace(PLAIN, n_steps=1), "one pass often gives a reasonable translation; no figure"
    ),
    "10 passes": Choice(
        replace(PLAIN, n_steps=10), "its table 1: between -0.03 and 0.14 BLEU over 4 passes", "same"
    ),
    "1 length": Choice(replace(PLAIN, n_lengths=1), "always 5; no figure"),
    "random tokens at first": Choice(
        replace(PLAIN, initial="random"), "names both MASK and random tokens; no figure"
    ),
    REMASKED: Choice(
        replace(PLAIN, decoder="refine-remask"),
        "schedules of remasking made no visible difference",
        "same",
    ),
    "no remasking": Choice(
        replace(PLAIN, remask_repeats=False),
        "schedules of remasking made no visible difference",
        "same",
    ),
    "no remasking, repeats kept": Choice(
        replace(PLAIN, remask_repeats=False, drop_repeats=False),
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
    """Each choice on both sets, run or recorded, with verdicts where the paper says something."""
    judged, rows, claims = sets(settings.scale), list[dict[str, Any]](), list[Claim]()
    systems = {
        name: ("student", replace(one.decoding, seed=settings.seed))
        for name, one in CHOICES.items()
    }
    for name, one_set in judged.items():
        made = evaluate(runs.BUNDLED, one_set, systems, measures=Measures(0))
        for one in made:
            moved = None if one is made[0] else _moved(one, made[0], one_set)
            rows.append(_run_row(name, one, moved))
            claims += [] if moved is None else _claims(CHOICES[one.system], one.system, name, moved)
    record = recorded()
    how = f"{sentences(judged)}; one choice changed at a time. " + (
        f"Choices of training are recorded: {record.get('steps')} steps on {record.get('device')}"
        if record.get("rows")
        else "Choices of training (mask rate, distillation, positional attention, stages, "
        "vocabulary, corruption) are not recorded beside these weights"
    )
    listed = recorded_rows(record)
    claims += [claim for one in listed for claim in recorded_claims(one)]
    claims += remasking_claims(equal(runs.BUNDLED))
    return Reproduction.of(
        settings, how, rows + listed, claims=claims, differs=DIFFERS, model="translation-en-es"
    )


def _moved(one: Evaluation, baseline: Evaluation, judged: list[Judged]) -> Difference:
    return bleu_difference(one.outputs, baseline.outputs, judged)


def _run_row(name: str, one: Evaluation, moved: Difference | None) -> dict[str, Any]:
    made = row(name, one) | {"made": "run"}
    if moved is not None:
        made |= {
            "BLEU less baseline": moved.value,
            "interval": moved.interval,
            "moved": moved.word,
        }
    return made | {"paper": CHOICES[one.system].paper}


def _claims(choice: Choice, change: str, which: str, moved: Difference) -> list[Claim]:
    """The verdict on the paper's word, where it names a direction."""
    if choice.expected is None:
        return []
    name = f"BLEU less the baseline's, {change}, {which}"
    ours = Quantity(name, moved.value, moved.interval, n=moved.n_sentences, unit="sentences")
    return [_claim(choice.paper, choice.expected, ours, change, which)]


def _claim(paper: str, expected: str, ours: Quantity, change: str, which: str) -> Claim:
    own: tuple[str, ...] = (f"power for {MATTERS:g} BLEU",)
    if expected == "same":
        region, effect = near(0.0, SAME), 0.0
        own = (f"less than {SAME:g} BLEU counts as the same",)
    elif expected == "lower":
        region, effect = below(0.0), -MATTERS
    else:
        region, effect = above(0.0), MATTERS
    return Claim(
        f"{paper}: {change} ({which})", "paper B, section 3", expected, ours, region, effect=effect,
        ours=own, differs=(*DIFFERS, *([JOINED] if which == "long" else [])),
    )  # fmt: skip


def recorded_rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The recorded choices of training, each beside the one that it differs from in one thing."""
    listed = record.get("rows", [])
    by_name, rows = {one.get("name"): one for one in listed}, []
    for one in listed:
        paper, expected = _said(f"{one.get('name')} {one.get('change')}")
        made = dict(one) | provenance(record)
        beside = by_name.get(one.get("beside", BASELINE))
        if beside is not None and beside is not one:
            for name in SIZES:
                made.setdefault(f"less_{name}", one[f"bleu_{name}"] - beside[f"bleu_{name}"])
                made.setdefault(f"interval_{name}", _interval(made, name))
            made |= {"paper": paper, "expected": one.get("expected", expected)}
        rows.append(made)
    return rows


def _interval(one: dict[str, Any], name: str) -> list[float] | None:
    """Of a recorded standard error over hundreds of sentences; none without one."""
    error = one.get(f"error_{name}")
    if error is None:
        return None
    value, reach = one[f"less_{name}"], normal_quantile() * error
    return [value - reach, value + reach]


def recorded_claims(one: dict[str, Any]) -> list[Claim]:
    """The verdicts on a recorded choice of training."""
    if one.get("expected") is None:
        return []
    found = []
    for name, size in SIZES.items():
        ends = one[f"interval_{name}"]
        ours = Quantity(
            f"BLEU less that of {one.get('beside', BASELINE)}, {one['change']}, {name}",
            one[f"less_{name}"], None if ends is None else tuple(ends), n=size, unit="sentences",
        )  # fmt: skip
        found.append(_claim(one["paper"], one["expected"], ours, one["change"], name))
    return found


def remasking_claims(record: dict[str, Any]) -> list[Claim]:
    """The verdicts on hiding the least sure as well, on the whole sets, as they are recorded."""
    own, plain = "{}: refine-remask, {} steps", "{}: refine, {} steps"
    return [
        _claim(
            CHOICES[REMASKED].paper, "same",
            compared(record, own.format(name, n), plain.format(name, n), which),
            f"{REMASKED}, {n} passes, {name}", which,
        )
        for name in ("student", "shipped student")
        for n in (4, 10)
        for which in SIZES
        if record
    ]  # fmt: skip


def _said(words: str) -> tuple[str, str | None]:
    for word, paper, expected in TRAINING:
        if word in words.lower():
            return paper, expected
    return "no claim", None
