"""The forward pass on a CPU with matrix products rounded to 8 bits.

Weights are integers of 8 bits with one scale per output unit, activations integers of 8 bits with
one scale per token, formed on the fly. Their products are summed as integers, which is exact in
any order: no bit of a row depends on the other rows. Everything else (embeddings, norms,
softmax, residuals, the head) stays in float32. The pass is `Encoder`'s: only the products of the
description are replaced, so whatever is described is there in int8 too.

Never the default, and not for certificates. On the bundled model, over 500 contexts at temperature
1, a conditional differs from float64's by 0.025 in total variation on average and 0.08 at most (an
estimate); the most probable token is the same in 97%. `glauber models NAME --error` measures it.
"""

import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError
from glauber.foundation.threads import one_thread_each
from glauber.models.forward.description import Affine, Description, Layer
from glauber.models.forward.encoder import PRODUCTS, Encoder

LEVELS = 127  # of a weight, and of an activation on either side of 0
MIDDLE = 128  # what stands for 0 among the bytes 0 to 255
TINY = 1e-30  # scale of a row of zeros
ROUND = 1.5 * 2.0**23  # added to a float32, it leaves the nearest integer in the lowest bits
SHORT = 64  # tokens up to which plain products are faster than fused attention

# After these activations little or nothing lies below 0: (the byte that stands for 0, -least).
# gelu(x) > -0.171 in all its forms and silu(x) > -0.279.
ONE_SIDED = {
    **dict.fromkeys(("gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast"), (32, 0.171)),
    **dict.fromkeys(("silu", "swish"), (32, 0.279)),
    "relu": (0, 0.0),
}


