"""Triton kernels of a translator's training. (Triton reads annotations, so there are none.)

Sentences are short: one program holds all positions of one row and head, or all scores of one
position, in registers, and reads and writes each number once.
"""

import triton
import triton.language as tl


@triton.jit
def attend(
    query, key, value, visible, mixed, heads, n_q, n_k, scale,
    q_row, q_head, q_at, k_row, k_head, k_at, v_row, v_head, v_at, o_row, o_head, o_at, m_row,
    Q: tl.constexpr, K: tl.constexpr, D: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """softmax(Q K^T scale) V over what is visible, for one row and head."""
    row, head = tl.program_id(0).to(tl.int64) // heads, tl.program_id(0) % heads
    precision: tl.constexpr = "ieee" if EXACT else "tf32"
    q, k, d = tl.arange(0, Q), tl.arange(0, K), tl.arange(0, D)
    here, there = q < n_q, tl.load(visible + row * m_row + k, k < n_k, 0) != 0
    at_q = q[:, None] * q_at + d[None, :]
    at_k, at_v = k[:, None] * k_at + d[None, :], k[:, None] * v_at + d[None, :]
    queries = tl.load(query + row * q_row + head * q_head + at_q, here[:, None], 0.0)
    keys = tl.load(key + row * k_row + head * k_head + at_k, (k < n_k)[:, None], 0.0)
    values = tl.load(value + row * v_row + head * v_head + at_v, (k < n_k)[:, None], 0.0)
    scores = tl.dot(queries, tl.trans(keys), input_precision=precision) * scale
    scores = tl.where(there[None, :], scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    weights = weights / tl.sum(weights, 1)[:, None]
    out = tl.dot(weights.to(values.dtype), values, input_precision=precision)
    at_o = q[:, None] * o_at + d[None, :]
    tl.store(mixed + row * o_row + head * o_head + at_o, out.to(values.dtype), here[:, None])


@triton.jit
def attend_back(
    query, key, value, visible, given, d_query, d_key, d_value, heads, n_q, n_k, scale,
    q_row, q_head, q_at, k_row, k_head, k_at, v_row, v_head, v_at, g_row, g_head, g_at, m_row,
    Q: tl.constexpr, K: tl.constexpr, D: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Gradients for one row and head; they are laid out (rows, positions, heads, D)."""
    row, head = tl.program_id(0).to(tl.int64) // heads, tl.program_id(0) % heads
    precision: tl.constexpr = "ieee" if EXACT else "tf32"
    q, k, d = tl.arange(0, Q), tl.arange(0, K), tl.arange(0, D)
    here, inside = (q < n_q)[:, None], (k < n_k)[:, None]
    there = tl.load(visible + row * m_row + k, k < n_k, 0) != 0
    at_q, at_g = q[:, None] * q_at + d[None, :], q[:, None] * g_at + d[None, :]
    at_k, at_v = k[:, None] * k_at + d[None, :], k[:, None] * v_at + d[None, :]
    queries = tl.load(query + row * q_row + head * q_head + at_q, here, 0.0)
    keys = tl.load(key + row * k_row + head * k_head + at_k, inside, 0.0)
    values = tl.load(value + row * v_row + head * v_head + at_v, inside, 0.0)
    gradient = tl.load(given + row * g_row + head * g_head + at_g, here, 0.0)
    scores = tl.dot(queries, tl.trans(keys), input_precision=precision) * scale
    scores = tl.where(there[None, :], scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    weights = weights / tl.sum(weights, 1)[:, None]
    weights = tl.where(here, weights, 0.0)
    of_values = tl.dot(tl.trans(weights.to(values.dtype)), gradient, input_precision=precision)
    of_weights = tl.dot(gradient, tl.trans(values), input_precision=precision)
    of_scores = weights * (of_weights - tl.sum(of_weights * weights, 1)[:, None]) * scale
    of_scores = of_scores.to(values.dtype)
    of_queries = tl.dot(of_scores, keys, input_precision=precision)
    of_keys = tl.dot(tl.trans(of_scores), queries, input_precision=precision)
    flat_q = ((row * n_q + q[:, None]) * heads + head) * D + d[None, :]
    flat_k = ((row * n_k + k[:, None]) * heads + head) * D + d[None, :]
    kind = values.dtype
    tl.store(d_query + flat_q, of_queries.to(kind), here)
    tl.store(d_key + flat_k, of_keys.to(kind), inside)
    tl.store(d_value + flat_k, of_values.to(kind), inside)


@triton.jit
def normalise(
    x, weight, bias, out, mean, scale, n_rows, width, eps, R: tl.constexpr, W: tl.constexpr
):
    """Layer norm of R rows, in float32; keeps each row's mean and scale for the way back."""
    row = (tl.program_id(0) * R + tl.arange(0, R)).to(tl.int64)
    at = tl.arange(0, W)
    inside = (row < n_rows)[:, None] & (at < width)[None, :]
    place = row[:, None] * width + at[None, :]
    here = tl.load(x + place, inside, 0.0).to(tl.float32)
    middle = tl.sum(here, 1) / width
    centred = tl.where(inside, here - middle[:, None], 0.0)
    spread = tl.rsqrt(tl.sum(centred * centred, 1) / width + eps)
    y = centred * spread[:, None] * tl.load(weight + at, at < width, 0.0)[None, :]
    y += tl.load(bias + at, at < width, 0.0)[None, :]
    tl.store(out + place, y.to(out.dtype.element_ty), inside)
    tl.store(mean + row, middle, row < n_rows)
    tl.store(scale + row, spread, row < n_rows)


@triton.jit
def normalise_back(
    given, x, weight, mean, scale, d_x, parts, n_rows, width, n_programs,
    R: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Gradients of many rows, and this program's part of those of weight and bias."""
    pid = tl.program_id(0)
    at = tl.arange(0, W)
    wide = at < width
    scales = tl.load(weight + at, wide, 0.0)
    of_weight, of_bias = tl.zeros((W,), tl.float32), tl.zeros((W,), tl.float32)
    for first in range(pid * R, n_rows, n_programs * R):
        row = (first + tl.arange(0, R)).to(tl.int64)
        inside = (row < n_rows)[:, None] & wide[None, :]
        place = row[:, None] * width + at[None, :]
        gradient = tl.load(given + place, inside, 0.0).to(tl.float32)
        here = tl.load(x + place, inside, 0.0).to(tl.float32)
        middle, spread = tl.load(mean + row, row < n_rows, 0.0), tl.load(scale + row, row < n_rows)
        normal = tl.where(inside, (here - middle[:, None]) * spread[:, None], 0.0)
        of_weight += tl.sum(gradient * normal, 0)
        of_bias += tl.sum(gradient, 0)
        back = gradient * scales[None, :]
        along = tl.sum(back * normal, 1) / width
        back = (back - (tl.sum(back, 1) / width)[:, None] - normal * along[:, None]) * spread[
            :, None
        ]
        tl.store(d_x + place, back.to(d_x.dtype.element_ty), inside)
    tl.store(parts + pid * width + at, of_weight, wide)
    tl.store(parts + (n_programs + pid) * width + at, of_bias, wide)


@triton.jit
def cross_entropy(
    scores, labels, loss, log_mass, vocab, smoothing, PAD: tl.constexpr, V: tl.constexpr
):
    """Smoothed cross-entropy of one position; nothing where the label is PAD."""
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    at = tl.arange(0, V)
    inside = at < vocab
    x = tl.load(scores + row * vocab + at, inside, float("-inf")).to(tl.float32)
    top = tl.max(x, 0)
    total = top + tl.log(tl.sum(tl.exp(x - top), 0))
    held = tl.sum(tl.where(at == label, x, 0.0), 0)
    mean = tl.sum(tl.where(inside, x, 0.0), 0) / vocab
    value = total - (1 - smoothing) * held - smoothing * mean
    tl.store(loss + row, tl.where(label != PAD, value, 0.0))
    tl.store(log_mass + row, total)


@triton.jit
def cross_entropy_back(
    scores, labels, log_mass, given, gradient, vocab, smoothing,
    PAD: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """Its gradient times the one number `given`."""
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    at = tl.arange(0, V)
    x = tl.load(scores + row * vocab + at, at < vocab, float("-inf")).to(tl.float32)
    slope = tl.exp(x - tl.load(log_mass + row)) - smoothing / vocab
    slope -= tl.where(at == label, 1 - smoothing, 0.0)
    slope = tl.where(label != PAD, slope * tl.load(given), 0.0)
    tl.store(gradient + row * vocab + at, slope.to(gradient.dtype.element_ty), at < vocab)


@triton.jit
def likely(scores, words, log_probs, vocab, FIRST: tl.constexpr, V: tl.constexpr):
    """The most likely of the tokens from FIRST on at one position, and its log-probability."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, V)
    inside = (at >= FIRST) & (at < vocab)
    x = tl.load(scores + row * vocab + at, inside, float("-inf")).to(tl.float32)
    top = tl.max(x, 0)
    tl.store(words + row, tl.argmax(x, 0).to(tl.int64))
    tl.store(log_probs + row, -tl.log(tl.sum(tl.exp(x - top), 0)))
