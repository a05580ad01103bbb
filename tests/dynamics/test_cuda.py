"""Do passes over several steps make the steps of the plain loop?"""

import pytest
import torch

from glauber.conditionals.base import PAD, Restricted
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.table import Table
from glauber.dynamics.cuda import multi_step, steps_per_pass
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.dynamics.scans import scan_named


def same(ours, theirs):
    for (state, info), (plain, told) in zip(ours, theirs, strict=True):
        for mine, other in zip((*state, *info), (*plain, *told), strict=True):
            assert torch.equal(mine.nan_to_num(7.0), other.nan_to_num(7.0))
    return True


@pytest.mark.parametrize("scan", ["uniform", "sweep"])
@pytest.mark.parametrize("per_pass", [1, 2, 5])
@pytest.mark.parametrize("window", [1, 7, 256])
def test_steps_of_a_table(scan, per_pass, window):
    conditionals = Table.random(3, 4, seed=1)
    tokens = torch.randint(3, (5, 4), generator=torch.Generator().manual_seed(0))
    free = torch.ones_like(tokens, dtype=torch.bool)
    free[2, 1] = False
    # Cold chains repeat themselves and make many steps a pass, hot ones few.
    begun = start(tokens, free, temperature=torch.tensor([0.05, 0.2, 0.5, 1.0, 3.0]), step=11)
    kernel = glauber(conditionals, scan=scan_named(scan))
    seed = torch.tensor([3, 4, 5, 3, 2**40])
    ours = multi_step(kernel, begun, 60, seed=seed, per_pass=per_pass, window=window)
    assert same(ours, run(kernel, begun, 60, seed=seed))


def test_steps_of_a_masked_lm(tiny_folder, texts):
    conditionals = MaskedLM.load(str(tiny_folder), device="cpu")
    tokens, free = conditionals.vocabulary.encode(texts[:3])
    assert (tokens == PAD).any()  # chains of unequal length
    kernel = glauber(Restricted(conditionals, conditionals.vocabulary.proposable()))
    begun = start(tokens, free, temperature=0.3)
    assert same(multi_step(kernel, begun, 40, seed=1, per_pass=4), run(kernel, begun, 40, seed=1))


def test_rows_find_room():
    assert [steps_per_pass(n) for n in (1, 3, 16, 4096)] == [16, 5, 1, 1]
