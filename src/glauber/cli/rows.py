"""How are rows of figures shown to a person? As tables if they fit, else field by field.

Rows with the same fields, of the same set, stand together. What is the same in all of them is said
once, and what is too long for a column stands below.
"""

from io import StringIO
from itertools import groupby
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

LONG = 36  # characters that no column holds
WIDE = 160  # a file or a pipe has no width of its own

Row = dict[str, Any]
Told = dict[str, str]


def show(rows: list[Row], console: Console) -> None:
    """Prints all rows."""
    room = console.width if console.is_terminal else WIDE
    for _, block in groupby(rows, key=lambda row: (list(row), row.get("set"))):
        _show_block(
            [{key: short(value) for key, value in row.items()} for row in block], console, room
        )


def _show_block(told: list[Told], console: Console, room: int) -> None:
    """Rows with the same fields."""
    more = len(told) > 1
    shared = {k: v for k, v in told[0].items() if more and all(row[k] == v for row in told)}
    name, *others = [k for k in told[0] if k not in shared] or [""]
    long = [k for k in others if any(len(row[k]) > LONG for row in told)]
    table = [{k: row[k] for k in (name, *others) if k in row and k not in long} for row in told]
    if more and name and _width(table) <= room:
        drawn = _drawn(table)
        console.print(drawn, end="", markup=False, highlight=False, soft_wrap=True)
        for row in told:
            _fields({f"{row[name]}, {k}": row[k] for k in long if row[k] != "-"}, console)
    else:
        for row in told:
            _fields({k: v for k, v in row.items() if k not in shared}, console)
            console.print()
    _fields(shared, console)
    console.print()


def short(value: Any) -> str:
    """A value in few characters."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(short(one) for one in value)
    return "-" if value is None else str(value)


def _fields(row: Told, console: Console) -> None:
    for key, value in row.items():
        console.print(f"{key:>28}  {value}", markup=False, highlight=False, soft_wrap=True)


def _drawn(rows: list[Told]) -> str:
    """A table as wide as it must be: a console cuts one that is wider than itself."""
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for key in rows[0]:
        table.add_column(Text(key), width=_widest(rows, key))
    for row in rows:
        table.add_row(*map(Text, row.values()))  # no markup: a token may be [MASK]
    page = StringIO()
    Console(file=page, width=_width(rows), color_system=None).print(table)
    return page.getvalue()


def _widest(rows: list[Told], key: str) -> int:
    """Characters of a column; its heading may break between words."""
    return max(len(part) for part in [*(row[key] for row in rows), *key.split()])


def _width(rows: list[Told]) -> int:
    return sum(_widest(rows, key) + 2 for key in rows[0]) + 2
