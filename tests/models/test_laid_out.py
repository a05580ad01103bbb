"""Weights that are laid out once give the same products."""

import torch

from conftest import make_model
from glauber.models.forward import encoder
from glauber.models.forward.description import Affine
from glauber.models.forward.encoder import LaidOut, lay_out, lay_out_head, scores_of
from glauber.models.masked_lm import EncoderWeights


def described_as(shape, dtype=torch.float32):
    described = EncoderWeights.of_module(make_model(shape).to(dtype)).describe()
    assert described is not None
    return described


def test_a_product_is_that_of_the_definition():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(37, 20, generator=generator)
    bias, states = torch.randn(37, generator=generator), torch.randn(2, 5, 20, generator=generator)
    for shift in (bias, None):
        product = LaidOut(Affine(weight, shift))
        expected = states.double() @ weight.double().T + (0 if shift is None else shift.double())
        torch.testing.assert_close(product(states).double(), expected, rtol=0, atol=1e-5)
        part = product.rows(3, 30)(states).double()
        torch.testing.assert_close(part, expected[..., 3:30], rtol=0, atol=1e-5)


def test_a_shared_layer_is_laid_out_once():
    layers = lay_out(described_as("albert")).layers
    assert len(layers) > 1 and all(layer.out is layers[0].out for layer in layers)


def test_what_has_no_room_or_another_precision_stays_as_it_is(monkeypatch):
    assert lay_out(described := described_as("bert", torch.float64)) is described
    monkeypatch.setattr(encoder, "ROOM", 1000)
    assert lay_out(described := described_as("bert")) is described


def test_the_head_is_laid_out():
    head = described_as("bert").head
    states = torch.randn(3, 32, generator=torch.Generator().manual_seed(1))
    laid_out_head = lay_out_head(head)
    assert isinstance(laid_out_head.scores, LaidOut)
    plain = scores_of(head, states)
    torch.testing.assert_close(scores_of(laid_out_head, states), plain, rtol=0, atol=1e-5)
    assert lay_out_head(double := described_as("bert", torch.float64).head) is double
