"""Which rows does a file of texts have? Plain text, CSV, TSV, JSON lines, Parquet or FASTA.

The suffix decides, then the content: what looks like JSON or like a table is never read as prose.
A row that cannot be read keeps its place, with its fault.
"""

import csv
import gzip
import io
import lzma
import re
import stat
import sys
import warnings
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from glauber.errors import GlauberError, GlauberWarning
from glauber.json_text import parse_json
from glauber.result import counted

LARGEST = 64 * 2**20  # bytes of a file of texts
LZMA_MEMORY = 2**29  # bytes that unpacking xz may take
GZIP, XZ, PARQUET = b"\x1f\x8b", b"\xfd7zXZ\x00", b"PAR1"  # how such files begin
PACKED = (".gz", ".xz")
FASTA_SUFFIXES = (".fasta", ".fa", ".faa", ".fas")
TEXT_COLUMNS, ID_COLUMNS = ("text", "sequence"), ("id", "name")
HEADER_WORDS = {*TEXT_COLUMNS, *ID_COLUMNS, "sentence", "label"}
HEADER_CELL = re.compile(r"[^\W\d][\w.-]*( [\w.-]+){0,2}")  # a name of at most three words
JSON_LINE = re.compile(r'\s*(\{\s*"[^"]*"\s*:|\[\s*["\[{])')  # how a row of JSON begins
SAMPLE = 200  # lines that decide whether a file is a table
CONSISTENT = 0.9  # share of them that must have as many fields as the first
RECORD_LINES = 1000  # that one record of a CSV file may span
LONGEST_NAME = 5  # words of a column's name


class Row(NamedTuple):
    """A text with its id, or why there is none."""

    text: str
    id: str = ""
    fault: str = ""  # completes "text 7 …"
    number: int = 0  # among the rows of its source, from 1


def read_rows(
    path: Path,
    *,
    column: str | None = None,
    id_column: str | None = None,
    known: Sequence[str] = TEXT_COLUMNS,
) -> list[Row]:
    """The rows of a file; empty lines are none.

    known are the names of columns that are taken for the texts where none is given.
    """
    name, content = read_bytes(path)
    suffix = suffix_of(path)
    named = Columns(name, column, id_column, tuple(known))
    if suffix in (".parquet", ".pq") or content[:4] == PARQUET:
        rows = _parquet(content, named)
    else:
        rows = _text_rows(decoded(content, name), suffix, named)
    if not rows:
        raise GlauberError(f"{name} holds no text.")
    if all(row.fault for row in rows):
        raise GlauberError(f"{name} holds no text that can be read: text 1 {rows[0].fault}.")
    return rows


def _text_rows(text: str, suffix: str, named: "Columns") -> list[Row]:
    if suffix in FASTA_SUFFIXES or is_fasta(text):
        named.refuse("FASTA")
        return fasta_rows(text, named.file)
    if suffix in (".jsonl", ".ndjson", ".json") or _is_json(text):
        return _json(text, named)
    delimiter = _delimiter(text, suffix, asked=named.column is not None)
    if delimiter is not None:
        return _csv(text, delimiter, named)
    named.refuse("plain text")
    return [Row(line.strip("\r")) for line in text.split("\n") if line.strip()]


def suffix_of(path: Path) -> str:
    """How the name of a file ends, in lower case and without .gz or .xz."""
    whole = path.name.lower()
    for packed in PACKED:
        whole = whole.removesuffix(packed)
    return Path(whole).suffix


# ---- bytes


def read_whole(path: Path) -> tuple[str, str]:
    """What a message calls a file, and its text, unpacked if it is compressed."""
    name, content = read_bytes(path)
    return name, decoded(content, name)


