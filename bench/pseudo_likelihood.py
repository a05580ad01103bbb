"""Is `glauber score` right and fast beside minicons? python -m bench.pseudo_likelihood

minicons wants transformers below 5, so it runs in an environment of its own, made on the first
call. Both sides score the same 50 sentences with the bundled model in float32 and with equally many
threads, in turns, the model loaded and one round done before. minicons gets the sentences in order
of length (so that it pads little), and of several batch sizes the one that suits it best. Then
ours scores a text as long as the model reads, in a process of its own, for its memory. Exits with 1
if a score differs by more than 1e-4 or the original variant is not three times as fast.

The printed load says how busy the machine was: where others want the cores too, minicons, which
splits each product over threads, loses more than we do, so only a quiet machine gives the ratio.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from bench.environment import ROOT, TORCH, environment
from glauber.models.masked_lm import MaskedLM
from glauber.models.shelf import bundled_folder
from glauber.studies.compatibility.pseudo_likelihood import pseudo_likelihood
from glauber.studies.compatibility.score import score
from glauber.texts.starts import passages

MODEL = "bundled:english"
MINICONS = ["minicons==0.3.39", "transformers<5"]
METRICS = ("original", "within_word_l2r")
BATCH_SIZES = (1, 2, 4, 8)
ALLOWED = 1e-4
FASTER = 3.0


def sentences(count: int = 50) -> list[str]:
    """Passages of the package cut to 5 to 34 words, in order of length."""
    cut = (" ".join(text.split()[: 5 + i % 30]) for i, (_, text) in enumerate(passages()[:count]))
    return sorted(cut, key=len)


class Minicons:
    """minicons in its own process, the model loaded."""

    def __init__(self, texts: list[str]) -> None:
        python = environment("minicons", [TORCH], MINICONS)
        script = Path(__file__).with_name("minicons_side.py")
        self._process = subprocess.Popen(
            [python, script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        folder, threads = str(bundled_folder(MODEL)), torch.get_num_threads()
        self._say({"model": folder, "threads": threads, "texts": texts})
        self.score("original", 1)  # what is loaded on first use is not counted
        found = {size: self.score("original", size)["seconds"] for size in BATCH_SIZES}
        self.batch_size = min(found, key=found.__getitem__)

    def score(self, metric: str, batch_size: int | None = None) -> dict[str, Any]:
        self._say({"metric": metric, "batch_size": batch_size or self.batch_size})
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate()

    def _say(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()


def ours(model: MaskedLM, texts: list[str], metric: str) -> dict[str, Any]:
    """The same from us."""
    begun = time.perf_counter()
    tokens, free = model.vocabulary.encode(texts)
    words = model.vocabulary.words(texts) if metric == "within_word_l2r" else None
    totals = pseudo_likelihood(model, tokens, free, words=words).totals.tolist()
    return {"seconds": time.perf_counter() - begun, "totals": totals}


def both(model: MaskedLM, texts: list[str]) -> float:
    """Seconds of what `glauber score` does: both variants, which share most of their rows."""
    begun = time.perf_counter()
    score(model, texts)
    return time.perf_counter() - begun


def compare(turns: int) -> dict[str, Any]:
    """Median seconds of both sides, their ratio and the largest difference, variant by variant."""
    texts = sentences()
    model = MaskedLM.load(MODEL, device="cpu")
    score(model, texts)
    minicons = Minicons(texts)
    left: dict[str, list[float]] = {name: [] for name in (*METRICS, "both")}
    right: dict[str, list[float]] = {name: [] for name in (*METRICS, "both")}
    gaps = dict.fromkeys(METRICS, 0.0)
    for _ in range(turns):
        for metric in METRICS:
            we, they = ours(model, texts, metric), minicons.score(metric)
            left[metric].append(we["seconds"])
            right[metric].append(they["seconds"])
            pairs = zip(we["totals"], they["totals"], strict=True)
            gaps[metric] = max(gaps[metric], *(abs(a - b) for a, b in pairs))
        left["both"].append(both(model, texts))
        right["both"].append(sum(right[metric][-1] for metric in METRICS))
    minicons.close()
    rows = {name: _row(left[name], right[name]) for name in left}
    for metric in METRICS:
        rows[metric]["difference"] = gaps[metric]
    return {"batch_size": minicons.batch_size, "rows": rows}


def _row(left: list[float], right: list[float]) -> dict[str, float]:
    ours, theirs = statistics.median(left), statistics.median(right)
    return {"ours": ours, "minicons": theirs, "ratio": theirs / ours}


def longest() -> dict[str, Any]:
    """Seconds and peak memory of both variants on a text as long as the model reads."""
    command = [sys.executable, "-m", "bench.pseudo_likelihood", "--longest"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _score_the_longest() -> None:
    """What `longest` runs: one text of all the tokens that fit, special ones included."""
    model = MaskedLM.load(MODEL, device="cpu")
    many = " ".join(text for _, text in passages()[:40])
    tokens, _ = model.vocabulary.encode([many], length=model.longest - 2)
    text = model.vocabulary.decode(tokens[0].tolist())
    loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = both(model, [text])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count = model.vocabulary.count(text) + 2
    answer = {"tokens": count, "seconds": seconds, "loaded_gib": loaded / 2**20}
    # minicons forms the scores of every position of every row at once.
    theirs = (count - 2) * count * model.vocab_size * 4 / 2**30
    print(json.dumps({**answer, "peak_gib": peak / 2**20, "minicons_scores_gib": theirs}))


def show(found: dict[str, Any], long: dict[str, Any]) -> None:
    print(
        f"\nPLL of 50 sentences, {MODEL}, CPU, {torch.get_num_threads()} threads "
        f"(minicons with batches of {found['batch_size']}), load {os.getloadavg()[0]:.1f}\n"
        f"{'glauber, s':>12} {'minicons, s':>12} {'ratio':>7} {'difference':>11}"
    )
    for name, row in found["rows"].items():
        gap = f"{row['difference']:.1e}" if "difference" in row else ""
        print(f"{row['ours']:12.2f} {row['minicons']:12.2f} {row['ratio']:7.2f} {gap:>11}  {name}")
    print(
        f"one text of {long['tokens']} tokens, both variants: {long['seconds']:.0f} s, peak "
        f"{long['peak_gib']:.2f} GiB ({long['loaded_gib']:.2f} before); minicons' scores alone "
        f"would take {long['minicons_scores_gib']:.1f} GiB",
        flush=True,
    )


def run(turns: int = 3) -> tuple[dict[str, Any], bool]:
    """Prints the table; gives the figures, and whether they are what they must be."""
    found, long = compare(turns), longest()
    show(found, long)
    rows = found["rows"]
    right = all(rows[metric]["difference"] <= ALLOWED for metric in METRICS)
    return {**found, "longest": long}, right and rows["original"]["ratio"] >= FASTER


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--longest", action="store_true", help="only score the longest text")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.longest:
        _score_the_longest()
        return
    torch.set_num_threads(args.threads)
    figures, fine = run(args.turns)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
