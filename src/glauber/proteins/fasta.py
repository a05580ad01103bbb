"""How do sequences come in and leave? FASTA, CSV and Parquet, names kept.

Residues are counted from 1. Lower case often says something (masked or inserted residues) that a
model would not be told, so here it is refused; `--from` of other studies reads it as upper case.
"""

import csv
import gzip
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from glauber.conditionals.texts import Given, fasta, read_named, read_whole
from glauber.conditionals.vocabulary import Vocabulary
from glauber.errors import GlauberError
from glauber.result import Result

FASTA = (".fasta", ".fa", ".faa", ".fas")
TABLES = (".csv", ".tsv")
COLUMNS = ("variant", "variants", "mutant", "mutations", "mutation", "sequence")  # that hold them
NAMES = ("name", "id")  # columns that name a variant


def suffix_of(path: Path) -> str:
    """How the name of a file ends, in lower case and without .gz."""
    whole = path.name.lower().removesuffix(".gz")
    return Path(whole).suffix


def as_file(given: str | Path) -> Path | None:
    """The file that a Path is about, or a string that names one or ends as sequence files do."""
    if isinstance(given, Path):
        return given
    path = Path(given.strip())
    known = suffix_of(path) in (*FASTA, *TABLES, ".txt")
    named = "\n" not in given and (known or os.path.isfile(path))
    return path if named and len(given) < 4096 else None


def read_sequences(given: str | Path | Sequence[str]) -> list[Given]:
    """Sequences with their names, from a string, a list, or a file, plain or by gzip."""
    path = as_file(given) if isinstance(given, str | Path) else None
    return read_named(given if path is None else path)


def read_column(path: Path, column: str | None = None) -> list[Given]:
    """A column of a CSV or TSV file, with the names of another where there is one.

    Without a column the first that is called variant, mutant, mutations or sequence is taken, and
    the only one of a file that has one.
    """
    name, text = read_whole(path)
    parted = "\t" if suffix_of(path) == ".tsv" else ","
    rows = [row for row in csv.reader(io.StringIO(text), delimiter=parted) if any(row)]
    if len(rows) < 2:
        raise GlauberError(
            f"{name} holds no variants: it needs a line of names and lines below it."
        )
    head = [one.strip() for one in rows[0]]
    place = _column(head, column, name)
    named = next((i for i, one in enumerate(head) if one.lower() in NAMES), None)
    found = []
    for number, row in enumerate(rows[1:], 2):
        value = row[place].strip() if place < len(row) else ""
        if not value:
            raise GlauberError(f"{name}: line {number} has no {head[place]}.")
        found.append(Given(value, row[named].strip() if named is not None else ""))
    return found


def _column(head: list[str], column: str | None, name: str) -> int:
    if column is not None:
        if column not in head:
            raise GlauberError(f"{name} has no column {column!r}; it has {', '.join(head)}.")
        return head.index(column)
    lower = [one.lower() for one in head]
    known = [lower.index(one) for one in COLUMNS if one in lower]
    if not known and len(head) > 1:
        raise GlauberError(f"{name} has no column called variant: say which of {', '.join(head)}.")
    return known[0] if known else 0


def check_letters(vocabulary: Vocabulary, sequence: str, name: str) -> None:
    """Refuses what a model of residues cannot read: record, position and letter are named."""
    letters = vocabulary.text.letters
    if not letters:
        return
    for place, letter in enumerate(sequence, 1):
        if letter not in letters and letter.upper() in letters:
            raise GlauberError(
                f"{name} has the lower-case letter {letter!r} at position {place}: residues are "
                "written in capitals."
            )
        if letter not in letters:
            raise GlauberError(
                f"{name} has {letter!r} at position {place}, which is no residue that the model "
                "knows."
            )


class SequenceResult(Result):
    """A result that holds sequences, so that it can be written as FASTA too."""

    def records(self) -> Iterable[Given]:
        """Each sequence under its name, with its score in the header; the best first."""
        raise NotImplementedError

    def write(self, path: str | Path) -> Path:
        """As every result, and sequences: .fasta and .fa (also with .gz), a table as .parquet."""
        from glauber.figures.page import check_place

        place = Path(path)
        if suffix_of(place) not in (*FASTA, ".parquet"):
            return super().write(path)
        check_place(place)
        if suffix_of(place) == ".parquet":
            made = io.BytesIO()
            self.frame().to_parquet(made, index=False)
            return write_bytes(place, made.getvalue())
        records = list(self.records())
        if any(" " in one.text for one in records):
            raise GlauberError("FASTA holds sequences of letters, but these are words: write .csv.")
        text = fasta(records).encode()
        packed = place.name.lower().endswith(".gz")
        return write_bytes(place, gzip.compress(text, mtime=0) if packed else text)


def write_bytes(path: Path, content: bytes) -> Path:
    """Writes a file whole or not at all."""
    partial = path.with_name(f".{path.name}.glauber-draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        raise GlauberError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        partial.unlink(missing_ok=True)
    return path
