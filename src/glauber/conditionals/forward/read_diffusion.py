"""How is a diffusion LM of the hub built? Read off its config.json and its safetensors alone.

LLaDA, Dream and MDLM come with code of their own. None of it is run: their tensors are taken by the
names that the checkpoints give them and become a `Description`, which our own passes compute with
full attention. What a description cannot say is refused in one sentence.
"""

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glauber.conditionals.forward.description import (
    Affine,
    Description,
    Embedding,
    Layer,
    Norm,
    Rotary,
)
from glauber.conditionals.forward.parts import for_every_head, stacked
from glauber.conditionals.weights import Safetensors
from glauber.errors import GlauberError

Config = dict[str, Any]
Devices = Sequence[torch.device]
LAYER_NORM_EPS = 1e-5  # of MDLM's norms
TIME_FEATURES = 256  # cosines and sines of MDLM's time, half each
ACTIVATIONS = ("silu", "gelu", "relu")
LLADA_SIZES = ("d_model", "n_heads", "max_sequence_length")
QWEN_SIZES = ("hidden_size", "num_attention_heads", "max_position_embeddings", "vocab_size")
MDLM_SIZES = ("hidden_dim", "n_heads", "model_length", "vocab_size")


class Place(NamedTuple):
    """Where tensors of a layer go, and under which name they are found."""

    weights: Safetensors
    device: torch.device
    prefix: str = ""

    def inside(self, prefix: str) -> "Place":
        return self._replace(prefix=self.prefix + prefix)

    def put(self, values: Tensor) -> Tensor:
        return values.to(self.device, self.weights.precision)

    def __call__(self, key: str, *shape: int) -> Tensor:
        return self.put(self.weights.stored(self.prefix + key, *shape))

    def maybe(self, key: str, *shape: int) -> Tensor | None:
        return self(key, *shape) if self.prefix + key in self.weights else None

    def affine(self, name: str, out: int, into: int) -> Affine:
        """A product, with a bias where the checkpoint has one."""
        return Affine(self(f"{name}.weight", out, into), self.maybe(f"{name}.bias", out))

    def rms_norm(self, name: str, width: int, eps: float) -> Norm:
        return Norm(self.maybe(f"{name}.weight", width), None, eps, centred=False)


def read_diffusion(config: Config, weights: Safetensors, places: Devices) -> Description:
    """The description of a checkpoint, its layers spread over the devices in turn."""
    return SHAPES[shape_of(config)].read(config, weights, places)


def shape_of(config: Config) -> str:
    """The shape that a config names, in lower case: Dream spells its own with a capital."""
    return str(config.get("model_type", "")).lower()


