"""The loops that people write by hand, with the scores of every position."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def one_chain(model: Any, tokens: Tensor, hidden_token: int) -> Iterator[int]:
    """One chain: hide a token, form all logits, draw. Yields the chain steps made."""
    tokens = tokens[:1].clone()
    with torch.inference_mode():
        while True:
            site = int(torch.randint(1, tokens.shape[1] - 1, (1,)))
            tokens[0, site] = hidden_token
            logits = model(input_ids=tokens).logits[0, site]
            tokens[0, site] = torch.multinomial(logits.float().softmax(-1), 1)
            yield 1


def batched(model: Any, tokens: Tensor, hidden_token: int) -> Iterator[int]:
    """Many chains at once, each with a site of its own, and the logits of every position."""
    tokens = tokens.clone()
    rows = torch.arange(len(tokens), device=tokens.device)
    with torch.inference_mode():
        while True:
            sites = torch.randint(1, tokens.shape[1] - 1, (len(tokens),), device=tokens.device)
            tokens[rows, sites] = hidden_token
            logits = model(input_ids=tokens).logits[rows, sites]
            tokens[rows, sites] = torch.multinomial(logits.float().softmax(-1), 1)[:, 0]
            yield len(tokens)
