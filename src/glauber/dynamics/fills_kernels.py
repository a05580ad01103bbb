"""Triton kernel of the inverse-CDF draw. (Triton reads annotations, so there are none.)"""

import triton
import triton.language as tl


@triton.jit
def _pattern(x):
    """Integers in the order of the floats (minus infinity is the smallest that occurs)."""
    bits = x.to(tl.float32).to(tl.int32, bitcast=True)
    return tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)


@triton.jit
def _block(scores, at, vocab):
    return tl.load(scores + at, at < vocab, float("-inf")).to(tl.float32)


@triton.jit
def _weights(x, temperature, top):
    """exp((x - top) / temperature) in float64; zero at minus infinity."""
    return tl.exp((x.to(tl.float64) - top) / temperature)


@triton.jit
def draw(
    scores, temperatures, us, olds, tokens,
    log_prob_old, log_prob_new, entropy, vocab: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    scores += row * vocab
    temperature = tl.load(temperatures + row)
    lanes = tl.arange(0, B)
    # Largest score, and the range of patterns that occur.
    high = tl.full((B,), float("-inf"), tl.float32)
    low = tl.full((B,), float("inf"), tl.float32)
    for first in range(0, vocab, B):
        x = _block(scores, first + lanes, vocab)
        high = tl.maximum(high, x)
        low = tl.minimum(low, tl.where(x == float("-inf"), float("inf"), x))
    most = tl.max(high, 0)
    top = most.to(tl.float64)
    # Normaliser, and the mean exponent for the entropy.
    mass = tl.zeros((B,), tl.float64)
    mean = tl.zeros((B,), tl.float64)
    for first in range(0, vocab, B):
        x = _block(scores, first + lanes, vocab)
        w = _weights(x, temperature, top)
        mass += w
        mean += tl.where(w > 0, w * ((x.to(tl.float64) - top) / temperature), 0.0)
    total = tl.sum(mass, 0)
    log_total = tl.log(total)
    tl.store(entropy + row, log_total - tl.sum(mean, 0) / total)
    # The largest pattern with more than u of the mass at or above it.
    target = tl.load(us + row) * total
    below = _pattern(tl.min(low, 0)).to(tl.int64)
    above = _pattern(most).to(tl.int64) + 1
    while above - below > 1:
        middle = (above + below) // 2
        part = tl.zeros((B,), tl.float64)
        for first in range(0, vocab, B):
            x = _block(scores, first + lanes, vocab)
            inside = _pattern(x).to(tl.int64) >= middle
            if tl.max(inside.to(tl.int32), 0) > 0:
                part += tl.where(inside, _weights(x, temperature, top), 0.0)
        if tl.sum(part, 0) > target:
            below = middle
        else:
            above = middle
    # Mass strictly above that score; then the tokens that share it, by id.
    part = tl.zeros((B,), tl.float64)
    ties = tl.zeros((B,), tl.int32)
    value = tl.full((B,), float("-inf"), tl.float32)
    for first in range(0, vocab, B):
        x = _block(scores, first + lanes, vocab)
        pattern = _pattern(x).to(tl.int64)
        part += tl.where(pattern > below, _weights(x, temperature, top), 0.0)
        ties += (pattern == below).to(tl.int32)
        value = tl.maximum(value, tl.where(pattern == below, x, float("-inf")))
    score = tl.max(value, 0).to(tl.float64)
    each = tl.exp((score - top) / temperature)
    wanted = tl.floor((target - tl.sum(part, 0)) / each).to(tl.int64)
    wanted = tl.minimum(tl.maximum(wanted, 0), tl.sum(ties, 0).to(tl.int64) - 1)
    seen = tl.zeros((), tl.int64)
    token = tl.zeros((), tl.int64)
    for first in range(0, vocab, B):
        x = _block(scores, first + lanes, vocab)
        tied = (_pattern(x).to(tl.int64) == below).to(tl.int64)
        rank = seen + tl.cumsum(tied, 0)
        hit = (tied > 0) & (rank == wanted + 1)
        token += tl.sum(tl.where(hit, (first + lanes).to(tl.int64), 0), 0)
        seen += tl.sum(tied, 0)
    tl.store(tokens + row, token)
    tl.store(log_prob_new + row, (score - top) / temperature - log_total)
    held = tl.load(scores + tl.load(olds + row)).to(tl.float64)
    tl.store(log_prob_old + row, (held - top) / temperature - log_total)
