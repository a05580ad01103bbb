"""How are a run's events kept so that a kill or a power cut loses nothing that was committed?

    RUN/run.json        how it was made
    RUN/events.zarr     what happened: (chain, step, slot) arrays, and tokens at regular marks
    RUN/committed.json  how many steps are safely there, and their digests: replaced atomically
    RUN/*.copy.json     both small files once more, each written after its first
    RUN/finished.json   the finish mark
    RUN/tokenizer/      what turns tokens into text
    RUN/lock            held by the one writer

Steps are written and synced first and committed after; what lies beyond the commit is cut off on
reopening. A chunk grows by being replaced, so whoever reads it sees its committed beginning.
"""

import errno
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glauber.errors import DamagedRun, GlauberError
from glauber.json_text import parse_json
from glauber.runs.integrity import (
    COPIES,
    EVENTS,
    Commit,
    damaged,
    digest_of,
    measured,
    refuse_files,
)
from glauber.runs.spec import (
    DRAFT,
    HEADER,
    Spec,
    read_spec,
    restored,
    spec_digest,
    sync,
    write_spec,
    write_twice,
)

if TYPE_CHECKING:
    import zarr

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
    with explained(folder):
        group = zarr.open_group(folder / EVENTS, mode="w-")
        for name, (dtype, nothing) in (FIELDS | (ACCEPTED if rejects else {})).items():
            _array(group, name, (n_chains, 0, n_slots), (n_chains, every, n_slots), dtype, nothing)
        _array(group, "tokens", (1, n_chains, length), (1, n_chains, length), "int32", -1)
        _array(group, "free", (n_chains, length), (n_chains, length), "bool", False)
        group["tokens"][0] = start  # type: ignore[index]
        group["free"][:] = free  # type: ignore[index]
        group.attrs["steps_between_marks"] = every
        _consolidate(folder)


def seal(folder: Path, spec: Spec) -> None:
    """The first commit of a new run, once its arrays and its tokenizer are there."""
    with explained(folder):
        write_spec(folder, spec)
        write_commit(folder, measure(folder, spec))


def measure(folder: Path, spec: Spec, steps: int = 0) -> Commit:
    """The commit of so many steps that lie there, taken to be right."""
    group = open_group(folder)
    return measured(folder, group, fields_of(group), steps=steps, of=spec_digest(spec))


def write_commit(folder: Path, commit: Commit) -> None:
    """Writes `committed.json` atomically, and then its copy."""
    write_twice(folder / COMMIT, commit.to_dict())


def read_commit(folder: Path, name: str = COMMIT) -> Commit:
    """What is safely stored."""
    try:
        return Commit.read(folder / name)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(folder, f"{name} cannot be read", restored(folder, name)) from error


def current_commit(folder: Path) -> Commit:
    """What is safely stored; refuses a commit older than its copy, which no writer leaves."""
    try:
        copy = read_commit(folder, COPIES[COMMIT])  # first: a writer at work writes it last
    except DamagedRun:
        return read_commit(folder)
    found = read_commit(folder)
    if copy.of == found.of and copy.steps > found.steps:
        raise damaged(folder, f"{COMMIT} is older than its copy", restored(folder, COMMIT))
    return found


def committed_steps(folder: Path) -> int:
    """How many steps of every chain are safely stored."""
    return read_commit(folder).steps


