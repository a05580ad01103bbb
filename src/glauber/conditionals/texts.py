"""Which texts were given? A string, a list, a file, standard input, FASTA, or the bundled ones.

Files may be compressed by gzip. FASTA is written here too, so that what is read keeps its name.
"""

import gzip
import io
import stat
import sys
import warnings
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from glauber.conditionals.weights import PACKAGE
from glauber.errors import GlauberError, GlauberWarning

LARGEST = 64 * 2**20  # bytes of a file of texts
GZIP = b"\x1f\x8b"  # how a compressed file begins
WRAPPED = 80  # letters of a line of FASTA

Texts = str | Path | Sequence[str] | None


@lru_cache
def passages() -> list[tuple[str, str]]:
    """(topic, text) of each bundled starting passage, topics taking turns."""
    lines = (PACKAGE / "data" / "passages.tsv").read_text(encoding="utf-8").splitlines()
    return [(topic, text) for topic, text in (line.split("\t") for line in lines)]


class Given(NamedTuple):
    """One text, and the name that its file gives it."""

    text: str
    name: str = ""


def read_texts(texts: Texts) -> list[str]:
    """The texts that were given; the bundled passages, if none were.

    A string is one text. A Path is a UTF-8 file with one text a line; `-` is standard input. What
    begins with `>` is read as FASTA: its headers are names, and wrapped lines are joined.
    """
    if texts is None:
        return [text for _, text in passages()]
    return [given.text for given in read_named(texts)]


def read_named(texts: str | Path | Sequence[str]) -> list[Given]:
    """The texts that were given, with the names that a FASTA file gives them."""
    if isinstance(texts, Path):
        return _read_file(texts)
    if isinstance(texts, str):
        return _fasta(texts, "the text") if _is_fasta(texts) else [_text(1, texts)]
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise GlauberError(f"texts are a string, a list of strings or a Path, not {texts!r:.60}.")
    found = [_text(number, text) for number, text in enumerate(texts, start=1)]
    if not found:
        raise GlauberError("no text was given: the list is empty.")
    return found


def _text(number: int, text: Any) -> Given:
    if not isinstance(text, str):
        raise GlauberError(f"text {number} is {text!r:.60}, but it must be a string.")
    if not text.strip():
        raise GlauberError(f"text {number} is empty: there is no token to redraw.")
    return Given(text.strip("\r\n"))


def _read_file(path: Path) -> list[Given]:
    """The lines of a file of texts, without empty ones, or its FASTA records."""
    name, text = read_whole(path)
    if _is_fasta(text):
        return _fasta(text, name)
    found = [Given(line.strip("\r")) for line in text.split("\n") if line.strip()]
    if not found:
        raise GlauberError(f"{name} holds no text.")
    return found


def read_whole(path: Path) -> tuple[str, str]:
    """What a message calls a file, and its text, unpacked if it is compressed."""
    name = "standard input" if str(path) == "-" else str(path)
    try:
        return name, _bytes(path, name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GlauberError(f"{name} cannot be read: it is not UTF-8 text.") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise GlauberError(f"{name} cannot be read: it is damaged gzip.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise GlauberError(f"{name} cannot be read: {reason}.") from error


def _bytes(path: Path, name: str) -> bytes:
    """What stands in a file, which must be one that ends."""
    if str(path) == "-":
        found = sys.stdin.buffer.read(LARGEST + 1)
    else:
        mode = path.stat().st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise GlauberError(f"{name} is a device, not a file of texts.")
        with path.open("rb") as file:
            found = file.read(LARGEST + 1)
    if found[:2] == GZIP:  # never more of it than is taken: a small file may hold a huge one
        with gzip.GzipFile(fileobj=io.BytesIO(found)) as packed:
            found = packed.read(LARGEST + 1)
    if len(found) > LARGEST:
        raise GlauberError(f"{name} holds more than {LARGEST / 2**20:.0f} MiB: give fewer texts.")
    return found


def _is_fasta(text: str) -> bool:
    return text.lstrip().startswith(">") and "\n" in text.strip()


def _fasta(text: str, name: str) -> list[Given]:
    """The records of FASTA text; blanks in a sequence and a stop at its end are no part of it."""
    found = []
    for record in ("\n" + text.strip()).split("\n>")[1:]:
        header, *lines = record.split("\n")
        kept = [line for line in lines if not line.startswith(";")]
        sequence = "".join("".join(kept).split()).removesuffix("*")
        record_name = f"{name}: the record {header.strip()!r:.60}"
        _check_sequence(record_name, sequence)
        if any(len(line.split()) > 1 for line in kept):
            message = f"{record_name} is read as FASTA, and the blanks in it are removed."
            warnings.warn(message, GlauberWarning, stacklevel=2)
        found.append(Given(sequence, header.strip()))
    return found


def _check_sequence(record_name: str, sequence: str) -> None:
    """Refuses records without a sequence, and text that only begins as FASTA does."""
    if not sequence:
        raise GlauberError(f"{record_name} has no sequence.")
    strange = next((one for one in sequence if not (one.isalpha() or one in "-.*")), None)
    if strange is not None:
        raise GlauberError(
            f"{record_name} is read as FASTA because the file begins with >, but {strange!r} is no "
            "letter of a sequence."
        )


def fasta(records: Iterable[Given]) -> str:
    """FASTA text of records, their sequences in lines of 80 letters."""
    found = []
    for record in records:
        lines = range(0, len(record.text), WRAPPED)
        wrapped = "\n".join(record.text[first : first + WRAPPED] for first in lines)
        found.append(f">{' '.join(record.name.split())}\n{wrapped}\n")
    return "".join(found)
