"""A study: one public function that answers one question, and the result that it returns.

Everything is declared. The signature of the function gives the checks of its parameters, the
command line and the line that identifies an answer. The fields of the result give its JSON object,
its table and its figures. Only `lines`, the text that a person reads, is written by hand.
"""

import dataclasses
import difflib
import functools
import inspect
import math
import re
import typing
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, ParamSpec, TypeVar

from glauber.foundation.call import Call, call_of, current_call, recording
from glauber.foundation.errors import GlauberError, GlauberWarning

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

    from glauber.models.base import Model

Params = ParamSpec("Params")
Answer = TypeVar("Answer")


class Skipped(NamedTuple):
    """A text that a study left out."""

    number: int  # among the given texts, from 1
    id: str  # that its source gives it, if any
    text: str
    reason: str  # completes "text 7 …"


@dataclasses.dataclass(frozen=True)
class _Attribute:
    """A value that `study` sets on an answer; no default that a dataclass could mistake."""

    name: str
    default: object

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            raise AttributeError(self.name)
        return vars(instance).get(self.name, self.default)


class reported(property):
    """A property that belongs to the JSON object of a result, as fields do."""


def internal(**options: Any) -> Any:
    """A field that does not: tensors, and objects that were only worked with."""
    return dataclasses.field(metadata={"internal": True}, **options)


class Result:
    """The answer of a study: a frozen dataclass that declares its JSON, its table and its figures.

    Fields and `reported` properties are the JSON object, `table` gives the rows of the frame, and
    FIGURES names the functions that draw. Only `lines`, the text for a person, is written by hand.
    """

    # name -> "module:function" that draws the result, or that with the attributes that it takes
    FIGURES: ClassVar[Mapping[str, str | tuple[str, ...]]] = {}

    if TYPE_CHECKING:
        signature: str  # one line that says how the answer was made
        call: Call | None  # the call that made it
    else:
        signature = _Attribute("signature", "")
        call = _Attribute("call", None)
    skipped: tuple[Skipped, ...] = ()  # texts that were left out

    def to_dict(self) -> dict[str, Any]:
        """Everything that the answer says, as JSON can hold it."""
        entries = {name: value for name, value in entries_of(self).items() if name != "signature"}
        return plain(entries) | {"signature": self.signature}

    def record(self) -> dict[str, Any]:
        """What `--json` prints: the answer, the call that made it, and texts that were left out."""
        skipped = [text._asdict() for text in self.skipped]
        call = {"call": self.call.to_dict()} if self.call else {}
        return self.to_dict() | call | ({"skipped": skipped} if skipped else {})

    def lines(self) -> Iterable[str]:
        """What a person reads, line by line."""
        raise NotImplementedError

    def table(self) -> "Mapping[str, Any] | Iterable[Any]":
        """One row for each thing that was measured: columns by name, or one value per row.

        A row is a mapping or a dataclass; an `Estimate` in it becomes three columns, NAME, NAME_low
        and NAME_high.
        """
        raise NotImplementedError

    def frame(self) -> "pandas.DataFrame":
        """The table as a data frame."""
        import pandas

        rows = self.table()
        columns = rows if isinstance(rows, Mapping) else [columns_of(row) for row in rows]
        return pandas.DataFrame(columns)

    def figures(self) -> "dict[str, go.Figure]":
        """The pictures of the answer, the most telling one first."""
        drawn = {name: self._draw(plot) for name, plot in self.FIGURES.items()}
        return {name: figure for name, figure in drawn.items() if figure is not None}

    def _draw(self, plot: str | tuple[str, ...]) -> "go.Figure | None":
        """The figure that FIGURES declares; None where an attribute that it takes is None."""
        if isinstance(plot, str):
            return load_function(plot)(self)
        attributes = [attrgetter(name)(self) for name in plot[1:]]
        values = [value() if callable(value) else value for value in attributes]
        return None if any(value is None for value in values) else load_function(plot[0])(*values)

    def figure(self, name: str | None = None, *, backend: str = "plotly") -> Any:
        """A picture, by default the most telling one: a Plotly figure, or Matplotlib's axes.

        backend is plotly or matplotlib; axes of several panels come as an array.
        """
        figures = self.figures()
        name = next(iter(figures)) if name is None else one_of("the figure", name, figures)
        if one_of("the backend", backend, ("plotly", "matplotlib")) == "plotly":
            return figures[name]
        from glauber.interfaces.plots.matplotlib_backend import draw

        return draw(figures[name])

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 1 where the answer is that something is wrong, else 0."""
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
        from glauber.interfaces.report.page import write_result

        return write_result(self, Path(path))


def entries_of(value: object) -> dict[str, Any]:
    """What a declared object contains by name: its fields but internal ones, and `reported`."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "_asdict"):
        return value._asdict()
    names = [
        field.name
        for field in dataclasses.fields(value)  # type: ignore[arg-type]
        if not field.metadata.get("internal")
    ]
    for owner in reversed(type(value).__mro__):
        names += [name for name, member in vars(owner).items() if isinstance(member, reported)]
    return {name: getattr(value, name) for name in dict.fromkeys(names)}


