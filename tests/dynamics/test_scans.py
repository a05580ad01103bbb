import pytest
import torch
from scipy.stats import chi2

from glauber.conditionals.base import PAD
from glauber.conditionals.table import Table
from glauber.dynamics import scans
from glauber.dynamics.kernel import start
from glauber.dynamics.noise import random_bits
from glauber.errors import GlauberError

LAW = Table.random(2, 5)
FREE = torch.tensor([False, True, True, False, True])


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
    for name in ("uniform", "sweep", "block:3", "everywhere", "least-confident:2"):
        assert scans.scan_named(name).name == name
    for name in (
        "least-confident:nan",
        "least-confident:-1",
        "block",
        "block:0",
        "block:x",
        "uniform:2",
        "",
    ):
        with pytest.raises(GlauberError):
            scans.scan_named(name)
