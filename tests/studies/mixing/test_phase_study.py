"""phase: in memory, in a folder, in processes, to the same cells."""

import json

import numpy as np
import pytest
import torch

from glauber.foundation.errors import GlauberError
from glauber.models.masked_lm import MaskedLM
from glauber.sampling.sweeps.executors import run_here
from glauber.sampling.sweeps.folder import results
from glauber.studies.mixing.couple import pairs_of_texts
from glauber.studies.mixing.influence import influence
from glauber.studies.mixing.phase import phase, some_texts

SMALL = dict(lengths=[2, 4], temperatures=[0.5, 4.0], pairs=3, steps=6, device="cpu")


def test_memory_and_a_folder_give_the_same_cells(tiny_folder, texts, tmp_path):
    model = MaskedLM.load(str(tiny_folder), device="cpu")
    whole = phase(model, texts, **SMALL)
    assert [(c.length, c.temperature) for c in whole.cells] == [(2, 0.5), (2, 4), (4, 0.5), (4, 4)]
    assert all(len(c.times) == 3 and c.steps == 6 for c in whole.cells)
    assert whole.to_dict()["at_steps"]["crossovers"][0]["kind"] == "estimate"
    folder = tmp_path / "sweep"
    kept = phase(str(tiny_folder), texts, out=folder, **SMALL)
    assert kept.cells == whole.cells
    assert "plotly" in (folder / "phase.html").read_text().lower()
    (folder / "cells" / "length-4_temperature-4.json").unlink()
    assert len(results(folder)) == 3
    assert phase(str(tiny_folder), texts, out=folder, **SMALL).cells == whole.cells
    assert len(results(folder)) == 4


def test_without_a_folder_workers_share_a_passing_one(tiny_folder, texts, monkeypatch):
    """What workers do by themselves is tested in tests/sampling/sweeps; here in this process."""
    expected = phase(str(tiny_folder), texts, **SMALL)
    monkeypatch.setattr("glauber.studies.mixing.phase.choose_executor", lambda *_, **__: run_here)
    found = phase(str(tiny_folder), texts, on="processes", **SMALL)
    assert found.cells == expected.cells and found.folder is None


def test_sweeps_count_in_lengths(tiny_folder, texts):
    found = phase(str(tiny_folder), texts, sweeps=2, **SMALL)
    assert [cell.steps for cell in found.cells] == [4, 4, 8, 8]
    cold = [cell for cell in found.cells if not all(cell.met)]
    assert cold and all(max(cell.times) == cell.steps for cell in cold)


def test_thresholds_are_those_of_influence(tiny_folder, texts):
    """One text's threshold again, by the study of influence with the same contexts."""
    found = phase(str(tiny_folder), texts, thresholds=3, threshold_lengths=[4], **SMALL)
    model = MaskedLM.load(str(tiny_folder), device="cpu")
    tokens, _ = some_texts(model, texts, 4)
    row = int(pairs_of_texts(len(tokens), 3, seed=0)[0, 0])
    alone = influence(model, model.vocabulary.decode(tokens[row]), chains=1)
    (ratio,) = found.ratios
    assert ratio.thresholds[0] == pytest.approx(alone.threshold, rel=1e-6)
    assert ratio.length == 4
    assert ratio.line in str(found) and found.to_dict()["ratios"]
    with pytest.raises(GlauberError, match="thresholds of 9 tokens are asked for"):
        phase(str(tiny_folder), texts, thresholds=3, threshold_lengths=[9], **SMALL)


class Ring:
    """A rule of one's own, of 25 tokens: neighbours on a ring attract one another."""

    vocab_size = 25

    def scores(self, tokens, sites):
        found = torch.zeros(*sites.shape, 25, dtype=torch.float64)
        for step in (-1, 1):
            beside = tokens.gather(1, (sites + step) % tokens.shape[1])
            found.scatter_add_(2, beside[..., None], torch.full_like(found[..., :1], 2.0))
        return found


def test_a_rule_of_ones_own_at_several_lengths():
    """Rows of one length at a time: a rule is never shown a text with gaps at its end."""
    texts = ["0 1 2 3 4 5 6 7", "8 9 10 11 12 13 14 15", "3 3 3 4 4 4 5 5", "24 6 5 4 3 2 1 0"]
    found = phase(
        Ring(), texts, lengths=[4, 8], temperatures=[0.01, 10.0], pairs=8, steps=60, thresholds=3
    )
    hot, cold = found.cell(10.0, 8), found.cell(0.01, 8)
    assert sum(hot.met) > sum(cold.met) and hot.median_sweeps < 60 / 8
    # Two neighbours at 2 each: a change swings the difference of scores by 4, on two sites.
    assert found.ratios[1].threshold == pytest.approx(1 / np.arctanh(0.5), rel=1e-6)


def test_cells_have_pairs_of_their_own(tiny_folder, texts, monkeypatch):
    seeds = []

    def noted(n_texts, n_pairs, *, seed):
        seeds.append(seed)
        return pairs_of_texts(n_texts, n_pairs, seed=seed)

    monkeypatch.setattr("glauber.studies.mixing.phase.pairs_of_texts", noted)
    phase(str(tiny_folder), texts, **SMALL)
    assert len(set(seeds)) == len(seeds) == 4


def test_the_answer(tiny_folder, texts):
    found = phase(str(tiny_folder), texts, **SMALL)
    assert found.frame().met.tolist() == [sum(cell.met) for cell in found.cells]
    assert "tokens" in str(found) and f"{found.cells[1].short}" in str(found)
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict(lengths=[]), "lengths is empty"),
        (dict(temperatures=[]), "the grid is empty: no temperature"),
        (dict(steps=0), "steps is 0"),
        (dict(sweeps=0), "sweeps is 0"),
        (dict(pairs=0), "pairs is 0"),
        (dict(pairs=10**9), "ask for less"),
        (dict(temperatures=[1, -1]), "positive finite"),
        (dict(lengths=[2, 2]), "names a length twice"),
        (dict(lengths=[2.5]), "whole number"),
        (dict(lengths=[900]), "two different texts of 900 tokens"),
        (dict(coupling="magic"), "must be one of"),
        (dict(seed=10**20), "seed is"),
        (dict(on="moon"), "must be one of local, processes, ray"),
        (dict(on="processes", workers=0), "at least 1"),
        (dict(dtype="int8"), "int8 is for drawing samples only"),
        (dict(dtype="int8", on="processes"), "int8 is for drawing samples only"),
    ],
)
def test_phase_refuses(tiny_folder, texts, change, said):
    with pytest.raises(GlauberError, match=said):
        phase(str(tiny_folder), texts, **SMALL | change)


def test_places_that_cannot_be_a_folder(tiny_folder, texts, tmp_path):
    (tmp_path / "letter").write_text("dear")
    for out in (tmp_path / "letter", tmp_path / "page.html", "/", tmp_path / ("x" * 400)):
        with pytest.raises(GlauberError):
            phase(str(tiny_folder), texts, out=out, **SMALL)
    model = MaskedLM.load(str(tiny_folder), device="cpu")
    with pytest.raises(GlauberError, match="by its name"):
        phase(model, texts, out=tmp_path / "s", **SMALL)
