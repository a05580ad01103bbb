"""Coalescence times against the exact pair chain, an independent program, and themselves."""

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

from glauber.dynamics import coupled as coupled_module
from glauber.dynamics.coupled import COUPLINGS, coupled, run_until_met, start_pairs
from glauber.exact.pair_chain import mean_distances, mean_meeting_times, pair_matrix
from glauber.exact.space import Space
from glauber.foundation.errors import GlauberError
from glauber.models.base import PAD, Restricted
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Table
from glauber.studies.mixing.meeting import UNKNOWN, meet

N_PAIRS = 10_000


def repeated(space, x, y, n):
    states = space.states()
    return states[[x] * n], states[[y] * n], torch.ones(n, space.length).bool()


@pytest.mark.parametrize("how", ["maximal", "inverse-cdf"])
@pytest.mark.parametrize("vocab, length, temperature", [(2, 4, 0.7), (3, 3, 1.0)])
def test_times_and_distances_agree_with_the_exact_pair_chain(how, vocab, length, temperature):
    space, table = Space(vocab, length), Table.random(vocab, length, seed=vocab)
    x, y = 0, space.size - 1
    matrix = pair_matrix(table, space, how=how, temperature=temperature)
    due = mean_meeting_times(matrix, space)[x, y]
    left, right, free = repeated(space, x, y, N_PAIRS)
    found = meet(
        table, left, right, free, temperature=temperature, seed=3, steps=1000, coupling=how, every=1
    )
    assert found.met.all() and found.coupling == how
    error = found.times.std(ddof=1) / np.sqrt(N_PAIRS)
    assert abs(found.times.mean() - due) < 3 * error
    exact = mean_distances(matrix, space, 40)[:, x, y]
    off = np.abs(found.mean_distance[:41] - exact)
    assert (off <= 4.5 * found.standard_error[:41] + 1e-12).all()  # 41 dependent comparisons
    assert (found.initial == length).all() and (found.distances[:, -1] == 0).all()


class Torus:
    """The Ising model on a side x side torus; token 1 is spin up."""

    vocab_size = 2

    def __init__(self, side, beta):
        place = torch.arange(side * side).view(side, side)
        shifted = [place.roll(shift, axis) for shift in (1, -1) for axis in (0, 1)]
        self.neighbours = torch.stack(shifted, dim=-1).view(-1, 4)
        self.beta = beta

    def scores(self, tokens, sites, candidates=None):
        around = tokens.gather(1, self.neighbours[sites[:, 0]])
        up = 2 * self.beta * (2 * around - 1).sum(dim=1, keepdim=True).double()
        return torch.cat([torch.zeros_like(up), up], dim=1)[:, None]


def plain_meeting_time(side, beta, rng):
    """From all up and all down: one uniform number for both spins, which is maximal for two."""
    up, down = np.ones((side, side), int), -np.ones((side, side), int)
    time = 0
    while (up != down).any():
        i, j = rng.integers(side, size=2)
        u = rng.random()
        for spins in (up, down):
            field = (
                spins[(i + 1) % side, j]
                + spins[i - 1, j]
                + spins[i, (j + 1) % side]
                + spins[i, j - 1]
            )
            spins[i, j] = 1 if u < 1 / (1 + np.exp(-2 * beta * field)) else -1
        time += 1
    return time


@pytest.mark.parametrize("beta", [0.1, 0.25])
def test_ising_meeting_times_agree_with_a_plain_program(beta):
    side, n = 3, 300
    rng = np.random.default_rng(7)
    plain = [plain_meeting_time(side, beta, rng) for _ in range(n)]
    ones = torch.ones(n, side * side, dtype=torch.int64)
    found = meet(
        Torus(side, beta), ones, 0 * ones, ones.bool(), temperature=1.0, seed=11, steps=50_000
    )
    assert found.met.all()
    assert ks_2samp(plain, found.times).pvalue > 0.01
    # The comparison can fail: another inverse temperature is told apart.
    other = meet(
        Torus(side, beta / 2), ones, 0 * ones, ones.bool(), temperature=1.0, seed=11, steps=50_000
    )
    assert ks_2samp(plain, other.times).pvalue < 0.01


@pytest.fixture(scope="module")
def tiny(tiny_folder):
    model = MaskedLM.load(str(tiny_folder), device="cpu")
    return Restricted(model, model.vocabulary.proposable())


def mixed_pairs():
    """Pairs of three lengths at three temperatures, with budgets and seeds of their own."""
    rng = torch.Generator().manual_seed(1)
    lengths = torch.tensor([4, 7, 10, 4, 7, 10, 6, 4])
    left, right = torch.randint(7, 46, (2, len(lengths), 10), generator=rng)
    there = torch.arange(10) < lengths[:, None]
    free = there & (torch.arange(10) > 0) & (torch.arange(10) < lengths[:, None] - 1)
    left = torch.where(there, left, PAD)
    right = torch.where(free, right, left)
    return (
        left,
        right,
        dict(
            free=free,
            temperature=torch.tensor([9.0, 2.0, 30.0, 1.0, 50.0, 5.0, 20.0, 3.0]).double(),
            steps=torch.tensor([30, 20, 25, 10, 40, 15, 30, 30]),
            seed=torch.tensor([0, 0, 1, 1, 2, 2, 0, 0]),
            pair=torch.tensor([0, 1, 2, 3, 4, 5, 60, 7]),
        ),
    )


