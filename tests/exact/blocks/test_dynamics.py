"""Gaps of block dynamics, masks and kernels against dense matrices."""

import numpy as np
import pytest

from glauber.exact import Space, parallel_matrix, spectrum, stationary, transition_matrix
from glauber.exact.blocks.dynamics import (
    block_chain,
    block_gap,
    block_operator,
    closed_sets,
    dirichlet_form,
    gibbs_matrix,
    mask_pair_matrix,
    parallel_block_matrix,
    sequential_block_matrix,
    variance,
)
from glauber.exact.blocks.masks import Masks
from glauber.exact.blocks.products import parallel_stationary, parallel_stationary_of
from glauber.exact.models import Ising
from glauber.foundation.errors import GlauberError
from glauber.models.table import Joint


def dense_gap(matrix, law) -> float:
    root = np.sqrt(law)
    scaled = matrix * root[:, None] / root[None, :]
    return 1 - np.sort(np.linalg.eigvalsh((scaled + scaled.T) / 2))[-2]


@pytest.mark.parametrize(("n", "k"), [(4, 1), (6, 2), (7, 4), (10, 2)])
def test_the_gap_is_that_of_the_dense_matrix(n, k):
    """At 10 sites the sparse solver answers, below the dense one; the matrix comes from joint()."""
    model, space = Ising.random(n, seed=n, strength=0.3), Space(2, n)
    law = model.probabilities
    matrix = transition_matrix(model.joint(), space, block=k).toarray()
    found = block_gap(law, Masks.uniform(space, k))
    assert found.error < 1e-8
    assert found.value == pytest.approx(dense_gap(matrix, law), abs=1e-8)


