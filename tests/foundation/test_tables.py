"""Are rows of figures shown whole, whatever the width?"""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import pandas
import pytest

import glauber
from glauber.foundation import tables
from glauber.foundation.study import Result, counted
from glauber.foundation.tables import csv_text, table

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


FORMULAS = [
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "-",
    "\uff1d1",
]
TEXTS = ["the cat", "", "a=b", "'quoted", "(-1)", "[MASK]", " =1"]


def test_no_text_of_a_csv_is_a_formula():
    frame = pandas.DataFrame({"token": [*FORMULAS, *TEXTS], "=head": 1})
    header, *rows = csv.reader(io.StringIO(csv_text(frame), newline=""))
    assert header == ["token", "'=head"]
    assert [row[0] for row in rows] == [*(f"'{text}" for text in FORMULAS), *TEXTS]
    assert list(frame) == ["token", "=head"] and frame["token"][0] == "=1+1"  # untouched


def test_numbers_of_a_csv_stay_numbers():
    columns = {
        "whole": [-1, 2, -30],
        "real": [-0.5, float("nan"), -1e-300],
        "mixed": [-3, "-4.5e3", "-x"],
        "yes": [True, False, True],
        "missing": [None, "-", None],
    }
    frame = pandas.DataFrame(columns)
    rows = list(csv.DictReader(io.StringIO(csv_text(frame))))
    plain = list(csv.DictReader(io.StringIO(frame.to_csv(index=False))))
    for name in ("whole", "real", "yes"):
        assert [row[name] for row in rows] == [row[name] for row in plain]
    assert [row["mixed"] for row in rows] == ["-3", "-4.5e3", "'-x"]
    assert [row["missing"] for row in rows] == ["", "'-", ""]
    assert csv_text(frame.head(0)) == frame.head(0).to_csv(index=False)


@dataclass(frozen=True)
class Tokens(Result):
    signature = "made"

    def to_dict(self):
        return {"token": FORMULAS[0]}

    def lines(self):
        yield FORMULAS[0]

    def frame(self):
        return pandas.DataFrame({"token": FORMULAS[:1], "score": [-0.25]})

    def figures(self):
        return {}


@pytest.mark.parametrize("place", ["answer.csv", "folder"])
def test_what_a_result_writes_is_safe(place, tmp_path):
    Tokens().write(tmp_path / place)
    (table_file,) = tmp_path.rglob("*.csv")
    assert table_file.read_text() == "token,score\n'=1+1,-0.25\n"
    source = Path(tables.__file__).parent.parent
    users = [path.name for path in source.rglob("*.py") if "to_csv(" in path.read_text()]
    assert users == ["tables.py"]


def test_a_frame_becomes_a_latex_table(tiny_folder: Path) -> None:
    """pandas writes LaTeX by jinja2, which must be recent enough."""
    frame = glauber.score(str(tiny_folder), ["the cat sat", "a dog ran ."], device="cpu").frame()
    lines = frame[["number", "tokens", "original"]].to_latex(index=False).splitlines()
    assert lines[0] == r"\begin{tabular}{rrr}" and lines[-1] == r"\end{tabular}"
    assert lines[2] == r"number & tokens & original \\"
