"""How much a source leaves open: entropy, repeats and the cost of one pass, given the source.

The autoregressive teacher is a joint distribution p(y | x) that can be sampled and evaluated. From
independent draws y of it, for each source,
    entropy     E[-log p(y | x)], END included, over the mean number of tokens
    agreement   E[p(y | x)], the chance that two draws are the same sentence: one over the number
                of equally likely translations
    cost        E[log p(y | x) - log q(y | x)] over the mean number of tokens, q what one pass of
                the student from masked tokens draws: its predicted length, then each token by
                itself. An upper bound on the total correlation, which no such pass can avoid.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from glauber.translation.data import load_vocabulary, pad_rows
from glauber.translation.decoding import length_log_probs, limits, next_log_probs, read_log_probs
from glauber.translation.model import (
    BEGIN,
    END,
    FIRST_WORD,
    MASK,
    PAD,
    Memory,
    Translator,
    load,
)


class SourceEntropy(NamedTuple):
    """One source: nats per target token, and how often two draws are the same."""

    tokens: float  # mean number of target tokens
    entropy: float
    agreement: float
    cost: float


@torch.inference_mode()
def source_entropies(
    folder: Path, sources: Sequence[str], *, n_samples: int = 32, seed: int = 0
) -> list[SourceEntropy]:
    """Entropy, agreement and cost of each source, by draws of the teacher of a folder."""
    vocabulary = load_vocabulary(folder)
    teacher, student = (load(folder, name) for name in ("teacher", "student"))
    generator, answers = torch.Generator().manual_seed(seed), []
    for text in sources:
        source = pad_rows([vocabulary.encode(text)])
        memory = teacher.encode(source)
        rows = memory.rows(torch.zeros(n_samples, dtype=torch.long))
        drawn = draw(teacher, rows, generator)
        joint = read_log_probs(teacher, drawn, rows).sum(1)
        at_once = _one_pass(student, source, drawn)
        n_tokens = (drawn != PAD).sum(1)
        answers.append(
            SourceEntropy(
                tokens=float(n_tokens.double().mean()),
                entropy=float(-joint.mean() / (n_tokens + 1).double().mean()),
                agreement=float(joint.exp().mean()),
                cost=float((joint - at_once).mean() / n_tokens.double().mean()),
            )
        )
    return answers


@torch.inference_mode()
def draw(model: Translator, memory: Memory, generator: torch.Generator) -> Tensor:
    """Tokens (rows, length), padded, without END: one draw of the model for each row."""
    limit = limits(memory, model.shape.max_length)
    token, done = torch.full_like(limit, BEGIN)[:, None], limit < 0
    cache, written = model.empty_cache(), []
    for step in range(int(limit.max()) + 1):
        chances = next_log_probs(model, token, memory, cache).exp()
        chosen = torch.multinomial(chances, 1, generator=generator)[:, 0]
        chosen = torch.where(step >= limit, END, chosen)
        token = torch.where(done, PAD, chosen)[:, None]
        written.append(token)
        done = done | (chosen == END)
        if bool(done.all()):
            break
    tokens = torch.cat(written, 1)
    return tokens.masked_fill(tokens == END, PAD)


def _one_pass(student: Translator, source: Tensor, drawn: Tensor) -> Tensor:
    """Log-probabilities (rows,) of drafts by the student's length and one pass from MASK."""
    memory = student.encode(source)
    n_tokens = (drawn != PAD).sum(1)
    lengths = length_log_probs(student, memory, source)[0]
    masked = drawn.masked_fill(drawn != PAD, MASK)
    rows = memory.rows(torch.zeros(len(drawn), dtype=torch.long))
    each = student.denoise(masked, rows)[..., FIRST_WORD:].float().log_softmax(-1)
    written = (drawn - FIRST_WORD).clamp(min=0)[:, :, None]
    own = each.gather(2, written)[:, :, 0].masked_fill(drawn == PAD, 0.0)
    return own.sum(1) + lengths[(n_tokens - 1).clamp(min=0)]
