"""How does a run grow? One writer appends steps and commits them."""

import fcntl
import shutil
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.runs.integrity import (
    COPIES,
    EVENTS,
    Commit,
    damaged,
    digest_of,
    in_order,
    new_digest,
    sealed,
)
from glauber.runs.run import Run
from glauber.runs.spec import (
    DRAFT,
    FORMAT,
    HEADER,
    Spec,
    read_spec,
    record_of,
    replace_files,
    spec_digest,
    sync,
    write_json,
    write_spec,
)
from glauber.runs.store import (
    ACCEPTED,
    COMMIT,
    FIELDS,
    FINISH,
    Events,
    check_together,
    chunk_file,
    current_commit,
    explained,
    header_files,
    measure,
    open_group,
    read_headers,
    with_shapes,
    write_commit,
)

if TYPE_CHECKING:
    import zarr


ENDLESS = 2**50  # steps of the arrays in memory, so that they need not grow


class Writer:
    """The one writer of a run: holds its lock, appends steps and commits them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = take_lock(folder)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        if read_spec(self.folder).format < FORMAT:
            upgrade(self.folder)
        self._commit = current_commit(self.folder)
        check_together(self.folder, read_spec(self.folder), self._commit)
        self.steps, self.every = self._commit.steps, self._commit.every
        stored = open_group(self.folder)
        self.fields = list(self._commit.digests)
        with explained(self.folder):
            clean(self.folder, self._commit)
            mend_copies(self.folder)
        self._headers = read_headers(self.folder)
        endless = with_shapes(self._headers, ENDLESS // self.every * self.every, self.every)
        self._held, self._group = in_memory(header_files(endless))
        self._running = {name: new_digest() for name in self.fields}
        self._folders: set[Path] = set()  # those that are surely on the disk
        if self.steps % self.every:
            for name in self.fields:
                self._continue(name, stored[name])

    def _continue(self, name: str, array: Any) -> None:
        """Takes up the chunk of a field that the run stands in, if it is what was committed."""
        first = self.steps // self.every * self.every
        try:
            values = np.asarray(array[:, first : self.steps])
            whole = digest_of(values) == self._commit.digests[name][-1]
        except Exception:  # what zarr raises depends on what is broken
            whole = False
        if not whole:
            hope = f"`glauber repair {self.folder}` keeps what is sound"
            raise damaged(self.folder, f"{name} of steps {first} to {self.steps}", hope)
        self._running[name].update(in_order(values).data)
        self._group[name][:, first : self.steps] = values  # type: ignore[index]

    def append(self, events: Events, marks: dict[int, NDArray[Any]]) -> None:
        """Adds steps and commits them; marks holds the tokens after each multiple of `every`."""
        first, last = self.steps, self.steps + events["site"].shape[1]
        new = {name: _as_stored(name, events[name]) for name in self.fields}
        tokens = {step // self.every: np.asarray(marks[step], np.int32) for step in sorted(marks)}
        running = {name: one.copy() for name, one in self._running.items()}
        digests = {name: self._digested(name, running, new[name]) for name in self.fields}
        with explained(self.folder):
            self._headers = with_shapes(self._headers, last, self.every)
            for name in self.fields:
                self._group[name][:, first:last] = new[name]  # type: ignore[index]
            for mark, values in tokens.items():
                self._group["tokens"][mark] = values  # type: ignore[index]
            files = self._files(first, last, list(tokens))
            replace_files(files, self.folder, self._folders)
            marked = [*self._commit.tokens, *map(digest_of, tokens.values())]
            commit = replace(self._commit, steps=last, digests=digests, tokens=marked)
            write_commit(self.folder, commit)
        self.steps, self._commit, self._running = last, commit, running

    def _digested(self, name: str, running: dict[str, Any], values: NDArray[Any]) -> list[str]:
        """The digests of a field's chunks with these values behind what is there."""
        found, last = list(self._commit.digests[name]), self.steps + values.shape[1]
        for place in range(self.steps // self.every, -(-last // self.every)):
            begin = max(self.steps, place * self.every)
            if begin == place * self.every:
                running[name] = new_digest()
                found.append("")
            part = values[:, begin - self.steps : (place + 1) * self.every - self.steps]
            running[name].update(in_order(part).data)
            found[place] = running[name].hexdigest()
        return found

    def _files(self, first: int, last: int, marks: list[int]) -> dict[Path, bytes]:
        """What a commit rests on: the chunks that grew, and all headers."""
        places = range(first // self.every, -(-last // self.every))
        grown = [(name, place) for name in self.fields for place in places]
        files = header_files({k: one for k, one in self._headers.items() if k != "free"})
        for name, place in grown + [("tokens", mark) for mark in marks]:
            path = chunk_file(name, place)
            key = path.removeprefix(f"{EVENTS}/")
            if key in self._held:  # zarr leaves out what is empty
                files[path] = self._held[key].to_bytes()
            if place != last // self.every or name == "tokens":
                self._held.pop(key, None)  # it is full
        return {self.folder / name: content for name, content in files.items()}

    def describe(self, spec: Spec) -> None:
        """Writes how the run is made from now on; only its temperature may be another."""
        now = read_spec(self.folder)
        of = spec_digest(spec)
        if of not in (self._commit.of, spec_digest(replace(now, temperature=spec.temperature))):
            raise GlauberError(f"{self.folder} was begun with other settings: choose another one.")
        with explained(self.folder):
            if of == self._commit.of:
                write_spec(self.folder, spec)
                return
            self._commit = replace(self._commit, of=of)
            record = self._commit.to_dict()
            write_json(self.folder / COMMIT, record)  # the copies still fit each other
            write_spec(self.folder, spec)  # now the first files do
            write_json(self.folder / COPIES[COMMIT], record)

    def finish(self) -> None:
        """Sets the finish mark."""
        with explained(self.folder):
            write_json(self.folder / FINISH, {"steps": self.steps})

    def reopen(self) -> None:
        """Takes the finish mark away, before a run is extended."""
        with explained(self.folder):
            (self.folder / FINISH).unlink(missing_ok=True)
            sync(self.folder)

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def upgrade(folder: Path) -> None:
    """Brings a run of an earlier format to this one, after a replay; its writer holds the lock."""
    run = Run(folder)
    run.verify()
    with explained(folder):
        write_upgraded(folder, run.spec, measure(folder, run.spec, run.steps))


def write_upgraded(folder: Path, spec: Spec, commit: Commit) -> None:
    """Writes the small files of a run of an earlier format in this one."""
    records = {COMMIT: commit.to_dict(), HEADER: sealed(record_of(spec))}
    for name, record in records.items():  # what makes it the new format comes last
        write_json(folder / COPIES[name], record)
        write_json(folder / name, record)


def clean(folder: Path, commit: Commit) -> None:
    """Removes what a writer left that was killed: drafts, and chunks beyond the commit."""
    for rest in [*(folder / EVENTS).rglob("*.partial"), *_drafts(folder)]:
        rest.unlink()
    there = read_headers(folder)
    fits = header_files(with_shapes(there, commit.steps, commit.every))
    if fits != header_files(there):
        replace_files({folder / name: content for name, content in fits.items()}, folder)
    for name in (*commit.digests, "tokens"):
        chunks = folder / EVENTS / name / ("c" if name == "tokens" else "c/0")
        needed = 1 + commit.steps // commit.every if name == "tokens" else commit.places
        for chunk in chunks.iterdir() if chunks.is_dir() else ():
            if chunk.name.isdigit() and int(chunk.name) >= needed:
                shutil.rmtree(chunk)


def _drafts(folder: Path) -> list[Path]:
    return [*folder.glob(f".*{DRAFT}"), *(folder / EVENTS).rglob(f".*{DRAFT}")]


def mend_copies(folder: Path) -> None:
    """Brings the copies of the small files up to date, behind which a kill may leave them."""
    for name, copy in COPIES.items():
        content = (folder / name).read_bytes()
        if not (folder / copy).is_file() or (folder / copy).read_bytes() != content:
            replace_files({folder / copy: content}, folder)


def take_lock(folder: Path) -> IO[str]:
    """The right to write a run, until it is closed; refused while another process has it."""
    with explained(folder):
        file = (folder / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise GlauberError(f"another process is writing the run {folder}.") from error
    return file


def in_memory(headers: dict[str, bytes]) -> tuple[dict[str, Any], "zarr.Group"]:
    """Arrays with these headers whose chunks zarr encodes into memory; their files are ours."""
    import zarr
    from zarr.buffer import cpu

    held: dict[str, Any] = {
        name.removeprefix(f"{EVENTS}/"): cpu.Buffer.from_bytes(content)
        for name, content in headers.items()
    }
    store = zarr.storage.MemoryStore(held)
    return held, zarr.open_group(store, mode="r+", use_consolidated=False)


def _as_stored(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Values in the store's type; what is no number has the same bits everywhere."""
    dtype, nothing = (FIELDS | ACCEPTED)[name]
    found = np.asarray(values).astype(dtype)
    if found.dtype.kind == "f":
        found[np.isnan(found)] = nothing
    return found
