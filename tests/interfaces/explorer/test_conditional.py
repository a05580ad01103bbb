"""The conditional that a page shows is the model's own softmax at that site."""

import json
import math

import numpy as np
import pytest
import torch

import glauber
from conftest import TEXTS
from glauber.foundation.errors import GlauberError
from glauber.interfaces.explorer.conditional import Shown, conditional_at, sure_at, words
from glauber.models.base import Restricted
from glauber.models.table import Table
from glauber.texts.starts import starts


@pytest.fixture(scope="module")
def model(tiny_folder):
    return glauber.load(str(tiny_folder))


@pytest.fixture(scope="module")
def begun(model):
    tokens, free = starts(model, TEXTS[:1])
    return tokens[0], Shown.of(model.vocabulary, tokens[0], free[0])


@pytest.mark.parametrize("temperature", [0.01, 0.7, 1.0, 30.0])
def test_the_whole_conditional_is_the_models_softmax(model, begun, temperature):
    tokens, shown = begun
    position = shown.position(2)
    found = conditional_at(
        model.conditionals(), model.vocabulary, tokens, position, temperature, whole=True
    )
    scores = model.scores(tokens[None], torch.tensor([[position]]))[0, 0].double()
    allowed = model.vocabulary.proposable()
    exps = torch.where(allowed, ((scores - scores[allowed].max()) / temperature).exp(), 0)
    expected = (exps / exps.sum()).numpy()
    assert abs(math.fsum(found["probabilities"]) - 1) < 1e-12
    assert np.allclose(found["probabilities"], expected, rtol=0, atol=1e-6)
    assert found["n_tokens"] == int(allowed.sum())
    listed = [one["probability"] for one in found["top"]]
    assert listed == sorted(listed, reverse=True) and len(listed) == 20
    assert math.isclose(sum(listed) + found["rest"], 1, abs_tol=1e-12)
    there = expected[expected > 0]
    assert math.isclose(found["entropy"], -(there * np.log(there)).sum(), abs_tol=1e-9)
    own = expected[tokens[position]]
    if own < 1 - 1e-9:
        assert math.isclose(found["holding"]["steps"], 1 / (1 - own), rel_tol=1e-6)
    others = scores[allowed & (torch.arange(len(scores)) != tokens[position])]
    assert math.isclose(found["margin"], float(scores[tokens[position]] - others.max()))
    json.dumps(found, allow_nan=False)


def test_a_very_cold_site_is_held_longer_than_a_float_can_say(model, begun):
    tokens, shown = begun
    surest = int(sure_at(model.conditionals(), tokens, shown.positions, 1.0)[0].argmax())
    row, law = tokens.clone(), model.conditionals()
    best = conditional_at(law, model.vocabulary, row, shown.position(surest), 1.0)["top"][0]
    row[shown.position(surest)] = best["token"]
    found = conditional_at(law, model.vocabulary, row, shown.position(surest), 1e-5)
    assert found["holding"]["steps"] is None
    assert found["holding"]["log10"] > 300
    json.dumps(found, allow_nan=False)


def test_sure_is_the_conditional_of_each_site_alone(model, begun):
    tokens, shown = begun
    law = model.conditionals()
    log_prob, entropy = sure_at(law, tokens, shown.positions, 0.7)
    assert len(log_prob) == len(shown.positions) == int((tokens > 4).sum())
    for site, position in enumerate(shown.positions):
        found = conditional_at(law, model.vocabulary, tokens, position, 0.7, whole=True)
        assert math.isclose(
            log_prob[site], math.log(found["probabilities"][int(tokens[position])]), abs_tol=1e-6
        )
        assert math.isclose(entropy[site], found["entropy"], abs_tol=1e-6)


def test_a_token_that_is_never_proposed_has_no_margin():
    table = Table.random(3, 2, seed=0)
    law = Restricted(table, torch.tensor([True, True, False]))
    model = glauber.load(table)
    found = conditional_at(law, model.vocabulary, torch.tensor([2, 0]), 0, 1.0, whole=True)
    assert found["margin"] is None and found["holding"]["steps"] is None
    assert found["probabilities"][2] == 0 and found["n_tokens"] == 2
    log_prob, entropy = sure_at(law, torch.tensor([2, 0]), [0, 1], 1.0)
    assert np.isnan(log_prob[0]) and np.isfinite(log_prob[1]) and np.isfinite(entropy).all()
    json.dumps(found, allow_nan=False)


def test_shown_sites_begin_behind_the_special_tokens(model):
    tokens, free = starts(model, ["the cat sat"], prefix="a dog .")
    shown = Shown.of(model.vocabulary, tokens[0], free[0])
    assert (shown.first, shown.last) == (1, 7)
    spelled = words(model.vocabulary, tokens[0, shown.first : shown.last].tolist())
    assert [spelled[str(t)] for t in tokens[0, 1:4].tolist()] == [" a", " dog", " ."]
    assert shown.position(0) == 1
    for wrong in (6, -1, 1.5, True):
        with pytest.raises(GlauberError, match="site"):
            shown.position(wrong)
