"""Paper B, section 3: translation by refinement (tables 1 to 5) and what each choice is worth.

Systems of the shipped translators are run here. Models at equal training (`equal.json`, written by
`recipes/translation_equal.py` and `recipes/translation_equal_scores.py`) and choices of training
(`ablations.json`, by `recipes/translation_ablation.py`) are read from records next to the weights;
differences are on the same sentences, with their intervals over them. The published numbers are of
other languages, and of a model of 67 million parameters.
"""

import lzma
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import parse_json
from glauber.foundation.statistics import (
    Estimate,
    Floats,
    mean_over_chains,
    normal_quantile,
    quantile_ratio,
)
from glauber.papers.claims import Quantity, Region, above, at_least, at_most, below, near
from glauber.papers.piece import Answers, Piece, Published, Record, Row, columns
from glauber.papers.work import Settings
from glauber.translation.data import Example, by_source, load_vocabulary, long_pairs, read_pairs
from glauber.translation.decoding import REFINING, Decoding
from glauber.translation.evaluation import (
    BEAM,
    TEST_PAIRS,
    Evaluation,
    Measures,
    System,
    baselines,
    evaluate,
    machine,
    spread,
    systems,
)
from glauber.translation.model import BUNDLED, load
from glauber.translation.neighbours import CROSS, TARGET, Neighbours, attention_of_neighbours
from glauber.translation.own_token import OwnToken, own_token
from glauber.translation.recipe import compare_recipe, settings_of, shape_of, weight_shapes
from glauber.translation.score import (
    NEAR,
    Difference,
    bleu_counts,
    bleu_difference,
    bleu_of,
    check_learned,
    first_references,
    learned_score,
    share_near,
)

DIRECTIONS = ("DE-EN", "EN-DE", "RO-EN", "EN-RO", "ZH-EN", "EN-ZH")  # WMT14, WMT16, WMT17
SETS = ("test", "long")
SIZES = {"test": 1789, "long": 200}  # sentences of the recorded scores
DIFFERS = (
    "English to Spanish, 134,567 short pairs of Tatoeba in place of WMT",
    "7 million parameters in place of 67",
    "students begin from the teacher's weights and see few pairs; the paper's see 1,024 million",
    "one training of each kind: the interval is over sentences, not over trainings",
)
REFERENCES = (
    "all references of a test sentence count in BLEU, the paper has one: see the columns with one"
)
JOINED = "long pairs are joined from test sentences, some of them more than once"
SENTENCES = (
    "English to Spanish by the bundled translators: {n_sentences:,} sentences of Tatoeba's test "
    "file with all their references, and {n_long} long pairs joined from it (20 to 60 target "
    "tokens, one reference)"
)
COMMON: Record = dict(differs=DIFFERS, model="translation-en-es", extra="translation")
SMALL = dict(folder=BUNDLED, pairs=TEST_PAIRS, n_test=100, n_long=40)
PAPER = dict(n_test=None, n_long=200)
SIZED = ("n_test", "n_long")  # how many sentences, which are not the paper's


def scores(*values: float) -> dict[str, float]:
    """Published scores by the direction of translation."""
    return dict(zip(DIRECTIONS, values, strict=False))


def example_sets(s: Settings, *, share: float = 1.0) -> dict[str, list[Example]]:
    """The test sentences with all their references, and the long pairs; or a share of them."""
    pairs = read_pairs(s.pairs)
    test = by_source(pairs)
    long = long_pairs(pairs, load_vocabulary(s.folder), n_pairs=s.n_long)
    n_test = int(share * (s.n_test or len(test)))
    return {"test": spread(test, n_test), "long": long[: int(share * len(long))]}


def run_systems(
    s: Settings, examples: dict[str, list[Example]], compared: dict[str, System], n_timed: int = 0
) -> dict[str, list[Evaluation]]:
    """Every system on both sets, in one run."""
    return {
        name: evaluate(s.folder, rows, compared, measures=Measures(n_timed))
        for name, rows in examples.items()
    }


def sized(examples: dict[str, list[Example]]) -> dict[str, object]:
    return {"examples": examples, "n_sentences": len(examples["test"])}


def read_record(folder: Path, name: str, lists: tuple[str, ...], what: str) -> Record:
    """A record next to the weights; empty where there is none."""
    path = folder / name
    if not path.is_file():
        return {}
    try:
        record = parse_json(path.read_text(encoding="utf-8"))
        if not all(isinstance(record.get(part, []), list) for part in lists):
            raise ValueError
        if not any(part in record for part in lists):
            raise ValueError
    except (ValueError, AttributeError, TypeError) as problem:
        raise GlauberError(f"{path} is no record of {what}.") from problem
    return dict(record)


def read_equal(folder: Path) -> Record:
    """The models at equal training: all begin from the shipped teacher and see as many pairs."""
    return read_record(folder, "equal.json", ("rows", "differences"), "models at equal training")


def run_rows(evaluations: dict[str, list[Evaluation]], **constants: object) -> list[Row]:
    return [
        {"set": name} | evaluation.row() | constants | {"kind": "estimate"}
        for name, listed in evaluations.items()
        for evaluation in listed
    ]


def other_bleus(row: Evaluation, examples: list[Example]) -> Row:
    """BLEU against one reference and by tok intl, and the signature of the row's own BLEU."""
    one = first_references(examples, 1)
    scored = {
        "BLEU, one reference": bleu_counts(row.outputs, one),
        "BLEU intl": bleu_counts(row.outputs, examples, "intl"),
        "BLEU intl, one reference": bleu_counts(row.outputs, one, "intl"),
    }
    bleus = {name: bleu_of(counts.sum(0)) for name, counts in scored.items()}
    return bleus | {"signature": row.quality.bleu_signature}


