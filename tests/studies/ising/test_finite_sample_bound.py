"""Theorem 4's terms by hand, and the bound that follows from the population's excess loss."""

import math

import numpy as np
import pytest

from glauber.exact.blocks.dynamics import block_gap, possible_conditionals
from glauber.exact.blocks.masks import Masks
from glauber.exact.blocks.pseudolikelihood import Pseudolikelihood, all_masks
from glauber.exact.blocks.tensorisation import entropy_constant_bound, excess_loss, population_bound
from glauber.exact.models import Ising, ising_family
from glauber.exact.space import Space, conditional, over_block
from glauber.exact.stationary import total_variation
from glauber.foundation.errors import GlauberError
from glauber.studies.ising.finite_sample_bound import (
    TheoremInputs,
    bound,
    box_margin,
    cover_of_box,
    deviations,
    finite_sample_bound,
)
from small_families import random_adaptive, random_family, random_weighted


def test_three_uniform_bits_are_vacuous():
    """k = 1: C_AT = 3 and L = ln 2, so the first term alone is sqrt(3 ln 2 / 2) = 1.0197 > 1."""
    law = np.full(8, 1 / 8)
    masks = Masks.uniform(Space(2, 3), 1)
    above = entropy_constant_bound(law, masks, block_gap(law, masks))
    found = finite_sample_bound(
        (math.log(2), math.log(2)),
        masks.space,
        above.value,
        TheoremInputs(10**12, 10**12),
        0.5,
    )
    assert found.loss_term == pytest.approx(math.sqrt(1.5 * math.log(2)), rel=1e-9)
    assert found.loss_term > 1 and found.as_written > 1
    assert found.with_excess < 0.05  # the excess loss is zero, and the samples are many


def test_the_terms_by_hand():
    found = finite_sample_bound(
        (0.8, 0.7),
        Space(2, 3),
        3.0,
        margin=0.5,
        inputs=TheoremInputs(1000, 50, delta=0.1, log_covering=math.log(4), epsilon=0.01),
    )
    first = math.sqrt(512 * 8 * 4 / (50 * 0.1))
    second = math.sqrt(math.log(8 * 4 / 0.1) / 2000)
    last = math.sqrt(512 / (8 * 0.1 * 1000))
    inside = (first + second) * math.log(2) + 0.01
    assert (found.mask_term, found.sequence_term) == pytest.approx((first, second))
    assert (found.empirical_term, found.margin) == pytest.approx((last, 0.5))
    assert found.as_written == pytest.approx(math.sqrt(1.5 * (0.8 + inside)) + last)
    assert found.with_excess == pytest.approx(math.sqrt(1.5 * (0.1 + 2 * inside)) + last)
    assert found.terms()["kind"] == "optimistic evaluation"
    assert found.terms()["as_written"] == found.as_written


@pytest.mark.parametrize(("sites", "k"), [(3, 1), (3, 2), (4, 1), (4, 3)])
def test_the_cover_of_a_box_and_its_margin_hold_for_random_models(sites, k):
    """Two models of one cell differ in no log conditional by more than eps / 2."""
    family, rng, box, cells = ising_family(sites), np.random.default_rng(k), 0.7, 4
    problem = Pseudolikelihood.of_size(family, k)
    touched = math.comb(sites, 2) - math.comb(sites - k, 2)
    epsilon = 2 * (2 * box / cells) * (2 * k + 4 * touched)
    worst, least = 0.0, 1.0
    for _ in range(200):
        corner = rng.integers(cells, size=family.n_parameters) * 2 * box / cells - box
        both = corner + rng.choice([0.0, 1.0], (2, family.n_parameters)) * 2 * box / cells
        for slot in range(len(problem.masks.blocks)):
            logs = problem.log_conditional(both, slot)
            worst = max(worst, float(np.abs(logs[0] - logs[1]).max()))
            least = min(least, float(np.exp(logs).min()))
    assert epsilon / 8 < worst <= epsilon / 2
    assert box_margin(sites, k, box) <= least * (1 + 1e-9)
    assert k > 1 or least < 40 * box_margin(sites, k, box)
    cover = cover_of_box(sites, k, box, TheoremInputs(1000, 10**6))
    per_axis = math.exp(cover.log_covering / family.n_parameters)
    assert cover.epsilon == pytest.approx(epsilon * cells / per_axis)


def test_both_evaluations_for_a_model_and_for_data_of_ones_own():
    model = Ising.make([0.1, -0.1, 0.0], 0.1 * (np.ones((3, 3)) - np.eye(3)))
    row = bound(model, sequences=[2000], masks=1000, box=0.5).to_dict()["rows"][0]
    assert (row["kind"], row["over_box_kind"]) == ("optimistic evaluation", "upper bound")
    assert row["as_written_over_box"] > row["as_written"] > row["loss_term"]
    assert row["with_excess_over_box"] > row["with_excess"]
    data = model.sample(2000, seed=1).astype(int)
    found = bound(data=data, masks=1000)
    own = found.to_dict()["rows"][0]
    assert own["sequences"] == 2000 and own["true_total_variation"] is None
    assert own["with_excess"] is None and own["as_written_over_box"] > own["as_written"]
    assert "unknown" in str(found) and "optimistic" in str(found)
    outside = bound(model, sequences=[2000], masks=1000, box=0.05)
    assert outside.to_dict()["rows"][0]["as_written_over_box"] is None
    assert "take a larger one" in str(outside)


