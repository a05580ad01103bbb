"""The forward pass on a CUDA device, for every description.

Matrix products go to cuBLAS, over a list of tokens without padding (`layout`). What stands between
them is fused by small Triton kernels: attention (`attention_cuda`), residual plus norm, and the
activation with its gate (in bfloat16 cuBLAS does the tanh formula with the product). Without
Triton, or in float64, PyTorch's own operators do the same. Nothing here asks the GPU anything
except how long the rows are, so that a step can be recorded as a CUDA graph.
"""

from contextlib import AbstractContextManager, ExitStack, nullcontext
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from glauber.models.forward.attention_cuda import Tables, attend, has_kernels
from glauber.models.forward.encoder import activation, embed, normalise
from glauber.models.forward.layout import Layout, capturing, layout_of

if TYPE_CHECKING:
    from glauber.models.forward.description import (
        Affine,
        Description,
        Embedding,
        Layer,
        Norm,
    )

try:
    import triton

    from glauber.models.forward import encoder_kernels as kernels
except ImportError:  # PyTorch for CPU or Windows brings none
    triton = None

WIDEST = 4096  # numbers that one program of the gate takes
OURS = {
    "gelu": "gelu",
    "gelu_new": "tanh",
    "gelu_pytorch_tanh": "tanh",
    "gelu_fast": "tanh",
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
}


def forward(
    described: "Description",
    tokens: Tensor,
    sites: Tensor,
    *,
    layout: Layout | None = None,
    tables: Tables | None = None,
) -> Tensor:
    """Hidden states at the sites, (rows, k, d).

    tokens (rows, length) with PAD behind, sites (rows, k) with PAD where a row has fewer. tables
    of distances stay between calls. Layers may lie on several devices, one after the other:
    the states go to the next one where a layer does, and the answer is where the last layer is.
    """
    layout = layout_of(tokens) if layout is None else layout
    tables = {} if tables is None else tables
    states = _embed_tokens(described.embedding, tokens, layout)  # (tokens of the list, d)
    entering = _norm_rows(described.layers[0].norm_before, states)
    with ExitStack() as current:
        for layer, after in pairwise(described.layers):
            together = _product(layer.queries_keys_values, entering)
            queries, keys, values = together.chunk(3, dim=1)
            projected = (
                _norm_rows(layer.norm_queries, queries),
                _norm_rows(layer.norm_keys, keys),
                values,
            )
            mixed = attend(layer, projected, described.heads, layout, tables=tables)
            if after.device == layer.device:
                states, entering = _finish(layer, states, mixed, after.norm_before)
                continue
            states = _finish(layer, states, mixed, None)[0].to(after.device)
            current.enter_context(_moved_to(after.device, tokens))
            entering, layout = _norm_rows(after.norm_before, states), layout.on(after.device)
        return _at_sites(described, (states, entering), sites.to(states.device), layout, tables)


def _moved_to(device: torch.device, tokens: Tensor) -> AbstractContextManager[object]:
    """Makes a CUDA device the current one, where kernels are launched."""
    if capturing(tokens):
        raise RuntimeError("its layers lie on several devices")
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _at_sites(
    described: "Description",
    entered: tuple[Tensor, Tensor],
    sites: Tensor,
    layout: Layout,
    tables: Tables,
) -> Tensor:
    """The last layer at the sites only: (tokens of the list, d) -> (rows, k, d)."""
    layer, width = described.layers[-1], described.width
    states, entering = entered
    at = layout.at(sites).flatten()
    at_sites = states[at]
    entering_sites = at_sites if entering is states else entering[at]
    queries = _product(layer.queries_keys_values.rows(0, width), entering_sites)
    together = _product(layer.queries_keys_values.rows(width, 3 * width), entering)
    keys, values = together.chunk(2, dim=1)
    projected = _norm_rows(layer.norm_queries, queries), _norm_rows(layer.norm_keys, keys), values
    mixed = attend(layer, projected, described.heads, layout, sites=sites, tables=tables)
    return _finish(layer, at_sites, mixed, described.norm)[1].view(*sites.shape, width)


def _embed_tokens(table: "Embedding", tokens: Tensor, layout: Layout) -> Tensor:
    """What enters the first layer: (tokens of the list, d)."""
    share = None
    if table.hidden_token is not None:
        share = (tokens == table.hidden_token).sum(dim=1) / layout.lengths
    if layout.row is None or layout.place is None:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        share = None if share is None else share[:, None]
        return embed(table, tokens, places, share).flatten(0, 1)
    share = None if share is None else share[layout.row]
    return embed(table, tokens[layout.row, layout.place], layout.place, share)


