"""Is what a run's folder holds what its writer committed?

A digest is a 64-bit BLAKE2b of content, not of files: of the decoded values of the committed steps
in a chunk, in the order (steps, chains, slots), little endian. So a chunk that holds more than was
committed, or that zarr left out because it is empty, has the digest of what was committed. Digests
find damage and edits; whoever means to deceive can compute them too.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glauber.errors import DamagedRun, GlauberError
from glauber.json_text import parse_json
from glauber.runs.replay import replaced

if TYPE_CHECKING:
    import zarr

EVENTS = "events.zarr"
TOKENIZER = "tokenizer"
COPIES = {"run.json": "run.copy.json", "committed.json": "committed.copy.json"}


def new_digest() -> "hashlib.blake2b":
    """A digest of nothing yet, to be updated."""
    return hashlib.blake2b(digest_size=8)


def digest(content: bytes) -> str:
    """16 letters for some bytes."""
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def in_order(values: NDArray[Any]) -> NDArray[Any]:
    """Values as they are digested: events (chains, steps, slots) by step, all little endian."""
    turned = values.transpose(1, 0, 2) if values.ndim == 3 else values
    return np.ascontiguousarray(turned, values.dtype.newbyteorder("<"))


def digest_of(values: NDArray[Any]) -> str:
    """The digest of events (chains, steps, slots), of a mark or of `free` (chains, length)."""
    return digest(in_order(values).data)  # type: ignore[arg-type]


def digest_of_json(value: Any) -> str:
    """The digest of a JSON value, however it is laid out."""
    plain = json.loads(json.dumps(value))  # keys are strings, tuples are lists
    told = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return digest(told.encode("utf-8", "surrogatepass"))


def sealed(record: dict[str, Any]) -> dict[str, Any]:
    """The record with a digest of its entries."""
    entries = {name: value for name, value in record.items() if name != "digest"}
    return entries | {"digest": digest_of_json(entries)}


def is_sealed(record: dict[str, Any]) -> bool:
    """Whether a record's digest is that of its entries."""
    return "digest" in record and sealed(record)["digest"] == record["digest"]


def header_digest(content: bytes) -> str:
    """The digest of a `zarr.json` without its shapes, which grow with the run."""
    return digest_of_json(_shapeless(parse_json(content)))


def _shapeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shapeless(one) for name, one in value.items() if name != "shape"}
    return [_shapeless(one) for one in value] if isinstance(value, list) else value


def file_digest(path: Path) -> str | None:
    """The digest of a file of a run; None where it cannot be read."""
    try:
        content = path.read_bytes()
        return header_digest(content) if path.name == "zarr.json" else digest(content)
    except (OSError, ValueError, RecursionError):
        return None


def kept_files(folder: Path) -> list[str]:
    """The files that are digested whole: the tokenizer's, and the headers of the arrays."""
    saved = [path for path in (folder / TOKENIZER).rglob("*") if path.is_file()]
    mine = [path for path in saved if not path.name.startswith(".")]  # no system's droppings
    headers = [folder / EVENTS / "zarr.json", *(folder / EVENTS).glob("*/zarr.json")]
    return sorted(path.relative_to(folder).as_posix() for path in (*mine, *headers))


