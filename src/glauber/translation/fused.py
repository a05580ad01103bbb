"""How does a GPU train on short sentences without waiting for memory?

Attention and the cross-entropy over the vocabulary as one Triton kernel each way. The arithmetic is
that of PyTorch's own operators, up to rounding; attention has no dropout here. Without Triton, or
where a shape does not fit, the callers take PyTorch's.
"""

from typing import Any

import torch
from torch import Tensor

try:
    import triton

    from glauber.translation import kernels
except ImportError:  # PyTorch for CPU or Windows brings none
    triton = None

LONGEST = 128  # positions that one program holds
WIDEST = 2**15  # scores that one program holds


def attention_fits(query: Tensor, key: Tensor) -> bool:
    """Whether the short kernel takes such queries and keys, (rows, heads, length, size)."""
    short = max(query.shape[2], key.shape[2]) <= LONGEST and query.shape[3] in (16, 32, 64)
    return triton is not None and query.is_cuda and short and query.dtype != torch.float64


def attention(query: Tensor, key: Tensor, value: Tensor, visible: Tensor) -> Tensor:
    """As scaled_dot_product_attention; all (rows, heads, length, size), visible (rows, 1, 1, k)."""
    mixed: Tensor = _Attention.apply(query, key, value, visible)
    return mixed


def cross_entropy_fits(scores: Tensor) -> bool:
    """Whether the kernel takes such scores, (positions, vocab)."""
    return triton is not None and scores.is_cuda and scores.shape[1] <= WIDEST


def cross_entropy(scores: Tensor, labels: Tensor, smoothing: float, ignored: int) -> Tensor:
    """Smoothed mean over the labels (positions,) that are not the ignored one."""
    loss: Tensor = _CrossEntropy.apply(scores, labels, smoothing, ignored)
    return loss


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, visible: Tensor) -> Tensor:
        value = value.to(query.dtype)
        rows, heads, n_q, size = query.shape
        seen = visible.reshape(rows, -1).to(torch.uint8)
        mixed = query.new_empty(rows, n_q, heads, size).transpose(1, 2)
        kernels.attend[(rows * heads,)](
            query, key, value, seen, mixed, heads, n_q, key.shape[2], size**-0.5,
            *_strides(query, key, value, mixed), seen.stride(0), **_blocks(query, key),
        )  # fmt: skip
        ctx.save_for_backward(query, key, value, seen)
        return mixed

    @staticmethod
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, seen = ctx.saved_tensors
        given = given if given.stride(-1) == 1 else given.contiguous()
        rows, heads, n_q, size = query.shape
        made = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (query, key, value)]
        kernels.attend_back[(rows * heads,)](
            query, key, value, seen, given, *made, heads, n_q, key.shape[2], size**-0.5,
            *_strides(query, key, value, given), seen.stride(0), **_blocks(query, key),
        )  # fmt: skip
        return (*made, None)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, labels: Tensor, smoothing: float, ignored: int) -> Tensor:
        scores = scores.contiguous()
        gradient = torch.empty_like(scores)
        loss = torch.empty(len(labels), dtype=torch.float32, device=scores.device)
        wide = triton.next_power_of_2(scores.shape[1])
        kernels.cross_entropy[(len(labels),)](
            scores, labels, loss, gradient, scores.shape[1], smoothing, PAD=ignored, V=wide,
            num_warps=8,
        )  # fmt: skip
        count = (labels != ignored).sum()
        ctx.save_for_backward(gradient, count)
        return loss.sum() / count

    @staticmethod
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        gradient, count = ctx.saved_tensors
        return gradient * (given / count).to(gradient.dtype), None, None, None


def _strides(*parts: Tensor) -> list[int]:
    """Of rows, heads and positions of each part."""
    return [stride for part in parts for stride in part.stride()[:3]]


def _blocks(query: Tensor, key: Tensor) -> dict[str, Any]:
    q, k = (max(16, triton.next_power_of_2(part.shape[2])) for part in (query, key))
    return {
        "Q": q,
        "K": k,
        "D": query.shape[3],
        "EXACT": query.dtype == torch.float32,
        "num_warps": 1 if q * k <= 1024 else 4,
    }
