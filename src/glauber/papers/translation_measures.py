"""Paper B, section 3.3 and appendix L.3: speed of translation, and BLEU after preprocessing.

Times are of the shipped translators: run on this machine, and recorded on another one where
`speed.json` is next to the weights (`recipes/translation_speed.py`).
"""

from collections.abc import Iterator, Mapping
from functools import partial

from glauber.foundation.statistics import Estimate, Quantile
from glauber.papers.claims import Quantity, Region, above, near
from glauber.papers.piece import Answers, Piece, Published, Row, columns
from glauber.papers.translation import (
    COMMON,
    PAPER,
    SENTENCES,
    SIZED,
    SMALL,
    example_sets,
    read_record,
    run_systems,
    sized,
)
from glauber.papers.work import Settings
from glauber.translation.data import Example
from glauber.translation.decoding import Decoding
from glauber.translation.evaluation import BEAM, TEST_PAIRS, baselines
from glauber.translation.model import BUNDLED
from glauber.translation.score import (
    PREPROCESSING,
    Difference,
    preprocessed_bleus,
    preprocessing_difference,
)
from glauber.translation.timing import (
    FACTORS,
    PARTS,
    TranslatorTimes,
    time_translator,
)

RECORD = "speed.json"
SPEED = "paper B, section 3.3"


def ask_speed(s: Settings) -> dict[str, object]:
    here = time_translator(s.pairs, model=s.folder, long=s.n_long, steps=s.steps)
    times = {"here": here}
    if record := read_record(s.folder, RECORD, ("target_tokens",), "times"):
        times["recorded"] = TranslatorTimes.of(record)
    tokens = f"{here.mean_target_tokens.value:.1f}"
    machines = " and ".join(each.machine for each in times.values())
    return {"times": times, "machines": machines, "tokens": tokens}


def speed_rows(a: Answers) -> list[Row]:
    """Parts of the time, factors of the speed-up, and slopes over the length, by machine."""
    rows: list[Row] = []
    for where, times in a.times.items():
        made = {"made": where, "machine": times.machine, "kind": times.kind}
        names = ("system", "passes", "ms", *PARTS, "ms of a pass")
        rows += columns(times.table(), *names, **made)
        numbers: Mapping[str, Estimate | Quantile] = {
            **{FACTORS[name]: ratio for name, ratio in times.ratios.items()},
            "ratio of the medians": times.median_ratio,
            "ratio of the 99th percentiles": times.p99_ratio,
            **{f"ms for a further token, {k}": slope for k, slope in times.ms_per_token.items()},
            "target tokens, with the end": times.mean_target_tokens,
        }
        rows += [
            made | {"quantity": name, "value": [number.value, *(number.interval or ())]}
            for name, number in numbers.items()
        ]
    return rows


def speed_claims(a: Answers) -> Iterator[Published]:
    for times in a.times.values():
        entry = partial(speed_claim, times)
        ratios, slopes = times.ratios, times.ms_per_token
        yield entry(
            "4 steps are 7 to 8 times fewer decoder passes",
            "7 to 8 times, targets of 28 to 33 tokens",
            "ratio of the passes",
            ratios["passes"],
            near(7.5, 0.5),
            effect=7.5,
            differs=f"targets of {times.mean_target_tokens.value:.1f} tokens; a sentence that no "
            "longer changes stops early",
        )
        median, p99 = times.median_ratio, times.p99_ratio
        medians, tails = "ratio of the medians", "ratio of the 99th percentiles"
        for sentence, published, name, number, agrees in (
            ("the speed-up is 2 to 3 times", "2-3x", medians, median, near(2.5, 0.5)),
            ("more than 2 times in the median", "above 2", medians, median, above(2.0)),
            ("more than 5 times in the 99th percentile", "above 5", tails, p99, above(5.0)),
        ):
            yield entry(sentence, published, f"{name}, by order statistics", number, agrees)
        yield entry(
            "fixed costs (tokenisation, encoding) take part of the speed-up away",
            "one cause of the gap to 7 to 8 times",
            "speed-up of the decoders alone over that of everything",
            ratios["fixed costs"],
            above(1.0),
        )
        yield entry(
            "caching of earlier tokens speeds autoregressive decoding up",
            "one cause of the gap to 7 to 8 times",
            "time without the cache over that with it",
            ratios["cache"],
            above(1.0),
        )
        if slopes:
            yield entry(
                "for longer sequences the constant number of passes is advantageous",
                "no figure",
                "ms for a further target token, beam search less refinement",
                slopes["difference"],
                above(0.0),
            )


