"""Constants of relative entropy between their bounds, also on many random distributions."""

import math

import numpy as np
import pytest

from glauber.exact.blocks.dynamics import block_chain, block_gap, dirichlet_form, entropy, variance
from glauber.exact.blocks.masks import Masks, given_mask
from glauber.exact.blocks.tensorisation import (
    bound_by_gap,
    bound_by_product,
    decay,
    dissipation_sides,
    entropy_constant_bound,
    log_sobolev,
    population_bound,
    roots_dissipated,
    tensorisation,
    tensorisation_sides,
)
from glauber.exact.models import Ising
from glauber.exact.space import Space, over_block
from glauber.exact.stationary import total_variation
from glauber.foundation.errors import GlauberError
from small_families import random_adaptive, random_family, random_weighted


def chain_by_hand(law, masks):
    """P (size, size) entry by entry: sum over K of p_K(K|x) p(x'_K | x_{-K}, K)."""
    states = masks.space.states().numpy()
    matrix = np.zeros((law.size, law.size))
    for hidden, chance in zip(masks.blocks, masks.by_state, strict=True):
        law_of_block = given_mask(law, chance, masks.space, hidden)
        seen = [s for s in range(masks.space.length) if s not in hidden]
        alike = (states[:, None, seen] == states[None, :, seen]).all(axis=2)
        matrix += chance[:, None] * alike * law_of_block[None, :]
    return matrix


@pytest.mark.parametrize("seed", [0, 1, 2, 5])
@pytest.mark.parametrize("adaptive", [False, True])
def test_the_chain_and_its_form(seed, adaptive):
    family, theta = random_family(seed)
    law, rng = family.distribution(theta), np.random.default_rng(seed)
    if adaptive:
        singles = [(s,) for s in range(family.space.length)]
        weights = rng.uniform(0.1, 1, (len(singles), law.size))
        masks = Masks.adaptive(family.space, singles, weights / weights.sum(axis=0))
    else:
        masks = random_weighted(family.space, rng)
    matrix = chain_by_hand(law, masks)
    chain = block_chain(law, masks)
    np.testing.assert_allclose(chain @ np.eye(law.size), matrix, atol=1e-14)
    np.testing.assert_allclose(chain.T @ law, law, atol=1e-14)
    flow = law[:, None] * matrix
    np.testing.assert_allclose(flow, flow.T, atol=1e-15)  # reversible
    assert np.linalg.eigvalsh(flow / np.sqrt(np.outer(law, law)))[0] > -1e-12
    f, g = rng.normal(size=(2, law.size))
    assert dirichlet_form(law, masks, f, g) == pytest.approx(law @ (f * (g - matrix @ g)))
    values = np.sort(np.linalg.eigvals(matrix).real)
    found = block_gap(law, masks)
    assert found.value == pytest.approx(1 - values[-2], abs=1e-9)
    slow = found.function
    assert variance(law, slow) == pytest.approx(found.poincare * dirichlet_form(law, masks, slow))
    assert variance(law, f) <= found.poincare * dirichlet_form(law, masks, f) + 1e-12


def test_zero_chances_stay_zero():
    family, theta = random_family(9)
    law = family.distribution(theta)
    masks = random_adaptive(family.space, np.random.default_rng(3))
    assert (masks.chances == 0).any()
    chain = block_chain(law, masks)
    np.testing.assert_allclose((chain @ np.eye(law.size)).sum(axis=1), 1, atol=1e-13)
    np.testing.assert_allclose(chain.T @ law, law, atol=1e-14)


def test_the_sparse_solver_agrees_with_closed_forms():
    """A product law of N sites has the gap k/N, whatever its size."""
    for n, k in ((10, 1), (10, 3)):
        law = Ising(np.linspace(-0.5, 0.5, n), np.zeros((n, n))).probabilities
        found = block_gap(law, Masks.uniform(Space(2, n), k))
        assert found.value == pytest.approx(k / n, abs=1e-9) and found.error < 1e-8


def test_masks_that_do_not_reach_everything_have_no_constant():
    """Adaptive masks that never move at 00 and 11, and swap between the others."""
    masks = Masks.adaptive(Space(2, 2), [(0, 1), (0,)], [[1, 0, 0, 1], [0, 1, 1, 0]])
    found = block_gap(np.full(4, 0.25), masks)
    assert math.isinf(found.poincare) and math.isinf(bound_by_gap(np.full(4, 0.25), found))


