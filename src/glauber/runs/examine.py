"""What does a folder hold of a run, and what of it is sound? For those who say it or repair it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from glauber.errors import DamagedRun, GlauberError
from glauber.json_text import parse_json
from glauber.runs.earlier import Replayed
from glauber.runs.integrity import (
    COPIES,
    EVENTS,
    TOKENIZER,
    Checked,
    Commit,
    damaged_files,
    header_digest,
)
from glauber.runs.run import Run
from glauber.runs.spec import FORMAT, HEADER, Spec, read_spec, spec_digest
from glauber.runs.store import (
    COMMIT,
    FINISH,
    fields_of,
    finish_mark,
    header_files,
    open_group,
    read_commit,
    with_shapes,
    wrong_shapes,
)

if TYPE_CHECKING:
    import zarr


class Damage(NamedTuple):
    """One part that is not what was committed."""

    what: str  # a file or a field
    first: int | None  # the steps it is about: first <= step < last; None where it is about none
    last: int | None
    kind: str  # spec, commit, copy, header, tokenizer, free, mark, events, finish, replay

    def __str__(self) -> str:
        if self.kind == "mark":
            return f"the tokens at step {self.first}"
        if self.kind == "replay":
            return self.what
        steps = "" if self.first is None else f" of steps {self.first} to {self.last}"
        return f"{self.what}{steps}"


@dataclass
class Examined:
    """What was found in a folder, for those who say it and those who repair it."""

    folder: Path
    damages: list[Damage] = field(default_factory=list)
    spec: Spec | None = None
    spec_file: str = HEADER  # where it was sound
    commit: Commit | None = None  # None where neither file of it is sound
    commit_file: str = COMMIT
    headers: dict[str, Any] | None = None  # as they should be; None where they are lost
    checked: Checked | None = None
    sound: int = 0

    def add(self, what: str, kind: str, first: int | None = None, last: int | None = None) -> None:
        self.damages.append(Damage(what, first, last, kind))

    @property
    def earlier(self) -> bool:
        """Whether the run is of a format without digests."""
        sealed = self.commit is not None and bool(self.commit.of)
        return self.spec is not None and self.spec.format < FORMAT and not sealed

    @property
    def finished(self) -> bool:
        """Whether the run reached its plan."""
        steps = None if self.commit is None else self.commit.steps
        planned = None if self.spec is None else self.spec.steps
        return steps is not None and finish_mark(self.folder) == steps == planned


def check_run(folder: Path) -> None:
    """Refuses a folder that holds nothing of a run."""
    if not any((folder / name).exists() for name in (HEADER, COPIES[HEADER], EVENTS)):
        raise GlauberError(f"{folder} is not a run: it has no {HEADER}.")


def examine(folder: Path) -> Examined:
    """Reads everything that a folder holds of a run."""
    check_run(folder)
    found = Examined(folder)
    _read_small_files(found)
    if found.earlier:
        _examine_earlier(found)
    elif found.commit is not None:
        _examine_headers(found, found.commit)
        _examine_tokenizer(found, found.commit)
        _examine_events(found, found.commit)
    elif found.spec is not None:
        found.sound = _confirmed(found)
    _examine_finish(found)
    return found


def _read_small_files(found: Examined) -> None:
    """The spec and the commit that are sound and of one run: the first files before the copies.

    A writer at work writes the copy of a commit last and never commits more than is planned, so
    copies are read before first files and commits before specs.
    """
    copy, first = (_commit(found.folder, name) for name in (COPIES[COMMIT], COMMIT))
    named = {COMMIT: first, COPIES[COMMIT]: copy}
    commits = {name: one for name, one in named.items() if one is not None}
    specs = {n: one for n in (HEADER, COPIES[HEADER]) if (one := _spec(found.folder, n))}
    pairs = [
        (s, c)
        for c in _newest_first(found.folder, commits)
        for s, spec in specs.items()
        if spec_digest(spec) == commits[c].of and spec.steps >= commits[c].steps
    ]
    fit = (name for name, one in commits.items() if one.of and _fits(found.folder, one))
    if pairs:
        found.spec_file, found.commit_file = pairs[0]
        found.spec, found.commit = specs[found.spec_file], commits[found.commit_file]
    elif (kept := next(fit, None)) is not None:  # the events are of a commit, the specs of others
        found.commit_file, found.commit = kept, commits[kept]
    elif specs:
        found.spec_file, found.spec = next(iter(specs.items()))
        bare = commits.get(COMMIT)
        found.commit = bare if found.earlier and bare is not None and not bare.of else None
    _note_small_files(found, specs, commits)


def _newest_first(folder: Path, commits: dict[str, Commit]) -> list[str]:
    """Both commits, the one first that is to be believed: no writer leaves a copy with more steps.

    So a first file with fewer is an older one that was put there, unless the copy does not fit.
    """
    first, copy = commits.get(COMMIT), commits.get(COPIES[COMMIT])
    if first is not None and copy is not None and copy.of == first.of and copy.steps > first.steps:
        trial = Examined(folder)
        _examine_headers(trial, copy)
        _examine_events(trial, copy)
        if trial.sound >= first.steps:
            return [COPIES[COMMIT], COMMIT]
    return list(commits)


def _fits(folder: Path, commit: Commit) -> bool:
    """Whether the first tokens and events that lie there are those of a commit."""
    trial = Examined(folder)
    _examine_headers(trial, commit)
    if trial.headers is None:
        return False
    checked = Checked(folder, open_with(folder, trial.headers), commit)
    firsts = [(name, 0) for name in commit.digests if commit.places]
    return all(checked.whole(name, place) for name, place in [("tokens", 0), *firsts])


def _note_small_files(found: Examined, specs: dict[str, Spec], commits: dict[str, Commit]) -> None:
    """Which small files are damaged, older than they should be, or of another run."""
    if found.earlier:
        if found.commit is None:
            found.add(COMMIT, "commit")
        return
    right = found.commit.of if found.commit is not None else None
    if found.spec is not None:
        right = spec_digest(found.spec)
    of = {name: spec_digest(one) for name, one in specs.items()}
    of |= {name: one.of for name, one in commits.items()}
    upgrading = found.spec is not None and found.spec.format < FORMAT  # copies come on the way
    used = {HEADER: found.spec_file, COMMIT: found.commit_file}
    for name, kind in ((HEADER, "spec"), (COMMIT, "commit")):
        if of.get(name) != right or used[name] != name:
            found.add(name, kind)
        copy = COPIES[name]
        coming = upgrading and not (found.folder / copy).exists()
        if (of.get(copy) != right and not coming) or (name == COMMIT and _further(found, commits)):
            found.add(copy, "copy")


def _further(found: Examined, commits: dict[str, Commit]) -> bool:
    """Whether the copy of the commit has more steps than what is believed, as no writer leaves."""
    copy = commits.get(COPIES[COMMIT])
    return copy is not None and found.commit is not None and copy.steps > found.commit.steps


def _spec(folder: Path, name: str) -> Spec | None:
    try:
        return read_spec(folder, name)
    except DamagedRun:
        return None
    except GlauberError:
        if (folder / name).is_file():  # it is of a newer version
            raise
        return None


def _commit(folder: Path, name: str) -> Commit | None:
    try:
        return read_commit(folder, name)
    except DamagedRun:
        return None


def _examine_headers(found: Examined, commit: Commit) -> None:
    """The headers as they should be: an array's own, or the one that the group keeps of it."""
    wrong = damaged_files(found.folder, commit, inside=EVENTS)
    for name in wrong:
        found.add(name, "header")
    arrays = (*commit.digests, "tokens", "free")
    paths = {name: f"{EVENTS}/{name}/zarr.json" for name in arrays} | {"": f"{EVENTS}/zarr.json"}
    own = {name: _json(found.folder / path) for name, path in paths.items()}
    try:
        kept = own[""]["consolidated_metadata"]["metadata"]
    except (KeyError, TypeError):
        kept = {}
    headers = {}
    for name in arrays:
        both = (own[name], kept.get(name) if isinstance(kept, dict) else None)
        fits = (one for one in both if _digest(one) == commit.files.get(paths[name]))
        headers[name] = next(fits, None)
    if any(one is None for one in headers.values()):
        return
    group = own[""] if paths[""] not in wrong else _group_header(headers, commit)
    if _digest(group) != commit.files.get(paths[""]):
        return
    found.headers = with_shapes(headers | {"": group}, commit.steps, commit.every)
    if not wrong:
        for name in wrong_shapes(found.folder, commit):
            found.add(name, "header")


