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
import torch.nn.functional as F
from torch import Tensor

from glauber.conditionals.forward.description import Affine, Layer
from glauber.conditionals.forward.encoder import Encoder
from glauber.conditionals.forward.encoder_int8 import EncoderInt8
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.starts import passages
from glauber.threads import side_by_side

Forward = Callable[[Tensor, Tensor], Tensor]  # tokens (rows, length), sites (rows, 1) -> scores


class PlainAttention(Encoder):
    """Attention as two batched products instead of the fused one."""

    attend = EncoderInt8.attend


class Replaced(Encoder):
    """Every product of the whole layers in another way; the last layer as it is."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.made = {
            id(affine): self.make(affine)
            for layer in self.layers
            for affine in (layer.queries_keys_values, layer.attended, layer.between, layer.out)
        }

    def make(self, affine: Affine) -> Any:
        raise NotImplementedError

    def linear(self, states: Tensor, affine: Affine) -> Tensor:
        raise NotImplementedError

    def gelu(self, states: Tensor, affine: Affine) -> Tensor:
        return torch.ops.aten.gelu_(self.linear(states, affine))

    def _whole(self, layer: Layer, states: Tensor) -> Tensor:
        width = states.shape[-1:]
        together = self.linear(states, layer.queries_keys_values)
        mixed = self.attend(*together.chunk(3, dim=-1))
        states = self.linear(mixed, layer.attended).add_(states)
        states = F.layer_norm(states, width, *layer.norm_attended, self.eps)
        states = self.linear(self.gelu(states, layer.between), layer.out).add_(states)
        return F.layer_norm(states, width, *layer.norm_out, self.eps)


class Prepacked(Replaced):
    """oneDNN's float32 products, weights laid out beforehand, gelu within the product."""

    def make(self, affine: Affine) -> Any:
        return torch.ops.mkldnn._reorder_linear_weight(affine.weight.detach(), 704)

    def linear(self, states: Tensor, affine: Affine) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(
            states, self.made[id(affine)], affine.bias, "none", [], ""
        )

    def gelu(self, states: Tensor, affine: Affine) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(
            states, self.made[id(affine)], affine.bias, "gelu", [], "none"
        )


class Dynamic(Replaced):
    """torch's dynamic int8: one scale for all activations of a call, so rows are not their own."""

    engine = "fbgemm"

    def make(self, affine: Affine) -> Any:
        torch.backends.quantized.engine = self.engine
        scales = affine.weight.abs().amax(dim=1) / 127
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        whole = torch.quantize_per_channel(affine.weight, scales, zeros, 0, torch.qint8)
        return torch.ops.quantized.linear_prepack(whole, affine.bias)

    def linear(self, states: Tensor, affine: Affine) -> Tensor:
        return torch.ops.quantized.linear_dynamic(states, self.made[id(affine)], False)


class DynamicOneDNN(Dynamic):
    """The same by oneDNN."""

    engine = "onednn"


def forwards(compiled: bool) -> dict[str, Forward]:
    """The ways that need nothing but torch (and a C++ compiler, where asked for)."""
    conditionals = MaskedLM.load("bundled:english", device="cpu")
    model: Any = conditionals.model

    def full_logits(tokens: Tensor, sites: Tensor) -> Tensor:
        return model(input_ids=tokens).logits[torch.arange(len(tokens))[:, None], sites]

    def through(encoder: Encoder) -> Forward:
        return lambda tokens, sites: conditionals._read(encoder(tokens, sites))

    ways: dict[str, Forward] = {
        "transformers, full logits": full_logits,
        "float32, as it is": through(Encoder(model)),
        "float32, plain attention": through(PlainAttention(model)),
        "float32, prepacked products": through(Prepacked(model)),
        "torch dynamic int8, fbgemm": through(Dynamic(model)),
        "torch dynamic int8, oneDNN": through(DynamicOneDNN(model)),
        "int8, as it is": through(EncoderInt8(model)),
    }
    if compiled:
        ways["float32, torch.compile"] = torch.compile(through(Encoder(model)), dynamic=False)
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
