"""How well does a model fill in held-out text, and does a smaller vocabulary cost anything?"""

from __future__ import annotations

import argparse
import json

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import BertForMaskedLM

from .hiding import add_ends, hide, plan, scores_at
from .text import load_tokenizer, read, special_tokens, tokenise, word_pieces

Chosen = list[tuple[list[str], list[int]]]  # per passage its words, and which of them are hidden


@torch.inference_mode()
def judge(
    model: BertForMaskedLM, tokens: Tensor, sites: Tensor, targets: Tensor, pad: int
) -> tuple[Tensor, Tensor]:
    """Nll of each target and whether it is the likeliest token, both (n_sites,)."""
    device = model.device
    scores = scores_at(model, tokens.to(device), sites.to(device), (tokens != pad).to(device))
    nll = F.cross_entropy(scores.float(), targets.to(device), reduction="none")
    return nll.cpu(), (scores.argmax(-1).cpu() == targets)


def chunk_figures(
    model: BertForMaskedLM, tokenizer: Tokenizer, passages: list[str], length: int = 128
) -> dict[str, float]:
    """Top-1 and nll per token with 15% of each chunk hidden; both depend on the vocabulary."""
    specials = torch.tensor(special_tokens(tokenizer))
    stream = tokenise(passages, tokenizer)
    text = stream[: len(stream) // (length - 2) * (length - 2)].view(-1, length - 2)
    generator, results = torch.Generator().manual_seed(0), []
    for tokens in add_ends(text, specials).split(64):
        row, rank = plan(torch.full((len(tokens),), round(0.15 * (length - 2))))
        covered, sites, targets = hide(tokens, row, rank, specials, generator)
        results.append(judge(model, covered, sites, targets, int(specials[0])))
    nll, right = (torch.cat(parts) for parts in zip(*results, strict=True))
    return {"tokens": len(nll), "top1": right.double().mean().item(), "nll": nll.mean().item()}


def can_spell(words: list[str], tokenizer: Tokenizer) -> list[bool]:
    """For each word whether it comes to pieces without [UNK]."""
    unknown = tokenizer.token_to_id("[UNK]")
    return [len(pieces) > 0 and unknown not in pieces for pieces in word_pieces(words, tokenizer)]


def choose_words(passages: list[str], readers: list[Tokenizer], n_words: int = 80) -> Chosen:
    """Per passage its first words and the 15% of them to hide, the same for every model.

    A word that any of the tokenizers cannot spell ([UNK], or no piece) is not hidden.
    """
    rng, chosen = np.random.default_rng(0), []
    for words in (passage.split()[:n_words] for passage in passages):
        able = np.flatnonzero(np.all([can_spell(words, reader) for reader in readers], axis=0))
        count = min(max(1, round(0.15 * len(words))), len(able))
        chosen.append((words, sorted(rng.choice(able, count, replace=False).tolist())))
    return chosen


def cover_words(
    words: list[str], hidden_words: list[int], tokenizer: Tokenizer, specials: list[int]
) -> tuple[Tensor, Tensor, Tensor, list[int]]:
    """[CLS] words [SEP] with every piece of the hidden words covered.

    tokens (length,), sites and targets (n_sites,), number of pieces of each hidden word
    """
    _, _, cls, sep, mask = specials
    pieces = word_pieces(words, tokenizer)
    tokens = torch.tensor([cls, *(token for ids in pieces for token in ids), sep])
    hidden = torch.tensor([0, *(i in hidden_words for i, ids in enumerate(pieces) for _ in ids), 0])
    sites = hidden.nonzero().flatten()
    covered = tokens.masked_fill(hidden.bool(), mask)
    return covered, sites, tokens[sites], [len(pieces[i]) for i in hidden_words]


def word_figures(model: BertForMaskedLM, tokenizer: Tokenizer, chosen: Chosen) -> dict[str, float]:
    """Nll per hidden word and per character, share of words right: for any vocabulary.

    A word's nll is the sum over its pieces, all hidden together (product form); a word is
    right when each of its pieces is the likeliest token there.
    """
    specials, results, sizes = special_tokens(tokenizer), [], []
    for first in range(0, len(chosen), 64):
        rows = [cover_words(*each, tokenizer, specials) for each in chosen[first : first + 64]]
        tokens = pad_sequence([row[0] for row in rows], True, specials[0])  # (64, longest)
        sites = torch.cat([i * tokens.shape[1] + row[1] for i, row in enumerate(rows)])
        targets = torch.cat([row[2] for row in rows])
        results.append(judge(model, tokens, sites, targets, specials[0]))
        sizes += [size for row in rows for size in row[3]]
    nll, right = (torch.cat(parts) for parts in zip(*results, strict=True))
    owner = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))  # (n_sites,)
    wrong = torch.zeros(len(sizes)).index_add(0, owner, (~right).float())
    characters = sum(len(words[i]) for words, hidden_words in chosen for i in hidden_words)
    return {
        "words": len(sizes),
        "pieces_per_word": len(nll) / len(sizes),
        "words_right": (wrong == 0).double().mean().item(),
        "nll_per_word": nll.double().sum().item() / len(sizes),
        "nll_per_character": nll.double().sum().item() / characters,
    }


def evaluate(args: argparse.Namespace) -> None:
    """Prints a table and JSON of the figures of each model on the WikiText-2 test passages."""
    passages = read(args.data / "wikitext2-test.txt.xz")[: args.limit]
    readers = [load_tokenizer(folder) for folder in args.models]
    chosen, figures = choose_words(passages, readers), []
    for folder, tokenizer in zip(args.models, readers, strict=True):
        model = BertForMaskedLM.from_pretrained(folder, dtype=torch.float32).to(args.device).eval()
        figures.append(
            {"vocabulary": model.config.vocab_size}
            | chunk_figures(model, tokenizer, passages)
            | word_figures(model, tokenizer, chosen)
            | {"model": str(folder)}
        )
    print(*(f"{name:>17}" for name in figures[0]))
    for row in figures:
        print(*(f"{v:17.4f}" if isinstance(v, float) else f"{v!s:>17}" for v in row.values()))
    print(json.dumps(figures))