def _group_header(headers: dict[str, Any], commit: Commit) -> dict[str, Any]:
    """The header of the group, made again from those of its arrays."""
    inner = {"kind": "inline", "must_understand": False, "metadata": dict(sorted(headers.items()))}
    return {
        "attributes": {"steps_between_marks": commit.every},
        "zarr_format": 3,
        "consolidated_metadata": inner,
        "node_type": "group",
    }


def _json(path: Path) -> Any:
    try:
        return parse_json(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _digest(header: Any) -> str | None:
    return None if header is None else header_digest(json.dumps(header).encode())


def _examine_tokenizer(found: Examined, commit: Commit) -> None:
    for name in damaged_files(found.folder, commit, inside=TOKENIZER):
        found.add(name, "tokenizer")


def _examine_events(found: Examined, commit: Commit) -> None:
    """Free sites, marks and events against their digests."""
    if found.headers is None:
        found.add(EVENTS, "events", 0, commit.steps)
        return
    group = open_with(found.folder, found.headers)
    checked = found.checked = Checked(found.folder, group, commit)
    if not checked.whole("free", 0):
        found.add("free", "free")
    for mark in range(len(commit.tokens)):
        if not checked.whole("tokens", mark):
            found.add("tokens", "mark", mark * commit.every, mark * commit.every)
    for name in commit.digests:
        torn = [place for place in range(commit.places) if not checked.whole(name, place)]
        for first, last in _stretches(torn):
            found.add(name, "events", commit.span(first)[0], commit.span(last)[1])
    found.sound = checked.sound_steps()


def _stretches(places: list[int]) -> Iterator[tuple[int, int]]:
    """First and last of each stretch of successive numbers."""
    groups = np.split(np.array(places), np.flatnonzero(np.diff(places) != 1) + 1)
    return ((int(one[0]), int(one[-1])) for one in groups if len(one))


def open_with(folder: Path, headers: dict[str, Any]) -> "zarr.Group":
    """The event store with these headers in the place of its own."""
    import zarr
    from zarr.buffer import cpu, default_buffer_prototype
    from zarr.storage import LocalStore

    held = {name.removeprefix(f"{EVENTS}/"): one for name, one in header_files(headers).items()}

    class Overlaid(LocalStore):
        async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
            if key in held and byte_range is None:
                return (prototype or default_buffer_prototype()).buffer.from_bytes(held[key])
            return await super().get(key, prototype or cpu.buffer_prototype, byte_range)

    store = Overlaid(folder / EVENTS, read_only=True)
    return zarr.open_group(store, mode="r", use_consolidated=False)


def _examine_earlier(found: Examined) -> None:
    """A run without digests: what a replay from mark to mark says."""
    found.sound = _confirmed(found)
    try:
        Run(found.folder).verify()
    except DamagedRun as error:
        steps = None if found.commit is None else found.commit.steps
        why = str(error).partition(" is damaged: ")[2].rstrip(".")
        found.add(why, "replay", None if steps is None else found.sound, steps)


def _confirmed(found: Examined) -> int:
    """Of a run without a sound commit: the steps that a replay and zarr's checksums confirm."""
    assert found.spec is not None
    try:
        group = open_group(found.folder)
        there = min(group[name].shape[1] for name in fields_of(group))  # type: ignore[union-attr]
        steps = there if found.commit is None else min(there, found.commit.steps)
        return Replayed(found.folder, group, Commit(steps), found.spec).confirmed_steps()
    except Exception:  # what zarr raises depends on what is broken
        return 0


def _examine_finish(found: Examined) -> None:
    """A finish mark that does not fit; read twice, because a writer may be about to set it."""
    marked, now = finish_mark(found.folder), _commit(found.folder, found.commit_file)
    there = (found.folder / FINISH).exists() and marked == finish_mark(found.folder)
    if there and now is not None and marked != now.steps:
        found.add(FINISH, "finish")
