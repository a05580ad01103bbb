"""Is the exact law of an unmasking what its definition says, and what the theory promises?"""

import itertools
import math

import numpy as np
import pytest
import torch

from glauber.exact import (
    Procedure,
    Space,
    correction_matrix,
    exact_law,
    exact_passes,
    site_matrix,
    stationary,
    total_variation,
)
from glauber.exact.transition import block_matrix, product_fills
from glauber.exact.unmasking import hidden_plan
from glauber.foundation.errors import GlauberError
from glauber.models.base import PAD, Clamped
from glauber.models.table import Joint, Table

TOKENS, FREE = torch.zeros(3, dtype=torch.int64), torch.ones(3, dtype=torch.bool)
SPACE = Space(3, 3)
JOINT, TABLE = Joint.random(3, 3, seed=1), Table.random(3, 3, seed=1)
IN_ANY_ORDER = ("random", "left-to-right", "confidence", "margin", "entropy")


def law(conditionals, tokens=TOKENS, free=FREE, **how):
    return exact_law(conditionals, tokens, free, Procedure(**how))


def single(conditionals, site, temperature=1.0, **visible):
    """pi_site(. | visible), all other sites hidden: visible is s0=token, s1=token, …"""
    tokens = torch.tensor([[visible.get(f"s{other}", 0) for other in range(3)]])
    hidden = [site, *(s for s in range(3) if s != site and f"s{s}" not in visible)]
    weights = np.exp(
        conditionals.scores(tokens, torch.tensor([hidden]))[0, 0].numpy() / temperature
    )
    return weights / weights.sum()


def relative_entropy(p, q):
    return float((p * np.log(p / q)).sum())


# What the theory promises


@pytest.mark.parametrize("order", IN_ANY_ORDER)
@pytest.mark.parametrize("count", ["1", "linear", "cosine", "threshold:1", "entropy-bound:0"])
def test_one_at_a_time_gives_the_joint_law_in_any_order(order, count):
    assert total_variation(law(JOINT, order=order, count=count), JOINT.probabilities()) < 1e-12


@pytest.mark.parametrize("order", IN_ANY_ORDER)
def test_fixed_tokens_are_conditioned_on(order):
    joint, free = Joint.random(2, 4, seed=3), torch.tensor([True, False, True, True])
    tokens = torch.tensor([0, 1, 0, 0])
    wanted = joint.probabilities().reshape(2, 2, 2, 2)[:, 1].flatten()
    found = law(joint, tokens, free, order=order, count="1")
    assert total_variation(found, wanted / wanted.sum()) < 1e-12
    # The same as of the free sites by themselves, also where nothing is exact.
    alone = Clamped(joint, torch.tensor([PAD, 1, PAD, PAD]))
    how = {"order": order, "count": "2", "temperature": 0.7}
    assert total_variation(law(joint, tokens, free, **how), law(alone, **how)) < 1e-14


def test_the_likeliest_draw_first_is_biased_even_one_at_a_time():
    # It fills a site sooner when it drew a likely token, so likely tokens are too frequent.
    found = law(JOINT, order="drawn", count="1")
    assert total_variation(found, JOINT.probabilities()) == pytest.approx(0.389435, abs=1e-6)
    cube = found.reshape(3, 3, 3)
    assert np.argmax(cube) == int(JOINT.probabilities().argmax())
    assert cube.max() > JOINT.probabilities().max()


@pytest.mark.parametrize("conditionals", [JOINT, TABLE], ids=["joint", "table"])
@pytest.mark.parametrize("order", [*IN_ANY_ORDER, "drawn"])
def test_all_at_once_gives_the_product_of_the_single_site_laws(conditionals, order):
    alone = [single(conditionals, site) for site in range(3)]
    wanted = np.einsum("a,b,c->abc", *alone).ravel()
    for count in ("3", "threshold:0.01", "entropy-bound:99"):
        assert total_variation(law(conditionals, order=order, count=count), wanted) < 1e-14
    assert total_variation(law(conditionals, order=order, passes=1), wanted) < 1e-14


