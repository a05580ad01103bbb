"""Triton kernel of the inverse-CDF draw. (Triton reads annotations, so there are none.)

One program per row. The score of the wanted token is searched for in float32, which is fast, and
then proved in float64: the mass strictly above it is at most u, the mass down to it exceeds u. If
rounding led the search astray (once in a million draws), it is made again in float64.
"""

import triton
import triton.language as tl


@triton.jit
def _key(x, SHIFT: tl.constexpr):
    """Integers in the order of the floats; bfloat16 needs only its own 16 bits (SHIFT = 16)."""
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF) >> SHIFT


@triton.jit
def _block(scores, at, vocab):
    x = tl.load(scores + at, at < vocab, float("-inf")).to(tl.float32)
    return tl.where(x == 0.0, 0.0, x)  # minus zero has another bit pattern


@triton.jit
def _mass_above(
    scores, found, cold, top, vocab: tl.constexpr, SHIFT: tl.constexpr, B: tl.constexpr
):
    """Mass strictly above the score with this key, how many tokens have it, and the score."""
    lanes = tl.arange(0, B)
    part = tl.zeros((B,), tl.float64)
    count = tl.zeros((B,), tl.int32)
    value = tl.full((B,), float("-inf"), tl.float32)
    for first in range(0, vocab, B):
        x = _block(scores, first + lanes, vocab)
        key = _key(x, SHIFT)
        w = tl.exp((x.to(tl.float64) - top) * cold)
        part += tl.where(key > found, w, 0.0)
        count += (key == found).to(tl.int32)
        value = tl.maximum(value, tl.where(key == found, x, float("-inf")))
    return tl.sum(part, 0), tl.sum(count, 0), tl.max(value, 0).to(tl.float64)


@triton.jit
def draw(
    scores, temperatures, us, olds, tokens, log_prob_old, log_prob_new, entropy,
    vocab: tl.constexpr, SHIFT: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    scores += row * vocab
    cold = 1.0 / tl.load(temperatures + row)
    lanes = tl.arange(0, B)
    # Largest and smallest score that occur.
    high = tl.full((B,), float("-inf"), tl.float32)
    low = tl.full((B,), float("inf"), tl.float32)
    for first in range(0, vocab, B):
        x = _block(scores, first + lanes, vocab)
        high = tl.maximum(high, x)
        low = tl.minimum(low, tl.where(x == float("-inf"), float("inf"), x))
    most = tl.max(high, 0)
    least = tl.min(low, 0)
    top = most.to(tl.float64)
    # Normaliser, and the mean exponent for the entropy, in float64.
    mass = tl.zeros((B,), tl.float64)
    mean = tl.zeros((B,), tl.float64)
    for first in range(0, vocab, B):
        x = _block(scores, first + lanes, vocab)
        exponent = (x.to(tl.float64) - top) * cold
        w = tl.exp(exponent)
        mass += w
        mean += tl.where(w > 0, w * exponent, 0.0)
    total = tl.sum(mass, 0)
    log_total = tl.log(total)
    tl.store(entropy + row, log_total - tl.sum(mean, 0) / total)
    # Search in float32, four parts at a time: the largest key with more than u at or above it.
    target = tl.load(us + row) * total
    aim = target.to(tl.float32)
    about = cold.to(tl.float32)
    below = _key(least, SHIFT).to(tl.int64)
    above = _key(most, SHIFT).to(tl.int64) + 1
    while above - below > 1:
        span = above - below
        one = below + tl.maximum(span // 4, 1)
        two = below + tl.maximum(span // 2, 1)
        three = below + tl.maximum(3 * span // 4, 1)
        from_one = tl.zeros((B,), tl.float32)
        from_two = tl.zeros((B,), tl.float32)
        from_three = tl.zeros((B,), tl.float32)
        for first in range(0, vocab, B):
            x = _block(scores, first + lanes, vocab)
            key = _key(x, SHIFT)
            w = tl.exp((x - most) * about)
            from_one += tl.where(key >= one.to(tl.int32), w, 0.0)
            from_two += tl.where(key >= two.to(tl.int32), w, 0.0)
            from_three += tl.where(key >= three.to(tl.int32), w, 0.0)
        if tl.sum(from_three, 0) > aim:
            below = three
        elif tl.sum(from_two, 0) > aim:
            below = two
            above = three
        elif tl.sum(from_one, 0) > aim:
            below = one
            above = two
        else:
            above = one
    # Prove it in float64, or search again in float64.
    found = below.to(tl.int32)
    strictly, ties, score = _mass_above(scores, found, cold, top, vocab, SHIFT, B)
    each = tl.exp((score - top) * cold)
    if (strictly > target) | (strictly + each * ties <= target):
        below = _key(least, SHIFT).to(tl.int64)
        above = _key(most, SHIFT).to(tl.int64) + 1
        while above - below > 1:
            middle = (above + below) // 2
            part = tl.zeros((B,), tl.float64)
            for first in range(0, vocab, B):
                x = _block(scores, first + lanes, vocab)
                w = tl.exp((x.to(tl.float64) - top) * cold)
                part += tl.where(_key(x, SHIFT) >= middle.to(tl.int32), w, 0.0)
            if tl.sum(part, 0) > target:
                below = middle
            else:
                above = middle
        found = below.to(tl.int32)
        strictly, ties, score = _mass_above(scores, found, cold, top, vocab, SHIFT, B)
        each = tl.exp((score - top) * cold)
    # Among the tokens with this score, by id.
    wanted = tl.floor((target - strictly) / each)
    wanted = tl.minimum(tl.maximum(wanted, 0.0), (ties - 1).to(tl.float64)).to(tl.int32)
    seen = tl.zeros((), tl.int32)
    token = tl.zeros((), tl.int32)
    for first in range(0, vocab, B):
        x = _block(scores, first + lanes, vocab)
        tied = (_key(x, SHIFT) == found).to(tl.int32)
        rank = seen + tl.cumsum(tied, 0)
        hit = (tied > 0) & (rank == wanted + 1)
        token += tl.sum(tl.where(hit, first + lanes, 0), 0)
        seen += tl.sum(tied, 0)
    tl.store(tokens + row, token.to(tl.int64))
    tl.store(log_prob_new + row, (score - top) * cold - log_total)
    held = tl.load(scores + tl.load(olds + row)).to(tl.float64)
    tl.store(log_prob_old + row, (held - top) * cold - log_total)
