import json

import pytest

from glauber import paper
from glauber.errors import GlauberError
from glauber.papers.paper import pieces
from glauber.papers.reproduction import Reproduction


def test_every_piece_says_what_it_shows_and_can_be_made():
    found = pieces()
    assert len(found) == 30
    assert all(shows and callable(make) for shows, make in found.values())
    assert paper("list").to_dict() == {name: shows for name, (shows, _) in found.items()}


def test_unknown_pieces_and_scales_are_refused():
    with pytest.raises(GlauberError, match=r"A-table1.*did you mean"):
        paper("A-table9")
    with pytest.raises(GlauberError, match="small, paper"):
        paper("A-table1", scale="huge")


def test_what_is_written_says_how_it_was_made(tmp_path):
    made = Reproduction("A-table1", "small", "by hand", [{"mean": 0.5, "published": 0.644}], 3)
    found = json.loads(made.write(tmp_path / "piece.json").read_text())
    assert found["rows"] == made.rows and found["seed"] == 3 and "torch" in found["versions"]


@pytest.mark.weights
def test_table_1_at_small_scale():
    """300 rectangles of the bundled model; the mean of BERT-base in the paper is 0.644."""
    (row,) = paper("A-table1").rows
    assert row["interval"][0] < row["mean"] < row["interval"][1]
    assert row["certified"] > 250
