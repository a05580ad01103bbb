"""Are rows of figures shown whole, whatever the width?"""

from io import StringIO

import pytest
from rich.console import Console

from glauber.cli.rows import show

ROWS = [
    {"set": "test", "system": "one", "token": "[MASK]", "BLEU": 12.34567, "kind": "estimate"},
    {"set": "test", "system": "two", "token": "[a]", "BLEU": None, "kind": "estimate"},
    {"set": "long", "system": "one", "token": "b", "BLEU": 1.0, "kind": "estimate"},
    {"name": "other fields", "said": "x" * 50, "figures": [0.5, 2]},
    {"name": "of another row", "said": "-", "figures": [0.25]},
]


def shown(rows, width, terminal):
    file = StringIO()
    console = Console(file=file, width=width, force_terminal=terminal, color_system=None)
    show(rows, console)
    return file.getvalue()


@pytest.mark.parametrize(("width", "terminal"), [(80, True), (20, True), (20, False)])
def test_every_value_is_there(width, terminal):
    text = shown(ROWS, width, terminal)
    for word in ("one", "two", "[MASK]", "[a]", "12.35", "estimate", "x" * 50, "0.5, 2", "0.25"):
        assert word in text, word


def test_what_all_rows_share_is_said_once_and_long_words_stand_below():
    text = shown(ROWS, 80, True)
    assert text.count("estimate") == 2  # one block for each set
    lines = text.splitlines()
    (row,) = [line for line in lines if "12.35" in line]
    assert row.split() == ["one", "[MASK]", "12.35"]
    assert f"other fields, said  {'x' * 50}" in text
    assert "of another row, said" not in text


def test_narrow_screens_get_field_by_field():
    wide, narrow = shown(ROWS, 80, True), shown(ROWS, 20, True)
    assert "                      system  two" in narrow
    assert "                      system  two" not in wide
    assert shown([], 80, True) == ""
