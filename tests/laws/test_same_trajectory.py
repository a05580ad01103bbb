"""A trajectory depends on nothing but the model, the texts, the seed and the kernel."""

import numpy as np
import pytest
import torch

import conftest
from glauber.dynamics.kernel import run as run_kernel
from glauber.dynamics.kernel import start
from glauber.dynamics.noise import philox, random_bits, uniform
from glauber.models.masked_lm import MaskedLM
from glauber.runs.cite import cite
from glauber.sampling.plan import plan
from glauber.sampling.sample import extend, sample
from glauber.studies.mixing.diagnostics import diagnose

KERNELS = {
    "uniform": {},
    "sweep": {"scan": "sweep"},
    "lazy": {"scan": "lazy"},
    "block": {"scan": "block:3"},
    "product": {"scan": "block:3", "within": "product"},
    "parallel": {"scan": "everywhere", "within": "parallel"},
    "naive": {"scan": "naive:confidence"},
    "adaptive": {"scan": "adaptive:entropy"},
    "gumbel": {"fill": "gumbel-max"},
}


def events(run):
    return {name: run.read(name) for name in run.fields}


def assert_same(one, other):
    assert one.fields == other.fields
    for name, values in events(one).items():
        np.testing.assert_array_equal(values, other.read(name), err_msg=name)
    np.testing.assert_array_equal(one.tokens(), other.tokens())


@pytest.mark.parametrize("shape", ["bert", "deberta-v3", "esm"])
def test_batch_sizes(shape, tokenizer, texts):
    """Batches of 1, 7 and 64 chains of five lengths: the same events, bit by bit."""
    model = MaskedLM(conftest.make_model(shape), tokenizer, name="tiny")
    runs = [
        sample(model, texts, chains=64, steps=12, seed=3, batch_size=size) for size in (1, 7, 64)
    ]
    assert_same(runs[0], runs[1])
    assert_same(runs[0], runs[2])


@pytest.mark.parametrize("name", KERNELS)
def test_memo_and_resumption_for_every_kernel(name, tokenizer, texts, tmp_path):
    model = MaskedLM(conftest.make_model(), tokenizer, name="tiny")
    options = {"chains": 6, "seed": 3, "temperature": 0.5, **KERNELS[name]}
    plain = sample(model, texts, steps=30, memo=0, **options)
    assert_same(plain, sample(model, texts, steps=30, **options))
    run = sample(model, texts, steps=11, out=tmp_path / "run", **options)
    assert_same(plain, extend(run, steps=30, model=model))


@pytest.mark.parametrize("name", KERNELS)
def test_statistics_of_every_kernel(name, tokenizer, texts, tmp_path):
    """What is said about a run, without a warning and without a figure that is not a number."""
    model = MaskedLM(conftest.make_model(), tokenizer, name="tiny")
    run = sample(model, texts, steps=80, seed=3, chains=4, **KERNELS[name])
    assert diagnose(run, burn_in=5).to_dict()["verdict"]
    stats = run.to_arviz()
    for values in (*stats.posterior.data_vars.values(), *stats.sample_stats.data_vars.values()):
        assert bool(np.isfinite(values).all())
    assert run.figures() and cite(run.save(tmp_path / "run").folder).sentence


@pytest.mark.parametrize("name", KERNELS)
def test_batch_sizes_for_every_kernel(name, tokenizer, texts):
    model = MaskedLM(conftest.make_model(), tokenizer, name="tiny")
    one, other = (
        sample(model, texts, chains=10, steps=8, seed=3, batch_size=size, **KERNELS[name])
        for size in (3, 10)
    )
    assert_same(one, other)


@pytest.mark.parametrize("options", [{"chains": 40}, {"chains": 1}, {"chains": 1, "memo": 0}])
def test_threads(tokenizer, texts, options):
    model = MaskedLM(conftest.make_model(), tokenizer, name="tiny")
    before = torch.get_num_threads()
    try:
        runs = []
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            runs.append(sample(model, texts[: options["chains"]], steps=20, seed=1, **options))
    finally:
        torch.set_num_threads(before)
    assert_same(*runs)


def test_other_seeds_and_chains_differ(tokenizer, texts):
    model = MaskedLM(conftest.make_model(), tokenizer, name="tiny")
    one = sample(model, texts[:1] * 2, steps=30, seed=0)
    other = sample(model, texts[:1] * 2, steps=30, seed=1)
    assert (one.read("site")[0] != one.read("site")[1]).any()
    assert (one.read("site") != other.read("site")).any()


def test_chains_of_one_batch_may_differ_in_step_and_temperature(tokenizer, texts):
    """A chain at its own step and temperature makes the step it would make alone."""
    model = MaskedLM(conftest.make_model(), tokenizer, name="tiny")
    planned = plan(model, texts, steps=1)
    kernel = planned.kernel
    heat = torch.tensor([0.5, 1.0, 2.0, 4.0, 1.0]).double()
    mixed = start(planned.tokens, planned.free, temperature=heat)
    mixed = mixed._replace(step=torch.tensor([0, 5, 2, 9, 1]))
    together = next(run_kernel(kernel, mixed, 1, seed=8))
    for i in range(len(texts)):
        rows = torch.tensor([i])
        state, info = next(run_kernel(kernel, mixed.rows(rows), 1, seed=8))
        assert torch.equal(state.tokens[0], together[0].tokens[i])
        assert torch.equal(info.entropy[0], together[1].entropy[i])


def test_published_philox_vectors():
    """Known answers of Philox-4x32-10 that come with its authors' Random123 library."""
    known = [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ]
    for counter, key, expected in known:
        given = tuple(torch.tensor([c]) for c in counter), tuple(torch.tensor([k]) for k in key)
        assert tuple(int(word) for word in philox(*given)) == expected


def test_uniform_words_are_uniform():
    n = 200_000
    a, b = random_bits(torch.tensor(5), torch.arange(n), torch.tensor(0), torch.tensor(0))
    for values in (uniform(a), uniform(b)):
        counts = torch.histc(values, bins=100, min=0, max=1)
        # A bin's count has standard deviation sqrt(n/100 * 0.99); five of them in 200 bins.
        assert (counts - n / 100).abs().max() < 5 * (n / 100 * 0.99) ** 0.5
        assert float(values.min()) >= 0 and float(values.max()) < 1
    assert abs(float(torch.corrcoef(torch.stack([uniform(a), uniform(b)]))[0, 1])) < 5 / n**0.5
