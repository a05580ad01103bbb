"""Propositions 4 and 5 and corollary 3 beside the exact chains."""

from itertools import combinations
from math import comb, exp, log

import numpy as np
import pytest
from scipy import stats

from glauber import ising
from glauber.exact import parallel_matrix
from glauber.exact.blocks.dynamics import gibbs_matrix
from glauber.exact.blocks.masks import Masks
from glauber.exact.hitting_times import arrival_within
from glauber.exact.models import Clique
from glauber.foundation.errors import GlauberError
from glauber.studies.ising.sampler_separation import (
    clique_is_hidden,
    corollary_size,
    corollary_steps,
    gibbs_horizon,
    parallel_horizon,
    proof_steps,
    separation,
    separation_of,
    stuck_constant,
)


@pytest.mark.parametrize("seed", range(12))
def test_proposition_4_is_kept_by_the_exact_chain(seed):
    random = np.random.default_rng(seed)
    size, others = int(random.integers(1, 5)), int(random.integers(0, 5))
    field, outside = random.uniform(0.01, 0.5, 2)
    margin, delta = float(random.uniform(0.05, 1.5)), float(random.uniform(0.01, 0.5))
    model = Clique(size + others, size, margin + max(field, outside), field, outside=outside)
    for k in range(size, model.n_sites + 1):
        h, j = size * field, model.ferromagnet.margin
        top = exp(2 * (j + h))
        c = 1 - comb(others, k - size) / comb(model.n_sites, k) * top / (
            top + exp(2 * j) + 2**size - 2
        )
        horizon = gibbs_horizon(model, k, delta)
        assert c**horizon <= delta * (1 + 1e-9) and (horizon == 1 or c ** (horizon - 1) > delta)
        arrived = arrival_within(np.exp(model.log_gibbs(k)), model.all_ones, horizon)
        assert arrived.min() >= 1 - delta
    assert size == 1 or gibbs_horizon(model, size - 1, delta) is None


@pytest.mark.parametrize("size", [4, 10, 20, 40])
def test_proposition_5_is_kept_by_the_exact_chain(size):
    model = Clique(size, size, coupling=0.8, field=0.01)
    ratio = (1 - exp(-2 * 0.79)) / (1 + exp(-2 * 0.79))
    by_hand = 2 * (-1 + ratio * size / 2) ** 2 / size
    assert stuck_constant(model) == pytest.approx(by_hand)
    for delta in (0.5, 0.1):
        horizon = parallel_horizon(model, delta)
        assert horizon == int(delta / 2 * exp(by_hand))
        left = 2 * np.arange(size + 1) - size > -2
        moved = arrival_within(np.exp(model.log_parallel()), left, horizon)
        assert moved[~left].max() <= delta


@pytest.mark.parametrize(("n_steps", "delta"), [(1, 0.5), (20, 0.1), (100, 0.3)])
def test_corollary_3_holds_and_already_for_smaller_cliques(n_steps, delta):
    answer = separation(steps=n_steps, delta=delta)
    found = answer.promised
    assert found.model.size == corollary_size(n_steps, delta) >= 8 * (1 + log(4 * n_steps / delta))
    assert found.holds and found.log10_parallel() < -300
    least = answer.smallest
    smaller = separation_of(n_steps, delta, least.model.size - 1) if least.model.size > 2 else None
    assert smaller is None or not smaller.holds
    assert least.holds and least.model.size <= found.model.size
    assert 10 ** least.log10_parallel() == pytest.approx(least.parallel_arrives, rel=1e-8)
    # One step of N-Gibbs is a draw from the law: enumerated in full.
    full = least.model.ising()
    ones = (full.spins > 0).all(axis=1)
    assert least.gibbs_misses == pytest.approx(full.probabilities[~ones].sum(), rel=1e-10)


def test_the_corollary_asks_for_25_sites_at_least():
    assert corollary_size(1, 0.5) == 25
    for wrong, said in (({"delta": 0.0}, "delta is 0"), ({"steps": 0}, "steps is 0")):
        with pytest.raises(GlauberError, match=said):
            separation(**wrong)


def test_a_chance_below_all_floats_is_refused_in_a_sentence():
    for study in (ising.separation, ising.race, ising.bound):
        with pytest.raises(GlauberError, match="delta is 1e-320, but it must be at least 1e-300"):
            study(delta=1e-320)
    assert corollary_size(10**6, 1e-300) == 5656


@pytest.mark.parametrize(("sites", "size", "k"), [(6, 4, 5), (5, 5, 5), (7, 4, 4)])
def test_the_steps_of_both_proofs_by_enumeration(sites, size, k):
    """Both sides of every inequality, over all blocks and states of the full model."""
    model = Clique(sites, size, coupling=1.1, field=0.05)
    full = model.ising()
    blocks = list(combinations(range(sites), k))
    hidden = sum(set(range(size)) <= set(block) for block in blocks) / len(blocks)
    assert clique_is_hidden(model, k) == pytest.approx(hidden)
    arrival, in_step, up, leaves, longer = proof_steps(model, k, 3)
    inside = full.spins[:, :size].sum(axis=1)
    assert arrival.larger == pytest.approx(full.probabilities[inside == size].sum())
    matrix = gibbs_matrix(full.probabilities, Masks.uniform(full.space, k)).toarray()
    assert in_step.larger == pytest.approx(matrix[:, inside == size].sum(axis=1).min())
    low = inside <= -2
    fields = full.fields + 2 * full.spins @ full.couplings
    ones = 1 / (1 + np.exp(-2 * fields))[low][:, :size]
    assert ones.max() <= up.smaller * (1 + 1e-12)  # equal where the others can sum to -1
    assert size % 2 or up.smaller == pytest.approx(ones.max())
    parallel = parallel_matrix(full.joint(), full.space)
    stays = np.where(low[:, None] & low, np.asarray(parallel), 0.0)
    assert leaves.smaller == pytest.approx(1 - stays[low].sum(axis=1).min(), abs=1e-12)
    cubed = np.linalg.matrix_power(stays, 3)
    assert longer.smaller == pytest.approx(1 - cubed[low].sum(axis=1).min(), abs=1e-12)
    for step in (arrival, in_step, up, leaves, longer):
        assert step.smaller <= step.larger + 1e-12


@pytest.mark.parametrize(("n_steps", "delta"), [(1, 0.5), (1, 0.99), (50, 0.1), (1000, 0.01)])
def test_the_steps_of_corollary_3(n_steps, delta):
    for step in corollary_steps(n_steps, delta):
        assert step.smaller <= step.larger * (1 + 1e-9)


def test_a_random_start_is_stuck_about_every_second_time():
    """The binomial tail by the binomial distribution of SciPy, and the arrival from any start."""
    for size in (2, 5, 12, 25):
        found = separation_of(1, 0.5, size)
        assert found.low_start == pytest.approx(stats.binom.cdf((size - 2) // 2, size, 0.5))
        assert found.low_start >= 0.18
    found = separation_of(2, 0.5, 4)
    full = found.model.ising()
    chain = np.asarray(parallel_matrix(full.joint(), full.space))
    chain[-1] = np.eye(16)[-1]  # R1 is never left again
    arrives = np.linalg.matrix_power(chain, 2)[:, -1].mean()
    assert found.random_arrives == pytest.approx(arrives)