def decoded(content: bytes, name: str) -> str:
    """UTF-8 text; other bytes are refused."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GlauberError(f"{name} cannot be read: it is not UTF-8 text.") from error
    if "\0" in text:
        raise GlauberError(f"{name} cannot be read: it is a binary file, not text.")
    return text


def read_bytes(path: Path) -> tuple[str, bytes]:
    """What a message calls a file, and its bytes, unpacked if it is compressed."""
    name = "standard input" if str(path) == "-" else str(path)
    try:
        return name, _unpacked(_bytes(path, name), name)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise GlauberError(f"{name} cannot be read: it is damaged gzip.") from error
    except lzma.LZMAError as error:
        raise GlauberError(f"{name} cannot be read: it is damaged xz.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise GlauberError(f"{name} cannot be read: {reason}.") from error


def _bytes(path: Path, name: str) -> bytes:
    """What is in a file, which must be one that ends."""
    if str(path) == "-":
        return sys.stdin.buffer.read(LARGEST + 1)
    mode = path.stat().st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise GlauberError(f"{name} is a device, not a file of texts.")
    with path.open("rb") as file:
        return file.read(LARGEST + 1)


def _unpacked(content: bytes, name: str) -> bytes:
    """Never more than the limit is unpacked: a small file may contain a huge one."""
    if content[:2] == GZIP:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            content = packed.read(LARGEST + 1)
    elif content[:6] == XZ:
        content = _unpacked_xz(content)
    if len(content) > LARGEST:
        raise GlauberError(f"{name} holds more than {LARGEST / 2**20:.0f} MiB: give fewer texts.")
    return content


def _unpacked_xz(content: bytes) -> bytes:
    """The text of one or several xz streams that follow each other."""
    unpacked = b""
    while content and len(unpacked) <= LARGEST:
        unpacker = lzma.LZMADecompressor(memlimit=LZMA_MEMORY)
        unpacked += unpacker.decompress(content, max_length=LARGEST + 1 - len(unpacked))
        if not unpacker.eof and len(unpacked) <= LARGEST:
            raise lzma.LZMAError("the file ends early")
        content = unpacker.unused_data.lstrip(b"\0")  # streams may be padded
    return unpacked


# ---- columns


class Columns(NamedTuple):
    """The columns that were asked for, of which file."""

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
        for asked in (self.column, self.id_column):
            if asked is not None and asked not in columns:
                raise GlauberError(
                    f"{self.file} has no column {asked!r:.60}; its columns are {_listed(columns)}."
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
            f"read_texts); its columns are {_listed(columns)}."
        )


def _listed(columns: Sequence[str]) -> str:
    more = f" and {len(columns) - 20} more" if len(columns) > 20 else ""
    return ", ".join(f"{one:.40}" for one in columns[:20]) + more


# ---- tables


def _delimiter(text: str, suffix: str, *, asked: bool) -> str | None:
    """What parts the columns, None for prose.

    By the content alone it is a table if nearly all lines have as many fields as the first, and
    the first looks like a header: names, with no blank after the delimiter as in prose, or quoted.
    """
    if suffix == ".tsv":
        return "\t"
    first = next((line for line in text.split("\n") if line.strip()), "")
    likeliest = max(",\t;", key=first.count)
    if suffix == ".csv" or asked:
        return likeliest if first.count(likeliest) else ","
    return next((one for one in "\t,;" if _is_table(text, one)), None)


def _is_table(text: str, delimiter: str) -> bool:
    lines = [line for line in islice(text.split("\n"), 2 * SAMPLE) if line.strip()][:SAMPLE]
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
    words = all(re.fullmatch(r"\w+", cell.strip()) for cell in header)
    known = words and {cell.strip() for cell in header} & HEADER_WORDS
    quoted = sum(f'{delimiter}"' in line or f'"{delimiter}' in line for line in lines)
    prose = f"{delimiter} " in lines[0] and not known
    return (names and not prose) or bool(known) or quoted >= CONSISTENT * len(lines)


def _records(lines: Sequence[str], delimiter: str) -> Iterator[list[str] | None]:
    """The records of CSV lines, None for one that cannot be read.

    A quote that is never closed spoils its own line and no other: the next line begins anew.
    """
    csv.field_size_limit(LARGEST)
    width, place = 0, 0
    while place < len(lines):
        if not lines[place].strip():
            place += 1
            continue
        few = (line + "\n" for line in lines[place : place + RECORD_LINES])
        reader = csv.reader(few, delimiter=delimiter, strict=True, skipinitialspace=True)
        try:
            row: list[str] | None = next(reader)
        except csv.Error:
            # Quotes in a file with tabs are often part of the text.
            row = lines[place].split("\t") if delimiter == "\t" else None
        width = width or len(row or ())
        if row is None or (reader.line_num > 1 and len(row) != width):
            yield None
            place += 1
        else:
            yield row
            place += reader.line_num


def _csv(text: str, delimiter: str, named: Columns) -> list[Row]:
    lines = [line.strip("\r") for line in text.split("\n")]
    records = list(_records(lines, delimiter))
    if not records or records[0] is None:
        raise GlauberError(f"{named.file} holds no text: it needs a line of column names first.")
    header = [cell.strip() for cell in records[0]]
    strange = next((cell for cell in header if _is_no_name(cell)), None)
    if strange is not None and named.column is None:
        raise GlauberError(
            f"{named.file} is a table without a line of column names: its first line has "
            f"{strange!r:.60}."
        )
    body = records[1:]
    if not body:
        raise GlauberError(f"{named.file} holds no text: it has column names and no row.")
    whole = [row for row in body if row is not None and len(row) == len(header)]
    strings = [c for i, c in enumerate(header) if not all(_is_number(r[i]) for r in whole)]
    column, ids = named.choose(header, strings)
    at, id_at = header.index(column), None if ids is None else header.index(ids)
    return [_csv_row(row, len(header), at, id_at) for row in body]


def _csv_row(row: list[str] | None, width: int, at: int, id_at: int | None) -> Row:
    if row is None:
        return Row("", fault="is not valid CSV: its quotes do not match")
    name = row[id_at].strip() if id_at is not None and id_at < len(row) else ""
    if len(row) != width:
        fault = f"has {counted(len(row), 'field')}, but there are {counted(width, 'column')}"
        return Row(row[at] if at < len(row) else "", name, fault)
    return Row(row[at], name)


def _is_no_name(cell: str) -> bool:
    """Whether a cell of the first line is a number or a sentence."""
    return (cell != "" and _is_number(cell)) or len(cell.split()) > LONGEST_NAME


def _is_number(cell: str) -> bool:
    try:
        float(cell or "0")
    except ValueError:
        return False
    return True


def _parquet(content: bytes, named: Columns) -> list[Row]:
    import pyarrow
    import pyarrow.parquet
    import pyarrow.types

    def is_string(kind: Any) -> bool:
        kind = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
        return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))

    rows: list[Row] = []
    try:
        file = pyarrow.parquet.ParquetFile(io.BytesIO(content))
        schema = file.schema_arrow
        strings = [field.name for field in schema if is_string(field.type)]
        column, ids = named.choose(schema.names, strings)
        if column not in strings:
            raise GlauberError(f"the column {column!r:.60} of {named.file} contains no strings.")
        size = 0
        for batch in file.iter_batches(4096, columns=[column, *([ids] if ids else [])]):
            size += batch.nbytes
            if size > LARGEST:
                limit = LARGEST / 2**20
                raise GlauberError(
                    f"{named.file} holds more than {limit:.0f} MiB: give fewer texts."
                )
            rows += [_object_row(one, column, ids) for one in batch.to_pylist()]
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise GlauberError(f"{named.file} cannot be read: it is not whole Parquet.") from error
    return rows


# ---- JSON


def _parsed(line: str) -> Any:
    try:
        return parse_json(line)
    except ValueError:
        return None


def _is_json(text: str) -> bool:
    """Whether most lines are JSON objects, or lists with strings, or the whole is one of these."""
    lines = [line for line in islice(text.split("\n"), 2 * SAMPLE) if line.strip()][:SAMPLE]
    rows = sum(bool(JSON_LINE.match(line)) or _is_row(_parsed(line)) for line in lines)
    if rows and 2 * rows >= len(lines):
        return True
    return text.lstrip()[:1] in ("{", "[") and _is_row(_parsed(text))


def _is_row(value: Any) -> bool:
    inside = value if isinstance(value, list) else []
    return isinstance(value, dict) or any(isinstance(one, str | dict | list) for one in inside)


def _json(text: str, named: Columns) -> list[Row]:
    """Of JSON lines, or of one list."""
    whole = _parsed(text)
    if isinstance(whole, list) and whole and not isinstance(whole[0], list):
        values = list(whole)
    else:
        values = [_parsed(line) for line in text.split("\n") if line.strip()]
        if isinstance(whole, dict) and not any(isinstance(one, dict) for one in values):
            values = [whole]
    objects = [value for value in values if isinstance(value, dict)]
    if not objects:
        if any(isinstance(value, str) for value in values):
            named.refuse("a list of strings")
            return [_string_row(value) for value in values]
        raise GlauberError(
            f"{named.file} cannot be read as JSON lines: no line is an object such as "
            '{"text": "…"}.'
        )
    columns = list(dict.fromkeys(key for one in objects for key in one))
    strings = [key for key in columns if any(isinstance(one.get(key), str) for one in objects)]
    column, ids = named.choose(columns, strings)
    return [_object_row(value, column, ids) for value in values]


def _string_row(value: Any) -> Row:
    return Row(value) if isinstance(value, str) else Row("", fault="is not a JSON string")


def _object_row(value: Any, column: str, ids: str | None) -> Row:
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
        kept = [line for line in lines if not line.startswith(";")]
        sequence = "".join("".join(kept).split()).removesuffix("*")
        row = Row(sequence, header.strip(), _sequence_fault(sequence))
        if not row.fault and any(len(line.split()) > 1 for line in kept):
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
    strange = next((one for one in sequence if not (one.isalpha() or one in "-.*")), None)
    if strange is None:
        return ""
    return (
        f"is read as FASTA because the file begins with >, but {strange!r} is no letter of a "
        "sequence"
    )
