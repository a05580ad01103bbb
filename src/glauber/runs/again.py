"""How is a run made again? The command, or the lines of Python where no command can say it.

Noise is a function of (seed, chain, step), so the same call gives the same bits on the same kind of
device. All of it stands in the run, but for the starting texts: their tokens are there, and whether
the texts that they spell are read as the same tokens again is tried with the run's own tokenizer.
"""

import inspect
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from glauber.conditionals.constraints import Constraints, read_constraints
from glauber.conditionals.starts import spell_sites, starts
from glauber.conditionals.vocabulary import Vocabulary
from glauber.dynamics.scans import scan_named
from glauber.errors import GlauberError
from glauber.result import counted
from glauber.runs.run import Run

INLINE, LETTERS = 4, 300  # texts, and their characters, that stand in the command itself
FILE = "starts.txt"
RENAMED = {"between": "correct_between"}  # parts of an unmasking whose parameters are called so


@dataclass(frozen=True)
class Again:
    """A call that makes a run again, as far as it is known."""

    study: str
    asked: dict[str, Any]  # its parameters, as Python takes them
    texts: list[str] | None = None  # to start from; None: it asks for none
    export: str = ""  # the command that writes the texts to FILE, where they are too many
    notes: tuple[str, ...] = ()  # what is not the same, or not known
    own: bool = False  # the model is an object that must be given again
    spellable: bool = True  # whether a command line can say it

    @property
    def commands(self) -> list[str]:
        """What to type, line by line; nothing where only Python can say it."""
        if self.own or not self.spellable:
            return []
        texts = None if self.export else self.texts
        return [line for line in (self.export, shell(self.study, self.asked, texts)) if line]

    @property
    def python(self) -> list[str]:
        """The same in Python."""
        asked = _told(self.study, self.asked)
        model = asked.pop("model", None)
        model = "model" if self.own else repr(model or "bundled:english")
        texts = [repr(self.texts)] if self.texts and not self.export else []
        texts = [f'Path("{FILE}")'] if self.export else texts
        told = [f"{name}={value!r}" for name, value in asked.items() if name != "from"]
        before = ["from pathlib import Path"] if self.export else []
        given = ["model = ...  # the object that the run was made with"] if self.own else []
        call = f"glauber.{self.study}({', '.join([model, *texts, *told])})"
        return [*before, "import glauber", *given, call]


def again(run: Run) -> Again:
    """The call that makes a run again."""
    return _sampled(run) if run.spec.unmasking is None else _written(run)


# ---- chains


def _sampled(run: Run) -> Again:
    spec = run.spec
    usual = scan_named(spec.scan).within
    limits, spellable = _constraints(spec.constraints)
    forbid = ",".join(spec.forbid)
    asked = {
        **_common(run),
        "steps": spec.steps,
        "length": spec.length,
        "prefix": spec.prefix,
        "freeze": spell_sites(spec.frozen),
        "scan": spec.scan,
        "within": None if spec.within == usual else spec.within,
        "fill": spec.fill,
        "forbid": forbid if forbid.split(",") == spec.forbid or not forbid else spec.forbid,
        **limits,
        "special_tokens": spec.special_tokens,
    }
    notes = []
    if not spec.standard_only and run.vocabulary.proteins:
        notes.append("the run drew from all letters of its alphabet, as before 0.2: no call does.")
    texts, export, why = _texts(run)
    return Again(
        "sample", asked | ({"from": FILE} if export else {}), texts, export, (*notes, *why),
        _is_own(run), spellable and isinstance(asked["forbid"], str),
    )  # fmt: skip


def _common(run: Run) -> dict[str, Any]:
    spec = run.spec
    own = _is_own(run)
    return {
        "model": spec.model,
        "temperature": spec.temperature,
        "seed": spec.seed,
        "chains": spec.chains,
        "device": "auto" if own else spec.device,
        "dtype": None if own or spec.dtype == "float32" else spec.dtype,
        "trust_remote_code": spec.trust_remote_code,
        "out": f"{run.folder.name if run.folder else 'run'}-again",
    }


def _is_own(run: Run) -> bool:
    return run.spec.own or run.spec.model in ("", "unnamed")


def _constraints(found: dict[str, Any] | None) -> tuple[dict[str, Any], bool]:
    """Constraints as parameters: as a command spells them, or as Python where it cannot."""
    asked = Constraints.from_dict(found)
    spelled: dict[str, Any] = {
        "allow": ",".join(f"{s}:{'|'.join(map(str, t))}" for s, t in asked.allowed.items()),
        "bias": ",".join(
            f"{site}:{'|'.join(f'{token}={value!r}' for token, value in row)}"
            for site, row in asked.bias.items()
        ),
        "max_changes": asked.budget,
        "tie": ",".join("=".join(map(str, group)) for group in asked.tied),
    }
    try:
        if read_constraints(**spelled) == asked:
            return spelled, True
    except GlauberError:
        pass
    plain: dict[str, Any] = {
        "allow": {site: list(tokens) for site, tokens in asked.allowed.items()},
        "bias": {site: dict(row) for site, row in asked.bias.items()},
        "max_changes": asked.budget,
        "tie": [list(group) for group in asked.tied],
    }
    return {name: value for name, value in plain.items() if value}, False


# ---- the texts that chains begin from


class _Reader(NamedTuple):
    """A `Reader` of texts of any length."""

    name: str
    vocabulary: Vocabulary
    longest: int = 2**30
    length: int | None = None
    texts: Sequence[str] = ()


def start_texts(run: Run) -> list[str]:
    """The text that each chain began from, without the prefix."""
    behind = len(run.vocabulary.around[1])
    rows = [row[run.first_site : int((row >= 0).sum()) - behind] for row in run.tokens(0)]
    return [run.spelled(row) for row in rows]


