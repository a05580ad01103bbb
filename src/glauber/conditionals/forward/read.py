"""Which description fits a loaded transformers module? One small reader for each shape.

A reader takes parts off the module by name; it copies no weight that the module holds except
where several become one product. What it cannot describe it refuses with `Unknown`, and the model
is then asked through transformers. `guard` compares every description with transformers' own
answer, so a reader that has become wrong costs speed and nothing else.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from glauber.conditionals.forward.description import (
    Affine,
    Description,
    Embedding,
    Layer,
    Norm,
)

Reader = Callable[[Any], Description]


class Unknown(Exception):
    """The module is built in a way that no description here says."""


def describe(model: Any) -> Description | None:
    """How the masked LM is built; None where no reader knows."""
    reader = READERS.get(model.config.model_type)
    try:
        return None if reader is None else reader(model)
    except (Unknown, AttributeError):  # another version of transformers may name parts otherwise
        return None


def _bert(model: Any) -> Description:
    """BERT, RoBERTa, XLM-R, CamemBERT and the generator of ELECTRA."""
    body, config = model.base_model, model.config
    _refuse(getattr(config, "is_decoder", False))
    _refuse(getattr(config, "position_embedding_type", "absolute") not in (None, "absolute"))
    table = body.embeddings
    # RoBERTa numbers its positions from the padding token's id plus one.
    first = 0 if config.model_type in ("bert", "electra") else table.padding_idx + 1
    places = table.position_embeddings.weight[first:] + table.token_type_embeddings.weight[0]
    project = getattr(body, "embeddings_project", None)
    return Description(
        Embedding(
            table.word_embeddings.weight,
            places,
            norm_of(table.LayerNorm),
            None if project is None else affine(project),
        ),
        [_bert_layer(layer, config) for layer in body.encoder.layer],
        config.num_attention_heads,
        None,
        HEADS[config.model_type](model),
        len(places),
    )


def _bert_layer(layer: Any, config: Any) -> Layer:
    inner = layer.attention.self
    return Layer(
        stacked(inner.query, inner.key, inner.value),
        affine(layer.attention.output.dense),
        affine(layer.intermediate.dense),
        affine(layer.output.dense),
        config.hidden_act,
        scale=(config.hidden_size // config.num_attention_heads) ** -0.5,
        norm_attended=norm_of(layer.attention.output.LayerNorm),
        norm_out=norm_of(layer.output.LayerNorm),
    )


# ---- heads: where a hidden state becomes scores, at each position alone


def _electra_head(model: Any) -> Callable[[Tensor], Tensor]:
    return lambda states: model.generator_lm_head(model.generator_predictions(states))


def _distilbert_head(model: Any) -> Callable[[Tensor], Tensor]:
    def head(states: Tensor) -> Tensor:
        states = model.activation(model.vocab_transform(states))
        return model.vocab_projector(model.vocab_layer_norm(states))  # type: ignore[no-any-return]

    return head


def _deberta_head(model: Any) -> Callable[[Tensor], Tensor]:
    if model.legacy:
        return lambda states: model.cls(states)
    words = model.deberta.embeddings.word_embeddings
    return lambda states: model.lm_predictions(states, words)


HEADS: dict[str, Callable[[Any], Callable[[Tensor], Tensor]]] = {
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
}

READERS: dict[str, Reader] = {
    "bert": _bert,
    "roberta": _bert,
    "xlm-roberta": _bert,
    "camembert": _bert,
    "electra": _bert,
}


# ---- parts


def affine(module: Any) -> Affine:
    """The weights of a linear module, as they are."""
    return Affine(module.weight, module.bias)


def stacked(*modules: Any) -> Affine:
    """Several linear maps of one input as one; a bias that one of them lacks is 0."""
    weight = torch.cat([module.weight for module in modules]).contiguous()
    if all(module.bias is None for module in modules):
        return Affine(weight, None)
    biases = [
        module.weight.new_zeros(len(module.weight)) if module.bias is None else module.bias
        for module in modules
    ]
    return Affine(weight, torch.cat(biases))


def norm_of(module: Any) -> Norm | None:
    """A layer norm of torch; None where an identity stands in its place."""
    if isinstance(module, torch.nn.Identity):
        return None
    if not isinstance(module, torch.nn.LayerNorm):
        raise Unknown(type(module).__name__)
    return Norm(module.weight, module.bias, module.eps)


def _refuse(wrong: bool) -> None:
    if wrong:
        raise Unknown
