"""How does a study become a command? Its signature says everything.

What is positional in Python is an argument here, except the model, which is `--model`; the rest
are options of the same names with the same defaults. `texts` are arguments or the lines of
`--from FILE`. A parameter whose type has no spelling on a command line is left to Python. What a
terminal needs is added: `--json`, `--yes`, and `--out` where the study has none of its own.
"""

import inspect
import json
import sys
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from glauber import progress
from glauber.cli import INTERRUPTED
from glauber.errors import GlauberError
from glauber.result import Result, check_characters, one_line, one_of

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
OUT = "Write the answer: .html (a page), .png, .json, .csv, or a new folder with all of it."
JSON = "Print one JSON object and nothing else."
SINGULAR = {"models": "--model", "prefixes": "--prefix"}  # options that are given several times
YES = "Do it even if it takes days."


class Spelling(typing.NamedTuple):
    """One parameter of a study on the command line."""

    annotation: Any  # for typer
    default: Any
    read: Callable[[Any], Any]  # from typer's value to the study's argument

    def parameter(self, name: str) -> inspect.Parameter:
        """The parameter that typer reads."""
        return inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=self.default,
            annotation=self.annotation,
        )


# Entered while the study works; it gets the arguments and gives those that it adds or replaces.
Around = Callable[[dict[str, Any]], AbstractContextManager[dict[str, Any]]]


def command(study: Callable[..., Any], *, around: Around | None = None) -> Callable[..., None]:
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
        arguments = {name: spelled[name].read(value) for name, value in values.items()}
        if reading:
            arguments["texts"] = _texts(arguments["texts"], **source)
        if out is not None:
            from glauber.figures.page import check_place

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
    parameters = [spelling.parameter(name) for name, spelling in options.items()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = study.__name__, _reflowed(inspect.getdoc(study) or "")
    return run


def show(answer: Any, *, silent: bool, out: Path | None = None) -> None:
    """Prints an answer as JSON or for a person, and writes it to a file or folder."""
    assert isinstance(answer, Result)
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


def spellings(study: Callable[..., Any]) -> dict[str, Spelling]:
    """The parameters of a study that have a spelling on the command line."""
    hints = typing.get_type_hints(study, include_extras=True)
    spelled = {}
    for name, parameter in inspect.signature(study).parameters.items():
        spelling = _spelling(name, parameter, hints.get(name, parameter.annotation))
        if spelling is not None:
            spelled[name] = spelling
    return spelled


def _spelling(name: str, parameter: inspect.Parameter, hint: Any) -> Spelling | None:
    kind, help_text = hint, ""
    if typing.get_origin(hint) is Annotated:
        kind, *notes = typing.get_args(hint)
        help_text = next((note for note in notes if isinstance(note, str)), "")
    default = ... if parameter.default is parameter.empty else parameter.default
    annotation: Any
    if name == "texts":
        annotation = Annotated[list[str] | None, typer.Argument(help=help_text)]
        return Spelling(annotation, [default] if isinstance(default, str) else default, _same)
    shape = _shape(kind)
    if shape is None:
        return None
    annotation, write, read = shape
    if default is None:
        annotation = annotation | None
    option: Any
    if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and name not in ("model", "models"):
        option = typer.Argument(help=help_text, metavar=name.upper().replace("_", "-"))
    else:
        flag = SINGULAR.get(name) or "--" + name.replace("_", "-")
        # A switch that is on can be switched off.
        flags = f"{flag}/--no-{flag[2:]}" if annotation is bool and default else flag
        option = typer.Option(flags, help=help_text)
    return Spelling(
        Annotated[annotation, option],
        default if default in (None, ...) else write(default),
        lambda value: None if value is None else read(value),
    )


Shape = tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]


def _shape(kind: Any) -> Shape | None:
    """The type for typer, a function that writes a default for it, one that reads its value."""
    options = _options(kind)
    if bool in options:
        return bool, _same, _same
    if str in options or any(typing.get_origin(kind) is typing.Literal for kind in options):
        if any(_element(kind) in (int, float, str) for kind in options):
            return str, _comma, _same  # the study itself reads such lists
        return str, str, _same
    if Path in options:
        return Path, _same, _same
    for option in options:
        element = _element(option)
        if element is not None and str in _options(element):
            return list[str], list, list
        if element in (int, float):
            several = not any(single in options for single in (int, float))
            return str, _comma, partial(_numbers, element=element, several=several)
    for number in (float, int):
        if number in options:
            return number, _same, _same
    return None


def _options(kind: Any) -> tuple[Any, ...]:
    """The members of a union, without None."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        members: list[Any] = []
        for member in typing.get_args(kind):
            members.extend(_options(member))
        return tuple(member for member in members if member is not type(None))
    if typing.get_origin(kind) is Annotated:
        return _options(typing.get_args(kind)[0])
    return (kind,)


def _element(kind: Any) -> Any:
    """The type of the items of a sequence type, None for another type."""
    origin = typing.get_origin(kind)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return typing.get_args(kind)[0]
    return None


def _same(value: Any) -> Any:
    return value


def _comma(values: Any) -> str:
    if isinstance(values, str | int | float):
        return str(values)
    return ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)


def _numbers(text: str, element: type, *, several: bool) -> Any:
    try:
        values = [element(part) for part in str(text).split(",") if part.strip()]
    except ValueError:
        kind = "whole numbers" if element is int else "numbers"
        raise GlauberError(f"{text!r} is not a list of {kind} such as 1,2,4.") from None
    if not values:
        raise GlauberError("a list of numbers is empty.")
    return values[0] if len(values) == 1 and not several else values


def _option(kind: Any, default: Any, help_text: str, flag: str = "--out") -> Spelling:
    return Spelling(Annotated[kind, typer.Option(flag, help=help_text)], default, _same)


READING = {  # how texts are read
    "source": _option(Path | None, None, FROM, "--from"),
    "column": _option(str | None, None, COLUMN, "--column"),
    "id_column": _option(str | None, None, ID_COLUMN, "--id-column"),
    "unknown": _option(str, "skip", UNKNOWN, "--unknown"),
}


def _texts(texts: list[str] | None, *, source: Path | None, unknown: str, **columns: Any) -> Any:
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
    with ExitStack() as stack:
        if silent:
            stack.enter_context(progress.quiet())
        if yes:
            stack.enter_context(progress.allow_long())
        try:
            yield
        except KeyboardInterrupt as error:  # typer would end without a word
            print(f"glauber: {one_line(str(error) or 'stopped.')}", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from error


def _reflowed(text: str) -> str:
    """A docstring as help: each paragraph on one line, which the terminal breaks as it needs."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
