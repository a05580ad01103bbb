import json
import math
from pathlib import Path

import pytest
import torch
import transformers

import glauber
from glauber import paper
from glauber.errors import GlauberError
from glauber.papers.paper import Reproduction, pieces
from glauber.papers.settings import FLAGS, Settings


def test_every_piece_says_what_it_shows_and_can_be_made():
    found = pieces()
    assert len(found) == 30
    assert all(one.shows and callable(one.make) for one in found.values())
    assert paper("list").to_dict() == {name: one.shows for name, one in found.items()}


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_every_piece_lists_its_chains_beforehand(scale, tmp_path):
    """Without a model: the list is what a machine with a GPU is given. Seeds share no chains."""
    for name, one in pieces().items():
        assert set(one.takes) <= set(FLAGS)
        listed = [
            {chains.digest for chains in one.needs(Settings(name, scale, seed, tmp_path))}
            for seed in range(3)
        ]
        assert not (listed[0] & listed[1] or listed[0] & listed[2] or listed[1] & listed[2])


def test_unknown_pieces_and_scales_are_refused():
    with pytest.raises(GlauberError, match=r"A-table1.*did you mean"):
        paper("A-table9")
    with pytest.raises(GlauberError, match="small, paper"):
        paper("A-table1", scale="huge")


def test_what_is_written_says_how_it_was_made(tmp_path):
    made = Reproduction("A-table1", "small", "by hand", [{"mean": 0.5, "published": 0.644}], (3,))
    found = json.loads(made.write(tmp_path / "piece.json").read_text())
    assert found["rows"] == made.rows and found["seeds"] == [3] and "torch" in found["versions"]


@pytest.mark.weights
def test_table_1_at_small_scale(tmp_path):
    """One seed gives one number: the mean of 300 Deltas, up to what rounding can add to each.

    The noise floor is the largest difference between float32 and float64 over these rectangles,
    so on another machine the mean moves by less; the mean of BERT-base in the paper is 0.644.
    """
    (row,) = paper("A-table1", out=tmp_path).rows
    found = glauber.rectangles(count=300, length=20, seed=0)
    assert found.noise_floor < 1e-4
    assert row["mean"] == pytest.approx(0.6769997, abs=1e-4)
    assert row["interval"][0] < row["mean"] < row["interval"][1]
    error = found.delta.std(ddof=1) / math.sqrt(300)
    assert row["interval"][1] - row["interval"][0] == pytest.approx(2 * 1.96 * error, rel=0.3)
    assert row["certified"] == 300
    (correlation,) = paper("A-fig6", out=tmp_path).rows
    assert correlation["rank correlation"] == pytest.approx(0.4421, abs=1e-3)
    by_hand = deltas_by_hand(found, range(0, 300, 25))
    assert found.precise.delta[::25].numpy() == pytest.approx(by_hand, abs=1e-9)


def deltas_by_hand(found, which):
    """Delta of some rectangles by transformers alone, in float64: texts with one mask each."""
    folder = Path(glauber.__file__).parent / "models" / "english"
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).double().eval()
    mask = transformers.AutoTokenizer.from_pretrained(folder).mask_token_id

    def ratio(tokens, site, old, new):
        hidden = tokens.clone()
        hidden[site] = mask
        with torch.no_grad():
            logits = model(hidden[None]).logits[0, site]
        return float(logits[new] - logits[old])

    deltas = []
    for k in which:
        tokens = found.rectangles.tokens[k]
        (i, j), (new_i, new_j) = found.rectangles.sites[k].tolist(), found.rectangles.values[k]
        old_i, old_j = tokens[i].clone(), tokens[j].clone()
        with_i, with_j = tokens.clone(), tokens.clone()
        with_i[i], with_j[j] = new_i, new_j
        one = ratio(tokens, i, old_i, new_i) + ratio(with_i, j, old_j, new_j)
        other = ratio(tokens, j, old_j, new_j) + ratio(with_j, i, old_i, new_i)
        deltas.append(abs(one - other))
    return deltas