@dataclass(frozen=True)
class Commit:
    """What `committed.json` says; of earlier formats only the steps."""

    steps: int
    every: int = 0  # steps between two marks
    digests: dict[str, list[str]] = field(default_factory=dict)  # of each field's chunks
    tokens: list[str] = field(default_factory=list)  # of the marks
    free: str = ""
    files: dict[str, str] = field(default_factory=dict)  # by path in the folder
    of: str = ""  # what of the spec never changes; empty in earlier formats

    @classmethod
    def read(cls, path: Path) -> "Commit":
        """The commit in that file; ValueError, or one of its like, where it is damaged."""
        found = parse_json(path.read_text(encoding="utf-8"))
        steps = int(found["steps"])
        if steps < 0 or (len(found) > 1 and not is_sealed(found)):
            raise ValueError("not what was written")
        del found["steps"]
        return cls(steps, **{name: one for name, one in found.items() if name != "digest"})

    def to_dict(self) -> dict[str, Any]:
        return sealed(asdict(self))

    @property
    def places(self) -> int:
        """Chunks of each field that are needed, the last of which may be of a part."""
        return -(-self.steps // self.every) if self.every else 0

    def span(self, place: int) -> tuple[int, int]:
        """The committed steps of a chunk."""
        return place * self.every, min(self.steps, (place + 1) * self.every)

    def expected(self, name: str, place: int) -> str | None:
        """The digest of a chunk of a field, of a mark (`tokens`) or of `free`."""
        listed = {"tokens": self.tokens, "free": [self.free]}.get(name, self.digests.get(name, []))
        return listed[place] if place < len(listed) else None

    def cut(self, places: int) -> "Commit":
        """The same run with only its first chunks."""
        return Commit(
            min(self.steps, places * self.every),
            self.every,
            {name: listed[:places] for name, listed in self.digests.items()},
            self.tokens[: places + 1],
            self.free,
            self.files,
            self.of,
        )


def measured(
    folder: Path, group: "zarr.Group", fields: Iterable[str], *, steps: int, of: str
) -> Commit:
    """The commit of what lies there, taken to be right: of a new run, or after a replay."""
    bare = Commit(steps, int(group.attrs["steps_between_marks"]))  # type: ignore[arg-type]
    arrays: dict[str, Any] = {name: group[name] for name in (*fields, "tokens", "free")}
    spans = [slice(*bare.span(place)) for place in range(bare.places)]
    digests = {name: [digest_of(arrays[name][:, part]) for part in spans] for name in fields}
    marks = [digest_of(arrays["tokens"][mark]) for mark in range(1 + steps // bare.every)]
    files = {name: str(file_digest(folder / name)) for name in kept_files(folder)}
    return Commit(steps, bare.every, digests, marks, digest_of(arrays["free"][:]), files, of)


def damaged(folder: Path, what: str, hope: str = "") -> DamagedRun:
    """The refusal of a damaged run."""
    return DamagedRun(f"the run {folder} is damaged: {what}{hope and '; ' + hope}.")


def damaged_files(folder: Path, commit: Commit, *, inside: str) -> list[str]:
    """The files below `inside` that are not what was committed.

    Where the tokenizer is one `tokenizer.json`, that alone is read, and a stranger beside it does
    no harm; elsewhere it might.
    """
    kept = [name for name in commit.files if name.startswith(f"{inside}/")]
    wrong = [name for name in kept if file_digest(folder / name) != commit.files[name]]
    if inside == TOKENIZER and f"{TOKENIZER}/tokenizer.json" not in kept:
        there = [name for name in kept_files(folder) if name.startswith(f"{inside}/")]
        wrong += [name for name in there if name not in kept]
    return wrong


def refuse_files(folder: Path, commit: Commit, *, inside: str, hope: str) -> None:
    """Refuses a run of which a file below `inside` is not what was committed."""
    for name in damaged_files(folder, commit, inside=inside):
        raise damaged(folder, f"{name} is not what was committed", hope)


class Checked:
    """The arrays of a run; each chunk that is read is compared with its digest."""

    def __init__(self, folder: Path, group: "zarr.Group", commit: Commit) -> None:
        self.folder, self.group, self.commit = folder, group, commit
        self.has_digests = bool(commit.of)
        self.fields = list(commit.digests)
        self._sound: set[tuple[str, int]] = set()  # what was whole when it was last read

    def array(self, name: str) -> Any:
        try:
            return self.group[name]
        except KeyError as error:
            raise damaged(self.folder, f"{EVENTS} lacks {name}") from error
        except Exception as error:  # what zarr raises depends on where its header is broken
            why = f"{EVENTS}/{name}/zarr.json cannot be read"
            raise damaged(self.folder, why) from error

    def events(self, name: str, first: int, last: int) -> NDArray[Any]:
        """A field of the events (chains, steps, slots), cut out of whole chunks."""
        array = self.array(name)
        if not self.has_digests or last <= first:
            return self._read(name, 0, lambda: array[:, first:last])
        every = self.commit.every
        places = range(first // every, -(-last // every))
        begin, end = places[0] * every, self.commit.span(places[-1])[1]
        try:
            values = np.asarray(array[:, begin:end])
        except Exception as error:
            self._sound -= {(name, place) for place in places}
            torn = next((place for place in places if not self.whole(name, place)), places[0])
            raise self.refusal(name, torn) from error
        for place in places:
            part = slice(place * every - begin, (place + 1) * every - begin)
            self._compare(name, place, values[:, part])
        return values[:, first - begin : last - begin]

    def mark(self, place: int) -> NDArray[Any]:
        """The tokens (chains, length) at a mark."""
        return self._part("tokens", place)

    def free(self) -> NDArray[Any]:
        """The free sites (chains, length)."""
        return self._part("free", 0)

    def _part(self, name: str, place: int) -> NDArray[Any]:
        values = self._read(name, place, lambda: self._values(name, place))
        if self.has_digests:
            self._compare(name, place, values)
        return values

    def _values(self, name: str, place: int) -> NDArray[Any]:
        """A chunk, a mark or the free sites, not compared with anything."""
        array = self.array(name)
        if name in ("tokens", "free"):
            return np.asarray(array[place] if name == "tokens" else array[:])
        return np.asarray(array[:, slice(*self.commit.span(place))])

    def _read(self, name: str, place: int, read: Callable[[], Any]) -> NDArray[Any]:
        try:
            return np.asarray(read())
        except GlauberError:
            raise
        except Exception as error:
            self._sound.discard((name, place))
            raise self.refusal(name, place) from error

    def _compare(self, name: str, place: int, values: NDArray[Any]) -> None:
        if digest_of(values) != self.commit.expected(name, place):
            self._sound.discard((name, place))
            raise self.refusal(name, place)
        self._sound.add((name, place))

    def check(self) -> None:
        """Reads everything and refuses what is damaged."""
        self.free()
        for place in range(self.commit.places):
            self.check_part(place)
        self.mark(self.commit.steps // self.commit.every)

    def check_part(self, place: int) -> None:
        """Reads the steps from one mark to the next."""
        for name in self.fields:
            self.events(name, *self.commit.span(place))
        self.mark(place)

    def whole(self, name: str, place: int) -> bool:
        """Whether a chunk, a mark (`tokens`) or `free` is what was committed."""
        if (name, place) in self._sound:
            return True
        try:
            same = digest_of(self._values(name, place)) == self.commit.expected(name, place)
        except Exception:
            return False
        if same:
            self._sound.add((name, place))
        return same

    def sound_steps(self) -> int:
        """The longest beginning of which everything is there, or can be made again from it."""
        if not self.whole("tokens", 0) or self.free_again() is None:
            return 0
        for place in range(self.commit.places):
            if not all(self.whole(name, place) for name in self.commit.digests):
                return self.commit.span(place)[0]
        return self.commit.steps

    def free_again(self) -> NDArray[np.bool_] | None:
        """The free sites; where they are lost, those that the events tell, if the digest agrees."""
        if self.whole("free", 0):
            return self.free()
        if not self.whole("tokens", 0):
            return None
        start = self.mark(0)
        redrawn = np.zeros(start.shape, bool)
        for place in range(self.commit.places):
            if self.whole("site", place):
                sites = self._values("site", place)
                chain, step, slot = np.nonzero(sites >= 0)
                redrawn[chain, sites[chain, step, slot]] = True
        guesses = (redrawn, *_between_ends(start, redrawn))
        return next((one for one in guesses if digest_of(one) == self.commit.free), None)

    def mark_again(self, place: int, before: NDArray[Any]) -> NDArray[np.int32] | None:
        """A mark made by replay from the tokens at the mark before it, if that gives its digest."""
        sites, tokens = (self._values(name, place - 1) for name in ("site", "token"))
        found = replaced(before, sites, tokens)[1].astype(np.int32)
        return found if digest_of(found) == self.commit.expected("tokens", place) else None

    def refusal(self, name: str, place: int) -> DamagedRun:
        """Which part is damaged, and which steps are sound."""
        if not self.has_digests:
            return damaged(self.folder, f"{name} cannot be read")
        first, last = self.commit.span(place)
        what = {"tokens": f"the tokens at step {first}", "free": "free"}
        sound = self.sound_steps()
        repair = f"`glauber repair {self.folder}`"
        hope = f"no step is sound: {repair} says what can be kept"
        if sound:
            hope = f"steps 0 to {sound} are sound: {repair} keeps them"
        return damaged(self.folder, what.get(name, f"{name} of steps {first} to {last}"), hope)


def _between_ends(
    start: NDArray[Any], redrawn: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """All sites from the first to the last that may be redrawn, and those without frozen ones.

    Chains begin behind the same tokens and end before as many; a site that is frozen is redrawn in
    no chain. start and redrawn are (chains, length).
    """
    length = start.shape[1]
    sizes = (start >= 0).sum(axis=1)
    first = int(redrawn.argmax(axis=1).min())
    behind = int((sizes - length + redrawn[:, ::-1].argmax(axis=1)).min())
    at = np.arange(length)
    found = (at >= first) & (at < (sizes - behind)[:, None])
    return found, found & redrawn.any(axis=0)
