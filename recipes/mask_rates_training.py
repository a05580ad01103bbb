"""How is a small masked LM trained with masks of one kind? The sites that are hidden, and the loss.

Everything but the masks is the same for every kind: first weights, rows, their order, and noise.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import RobertaPreLayerNormConfig
from transformers import RobertaPreLayerNormForMaskedLM as Network

from recipes.english_mlm.hiding import plan
from recipes.english_mlm.train import rows_of_text, take_step

LENGTH = 64  # tokens of a row
SHAPE = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "max_position_embeddings": 128,
    "type_vocab_size": 1,
    "pad_token_id": 0,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


class Masks(NamedTuple):
    """How a row's hidden sites are chosen in training."""

    share: tuple[float, float]  # least and largest share of a row; equal: fixed; 0: one token
    favour: str = "none"  # sites that are hidden more often: none, rare, unsure


KINDS = {
    "one token": Masks((0.0, 0.0)),
    "15%": Masks((0.15, 0.15)),
    "30%": Masks((0.3, 0.3)),
    "50%": Masks((0.5, 0.5)),
    "80%": Masks((0.8, 0.8)),
    "1% to 99%": Masks((0.01, 0.99)),
    "30%, rare tokens more often": Masks((0.3, 0.3), "rare"),
    "30%, what the model is unsure of more often": Masks((0.3, 0.3), "unsure"),
}


class Text(NamedTuple):
    """Text as tokens on the device."""

    stream: Tensor  # (n_tokens,)
    specials: Tensor  # ids of SPECIALS
    rarity: Tensor  # (vocabulary,): -log of how often a token occurs


def hidden_sites(tokens: Tensor, counts: Tensor, weights: Tensor, noise: Tensor) -> Tensor:
    """Flat sites of `counts[i]` sites of row i, drawn without replacement in favour of weights.

    tokens, weights, noise (rows, length) -> (n_sites,); weight 0: never. The order statistics of
    exponential variables with those rates draw one site after the other, each proportional to its
    weight among what is left.
    """
    row, rank = plan(counts)
    keys = torch.where(weights > 0, -noise.log() / weights, math.inf)
    return row * tokens.shape[1] + keys.argsort(dim=1)[row, rank]


def row_counts(masks: Masks, rows: int, device: str) -> Tensor:
    """How many sites each row of a batch hides: the same for every batch, so shapes stay."""
    least, most = masks.share
    shares = torch.linspace(least, most, rows, device=device)
    return (shares * (LENGTH - 2)).round().long().clamp(min=1)


def scores_at(model: Network, tokens: Tensor, sites: Tensor) -> Tensor:
    """Scores (n_sites, vocabulary) at the flat sites of tokens (rows, length), without padding."""
    inner = model.roberta_prelayernorm
    states = inner.LayerNorm(inner.encoder(inner.embeddings(input_ids=tokens))[0])
    found: Tensor = model.lm_head(states.flatten(0, 1)[sites])
    return found


def losses(model: Network, tokens: Tensor, sites: Tensor, mask: Tensor) -> Tensor:
    """Nll (n_sites,) of what stands at the flat sites, all of them hidden together."""
    flat = tokens.flatten()
    covered = flat.scatter(0, sites, mask.expand(len(sites))).view_as(tokens)
    with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=tokens.is_cuda):
        scores = scores_at(model, covered, sites)
    return F.cross_entropy(scores.float(), flat[sites], reduction="none")


def fit(
    masks: Masks, text: Text, loss_of: Callable[..., Tensor], args: argparse.Namespace, *, seed: int
) -> tuple[Network, list[float]]:
    """A model trained with these masks, and its training loss now and then."""
    torch.manual_seed(seed)
    model = Network(RobertaPreLayerNormConfig(vocab_size=args.vocabulary, **SHAPE))
    model = model.to(args.device).train()
    optimizer, curve = _optimizer(model), []
    counts = row_counts(masks, args.batch, args.device)
    for step, (tokens, noise) in enumerate(_batches(text, args, seed)):
        if step == args.steps:
            break
        weights = _favoured(masks.favour, model, text, tokens, loss_of, noise[1:])
        sites = hidden_sites(tokens, counts, weights, noise[0])
        loss = loss_of(model, tokens, sites, text.specials[-1]).mean()
        warm, spent = min((step + 1) / args.warmup, 1.0), step / args.steps
        take_step(
            model, optimizer, loss, args.peak * warm * (0.505 + 0.495 * math.cos(math.pi * spent))
        )
        if step % max(1, args.steps // 20) == 0:
            curve.append(round(loss.item(), 4))
    return model.eval(), curve


def _optimizer(model: Network) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices, none on norms and biases."""
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.01},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98), fused=True)


def _batches(text: Text, args: argparse.Namespace, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows (rows, length) and noise (3, rows, length): the same for every kind of mask."""
    device = text.stream.device
    order = torch.Generator(device).manual_seed(seed)
    noise = torch.Generator(device).manual_seed(1000 + seed)
    shape = (args.batch, LENGTH)
    for tokens in rows_of_text(text.stream, text.specials, shape, order, stop=0):
        drawn = torch.rand((3, *shape), generator=noise, device=device)
        yield tokens, drawn.clamp(min=1e-12, max=1 - 1e-7)


def _favoured(
    favour: str,
    model: Network,
    text: Text,
    tokens: Tensor,
    loss_of: Callable[..., Tensor],
    noise: Tensor,
) -> Tensor:
    """How much each site (rows, length) is favoured; 0 at special tokens."""
    text_sites = ~torch.isin(tokens, text.specials)
    if favour == "rare":
        return text.rarity[tokens] * text_sites
    if favour == "unsure":
        return _surprise(model, text, tokens, loss_of, noise) * text_sites
    return text_sites.float()


def middle(tokens: Tensor) -> Tensor:
    """All sites but the first and the last of each row: what may be hidden."""
    sites = torch.arange(tokens.shape[1], device=tokens.device)
    return ((sites > 0) & (sites < tokens.shape[1] - 1)).expand_as(tokens)


@torch.no_grad()
def _surprise(
    model: Network,
    text: Text,
    tokens: Tensor,
    loss_of: Callable[..., Tensor],
    noise: Tensor,
) -> Tensor:
    """Nll of every token with a random half of its row hidden, one half and then the other."""
    half = (LENGTH - 2) // 2
    order = torch.where(middle(tokens), noise[0], 2.0).argsort(dim=1)
    first = torch.arange(len(tokens), device=tokens.device)[:, None] * tokens.shape[1]
    found = torch.zeros_like(noise[0]).flatten()
    for part in (order[:, :half], order[:, half : 2 * half]):
        sites = (first + part).flatten()
        found = found.scatter(0, sites, loss_of(model, tokens, sites, text.specials[-1]))
    return found.view_as(noise[0]).clamp(min=1e-3)
