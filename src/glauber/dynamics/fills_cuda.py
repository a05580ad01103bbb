"""The inverse-CDF draw on a CUDA device: one program per row, no sort, no transfer to the host.

The token wanted is the first, in order of decreasing score and then id, whose cumulative
probability exceeds u. Its score is searched for over the scores' bit patterns: the largest t such
that the tokens with patterns >= t weigh more than u. What decides is summed in float64.
"""

import torch
from torch import Tensor

from glauber.dynamics.fills import Drawn

try:
    from glauber.dynamics import fills_kernels as kernels
except ImportError:  # PyTorch for CPU or Windows brings no Triton
    kernels = None  # type: ignore[assignment]

BLOCK, WARPS = 1024, 4  # scores that one program holds at a time, and its warps


def inverse_cdf(scores: Tensor, temperature: Tensor, u: Tensor, old: Tensor) -> Drawn:
    """Draws for scores (rows, vocab) with u (rows,) uniform in [0, 1)."""
    if kernels is None or scores.dtype == torch.float64:
        return _by_sorting(scores, temperature, u, old)
    rows, vocab = scores.shape
    tokens = torch.empty(rows, dtype=torch.int64, device=scores.device)
    figures = torch.empty(3, rows, dtype=torch.float64, device=scores.device)
    kernels.draw[(rows,)](
        scores.contiguous(), temperature, u, old, tokens, *figures,
        vocab=vocab, SHIFT=16 if scores.dtype == torch.bfloat16 else 0, B=BLOCK, num_warps=WARPS,
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
