"""The forward pass on a CPU: hidden states of the last layer at the hidden sites only.

It computes what a `Description` says, with queries, keys and values in one product and the last
layer only where a site is hidden. The arithmetic is the model's own, so it equals transformers'
answer up to rounding. The rows of a call have one length.
"""

from collections.abc import Callable
from functools import cache
from math import pi, sqrt
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from glauber.models.forward.description import (
    Affine,
    Description,
    Embedding,
    Head,
    Layer,
    Norm,
    Relative,
    Rotary,
)

if TYPE_CHECKING:
    from glauber.models.forward.attention_cuda import Tables

FEWEST_ROWS = 16  # below this, CPU matrix products switch to other kernels and round differently
VECTOR = 64  # numbers that torch works on at once, at most; the rest may be rounded differently
LINE = 16  # numbers of float32 in a line of memory
# Activations of heads that transformers writes out, which round otherwise than torch's own.
FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_python": lambda x: x * 0.5 * (1.0 + torch.erf(x / sqrt(2.0))),
    "gelu_new": lambda x: (
        0.5 * x * (1.0 + torch.tanh(sqrt(2.0 / pi) * (x + 0.044715 * torch.pow(x, 3.0))))
    ),
    "gelu_fast": lambda x: (
        0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))
    ),
}
ROOM = 2**31  # bytes of weights that are laid out a second time, at most
PRODUCTS = ("queries_keys_values", "attended", "between", "out")  # of a layer
WINDOWS = 4  # texts of more windows are looked at window by window


