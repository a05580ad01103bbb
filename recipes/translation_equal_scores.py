"""How good are the models that were trained equally? Scores and paired differences of their texts.

    python -m recipes.translation_equal_scores --record equal.json.xz --valid VALID.tsv.xz \\
        --test TEST.tsv.xz --out src/glauber/models/translation-en-es

Reads what `recipes.translation_equal` wrote, and writes equal.json, which `glauber paper B-table1`
and `B-table2` show. Every system is compared with beam search of the control and of the teacher,
and with what it differs from in one thing, on the same sentences. Each has its BLEU against one
reference and by tok intl as well; those of one pass have the share of sentences that come near the
control's.
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glauber.translation.data import Example, by_source, load_vocabulary, long_pairs, read_pairs
from glauber.translation.model import BUNDLED
from glauber.translation.score import (
    Difference,
    bleu_counts,
    bleu_of,
    first_references,
    paired_difference,
    quality,
    share_near,
    stutter_counts,
    stutter_of,
)

COMMON = ("control: beam 5", "teacher: beam 5")
# What differs in one thing: in the passes, in the decoding, in the training.
ALSO = [
    ("paper: refine from random, 10 steps", "paper: refine from random, 4 steps"),
    ("student: refine, 10 steps", "student: refine, 4 steps"),
    ("student: refine-remask, 10 steps", "student: refine-remask, 4 steps"),
    ("cmlm: mask-predict, 10 steps", "cmlm: mask-predict, 4 steps"),
    ("paper: sundae, 10 steps", "paper: sundae, 4 steps"),
    ("control: beam 5", "control: greedy"),
    ("control: greedy", "teacher: greedy"),
    *(
        (left.format(n), right.format(n))
        for n in (4, 10)
        for left, right in (
            ("student: refine-remask, {} steps", "student: refine, {} steps"),
            ("student: refine, {} steps", "paper: refine from random, {} steps"),
            ("student: refine-remask, {} steps", "paper: refine from random, {} steps"),
            ("student: refine-remask, judged by ar, {} steps", "student: refine-remask, {} steps"),
            ("student: refine-remask, {} steps", "control: greedy"),
            ("paper: refine from random, {} steps", "cmlm: mask-predict, {} steps"),
            ("paper: refine from random, {} steps", "paper: refine, {} steps"),
            ("cmlm: easy-first, {} steps", "cmlm: mask-predict, {} steps"),
            ("shipped student: refine-remask, {} steps", "shipped teacher: beam 5"),
            ("shipped student: refine, {} steps", "shipped teacher: beam 5"),
            ("shipped student: refine-remask, {} steps", "shipped student: refine, {} steps"),
            ("shipped student: refine-remask, judged by ar, {} steps", "shipped teacher: beam 5"),
            ("shipped student: refine-remask, {} steps", "student: refine-remask, {} steps"),
        )
    ),
]
KEPT = (
    "pairs in the file", "pairs of at most 31 tokens", "pairs seen", "decoder passes over a pair",
    "dropout", "plan", "seconds",
)  # fmt: skip


def main(words: list[str] | None = None) -> None:
    """Reads the command line and writes the scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name in ("record", "valid", "test", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    args = parser.parse_args(words)
    record = json.loads(lzma.decompress(args.record.read_bytes()))
    found = scored(record, sets(args.test, args.valid, record))
    (args.out / "equal.json").write_text(json.dumps(found, indent=1) + "\n")


def sets(test: Path, valid: Path, record: dict[str, Any]) -> dict[str, list[Example]]:
    """The sentences that were translated, with their references."""
    pairs, any_system = (
        read_pairs(test),
        next(iter(next(iter(record["outputs"].values())).values())),
    )
    sizes = {name: len(one["texts"]) for name, one in any_system.items()}
    made = {
        "test": by_source(pairs),
        "long": long_pairs(pairs, load_vocabulary(BUNDLED), n_pairs=sizes.get("long", 1)),
        "valid": by_source(read_pairs(valid)),
    }
    return {name: made[name][:size] for name, size in sizes.items()}


def scored(record: dict[str, Any], judged: dict[str, list[Example]]) -> dict[str, Any]:
    """Scores of every system on every set, and the differences, in place of the texts."""
    said = {
        f"{model}: {way}": done
        for model, ways in record["outputs"].items()
        for way, done in ways.items()
    }
    models = {
        name: {key: one[key] for key in KEPT if key in one} | {"loss": one["curve"][-1][1]}
        for name, one in record["training"].items()
    }
    rows = [_row(name, which, said, judged) for name in said for which in said[name]]
    kept = {name: value for name, value in record.items() if name not in ("outputs", "training")}
    differences = list(_differences(said, judged))
    return kept | {"models": models, "rows": rows, "differences": differences}


def _row(
    name: str, which: str, said: dict[str, Any], judged: dict[str, list[Example]]
) -> dict[str, Any]:
    texts, one = said[name][which]["texts"], first_references(judged[which], 1)
    found = quality(texts, judged[which])
    intl = {
        key: bleu_of(bleu_counts(texts, sentences, "intl").sum(0))
        for key, sentences in (("bleu_intl", judged[which]), ("bleu_intl_one_reference", one))
    }
    return intl | {
        "bleu_one_reference": bleu_of(bleu_counts(texts, one).sum(0)),

        "set": which, "system": name, "bleu": found.bleu, "chrf": found.chrf,
        "stutter": found.stutter, "passes": said[name][which]["passes"],
        "sentences": found.n_sentences, "bleu_signature": found.bleu_signature,
        "kind": found.kind,
    }  # fmt: skip


def _differences(
    said: dict[str, Any], judged: dict[str, list[Example]]
) -> Iterator[dict[str, Any]]:
    pairs = [(name, other) for name in said for other in COMMON if name != other]
    pairs = [
        (one, other) for one, other in dict.fromkeys([*pairs, *ALSO]) if {one, other} <= {*said}
    ]
    for which, wanted in judged.items():
        counts = {name: bleu_counts(said[name][which]["texts"], wanted) for name in said}
        repeats = {name: stutter_counts(said[name][which]["texts"], wanted) for name in said}
        single = {
            name: bleu_counts(said[name][which]["texts"], first_references(wanted, 1))
            for name in said
        }
        for one, other in pairs:
            moved = {"BLEU": paired_difference(counts[one], counts[other], bleu_of)}
            if other == COMMON[0]:
                twice = paired_difference(repeats[one], repeats[other], stutter_of, 2.0)
                moved["stutter, less twice"] = twice
                moved["BLEU, one reference"] = paired_difference(
                    single[one], single[other], bleu_of
                )
            if other == COMMON[0] and one.endswith(", 1 step"):
                texts = [said[name][which]["texts"] for name in (one, other)]
                near = share_near(*texts, wanted)
                moved["share near"] = Difference(
                    near.value, near.interval, None, near.n_chains, near.kind
                )
            for of, found in moved.items():
                yield {"set": which, "system": one, "less": other, "of": of} | _told(found)


def _told(found: Difference) -> dict[str, Any]:
    return {
        "value": found.value, "interval": found.interval, "standard_error": found.standard_error,
        "sentences": found.n_sentences, "kind": found.kind,
    }  # fmt: skip


if __name__ == "__main__":
    main()
