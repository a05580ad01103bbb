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
from glauber.result import Result, one_line, one_of, visible

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
    """How one parameter of a study stands on the command line."""

    annotation: Any  # for typer
    default: Any
    read: Callable[[Any], Any]  # from what typer gives to what the study takes


Around = Callable[[dict[str, Any]], AbstractContextManager[dict[str, Any]]]


def command(study: Callable[..., Any], *, around: Around | None = None) -> Callable[..., None]:
    """A function with the signature that typer reads, which asks the study.

    around is entered while the study works; it gets what was asked and gives what to add to it.
    """
    spelled = spellings(study)
    added = reading_options(spelled)
    own_out = "out" in inspect.signature(study).parameters

    def run(**given: Any) -> None:
        silent, yes = given.pop("json"), given.pop("yes")
        place = None if own_out else given.pop("out")
        reading = {name: given.pop(name) for name in READING if name in added}
        _check_utf8(given)
        asked = {name: spelled[name].read(value) for name, value in given.items()}
        if "texts" in asked:
            asked["texts"] = _texts(asked["texts"], **reading)
        if place is not None:
            from glauber.figures.page import check_place

            check_place(place)
        with _interruptible(), _terminal(silent=silent, yes=yes):
            with nullcontext({}) if around is None else around(asked) as more:
                answer = study(**(asked | more))
            show(answer, silent=silent, place=place)
        session = more.get("session")
        if session is not None and session.stopping:
            raise typer.Exit(INTERRUPTED)
        if answer.exit_code:
            raise typer.Exit(answer.exit_code)

    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=s.default, annotation=s[0])
        for name, s in spelled.items()
    ]
    parameters += added.values()
    if not own_out:
        parameters.append(_option("out", Path | None, None, "--out", OUT))
    parameters += [
        _option("yes", bool, False, "--yes", YES),
        _option("json", bool, False, "--json", JSON),
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = study.__name__, _reflowed(inspect.getdoc(study) or "")
    return run


def show(answer: Any, *, silent: bool, place: Path | None = None) -> None:
    """Prints an answer as JSON or for a person, and writes it if a place is given."""
    assert isinstance(answer, Result)
    if place is not None:
        answer.write(place)
    if silent:
        told = json.dumps(answer.record(), ensure_ascii=False, allow_nan=False)
        print("".join(map(_in_json, told)), flush=True)
        return
    print(str(answer), flush=True)
    if place is not None:
        progress.say(f"written to {place}")


def _in_json(one: str) -> str:
    """A character of JSON, spelled out if a terminal might obey it."""
    return one if one.isprintable() else json.dumps(one)[1:-1]


def spellings(study: Callable[..., Any]) -> dict[str, Spelling]:
    """How each parameter stands on the command line; those left to Python are not there."""
    hints = typing.get_type_hints(study, include_extras=True)
    found = {}
    for name, parameter in inspect.signature(study).parameters.items():
        spelling = _spelling(name, parameter, hints.get(name, Any))
        if spelling is not None:
            found[name] = spelling
    return found


def _spelling(name: str, parameter: inspect.Parameter, hint: Any) -> Spelling | None:
    kind, help_text = hint, ""
    if typing.get_origin(hint) is Annotated:
        kind, *notes = typing.get_args(hint)
        help_text = next((note for note in notes if isinstance(note, str)), "")
    default = ... if parameter.default is parameter.empty else parameter.default
    positional = parameter.kind is parameter.POSITIONAL_OR_KEYWORD and name not in (
        "model",
        "models",
    )
    if name == "texts":
        listed = [default] if isinstance(default, str) else default
        return Spelling(
            Annotated[list[str] | None, typer.Argument(help=help_text)], listed, lambda v: v
        )
    shape = _shape(kind)
    if shape is None:
        return None
    annotation, write, read = shape
    optional = default is None
    if optional:
        annotation = annotation | None
    if positional:
        option: Any = typer.Argument(help=help_text, metavar=name.upper().replace("_", "-"))
    else:
        flag = SINGULAR.get(name) or "--" + name.replace("_", "-")
        # A switch that is on can be switched off.
        flags = (f"{flag}/--no-{flag[2:]}",) if annotation is bool and default else (flag,)
        option = typer.Option(*flags, help=help_text)
    shown = default if default in (None, ...) else write(default)
    return Spelling(
        Annotated[annotation, option],
        shown,
        lambda value: None if value is None else read(value),
    )


Shape = tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]


