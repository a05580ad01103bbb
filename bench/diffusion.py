"""How fast does a diffusion LM of 8B write? python -m bench.diffusion [--json FILE]

LLaDA's shape with random weights in bfloat16, made on the GPU. In turns within one run: our
generation (`glauber generate`'s kernel over our forward pass), and the published low-confidence
procedure over a plain forward pass with PyTorch's fused attention and the logits of every
position. Both share the same weights, write behind the same prompt at temperature 0 and fill as
many tokens a pass. The share of equal tokens is printed too: in bfloat16 near ties go either way.

Needs torch, transformers and numpy. --tiny is a small shape in float32, to try it on a CPU.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, models
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from glauber.dynamics.kernel import start
from glauber.dynamics.unmasking import Unmasking, unmask
from glauber.models.diffusion_lm import DiffusionLM
from glauber.models.forward.description import (
    Affine,
    Description,
    Embedding,
    Head,
    Layer,
    Norm,
    Rotary,
)

EPS = 1e-5


class Shape(NamedTuple):
    """The sizes of a LLaDA."""

    width: int = 4096
    heads: int = 32
    layers: int = 32
    between: int = 12288
    vocab: int = 126464
    longest: int = 4096
    base: float = 500000.0
    hidden_token: int = 126336


TINY = Shape(64, 4, 2, 96, 500, 512, hidden_token=490)


class Cell(NamedTuple):
    """Texts written at once, and the passes over each block."""

    chains: int
    prompt: int
    length: int
    block: int
    passes: int  # of a block


CELLS = [Cell(1, 128, 128, 32, 32), Cell(8, 128, 128, 32, 8), Cell(32, 128, 128, 32, 8)]
TINY_CELLS = [Cell(1, 8, 16, 8, 8), Cell(4, 8, 16, 8, 2)]


def described(shape: Shape, device: str, dtype: torch.dtype) -> Description:
    """Random weights, made where they stay."""
    generator = torch.Generator(device).manual_seed(0)

    def normal(*size: int) -> Tensor:
        drawn = torch.empty(size, device=device, dtype=dtype)
        return drawn.normal_(std=size[-1] ** -0.5, generator=generator)

    def norm() -> Norm:
        return Norm(torch.ones(shape.width, device=device, dtype=dtype), None, EPS, centred=False)

    d, size = shape.width, shape.width // shape.heads
    frequencies = shape.base ** -(torch.arange(0, size, 2, device=device).float() / size)
    angles = torch.arange(shape.longest, device=device).float()[:, None] * frequencies
    rotary = Rotary(angles.cos(), angles.sin())
    layers = [
        Layer(
            Affine(normal(3 * d, d), None), Affine(normal(d, d), None),
            Affine(normal(2 * shape.between, d), None), Affine(normal(d, shape.between), None),
            "silu", scale=size**-0.5, gated=True, norm_before=norm(), norm_between=norm(),
            rotary=rotary,
        )
        for _ in range(shape.layers)
    ]  # fmt: skip
    words, head = Embedding(normal(shape.vocab, d)), Affine(normal(shape.vocab, d), None)
    return Description(words, layers, shape.heads, norm(), Head(head), shape.longest)


def model_of(shape: Shape, device: str, dtype: torch.dtype) -> DiffusionLM:
    """The model; its tokens are spelled by their numbers."""
    backend = Tokenizer(models.WordLevel({str(token): token for token in range(shape.vocab)}))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, mask_token=str(shape.hidden_token), model_max_length=shape.longest
    )
    return DiffusionLM(
        described(shape, device, dtype), tokenizer, hidden_token=shape.hidden_token, shape="llada"
    )


# ---- the published procedure, over a plain forward pass


def plain_logits(model: DiffusionLM, tokens: Tensor) -> Tensor:
    """(rows, length, vocab): one product for each matrix of the checkpoint, as its code has it."""
    built = model.described
    x = F.embedding(tokens, built.embedding.words)
    cos, sin = (table[: tokens.shape[1], None] for table in built.layers[0].rotary or ())
    for layer in built.layers:
        n = _rms(x, layer.norm_before)
        parts = [F.linear(n, weight) for weight in layer.queries_keys_values.weight.chunk(3)]
        q, k, v = (part.unflatten(-1, (built.heads, -1)) for part in parts)
        q, k = _turned(q, cos, sin), _turned(k, cos, sin)
        mixed = F.scaled_dot_product_attention(*(part.transpose(1, 2) for part in (q, k, v)))
        x = x + layer.attended(mixed.transpose(1, 2).flatten(2))
        n = _rms(x, layer.norm_between)
        gate, up = (F.linear(n, weight) for weight in layer.between.weight.chunk(2))
        x = x + layer.out(F.silu(gate) * up)
    return built.head.scores(_rms(x, built.norm))


def _rms(x: Tensor, norm: Norm | None) -> Tensor:
    assert norm is not None and norm.weight is not None
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + norm.eps)
    return norm.weight * wide.to(x.dtype)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


@torch.inference_mode()
def plain(model: DiffusionLM, tokens: Tensor, cell: Cell) -> Tensor:
    """The texts (chains, prompt + length) of the low-confidence procedure at temperature 0.

    One thing is added: the mask token itself is never placed, which random weights would do.
    """
    tokens, mask = tokens.clone(), model.hidden_token
    share = [cell.block // cell.passes + (i < cell.block % cell.passes) for i in range(cell.passes)]
    for end in range(cell.prompt + cell.block, cell.prompt + cell.length + 1, cell.block):
        for count in share:
            logits = plain_logits(model, tokens)
            logits[..., mask] = -torch.inf
            likeliest = logits.argmax(dim=-1)
            sure = logits.softmax(dim=-1).gather(-1, likeliest[..., None])[..., 0]
            sure = sure.masked_fill(tokens != mask, -torch.inf)
            sure[:, end:] = -torch.inf
            for row in range(len(tokens)):
                kept = sure[row].topk(count).indices
                tokens[row, kept] = likeliest[row, kept]
    return tokens


def ours(model: DiffusionLM, tokens: Tensor, cell: Cell) -> Tensor:
    """The same texts by our kernel."""
    how = Unmasking("confidence", "linear", passes=cell.passes, block=cell.block)
    hidden = tokens == model.hidden_token
    state = start(tokens, hidden, temperature=0.0, greedy=True, device=model.state_device)
    for after, _ in unmask(
        model.conditionals(), state, how, hidden_token=model.hidden_token, seed=0
    ):
        state = after
    return state.tokens


class Row(NamedTuple):
    """Tokens a second of either side, by the median of the turns."""

    cell: Cell
    plain: list[float]
    ours: list[float]
    equal: float  # share of the written tokens on which they agree

    def to_dict(self) -> dict[str, Any]:
        rates = {"plain": self.plain, "ours": self.ours}
        return {**self.cell._asdict(), "tokens_per_second": rates, "equal": self.equal}

    def __str__(self) -> str:
        a, b = statistics.median(self.plain), statistics.median(self.ours)
        passes = self.cell.passes * self.cell.length // self.cell.block
        return (
            f"{self.cell.chains:>6} {self.cell.prompt:>6} {self.cell.length:>6} {passes:>6} "
            f"{a:>11,.1f} {b:>11,.1f} {b / a:>6.2f} {self.equal:>6.1%}"
        )


def measured(model: DiffusionLM, cell: Cell, turns: int) -> Row:
    generator = torch.Generator().manual_seed(1)
    usable = model.vocabulary.proposable().nonzero()[:, 0]
    drawn = torch.randint(len(usable), (cell.chains, cell.prompt), generator=generator)
    blank = torch.full((cell.chains, cell.length), model.hidden_token)
    tokens = torch.cat([usable[drawn], blank], dim=1).to(model.state_device)
    sides: dict[str, Callable[..., Tensor]] = {"plain": plain, "ours": ours}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    made = {name: side(model, tokens, cell) for name, side in sides.items()}  # not counted
    for _ in range(turns):
        for name, side in sides.items():
            _wait()
            begun = time.perf_counter()
            side(model, tokens, cell)
            _wait()
            rates[name].append(cell.chains * cell.length / (time.perf_counter() - begun))
    same = made["plain"] == made["ours"]
    return Row(cell, rates["plain"], rates["ours"], float(same[:, cell.prompt :].float().mean()))


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true", help="a small shape in float32")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    shape, dtype = (TINY, torch.float32) if args.tiny else (Shape(), torch.bfloat16)
    model = model_of(shape, args.device, dtype)
    machine = torch.cuda.get_device_name() if args.device != "cpu" else "CPU"
    print(f"{machine}, torch {torch.__version__}, {model.parameters / 1e9:.2f}B in {model.dtype}")
    print("tokens/s, medians of turns in one run; temperature 0, blocks from left to right")
    print(f"{'chains':>6} {'prompt':>6} {'length':>6} {'passes':>6} {'plain':>11} {'ours':>11} "
          f"{'ratio':>6} {'equal':>6}")  # fmt: skip
    done = []
    for cell in TINY_CELLS if args.tiny else CELLS:
        row = measured(model, cell, args.turns)
        print(row, flush=True)
        done.append(row.to_dict())
        if args.json:
            args.json.write_text(json.dumps(done, indent=1) + "\n")


if __name__ == "__main__":
    main()
