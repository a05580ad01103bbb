"""A disk that loses what was not synced when the power goes.

Every sync is written down: of a file its bytes, of a folder its names.
"""

import os
import random
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any
from unittest.mock import patch

Names = dict[str, int]  # the inode of each name in a folder


@dataclass
class Tree:
    """Folders and files by their inodes, as they are or as a disk has them."""

    folders: dict[int, Names] = field(default_factory=dict)
    files: dict[int, bytes] = field(default_factory=dict)

    def copy(self) -> "Tree":
        return Tree(dict(self.folders), dict(self.files))

    def build(self, inode: int, path: Path, kinds: dict[int, bool]) -> None:
        """The folder of that inode as real files; kinds tells which inodes are folders."""
        path.mkdir()
        for name, inner in self.folders.get(inode, {}).items():
            if kinds[inner]:
                self.build(inner, path / name, kinds)
            else:
                (path / name).write_bytes(self.files.get(inner, b""))


@dataclass
class Moment:
    """Before a sync takes effect."""

    durable: Tree
    live: Tree
    steps: int  # that were committed: the call had returned


class Disk:
    """Sees every sync below a folder, and what there is at that time."""

    def __init__(self, home: Path) -> None:
        self.home, self.steps = home, -1
        self.kinds: dict[int, bool] = {}  # whether an inode is a folder
        self.moments: list[Moment] = []
        self._handles: list[int] = []  # no inode is used twice while it is open
        self._contents: dict[int, tuple[tuple[int, int], bytes]] = {}  # by inode: when, and what
        self._lock = Lock()
        self.durable = self.live()  # what is there at the beginning was synced long ago
        self.root = home.stat().st_ino

    def live(self) -> Tree:
        """Everything that processes see now."""
        tree = Tree()
        self._scan(self.home, tree)
        return tree

    def _scan(self, folder: Path, tree: Tree) -> None:
        names = tree.folders[folder.stat().st_ino] = self._names(str(folder))
        for name, inode in names.items():
            if self.kinds[inode]:
                self._scan(folder / name, tree)
            else:
                tree.files[inode] = self._bytes(inode, str(folder / name))

    def _bytes(self, inode: int, path: str) -> bytes:
        """A file's bytes, read again where it was written."""
        now = os.stat(path)
        when = (now.st_mtime_ns, now.st_size)
        if inode not in self._contents or self._contents[inode][0] != when:
            self._contents[inode] = (when, Path(path).read_bytes())
        return self._contents[inode][1]

    def _names(self, folder: str) -> Names:
        names: Names = {}
        for name in os.listdir(folder):
            handle = os.open(f"{folder}/{name}", os.O_PATH | os.O_NOFOLLOW)
            now = os.fstat(handle)
            if now.st_ino in self.kinds:
                os.close(handle)
            else:
                self._handles.append(handle)
                self.kinds[now.st_ino] = stat.S_ISDIR(now.st_mode)
            names[name] = now.st_ino
        return names

    def sync(self, handle: int) -> None:
        """In the place of os.fsync."""
        path = f"/proc/self/fd/{handle}"
        inode = os.fstat(handle).st_ino
        with self._lock:
            if not os.readlink(path).startswith(str(self.home)):
                return
            self.moments.append(Moment(self.durable.copy(), self.live(), self.steps))
            if os.path.isdir(path):
                self.durable.folders[inode] = self._names(path)
            else:
                self.durable.files[inode] = Path(path).read_bytes()

    def end(self) -> None:
        """The moment after everything."""
        self.moments.append(Moment(self.durable.copy(), self.live(), self.steps))

    def close(self) -> None:
        for handle in self._handles:
            os.close(handle)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See the syncs of this process."""
        with ExitStack() as stack:
            stack.enter_context(patch.object(os, "fsync", self.sync))
            for name in ("replace", "rename", "unlink"):  # not while another thread's sync is seen
                stack.enter_context(patch.object(os, name, self._alone(getattr(os, name))))
            yield

    def commit(self, steps: int) -> None:
        """So many steps are committed now: the call has returned."""
        self.steps = steps

    def _alone(self, change: Callable[..., None]) -> Callable[..., None]:
        def alone(*args: Any, **options: Any) -> None:
            with self._lock:
                change(*args, **options)

        return alone


def ragged(moment: Moment, draw: random.Random) -> Tree:
    """A disk that has some of what was not synced, each change for itself."""
    share, old, new = draw.choice((0.1, 0.5, 0.9)), moment.durable, moment.live
    tree = Tree()
    for inode in old.folders | new.folders:
        before, after = old.folders.get(inode, {}), new.folders.get(inode)
        after = before if after is None else after
        chosen = {n: (after if draw.random() < share else before).get(n) for n in before | after}
        tree.folders[inode] = {n: inner for n, inner in chosen.items() if inner is not None}
    for inode in old.files | new.files:
        before, after = old.files.get(inode, b""), new.files.get(inode, old.files.get(inode, b""))
        torn = after[: draw.randrange(len(after) + 1)]
        tree.files[inode] = draw.choice((after, before, torn)) if before != after else after
    return tree
