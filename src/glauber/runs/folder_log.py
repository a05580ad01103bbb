"""The log of a run in a folder: Parquet segments, and a manifest whose replacement is the commit.

    RUN/run.json                 the spec and the manifest: steps, and the digest of every file
    RUN/start.parquet            one row per chain: its tokens before step 1, its free sites
    RUN/events/00000000.parquet  full segments: one row per event, empty slots are left out
    RUN/states/00000001.parquet  one row per chain: its tokens before each later segment
    RUN/tail-00004196.parquet    the last segment while it grows; the name is its last step
    RUN/tokenizer/               the files that turn tokens into text
    RUN/lock                     locked by the one writer

Files are never changed, only added and removed. `append` writes new files and syncs them, then
replaces run.json, then removes the previous tail. Files that run.json does not name are ignored by
readers and removed by the next writer, so a kill or a power cut leaves the run of one commit or of
the next. The tail of a run that has all its planned steps is stored in events/ (as
`00000003-00004196.parquet`), so that `pandas.read_parquet("RUN/events")` gives all events.

A digest is a BLAKE2b of a file's bytes, and run.json has one of its own entries. They reveal damage
and edits; they are no protection against somebody who computes them anew. The footer of every
Parquet file says which steps of which run it contains, and has a digest of its values, so that a
lost run.json can be rebuilt.
"""

import copy
import errno
import fcntl
import hashlib
import io
import json
import math
import os
import re
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from glauber.foundation.call import Call
from glauber.foundation.disk import (
    DRAFT,
    create_folder,
    digest,
    explained_errors,
    read_file,
    sync,
    write_file,
)
from glauber.foundation.disk import RUN_HEADER as MANIFEST
from glauber.foundation.errors import DamagedRun, GlauberError
from glauber.foundation.json_text import parse_json
from glauber.foundation.progress import check_memory
from glauber.models.base import PAD
from glauber.runs.log import (
    FIELDS,
    MIN_SEGMENT_STEPS,
    TOKENS,
    Events,
    LazyArrays,
    Log,
    Segment,
    check_described,
    default_segment_steps,
    dense_events,
    empty_events,
    event_fields,
    join_events,
    split_events,
    stored_events,
)
from glauber.runs.spec import CHANGING, Spec, is_call, record_of, spec_digest, spec_of

FORMAT = 5  # up to 4, events were Zarr arrays
START = "start.parquet"
EVENTS = "events"
STATES = "states"
TOKENIZER = "tokenizer"
LOCK = "lock"
ZARR = "events.zarr"  # of the earlier formats
LARGEST_SEGMENT = 2**24  # events, except in segments of very few steps
CACHED_BYTES = 2**26  # of files and decoded arrays that an open log keeps

SEGMENT = r"tail-\d{8,}\.parquet|events/\d{8,}(-\d{8,})?\.parquet|states/\d{8,}\.parquet"
NAMED = re.compile(rf"start\.parquet|{SEGMENT}|tokenizer(/[^./][^/]*)+")
REMOVABLE = re.compile(rf"{SEGMENT}|((events|states|tokenizer)/)?\.[^/]+{re.escape(DRAFT)}")
ENCODINGS = {
    **dict.fromkeys(("step", "chain", "slot"), "DELTA_BINARY_PACKED"),
    **dict.fromkeys(("log_prob_old", "log_prob_new", "entropy"), "BYTE_STREAM_SPLIT"),
}
TYPES = {"step": pa.int64(), "chain": pa.int32(), "slot": pa.int32()}
TYPES |= {TOKENS: pa.int32(), "free": pa.bool_()}
TYPES |= {name: pa.from_numpy_dtype(np.dtype(dtype)) for name, (dtype, _) in FIELDS.items()}
UNREADABLE = (
    GlauberError,
    OSError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    pa.ArrowException,
)


# ---- tables


