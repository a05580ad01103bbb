import math

import pytest
import torch
from scipy.stats import chi2

from glauber.dynamics import scans
from glauber.dynamics.adaptive import log_chances, pick
from glauber.dynamics.draws import greedy
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.dynamics.noise import random_bits
from glauber.dynamics.remembered import Memo
from glauber.foundation.errors import GlauberError
from glauber.models.base import PAD, Restricted
from glauber.models.table import Table

LAW = Table.random(2, 5)
FREE = torch.tensor([False, True, True, False, True])


class Counting:
    """A rule that counts the rows it is asked for."""

    def __init__(self, rule):
        self.rule, self.vocab_size, self.rows = rule, rule.vocab_size, 0

    def scores(self, tokens, sites, candidates=None):
        self.rows += len(tokens)
        return self.rule.scores(tokens, sites, candidates)


def chosen(scan, n=30_000, step=0):
    state = start(torch.zeros(n, 5, dtype=torch.int64), FREE.expand(n, -1).clone(), step=step)
    slots = torch.arange(scan.n_numbers(5))
    order, _ = random_bits(torch.tensor(1), state.chain[:, None], state.step[:, None], slots[None])
    return scan.choose(LAW, state, order)


def assert_uniform(values, possible):
    seen = torch.tensor([int((values == value).sum()) for value in possible]).double()
    due = len(values) / len(possible)
    assert int(seen.sum()) == len(values)
    assert chi2.sf(float(((seen - due) ** 2 / due).sum()), len(possible) - 1) > 1e-3


def test_uniform_is_uniform_over_the_free_sites():
    assert_uniform(chosen(scans.uniform())[:, 0], [1, 2, 4])


def test_a_block_is_a_uniform_ordered_pair():
    sites = chosen(scans.block(2))
    assert_uniform(sites[:, 0] * 5 + sites[:, 1], [7, 9, 11, 14, 21, 22])


def test_a_sweep_goes_in_order():
    sites = [int(chosen(scans.sweep(), 1, step)[0, 0]) for step in range(7)]
    assert sites == [1, 2, 4, 1, 2, 4, 1]


def test_everywhere_has_an_empty_slot_for_shorter_chains():
    free = torch.tensor([[True, True, False], [False, True, False]])
    state = start(torch.zeros(2, 3, dtype=torch.int64), free)
    assert scans.everywhere().choose(LAW, state, free).tolist() == [[0, 1], [1, PAD]]


def test_names_lead_back_to_scans():
    for name in (
        "uniform", "sweep", "block:3", "everywhere", "adaptive:confidence", "adaptive:entropy:2",
        "conditioned:entropy", "naive:confidence:2", "naive:entropy:inf",
    ):  # fmt: skip
        assert scans.scan_named(name).name == name
    for name in (
        "naive:confidence:nan",
        "naive:confidence:-1",
        "naive",
        "adaptive",
        "adaptive:surprise",
        "adaptive:entropy:x",
        "adaptive:entropy:inf",
        "conditioned:confidence:inf",
        "least-confident",
        "uniform:",
        "block:",
        "block",
        "block:0",
        "block:x",
        "uniform:2",
        "",
    ):
        with pytest.raises(GlauberError):
            scans.scan_named(name)


def test_chances_at_their_edges():
    """Far below what 1 - p can tell apart, with nothing in doubt, and as sharp as can be."""
    free = torch.tensor([[True, True, False], [True, True, True], [True, True, False]])
    logs = torch.tensor([[-800.0, -801.0, -torch.inf], [-torch.inf] * 3, [-2.0, -2.0, -torch.inf]])
    found = log_chances(logs.double(), free, 1.0).exp()
    first = 1 / (1 + math.exp(-1))
    expected = [[first, 1 - first, 0], [1 / 3] * 3, [0.5, 0.5, 0]]
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)
    assert log_chances(logs.double(), free, 0.0).exp()[0].tolist() == [0.5, 0.5, 0]
    sharp = log_chances(logs.double(), free, math.inf).exp()
    assert sharp[[0, 2]].tolist() == [[1, 0, 0], [1, 0, 0]]


def test_a_site_without_a_chance_is_never_picked():
    chances = torch.tensor([[0.0, 0.3, 0.7, 0.0]]).double().log().expand(3, -1)
    u = torch.tensor([0.0, 0.3, 1 - 2.0**-53]).double()
    assert pick(chances, u).tolist() == [[1], [2], [2]]


