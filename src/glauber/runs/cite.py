"""The citation of a run or a result: a sentence, BibTeX, and the call that makes it again.

Noise is a function of (seed, chain, step), so the same call gives the same bits on the same kind of
device. A run contains the call that made it, and so does every result and its JSON.
"""

import inspect
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from glauber.dynamics.scans import scan_named
from glauber.foundation.call import Call
from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import has_type, parse_json
from glauber.foundation.study import Result, counted, internal, study
from glauber.runs.export import start_texts
from glauber.runs.run import Run
from glauber.runs.spec import Spec, is_call

if TYPE_CHECKING:
    import plotly.graph_objects as go

INLINE, LETTERS = 4, 300  # texts, and their characters, that are part of the command itself
FILE = "texts-again.txt"
# What CITATION.cff says, as BibTeX has it: the software, then papers A and B.
TITLE = "glauber: the dynamics of masked language models"
AUTHORS = ("The glauber authors",)
PAPERS: dict[str, dict[str, Any]] = {
    "sana2026mixing": {
        "title": "Mixing Times of Glauber Dynamics on Masked Language Models",
        "author": (
            "Suvadip Sana",
            "Sami Wolf",
            "Neer Mehta",
            "Alina Shah",
            "Aitzaz Shaikh",
            "Janna Goodman",
            "Lionel Levine",
        ),
        "year": 2026,
        "eprint": "2605.16378",
    },
    "li2024promises": {
        "title": "Promises and Pitfalls of Generative Masked Language Modeling: Theoretical "
        "Framework and Practical Guidelines",
        "author": (
            "Yuchen Li",
            "Alexandre Kirchmeyer",
            "Aashay Mehta",
            "Yilong Qin",
            "Boris Dadachev",
            "Kishore Papineni",
            "Sanjiv Kumar",
            "Andrej Risteski",
        ),
        "year": 2024,
        "eprint": "2407.21046",
        "booktitle": "International Conference on Machine Learning (ICML)",
    },
}


