"""Texts from strings, lists, files, standard input and the bundled passages.

A `Corpus` contains the number and the id of each text, so that results can name them, and the
reason why a row of a file is no text. Of a file the suffix decides, then the content: what looks
like JSON or like a table is never read as prose. FASTA is written here too.
"""

import csv
import gzip
import io
import lzma
import math
import re
import stat
import sys
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, overload

from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.foundation.json_text import parse_json
from glauber.foundation.study import Skipped, counted, one_of, report_skipped
from glauber.models.weights import PACKAGE

if TYPE_CHECKING:
    from pyarrow import Field

UNKNOWN = ("skip", "error", "token")  # what to do with characters outside the vocabulary
LARGEST = 64 * 2**20  # bytes of a file of texts
LZMA_MEMORY = 2**29  # bytes that unpacking xz may take
GZIP, XZ, PARQUET = b"\x1f\x8b", b"\xfd7zXZ\x00", b"PAR1"  # how such files begin
FASTA_SUFFIXES = (".fasta", ".fa", ".faa", ".fas")
WRAPPED = 80  # letters of a line of FASTA
# Names of columns; the last ones are those of MS MARCO's files.
TEXT_COLUMNS = ("text", "sequence", "passage", "passages.passage_text")
ID_COLUMNS = ("id", "name", "pid", "query_id")
HEADER_WORDS = {*TEXT_COLUMNS, *ID_COLUMNS, "sentence", "label"}
NUMBERED = re.compile(r"\d+\t[^\t]*[^\W\d][^\t]*")  # a line of an id and a text, and no more
HEADER_CELL = re.compile(r"[^\W\d][\w.-]*( [\w.-]+){0,2}")  # a name of at most three words
JSON_LINE = re.compile(r'\s*(\{\s*"[^"]*"\s*:|\[\s*["\[{])')  # how a row of JSON begins
SAMPLE = 200  # lines that decide whether a file is a table
CONSISTENT = 0.9  # share of them that must have as many fields as the first
RECORD_LINES = 1000  # that one record of a CSV file may span
LONGEST_NAME = 5  # words of a column's name

Texts = str | Path | Sequence[str] | None


