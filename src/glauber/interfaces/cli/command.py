"""A study as a command: its signature says everything.

What is positional in Python is an argument here, except the model, which is `--model`; the rest
are options of the same names with the same defaults. `texts` are arguments or the lines of
`--from FILE`. A parameter whose type has no form on a command line is left to Python. What a
terminal needs is added: `--json`, `--yes`, and `--out` where the study has none of its own.
"""

import inspect
import json
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from glauber.foundation import progress
from glauber.foundation.errors import GlauberError
from glauber.foundation.study import Result, check_characters, one_line, one_of
from glauber.interfaces.cli import INTERRUPTED

FROM = (
    "File of texts: plain text (one per line), CSV, TSV, JSON lines, Parquet or FASTA, also "
    "compressed by gzip or xz; - for standard input."
)
COLUMN = "Column of the file that contains the texts."
ID_COLUMN = "Column of the file that identifies the texts."
UNKNOWN = (
    "Texts with characters outside the vocabulary: skip (leave them out and report them), error, "
    "or token (read them as the unknown token)."
)
OUT = (
    "Write the answer: .html (a page), .pdf, .svg, .png, .pgf, .csv, .tex, .jsonl, .parquet, "
    ".json, or a new folder."
)
JSON = "Print one JSON object and nothing else."
YES = "Run even if the estimated time exceeds 48 hours."
SINGULAR = {"models": "--model", "prefixes": "--prefix"}  # options that are given several times

Hint = Any  # a type or an annotation
Values = dict[str, Any]  # arguments of a study, or what typer read, by parameter


def _same(value: Any) -> Any:
    return value


class Form(NamedTuple):
    """How values of a type are written on a command line."""

    hint: Hint  # for typer
    write: Callable[[Any], object] = _same  # a default of the study for typer
    read: Callable[[Any], object] = _same  # typer's value for the study


class OptionSpelling(NamedTuple):
    """One parameter of a study on the command line."""

    annotation: Hint  # for typer
    default: object
    read: Callable[[Any], object] = _same  # from typer's value to the study's argument

    def parameter(self, name: str) -> inspect.Parameter:
        """The parameter that typer reads."""
        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(name, kind, default=self.default, annotation=self.annotation)


# Entered while the study works; it gets the arguments and returns those that it adds or replaces.
Around = Callable[[Values], AbstractContextManager[Values]]


def command(study: Callable[..., Result], *, around: Around | None = None) -> Callable[..., None]:
    """A function with the signature that typer reads, which calls the study."""
    spelled = spellings(study)
    reading = READING if "texts" in spelled else {}
    own_out = "out" in inspect.signature(study).parameters

    def run(**values: Any) -> None:
        silent, yes = values.pop("json"), values.pop("yes")
        out = None if own_out else values.pop("out")
        source = {name: values.pop(name) for name in reading}
        for name, value in values.items():
            check_characters(name, value)
        arguments: Values = {name: spelled[name].read(value) for name, value in values.items()}
        if reading:
            arguments["texts"] = _texts(arguments["texts"], **source)
        if out is not None:
            from glauber.interfaces.report.page import check_place

            check_place(out)
        with _terminal(silent=silent, yes=yes):
            with nullcontext({}) if around is None else around(arguments) as more:
                answer = study(**(arguments | more))
            show(answer, silent=silent, out=out)
        session = more.get("session")
        if session is not None and session.stopping:
            raise typer.Exit(INTERRUPTED)
        if answer.exit_code:
            raise typer.Exit(answer.exit_code)

    options = spelled | reading | ({} if own_out else {"out": _option(Path | None, None, OUT)})
    options |= {"yes": _option(bool, False, YES, "--yes")}
    options |= {"json": _option(bool, False, JSON, "--json")}
    doc = inspect.getdoc(study) or ""
    # Each paragraph is one line, which the terminal breaks as it needs.
    return disguise(run, study.__name__, "\n\n".join(_one_line(doc)), options)


def disguise(
    function: Callable[..., None], name: str, doc: str, options: Mapping[str, OptionSpelling]
) -> Callable[..., None]:
    """The function with the name, the help and the parameters that typer reads."""
    parameters = [spelling.parameter(name) for name, spelling in options.items()]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__name__, function.__doc__ = name, doc
    return function


