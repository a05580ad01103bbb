"""On which sentences are paper B's translation tables made again, and what was published?"""

from pathlib import Path
from typing import Any

import numpy as np

from glauber.errors import GlauberError
from glauber.json_text import parse_json
from glauber.papers.claims import Claim, Quantity, above
from glauber.papers.settings import Scale
from glauber.statistics import mean_over_chains
from glauber.translation import model
from glauber.translation.data import Judged, by_source, load_vocabulary, long_pairs, read_pairs
from glauber.translation.evaluation import TEST_PAIRS, Evaluation, machine, spread

# Sentences of the test file, long pairs, and how many of each are timed alone.
SIZES: dict[Scale, tuple[int | None, int, int]] = {
    "small": (100, 40, 20),
    "paper": (None, 200, 100),
}
DIRECTIONS = ("DE-EN", "EN-DE", "RO-EN", "EN-RO", "ZH-EN", "EN-ZH")  # WMT14, WMT16, WMT17
RECORDED = "ablations.json"
BUNDLED = model.BUNDLED


def sets(scale: Scale, *, share: float = 1.0) -> dict[str, list[Judged]]:
    """The test sentences with all their references, and the long pairs; or a share of them."""
    n_test, n_long, _ = SIZES[scale]
    test, long = by_source(read_pairs(TEST_PAIRS)), long_set(n_long)
    n_test = int(share * (n_test or len(test)))
    return {"test": spread(test, n_test), "long": long[: int(share * len(long))]}


def long_set(n_pairs: int) -> list[Judged]:
    """Long pairs joined from the test file: 20 to 60 target tokens, one reference."""
    return long_pairs(read_pairs(TEST_PAIRS), load_vocabulary(BUNDLED), n_pairs=n_pairs)


def sentences(judged: dict[str, list[Judged]]) -> str:
    """What was translated, in words."""
    return (
        f"English to Spanish by the bundled translators: {len(judged['test']):,} sentences of "
        f"Tatoeba's test file with all their references, and {len(judged['long']):,} long pairs "
        "joined from it (20 to 60 target tokens, one reference)"
    )


def published(scores: list[float]) -> dict[str, float]:
    """Published scores by the direction of translation; other languages, data and sizes."""
    return dict(zip(DIRECTIONS, scores, strict=False))


def row(name: str, one: Evaluation) -> dict[str, Any]:
    """One system on one set."""
    quality, late = one.quality, one.latency
    found: dict[str, Any] = {
        "set": name,
        "system": one.system,
        "BLEU": quality.bleu,
        "BLEU less beam 5": None if one.less is None else one.less.value,
        "interval": None if one.less is None else one.less.interval,
        "chrF": quality.chrf,
        "stutter": quality.stutter,
        "stutter of the references": quality.reference_stutter,
        "passes": one.n_passes,
    }
    if late is not None:
        found |= {
            "median ms": 1000 * late.median,
            "p99 ms": None if late.p99 is None else 1000 * late.p99,
            "sentences timed": late.n_sentences,
            "machine": machine(),
        }
    signatures = {
        "BLEU signature": quality.bleu_signature,
        "chrF signature": quality.chrf_signature,
    }
    return found | signatures | {"kind": quality.kind}


def recorded(folder: Path | None = None) -> dict[str, Any]:
    """What was measured when the translators were trained: device, steps, command, rows, systems.

    Empty where the folder has no such record.
    """
    path = (folder or BUNDLED) / RECORDED
    if not path.is_file():
        return {}
    try:
        record = parse_json(path.read_text(encoding="utf-8"))
        listed = [*record.get("rows", []), *record.get("systems", [])]
        if not all(isinstance(one, dict) for one in listed):
            raise ValueError
    except (ValueError, AttributeError, TypeError) as problem:
        raise GlauberError(f"{path} is no record of ablations.") from problem
    return dict(record)


def provenance(record: dict[str, Any]) -> dict[str, Any]:
    """How a recorded figure was made."""
    return {
        "made": "recorded",
        "device": record.get("device"),
        "training steps": record.get("steps"),
        "command": record.get("command"),
    }


def faster(one: Evaluation, other: Evaluation) -> float:
    """How many times the median of one goes into that of the other."""
    assert one.latency is not None and other.latency is not None
    return other.latency.median / one.latency.median


def speed_claims(which: str, one: Evaluation, beam: Evaluation) -> list[Claim]:
    """That 4 steps are faster; of sentences timed one by one, each by both systems."""
    assert one.latency is not None and beam.latency is not None
    logs = np.log(beam.latency.seconds) - np.log(one.latency.seconds)
    mean = mean_over_chains(logs)
    ends = None if mean.interval is None else tuple(float(np.exp(end)) for end in mean.interval)
    times = Quantity(
        f"times as fast as beam 5, {which}", float(np.exp(mean.value)), ends, n=len(logs),  # type: ignore[arg-type]
        unit="sentences",
    )  # fmt: skip
    late = (beam.latency.p99, one.latency.p99)
    ratio = late[0] / late[1] if late[0] is not None and late[1] is not None else None
    slowest = Quantity(
        f"ratio of the 99th percentiles, {which}", ratio, n=len(logs), unit="sentences",
        reason=(
            "fewer than 100 sentences have no 99th percentile"
            if ratio is None
            else "a ratio of two tails has no interval here"
        ),
    )  # fmt: skip
    differs = (f"{machine()} in place of TPU v3", "short sentences", "a smaller model")
    ours = ("the geometric mean over sentences in place of the median",)
    source = "paper B, section on latency"
    return [
        Claim(f"4 steps are more than 2 times as fast as autoregressive decoding ({which})", source,
              "more than 2 times in the median", times, above(2.0), differs, ours, effect=2.5),
        Claim(f"and more than 5 times in the 99th percentile ({which})", source,
              "more than 5 times", slowest, above(5.0), differs),
    ]  # fmt: skip