# Models at equal training.

CONTROL, TEACHER = "control: beam 5", "teacher: beam 5"
# The paper's own drafts (15% kept, the rest random), its own decoding and its own start.
OWN = "paper: refine from random, {} steps"
MODELS = {
    "teacher": "teacher, trained further on people's pairs",
    "control": "autoregressive, on distilled pairs",
    "student": "student by our drafts (MASK, the least sure hidden between stages)",
    "paper": "student by the paper's drafts (15% kept, random tokens)",
    "cmlm": "conditional masked language model (mask-predict's own training)",
}
COUNTS = (4, 10)  # passes
ONE_PASS = tuple(f"{model}: refine, 1 step" for model in ("student", "paper"))
EQUAL_1 = (
    *ONE_PASS,
    "teacher: greedy",
    TEACHER,
    "control: greedy",
    CONTROL,
    *(OWN.format(n) for n in COUNTS),
    *(f"paper: refine from random, judged by ar, {n} steps" for n in COUNTS),
    *(f"student: {decoder}, {n} steps" for decoder in ("refine", "refine-remask") for n in COUNTS),
    *(f"student: refine-remask, judged by ar, {n} steps" for n in COUNTS),
)
EQUAL_2 = (
    CONTROL,
    *(OWN.format(n) for n in COUNTS),
    *(f"student: refine-remask, {n} steps" for n in COUNTS),
    *(
        f"cmlm: {decoder}, {n} steps"
        for decoder in ("mask-predict", "easy-first", "confident-first")
        for n in COUNTS
    ),
    *(f"paper: sundae, {n} steps" for n in COUNTS),
)


def difference(record: Record, system: str, less: str, which: str, of: str = "BLEU") -> Row | None:
    """One recorded difference of two systems on a set."""
    wanted = {"system": system, "less": less, "set": which, "of": of}
    listed: list[Row] = record.get("differences", [])
    return next((row for row in listed if wanted.items() <= row.items()), None)


def recorded_difference(
    record: Record, system: str, less: str, which: str, of: str = "BLEU"
) -> Quantity:
    """The same as a quantity; without a number if it was not recorded."""
    row = difference(record, system, less, which, of)
    if row is None:
        return Quantity("", None, unit="sentences")
    interval = None if row["interval"] is None else tuple(row["interval"])
    return Quantity("", row["value"], interval, n=row["sentences"], unit="sentences")


def equal_rows(
    record: Record, chosen: tuple[str, ...], published: Mapping[str, object]
) -> Iterator[Row]:
    """Some systems at equal training, on every set."""
    listed = {(row["set"], row["system"]): row for row in record.get("rows", [])}
    for which in dict.fromkeys(row["set"] for row in record.get("rows", [])):
        for system in chosen:
            if (which, system) not in listed:
                continue
            row, model = listed[which, system], system.split(": ")[0]
            trained = record["models"].get(model, {})
            yield {
                **{name: row[name] for name in ("set", "system", "bleu", "chrf", "stutter")},
                **{name: row.get(name) for name in OTHER_SCORES},
                "passes": row["passes"],
                "model": MODELS[model],
                "further_pairs": trained.get("pairs seen", 0),
                "decoder_passes": trained.get("decoder passes over a pair"),
                "less_control": _value_and_interval(difference(record, system, CONTROL, which)),
                "less_teacher": _value_and_interval(difference(record, system, TEACHER, which)),
                "published": published.get(system),
                "made": f"recorded on {record['device']}",
                "kind": "estimate",
            }


OTHER_SCORES = ("bleu_one_reference", "bleu_intl", "bleu_intl_one_reference", "bleu_signature")


def _value_and_interval(row: Row | None) -> list[float] | None:
    return None if row is None else [row["value"], *(row["interval"] or ())]


def equal_claims(
    a: Answers,
    sentence: str,
    published: str,
    pair: tuple[str, str],
    agrees: Region,
    *,
    table: str,
    effect: float | None = None,
    choices: tuple[str, ...] = (),
    of: str = "BLEU",
) -> Iterator[Published]:
    """A claim on the test sentences and on the long ones."""
    for which in SETS if a.equal else ():
        yield Published(
            f"{sentence} ({which})",
            f"paper B, {table}",
            published,
            f"{of} of {pair[0]} less {pair[1]}, {which}",
            recorded_difference(a.equal, *pair, which, of),
            agrees,
            effect=effect,
            choices=choices,
            differs=(JOINED,) if which == "long" else (),
        )


# Table 1: SacreBLEU and latency; 5 beams or 5 lengths.

SACREBLEU = {
    BEAM: scores(33.50, 29.54, 34.89, 29.75, 27.59, 33.94),
    "refine, 4 steps": scores(33.49, 28.61, 33.98, 28.98, 26.47, 32.59),
    "refine, 10 steps": scores(33.63, 28.58, 33.99, 28.97, 26.54, 32.68),
}
SPEED = "more than 2 times in the median and 5 times in the 99th percentile, 4 steps on TPU v3"
ONE = "refine, 1 step"


def ask_table_1(s: Settings) -> dict[str, object]:
    examples = example_sets(s)
    compared = systems(decoders=REFINING, judges=("itself",)) | systems(judges=("teacher",))
    compared |= {ONE: ("student", Decoding("refine", 1, 5, judge="itself"))}
    return sized(examples) | {
        "evaluations": run_systems(s, examples, compared, s.n_timed),
        "equal": read_equal(s.folder),
    }


