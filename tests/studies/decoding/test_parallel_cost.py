"""The cost of filling at once against full enumeration on small laws, and on a tiny model."""

import json
from itertools import permutations, product

import numpy as np
import pytest
import torch

from conftest import make_model, make_tokenizer
from glauber import parallel_cost
from glauber.foundation.errors import GlauberError
from glauber.models.base import Restricted, log_probs
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Joint, Table
from glauber.studies.decoding.parallel_cost import (
    Sampling,
    cost_by_count,
    cost_of_groups,
    filling_plan,
    greedy_groups,
    pair_costs,
)

TOKENS = torch.tensor([1, 0, 2, 1])


def filled(conditionals, tokens, order, hidden, vocab):
    """The law of filling `order` one by one, by token tuple in the order's own order."""
    laws = {}
    for values in product(range(vocab), repeat=len(order)):
        state, chance, left = tokens.clone(), 1.0, list(hidden)
        for site, value in zip(order, values, strict=True):
            asked = [site, *(s for s in left if s != site)]
            law = log_probs(conditionals, state[None], torch.tensor([asked]))[0, 0].exp()
            chance *= float(law[value])
            state[site] = value
            left.remove(site)
        laws[values] = chance
    return laws


def at_once(conditionals, tokens, order, hidden, vocab):
    asked = [*order, *(s for s in hidden if s not in order)]
    law = log_probs(conditionals, tokens[None], torch.tensor([asked]))[0].exp()
    return {
        values: float(np.prod([law[slot, v] for slot, v in enumerate(values)]))
        for values in product(range(vocab), repeat=len(order))
    }


def distances(conditionals, tokens, order, hidden, vocab=3):
    turn = filled(conditionals, tokens, order, hidden, vocab)
    once = at_once(conditionals, tokens, order, hidden, vocab)
    variation = sum(abs(turn[v] - once[v]) for v in turn) / 2
    return variation, sum(p * np.log(p / once[v]) for v, p in turn.items())


@pytest.mark.parametrize("conditionals", [Joint.random(3, 4, seed=1), Table.random(3, 4, seed=1)])
def test_pairs_by_enumeration(conditionals):
    hidden = [0, 1, 3]
    found = pair_costs(conditionals, TOKENS, torch.tensor(hidden), top=3)
    assert not found.rest.any()
    for a, first in enumerate(hidden):
        for b, second in enumerate(hidden):
            if a == b:
                continue
            far, spent = distances(conditionals, TOKENS, (first, second), hidden)
            assert found.total_variation[a, b] == pytest.approx(far, abs=1e-12)
            assert found.divergence[a, b] == pytest.approx(spent, abs=1e-12)
    np.testing.assert_allclose(found.at_most, found.total_variation, atol=1e-12)
    if isinstance(conditionals, Joint):
        assert found.order_gap < 1e-12
    else:
        assert found.order_gap_at_least == pytest.approx(found.order_gap) and found.order_gap > 1e-3
    by_distance = found.by_distance()
    assert by_distance[1] == (pytest.approx(found.mean[0, 1]), 1) and sorted(by_distance) == [
        1,
        2,
        3,
    ]


def test_fewer_tokens_give_bounds_that_enclose():
    law, sites = Table.random(3, 4, seed=5), torch.tensor([0, 1, 3])
    whole = pair_costs(law, TOKENS, sites, top=3)
    for top in (1, 2):
        part = pair_costs(law, TOKENS, sites, top=top)
        assert (part.rest > 0).all()
        assert (part.total_variation <= whole.total_variation + 1e-12).all()
        assert (part.at_most >= whole.total_variation - 1e-12).all()
        assert part.order_gap_at_least <= whole.order_gap + 1e-12
        assert (part.divergence <= whole.divergence + 1e-12).all()
        assert (part.divergence_at_most >= whole.divergence - 1e-12).all()


