"""How does a GPU train on short sentences without waiting for memory?

Attention, layer norm and the cross-entropy over the vocabulary as one Triton kernel each way. The
arithmetic is that of PyTorch's own operators, up to rounding; attention has no dropout here.
Without Triton, or where a shape does not fit, the callers take PyTorch's.
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
PROGRAMS = 512  # that share the way back through a layer norm
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


def likely(scores: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """Of scores (rows, length, vocab) the likeliest token from `first` on, and its log-probability.

    Where `cross_entropy_fits`.
    """
    flat = scores.flatten(0, 1).contiguous()
    words = torch.empty(len(flat), dtype=torch.int64, device=flat.device)
    sure = torch.empty(len(flat), dtype=torch.float32, device=flat.device)
    vocab = flat.shape[1]
    kernels.likely[(len(flat),)](flat, words, sure, vocab, FIRST=first, **_wide(vocab))
    return words.view(scores.shape[:2]), sure.view(scores.shape[:2])


def norm_fits(states: Tensor) -> bool:
    """Whether the kernel takes such states, (..., width)."""
    return triton is not None and states.is_cuda and states.shape[-1] <= WIDEST


def layer_norm(states: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Layer norm over the last dimension, in the kind of number that autocast asks for."""
    mixed = torch.is_autocast_enabled("cuda")
    kind = torch.get_autocast_dtype("cuda") if mixed else states.dtype
    normed: Tensor = _LayerNorm.apply(states, weight, bias, eps, kind)
    return normed


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
        made = [
            torch.empty(rows, part.shape[2], heads, size, dtype=part.dtype, device=part.device)
            for part in (query, key, value)
        ]
        kernels.attend_back[(rows * heads,)](
            query, key, value, seen, given, *made, heads, n_q, key.shape[2], size**-0.5,
            *_strides(query, key, value, given), seen.stride(0), **_blocks(query, key),
        )  # fmt: skip
        return (*(part.transpose(1, 2) for part in made), None)


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, eps: float, kind: torch.dtype
    ) -> Tensor:
        states = states.contiguous()
        width, n_rows = states.shape[-1], states.numel() // states.shape[-1]
        out = torch.empty_like(states, dtype=kind)
        mean, scale = torch.empty(2, n_rows, dtype=torch.float32, device=states.device)
        blocks = _rows(width)
        kernels.normalise[(triton.cdiv(n_rows, blocks["R"]),)](
            states, weight, bias, out, mean, scale, n_rows, width, eps, **blocks
        )
        ctx.save_for_backward(states, weight, mean, scale)
        return out

    @staticmethod
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, mean, scale = ctx.saved_tensors
        width, made = states.shape[-1], torch.empty_like(states)
        parts = torch.empty(2, PROGRAMS, width, dtype=torch.float32, device=states.device)
        kernels.normalise_back[(PROGRAMS,)](
            given.contiguous(), states, weight, mean, scale, made, parts, len(mean), width,
            PROGRAMS, **_rows(width),
        )  # fmt: skip
        return (made, *parts.sum(1), None, None)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, labels: Tensor, smoothing: float, ignored: int) -> Tensor:
        scores, vocab = scores.contiguous(), scores.shape[1]
        loss, log_mass = torch.empty(2, len(labels), dtype=torch.float32, device=scores.device)
        kernels.cross_entropy[(len(labels),)](
            scores, labels, loss, log_mass, vocab, smoothing, PAD=ignored, **_wide(vocab)
        )
        count = (labels != ignored).sum()
        ctx.save_for_backward(scores, labels, log_mass, count)
        ctx.smoothing, ctx.ignored = smoothing, ignored
        return loss.sum() / count

    @staticmethod
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        scores, labels, log_mass, count = ctx.saved_tensors
        gradient, vocab = torch.empty_like(scores), scores.shape[1]
        kernels.cross_entropy_back[(len(labels),)](
            scores, labels, log_mass, given / count, gradient, vocab, ctx.smoothing,
            PAD=ctx.ignored, **_wide(vocab),
        )  # fmt: skip
        return gradient, None, None, None


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


def _wide(vocab: int) -> dict[str, Any]:
    return {"V": triton.next_power_of_2(vocab), "num_warps": 8}


def _rows(width: int) -> dict[str, Any]:
    """As many rows at once as make 2,048 numbers."""
    wide = triton.next_power_of_2(width)
    return {"R": max(1, 2048 // wide), "W": wide, "num_warps": 4}
