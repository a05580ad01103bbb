"""How far is it? A bar in a terminal or a notebook, for work of more than a second.

A study says what it will cost, then counts what is done. Work whose own rate says that it would
take days is stopped, unless that was allowed.
"""

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from glauber.foundation.errors import GlauberError, TooLong
from glauber.foundation.study import one_line

SHOWN_AFTER = 1.0  # seconds
REFRESH = 0.25  # seconds between two pictures of a bar
JUDGED_AFTER = 20.0  # seconds of work after which its rate is believed
EARLY = 60.0  # seconds of work that may be thrown away
LONGEST = 48 * 3600.0  # seconds that work may take before it must be allowed

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)
_allowed: ContextVar[bool] = ContextVar("allowed", default=False)


class Advance(Protocol):
    """Counts what is done: so many more, or up to a total; note is shown next to the bar."""

    def __call__(self, more: float = 1, *, to: float | None = None, note: str = "") -> None: ...


@contextmanager
def quiet() -> Iterator[None]:
    """No bars and no lines inside."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


@contextmanager
def allow_long() -> Iterator[None]:
    """Work of days is not refused inside; the command line's `--yes`."""
    token = _allowed.set(True)
    try:
        yield
    finally:
        _allowed.reset(token)


def say(text: str) -> None:
    """A line on stderr for the person who waits; nothing without a terminal or notebook."""
    if is_watched():
        _tqdm().write(one_line(text), file=sys.stderr)


def is_watched() -> bool:
    """Whether there is a terminal or a notebook, and no `quiet`."""
    return not _quiet.get() and (sys.stderr.isatty() or _in_notebook())


@contextmanager
def track(what: str, total: float) -> Iterator[Advance]:
    """Counts work of a known size: `with track("pairs", 12) as advance: … advance()`."""
    start, done = time.perf_counter(), 0.0
    bar: Any = None
    if is_watched():
        bar = _tqdm()(
            total=int(total), desc=what, leave=False, delay=SHOWN_AFTER, mininterval=REFRESH
        )

    def advance(more: float = 1, *, to: float | None = None, note: str = "") -> None:
        nonlocal done
        done = done + more if to is None else to
        spent = time.perf_counter() - start
        judge(what, spent, done, total)
        if bar is not None:
            bar.set_postfix_str(one_line(note), refresh=False)
            bar.update(int(done) - bar.n)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.close()


def _tqdm() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without ipywidgets a notebook gets a bar of letters
        from tqdm.auto import tqdm
    return tqdm


def _in_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None


def usable_cores() -> int:
    """Cores that this process may use; all of the machine's where the system does not tell."""
    if hasattr(os, "process_cpu_count"):  # from Python 3.13 on
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_memory(needed: float, what: str) -> None:
    """Refuses work that would not fit this machine's memory, before it begins."""
    available = memory()
    if needed > available:
        raise GlauberError(
            f"{what} would take about {needed / 2**30:,.1f} GiB, but this machine has "
            f"{available / 2**30:,.1f} GiB of memory: ask for less."
        )


def check_count(name: str, value: int, *, least: int = 1, most: int = 10**9) -> None:
    """Refuses what is no whole number between two limits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise GlauberError(f"the {name} is {value!r}, but it must be a whole number.")
    if value < least:
        raise GlauberError(f"the {name} is {value}, but it must be at least {least}.")
    if value > most:
        raise GlauberError(f"the {name} is {value:,}, but more than {most:,} cannot be done.")


def check_seed(seed: int) -> None:
    """Refuses seeds that the counter-based generator cannot hold."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise GlauberError(f"the seed is {seed}, but it must be between 0 and 2^63 - 1.")


def memory() -> float:
    """Bytes of memory that this machine has."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def judge(what: str, spent: float, done: float, total: float) -> None:
    """Stops work whose own rate says that it would take days, unless that was allowed."""
    if spent < JUDGED_AFTER or done <= 0 or _allowed.get():
        return
    refuse_days(what, spent * total / done, early=spent < EARLY)


def refuse_days(what: str, seconds: float, *, early: bool = True) -> None:
    """Refuses work that would take days, unless that was allowed."""
    if seconds <= LONGEST or _allowed.get():
        return
    error = TooLong(
        f"{what}: at this rate it would take {seconds / 3600:,.0f} hours. Ask for less, or allow "
        "it: --yes on the command line, `with glauber.allow_long():` in Python."
    )
    error.early = early
    raise error


Counter = Callable[[int, int], None]  # done and total, as older loops report them


def counter(advance: Advance) -> Counter:
    """An `Advance` for loops that report (done, total)."""
    return lambda done, total: advance(to=done)
