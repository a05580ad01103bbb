"""The forward pass with 8-bit products, beside whole numbers in numpy and beside float32."""

import json
import os
import platform
import re
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import torch
import transformers
from tests.models.test_families import FAMILIES, ONE_OF_EACH, make, some_rows

import glauber
from conftest import make_model
from glauber.foundation.errors import GlauberError
from glauber.models.base import log_probs
from glauber.models.forward import encoder_int8, guard
from glauber.models.forward.description import Affine
from glauber.models.forward.encoder_int8 import (
    LEVELS,
    NOT_AVAILABLE,
    ONE_SIDED,
    EncoderInt8,
    Product,
    check_machine,
)
from glauber.models.forward.families import ENCODERS
from glauber.models.load import load
from glauber.models.masked_lm import EncoderWeights, MaskedLM
from glauber.sampling.sample import extend, sample
from glauber.texts.starts import passages


@cache
def bundled(dtype):
    return MaskedLM.load("bundled:english", device="cpu", dtype=dtype)


def make_product(*given, **how):
    """A product, or the refusal of a machine that cannot form it."""
    check_machine()
    return Product(*given, **how)


def contexts(laws, n_rows, length=12):
    texts = [text for _, text in passages()][:n_rows]
    tokens, _ = laws.vocabulary.encode(texts, length=length)
    sites = torch.randint(
        1, length + 1, (len(tokens), 1), generator=torch.Generator().manual_seed(1)
    )
    return tokens, sites


def in_whole_numbers(states, weight, bias, activation):
    """W x + b with numpy's 64-bit integers: one step per row, one scale per output unit."""
    states, weight = states.astype(np.float32), weight.astype(np.float32)
    scales = np.abs(weight).max(axis=1) / np.float32(LEVELS)
    integers = np.rint(weight / scales[:, None]).astype(np.int64)
    if activation in ONE_SIDED:
        zero, below = ONE_SIDED[activation]
        step = states.max(1) / np.float32(255 - zero)
        step = np.maximum(step, np.float32(below / max(zero, 1)))
    else:
        step = np.abs(states).max(axis=1) / np.float32(LEVELS)
    step = np.maximum(step, np.float32(1e-30))  # a row of zeros
    levels = np.rint(states / step[:, None]).astype(np.int64)
    assert activation not in ONE_SIDED or (levels >= -zero).all()
    sums = levels @ integers.T
    return sums * scales[None].astype(np.float64) * step[:, None] + bias


class Emulated:
    """What stands in for a Product."""

    def __init__(self, affine, spread=None, activation=None):
        self.affine, self.activation = affine, activation
        self.spread = torch.ones(affine.weight.shape[1]) if spread is None else spread

    def rows(self, begin, end):
        return Emulated(self.affine.rows(begin, end), self.spread, self.activation)

    def __call__(self, states):
        flat = (states * self.spread.reciprocal()).flatten(0, -2).numpy()
        bias = 0.0 if self.affine.bias is None else self.affine.bias.numpy()
        weight = (self.affine.weight * self.spread).numpy()
        found = in_whole_numbers(flat, weight, bias, self.activation)
        return torch.from_numpy(found).float().view(*states.shape[:-1], -1)


def random_rows(laws, rows=9):
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(7, laws.vocab_size, (rows, 11), generator=generator)
    return tokens, torch.randint(11, (rows, 2), generator=generator)


