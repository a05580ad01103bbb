"""How do sequences come in and leave? FASTA, CSV and Parquet, names kept.

Residues are counted from 1. Lower case often says something (masked or inserted residues) that a
model would not be told, so here it is refused; `--from` of other studies reads it as upper case.
"""

import gzip
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from glauber.conditionals.texts import (
    FASTA_SUFFIXES,
    TEXT_COLUMNS,
    Row,
    fasta,
    read_texts,
    suffix_of,
)
from glauber.conditionals.vocabulary import Vocabulary
from glauber.errors import GlauberError
from glauber.result import Result

TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
# Names of columns that contain variants, before those of texts.
COLUMNS = ("variant", "variants", "mutant", "mutations", "mutation", *TEXT_COLUMNS)


def as_file(given: str | Path) -> Path | None:
    """The file that a Path is about, or a string that names one or ends as sequence files do."""
    if isinstance(given, Path):
        return given
    path = Path(given.strip())
    known = suffix_of(path) in (*FASTA_SUFFIXES, *TABLES, ".txt")
    named = "\n" not in given and (known or os.path.isfile(path))
    return path if named and len(given) < 4096 else None


def read_sequences(given: str | Path | Sequence[str], *, column: str | None = None) -> list[Row]:
    """Sequences or variants with their names, from a string, a list, or a file."""
    path = as_file(given) if isinstance(given, str | Path) else None
    corpus = read_texts(given if path is None else path, column=column, known=COLUMNS)
    return list(corpus.sound().rows)


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

    def records(self) -> Iterable[Row]:
        """Each sequence under its name, with its score in the header; the best first."""
        raise NotImplementedError

    def write(self, path: str | Path) -> Path:
        """As every result, and sequences: .fasta and .fa (also with .gz), a table as .parquet."""
        from glauber.figures.page import check_place

        place = Path(path)
        if suffix_of(place) not in (*FASTA_SUFFIXES, ".parquet"):
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
