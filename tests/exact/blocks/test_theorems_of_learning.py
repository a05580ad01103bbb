"""Paper B's theorems on 200 random models (Ising, Potts, arbitrary laws; N <= 6), to 1e-8."""

import numpy as np
import pytest

from glauber.exact.blocks.pseudolikelihood import efficiency, smallest_difference
from glauber.exact.blocks.masks import Masks
from glauber.exact.blocks.pseudolikelihood import Pseudolikelihood
from small_families import random_adaptive, random_family, random_weighted

TOLERANCE = 1e-8


@pytest.mark.parametrize("group", range(20))
def test_the_theorems_on_ten_models(group):
    """Information matrix equality, Theorem 1, Theorems 2 and 3 as H >= I/C."""
    for seed in range(10 * group, 10 * group + 10):
        family, theta = random_family(seed)
        space, rng = family.space, np.random.default_rng(seed)
        sizes = [Masks.uniform(space, k) for k in range(1, space.length + 1)]
        others = [
            random_weighted(space, rng),
            random_adaptive(space, rng),
            Masks.least_confident(space, family.distribution(theta), 1),
        ]
        hessians = []
        for masks in sizes + others:
            found = efficiency(Pseudolikelihood(family, masks), theta)
            assert found.asymptotics.equality_gap < TOLERANCE
            assert np.isfinite(found.gap.poincare) and found.gap.error < 1e-10
            assert found.slack > -TOLERANCE
            hessians.append(found.asymptotics.hessian)
        for k in range(1, space.length):
            assert smallest_difference(hessians[k], hessians[k - 1]) > -TOLERANCE


def test_the_bound_fails_where_the_mask_is_not_conditioned_on():
    """The check has teeth: with p(x_K | x_{-K}) in place of p(x_K | x_{-K}, K) the scores of
    adaptive masks no longer have mean zero, and Hessian and score covariance differ."""
    family, theta = random_family(9)
    masks = random_adaptive(family.space, np.random.default_rng(9))
    chances = masks.chances * family.distribution(theta)
    plain = [Pseudolikelihood(family, Masks.uniform(family.space, 1)).score(theta, s)
             for s in range(family.space.length)]  # fmt: skip
    mean = sum(score @ chances[slot] for slot, score in enumerate(plain))
    assert abs(mean).max() > 1e-3
    proper = Pseudolikelihood(family, masks)
    zero = sum(proper.score(theta, s) @ chances[s] for s in range(len(masks.blocks)))
    assert abs(zero).max() < 1e-14