class Row(NamedTuple):
    """A text with its id, or why there is none."""

    text: str
    id: str = ""
    fault: str = ""  # completes "text 7 …"
    number: int = 0  # among the rows of its source, from 1


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
        faulty = [row for row in self.rows if row.fault]
        report_skipped([Skipped(r.number, r.id, r.text, r.fault) for r in faulty], len(self))
        return Corpus((row for row in self.rows if not row.fault), unknown=self.unknown)

    def plain(self) -> list[dict[str, str | int]]:
        """The texts as JSON contains them, with numbers and ids; `read_texts` reads them."""
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
               means the bundled passages. Lines of a number, a tab and a text (MS MARCO's
               collection.tsv) need no column names.
    column     the column of a table that contains the texts; by default the first of `known` that
               it has, or its only column of strings. In Parquet also a list of strings, or one
               inside another: passages.passage_text
    id_column  the column that identifies them; by default `id`, `name`, `pid` or `query_id`
    unknown    skip, error or token; see `Corpus`
    """
    if isinstance(texts, Corpus):
        return Corpus(texts.rows, unknown=unknown or texts.unknown)
    if isinstance(texts, Path):
        rows = read_rows(texts, column=column, id_column=id_column, known=known)
    elif column is not None or id_column is not None:
        raise GlauberError("a column needs a file: CSV, TSV, JSON lines or Parquet.")
    else:
        rows = _rows(texts)
    return Corpus(map(_check_row, rows), unknown=unknown or "skip")


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


def _row(number: int, text: object) -> Row:
    if isinstance(text, Mapping):  # of `Corpus.plain`
        return Row(text["text"], text["id"], number=text["number"])
    if text is None or (isinstance(text, float) and math.isnan(text)):
        return Row("", fault="is missing")
    if not isinstance(text, str):
        raise GlauberError(f"text {number} is {text!r:.60}, but it must be a string.")
    return Row(text.strip("\r\n"))


def _check_row(row: Row) -> Row:
    """The row; one without a text, or with half a character, has a fault."""
    text, name = (part.encode("utf-8", "backslashreplace").decode() for part in row[:2])
    fault = row.fault
    if not fault and text != row.text:  # halves are spelled out: no file can contain them
        fault = "is not valid text: it has half a character"
    elif not fault and not text.strip():
        fault = "is empty"
    return row._replace(text=text, id=name, fault=fault)


# ---- files


def read_rows(
    path: Path,
    *,
    column: str | None = None,
    id_column: str | None = None,
    known: Sequence[str] = TEXT_COLUMNS,
) -> list[Row]:
    """The rows of a file; empty lines are none, and a row that cannot be read has a fault.

    known are the names of columns that are taken for the texts where none is given.
    """
    name, content = read_bytes(path)
    suffix = suffix_of(path)
    columns = Columns(name, column, id_column, tuple(known))
    if suffix in (".parquet", ".pq") or content[:4] == PARQUET:
        rows = _parquet(content, columns)
    else:
        rows = _text_rows(decode(content, name), suffix, columns)
    if not rows:
        raise GlauberError(f"{name} holds no text.")
    if all(row.fault for row in rows):
        raise GlauberError(f"{name} holds no text that can be read: text 1 {rows[0].fault}.")
    return rows


def _text_rows(text: str, suffix: str, columns: "Columns") -> list[Row]:
    if suffix in FASTA_SUFFIXES or is_fasta(text):
        columns.refuse("FASTA")
        return fasta_rows(text, columns.file)
    if suffix in (".jsonl", ".ndjson", ".json") or _is_json(text):
        return _json(text, columns)
    delimiter = _delimiter(text, suffix, is_table=columns.column is not None)
    if delimiter is not None:
        return _csv(text, delimiter, columns)
    columns.refuse("plain text")
    return [Row(line.strip("\r")) for line in text.split("\n") if line.strip()]


def suffix_of(path: Path) -> str:
    """How the name of a file ends, in lower case and without .gz or .xz."""
    return Path(path.name.lower().removesuffix(".gz").removesuffix(".xz")).suffix


def decode(content: bytes, name: str) -> str:
    """UTF-8 text; other bytes are refused."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GlauberError(f"{name} cannot be read: it is not UTF-8 text.") from error
    if "\0" in text:
        raise GlauberError(f"{name} cannot be read: it is a binary file, not text.")
    return text