def _finish(
    layer: "Layer", states: Tensor, mixed: Tensor, following: "Norm | None"
) -> tuple[Tensor, Tensor]:
    """What follows attention: the states after the layer, and their norm by what follows it."""
    added = _product(layer.attended, mixed)
    states, entering = _add(states, added, layer.norm_attended, layer.norm_between)
    added = _product(layer.out, _between(layer, entering))
    return _add(states, added, layer.norm_out, following)


def _product(affine: "Affine", states: Tensor) -> Tensor:
    if affine.bias is None:
        return torch.mm(states, affine.weight.t())
    return torch.addmm(affine.bias, states, affine.weight.t())


def _between(layer: "Layer", states: Tensor) -> Tensor:
    """The first product of the feed-forward, its activation and its gate."""
    weight, bias = layer.between
    name = OURS.get(layer.activation)
    if bias is not None and _cublas_may(layer, states):
        # cuBLAS applies a gelu as it writes, by the tanh formula: on the bundled model that moves a
        # conditional by 0.001 in total variation, where bfloat16 itself moves it by 0.009.
        return torch._addmm_activation(bias, states, weight.t(), use_gelu=True)
    between = _product(layer.between, states)
    if name is None or not has_kernels(between):
        taken, *gate = between.chunk(1 + layer.gated, dim=1)
        taken = activation(layer.activation)(taken)
        return taken * gate[0] if gate else taken
    return _gate(between, name) if layer.gated else _activate(between, name)


def _cublas_may(layer: "Layer", states: Tensor) -> bool:
    """Whether the activation may be cuBLAS' gelu: where the model's own is the tanh formula.

    And in the layers of BERT itself, for which the difference was measured.
    """
    if layer.gated or states.dtype != torch.bfloat16 or not states.is_cuda:
        return False
    plain = layer.norm_attended is not None and layer.rotary is None and layer.relative is None
    name = OURS.get(layer.activation)
    return name == "tanh" or (name == "gelu" and plain)


def _activate(states: Tensor, name: str) -> Tensor:
    grid = (triton.cdiv(states.numel(), WIDEST),)
    kernels.activate[grid](states, states.numel(), NAME=name, B=WIDEST, num_warps=8)
    return states


def _gate(states: Tensor, name: str) -> Tensor:
    """act(a) * b of rows (a, b)."""
    rows, width = len(states), states.shape[1] // 2
    out = states.new_empty(rows, width)
    block = min(WIDEST, triton.next_power_of_2(width))
    grid = (rows, triton.cdiv(width, block))
    kernels.activate_gated[grid](states, out, width, NAME=name, B=block, num_warps=4)
    return out


def _add(
    states: Tensor, added: Tensor, norm: "Norm | None", following: "Norm | None"
) -> tuple[Tensor, Tensor]:
    """norm(states + added), and `following` of that; states and added may be written over."""
    if not has_kernels(states):
        states = normalise(norm, states + added)
        return states, normalise(following, states)
    if norm is not None:
        _norm_kernel(norm, states, added, None, added)
        return added, _norm_rows(following, added)
    if following is None:
        states = added.add_(states)
        return states, states
    _norm_kernel(following, states, added, states, added)
    return states, added


def _norm_rows(norm: "Norm | None", states: Tensor) -> Tensor:
    """The norm of each row; the states themselves where there is none."""
    if norm is None or not has_kernels(states):
        return normalise(norm, states)
    out = torch.empty_like(states, memory_format=torch.contiguous_format)
    _norm_kernel(norm, states, None, None, out)
    return out


def _norm_kernel(
    norm: "Norm", states: Tensor, added: Tensor | None, total: Tensor | None, out: Tensor
) -> None:
    """out = norm(states + added), total = states + added where asked for."""
    width = states.shape[1]
    tensors = (added, total, out, norm.weight, norm.bias)
    kernels.add_and_norm[(len(states),)](
        states, *(states if tensor is None else tensor for tensor in tensors),
        width, states.stride(0), norm.eps,
        W=triton.next_power_of_2(width), ADD=added is not None, KEEP=total is not None,
        CENTRED=norm.centred, WEIGHT=norm.weight is not None, BIAS=norm.bias is not None,
        num_warps=4,
    )  # fmt: skip