@pytest.mark.parametrize("conditionals", [Joint.random(3, 4, seed=2), Table.random(3, 4, seed=2)])
def test_counts_by_enumeration(conditionals):
    """The mean over all ordered sets of k, within four standard errors of 3,000 samples."""
    hidden = [0, 1, 3]
    found = cost_by_count(conditionals, TOKENS, torch.tensor(hidden), Sampling(3000, seed=3))
    assert found[0].total_variation.value < 1e-12 and found[0].divergence.value < 1e-12
    for k in (2, 3):
        orders = list(permutations(hidden, k))
        exact = np.mean([distances(conditionals, TOKENS, o, hidden) for o in orders], axis=0)
        for one, value in zip(
            (found[k - 1].total_variation, found[k - 1].divergence), exact, strict=True
        ):
            assert 0 < one.standard_error < 0.02
            assert abs(one.value - value) < 4 * one.standard_error


def test_groups_by_enumeration():
    """The second group's cost is a mean over what the first one holds."""
    law, hidden = Table.random(3, 4, seed=8), [0, 1, 2, 3]
    parts, whole = cost_of_groups(law, TOKENS, [(0, 2), (1, 3)], Sampling(4000, seed=1))
    first = [distances(law, TOKENS, o, hidden)[0] for o in ((0, 2), (2, 0))]
    assert abs(parts[0].total_variation.value - np.mean(first)) < (
        4 * parts[0].total_variation.standard_error
    )
    second = []
    for order in ((0, 2), (2, 0)):
        for values, chance in filled(law, TOKENS, order, hidden, 3).items():
            state = TOKENS.clone()
            state[list(order)] = torch.tensor(values)
            for rest in ((1, 3), (3, 1)):
                second.append(chance / 4 * distances(law, state, rest, [1, 3])[0])
    assert abs(parts[1].total_variation.value - sum(second)) < (
        4 * parts[1].total_variation.standard_error
    )
    both = parts[0].total_variation.value + parts[1].total_variation.value
    assert max(p.total_variation.value for p in parts) - 0.05 < whole.total_variation.value
    assert whole.total_variation.value < both + 0.05
    assert whole.divergence.value == pytest.approx(sum(p.divergence.value for p in parts))


def test_the_plan_keeps_independent_sites_together_and_strong_pairs_apart():
    """Sites 0 and 1 are nearly the same, 2 and 3 are free."""
    weights = torch.zeros(2, 2, 2, 2, dtype=torch.float64)
    weights[0, 0] += 4
    weights[1, 1] += 4
    law, tokens = Joint(weights), torch.zeros(4, dtype=torch.int64)
    pairs = pair_costs(law, tokens, torch.arange(4), top=2)
    strong = pairs.total_variation[0, 1]
    assert strong == pytest.approx(0.5 / (1 + np.exp(-4)) * (1 - np.exp(-4)), rel=1e-9)
    plan = filling_plan(law, tokens, pairs, Sampling(200), error=0.1)
    assert plan.passes == 2 and sorted(len(group) for group in plan.groups) == [1, 3]
    assert plan.whole.total_variation.value < 1e-12
    loose = filling_plan(law, tokens, pairs, Sampling(200), error=0.6)
    assert loose.passes == 1 and loose.costs[0].total_variation.value == pytest.approx(
        strong, abs=4 * loose.costs[0].total_variation.standard_error + 1e-9
    )


def test_a_plan_whose_pairs_look_harmless_is_measured_and_split():
    """Parity: every pair is independent, the three together are not."""
    weights = torch.zeros(2, 2, 2, dtype=torch.float64)
    for state in product(range(2), repeat=3):
        weights[state] = 3.0 * (-1) ** sum(state)
    law, tokens = Joint(weights), torch.zeros(3, dtype=torch.int64)
    pairs = pair_costs(law, tokens, torch.arange(3), top=2)
    assert pairs.total_variation.max() < 1e-9
    plan = filling_plan(law, tokens, pairs, Sampling(100), error=0.1)
    assert plan.passes == 3 and all(len(group) == 1 for group in plan.groups)


def test_greedy_groups_respect_the_threshold():
    costs = np.random.default_rng(0).random((6, 6)) / 3
    costs = np.triu(costs, 1) + np.triu(costs, 1).T
    groups = greedy_groups(costs, tuple(range(10, 16)), 0.4)
    assert sorted(site for group in groups for site in group) == list(range(10, 16))
    for group in groups:
        inside = [s - 10 for s in group]
        assert np.triu(costs[np.ix_(inside, inside)]).sum() <= 0.4 + 1e-12
    assert greedy_groups(costs, tuple(range(6)), 10.0) == [tuple(range(6))]


