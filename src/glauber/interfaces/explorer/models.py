"""The models that a page may use, and a lock that is handed on in the order of asking.

A fixed list of names, each loaded when it is first needed. All who use a model take their turn: a
click waits for one short piece of work, not for a whole film.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from glauber.foundation.errors import GlauberError
from glauber.models.base import Conditionals, Model
from glauber.models.load import load

Loader = Callable[[], Model]


class Turns:
    """A lock that goes to whoever waits longest; the thread that has it may take it again."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._line: deque[int] = deque()  # threads; the first one has the lock
        self._depth = 0

    @property
    def waited_for(self) -> bool:
        """Whether another thread waits."""
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
    """Models by name, loaded once each; whoever uses one takes the `lock`."""

    def __init__(self, loaders: Mapping[str, Loader]) -> None:
        self.lock = Turns()
        self._loaders = dict(loaders)
        self._models: dict[str, Model] = {}
        self._conditionals: dict[str, Conditionals] = {}

    @classmethod
    def of(cls, *models: str | Path | Conditionals, **options: str | bool) -> "Models":
        """Of names and objects, as `glauber.load` takes them; the options are for names."""
        return cls(dict(named_loader(model, **options) for model in models))

    @property
    def names(self) -> list[str]:
        """The names that a page may use."""
        return list(self._loaders)

    def check(self, name: object) -> str:
        """The name itself; refused if it is not in the list."""
        if not isinstance(name, str) or name not in self._loaders:
            names = ", ".join(self._loaders) or "none"
            raise GlauberError(
                f"the model {name!r:.80} is not open here ({names}): start with --model to use "
                "another one."
            )
        return name

    def __getitem__(self, name: str) -> Model:
        """The model of that name, loaded now if it was not before."""
        self.check(name)
        with self.lock:
            if name not in self._models:
                self._models[name] = self._loaders[name]()
            return self._models[name]

    def conditionals(self, name: str) -> Conditionals:
        """What a chain draws from, over the tokens that it may propose."""
        with self.lock:
            if name not in self._conditionals:
                self._conditionals[name] = self[name].conditionals()
            return self._conditionals[name]


def named_loader(model: str | Path | Conditionals, **options: str | bool) -> tuple[str, Loader]:
    """A model's name and a function that loads it; an object is a model already."""
    if isinstance(model, str | Path):
        return str(model), partial(load, str(model), **options)  # type: ignore[arg-type]
    loaded = load(model)
    return loaded.name, lambda: loaded
