"""Conditionals, written texts, fills and constrained chains on an NVIDIA GPU are the CPU's."""

from pathlib import Path

import pytest
import torch

from glauber.models.base import log_probs
from glauber.models.load import load
from glauber.models.masked_lm import MaskedLM
from glauber.sampling.advance import begin_at, step_stream
from glauber.sampling.generate import generate
from glauber.sampling.infill import infill
from glauber.sampling.plan import plan
from glauber.texts.starts import passages

pytestmark = pytest.mark.cuda

WRITTEN = {
    "8 passes": dict(length="12-30", passes=8),
    "entropy bound and a sweep": dict(
        length="8-12", order="entropy", count="entropy-bound:0.5", correct=1
    ),
    "masked again": dict(length="12-30", passes=8, remask="conf", top_p=0.95, temperature=0.7),
}
CHANGED = {"float64": 0.0, "float32": 0.05, "bfloat16": 1.0}  # share of texts a batch may change
BLANKS = ["the [MASK] of [MASK] is [MASK:1-3] .", "she opened the [MASK] and saw a [MASK:2] ."]
START = ["the old king walked slowly through the old garden at night"]
LIMITS = {
    "allowed tokens and a bias": dict(allow="2:king|queen|man", bias="8:garden=2"),
    "at most 3 changes": dict(max_changes=3),
    "tied sites": dict(tie="1=7", allow="1:old|young|empty,7:old|young|empty"),
    "all of them": dict(
        allow="2:king|queen|man,1:old|young|empty,7:old|young|empty",
        bias="8:garden=2",
        max_changes=4,
        tie="1=7",
    ),
}
STEPS, CHAINS = 150, 16
HAIRPIN = Path(__file__).parent.parent / "studies/proteins/hairpin.pdb"


@pytest.mark.parametrize("dtype, limit", [("float64", 1e-9), ("float32", 1e-3), ("bfloat16", 0.05)])
def test_conditionals_are_those_of_float64_on_the_cpu(dtype, limit):
    """Mean total variation at masked sites, texts of several lengths."""
    exact = MaskedLM.load("bundled:english", device="cpu", dtype="float64")
    texts = [" ".join(text.split()[: 6 + i % 20]) for i, (_, text) in enumerate(passages()[:64])]
    tokens, free = exact.vocabulary.encode(texts)
    sites = free.float().multinomial(3, generator=torch.Generator().manual_seed(0))
    expected = log_probs(exact, tokens, sites)
    model = MaskedLM.load("bundled:english", device="cuda", dtype=dtype)
    found = log_probs(model, tokens.cuda(), sites.cuda()).cpu()
    distance = 0.5 * (found.exp() - expected.exp()).abs().sum(-1)
    assert float(distance.mean()) < limit


def share_that_differs(one, two):
    """The share of texts that differ; the second may have the first few only."""
    differ = [a != b for a, b in zip(one.texts, two.texts, strict=False)]
    return sum(differ) / len(differ)


@pytest.mark.parametrize("dtype", CHANGED)
@pytest.mark.parametrize("way", WRITTEN)
def test_written_texts(way, dtype):
    """The same twice, in batches of 64, 7 and 1, and as on the CPU; no mask is left."""
    exact = load("bundled:english", device="cpu", dtype="float64")
    expected = generate(exact, chains=16, seed=3, **WRITTEN[way])
    model = load("bundled:english", device="cuda", dtype=dtype)
    first, again, sevens, ones = (
        generate(model, chains=chains, seed=3, batch_size=size, **WRITTEN[way])
        for chains, size in ((64, 64), (64, 64), (64, 7), (16, 1))
    )
    assert first.texts == again.texts
    for other in (sevens, ones, expected):
        assert share_that_differs(first, other) <= CHANGED[dtype]
    trace, mask = first.written.trace, first.written.hidden_token
    placed = (trace.token == mask) & (trace.log_prob != 0)  # a masked site counts as certain
    assert not placed.any() and not (first.written.tokens == mask).any()


@pytest.mark.parametrize("dtype, limit", [("float64", 1e-9), ("float32", 1e-3)])
def test_filled_blanks(dtype, limit):
    exact, model = (
        load("bundled:english", device=device, dtype=kind)
        for device, kind in (("cpu", "float64"), ("cuda", dtype))
    )
    for found, expected in zip(infill(model, BLANKS).rows, infill(exact, BLANKS).rows, strict=True):
        assert found["text"] == expected["text"]
        assert found["log_prob"] == pytest.approx(expected["log_prob"], abs=limit)


def path(device, dtype="float64", **limits):
    """The tokens (steps, chains, length) of chains under constraints, and their plan."""
    model = load("bundled:english", device=device, dtype=dtype)
    options = dict(steps=STEPS, chains=CHAINS, seed=5, device=device, dtype=dtype)
    planned = plan(model, START, **options, **limits)
    begin = begin_at(planned, planned.tokens, torch.arange(CHAINS))
    steps = [state.tokens.cpu().clone() for state, _ in step_stream(planned, begin, STEPS)]
    return torch.stack([planned.tokens, *steps]), planned


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", LIMITS)
def test_constrained_chains(name, dtype):
    """Paths in float64 are the CPU's; a budget, ties and allowed tokens are respected."""
    limits = LIMITS[name]
    expected, planned = path("cpu", **limits)
    found, _ = path("cuda", dtype, **limits)
    first = int(planned.free.int().argmax(dim=1)[0])
    differ = float((found != expected).any(dim=(0, 2)).float().mean())
    assert differ <= (0 if dtype == "float64" else 0.2)
    changes = int((found != found[0]).sum(dim=2).max())
    assert changes <= limits.get("max_changes", found.shape[2])
    if "tie" in limits:
        assert torch.equal(found[-1][:, first + 1], found[-1][:, first + 7])
    if "2:" in limits.get("allow", ""):
        assert len(found[1:, :, first + 2].unique()) <= 3


@pytest.mark.parametrize("dtype, limit", [("float64", 1e-9), ("float32", 1e-4)])
def test_a_model_on_a_backbone(dtype, limit):
    name = f"proteinmpnn:{HAIRPIN}"
    exact = load(name, device="cpu", dtype="float64")
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 20, (8, exact.length), generator=generator)
    sites = torch.stack([torch.randperm(exact.length, generator=generator)[:3] for _ in range(8)])
    expected = exact.scores(tokens, sites).log_softmax(-1)
    model = load(name, device="cuda", dtype=dtype)
    found = model.scores(tokens.cuda(), sites.cuda()).log_softmax(-1).cpu()
    assert float((found - expected).abs().max()) < limit
