"""Files and folders that appear complete or not at all, also after a kill or a power cut."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glauber.foundation.errors import GlauberError

DRAFT = ".glauber-draft"  # how the names of unfinished files and folders end
RUN_HEADER = "run.json"  # the file that makes a folder a run
LARGEST_FILE = 2**31  # bytes of a file of a run


def digest(content: bytes) -> str:
    """The BLAKE2b digest of a file's bytes."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def digest_of_json(value: Any) -> str:
    """The digest of a JSON value, however it is laid out."""
    normalised = json.loads(json.dumps(value))  # keys are strings, tuples are lists
    text = json.dumps(normalised, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return digest(text.encode("utf-8", "surrogatepass"))


def read_file(folder: Path, name: str) -> bytes:
    """The bytes of a regular file in a folder.

    Pipes, devices, symbolic links (also of the folders in between) and files of more than 2 GiB
    are an OSError, so that nothing outside the folder is read, and nothing without an end.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in name.split("/"):
            mode = os.stat(part, dir_fd=handle, follow_symlinks=False).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise OSError(errno.EINVAL, "not a regular file")
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            inner = os.open(part, flags, dir_fd=handle)
            os.close(handle)
            handle = inner
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if status.st_size > LARGEST_FILE:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        with os.fdopen(os.dup(handle), "rb") as file:
            return file.read()
    finally:
        os.close(handle)


def write_file(path: Path, content: bytes) -> None:
    """Replace a file; its bytes are on the disk before its name is. Its folder is not synced."""
    with draft_of(path) as draft:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, 0o666), "wb") as file:
            file.write(content)


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A new name next to a file, which replaces the file when the block ends without an error."""
    draft = path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}{DRAFT}")
    try:
        yield draft
        sync(draft)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file; afterwards it outlasts a power cut."""
    content = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    write_file(path, content.encode("utf-8", "surrogatepass"))
    sync(path.parent)


def sync(*paths: Path) -> None:
    """Make files, or the names in folders, outlast a power cut."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            flush_to_disk(handle)
        finally:
            os.close(handle)


def flush_to_disk(handle: int) -> None:
    """fsync; on macOS, where fsync leaves data in the drive's cache, F_FULLFSYNC."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        try:
            fcntl.fcntl(handle, full)
            return
        except OSError:  # not every file system has it
            pass
    os.fsync(handle)


def create_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """A new folder with the files that `fill` writes, complete or not at all."""
    draft: Path | None = None
    try:
        if folder.exists() or folder.is_symlink():
            raise GlauberError(f"the folder {folder} exists already; choose another one.")
        missing = [parent for parent in folder.absolute().parents if not parent.exists()]
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".", suffix=DRAFT, dir=folder.parent))
        umask = os.umask(0o077)
        os.umask(umask)
        draft.chmod(0o777 & ~umask)  # a temporary folder is for its owner alone
        fill(draft)
        sync(*draft.rglob("*"), draft)
        os.rename(draft, folder)
        sync(folder.parent, *(parent.parent for parent in missing))
    except OSError as error:
        raise GlauberError(f"{folder} cannot be made: {error.strerror or error}.") from error
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)


def check_new(path: Path, what: str = "folder") -> None:
    """Refuse a path that exists, is inside a run or could not be made, before any work is done."""
    try:
        absolute = path.absolute()
        if not path.name or absolute == absolute.parent:
            raise GlauberError(f"{str(path)!r} is no name for a {what}.")
        if absolute.exists() or absolute.is_symlink():
            hint = ", or resume it" if (absolute / RUN_HEADER).exists() else ""
            raise GlauberError(f"the {what} {path} exists already; give another one{hint}.")
        for parent in absolute.parents:
            if (parent / RUN_HEADER).exists():
                raise GlauberError(f"{path} is inside the run {parent}: choose another place.")
        parent = next(parent for parent in absolute.parents if parent.exists())
        if not parent.is_dir():
            raise GlauberError(f"{path} cannot be made: {parent} is a file.")
        if not os.access(parent, os.W_OK):
            raise GlauberError(f"{path} cannot be made: {parent} is not writable.")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise GlauberError(f"{path} cannot be made: {reason}.") from error


def check_space(path: Path, needed: float) -> None:
    """Refuse a run that the disk has no space for."""
    absolute = path.absolute()
    existing = next(parent for parent in (absolute, *absolute.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise GlauberError(
            f"the run may need {needed / 1e6:,.0f} MB, but {existing} has {free / 1e6:,.0f} MB "
            "left."
        )


@contextmanager
def explained_errors(
    folder: Path, reassurance: str = "the committed steps are safe"
) -> Iterator[None]:
    """Say in one sentence why something could not be written, and what is kept."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise GlauberError(
                f"the disk is full, so {folder} cannot be written ({reassurance}): free some "
                "space, then resume."
            ) from error
        raise GlauberError(
            f"{folder} cannot be written: {error.strerror or error}; {reassurance}."
        ) from error
