"""The questions of a page, by name.

A page asks by name with JSON and gets JSON, whether over HTTP (`server`), inside a notebook
(`notebook`) or from a test. Nothing here knows about transports. Answers that need the model are
made one at a time; bad input ends in one sentence (`GlauberError`).
"""

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from glauber.errors import GlauberError
from glauber.result import one_line, plain

Answer = dict[str, Any]
Question = Callable[..., Answer]


class Answers:
    """The questions that an open explorer answers, by name."""

    def __init__(
        self, questions: Mapping[str, Question], *, close: Callable[[], None] | None = None
    ) -> None:
        self._questions, self._close = dict(questions), close

    def close(self) -> None:
        """End the searches that go on after an answer."""
        if self._close is not None:
            self._close()

    def __call__(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        """The answer to one question; unknown arguments are refused."""
        import inspect

        question = self._questions.get(name)
        if question is None:
            raise GlauberError(f"there is no question {name!r:.40}.")
        try:
            inspect.signature(question).bind(**arguments)
        except TypeError as error:
            raise GlauberError(f"the question {name}: {error}.") from error
        return question(**arguments)

    def reply(self, name: str, arguments: Mapping[str, Any]) -> tuple[int, Answer]:
        """The answer or a refusal in one sentence, and its HTTP status.

        A fault of ours is one line on stderr; the page hears no more than that there was one.
        """
        try:
            return 200, self(name, arguments)
        except GlauberError as error:
            return 400, {"error": str(error)}
        except Exception as error:
            *_, last = traceback.extract_tb(error.__traceback__)
            where = f"{Path(last.filename).name}:{last.lineno}"
            line = one_line(f"glauber: the question {name} failed at {where}: {error!r}")
            print(line[:1000], file=sys.stderr, flush=True)
            why = f"the explorer failed at this question ({type(error).__name__})."
            return 500, {"error": why}


def to_json(answer: Answer) -> bytes:
    """An answer as JSON; what is not a finite number is null."""
    try:
        return json.dumps(answer, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError):
        return json.dumps(plain(answer), allow_nan=False, separators=(",", ":")).encode()