def columns_of(row: object, prefix: str = "") -> dict[str, Any]:
    """The columns of a table's row: what it contains by name, flattened.

    An estimate becomes NAME, NAME_low and NAME_high; a nested row's columns begin with its name.
    """
    columns: dict[str, Any] = {}
    for name, value in entries_of(row).items():
        if hasattr(value, "interval") and hasattr(value, "value"):
            low, high = value.interval or (math.nan, math.nan)
            columns |= {
                prefix + name: value.value,
                f"{prefix}{name}_low": low,
                f"{prefix}{name}_high": high,
            }
        elif isinstance(value, Mapping) or (
            dataclasses.is_dataclass(value) and not isinstance(value, type)
        ):
            columns |= columns_of(value, f"{prefix}{name}_")
        else:
            columns[prefix + name] = value
    return columns


def load_function(target: str) -> Callable[..., Any]:
    """The function that "package.module:name" names, imported now."""
    module, name = target.split(":")
    return getattr(import_module(module), name)


ROWS = 20  # of the table that a notebook shows
_skipped: ContextVar[list[Skipped] | None] = ContextVar("skipped", default=None)


def study(function: Callable[Params, Answer]) -> Callable[Params, Answer]:
    """Makes a function a public study.

    Its arguments are checked by the checks in their annotations (`foundation.checks`), a keyword
    that it does not have is answered with the nearest one, and the answer carries the call that
    made it. Parameters that come as `**where: Unpack[Where]` are shown by name in its signature.
    """
    signature = flat_signature(function)
    room = function.__module__.split(".")[2:3]
    name = "-".join([*(room if room == ["ising"] else []), *function.__name__.split("_")])

    @functools.cache
    def checks() -> dict[str, list[Callable[[str, Any], None]]]:
        hints = typing.get_type_hints(function, include_extras=True)
        annotations = {
            name: hints.get(name, parameter.annotation)
            for name, parameter in signature.parameters.items()
        }
        return {name: list(_checks_of(hint)) for name, hint in annotations.items()}

    def may_be_none(parameter: str) -> bool:
        kind = parameter_types(function)[parameter]
        return signature.parameters[parameter].default is None or type(None) in _members(kind)

    def takes_list(parameter: str) -> bool:
        kind = parameter_types(function)[parameter]
        origins = [typing.get_origin(member) or member for member in (kind, *_members(kind))]
        return any(isinstance(origin, type) and issubclass(origin, Sequence) for origin in origins)

    @functools.wraps(function)
    def call(*args: Params.args, **kwargs: Params.kwargs) -> Answer:
        for keyword in kwargs:
            if keyword not in signature.parameters:
                near = difflib.get_close_matches(keyword, signature.parameters, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                hint = hint or f"; it has {', '.join(signature.parameters)}."
                raise TypeError(f"{function.__name__} has no parameter {keyword!r}{hint}")
        bound = signature.bind(*args, **kwargs)
        for parameter, value in bound.arguments.items():
            check_characters(parameter, value)
            label = parameter.replace("_", " ")
            if value is None and checks()[parameter] and not may_be_none(parameter):
                raise GlauberError(f"{label} is missing.")
            if isinstance(value, list) and checks()[parameter] and not takes_list(parameter):
                raise GlauberError(f"{label} is a list, but it must be a single value.")
            for check in checks()[parameter] if value is not None else ():
                check(label, value)
        skipped = _skipped.get()
        inside = _skipped.set([])
        this = call_of(name, bound)
        try:
            with recording(this) as inputs:
                answer = function(*args, **kwargs)
                own = tuple(
                    sorted(dict.fromkeys(_skipped.get() or ()), key=lambda text: text.number)
                )
                if isinstance(answer, Result):
                    declared: dict[str, object] = {"call": this} if answer.call is None else {}
                    if own:
                        declared["skipped"] = own
                    if not answer.signature:
                        declared["signature"] = this.signature(inputs)
                    for attribute, declaration in declared.items():
                        object.__setattr__(answer, attribute, declaration)  # of a frozen dataclass
            if skipped is not None:
                skipped.extend(own)
            return answer
        finally:
            _skipped.reset(inside)

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def flat_signature(function: Callable[..., Any]) -> inspect.Signature:
    """The signature with the options of `**where: Unpack[Where]` as parameters of their own.

    Their defaults stand in the annotations: Annotated[str, "auto, cpu, …", Default("auto")].
    """
    signature = inspect.signature(function)
    parameters = []
    for parameter in signature.parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            parameters.append(parameter)
            continue
        (options,) = typing.get_args(parameter.annotation)
        hints, keyword = typing.get_type_hints(options, include_extras=True), parameter.KEYWORD_ONLY
        parameters += [
            inspect.Parameter(name, keyword, default=default, annotation=hints[name])
            for name, default in defaults_of(options).items()
        ]
    return signature.replace(parameters=parameters)


def parameter_types(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of a study's parameters, also of those that come as `**where: Unpack[Where]`."""
    hints = typing.get_type_hints(function)
    types = {
        name: hints.get(name, parameter.annotation)
        for name, parameter in flat_signature(function).parameters.items()
    }
    return {
        name: typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind
        for name, kind in types.items()
    }


def _members(kind: Any) -> tuple[Any, ...]:
    """The members of a union."""
    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, UnionType) else ()


@dataclasses.dataclass(frozen=True)
class Default:
    """The default of an option in a TypedDict, where no `=` can stand."""

    value: object


def defaults_of(options: type) -> Any:
    """The defaults of a TypedDict of options, by name."""
    hints = typing.get_type_hints(options, include_extras=True)
    return {
        name: note.value
        for name, hint in hints.items()
        for note in hint.__metadata__
        if isinstance(note, Default)
    }


def _checks_of(hint: Any) -> Iterable[Callable[[str, Any], None]]:
    """The checks in an annotation, also in the members of a union."""
    yield from (note for note in getattr(hint, "__metadata__", ()) if callable(note))
    if typing.get_origin(hint) is Annotated:
        yield from _checks_of(typing.get_args(hint)[0])


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


def signature(**entries: Any) -> str:
    """One line that says how a result was made: the study, the given parts, then the versions."""
    from importlib.metadata import version

    from glauber import __version__

    versions = {"glauber": __version__, "torch": version("torch")}
    return _join_entries({"study": _study()} | entries | versions)


def _study() -> str | None:
    call = current_call()
    return None if call is None else call.study


def _join_entries(entries: dict[str, Any]) -> str:
    texts = {name: value for name, value in entries.items() if value is not None}
    return "|".join(f"{name}:{_short(value)}" for name, value in texts.items())


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
        return ",".join(_short(item) for item in value)
    return str(value)


def plain(value: Any) -> Any:
    """The same value as JSON can hold it: lists, dicts, numbers; None for what is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "_asdict") or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    ):
        return plain(entries_of(value))
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy and torch, scalars too
        return plain(value.tolist())
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def visible(text: str) -> str:
    """The text with control characters made visible, so that none reaches a terminal.

    Line breaks and tabs stay; other separators of lines and paragraphs (U+2028, U+0085) do not.
    """
    return "".join(
        character if character in "\n\t" or _is_shown(character) else ascii(character)[1:-1]
        for character in text
    )


def one_line(text: str) -> str:
    """The text as one line of a terminal, whatever a token contains."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def shorten(text: str) -> str:
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
