"""What is called a certificate is one, and the figures are those of the rectangles."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from glauber.compatibility.rectangle_test import draw
from glauber.compatibility.rectangle_test import evaluate as rectangles
from glauber.compatibility.rectangles import measure as rectangle_study
from glauber.compatibility.rectangles import read
from glauber.conditionals.base import Conditionals, Restricted
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.starts import passages, starts
from glauber.conditionals.table import Joint, Table
from glauber.statistics import bootstrap_mean


@dataclass(frozen=True)
class Single:
    """The same conditionals with scores rounded to float32."""

    base: Conditionals

    @property
    def vocab_size(self) -> int:
        return self.base.vocab_size

    def scores(self, tokens, sites, candidates=None):
        return self.base.scores(tokens, sites, candidates).float()


def study_of(law, count=200):
    tokens = torch.randint(6, (9, 4), generator=torch.Generator().manual_seed(0))
    free = torch.ones_like(tokens, dtype=torch.bool)
    return rectangle_study(Single(law), law, tokens, free=free, count=count, top=5)


@pytest.mark.parametrize("strength", [0.1, 1.0, 30.0])
def test_a_joint_law_gets_no_certificate(strength):
    for seed in range(4):
        study = study_of(Joint.random(6, 4, seed=seed, strength=strength))
        assert study.delta.max() > 0  # rounding shows
        assert not study.certified.any()
        assert study.strongest(3) == []


def test_a_law_without_rounding_gets_no_certificate_either():
    """Equal Deltas in both dtypes must not make the floor zero."""
    law = Joint.random(6, 4, seed=1)
    tokens = torch.zeros(3, 4, dtype=torch.int64)
    study = rectangle_study(law, law, tokens, free=tokens == 0, count=100, top=5)
    assert study.delta.max() > 0
    assert not study.certified.any()


def test_the_figures_are_those_of_the_rectangles():
    study = study_of(Table.random(6, 4, seed=2))
    told = study.summary()
    delta = study.rectangles.delta.tolist()
    assert told["mean"] == pytest.approx(sum(delta) / len(delta))
    assert told["median"] == pytest.approx(sorted(delta)[99] / 2 + sorted(delta)[100] / 2)
    apart = max(abs(a - b) for a, b in zip(delta, study.precise.delta.tolist(), strict=True))
    assert 0 < apart < 1e-5
    assert told["noise_floor"] == pytest.approx(apart, rel=1e-4)
    assert told["certified"] == sum(d > told["noise_floor"] for d in delta) >= 195
    assert told["share_certified"] == told["certified"] / 200
    first, second = study.strongest(2)
    assert (delta[first], delta[second]) == tuple(sorted(delta, reverse=True)[:2])
    assert study.influence == pytest.approx(np.asarray(study.rectangles.influence).mean(axis=1))


def test_the_bootstrap_interval_is_near_the_normal_one():
    values = np.random.default_rng(0).exponential(size=400)
    low, high = bootstrap_mean(values, seed=1)
    half = 1.96 * values.std() / math.sqrt(len(values))
    # 10,000 resamples place a 2.5% quantile of a normal within about 3 * 0.027 deviations.
    assert (high - low) / 2 == pytest.approx(half, rel=0.1)
    assert low < values.mean() < high
    assert (low, high) == bootstrap_mean(values, seed=1)


def test_a_rectangle_reads_as_four_sentences(tiny_folder):
    laws = MaskedLM.load(str(tiny_folder), device="cpu")
    tokens, _ = laws.vocabulary.encode(["the cat sat on the mat ."])
    words = laws.vocabulary.tokenizer.get_vocab()
    values = torch.tensor([[words["dog"], words["tree"]]])
    found = rectangles(laws, tokens, torch.tensor([[2, 6]]), values)
    reading = read(found, 0, laws.vocabulary)
    assert reading.changes == (("cat", "dog"), ("mat", "tree"))
    assert reading.corners == (
        "the cat sat on the mat.",
        "the dog sat on the mat.",
        "the cat sat on the tree.",
        "the dog sat on the tree.",
    )
    assert abs(reading.one_way - reading.other_way) == pytest.approx(reading.delta)


@pytest.mark.weights
def test_the_bundled_model_is_as_incompatible_as_the_papers_models():
    """300 rectangles of 20 tokens: a mean between 0.5 and 0.85 (paper, BERT-base: 0.644)."""
    model = MaskedLM.load("bundled:english", device="cpu")
    tokens, free = starts(model, [text for _, text in passages()], length=20)
    laws = Restricted(model, model.vocabulary.proposable())
    drawn = draw(laws, tokens, free, count=300)
    delta = rectangles(laws, *drawn[:3], influence=False).delta
    print(f"mean {float(delta.mean()):.3f}")
    assert 0.5 <= float(delta.mean()) <= 0.85