def _texts(run: Run) -> tuple[list[str] | None, str, list[str]]:
    """Texts for the call, the command that writes them to a file, and what is not the same."""
    reader = _Reader(run.spec.model, run.model_vocabulary)
    if not run.spec.own and _read_as(run, reader, None):
        return None, "", []
    found = start_texts(run)
    few = _in_turn(found)
    if len(few) <= INLINE and sum(map(len, few)) <= LETTERS and _read_as(run, reader, few):
        return few, "", []
    lines = [text.replace("\n", " ") for text in found]
    name = "RUN" if run.folder is None else shlex.quote(str(run.folder))
    export = f"glauber export {name} --to starts --out {FILE}"
    fasta = lines[0].startswith(">") and len(lines) > 1
    if not fasta and _read_as(run, reader, lines):
        return lines, export, []
    wrong = [i for i, text in enumerate(lines) if fasta or not _read_as(run, reader, [text], i)]
    which = ", ".join(map(str, wrong[:10])) + (" and others" if len(wrong) > 10 else "")
    note = (
        f"the starting texts of {counted(len(wrong), 'chain')} ({which}) are read as other tokens "
        "than the run began with: give the texts that it was begun with, and these chains are the "
        "same too."
    )
    return lines, export, [note]


def _in_turn(texts: list[str]) -> list[str]:
    """The fewest first texts that the chains take in turn."""
    for size in range(1, len(texts) + 1):
        if all(text == texts[i % size] for i, text in enumerate(texts)):
            return texts[:size]
    return texts


def _read_as(run: Run, reader: _Reader, texts: list[str] | None, chain: int | None = None) -> bool:
    """Whether `sample` would begin from the same tokens, or one chain of it."""
    spec = run.spec
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tokens, free = starts(
                reader, texts, chains=spec.chains if chain is None else 1, length=spec.length,
                prefix=spec.prefix, freeze=spec.frozen,
            )  # fmt: skip
    except GlauberError:
        return False
    first, where = run.tokens(0), run.free
    if chain is not None:
        size = int((first[chain] >= 0).sum())
        first, where = first[chain : chain + 1, :size], where[chain : chain + 1, :size]
    return np.array_equal(tokens.numpy(), first) and np.array_equal(free.numpy(), where)


# ---- generations


def _written(run: Run) -> Again:
    spec = run.spec
    how = dict(spec.unmasking or {})
    lengths = how.pop("length", None)
    asked = _common(run) | {RENAMED.get(name, name): value for name, value in how.items()}
    hidden = [np.flatnonzero(row) for row in run.free]
    whole = all(len(one) == one[-1] - one[0] + 1 for one in hidden)
    vocabulary = run.model_vocabulary
    before, behind = (len(part) for part in run.vocabulary.around)
    rows = [row[before : int((row >= 0).sum()) - behind] for row in run.tokens(0)]
    ends = [row[one[-1] + 1 - before :] for row, one in zip(rows, hidden, strict=True)]
    begin = vocabulary.pieces(spec.prefix)
    same = all(one[0] == before + len(begin) for one in hidden)
    if not whole or not same or any(not np.array_equal(end, ends[0]) for end in ends):
        return _filled(run, asked, vocabulary, [row.tolist() for row in rows])
    suffix = run.spelled(ends[0])
    asked |= {"length": lengths or len(hidden[0]), "prefix": spec.prefix, "suffix": suffix}
    notes = []
    if lengths is None and len({len(one) for one in hidden}) > 1:
        notes.append("the lengths of the texts differ, and the range they were drawn from is lost.")
    if vocabulary.pieces(suffix) != ends[0].tolist():
        notes.append("the suffix is read as other tokens than the run's.")
    return Again("generate", asked, notes=tuple(notes), own=_is_own(run))


def _filled(run: Run, asked: dict[str, Any], vocabulary: Vocabulary, rows: list[Any]) -> Again:
    """The call of `infill`: each text once for each chain, with its mask tokens as blanks."""
    texts = [run.spelled(row) for row in rows]
    wrong = [i for i, text in enumerate(texts) if vocabulary.pieces(text) != rows[i]]
    note = f"the texts of chains {', '.join(map(str, wrong[:10]))} are read as other tokens."
    return Again(
        "infill", asked | {"chains": 1}, texts, notes=(note,) if wrong else (), own=_is_own(run)
    )


# ---- from parameters to words


def _told(study: str, asked: dict[str, Any]) -> dict[str, Any]:
    """The parameters that differ from the study's defaults."""
    import glauber

    known = inspect.signature(getattr(glauber, study.replace("-", "_"))).parameters
    found = {}
    for name in sorted(asked, key=[*known, "from"].index):
        value, default = asked[name], known[name].default if name in known else None
        if value is not None and value != "" and value is not False and value != default:
            found[name] = value
    return found


def shell(study: str, asked: dict[str, Any], texts: list[str] | None = None) -> str:
    """The command of a study with these parameters, as a shell reads it."""
    words = ["glauber", *(study.replace("ising-", "ising ").split()), *_options(study, asked)]
    if texts:
        words += ["--", *texts] if any(text.startswith("-") for text in texts) else texts
    return shlex.join(words)


def _options(study: str, asked: dict[str, Any]) -> list[str]:
    words = []
    for name, value in _told(study, asked).items():
        flag = "--" + name.replace("_", "-")
        words += [flag] if value is True else [flag, _spelled(value)]
    return words


def _spelled(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_spelled, value))
    return repr(value) if isinstance(value, float) else str(value)
