"""Weights that are laid out once give the same products."""

import torch

from conftest import make_model
from glauber.conditionals.forward import laid_out
from glauber.conditionals.forward.description import Affine
from glauber.conditionals.forward.laid_out import LaidOut, lay_out, with_head_laid_out
from glauber.conditionals.forward.read import describe


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
    layers = lay_out(describe(make_model("albert"))).layers
    assert len(layers) > 1 and all(layer.out is layers[0].out for layer in layers)


def test_what_has_no_room_or_another_precision_stays_as_it_is(monkeypatch):
    model = make_model("bert")
    assert lay_out(described := describe(model.double())) is described
    monkeypatch.setattr(laid_out, "ROOM", 1000)
    assert lay_out(described := describe(model.float())) is described


def test_the_head_is_laid_out_beside_the_model():
    model = make_model("bert")
    states = torch.randn(3, 32, generator=torch.Generator().manual_seed(1))
    copy = with_head_laid_out(model)
    assert isinstance(copy.get_output_embeddings().forward, LaidOut)
    assert not isinstance(model.get_output_embeddings().forward, LaidOut)
    assert copy.cls.predictions.decoder.weight is model.cls.predictions.decoder.weight
    with torch.no_grad():
        torch.testing.assert_close(copy.cls(states), model.cls(states), rtol=0, atol=1e-5)
    assert with_head_laid_out(model.double()) is model