def test_product_laws_have_the_constant_n_over_k():
    law = Ising(np.array([0.4, -0.2, 0.1]), np.zeros((3, 3))).probabilities
    for k in (1, 2, 3):
        found = tensorisation(law, Masks.uniform(Space(2, 3), k))
        assert found.upper == pytest.approx(3 / k, rel=1e-6)
        assert found.lower == pytest.approx(3 / k, rel=1e-6)
        assert found.accuracy < 1e-6
    half = log_sobolev(np.array([0.5, 0.5]), Masks.uniform(Space(2, 1), 1))
    assert half.lower == pytest.approx(0.5, rel=1e-6)  # one fair bit: 1/2, by its linearisation
    assert half.lower <= half.upper * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_the_constants_lie_between_their_bounds(seed):
    family, theta = random_family((0, 1, 2, 3, 5, 6)[seed])
    law, rng = family.distribution(theta), np.random.default_rng(seed)
    make = (random_weighted, random_adaptive)[seed % 2]
    masks = make(family.space, rng)
    gap = block_gap(law, masks)
    whole = tensorisation(law, masks, n_starts=2)
    modified = log_sobolev(law, masks, n_starts=2)
    assert gap.poincare <= whole.lower <= whole.upper * (1 + 1e-9)
    assert gap.poincare / 2 <= modified.lower <= modified.upper * (1 + 1e-9)
    assert modified.lower <= whole.upper * (1 + 1e-9)
    assert whole.upper <= min(bound_by_gap(law, gap), bound_by_product(law, masks)) + 1e-12
    both = [
        (tensorisation_sides(law, masks), whole.upper),
        (dissipation_sides(law, masks), modified.upper),
    ]
    for _ in range(200):  # no random law beats the upper bounds
        log_r = np.log(rng.dirichlet(np.full(law.size, rng.choice([0.2, 1.0, 5.0]))) + 1e-12)
        log_r -= np.log(np.exp(log_r).sum())
        for sides, upper in both:
            above, below, *_ = sides(log_r)
            assert above <= upper * below * (1 + 1e-9)


def test_the_two_sides_by_hand_and_their_slopes():
    family, theta = random_family(3)
    law, rng = family.distribution(theta), np.random.default_rng(1)
    masks = random_weighted(family.space, rng)
    r = rng.dirichlet(np.ones(law.size))
    f = r / law
    kl, other, *_ = tensorisation_sides(law, masks)(np.log(r))
    assert kl == pytest.approx(entropy(law, f))
    by_hand = 0.0
    for hidden, chance in zip(masks.blocks, masks.chances, strict=True):
        mine, theirs = (given_mask(p, 1.0, family.space, hidden) for p in (r, law))
        by_hand += chance * float(r @ np.log(mine / theirs))
    assert other == pytest.approx(by_hand)
    assert dissipation_sides(law, masks)(np.log(r))[1] == pytest.approx(
        dirichlet_form(law, masks, f, np.log(f))
    )
    for sides in (tensorisation_sides(law, masks), dissipation_sides(law, masks)):
        step = rng.normal(size=law.size) * 1e-6
        step -= step.mean()  # r stays a law
        *_, slope_above, slope_below = sides(np.log(r))
        ahead, behind = sides(np.log(r + step)), sides(np.log(r - step))
        assert (ahead[0] - behind[0]) / 2 == pytest.approx(slope_above @ step, rel=1e-5)
        assert (ahead[1] - behind[1]) / 2 == pytest.approx(slope_below @ step, rel=1e-5)


@pytest.mark.parametrize("seed", [0, 3, 4])
def test_decay_stays_below_what_is_promised(seed):
    family, theta = random_family(seed)
    law, rng = family.distribution(theta), np.random.default_rng(seed)
    for masks in (random_weighted(family.space, rng), random_adaptive(family.space, rng)):
        start = np.zeros(law.size)
        start[0] = 1.0
        found = decay(law, masks, start, 12)
        assert found.kl[0] == pytest.approx(-np.log(law[0]))
        assert found.chi_square[0] == pytest.approx(1 / law[0] - 1)
        assert (np.diff(found.kl) <= 1e-14).all() and (np.diff(found.chi_square) <= 1e-14).all()
        assert (found.chi_square <= found.chi_square_bound * (1 + 1e-9) + 1e-14).all()
        assert (found.kl <= found.kl_bound * (1 + 1e-9) + 1e-14).all()


