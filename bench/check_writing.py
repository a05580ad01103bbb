"""Does a GPU write the texts that the CPU writes? Parts of check_gpu."""

from typing import Any

from bench.check_families import check
from glauber.models.load import load
from glauber.sampling.generate import Generation, generate
from glauber.sampling.infill import infill

WAYS: dict[str, dict[str, Any]] = {
    "8 passes": dict(length="12-30", passes=8),
    "entropy bound and a sweep": dict(
        length="8-12", order="entropy", count="entropy-bound:0.5", correct=1
    ),
    "hidden again": dict(length="12-30", passes=8, remask="conf", top_p=0.95, temperature=0.7),
}
BLANKS = ["the [MASK] of [MASK] is [MASK:1-3] .", "she opened the [MASK] and saw a [MASK:2] ."]
SHARES = {"float64": 0.0, "float32": 0.05, "bfloat16": 1.0}  # of texts that a batch may change


def apart(one: Generation, two: Generation) -> float:
    """The share of texts that differ; the second may hold the first few only."""
    differ = [a != b for a, b in zip(one.texts, two.texts, strict=False)]
    return sum(differ) / len(differ)


def proposed(made: Generation) -> int:
    """How often the mask was placed, or stands at the end; hiding again is not placing."""
    trace, mask = made.written.trace, made.written.hidden_token
    placed = (trace.token == mask) & (trace.log_prob != 0)  # a hidden site counts as certain
    return int(placed.sum()) + int((made.written.tokens == mask).sum())


def written() -> None:
    """Texts of generate: the same twice, for batches of 64, 7 and 1, and as on the CPU."""
    exact = load("bundled:english", device="cpu", dtype="float64")
    due = {name: generate(exact, chains=16, seed=3, **way) for name, way in WAYS.items()}
    for dtype, limit in SHARES.items():
        model = load("bundled:english", device="cuda", dtype=dtype)
        for name, way in WAYS.items():
            told = f"{name}, {dtype}: "
            first, again, seven, one = (
                generate(model, chains=chains, seed=3, batch_size=size, **way)
                for chains, size in ((64, 64), (64, 64), (64, 7), (16, 1))
            )
            check(told + "share of texts that differ when written again", apart(first, again), 0)
            check(told + "for a batch of 7", apart(first, seven), limit)
            check(told + "for a batch of 1", apart(first, one), limit)
            check(told + "to float64 on the CPU", apart(first, due[name]), limit)
            check(told + "masks proposed", proposed(first), 0)
            for text in first.texts[:3]:
                print("        " + text)


def filled() -> None:
    """Blanks at temperature 0: the fills and their ranking are those of float64 on the CPU."""
    rows = []
    for device, dtype in (("cpu", "float64"), ("cuda", "float64"), ("cuda", "float32")):
        model = load("bundled:english", device=device, dtype=dtype)
        rows.append(infill(model, BLANKS).rows())
    for row in rows[-1]:
        print(f"        {row['rank']} {row['log_prob_per_token']:7.3f}  {row['text']}")
    for dtype, found in zip(("float64", "float32"), rows[1:], strict=True):
        pairs = list(zip(found, rows[0], strict=True))
        differ = sum(a["text"] != b["text"] for a, b in pairs)
        check(f"blanks, {dtype}: texts that differ from the CPU's", differ, 0)
        gap = max(abs(a["log_prob"] - b["log_prob"]) for a, b in pairs)
        limit = 1e-9 if dtype == "float64" else 1e-3
        check(f"blanks, {dtype}: their log-probabilities", gap, limit)