@pytest.mark.parametrize("how", COUPLINGS)
def test_a_pair_does_not_depend_on_its_neighbours(tiny, how, monkeypatch):
    left, right, given = mixed_pairs()
    whole = meet(tiny, left, right, coupling=how, every=1, **given)
    assert 0 < whole.met.sum() < len(whole.met) or how != "maximal"
    monkeypatch.setattr(coupled_module, "TOGETHER", 100)  # a row at a time
    for together in (1, 3):
        again = meet(tiny, left, right, coupling=how, every=1, batch_size=together, **given)
        for name in ("times", "met", "distances"):
            np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))
    order = torch.tensor([5, 0, 7, 2])
    some = meet(
        tiny,
        left[order],
        right[order],
        coupling=how,
        every=1,
        batch_size=2,
        **{k: v[order] for k, v in given.items()},
    )
    np.testing.assert_array_equal(some.times, whole.times[order])
    n_moments = some.distances.shape[1]
    np.testing.assert_array_equal(some.distances, whole.distances[order, :n_moments])


def test_censored_pairs_are_kept_as_such(tiny):
    left, right, given = mixed_pairs()
    found = meet(tiny, left, right, every=4, **given)
    budgets = given["steps"].numpy()
    np.testing.assert_array_equal(found.times[~found.met], budgets[~found.met])
    assert (found.times[found.met] <= budgets[found.met]).all()
    for row, budget in enumerate(budgets):
        last = budget // 4
        assert (found.distances[row, : last + 1] >= 0).all()
        assert (found.distances[row, last + 1 :] == UNKNOWN).all()
        if found.met[row]:
            assert (found.distances[row, -(-found.times[row] // 4) : last + 1] == 0).all()
    fine = meet(tiny, left, right, every=1, **given)
    np.testing.assert_array_equal(found.distances, fine.distances[:, ::4])
    known = [row[row >= 0] for row in found.distances.T]
    np.testing.assert_allclose(found.mean_distance, [x.mean() for x in known])
    np.testing.assert_allclose(
        found.standard_error,
        [x.std(ddof=1) / np.sqrt(len(x)) if len(x) > 1 else np.nan for x in known],
    )


class Counted:
    """A table that notes every context it is asked about."""

    def __init__(self, table):
        self.table, self.vocab_size, self.asked = table, table.vocab_size, []

    def scores(self, tokens, sites, candidates=None):
        rows = tokens.scatter(1, sites, -1).tolist()
        self.asked.append([tuple(row) for row in rows])
        return self.table.scores(tokens, sites, candidates)


def test_equal_contexts_are_asked_once_and_met_pairs_never_again():
    space, counted = Space(3, 3), Counted(Table.random(3, 3, seed=4))
    left, right, free = repeated(space, 0, 26, 1)
    found = meet(counted, left, right, free, temperature=1.0, seed=2, steps=500)
    assert found.met[0] and len(counted.asked) == found.times[0]
    assert all(len(set(rows)) == len(rows) for rows in counted.asked)
    assert {len(rows) for rows in counted.asked} == {1, 2}
    counted.asked.clear()
    same = meet(counted, left, left, free, temperature=1.0, seed=2, steps=500)
    assert same.times[0] == 0 and same.met[0] and not counted.asked


def test_finished_pairs_come_as_they_finish():
    space, table = Space(2, 4), Table.random(2, 4, seed=2)
    left, right, free = repeated(space, 0, 15, 40)
    counted = []
    advance = lambda more, **_: counted.append(more)  # noqa: E731
    pairs = start_pairs(left, right, free, temperature=1.0)
    rows = list(run_until_met(coupled(table), pairs, 60, seed=0, batch_size=40, advance=advance))
    assert sorted(one.pair for one in rows) == list(range(40))
    assert [one.time for one in rows] == sorted(one.time for one in rows)
    whole = meet(table, left, right, free, temperature=1.0, seed=0, steps=60)
    assert all(whole.times[one.pair] == one.time for one in rows)
    assert sum(counted) == 40 * 60  # what met pairs do not need is counted as done


def test_the_observer_sees_every_pair_before_each_step_and_at_its_end():
    space, table = Space(2, 4), Table.random(2, 4, seed=2)
    left, right, free = repeated(space, 0, 15, 7)
    seen = []
    meet(
        table,
        left,
        right,
        free,
        temperature=1.0,
        seed=0,
        steps=30,
        at_least=5,
        batch_size=3,
        observe=lambda places, times, *_: seen.extend(zip(places, times, strict=True)),
    )
    times = meet(table, left, right, free, temperature=1.0, seed=0, steps=30).times
    assert len(set(seen)) == len(seen)
    assert sorted(seen) == [(p, t) for p in range(7) for t in range(max(5, times[p]) + 1)]


@pytest.mark.parametrize(
    "change, sentence",
    [
        (dict(steps=0), "the number of steps is 0"),
        (dict(steps=torch.tensor([5, 0])), "the number of steps is 0"),
        (dict(coupling="reflection"), "the coupling is reflection"),
        (dict(temperature=0.0), "temperature"),
        (dict(batch_size=0), "at least 1"),
        (dict(right=torch.tensor([[0, 1, PAD], [0, 1, 1]])), "unequal lengths"),
        (dict(right=torch.zeros(2, 2).long()), "unequal lengths"),
        (dict(free=torch.tensor([[True, True, False]] * 2)), "never redrawn"),
        (
            dict(
                left=torch.zeros(0, 3).long(),
                right=torch.zeros(0, 3).long(),
                free=torch.ones(0, 3).bool(),
            ),
            "no pair",
        ),
    ],
)
def test_bad_input_is_refused_in_a_sentence(change, sentence):
    given = dict(
        left=torch.zeros(2, 3).long(),
        right=torch.ones(2, 3).long(),
        free=torch.ones(2, 3).bool(),
        temperature=1.0,
        seed=0,
        steps=5,
    )
    with pytest.raises(GlauberError, match=sentence):
        meet(Table.random(2, 3), **(given | change))
