"""Paper B's translation tables: refinement beside the autoregressive model and other decoders."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from glauber.errors import GlauberError
from glauber.papers import translation_runs as runs
from glauber.papers.claims import Claim, Quantity, below, near
from glauber.papers.paper import Reproduction
from glauber.papers.settings import Piece, Scale, Settings, scoring
from glauber.papers.translation_choices import make_ablation
from glauber.papers.translation_equal import (
    DIFFERS,
    PAPER,
    TABLE_1,
    TABLE_2,
    equal,
    equal_rows,
    legend,
    published_beside,
    table_1_claims,
    table_2_claims,
)
from glauber.papers.translation_runs import (
    faster,
    long_set,
    published,
    row,
    sentences,
    sets,
    speed_claims,
)
from glauber.statistics import Estimate
from glauber.translation.data import Judged, load_vocabulary
from glauber.translation.decoding import REFINING, Decoding
from glauber.translation.evaluation import (
    BEAM,
    Evaluation,
    Measures,
    System,
    baselines,
    evaluate,
    systems,
)
from glauber.translation.model import load
from glauber.translation.neighbours import CROSS, Neighbours, attention_of_neighbours
from glauber.translation.score import learned_score

# Table 1. SacreBLEU; 5 beams or 5 lengths.
SACREBLEU = {
    "ar, beam 5": published([33.50, 29.54, 34.89, 29.75, 27.59, 33.94]),
    "refine, 4 steps": published([33.49, 28.61, 33.98, 28.98, 26.47, 32.59]),
    "refine, 10 steps": published([33.63, 28.58, 33.99, 28.97, 26.54, 32.68]),
}
SPEED = "more than 2 times in the median and 5 times in the 99th percentile, 4 steps on TPU v3"


def make_table1(settings: Settings) -> Reproduction:
    """Quality, stutter and latency of greedy, beam 5 and refinement on both sets, in one run."""
    judged, rows = sets(settings.scale), []
    measures = Measures(runs.SIZES[settings.scale][2])
    record, claims = equal(runs.BUNDLED), list[Claim]()
    chosen = systems(decoders=REFINING, judges=("itself",)) | systems(judges=("teacher",))
    for name, one_set in judged.items():
        made = evaluate(runs.BUNDLED, one_set, chosen, measures=measures)
        beam = next(one for one in made if one.system == BEAM)
        for one in made:
            shown = row(name, one) | {
                "faster than greedy, beam 5": [faster(one, made[0]), faster(one, beam)],
                "published SacreBLEU": SACREBLEU.get(one.system),
                "published speed-up": SPEED if one.system == "refine, 4 steps" else None,
            }
            rows.append(shown | {"further pairs": "shipped: teacher 9.2, student 78.7 million"})
        refined = next(one for one in made if one.system == "refine, 4 steps")
        claims += speed_claims(name, refined, beam)
    rows += [
        one | {"published SacreBLEU": SACREBLEU.get(published_beside(one["system"]))}
        for one in equal_rows(record, TABLE_1)
    ]
    how = _how(sentences(judged), record)
    return Reproduction.of(
        settings, how, rows, claims=[*table_1_claims(record), *claims], differs=DIFFERS,
        model="translation-en-es",
    )  # fmt: skip


def _how(what: str, record: dict[str, Any]) -> str:
    equally = (
        f"The rows 'recorded' are models that began from the shipped teacher and then saw "
        f"{record['steps'] * record['batch']:,} further pairs each, on {record['device']} "
        f"({legend(TABLE_1)})"
        if record
        else "Models at equal training are not recorded beside these weights"
    )
    return (
        f"{what}; 5 lengths, 4 and 10 passes; latency one sentence at a time in the same run. The "
        "shipped student saw 78.7 million pairs and the shipped teacher, on people's pairs, 9.2: "
        f"their rows compare products, not methods. {equally}. `refine` is the paper's decoding, "
        "`refine-remask` our own. The published figures are of other languages and of a model of "
        "67 million parameters"
    )


def _student(decoder: str, n_steps: int, n_lengths: int = 5, n_hypotheses: int = 16) -> System:
    how = Decoding(decoder, n_steps, n_lengths, n_hypotheses=n_hypotheses, judge="itself")
    return "student", how


# Table 2. There each row is a model of its own. What runs here is one student behind all parallel
# decoders, which compares schedules; the recorded rows are models trained for their decoder.
DECODERS: dict[str, System] = {
    "ar, beam 5": baselines()["ar, beam 5"],
    "mask-predict, 4 steps": _student("mask-predict", 4),
    "mask-predict, 10 steps": _student("mask-predict", 10),
    "easy-first, 4 steps": _student("easy-first", 4),
    "confident-first, 4 steps": _student("confident-first", 4),
    "sundae, 4 steps, 1 length of 16 drafts": _student("sundae", 4, 1),
    "sundae, 10 steps, 1 length of 16 drafts": _student("sundae", 10, 1),
    "refine, 4 steps": _student("refine", 4),
    "refine, 10 steps": _student("refine", 10),
    "refine-remask, 4 steps": _student("refine-remask", 4),
    "refine-remask, 10 steps": _student("refine-remask", 10),
}
# By other implementations of BLEU; refinement by SacreBLEU with tok intl. They stand beside models
# trained for their decoder alone. SUNDAE's training is nobody's here, so its row has no place.
OTHER_BLEU = {
    "cmlm: mask-predict, 4 steps": published([30.75, 26.73, 33.02, 33.67, 22.57, 33.58]),
    "cmlm: mask-predict, 10 steps": published([31.24, 27.39, 33.67, 33.33, 23.76, 34.24]),
    "cmlm: easy-first, 10 steps": published([31.31, 27.34, 33.25, 33.22, 23.83, 34.63]),
    PAPER.format(4): published([34.17, 29.49, 34.55, 29.57, 27.18, 32.59]),
    PAPER.format(10): published([34.33, 29.48, 34.57, 29.56, 27.25, 32.60]),
}


def make_table2(settings: Settings) -> Reproduction:
    """Quality of every decoder on both sets."""
    judged = sets(settings.scale, share=0.4 if settings.scale == "small" else 1.0)
    chosen = {
        name: (model, replace(how, seed=settings.seed)) for name, (model, how) in DECODERS.items()
    }
    rows = [
        row(name, one) | {"made": "run, by the shipped student, trained for refinement"}
        for name, one_set in judged.items()
        for one in evaluate(runs.BUNDLED, one_set, chosen, measures=Measures(0))
    ]
    record = equal(runs.BUNDLED)
    rows += [
        one | {"published BLEU": OTHER_BLEU.get(one["system"])}
        for one in equal_rows(record, TABLE_2)
    ]
    how = (
        f"{sentences(judged)}; one student behind all parallel decoders that were run, 5 lengths "
        "where nothing else is said. The recorded models were each trained for their decoder, on "
        "as many pairs; easy-first asks the one of mask-predict, sundae (which learns from drafts "
        "with any share of random tokens) the one of the paper's drafts. Published rows are by "
        f"other BLEUs. Recorded: {legend(TABLE_2)}"
    )
    return Reproduction.of(
        settings, how, rows, claims=table_2_claims(record), differs=DIFFERS,
        model="translation-en-es",
    )  # fmt: skip


# Table 3. BLEURT there.
BLEURT = {
    "ar, beam 5": published([73.55, 74.97, 67.23, 71.76, 68.14, 65.71]),
    "refine, 4 steps": published([71.26, 72.08, 65.90, 70.23, 65.16, 63.95]),
    "refine, 10 steps": published([71.82, 73.28, 66.09, 70.49, 66.19, 64.30]),
}


def make_table3(settings: Settings) -> Reproduction:
    """COMET of every system on both sets, or chrF and one sentence about what is missing."""
    judged, rows, note = sets(settings.scale), [], ""
    for name, one_set in judged.items():
        for one in evaluate(
            runs.BUNDLED,
            one_set,
            systems(decoders=REFINING, judges=("itself",)),
            measures=Measures(0),
        ):
            metric, note = _metric(one, one_set)
            rows.append(row(name, one) | metric | {"published BLEURT": BLEURT.get(one.system)})
    claim = Claim(
        "by a learned metric 4 steps are below the autoregressive model",
        "paper B, table 3", "1.3 to 3.0 BLEURT in six directions",
        Quantity("BLEURT of 4 steps less that of the control", None, unit="sentences"), below(0.0),
        ours=("no learned metric's weights are at hand",),
    )  # fmt: skip
    how = f"{sentences(judged)}. {note}"
    return Reproduction.of(settings, how, rows, claims=[claim], differs=DIFFERS)


def _metric(one: Evaluation, judged: list[Judged]) -> tuple[dict[str, Any], str]:
    """The learned score of one system, or None; and what to say about it."""
    try:
        found = learned_score(one.outputs, judged)
    except GlauberError as missing:
        return {"COMET": None}, f"{missing} Until then chrF is what can be had"
    return {"COMET": found.score}, f"COMET with {found.weights}; the paper has BLEURT"


# Tables 4 and 5. Long pairs only: stutter is commoner in long drafts, where every attention is
# spread thinner.
PASSES = (1, 2, 4)
ALIKE = 0.1  # of a mean: the paper's own two differ by 3%
LONG: dict[Scale, int] = {"small": 100, "paper": 200}
Published = dict[str, dict[str, float]]  # stutter yes or no -> measure -> its mean
SELF_MEASURES = ("self_min", "self_avg", "self_max", "self_top_1", "self_top_2")
CROSS_MEASURES = (*CROSS, "cross_top_1", "cross_top_2")
SELF_PUBLISHED = {
    "yes": dict(zip(SELF_MEASURES, (0.0004, 0.032, 0.16, 0.20, 0.39), strict=True)),
    "no": dict(zip(SELF_MEASURES, (0.0005, 0.033, 0.17, 0.17, 0.37), strict=True)),
}
CROSS_PUBLISHED = {
    "yes": dict(zip(CROSS_MEASURES, (0.06, 0.13, 0.23, 0.01, 0.10, 0.25, 0.57, 0.89), strict=True)),
    "no": dict(zip(CROSS_MEASURES, (0.11, 0.23, 0.35, 0.04, 0.20, 0.38, 0.40, 0.81), strict=True)),
}


def make_table4(settings: Settings) -> Reproduction:
    """Attention of the two to each other in the last layer, in three passes."""
    return _attention(SELF_MEASURES, SELF_PUBLISHED, settings, _self_claims)


def make_table5(settings: Settings) -> Reproduction:
    """Total variation and cosine distance in the last layer, in three passes."""
    return _attention(CROSS_MEASURES, CROSS_PUBLISHED, settings, _cross_claims)


def _self_claims(found: Neighbours) -> list[Claim]:
    """That neighbours attend to each other alike, whether they stutter or not."""
    return [
        Claim(
            "neighbours that stutter attend to each other as others do "
            f"(pass {found.n_steps})", "paper B, table 4", "0.032 against 0.033",
            _gap(found, "self_avg", relative=True), near(0.0, ALIKE), effect=-0.03,
            ours=(f"within {ALIKE:.0%} of the others' mean counts as alike", "the pass"),
        )
    ]  # fmt: skip


def _cross_claims(found: Neighbours) -> list[Claim]:
    """That neighbours that stutter read the source more alike."""
    return [
        Claim(
            "neighbours that stutter read more alike, by the "
            f"{words} of their cross-attention (pass {found.n_steps})", "paper B, table 5",
            published, _gap(found, measure), below(0.0), effect=-0.1, ours=("the pass",),
        )
        for measure, words, published in (
            ("variation_avg", "total variation", "0.13 against 0.23"),
            ("cosine_avg", "cosine distance", "0.10 against 0.20"),
        )
    ]  # fmt: skip


def _gap(found: Neighbours, measure: str, *, relative: bool = False) -> Quantity:
    """Stuttering less others, over sentences."""
    gap = found.difference(measure, relative=relative)
    name = f"{measure}, stuttering less others" + (", over others" if relative else "")
    return Quantity.of(name, gap, unit="sentences")


def _attention(
    measures: tuple[str, ...],
    theirs: Published,
    settings: Settings,
    claimed: Callable[[Neighbours], list[Claim]],
) -> Reproduction:
    """Three rows for each pass: pairs that stutter, pairs that do not, and their difference."""
    texts = [one.source for one in long_set(LONG[settings.scale])]
    model, vocabulary = load(runs.BUNDLED, "student"), load_vocabulary(runs.BUNDLED)
    rows, claims = [], list[Claim]()
    for n_steps in PASSES:
        found = attention_of_neighbours(model, vocabulary, texts, n_steps=n_steps)
        rows += _attention_rows(found, measures, theirs)
        claims += claimed(found)
    how = (
        f"{len(texts)} long pairs joined from Tatoeba's test file (20 to 60 target tokens), "
        "English to Spanish by the bundled student; neighbouring positions of drafts of the most "
        "likely length, neither "
        "remasked nor cleaned, in the pass that wrote them; last decoder layer; mean, standard "
        "deviation and standard error (over sentences); differences with their intervals, over "
        "sentences too"
    )
    differs = (
        "another pair of languages and a smaller student", "long pairs joined from short sentences"
    )  # fmt: skip
    return Reproduction.of(
        settings, how, rows, claims=claims, differs=differs, model="translation-en-es"
    )


def _attention_rows(
    found: Neighbours, measures: tuple[str, ...], theirs: Published
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for stutter, group in (("yes", found.stuttering), ("no", found.others)):
        spreads = {name: group.measures[name] for name in measures}
        rows.append(
            {"pass": found.n_steps, "stutter": stutter, "pairs": group.n_pairs}
            | {name: [one.mean, one.deviation, one.standard_error] for name, one in spreads.items()}
            | {"published": theirs[stutter], "kind": found.kind}
        )
    gaps = {name: _shown(found.difference(name)) for name in measures}
    apart = {name: round(theirs["yes"][name] - theirs["no"][name], 4) for name in measures}
    rows.append(
        {"pass": found.n_steps, "stutter": "yes less no, and its 95% interval"}
        | gaps
        | {"published": apart, "kind": found.kind}
    )
    return rows


def _shown(gap: Estimate) -> list[float | None]:
    return [gap.value, *(gap.interval or (None, None))]


PIECES = {
    "B-table1": Piece(
        "translation: the autoregressive model beside refinement at 4 and 10 steps", make_table1,
        seconds=235, extras=scoring,
    ),
    "B-table2": Piece(
        "translation: refinement beside mask-predict, easy-first and SUNDAE", make_table2,
        seconds=180, extras=scoring,
    ),
    "B-table3": Piece(
        "translation by a learned metric, where its weights are at hand", make_table3,
        seconds=90, extras=scoring,
    ),
    "B-table4": Piece(
        "self-attention between neighbouring positions, stuttering or not", make_table4, seconds=14
    ),
    "B-table5": Piece(
        "distance of the cross-attention of neighbouring positions, stuttering or not",
        make_table5, seconds=13,
    ),
    "B-ablation": Piece(
        "translation: what each choice in decoding and in training is worth", make_ablation,
        seconds=105, extras=scoring,
    ),
}  # fmt: skip
