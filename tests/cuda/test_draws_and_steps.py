"""Noise, draws and recorded steps on an NVIDIA GPU are those of the CPU."""

import warnings

import pytest
import torch

from glauber.dynamics.cuda import graph_kernel, multi_step
from glauber.dynamics.draws import _by_sorting, inverse_cdf_cuda
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.dynamics.noise import random_bits, uniform
from glauber.dynamics.remembered import run_memoised
from glauber.models.base import Restricted
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Table
from glauber.texts.starts import passages

pytestmark = pytest.mark.cuda


def last_tokens(steps):
    for state, _ in steps:
        final = state.tokens
    return final


def english(dtype, texts, **options):
    """The bundled model without special tokens, and a state that starts at texts."""
    model = MaskedLM.load("bundled:english", device="cuda", dtype=dtype)
    tokens, free = model.vocabulary.encode([text for _, text in passages()[:texts]])
    conditionals = Restricted(model, model.vocabulary.proposable().cuda())
    return glauber(conditionals), start(tokens, free, device="cuda", **options)


def test_noise_bits_are_those_of_the_cpu():
    seed, chain = torch.tensor(2**40 + 5), torch.arange(1000)[:, None]
    step, stream = torch.arange(50)[None, :] + 2**33, torch.tensor(3)
    here = random_bits(seed, chain, step, stream)
    there = random_bits(*(tensor.cuda() for tensor in (seed, chain, step, stream)))
    assert all(torch.equal(a, b.cpu()) for a, b in zip(here, there, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_draws_are_those_by_sorting(dtype):
    torch.manual_seed(0)
    scores = (torch.randn(512, 30522, device="cuda") * 3).to(dtype)
    scores[:, ::7] = -torch.inf
    temperature = torch.rand(512, device="cuda").double() * 3 + 0.1
    u = torch.rand(512, device="cuda").double()
    old = torch.randint(30522, (512,), device="cuda")
    fast = inverse_cdf_cuda(scores, temperature, u, old)
    slow = _by_sorting(scores, temperature, u, old)
    assert torch.equal(fast.tokens, slow.tokens)
    for name in ("log_prob_old", "log_prob_new", "entropy"):
        gap = getattr(fast, name) - getattr(slow, name)
        assert float(gap.nan_to_num().abs().max()) < 1e-9


def test_draws_have_their_distribution():
    torch.manual_seed(0)
    scores = (torch.randn(200, device="cuda").double() * 2).float()
    n = 1_000_000
    zero = torch.tensor(0).cuda()
    bits = random_bits(torch.tensor(1).cuda(), torch.arange(n).cuda(), zero, zero)
    drawn = inverse_cdf_cuda(
        scores.expand(n, -1),
        torch.ones(n).cuda().double(),
        uniform(bits[0]),
        torch.zeros(n).cuda().long(),
    )
    expected = torch.log_softmax(scores.double(), -1).exp() * n
    counts = torch.bincount(drawn.tokens, minlength=200)
    # Chi-square with 199 degrees of freedom: mean 199, standard deviation 20.
    assert float(((counts - expected) ** 2 / expected).sum()) < 199 + 5 * 20


def test_steps_of_a_graph_are_the_plain_ones():
    kernel, begin = english("bfloat16", 16)
    plain, recorded = (
        last_tokens(run(k, begin, 300, seed=1)) for k in (kernel, graph_kernel(kernel))
    )
    assert torch.equal(plain, recorded)


def test_passes_over_several_steps_make_the_plain_ones():
    """In float64, where a row hardly depends on its batch."""
    kernel, begin = english("float64", 3, temperature=0.7)
    plain = [state.tokens for state, _ in run(kernel, begin, 300, seed=1)]
    looked_ahead = [state.tokens for state, _ in multi_step(kernel, begin, 300, seed=1, per_pass=5)]
    assert all(torch.equal(a, b) for a, b in zip(plain, looked_ahead, strict=True))


def test_remembered_steps_are_the_plain_ones():
    """The scores of a table do not depend on the batch, so its chains must not either."""
    kernel = glauber(Table.random(8, 4, seed=0, strength=2.0))
    zeros = torch.zeros(64, 4, dtype=torch.int64)
    begin = start(zeros, zeros == 0, temperature=0.5, device="cuda")
    plain = last_tokens(run(kernel, begin, 300, seed=1))
    assert torch.equal(plain, last_tokens(run_memoised(kernel, begin, 300, seed=1)))


class AsksTheHost:
    """Conditionals that ask the host and draw a random number: they cannot be recorded."""

    def __init__(self):
        self.table, self.vocab_size = Table.random(8, 4, seed=0, strength=2.0), 8

    def scores(self, tokens, sites, candidates=None):
        torch.rand(1, device=tokens.device)
        return self.table.scores(tokens.cpu(), sites.cpu()).to(tokens.device)


def test_what_cannot_be_recorded_is_made_step_by_step_with_one_note():
    zeros = torch.zeros(64, 4, dtype=torch.int64)
    begin = start(zeros, zeros == 0, device="cuda")
    plain = last_tokens(run(glauber(AsksTheHost()), begin, 30, seed=1))
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        steps = list(run(graph_kernel(glauber(AsksTheHost())), begin, 30, seed=1))
    assert torch.equal(plain, last_tokens(steps)) and len(notes) == 1
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    sums = [torch.randn(2**26, device="cuda").sum().item() for _ in range(3)]
    assert all(abs(value) < 1e6 for value in sums)  # the generator still draws numbers
    allocated = torch.cuda.memory_allocated()
    del steps
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() - allocated <= 2**27
