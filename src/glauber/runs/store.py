"""How are a run's events kept so that a kill or a power cut loses nothing that was committed?

    RUN/run.json        how it was made
    RUN/events.zarr     what happened: (chain, step, slot) arrays, and tokens at regular marks
    RUN/committed.json  how many steps are safely there: replaced atomically
    RUN/finished.json   the finish mark
    RUN/tokenizer/      what turns tokens into text
    RUN/lock            held by the one writer

Steps are written and synced first and committed after; what lies beyond the commit is cut off on
reopening.
"""

import errno
import fcntl
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.runs.spec import DRAFT, HEADER, read_spec, sync, write_json

if TYPE_CHECKING:
    import zarr

EVENTS = "events.zarr"
COMMIT = "committed.json"
FINISH = "finished.json"

# Per slot of a step: the site, the new token, whether it differs from the old one, the natural
# log-probability of both in the conditional drawn from, and that conditional's entropy in nats.
FIELDS = {
    "site": ("int32", -1),
    "token": ("int32", -1),
    "changed": ("bool", False),
    "log_prob_old": ("float32", np.nan),
    "log_prob_new": ("float32", np.nan),
    "entropy": ("float32", np.nan),
}
# Of runs whose scan proposes and may reject: False where the old token stayed for that reason.
ACCEPTED = {"accepted": ("bool", False)}
CHUNK = 2**18  # entries of one chunk, about
Events = dict[str, NDArray[Any]]  # each field, (chains, steps, slots)


def chunk_steps(n_chains: int, n_slots: int) -> int:
    """Steps of one chunk, which is also the distance between two marks."""
    return max(16, min(1024, CHUNK // (n_chains * n_slots)))


def bytes_needed(n_chains: int, n_steps: int, n_slots: int, length: int) -> int:
    """An upper bound on what a run takes on disk: its events and marks before compression."""
    event = sum(np.dtype(dtype).itemsize for dtype, _ in FIELDS.values())
    marks = 1 + n_steps // chunk_steps(n_chains, n_slots)
    return n_chains * (n_steps * n_slots * event + marks * length * 4) + 2**21


def check_new(path: Path, what: str = "folder") -> None:
    """Refuses a place that exists, lies in a run or could not be made, before any work is done."""
    try:
        whole = path.absolute()
        if not path.name or whole == whole.parent:
            raise GlauberError(f"{str(path)!r} is no name for a {what}.")
        inside = next((one for one in whole.parents if (one / HEADER).exists()), None)
        if whole.exists() or whole.is_symlink():
            hint = ", or resume it" if (whole / HEADER).exists() else ""
            raise GlauberError(f"the {what} {path} exists already; give another one{hint}.")
        if inside is not None:
            raise GlauberError(f"{path} lies in the run {inside}: nothing else is written there.")
        above = next(one for one in whole.parents if one.exists())
        if not above.is_dir():
            raise GlauberError(f"{path} cannot be made: {above} is a file.")
        if not os.access(above, os.W_OK):
            raise GlauberError(f"{path} cannot be made: {above} is not writable.")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise GlauberError(f"{path} cannot be made: {reason}.") from error


def make_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """A new folder that `fill` has filled, whole or not at all, also after a power cut."""
    draft: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".", suffix=DRAFT, dir=folder.parent))
        draft.chmod(0o777 & ~_umask())  # a temporary folder is for its owner alone
        fill(draft)
        sync(*draft.rglob("*"), draft)
        draft.rename(folder)
        sync(folder.parent)
    except OSError as error:
        raise GlauberError(f"{folder} cannot be made: {error.strerror or error}.") from error
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now


def create(
    folder: Path, start: NDArray[Any], free: NDArray[Any], n_slots: int, *, rejects: bool = False
) -> None:
    """An empty event store for chains that begin at start (chains, length)."""
    import zarr

    n_chains, length = start.shape
    every = chunk_steps(n_chains, n_slots)
    with _explained(folder):
        group = zarr.open_group(folder / EVENTS, mode="w-")
        for name, (dtype, nothing) in (FIELDS | (ACCEPTED if rejects else {})).items():
            _array(group, name, (n_chains, 0, n_slots), (n_chains, every, n_slots), dtype, nothing)
        _array(group, "tokens", (1, n_chains, length), (1, n_chains, length), "int32", -1)
        _array(group, "free", (n_chains, length), (n_chains, length), "bool", False)
        group["tokens"][0] = start  # type: ignore[index]
        group["free"][:] = free  # type: ignore[index]
        group.attrs["steps_between_marks"] = every
        _consolidate(folder)
        write_json(folder / COMMIT, {"steps": 0})


DIMENSIONS = {"tokens": ("mark", "chain", "position"), "free": ("chain", "position")}


def _array(
    group: "zarr.Group",
    name: str,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: str,
    nothing: Any,
) -> None:
    from zarr.codecs import ZstdCodec

    group.create_array(
        name,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        fill_value=nothing,
        compressors=ZstdCodec(level=3, checksum=True),
        dimension_names=DIMENSIONS.get(name, ("chain", "step", "slot")),
    )


def _consolidate(folder: Path) -> None:
    import zarr

    with warnings.catch_warnings():
        # Zarr 3 has no word on consolidated metadata in its standard yet; xarray reads it.
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(folder / EVENTS)


