"""How is a result cited, and made again? From a run, or from the one line that signs a result."""

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from glauber.dynamics.scans import scan_named
from glauber.errors import GlauberError
from glauber.result import Result, counted, plain, study
from glauber.runs.again import Again, again, shell
from glauber.runs.embedding import DEFAULT
from glauber.runs.run import Run
from glauber.runs.spec import Spec

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

# What CITATION.cff says, as BibTeX has it: the software, then papers A and B.
TITLE = "glauber: the dynamics of masked language models"
AUTHORS = ("The glauber authors",)
PAPERS: dict[str, dict[str, Any]] = {
    "sana2026mixing": {
        "title": "Mixing Times of Glauber Dynamics on Masked Language Models",
        "author": (
            "Suvadip Sana", "Sami Wolf", "Neer Mehta", "Alina Shah", "Aitzaz Shaikh",
            "Janna Goodman", "Lionel Levine",
        ),
        "year": 2026,
        "eprint": "2605.16378",
    },
    "li2024promises": {
        "title": "Promises and Pitfalls of Generative Masked Language Modeling: Theoretical "
        "Framework and Practical Guidelines",
        "author": (
            "Yuchen Li", "Alexandre Kirchmeyer", "Aashay Mehta", "Yilong Qin", "Boris Dadachev",
            "Kishore Papineni", "Sanjiv Kumar", "Andrej Risteski",
        ),
        "year": 2024,
        "eprint": "2407.21046",
        "booktitle": "International Conference on Machine Learning (ICML)",
    },
}  # fmt: skip
PART = re.compile(r"[A-Za-z_][A-Za-z0-9_ -]{0,40}:")  # how a part of a signature begins
# Parts of a signature that are called otherwise than the parameter that they come from.
PARAMETERS = {"between": "correct_between"}
FACTS = {"study", "weights", "device", "glauber", "torch", "model", "texts", "constraints"}


@study
def cite(
    run: Annotated[Run | str | Path, "Folder of a run, or the signature of a result in quotes."],
) -> "Citation":
    """Cite a run or a result: a sentence and BibTeX for a paper, and how to make it again.

    Of a run, the printed command makes the same run again, to the bit on the same kind of device;
    what it cannot say is said. A signature is the line under each result: it is read back, and what
    it leaves open (as a rule the texts) is listed.
    """
    if not isinstance(run, str) or ("|" not in run and run.strip() and Path(run).exists()):
        opened = Run.of(run, generations=True)
        made = again(opened)
        notes = () if opened.finished else (f"the run is not finished: {opened.where()}",)
        return Citation(sentence(opened.spec), made, notes, {}, opened, opened.signature)
    parts = read_signature(str(run))
    return _signed(parts, " ".join(str(run).split()))


@dataclass(frozen=True, eq=False)
class Citation(Result):
    """A sentence and BibTeX for a paper, and the call that makes it again."""

    sentence: str
    again: Again | None  # None: the signature does not say by which study
    notes: tuple[str, ...]  # what to know before it is made again
    parts: dict[str, str]  # of a signature
    run: Run | None
    signature: str

    @property
    def bibtex(self) -> str:
        """Entries of the software, in the version that was used, and of the two papers."""
        version = self.run.spec.versions.get("glauber") if self.run else self.parts.get("glauber")
        return bibtex(version or "?")

    @property
    def left_open(self) -> tuple[str, ...]:
        """What is not known, or would not be the same."""
        return (*self.notes, *(self.again.notes if self.again else ()))

    def to_dict(self) -> dict[str, Any]:
        made = self.again
        return plain(
            {
                "sentence": self.sentence,
                "study": made and made.study,
                "commands": made.commands if made else [],
                "python": made.python if made else [],
                "left_open": self.left_open,
                "signed": self.parts,
                "bibtex": self.bibtex,
                "signature": self.signature,
            }
        )

    def lines(self) -> Iterable[str]:
        yield self.sentence
        made = self.again
        if made is not None:
            yield from (
                "",
                "To make it again:" if made.commands else "To make it again, in Python:",
            )
            yield from (f"  {line}" for line in made.commands or made.python)
        for note in self.left_open:
            yield f"- {note}"
        yield from ("", *self.bibtex.splitlines())

    def frame(self) -> "pandas.DataFrame":
        """One row per parameter of the call, or per part of the signature."""
        import pandas

        found = self.parts or (self.again.asked if self.again else {})
        rows = [{"part": name, "value": str(value)} for name, value in found.items()]
        return pandas.DataFrame(rows, columns=["part", "value"])

    def figures(self) -> "dict[str, go.Figure]":
        if self.run is not None:
            return self.run.figures()
        from glauber.figures.chart import table

        rows = list(self.parts.items())
        return {"signature": table("Parts of the signature", "", ["part", "value"], rows)}


