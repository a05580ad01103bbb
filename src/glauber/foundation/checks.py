"""Checks of parameters: they stand in the annotation, next to the help.

    count: Annotated[int, "Number of rectangles.", Whole(1, 10**8)] = 300

`study` calls every check with the name and the value of its parameter, unless that is None. A value
that is a list or a tuple is checked item by item. A check is any function that takes a name and a
value and raises a `GlauberError`.
"""

import difflib
import math
import typing
from collections.abc import Iterable
from dataclasses import dataclass

from glauber.foundation.errors import GlauberError


def items_of(name: str, value: object) -> Iterable[object]:
    """The items of a list, or the value itself; an empty list is refused."""
    if not isinstance(value, list | tuple):
        return (value,)
    if not value:
        raise GlauberError(f"{name} is empty, but it needs at least one number.")
    return value


@dataclass(frozen=True)
class Whole:
    """A whole number from low to high, both included."""

    low: int = 1
    high: int = 10**9

    def __call__(self, name: str, value: object) -> None:
        for number in items_of(name, value):
            if isinstance(number, bool) or not isinstance(number, int):
                raise GlauberError(f"{name} is {number!r:.60}, but it must be a whole number.")
            if number < self.low:
                raise GlauberError(f"{name} is {number}, but it must be at least {self.low}.")
            if number > self.high:
                raise GlauberError(
                    f"{name} is {number:,}, but more than {self.high:,} is not possible."
                )


@dataclass(frozen=True)
class Real:
    """A finite number from low to high; low itself is excluded where `above` says so."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False

    def __call__(self, name: str, value: object) -> None:
        for number in items_of(name, value):
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise GlauberError(f"{name} is {number!r:.60}, but it must be a number.")
            below = number <= self.low if self.above else number < self.low
            if below or number > self.high or not math.isfinite(number):
                raise GlauberError(f"{name} is {number:g}, but it must be {self._range()}.")

    def _range(self) -> str:
        low = f"{'above' if self.above else 'at least'} {self.low:g}"
        if self.low == -math.inf:
            return "a finite number" if self.high == math.inf else f"at most {self.high:g}"
        return f"{low} and finite" if self.high == math.inf else f"{low} and at most {self.high:g}"


Share = Real(0.0, 1.0)
Positive = Real(0.0, above=True)


@dataclass(frozen=True)
class OneOf:
    """One of these names."""

    names: tuple[str, ...]

    def __call__(self, name: str, value: object) -> None:
        if value not in self.names:
            near = difflib.get_close_matches(str(value), self.names, n=1)
            hint = f"; did you mean {near[0]}?" if near else "."
            raise GlauberError(
                f"{name} is {value!r:.60}, but it must be one of {', '.join(self.names)}{hint}"
            )


def check_seed(name: str, value: object) -> None:
    """Refuses seeds that the counter-based generator cannot hold."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise GlauberError(f"{name} is {value}, but it must be between 0 and 2^63 - 1.")


def check_fields(options: object) -> None:
    """Checks the fields of a dataclass by their annotations, as `study` checks its parameters."""
    for name, hint in typing.get_type_hints(type(options), include_extras=True).items():
        value = getattr(options, name)
        for check in getattr(hint, "__metadata__", ()) if value is not None else ():
            if callable(check):
                check(name.replace("_", " "), value)