@pytest.fixture(scope="module")
def tiny():
    model = MaskedLM(make_model("bert"), make_tokenizer(), name="tiny")
    return model, Restricted(model, model.vocabulary.proposable())


def test_a_masked_lm(tiny):
    """Pairs by one row at a time; the same numbers for any number of samples held at once."""
    model, law = tiny
    tokens, _ = model.vocabulary.encode(["the cat sat on the mat ."])
    sites = torch.tensor([2, 3, 6])
    found = pair_costs(law, tokens[0], sites, top=model.vocab_size)
    assert not found.rest.any()
    before = log_probs(law, tokens, sites[None])[0].exp()
    by_hand = 0.0
    for token in model.vocabulary.proposable().nonzero()[:, 0].tolist():
        row = tokens.clone()
        row[0, 2] = token
        after = log_probs(law, row, torch.tensor([[6, 3]]))[0, 0].exp()
        by_hand += float(before[0, token] * (after - before[2]).abs().sum() / 2)
    assert found.total_variation[0, 2] == pytest.approx(by_hand, abs=1e-6)
    counts = cost_by_count(law, tokens[0], sites, Sampling(200, seed=2))
    pair = counts[1].total_variation
    exact = found.total_variation[~np.eye(3, dtype=bool)].mean()
    assert abs(pair.value - exact) < 4 * pair.standard_error


TEXT = "the cat sat on the mat ."


def test_the_study(tiny, tmp_path):
    model, _ = tiny
    found = parallel_cost(model, TEXT, sites="1,2,5", samples=8, top=10)
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["hidden"] == ["1 cat", "2 sat", "5 mat"] and told["sites"] == [1, 2, 5]
    lower, upper = (told["pairs"][key] for key in ("total_variation", "at_most"))
    assert (np.array(lower) <= np.array(upper)).all()
    assert [one["n_sites"] for one in told["by_count"]] == [1, 2, 3]
    groups = told["plan"]["groups"]
    assert sorted(word for group in groups for word in group["sites"]) == told["hidden"]
    assert all(g["total_variation"]["value"] <= told["plan"]["error"] for g in groups)
    assert [one["distance"] for one in told["by_distance"]] == [1, 3, 4]
    frame = found.frame()
    assert len(frame) == 6 and set(frame["first"]) == {1, 2, 5}
    row = frame[(frame["first"] == 1) & (frame["second"] == 5)].iloc[0]
    assert row["total_variation"] == lower[0][2] and row["first_token"] == "cat"
    page = found.write(tmp_path / "cost.html").read_text()
    assert "the token filled second" in page and "tokens apart" in page
    assert "plan:" in str(found) and "the two orders" in str(found)


def test_sites_are_named_in_three_ways_and_frozen_ones_are_never_hidden(tiny):
    model, _ = tiny
    few = dict(samples=2, top=2)
    listed, ranged = (
        parallel_cost(model, TEXT, sites=sites, **few) for sites in ([2, 3, 4], "2-4")
    )
    assert listed.to_dict() | {"signature": ""} == ranged.to_dict() | {"signature": ""}
    for seed in range(6):
        found = parallel_cost(model, TEXT, hide=0.6, freeze="0-2", seed=seed, **few)
        assert len(found.sites) == 4 and min(found.sites) >= 3
    # Freezing nothing changes nothing, and a frozen token moves no number.
    assert parallel_cost(model, TEXT, sites="3,5", freeze="0", **few).hidden == ["3 on", "5 mat"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"sites": "1,9"}, "its tokens are 0 to 6"),
        ({"sites": "1"}, "at least two"),
        ({"sites": "a"}, "not a list of sites"),
        ({"sites": "1,2", "freeze": "2"}, "token 2 cannot be hidden and frozen"),
        ({"freeze": "0-5"}, "at least two"),
        ({"hide": 0}, "hide is 0"),
        ({"error": 2}, "error is 2"),
        ({"samples": 10**12}, "is not possible"),
        ({"samples": 10**9}, "GiB"),
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": 1e-320}, "temperature"),
        ({"hide": "a"}, "hide is 'a'"),
    ],
)
def test_what_the_study_refuses(tiny, asked, said):
    with pytest.raises(GlauberError, match=said) as problem:
        parallel_cost(tiny[0], TEXT, **asked)
    assert "\n" not in str(problem.value)
