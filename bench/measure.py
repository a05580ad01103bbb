"""Rates that can be compared: measured in turns within one run, medians over the turns."""

import statistics
import time
from collections.abc import Iterator
from typing import NamedTuple

import torch


class Rate(NamedTuple):
    """Chain steps per second."""

    name: str
    median: float
    low: float
    high: float


def in_turns(loops: dict[str, Iterator[int]], seconds: float, turns: int = 3) -> list[Rate]:
    """Rates of endless loops that yield chain steps, each run for `seconds` in every turn."""
    for loop in loops.values():
        for _ in range(3):
            next(loop)  # compilation, recording and caches are not counted
    rates: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(turns):
        for name, loop in loops.items():
            rates[name].append(_rate(loop, seconds))
    return [
        Rate(name, statistics.median(found), min(found), max(found))
        for name, found in rates.items()
    ]


def _rate(loop: Iterator[int], seconds: float) -> float:
    _wait()
    begun, done, steps = time.perf_counter(), 0, 0
    while True:
        done += next(loop)
        steps += 1
        late = time.perf_counter() - begun > seconds
        if late or steps % 8 == 0 or not torch.cuda.is_available():
            _wait()
            spent = time.perf_counter() - begun
            if spent > seconds:
                return done / spent


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
