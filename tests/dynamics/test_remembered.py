"""What the memo answers is what the fill gives; what it holds fits its budget."""

import gc
import tracemalloc

import numpy as np
import pytest
import torch

from glauber.dynamics.draws import Head, draw_with_head, inverse_cdf
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import start
from glauber.dynamics.noise import random_bits, uniform
from glauber.dynamics.remembered import HEAD, Memo, entry_bytes, run_memoised, worthwhile
from glauber.models.table import Joint


def some_bits(n, seed=0):
    return random_bits(torch.tensor(seed), torch.arange(n), torch.tensor(0), torch.tensor(0))[0]


def remembered(scores, temperature, budget=2**20):
    """A memo that holds one row of scores, under the key b'row'."""
    memo = Memo(len(scores), 1, budget=budget)
    ones = torch.ones(1).double()
    drawn, head = draw_with_head(
        scores[None], ones * temperature, ones * 0, torch.zeros(1, dtype=torch.int64)
    )
    memo.store([b"row"], head, drawn.entropy.numpy())
    return memo


@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("vocab", [3, HEAD, 64, 65, 3000])
def test_answers_are_those_of_the_fill(vocab, temperature):
    """Token, both log-probabilities and entropy, to the bit; ties and forbidden tokens too."""
    torch.manual_seed(vocab)
    scores = (torch.randn(vocab) * 3).bfloat16().float()
    scores[::5] = -torch.inf
    memo = remembered(scores, temperature)
    n = 400
    noise, old = some_bits(n), torch.randint(vocab, (n,))
    heat = torch.full((n,), temperature, dtype=torch.float64)
    drawn = inverse_cdf().draw(scores.expand(n, -1), heat, noise, old)
    answered = 0
    for row in range(n):
        answer = memo.answer(b"row", float(uniform(noise[row])), int(old[row]))
        if answer is not None:
            answered += 1
            assert answer == tuple(part[row].item() for part in drawn)
    # A head that holds everything answers for every old token that is allowed.
    allowed = (scores[old] > -torch.inf).sum()
    assert answered >= allowed if vocab <= HEAD else 0 < answered < n


def test_what_the_head_does_not_settle_is_not_answered():
    """Equal scores across the head's edge: their order is unknown, so nobody may be drawn there."""
    scores = torch.zeros(200)
    scores[150] = 1.0
    memo = remembered(scores, 1.0)
    top = float(torch.softmax(scores.double(), 0)[150])
    assert memo.answer(b"row", top - 1e-9, 150) is not None
    assert memo.answer(b"row", top + 1e-9, 150) is None
    assert memo.answer(b"row", 0.0, 199) is None  # an old token beyond the head
    assert memo.answer(b"other", 0.0, 150) is None


def heads(n, size=4):
    figures = torch.arange(n).double()[:, None].expand(n, size)
    mass = torch.linspace(0.25, 1.0, size).double().expand(n, size)
    return Head(torch.arange(size).expand(n, size), figures, mass), np.arange(float(n))


def test_entries_in_use_outlive_others():
    memo = Memo(4, 2, budget=5 * entry_bytes(4, 2))
    assert memo.capacity == 5
    keys = [bytes([i]) for i in range(9)]
    head, entropy = heads(9)
    for row in range(9):
        part = Head(*(x[row : row + 1] for x in head))
        memo.store(keys[row : row + 1], part, entropy[row : row + 1])
        assert memo.answer(keys[0], 0.0, 0) == (0, 0.0, 0.0, 0.0)
        assert len(memo) == min(row + 1, 5)
    assert [key in memo for key in keys] == [True] + 4 * [False] + 4 * [True]
    assert memo.answer(keys[8], 0.0, 1) == (0, 8.0, 8.0, 8.0)
    memo.store(keys, head, entropy)  # more at once than there is room for
    assert len(memo) == 5
    for row in range(9):
        assert memo.answer(keys[row], 0.3, 0) in (None, (1, row, row, row))


@pytest.mark.parametrize("capacity", [300, 1370, 5470])
def test_memory_stays_within_the_budget(capacity):
    """The most that was ever allocated, measured, at sizes where the index has just grown."""
    budget = capacity * entry_bytes(30522, 22)
    head, entropy = heads(64, HEAD)
    tracemalloc.start()
    try:
        memo = Memo(30522, 22, budget=budget)
        for batch in range(capacity // 64 + 2):
            # Made one by one, so that each key is an object of its own, as it is in a run.
            keys = [np.array([batch, row] + [0] * 22, np.int32).tobytes() for row in range(64)]
            memo.store(keys, head, entropy)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(memo) == memo.capacity == capacity
    assert 0.85 * budget < most <= budget


def test_a_long_run_does_not_grow():
    """Once the memo is full, a run over many more states than fit takes no more memory."""
    conditionals = Joint.random(12, 4, seed=3, strength=0.5)
    begun = start(torch.zeros(20, 4, dtype=torch.int64), torch.ones(20, 4).bool(), temperature=3.0)
    held = []
    tracemalloc.start()
    try:
        memo = Memo(12, 4, budget=2**18)
        for step, _ in enumerate(
            run_memoised(glauber(conditionals), begun, 240, seed=0, memo=memo)
        ):
            if step % 80 == 79:
                gc.collect()  # empties the lists of spare tuples that Python keeps
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert memo.misses > 5 * memo.capacity
    assert max(held) < 1.1 * held[0]  # further steps would add megabytes


def test_an_entry_is_small():
    assert HEAD * (4 + 8 + 8) + 8 < 1000
    assert entry_bytes(30522, 22) < 1400


def test_looking_ahead_pays_only_for_still_chains():
    assert worthwhile(15, [0.6], 5.0) == 1  # the batch is filled up to a power of two
    assert worthwhile(16, [0.6] * 16, 5.0) == 0
    assert worthwhile(16, [0.99] * 16, 5.0) == 16
    assert worthwhile(1, [0.9**j for j in range(1, 64)], 512.0) > 20  # an idle GPU
    assert worthwhile(64, [1.0], 5.0) == 0
