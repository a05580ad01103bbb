"""A few threads that answer when many ask at once; what waits for them is bounded.

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

Task = tuple["Future[Any]", Callable[[], Any]]


class Busy(GlauberError):
    """Too many questions wait, or nobody answers any more."""


class Workers:
    """A few threads that do one task after another."""

    def __init__(self, threads: int = THREADS, *, waiting: int = WAITING) -> None:
        self._most_waiting, self._idle, self.closed = waiting, 0, False
        self._changed = threading.Condition()
        self._waiting: deque[Task] = deque()
        self._threads = [
            threading.Thread(target=self._work, name=f"glauber-answer-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()
        _all.add(self)

    def submit(self, function: Callable[[], Any]) -> "Future[Any]":
        """The result of `function`, later; refused at once if too many wait already."""
        future: Future[Any] = Future()
        with self._changed:
            if self.closed:
                raise Busy("the explorer was stopped.")
            if len(self._waiting) >= self._most_waiting + self._idle:
                self._waiting = deque(task for task in self._waiting if not task[0].cancelled())
            if len(self._waiting) >= self._most_waiting + self._idle:
                raise Busy("the explorer is busy with other questions: ask again in a moment.")
            self._waiting.append((future, function))
            self._changed.notify()
        return future

    def close(self) -> None:
        """Begin nothing more and cancel what waits; what runs ends by itself."""
        with self._changed:
            self.closed = True
            for future, _ in self._waiting:
                future.cancel()
            self._waiting.clear()
            self._changed.notify_all()

    def join(self, seconds: float) -> bool:
        """Wait for what runs; whether all threads have ended."""
        for thread in self._threads:
            thread.join(seconds)
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        while (task := self._next()) is not None:
            future, function = task
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)
            del future, function, task  # an answer may be large, and this thread may wait long

    def _next(self) -> Task | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self.closed or self._waiting)
            self._idle -= 1
            return self._waiting.popleft() if self._waiting else None


_all: "weakref.WeakSet[Workers]" = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for workers in list(_all):
        workers.close()
    for workers in list(_all):
        workers.join(PATIENCE)
