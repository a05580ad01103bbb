"""What can a page ask, and who answers?

A page asks by name with JSON and gets JSON, whether over HTTP (`server`), inside a notebook
(`notebook`) or from a test. Nothing here knows about transports. Answers that need the model are
made one at a time; bad input ends in one sentence (`GlauberError`).
"""

from collections.abc import Callable, Mapping
from typing import Any

from glauber.errors import GlauberError

Answer = dict[str, Any]
Question = Callable[..., Answer]


class Answers:
    """The questions that an open explorer answers, by name."""

    def __init__(self, questions: Mapping[str, Question]) -> None:
        self._questions = dict(questions)

    def __call__(self, name: str, given: Mapping[str, Any]) -> Answer:
        """The answer to one question; what the question does not know is refused."""
        import inspect

        question = self._questions.get(name)
        if question is None:
            raise GlauberError(f"there is no question {name!r:.40}.")
        try:
            inspect.signature(question).bind(**given)
        except TypeError as error:
            raise GlauberError(f"the question {name}: {error}.") from error
        return question(**given)
