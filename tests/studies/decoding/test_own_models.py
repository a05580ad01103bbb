"""Studies of a user's model that sums out hidden sites give the answers of enumeration."""

import itertools

import numpy as np
import pytest
import torch

import glauber
from glauber.models.table import Joint


class Strict:
    """A joint distribution that refuses PAD and repeated sites."""

    def __init__(self, joint: Joint) -> None:
        self.joint, self.vocab_size, self.length = joint, joint.vocab_size, joint.length

    def scores(self, tokens, sites, candidates=None):
        assert bool((sites >= 0).all())
        assert all(len(set(row)) == len(row) for row in sites.tolist())
        return self.joint.scores(tokens, sites, candidates)


@pytest.fixture(scope="module")
def joint() -> Joint:
    return Joint.random(2, 7, seed=3)


def exact_conditional(joint: Joint, hidden: tuple[int, ...], tokens: list[int]) -> np.ndarray:
    """The joint conditional (2, …, 2) of the hidden sites, by enumeration."""
    weights = joint.probabilities().numpy().reshape((2,) * joint.length)
    index = tuple(slice(None) if i in hidden else t for i, t in enumerate(tokens))
    return weights[index] / weights[index].sum()


def test_each_row_is_scored_with_its_own_number_of_hidden_sites(joint: Joint) -> None:
    model = glauber.load(Strict(joint))
    subsets = [hidden for k in range(1, 8) for hidden in itertools.combinations(range(7), k)]
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(2, (len(subsets), 7), generator=generator)
    sites = torch.full((len(subsets), 7), -1)
    for row, hidden in enumerate(subsets):  # PAD before, between and after the hidden sites
        slots = torch.randperm(7, generator=generator)[: len(hidden)]
        sites[row, slots] = torch.tensor(hidden)
    scores = model.scores(tokens, sites).softmax(-1).numpy()
    flipped = torch.tensor([1, 0]).expand(*sites.shape, -1)
    candidates = model.scores(tokens, sites, flipped).softmax(-1).numpy()
    for row, hidden in enumerate(subsets):
        exact = exact_conditional(joint, hidden, tokens[row].tolist())
        for axis, site in enumerate(hidden):
            others = tuple(other for other in range(len(hidden)) if other != axis)
            slot = sites[row].tolist().index(site)
            np.testing.assert_allclose(scores[row, slot], exact.sum(axis=others), atol=1e-12)
            np.testing.assert_array_equal(candidates[row, slot], scores[row, slot, ::-1])
    assert model.scores(tokens[:2], torch.full((2, 3), -1)).shape == (2, 3, 2)


@pytest.mark.parametrize("order", ["random", "left-to-right", "confidence"])
def test_infill_of_five_sites_has_the_exact_distribution(joint: Joint, order: str) -> None:
    """One site a pass, so the fills have the joint conditional whatever the order."""
    fills = glauber.infill(
        Strict(joint), ["[MASK:5]01"], chains=4000, temperature=1.0, order=order, seed=1
    )
    exact = exact_conditional(joint, (0, 1, 2, 3, 4), [0, 0, 0, 0, 0, 0, 1]).flatten()
    codes = [int(text[:5], 2) for text in fills.texts]
    observed = np.bincount(codes, minlength=32) / len(codes)
    # The expectation is at most 0.5 sqrt(32 / 4000), the standard error at most 0.5 / sqrt(4000).
    assert 0.5 * np.abs(observed - exact).sum() < 0.045 + 4 / 2 / np.sqrt(4000)


@pytest.mark.parametrize("length", range(1, 8))
def test_generate_writes_any_number_of_sites(length: int) -> None:
    joint = Joint.random(2, length, seed=1)
    texts = glauber.generate(Strict(joint), length=length, chains=500, seed=0).texts
    observed = np.bincount([int(text, 2) for text in texts], minlength=2**length) / 500
    distance = 0.5 * np.abs(observed - joint.probabilities().numpy()).sum()
    assert distance < 0.5 * np.sqrt(2**length / 500) + 4 / 2 / np.sqrt(500)


def test_other_studies_of_several_hidden_sites(joint: Joint) -> None:
    """Each is asked with five hidden sites, for which other models are asked with six slots."""
    model = Strict(joint)
    rows = list(itertools.islice(itertools.product("01", repeat=7), 0, 120, 4))
    texts = ["".join(row) for row in rows]
    calibration = glauber.calibrate(model, texts, length=7, passes=1, samples=8, written=3)
    assert "nan" not in str(calibration)
    for block in (None, 2):
        correction = glauber.correction(model, "0101010", hide=5, chains=8, correct_block=block)
        assert correction.to_dict()
    cost = glauber.parallel_cost(model, "0101010", sites="0-4", samples=8)
    assert cost.to_dict()
    frontier = glauber.frontier(model, texts, length=7, chains=4)
    assert frontier.to_dict()
    run = glauber.sample(model, "0101010", scan="block:5", steps=20, chains=3)
    assert run.tokens().shape == (3, 7)