def finish_mark(folder: Path) -> int | None:
    """The steps that the finish mark speaks of; None where there is none or it is no such mark."""
    try:
        found = parse_json((folder / FINISH).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    steps = found.get("steps") if isinstance(found, dict) and len(found) == 1 else None
    return steps if isinstance(steps, int) else None


def check_together(folder: Path, spec: Spec, commit: Commit) -> None:
    """Refuses a spec, a commit and headers of arrays that are not of one run."""
    if spec_digest(spec) != commit.of:
        hope = restored(folder, HEADER)
        raise damaged(folder, f"{HEADER} and {COMMIT} are not of one run", hope)
    hope = f"`glauber repair {folder}` may restore it"
    refuse_files(folder, commit, inside=EVENTS, hope=hope)
    for name in wrong_shapes(folder, commit):
        raise damaged(folder, f"{name} has another shape", hope)


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
        raise damaged(folder, f"{EVENTS} cannot be opened") from error


def fields_of(group: "zarr.Group") -> list[str]:
    """The fields of a store's events."""
    return [*FIELDS, *(name for name in ACCEPTED if name in group)]


def chunk_file(name: str, place: int) -> str:
    """The file of one chunk of an array: the events of so many steps, or the tokens at a mark."""
    if name == "free":
        return f"{EVENTS}/free/c/0/0"
    inside = f"{place}/0" if name == "tokens" else f"0/{place}"
    return f"{EVENTS}/{name}/c/{inside}/0"


def refuse_missing(folder: Path, group: "zarr.Group", commit: Commit) -> None:
    """Refuses a chunk file that is not there though it holds something; zarr reads it as empty.

    Chunks of nothing but empty slots need not be there. Digests tell which ones; in earlier formats
    a chunk of `changed`, and in generations any chunk of events, is not asked for.
    """
    needed = [("tokens", mark) for mark in range(1 + commit.steps // commit.every)] + [("free", 0)]
    if commit.of or read_spec(folder).unmasking is None:
        names = commit.digests or fields_of(group)
        needed += [(name, place) for name in names for place in range(commit.places)]
    for name, place in needed:
        if (folder / chunk_file(name, place)).is_file():
            continue
        if _holds_something(group, commit, name, place) if commit.of else name != "changed":
            raise damaged(folder, f"{chunk_file(name, place)} is missing")


def _holds_something(group: "zarr.Group", commit: Commit, name: str, place: int) -> bool:
    array: Any = group[name]
    shape = array.shape if name == "free" else array.shape[1:]
    if name in commit.digests:
        first, last = commit.span(place)
        shape = (array.shape[0], last - first, array.shape[2])
    empty = np.full(shape, array.fill_value, array.dtype)
    return digest_of(empty) != commit.expected(name, place)


def read_headers(folder: Path) -> dict[str, dict[str, Any]]:
    """The headers of the arrays by their names, and that of the group by the empty name."""
    known = sorted((*FIELDS, *ACCEPTED, "tokens", "free"))
    names = [name for name in known if (folder / EVENTS / name / "zarr.json").is_file()]
    return {
        name: parse_json((folder / EVENTS / name / "zarr.json").read_bytes())
        for name in ("", *names)
    }


def with_shapes(headers: dict[str, Any], steps: int, every: int) -> dict[str, dict[str, Any]]:
    """The headers of a run of so many steps; all but the steps follows from the chunks."""
    arrays = {name: one for name, one in headers.items() if name}
    grown = {name: one | {"shape": _shape(name, one, steps, every)} for name, one in arrays.items()}
    inner = headers[""]["consolidated_metadata"]
    told = {name: one | {"shape": grown[name]["shape"]} for name, one in inner["metadata"].items()}
    return grown | {"": headers[""] | {"consolidated_metadata": inner | {"metadata": told}}}


def _shape(name: str, header: dict[str, Any], steps: int, every: int) -> list[int]:
    first, *rest = header["chunk_grid"]["configuration"]["chunk_shape"]
    if name == "free":
        return [first, *rest]
    return [1 + steps // every, *rest] if name == "tokens" else [first, steps, rest[1]]


def header_files(headers: dict[str, Any]) -> dict[str, bytes]:
    """Headers as files, by their paths in the run's folder."""
    place = {name: f"{EVENTS}/{name}/zarr.json" for name in headers} | {"": f"{EVENTS}/zarr.json"}
    return {place[name]: json.dumps(one, indent=2).encode() for name, one in headers.items()}


def wrong_shapes(folder: Path, commit: Commit) -> list[str]:
    """The headers of arrays that are not as large as the committed steps need."""
    headers = read_headers(folder)
    fits = with_shapes(headers, commit.steps, commit.every)
    told = headers[""]["consolidated_metadata"]["metadata"]
    wrong = set()
    for name in (*commit.digests, "tokens", "free"):
        axis = {"free": None, "tokens": 0}.get(name, 1)  # what grows beyond the commit
        for where, one in ((f"{EVENTS}/{name}", headers[name]), (EVENTS, told[name])):
            if not _reaches(one.get("shape"), fits[name]["shape"], axis):
                wrong.add(f"{where}/zarr.json")
    return sorted(wrong)


def _reaches(shape: Any, needed: list[int], axis: int | None) -> bool:
    if not isinstance(shape, list) or len(shape) != len(needed):
        return False
    return all(
        one == other or (place == axis and isinstance(one, int) and one > other)
        for place, (one, other) in enumerate(zip(shape, needed, strict=True))
    )


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Says in one sentence why something could not be written."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise GlauberError(
                f"the disk is full; {folder} holds what was committed: make room, then resume it."
            ) from error
        raise GlauberError(f"{folder} cannot be written: {error.strerror or error}.") from error