def test_what_cannot_keep_the_law_is_refused():
    with pytest.raises(GlauberError, match="greedy"):
        glauber(LAW, scan=scans.by_state("adaptive", "entropy"), fill=greedy())
    with pytest.raises(GlauberError, match=r"at most 64 tokens.*adaptive:entropy keeps"):
        glauber(Table.random(65, 1), scan=scans.by_state("conditioned", "entropy"))
    allowed = torch.arange(65) < 64
    glauber(Restricted(Table.random(65, 1), allowed), scan=scans.by_state("conditioned", "entropy"))


@pytest.mark.parametrize("redraw", ["naive", "adaptive", "conditioned"])
@pytest.mark.parametrize("measure", ["confidence", "entropy"])
def test_chains_of_any_number_temperature_and_length_step_alone(redraw, measure):
    """1, 2 or 8 chains, from freezing to boiling, some sites frozen: the steps of each alone."""
    kernel = glauber(LAW, scan=scans.by_state(redraw, measure))
    heat = torch.tensor([1e-300, 1e-3, 0.1, 0.5, 1.0, 3.0, 1e3, 1e30], dtype=torch.float64)
    tokens = torch.arange(40).view(8, 5) % 2
    begun = start(tokens, FREE.expand(8, -1).clone(), temperature=heat)
    together = [state.tokens for state, _ in run(kernel, begun, 12, seed=3)]
    for rows in (torch.arange(1), torch.tensor([2, 6]), torch.tensor([7])):
        alone = [state.tokens for state, _ in run(kernel, begun.rows(rows), 12, seed=3)]
        assert all(torch.equal(x, y[rows]) for x, y in zip(alone, together, strict=True))
    assert torch.equal(together[-1][:, ~FREE], tokens[:, ~FREE])


def test_a_rejected_proposal_leaves_the_state_and_says_so():
    kernel = glauber(LAW, scan=scans.by_state("adaptive", "confidence"))
    n = 500
    begun = start(torch.zeros(n, 5, dtype=torch.int64), torch.ones(n, 5).bool())
    before, rejected, taken = begun.tokens, 0, 0
    for state, info in run(kernel, begun, 10, seed=1):
        moved = (state.tokens != before).any(dim=1)
        assert torch.equal(moved, info.changed[:, 0])
        assert not bool((info.changed & ~info.accepted).any())
        at = info.sites[:, 0]
        assert torch.equal(state.tokens[torch.arange(n), at], info.tokens[:, 0])
        stayed = ~info.accepted[:, 0]
        assert torch.equal(info.log_prob_new[stayed], info.log_prob_old[stayed])
        rejected, taken = rejected + int(stayed.sum()), taken + int(moved.sum())
        before = state.tokens
    assert rejected > 50 and taken > 50


def test_a_state_is_asked_about_once(monkeypatch):
    """Of 32 states each of the five sites is weighed once and redrawn from one row, to the bit."""

    def trajectory():
        asked = Counting(LAW)
        kernel = glauber(asked, scan=scans.by_state("adaptive", "entropy"))
        begun = start(torch.zeros(50, 5, dtype=torch.int64), torch.ones(50, 5).bool())
        return [info for _, info in run(kernel, begun, 30, seed=2)], asked.rows

    remembered, rows = trajectory()
    monkeypatch.setattr(Memo, "answer", lambda *_: None)
    monkeypatch.setattr("glauber.dynamics.adaptive.REMEMBERED", 0)
    plain, more = trajectory()
    # Chains of one batch may miss the same row together, 50 of them at most.
    assert rows <= 32 * 5 + 50 * 16 * 5 and rows < more / 4
    for one, other in zip(remembered, plain, strict=True):
        for name, left, right in zip(one._fields, one, other, strict=True):
            assert torch.equal(left, right), name


def test_a_scan_with_too_few_numbers_is_refused():
    """Each site of a step needs a random number of its own to be filled by."""
    pair = scans.block(2)._replace(name="pair", n_numbers=lambda length: 1)
    state = start(torch.zeros(1, 4, dtype=torch.int64), torch.ones(1, 4, dtype=torch.bool))
    with pytest.raises(GlauberError, match="the scan pair has 1 random numbers for a step"):
        glauber(Table.random(3, 4, seed=0), scan=pair).draw(torch.tensor(0), state)