def test_any_vocabulary_and_any_weights():
    joint, space = Joint.random(3, 4, seed=2), Space(3, 4)
    law = joint.probabilities().numpy()
    masks = Masks.from_weights(space, ((0, 2), (1,), (1, 2, 3), (3,)), [0.1, 0.4, 0.3, 0.2])
    matrix = gibbs_matrix(law, masks)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(matrix.T @ law, law, atol=1e-15)
    assert block_gap(law, masks).value == pytest.approx(dense_gap(matrix.toarray(), law), abs=1e-10)
    root = np.sqrt(law)
    np.testing.assert_allclose(
        block_operator(law, masks) @ np.eye(81),
        matrix.toarray() * root[:, None] / root,
        atol=1e-12,
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_two_ways_to_a_gap_agree(seed):
    """By the operator of the blocks, and by the spectrum of the matrix, which is reversible."""
    joint, space = Joint.random(3, 3, seed=seed), Space(3, 3)
    law = joint.probabilities().numpy()
    for masks in (Masks.uniform(space, 2), Masks.least_confident(space, law, 1)):
        chain = block_chain(law, masks) @ np.eye(27)
        by_matrix = spectrum(chain, distribution=law)
        found = block_gap(law, masks)
        assert by_matrix.reversible and by_matrix.n_states == 27
        assert found.value == pytest.approx(
            by_matrix.gap, abs=found.error + by_matrix.error + 1e-12
        )
        # The function attains it: the variance over the Dirichlet form is the Poincare constant.
        f = found.function
        attained = variance(law, f) / dirichlet_form(law, masks, f)
        assert attained == pytest.approx(found.poincare, rel=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_gap_k_is_at_least_k_times_gap_1(seed):
    model = Ising.random(5, seed=seed, strength=0.6)
    gaps = [block_gap(model.probabilities, Masks.uniform(Space(2, 5), k)) for k in range(1, 6)]
    for k, gap in enumerate(gaps, start=1):
        assert gap.value >= k * gaps[0].value - 1e-10
    assert gaps[-1].value == pytest.approx(1, abs=1e-10) and gaps[-1].poincare < 1.0001


def test_independent_sites_have_gap_k_over_n():
    law = Ising.make([0.3, -1.0, 0.5, 0.0], np.zeros((4, 4))).probabilities
    for k in (1, 2, 3):
        gap = block_gap(law, Masks.uniform(Space(2, 4), k)).value
        assert gap == pytest.approx(k / 4, abs=1e-12)


def test_the_kernels_between_gibbs_and_parallel():
    model, space = Ising.random(4, seed=3), Space(2, 4)
    law, joint = model.probabilities, model.joint()
    one = transition_matrix(joint, space).toarray()
    for make in (sequential_block_matrix, parallel_block_matrix):
        np.testing.assert_allclose(make(joint, space, 1).toarray(), one, atol=1e-14)
    np.testing.assert_allclose(
        parallel_block_matrix(joint, space, 4).toarray(), parallel_matrix(joint, space), atol=1e-14
    )
    turns = sequential_block_matrix(joint, space, 3).toarray()
    np.testing.assert_allclose(law @ turns, law, atol=1e-14)
    flow = law[:, None] * turns
    np.testing.assert_allclose(flow, flow.T, atol=1e-14)  # over all orders it is reversible
    assert abs(law @ parallel_block_matrix(joint, space, 3) - law).max() > 1e-4


def test_chromatic_and_disjoint_blocks():
    ring = np.roll(np.eye(6), 1, axis=0)
    masks = Masks.chromatic(Space(2, 6), ring + ring.T)
    assert sorted(masks.blocks) == [(0, 2, 4), (1, 3, 5)]
    model, _space = Ising.make(np.full(6, 0.2), 0.4 * (ring + ring.T)), Space(2, 6)
    exact = gibbs_matrix(model.probabilities, masks)
    np.testing.assert_allclose(exact.T @ model.probabilities, model.probabilities, atol=1e-15)
    assert Masks.disjoint(Space(2, 5), 2).blocks == ((0, 1), (2, 3), (4,))


def test_the_law_of_the_parallel_sampler():
    model, space = Ising.random(5, seed=9, strength=0.4), Space(2, 5)
    closed = parallel_stationary(model)
    np.testing.assert_allclose(
        closed.distribution, stationary(parallel_matrix(model.joint(), space)), rtol=1e-9
    )
    solved = parallel_stationary_of(model.joint(), model.probabilities, space)
    assert solved.total_variation == pytest.approx(closed.total_variation, abs=1e-10)
    assert solved.divergence == pytest.approx(closed.divergence, abs=1e-9)
    assert 0 < closed.marginal <= closed.total_variation
    free = Ising.make([0.4, -0.2], np.zeros((2, 2)))
    assert parallel_stationary(free).total_variation < 1e-15


def test_adaptive_masks_by_hand():
    """The block is chosen at x, then refilled in proportion to p(x') p_K(K | x')."""
    model, space = Ising.clique(4, 3, coupling=0.4, field=0.1), Space(2, 4)
    law, states = model.probabilities, space.states().numpy()
    masks = Masks.least_confident(space, law, 1, sharpness=2.0)
    matrix = block_chain(law, masks) @ np.eye(16)
    assert dense_gap(matrix, law) == pytest.approx(block_gap(law, masks).value, abs=1e-9)
    by_hand = np.zeros_like(matrix)
    for x in range(16):
        for slot, (site,) in enumerate(masks.blocks):
            near = [y for y in range(16) if (np.delete(states[x] - states[y], site) == 0).all()]
            weights = law[near] * masks.chances[slot, near]
            by_hand[x, near] += masks.chances[slot, x] * weights / weights.sum()
    np.testing.assert_allclose(matrix, by_hand, atol=1e-12)


def test_what_is_refused():
    with pytest.raises(GlauberError, match="k must be from 1 to 4"):
        Masks.uniform(Space(2, 4), 5)
    with pytest.raises(GlauberError, match="k must be from 1 to 4"):
        Masks.uniform(Space(2, 4), 0)
    with pytest.raises(GlauberError, match="hides the sites 1, 3"):
        Masks.from_weights(Space(2, 4), ((0, 2),))
    with pytest.raises(GlauberError, match="hides the sites 1"):
        Masks.from_weights(Space(2, 2), ((0,), (1,)), [1.0, 0.0])
    with pytest.raises(GlauberError, match="increasing order"):
        Masks.from_weights(Space(2, 2), ((1, 0),))
    with pytest.raises(GlauberError, match="sum to 1"):
        Masks(Space(2, 2), ((0, 1),), np.array([0.5]))
    uniform = np.full(2**16, 2.0**-16)
    with pytest.raises(GlauberError, match=r"164,954,112 .* fit, which is any block at 13 sites"):
        gibbs_matrix(uniform, Masks.uniform(Space(2, 16), 4))
    with pytest.raises(GlauberError, match=r"1,048,576 states .* 134,217,728 fit"):
        block_gap(np.full(2**20, 2.0**-20), Masks.uniform(Space(2, 20), 4))


@pytest.mark.parametrize("adaptive", [False, True])
def test_the_pair_chain_keeps_its_masks(adaptive):
    """(C.23) entry by entry; Proposition 1 for functions of (X, K); and that it is not ergodic."""
    model, rng = Ising.random(3, seed=2, strength=0.4), np.random.default_rng(4)
    p, space = model.probabilities, model.space
    masks = Masks.least_confident(space, p, 2) if adaptive else Masks.uniform(space, 2)
    chances, states = masks.by_state, space.states().numpy()
    by_hand = np.zeros((3, 8, 3, 8))
    for slot, block in enumerate(masks.blocks):
        seen = [site for site in range(3) if site not in block]
        for x in range(8):
            alike = (states[:, seen] == states[x, seen]).all(axis=1)
            weights = p * chances[slot] * alike
            by_hand[slot, x, slot] = weights / weights.sum()
    matrix = mask_pair_matrix(p, masks)
    np.testing.assert_allclose(matrix.toarray(), by_hand.reshape(24, 24), atol=1e-15)
    weights = (chances * p).ravel()
    np.testing.assert_allclose(weights @ matrix, weights, atol=1e-15)
    f, g = rng.normal(size=(2, 3, 8))
    moved = weights @ (f.ravel() * (g.ravel() - matrix @ g.ravel()))
    assert dirichlet_form(p, masks, f, g) == pytest.approx(moved, abs=1e-14)
    of_x = rng.normal(size=8)
    each = np.broadcast_to(of_x, (3, 8))
    assert dirichlet_form(p, masks, of_x) == pytest.approx(dirichlet_form(p, masks, each))
    assert closed_sets(matrix) == 6  # three masks, each with two contexts of one visible site
    of_k = np.zeros((3, 8))
    of_k[0] = 1
    assert abs(dirichlet_form(p, masks, of_k)) < 1e-30
    assert closed_sets(gibbs_matrix(p, Masks.uniform(space, 1))) == 1


def test_pairs_that_never_occur_are_no_states():
    masks = Masks.adaptive(Space(2, 2), [(0, 1), (0,)], [[1, 0, 0, 1], [0, 1, 1, 0]])
    matrix = mask_pair_matrix(np.full(4, 0.25), masks)
    np.testing.assert_allclose(matrix.sum(axis=1), 1)
    assert matrix.shape == (4, 4) and closed_sets(matrix) == 3