def _one_line(text: str) -> Iterator[str]:
    return (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def show(answer: Result, *, silent: bool, out: Path | None = None) -> None:
    """Prints an answer as JSON or for a person, and writes it to a file or folder."""
    if out is not None:
        answer.write(out)
    if silent:
        text = json.dumps(answer.record(), ensure_ascii=False, allow_nan=False)
        # Characters that a terminal might obey are spelled out.
        safe = (char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
        print("".join(safe), flush=True)
        return
    print(str(answer), flush=True)
    if out is not None:
        progress.say(f"written to {out}")


def spellings(study: Callable[..., object]) -> dict[str, OptionSpelling]:
    """The parameters of a study that have a form on the command line."""
    hints = typing.get_type_hints(study, include_extras=True)
    parameters = inspect.signature(study).parameters.values()
    spelled = {
        parameter.name: _spelling(parameter, hints.get(parameter.name, parameter.annotation))
        for parameter in parameters
    }
    return {name: spelling for name, spelling in spelled.items() if spelling is not None}


def _spelling(parameter: inspect.Parameter, hint: Hint) -> OptionSpelling | None:
    name, kind, help_text = parameter.name, hint, ""
    if _origin(hint) is Annotated:
        kind, *notes = typing.get_args(hint)
        help_text = next((note for note in notes if isinstance(note, str)), "")
    default = ... if parameter.default is parameter.empty else parameter.default
    if name == "texts":
        annotation = Annotated[list[str] | None, typer.Argument(help=help_text)]
        return OptionSpelling(annotation, [default] if isinstance(default, str) else default)
    form = _form(kind)
    if form is None:
        return None
    option: object
    if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and name not in ("model", "models"):
        option = typer.Argument(help=help_text, metavar=name.upper().replace("_", "-"))
    else:
        flag = SINGULAR.get(name) or "--" + name.replace("_", "-")
        # A switch that is on, or whose default depends on others, can be switched off.
        off = form.hint is bool and default is not False
        flags = f"{flag}/--no-{flag[2:]}" if off else flag
        option = typer.Option(flags, help=help_text)
    return OptionSpelling(
        Annotated[form.hint | None if default is None else form.hint, option],
        default if default in (None, ...) else form.write(default),
        lambda value: None if value is None else form.read(value),
    )


def _form(kind: Hint) -> Form | None:
    """The form of values of a type."""
    members = _members(kind)
    elements = [_element(member) for member in members]
    if bool in members:
        return Form(bool)
    if str in members or any(_origin(member) is typing.Literal for member in members):
        # The study itself reads lists.
        return Form(str, _join if {int, float, str}.intersection(elements) else str)
    if Path in members:
        return Form(Path)
    for element in elements:
        if str in _members(element):
            return Form(list[str], list, list)
        if element in (int, float):
            several = not {int, float}.intersection(members)
            return Form(str, _join, partial(_numbers, element=element, several=several))
    return next((Form(number) for number in (float, int) if number in members), None)


def _origin(hint: Hint) -> Hint:
    return typing.get_origin(hint)


def _members(kind: Hint) -> tuple[Hint, ...]:
    """The members of a union, without None."""
    if _origin(kind) in (typing.Union, types.UnionType):
        members = [member for option in typing.get_args(kind) for member in _members(option)]
        return tuple(member for member in members if member is not type(None))
    if _origin(kind) is Annotated:
        return _members(typing.get_args(kind)[0])
    return (kind,)


def _element(kind: Hint) -> Hint:
    """The type of the items of a sequence type, None for another type."""
    origin = _origin(kind)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return typing.get_args(kind)[0]
    return None


def _join(values: Any) -> str:
    if isinstance(values, str | int | float):
        return str(values)
    return ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)


def _numbers(text: str, element: type, *, several: bool) -> object:
    try:
        values = [element(number) for number in str(text).split(",") if number.strip()]
    except ValueError:
        kind = "whole numbers" if element is int else "numbers"
        raise GlauberError(f"{text!r} is not a list of {kind} such as 1,2,4.") from None
    if not values:
        raise GlauberError("a list of numbers is empty.")
    return values[0] if len(values) == 1 and not several else values


def _option(hint: Hint, default: object, help_text: str, flag: str = "--out") -> OptionSpelling:
    return OptionSpelling(Annotated[hint, typer.Option(flag, help=help_text)], default)


READING = {  # how texts are read
    "source": _option(Path | None, None, FROM, "--from"),
    "column": _option(str | None, None, COLUMN, "--column"),
    "id_column": _option(str | None, None, ID_COLUMN, "--id-column"),
    "unknown": _option(str, "skip", UNKNOWN, "--unknown"),
}


def _texts(
    texts: list[str] | None, *, source: Path | None, unknown: str, **columns: str | None
) -> object:
    """A `Corpus`, or None where the study has texts of its own."""
    import glauber

    if texts and source is not None:
        raise GlauberError("give texts or a file of texts, not both.")
    if not texts and source is None and set(columns.values()) == {None}:
        one_of("unknown", unknown, ("skip", "error", "token"))
        return None
    return glauber.read_texts(source or texts or None, unknown=unknown, **columns)


@contextmanager
def _terminal(*, silent: bool, yes: bool) -> Iterator[None]:
    """Progress for a person, silence for a program; Ctrl-C ends the command in one line."""
    quiet = progress.quiet() if silent else nullcontext()
    long = progress.allow_long() if yes else nullcontext()
    with quiet, long:
        try:
            yield
        except KeyboardInterrupt as error:  # typer would end without a word
            print(f"glauber: {one_line(str(error) or 'stopped.')}", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from error
