"""Which tokens can a model do without?"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from .text import SPECIALS, load_tokenizer, special_tokens, tokenise, training_passages

EMBEDDING, BIAS = "bert.embeddings.word_embeddings.weight", "cls.predictions.bias"  # per token


def is_character(token: str) -> bool:
    """Whether the token is one character, bare or as `##c`, of Latin script or punctuation."""
    piece = token.removeprefix("##")
    return len(piece) == 1 and (ord(piece) < 0x250 or 0x2010 <= ord(piece) <= 0x20BF)


def choose_tokens(vocab: dict[str, int], counts: Tensor, size: int) -> list[str]:
    """The `size` tokens to keep: SPECIALS, then by decreasing count, ties in the old order.

    Single characters stay whatever their count, so that nothing ordinary becomes [UNK].
    """
    ordinary = [t for t in vocab if t not in SPECIALS and not t.startswith("[unused")]
    ordinary.sort(key=lambda token: (-int(counts[vocab[token]]), vocab[token]))
    kept = {token for token in ordinary if is_character(token)}
    kept.update([t for t in ordinary if t not in kept][: size - len(SPECIALS) - len(kept)])
    return [*SPECIALS, *(token for token in ordinary if token in kept)]


def prune_tokenizer(init: Path, kept: list[str], out: Path) -> None:
    """Writes init's tokenizer with the kept tokens only, numbered as listed."""
    new = {token: i for i, token in enumerate(kept)}
    spec = json.loads((init / "tokenizer.json").read_text(encoding="utf-8"))
    spec["truncation"] = spec["padding"] = None
    spec["model"]["vocab"] = new
    for added in spec["added_tokens"]:
        added["id"] = new[added["content"]]
    for special in spec["post_processor"]["special_tokens"].values():
        special["ids"] = [new[token] for token in special["tokens"]]
    text = json.dumps(spec, ensure_ascii=False, indent=1)
    (out / "tokenizer.json").write_text(text, encoding="utf-8")
    config = json.loads((init / "tokenizer_config.json").read_text())
    keep = ("do_lower_case", "strip_accents", "tokenize_chinese_chars", "tokenizer_class")
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    config = {key: config[key] for key in (*keep, *names)} | {"model_max_length": 512}
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def prune_model(init: Path, old_tokens: Tensor, out: Path) -> None:
    """Writes init's weights with the embedding rows and output biases of the kept tokens."""
    weights = load_file(init / "model.safetensors")
    weights[EMBEDDING] = weights[EMBEDDING][old_tokens].contiguous()
    weights[BIAS] = weights[BIAS][old_tokens].contiguous()
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((init / "config.json").read_text())
    config |= {"vocab_size": len(old_tokens), "pad_token_id": 0}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def prepare(args: argparse.Namespace) -> None:
    """Writes the starting model: init with its vocabulary cut to what the text uses most."""
    passages, tokenizer = training_passages(args.data), load_tokenizer(args.init)
    vocab = tokenizer.get_vocab()
    stream = tokenise(passages, tokenizer)
    report(args.init, tokenizer, stream)
    kept = choose_tokens(vocab, torch.bincount(stream, minlength=len(vocab)), args.vocab)
    args.out.mkdir(parents=True, exist_ok=True)
    prune_tokenizer(args.init, kept, args.out)
    prune_model(args.init, torch.tensor([vocab[token] for token in kept]), args.out)
    pruned = load_tokenizer(args.out)
    report(args.out, pruned, tokenise(passages, pruned))


def report(folder: Path, tokenizer: Tokenizer, stream: Tensor) -> None:
    """Prints the size of the vocabulary and what the text comes to in it."""
    unknown = int(stream.eq(special_tokens(tokenizer)[1]).sum())
    size = tokenizer.get_vocab_size()
    print(f"{folder}: {size} tokens; the text is {len(stream):,} tokens, {unknown:,} of them [UNK]")
