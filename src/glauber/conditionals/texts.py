"""Which texts were given? A string, a list, a file, standard input, or the bundled passages.

A `Corpus` keeps the number and the id of each text, so that results can name them, and the reason
why a row of a file is no text. FASTA is written here too.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, overload

from glauber.conditionals.files import TEXT_COLUMNS, Row, fasta_rows, is_fasta, read_rows
from glauber.conditionals.weights import PACKAGE
from glauber.errors import GlauberError
from glauber.result import Skipped, one_of, report_skipped

WRAPPED = 80  # letters of a line of FASTA
UNKNOWN = ("skip", "error", "token")  # what to do with characters outside the vocabulary

Texts = str | Path | Sequence[str] | None


@lru_cache
def passages() -> list[tuple[str, str]]:
    """(topic, text) of each bundled starting passage, topics taking turns."""
    lines = (PACKAGE / "data" / "passages.tsv").read_text(encoding="utf-8").splitlines()
    return [(topic, text) for topic, text in (line.split("\t") for line in lines)]


class Corpus(Sequence[str]):
    """Texts with their numbers and ids, as every study takes them for `texts`.

    rows     one per text, numbered from 1; one with a fault is left out and reported
    unknown  what to do with a text that has characters outside a model's vocabulary: `skip` leaves
             it out and reports it, `error` stops, `token` reads them as the unknown token
    """

    def __init__(self, rows: Iterable[Row], *, unknown: str = "skip") -> None:
        self.rows = tuple(
            row if row.number else row._replace(number=number)
            for number, row in enumerate(rows, start=1)
        )
        self.unknown = one_of("unknown", unknown, UNKNOWN)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> "Corpus": ...

    def __getitem__(self, index: int | slice) -> "str | Corpus":
        if isinstance(index, slice):
            return Corpus(self.rows[index], unknown=self.unknown)
        return self.rows[index].text

    def sound(self) -> "Corpus":
        """The texts without those that have a fault, which are reported."""
        faulty = [
            Skipped(row.number, row.id, row.text, row.fault) for row in self.rows if row.fault
        ]
        report_skipped(faulty, len(self))
        return Corpus((row for row in self.rows if not row.fault), unknown=self.unknown)

    def plain(self) -> list[Any]:
        """The texts as JSON can hold them, with their numbers and ids; `read_texts` reads them."""
        return [{"text": row.text, "id": row.id, "number": row.number} for row in self.rows]

    @property
    def ids(self) -> list[str]:
        """The id of each text; empty where its source names none."""
        return [row.id for row in self.rows]

    def __repr__(self) -> str:
        return f"<Corpus of {len(self):,} texts, unknown={self.unknown!r}>"


def read_texts(
    texts: Texts,
    *,
    column: str | None = None,
    id_column: str | None = None,
    unknown: str | None = None,
    known: Sequence[str] = TEXT_COLUMNS,
) -> Corpus:
    """Read texts for a study: `glauber.score(model, read_texts(Path("a.csv"), column="sentence"))`.

    texts      a string is one text. A Path is a file: plain text (one per line), CSV, TSV, JSON
               lines, Parquet or FASTA, also compressed by gzip or xz; `-` is standard input. None
               means the bundled passages.
    column     the column of a table that contains the texts; by default the first of `known` that
               it has, or its only column of strings
    id_column  the column that identifies them; by default `id` or `name`, if there is one
    unknown    skip, error or token; see `Corpus`
    """
    if isinstance(texts, Corpus):
        return Corpus(texts.rows, unknown=unknown or texts.unknown)
    if isinstance(texts, Path):
        rows = read_rows(texts, column=column, id_column=id_column, known=known)
        return Corpus(_checked(rows), unknown=unknown or "skip")
    if column is not None or id_column is not None:
        raise GlauberError("a column needs a file: CSV, TSV, JSON lines or Parquet.")
    return Corpus(_checked(_rows(texts)), unknown=unknown or "skip")


def _rows(texts: str | Sequence[str] | None) -> list[Row]:
    if texts is None:
        return [Row(text) for _, text in passages()]
    if isinstance(texts, str):
        return fasta_rows(texts, "the text") if is_fasta(texts) else [_row(1, texts)]
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise GlauberError(f"texts are a string, a list of strings or a Path, not {texts!r:.60}.")
    rows = [_row(number, text) for number, text in enumerate(texts, start=1)]
    if not rows:
        raise GlauberError("no text was given: the list is empty.")
    return rows


def _row(number: int, text: Any) -> Row:
    if isinstance(text, Mapping):  # of `Corpus.plain`
        return Row(text["text"], text["id"], number=text["number"])
    if text is None or (isinstance(text, float) and math.isnan(text)):
        return Row("", fault="is missing")
    if not isinstance(text, str):
        raise GlauberError(f"text {number} is {text!r:.60}, but it must be a string.")
    return Row(text.strip("\r\n"))


def _checked(rows: Iterable[Row]) -> list[Row]:
    """The rows; one without a text, or with half a character, has a fault."""
    checked = []
    for row in rows:
        text, name = _printable(row.text), _printable(row.id)
        fault = row.fault
        if not fault and text != row.text:
            fault = "is not valid text: it has half a character"
        elif not fault and not text.strip():
            fault = "is empty"
        checked.append(row._replace(text=text, id=name, fault=fault))
    return checked


def _printable(text: str) -> str:
    """The text with halves of characters spelled out, as no file can contain them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def fasta(records: Iterable[Row]) -> str:
    """FASTA text of records, their sequences in lines of 80 letters."""
    entries = []
    for record in records:
        lines = range(0, len(record.text), WRAPPED)
        wrapped = "\n".join(record.text[first : first + WRAPPED] for first in lines)
        entries.append(f">{' '.join(record.id.split())}\n{wrapped}\n")
    return "".join(entries)