def test_two_fair_bits_by_hand():
    """k = 1 has C_AT = 2, so the bound halves each step; one step leaves bit 0 off by half."""
    law = np.full(4, 0.25)
    masks = Masks.uniform(Space(2, 2), 1)
    found = decay(law, masks, np.array([0.5, 0.5, 0.0, 0.0]), 3)
    assert found.tensorisation == pytest.approx(2)
    np.testing.assert_allclose(found.kl_bound, found.kl[0] * 0.5 ** np.arange(4), rtol=1e-9)
    mixed = np.array([0.375, 0.375, 0.125, 0.125])  # after one step
    assert found.kl[1] == pytest.approx(float(mixed @ np.log(mixed / law)))


def test_what_is_refused():
    law = np.full(4, 0.25)
    masks = Masks.uniform(Space(2, 2), 1)
    with pytest.raises(GlauberError, match="positive probability"):
        tensorisation(np.array([0.5, 0.5, 0.0, 0.0]), masks)
    with pytest.raises(GlauberError, match="a distribution over the 4 states"):
        decay(law, masks, np.ones(4), 3)
    with pytest.raises(GlauberError, match="at least one"):
        decay(law, masks, law, 0)
    with pytest.raises(GlauberError, match="shape"):
        block_gap(np.full(8, 1 / 8), masks)


def test_masks_of_all_sites_know_everything_in_one_step():
    law = Ising.random(3, seed=1).probabilities
    masks = Masks.from_weights(Space(2, 3), [(0, 1, 2)])
    found = entropy_constant_bound(law, masks, block_gap(law, masks))
    assert (found.value, found.kind) == (1.0, "upper bound")


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
    return law / law.sum(), Masks.from_weights(space, blocks, weights[:, 0])


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


@pytest.mark.parametrize("share", [0.5, 0.3, 0.05])
def test_the_log_sobolev_constant_of_one_bit_is_the_closed_form(share):
    """Diaconis and Saloff-Coste (1996, Theorem A.2)."""
    found = log_sobolev(np.array([share, 1 - share]), Masks.uniform(Space(2, 1), 1), modified=False)
    exact = 2.0 if share == 0.5 else math.log((1 - share) / share) / (1 - 2 * share)
    assert found.lower == pytest.approx(exact, rel=1e-6)
    assert found.lower <= found.upper * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_tensorisation_is_between_both_log_sobolev_constants(seed):
    """Paper B, section 2.3: side by side for every r, and so for the constants."""
    family, theta = random_family((0, 1, 2, 3, 5, 6)[seed])
    law, rng = family.distribution(theta), np.random.default_rng(seed)
    masks = (random_weighted, random_adaptive)[seed % 2](family.space, rng)
    standard = log_sobolev(law, masks, modified=False, n_starts=2)
    assert 2 * block_gap(law, masks).poincare <= standard.lower * (1 + 1e-9)
    assert standard.lower <= standard.upper * (1 + 1e-9)
    assert tensorisation(law, masks, n_starts=2).lower <= standard.upper
    for _ in range(100):
        log_r = np.log(rng.dirichlet(np.full(law.size, rng.choice([0.2, 1.0, 5.0]))) + 1e-12)
        log_r -= np.log(np.exp(log_r).sum())
        _kl, roots, _above, slope = roots_dissipated(law, masks)(log_r)
        root = np.exp(log_r / 2 - np.log(law) / 2)
        assert roots == pytest.approx(dirichlet_form(law, masks, root), abs=1e-13)
        inside = tensorisation_sides(law, masks)(log_r)[1]
        assert roots <= inside * (1 + 1e-9)
        assert inside <= dissipation_sides(law, masks)(log_r)[1] * (1 + 1e-9)
    step = rng.normal(size=law.size) * 1e-7
    step -= step @ np.exp(log_r)
    ahead, behind = (roots_dissipated(law, masks)(log_r + sign * step)[1] for sign in (1, -1))
    assert (ahead - behind) / 2 == pytest.approx(
        slope @ (np.exp(log_r) * step), rel=1e-4, abs=1e-12
    )