def table_1_rows(a: Answers) -> list[Row]:
    rows = []
    for which, evaluations in a.evaluations.items():
        beam = next(row for row in evaluations if row.system == BEAM)
        for row in evaluations:
            assert row.latency is not None and beam.latency is not None
            rows += run_rows(
                {which: [row]},
                **other_bleus(row, a.examples[which]),
                faster_than_beam=beam.latency.median / row.latency.median,
                machine=machine(),
                further_pairs="shipped: teacher 9.2, student 78.7 million",
                published=SACREBLEU.get(row.system),
                published_speed=SPEED if row.system == "refine, 4 steps" else None,
            )
    published = {CONTROL: SACREBLEU[BEAM]}
    published |= {OWN.format(n): SACREBLEU[f"refine, {n} steps"] for n in COUNTS}
    return [*rows, *equal_rows(a.equal, EQUAL_1, published)]


def protocol_1(a: Answers) -> str:
    trained = (
        "Recorded rows are of models that began from the shipped teacher and then saw "
        f"{a.equal['steps'] * a.equal['batch']:,} further pairs each"
        if a.equal
        else "Models at equal training are not recorded next to these weights"
    )
    return (
        f"{SENTENCES}; 5 lengths, 4 and 10 passes; latency one sentence at a time in the same run. "
        "The shipped student saw 78.7 million pairs and the shipped teacher, on people's pairs, "
        f"9.2: their rows compare products, not methods. {trained}. `refine` is the paper's "
        "decoding, `refine-remask` our own"
    )


def table_1_claims(a: Answers) -> Iterator[Published]:
    gap, small = "1.4 BLEU: the largest gap of the table, rounded up", "half a BLEU counts as none"
    first = partial(equal_claims, a, table="table 1")
    for n, published, effect in (
        (4, "-1.35 to -0.01 in six directions", -0.85),
        (10, "-1.26 to 0.13 in six directions", -0.8),
    ):
        yield from first(
            f"{n} steps come within 1.4 BLEU of the autoregressive model on distilled pairs",
            published,
            (OWN.format(n), CONTROL),
            at_least(-1.4),
            effect=effect,
            choices=(gap,),
        )
    yield from first(
        "4 steps come within 1.4 BLEU of the autoregressive model, by one reference",
        "-1.35 to -0.01 in six directions",
        (OWN.format(4), CONTROL),
        at_least(-1.4),
        effect=-0.85,
        of="BLEU, one reference",
        choices=(gap, "the first of the references"),
    )
    yield from first(
        "10 steps translate as well as 4",
        "-0.03 to 0.14 in six directions",
        (OWN.format(10), OWN.format(4)),
        near(0.0, 0.5),
        effect=0.05,
        choices=(small,),
    )
    yield from first(
        "refinement stutters at least twice as often as the autoregressive model",
        "2 times or more",
        (OWN.format(4), CONTROL),
        above(0.0),
        of="stutter, less twice",
        choices=("the share of words less twice that of the control",),
    )
    for which in SETS if a.equal else ():
        for system in ONE_PASS:
            number = recorded_difference(a.equal, system, CONTROL, which, "share near")
            yield one_pass_claim(f"{system}, {which}", CONTROL, number)
    for which, evaluations in a.evaluations.items():
        by_name = {row.system: row for row in evaluations}
        outputs = by_name[ONE].outputs, by_name[BEAM].outputs
        near_beam = share_near(*outputs, a.examples[which])
        number = Quantity.of("", near_beam, unit="sentences", bounds=(0.0, 1.0))
        yield one_pass_claim(f"shipped student, {which}", BEAM, number)
        yield from speed_claims(which, by_name["refine, 4 steps"], by_name[BEAM])


def one_pass_claim(system: str, beam: str, number: Quantity) -> Published:
    return Published(
        f"one forward pass often gives a reasonable translation ({system})",
        "paper B, section 1",
        "often",
        f"share of sentences that come near {beam}",
        number,
        above(0.5),
        choices=(
            f"reasonable: a chrF at most {NEAR:g} below the autoregressive translation's",
            "often: more than half of the sentences",
            "starts from MASK",
        ),
    )


def speed_claims(which: str, refined: Evaluation, beam: Evaluation) -> Iterator[Published]:
    """That 4 steps are faster; of sentences timed one by one, each by both systems."""
    fast, slow = refined.latency, beam.latency
    assert fast is not None and slow is not None
    mean = mean_over_chains(np.log(slow.seconds) - np.log(fast.seconds))
    ends = None
    if mean.interval is not None:
        ends = float(np.exp(mean.interval[0])), float(np.exp(mean.interval[1]))
    p99 = quantile_ratio(slow.seconds, fast.seconds, 0.99)
    known = slow.p99 is not None and fast.p99 is not None
    few = "fewer than 100 sentences have no 99th percentile"
    common: Record = dict(
        source="paper B, section on latency",
        differs=(f"{machine()} in place of TPU v3", "short sentences"),
    )
    yield Published(
        f"4 steps are more than 2 times as fast as autoregressive decoding ({which})",
        published="more than 2 times in the median",
        name=f"times as fast as beam 5, {which}",
        number=Quantity(
            "",
            float(np.exp(mean.value)),
            ends,
            n=fast.n_sentences,
            unit="sentences",
        ),
        agrees=above(2.0),
        effect=2.5,
        choices=("the geometric mean over sentences in place of the median",),
        **common,
    )
    yield Published(
        f"and more than 5 times in the 99th percentile ({which})",
        published="more than 5 times",
        name=f"ratio of the 99th percentiles, {which}",
        number=Quantity(
            "",
            p99.value if known else None,
            p99.interval if known else None,
            n=fast.n_sentences,
            unit="sentences",
            reason="" if known else few,
        ),
        agrees=above(5.0),
        choices=("by order statistics: fewer than 437 sentences leave an end open",),
        **common,
    )


