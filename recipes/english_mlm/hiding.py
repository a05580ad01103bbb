"""Which sites are hidden, and what does the model say there?"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import BertForMaskedLM


def add_ends(text: Tensor, specials: Tensor) -> Tensor:
    """[CLS] text [SEP], (rows, length - 2) -> (rows, length) int64."""
    ends = specials[2:4].expand(len(text), 2)
    return torch.cat([ends[:, :1], text.long(), ends[:, 1:]], dim=1)


def plan(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Row and rank (n_sites,) of every hidden site, when row i hides `counts[i]` sites.

    The plan is the same for every batch: shapes stay static and the host never waits.
    """
    row = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    rank = torch.arange(len(row), device=counts.device) - (counts.cumsum(0) - counts)[row]
    return row, rank


def hide(
    tokens: Tensor, row: Tensor, rank: Tensor, specials: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens with [MASK] at random sites, those sites (flat), and what stood there.

    tokens (rows, length), row, rank (n_sites,) -> (rows, length), (n_sites,), (n_sites,)
    """
    noise = torch.rand(tokens.shape, generator=generator, device=tokens.device)
    order = (noise + torch.isin(tokens, specials)).argsort(dim=1)  # specials come last
    sites = row * tokens.shape[1] + order[row, rank]
    flat = tokens.flatten()
    covered = flat.scatter(0, sites, specials[-1].expand(len(sites)))
    return covered.view_as(tokens), sites, flat[sites]


def scores_at(
    model: BertForMaskedLM, tokens: Tensor, sites: Tensor, attend: Tensor | None = None
) -> Tensor:
    """Scores (n_sites, vocab) at the flat sites of tokens (rows, length), and nowhere else."""
    if attend is None:  # under torch.compile BertModel would build a mask: no flash attention
        states = model.bert.encoder(model.bert.embeddings(input_ids=tokens))[0]
    else:
        states = model.bert(input_ids=tokens, attention_mask=attend).last_hidden_state
    return model.cls(states.flatten(0, 1)[sites])
