"""The questions of a page by name, and the threads that answer them.

A page sends a name and JSON and receives JSON, over HTTP (`server`), inside a notebook (`notebook`)
or from a test. Bad input ends in one sentence (`GlauberError`).

The threads are daemons: an answer that takes minutes does not keep the program from ending. When
Python ends, they get a few seconds to end before it, because a thread that is inside a model's C++
code then would abort the whole process.
"""

import atexit
import inspect
import json
import sys
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from glauber.foundation.errors import GlauberError
from glauber.foundation.study import one_line, plain

THREADS = 4
WAITING = 32  # questions that may wait for a thread
PATIENCE = 5.0  # seconds for threads that are still busy when Python ends

Answer = dict[str, Any]  # JSON
Question = Callable[..., Answer]
T = TypeVar("T")


class Answers:
    """The questions that an open explorer answers, by name."""

    def __init__(
        self, questions: Mapping[str, Question], *, close: Callable[[], None] = lambda: None
    ) -> None:
        self._questions = dict(questions)
        self.close = close  # ends the searches that continue after an answer

    def __call__(self, name: str, arguments: Mapping[str, object]) -> Answer:
        """The answer to one question; unknown arguments are refused."""
        question = self._questions.get(name)
        if question is None:
            raise GlauberError(f"there is no question {name!r:.40}.")
        try:
            inspect.signature(question).bind(**arguments)
        except TypeError as error:
            raise GlauberError(f"the question {name}: {error}.") from error
        return question(**arguments)

    def reply(self, name: str, arguments: Mapping[str, object]) -> tuple[int, Answer]:
        """HTTP status and the answer, or a refusal in one sentence.

        An error of our own is one line on stderr; the page learns only its type.
        """
        try:
            return 200, self(name, arguments)
        except GlauberError as error:
            return 400, {"error": str(error)}
        except Exception as error:
            *_, last = traceback.extract_tb(error.__traceback__)
            line = f"{Path(last.filename).name}:{last.lineno}"
            report = one_line(f"glauber: the question {name} failed at {line}: {error!r}")
            print(report[:1000], file=sys.stderr, flush=True)
            reason = f"the explorer failed at this question ({type(error).__name__})."
            return 500, {"error": reason}


def to_json(answer: Answer) -> bytes:
    """An answer as JSON; what is not a finite number is null."""
    try:
        return json.dumps(answer, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError):
        return json.dumps(plain(answer), allow_nan=False, separators=(",", ":")).encode()


class Busy(GlauberError):
    """Too many questions wait, or the explorer was stopped."""


class Workers:
    """A few threads that do one task after another; how many may wait is bounded."""

    def __init__(self, threads: int = THREADS, *, waiting: int = WAITING) -> None:
        self._most_waiting, self._idle, self.closed = waiting, 0, False
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Future[Any], Callable[[], object]]] = deque()
        self._threads = [
            threading.Thread(target=self._work, name=f"glauber-answer-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()
        _all_workers.add(self)

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """The result of `function`, later; refused at once if too many wait already."""
        future: Future[T] = Future()
        with self._changed:
            if self.closed:
                raise Busy("the explorer was stopped.")
            most = self._most_waiting + self._idle
            if len(self._waiting) >= most:
                self._waiting = deque(task for task in self._waiting if not task[0].cancelled())
            if len(self._waiting) >= most:
                raise Busy("the explorer is busy with other questions: ask again in a moment.")
            self._waiting.append((future, function))
            self._changed.notify()
        return future

    def close(self) -> None:
        """Start nothing more and cancel what waits; what runs ends by itself."""
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
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self.closed or self._waiting)
                self._idle -= 1
                if not self._waiting:
                    return
                future, function = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)
            del future, function  # an answer may be large, and this thread may wait long


_all_workers: weakref.WeakSet[Workers] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for workers in list(_all_workers):
        workers.close()
    for workers in list(_all_workers):
        workers.join(PATIENCE)