def open_group(folder: Path, mode: str = "r") -> "zarr.Group":
    """The event store."""
    import zarr

    try:
        return zarr.open_group(folder / EVENTS, mode=mode, use_consolidated=False)  # type: ignore[arg-type]
    except Exception as error:
        raise GlauberError(f"the run {folder} is damaged: {EVENTS} cannot be opened.") from error


def fields_of(group: "zarr.Group") -> list[str]:
    """The fields of a store's events."""
    return [*FIELDS, *(name for name in ACCEPTED if name in group)]


def committed_steps(folder: Path) -> int:
    """How many steps of every chain are safely stored."""
    try:
        steps = int(json.loads((folder / COMMIT).read_text(encoding="utf-8"))["steps"])
        if steps < 0:
            raise ValueError
        return steps
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GlauberError(f"the run {folder} is damaged: {COMMIT} cannot be read.") from error


def chunk_file(name: str, place: int) -> str:
    """The file of one chunk of an array: the events of so many steps, or the tokens at a mark."""
    if name == "free":
        return f"{EVENTS}/free/c/0/0"
    inside = f"{place}/0" if name == "tokens" else f"0/{place}"
    return f"{EVENTS}/{name}/c/{inside}/0"


def missing_chunk(folder: Path, steps: int, every: int) -> str | None:
    """A chunk file that so many steps need and that is not there; zarr would read it as empty.

    A chunk of `changed` is not written while nothing changes, so it is not asked for here; in a
    generation, whose passes may do nothing, this holds for all events.
    """
    needed = [("tokens", mark) for mark in range(1 + steps // every)] + [("free", 0)]
    for name in FIELDS:
        if name != "changed" and read_spec(folder).unmasking is None:
            needed += [(name, place) for place in range(-(-steps // every))]
    files = (chunk_file(name, place) for name, place in needed)
    return next((one for one in files if not (folder / one).is_file()), None)


class Writer:
    """The one writer of a run: holds its lock, appends steps and commits them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = _take_lock(folder)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self.steps = committed_steps(self.folder)
        self._group = open_group(self.folder, "r+")
        self.fields = fields_of(self._group)
        self.every = int(self._group.attrs["steps_between_marks"])  # type: ignore[arg-type]
        lost = missing_chunk(self.folder, self.steps, self.every)
        if lost is not None:
            raise GlauberError(f"the run {self.folder} is damaged: {lost} is missing.")
        with _explained(self.folder):
            # What a writer left that was killed in the middle of a file: zarr's, and our own.
            left = [*(self.folder / EVENTS).rglob("*.partial"), *self.folder.glob(f".*{DRAFT}")]
            for rest in left:
                rest.unlink()
            self._resize(self.steps)

    def append(self, events: Events, marks: dict[int, NDArray[Any]]) -> None:
        """Adds steps and commits them; marks holds the tokens after each multiple of `every`."""
        first, last = self.steps, self.steps + events["site"].shape[1]
        with _explained(self.folder):
            self._resize(last)
            for name in self.fields:
                self._group[name][:, first:last] = events[name]  # type: ignore[index]
            for step, tokens in marks.items():
                self._group["tokens"][step // self.every] = tokens  # type: ignore[index]
            _consolidate(self.folder)
            self._sync(first, last, list(marks))
            write_json(self.folder / COMMIT, {"steps": last})
        self.steps = last

    def _sync(self, first: int, last: int, marks: list[int]) -> None:
        """What a commit rests on, on the disk before the commit is."""
        places = range(first // self.every, -(-last // self.every))
        names = [chunk_file(name, place) for name in self.fields for place in places]
        names += [chunk_file("tokens", step // self.every) for step in marks]
        files = [self.folder / name for name in names if (self.folder / name).exists()]
        arrays = [self.folder / EVENTS / name for name in (*self.fields, "tokens")]
        files += [array / "zarr.json" for array in (*arrays, self.folder / EVENTS)]
        folders = {one for path in files for one in _between(path, self.folder)}
        sync(*files)
        sync(*folders)

    def finish(self) -> None:
        """Sets the finish mark."""
        with _explained(self.folder):
            write_json(self.folder / FINISH, {"steps": self.steps})

    def reopen(self) -> None:
        """Takes the finish mark away, before a run is extended."""
        (self.folder / FINISH).unlink(missing_ok=True)

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _resize(self, steps: int) -> None:
        for name in self.fields:
            array: Any = self._group[name]
            array.resize((array.shape[0], steps, array.shape[2]))
        marks: Any = self._group["tokens"]
        marks.resize((1 + steps // self.every, *marks.shape[1:]))


def _between(path: Path, folder: Path) -> list[Path]:
    """The folders from a file up to the run's own."""
    return [one for one in path.parents if one == folder or folder in one.parents]


def _take_lock(folder: Path) -> IO[str]:
    with _explained(folder):
        file = (folder / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise GlauberError(f"another process is writing the run {folder}.") from error
    return file


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Says in one sentence why something could not be written."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise GlauberError(
                f"the disk is full; {folder} holds what was committed: make room, then resume it."
            ) from error
        raise GlauberError(f"{folder} cannot be written: {error.strerror or error}.") from error