# ---- in words


def sentence(spec: Spec) -> str:
    """How a run was made, as a paper's section on methods says it."""
    if spec.unmasking is not None:
        how = spec.unmasking
        what = f"{counted(spec.chains, 'text')} written by unmasking (order {how['order']}, count "
        what += f"{how['count']}{_seldom(how)})"
    else:
        long = counted(spec.steps, "step")
        what = f"{counted(spec.chains, 'chain')} of Glauber dynamics, {long} each ("
        what += f"{_scan(spec)}, drawn by {spec.fill})"
    hot = ", ".join(f"{one:g}" for one in sorted(set(spec.temperatures)))
    used = ", ".join(f"{name} {spec.versions.get(name, '?')}" for name in ("torch", "transformers"))
    return (
        f"{what[0].upper()}{what[1:]}, of {spec.model or 'a model of our own'} (weights "
        f"{spec.fingerprint[:12] or 'unknown'}) at temperature {hot}{_held(spec)}, seed "
        f"{spec.seed}, on {spec.device} in {spec.dtype}, by glauber "
        f"{spec.versions.get('glauber', '?')} ({used})."
    )


def _scan(spec: Spec) -> str:
    scan = scan_named(spec.scan)
    return scan.sentence if scan.size == 1 else f"{scan.sentence}, filled {spec.within}"


def _seldom(how: dict[str, Any]) -> str:
    """What of an unmasking is not usual."""
    plainly = {"order", "count", "length"}
    told = [f"{k} {v}" for k, v in how.items() if k not in plainly and v and v != "none"]
    return "".join(f", {one}" for one in told)


def _held(spec: Spec) -> str:
    found = []
    if spec.length:
        found.append(f"texts of {spec.length} tokens")
    if spec.prefix:
        found.append(f"behind the fixed prefix “{spec.prefix}”")
    if spec.frozen and spec.unmasking is None:
        found.append(f"with {counted(len(spec.frozen), 'site')} held")
    if spec.forbid:
        found.append(f"without the tokens {', '.join(spec.forbid)}")
    if spec.constraints:
        found.append(f"under constraints ({', '.join(spec.constraints)})")
    return "".join(f", {one}" for one in found)


def bibtex(version: str) -> str:
    """The software in that version, and the two papers."""
    software = {"title": TITLE, "author": AUTHORS, "version": version, "license": "Apache-2.0"}
    entries = [_entry("software", "glauber", software)]
    for key, paper in PAPERS.items():
        kind = "inproceedings" if "booktitle" in paper else "misc"
        entries.append(_entry(kind, key, paper | {"archiveprefix": "arXiv"}))
    return "\n".join(entries)


def _entry(kind: str, key: str, fields: dict[str, Any]) -> str:
    several = {"author": lambda names: " and ".join(_name(name) for name in names)}
    rows = [f"  {k} = {{{several.get(k, str)(v)}}}," for k, v in fields.items()]
    return "\n".join([f"@{kind}{{{key},", *rows, "}"])


def _name(name: str) -> str:
    """Family name first; a group keeps its name whole."""
    if name in AUTHORS:
        return f"{{{name}}}"
    *given, family = name.split()
    return f"{family}, {' '.join(given)}"


# ---- from a signature


def read_signature(text: str) -> dict[str, str]:
    """The parts of a signature, in its order; refuses what is none."""
    parts: dict[str, str] = {}
    last = ""
    for part in " ".join(text.split()).split("|"):
        if PART.match(part.lstrip()):
            last, _, value = part.lstrip().partition(":")
            if last in parts:
                raise GlauberError(f"the signature says {last} twice: it is no single line.")
            parts[last] = value
        elif last:  # a text with a bar in it
            parts[last] += f"|{part}"
        else:
            break
    if len(parts) < 2 or "glauber" not in parts:
        raise GlauberError(
            f"{text!r:.80} is neither the folder of a run nor a signature, which is one line such "
            "as model:bundled:english|…|seed:0|…|glauber:0.2.0|torch:2.13.0."
        )
    return parts