class Product:
    """x -> W x + b with W as integers, (out, in), times a scale per output unit, (out,).

    What enters is divided by `spread` (in,) where there is one, and written over where there is
    none: fresh memory costs as much as the arithmetic on it. `activation` names what formed it.
    """

    def __init__(
        self, affine: Affine, spread: Tensor | None = None, activation: str | None = None
    ) -> None:
        weight = affine.weight if spread is None else affine.weight * spread
        self.integers, self.scales = round_weight(weight)
        self.bias, self.activation = affine.bias, activation
        self.inverse = None if spread is None else spread.reciprocal()
        self._lay_out()

    def _lay_out(self) -> None:
        self.packed = torch.ops.onednn.qlinear_prepack(self.integers.contiguous(), None)
        self.zeros = torch.zeros(len(self.scales), dtype=torch.int32)
        self._rows: dict[tuple[int, int], Product] = {}

    def rows(self, begin: int, end: int) -> "Product":
        """The outputs begin to end."""
        if (begin, end) not in self._rows:
            part = object.__new__(Product)
            part.integers, part.scales = self.integers[begin:end], self.scales[begin:end]
            part.bias = None if self.bias is None else self.bias[begin:end]
            part.inverse, part.activation = self.inverse, self.activation
            part._lay_out()
            self._rows[begin, end] = part
        return self._rows[begin, end]

    def __call__(self, states: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        states = states if self.inverse is None else states * self.inverse
        largest = states.amax(-1, keepdim=True)
        if self.activation in ONE_SIDED:
            zero, below = ONE_SIDED[self.activation]
            step = largest.div_(255 - zero).clamp_(min=below / zero if zero else TINY)
        else:
            zero = MIDDLE
            largest = torch.maximum(largest, states.amin(-1, keepdim=True).neg_())
            step = largest.clamp_(min=TINY).div_(LEVELS)
        return self._multiply(states, step, zero)

    def _multiply(self, states: Tensor, step: Tensor, zero: int) -> Tensor:
        """step (..., 1): the difference between neighbouring bytes of a row."""
        # A row and not a number: so the sum is vectorised.
        shift = states.new_full(states.shape[-1:], ROUND + zero)
        nearest = torch.addcmul(shift, states, step.reciprocal(), out=states)
        bytes_ = nearest.view(torch.int32).to(torch.int8).view(torch.uint8).flatten(0, -2)
        sums = torch.ops.onednn.qlinear_pointwise(
            bytes_,
            1.0,
            zero,
            self.packed,
            self.scales,
            self.zeros,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        sums = sums.view(*states.shape[:-1], -1)
        if self.bias is None:
            return sums.mul_(step)
        return torch.addcmul(self.bias, sums, step, out=sums)


class EncoderInt8(Encoder):
    """Hidden states of the last layer at the hidden sites, (rows, k, d), with rounded products."""

    def __init__(self, described: Description) -> None:
        check_machine()
        with one_thread_each(), torch.no_grad():
            super().__init__(described._replace(layers=_round_products(described)))
            width, last = described.width, self.layers[-1].queries_keys_values
            last.rows(0, width), last.rows(width, 3 * width)

    def mix(
        self, queries: Tensor, keys: Tensor, values: Tensor, added: Tensor | None, scale: float
    ) -> Tensor:
        """As in float32, by plain products: for short rows they are faster than the fused one."""
        if keys.shape[2] > SHORT:
            return super().mix(queries, keys, values, added, scale)
        scores = (queries @ keys.transpose(-1, -2)).mul_(scale)
        return (scores if added is None else scores.add_(added)).softmax(dim=-1) @ values


# ---- what enters a product, in size

Sizes = dict[str, Tensor]  # of each product of a layer, the largest of each unit: (in,)


class Watched:
    """An affine map that remembers the largest size of each unit that entered it."""

    def __init__(self, affine: Affine, largest: Tensor) -> None:
        self.affine, self.largest = affine, largest

    def rows(self, begin: int, end: int) -> "Watched":
        return Watched(self.affine.rows(begin, end), self.largest)

    def __call__(self, states: Tensor) -> Tensor:
        seen = states.abs().flatten(0, -2).amax(dim=0)
        torch.maximum(self.largest, seen, out=self.largest)
        return self.affine(states)


def _sizes(described: Description) -> dict[int, Sizes]:
    """What enters the products of each layer over random texts; a shared layer stands once."""
    sizes_of: dict[int, Sizes] = {}
    layers = []
    for layer in described.layers:
        products = {name: getattr(layer, name) for name in PRODUCTS}
        sizes = sizes_of.setdefault(
            _key(layer),
            {name: p.weight.new_zeros(p.weight.shape[1]) for name, p in products.items()},
        )
        watched = {name: Watched(product, sizes[name]) for name, product in products.items()}
        layers.append(layer._replace(**watched))  # type: ignore[arg-type]
    length = min(32, described.places)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(len(described.embedding.words), (32, length), generator=generator)
    Encoder(described._replace(layers=layers))(tokens, torch.arange(length).expand(32, -1))
    return sizes_of


def _key(layer: Layer) -> int:
    """The same for a layer that is shared."""
    return id(layer.attended.weight)


# ---- rounding


def _round_products(described: Description) -> list[Layer]:
    """The layers with rounded products; a shared one is rounded once."""
    sizes = _sizes(described)
    rounded: dict[int, dict[str, Product]] = {}
    for layer in described.layers:
        if _key(layer) not in rounded:
            rounded[_key(layer)] = _products(layer, sizes[_key(layer)])
    return [layer._replace(**rounded[_key(layer)]) for layer in described.layers]  # type: ignore[arg-type]


def _products(layer: Layer, sizes: Sizes) -> dict[str, Product]:
    """The units that enter a product differ much in size, and a token's largest sets its step.

    So each is divided by a spread, the root of its largest value, and the weights multiplied.
    After a gate it is the gate that is divided, which costs nothing and loses nothing: each of
    its outputs has a scale of its own. What leaves attention or an activation is taken as it is.
    """
    spreads = {name: size.clamp(min=1e-3).sqrt() for name, size in sizes.items()}
    between, out = layer.between, layer.out
    if layer.gated:
        between = _gate_divided(between, spreads["out"])
        out = out._replace(weight=out.weight * spreads["out"])
    return {
        "queries_keys_values": _product(layer.queries_keys_values, spreads["queries_keys_values"]),
        "attended": _product(layer.attended),
        "between": _product(between, spreads["between"]),
        "out": _product(out, activation=None if layer.gated else layer.activation),
    }


def _gate_divided(between: Affine, spread: Tensor) -> Affine:
    """The affine map (2 f, d) whose second half, the gate, is divided by the spread (f,)."""
    inverse = torch.cat([torch.ones_like(spread), spread.reciprocal()])
    bias = None if between.bias is None else between.bias * inverse
    return Affine(between.weight * inverse[:, None], bias)


_product = Product  # where another way of forming the products can be put


def round_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Integers (out, in) of 8 bits and scales (out,): weight is about integers * scales."""
    scales = weight.abs().amax(dim=1).clamp(min=TINY) / LEVELS
    return (weight / scales[:, None]).round().to(torch.int8), scales


NOT_AVAILABLE = "int8 is not available on this CPU (no exact 8-bit products); use --dtype float32."


def check_machine() -> None:
    """Refuses a machine whose byte products are missing or not exact.

    x86 without VNNI adds pairs of products in 16 bits, which saturate.
    """
    try:
        product = Product(Affine(torch.full((64, 256), float(LEVELS)), None))
        sums = product(torch.full((32, 256), float(LEVELS)))
    except (AttributeError, RuntimeError) as error:
        raise GlauberError(NOT_AVAILABLE) from error
    if not torch.equal(sums, torch.full((32, 64), float(LEVELS**2 * 256))):
        raise GlauberError(NOT_AVAILABLE)