def encode(columns: Mapping[str, NDArray[Any]], about: dict[str, Any]) -> bytes:
    """A Parquet file of these columns; two-dimensional ones are lists of a fixed size.

    `about` is stored in the footer, together with a digest of itself and of the columns.
    """
    footer = json.dumps(about | {"content": content_digest(columns, about)})
    table = pa.table({name: _arrow(values) for name, values in columns.items()})
    encodings = {name: ENCODINGS[name] for name in columns if name in ENCODINGS}
    buffer = io.BytesIO()
    pq.write_table(
        table.replace_schema_metadata({"glauber": footer}),
        buffer,
        compression="zstd",
        use_dictionary=["site", "token"] if encodings else True,
        column_encoding=encodings or None,
        write_page_checksum=True,
    )
    return buffer.getvalue()


def _arrow(values: NDArray[Any]) -> pa.Array:
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def content_digest(columns: Mapping[str, NDArray[Any]], about: dict[str, Any]) -> str:
    """A digest of values, whatever their encoding."""
    state = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16)
    for name, values in columns.items():
        state.update(f"{name} {values.dtype} {values.shape}".encode())
        state.update(np.ascontiguousarray(values, values.dtype.newbyteorder("<")).data)
    return state.hexdigest()


class ArrayTable:
    """A Parquet file of a run, decoded column by column."""

    def __init__(self, content: bytes) -> None:
        self._file = pq.ParquetFile(pa.BufferReader(content), pre_buffer=False)
        self.about = parse_json(self._file.schema_arrow.metadata[b"glauber"])
        self.content = self.about.pop("content")
        self.nbytes = len(content)
        self._arrays: dict[str, NDArray[Any]] = {}

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self._file.metadata.num_rows)

    def column(self, name: str) -> NDArray[Any]:
        """One column, (rows,) or (rows, size of its lists)."""
        kind = self._file.schema_arrow.field(name).type
        listed = pa.types.is_fixed_size_list(kind)
        width = kind.list_size if listed else 1
        if (kind.value_type if listed else kind) != TYPES[name]:
            raise ValueError(f"{name} has the type {kind}")
        check_memory(16.0 * self.n_rows * width, f"{name} of a run")
        column = self._file.read(columns=[name], use_threads=False)[name]
        if column.null_count or len(column) != self.n_rows:
            raise ValueError(f"{name} has missing values")
        if not listed:
            return column.to_numpy()
        values = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return values.reshape(len(column), column.type.list_size)

    def is_sound(self) -> bool:
        """Whether the values and the footer are those that the digest in the footer is of."""
        columns = {name: self.column(name) for name in self._file.schema_arrow.names}
        return content_digest(columns, self.about) == self.content

    def rows(self, name: str, n_chains: int) -> NDArray[Any]:
        """A column of a table with one row per chain, (chains, length)."""
        if self.n_rows != n_chains:
            raise ValueError(f"{self.n_rows} rows for {n_chains} chains")
        rows = self._remember(name, lambda: self.column(name))
        if rows.ndim != 2 or (name == TOKENS and rows.min(initial=PAD) < PAD):
            raise ValueError(f"{name} is wrong")
        return rows

    def events(self, name: str, first: int, shape: tuple[int, int, int]) -> NDArray[Any]:
        """A field of a table with one row per event, as an array (chains, steps, slots).

        The steps after step `first` of the run, of shape (steps, chains, slots).
        """
        return self._remember(name, lambda: self._dense(name, first, shape))

    def _dense(self, name: str, first: int, shape: tuple[int, int, int]) -> NDArray[Any]:
        if (self.about["first"], self.about["last"]) != (first, first + shape[0]):
            raise ValueError("the footer names other steps")
        if self.n_rows > math.prod(shape):
            raise ValueError(f"{self.n_rows} rows for {shape} events")
        values = self.column(name)
        if name in ("site", "token") and len(values) and values.min() < 0:
            raise ValueError(f"{name} is negative")
        if len(values) == math.prod(shape):
            return values.reshape(shape).transpose(1, 0, 2)
        positions = self._remember("position", lambda: self._positions(first, shape))
        return dense_events(name, values, positions, shape).transpose(1, 0, 2)

    def _positions(self, first: int, shape: tuple[int, int, int]) -> NDArray[np.int64]:
        """Where the events lie in an array (steps, chains, slots)."""
        step = self.column("step") - first - 1
        chain = self.column("chain")
        slot = self.column("slot") if shape[2] > 1 else np.zeros_like(chain)
        for index, size in zip((step, chain, slot), shape, strict=True):
            if len(index) and not 0 <= index.min() <= index.max() < size:
                raise ValueError("an event is outside its segment")
        return (step * shape[1] + chain) * shape[2] + slot

    def _remember(self, name: str, decode: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        if name not in self._arrays:
            self._arrays[name] = decode()
            self.nbytes += self._arrays[name].nbytes
        return self._arrays[name]


def event_columns(segment: Segment, fields: list[str]) -> dict[str, NDArray[Any]]:
    """The events of a segment, one row per event in the order of steps, chains and slots."""
    sites = segment.arrays["site"].transpose(1, 0, 2)
    step, chain, slot = np.nonzero(sites >= 0)
    columns: dict[str, NDArray[Any]] = {
        "step": step + segment.first + 1,
        "chain": chain.astype(np.int32),
    }
    if sites.shape[2] > 1:
        columns["slot"] = slot.astype(np.int32)
    return columns | {name: segment.arrays[name][chain, step, slot] for name in fields}


# ---- files


def damage(folder: Path, reason: str) -> DamagedRun:
    """The error for a damaged run."""
    return DamagedRun(
        f"the run {folder} is damaged: {reason}; `glauber repair {folder}` keeps what is sound."
    )


def refuse_symlinks(folder: Path) -> None:
    """Refuse to write a run that contains a symbolic link, which may lead out of it."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            if path.is_symlink():
                raise GlauberError(
                    f"{path.relative_to(folder)} in the run {folder} is a symbolic link: nothing "
                    "is written to a run that contains one."
                )


def take_lock(folder: Path) -> int:
    """The handle of the locked lock file; refused while another process has it."""
    refuse_symlinks(folder)
    with explained_errors(folder):
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(folder / LOCK, flags, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, f"{LOCK} is not a regular file")
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(handle)
            raise GlauberError(f"another process is writing the run {folder}.") from error
        except BaseException:
            os.close(handle)
            raise
    return handle


def remove_strays(folder: Path, known_files: Mapping[str, str]) -> None:
    """Remove what an interrupted writer left: drafts, and segments that are not named."""
    for parent in (folder, folder / EVENTS, folder / STATES, folder / TOKENIZER):
        for path in parent.iterdir() if parent.is_dir() and not parent.is_symlink() else ():
            name = path.relative_to(folder).as_posix()
            removable = REMOVABLE.fullmatch(name) and name not in known_files
            if removable and stat.S_ISREG(path.lstat().st_mode):
                path.unlink()


# ---- the manifest


@dataclass(frozen=True)
class Manifest:
    """The entries of run.json."""

    spec: Spec
    run: str  # a digest of all that decides the trajectory, so that files of two runs differ in it
    fields: list[str]
    chains: int
    slots: int
    segment_steps: int
    steps: int = 0
    files: dict[str, str] = field(default_factory=dict)  # digests by name
    call: dict[str, Any] | None = None  # as `Call.to_dict` gives it

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Manifest":
        """The manifest with these entries; what is missing or wrong is a ValueError or its like."""
        names = ("run", "fields", "chains", "slots", "segment_steps", "steps", "files")
        entries = {name: record[name] for name in names} | {"call": record.get("call")}
        manifest = cls(spec_of(record["spec"]), **entries)
        counts = (manifest.chains, manifest.slots, manifest.segment_steps, manifest.steps + 1)
        well_formed = (
            all(type(count) is int and count > 0 for count in counts)
            and manifest.chains == manifest.spec.chains
            and manifest.steps <= manifest.spec.steps
            and manifest.fields in (event_fields(False), event_fields(True))
            and all(NAMED.fullmatch(name) and name.isprintable() for name in manifest.files)
            and manifest.n_full <= len(manifest.files)
            and manifest.files.keys() >= {*manifest.needed_files()}
            and (manifest.call is None or is_call(manifest.call))
        )
        if not well_formed:
            raise ValueError("an entry is wrong")
        slots = manifest.chains * manifest.slots  # of a step
        if manifest.segment_steps > max(MIN_SEGMENT_STEPS, LARGEST_SEGMENT // slots):
            raise ValueError("segments are too large")
        check_memory(32.0 * slots * min(manifest.steps, manifest.segment_steps), "a segment")
        return manifest

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """The manifest in a folder; refuses damaged ones and those of other formats."""
        if (folder / ZARR).is_dir():
            raise GlauberError(
                f"the run {folder} was stored by an earlier version of glauber, in a format that "
                "is no longer read: sample it again."
            )
        try:
            record = parse_json(read_file(folder, MANIFEST))
            seal = record.pop("digest")
            if seal != digest(json.dumps(record, sort_keys=True).encode()):
                raise ValueError("the digest differs")
            number = record["format"]
            if type(number) is not int:
                raise ValueError("the format is no number")
            if number == FORMAT:
                return cls.from_record(record)
        except FileNotFoundError as error:
            if (folder / START).exists():
                raise damage(folder, f"{MANIFEST} is missing") from error
            raise GlauberError(f"{folder} is not a run: it has no {MANIFEST}.") from error
        except (RecursionError, *UNREADABLE) as error:
            raise damage(folder, f"{MANIFEST} cannot be read") from error
        raise GlauberError(
            f"the run {folder} has format {number}, but this version of glauber reads format "
            f"{FORMAT}: use a newer glauber."
        )

    def to_bytes(self) -> bytes:
        """The content of run.json, sealed by a digest of its entries."""
        entries = {"format": FORMAT, **vars(self), "spec": record_of(self.spec)}
        seal = digest(json.dumps(entries, sort_keys=True).encode())
        text = json.dumps(entries | {"digest": seal}, indent=1, ensure_ascii=False)
        return f"{text}\n".encode("utf-8", "surrogatepass")

    @property
    def n_full(self) -> int:
        """The number of full segments."""
        return self.steps // self.segment_steps

    @property
    def tail(self) -> str | None:
        """The file of the last segment; None where the last segment has no steps."""
        if self.steps % self.segment_steps == 0:
            return None
        if self.steps == self.spec.steps:
            return f"{EVENTS}/{self.n_full:08}-{self.steps:08}.parquet"
        return f"tail-{self.steps:08}.parquet"

    def events_file(self, number: int) -> str | None:
        """The file with the events of a segment; None where it has no steps."""
        return f"{EVENTS}/{number:08}.parquet" if number < self.n_full else self.tail

    def segment_files(self) -> Iterator[tuple[str, int, int]]:
        """The files of a run of so many steps, and the steps (first, last] that each contains."""
        yield START, 0, 0
        for number in range(self.n_full):
            first, last = number * self.segment_steps, (number + 1) * self.segment_steps
            yield f"{EVENTS}/{number:08}.parquet", first, last
            yield state_file(number + 1), last, last
        if self.tail is not None:
            yield self.tail, self.n_full * self.segment_steps, self.steps

    def needed_files(self) -> list[str]:
        """The names of these files."""
        return [name for name, _, _ in self.segment_files()]

    def with_steps(self, steps: int, spec: Spec, digests: Mapping[str, str]) -> "Manifest":
        """The manifest of a run of so many steps, with the digests of its files."""
        manifest = replace(self, steps=steps, spec=spec)
        names = manifest.needed_files()
        names += [name for name in digests if name.startswith(f"{TOKENIZER}/")]
        return replace(manifest, files={name: digests[name] for name in names if name in digests})


def state_file(number: int) -> str:
    """The file with the tokens before a segment."""
    return START if number == 0 else f"{STATES}/{number:08}.parquet"


def footer_of(manifest: Manifest, first: int, last: int) -> dict[str, Any]:
    """What the footer of a segment says: its run, its steps, and what may change about a run."""
    record = record_of(manifest.spec)
    changing = {name: record[name] for name in CHANGING if name in record}
    return {"run": manifest.run, "first": first, "last": last, "spec": changing}


# ---- the log


class FolderLog(Log):
    """The log in a folder, opened for reading, or with `write` for writing.

    Every file is compared with its digest when it is read. A reader next to a writer sees the steps
    that were committed when it was opened, until it calls `newest`.
    """

    folder: Path

    def __init__(self, folder: str | Path, *, write: bool = False) -> None:
        self.folder = Path(folder)
        self._tables: OrderedDict[tuple[str, str], ArrayTable] = OrderedDict()
        self._decoding = threading.RLock()
        self._lock: int | None = None
        self._growing: Segment | None = None  # the last segment, while this log is the writer
        self._adopt(Manifest.read(self.folder))
        if write:
            self._lock = take_lock(self.folder)
            try:
                self._begin_writing()
            except BaseException:
                self.close()
                raise

    @classmethod
    def create(
        cls,
        folder: str | Path,
        spec: Spec,
        tokens: NDArray[Any],
        free: NDArray[np.bool_],
        n_slots: int = 1,
        *,
        rejects: bool = False,
        save_tokenizer: Callable[[Path], None] | None = None,
        segment_steps: int | None = None,
        call: Call | None = None,
    ) -> "FolderLog":
        """A new log without steps, opened for writing.

        The arguments are those of `MemoryLog`; save_tokenizer writes the files of a tokenizer into
        a folder. The run's folder appears complete or not at all.
        """
        folder = Path(folder)
        columns = {TOKENS: np.asarray(tokens, np.int32), "free": np.asarray(free, np.bool_)}
        header: dict[str, Any] = {
            "fields": event_fields(rejects),
            "chains": len(tokens),
            "slots": n_slots,
            "segment_steps": segment_steps or default_segment_steps(len(tokens), n_slots),
        }
        run = content_digest(columns, header | {"spec": spec_digest(spec)})
        manifest = Manifest(spec, run, **header, call=None if call is None else call.to_dict())

        def fill(draft: Path) -> None:
            (draft / EVENTS).mkdir()
            (draft / STATES).mkdir()
            if save_tokenizer is not None:
                save_tokenizer(draft / TOKENIZER)
            files = tokenizer_digests(draft)
            about = {"run": run, "spec": record_of(spec), "tokenizer": files, "call": manifest.call}
            about |= header
            start = encode(columns, about)
            (draft / START).write_bytes(start)
            files = {START: digest(start), **files}
            (draft / MANIFEST).write_bytes(replace(manifest, files=files).to_bytes())

        create_folder(folder, fill)
        return cls(folder, write=True)

    def _adopt(self, manifest: Manifest) -> None:
        self._manifest, self.spec, self.steps = manifest, manifest.spec, manifest.steps
        self.fields, self.segment_steps = manifest.fields, manifest.segment_steps
        self.n_chains, self.n_slots = manifest.chains, manifest.slots
        self.call = None if manifest.call is None else Call(**manifest.call)

    @property
    def free(self) -> NDArray[np.bool_]:
        """The sites that may be redrawn, (chains, length)."""
        free = self._array(0, "free").copy()
        if free.shape != self._array(0, TOKENS).shape or not free.any(axis=1).all():
            raise damage(self.folder, "a chain has no free site")
        return free

    @cached_property
    def _length(self) -> int:
        return int(self._array(0, TOKENS).shape[1])

    def tokenizer(self) -> Path:
        """The folder of the tokenizer; refuses one that is not what was committed."""
        for item in tokenizer_damages(self.folder, self._manifest):
            raise damage(self.folder, str(item))
        return self.folder / TOKENIZER

    def check_files(self) -> None:
        """Refuse a run of which a file is missing, without reading the others."""
        for name in self._manifest.files:
            if not (self.folder / name).is_file():
                raise damage(self.folder, f"{name} is missing")

    def verify(self) -> None:
        """Compare every file with its digest; refuse a run that is damaged."""
        for item in file_damages(self.folder, self._manifest):
            raise damage(self.folder, str(item))

    def newest(self) -> Self:
        """A reader of the steps that are committed now; it shares what was decoded before."""
        manifest = Manifest.read(self.folder)
        if manifest == self._manifest and manifest.steps == self.steps:
            return self
        log = copy.copy(self)
        log._adopt(manifest)
        log._lock = log._growing = None
        return log

    def segment(self, number: int) -> Segment:
        """The segment that begins at step number * segment_steps; the last may have no steps."""
        first = number * self.segment_steps
        if self._growing is not None and self._growing.first == first:
            return self._growing
        read = cache(partial(self._array, number))
        return Segment(first, LazyArrays((TOKENS, *self.fields), read))

    def _array(self, number: int, name: str) -> NDArray[Any]:
        """An array of a segment; a writer may replace the tail between two reads of a reader."""
        while True:
            manifest = self._manifest
            try:
                with self._decoding:
                    return self._decode(manifest, number, name)
            except DamagedRun:
                newest = Manifest.read(self.folder)
                if newest == manifest or newest.run != manifest.run or newest.steps < self.steps:
                    raise
                self._manifest = newest

    def _decode(self, manifest: Manifest, number: int, name: str) -> NDArray[Any]:
        per_chain = name in (TOKENS, "free")
        file = state_file(number) if per_chain else manifest.events_file(number)
        if file is None:
            return empty_events([name], (self.n_chains, 0, self.n_slots))[name]
        try:
            table = self._table(manifest, file)
            if per_chain:
                rows = table.rows(name, self.n_chains)
                if number and rows.shape[1] != self._length:
                    raise ValueError("the texts have another length")
                return rows
            first = number * self.segment_steps
            n_steps = min(self.segment_steps, manifest.steps - first)
            events = table.events(name, first, (n_steps, self.n_chains, self.n_slots))
            if name == "site" and events.max(initial=PAD) >= self._length:
                raise ValueError("a site is outside the text")
            return events[:, : self.steps - first]  # the tail may have grown
        except DamagedRun:
            raise
        except UNREADABLE as error:
            raise damage(self.folder, f"{file} cannot be read") from error

    def _table(self, manifest: Manifest, file: str) -> ArrayTable:
        """A file that the manifest names; those that were used last are kept."""
        key = file, manifest.files[file]
        if key not in self._tables:
            content = read_file(self.folder, file)
            if digest(content) != manifest.files[file]:
                raise damage(self.folder, f"{file} is not what was committed")
            self._tables[key] = ArrayTable(content)
        self._tables.move_to_end(key)
        while len(self._tables) > 1 and self._cached_bytes() > CACHED_BYTES:
            self._tables.popitem(last=False)
        return self._tables[key]

    def _cached_bytes(self) -> int:
        return sum(table.nbytes for table in self._tables.values())

    # ---- writing

    def _begin_writing(self) -> None:
        self._adopt(Manifest.read(self.folder))
        with explained_errors(self.folder):
            remove_strays(self.folder, self._manifest.files)
        number = self._manifest.n_full
        arrays = {name: self._array(number, name) for name in (TOKENS, *self.fields)}
        self._growing = Segment(number * self.segment_steps, arrays)
        self._tables.clear()

    def append(self, events: Events) -> None:
        """Add steps and commit them: when this returns, they outlast a power cut.

        If writing fails, the log is closed, and its folder has the steps of the commit before.
        """
        segment = self._writable()
        events = stored_events(events, self.fields, (self.n_chains, self.n_slots))
        digests, steps = dict(self._manifest.files), self.steps
        with self._closed_on_failure():
            for part in split_events(events, steps, self.segment_steps):
                steps += part["site"].shape[1]
                joined = join_events([{name: segment.arrays[name] for name in part}, part])
                segment = Segment(segment.first, {**segment.arrays, **joined})
                if steps % self.segment_steps == 0:
                    segment = self._write_full(segment, steps, digests)
            if steps > self.steps:
                self._commit(steps, self.spec, segment, digests)

    def describe(self, spec: Spec) -> None:
        """Commit another number of planned steps, device or versions; the rest cannot change."""
        segment = self._writable()
        check_described(self.spec, spec, str(self.folder))
        if spec != self.spec:
            with self._closed_on_failure():
                self._commit(self.steps, spec, segment, dict(self._manifest.files))

    def _writable(self) -> Segment:
        if self._growing is None:
            raise GlauberError(f"the run {self.folder} is not open for writing.")
        return self._growing

    @contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        try:
            with explained_errors(self.folder):
                yield
        except BaseException:
            self.close()
            raise

    def _write_full(self, segment: Segment, last: int, digests: dict[str, str]) -> Segment:
        """Write a full segment and the state after it; the empty segment that follows."""
        number = segment.first // self.segment_steps
        tokens = segment.tokens_after(last)
        columns = event_columns(segment, self.fields)
        about = footer_of(self._manifest, segment.first, last)
        self._write(f"{EVENTS}/{number:08}.parquet", encode(columns, about), digests)
        state = encode({TOKENS: tokens}, footer_of(self._manifest, last, last))
        self._write(state_file(number + 1), state, digests)
        sync(self.folder / EVENTS, self.folder / STATES)
        no_events = empty_events(self.fields, (self.n_chains, 0, self.n_slots))
        return Segment(last, {TOKENS: tokens, **no_events})

    def _write(self, name: str, content: bytes, digests: dict[str, str]) -> None:
        write_file(self.folder / name, content)
        digests[name] = digest(content)

    def _commit(self, steps: int, spec: Spec, segment: Segment, digests: dict[str, str]) -> None:
        """Write the tail, then the manifest, and then remove the tail before."""
        described = replace(self._manifest, steps=steps, spec=spec)
        if described.tail is not None and described.tail not in digests:
            columns = event_columns(segment, self.fields)
            about = footer_of(described, segment.first, steps)
            self._write(described.tail, encode(columns, about), digests)
            sync((self.folder / described.tail).parent)
        manifest = self._manifest.with_steps(steps, spec, digests)
        write_manifest(self.folder, manifest)
        outdated = self._manifest.tail
        self._adopt(manifest)
        self._growing = segment
        if outdated is not None and outdated not in manifest.files:
            (self.folder / outdated).unlink(missing_ok=True)

    def close(self) -> None:
        """Let another process write; what is committed can still be read."""
        self._growing = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace run.json: the commit."""
    write_file(folder / MANIFEST, manifest.to_bytes())
    sync(folder)


def tokenizer_digests(folder: Path) -> dict[str, str]:
    """The digests of the files of a tokenizer by their names; hidden files are none of it."""
    paths = [path for path in sorted((folder / TOKENIZER).rglob("*")) if not path.is_dir()]
    names = [path.relative_to(folder).as_posix() for path in paths]
    return {name: digest(read_file(folder, name)) for name in names if NAMED.fullmatch(name)}


class FileDamage(NamedTuple):
    """A file that is not what was committed."""

    name: str
    reason: str
    first: int | None = None  # the steps it is about, first <= step < last
    last: int | None = None

    def __str__(self) -> str:
        steps = f" (steps {self.first} to {self.last})" if self.first != self.last else ""
        return f"{self.name} {self.reason}{steps}"


def file_damage(folder: Path, name: str, manifest: Manifest) -> str | None:
    """What is wrong with a file; None where it is what was committed."""
    try:
        content = read_file(folder, name)
    except FileNotFoundError:
        return "is missing"
    except (OSError, ValueError):
        return "cannot be read"
    return None if digest(content) == manifest.files.get(name) else "is not what was committed"


def file_damages(folder: Path, manifest: Manifest) -> Iterator[FileDamage]:
    """The files that are not what the manifest says, in the order of steps."""
    for name, first, last in manifest.segment_files():
        if reason := file_damage(folder, name, manifest):
            yield FileDamage(name, reason, first, last)
    yield from tokenizer_damages(folder, manifest)


def tokenizer_damages(folder: Path, manifest: Manifest) -> list[FileDamage]:
    """The damaged files of the tokenizer, and files that are none of it but might be read.

    Where there is a tokenizer.json, that alone is read, and other files do no harm.
    """
    names = [name for name in manifest.files if name.startswith(f"{TOKENIZER}/")]
    reasons = {name: file_damage(folder, name, manifest) for name in names}
    if f"{TOKENIZER}/tokenizer.json" not in names:
        paths = (path for path in sorted((folder / TOKENIZER).rglob("*")) if not path.is_dir())
        others = {path.relative_to(folder).as_posix() for path in paths} - {*names}
        reasons |= {n: "is not part of the run" for n in sorted(others) if NAMED.fullmatch(n)}
    return [FileDamage(name, reason) for name, reason in reasons.items() if reason is not None]
