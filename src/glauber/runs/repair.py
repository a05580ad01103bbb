"""How is the longest sound beginning of a damaged run kept, so that it can go on from there?

The order makes a kill harmless at any moment: first what is needed, then the commit, then what is
no longer needed. Repairing again completes what was cut short.
"""

import tempfile
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from numpy.typing import NDArray

from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError
from glauber.parameters import Trust
from glauber.result import Result, plain, study
from glauber.runs.examine import Damage, Examined, check_run, examine
from glauber.runs.integrity import (
    COPIES,
    EVENTS,
    TOKENIZER,
    Checked,
    Commit,
    damaged,
    file_digest,
    kept_files,
)
from glauber.runs.run import Run
from glauber.runs.spec import FORMAT, HEADER, Spec, check_trust, replace_files, sync, write_json
from glauber.runs.store import (
    COMMIT,
    FINISH,
    chunk_file,
    explained,
    finish_mark,
    header_files,
    measure,
)
from glauber.runs.verify import Folder
from glauber.runs.writer import clean, in_memory, mend_copies, take_lock, write_upgraded

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

    from glauber.conditionals.load import Model


@study
def repair(
    run: Folder,
    *,
    model: Annotated[
        str | Conditionals | None, "The run's model, to write a damaged tokenizer again."
    ] = None,
    trust_remote_code: Trust = False,
) -> "Repaired":
    """Keep the longest sound beginning of a run, from which it can be resumed to the same bits.

    Small files come back from their copies, marks by replay, headers from each other, a tokenizer
    from the run's model; each is compared with its checksum. What cannot be had again is cut off
    with all that follows it. A run of an earlier format gets checksums, after a replay.
    """
    folder = run.folder if isinstance(run, Run) else Path(run)
    check_run(folder)
    with closing(take_lock(folder)), explained(folder):
        found = examine(folder)
        if found.spec is None:
            why = f"neither {HEADER} nor {COPIES[HEADER]} is of this run and sound"
            raise damaged(folder, f"{why}, so nothing says how it was made")
        return _repaired(found, found.spec, model, trust_remote_code)


@dataclass
class _Work:
    """What a repair did, and what it could not do."""

    done: list[str] = field(default_factory=list)
    remains: list[str] = field(default_factory=list)


def _repaired(
    found: Examined, spec: Spec, model: str | Conditionals | None, trusted: bool
) -> "Repaired":
    given = None if model is None else _opened(spec, model, trusted)
    work = _Work()
    _restore_small_files(found, work)
    _restore_headers(found, work)
    if found.commit is None or found.earlier:
        commit = _sealed_again(found, spec, work)
    else:
        commit = _restore_parts(found, found.commit, work)
    commit = _restore_tokenizer(found, commit, spec, given, trusted, work)
    if spec.format < FORMAT:
        write_upgraded(found.folder, spec, commit)
    elif commit != found.commit:
        for name in (COPIES[COMMIT], COMMIT):  # a copy must never have more steps
            write_json(found.folder / name, commit.to_dict())
    _restore_finish(found, commit, spec, work)
    clean(found.folder, commit)
    mend_copies(found.folder)
    if any(one.kind == "copy" for one in found.damages):
        work.done.append("the copies of the small files were written again")
    finished = finish_mark(found.folder) == commit.steps == spec.steps
    had = None if found.commit is None else found.commit.steps
    return Repaired(
        found.folder, tuple(found.damages), tuple(work.done), tuple(work.remains),
        commit.steps, had, spec.steps, finished, spec.unmasking is not None, spec.signature,
    )  # fmt: skip


def _restore_small_files(found: Examined, work: _Work) -> None:
    used = {HEADER: found.spec_file} | ({COMMIT: found.commit_file} if found.commit else {})
    for name, source in used.items():
        if source != name:
            content = (found.folder / source).read_bytes()
            replace_files({found.folder / name: content}, found.folder)
            work.done.append(f"{name} was restored from {source}")


