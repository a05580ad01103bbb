"""python -m bench.cpu_forward [--compile] [--seconds S]

Which forward pass is the fastest on this machine's cores? The bundled model, 64 rows of 20 tokens
with one hidden site each, in two calls side by side on one thread each, as the engine does it. In
turns; beside each rate the processor time of a row and the mean total variation to float64.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from glauber.foundation.threads import side_by_side
from glauber.models.forward.description import Affine, Description
from glauber.models.forward.encoder import Encoder
from glauber.models.forward.encoder_int8 import EncoderInt8
from glauber.models.masked_lm import MaskedLM
from glauber.texts.starts import passages

Forward = Callable[[Tensor, Tensor], Tensor]  # tokens (rows, length), sites (rows, 1) -> scores


class PlainAttention(Encoder):
    """Attention as two batched products instead of the fused one."""

    mix = EncoderInt8.mix


Product = Callable[[Tensor], Tensor]


def replaced(described: Description, make: Callable[[Affine], Product]) -> Encoder:
    """Every product of the whole layers in another way; the last layer as it is."""
    names = ("queries_keys_values", "attended", "between", "out")
    whole: list[Any] = [
        layer._replace(**{name: make(getattr(layer, name)) for name in names})
        for layer in described.layers[:-1]
    ]
    return Encoder(described._replace(layers=[*whole, described.layers[-1]]))


def prepacked(affine: Affine, then: str = "none") -> Product:
    """oneDNN's float32 products, weights laid out beforehand."""
    packed = torch.ops.mkldnn._reorder_linear_weight(affine.weight.detach(), 704)
    linear = torch.ops.mkldnn._linear_pointwise
    how = "none" if then == "gelu" else ""
    return lambda states: linear(states, packed, affine.bias, then, [], how)


def fused(described: Description) -> Encoder:
    """Prepacked products, with the gelu within the one before it."""
    made = replaced(described, prepacked)
    whole: list[Any] = [
        layer._replace(between=prepacked(own.between, "gelu"), activation="linear")
        for layer, own in zip(made.layers[:-1], described.layers[:-1], strict=True)
    ]
    return Encoder(described._replace(layers=[*whole, described.layers[-1]]))


def dynamic(engine: str) -> Callable[[Affine], Product]:
    """torch's dynamic int8: one scale for all activations of a call, so rows are not their own."""

    def make(affine: Affine) -> Product:
        torch.backends.quantized.engine = engine
        scales = affine.weight.abs().amax(dim=1) / 127
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        whole = torch.quantize_per_channel(affine.weight, scales, zeros, 0, torch.qint8)
        packed = torch.ops.quantized.linear_prepack(whole, affine.bias)
        return lambda states: torch.ops.quantized.linear_dynamic(states, packed, False)

    return make


def forwards(compiled: bool) -> dict[str, Forward]:
    """The ways that need nothing but torch (and a C++ compiler, where asked for)."""
    conditionals = MaskedLM.load("bundled:english", device="cpu")
    model: Any = conditionals.model

    def full_logits(tokens: Tensor, sites: Tensor) -> Tensor:
        return model(input_ids=tokens).logits[torch.arange(len(tokens))[:, None], sites]

    def through(encoder: Encoder) -> Forward:
        return lambda tokens, sites: conditionals._read(encoder(tokens, sites))

    assert conditionals.encoder is not None
    described = conditionals.encoder.described
    ways: dict[str, Forward] = {
        "transformers, full logits": full_logits,
        "float32, as it is": through(Encoder(described)),
        "float32, plain attention": through(PlainAttention(described)),
        "float32, prepacked products": through(fused(described)),
        "torch dynamic int8, fbgemm": through(replaced(described, dynamic("fbgemm"))),
        "torch dynamic int8, oneDNN": through(replaced(described, dynamic("onednn"))),
        "int8, as it is": through(EncoderInt8(described)),
    }
    if compiled:
        whole = through(Encoder(described))
        ways["float32, torch.compile"] = torch.compile(whole, dynamic=False)
    return ways


def measure(way: Forward, halves: list[tuple[Tensor, Tensor]], seconds: float) -> tuple[float, ...]:
    """Steps/s, and milliseconds of processor time a step."""
    begun, spent, steps = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - begun < seconds:
        side_by_side(lambda half: way(*half), halves)
        steps += sum(len(tokens) for tokens, _ in halves)
    return steps / (time.perf_counter() - begun), 1000 * (time.process_time() - spent) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", action="store_true", help="Also what torch.compile makes.")
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*quantize.*")
    precise = MaskedLM.load("bundled:english", device="cpu", dtype="float64")
    tokens, _ = precise.vocabulary.encode([text for _, text in passages()][:64], length=20)
    sites = torch.randint(1, 21, (64, 1), generator=torch.Generator().manual_seed(0))
    tokens = tokens.scatter(1, sites, precise.hidden_token)
    halves = list(zip(tokens.split(32), sites.split(32), strict=True))
    exact = precise.scores(tokens, sites).softmax(dim=-1)
    ways = forwards(args.compile)
    off = {}
    for name, way in ways.items():
        scores = torch.cat(side_by_side(lambda half, way=way: way(*half), halves)).double()
        off[name] = float((scores.softmax(dim=-1) - exact).abs().sum(dim=-1).mean() / 2)
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in ways}
    for _ in range(5):
        for name, way in ways.items():
            found[name].append(measure(way, halves, args.seconds))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{'steps/s':>8} {'range':>14} {'ms a step':>10} {'TV':>9}")
    for name, pairs in found.items():
        rates, costs = zip(*pairs, strict=True)
        spread = f"{min(rates):.0f} to {max(rates):.0f}"
        print(
            f"{statistics.median(rates):8.0f} {spread:>14} {statistics.median(costs):10.2f} "
            f"{off[name]:9.1e}  {name}"
        )


if __name__ == "__main__":
    main()