@pytest.mark.parametrize("conditionals", [JOINT, TABLE], ids=["joint", "table"])
@pytest.mark.parametrize("block", [1, 2])
def test_correction_falls_towards_the_stationary_law_of_its_sweep(conditionals, block):
    sweep = correction_matrix(conditionals, TOKENS, FREE, Procedure(correct_block=block))
    limit = stationary(sweep)
    laws = [law(conditionals, count="3")]
    for _ in range(5):
        laws.append(laws[-1] @ sweep)
    far = [total_variation(after, limit) for after in laws]
    assert all(later < 0.7 * sooner for sooner, later in itertools.pairwise(far))
    assert far[0] > 0.2 and far[-1] < 2e-3
    twice = law(conditionals, count="3", correct=2, correct_block=block)
    np.testing.assert_allclose(laws[2], twice, rtol=0, atol=1e-14)
    # Single sites keep a joint law; groups filled at once do not, and a table has none.
    to_joint = total_variation(limit, JOINT.probabilities())
    assert to_joint < 1e-12 if (conditionals, block) == (JOINT, 1) else to_joint > 0.02


@pytest.mark.parametrize("block", [1, 2])
def test_a_sweep_is_the_mean_over_all_orders_of_its_redraws(block):
    def redraw(group):
        def current(hidden):
            states = SPACE.states().numpy()
            return np.array(
                [
                    [
                        single(TABLE, s, **{f"s{o}": x[o] for o in range(3) if o not in hidden})[
                            x[s]
                        ]
                        for s in hidden
                    ]
                    for x in states
                ]
            )

        group = tuple(sorted(group))
        if len(group) == 1:
            return site_matrix(TABLE, SPACE, group[0]).toarray()
        return block_matrix(SPACE, group, product_fills(current, group, 2)[group]).toarray()

    matrices = []
    for order in itertools.permutations(range(3)):
        groups = [order[:block], order[block:]] if block == 2 else [(s,) for s in order]
        matrices.append(np.linalg.multi_dot([redraw(group) for group in groups]))
    found = correction_matrix(TABLE, TOKENS, FREE, Procedure(correct_block=block))
    np.testing.assert_allclose(found, np.mean(matrices, axis=0), rtol=0, atol=1e-14)


@pytest.mark.parametrize("order", ["entropy", "confidence", "random"])
def test_the_entropy_bound_bounds_the_relative_entropy_to_a_joint_law(order):
    # KL(joint | output) is the sum over the passes of the mean total correlation of what they fill,
    # and the total correlation is at most the sum of the entropies minus the largest.
    used = []
    for seed, gamma in itertools.product(range(4), (0.2, 0.5, 1.0)):
        joint = Joint.random(3, 3, seed=seed, strength=2.0)
        how = Procedure(order=order, count=f"entropy-bound:{gamma}")
        passes = exact_passes(joint, TOKENS, FREE, how)
        mean = float(passes @ np.arange(len(passes)))
        cost = relative_entropy(joint.probabilities().numpy(), exact_law(joint, TOKENS, FREE, how))
        assert cost <= mean * gamma + 1e-12
        used.append(cost / (mean * gamma))
    assert 0.02 < max(used) < 0.9  # loose, but not for want of parallel filling


# What the definition says, case by case


@pytest.mark.parametrize("conditionals", [JOINT, TABLE], ids=["joint", "table"])
@pytest.mark.parametrize("remask, sigma", [("cap:0.3", 0.3), ("rescale:0.6", 0.6), ("conf", 1.0)])
def test_three_sites_in_three_passes_with_hiding_again(conditionals, remask, sigma):
    # Pass 1 fills site 0. Pass 2 either keeps it and fills site 1, or hides it and fills both
    # others; pass 3 fills what is left. The most that may be hidden in pass 2 is (1/3) / (1/3) = 1.
    wanted = np.zeros((3, 3, 3))
    for a, b, c in itertools.product(range(3), repeat=3):
        begun = single(conditionals, 0)[a] * single(conditionals, 1, s0=a)[b]
        wanted[a, b, c] += (1 - sigma) * begun * single(conditionals, 2, s0=a, s1=b)[c]
        again = sigma * begun * single(conditionals, 2, s0=a)[c]
        wanted[:, b, c] += again * single(conditionals, 0, s1=b, s2=c)
    found = law(conditionals, order="left-to-right", passes=3, remask=remask)
    np.testing.assert_allclose(found, wanted.ravel(), rtol=0, atol=1e-14)


