"""How are rows of figures shown to a person? As tables if they fit, else field by field.

Rows with the same fields, of the same set, form a table. What is the same in all of them is printed
once, and what is too long for a column below the table.
"""

import csv
import re
from collections.abc import Iterator
from io import StringIO
from itertools import groupby
from typing import TYPE_CHECKING, Any

from glauber.foundation.study import one_line

if TYPE_CHECKING:
    import pandas

LONG = 36  # characters that no column holds
WIDE = 160  # a file or a pipe has no width of its own

Row = dict[str, Any]
Shown = dict[str, str]


def table(rows: list[Row], *, width: int | None = None) -> list[str]:
    """The lines of a table of these rows, for a screen of that width (default: the terminal's)."""
    room = width or screen_width()
    lines: list[str] = []
    for _, block in groupby(rows, key=lambda row: (list(row), row.get("set"))):
        shown = [{key: short(value) for key, value in row.items()} for row in block]
        lines += _block(shown, room)
    return lines


# A spreadsheet computes a cell that begins so, in full width too.
FORMULAS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


def csv_text(frame: "pandas.DataFrame") -> str:
    """The rows as CSV, in which no text is a formula.

    Tokens may begin like a formula. Such texts get an apostrophe, by which spreadsheets know that
    a cell is text (OWASP, CSV injection); numbers stay as they are.
    """
    from pandas.api.types import is_numeric_dtype

    safe = frame.rename(columns=_inert)
    quoting = csv.QUOTE_MINIMAL
    for number in range(frame.shape[1]):
        column = frame.iloc[:, number]
        if is_numeric_dtype(column.dtype):
            continue
        safe.isetitem(number, column.astype(object).map(_inert))
        if any("\r" in value for value in column if isinstance(value, str)):
            quoting = csv.QUOTE_NONNUMERIC  # the other leaves a carriage return bare: a new row
    return str(safe.to_csv(index=False, quoting=quoting))


def _inert(value: Any) -> Any:
    """The value, with an apostrophe in front if a spreadsheet would compute it."""
    if isinstance(value, str) and value.startswith(FORMULAS) and not NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def screen_width() -> int:
    """Columns of the terminal; many without one."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal else WIDE


def short(value: Any) -> str:
    """A value in few characters."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(short(item) for item in value)
    return "-" if value is None else one_line(str(value))


def _block(rows: list[Shown], room: int) -> Iterator[str]:
    """Rows with the same fields."""
    more = len(rows) > 1
    shared = {k: v for k, v in rows[0].items() if more and all(row[k] == v for row in rows)}
    name, *others = [k for k in rows[0] if k not in shared] or [""]
    long = [k for k in others if any(len(row[k]) > LONG for row in rows)]
    fit = [{k: row[k] for k in (name, *others) if k in row and k not in long} for row in rows]
    if more and name and _width(fit) <= room:
        yield from _draw_table(fit)
        for row in rows:
            yield from _fields({f"{row[name]}, {k}": row[k] for k in long if row[k] != "-"})
    else:
        for row in rows:
            yield from _fields({k: v for k, v in row.items() if k not in shared})
            yield ""
    yield from _fields(shared)
    yield ""


def _fields(row: Shown) -> Iterator[str]:
    for key, value in row.items():
        yield f"{key:>28}  {value}"


def _draw_table(rows: list[Shown]) -> list[str]:
    """A table as wide as it must be: a console cuts one that is wider than itself."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for key in rows[0]:
        drawn.add_column(Text(key), width=_widest(rows, key))
    for row in rows:
        drawn.add_row(*map(Text, row.values()))  # no markup: a token may be [MASK]
    page = StringIO()
    Console(file=page, width=_width(rows), color_system=None).print(drawn)
    return [line.rstrip() for line in page.getvalue().splitlines()]


def _widest(rows: list[Shown], key: str) -> int:
    """Characters of a column; its heading may break between words."""
    return max(len(part) for part in [*(row[key] for row in rows), *key.split()])


def _width(rows: list[Shown]) -> int:
    return sum(_widest(rows, key) + 2 for key in rows[0]) + 2