class Encoder:
    """Hidden states of the last layer at the hidden sites: (rows, k, d)."""

    def __init__(self, described: Description) -> None:
        self.described = described
        self.heads, self.layers = described.heads, described.layers
        self._rows: dict[tuple[int, int], tuple[int, int]] = {}
        self._tables: Tables = {}  # of distances, on CUDA

    def __call__(self, tokens: Tensor, sites: Tensor) -> Tensor:
        """tokens (rows, length), on CUDA with PAD after shorter rows; sites (rows, k)."""
        if tokens.is_cuda:
            from glauber.models.forward import encoder_cuda

            return encoder_cuda.forward(self.described, tokens, sites, tables=self._tables)
        states = self.embed(tokens)
        for layer in self.layers[:-1]:
            mixed = self.attend(layer, *self.queries_keys_values(layer, states))
            states = self.finish(layer, states, mixed)
        return self._at_sites(self.layers[-1], states, sites)

    def embed(self, tokens: Tensor) -> Tensor:
        """What enters the first layer: (rows, length, d)."""
        table = self.described.embedding
        share = None
        if table.hidden_token is not None:
            share = (tokens == table.hidden_token).sum(dim=1, keepdim=True) / tokens.shape[1]
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return embed(table, tokens, places, share)

    def embed_at(self, tokens: Tensor, places: Tensor, share: Tensor | None = None) -> Tensor:
        """The same for tokens at the given places of their rows, counted from 0.

        share is the hidden share of each token's row, for models that ask for it.
        """
        return embed(self.described.embedding, tokens, places, share)

    def queries_keys_values(self, layer: Layer, states: Tensor) -> tuple[Tensor, ...]:
        """Three of (rows, length, d)."""
        together = layer.queries_keys_values(normalise(layer.norm_before, states))
        return self._normalise_heads(layer, *together.chunk(3, dim=-1))

    def _normalise_heads(
        self, layer: Layer, queries: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        return normalise(layer.norm_queries, queries), normalise(layer.norm_keys, keys), values

    def _at_sites(self, layer: Layer, states: Tensor, sites: Tensor) -> Tensor:
        """The last layer where it is asked for: (rows, length, d) -> (rows, k, d)."""
        (rows, k), width = sites.shape, states.shape[-1]
        sites = sites.clamp(min=0)
        row = torch.arange(rows, device=sites.device)[:, None]
        at_sites = fill_up(states[row, sites].reshape(rows * k, width))
        queries = layer.queries_keys_values.rows(0, width)(normalise(layer.norm_before, at_sites))
        queries = queries[: rows * k].view(rows, k, width)
        entering = normalise(layer.norm_before, states)
        together = layer.queries_keys_values.rows(width, 3 * width)(entering)
        projected = self._normalise_heads(layer, queries, *together.chunk(2, dim=-1))
        mixed = self.attend(layer, *projected, sites=sites)
        mixed = fill_up(mixed.reshape(rows * k, width))
        states = normalise(self.described.norm, self.finish(layer, at_sites, mixed))
        return states[: rows * k].view(rows, k, width)

    def finish(self, layer: Layer, states: Tensor, mixed: Tensor) -> Tensor:
        """What follows attention: projection and feed-forward, each added to what entered it."""
        # In place where it can be: fresh memory costs as much as the arithmetic on it.
        states = layer.attended(mixed).add_(states)
        states = normalise(layer.norm_attended, states)
        between = layer.between(normalise(layer.norm_between, states))
        added = layer.out(self.activate(layer, between)).add_(states)
        return normalise(layer.norm_out, added)

    def activate(self, layer: Layer, between: Tensor) -> Tensor:
        """The activation, in place, and the gate."""
        if not layer.gated:
            if between.is_cuda or between.numel() % VECTOR == 0:
                return activation(layer.activation)(between)
            flat = F.pad(between.flatten(), (0, -between.numel() % VECTOR))
            return activation(layer.activation)(flat)[: between.numel()].view(between.shape)
        taken, gate = between.chunk(2, dim=-1)
        return activation(layer.activation)(taken).mul_(gate)

    def attend(
        self,
        layer: Layer,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        sites: Tensor | None = None,
    ) -> Tensor:
        """Softmax attention within each row: (rows, queries, d), from and to heads side by side.

        sites (rows, queries) say where the queries stand; without them, one at every place.
        """
        length = keys.shape[1]
        if layer.rotary is not None:
            queries = self._turn(layer.rotary, queries, sites)
            keys = self._turn(layer.rotary, keys, None)
        queries, keys, values = map(self._split, (queries, keys, values))
        if sites is None and layer.relative is None and length > WINDOWS * (layer.window or length):
            return self._mix_nearby(layer, queries, keys, values).transpose(1, 2).flatten(2)
        added = None
        if layer.relative is not None:
            added = self._relate(layer.relative, queries, keys, sites)
        if layer.window is not None and length > layer.window + 1:
            near = _near(_distances(length, sites, keys.device), layer.window, queries)
            added = near if added is None else added + near
        return self.mix(queries, keys, values, added, layer.scale).transpose(1, 2).flatten(2)

    def mix(
        self, queries: Tensor, keys: Tensor, values: Tensor, added: Tensor | None, scale: float
    ) -> Tensor:
        """The values by softmax(scale q . k + added): (rows, heads, queries, s)."""
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=added, scale=scale)

    def _mix_nearby(self, layer: Layer, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The same where a layer sees a small part of a text: a window of queries at a time.

        Work and memory then grow with the length and not with its square.
        """
        window, length = layer.window, keys.shape[2]
        assert window is not None
        places, mixed = torch.arange(length, device=keys.device), []
        for begin in range(0, length, window):
            end = min(begin + window, length)
            seen = slice(max(0, begin - window), min(length, end + window))
            near = _near(places[begin:end, None] - places[seen], window, queries)
            asking, read, values_read = (
                queries[:, :, begin:end],
                keys[:, :, seen],
                values[:, :, seen],
            )
            mixed.append(self.mix(asking, read, values_read, near, layer.scale))
        return torch.cat(mixed, dim=2)

    def _turn(self, rotary: Rotary, states: Tensor, sites: Tensor | None) -> Tensor:
        """The rotation (rows, length, d) -> the same; at sites (rows, length) where given."""
        at: Tensor | slice = slice(states.shape[1]) if sites is None else sites
        # At least in float32, so that half precision rounds once; in float64 the states are
        # rounded before where transformers does so.
        wide = torch.promote_types(states.dtype, torch.float32)
        cos, sin = (table[at][..., None, :].to(wide) for table in rotary)
        rounded = states.to(torch.promote_types(rotary.cos.dtype, torch.float32)).to(wide)
        rounded = rounded.unflatten(-1, (self.heads, -1))
        turned = rounded * torch.cat([cos, cos], dim=-1)
        (first, second), (a, b) = turned.chunk(2, dim=-1), rounded.chunk(2, dim=-1)
        first.addcmul_(b, sin, value=-1)
        second.addcmul_(a, sin)
        return turned.flatten(-2).to(states.dtype)

    def _relate(
        self, relative: Relative, queries: Tensor, keys: Tensor, sites: Tensor | None
    ) -> Tensor:
        """What depends on the distance: (rows or 1, heads, queries, keys)."""
        apart = _distances(keys.shape[2], sites, keys.device)
        index = relative.rows[apart + relative.places - 1]  # (rows or 1, 1, queries, keys)
        # Of the tables only what lies between the first and the last row that is asked for.
        first, end = self._between(relative, keys.shape[2])
        at_keys, at_queries, bias = (
            None if table is None else table[:, first:end] for table in relative[1:]
        )
        index = index - first
        terms = []
        if at_keys is not None:
            by_query = queries @ _columns(at_keys)
            terms.append(by_query.gather(-1, index.expand(len(queries), self.heads, -1, -1)))
        if at_queries is not None:
            # k_j . queries[i - j]: formed key by key, then read at i.
            by_key = (keys @ _columns(at_queries)).mT  # (rows, heads, distances, keys)
            terms.append(by_key.gather(2, index.expand(len(keys), self.heads, -1, -1)))
        if bias is not None:
            terms.append(bias[:, index[:, 0]].transpose(0, 1))
        return sum(terms[1:], start=terms[0])

    def _between(self, relative: Relative, length: int) -> tuple[int, int]:
        """The first of the rows that texts of a length need, and the end after the last."""
        if (id(relative), length) not in self._rows:
            middle = relative.places - 1
            rows = relative.rows[middle - length + 1 : middle + length]
            self._rows[id(relative), length] = int(rows.min()), int(rows.max()) + 1
        return self._rows[id(relative), length]

    def _split(self, states: Tensor) -> Tensor:
        """(rows, length, d) -> (rows, heads, length, s)."""
        return states.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def embed(table: Embedding, tokens: Tensor, places: Tensor, share: Tensor | None) -> Tensor:
    """Words and places, normalised and projected: (..., d) of tokens (...) at places (...)."""
    states = F.embedding(tokens.clamp(min=0), table.words)
    if table.hidden_token is not None:
        assert share is not None
        visible = (tokens != table.hidden_token).to(states.dtype)
        # The share is of float32 in every precision, as transformers has it.
        factor = table.kept / (1 - share).to(states.dtype)
        states = states * (visible * factor)[..., None]
    if table.places is not None:
        states = states + table.places[places]
    states = normalise(table.norm, states)
    if table.project is not None:
        states = table.project(states)
    return normalise(table.norm_projected, states)


def normalise(norm: Norm | None, states: Tensor) -> Tensor:
    """The norm of the last axis; the states themselves where there is none."""
    if norm is None:
        return states
    width = states.shape[-1:]
    if norm.centred and (not norm.single or states.dtype == torch.float32):
        return F.layer_norm(states, width, norm.weight, norm.bias, norm.eps)
    # In float32 for every precision, as transformers has it.
    single = states.float()
    if norm.centred:
        single = single - single.mean(-1, keepdim=True)
        single = single / torch.sqrt(single.square().mean(-1, keepdim=True) + norm.eps)
    else:
        single = single * torch.rsqrt(single.square().mean(-1, keepdim=True) + norm.eps)
    single = single.to(states.dtype)
    single = single if norm.weight is None else single.mul_(norm.weight)
    return single if norm.bias is None else single.add_(norm.bias)


def scores_of(head: Head, states: Tensor) -> Tensor:
    """The scores (rows, vocab) of hidden states (rows, d)."""
    if head.transform is not None:
        formula = FORMULAS.get(head.activation) or activation(head.activation)
        states = formula(head.transform(states))
    scores = head.scores(normalise(head.norm, states))
    return scores if head.bias is None else scores + head.bias


@cache
def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The activation of that name; it may write over what it is given."""
    if name == "gelu":
        return torch.ops.aten.gelu_
    if name in ("gelu_new", "gelu_pytorch_tanh", "gelu_fast"):
        return lambda states: torch.ops.aten.gelu_(states, approximate="tanh")
    if name in ("silu", "swish"):
        return torch.ops.aten.silu_
    if name == "relu":
        return torch.relu_
    from transformers.activations import ACT2FN

    return ACT2FN[name]


def fill_up(rows: Tensor) -> Tensor:
    """At least FEWEST_ROWS rows, filled up with zeros."""
    return F.pad(rows, (0, 0, 0, max(0, FEWEST_ROWS - len(rows))))


def _columns(table: Tensor) -> Tensor:
    """(heads, distances, s) -> (heads, s, distances and some zeros).

    Each matrix of a batch begins at a whole line of memory: where it does not, a product with few
    rows rounds differently from place to place.
    """
    return F.pad(table, (0, 0, 0, -table.shape[1] % LINE)).mT.contiguous()


def _near(distances: Tensor, window: int, like: Tensor) -> Tensor:
    """0 where a key lies within the window, and minus infinity elsewhere."""
    far = distances.abs() > window
    return like.new_zeros(far.shape).masked_fill_(far, float("-inf"))


def _distances(length: int, sites: Tensor | None, device: torch.device) -> Tensor:
    """i - j of each query and key: (rows or 1, 1, queries, length)."""
    keys = torch.arange(length, device=device)
    queries = keys[None] if sites is None else sites
    return (queries[..., None] - keys)[:, None]


# ---- weights that are laid out once


class LaidOut:
    """x -> W x + b as an `Affine`, with weights that are laid out once and not at every call.

    A matrix product first rearranges its weights so that they are read in a line. For a single
    text that costs as much as the arithmetic; oneDNN takes weights that were rearranged before.
    Costs the room of the weights a second time.
    """

    def __init__(self, affine: Affine) -> None:
        self.weight, self.bias = affine
        self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.contiguous(), None)
        self._rows: dict[tuple[int, int], LaidOut] = {}

    def rows(self, begin: int, end: int) -> "LaidOut":
        """The outputs begin to end."""
        if (begin, end) not in self._rows:
            part = Affine(self.weight, self.bias).rows(begin, end)
            self._rows[begin, end] = LaidOut(part)
        return self._rows[begin, end]

    def __call__(self, states: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            states, self.packed, self.bias, "none", [], ""
        )
        return product