def _restore_headers(found: Examined, work: _Work) -> None:
    if found.commit is None or found.earlier:
        return
    if found.headers is None:
        raise damaged(found.folder, f"the headers of {EVENTS} are lost, and with them its events")
    wrong = [one.what for one in found.damages if one.kind == "header"]
    if wrong:
        files = header_files(found.headers)
        replace_files({found.folder / name: files[name] for name in files}, found.folder)
        work.done.append(f"{', '.join(wrong)} was restored from what the others say")


def _restore_parts(found: Examined, commit: Commit, work: _Work) -> Commit:
    """Writes again what can be had again, and gives the commit of the sound beginning."""
    checked = found.checked
    assert checked is not None
    if not checked.whole("tokens", 0):
        raise damaged(found.folder, "the tokens at step 0 are lost, and nothing else holds them")
    free = checked.free_again()
    if free is None:
        raise damaged(found.folder, "free is lost, and the events do not tell which sites it held")
    if not checked.whole("free", 0):
        _write(found, "free", 0, free)
        work.done.append("free was made again from the sites that were redrawn")
    for step in _restored_marks(found, checked, commit):
        work.done.append(f"the tokens at step {step} were made again by replay")
    if found.sound < commit.steps:
        work.done.append(f"steps {found.sound} to {commit.steps} were cut off")
        return commit.cut(found.sound // commit.every)
    return commit


def _restored_marks(found: Examined, checked: Checked, commit: Commit) -> list[int]:
    """Makes damaged marks of the sound beginning by replay from the mark before; their steps."""
    restored, before = [], checked.mark(0)
    for mark in range(1, 1 + found.sound // commit.every):
        if checked.whole("tokens", mark):
            before = checked.mark(mark)
            continue
        again = checked.mark_again(mark, before)
        if again is None:
            why = f"the tokens at step {mark * commit.every} do not follow from the events"
            raise damaged(found.folder, why)
        _write(found, "tokens", mark, again)
        before = again
        restored.append(mark * commit.every)
    return restored


def _write(found: Examined, name: str, place: int, values: NDArray[Any]) -> None:
    """Puts a mark or the free sites back."""
    held, group = in_memory(header_files(found.headers or {}))
    array: Any = group[name]
    array[place if name == "tokens" else slice(None)] = values
    path = chunk_file(name, place)
    key = path.removeprefix(f"{EVENTS}/")
    if key in held:
        replace_files({found.folder / path: held[key].to_bytes()}, found.folder)


def _sealed_again(found: Examined, spec: Spec, work: _Work) -> Commit:
    """A commit of what a replay and zarr's own checksums confirm: they are all there is."""
    for name in ("tokens", "free"):
        if not (found.folder / chunk_file(name, 0)).is_file():
            why = f"{chunk_file(name, 0)} is missing, and nothing else holds it"
            raise damaged(found.folder, why)
    try:
        commit = measure(found.folder, spec, found.sound)
    except GlauberError:
        raise
    except Exception as error:  # what zarr raises depends on what is broken
        raise damaged(found.folder, f"{EVENTS} cannot be read") from error
    steps = f"steps 0 to {found.sound}"
    work.done.append(
        f"checksums were made of {steps}, which a replay and zarr's own checksums confirm: these "
        "were all there was"
    )
    return commit


def _restore_tokenizer(
    found: Examined,
    commit: Commit,
    spec: Spec,
    given: "Model | None",
    trusted: bool,
    work: _Work,
) -> Commit:
    """Writes a damaged tokenizer again, if the run's model is to be had."""
    wrong = [one.what for one in found.damages if one.kind == "tokenizer"]
    if not wrong:
        return commit
    try:
        if given is None:
            check_trust(found.folder, spec, trusted)
        files = _saved(given or _opened(spec, spec.model, trusted))
    except GlauberError as error:
        work.remains.append(f"{wrong[0]} is still damaged: {error} Give its model (--model).")
        return commit
    replace_files({found.folder / name: content for name, content in files.items()}, found.folder)
    for name in wrong:
        if name not in files:
            (found.folder / name).unlink(missing_ok=True)
    work.done.append(f"{TOKENIZER}/ was written again from the model")
    there = {name: str(file_digest(found.folder / name)) for name in kept_files(found.folder)}
    return replace(commit, files=there)


def _opened(spec: Spec, model: str | Conditionals, trusted: bool) -> "Model":
    """The run's model; another one is refused."""
    from glauber.conditionals.load import load

    dtype = spec.dtype if isinstance(model, str) else "float32"
    found = load(model, device="cpu", dtype=dtype, trust_remote_code=trusted)
    if found.fingerprint != spec.fingerprint:
        raise GlauberError(f"{found.name or 'this model'} is not the model that made the run.")
    return found


def _saved(model: "Model") -> dict[str, bytes]:
    """The files of the tokenizer that a model has, by their paths in a run's folder."""
    with tempfile.TemporaryDirectory() as place:
        model.vocabulary.save(Path(place))
        saved = [path for path in sorted(Path(place).rglob("*")) if path.is_file()]
        inside = {path: path.relative_to(place).as_posix() for path in saved}
        return {f"{TOKENIZER}/{name}": path.read_bytes() for path, name in inside.items()}


def _restore_finish(found: Examined, commit: Commit, spec: Spec, work: _Work) -> None:
    """The finish mark of what is there now."""
    mark = found.folder / FINISH
    if not mark.exists() or finish_mark(found.folder) == commit.steps:
        return
    if commit.steps == spec.steps:
        write_json(mark, {"steps": commit.steps})
        work.done.append(f"{FINISH} was written again")
    else:
        mark.unlink()
        sync(found.folder)
        work.done.append(f"{FINISH} was taken away: the run is not finished")


@dataclass(frozen=True, eq=False)
class Repaired(Result):
    """What was damaged, what was done about it, and what remains."""

    folder: Path  # of the run
    damages: tuple[Damage, ...]  # before
    done: tuple[str, ...]
    remains: tuple[str, ...]  # what is still damaged
    steps: int  # kept
    had: int | None  # steps committed before; None where that was lost
    planned: int  # steps
    finished: bool  # whether the run reached them
    generation: bool  # whether it writes texts from nothing
    signature: str

    @property
    def exit_code(self) -> int:
        return 1 if self.remains else 0

    def to_dict(self) -> dict[str, Any]:
        return plain(
            {
                "run": str(self.folder),
                "damages": [one._asdict() for one in self.damages],
                "done": self.done,
                "remains": self.remains,
                "steps": self.steps,
                "had": self.had,
                "planned": self.planned,
                "finished": self.finished,
                "signature": self.signature,
            }
        )

    def lines(self) -> Iterable[str]:
        yield from (f"damaged: {one} ({one.kind})" for one in self.damages)
        yield from (f"done: {one}" for one in self.done)
        yield from (f"remains: {one}" for one in self.remains)
        if not self.damages and not self.done:
            yield "nothing was damaged"
        had = "" if self.had in (None, self.steps) else f" of {self.had:,}"
        yield f"{self.folder} holds {self.steps:,}{had} steps, {self.planned:,} planned"
        if not self.finished:
            again = f"glauber resume {self.folder}"
            told = "the call that began it" if self.generation else again
            yield f"what is missing is made again, to the same bits, by: {told}"

    def frame(self) -> "pandas.DataFrame":
        """One row per part that was damaged."""
        import pandas

        return pandas.DataFrame(list(self.damages), columns=list(Damage._fields))

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.runs import plot_damages

        had = max([self.steps, self.had or 0, *(one.last or 0 for one in self.damages)])
        return {"damages": plot_damages(self.damages, steps=had)}