def _signed(parts: dict[str, str], signature: str) -> Citation:
    name = _study_of(parts)
    of_a_run = _maker_of(parts)
    if of_a_run is not None and name != of_a_run:
        return _study_of_a_run(parts, name, of_a_run, signature)
    told = ", ".join(f"{k} {v}" for k, v in parts.items() if k not in ("study", "glauber", "torch"))
    by = f"glauber {parts['glauber']} (torch {parts.get('torch', '?')})"
    said = f"Made by {by}{f', study {name}' if name else ''}: {told}."
    if name is None:
        note = "the signature does not say which study it is of, so its command is not known."
        return Citation(said, None, (note,), parts, None, signature)
    asked, notes = _asked(name, parts)
    made = Again(name, asked, notes=tuple(notes))
    return Citation(said, made, (), parts, None, signature)


def _study_of_a_run(
    parts: dict[str, str], name: str | None, maker: str, signature: str
) -> Citation:
    """The citation of a study that read a run: first the run, then the study of it."""
    import glauber

    order = list(parts)
    cut = order.index("study")
    first = {one: parts[one] for one in order[:cut]}
    made = _signed(first, "|".join(f"{k}:{v}" for k, v in first.items()))
    asked = {one: parts[one] for one in order[cut + 1 :]}
    said = f"{made.sentence[:-1]}; read by {parts['study']}"
    said += "".join(f", {k} {v}" for k, v in asked.items()) + "."
    if name is None:
        note = f"{parts['study']} is no command, so only the run's is known."
        return replace(made, sentence=said, notes=(note,), parts=parts, signature=signature)
    known = inspect.signature(getattr(glauber, name.replace("-", "_"))).parameters
    given = {k: _read(v) for k, v in asked.items() if k in known and v != DEFAULT}
    then = shell(name, given, ["FOLDER"])
    notes = [f"then, of the run's folder: {then}"]
    rest = [f"{k}:{v}" for k, v in asked.items() if k not in known]
    notes += [f"{name} says besides: {', '.join(rest)}."] if rest else []
    return replace(made, sentence=said, notes=tuple(notes), parts=parts, signature=signature)


def _study_of(parts: dict[str, str]) -> str | None:
    """The study that a signature is of; that of a run names none, and is known by its parts."""
    import glauber

    listed = {one.replace("_", "-") for group in glauber.STUDIES.values() for one in group}
    if "study" in parts:
        return parts["study"] if parts["study"] in listed else None
    return _maker_of(parts)


def _maker_of(parts: dict[str, str]) -> str | None:
    """What made the run whose signature this is, or begins with; None where it is of no run."""
    if next(iter(parts)) == "study":
        return None
    if {"scan", "fill", "steps"} <= set(parts):
        return "sample"
    return "generate" if {"order", "count", "steps", "length"} <= set(parts) else None


def _asked(name: str, parts: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Parameters as the signature gives them, and what it leaves open."""
    import glauber

    known = inspect.signature(getattr(glauber, name.replace("-", "_"))).parameters
    called = {PARAMETERS.get(part, part): value for part, value in parts.items()}
    asked: dict[str, Any] = {}
    for one in ("model", "models"):
        if one in called and one in known:
            asked["model"] = called[one]
    asked |= {k: _read(v) for k, v in called.items() if k in known and k not in {*FACTS, "models"}}
    device, _, dtype = parts.get("device", "").partition("/")
    if "device" in known and device:
        asked["device"] = device
    if "dtype" in known and dtype not in ("", "float32"):
        asked["dtype"] = dtype
    return asked, _open(name, parts, list(known), asked)


def _read(value: str) -> Any:
    """A part as Python takes it: numbers as numbers."""
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return {"True": True, "False": False}.get(value, value)


def _open(name: str, parts: dict[str, str], known: list[str], asked: dict[str, Any]) -> list[str]:
    found = []
    if "texts" in known:
        found.append(
            "the texts are not in a signature: without --from, those of the package are taken; "
            "give the ones that were used."
        )
    if "constraints" in parts:
        found.append(f"constraints are named and not spelled out: {parts['constraints']}.")
    if parts.get("prefix", "").endswith("…"):
        found.append("the prefix is cut.")
    if any(re.search(r"\.\d{5,}", str(value)) for value in asked.values()):
        found.append("numbers are rounded to six digits.")
    unsaid = {"texts", "model", "models", "out", "session", "batch_size", "memo", "dtype", "device"}
    rest = [one for one in known if one not in asked and one not in unsaid]
    if rest:
        found.append(f"not said, so taken to be as by default: {', '.join(rest)}.")
    used = {PARAMETERS.get(part, part) for part in parts} - set(asked) - FACTS
    if used:
        also = ", ".join(f"{one}:{parts[one]}" for one in parts if one in used)
        found.append(f"the signature says besides: {also}.")
    found.append("the weights must be those of the signature: `glauber models NAME` prints theirs.")
    return found
