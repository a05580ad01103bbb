"""Correction: sweeps keep a joint law, lead to it, and hide what they say."""

from typing import Any

import pytest
import torch
from torch import Tensor

from glauber.dynamics.kernel import State, run, start
from glauber.dynamics.unmasking import Unmasking, correction, unmask, unmasking
from glauber.foundation.errors import GlauberError
from glauber.models.table import Joint

JOINT = Joint.random(3, 3, seed=1)
BEYOND_CHANCE = 54.05  # the 0.999 quantile of chi-square with 26 degrees of freedom


def spelled_out(number: Tensor) -> Tensor:
    return torch.stack([number // 9, number // 3 % 3, number % 3], dim=1)


def distance_to_joint(tokens: Tensor) -> float:
    """The chi-square statistic (26 degrees of freedom) of texts of JOINT."""
    counts = torch.bincount((tokens * torch.tensor([9, 3, 1])).sum(1), minlength=27)
    wanted = len(tokens) * JOINT.probabilities()
    return float(((counts - wanted) ** 2 / wanted).sum())


def from_the_joint(n_chains: int) -> State:
    generator = torch.Generator().manual_seed(0)
    drawn = JOINT.probabilities().multinomial(n_chains, replacement=True, generator=generator)
    return start(spelled_out(drawn), torch.ones(n_chains, 3, dtype=torch.bool))


class Noted:
    """JOINT, and what it was asked: tokens and the set of hidden sites of each row."""

    vocab_size = 3

    def __init__(self) -> None:
        self.asked: list[tuple[list[int], frozenset[int]]] = []

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        hidden = [frozenset(row) - {-1} for row in sites.tolist()]
        self.asked += zip(tokens.tolist(), hidden, strict=True)
        return JOINT.scores(tokens, sites)


def test_a_sweep_keeps_the_joint_law() -> None:
    state = from_the_joint(6000)
    kernel = correction(JOINT, hidden_token=3)
    for after, info in run(kernel, state, 2, seed=2):
        assert distance_to_joint(after.tokens) < BEYOND_CHANCE
        assert torch.equal(info.sites, torch.arange(3).expand(6000, 3))
        assert torch.equal(info.tokens, after.tokens)
        assert torch.equal(info.changed, after.tokens != state.tokens)
        state = after
    assert bool(info.changed.any()) and not bool(info.changed.all())


def test_a_sweep_shares_no_noise_with_a_pass() -> None:
    tokens = torch.full((50, 3), 3)
    state = start(tokens, torch.ones_like(tokens, dtype=torch.bool))
    passes = unmasking(JOINT, Unmasking(), hidden_token=3, begin=tokens == 3)
    sweep = correction(JOINT, hidden_token=3)
    left, right = (kernel.draw(torch.tensor(0), state) for kernel in (passes, sweep))
    assert not (left.fill == right.fill).any() and not (left.order == right.order).any()


def test_sweeps_lead_to_the_joint_law_and_the_distance_falls() -> None:
    tokens = torch.full((6000, 3), 3)
    state = start(tokens, torch.ones_like(tokens, dtype=torch.bool))
    apart = {}
    for sweeps in (0, 1, 2, 12):
        how = Unmasking(order="drawn", count=1, correct=sweeps)
        *_, (after, info) = unmask(JOINT, state, how, hidden_token=3, seed=4)
        apart[sweeps] = distance_to_joint(after.tokens)
        assert info.sites.shape[1] == how.slots(3) == 3 * (1 + sweeps)
    assert apart[0] > 2 * apart[1] > 4 * apart[2] > 4 * BEYOND_CHANCE
    assert apart[12] < BEYOND_CHANCE


def test_sweeps_come_behind_the_last_pass_or_behind_every_pass() -> None:
    tokens = torch.full((50, 3), 3)
    state = start(tokens, torch.ones_like(tokens, dtype=torch.bool))
    for between in (False, True):
        how = Unmasking(correct=2, between=between)
        redrawn = [
            [int((info.sites[:, first : first + 3] >= 0).sum()) for first in (3, 6)]
            for _, info in unmask(JOINT, state, how, hidden_token=3, seed=0)
        ]
        assert redrawn == [[50 * n * (between or n == 3)] * 2 for n in (1, 2, 3)]


def test_chains_that_end_early_are_corrected_once() -> None:
    tokens = torch.full((300, 3), 3)
    state = start(tokens, torch.ones_like(tokens, dtype=torch.bool))
    how = Unmasking(count="threshold:0.5", correct=1)
    ended, ends = torch.zeros(300, dtype=torch.int64), set()
    for number, (after, info) in enumerate(unmask(JOINT, state, how, hidden_token=3, seed=0)):
        swept = (info.sites[:, 3:] >= 0).all(1)
        filled = (info.sites[:, :3] >= 0).any(1) & (after.tokens != 3).all(1)
        assert torch.equal(swept, filled)
        ended += swept
        ends |= {number} if bool(swept.any()) else set()
    assert ended.tolist() == [1] * 300 and len(ends) > 1


@pytest.mark.parametrize("block, sizes", [(None, [1, 1]), (2, [2])])
def test_a_group_is_hidden_with_what_is_hidden_still(block: int | None, sizes: list[int]) -> None:
    noted = Noted()
    state = start(torch.tensor([[1, 3, 2]]), torch.ones(1, 3, dtype=torch.bool))
    kernel = correction(noted, block=block, hidden_token=3)
    after, info = kernel.step(state, kernel.draw(torch.tensor(1), state))
    groups = [hidden - {1} for _, hidden in noted.asked]
    assert all(1 in hidden for _, hidden in noted.asked)
    assert [len(group) for group in groups] == sizes
    assert frozenset().union(*groups) == {0, 2}
    assert info.sites.tolist() == [[0, -1, 2]] and int(after.tokens[0, 1]) == 3
    if block is None:  # the second is asked with the first redrawn
        (first,) = groups[0]
        assert noted.asked[1][0][first] == int(after.tokens[0, first])


def test_frozen_sites_stay_and_orders_differ() -> None:
    noted: Any = Noted()
    free = torch.tensor([[True, False, True]]).expand(64, 3)
    state = start(torch.ones(64, 3), free)
    kernel = correction(noted, hidden_token=3)
    after, info = kernel.step(state, kernel.draw(torch.tensor(1), state))
    assert bool((after.tokens[:, 1] == 1).all()) and bool((info.sites[:, 1] == -1).all())
    firsts = [next(iter(hidden)) for _, hidden in noted.asked[:64]]
    assert 16 < firsts.count(0) < 48  # each first half of the time: 4 standard deviations
    with pytest.raises(GlauberError, match="size of a block is 0"):
        correction(JOINT, block=0, hidden_token=3)