def _is_fast(weight: Tensor, room: int) -> bool:
    """Whether a weight can be laid out, with so many bytes in all."""
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and room <= ROOM


def lay_out(described: Description) -> Description:
    """The same with its products laid out, a shared layer once; as it is where that cannot be."""
    products = {
        id(product.weight): product
        for layer in described.layers
        for product in (getattr(layer, name) for name in PRODUCTS)
    }
    room = sum(product.weight.nbytes for product in products.values())
    if not _is_fast(described.layers[0].attended.weight, room):
        return described
    try:
        with torch.no_grad():
            fast = {key: LaidOut(product) for key, product in products.items()}
    except (AttributeError, RuntimeError):  # a build of torch without oneDNN
        return described
    layers = [
        layer._replace(**{name: fast[id(getattr(layer, name).weight)] for name in PRODUCTS})  # type: ignore[arg-type]
        for layer in described.layers
    ]
    return described._replace(layers=layers)


def lay_out_head(head: Head) -> Head:
    """The same with the product that forms the scores laid out; as it is where that cannot be."""
    if not _is_fast(head.scores.weight, head.scores.weight.nbytes):
        return head
    try:
        return head._replace(scores=cast(Affine, LaidOut(head.scores)))
    except (AttributeError, RuntimeError):  # a build of torch without oneDNN
        return head