def test_hiding_by_confidence_looks_at_the_probability_when_placed():
    # Four sites, one a pass, from left to right: site 0 is surely hidden again in pass 2, in which
    # 1 and 2 are filled; in pass 3 each of these with chance 1/2 times its softmax.
    table = Table.random(2, 4, seed=2)

    def given(hidden, tokens, site):
        scores = table.scores(torch.tensor([tokens]), torch.tensor([[site, *hidden - {site}]]))
        return torch.softmax(scores[0, 0], dim=0).tolist()

    wanted = np.zeros((2,) * 4)
    for a, b, c in itertools.product(range(2), repeat=3):
        ones = given({1, 2, 3}, [a, 0, 0, 0], 1)[b], given({1, 2, 3}, [a, 0, 0, 0], 2)[c]
        begun = given({0, 1, 2, 3}, [0] * 4, 0)[a] * ones[0] * ones[1]
        weights = np.exp(-np.array(ones))
        chances = weights / weights.sum() / 2
        for out in itertools.product((False, True), repeat=2):
            hiding = np.prod([s if o else 1 - s for s, o in zip(chances, out, strict=True)])
            filled = min(2, 1 + sum(out))  # of the hidden ones, 0 and 3, from the left
            for x in itertools.product(range(2), repeat=4):
                if (x[1] != b and not out[0]) or (x[2] != c and not out[1]):
                    continue
                now, here = [0, b, c, 0], begun * hiding
                for site in (0, 3)[:filled]:
                    here *= given({0, 3}, now, site)[x[site]]
                left = {s for s, o in ((1, out[0]), (2, out[1])) if o} | {3} - {(0, 3)[filled - 1]}
                for site in left:
                    here *= given(left, list(x), site)[x[site]]
                wanted[x] += here
    found = exact_law(
        table,
        torch.zeros(4, dtype=torch.int64),
        torch.ones(4, dtype=torch.bool),
        Procedure(order="left-to-right", remask="conf"),
    )
    np.testing.assert_allclose(found, wanted.ravel(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("count", ["linear", "cosine"])
def test_a_plan_that_never_hides_filled_sites_takes_the_likeliest_draws(count):
    how = {"count": count, "passes": 3}
    plain = law(TABLE, order="drawn", **how)
    assert total_variation(law(TABLE, remask="planned:0", **how), plain) < 1e-14
    assert total_variation(law(TABLE, remask="planned:1", **how), plain) > 0.01


def test_a_plan_may_take_back_what_was_unlikely():
    # Two passes. The first holds the likelier of two draws; the second holds both.
    joint, tokens, free = Joint.random(2, 2, seed=5), TOKENS[:2], FREE[:2]
    first = law(joint, tokens, free, remask="planned:1", passes=2)
    assert total_variation(first, law(joint, tokens, free, order="drawn", passes=2)) < 1e-14
    # With cosine over three passes one of two is held twice: the better of old and new.
    assert hidden_plan(2, Procedure(count="cosine", passes=3)) == [2, 1, 1, 0]
    q = [joint.scores(tokens[None], torch.tensor([[0, 1]]))[0, s].exp().tolist() for s in (0, 1)]

    def other(site, token):
        row = torch.full((1, 2), token)
        return joint.scores(row, torch.tensor([[1 - site]]))[0, 0].exp().tolist()

    wanted = np.zeros((2, 2))
    for a, b in itertools.product(range(2), repeat=2):
        held, token = (0, a) if q[0][a] >= q[1][b] else (1, b)
        was = (q[0][a], q[1][b])[held]
        for v in range(2):
            there = other(held, token)[v]
            here = q[0][a] * q[1][b] * there
            kept = (held, token) if (was, -held) > (there, held - 1) else (1 - held, v)
            for w in range(2):
                x = (kept[1], w) if kept[0] == 0 else (w, kept[1])
                wanted[x] += here * other(*kept)[w]
    found = law(joint, tokens, free, count="cosine", passes=3, remask="planned:1")
    np.testing.assert_allclose(found, wanted.ravel(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("order", ["random", "margin"])
def test_a_chance_of_zero_hides_nothing_again(order):
    plain = law(TABLE, order=order)
    for remask in ("cap:0", "rescale:0"):
        assert total_variation(law(TABLE, order=order, remask=remask), plain) < 1e-14


def test_the_loop_hides_again_in_the_middle_alone():
    # Four passes: all is filled in the first (a tenth of three sites is none), then two passes hide
    # each site with chance 1/10 and fill what the pass before has hidden, the last fills the rest.
    how = Procedure(passes=4, remask="loop:0.1,0.75,0.25", order="random")
    assert hidden_plan(3, how) == [3, 0, 0, 0, 0]
    assert hidden_plan(20, how) == [20, 2, 2, 2, 0]

    def refilled(x, gone):
        """The states (27,) after the sites in gone are filled at once."""
        laws = [
            single(TABLE, s, **{f"s{o}": x[o] for o in range(3) if o not in gone})
            if s in gone
            else np.eye(3)[x[s]]
            for s in range(3)
        ]
        return np.einsum("a,b,c->abc", *laws).ravel()

    sets = [{s for s in range(3) if bits >> s & 1} for bits in range(8)]
    states = SPACE.states().tolist()
    filled = np.einsum("a,b,c->abc", *[single(TABLE, s) for s in range(3)]).ravel()
    now = {(state, frozenset()): p for state, p in enumerate(filled)}
    for hiding in (0.1, 0.1, 0.0):
        after = {}
        for ((state, gone), p), out in itertools.product(now.items(), sets):
            stays = [s for s in range(3) if s not in gone]
            chance = math.prod(hiding if s in out else 1 - hiding for s in stays)
            if out <= set(stays) and chance > 0:
                for y, q in enumerate(refilled(states[state], gone)):
                    key = (y, frozenset(out))
                    after[key] = after.get(key, 0.0) + p * chance * q
        now = after
    wanted = np.zeros(27)
    for (state, gone), p in now.items():
        assert not gone
        wanted[state] += p
    np.testing.assert_allclose(exact_law(TABLE, TOKENS, FREE, how), wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("order", ["random", "confidence"])
def test_a_threshold_fills_the_first_and_all_that_are_sure(order):
    ones = [single(TABLE, site) for site in range(3)]
    sure = np.array([one.max() for one in ones])
    threshold = float(np.sort(sure)[1])  # two of three sites reach it
    reach = set(np.flatnonzero(sure >= threshold).tolist())
    wanted = np.zeros((3, 3, 3))
    for first in range(3) if order == "random" else [int(sure.argmax())]:
        at_once = reach | {first}
        for x in itertools.product(range(3), repeat=3):
            here = math.prod(ones[s][x[s]] for s in at_once)
            for s in {0, 1, 2} - at_once:  # at most one is left
                here *= single(TABLE, s, **{f"s{o}": x[o] for o in at_once})[x[s]]
            wanted[x] += here / (3 if order == "random" else 1)
    found = law(TABLE, order=order, count=f"threshold:{threshold}")
    np.testing.assert_allclose(found, wanted.ravel(), rtol=0, atol=1e-14)


def test_blocks_go_from_left_to_right():
    for conditionals in (JOINT, TABLE):
        one_by_one = law(conditionals, order="left-to-right", count="1")
        assert total_variation(law(conditionals, block=1, order="entropy"), one_by_one) < 1e-14
        assert total_variation(law(conditionals, block=3), law(conditionals)) < 1e-14
    pairs = np.zeros((3, 3, 3))  # two at once with all three hidden, then the third
    for a, b, c in itertools.product(range(3), repeat=3):
        at_once = single(TABLE, 0)[a] * single(TABLE, 1)[b]
        pairs[a, b, c] = at_once * single(TABLE, 2, s0=a, s1=b)[c]
    found = law(TABLE, block=2, passes=1, order="random")
    np.testing.assert_allclose(found, pairs.ravel(), rtol=0, atol=1e-14)


def test_temperature_zero_takes_the_likeliest_token_and_reads_the_untempered_law():
    x, order = [0, 0, 0], []
    for _ in range(3):
        seen = {f"s{s}": x[s] for s in order}
        ones = {s: single(TABLE, s, **seen) for s in range(3) if s not in order}
        site = max(ones, key=lambda s: ones[s].max())
        x[site] = int(ones[site].argmax())
        order.append(site)
    found = law(TABLE, order="confidence", temperature=0.0)
    assert found[SPACE.index(torch.tensor([x]))[0]] == 1 and found.sum() == 1
    from_left = [
        law(TABLE, order="left-to-right", **how) for how in ({"temperature": 0.0}, {"top_k": 1})
    ]
    assert np.array_equal(*from_left)


def test_laws_are_cut_to_the_top_tokens_and_then_to_their_head():
    scores = torch.tensor([0.4, 0.1, 0.3, 0.2]).double().log()
    one, tokens, free = Joint(scores), TOKENS[:1], FREE[:1]
    assert law(one, tokens, free, top_k=2) == pytest.approx([4 / 7, 0, 3 / 7, 0])
    assert law(one, tokens, free, top_p=0.7) == pytest.approx([4 / 7, 0, 3 / 7, 0])
    assert law(one, tokens, free, top_p=0.71) == pytest.approx([4 / 9, 0, 3 / 9, 2 / 9])
    assert law(one, tokens, free, top_p=0.01) == pytest.approx([1, 0, 0, 0])
    assert law(one, tokens, free, top_k=2, top_p=0.56) == pytest.approx([1, 0, 0, 0])
    colder = np.array([16, 1, 9, 4]) / 30
    assert law(one, tokens, free, temperature=0.5) == pytest.approx(colder)
    kept = np.array([16, 0, 9, 0]) / 25
    assert law(one, tokens, free, temperature=0.5, top_p=0.8) == pytest.approx(kept)


def test_plans_are_those_of_the_schedules():
    assert hidden_plan(7, Procedure(passes=3)) == [7, 4, 2, 0]
    assert hidden_plan(2, Procedure(passes=5)) == [2, 1, 1, 1, 1, 0]
    assert hidden_plan(8, Procedure(count="cosine", passes=4)) == [8, 7, 5, 3, 0]
    assert hidden_plan(2, Procedure(count="cosine", passes=3)) == [2, 1, 1, 0]


def test_sweeps_after_every_pass_redraw_what_is_filled():
    # Two sites, one at a time. The first is redrawn with the other hidden, so it has its marginal
    # law whatever was drawn, and the second has its conditional: the bias of `drawn` is gone.
    # Sweeps at the end alone only make it smaller.
    joint, tokens, free = Joint.random(3, 2, seed=4), TOKENS[:2], FREE[:2]
    how = {"order": "drawn", "count": "1"}
    plain = law(joint, tokens, free, **how)
    at_end = law(joint, tokens, free, correct=1, **how)
    between = law(joint, tokens, free, correct=1, between=True, **how)
    assert total_variation(between, joint.probabilities()) < 1e-12
    away = [total_variation(found, joint.probabilities()) for found in (plain, at_end)]
    assert 1e-3 < away[1] < away[0]


def test_the_number_of_passes_is_a_law():
    how = Procedure(order="entropy", count="entropy-bound:1.2")
    passes = exact_passes(JOINT, TOKENS, FREE, how)
    assert passes.sum() == pytest.approx(1, abs=1e-14) and passes[0] == 0
    assert exact_passes(JOINT, TOKENS, FREE, Procedure(count="2")) == pytest.approx([0, 0, 1])
    found = exact_passes(JOINT, TOKENS, FREE, Procedure(passes=5, remask="cap:0.5"))
    assert found[5] == pytest.approx(1, abs=1e-14)


def test_what_is_no_procedure_is_refused():
    for how, what in (
        ({"order": "upwards"}, "order"),
        ({"count": "some"}, "count"),
        ({"remask": "often"}, "often"),
        ({"remask": "conf", "count": "2"}, "needs a plan"),
    ):
        with pytest.raises(GlauberError, match=what):
            Procedure(**how)
    with pytest.raises(GlauberError, match="no site is free"):
        law(JOINT, free=~FREE)
