"""The inverse-CDF draw on a CUDA device: one program per row, no sort, no transfer to the host.

The token wanted is the first, in order of decreasing score and then id, whose cumulative
probability exceeds u. Its score is found by bisection over the scores' bit patterns: the largest
pattern t such that the tokens with patterns >= t weigh more than u. All sums are in float64.
"""

from typing import Any

import torch
from torch import Tensor

from glauber.dynamics.fills import Drawn

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

BLOCK = 2048


def inverse_cdf(scores: Tensor, temperature: Tensor, u: Tensor, old: Tensor) -> Drawn:
    """Draws for scores (rows, vocab) with u (rows,) uniform in [0, 1)."""
    if triton is None or scores.dtype == torch.float64:
        return _by_sorting(scores, temperature, u, old)
    rows, vocab = scores.shape
    scores = scores.contiguous()
    tokens = torch.empty(rows, dtype=torch.int64, device=scores.device)
    figures = torch.empty(3, rows, dtype=torch.float64, device=scores.device)
    _draw[(rows,)](
        scores, temperature, u, old, tokens, *figures, vocab, B=BLOCK, num_warps=8
    )  # fmt: skip
    return Drawn(tokens, *figures)


def _by_sorting(scores: Tensor, temperature: Tensor, u: Tensor, old: Tensor) -> Drawn:
    laws = torch.log_softmax(scores.double() / temperature[:, None], dim=-1)
    order = scores.sort(dim=1, descending=True, stable=True).indices
    mass = laws.gather(1, order).exp().cumsum(dim=1)
    last = (laws > -torch.inf).sum(dim=1) - 1
    first = torch.minimum((mass <= u[:, None]).sum(dim=1), last)
    tokens = order.gather(1, first[:, None])
    surprise = torch.where(laws > -torch.inf, laws.exp() * laws, 0.0)
    return Drawn(
        tokens[:, 0],
        laws.gather(1, old[:, None])[:, 0],
        laws.gather(1, tokens)[:, 0],
        -surprise.sum(dim=-1),
    )


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _pattern(x: Any) -> Any:
        """Integers in the order of the floats (minus infinity is the smallest that occurs)."""
        bits = x.to(tl.float32).to(tl.int32, bitcast=True)
        return tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)

    @triton.jit  # type: ignore[untyped-decorator]
    def _block(scores: Any, at: Any, vocab: Any) -> Any:
        return tl.load(scores + at, at < vocab, float("-inf")).to(tl.float32)

    @triton.jit  # type: ignore[untyped-decorator]
    def _weights(x: Any, temperature: Any, top: Any) -> Any:
        """exp((x - top) / temperature) in float64; zero at minus infinity."""
        return tl.exp((x.to(tl.float64) - top) / temperature)

    @triton.jit  # type: ignore[untyped-decorator]
    def _draw(
        scores: Any, temperatures: Any, us: Any, olds: Any, tokens: Any,
        log_prob_old: Any, log_prob_new: Any, entropy: Any, vocab: tl.constexpr, B: tl.constexpr,
    ) -> None:  # fmt: skip
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