def read_bytes(path: Path) -> tuple[str, bytes]:
    """The name of a file in messages, and its bytes, unpacked if it is compressed."""
    name = "standard input" if str(path) == "-" else str(path)
    try:
        return name, _unpack(_stored_bytes(path, name), name)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise GlauberError(f"{name} cannot be read: it is damaged gzip.") from error
    except lzma.LZMAError as error:
        raise GlauberError(f"{name} cannot be read: it is damaged xz.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise GlauberError(f"{name} cannot be read: {reason}.") from error


def _stored_bytes(path: Path, name: str) -> bytes:
    """The content of a file, which must be one that ends."""
    if str(path) == "-":
        return sys.stdin.buffer.read(LARGEST + 1)
    mode = path.stat().st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise GlauberError(f"{name} is a device, not a file of texts.")
    with path.open("rb") as file:
        return file.read(LARGEST + 1)


def _unpack(content: bytes, name: str) -> bytes:
    """Never more than the limit is unpacked: a small file may contain a huge one."""
    if content[:2] == GZIP:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            content = packed.read(LARGEST + 1)
    elif content[:6] == XZ:
        streams, content = content, b""
        while streams and len(content) <= LARGEST:
            unpacker = lzma.LZMADecompressor(memlimit=LZMA_MEMORY)
            content += unpacker.decompress(streams, max_length=LARGEST + 1 - len(content))
            if not unpacker.eof and len(content) <= LARGEST:
                raise lzma.LZMAError("the file ends early")
            streams = unpacker.unused_data.lstrip(b"\0")  # streams may be padded
    check_size(len(content), name)
    return content


def check_size(size: int, name: str) -> None:
    """Refuses more bytes of texts than can be read at once."""
    if size > LARGEST:
        raise GlauberError(
            f"{name} holds more than {LARGEST / 2**20:.0f} MiB: give fewer texts, such as the "
            "first lines of the file."
        )


# ---- columns


class Columns(NamedTuple):
    """The columns that a user names, and of which file."""

    file: str
    column: str | None
    id_column: str | None
    known: tuple[str, ...] = TEXT_COLUMNS

    def refuse(self, kind: str) -> None:
        """Refuses columns of a file that has none."""
        if self.column is not None or self.id_column is not None:
            raise GlauberError(f"{self.file} is {kind}, which has no columns: leave them out.")

    def choose(self, columns: Sequence[str], strings: Sequence[str]) -> tuple[str, str | None]:
        """The column of texts and that of ids; strings are the columns that contain words."""
        listed = ", ".join(f"{column:.40}" for column in columns[:20])
        listed += f" and {len(columns) - 20} more" if len(columns) > 20 else ""
        for name in (self.column, self.id_column):
            if name is not None and name not in columns:
                raise GlauberError(
                    f"{self.file} has no column {name!r:.60}; its columns are {listed}."
                )
        known = [c for name in self.known for c in columns if c.lower() == name]
        names = [c for name in ID_COLUMNS for c in columns if c.lower() == name]
        ids = self.id_column or next((c for c in names if c != self.column), None)
        others = [c for c in strings if c != ids]
        if self.column is not None:
            return self.column, ids
        if known:
            return known[0], ids
        if len(columns) == 1:
            return columns[0], None
        if len(others) == 1:
            return others[0], ids
        raise GlauberError(
            f"{self.file} is a table: say which column contains the texts (--column, or column in "
            f"read_texts); its columns are {listed}."
        )


# ---- tables


def _sample(text: str) -> list[str]:
    """The first lines that are not empty."""
    return [line for line in islice(text.split("\n"), 2 * SAMPLE) if line.strip()][:SAMPLE]


def _delimiter(text: str, suffix: str, *, is_table: bool) -> str | None:
    """The delimiter of the columns, None for prose.

    By the content alone it is a table if nearly all lines have as many fields as the first, and
    the first looks like a header: names, with no blank after the delimiter as in prose, or quoted.
    """
    if suffix == ".tsv":
        return "\t"
    first = next((line for line in text.split("\n") if line.strip()), "")
    likeliest = max(",\t;", key=first.count)
    if suffix == ".csv" or is_table:
        return likeliest if first.count(likeliest) else ","
    return next((delimiter for delimiter in "\t,;" if _is_table(text, delimiter)), None)


def _is_table(text: str, delimiter: str) -> bool:
    lines = _sample(text)
    rows = list(_records(lines, delimiter))
    header = rows[0] if rows else None
    if header is None or len(header) < 2 or len(rows) < 2:
        return False
    same = [row for row in rows if row is not None and len(row) == len(header)]
    if len(same) < max(2, CONSISTENT * len(rows)):
        return False
    if delimiter == "\t":
        return True
    names = all(HEADER_CELL.fullmatch(cell) for cell in header)
    cells = {cell.strip() for cell in header}
    known = all(re.fullmatch(r"\w+", cell) for cell in cells) and bool(cells & HEADER_WORDS)
    quoted = sum(f'{delimiter}"' in line or f'"{delimiter}' in line for line in lines)
    prose = f"{delimiter} " in lines[0] and not known
    return (names and not prose) or known or quoted >= CONSISTENT * len(lines)


def _records(lines: Sequence[str], delimiter: str) -> Iterator[list[str] | None]:
    """The records of CSV lines, None for one that cannot be read.

    A quote that is never closed spoils its own line and no other: the next line begins anew.
    """
    csv.field_size_limit(LARGEST)
    width, first = 0, 0
    while first < len(lines):
        if not lines[first].strip():
            first += 1
            continue
        few = (line + "\n" for line in lines[first : first + RECORD_LINES])
        reader = csv.reader(few, delimiter=delimiter, strict=True, skipinitialspace=True)
        try:
            row: list[str] | None = next(reader)
        except csv.Error:
            # Quotes in a file with tabs are often part of the text.
            row = lines[first].split("\t") if delimiter == "\t" else None
        width = width or len(row or ())
        is_broken = row is None or (reader.line_num > 1 and len(row) != width)
        yield None if is_broken else row
        first += 1 if is_broken else reader.line_num


def _csv(text: str, delimiter: str, columns: Columns) -> list[Row]:
    if delimiter == "\t" and NUMBERED.fullmatch(_sample(text)[0].strip("\r")):
        columns.refuse("a list of ids and texts")
        return _rows_with_ids(text)
    records = list(_records([line.strip("\r") for line in text.split("\n")], delimiter))
    if not records or records[0] is None:
        raise GlauberError(f"{columns.file} holds no text: it needs a line of column names first.")
    header, body = [cell.strip() for cell in records[0]], records[1:]
    # A number or a sentence is no name of a column.
    is_name = [not (c and _is_number(c)) and len(c.split()) <= LONGEST_NAME for c in header]
    if not all(is_name) and columns.column is None:
        raise GlauberError(
            f"{columns.file} is a table without a line of column names: its first line has "
            f"{header[is_name.index(False)]!r:.60}."
        )
    if not body:
        raise GlauberError(f"{columns.file} holds no text: it has column names and no row.")
    complete = [row for row in body if row is not None and len(row) == len(header)]
    strings = [c for i, c in enumerate(header) if not all(_is_number(r[i]) for r in complete)]
    column, ids = columns.choose(header, strings)
    index, id_index = header.index(column), None if ids is None else header.index(ids)
    return [_csv_row(row, len(header), index, id_index) for row in body]


def _rows_with_ids(text: str) -> list[Row]:
    """Lines of an id, a tab and a text without column names, as in MS MARCO's collection.tsv.

    Quotes are part of the text.
    """
    rows = []
    for line in text.split("\n"):
        fields = line.strip("\r").split("\t")
        fault = "" if len(fields) == 2 else f"has {counted(len(fields), 'field')} instead of 2"
        if line.strip():
            rows.append(Row("" if fault else fields[1], fields[0], fault))
    return rows


def _csv_row(row: list[str] | None, width: int, index: int, id_index: int | None) -> Row:
    if row is None:
        return Row("", fault="is not valid CSV: its quotes do not match")
    name = row[id_index].strip() if id_index is not None and id_index < len(row) else ""
    if len(row) != width:
        fault = f"has {counted(len(row), 'field')}, but there are {counted(width, 'column')}"
        return Row(row[index] if index < len(row) else "", name, fault)
    return Row(row[index], name)


def _is_number(cell: str) -> bool:
    try:
        float(cell or "0")
    except ValueError:
        return False
    return True


def _parquet(content: bytes, columns: Columns) -> list[Row]:
    import pyarrow
    import pyarrow.parquet

    rows: list[Row] = []
    try:
        file = pyarrow.parquet.ParquetFile(io.BytesIO(content))
        schema = file.schema_arrow
        strings = list(_string_columns(schema))
        column, ids = columns.choose(list(dict.fromkeys([*schema.names, *strings])), strings)
        if column not in strings:
            raise GlauberError(f"the column {column!r:.60} of {columns.file} contains no strings.")
        size = 0
        for batch in file.iter_batches(4096, columns=[column, *([ids] if ids else [])]):
            size += batch.nbytes
            check_size(size, columns.file)
            for values in batch.to_pylist():
                rows += _record_rows(values, column, ids)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise GlauberError(f"{columns.file} cannot be read: it is not whole Parquet.") from error
    return rows


def _string_columns(fields: "Iterable[Field]", inside: str = "") -> Iterator[str]:
    """The columns of strings and of lists of strings; one inside another as OUTER.INNER."""
    import pyarrow.types

    for field in fields:
        kind, name = field.type, f"{inside}{field.name}"
        if pyarrow.types.is_struct(kind):
            yield from _string_columns(kind, f"{name}.")
            continue
        listed = pyarrow.types.is_list(kind) or pyarrow.types.is_dictionary(kind)
        kind = kind.value_type if listed else kind
        if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
            yield name


def _record_rows(values: Mapping[str, object], column: str, ids: str | None) -> list[Row]:
    """The row of a record, or one for each text of a list; OUTER.INNER is read inside OUTER."""
    value: object = values
    for part in [column] if column in values else column.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    texts = value if isinstance(value, list) else [value]
    name = {} if ids is None else {ids: values.get(ids)}
    return [_object_row({column: text, **name}, column, ids) for text in texts]


# ---- JSON


def _parse(line: str) -> object:
    try:
        value: object = parse_json(line)
    except ValueError:
        return None
    return value


def _is_json(text: str) -> bool:
    """Whether most lines are JSON objects, or lists with strings, or the text is one of these."""
    lines = _sample(text)
    rows = sum(bool(JSON_LINE.match(line)) or _is_row(_parse(line)) for line in lines)
    if rows and 2 * rows >= len(lines):
        return True
    return text.lstrip()[:1] in ("{", "[") and _is_row(_parse(text))


def _is_row(value: object) -> bool:
    inside = value if isinstance(value, list) else []
    return isinstance(value, dict) or any(isinstance(v, str | dict | list) for v in inside)


def _json(text: str, columns: Columns) -> list[Row]:
    """Of JSON lines, or of one list."""
    document = _parse(text)
    if isinstance(document, list) and document and not isinstance(document[0], list):
        values = list(document)
    else:
        values = [_parse(line) for line in text.split("\n") if line.strip()]
        if isinstance(document, dict) and not any(isinstance(v, dict) for v in values):
            values = [document]
    objects = [value for value in values if isinstance(value, dict)]
    if not objects and any(isinstance(value, str) for value in values):
        columns.refuse("a list of strings")
        fault = "is not a JSON string"
        return [Row(v) if isinstance(v, str) else Row("", fault=fault) for v in values]
    if not objects:
        raise GlauberError(
            f"{columns.file} cannot be read as JSON lines: no line is an object such as "
            '{"text": "…"}.'
        )
    keys = list(dict.fromkeys(key for value in objects for key in value))
    strings = [key for key in keys if any(isinstance(v.get(key), str) for v in objects)]
    column, ids = columns.choose(keys, strings)
    return [_object_row(value, column, ids) for value in values]


def _object_row(value: object, column: str, ids: str | None) -> Row:
    if not isinstance(value, dict):
        return Row("", fault="is not a JSON object")
    name = "" if ids is None or value.get(ids) is None else str(value[ids])
    text = value.get(column)
    if text is None:
        return Row("", name, f"has no {column!r:.60}")
    if not isinstance(text, str):
        return Row("", name, f"has {text!r:.40} as its {column!r:.60}, which is not a string")
    return Row(text, name)


# ---- FASTA


def is_fasta(text: str) -> bool:
    """Whether a text begins as FASTA does."""
    return text.lstrip().startswith(">") and "\n" in text.strip()


def fasta_rows(text: str, name: str) -> list[Row]:
    """The records of FASTA text; blanks in a sequence and a stop at its end are no part of it."""
    rows = []
    for record in ("\n" + text.strip()).split("\n>")[1:]:
        header, *lines = record.split("\n")
        lines = [line for line in lines if not line.startswith(";")]
        sequence = "".join("".join(lines).split()).removesuffix("*")
        row = Row(sequence, header.strip(), _sequence_fault(sequence))
        if not row.fault and any(len(line.split()) > 1 for line in lines):
            message = (
                f"{name}: the record {row.id!r:.60} is read as FASTA, and the blanks in it are "
                "removed."
            )
            warnings.warn(message, GlauberWarning, stacklevel=2)
        rows.append(row)
    return rows


def _sequence_fault(sequence: str) -> str:
    """Why a record is none: no sequence, or text that only begins as FASTA does."""
    if not sequence:
        return "has no sequence"
    strange = next((c for c in sequence if not (c.isalpha() or c in "-.*")), None)
    if strange is None:
        return ""
    return (
        f"is read as FASTA because the file begins with >, but {strange!r} is no letter of a "
        "sequence"
    )


def fasta(records: Iterable[Row]) -> str:
    """FASTA text of records, their sequences in lines of 80 letters."""
    entries = []
    for record in records:
        lines = range(0, len(record.text), WRAPPED)
        wrapped = "\n".join(record.text[first : first + WRAPPED] for first in lines)
        entries.append(f">{' '.join(record.id.split())}\n{wrapped}\n")
    return "".join(entries)
