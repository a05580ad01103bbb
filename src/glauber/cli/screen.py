"""What the terminal shows: results on stdout, everything else on stderr."""

import json as json_module
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

out = Console()
err = Console(stderr=True)


def emit(value: dict[str, Any]) -> None:
    """One JSON object on stdout."""
    print(json_module.dumps(value, ensure_ascii=False), flush=True)


def say(text: str, *, quiet: bool = False) -> None:
    """A line for the person, on stderr."""
    if not quiet:
        err.print(text, highlight=False, soft_wrap=True, markup=False)


def answer(
    told: dict[str, Any], lines: Iterable[str], *, json: bool, picture: Path | None = None
) -> None:
    """Ends a command: one JSON object, or lines for a person and where the picture lies."""
    if json:
        emit(told)
        return
    for line in lines:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    if picture is not None:
        say(f"the picture is in {picture}")


@contextmanager
def counted(n_pairs: int, steps: int, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar over pairs of chains; told the pairs finished and the steps made so far."""
    bar = Progress(
        TextColumn("{task.fields[finished]:,} of {task.fields[pairs]:,} pairs finished"),
        BarColumn(),
        TextColumn("{task.fields[rate]:,.0f} steps/s"),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=quiet or not err.is_terminal,
    )
    task = bar.add_task("", total=n_pairs * steps, finished=0, pairs=n_pairs, rate=0.0)
    begun = time.perf_counter()

    def hear(finished: int, updates: int) -> None:
        rate = updates / (time.perf_counter() - begun)
        # A pair that has met needs no more steps, so its share of the work is done.
        done = max(updates, finished * steps)
        bar.update(task, completed=done, finished=finished, rate=rate)

    with bar:
        yield hear


@contextmanager
def looking(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar over the looks at a run; told the looks done and the looks in all."""
    words = TextColumn("look {task.completed:,.0f} of {task.total:,.0f}")
    with Progress(
        words, BarColumn(), TimeRemainingColumn(), console=err, transient=True, disable=quiet
    ) as bar:
        task = bar.add_task("", total=1)
        yield lambda done, total: bar.update(task, completed=done, total=total)