ACTIVATIONS = {
    None: lambda states: states,
    "gelu": torch.nn.functional.gelu,
    "gelu_new": lambda states: torch.nn.functional.gelu(states, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "relu": torch.relu,
}


@pytest.mark.int8
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("width", [32, 384, 1536])
def test_a_product_is_that_of_whole_numbers(activation, width):
    generator = torch.Generator().manual_seed(width)
    states = ACTIVATIONS[activation](3 * torch.randn(37, width, generator=generator))
    weight, bias = torch.randn(48, width, generator=generator), torch.randn(48)
    product = make_product(Affine(weight, bias), activation=activation)
    expected = in_whole_numbers(states.numpy(), weight.numpy(), bias.numpy(), activation)
    # Sums of integers are exact; what is left are the roundings of float32 when they are scaled.
    # A quotient that lies on the edge between two integers may fall to the other side: one weight.
    close = dict(rtol=4e-7, atol=4e-7 * np.abs(expected).max())
    np.testing.assert_allclose(product(states.clone()), expected, **close)
    part = product.rows(7, 31)(states.clone())
    np.testing.assert_allclose(part, expected[:, 7:31], **close)


@pytest.mark.int8
def test_a_spread_is_divided_out_and_leaves_the_states_alone():
    generator = torch.Generator().manual_seed(6)
    sizes = torch.logspace(-2, 2, 64)
    states, weight = torch.randn(40, 64, generator=generator) * sizes, torch.randn(32, 64)
    weight = weight / sizes.sqrt()
    exact, before = states.double() @ weight.double().T, states.clone()
    spread = make_product(Affine(weight, None), sizes.sqrt())(states)
    assert torch.equal(states, before)
    plain = make_product(Affine(weight, None))(states.clone())
    assert (spread - exact).square().mean() < 0.3 * (plain - exact).square().mean()


@pytest.mark.int8
def test_rows_of_zeros_and_large_rows_do_not_touch_their_neighbours():
    generator = torch.Generator().manual_seed(2)
    states, weight = torch.randn(20, 64, generator=generator), torch.randn(32, 64)
    product = make_product(Affine(weight, torch.arange(32.0)))
    alone = product(states.clone())
    states[3], states[7] = 0, states[7] * 1e6
    beside = product(states)
    kept = [row for row in range(20) if row not in (3, 7)]
    assert torch.equal(alone[kept], beside[kept])
    assert torch.equal(beside[3], torch.arange(32.0))


GATED = 1.5  # what a gate lets through has larger extremes: 5 times its root mean square


def test_every_described_architecture_is_among_the_tests():
    tested = {getattr(transformers, f"{shape}Config").model_type for shape, _ in FAMILIES.values()}
    assert tested == set(ENCODERS)


@pytest.mark.int8
@pytest.mark.parametrize("name", FAMILIES)
def test_tiny_models_are_close_to_float32_whatever_the_batch(name, tokenizer):
    """The root mean square of the error, beside the spread of the scores.

    Rounding to a step adds step / sqrt(12). The step is a 127th of a row's largest entry, which is
    about 3 times its root mean square: 3 / (127 sqrt(12)) = 0.7% for states and for weights, so
    1% for a product. Four products in each layer: sqrt(4 layers) of that.
    """
    model = make(name)
    plain, coarse = MaskedLM(model, tokenizer), MaskedLM(model, tokenizer, int8=True)
    tokens, sites = some_rows([11, 11, 5, 11, 36, 11, 11, 5], 2)
    exact, found = plain.scores(tokens, sites), coarse.scores(tokens, sites)
    error = (found - exact).square().mean().sqrt() / exact.std()
    layers = coarse.encoder.layers
    most = 0.01 * (GATED if layers[0].gated else 1) * (4 * len(layers)) ** 0.5
    assert 0 < error < most
    for rows in ([7, 3, 1, 0, 6, 2, 5, 4], [0], [3, 5], [4]):
        assert torch.equal(coarse.scores(tokens[rows], sites[rows]), found[rows])


@pytest.mark.int8
@pytest.mark.parametrize("name", ["bert", *ONE_OF_EACH])
def test_a_tiny_model_in_whole_numbers(name, tokenizer, monkeypatch):
    """The whole pass with each product done by numpy's integers instead."""
    model = make(name)
    laws = MaskedLM(model, tokenizer, int8=True)
    rows = random_rows(laws, 15)
    found = laws.scores(*rows)
    monkeypatch.setattr(encoder_int8, "check_machine", lambda: None)
    monkeypatch.setattr(encoder_int8, "_product", Emulated)
    emulated = MaskedLM(model, tokenizer, int8=True)
    assert isinstance(emulated.encoder.layers[0].out, Emulated)
    expected = emulated.scores(*rows)
    off = (found - expected).abs().amax(dim=(1, 2)) / expected.std()  # (rows,)
    # Where float32 rounds a quotient over the edge between two integers (1e-5 for each of a row's
    # some thousand entries), one step of one product differs, which every later layer sees. That
    # happens in few rows and stays small.
    assert off.median() < 1e-4
    assert off.max() < 0.01 * (4 * len(laws.encoder.layers)) ** 0.5


@pytest.mark.int8
def test_a_shared_layer_is_rounded_once(tokenizer):
    layers = MaskedLM(make("albert"), tokenizer, int8=True).encoder.layers
    assert len(layers) == 2 and all(layers[0].out is layer.out for layer in layers)


@pytest.mark.int8
def test_gates_of_different_sizes_are_told_apart(tokenizer, monkeypatch):
    """Two units of the gate are 30 times as large: without a spread, they set every step."""
    model = make("eurobert")
    with torch.no_grad():
        for layer in model.base_model.layers:
            layer.mlp.up_proj.weight[:2] *= 30
            layer.mlp.down_proj.weight[:, :2] /= 30
    exact = MaskedLM(model, tokenizer)
    rows = random_rows(exact)

    def error():
        coarse = MaskedLM(model, tokenizer, int8=True)
        return (coarse.scores(*rows) - exact.scores(*rows)).square().mean()

    def without(between, spread):
        spread.fill_(1)
        return between

    spread = error()
    monkeypatch.setattr(encoder_int8, "_gate_divided", without)
    assert spread < 0.5 * error()


@pytest.mark.int8
def test_the_bundled_model_is_off_by_what_the_docs_say():
    tokens, sites = contexts(bundled("float32"), 60)
    exact, found = (log_probs(bundled(dtype), tokens, sites)[:, 0] for dtype in ("float32", "int8"))
    distance = (exact.exp() - found.exp()).abs().sum(dim=1) / 2
    # Mean 0.03 and standard deviation 0.02 over 500 contexts: 60 of them stay within 0.045.
    assert distance.mean() < 0.045 and distance.max() < 0.2
    assert (exact.argmax(1) == found.argmax(1)).double().mean() > 0.85


@pytest.mark.int8
def test_a_rows_bits_do_not_depend_on_the_batch():
    laws = bundled("int8")
    tokens, sites = contexts(laws, 41)
    whole = laws.scores(tokens, sites)
    order = torch.randperm(len(tokens), generator=torch.Generator().manual_seed(5))
    assert torch.equal(laws.scores(tokens[order], sites[order]), whole[order])
    for rows in (slice(0, 1), slice(3, 5), slice(7, 20)):
        assert torch.equal(laws.scores(tokens[rows], sites[rows]), whole[rows])


@pytest.mark.int8
def test_runs_in_int8_resume_and_do_not_depend_on_the_batch(tiny_folder, texts, tmp_path):
    how = {"seed": 3, "dtype": "int8", "device": "cpu", "chains": 9}
    whole = sample(str(tiny_folder), texts, steps=30, out=tmp_path / "whole", **how)
    small = sample(str(tiny_folder), texts, steps=30, batch_size=2, out=tmp_path / "small", **how)
    sample(str(tiny_folder), texts, steps=11, out=tmp_path / "cut", **how)
    cut = extend(tmp_path / "cut", steps=30)
    assert whole.spec.dtype == cut.spec.dtype == "int8"
    for run in (small, cut):
        for name in whole.fields:
            np.testing.assert_array_equal(run.read(name), whole.read(name), err_msg=name)


def test_what_is_not_described_is_refused(tokenizer, monkeypatch):
    with pytest.raises(GlauberError, match="on a CPU only, and the device is meta"):
        MaskedLM(make_model("bert").to("meta"), tokenizer, int8=True)
    monkeypatch.setitem(guard.TOLERANCE, torch.float32, -1.0)
    with pytest.raises(GlauberError, match=r"int8 is not there for.*differs from transformers'"):
        MaskedLM(make_model("bert"), tokenizer, int8=True)
    monkeypatch.setattr(EncoderWeights, "describe", lambda weights: None)
    with pytest.raises(GlauberError, match=r"not there for.*its shape, bert, is not one"):
        MaskedLM(make_model("bert"), tokenizer, int8=True)


def test_a_machine_without_exact_products_is_refused(monkeypatch):
    def saturating(self, states):
        return torch.full((len(states), 64), 32767.0)

    monkeypatch.setattr(encoder_int8.Product, "__call__", saturating)
    with pytest.raises(GlauberError, match=re.escape(NOT_AVAILABLE)):
        EncoderInt8(EncoderWeights.of_module(make_model("bert")).describe())


@pytest.mark.int8
def test_what_measures_refuses_int8(tiny_folder, texts, tmp_path):
    model = MaskedLM.load(str(tiny_folder), device="cpu", dtype="int8")
    with pytest.raises(GlauberError, match="int8 is for drawing samples only: use float32"):
        load(model, exact=True)
    for study in (glauber.rectangles, glauber.score):
        with pytest.raises(GlauberError, match="int8 is for drawing samples only: use float32"):
            study(model, texts)
    sample(model, texts, steps=5, out=tmp_path / "run")
    assert '"dtype": "int8"' in (tmp_path / "run" / "run.json").read_text()


PRODUCTS_AND_SAMPLE = """
import json, sys
import torch
from glauber.models.forward.description import Affine
from glauber.models.forward.encoder_int8 import Product

generator = torch.Generator().manual_seed(0)
weight = torch.randint(-127, 128, (64, 512), generator=generator)
entering = torch.randint(-127, 128, (32, 512), generator=generator)
weight[:, :2] = entering[:, :2] = 127  # scales of 1, and a pair that saturates 16 bits
try:
    sums = Product(Affine(weight.float(), None))(entering.float()).long()
    exact = torch.equal(sums, entering @ weight.T)
except (AttributeError, RuntimeError):
    exact = False
print(json.dumps(exact), flush=True)

from glauber.interfaces.cli import main

main()
"""


@pytest.mark.parametrize(
    "emulation",
    [
        {},
        {"ONEDNN_MAX_CPU_ISA": "AVX2"},
        {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    ],
    ids=["as it is", "AVX2", "neither"],
)
def test_int8_runs_where_products_are_exact_and_is_refused_elsewhere(
    emulation, tiny_folder, source, tmp_path
):
    """In processes that see less of the CPU than there is; the products tell what it can do."""
    words = ["sample", "--model", tiny_folder, "--from", source, "--steps", 3, "--device", "cpu"]
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            PRODUCTS_AND_SAMPLE,
            *map(str, words),
            "--dtype",
            "int8",
            "--out",
            str(tmp_path / "run"),
        ],
        env=os.environ | emulation,
        capture_output=True,
        text=True,
    )
    exact = json.loads(ended.stdout.splitlines()[0])
    if exact:
        assert ended.returncode == 0, ended.stderr
        assert glauber.Run(tmp_path / "run").spec.dtype == "int8"
    else:
        assert ended.returncode == 2 and ended.stderr.splitlines()[-1].endswith(NOT_AVAILABLE)
        assert not (tmp_path / "run").exists()
    if emulation and platform.machine() == "x86_64":
        assert not exact
