"""Does a GPU say what the CPU says? python -m bench.check_gpu [PART…], where there is one.

Prints one line per check and exits with 1 if any fails. The part `times`, which is made only when
it is named, prints where the time of a pass goes.
"""

import sys

import torch

from bench import check_constraints, check_writing
from bench import check_families as of
from bench.check_families import check, failed
from glauber.dynamics.cuda import graph_kernel, multi_step
from glauber.dynamics.draws import _by_sorting, inverse_cdf_cuda
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.dynamics.noise import random_bits, uniform
from glauber.dynamics.remembered import run_memoised
from glauber.models.base import Restricted, log_probs
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Table
from glauber.texts.starts import passages


def noise() -> None:
    chain, step = torch.arange(1000)[:, None], torch.arange(50)[None, :] + 2**33
    here = random_bits(torch.tensor(2**40 + 5), chain, step, torch.tensor(3))
    there = random_bits(
        torch.tensor(2**40 + 5).cuda(), chain.cuda(), step.cuda(), torch.tensor(3).cuda()
    )
    same = all(torch.equal(a, b.cpu()) for a, b in zip(here, there, strict=True))
    check("noise bits differ between CPU and GPU", 0.0 if same else 1.0, 0)


def forward() -> None:
    """Log-probabilities of the bundled model at hidden sites, texts of several lengths."""
    exact = MaskedLM.load("bundled:english", device="cpu", dtype="float64")
    texts = [" ".join(text.split()[: 6 + i % 20]) for i, (_, text) in enumerate(passages()[:64])]
    tokens, free = exact.vocabulary.encode(texts)
    sites = free.float().multinomial(3)
    conditionals = log_probs(exact, tokens, sites)
    for dtype, limit in (("float64", 1e-9), ("float32", 1e-3), ("bfloat16", 0.05)):
        model = MaskedLM.load("bundled:english", device="cuda", dtype=dtype)
        found = log_probs(model, tokens.cuda(), sites.cuda()).cpu()
        distance = 0.5 * (found.exp() - conditionals.exp()).abs().sum(-1)
        check(
            f"mean total variation of {dtype} on the GPU to float64 on the CPU",
            distance.mean(),
            limit,
        )


def draws() -> None:
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16):
        scores = (torch.randn(512, 30522, device="cuda") * 3).to(dtype)
        scores[:, ::7] = -torch.inf
        temperature = torch.rand(512, device="cuda").double() * 3 + 0.1
        u = torch.rand(512, device="cuda").double()
        old = torch.randint(30522, (512,), device="cuda")
        fast = inverse_cdf_cuda(scores, temperature, u, old)
        slow = _by_sorting(scores, temperature, u, old)
        check(
            f"draws that differ from sorting, {dtype}", int((fast.tokens != slow.tokens).sum()), 0
        )
        for name in ("log_prob_old", "log_prob_new", "entropy"):
            gap = (getattr(fast, name) - getattr(slow, name)).nan_to_num().abs().max()
            check(f"{name} against sorting, {dtype}", float(gap), 1e-9)
    law = torch.log_softmax(torch.randn(200, device="cuda").double() * 2, -1)
    n = 1_000_000
    bits = random_bits(
        torch.tensor(1).cuda(),
        torch.arange(n).cuda(),
        torch.tensor(0).cuda(),
        torch.tensor(0).cuda(),
    )
    many = law.float().expand(n, -1)
    drawn = inverse_cdf_cuda(
        many, torch.ones(n).cuda().double(), uniform(bits[0]), torch.zeros(n).cuda().long()
    )
    due = torch.log_softmax(law.float().double(), -1).exp() * n
    seen = torch.bincount(drawn.tokens, minlength=200)
    chi = ((seen - due) ** 2 / due).sum()
    # Chi-square with 199 degrees of freedom: mean 199, standard deviation 20.
    check("chi-square of a million draws over 200 tokens", float(chi), 199 + 5 * 20)


def graphs() -> None:
    model = MaskedLM.load("bundled:english", device="cuda", dtype="bfloat16")
    conditionals = Restricted(model, model.vocabulary.proposable().cuda())
    texts = [text for _, text in passages()[:16]]
    tokens, free = model.vocabulary.encode(texts)
    begun = start(tokens, free, device="cuda")
    ends = []
    for kernel in (glauber(conditionals), graph_kernel(glauber(conditionals))):
        for state, _ in run(kernel, begun, 300, seed=1):
            last = state
        ends.append(last)
    check(
        "tokens that differ between graph and plain steps",
        int((ends[0].tokens != ends[1].tokens).sum()),
        0,
    )
    for row in ends[1].tokens[:4]:
        print("        " + model.vocabulary.decode(row.tolist()))


def remembered() -> None:
    """A table's scores do not depend on the batch, so its chains must not either."""
    table = Table.random(8, 4, seed=0, strength=2.0)
    zeros = torch.zeros(64, 4, dtype=torch.int64)
    begun = start(zeros, zeros == 0, temperature=0.5, device="cuda")
    ends = []
    for steps in (
        run(glauber(table), begun, 300, seed=1),
        run_memoised(glauber(table), begun, 300, seed=1),
    ):
        for state, _ in steps:
            last = state
        ends.append(last)
    check(
        "tokens that differ between remembered and plain steps",
        int((ends[0].tokens != ends[1].tokens).sum()),
        0,
    )


def multi_steps() -> None:
    """In float64 a row hardly depends on its batch: passes of several steps make the plain ones."""
    model = MaskedLM.load("bundled:english", device="cuda", dtype="float64")
    conditionals = Restricted(model, model.vocabulary.proposable().cuda())
    tokens, free = model.vocabulary.encode([text for _, text in passages()[:3]], length=12)
    begun = start(tokens, free, temperature=0.7, device="cuda")
    plain = [state.tokens for state, _ in run(glauber(conditionals), begun, 300, seed=1)]
    far = [s.tokens for s, _ in multi_step(glauber(conditionals), begun, 300, seed=1, per_pass=5)]
    differ = sum(int((a != b).sum()) for a, b in zip(plain, far, strict=True))
    check("tokens that differ between several steps a pass and plain steps", differ, 0)


PARTS = (noise, draws, forward, of.refused, graphs, remembered, multi_steps)
PARTS += (of.families, of.base_sizes, of.recorded, of.deberta)
PARTS += (check_writing.written, check_writing.filled)
PARTS += (check_constraints.constrained, check_constraints.on_a_backbone)
for part in (*PARTS, of.times):
    if part.__name__ in sys.argv[1:] or (len(sys.argv) == 1 and part is not of.times):
        part()
sys.exit(1 if failed else 0)
