"""Do passes over several steps make the steps of the plain loop?"""

import pytest
import torch

from glauber.dynamics import cuda
from glauber.dynamics.cuda import graph_kernel, laid_out, multi_step, steps_per_pass
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.dynamics.scans import scan_named
from glauber.models.base import PAD, Restricted
from glauber.models.forward.layout import layout_of
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Table


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


class Packed:
    """Conditionals that lay their rows out and see a row's length; it counts what was measured."""

    vocab_size = 3

    def __init__(self):
        self.layouts = []

    def scores(self, tokens, sites, candidates=None):
        self.layouts.append(layout_of(tokens))
        lengths = self.layouts[-1].lengths
        known = torch.where(tokens == PAD, 0, tokens).scatter(1, sites.clamp(min=0), 0).sum(1)
        return torch.sin((known + lengths)[:, None, None] * torch.arange(1.0, 4.0))


def chains(lengths):
    tokens = torch.zeros(len(lengths), 5, dtype=torch.int64)
    tokens[torch.arange(5) >= torch.tensor(lengths)[:, None]] = PAD
    return start(tokens, tokens != PAD)


def test_lengths_are_asked_once_for_each_run():
    plain, once = Packed(), Packed()
    kernel = laid_out(glauber(once))
    for lengths in ([5, 3], [4, 4], [5, 3]):
        ours = run(kernel, chains(lengths), 8, seed=1)
        assert same(ours, run(glauber(plain), chains(lengths), 8, seed=1))
    assert len({id(layout) for layout in once.layouts}) == 3 and len(once.layouts) == 24


def test_chains_of_other_lengths_are_recorded_anew(monkeypatch):
    """The stand-in for a graph makes the step again and writes its answer where it stood."""
    recorded = []

    class Graph:
        def __init__(self, once):
            self.once, self.info = once, once()

        def replay(self):
            for into, value in zip(self.info, self.once(), strict=True):
                into.copy_(value)

    def captured(once):
        recorded.append(Graph(once))
        return recorded[-1], recorded[-1].info

    monkeypatch.setattr(cuda, "_capture", captured)
    kernel = graph_kernel(glauber(Packed()))
    for lengths, due in (([5, 3], 1), ([5, 3], 1), ([4, 4], 2)):
        ours = run(kernel, chains(lengths), 8, seed=1)
        assert same(ours, run(glauber(Packed()), chains(lengths), 8, seed=1))
        assert len(recorded) == due