TABLE_1 = Piece(
    "translation: the autoregressive model, and refinement at 4 and 10 steps",
    protocol_1,
    **COMMON | {"differs": (*DIFFERS, REFERENCES)},
    small=SMALL | {"n_timed": 20},
    paper=PAPER | {"n_timed": 450},
    not_in_paper=(*SIZED, "n_timed"),
    ask=ask_table_1,
    table=table_1_rows,
    claims=table_1_claims,
    seconds=235,
)


# Table 2. There each row is a model of its own. What runs here is one student with all parallel
# decoders, which compares schedules; the recorded rows are models trained for their decoder. The
# published BLEUs are of several implementations, so the paper draws no conclusion between them.


def student(decoder: str, n_steps: int, n_lengths: int = 5) -> System:
    return "student", Decoding(decoder, n_steps, n_lengths, judge="itself")


DECODERS: dict[str, System] = {
    BEAM: baselines()[BEAM],
    "mask-predict, 4 steps": student("mask-predict", 4),
    "mask-predict, 10 steps": student("mask-predict", 10),
    "easy-first, 4 steps": student("easy-first", 4),
    "confident-first, 4 steps": student("confident-first", 4),
    "sundae, 4 steps, 1 length of 16 drafts": student("sundae", 4, 1),
    "sundae, 10 steps, 1 length of 16 drafts": student("sundae", 10, 1),
    "refine, 4 steps": student("refine", 4),
    "refine, 10 steps": student("refine", 10),
    "refine-remask, 4 steps": student("refine-remask", 4),
    "refine-remask, 10 steps": student("refine-remask", 10),
}
# By other implementations of BLEU; refinement by SacreBLEU with tok intl. They belong to models
# trained for their decoder; no model was trained as SUNDAE here, and its row is by the model of the
# paper's drafts, with as many hypotheses (16). DisCo's autoregressive model is next to our control.
OTHER_BLEU = {
    CONTROL: scores(31.71, 28.60, 34.46, 34.16, 24.65, 35.01),
    "paper: sundae, 4 steps": scores(32.10, 27.94),
    "paper: sundae, 10 steps": scores(32.29, 28.33),
    "cmlm: mask-predict, 4 steps": scores(30.75, 26.73, 33.02, 33.67, 22.57, 33.58),
    "cmlm: mask-predict, 10 steps": scores(31.24, 27.39, 33.67, 33.33, 23.76, 34.24),
    "cmlm: easy-first, 10 steps": scores(31.31, 27.34, 33.25, 33.22, 23.83, 34.63),
    OWN.format(4): scores(34.17, 29.49, 34.55, 29.57, 27.18, 32.59),
    OWN.format(10): scores(34.33, 29.48, 34.57, 29.56, 27.25, 32.60),
}


def ask_table_2(s: Settings) -> dict[str, object]:
    examples = example_sets(s, share=s.share)
    compared = {
        name: (model, replace(decoding, seed=s.seed))
        for name, (model, decoding) in s.decoders.items()
    }
    evaluations = run_systems(s, examples, compared)
    return sized(examples) | {"evaluations": evaluations, "equal": read_equal(s.folder)}


def table_2_claims(a: Answers) -> Iterator[Published]:
    predicted, second = "cmlm: mask-predict, {} steps", partial(equal_claims, a, table="table 2")
    yield from second(
        "10 steps of mask-predict beat 4",
        "-0.34 to 1.19, higher in five of six",
        (predicted.format(10), predicted.format(4)),
        above(0.0),
        effect=0.55,
        choices=("power for the mean of the six directions",),
    )
    yield from second(
        "easy-first is within a BLEU of 10 steps of mask-predict",
        "-0.42 to 0.39 over six directions",
        ("cmlm: easy-first, 10 steps", predicted.format(10)),
        near(0.0, 1.0),
        effect=-0.01,
        choices=("a BLEU counts as near", "easy-first here asks a model trained as CMLM"),
    )
    yield from second(
        "10 steps of SUNDAE beat 4",
        "0.19 and 0.39 in two directions",
        ("paper: sundae, 10 steps", "paper: sundae, 4 steps"),
        above(0.0),
        effect=0.29,
        choices=("by the model of the paper's drafts", "power for the mean of the directions"),
    )


def table_2_rows(a: Answers) -> list[Row]:
    made = "run, by the shipped student, trained for refinement"
    ran = [
        run_rows({which: [row]}, **other_bleus(row, a.examples[which]), made=made)
        for which, evaluations in a.evaluations.items()
        for row in evaluations
    ]
    return [*(row for rows in ran for row in rows), *equal_rows(a.equal, EQUAL_2, OTHER_BLEU)]


TABLE_2 = Piece(
    "translation: refinement, mask-predict, easy-first and SUNDAE",
    SENTENCES + "; one student with all parallel decoders that were run, 5 lengths if nothing "
    "else is said. The recorded models were each trained for their decoder, on as many pairs; "
    "easy-first asks the one of mask-predict, sundae (which learns from drafts with any share of "
    "random tokens) the one of the paper's drafts, with 1 length of 16 hypotheses. Published rows "
    "are by other BLEUs, those of refinement by tok intl, which ours have next to 13a",
    **COMMON | {"differs": (*DIFFERS, REFERENCES)},
    small=SMALL | {"share": 0.4, "decoders": DECODERS},
    paper=PAPER | {"share": 1.0},
    not_in_paper=(*SIZED, "share"),
    published={},
    ask=ask_table_2,
    table=table_2_rows,
    claims=table_2_claims,
    seconds=180,
)


