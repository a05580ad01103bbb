"""The parts of an encoder, taken off transformers' modules: affine maps, norms, rotations, heads.

No weight is copied except where several become one product or a factor is multiplied in.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from glauber.conditionals.forward.description import Affine, Norm, Rotary

# Rotations whose angles do not depend on the length of the text.
FIXED_ANGLES = {"default", "linear", "yarn", "llama3"}


class Unknown(Exception):
    """The module is built in a way that no description here says."""


def refuse(*wrong: Any) -> None:
    """Unknown, where any of these holds."""
    if any(wrong):
        raise Unknown


def affine(module: Any, *, divided_by: float = 1.0) -> Affine:
    """The weights of a linear module, as they are unless they are divided."""
    if not isinstance(module, torch.nn.Linear):
        raise Unknown(type(module).__name__)
    if divided_by == 1.0:
        return Affine(module.weight, module.bias)
    bias = module.bias
    return Affine(module.weight / divided_by, None if bias is None else bias / divided_by)


def stacked(*modules: Any) -> Affine:
    """Several linear maps of one input as one; a bias that one of them lacks is 0."""
    parts = [module if isinstance(module, Affine) else affine(module) for module in modules]
    weight = torch.cat([part.weight for part in parts]).contiguous()
    if all(part.bias is None for part in parts):
        return Affine(weight, None)
    biases = [
        part.weight.new_zeros(len(part.weight)) if part.bias is None else part.bias
        for part in parts
    ]
    return Affine(weight, torch.cat(biases))


def for_every_head(part: Affine, size: int, times: int) -> Affine:
    """Keys or values that several heads share, once for each: heads of a size, repeated."""
    weight, bias = (
        None if values is None else values.unflatten(0, (-1, size)).repeat_interleave(times, 0)
        for values in part
    )
    assert weight is not None
    return Affine(weight.flatten(0, 1), None if bias is None else bias.flatten())


def norm_of(module: Any) -> Norm | None:
    """A layer norm, or one of root mean squares; None where an identity stands in its place."""
    if module is None or isinstance(module, torch.nn.Identity):
        return None
    if isinstance(module, torch.nn.LayerNorm):
        return Norm(module.weight, module.bias, module.eps)
    if type(module).__name__.endswith("RMSNorm"):
        return Norm(module.weight, None, module.variance_epsilon, centred=False)
    raise Unknown(type(module).__name__)


def rotary_of(module: Any, like: Tensor, places: int, kind: str | None = None) -> Rotary:
    """The rotation that a transformers module gives, in the precision of a weight like that.

    kind names one of the rotations of a module that has several.
    """
    kinds = module.rope_type if kind is None else module.rope_type[kind]
    refuse((kinds or "default") not in FIXED_ANGLES)
    asked = [] if kind is None else [kind]
    found = module(like, torch.arange(places, device=like.device)[None], *asked)
    half = found[0].shape[-1] // 2
    cos, sin = (table[0, :, :half].contiguous() for table in found)
    if like.dtype == torch.float64 and _turns_in_float32(module):
        return Rotary(cos.float(), sin.float())
    return Rotary(cos, sin)


def _turns_in_float32(module: Any) -> bool:
    """Whether transformers rounds queries and keys to float32 before they are turned."""
    turn = sys.modules[type(module).__module__].apply_rotary_pos_emb
    third = torch.full((1, 1, 1, 2), 1 / 3, dtype=torch.float64)
    ones = third.new_ones(1, 1, 2)
    return not torch.equal(turn(third, third, ones, 0 * ones)[0], third)


def distances(places: int, device: torch.device) -> Tensor:
    """i - j from the smallest to the largest one: (2 places - 1,)."""
    return torch.arange(1 - places, places, device=device)


def usual_scale(config: Any) -> float:
    """1 over the root of a head's size."""
    return float((config.hidden_size // config.num_attention_heads) ** -0.5)


def named(activation: Any) -> str:
    """The name of an activation; a configuration may hold a function instead."""
    refuse(not isinstance(activation, str))
    return str(activation)


# ---- heads: where a hidden state becomes scores, at each position alone

Head = Callable[[Tensor], Tensor]  # states (rows, d) -> scores (rows, vocab)


def _electra_head(model: Any) -> Head:
    return lambda states: model.generator_lm_head(model.generator_predictions(states))


def _distilbert_head(model: Any) -> Head:
    def head(states: Tensor) -> Tensor:
        states = model.activation(model.vocab_transform(states))
        return model.vocab_projector(model.vocab_layer_norm(states))

    return head


def _deberta_head(model: Any) -> Head:
    if model.legacy:
        return lambda states: model.cls(states)
    words = model.deberta.embeddings.word_embeddings
    return lambda states: model.lm_predictions(states, words)


HEADS: dict[str, Callable[[Any], Head]] = {
    "bert": lambda model: model.cls,
    "roberta": lambda model: model.lm_head,
    "xlm-roberta": lambda model: model.lm_head,
    "camembert": lambda model: model.lm_head,
    "distilbert": _distilbert_head,
    "albert": lambda model: model.predictions,
    "electra": _electra_head,
    "deberta-v2": _deberta_head,
    "mpnet": lambda model: model.lm_head,
    "modernbert": lambda model: lambda states: model.decoder(model.head(states)),
    "esm": lambda model: model.lm_head,
    "esmc": lambda model: model.lm_head,
    "eurobert": lambda model: model.lm_head,
    "nomic_bert": lambda model: model.cls,
}
