"""How fast are translations: a sentence alone, and many together?"""

import math
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from glauber.progress import Advance

Item = TypeVar("Item")  # a text, or a text with its references
P99 = 100  # sentences from which on a 99th percentile is more than the slowest of them
SIZES = (1, 4, 16, 64, 256)  # batches whose throughput is measured


@dataclass(frozen=True)
class Latency:
    """Seconds to translate one sentence: median and 99th percentile over the sentences.

    Fewer than 100 sentences have no 99th percentile: it would be the slowest of them.
    """

    median: float
    p99: float | None
    n_sentences: int
    seconds: tuple[float, ...] = ()  # of each sentence
    kind: str = "estimate"


@dataclass(frozen=True)
class Throughput:
    """Sentences a second at the best batch size, and at each size that was tried."""

    best: float
    batch_size: int
    by_size: dict[int, float]
    n_sentences: int
    kind: str = "estimate"


def machine(device: str = "cpu") -> str:
    """Where times were measured, in words."""
    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name(device))
    count = torch.get_num_threads()
    threads = "1 thread" if count == 1 else f"{count} threads"
    return f"{device}, {platform.machine()}, {threads}, float32"


def latency(translate_one: Callable[[Item], object], texts: Sequence[Item]) -> Latency:
    """Times of translating each text alone, after three warm-up rounds on the first ones."""
    return latencies([translate_one], texts)[0]


def latencies(
    translators: Sequence[Callable[[Item], object]],
    texts: Sequence[Item],
    *,
    advance: Advance | None = None,
) -> list[Latency]:
    """The latency of several systems; each text goes to all of them before the next one.

    So what slows the machine for a while slows all of them, and the comparison stays fair.
    """
    for text in texts[:3]:
        for translate_one in translators:
            translate_one(text)
    seconds: list[list[float]] = [[] for _ in translators]
    for text in texts:
        for translate_one, spent in zip(translators, seconds, strict=True):
            began = time.perf_counter()
            translate_one(text)
            spent.append(time.perf_counter() - began)
        if advance is not None:
            advance()
    return [_latency(spent) for spent in seconds]


def _latency(seconds: list[float]) -> Latency:
    n = len(seconds)
    late = sorted(seconds)[math.ceil(0.99 * n) - 1] if n >= P99 else None
    return Latency(statistics.median(seconds), late, n, tuple(seconds))


def throughput(
    translate_all: Callable[[Sequence[Item], int], object],
    texts: Sequence[Item],
    *,
    sizes: Sequence[int] = SIZES,
) -> Throughput:
    """Sentences a second of translating all texts in batches of each size, after one warm-up.

    Sizes above the number of texts would be the same again and are left out.
    """
    translate_all(texts[:3], 3)
    by_size = {}
    for size in [one for one in sizes if one <= len(texts)] or [len(texts)]:
        began = time.perf_counter()
        translate_all(texts, size)
        by_size[size] = len(texts) / (time.perf_counter() - began)
    best = max(by_size, key=lambda size: by_size[size])
    return Throughput(by_size[best], best, by_size, len(texts))
