"""Who answers when many ask at once? A few threads; what waits for them is bounded.

The threads are daemons: an answer that takes minutes does not keep the program from ending. When
Python ends they are given a few seconds to end before it, because a thread that is inside a
model's C++ code then would abort the whole process.
"""

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from glauber.errors import GlauberError

THREADS = 4
WAITING = 32
PATIENCE = 5.0  # seconds for threads that still work when Python ends


class Busy(GlauberError):
    """Too many questions wait, or nobody answers any more."""


class Workers:
    """A few threads that do one thing after another."""

    def __init__(self, threads: int = THREADS, *, waiting: int = WAITING) -> None:
        self._most = waiting
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._open = True
        self._idle = 0
        self._threads = [
            threading.Thread(target=self._work, name=f"glauber-answer-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()
        _all.add(self)

    @property
    def closed(self) -> bool:
        """Whether nothing more is begun: what runs long may look and end early."""
        return not self._open

    def submit(self, do: Callable[[], Any]) -> "Future[Any]":
        """What `do` gives, later; refused at once if too many wait already."""
        future: Future[Any] = Future()
        with self._changed:
            if not self._open:
                raise Busy("the explorer was stopped.")
            if len(self._waiting) >= self._most + self._idle:
                self._waiting = deque(one for one in self._waiting if not one[0].cancelled())
            if len(self._waiting) >= self._most + self._idle:
                raise Busy("the explorer is busy with other questions: ask again in a moment.")
            self._waiting.append((future, do))
            self._changed.notify()
        return future

    def close(self) -> None:
        """Nothing more is begun, and what waits is cancelled; what runs ends by itself."""
        with self._changed:
            self._open = False
            for future, _ in self._waiting:
                future.cancel()
            self._waiting.clear()
            self._changed.notify_all()

    def join(self, seconds: float) -> bool:
        """Waits for what runs; whether all threads have ended."""
        for thread in self._threads:
            thread.join(seconds)
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        while (next_one := self._next()) is not None:
            future, do = next_one
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(do())
            except BaseException as error:
                future.set_exception(error)
            del future, do, next_one  # an answer may be large, and this thread may wait long

    def _next(self) -> "tuple[Future[Any], Callable[[], Any]] | None":
        with self._changed:
            self._idle += 1
            while self._open and not self._waiting:
                self._changed.wait()
            self._idle -= 1
            return self._waiting.popleft() if self._waiting else None


_all: "weakref.WeakSet[Workers]" = weakref.WeakSet()


@atexit.register
def _end() -> None:
    for one in list(_all):
        one.close()
    for one in list(_all):
        one.join(PATIENCE)