# Table 3. BLEURT there.

BLEURT = {
    BEAM: scores(73.55, 74.97, 67.23, 71.76, 68.14, 65.71),
    "refine, 4 steps": scores(71.26, 72.08, 65.90, 70.23, 65.16, 63.95),
    "refine, 10 steps": scores(71.82, 73.28, 66.09, 70.49, 66.19, 64.30),
}


# Recorded translations at equal training, and where the table has them.
EQUAL_3 = {
    CONTROL: BEAM,
    OWN.format(4): "refine, 4 steps",
    OWN.format(10): "refine, 10 steps",
}
SIMILAR = 3.0  # BLEURT: the largest gap of the table, 2.98, rounded up


def ask_table_3(s: Settings) -> dict[str, object]:
    examples = example_sets(s)
    compared = systems(decoders=REFINING, judges=("itself",))
    evaluations = run_systems(s, examples, compared)
    texts = {
        (which, row.system): row.outputs for which, listed in evaluations.items() for row in listed
    }
    metric, _, weights = str(s.scorer).partition(":")
    learned: dict[tuple[str, str], Floats] = {}
    try:
        check_learned(metric, weights or None)
        texts |= recorded_texts(s, examples)
        for (which, system), outputs in texts.items():
            own = learned_score(outputs, examples[which], metric=metric, weights=weights or None)
            scale = 100 if metric == "bleurt" else 1
            learned[which, system] = scale * np.array(own.scores)
        note = f"{metric.upper()} with {own.weights}"
    except GlauberError as missing:
        learned, note = {}, f"{missing} Until then there is chrF"
    name = metric.upper()
    rows = [
        run_rows(
            {which: [row]},
            **{name: mean_of(learned, which, row.system)},
            published=BLEURT.get(row.system),
        )
        for which, listed in evaluations.items()
        for row in listed
    ]
    recorded = [
        {"set": which, "system": system, name: mean_of(learned, which, system)}
        | {"published": BLEURT[EQUAL_3[system]], "kind": "estimate"}
        for which, system in learned
        if system in EQUAL_3
    ]
    rows.append(recorded)
    return sized(examples) | {
        "rows": [row for listed in rows for row in listed],
        "note": note,
        "learned": learned,
        "metric": metric,
    }


def mean_of(learned: dict[tuple[str, str], Floats], which: str, system: str) -> float | None:
    return float(learned[which, system].mean()) if (which, system) in learned else None


def recorded_texts(
    s: Settings, examples: dict[str, list[Example]]
) -> dict[tuple[str, str], tuple[str, ...]]:
    """Translations of these sentences by the models at equal training; empty if not recorded."""
    path = s.folder / "equal.json.xz"
    if not path.is_file():
        return {}
    outputs = parse_json(lzma.decompress(path.read_bytes()).decode())["outputs"]
    test = [example.source for example in by_source(read_pairs(s.pairs))]
    sources = {"test": test, "long": [example.source for example in examples["long"]]}
    texts = {}
    for system in EQUAL_3:
        model, way = system.split(": ")
        for which, of_set in sources.items():
            written = dict(zip(of_set, outputs[model][way][which]["texts"], strict=False))
            if len(written) == len(of_set):
                chosen = (written[example.source] for example in examples[which])
                texts[which, system] = tuple(chosen)
    return texts


def table_3_claims(a: Answers) -> Iterator[Published]:
    """Of models at equal training where their translations are recorded, else of those run."""
    for which in SETS:
        recorded = (which, CONTROL) in a.learned
        four, ten, beam = (
            (OWN.format(4), OWN.format(10), CONTROL)
            if recorded
            else ("refine, 4 steps", "refine, 10 steps", BEAM)
        )
        entry = partial(learned_claim, a, which)
        yield entry(
            "by a learned metric 4 steps are below the autoregressive model",
            "1.3 to 3.0 BLEURT in six directions",
            (four, beam),
            below(0.0),
            effect=-2.1,
        )
        yield entry(
            "by a learned metric 10 steps are above 4",
            "0.2 to 1.2 BLEURT in six directions",
            (ten, four),
            above(0.0),
            effect=0.6,
        )
        if a.metric == "bleurt":
            yield entry(
                "refinement and the autoregressive model reach similar BLEURT",
                "-3.0 to -1.3 in six directions",
                (four, beam),
                at_least(-SIMILAR),
                effect=-2.1,
                choices=("3 BLEURT: the largest gap of the table, rounded up",),
            )


def learned_claim(
    a: Answers,
    which: str,
    sentence: str,
    published: str,
    pair: tuple[str, str],
    agrees: Region,
    *,
    effect: float,
    choices: tuple[str, ...] = (),
) -> Published:
    """A difference of two systems' learned scores on the same sentences."""
    number = Quantity("", None, unit="sentences", reason=a.note)
    if a.learned:
        left, right = (a.learned[which, system] for system in pair)
        number = Quantity.of("", mean_over_chains(left - right), unit="sentences")
    return Published(
        f"{sentence} ({which})",
        "paper B, table 3",
        published,
        f"{a.metric.upper()} of {pair[0]} less {pair[1]}, {which}",
        number,
        agrees,
        effect=effect if a.metric == "bleurt" else None,
        choices=choices,
        differs=(JOINED,) if which == "long" else (),
    )


