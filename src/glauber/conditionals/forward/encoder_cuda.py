"""The BERT-shaped forward pass on a CUDA device.

Matrix products go to cuBLAS. What stands between them is fused by three small Triton kernels:
attention for short sequences (one program per row and head, the whole sequence in registers),
residual plus layer norm, and the activation (in bfloat16 cuBLAS does it with the product). Without
Triton, or for long sequences, PyTorch's own operators do the same.
"""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from glauber.conditionals.forward.encoder import Encoder, normed

if TYPE_CHECKING:
    from glauber.conditionals.forward.description import Description, Layer, Norm

try:
    import triton

    from glauber.conditionals.forward import encoder_kernels as kernels
except ImportError:  # PyTorch for CPU or Windows brings none
    triton = None

LONGEST = 128  # longest sequence that the short attention kernel takes


def forward(encoder: "Description", tokens: Tensor, sites: Tensor) -> Tensor:
    """Hidden states at the sites, (rows, k, d)."""
    states = Encoder(encoder).embed(tokens).flatten(0, 1)  # (rows length, d)
    lengths = (tokens >= 0).sum(dim=1, dtype=torch.int32)
    for layer in encoder.layers[:-1]:
        together = torch.addmm(
            layer.queries_keys_values.bias, states, layer.queries_keys_values.weight.t()
        )
        queries, keys, values = together.chunk(3, dim=1)
        mixed = _attend(encoder, queries, keys, values, lengths)
        states = _finish(encoder, layer, states, mixed)
    return _at_sites(encoder, encoder.layers[-1], states, sites, lengths)


def _at_sites(
    encoder: "Description", layer: "Layer", states: Tensor, sites: Tensor, lengths: Tensor
) -> Tensor:
    """The last layer at the sites only: states (rows length, d) -> (rows, k, d)."""
    (rows, k), width = sites.shape, states.shape[1]
    weight, bias = layer.queries_keys_values
    first = torch.arange(rows, device=sites.device)[:, None] * (len(states) // rows)
    there = states[(first + sites.clamp(min=0)).flatten()]
    queries = torch.addmm(bias[:width], there, weight[:width].t())
    keys, values = torch.addmm(bias[width:], states, weight[width:].t()).chunk(2, dim=1)
    mixed = _attend(encoder, queries, keys, values, lengths)
    return _finish(encoder, layer, there, mixed).view(rows, k, width)


def _finish(encoder: "Description", layer: "Layer", states: Tensor, mixed: Tensor) -> Tensor:
    added = torch.addmm(layer.attended.bias, mixed, layer.attended.weight.t())
    states = _add_and_norm(states, added, layer.norm_attended)
    added = torch.addmm(layer.out.bias, _between(layer, states), layer.out.weight.t())
    return _add_and_norm(states, added, layer.norm_out)


def _attend(
    encoder: "Description", queries: Tensor, keys: Tensor, values: Tensor, lengths: Tensor
) -> Tensor:
    """Attention of (rows q, d) on (rows length, d) -> (rows q, d); parts of wider rows are fine."""
    rows, heads = len(lengths), encoder.heads
    q, length, width = len(queries) // rows, len(keys) // rows, queries.shape[1]
    size = width // heads
    fits = triton is not None and max(q, length) <= LONGEST and size in (16, 32, 64, 128)
    if not fits or queries.dtype == torch.float64:
        return _attend_plainly(queries, keys, values, lengths, heads)
    mixed = torch.empty(rows * q, width, dtype=queries.dtype, device=queries.device)
    block_q, block_k = max(16, triton.next_power_of_2(q)), max(16, triton.next_power_of_2(length))
    kernels.short_attention[(rows, heads)](
        queries, keys, values, mixed, lengths, q, length,
        queries.stride(0), keys.stride(0), values.stride(0), mixed.stride(0), size**-0.5,
        Q=block_q, K=block_k, D=size, TF32=queries.dtype != torch.float32,
        num_warps=1 if block_k <= 32 else 4,
    )  # fmt: skip
    return mixed


def _attend_plainly(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, heads: int
) -> Tensor:
    def split(x: Tensor) -> Tensor:
        return x.view(len(lengths), -1, heads, x.shape[1] // heads).transpose(1, 2)

    there = torch.arange(len(keys) // len(lengths), device=lengths.device) < lengths[:, None]
    mixed = F.scaled_dot_product_attention(
        split(queries), split(keys), split(values), attn_mask=there[:, None, None, :]
    )
    return mixed.transpose(1, 2).reshape(len(queries), -1)


def _add_and_norm(states: Tensor, added: Tensor, norm: "Norm") -> Tensor:
    """Layer norm of states + added, in place of added."""
    width = states.shape[1]
    if triton is None or states.dtype == torch.float64:
        return normed(norm, states + added)
    kernels.add_and_norm[(len(states),)](
        states, added, norm.weight, norm.bias, width, norm.eps,
        W=triton.next_power_of_2(width), num_warps=4,
    )  # fmt: skip
    return added


def _between(layer: "Layer", states: Tensor) -> Tensor:
    """The first product of the feed-forward and its activation."""
    weight, bias = layer.between
    if states.dtype == torch.bfloat16:
        # cuBLAS applies a gelu as it writes, by the tanh formula: on the bundled model that moves a
        # conditional by 0.001 in total variation, where bfloat16 itself moves it by 0.009.
        return torch._addmm_activation(bias, states, weight.t(), use_gelu=True)
    return _gelu_(torch.addmm(bias, states, weight.t()))


def _gelu_(states: Tensor) -> Tensor:
    if triton is None or states.dtype == torch.float64:
        return F.gelu(states)
    kernels.gelu[(triton.cdiv(states.numel(), 4096),)](states, states.numel(), B=4096, num_warps=8)
    return states
