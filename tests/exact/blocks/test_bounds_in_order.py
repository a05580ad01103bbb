"""Over many random distributions: no lower bound above its upper one, and no bound violated."""

import numpy as np
import pytest

from glauber.exact.blocks.dynamics import block_gap
from glauber.exact.blocks.masks import Masks
from glauber.exact.blocks.tensorisation import (
    entropy_constant_bound,
    log_sobolev,
    population_bound,
    tensorisation,
)
from glauber.exact.space import Space, over_block
from glauber.exact.stationary import total_variation

SHAPES = ((2, 2), (3, 2), (2, 3))  # tokens, sites
LAWS = 500


def random_law(rng, adaptive):
    """A distribution, flat or spiky, with fixed or adaptive masks of chances from 1e-4 to 1."""
    space = Space(*SHAPES[rng.integers(len(SHAPES))])
    law = rng.dirichlet(np.full(space.size, rng.choice([0.3, 1.0, 30.0]))) + 1e-4
    blocks = [(s,) for s in range(space.length)]
    blocks += [(0, 1)] * (space.length > 2 and rng.random() < 0.5)
    weights = 10 ** rng.uniform(-4, 0, (len(blocks), space.size if adaptive else 1))
    weights /= weights.sum(axis=0)
    if adaptive:
        return law / law.sum(), Masks.adaptive(space, blocks, weights)
    return law / law.sum(), Masks.weighted(space, blocks, weights[:, 0])


def tried(law, rng):
    """Distributions (n, size): the law on any set of states (indicators), and random ones."""
    subsets = np.arange(1, 2**law.size - 1)
    if len(subsets) > 300:
        subsets = rng.choice(subsets, 300, replace=False)
    inside = (subsets[:, None] >> np.arange(law.size)) & 1
    drawn = law * inside
    spiky = rng.dirichlet(np.full(law.size, 0.3), 50)
    return np.concatenate([drawn / drawn.sum(axis=1, keepdims=True), spiky])


def two_sides(law, masks, r):
    """KL(r||q) and E_r E_K KL of the conditionals, for every r (n, size), by their definition."""

    def plogp(p, over):
        return np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0) / over), 0.0)

    other = np.zeros(len(r))
    for hidden, chance in zip(masks.blocks, masks.by_state, strict=True):
        mine, theirs = r * chance, law * chance
        context = over_block(mine, masks.space, hidden)
        known = theirs / over_block(theirs, masks.space, hidden)
        share = np.divide(mine, context, where=context > 0, out=np.zeros_like(mine))
        other += (context * plogp(share, np.where(known > 0, known, 1.0))).sum(axis=1)
    return plogp(r, law).sum(axis=1), other


@pytest.mark.parametrize("adaptive", [False, True])
def test_no_distribution_exceeds_a_ceiling(adaptive):
    """Also Pinsker's consequence: TV(r, q) <= sqrt(C/2 * the excess loss)."""
    rng = np.random.default_rng(26 + adaptive)
    worst, distance = [], []
    for _ in range(LAWS // 2):
        law, masks = random_law(rng, adaptive)
        gap = block_gap(law, masks)
        above = entropy_constant_bound(law, masks, gap).value
        r = tried(law, rng)
        kl, other = two_sides(law, masks, r)
        worst.append(max(gap.poincare, (kl / other).max()) / above)
        far = np.abs(r - law).sum(axis=1) / 2
        distance.append((far / np.sqrt(above / 2 * other)).max())
    worst, distance = np.array(worst), np.array(distance)
    assert (worst > 1 + 1e-9).sum() == 0, f"{(worst > 1).sum()} of {len(worst)}: {worst.max():.3f}"
    assert distance.max() <= 1 + 1e-9, f"total variation is {distance.max():.3f} times its bound"


@pytest.mark.parametrize("adaptive", [False, True])
def test_the_searches_stay_below_their_ceilings(adaptive):
    rng = np.random.default_rng(260 + adaptive)
    for _ in range(12):
        law, masks = random_law(rng, adaptive)
        for found in (tensorisation(law, masks, n_starts=1), log_sobolev(law, masks, n_starts=1)):
            assert found.lower <= found.upper * (1 + 1e-9) and found.accuracy >= -1e-9


@pytest.mark.parametrize("adaptive", [False, True])
def test_the_population_bound_is_never_violated(adaptive):
    """The truth is nearly the learnt distribution without one state or more."""
    rng = np.random.default_rng(2600 + adaptive)
    for _ in range(100):
        learnt, masks = random_law(rng, adaptive)
        above = entropy_constant_bound(learnt, masks, block_gap(learnt, masks)).value
        for r in rng.permutation(tried(learnt, rng))[:8]:
            truth = (1 - 1e-7) * r + 1e-7 * learnt
            promised = population_bound(learnt, truth, masks, tensorisation=above)
            assert total_variation(learnt, truth) <= promised * (1 + 1e-9)


def test_the_population_bound_where_the_constant_one_is_needed():
    """Two bits; site 0 is hidden a hundred times less often at 0, so that hidden it is mostly 1.

    The truth has a 1 there always: its conditionals are those of a likely event.
    """
    chance = np.array([1e-4, 1e-4, 1e-2, 1e-2])
    masks = Masks.adaptive(Space(2, 2), [(0,), (1,)], [chance, 1 - chance])
    learnt = np.array([0.375, 0.375, 0.125, 0.125])
    truth = np.array([1e-9, 1e-9, 0.5 - 1e-9, 0.5 - 1e-9])
    found = tensorisation(learnt, masks, n_starts=1)
    promised = population_bound(learnt, truth, masks, tensorisation=found.upper)
    assert total_variation(learnt, truth) <= promised
    assert found.lower <= found.upper


@pytest.mark.parametrize("least", [0.5, 0.3, 0.1, 0.01])
def test_entropy_bounds_variance_with_the_constant_one(least):
    """Var(g) <= Ent(g^2); an indicator of a likely event shows that no smaller constant does."""
    p = np.array([1 - least, least])
    g = np.random.default_rng(0).uniform(0, 1, (2000, 2))
    g = np.concatenate([g, [[1.0, 0.0]]])
    square = g**2
    mean = square @ p
    entropy = (np.where(square > 0, square * np.log(np.where(square > 0, square, 1)), 0) @ p) - (
        mean * np.log(mean)
    )
    ratio = (mean - (g @ p) ** 2)[entropy > 1e-9] / entropy[entropy > 1e-9]
    assert ratio.max() <= 1 and ratio[-1] == pytest.approx(least / -np.log(1 - least))
