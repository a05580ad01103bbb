"""Triton kernels of the BERT-shaped forward pass. (Triton reads annotations, so there are none.)"""

import triton
import triton.language as tl


@triton.jit
def short_attention(
    queries, keys, values, mixed, lengths, n_q, n_k,
    step_q, step_k, step_v, step_o, scale,
    Q: tl.constexpr, K: tl.constexpr, D: tl.constexpr, TF32: tl.constexpr,
):  # fmt: skip
    """One row and head: the whole sequence at once, softmax in float32."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    precision: tl.constexpr = "tf32" if TF32 else "ieee"
    q = tl.arange(0, Q)
    k = tl.arange(0, K)
    d = head * D + tl.arange(0, D)
    there = k < tl.load(lengths + row)
    here = q < n_q
    at_k = (row * n_k + k)[:, None]
    queries_ = tl.load(queries + (row * n_q + q)[:, None] * step_q + d[None, :], here[:, None], 0.0)
    keys_ = tl.load(keys + at_k * step_k + d[None, :], there[:, None], 0.0)
    logits = tl.dot(queries_, tl.trans(keys_), input_precision=precision) * scale
    logits = tl.where(there[None, :], logits, float("-inf"))
    weights = tl.exp(logits - tl.max(logits, 1)[:, None])
    weights = weights / tl.sum(weights, 1)[:, None]
    values_ = tl.load(values + at_k * step_v + d[None, :], there[:, None], 0.0)
    out = tl.dot(weights.to(values_.dtype), values_, input_precision=precision)
    place = (row * n_q + q)[:, None] * step_o + d[None, :]
    tl.store(mixed + place, out.to(values_.dtype), here[:, None])


@triton.jit
def add_and_norm(states, added, weight, bias, width, eps, W: tl.constexpr):
    """One row: layer norm of the sum, in float32, written over added."""
    row = tl.program_id(0).to(tl.int64) * width
    at = tl.arange(0, W)
    there = at < width
    x = tl.load(states + row + at, there, 0.0).to(tl.float32)
    x += tl.load(added + row + at, there, 0.0).to(tl.float32)
    mean = tl.sum(x, 0) / width
    centred = tl.where(there, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / width + eps)
    y = centred * scale * tl.load(weight + at, there, 0.0).to(tl.float32)
    y += tl.load(bias + at, there, 0.0).to(tl.float32)
    tl.store(added + row + at, y.to(added.dtype.element_ty), there)


@triton.jit
def gelu(states, count, B: tl.constexpr):
    """x times the normal CDF at x, in place."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    x = tl.load(states + at, at < count, 0.0).to(tl.float32)
    y = x * 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(states + at, y.to(states.dtype.element_ty), at < count)
