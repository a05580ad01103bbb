"""Tiny folders of diffusion LMs, and what their definitions say, written out in NumPy.

Nothing here uses the package: the names of the tensors are those of the published checkpoints, and
each model is computed in float64 from its definition.
"""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

WORDS = """
a the cat dog bird sat ran flew on under over mat tree sky red blue green old new big small and or
but not is was will be to of in it they we
""".split()  # noqa: SIM905
MASK, END = "<|mdm_mask|>", "<|endoftext|>"


def tokenizer_of(words=(*WORDS, END, MASK)):
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.WordPiece("##")
    special = {"eos_token": END} | ({"mask_token": MASK} if MASK in words else {})
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=64, **special)


def write(folder, config, weights, *, shards=1, tokenizer=None, dtype=torch.float32):
    """A folder as the hub has it: config.json, safetensors with an index if cut, a tokenizer."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {key: torch.tensor(value).to(dtype) for key, value in weights.items()}
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
    else:
        files = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
        places = {key: files[i % shards] for i, key in enumerate(tensors)}
        for file in files:
            kept = {key: value for key, value in tensors.items() if places[key] == file}
            save_file(kept, folder / file)
        index = {"metadata": {}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config))
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return folder


class Draw:
    """Random weights that float32 holds exactly, as the folder does."""

    def __init__(self, seed):
        self.rng, self.made = np.random.default_rng(seed), {}

    def __call__(self, name, *shape, scale=None, middle=0.0):
        scale = (2 / shape[-1]) ** 0.5 if scale is None else scale
        self.made[name] = (middle + scale * self.rng.normal(size=shape)).astype(np.float32)


# ---- LLaDA


def llada(folder, *, seed=0, kv_heads=4, tied=False, groups=1, change=(), **how):
    d, f, vocab = 32, 48, len(WORDS) + 2
    config = {
        "model_type": "llada", "architectures": ["LLaDAModelLM"], "d_model": d, "n_heads": 4,
        "n_kv_heads": kv_heads, "n_layers": 2, "mlp_hidden_size": f, "rope_theta": 500000.0,
        "vocab_size": vocab, "embedding_size": vocab, "mask_token_id": vocab - 1,
        "weight_tying": tied, "rms_norm_eps": 1e-5, "max_sequence_length": 64, "rope": True,
        "block_type": "llama", "block_group_size": groups, "activation_type": "silu",
        "layer_norm_type": "rms", "include_bias": False, "eos_token_id": vocab - 2,
        "auto_map": {"AutoModel": "modeling_llada.LLaDAModelLM"}, **dict(change),
    }  # fmt: skip
    draw, top = Draw(seed), "model.transformer."
    draw(top + "wte.weight", vocab, d, scale=1.0)
    draw(top + "ln_f.weight", d, scale=0.2, middle=1.0)
    if not tied:
        draw(top + "ff_out.weight", vocab, d)
        draw.made[top + "ff_out.weight"][-1] = 0  # a trained one hardly ever answers with the mask
    for i in range(2):
        at = (
            f"{top}blocks.{i}." if groups == 1 else f"{top}block_groups.{i // groups}.{i % groups}."
        )
        for name, out, into in (
            ("q_proj", d, d), ("k_proj", kv_heads * 8, d), ("v_proj", kv_heads * 8, d),
            ("attn_out", d, d), ("ff_proj", f, d), ("up_proj", f, d), ("ff_out", d, f),
        ):  # fmt: skip
            draw(f"{at}{name}.weight", out, into)
        for name in ("attn_norm", "ff_norm"):
            draw(f"{at}{name}.weight", d, scale=0.2, middle=1.0)
    how = {"tokenizer": tokenizer_of(), **how}
    return write(folder, config, draw.made, **how), config, draw.made


def llada_logits(config, weights, tokens):
    """(length, vocab) of one row of tokens."""
    w = {key.removeprefix("model.transformer."): v.astype(float) for key, v in weights.items()}
    eps, groups = config["rms_norm_eps"], config["block_group_size"]
    x = w["wte.weight"][tokens]
    for i in range(config["n_layers"]):
        at = f"blocks.{i}." if groups == 1 else f"block_groups.{i // groups}.{i % groups}."
        n = rms(x, eps) * w[at + "attn_norm.weight"]
        q, k, v = (n @ w[f"{at}{name}.weight"].T for name in ("q_proj", "k_proj", "v_proj"))
        x = (
            x
            + attention(q, k, v, config["n_heads"], config["rope_theta"])
            @ w[at + "attn_out.weight"].T
        )
        n = rms(x, eps) * w[at + "ff_norm.weight"]
        x = (
            x
            + (silu(n @ w[at + "ff_proj.weight"].T) * (n @ w[at + "up_proj.weight"].T))
            @ w[at + "ff_out.weight"].T
        )
    head = w["wte.weight" if config["weight_tying"] else "ff_out.weight"]
    return (rms(x, eps) * w["ln_f.weight"]) @ head.T


# ---- Dream


def dream(folder, *, seed=1, tied=False, change=(), **how):
    d, f, vocab, kv = 32, 40, len(WORDS) + 5, 2  # rows that no token has, as Dream's
    mask = len(WORDS) + 1
    config = {
        "model_type": "Dream", "architectures": ["DreamModel"], "hidden_size": d,
        "num_attention_heads": 4, "num_key_value_heads": kv, "num_hidden_layers": 2,
        "intermediate_size": f, "vocab_size": vocab, "max_position_embeddings": 64,
        "rope_theta": 1e6, "rms_norm_eps": 1e-6, "hidden_act": "silu", "mask_token_id": mask,
        "tie_word_embeddings": tied, "rope_scaling": None, "use_sliding_window": False,
        "eos_token_id": mask - 1, **dict(change),
    }  # fmt: skip
    draw = Draw(seed)
    draw("model.embed_tokens.weight", vocab, d, scale=1.0)
    draw("model.norm.weight", d, scale=0.2, middle=1.0)
    if not tied:
        draw("lm_head.weight", vocab, d)
    for i in range(2):
        at = f"model.layers.{i}."
        for name, out in (("q_proj", d), ("k_proj", kv * 8), ("v_proj", kv * 8)):
            draw(f"{at}self_attn.{name}.weight", out, d)
            draw(f"{at}self_attn.{name}.bias", out, scale=0.3)
        draw(f"{at}self_attn.o_proj.weight", d, d)
        for name, out, into in (("gate_proj", f, d), ("up_proj", f, d), ("down_proj", d, f)):
            draw(f"{at}mlp.{name}.weight", out, into)
        for name in ("input_layernorm", "post_attention_layernorm"):
            draw(f"{at}{name}.weight", d, scale=0.2, middle=1.0)
    how = {"tokenizer": tokenizer_of(), **how}
    return write(folder, config, draw.made, **how), config, draw.made


def dream_logits(config, weights, tokens):
    """(length, vocab) of one row: what is said of place i stands at i - 1, of place 0 at 0."""
    w = {key: value.astype(float) for key, value in weights.items()}
    eps = config["rms_norm_eps"]
    x = w["model.embed_tokens.weight"][tokens]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        n = rms(x, eps) * w[at + "input_layernorm.weight"]
        q, k, v = (
            n @ w[f"{at}self_attn.{name}.weight"].T + w[f"{at}self_attn.{name}.bias"]
            for name in ("q_proj", "k_proj", "v_proj")
        )
        mixed = attention(q, k, v, config["num_attention_heads"], config["rope_theta"])
        x = x + mixed @ w[at + "self_attn.o_proj.weight"].T
        n = rms(x, eps) * w[at + "post_attention_layernorm.weight"]
        gate, up = (n @ w[f"{at}mlp.{name}.weight"].T for name in ("gate_proj", "up_proj"))
        x = x + (silu(gate) * up) @ w[at + "mlp.down_proj.weight"].T
    tied = config["tie_word_embeddings"]
    head = w["model.embed_tokens.weight" if tied else "lm_head.weight"]
    logits = (rms(x, eps) * w["model.norm.weight"]) @ head.T
    return np.concatenate([logits[:1], logits[:-1]])


# ---- MDLM


def mdlm(folder, *, seed=2, change=(), **how):
    d, c, vocab = 32, 12, len(WORDS) + 2  # the last row is the mask token, which no token names
    config = {
        "model_type": "mdlm", "architectures": ["MDLM"], "hidden_dim": d, "cond_dim": c,
        "n_blocks": 2, "n_heads": 2, "model_length": 64, "vocab_size": vocab,
        "time_conditioning": False, "dropout": 0.1, **dict(change),
    }  # fmt: skip
    draw, top = Draw(seed), "backbone."
    draw(top + "vocab_embed.embedding", vocab, d, scale=1.0)
    for name, out, into in (("sigma_map.mlp.0", c, 256), ("sigma_map.mlp.2", c, c)):
        draw(f"{top}{name}.weight", out, into)
        draw(f"{top}{name}.bias", out, scale=0.5)
    for i in range(2):
        at = f"{top}blocks.{i}."
        draw(at + "attn_qkv.weight", 3 * d, d)
        draw(at + "attn_out.weight", d, d)
        for name, out, into in (("mlp.0", 4 * d, d), ("mlp.2", d, 4 * d)):
            draw(f"{at}{name}.weight", out, into)
            draw(f"{at}{name}.bias", out, scale=0.3)
        for name in ("norm1", "norm2"):
            draw(f"{at}{name}.weight", d, scale=0.2, middle=1.0)
        draw(at + "adaLN_modulation.weight", 6 * d, c)
        draw(at + "adaLN_modulation.bias", 6 * d, scale=0.5)
    at = top + "output_layer."
    draw(at + "norm_final.weight", d, scale=0.2, middle=1.0)
    draw(at + "linear.weight", vocab, d)
    draw(at + "linear.bias", vocab, scale=0.3)
    draw(at + "adaLN_modulation.weight", 2 * d, c)
    draw(at + "adaLN_modulation.bias", 2 * d, scale=0.5)
    how = {"tokenizer": tokenizer_of((*WORDS, END)), **how}
    return write(folder, config, draw.made, **how), config, draw.made


def mdlm_logits(config, weights, tokens):
    """(length, vocab) of one row, at time 0, with the modulation where the definition has it."""
    w = {key.removeprefix("backbone."): value.astype(float) for key, value in weights.items()}

    def linear(name, x):
        found = x @ w[f"{name}.weight"].T
        return found + w[f"{name}.bias"] if f"{name}.bias" in w else found

    time = np.concatenate([np.cos(np.zeros(128)), np.sin(np.zeros(128))])
    c = silu(linear("sigma_map.mlp.2", silu(linear("sigma_map.mlp.0", time))))
    x = w["vocab_embed.embedding"][tokens]
    for i in range(config["n_blocks"]):
        at = f"blocks.{i}."
        a, b, gate, a2, b2, gate2 = np.split(linear(at + "adaLN_modulation", c), 6)
        n = centred(x) * w[at + "norm1.weight"] * (1 + b) + a
        q, k, v = np.split(linear(at + "attn_qkv", n), 3, axis=1)
        x = x + gate * linear(at + "attn_out", attention(q, k, v, config["n_heads"], 1e4))
        n = centred(x) * w[at + "norm2.weight"] * (1 + b2) + a2
        x = x + gate2 * linear(at + "mlp.2", gelu(linear(at + "mlp.0", n)))
    a, b = np.split(linear("output_layer.adaLN_modulation", c), 2)
    return linear(
        "output_layer.linear", centred(x) * w["output_layer.norm_final.weight"] * (1 + b) + a
    )


# ---- parts


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def rms(x, eps):
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)


def centred(x):
    x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)


def turn(x, base):
    """Pairs (i, i + s / 2) of a head as complex numbers, turned by place * base^(-2 i / s)."""
    half = x.shape[1] // 2
    angles = np.arange(len(x))[:, None] * base ** (-np.arange(half) / half)
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], axis=1)


def attention(q, k, v, heads, base):
    """Every place sees every place; heads in groups may share keys and values."""
    size = q.shape[1] // heads
    each = heads // (k.shape[1] // size)
    out = []
    for head in range(heads):
        own, shared = slice(head * size, (head + 1) * size), head // each
        one = slice(shared * size, (shared + 1) * size)
        logits = turn(q[:, own], base) @ turn(k[:, one], base).T / np.sqrt(size)
        law = np.exp(logits - logits.max(axis=1, keepdims=True))
        out.append(law / law.sum(axis=1, keepdims=True) @ v[:, one])
    return np.concatenate(out, axis=1)