TABLE_3 = Piece(
    "translation by a learned metric, if its weights are available",
    SENTENCES + ". {note}",
    **COMMON,
    small=SMALL | {"scorer": "comet"},  # or comet:NAME, bleurt:FOLDER
    paper=PAPER,
    not_in_paper=SIZED,
    published={"scorer": "bleurt"},
    ask=ask_table_3,
    table=lambda a: a.rows,
    claims=table_3_claims,
    seconds=90,
)


# Tables 4 and 5: attention of neighbours. Long pairs only: stutter is commoner in long drafts, in
# which every attention is spread thinner.

PASSES = (1, 2, 4)
LARGER = 0.1  # of a mean: the paper's own two differ by 3%
Means = dict[str, tuple[float, ...]]  # "yes" (stuttering) or "no": the published means
SELF = ("self_min", "self_avg", "self_max", "self_top_1", "self_top_2")
CROSSED = (*CROSS, "cross_top_1", "cross_top_2")
SELF_AND_TARGET = (*SELF, *TARGET)  # the paper has no number on the share of target tokens
SELF_MEANS: Means = {
    "yes": (0.0004, 0.032, 0.16, 0.20, 0.39),
    "no": (0.0005, 0.033, 0.17, 0.17, 0.37),
}
CROSS_MEANS: Means = {
    "yes": (0.06, 0.13, 0.23, 0.01, 0.10, 0.25, 0.57, 0.89),
    "no": (0.11, 0.23, 0.35, 0.04, 0.20, 0.38, 0.40, 0.81),
}
# Published standard deviations, of the measures that have one.
SELF_DEVIATIONS: Means = {"yes": (0.0007, 0.023, 0.11), "no": (0.0007, 0.025, 0.12)}
CROSS_DEVIATIONS: Means = {
    "yes": (0.05, 0.09, 0.15, 0.01, 0.06, 0.11),
    "no": (0.10, 0.14, 0.18, 0.08, 0.11, 0.12),
}


def ask_neighbours(s: Settings) -> dict[str, object]:
    vocabulary = load_vocabulary(s.folder)
    examples = long_pairs(read_pairs(s.pairs), vocabulary, n_pairs=s.n_long)
    texts, model = [sentence.source for sentence in examples], load(s.folder, "student")
    return {
        "passes": {n: attention_of_neighbours(model, vocabulary, texts, n_steps=n) for n in PASSES}
    }


def attention_rows(
    a: Answers, measures: tuple[str, ...], means: Means, deviations: Means
) -> list[Row]:
    """Three rows for each pass: pairs that stutter, pairs that do not, and their difference."""
    rows: list[Row] = []
    for n, study in a.passes.items():
        published, spread_published = (
            {key: dict(zip(measures, own, strict=False)) for key, own in numbers.items()}
            for numbers in (means, deviations)
        )
        for stutter, group in (("yes", study.stuttering), ("no", study.others)):
            spreads = {name: group.measures[name] for name in measures}
            rows.append(
                {"pass": n, "stutter": stutter, "pairs": group.n_pairs}
                | {name: list(vars(spread).values()) for name, spread in spreads.items()}
                | {"published": published[stutter]}
                | {"published_deviations": spread_published[stutter], "kind": study.kind}
            )
        apart = {
            name: round(mean - published["no"][name], 4) for name, mean in published["yes"].items()
        }
        gaps = {name: study.difference(name) for name in measures}
        rows += columns(
            [{"pass": n, "stutter": "yes less no, and its 95% interval", **gaps}],
            *("pass", "stutter", *measures),
            published=apart,
            kind=study.kind,
        )
    return rows


def gap(a: Answers, n: int, measure: str, *, relative: bool = False) -> Estimate:
    """Stuttering less others in a pass, over sentences."""
    study: Neighbours = a.passes[n]
    return study.difference(measure, relative=relative)


NEIGHBOURS: Record = dict(
    protocol="{n_long} long pairs joined from Tatoeba's test file (20 to 60 target tokens), "
    "English to Spanish by the bundled student; neighbouring positions of drafts of the most "
    "likely length, neither remasked nor cleaned, in the pass that wrote them; last decoder "
    "layer; mean, standard deviation and standard error (over sentences); differences with their "
    "intervals, over sentences too; target: the share of attention to target rather than source "
    "tokens, in one softmax over both",
    small=dict(folder=BUNDLED, pairs=TEST_PAIRS, n_long=100),
    paper=dict(n_long=200),
    not_in_paper=("n_long",),
    differs=(
        "another pair of languages and a smaller student",
        "long pairs joined from short ones",
    ),
    model="translation-en-es",
    ask=ask_neighbours,
)
TABLE_4 = Piece(
    "self-attention between neighbouring positions, stuttering or not",
    **NEIGHBOURS,
    table=partial(
        attention_rows,
        measures=SELF_AND_TARGET,
        means=SELF_MEANS,
        deviations=SELF_DEVIATIONS,
    ),
    claims=[
        Published(
            f"neighbours that stutter do not have larger self-attention (pass {n})",
            "paper B, table 4",
            "0.032 against 0.033",
            "self_avg, stuttering less others, over others",
            partial(gap, n=n, measure="self_avg", relative=True),
            at_most(LARGER),
            effect=-0.03,
            choices=(f"more than {LARGER:.0%} above the others' mean counts as larger", "the pass"),
            unit="sentences",
        )
        for n in PASSES
    ],
    seconds=14,
)
TABLE_5 = Piece(
    "distance of the cross-attention of neighbouring positions, stuttering or not",
    **NEIGHBOURS,
    table=partial(
        attention_rows,
        measures=CROSSED,
        means=CROSS_MEANS,
        deviations=CROSS_DEVIATIONS,
    ),
    claims=[
        Published(
            "neighbours that stutter read more alike, by the "
            f"{measure_name} of their cross-attention (pass {n})",
            "paper B, table 5",
            published,
            f"{measure}, stuttering less others",
            partial(gap, n=n, measure=measure),
            below(0.0),
            effect=effect,
            choices=("the pass",),
            unit="sentences",
        )
        for n in PASSES
        for measure, measure_name, published, effect in (
            ("variation_avg", "total variation", "0.13 against 0.23", -0.1),
            ("cosine_avg", "cosine distance", "0.10 against 0.20", -0.1),
            ("variation_min", "least total variation over heads", "0.06 against 0.11", -0.05),
            ("variation_max", "greatest total variation over heads", "0.23 against 0.35", -0.12),
            ("cosine_min", "least cosine distance over heads", "0.01 against 0.04", -0.03),
            ("cosine_max", "greatest cosine distance over heads", "0.25 against 0.38", -0.13),
        )
    ],
    seconds=13,
)


