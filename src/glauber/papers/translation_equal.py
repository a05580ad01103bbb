"""What came out when teacher, control and students were trained on as many pairs?

`recipes/translation_equal.py` trains and translates, `recipes/translation_equal_scores.py` scores;
what they found lies beside the weights and is read here. All models begin from the shipped teacher
and see as many further pairs; a difference is on the same sentences, with its interval over them.
"""

from pathlib import Path
from typing import Any

from glauber.errors import GlauberError
from glauber.json_text import parse_json
from glauber.papers.claims import Claim, Quantity, Region, above, at_least, near
from glauber.translation import model

EQUAL = "equal.json"
CONTROL, TEACHER = "control: beam 5", "teacher: beam 5"
# The paper's own drafts (15% kept, the rest random), its own decoding and its own start.
PAPER = "paper: refine from random, {} steps"
NAMES = {
    "teacher": "teacher, trained further on people's pairs",
    "control": "autoregressive, on distilled pairs",
    "student": "student by our drafts (MASK, the least sure hidden between stages)",
    "paper": "student by the paper's drafts (15% kept, random tokens)",
    "cmlm": "conditional masked language model (mask-predict's own training)",
    "repeats-only": "student by our drafts, only repeats hidden between stages",
    "shipped teacher": "the teacher in the package",
    "shipped student": "the student in the package",
}
COUNTS = (4, 10)  # passes
TABLE_1 = (
    "teacher: greedy", TEACHER, "control: greedy", CONTROL,
    *(PAPER.format(n) for n in COUNTS),
    *(f"paper: refine from random, judged by ar, {n} steps" for n in COUNTS),
    *(f"student: {way}, {n} steps" for way in ("refine", "refine-remask") for n in COUNTS),
    *(f"student: refine-remask, judged by ar, {n} steps" for n in COUNTS),
)  # fmt: skip
TABLE_2 = (
    CONTROL,
    *(PAPER.format(n) for n in COUNTS),
    *(f"student: refine-remask, {n} steps" for n in COUNTS),
    *(
        f"cmlm: {way}, {n} steps"
        for way in ("mask-predict", "easy-first", "confident-first")
        for n in COUNTS
    ),
    *(f"paper: sundae, {n} steps" for n in COUNTS),
)
SHIPPED_PAIRS = {"shipped teacher": 9_216_000, "shipped student": 78_663_680}
DIFFERS = (
    "English to Spanish, 134,567 short pairs of Tatoeba in place of WMT",
    "7 million parameters in place of 67",
    "students begin from the teacher's weights and see few pairs; the paper's see 1,024 million",
    "one training of each kind: the interval is over sentences, not over trainings",
)
JOINED = "long pairs are joined from test sentences, some of them more than once"


def equal(folder: Path | None = None) -> dict[str, Any]:
    """The record beside the weights; empty where there is none."""
    path = (folder or model.BUNDLED) / EQUAL
    if not path.is_file():
        return {}
    try:
        record = parse_json(path.read_text(encoding="utf-8"))
        if not all(isinstance(record[part], list) for part in ("rows", "differences")):
            raise ValueError
    except (ValueError, KeyError, TypeError) as problem:
        raise GlauberError(f"{path} is no record of models at equal training.") from problem
    return dict(record)


def equal_rows(record: dict[str, Any], systems: tuple[str, ...]) -> list[dict[str, Any]]:
    """Some systems on every set, as a table has them."""
    listed = {(one["set"], one["system"]): one for one in record.get("rows", [])}
    sets = dict.fromkeys(which for which, _ in listed)
    chosen = [(which, name) for which in sets for name in systems if (which, name) in listed]
    return [_row(record, listed[one]) for one in chosen]


def legend(systems: tuple[str, ...]) -> str:
    """What the models behind some systems are, in words."""
    models = dict.fromkeys(name.split(": ")[0] for name in systems)
    return "; ".join(f"{name}: {NAMES[name]}" for name in models)


