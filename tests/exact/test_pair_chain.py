"""The chain of pairs: its two marginals, its meeting times, and the contraction theorem."""

import itertools

import numpy as np
import pytest
import torch

from glauber.exact.influence import exact_influence
from glauber.exact.pair_chain import (
    inverse_cdf_joint,
    maximal_joint,
    mean_distances,
    mean_meeting_times,
    pair_matrix,
)
from glauber.exact.space import Space
from glauber.exact.transition import transition_matrix
from glauber.foundation.errors import GlauberError
from glauber.models.table import Joint, Table


@pytest.mark.parametrize("joint", [maximal_joint, inverse_cdf_joint])
def test_both_sums_of_a_joint_law_are_the_two_laws(joint):
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(6), size=(2, 50))
    p[:10] = q[:10]
    found = joint(p, q)
    assert found.min() >= 0
    np.testing.assert_allclose(found.sum(axis=2), p, atol=1e-14)
    np.testing.assert_allclose(found.sum(axis=1), q, atol=1e-14)
    agree = np.trace(found, axis1=1, axis2=2)
    np.testing.assert_allclose(agree[:10], 1, atol=1e-14)
    most = np.minimum(p, q).sum(axis=1)
    assert (agree <= most + 1e-14).all()
    if joint is maximal_joint:
        np.testing.assert_allclose(agree, most, atol=1e-14)


def test_one_uniform_number_by_hand():
    p, q = np.array([[0.5, 0.3, 0.2]]), np.array([[0.2, 0.6, 0.2]])
    # On [0, 1]: under p 0 to .5, .8, 1 for tokens 0, 1, 2; under q tokens 1, 0, 2 to .6, .8, 1.
    due = [[0, 0.5, 0], [0.2, 0.1, 0], [0, 0, 0.2]]
    np.testing.assert_allclose(inverse_cdf_joint(p, q)[0], due, atol=1e-15)


@pytest.mark.parametrize("how", ["maximal", "inverse-cdf"])
def test_each_side_of_the_pair_chain_is_the_chain(how):
    space, table = Space(2, 3), Table.random(2, 3, seed=1)
    free = torch.tensor([True, False, True])
    pairs = pair_matrix(table, space, how=how, temperature=0.7, free=free).toarray()
    cube = pairs.reshape(8, 8, 8, 8)
    single = transition_matrix(table, space, temperature=0.7, free=free).toarray()
    np.testing.assert_allclose(cube.sum(axis=3), np.repeat(single[:, None], 8, 1), atol=1e-14)
    np.testing.assert_allclose(cube.sum(axis=2), np.repeat(single[None], 8, 0), atol=1e-14)
    for x in range(8):  # those that have met stay together
        assert cube[x, x].sum() == pytest.approx(np.trace(cube[x, x]), abs=1e-14)


def test_two_sites_that_ignore_each_other_meet_like_coupons():
    """Equal conditionals everywhere: a site agrees once it was redrawn, so all n take n H_n."""
    space = Space(2, 3)
    matrix = pair_matrix(Joint(torch.zeros(2, 2, 2)), space)
    times = mean_meeting_times(matrix, space)
    distance = (space.states()[:, None] != space.states()[None]).sum(2).numpy()
    due = np.array([0, 3, 3 + 3 / 2, 3 + 3 / 2 + 1])  # d sites left: sum of 3/i for i = 1..d
    np.testing.assert_allclose(times, due[distance], atol=1e-12)
    spread = mean_distances(matrix, space, 5)
    np.testing.assert_allclose(spread, distance * (2 / 3) ** np.arange(6)[:, None, None])


def contracting_models(count):
    """Random tables with alpha < 1, of several sizes and strengths."""
    shapes = itertools.cycle([(2, 2), (2, 3), (3, 2), (2, 4), (3, 3), (4, 2)])
    found = 0
    for seed, (vocab, length) in enumerate(shapes):
        table = Table.random(vocab, length, seed=seed, strength=0.1 + 0.1 * (seed % 7))
        space = Space(vocab, length)
        alpha = exact_influence(table, space).alpha
        if alpha < 1:
            found += 1
            yield table, space, alpha
        if found == count:
            return


def test_the_mean_hamming_distance_respects_the_contraction_bound_on_200_models():
    closest = 0.0
    for table, space, alpha in contracting_models(200):
        n_steps = 4 * space.length
        exact = mean_distances(pair_matrix(table, space), space, n_steps)
        rate = 1 - (1 - alpha) / space.length
        bound = rate ** np.arange(n_steps + 1)[:, None, None] * exact[0]
        assert (exact <= bound + 1e-12).all()
        apart = exact[0] > 0
        closest = max(closest, float((exact[1:, apart] / bound[1:, apart]).max()))
    assert closest > 0.9  # the bound is nearly met somewhere, so the comparison can fail


def test_equality_occurs_for_two_spins():
    spins = Joint(torch.tensor([[0.7, -0.7], [-0.7, 0.7]]).double())
    space = Space(2, 2)
    alpha = exact_influence(spins, space).alpha
    exact = mean_distances(pair_matrix(spins, space), space, 20)
    bound = (1 - (1 - alpha) / 2) ** np.arange(21)
    np.testing.assert_allclose(exact[:, 0, 1], bound, atol=1e-12)  # they differ at one site


def test_what_is_refused():
    with pytest.raises(GlauberError, match="must be one of maximal"):
        pair_matrix(Table.random(2, 2), Space(2, 2), how="reflection")
    with pytest.raises(GlauberError, match="entries; the limit"):
        pair_matrix(Table.random(2, 2), Space(2, 14))
