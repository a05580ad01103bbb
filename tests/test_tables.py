"""Are rows of figures shown whole, whatever the width?"""

import pytest

from glauber.result import counted
from glauber.tables import table

ROWS = [
    {"set": "test", "system": "one", "token": "[MASK]", "BLEU": 12.34567, "kind": "estimate"},
    {"set": "test", "system": "two", "token": "[a]", "BLEU": None, "kind": "estimate"},
    {"set": "long", "system": "one", "token": "b", "BLEU": 1.0, "kind": "estimate"},
    {"name": "other fields", "said": "x" * 50, "figures": [0.5, 2]},
    {"name": "of another row", "said": "-", "figures": [0.25]},
]


def shown(rows, width):
    return "\n".join(table(rows, width=width))


@pytest.mark.parametrize("width", [160, 80, 20])
def test_every_value_is_there(width):
    text = shown(ROWS, width)
    for word in ("one", "two", "[MASK]", "[a]", "12.35", "estimate", "x" * 50, "0.5, 2", "0.25"):
        assert word in text, word


def test_what_all_rows_share_is_said_once_and_long_words_stand_below():
    text = shown(ROWS, 80)
    assert text.count("estimate") == 2  # one block for each set
    (row,) = [line for line in text.splitlines() if "12.35" in line]
    assert row.split() == ["one", "[MASK]", "12.35"]
    assert f"other fields, said  {'x' * 50}" in text
    assert "of another row, said" not in text


def test_narrow_screens_get_field_by_field():
    wide, narrow = shown(ROWS, 80), shown(ROWS, 20)
    assert "                      system  two" in narrow
    assert "                      system  two" not in wide
    assert shown([], 80) == ""


def test_a_number_takes_its_noun():
    assert [counted(n, "chain") for n in (0, 1, 2, 1024)] == [
        "0 chains", "1 chain", "2 chains", "1,024 chains",
    ]  # fmt: skip
