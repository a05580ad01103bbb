"""How many tokens will the translation have?"""

import torch
from torch import Tensor

from glauber.translation.model import PAD, Memory, Translator

LENGTHS = ("predicted", "ratio", "oracle")


def length_log_probs(model: Translator, memory: Memory, source: Tensor) -> Tensor:
    """The predictor's law (rows, max_length - 1) of the lengths 1, 2, …, max_length - 1."""
    most = model.shape.max_length
    read = (source != PAD).sum(1, keepdim=True)
    lengths = torch.arange(1, most, device=source.device)
    return model.length_scores(memory).float().gather(1, lengths - read + most).log_softmax(1)


def likely_lengths(laws: Tensor, n_lengths: int) -> Tensor:
    """The lengths (rows, n_lengths) that are the most likely, the first of them first."""
    return laws.topk(n_lengths, 1).indices + 1


def lengths_around(centre: Tensor, n_lengths: int, *, most: int) -> Tensor:
    """n, n - 1, n + 1, n - 2, n + 2, … around each n (rows, 1), from 1 to `most`."""
    spread = torch.arange(n_lengths, device=centre.device)
    return (centre + (spread + 1) // 2 * (1 - 2 * (spread % 2))).clamp(1, most)
