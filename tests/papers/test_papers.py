import json

import pytest

from glauber.cli import main
from glauber.errors import GlauberError
from glauber.papers import PIECES, reproduce
from glauber.papers.reproduction import Reproduction


def test_every_piece_has_its_file():
    from importlib import import_module

    for name in PIECES:
        assert callable(import_module(f"glauber.papers.{name.lower().replace('-', '_')}").make)


def test_unknown_pieces_and_scales_are_refused():
    with pytest.raises(GlauberError, match="A-table1"):
        reproduce("A-table99")
    with pytest.raises(GlauberError, match="small or paper"):
        reproduce("A-table1", scale="huge")


def test_what_is_written_says_how_it_was_made(tmp_path):
    made = Reproduction("A-table1", "small", "by hand", [{"mean": 0.5, "published": 0.644}], 3)
    (file,) = made.write(tmp_path)
    told = json.loads(file.read_text())
    assert told["rows"] == made.rows and told["seed"] == 3 and "torch" in told["versions"]


def test_the_list_of_pieces(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["glauber", "paper", "list", "--json"])
    with pytest.raises(SystemExit):
        main()
    assert json.loads(capsys.readouterr().out) == PIECES


@pytest.mark.weights
def test_table_1_at_small_scale(tmp_path):
    """300 rectangles of the bundled model; the mean of BERT-base in the paper is 0.644."""
    made = reproduce("A-table1")
    (row,) = made.rows
    assert 0.5 < row["mean"] < 0.85
    assert row["interval"][0] < row["mean"] < row["interval"][1]
    assert row["certified"] > 250