# What each choice in decoding and in training is worth: one is changed at a time.

BASELINE, REMASKED = "baseline", "the least sure remasked too (refine-remask)"


@dataclass(frozen=True)
class Choice:
    """Changed decoding options, what the paper says of them, and where BLEU should go then.

    `expected` is lower, higher, same, or None if the paper makes no claim.
    """

    decoding: Decoding
    paper: str
    expected: str | None = None


PLAIN = Decoding("refine", 4, 5, judge="itself")  # the paper's own
NO_SCHEDULE = "schedules of remasking made no visible difference"
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
    REMASKED: Choice(replace(PLAIN, decoder="refine-remask"), NO_SCHEDULE, "same"),
    "no remasking": Choice(replace(PLAIN, remask_repeats=False), NO_SCHEDULE, "same"),
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
RANDOM_DRAFTS = "its drafts have random tokens; MASK is allowed as well, no figure"
DISTILLED = "distillation from an autoregressive model is critical"
MASKED_SHARE = "a large share of masked tokens is critical"
TRAINING = (
    ("distil", DISTILLED, "lower"),
    ("raw", DISTILLED, "lower"),
    ("position", "positional attention is among the critical parts", "lower"),
    ("generic", "a vocabulary of its own for the languages is critical", "lower"),
    ("vocab", "a vocabulary of its own for the languages is critical; no figure by size", None),
    ("stage", "one stage never sees the model's own drafts, which is why there are two", "lower"),
    ("kept-15", RANDOM_DRAFTS, None),
    ("kept", MASKED_SHARE, "lower"),
    ("rate", MASKED_SHARE, "lower"),
    ("corrupt", RANDOM_DRAFTS, None),
    ("mask", RANDOM_DRAFTS, None),
)
# By the direction that is expected: where BLEU agrees, the effect of the power, and our choice.
EXPECTED = {
    "same": (near(0.0, 0.5), 0.0, "less than 0.5 BLEU counts as the same"),
    "lower": (below(0.0), -1.0, "power for 1 BLEU"),
    "higher": (above(0.0), 1.0, "power for 1 BLEU"),
}


def ask_ablation(s: Settings) -> dict[str, object]:
    examples = example_sets(s)
    compared = {
        name: ("student", replace(choice.decoding, seed=s.seed)) for name, choice in CHOICES.items()
    }
    record = read_record(s.folder, "ablations.json", ("rows",), "ablations")
    return sized(examples) | {
        "evaluations": run_systems(s, examples, compared),
        "trained": list(trained_rows(record)),
        "equal": read_equal(s.folder),
    }


def bleu_changes(a: Answers) -> Iterator[tuple[str, Evaluation, Difference | None]]:
    """Each run choice on each set, with its BLEU less that of the baseline."""
    for which, evaluations in a.evaluations.items():
        baseline = evaluations[0]
        yield which, baseline, None
        for row in evaluations[1:]:
            yield which, row, bleu_difference(row.outputs, baseline.outputs, a.examples[which])


def trained_rows(record: Record) -> Iterator[Row]:
    """The recorded choices of training, each compared with the one that it differs from."""
    listed = record.get("rows", [])
    by_name = {row.get("name"): row for row in listed}
    origin = {"made": f"recorded on {record.get('device')}", "steps": record.get("steps")}
    for row in listed:
        name = f"{row.get('name')} {row.get('change')}".lower()
        matches = (claim[1:] for claim in TRAINING if claim[0] in name)
        paper, expected = next(matches, ("no claim", None))
        compared = by_name.get(row.get("beside", BASELINE))
        entry = dict(row) | origin | {"command": record.get("command")}
        if compared is not None and compared is not row:
            for which in SETS:
                less, error = f"less_{which}", row.get(f"error_{which}")
                entry.setdefault(less, row[f"bleu_{which}"] - compared[f"bleu_{which}"])
                reach = None if error is None else normal_quantile() * error
                ends = None if reach is None else [entry[less] - reach, entry[less] + reach]
                entry.setdefault(f"interval_{which}", ends)
            entry |= {"paper": paper, "expected": row.get("expected", expected)}
        yield entry


def ablation_rows(a: Answers) -> list[Row]:
    rows = []
    for which, row, difference in bleu_changes(a):
        less = None
        if difference is not None:
            less = [difference.value, *(difference.interval or ())]
        paper = CHOICES[row.system].paper
        rows += run_rows({which: [row]}, made="run", less_baseline=less, paper=paper)
    return rows + a.trained