def spread(n_layers: int, places: Devices) -> list[torch.device]:
    """The device of each layer: as many on each, in order."""
    return [places[at * len(places) // n_layers] for at in range(n_layers)]


def _refuse(config: Config, **expected: Sequence[Any]) -> None:
    """Refuses a config that says of a key what no description says; a missing key is fine."""
    for key, allowed in expected.items():
        value = config.get(key, allowed[0])
        if value not in allowed:
            raise GlauberError(
                f"this {config['model_type']} checkpoint has {key} {value!r} in its config.json, "
                "which is not one that we can read."
            )


def _size(config: Config, key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise GlauberError(
            f"the config.json of this {config['model_type']} checkpoint is broken: {key} is "
            f"{value!r}, not a size."
        )
    return value


def _head_size(width: int, heads: int) -> int:
    if width % heads or width // heads % 2:
        raise GlauberError(f"{heads} heads do not share a width of {width} evenly.")
    return width // heads


def _queries_keys_values(take: Place, heads: int, shared: int, size: int) -> Affine:
    """One product; keys and values that several heads share are there once for each."""
    if heads % shared:
        raise GlauberError(f"{heads} heads do not share {shared} keys evenly.")
    keys, values = (
        for_every_head(take.affine(name, shared * size, heads * size), size, heads // shared)
        for name in ("k_proj", "v_proj")
    )
    return stacked(take.affine("q_proj", heads * size, heads * size), keys, values)


class Rotations:
    """Angles of place times base^(-2 i / s), one table for each device."""

    def __init__(self, base: float, size: int, places: int, precision: torch.dtype) -> None:
        frequencies = 1 / base ** (torch.arange(0, size, 2).float() / size)
        angles = torch.arange(places).float()[:, None] * frequencies
        wide = torch.promote_types(precision, torch.float32)
        self._tables = angles.cos().to(wide), angles.sin().to(wide)
        self._on: dict[torch.device, Rotary] = {}

    def on(self, device: torch.device) -> Rotary:
        if device not in self._on:
            self._on[device] = Rotary(*(table.to(device) for table in self._tables))
        return self._on[device]


# ---- LLaDA: Llama's layers under names of its own


def _llada(config: Config, weights: Safetensors, places: Devices) -> Description:
    _refuse(
        config, architectures=(["LLaDAModelLM"],), block_type=("llama",), layer_norm_type=("rms",),
        rope=(True,), alibi=(False,), attention_layer_norm=(False,), input_emb_norm=(False,),
        bias_for_layer_norm=(False, None), activation_type=ACTIVATIONS,
    )  # fmt: skip
    width, heads, longest = (_size(config, key) for key in LLADA_SIZES)
    vocab = config.get("embedding_size") or _size(config, "vocab_size")
    eps, size = config.get("rms_norm_eps", 1e-5), _head_size(width, heads)
    turned = Rotations(config.get("rope_theta", 1e4), size, longest, weights.precision)
    on = spread(_size(config, "n_layers"), places)
    last = Place(weights, on[-1], "model.transformer.")
    words = Place(weights, on[0], last.prefix)("wte.weight", vocab, width)
    head = last.affine("wte" if config.get("weight_tying") else "ff_out", vocab, width)
    if config.get("scale_logits"):
        head = Affine(head.weight / sqrt(width), head.bias)
    layers = [
        _llada_layer(last._replace(device=device).inside(_block(config, at)), config, eps, turned)
        for at, device in enumerate(on)
    ]
    norm = last.rms_norm("ln_f", width, eps)
    return Description(Embedding(words), layers, heads, norm, head, longest)


def _block(config: Config, at: int) -> str:
    each = config.get("block_group_size") or 1
    return f"blocks.{at}." if each == 1 else f"block_groups.{at // each}.{at % each}."


def _llada_layer(take: Place, config: Config, eps: float, turned: Rotations) -> Layer:
    width, heads = config["d_model"], config["n_heads"]
    shared = 1 if config.get("multi_query_attention") else config.get("n_kv_heads") or heads
    between = config.get("mlp_hidden_size") or config.get("mlp_ratio", 4) * width
    size = width // heads
    return Layer(
        _queries_keys_values(take, heads, shared, size),
        take.affine("attn_out", width, width),
        stacked(take.affine("ff_proj", between, width), take.affine("up_proj", between, width)),
        take.affine("ff_out", width, between),
        config.get("activation_type", "silu"),
        scale=size**-0.5,
        gated=True,
        norm_before=take.rms_norm("attn_norm", width, eps),
        norm_between=take.rms_norm("ff_norm", width, eps),
        rotary=turned.on(take.device),
    )


# ---- Dream and others that took over the layers of an autoregressive model


def _qwen(config: Config, weights: Safetensors, places: Devices) -> Description:
    """Qwen2's or Llama's names, read with full attention."""
    _refuse(config, rope_scaling=(None,), use_sliding_window=(False,), hidden_act=ACTIVATIONS)
    width, heads, longest, vocab = (_size(config, key) for key in QWEN_SIZES)
    size = _head_size(width, heads)
    _refuse(config, head_dim=(size, None))
    rope = config.get("rope_parameters") or {}
    _refuse({**rope, "model_type": config["model_type"]}, rope_type=("default", None))
    base = config.get("rope_theta") or rope.get("rope_theta") or 1e4
    turned = Rotations(base, size, longest, weights.precision)
    on, eps = spread(_size(config, "num_hidden_layers"), places), config.get("rms_norm_eps", 1e-6)
    first, last = Place(weights, on[0]), Place(weights, on[-1])
    # A head of its own counts even where the config says that it is tied.
    tied = config.get("tie_word_embeddings") and "lm_head.weight" not in weights
    layers = [
        _qwen_layer(Place(weights, device, f"model.layers.{at}."), config, eps, turned)
        for at, device in enumerate(on)
    ]
    return Description(
        Embedding(first("model.embed_tokens.weight", vocab, width)),
        layers,
        heads,
        last.rms_norm("model.norm", width, eps),
        last.affine("model.embed_tokens" if tied else "lm_head", vocab, width),
        longest,
    )


def _qwen_layer(take: Place, config: Config, eps: float, turned: Rotations) -> Layer:
    width, heads = config["hidden_size"], config["num_attention_heads"]
    shared, between = config.get("num_key_value_heads") or heads, _size(config, "intermediate_size")
    size = width // heads
    keys, values = (
        for_every_head(
            take.affine(f"self_attn.{name}", shared * size, width), size, heads // shared
        )
        for name in ("k_proj", "v_proj")
    )
    return Layer(
        stacked(take.affine("self_attn.q_proj", width, width), keys, values),
        take.affine("self_attn.o_proj", width, width),
        stacked(*(take.affine(f"mlp.{name}", between, width) for name in ("gate_proj", "up_proj"))),
        take.affine("mlp.down_proj", width, between),
        config.get("hidden_act", "silu"),
        scale=size**-0.5,
        gated=True,
        norm_before=take.rms_norm("input_layernorm", width, eps),
        norm_between=take.rms_norm("post_attention_layernorm", width, eps),
        rotary=turned.on(take.device),
    )


def _dream(config: Config, weights: Safetensors, places: Devices) -> Description:
    # DreamForCausalLM, of the same model_type, is another one: block by block and not shifted.
    _refuse(config, architectures=(["DreamModel"],))
    return _qwen(config, weights, places)


# ---- MDLM: a diffusion transformer, whose time is always 0


def _mdlm(config: Config, weights: Safetensors, places: Devices) -> Description:
    """Layers modulated by the time.

    A model that was trained without it (time_conditioning false) reads time 0 always. What the
    modulation gives is then constant: shift and scale go into the norms, gates into the products.
    """
    _refuse(config, time_conditioning=(False,), causal=(False,))
    width, heads, longest, vocab = (_size(config, key) for key in MDLM_SIZES)
    turned = Rotations(1e4, _head_size(width, heads), longest, weights.precision)
    on, time = spread(_size(config, "n_blocks"), places), _time(weights)
    last = Place(weights, on[-1], "backbone.output_layer.")
    shift, scale = _modulation(last, time, 2, width)
    words = Place(weights, on[0], "backbone.")("vocab_embed.embedding", vocab, width)
    return Description(
        Embedding(words),
        [
            _mdlm_layer(Place(weights, device, f"backbone.blocks.{at}."), time, heads, turned)
            for at, device in enumerate(on)
        ],
        heads,
        _modulated(last, "norm_final", shift, scale),
        last.affine("linear", vocab, width),
        longest,
    )


def _time(weights: Safetensors) -> Tensor:
    """What the layers see of time 0, in float64: silu of its embedding."""
    half = TIME_FEATURES // 2
    state = torch.cat([torch.ones(half), torch.zeros(half)]).double()  # cosines and sines of 0
    for at in (0, 2):
        parts = (
            weights.stored(f"backbone.sigma_map.mlp.{at}.{name}") for name in ("weight", "bias")
        )
        state = torch.nn.functional.silu(_times(state, *parts))
    return state


def _times(state: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.nn.functional.linear(state, weight.double(), bias.double())


def _modulation(take: Place, time: Tensor, parts: int, width: int) -> tuple[Tensor, ...]:
    """Shifts, scales and gates, (width,) float64 each."""
    name = f"{take.prefix}adaLN_modulation"
    weight = take.weights.stored(f"{name}.weight", parts * width, len(time))
    bias = take.weights.stored(f"{name}.bias", parts * width)
    return _times(time, weight, bias).chunk(parts)


def _modulated(take: Place, name: str, shift: Tensor, scale: Tensor) -> Norm:
    """A norm with a weight, then x (1 + scale) + shift."""
    weight = take.weights.stored(f"{take.prefix}{name}.weight", len(scale)).double()
    return Norm(take.put(weight * (1 + scale)), take.put(shift), LAYER_NORM_EPS)


def _gated(take: Place, name: str, gate: Tensor) -> Affine:
    """A product whose outputs are multiplied by a gate."""
    weight = take.weights.stored(f"{take.prefix}{name}.weight").double() * gate[:, None]
    key = f"{take.prefix}{name}.bias"
    bias = take.put(take.weights.stored(key).double() * gate) if key in take.weights else None
    return Affine(take.put(weight), bias)


def _mdlm_layer(take: Place, time: Tensor, heads: int, turned: Rotations) -> Layer:
    width = len(take("norm1.weight"))
    shift, scale, gate, shift_between, scale_between, gate_out = _modulation(take, time, 6, width)
    return Layer(
        take.affine("attn_qkv", 3 * width, width),
        _gated(take, "attn_out", gate),
        take.affine("mlp.0", len(take("mlp.0.bias")), width),
        _gated(take, "mlp.2", gate_out),
        "gelu_pytorch_tanh",
        scale=(width // heads) ** -0.5,
        norm_before=_modulated(take, "norm1", shift, scale),
        norm_between=_modulated(take, "norm2", shift_between, scale_between),
        rotary=turned.on(take.device),
    )


class Shape(NamedTuple):
    """A kind of checkpoint, by the model_type of its config."""

    read: Callable[[Config, Safetensors, Devices], Description]
    shifted: bool = False  # whether the scores of site i are read at i - 1


SHAPES = {
    "llada": Shape(_llada),
    "dream": Shape(_dream, shifted=True),
    "a2d-qwen2": Shape(_qwen),
    "a2d-llama": Shape(_qwen),
    "mdlm": Shape(_mdlm),
}
# Diffusion LMs whose noise is other tokens: nothing in a text says that a site is hidden.
NO_MASK = {"diffusion_gemma": "DiffusionGemma", "duo": "DUO"}
