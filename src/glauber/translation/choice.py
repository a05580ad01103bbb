"""Which of the drafts of one sentence is kept?

The student's own taste: the mean log-probability of the tokens, with half of that of the length.
Or the teacher's: an autoregressive model cannot write a sentence at once, but it can read finished
ones at once, and says which is the likeliest (noisy parallel decoding).
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from glauber.translation.model import BEGIN, END, PAD, Memory, Translator

JUDGES = ("itself", "teacher")
# Of the length's log-probability, set on the valid file. All of it, the joint law of the model,
# trusts the length too much; none of it prefers lengths that are easy to fill.
LENGTH_SHARE = 0.5


def own_taste(token_score: Tensor, lengths: Tensor, length_log_prob: Tensor) -> Tensor:
    """Mean log-probability of tokens and length, each (rows,), a token."""
    return token_score + LENGTH_SHARE * length_log_prob / lengths


@torch.inference_mode()
def teachers_taste(teacher: Translator, tokens: Tensor, memory: Memory) -> Tensor:
    """The teacher's mean log-probability (rows,) of finished drafts (rows, length), END included.

    memory is the teacher's own of each row's source.
    """
    begin = torch.full_like(tokens[:, :1], BEGIN)
    labels = F.pad(tokens, (0, 1), value=PAD)
    labels = labels.scatter(1, (tokens != PAD).sum(1, keepdim=True), END)
    log_probs = teacher.follow(torch.cat([begin, tokens], 1), memory).float().log_softmax(-1)
    said = log_probs.gather(2, labels[:, :, None])[:, :, 0].masked_fill(labels == PAD, 0.0)
    return said.sum(1) / (labels != PAD).sum(1)