def choice_claim(
    paper: str, expected: str, which: str, change: str, name: str, number: Quantity
) -> Published:
    agrees, effect, choice = EXPECTED[expected]
    return Published(
        f"{paper}: {change} ({which})",
        "paper B, section 3",
        expected,
        name,
        number,
        agrees,
        effect=effect,
        choices=(choice,),
        differs=(JOINED,) if which == "long" else (),
    )


def ablation_claims(a: Answers) -> Iterable[Published]:
    """The verdicts on the paper's words, if they name a direction: run, trained, and recorded."""
    for which, row, difference in bleu_changes(a):
        choice = CHOICES[row.system]
        if difference is not None and choice.expected is not None:
            number = Quantity(
                "",
                difference.value,
                difference.interval,
                n=difference.n_sentences,
                unit="sentences",
            )
            name = f"BLEU less the baseline's, {row.system}, {which}"
            yield choice_claim(choice.paper, choice.expected, which, row.system, name, number)
    for entry in a.trained:
        for which in SETS if entry.get("expected") is not None else ():
            ends = entry[f"interval_{which}"]
            number = Quantity(
                "",
                entry[f"less_{which}"],
                None if ends is None else tuple(ends),
                n=SIZES[which],
                unit="sentences",
            )
            name = f"BLEU less that of {entry.get('beside', BASELINE)}, {entry['change']}, {which}"
            yield choice_claim(
                entry["paper"], entry["expected"], which, entry["change"], name, number
            )
    for model in ("student", "shipped student") if a.equal else ():
        for n in COUNTS:
            for which in SETS:
                pair = f"{model}: refine-remask, {n} steps", f"{model}: refine, {n} steps"
                yield choice_claim(
                    NO_SCHEDULE,
                    "same",
                    which,
                    f"{REMASKED}, {n} passes, {model}",
                    f"BLEU of {pair[0]} less {pair[1]}, {which}",
                    recorded_difference(a.equal, *pair, which),
                )


ABLATION = Piece(
    "translation: what each choice in decoding and in training is worth",
    lambda a: (
        SENTENCES
        + "; one choice changed at a time. "
        + (
            "Choices of training are recorded"
            if a.trained
            else "Choices of training (mask rate, distillation, positional attention, stages, "
            "vocabulary, corruption) are not recorded next to these weights"
        )
    ),
    **COMMON,
    small=SMALL,
    paper=PAPER,
    not_in_paper=SIZED,
    ask=ask_ablation,
    table=ablation_rows,
    claims=ablation_claims,
    seconds=105,
)

# The recipe of appendix L.2, and remark 6.


def ask_recipe(s: Settings) -> dict[str, object]:
    settings = settings_of("paper", {})
    count = sum(map(prod, weight_shapes(shape_of(settings))))
    return {"rows": compare_recipe(settings), "millions": count / 1e6}


RECIPE = Piece(
    "every hyperparameter of the training next to that of `train-translator --preset paper`",
    "The preset, with nothing trained; `glauber train-translator PAIRS --preset paper` trains "
    "with it and prints the same table for its pairs",
    small={},
    ask=ask_recipe,
    table=lambda a: columns(a.rows, "hyperparameter", "here", "paper", "verdict", "note"),
    claims=[
        Published(
            "the model has 67 million parameters",
            "paper B, appendix L.2",
            "67 million",
            "million parameters of the preset",
            lambda a: float(a.millions),
            near(67.0, 0.5),
            choices=(
                "positional attention in the decoder layers alone",
                "128 positions; a length predictor of one layer",
            ),
        )
    ],
    seconds=1,
)


def ask_remark_6(s: Settings) -> dict[str, object]:
    vocabulary, model = load_vocabulary(s.folder), load(s.folder, "student")
    examples = example_sets(s)
    effects = {
        name: own_token(model, vocabulary, [row.source for row in rows], n_steps=s.n_steps)
        for name, rows in examples.items()
    }
    return sized(examples) | {"effects": effects}


def hidden_effect(a: Answers, which: str) -> Estimate:
    effect: OwnToken = a.effects[which]
    return effect.hidden


REMARK_6 = Piece(
    "how far a position's own token moves its distribution",
    SENTENCES + "; drafts of the most likely length after {n_steps} passes of `refine` by the "
    "shipped student, neither remasked nor cleaned; total variation between the distribution of a "
    "position given the draft and given the same with MASK (hidden) or with the likeliest other "
    "token (replaced) in its place; changed: its most likely token is another once it is hidden",
    **COMMON,
    small=SMALL | {"n_steps": 4},
    paper=PAPER,
    not_in_paper=SIZED,
    ask=ask_remark_6,
    table=lambda a: [
        {"set": name} | columns([effect], "hidden", "replaced", "changed", "n_positions", "kind")[0]
        for name, effect in a.effects.items()
    ],
    claims=[
        Published(
            f"an update is not the conditional given all other positions ({which})",
            "paper B, remark 6",
            "in words; no figure",
            f"total variation once the own token is hidden, mean over positions, {which}",
            partial(hidden_effect, which=which),
            above(0.0),
            choices=("a set of conditionals gives 0 exactly, so any distance above 0 agrees",),
            unit="sentences",
            bounds=(0.0, 1.0),
        )
        for which in SETS
    ],
    choices=("drafts after 4 passes",),
    seconds=20,
)

PIECES = {
    "B-table1": TABLE_1,
    "B-table2": TABLE_2,
    "B-table3": TABLE_3,
    "B-table4": TABLE_4,
    "B-table5": TABLE_5,
    "B-ablation": ABLATION,
    "B-recipe": RECIPE,
    "B-remark6": REMARK_6,
}