@pytest.mark.parametrize("seed", range(10))
def test_the_excess_loss_bounds_the_distance(seed):
    family, theta = random_family(seed)
    rng = np.random.default_rng(seed)
    other = theta + rng.normal(size=theta.shape) * 0.3
    truth, learnt = family.distribution(theta), family.distribution(other)
    for masks in (random_weighted(family.space, rng), random_adaptive(family.space, rng)):
        problem = Pseudolikelihood(family, masks)
        seen = all_masks(truth, masks)
        excess = excess_loss(learnt, truth, masks)
        by_losses = float(problem.loss(other, seen) - problem.loss(theta, seen))
        assert excess == pytest.approx(by_losses, abs=1e-12) and excess > 0
        above = entropy_constant_bound(learnt, masks, block_gap(learnt, masks)).value
        promised = population_bound(learnt, truth, masks, tensorisation=above)
        assert total_variation(learnt, truth) <= promised


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (dict(sequences=[]), "sequences is empty"),
        (dict(sequences=[2], masks=5), "no finite, unique estimate"),
        (dict(delta=2.0), "delta is 2.0"),
        (dict(k=4), "k must be from 1 to 3"),
        (dict(masks=0), "masks is 0"),
        (dict(box=0.0), "the box is 0"),
        (dict(box=100.0), "at most 60"),
    ],
)
def test_the_study_refuses_in_one_sentence(given, said):
    with pytest.raises(GlauberError, match=said):
        bound(**given)


def test_simulated_deviations_stay_below_the_lemmas():
    """Lemmas 7 and 8 and their corollaries, the bounds by hand; the Hoeffding step is empty."""
    found = deviations(3, 200, 50, coupling=0.1, repetitions=300, seed=1)
    p = Ising.clique(3, 3, coupling=0.1).probabilities
    beta = possible_conditionals(p, Masks.uniform(Space(2, 3), 1)).min()
    assert found.log_margin == pytest.approx(math.log(1 / beta))
    first, second = math.sqrt(2**8 * 8 / (50 * 0.05)), math.sqrt(math.log(4 / 0.05) / 400)
    assert found.corollary_1 == pytest.approx((first + second) * math.log(1 / beta))
    assert found.lemma_8 == pytest.approx(math.sqrt(8**3 / (16 * 0.05 * 200)))
    assert found.hoeffding == pytest.approx(
        math.sqrt(math.log(2 / 0.05) / 400) * math.log(1 / beta)
    )
    assert found.outside == (0, 0, 0, 0) and found.sequence_step < 1e-12
    assert 0 < found.empirical < found.uniform < found.corollary_1 < found.corollary_2
    assert found.hoeffding / 20 < found.population < found.hoeffding
    # Eight shares of 200 samples: the mean distance, by the normal approximation of each.
    expected = np.sqrt(p * (1 - p) / 200).sum() / math.sqrt(2 * math.pi)
    assert expected < found.total_variation < 2 * expected
    assert 0 < found.largest_kl <= found.log_margin  # Proposition 7
    masks, longer, wider = (
        deviations(3, 200, 5000),
        deviations(3, 20_000, 50),
        deviations(4, 200, 50),
    )
    for each in (masks, longer):  # Remark 4
        assert each.corollary_1 < found.corollary_1 and each.empirical < found.empirical
    assert wider.corollary_1 > found.corollary_1 and wider.empirical > found.empirical


@pytest.mark.parametrize("seed", range(6))
def test_the_kl_of_conditionals_is_at_most_the_log_of_the_margin(seed):
    """Proposition 7, with adaptive masks and distributions that have zeros."""
    family, theta = random_family(seed)
    rng, q = np.random.default_rng(seed), family.distribution(theta)
    masks = random_adaptive(family.space, rng)
    beta = possible_conditionals(q, masks).min()
    for _ in range(20):
        r = rng.dirichlet(np.full(q.size, 0.2)) * (rng.random(q.size) > 0.2)
        for slot, block in enumerate(masks.blocks):
            shares = [
                conditional(each * masks.chances[slot] + 1e-290, family.space, block)
                for each in (r, q)
            ]
            kl = over_block(shares[0] * np.log(shares[0] / shares[1]), family.space, block)
            seen = over_block(r * masks.chances[slot], family.space, block) > 1e-200
            assert kl[seen].min() > -1e-9 and kl[seen].max() <= math.log(1 / beta) * (1 + 1e-9)
