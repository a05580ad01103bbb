"""What can every result do? Print, tabulate, draw and serialise itself.

A study is one public function; it returns a frozen dataclass that inherits from `Result` and
says four things: `to_dict`, `lines`, `frame` and `figures`. Everything else follows from them.
"""

import dataclasses
import difflib
import functools
import inspect
import math
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from glauber.errors import GlauberError, GlauberWarning

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

    from glauber.conditionals.base import Model

Params = ParamSpec("Params")
Answer = TypeVar("Answer")


class Skipped(NamedTuple):
    """A text that a study left out."""

    number: int  # among the given texts, from 1
    id: str  # that its source gives it, if any
    text: str
    reason: str  # completes "text 7 …"


class Result:
    """The answer of a study."""

    signature: str  # one line that says how the answer was made
    skipped: tuple[Skipped, ...] = ()  # texts that were left out

    def to_dict(self) -> dict[str, Any]:
        """Everything that the answer says, as JSON can hold it."""
        raise NotImplementedError

    def record(self) -> dict[str, Any]:
        """What `--json` prints: the answer and the texts that were left out, if any."""
        skipped = [text._asdict() for text in self.skipped]
        return self.to_dict() | ({"skipped": skipped} if skipped else {})

    def lines(self) -> Iterable[str]:
        """What a person reads, line by line."""
        raise NotImplementedError

    def frame(self) -> "pandas.DataFrame":
        """One row for each thing that was measured: pair, trap, rectangle, …"""
        raise NotImplementedError

    def figures(self) -> "dict[str, go.Figure]":
        """The pictures of the answer, the most telling one first."""
        raise NotImplementedError

    def figure(self, name: str | None = None, *, backend: str = "plotly") -> Any:
        """A picture, by default the most telling one: a Plotly figure, or Matplotlib's axes.

        backend is plotly or matplotlib; axes of several panels come as an array.
        """
        figures = self.figures()
        name = next(iter(figures)) if name is None else one_of("the figure", name, figures)
        if one_of("the backend", backend, ("plotly", "matplotlib")) == "plotly":
            return figures[name]
        from glauber.figures.matplotlib_backend import draw

        return draw(figures[name])

    @property
    def exit_code(self) -> int:
        """What the command ends with: 1 where the answer is that something is wrong, else 0."""
        return 0

    def __str__(self) -> str:
        return "\n".join(one_line(line) for line in (*self.lines(), self.signature))

    def _repr_html_(self) -> str:
        """What a notebook shows: the lines, the table and how it was made."""
        from html import escape

        printed = escape("\n".join(map(one_line, self.lines())))
        table = self.frame().head(ROWS).to_html(border=0, index=False, float_format="{:.4g}".format)
        return f"<pre>{printed}</pre>{table}<p><small>{escape(self.signature)}</small></p>"

    def write(self, path: str | Path) -> Path:
        """Writes the answer to the kind of file that the name asks for, or to a new folder.

        A page (.html), pictures for a paper (.pdf, .svg, .png, .pgf), the table (.csv, .tex,
        .jsonl, .parquet), or everything (.json); a folder gets all of it.
        """
        from glauber.figures.page import write_result

        return write_result(self, Path(path))


ROWS = 20  # of the table that a notebook shows
_asking: ContextVar[str | None] = ContextVar("asking", default=None)  # the study at work
_skipped: ContextVar[list[Skipped] | None] = ContextVar("skipped", default=None)


def study(function: Callable[Params, Answer]) -> Callable[Params, Answer]:
    """Marks a public study; a keyword that it does not have is answered with the nearest one.

    What it signs says its name, as a command spells it.
    """
    known = list(inspect.signature(function).parameters)
    room = function.__module__.split(".")[1:2]
    said = "-".join([*(room if room == ["ising"] else []), *function.__name__.split("_")])

    @functools.wraps(function)
    def asked(*args: Params.args, **kwargs: Params.kwargs) -> Answer:
        for name in kwargs:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(known)}."
                raise TypeError(f"{function.__name__} has no parameter {name!r}{hint}")
        for name, value in (*zip(known, args, strict=False), *kwargs.items()):
            check_characters(name, value)
        before, skipped = _asking.set(said), _skipped.get()
        inside = _skipped.set([])
        try:
            answer = function(*args, **kwargs)
            own = tuple(sorted(dict.fromkeys(_skipped.get() or ()), key=lambda text: text.number))
            if isinstance(answer, Result) and own:
                object.__setattr__(answer, "skipped", own)  # of a frozen dataclass
            if skipped is not None:
                skipped.extend(own)
            return answer
        finally:
            _asking.reset(before)
            _skipped.reset(inside)

    return asked


