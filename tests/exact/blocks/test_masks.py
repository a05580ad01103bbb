"""Masks and what they tell: Lemma 3 exactly, Lemma 4 on random laws, and what is refused."""

from fractions import Fraction

import numpy as np
import pytest

from glauber.exact.blocks.masks import (
    Masks,
    given_mask,
    lemma_3_example,
    mean_over_events,
)
from glauber.exact.blocks.pseudolikelihood import Pseudolikelihood
from glauber.exact.models import Ising, ising_family
from glauber.exact.space import Space, conditional
from glauber.foundation.errors import GlauberError
from glauber.models.table import Joint
from small_families import random_adaptive


def test_lemma_3_is_exact():
    """9/17 against 3/5, and 6/7 against 3/4 (paper B; 9/13 would read K as the visible set)."""
    law, chances = lemma_3_example()
    space = Space(2, 2)
    assert law.sum() == 1
    assert given_mask(law, chances[1], space, (1,))[0] == Fraction(9, 17)
    assert conditional(law, space, (1,))[0] == Fraction(3, 5)
    assert given_mask(law, chances[0], space, (0,))[0] == Fraction(6, 7)
    assert conditional(law, space, (0,))[0] == Fraction(3, 4)
    assert mean_over_events(law, chances, space, (1,))[0] == Fraction(3, 5)


@pytest.mark.parametrize("seed", range(30))
def test_lemma_4_on_random_laws_and_masks(seed):
    rng = np.random.default_rng(seed)
    vocab, length = ((2, 2), (2, 4), (3, 3))[seed % 3]
    space = Space(vocab, length)
    law = Joint.random(vocab, length, seed).probabilities().numpy()
    masks = random_adaptive(space, rng)
    for hidden, chance in zip(masks.blocks, masks.chances, strict=True):
        plain = conditional(law, space, hidden)
        np.testing.assert_allclose(
            mean_over_events(law, masks.chances, space, hidden), plain, rtol=1e-12
        )
        if (chance > 0).all() and len(hidden) < length:
            assert abs(given_mask(law, chance, space, hidden) - plain).max() > 1e-4


def test_lemma_4_without_rounding():
    rng = np.random.default_rng(0)
    weights = [[Fraction(int(n)) for n in rng.integers(1, 20, 8)] for _ in range(4)]
    law = np.array(weights[0], dtype=object) / sum(weights[0])
    chances = np.array(weights[1:], dtype=object)
    chances = chances / chances.sum(axis=0)
    found = mean_over_events(law, chances, Space(2, 3), (0, 2))
    assert list(found) == list(conditional(law, Space(2, 3), (0, 2)))


def test_uniform_and_least_confident():
    space = Space(2, 4)
    assert len(Masks.uniform(space, 2).blocks) == 6 and not Masks.uniform(space, 2).is_adaptive
    law = Ising.random(4, seed=2).probabilities
    masks = Masks.least_confident(space, law, 1, sharpness=2.0)
    doubts = np.stack([1 - conditional(law, space, (site,)) for site in range(4)]) ** 2
    np.testing.assert_allclose(masks.chances, doubts / doubts.sum(axis=0))
    assert masks.is_adaptive and masks.by_state.shape == (4, 16)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda s: Masks.uniform(s, 0), "k = 0 sites, but k must be from 1 to 3"),
        (lambda s: Masks.uniform(s, 4), "k = 4 sites"),
        (lambda s: Masks.from_weights(s, [(0,), (0, 2)]), "no mask hides the sites 1"),
        (lambda s: Masks.from_weights(s, [(0, 1, 2)], [0.0]), "positive"),
        (lambda s: Masks.from_weights(s, [(0, 3)]), "sites from 0 to 2"),
        (lambda s: Masks.adaptive(s, [(0, 1, 2)], np.full((1, 8), 0.5)), "sum to 1"),
        (lambda s: Masks.adaptive(s, [(0, 1, 2)], np.ones((1, 7))), "8 states"),
        (lambda s: Masks(s, ((0, 1), (1, 2)), np.array([1.0, 0.0])), "no mask hides the sites 2"),
    ],
)
def test_what_is_refused(make, words):
    with pytest.raises(GlauberError, match=words):
        make(Space(2, 3))


def test_too_many_masks_for_memory_say_what_would_fit():
    with pytest.raises(GlauberError, match=r"16 sites .* masks of 8 sites .* 14 sites would fit"):
        Pseudolikelihood.of_size(ising_family(16), 8)
    Pseudolikelihood.of_size(ising_family(10), 5)