def speed_claim(
    times: TranslatorTimes,
    sentence: str,
    published: str,
    name: str,
    number: Estimate | Quantile,
    agrees: Region,
    *,
    effect: float | None = None,
    differs: str = "",
) -> Published:
    n, reason = number.n_chains, number.reason
    ours = Quantity("", number.value, number.interval, n, "sentences", reason=reason)
    if isinstance(number, Estimate):
        ours = Quantity.of("", number, unit="sentences")
    return Published(
        f"{sentence} ({times.machine})",
        SPEED,
        published,
        name,
        ours,
        agrees,
        effect=effect,
        differs=(f"{times.machine} in place of TPU v3", *([differs] if differs else ())),
    )


SPEED_PIECE = Piece(
    "translation: where the time goes, and how it grows with the length",
    "{n_long} long pairs joined from Tatoeba's test file (20 to 60 target tokens, {tokens} on "
    "average), English to Spanish by the bundled translators, one sentence at a time: beam 5, the "
    "same without its cache, and `refine` in {steps} passes over 5 lengths; on {machines}. Passes "
    "= time x fixed costs x cache x cost of a pass",
    model="translation-en-es",
    differs=COMMON["differs"],
    small=dict(folder=BUNDLED, pairs=TEST_PAIRS, n_long=40, steps=4),
    paper=dict(n_long=450),
    not_in_paper=("n_long",),
    published={},
    ask=ask_speed,
    table=speed_rows,
    figures=lambda a: a.times["here"].figures(),
    claims=speed_claims,
    seconds=80,
)


# BLEU of the same translations after other preprocessing.

REFINE = "refine, 4 steps"
INFLATES = {  # the sentence, the preprocessing, and the one without
    "lowercasing may inflate scores": ("lower case", "13a"),
    "stripping diacritics may inflate scores": ("no diacritics", "13a"),
    "separating punctuation may inflate scores": ("marks apart", "words as they are"),
    "SacreBLEU is lower than a BLEU of preprocessed texts": ("all three", "13a"),
}


def ask_bleu(s: Settings) -> dict[str, object]:
    examples = example_sets(s)
    compared = {
        BEAM: baselines()[BEAM],
        REFINE: ("student", Decoding("refine", 4, 5, judge="itself")),
    }
    return sized(examples) | {"evaluations": run_systems(s, examples, compared)}


def bleu_rows(a: Answers) -> list[Row]:
    """One row per system: its BLEU after each preprocessing, and the signature of SacreBLEU's."""
    return [
        {"set": which, "system": row.system}
        | preprocessed_bleus(row.outputs, a.examples[which])
        | {"signature": row.quality.bleu_signature, "kind": "estimate"}
        for which, listed in a.evaluations.items()
        for row in listed
    ]


def bleu_claims(a: Answers) -> Iterator[Published]:
    for which, listed in a.evaluations.items():
        examples: list[Example] = a.examples[which]
        for row in listed:
            for sentence, pair in INFLATES.items():
                difference = preprocessing_difference(row.outputs, examples, *pair)
                yield bleu_claim(sentence, f"{row.system}, {which}", pair, difference)


def bleu_claim(
    sentence: str, system: str, pair: tuple[str, str], difference: Difference
) -> Published:
    n, same = difference.n_sentences, "no sentence differs"
    reason = same if difference.interval is None else ""
    return Published(
        f"{sentence} ({system})",
        "paper B, appendix L.3",
        "higher, no figure",
        f"BLEU, {pair[0]} less {pair[1]}, {system}",
        Quantity("", difference.value, difference.interval, n, "sentences", reason=reason),
        above(0.0),
        choices=("our own preprocessing: the paper names the steps and no script",),
    )


BLEU_PIECE = Piece(
    "translation: BLEU of the same texts after other preprocessing",
    SENTENCES
    + ". Columns are preprocessings of outputs and references: "
    + ", ".join(PREPROCESSING),
    **COMMON,
    small=SMALL,
    paper=PAPER,
    not_in_paper=SIZED,
    ask=ask_bleu,
    table=bleu_rows,
    claims=bleu_claims,
    seconds=40,
)

PIECES = {"B-bleu": BLEU_PIECE, "B-speed": SPEED_PIECE}
