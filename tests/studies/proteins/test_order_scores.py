"""Scores over orders against enumeration of the joint law and of all k! orders."""

from itertools import permutations
from math import factorial

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from glauber.models.base import hide
from glauber.models.table import Joint, Table
from glauber.studies.proteins.variants import (
    DeferredQueries,
    Substitutions,
    agreement,
    all_orders_affordable,
    drawn_rankings,
    every_ranking,
    gains,
    order_disagreement,
    over_all_orders,
    pseudo_likelihood_ratio,
    scores_along_orders,
    sums_along,
    wild_type_fill,
)

PARENT = torch.tensor([0, 1, 2, 0, 1])
VARIANT = Substitutions((0, 1, 3, 4), (0, 1, 0, 1), (2, 0, 1, 2))


def answered(rule, *scores):
    """The scores of a rule, each worked out twice: noted, then answered."""
    ask = DeferredQueries(PARENT)
    for score in scores:
        score(ask)
    ask.evaluate(rule)
    return [score(ask) for score in scores]


def brute_force(rule, variant):
    """The score along every order, row by row, by what the rule says of each."""
    found = {}
    for order in permutations(range(len(variant.sites))):
        total = 0.0
        for sign, tokens in ((1, variant.new), (-1, variant.old)):
            row = PARENT.clone()[None]
            row[0, list(variant.sites)] = torch.tensor(tokens)
            for step, place in enumerate(order):
                hidden = torch.tensor([[variant.sites[one] for one in order[step:]]])
                law = torch.log_softmax(rule.scores(row, hidden).double(), dim=-1)[0, 0]
                total += sign * float(law[tokens[place]])
        found[order] = total
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_joint_law_gives_every_order_its_exact_ratio(seed):
    rule = Joint.random(3, 5, seed, strength=2.0)
    (table,) = answered(rule, lambda ask: gains(ask, VARIANT))
    logs = rule.probabilities().log().view((3,) * 5)
    mutant = PARENT.clone()
    mutant[list(VARIANT.sites)] = torch.tensor(VARIANT.new)
    truth = float(logs[tuple(mutant)] - logs[tuple(PARENT)])
    found = over_all_orders(table)
    assert abs(found.mean - truth) < 1e-9 and found.sd < 1e-9
    assert found.high - found.low < 1e-9
    along = sums_along(table, every_ranking(VARIANT.sites).of(VARIANT))
    assert len(along) == 24 and np.abs(along - truth).max() < 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_all_orders_by_sets_are_all_orders_one_by_one(seed):
    rule = Table.random(3, 5, seed)
    (table,) = answered(rule, lambda ask: gains(ask, VARIANT))
    truth = brute_force(rule, VARIANT)
    values = np.array(list(truth.values()))
    found = over_all_orders(table)
    assert abs(found.mean - values.mean()) < 1e-10
    assert abs(found.sd - values.std()) < 1e-10 and found.sd > 0.1
    assert abs(found.low - values.min()) < 1e-10 and abs(found.high - values.max()) < 1e-10
    orders = np.array(list(truth))
    np.testing.assert_allclose(sums_along(table, orders), values, atol=1e-10)
    (asked,) = answered(rule, lambda ask: scores_along_orders(ask, VARIANT, orders[::5]))
    np.testing.assert_allclose(asked, values[::5], atol=1e-10)


@pytest.mark.parametrize("k", [0, 1, 2, 6])
def test_moments_over_sets_of_random_numbers(k):
    table = np.random.default_rng(k).normal(size=(2**k, k))
    values = sums_along(table, every_ranking(range(k)).of(Substitutions(tuple(range(k)), (), ())))
    assert len(values) == factorial(k)
    found = over_all_orders(table)
    expected = values.mean(), values.std(), values.min(), values.max()
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_drawn_orders_estimate_what_all_orders_give():
    table = np.random.default_rng(3).normal(size=(2**8, 8))
    truth = over_all_orders(table)
    sites = tuple(range(5, 13))
    values = sums_along(table, drawn_rankings(sites, 4000, 1).of(Substitutions(sites, (), ())))
    assert abs(values.mean() - truth.mean) < 5 * truth.sd / np.sqrt(4000)
    assert abs(values.std() / truth.sd - 1) < 5 * np.sqrt(0.5 / 4000)
    few = drawn_rankings(sites[2:4], 4000, 1)
    assert np.array_equal(few.ranks, drawn_rankings(sites, 4000, 1).ranks[:, 2:4])


def test_a_context_is_asked_once():
    asked = []

    class Counted(Table):
        def scores(self, tokens, sites, candidates=None):
            shown = hide(tokens, sites, 9)
            asked.extend(map(tuple, shown.tolist()))
            return super().scores(tokens, sites, candidates)

    rule = Counted(Table.random(3, 5, 4).entries)
    other = Substitutions((0, 1, 3), (0, 1, 0), (2, 0, 1))  # the first three changes of the same
    answered(
        rule,
        lambda ask: gains(ask, VARIANT),
        lambda ask: gains(ask, other),
        lambda ask: wild_type_fill(ask, VARIANT),
        lambda ask: pseudo_likelihood_ratio(ask, VARIANT, range(5)),
    )
    assert len(asked) == len(set(asked))
    # 2^4 - 1 hidden sets with old and new letters, one of them the same; three sites: 2^3 - 1 each,
    # the sets hidden in the parent are known; site 2 alone in both.
    assert len(asked) == (2 * 15 - 1) + (7 - 1) + 2


def test_all_orders_are_followed_where_they_cost_no_more():
    assert all_orders_affordable(1, 1) and not all_orders_affordable(2, 1)
    assert all_orders_affordable(8, 32) and not all_orders_affordable(9, 32)
    assert all_orders_affordable(12, 10**6) and not all_orders_affordable(13, 10**6)


def test_order_disagreement_orders_and_their_agreement():
    along = np.array([[3.0, 1.0, 3.0, 3.0], [2.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 1.0]])
    shares = order_disagreement(along, along.mean(axis=1))
    assert shares[0, 1] == 0.25 and shares[1, 0] == 0.25
    assert shares[0, 2] == 0 and shares[1, 2] == 0
    ranks = along.argsort(axis=0).argsort(axis=0)
    pairs = [np.corrcoef(ranks[:, i], ranks[:, j])[0, 1] for i in range(4) for j in range(i)]
    assert agreement(along) == pytest.approx(np.mean(pairs))


def test_equal_scores_have_no_agreement_and_ties_share_a_rank():
    """By scipy's Spearman for two orders with ties; equal scores rank nothing."""
    assert np.isnan(agreement(np.zeros((6, 5))))
    along = np.array([[1.0, 2], [1, 3], [2, 3], [0, 1], [2, 2]])
    assert agreement(along) == pytest.approx(spearmanr(along[:, 0], along[:, 1]).statistic)
