"""Triton kernels of the forward pass. (Triton reads annotations, so there are none.)"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n_q", "blocks", "tokens_q", "tokens_k", "middle", "window"])
def attention(
    queries, keys, values, mixed, begins, lengths, sites,
    cos, sin, by_query, by_key, columns, bias,
    n_q, blocks, tokens_q, tokens_k, n_columns, middle, window,
    step_q, step_k, step_v, step_o, scale,
    Q: tl.constexpr, K: tl.constexpr, D: tl.constexpr, TF32: tl.constexpr, ONE: tl.constexpr,
    AT_SITES: tl.constexpr, ROTARY: tl.constexpr, WINDOW: tl.constexpr, BY_QUERY: tl.constexpr,
    BY_KEY: tl.constexpr, COLUMNS: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """A block of Q queries of one row and head, K keys at a time, softmax in float32.

    ONE: all keys are one block. Queries stand at every place, or n_q a row at sites. by_query and
    by_key (heads, tokens, n_columns) and bias (heads, n_columns) hold terms of each distance,
    i - j + middle, or of columns[that].
    """
    precision: tl.constexpr = "tf32" if TF32 else "ieee"
    H: tl.constexpr = D // 2
    row = tl.program_id(0) // blocks
    first_q = (tl.program_id(0) % blocks) * Q
    head = tl.program_id(1).to(tl.int64)
    begin = tl.load(begins + row).to(tl.int64)
    length = tl.load(lengths + row)
    q = first_q + tl.arange(0, Q)
    d = tl.arange(0, D)
    h = tl.arange(0, H)
    if AT_SITES:
        here = q < n_q
        at_q = row.to(tl.int64) * n_q + q
        place = tl.maximum(tl.load(sites + at_q, here, 0), 0).to(tl.int32)
    else:
        here = q < length
        at_q = begin + q
        place = q
    from_q = queries + at_q[:, None] * step_q + head * D
    if ROTARY:
        cos_ = tl.load(cos + place[:, None] * H + h[None, :], here[:, None], 0.0).to(tl.float32)
        sin_ = tl.load(sin + place[:, None] * H + h[None, :], here[:, None], 0.0).to(tl.float32)
        a = tl.load(from_q + h[None, :], here[:, None], 0.0).to(tl.float32)
        b = tl.load(from_q + H + h[None, :], here[:, None], 0.0).to(tl.float32)
        q_a = (a * cos_ - b * sin_).to(queries.dtype.element_ty)
        q_b = (b * cos_ + a * sin_).to(queries.dtype.element_ty)
    else:
        q_ = tl.load(from_q + d[None, :], here[:, None], 0.0)
    top = tl.full([Q], float("-inf"), tl.float32)
    total = tl.zeros([Q], tl.float32)
    out = tl.zeros([Q, D], tl.float32)
    if ONE:
        first = 0
        last = K
    else:
        first = 0
        last = length
        if WINDOW:
            first = tl.maximum(tl.min(tl.where(here, place, length)) - window, 0)
            last = tl.minimum(tl.max(tl.where(here, place, 0)) + window + 1, length)
        if not AT_SITES:
            last = tl.where(first_q < length, last, 0)
    for at in range(first, last, K):
        k = at + tl.arange(0, K)
        there = k < length
        at_k = begin + k
        from_k = keys + at_k[:, None] * step_k + head * D
        if ROTARY:
            # Names of their own: what stood before a loop must keep its shape in it.
            cos_k = tl.load(cos + k[:, None] * H + h[None, :], there[:, None], 0.0).to(tl.float32)
            sin_k = tl.load(sin + k[:, None] * H + h[None, :], there[:, None], 0.0).to(tl.float32)
            one = tl.load(from_k + h[None, :], there[:, None], 0.0).to(tl.float32)
            two = tl.load(from_k + H + h[None, :], there[:, None], 0.0).to(tl.float32)
            k_a = (one * cos_k - two * sin_k).to(keys.dtype.element_ty)
            k_b = (two * cos_k + one * sin_k).to(keys.dtype.element_ty)
            logits = tl.dot(q_a, tl.trans(k_a), input_precision=precision)
            logits += tl.dot(q_b, tl.trans(k_b), input_precision=precision)
        else:
            k_ = tl.load(from_k + d[None, :], there[:, None], 0.0)
            logits = tl.dot(q_, tl.trans(k_), input_precision=precision)
        logits = logits * scale
        seen = there[None, :]
        if BY_QUERY or BY_KEY or BIAS:
            both = here[:, None] & there[None, :]
            column = place[:, None] - k[None, :] + middle
            if COLUMNS:
                column = tl.load(columns + column, both, 0).to(tl.int32)
            if BY_QUERY:
                from_t = by_query + (head * tokens_q + at_q)[:, None] * n_columns
                logits += tl.load(from_t + column, both, 0.0).to(tl.float32)
            if BY_KEY:
                from_t = by_key + (head * tokens_k + at_k)[None, :] * n_columns
                logits += tl.load(from_t + column, both, 0.0).to(tl.float32)
            if BIAS:
                logits += tl.load(bias + head * n_columns + column, both, 0.0).to(tl.float32)
        if WINDOW:
            apart = place[:, None] - k[None, :]
            seen = seen & (apart <= window) & (apart >= -window)
        logits = tl.where(seen, logits, float("-inf"))
        above = tl.maximum(top, tl.max(logits, 1))
        # A query that sees no key of this block and none before it: nothing, and not 0 / 0.
        safe = tl.where(above == float("-inf"), 0.0, above)
        weights = tl.exp(logits - safe[:, None])
        values_ = tl.load(
            values + at_k[:, None] * step_v + head * D + d[None, :], there[:, None], 0.0
        )
        if ONE:
            total = tl.sum(weights, 1)
            out = tl.dot(weights.to(values_.dtype), values_, input_precision=precision)
        else:
            before = tl.exp(top - safe)
            total = total * before + tl.sum(weights, 1)
            out = out * before[:, None]
            out += tl.dot(weights.to(values_.dtype), values_, input_precision=precision)
            top = above
    out = out / tl.where(total == 0.0, 1.0, total)[:, None]
    into = mixed + at_q[:, None] * step_o + head * D + d[None, :]
    tl.store(into, out.to(mixed.dtype.element_ty), here[:, None])


@triton.jit
def add_and_norm(
    states, added, kept, normed, weight, bias, width, step, eps,
    W: tl.constexpr, ADD: tl.constexpr, KEEP: tl.constexpr, CENTRED: tl.constexpr,
    WEIGHT: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """One row: the norm of states (+ added) in float32, and the sum itself where it is kept.

    step is that of the rows of states; the others lie without gaps.
    """
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, W)
    there = at < width
    x = tl.load(states + row * step + at, there, 0.0).to(tl.float32)
    if ADD:
        x += tl.load(added + row * width + at, there, 0.0).to(tl.float32)
    if KEEP:
        tl.store(kept + row * width + at, x.to(kept.dtype.element_ty), there)
    if CENTRED:
        x = tl.where(there, x - tl.sum(x, 0) / width, 0.0)
    y = x * tl.rsqrt(tl.sum(x * x, 0) / width + eps)
    if WEIGHT:
        y *= tl.load(weight + at, there, 0.0).to(tl.float32)
    if BIAS:
        y += tl.load(bias + at, there, 0.0).to(tl.float32)
    tl.store(normed + row * width + at, y.to(normed.dtype.element_ty), there)


@triton.jit
def _activate(x, NAME: tl.constexpr):
    if NAME == "gelu":
        return x * 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
    elif NAME == "tanh":  # (1 + tanh u) / 2 is the logistic function of 2 u
        return x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    elif NAME == "silu":
        return x * tl.sigmoid(x)
    else:
        return tl.maximum(x, 0.0)


@triton.jit
def activate(states, count, NAME: tl.constexpr, B: tl.constexpr):
    """The activation, in place."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    x = tl.load(states + at, at < count, 0.0).to(tl.float32)
    tl.store(states + at, _activate(x, NAME).to(states.dtype.element_ty), at < count)


@triton.jit
def activate_gated(states, out, width, NAME: tl.constexpr, B: tl.constexpr):
    """act(a) * b of rows (a, b), each of that width."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * B + tl.arange(0, B)
    there = at < width
    a = tl.load(states + row * 2 * width + at, there, 0.0).to(tl.float32)
    b = tl.load(states + row * 2 * width + width + at, there, 0.0).to(tl.float32)
    y = _activate(a, NAME) * b
    tl.store(out + row * width + at, y.to(out.dtype.element_ty), there)
