"""The models that a page may use, and whose turn it is.

A fixed list of names, each opened when it is first needed. All who use a model take their turn,
first come, first served: a click waits for one short piece of work, not for a whole film.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from glauber.conditionals.base import Conditionals, Model
from glauber.conditionals.load import load
from glauber.errors import GlauberError

Loader = Callable[[], Model]


class Turns:
    """A lock that goes to whoever waits longest; the thread that has it may take it again."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._line: deque[int] = deque()  # threads; the first one has the lock
        self._depth = 0

    @property
    def waited_for(self) -> bool:
        """Whether somebody else waits."""
        return len(self._line) > 1

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._changed:
            if not (self._line and self._line[0] == me):
                self._line.append(me)
                try:
                    self._changed.wait_for(lambda: self._line[0] == me)
                except BaseException:  # an interrupt: nobody after it would ever come
                    self._line.remove(me)
                    self._changed.notify_all()
                    raise
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._depth -= 1
            if not self._depth:
                self._line.popleft()
                self._changed.notify_all()


class Models:
    """Models by name, opened once each; whoever uses one takes the `lock`."""

    def __init__(self, loaders: Mapping[str, Loader]) -> None:
        self.lock = Turns()
        self._loaders = dict(loaders)
        self._opened: dict[str, Model] = {}
        self._conditionals: dict[str, Conditionals] = {}

    @classmethod
    def of(cls, *models: str | Path | Conditionals, **how: Any) -> "Models":
        """Of names and objects, as `glauber.load` takes them; `how` goes to it for names."""
        return cls(dict(named_loader(model, **how) for model in models))

    @property
    def names(self) -> list[str]:
        """The names that a page may use."""
        return list(self._loaders)

    def check(self, name: object) -> str:
        """The name itself; refused if it is none of the list."""
        if not isinstance(name, str) or name not in self._loaders:
            listed = ", ".join(self._loaders) or "none"
            raise GlauberError(
                f"the model {name!r:.80} is not open here ({listed}): start with --model to use "
                "another one."
            )
        return name

    def __getitem__(self, name: str) -> Model:
        """The model of that name, opened now if it was not before."""
        self.check(name)
        with self.lock:
            if name not in self._opened:
                self._opened[name] = self._loaders[name]()
            return self._opened[name]

    def conditionals(self, name: str) -> Conditionals:
        """What a chain draws from, over the tokens that it may propose."""
        with self.lock:
            if name not in self._conditionals:
                self._conditionals[name] = self[name].conditionals()
            return self._conditionals[name]


def named_loader(model: str | Path | Conditionals, **how: Any) -> tuple[str, Loader]:
    """A model's name and what opens it; an object is a model already."""
    if isinstance(model, str | Path):
        return str(model), partial(load, str(model), **how)
    loaded = load(model)
    return loaded.name, lambda: loaded
