"""What does the translator see in place of the target while it learns?"""

import torch
from torch import Tensor

from glauber.translation.model import FIRST_WORD, MASK, PAD

KINDS = ("random", "mask", "mixed")


def corrupt(
    target: Tensor, vocab_size: int, *, kind: str = "random", kept: float | None = 0.15
) -> Tensor:
    """A draft (rows, length) of the target in which each token is kept with probability `kept`.

    The others become uniformly random tokens (`random`, PaDIR), MASK (`mask`, as mask-predict
    learns), or one or the other by row (`mixed`: random with `kept`, MASK with a rate of its own
    for each row). `kept` None draws a rate u^2 with u uniform for each row: nearly empty drafts,
    with which decoding begins, are the most frequent. PAD stays.
    """
    rows = (target.shape[0], 1)
    rates = torch.rand(rows, device=target.device).square()
    uniform = torch.rand(target.shape, device=target.device)
    noise = torch.randint(FIRST_WORD, vocab_size, target.shape, device=target.device)
    masked = torch.zeros(rows, dtype=torch.bool, device=target.device)
    if kind == "mask":
        masked |= True
    elif kind == "mixed":
        masked |= torch.rand(rows, device=target.device) < 0.5
    fixed = torch.full_like(rates, kept) if kept is not None else rates
    rate = torch.where(masked, rates, fixed) if kind == "mixed" else fixed
    draft = torch.where(masked, torch.full_like(target, MASK), noise)
    draft = torch.where(uniform < rate, target, draft)
    return draft.masked_fill(target == PAD, PAD)
