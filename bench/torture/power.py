"""Is everything that was called committed there after the power goes at any moment?

Every sync of an operation is written down: of a file its bytes, of a folder its names. After a cut
behind the j-th sync, a strict disk holds this and nothing else: names that were synced, with bytes
that were synced. A ragged disk also holds some of what was not synced: of each new, replaced or
removed name, and of each file's bytes, the old or the new, or of the bytes a part.
"""

import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any
from unittest.mock import patch

from bench.torture.operations import Operation, operations
from bench.torture.subjects import small_parts
from glauber.sampling.session import Writer

Names = dict[str, int]  # the inode of each name in a folder


@dataclass
class Tree:
    """Folders and files by their inodes, as they are or as a disk has them."""

    folders: dict[int, Names] = field(default_factory=dict)
    files: dict[int, bytes] = field(default_factory=dict)

    def copy(self) -> "Tree":
        return Tree(dict(self.folders), dict(self.files))

    def build(self, inode: int, place: Path, kinds: dict[int, bool]) -> None:
        """The folder of that inode as real files; kinds tells which inodes are folders."""
        place.mkdir()
        for name, inner in self.folders.get(inode, {}).items():
            if kinds[inner]:
                self.build(inner, place / name, kinds)
            else:
                (place / name).write_bytes(self.files.get(inner, b""))


@dataclass
class Moment:
    """Before a sync takes effect."""

    durable: Tree
    live: Tree
    steps: int  # that were committed: the call had returned


class Disk:
    """Sees every sync below a folder, and what there is at that time."""

    def __init__(self, home: Path) -> None:
        self.home, self.steps = home, 0
        self.kinds: dict[int, bool] = {}  # whether an inode is a folder
        self.moments: list[Moment] = []
        self._held: list[int] = []  # descriptors: no inode is used twice
        self._read: dict[int, tuple[tuple[int, int], bytes]] = {}  # by inode: when, and what
        self._lock = Lock()
        self.durable = self.live()  # what is there at the beginning was synced long ago
        self.root = home.stat().st_ino

    def live(self) -> Tree:
        """Everything that processes see now."""
        found = Tree()
        self._scan(self.home, found)
        return found

    def _scan(self, folder: Path, found: Tree) -> None:
        names = found.folders[folder.stat().st_ino] = self._names(str(folder))
        for name, inode in names.items():
            if self.kinds[inode]:
                self._scan(folder / name, found)
            else:
                found.files[inode] = self._bytes(inode, str(folder / name))

    def _bytes(self, inode: int, path: str) -> bytes:
        """A file's bytes, read again where it was written."""
        now = os.stat(path)
        when = (now.st_mtime_ns, now.st_size)
        if inode not in self._read or self._read[inode][0] != when:
            self._read[inode] = (when, Path(path).read_bytes())
        return self._read[inode][1]

    def _names(self, folder: str) -> Names:
        found: Names = {}
        for name in os.listdir(folder):
            handle = os.open(f"{folder}/{name}", os.O_PATH | os.O_NOFOLLOW)
            now = os.fstat(handle)
            if now.st_ino in self.kinds:
                os.close(handle)
            else:
                self._held.append(handle)
                self.kinds[now.st_ino] = stat.S_ISDIR(now.st_mode)
            found[name] = now.st_ino
        return found

    def sync(self, handle: int) -> None:
        """In the place of os.fsync."""
        place = f"/proc/self/fd/{handle}"
        inode = os.fstat(handle).st_ino
        with self._lock:
            if not os.readlink(place).startswith(str(self.home)):
                return
            self.moments.append(Moment(self.durable.copy(), self.live(), self.steps))
            if os.path.isdir(place):
                self.durable.folders[inode] = self._names(place)
            else:
                self.durable.files[inode] = Path(place).read_bytes()

    def end(self) -> None:
        """The moment after everything."""
        self.moments.append(Moment(self.durable.copy(), self.live(), self.steps))

    def close(self) -> None:
        for handle in self._held:
            os.close(handle)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Sees the syncs and the commits of this process."""
        append = Writer.append

        def said(writer: Writer, *args: Any) -> None:
            append(writer, *args)
            self.steps = writer.steps

        with ExitStack() as stack:
            stack.enter_context(patch.object(os, "fsync", self.sync))
            stack.enter_context(patch.object(Writer, "append", said))
            for name in ("replace", "rename", "unlink"):  # not while another thread's sync is seen
                stack.enter_context(patch.object(os, name, self._alone(getattr(os, name))))
            yield

    def _alone(self, change: Callable[..., None]) -> Callable[..., None]:
        def alone(*args: Any, **options: Any) -> None:
            with self._lock:
                change(*args, **options)

        return alone


def ragged(moment: Moment, draw: random.Random) -> Tree:
    """A disk that has some of what was not synced, each change for itself."""
    share, old, new = draw.choice((0.1, 0.5, 0.9)), moment.durable, moment.live
    found = Tree()
    for inode in old.folders | new.folders:
        before, after = old.folders.get(inode, {}), new.folders.get(inode)
        after = before if after is None else after
        chosen = {n: (after if draw.random() < share else before).get(n) for n in before | after}
        found.folders[inode] = {n: one for n, one in chosen.items() if one is not None}
    for inode in old.files | new.files:
        before, after = old.files.get(inode, b""), new.files.get(inode, old.files.get(inode, b""))
        torn = after[: draw.randrange(len(after) + 1)]
        found.files[inode] = draw.choice((after, before, torn)) if before != after else after
    return found


def recorded(operation: Operation, home: Path) -> Disk:
    """An operation from its beginning to its end, with every sync."""
    folder = operation.prepare(home)
    disk = Disk(home)
    disk.steps = operation.least
    with disk.watching(), small_parts(operation.seconds):
        operation.act(folder)
    disk.end()
    return disk


def cut(operation: Operation, disk: Disk, tree: Tree, steps: int) -> list[str]:
    """What is wrong after a cut that left this on the disk."""
    shutil.rmtree(disk.home, ignore_errors=True)
    tree.build(disk.root, disk.home, disk.kinds)
    return operation.check(disk.home / "run", steps)


def power(home: Path, *, count: int = 200, seed: int = 0, names: tuple[str, ...] = ()) -> int:
    """So many cuts of every operation; prints a line for each, returns failures."""
    draw, failed = random.Random(seed), 0
    for operation in operations(home / "made", names):
        disk = recorded(operation, home / "trial")
        last = len(disk.moments) - 1
        every = sorted(draw.sample(range(last), min(count // 2, last)))
        cuts = [(at, kind) for at in [*every, last] for kind in ("strict", "ragged")]
        wrong = {"strict": 0, "ragged": 0}
        for at, kind in cuts:
            moment = disk.moments[at]
            tree = moment.durable if kind == "strict" else ragged(moment, draw)
            why = cut(operation, disk, tree, moment.steps)
            wrong[kind] += bool(why)
            if why:
                where = f"{operation.name}, {kind}, sync {at} of {last}, {moment.steps} steps"
                print(f"  FAILED {where}: {'; '.join(why)}", flush=True)
        disk.close()
        print(
            f"power, {operation.name}: {last} syncs, {len(cuts)} cuts, "
            f"{wrong['strict']} failed on a strict disk, {wrong['ragged']} on a ragged one"
        )
        failed += sum(wrong.values())
    return failed
