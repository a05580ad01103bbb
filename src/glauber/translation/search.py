"""Greedy and beam search of the autoregressive model, token by token with its cache."""

from typing import NamedTuple

import torch
from torch import Tensor

from glauber.translation.model import BEGIN, END, MASK, PAD, UNKNOWN, Cache, Memory, Translator

FORBIDDEN = (PAD, UNKNOWN, BEGIN, MASK)  # tokens that no output has
LENGTH_PENALTY = 1.0  # a hypothesis scores its log-probability over its length to this power


class Hypotheses(NamedTuple):
    """tokens (rows, length), padded, without END; score (rows,), a mean log-probability."""

    tokens: Tensor
    score: Tensor


def limits(memory: Memory, max_length: int) -> Tensor:
    """The most tokens (rows,) that a search writes for each source."""
    read = memory.visible[:, 0, 0].sum(1)
    return (2 * read + 10).clamp(max=max_length - 1)


@torch.inference_mode()
def greedy(model: Translator, memory: Memory) -> Hypotheses:
    """The most likely token at each step."""
    limit = limits(memory, model.shape.max_length)
    token = torch.full_like(limit, BEGIN)[:, None]
    total, done = torch.zeros(len(token), device=token.device), limit < 0
    cache, written = model.empty_cache(), []
    for step in range(int(limit.max()) + 1):
        log_probs = _next(model, token, memory, cache)
        chosen = torch.where(step >= limit, END, log_probs.argmax(1))
        gained = log_probs.gather(1, chosen[:, None])[:, 0]
        total = total + gained.masked_fill(done, 0.0)
        token = torch.where(done, PAD, chosen)[:, None]
        written.append(token)
        done = done | (chosen == END)
        if bool(done.all()):
            break
    return _without_end(torch.cat(written, 1), total)


@torch.inference_mode()
def beam_search(model: Translator, memory: Memory, n_beams: int = 5) -> Hypotheses:
    """The best hypothesis, of `n_beams` at every step."""
    limit, rows = limits(memory, model.shape.max_length), len(memory.states)
    device = memory.states.device
    limit = limit.repeat_interleave(n_beams)
    memory = memory.rows(torch.arange(rows, device=device).repeat_interleave(n_beams))
    written = torch.full((rows * n_beams, 1), BEGIN, device=device)
    total = torch.full((rows, n_beams), -torch.inf, device=device)
    total[:, 0] = 0.0  # the beams begin as one
    done, cache = torch.zeros(rows * n_beams, dtype=torch.bool, device=device), model.empty_cache()
    first = torch.arange(rows, device=device)[:, None] * n_beams
    for step in range(int(limit.max()) + 1):
        log_probs = _next(model, written[:, -1:], memory, cache)
        log_probs = _close_finished(log_probs, done, step >= limit)
        reached = (total[:, :, None] + log_probs.unflatten(0, (rows, n_beams))).flatten(1)
        total, flat = reached.topk(n_beams, 1)
        parent = (first + flat // log_probs.shape[1]).flatten()
        token = (flat % log_probs.shape[1]).flatten()
        written = torch.cat([written[parent], token[:, None]], 1)
        for layer in cache:
            layer["key"], layer["value"] = layer["key"][parent], layer["value"][parent]
        done = done[parent] | (token == END)
        if bool(done.all()):
            break
    return _best(written[:, 1:].unflatten(0, (rows, n_beams)), total)


def _next(model: Translator, token: Tensor, memory: Memory, cache: Cache) -> Tensor:
    """Log-probabilities (rows, vocab) of the token after `token` (rows, 1)."""
    log_probs = model.follow(token, memory, cache)[:, -1].float().log_softmax(-1)
    log_probs[:, FORBIDDEN] = -torch.inf
    return log_probs


def _close_finished(log_probs: Tensor, done: Tensor, full: Tensor) -> Tensor:
    """A finished row continues with PAD, at no cost; a full one must end."""
    only_end = log_probs[:, END].clone()
    log_probs = log_probs.masked_fill((done | full)[:, None], -torch.inf)
    log_probs[:, END] = torch.where(done, -torch.inf, only_end)
    log_probs[:, PAD] = torch.where(done, 0.0, -torch.inf)
    return log_probs


def _best(tokens: Tensor, total: Tensor) -> Hypotheses:
    """The best beam of each row; tokens (rows, beams, length)."""
    written = (tokens != PAD).sum(2)
    best = (total / written**LENGTH_PENALTY).argmax(1)
    row = torch.arange(len(tokens), device=tokens.device)
    return _without_end(tokens[row, best], total[row, best])


def _without_end(tokens: Tensor, total: Tensor) -> Hypotheses:
    """Without END; it counts in the score."""
    score = total / (tokens != PAD).sum(1)
    return Hypotheses(tokens.masked_fill(tokens == END, PAD), score)
