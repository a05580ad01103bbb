"""Pseudolikelihood given the rest: against enumeration, repeated samples, and a large model."""

from itertools import combinations

import numpy as np
import pytest

from glauber import ising
from glauber.exact.blocks.masks import Masks
from glauber.exact.blocks.pseudolikelihood import (
    Pseudolikelihood,
    all_masks,
    asymptotics,
    fit_pairs,
)
from glauber.exact.models import Ising, ising_family, ising_theta, state_counts
from glauber.exact.space import Space
from glauber.foundation.errors import GlauberError
from glauber.studies.ising.block_fitting import (
    BlockLikelihood,
    InteractionGraph,
    fit_blocks,
    gibbs_samples,
    random_blocks,
    random_tilings,
    sandwich_errors,
    tiling,
)
from glauber.studies.ising.fitting import graph_of

DESIGNS = [("tiles", 1), ("tiles", 2), ("tiles", 4), ("random", 1), ("random", 3)]


def designed(kind, graph, n, k, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "tiles":
        return random_tilings(graph, n, k, rng)
    return random_blocks(graph, n, k, 2, rng)


def enumerated(spins, groups):
    """The same pairs of masks and states, counted over all 2^N states: problem, weights, owners."""
    n_sites = len(spins)
    family = ising_family(n_sites)
    states = ((spins > 0).T @ family.space.strides.numpy()).astype(int)
    pairs = []
    for group in groups:
        hidden_in = np.broadcast_to(group.hidden_in, (len(group.sites), group.hidden_in.shape[1]))
        for block, samples in zip(group.sites.tolist(), group.samples[hidden_in], strict=True):
            inside = tuple(site for site in block if site < n_sites)
            pairs += [(inside, sample) for sample in samples.tolist()]
    blocks = sorted({block for block, _ in pairs})
    counts = np.zeros((len(blocks), 2**n_sites))
    for block, sample in pairs:
        counts[blocks.index(block), states[sample]] += 1
    masks = Masks.from_weights(family.space, blocks, counts.sum(axis=1))
    problem = Pseudolikelihood(family, masks)
    return (
        problem,
        counts,
        [(blocks.index(block), sample, states[sample]) for block, sample in pairs],
    )


@pytest.mark.parametrize(("kind", "k"), DESIGNS)
def test_the_optimum_and_the_sandwich_are_those_of_enumeration(kind, k):
    model = Ising.random(6, seed=k, strength=0.15)
    spins = model.sample(400, seed=3).T.astype(np.int8)
    groups = designed(kind, InteractionGraph.complete(6), 400, k)
    problem = BlockLikelihood(InteractionGraph.complete(6), spins, groups)
    oracle, counts, pairs = enumerated(spins, groups)
    assert problem.n_blocks == counts.sum()
    theta = np.random.default_rng(1).normal(size=21) * 0.3
    loss, slope = problem.value(theta)
    seen = counts / counts.sum()
    assert loss == pytest.approx(float(oracle.loss(theta, seen)), rel=1e-12)
    np.testing.assert_allclose(slope, oracle.gradient(theta, seen), atol=1e-12)
    np.testing.assert_allclose(
        problem.hessian(theta), oracle.hessian(theta, seen) * counts.sum(), rtol=1e-9, atol=1e-9
    )
    found, hessian = fit_blocks(problem, "lbfgs" if k == 2 else "newton")
    exact = fit_pairs(oracle, seen)
    assert found.converged and exact.converged
    np.testing.assert_allclose(found.theta, exact.theta, atol=1e-6)
    scores = np.zeros((21, 400))
    by_block = [oracle.score(exact.theta, slot) for slot in range(len(oracle.masks.blocks))]
    for slot, sample, state in pairs:
        scores[:, sample] += by_block[slot][:, state]
    inverse = np.linalg.inv(oracle.hessian(exact.theta, seen) * counts.sum())
    for cluster_size in (1, 20):
        summed = scores if cluster_size == 1 else scores.reshape(21, 20, 20).sum(axis=2)
        count = summed.shape[1]
        spread = inverse @ (summed @ summed.T) @ inverse * count / (count - 1)
        errors = sandwich_errors(problem, found.theta, hessian, cluster_size=cluster_size)
        np.testing.assert_allclose(errors, np.sqrt(np.diag(spread)), rtol=1e-5)


@pytest.mark.parametrize(("kind", "k"), [("tiles", 1), ("tiles", 3), ("random", 2)])
def test_a_sparse_graph_gives_what_a_dense_one_gives(kind, k):
    """A ring of 40 sites has a sparse Hessian; finite differences of the gradient check it."""
    graph = InteractionGraph.of_pairs(
        40, np.stack([np.arange(40), np.roll(np.arange(40), 1)], axis=1)
    )
    rng = np.random.default_rng(k)
    spins = rng.choice([-1, 1], (40, 60)).astype(np.int8)
    problem = BlockLikelihood(graph, spins, designed(kind, graph, 60, k))
    theta = rng.normal(size=80) * 0.3
    hessian = problem.hessian(theta)
    assert not isinstance(hessian, np.ndarray)
    direction = rng.normal(size=80)
    ahead, behind = (problem.value(theta + sign * 1e-5 * direction)[1] for sign in (1, -1))
    np.testing.assert_allclose(
        hessian @ direction / problem.n_blocks, (ahead - behind) / 2e-5, atol=1e-7
    )
    total = sum(scores.sum(axis=1) for _, scores in problem.scores(theta))
    np.testing.assert_allclose(-total / problem.n_blocks, problem.value(theta)[1], atol=1e-12)


@pytest.mark.parametrize("right", [True, False])
def test_sandwich_intervals_keep_their_level(right):
    """500 data sets of an Ising model, or of a law with a coupling of three that none has.

    The truth is then the theta nearest in the pseudolikelihood of the population.
    """
    space, rng = Space(2, 3), np.random.default_rng(5)
    states = space.states().numpy() * 2.0 - 1.0
    law = Ising.random(3, seed=2, strength=0.3).probabilities
    if not right:
        law = law * np.exp(0.8 * states.prod(axis=1))
    law = law / law.sum()
    problem = Pseudolikelihood.of_size(ising_family(3), 1)
    truth = fit_pairs(problem, all_masks(law, problem.masks)).theta
    counts = rng.multinomial(400, law, size=500) / 400
    found = fit_pairs(problem, all_masks(counts, problem.masks))
    assert found.converged.all()
    inside = []
    for theta, shares in zip(found.theta, counts, strict=True):
        spread = asymptotics(problem, theta, under=shares).covariance(None) / 400
        inside.append(np.abs(theta - truth) <= 1.96 * np.sqrt(np.diag(spread)))
    share = np.mean(inside, axis=0)
    assert np.abs(share - 0.95).max() < 4 * np.sqrt(0.95 * 0.05 / 500), share


def test_the_study_agrees_with_counting_and_with_its_own_errors():
    model = Ising.random(5, seed=3, strength=0.15)
    rows = model.sample(4000, seed=4).astype(int)
    counted = ising.fit(data=rows, masks="all").to_dict()
    blockwise = ising.fit(data=rows, masks="tiles").to_dict()
    np.testing.assert_allclose(counted["estimate"], blockwise["estimate"], atol=1e-6)
    np.testing.assert_allclose(counted["standard_error"], blockwise["standard_error"], rtol=1e-3)


def test_a_grid_beyond_enumeration_is_recovered_within_its_errors():
    """113 parameters; the share within 1.96 errors, and the mean square of the z, near 1."""
    found = ising.fit(sites=42, graph="grid", coupling=0.1, field=0.1, samples=2000, k=2)
    assert found.clusters == 100 and len(found.names) == 42 + 71
    z = (found.estimate - found.truth) / found.standard_error
    assert np.mean(np.abs(z) <= 1.96) > 0.9 and np.mean(z**2) == pytest.approx(1, abs=0.4)
    assert "samples in 100 clusters" in str(found) and found.figure() is not None


def test_gibbs_samples_have_the_moments_of_the_model():
    """16 states by enumeration; 4,000 chains, so means lie within 4 / sqrt(4000)."""
    graph = InteractionGraph.grid(2, 2)
    theta = np.array([0.3, -0.2, 0.1, 0.0, *np.linspace(-0.2, 0.3, len(graph.edges))])
    couplings = np.zeros((4, 4))
    couplings[tuple(graph.edges.T)] = theta[4:]
    model = Ising(theta[:4], couplings + couplings.T)
    drawn = gibbs_samples(graph, theta, (4000, 1), sweeps=30, every=1, seed=0)[:, 0]
    shares = state_counts(Space(2, 4), (drawn + 1) // 2) / 4000
    assert np.abs(shares - model.probabilities).max() < 4 * np.sqrt(0.25 / 4000)
    assert np.abs(drawn.mean(axis=0) - model.probabilities @ model.spins).max() < 4 / 4000**0.5


def test_tiles_cover_every_site_once_and_are_connected():
    graph = graph_of("grid", 24)
    tiles = tiling(graph, 3, np.random.default_rng(0))
    inside = tiles[tiles < 24]
    assert sorted(inside.tolist()) == list(range(24)) and tiles.shape[1] == 3
    edges = set(map(tuple, graph.edges.tolist()))
    for block in tiles.tolist():
        sites = [site for site in block if site < 24]
        assert len(edges & set(combinations(sites, 2))) >= len(sites) - 1


def test_graphs_from_names_and_files(tmp_path):
    assert graph_of("grid", 12).names[-1] == "J10,11" and len(graph_of("3x4", 12).edges) == 17
    assert len(graph_of("chain", 5).edges) == 4 and len(graph_of("all", 5).edges) == 10
    file = tmp_path / "edges.csv"
    file.write_text("1,0\n0 1\n2 4\n")
    assert graph_of(file, 5).edges.tolist() == [[0, 1], [2, 4]]
    for text, said in (
        ("0 5\n", "outside 0 to 4"),
        ("1 1\n", "to itself"),
        ("0 1 2\n", "no edges"),
    ):
        file.write_text(text)
        with pytest.raises(GlauberError, match=said):
            graph_of(file, 5)


def test_a_model_of_ones_own_and_a_graph_that_lacks_some_of_its_pairs():
    model = Ising.make(np.zeros(14), 0.1 * (np.eye(14, k=1) + np.eye(14, k=-1)))
    known = ising.fit(model, samples=300, chains=300)
    assert known.names[14:16] == ("J0,1", "J1,2") and known.clusters is None
    assert known.truth is not None and ising_theta(model)[14] == known.truth[14]
    assert ising.fit(model, samples=300, chains=300, graph="2x7").truth is None


def test_copies_in_a_cluster_count_once():
    """Every row five times: the same estimate, and only clusters give the same errors."""
    rows = Ising.random(4, seed=8, strength=0.2).sample(600, seed=1).astype(int)
    once = ising.fit(data=rows, masks="tiles")
    copied = ising.fit(data=np.repeat(rows, 5, axis=0), masks="tiles", cluster=5)
    naive = ising.fit(data=np.repeat(rows, 5, axis=0), masks="tiles")
    np.testing.assert_allclose(copied.estimate, once.estimate, atol=1e-8)
    np.testing.assert_allclose(copied.standard_error, once.standard_error, rtol=1e-9)
    np.testing.assert_allclose(naive.standard_error * 5**0.5, once.standard_error, rtol=1e-2)
    assert copied.clusters == 600 and "600 clusters" in str(copied)
