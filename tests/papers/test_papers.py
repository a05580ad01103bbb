import json
import math
from pathlib import Path

import pytest
import torch
import transformers
from scipy.stats import spearmanr

import glauber
from glauber import paper
from glauber.errors import GlauberError
from glauber.papers import rectangles
from glauber.papers.paper import Reproduction, pieces
from glauber.papers.settings import FLAGS, Settings


def test_every_piece_says_what_it_shows_and_can_be_made():
    found = pieces()
    assert len(found) == 33
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
def test_rectangles_of_the_bundled_model(tmp_path, monkeypatch):
    """Table 1 and figure 6 on fewer rectangles: the same study, made once, and right by hand."""
    monkeypatch.setattr(rectangles, "COUNT", 12)
    monkeypatch.setattr("glauber.compatibility.rectangles.CONTROL_COUNT", 2)
    row, control = paper("A-table1", out=tmp_path).rows
    assert control["mean"] < 1e-12 and control["published"] == 0
    (part,) = (tmp_path / "parts").glob("rectangles-*.json")
    found = glauber.rectangles(count=12, length=20, seed=0)
    assert found.noise_floor < 1e-4
    assert row["mean"] == pytest.approx(found.delta.mean(), abs=1e-4)
    assert row["interval"][0] < row["mean"] < row["interval"][1]
    error = found.delta.std(ddof=1) / math.sqrt(12)
    width = row["interval"][1] - row["interval"][0]  # over passages, and wider for the skewness
    assert 1 < width / (2 * 1.96 * error) < 4
    assert row["certified"] == 12
    (other,) = paper("A-fig6", out=tmp_path).rows
    assert list((tmp_path / "parts").glob("rectangles-*.json")) == [part]
    both = spearmanr(found.influence, found.delta)[0]
    assert other["rank correlation"] == pytest.approx(both, abs=1e-3)
    by_hand = deltas_by_hand(found, range(0, 12, 3))
    assert found.precise.delta[::3].numpy() == pytest.approx(by_hand, abs=1e-9)


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
