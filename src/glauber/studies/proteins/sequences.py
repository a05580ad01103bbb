"""Sequences with their names: read from FASTA and tables, written as FASTA, CSV and Parquet.

Residues are counted from 1. Lower case often has a meaning (masked or inserted residues) of which
a model would know nothing, so here it is refused; `--from` of other studies reads it as upper case.
"""

import gzip
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from glauber.foundation.disk import write_file
from glauber.foundation.errors import GlauberError
from glauber.foundation.study import Result
from glauber.models.vocabulary import Vocabulary
from glauber.texts.read import (
    FASTA_SUFFIXES,
    TEXT_COLUMNS,
    Row,
    fasta,
    read_texts,
    suffix_of,
)

TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
# Names of columns that contain variants, before those of texts.
COLUMNS = ("variant", "variants", "mutant", "mutations", "mutation", *TEXT_COLUMNS)


def as_file(source: str | Path) -> Path | None:
    """The file that a Path is about, or a string that names one or ends as sequence files do."""
    if isinstance(source, Path):
        return source
    path = Path(source.strip())
    known = suffix_of(path) in (*FASTA_SUFFIXES, *TABLES, ".txt")
    is_path = "\n" not in source and (known or os.path.isfile(path))
    return path if is_path and len(source) < 4096 else None


def read_sequences(source: str | Path | Sequence[str], *, column: str | None = None) -> list[Row]:
    """Sequences or variants with their names, from a string, a list, or a file."""
    path = as_file(source) if isinstance(source, str | Path) else None
    corpus = read_texts(source if path is None else path, column=column, known=COLUMNS)
    return list(corpus.sound().rows)


def check_letters(vocabulary: Vocabulary, sequence: str, name: str) -> None:
    """Refuses what a model of residues cannot read: record, position and letter are named."""
    letters = vocabulary.text.letters
    for position, letter in enumerate(sequence if letters else "", 1):
        if letter not in letters and letter.upper() in letters:
            raise GlauberError(
                f"{name} has the lower-case letter {letter!r} at position {position}: residues are "
                "written in capitals."
            )
        if letter not in letters:
            raise GlauberError(
                f"{name} has {letter!r} at position {position}, which is no residue that the model "
                "knows."
            )


class SequenceResult(Result):
    """A result of sequences, which can be written as FASTA too."""

    def records(self) -> Iterable[Row]:
        """Each sequence under its name, with its score in the header; the best first."""
        raise NotImplementedError

    def write(self, path: str | Path) -> Path:
        """As every result, and sequences: .fasta and .fa (also with .gz), a table as .parquet."""
        from glauber.interfaces.report.page import check_place

        file = Path(path)
        if suffix_of(file) not in (*FASTA_SUFFIXES, ".parquet"):
            return super().write(path)
        check_place(file)
        if suffix_of(file) == ".parquet":
            table = io.BytesIO()
            self.frame().to_parquet(table, index=False)
            return write_bytes(file, table.getvalue())
        records = list(self.records())
        if any(" " in record.text for record in records):
            raise GlauberError(
                "FASTA contains sequences of letters, but these are words: write .csv."
            )
        content = fasta(records).encode()
        packed = file.name.lower().endswith(".gz")
        return write_bytes(file, gzip.compress(content, mtime=0) if packed else content)


def write_bytes(path: Path, content: bytes) -> Path:
    """Writes a file completely or not at all, with the folders above it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)
    except OSError as error:
        raise GlauberError(f"{path} cannot be written: {error.strerror or error}.") from error
    return path
