"""How fast can the BERT shape answer on a CPU if its matrix products are rounded to 8 bits?

Weights are integers of 8 bits with one scale per output unit, activations integers of 8 bits with
one scale per token, formed on the fly. Their products are summed as integers, which is exact in
any order: no bit of a row depends on the rows beside it. Everything else (embeddings, norms,
softmax, residuals, the head) stays in float32.

Never the default, and not for certificates. On the bundled model, over 500 contexts at temperature
1, a conditional differs from float64's by 0.027 in total variation on average and 0.11 at most (an
estimate); the most probable token is the same in 95%.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from glauber.conditionals.forward.description import Affine, Description, Layer, Norm
from glauber.conditionals.forward.encoder import Encoder, normed
from glauber.errors import GlauberError
from glauber.threads import one_thread_each

LEVELS = 127  # of a weight, and of an activation on either side of 0
MIDDLE = 128  # what stands for 0 among the bytes 0 to 255
LOW = 32  # what stands for 0 behind a gelu, which leaves little below 0
GELU_LEAST = 0.17  # gelu(x) >= -0.16998
TINY = 1e-30  # scale of a row of zeros
ROUND = 1.5 * 2.0**23  # added to a float32, it leaves the nearest integer in the lowest bits


class Product(NamedTuple):
    """x -> W x + b with W as integers, (out, in), times a scale per output unit, (out,)."""

    packed: Tensor  # in the layout of oneDNN
    scales: Tensor  # (out,)
    zeros: Tensor  # (out,): 0 stands for 0
    bias: Tensor  # (out,)

    def __call__(self, states: Tensor) -> Tensor:
        """(..., in) of any sign -> (..., out)."""
        largest = torch.maximum(states.amax(-1, keepdim=True), states.amin(-1, keepdim=True).neg_())
        return self._multiply(states, largest.clamp_(min=TINY).div_(LEVELS), MIDDLE)

    def after_gelu(self, states: Tensor) -> Tensor:
        """The same where nothing is below -GELU_LEAST: most bytes are spent above 0.

        The states are written over: fresh memory costs as much as the arithmetic on it.
        """
        step = states.amax(-1, keepdim=True).div_(255 - LOW).clamp_(min=GELU_LEAST / LOW)
        return self._multiply(states, step, LOW, out=states)

    def _multiply(
        self, states: Tensor, step: Tensor, zero: int, out: Tensor | None = None
    ) -> Tensor:
        """step (..., 1): the difference between neighbouring bytes of a row."""
        # A row and not a number: so the sum is vectorised.
        shift = states.new_full(states.shape[-1:], ROUND + zero)
        nearest = torch.addcmul(shift, states, step.reciprocal(), out=out)
        bytes_ = nearest.view(torch.int32).to(torch.int8).view(torch.uint8).flatten(0, -2)
        sums = torch.ops.onednn.qlinear_pointwise(
            bytes_, 1.0, zero, self.packed, self.scales, self.zeros, None,
            1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        sums = sums.view(*states.shape[:-1], -1)
        return torch.addcmul(self.bias, sums, step, out=sums)


class Rounded(NamedTuple):
    """One encoder layer. What enters a product behind a norm is divided by a spread (d,) there."""

    spread: Tensor  # of what enters the layer
    queries_keys_values: Product
    attended: Product
    norm_attended: Norm  # gives the states divided by spread_between
    spread_between: Tensor
    between: Product
    out: Product
    norm_out: Norm  # gives the states divided by the next layer's spread


class EncoderInt8(Encoder):
    """Hidden states of the last layer at the hidden sites, (rows, k, d), with rounded products."""

    def __init__(self, described: Description) -> None:
        super().__init__(described)
        _check_machine()
        with one_thread_each(), torch.no_grad():
            spreads = self._spreads()
        ends = [spread for spread, _ in spreads[1:]] + [torch.ones(described.width)]
        self.rounded = [
            _rounded(layer, *pair, end)
            for layer, pair, end in zip(self.layers, spreads, ends, strict=True)
        ]
        width, (weight, bias) = described.width, self.layers[-1].queries_keys_values
        last = self.rounded[-1].spread
        self.queries = _product(Affine(weight[:width], bias[:width]), last)
        self.keys_values = _product(Affine(weight[width:], bias[width:]), last)

    def __call__(self, tokens: Tensor, sites: Tensor) -> Tensor:
        """tokens (rows, length) of one length, sites (rows, k)."""
        states = self.embed(tokens).div_(self.rounded[0].spread)
        for layer in self.rounded[:-1]:
            mixed = self._mix(*layer.queries_keys_values(states).chunk(3, dim=-1))
            states = self._finish(layer, states, mixed)
        there = states[torch.arange(len(sites))[:, None], sites.clamp(min=0)]
        keys, values = self.keys_values(states).chunk(2, dim=-1)
        mixed = self._mix(self.queries(there), keys, values)
        return self._finish(self.rounded[-1], there, mixed)

    def _mix(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """As in float32, by plain products: for short rows they are faster than the fused one."""
        queries, keys, values = map(self._split, (queries, keys, values))
        scores = queries @ keys.transpose(-1, -2)
        weights = scores.mul_(queries.shape[-1] ** -0.5).softmax(dim=-1)
        return (weights @ values).transpose(1, 2).flatten(2)

    def _finish(self, layer: Rounded, states: Tensor, mixed: Tensor) -> Tensor:
        """What follows attention: projection, feed-forward, and a norm after each."""
        states = layer.attended(mixed).addcmul_(states, layer.spread)
        states = normed(layer.norm_attended, states)
        between = torch.ops.aten.gelu_(layer.between(states))
        states = layer.out.after_gelu(between).addcmul_(states, layer.spread_between)
        return normed(layer.norm_out, states)

    def _spreads(self) -> list[tuple[Tensor, Tensor]]:
        """For each layer, the spread of what enters it and of what enters its feed-forward.

        The units behind a norm differ much in size, and a token's largest one sets its step. Each
        is divided by the root of its largest value over random texts, and the weights multiplied.
        """
        generator = torch.Generator().manual_seed(0)
        n_tokens = len(self.described.embedding.words)
        length = min(32, self.described.places)
        states = self.embed(torch.randint(n_tokens, (32, length), generator=generator))
        spreads = []
        for layer in self.layers:
            mixed = self._mix(*F.linear(states, *layer.queries_keys_values).chunk(3, dim=-1))
            middle = normed(layer.norm_attended, F.linear(mixed, *layer.attended) + states)
            spreads.append((_spread(states), _spread(middle)))
            states = self.finish(layer, states, mixed)
        return spreads


def _spread(states: Tensor) -> Tensor:
    """(rows, length, d) -> (d,)."""
    return states.abs().amax(dim=(0, 1)).clamp(min=1e-3).sqrt()


def _rounded(layer: Layer, spread: Tensor, between: Tensor, end: Tensor) -> Rounded:
    ones, wide = torch.ones_like(spread), torch.ones(layer.out.weight.shape[1])
    return Rounded(
        spread,
        _product(layer.queries_keys_values, spread),
        _product(layer.attended, ones),
        _divided(layer.norm_attended, between),
        between,
        _product(layer.between, between),
        _product(layer.out, wide),
        _divided(layer.norm_out, end),
    )


def _divided(norm: Norm | None, spread: Tensor) -> Norm:
    assert norm is not None and norm.weight is not None and norm.bias is not None
    return norm._replace(weight=norm.weight / spread, bias=norm.bias / spread)


def round_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Integers (out, in) of 8 bits and scales (out,): weight is about integers * scales."""
    scales = weight.abs().amax(dim=1).clamp(min=TINY) / LEVELS
    return (weight / scales[:, None]).round().to(torch.int8), scales


def _product(affine: Affine, spread: Tensor) -> Product:
    """The affine map of states that were divided by spread (in,)."""
    return _pack(*round_weight(affine.weight * spread), affine.bias)


def _pack(integers: Tensor, scales: Tensor, bias: Tensor) -> Product:
    packed = torch.ops.onednn.qlinear_prepack(integers.contiguous(), None)
    return Product(packed, scales, torch.zeros(len(scales), dtype=torch.int32), bias)


def _check_machine() -> None:
    """Refuses a machine whose byte products are missing or not exact (some saturate)."""
    try:
        most = torch.full((64, 256), LEVELS, dtype=torch.int8)
        product = _pack(most, torch.ones(64), torch.zeros(64))
        found = product(torch.full((32, 256), float(LEVELS)))
    except (AttributeError, RuntimeError) as error:
        raise GlauberError("this build of torch has no int8 products; use float32.") from error
    if not torch.equal(found, torch.full((32, 64), float(LEVELS**2 * 256))):
        raise GlauberError("this machine's int8 products are not exact; use float32.")
