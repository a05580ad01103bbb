"""Models of a page: a fixed list, opened once, asked one at a time in the order of asking."""

import threading
from typing import Any

import pytest

from glauber.foundation.errors import GlauberError
from glauber.interfaces.explorer.models import Models, Turns
from waiting import SECONDS, until


def test_a_model_is_opened_once_and_only_when_it_is_asked() -> None:
    opened: list[str] = []

    def loader() -> Any:
        opened.append("a")
        return object()

    models = Models({"a": loader})
    assert models.names == ["a"] and not opened
    assert models["a"] is models["a"] and opened == ["a"]


def test_a_model_that_is_not_listed_is_refused() -> None:
    models = Models.of("bundled:english")
    for name in ("/etc/passwd", "bundled:other", None, ["bundled:english"]):
        with pytest.raises(GlauberError, match="start with --model"):
            models.check(name)


def test_a_loader_that_fails_is_tried_again() -> None:
    tries = iter([GlauberError("no"), "model"])

    def loader() -> Any:
        one = next(tries)
        if isinstance(one, Exception):
            raise one
        return one

    models = Models({"a": loader})
    with pytest.raises(GlauberError, match="no"):
        models["a"]
    assert models["a"] == "model"


def test_turns_go_in_the_order_of_asking() -> None:
    turns, came, ready = Turns(), [], threading.Semaphore(0)

    def work(number: int) -> None:
        ready.release()
        with turns, turns:  # the holder may take it again
            came.append(number)

    threads = []
    with turns:
        for number in range(4):
            threads.append(threading.Thread(target=work, args=(number,), daemon=True))
            threads[-1].start()
            assert ready.acquire(timeout=SECONDS)
            # It stands in line before the next one comes.
            until(lambda length=number + 2: len(turns._line) >= length)
    for thread in threads:
        thread.join(SECONDS)
    assert came == [0, 1, 2, 3] and not turns._line
