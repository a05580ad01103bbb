"""How does the cost of a step grow? python -m bench.growth [--seconds S] [--json FILE]

With chains, length and vocabulary, one at a time, around 64 chains of 20 tokens of the bundled
model at temperature 1 on this machine's cores. (With temperature: bench.cold.)
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from bench.engine import engine
from bench.measure import Rate, in_turns
from glauber.models.masked_lm import MaskedLM
from glauber.models.shelf import bundled_folder
from glauber.texts.starts import passages


def chains(model: MaskedLM) -> dict[str, Iterator[int]]:
    """1 to 256 chains."""
    return {f"{n} chains": engine(model, _texts(model, n, 20)) for n in (1, 4, 16, 64, 256)}


def lengths(model: MaskedLM) -> dict[str, Iterator[int]]:
    """8 to 120 tokens."""
    return {f"{n} tokens": engine(model, _texts(model, 64, n)) for n in (8, 20, 50, 120)}


def vocabularies(tokenizer: Any) -> dict[str, Iterator[int]]:
    """The bundled shape with random weights and vocabularies of other sizes."""
    loops = {}
    for size in (1000, 15_360, 50_000, 120_000):
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=size,
            hidden_size=384,
            num_hidden_layers=6,
            num_attention_heads=12,
            intermediate_size=1536,
        )
        model = MaskedLM(BertForMaskedLM(config).eval(), tokenizer)
        tokens = torch.randint(200, 1000, (64, 22))
        loops[f"vocabulary of {size:,}"] = engine(model, tokens)
    return loops


def _texts(model: MaskedLM, n_chains: int, length: int) -> torch.Tensor:
    texts = [text for _, text in passages()]
    long = [" ".join(texts[(i + j) % len(texts)] for j in range(8)) for i in range(n_chains)]
    return model.vocabulary.encode(long, length=length)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    model = MaskedLM.load("bundled:english", device="cpu")
    tokenizer = AutoTokenizer.from_pretrained(bundled_folder("bundled:english"))
    found: list[Rate] = []
    for loops in (chains(model), lengths(model), vocabularies(tokenizer)):
        rates = in_turns(loops, args.seconds)
        for rate in rates:
            print(
                f"{rate.median:9,.0f} steps/s  {1e3 / rate.median:7.2f} ms  {rate.name}", flush=True
            )
        print()
        found += rates
    if args.json:
        args.json.write_text(json.dumps([rate._asdict() for rate in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