def report_skipped(skipped: Sequence[Skipped], total: int) -> None:
    """Says which of so many texts are left out and why; an error if that is all of them."""
    if not skipped:
        return
    first = skipped[0]
    name = f"the record {first.id!r:.60}" if first.id else f"text {first.number}"
    if len(skipped) >= total:
        alone = f"{name} {first.reason}."
        raise GlauberError(alone if total == 1 else f"none of {total:,} texts can be used: {alone}")
    record_skipped(skipped)
    numbers = ", ".join(f"{text.number}" for text in skipped[:10])
    more = f" and {len(skipped) - 10:,} more" if len(skipped) > 10 else ""
    counts = "is left out (number" if len(skipped) == 1 else "are left out (numbers"
    warnings.warn(
        f"{len(skipped):,} of {total:,} texts {counts} {numbers}{more}): "
        f"{visible(name)} {visible(first.reason)}.",
        GlauberWarning,
        stacklevel=4,
    )


def record_skipped(skipped: Sequence[Skipped]) -> None:
    """Lists texts that are left out in the answer of the study at work."""
    inside = _skipped.get()
    if inside is not None:
        inside.extend(skipped)


def check_characters(name: str, value: object) -> None:
    """Refuses texts with half a character in them, as bytes that are not UTF-8 leave it."""
    for text in value if isinstance(value, list | tuple) else (value,):
        if not isinstance(text, str) or text.isascii():
            continue
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise GlauberError(
                f"{name} is not valid text: character {error.start + 1} of {ascii(text)[:60]} is "
                "no character (bytes that are not UTF-8?)."
            ) from error


def signature(**parts: Any) -> str:
    """One line that says how a result was made: the study, the given parts, then the versions."""
    from importlib.metadata import version

    from glauber import __version__

    versions = {"glauber": __version__, "torch": version("torch")}
    return _joined({"study": _asking.get()} | parts | versions)


def signed(run: str, **asked: Any) -> str:
    """The signature of what a study says of a run: the run's own, the study, what it was asked."""
    return f"{run}|{_joined({'study': _asking.get()} | asked)}"


def _joined(parts: dict[str, Any]) -> str:
    said = {name: value for name, value in parts.items() if value is not None}
    return "|".join(f"{name}:{_short(value)}" for name, value in said.items())


def model_parts(model: "Model") -> dict[str, str]:
    """What a signature says of a model: name, weights, device and dtype."""
    return {
        "model": model.name,
        "weights": model.fingerprint[:12] or "unknown",
        "device": f"{model.device.type}/{model.dtype}",
    }


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ",".join(_short(one) for one in value)
    return str(value)


def plain(value: Any) -> Any:
    """The same value as JSON can hold it: lists, dicts, numbers; None for what is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy and torch, scalars too
        return plain(value.tolist())
    if isinstance(value, Iterable):
        return [plain(one) for one in value]
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def visible(text: str) -> str:
    """The text with control characters made visible, so that none reaches a terminal.

    Line breaks and tabs stay; other separators of lines and paragraphs (U+2028, U+0085) do not.
    """
    return "".join(one if one in "\n\t" or _is_shown(one) else ascii(one)[1:-1] for one in text)


def one_line(text: str) -> str:
    """The text as one line of a terminal, whatever a token contains."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def shortened(text: str) -> str:
    """The text with words that no screen has room for cut in the middle."""
    return LONG_WORD.sub(lambda word: f"{word[0][:CUT]}…{word[0][-CUT:]}", text)


CUT = 60  # characters that stay at either end of such a word
LONG_WORD = re.compile(r"\S{400,}")


def _is_shown(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"  # kinds of blanks


def needed(name: str, value: str | None) -> str:
    """The value that a study cannot do without."""
    if value is None:
        raise GlauberError(f"a {name} is needed: give one, in quotes on the command line.")
    return value


def counted(number: int, noun: str) -> str:
    """A number with its noun, such as 1 chain or 1,024 chains."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def one_of(name: str, value: str, known: Iterable[str]) -> str:
    """The value, if it is a known one; else the error names the nearest."""
    names = list(known)
    if value in names:
        return value
    near = difflib.get_close_matches(str(value), names, n=1)
    hint = f"; did you mean {near[0]}?" if near else "."
    raise GlauberError(f"{name} is {value}, but it must be one of {', '.join(names)}{hint}")