@study
def cite(
    run: Annotated[Run | Result | str | Path, "Folder of a run, or the JSON file of a result."],
) -> "Citation":
    """Cite a run or a result: a sentence and BibTeX for a paper, and how to make it again.

    The printed call makes the same run again, to the bit on the same kind of device; what it cannot
    say is listed. In Python any result can be given; on the command line, its JSON (`--json`).
    """
    if isinstance(run, Result) and not isinstance(run, Run):
        return _citation_of_result(run.call, run.signature)
    if isinstance(run, str) and "|" in run:
        raise GlauberError(
            "a signature identifies a result, but does not contain its call: give the folder of "
            "the run, or the JSON of the result."
        )
    if not isinstance(run, Run) and Path(run).is_file():
        try:
            record = parse_json(Path(run).read_bytes())
            call = Call(**record["call"]) if is_call(record["call"]) else None
            return _citation_of_result(call, str(record["signature"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise GlauberError(f"{run} is not the JSON of a result.") from error
    return _citation_of_run(Run.of(run, generations=True))


@dataclass(frozen=True, eq=False)
class Citation(Result):
    """A sentence and BibTeX for a paper, and the call that makes it again."""

    sentence: str
    study: str | None  # None: not known
    arguments: dict[str, Any]  # of that study's call
    commands: list[str]  # to type, line by line; none where only Python can say it
    python: list[str]  # the same call, line by line
    left_open: list[str]  # what is not known, or would not be the same
    bibtex: str  # of the software, in the version that was used, and of the two papers
    run: Run | None = internal(default=None)

    def lines(self) -> Iterable[str]:
        yield self.sentence
        if self.python:
            yield from ("", f"To make it again{'' if self.commands else ', in Python'}:")
            yield from (f"  {line}" for line in self.commands or self.python)
        yield from (f"- {note}" for note in self.left_open)
        yield from ("", *self.bibtex.splitlines())

    def table(self) -> dict[str, list[str]]:
        """One row per argument of the call."""
        return {"argument": [*self.arguments], "value": [*map(str, self.arguments.values())]}

    def figures(self) -> "dict[str, go.Figure]":
        if self.run is not None:
            return self.run.figures()
        from glauber.interfaces.plots.chart import table

        columns = self.table()
        rows = list(zip(*columns.values(), strict=True))
        return {"call": table("The call", self.study or "not stored", list(columns), rows)}


def _citation_of_result(call: Call | None, signature: str) -> Citation:
    versions = dict(re.findall(r"(glauber|torch):([^|]+)", signature))
    version = versions.get("glauber", "?")
    made_by = f"Made by glauber {version} (torch {versions.get('torch', '?')})"
    known = None if call is None else _study_of(call)
    study = None if call is None else call.study
    if call is None or known is None:
        note = "the call is not stored."
        return Citation(f"{made_by}.", study, {}, [], [], [note], bibtex(version))
    settings = ", ".join(f"{k} {v}" for k, v in call.arguments.items() if not isinstance(v, list))
    notes = [f"the weights must be those of the signature: {signature}."]
    return Citation(
        f"{made_by}, study {call.study}: {settings}.",
        call.study,
        call.arguments,
        known.commands(call.arguments),
        known.python(call.arguments),
        notes,
        bibtex(version),
    )


def _citation_of_run(run: Run) -> Citation:
    spec, call = run.spec, run.log.call
    notes = [] if run.finished else [f"the run is not finished: {run.where()}"]
    known = None if call is None else _study_of(call)
    commands, python, arguments = [], [], dict[str, Any]()
    if call is None or known is None:
        notes.append("the call that made the run is not stored in it.")
    else:
        own = spec.own or spec.model in ("", "unnamed")
        arguments = call.arguments | ({} if own else {"device": spec.device})
        if call.study == "sample":  # it may have been extended
            arguments |= {"steps": spec.steps}
        new_folder = f"{run.folder.name if run.folder else 'run'}-again"
        arguments |= {n: new_folder for n in ("out", "keep_run") if n in known.parameters}
        texts = "texts"
        if isinstance(arguments.get("texts"), dict):  # too many to be stored
            texts, arguments = "starts", arguments | {"texts": start_texts(run)}
            notes.append(
                "the texts are not stored: what the chains began from may be read as other tokens."
            )
        if run.vocabulary.unknown_tokens & {*run.tokens(0).ravel().tolist()}:
            notes.append("a text has unknown tokens, which are read only where `unknown` says so.")
        export = None
        if run.folder is not None:
            export = f"glauber export {shlex.quote(str(run.folder))} --to {texts} --out {FILE}"
        commands = [] if own else known.commands(arguments, export)
        python = known.python(arguments, own=own)
    version = bibtex(spec.versions.get("glauber", "?"))
    study = None if call is None else call.study
    return Citation(sentence(spec), study, arguments, commands, python, notes, version, run)


# ---- the call, as it is typed


class _Study(NamedTuple):
    """A public study: how it is called on the command line and in Python, and its parameters."""

    command: str
    function: str
    parameters: dict[str, inspect.Parameter]

    def commands(self, arguments: dict[str, Any], export: str | None = None) -> list[str]:
        """What to type, line by line; nothing where only Python can say it.

        export writes the texts to FILE where they are too many for a command.
        """
        shown, lines, arguments_of_command = (
            self._changed_arguments(arguments),
            [],
            shlex.split(self.command),
        )
        texts = shown.pop("texts", [])
        if not has_type(texts, str | list[str]):
            return []
        if isinstance(texts, list) and (len(texts) > INLINE or sum(map(len, texts)) > LETTERS):
            plain = all(text.strip() == text != "" and text.isprintable() for text in texts)
            if export is None or not plain or texts[0].startswith(">"):
                return []
            lines, texts = [export], FILE
        if isinstance(texts, str):
            shown["from"], texts = texts, []
        for name, value in shown.items():
            items = value if isinstance(value, list) else [value]
            if isinstance(value, list) and any("," in str(part) for part in value):
                return []
            if any(isinstance(part, list | dict) for part in items):
                return []
            flag = "--" + name.replace("_", "-")
            kind = self.parameters[name].kind if name in self.parameters else None
            if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and name != "model":
                arguments_of_command.append(str(value))
            elif isinstance(value, bool):
                arguments_of_command.append(flag if value else f"--no-{flag[2:]}")
            else:
                arguments_of_command += [flag, ",".join(map(str, items))]
        arguments_of_command += ["--"] if any(text.startswith("-") for text in texts) else []
        return [*lines, shlex.join([*arguments_of_command, *texts])]

    def python(self, arguments: dict[str, Any], *, own: bool = False) -> list[str]:
        """The same in Python; own: the model is an object that must be given again."""
        shown = self._changed_arguments(arguments)
        for name in ("allow", "bias"):  # JSON has sites as texts
            if isinstance(sites := shown.get(name), dict):
                shown[name] = {int(s) if s.isdecimal() else s: v for s, v in sites.items()}
        expressions = {name: repr(value) for name, value in shown.items()}
        lines = ["import glauber"]
        if own:
            lines.append("model = ...  # the object that the run was made with")
            expressions = {"model": "model"} | {
                n: value for n, value in expressions.items() if n != "model"
            }
        call = ", ".join(f"{name}={value}" for name, value in expressions.items())
        return [*lines, f"{self.function}({call})"]

    def _changed_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments that differ from the defaults, in the order of the parameters; out last."""
        names = sorted(self.parameters, key=lambda name: name == "out")
        default = {name: self.parameters[name].default for name in names}
        return {n: arguments[n] for n in names if n in arguments and arguments[n] != default[n]}


def _study_of(call: Call) -> _Study | None:
    """The public study of a call, which may come from somebody else; None if there is none."""
    import glauber

    name = call.study.removeprefix("ising-").replace("-", "_")
    studies = [name for group in glauber.STUDIES.values() for name in group]
    rooms = (
        ("glauber", glauber, studies),
        ("glauber sweep", glauber.sweeps, glauber.sweeps.STUDIES),
        ("glauber ising", glauber.ising, glauber.ising.STUDIES),
    )
    for command, room, names in rooms:
        if name in names and (room is glauber.ising) == call.study.startswith("ising-"):
            parameters = dict(inspect.signature(getattr(room, name)).parameters)
            if call.arguments.keys() <= parameters.keys():
                command = f"{command} {name.replace('_', '-')}"
                return _Study(command, f"{room.__name__}.{name}", parameters)
    return None


# ---- in words


def sentence(spec: Spec) -> str:
    """How a run was made, as a paper's section on methods says it."""
    how = spec.unmasking
    if how is None:
        scan = scan_named(spec.scan)
        redraws = scan.sentence if scan.size == 1 else f"{scan.sentence}, filled {spec.within}"
        what = f"{counted(spec.chains, 'chain')} of Glauber dynamics, "
        what += f"{counted(spec.steps, 'step')} each ({redraws}, drawn by {spec.fill})"
    else:
        usual = {"order", "count", "length"}
        others = [f", {k} {v}" for k, v in how.items() if k not in usual and v and v != "none"]
        what = f"{counted(spec.chains, 'text')} written by unmasking (order {how['order']}, count "
        what += f"{how['count']}{''.join(others)})"
    conditions = {
        f"texts of {spec.length} tokens": spec.length,
        f"after the fixed prefix “{spec.prefix}”": spec.prefix,
        f"with {counted(len(spec.frozen), 'site')} frozen": spec.frozen and how is None,
        f"without the tokens {', '.join(spec.forbid)}": spec.forbid,
        f"under constraints ({', '.join(spec.constraints or {})})": spec.constraints,
    }
    more = "".join(f", {text}" for text, is_set in conditions.items() if is_set)
    temperatures = ", ".join(f"{value:g}" for value in sorted(set(spec.different_temperatures)))
    used = ", ".join(f"{name} {spec.versions.get(name, '?')}" for name in ("torch", "transformers"))
    return (
        f"{what[0].upper()}{what[1:]}, of {spec.model or 'a model of our own'} (weights "
        f"{spec.fingerprint[:12] or 'unknown'}) at temperature {temperatures}{more}, seed "
        f"{spec.seed}, on {spec.device} in {spec.dtype}, by glauber "
        f"{spec.versions.get('glauber', '?')} ({used})."
    )


def bibtex(version: str) -> str:
    """The software in that version, and the two papers."""
    software = {"title": TITLE, "author": AUTHORS, "version": version, "license": "Apache-2.0"}
    entries = [_entry("software", "glauber", software)]
    for key, paper in PAPERS.items():
        kind = "inproceedings" if "booktitle" in paper else "misc"
        entries.append(_entry(kind, key, paper | {"archiveprefix": "arXiv"}))
    return "\n".join(entries)


def _entry(kind: str, key: str, fields: dict[str, Any]) -> str:
    fields = fields | {"author": " and ".join(map(_family_first, fields["author"]))}
    rows = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{kind}{{{key},", *rows, "}"])


def _family_first(name: str) -> str:
    """Family name first; the name of a group in braces."""
    if name in AUTHORS:
        return f"{{{name}}}"
    *first, family = name.split()
    return f"{family}, {' '.join(first)}"