def _row(record: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    name = one["system"].split(": ")[0]
    trained = record["models"].get(name, {})
    found = {
        "set": one["set"], "system": one["system"],
        "further pairs": trained.get("pairs seen", 0),
        "decoder passes over a pair": trained.get("decoder passes over a pair"),
        "pairs before": SHIPPED_PAIRS.get(name, SHIPPED_PAIRS["shipped teacher"]),
        "BLEU": one["bleu"], "chrF": one["chrf"], "stutter": one["stutter"],
        "passes": one["passes"],
    }  # fmt: skip
    for word, other in (("control", CONTROL), ("teacher", TEACHER)):
        moved = difference(record, one["system"], other, one["set"])
        found[f"BLEU less {word}"] = None if moved is None else moved["value"]
        found[f"interval, {word}"] = None if moved is None else moved["interval"]
    return found | {"made": "recorded", "device": record["device"], "kind": "estimate"}


def published_beside(system: str) -> str:
    """The published row beside a recorded one: the control, and the paper's own student."""
    own = {
        CONTROL: "ar, beam 5",
        PAPER.format(4): "refine, 4 steps",
        PAPER.format(10): "refine, 10 steps",
    }
    return own.get(system, "")


def difference(
    record: dict[str, Any], system: str, less: str, which: str, of: str = "BLEU"
) -> dict[str, Any] | None:
    """One recorded difference of two systems on a set."""
    asked = {"system": system, "less": less, "set": which, "of": of}
    listed = record.get("differences", [])
    return next((one for one in listed if asked.items() <= one.items()), None)


def compared(
    record: dict[str, Any], system: str, less: str, which: str, of: str = "BLEU"
) -> Quantity:
    """The same as a quantity; without a number where it was not recorded."""
    name, moved = (
        f"{of} of {system} less {less}, {which}",
        difference(record, system, less, which, of),
    )
    if moved is None:
        return Quantity(name, None, unit="sentences")
    ends = None if moved["interval"] is None else tuple(moved["interval"])
    return Quantity(name, moved["value"], ends, n=moved["sentences"], unit="sentences")


def _claim(
    record: dict[str, Any],
    sentence: str,
    published: str,
    pair: tuple[str, str],
    region: Region,
    *,
    effect: float | None = None,
    ours: tuple[str, ...] = (),
    of: str = "BLEU",
    table: str = "table 1",
) -> list[Claim]:
    """The claim on the test sentences and on the long ones."""
    return [
        Claim(
            f"{sentence} ({which})", f"paper B, {table}", published,
            compared(record, *pair, which, of), region, effect=effect, ours=ours,
            differs=(*DIFFERS, *([JOINED] if which == "long" else [])),
        )
        for which in ("test", "long")
    ]  # fmt: skip


def table_1_claims(record: dict[str, Any]) -> list[Claim]:
    """What the paper's first table says, of its own training and decoding."""
    if not record:
        return []
    gap = ("1.4 BLEU: the largest gap of the table, rounded up",)
    small = ("half a BLEU counts as no difference",)
    return [
        *_claim(
            record, "4 steps come within 1.4 BLEU of the autoregressive model on distilled pairs",
            "-1.35 to -0.01 in six directions", (PAPER.format(4), CONTROL), at_least(-1.4),
            effect=-0.85, ours=gap,
        ),
        *_claim(
            record, "10 steps come within 1.4 BLEU of the autoregressive model on distilled pairs",
            "-1.26 to 0.13 in six directions", (PAPER.format(10), CONTROL), at_least(-1.4),
            effect=-0.8, ours=gap,
        ),
        *_claim(
            record, "10 steps translate as well as 4", "-0.03 to 0.14 in six directions",
            (PAPER.format(10), PAPER.format(4)), near(0.0, 0.5), effect=0.05, ours=small,
        ),
        *_claim(
            record, "refinement stutters at least twice as often as the autoregressive model",
            "2 times or more", (PAPER.format(4), CONTROL), above(0.0), of="stutter, less twice",
            ours=("the share of words less twice that of the control",),
        ),
    ]  # fmt: skip


def table_2_claims(record: dict[str, Any]) -> list[Claim]:
    """What the second table says of refinement beside mask-predict and easy-first."""
    if not record:
        return []
    mean = ("power for the mean of the six directions",)
    predicted = "cmlm: mask-predict, {} steps"
    return [
        *_claim(
            record, "4 steps of refinement beat 4 of mask-predict",
            "-4.10 to 4.61 over six directions, higher in four; other BLEUs",
            (PAPER.format(4), predicted.format(4)), above(0.0), effect=1.2, ours=mean,
            table="table 2",
        ),
        *_claim(
            record, "10 steps of refinement beat 10 of mask-predict",
            "-3.77 to 3.49 over six directions, higher in four; other BLEUs",
            (PAPER.format(10), predicted.format(10)), above(0.0), effect=0.69, ours=mean,
            table="table 2",
        ),
        *_claim(
            record, "10 steps of mask-predict beat 4", "-0.34 to 1.19, higher in five of six",
            (predicted.format(10), predicted.format(4)), above(0.0), effect=0.55, ours=mean,
            table="table 2",
        ),
        *_claim(
            record, "easy-first is within a BLEU of 10 steps of mask-predict",
            "-0.42 to 0.39 over six directions",
            ("cmlm: easy-first, 10 steps", predicted.format(10)), near(0.0, 1.0), effect=-0.01,
            ours=("a BLEU counts as near", "easy-first here asks a model trained as CMLM"),
            table="table 2",
        ),
    ]  # fmt: skip
