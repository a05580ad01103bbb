"""How are a run's events kept so that a kill at any moment loses nothing that was committed?

    RUN/run.json        how it was made
    RUN/events.zarr     what happened: (chain, step, slot) arrays, and tokens at regular marks
    RUN/committed.json  how many steps are safely there: replaced in one stroke
    RUN/finished.json   the finish mark
    RUN/tokenizer/      what turns tokens into text
    RUN/lock            held by the one writer

Steps are written first and committed after; what lies beyond the commit is cut off on reopening.
"""

import errno
import fcntl
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.runs.spec import write_json

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


def create(folder: Path, start: NDArray[Any], free: NDArray[Any], n_slots: int) -> None:
    """An empty event store for chains that begin at start (chains, length)."""
    import zarr

    n_chains, length = start.shape
    every = chunk_steps(n_chains, n_slots)
    with _explained(folder):
        group = zarr.open_group(folder / EVENTS, mode="w-")
        for name, (dtype, nothing) in FIELDS.items():
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


def committed_steps(folder: Path) -> int:
    """How many steps of every chain are safely stored."""
    try:
        return int(json.loads((folder / COMMIT).read_text(encoding="utf-8"))["steps"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GlauberError(f"the run {folder} is damaged: {COMMIT} cannot be read.") from error


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
        self.every = int(self._group.attrs["steps_between_marks"])  # type: ignore[arg-type]
        with _explained(self.folder):
            for rest in self.folder.rglob("*.partial"):
                rest.unlink()  # left by a writer that was killed in the middle of a file
            self._resize(self.steps)

    def append(self, events: Events, marks: dict[int, NDArray[Any]]) -> None:
        """Adds steps and commits them; marks holds the tokens after each multiple of `every`."""
        first, last = self.steps, self.steps + events["site"].shape[1]
        with _explained(self.folder):
            self._resize(last)
            for name in FIELDS:
                self._group[name][:, first:last] = events[name]  # type: ignore[index]
            for step, tokens in marks.items():
                self._group["tokens"][step // self.every] = tokens  # type: ignore[index]
            _consolidate(self.folder)
            write_json(self.folder / COMMIT, {"steps": last})
        self.steps = last

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
        for name in FIELDS:
            array: Any = self._group[name]
            array.resize((array.shape[0], steps, array.shape[2]))
        marks: Any = self._group["tokens"]
        marks.resize((1 + steps // self.every, *marks.shape[1:]))


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