def _shape(kind: Any) -> Shape | None:
    """The type for typer, a default as typer writes it, and its answer as Python takes it."""
    options = _options(kind)
    if bool in options:
        return bool, _same, _same
    if str in options or any(typing.get_origin(one) is typing.Literal for one in options):
        if any(_element(one) in (int, float, str) for one in options):
            return str, _comma, _same  # the study itself reads such lists
        return str, str, _same
    if Path in options:
        return Path, _same, _same
    for one in options:
        element = _element(one)
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
        for one in typing.get_args(kind):
            members.extend(_options(one))
        return tuple(one for one in members if one is not type(None))
    if typing.get_origin(kind) is Annotated:
        return _options(typing.get_args(kind)[0])
    return (kind,)


def _element(kind: Any) -> Any:
    """What a sequence type holds, None for another type."""
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
        found = [element(part) for part in str(text).split(",") if part.strip()]
    except ValueError:
        kind = "whole numbers" if element is int else "numbers"
        raise GlauberError(f"{text!r} is not a list of {kind} such as 1,2,4.") from None
    if not found:
        raise GlauberError("a list of numbers is empty.")
    return found[0] if len(found) == 1 and not several else found


def _option(name: str, kind: Any, default: Any, flag: str, text: str) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, typer.Option(flag, help=text)],
    )


READING = ("source", "column", "id_column", "unknown")  # how texts are read


def reading_options(spelled: dict[str, Spelling]) -> dict[str, inspect.Parameter]:
    """The options of a study that takes texts."""
    if "texts" not in spelled:
        return {}
    options = (
        _option("source", Path | None, None, "--from", FROM),
        _option("column", str | None, None, "--column", COLUMN),
        _option("id_column", str | None, None, "--id-column", ID_COLUMN),
        _option("unknown", str, "skip", "--unknown", UNKNOWN),
    )
    return {option.name: option for option in options}


def _texts(
    given: list[str] | None,
    *,
    source: Path | None,
    column: str | None,
    id_column: str | None,
    unknown: str,
) -> Any:
    """What a study gets: a `Corpus`, or None where it has its own texts."""
    import glauber

    if given and source is not None:
        raise GlauberError("give texts or a file of texts, not both.")
    texts = source if source is not None else (given or None)
    if texts is None and (column, id_column) == (None, None):
        one_of("unknown", unknown, ("skip", "error", "token"))
        return None
    return glauber.read_texts(texts, column=column, id_column=id_column, unknown=unknown)


def _check_utf8(given: dict[str, Any]) -> None:
    for name, value in given.items():
        for one in value if isinstance(value, list) else [value]:
            try:
                str(one).encode("utf-8")
            except UnicodeEncodeError:
                start = visible(str(one))[:40]
                raise GlauberError(f"{name}: {start!r} is not UTF-8 text.") from None


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C ends the command in one line; typer would end it without a word."""
    try:
        yield
    except KeyboardInterrupt as error:
        print(f"glauber: {one_line(str(error) or 'stopped.')}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from error


@contextmanager
def _terminal(*, silent: bool, yes: bool) -> Iterator[None]:
    """Progress for a person, silence for a program."""
    with ExitStack() as stack:
        if silent:
            stack.enter_context(progress.quiet())
        if yes:
            stack.enter_context(progress.allow_long())
        yield


def _reflowed(text: str) -> str:
    """A docstring as help: each paragraph on one line, which the terminal breaks as it needs."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
