"""Which description fits a loaded transformers module? One small reader for each shape.

A reader takes parts off the module by name. What it cannot describe it refuses with `Unknown`, and
the model is then asked through transformers. `guard` compares every description with transformers'
own answer, so a reader that has become wrong costs speed and nothing else.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from glauber.conditionals.forward.description import (
    Description,
    Embedding,
    Layer,
    Relative,
)
from glauber.conditionals.forward.parts import (
    HEADS,
    Unknown,
    affine,
    distances,
    named,
    norm_of,
    refuse,
    stacked,
    usual_scale,
)
from glauber.conditionals.forward.read_rotary import esm, llama_like, modernbert

Reader = Callable[[Any], Description]


def describe(model: Any) -> Description | None:
    """How the masked LM is built; None where no reader knows."""
    config = model.config
    reader = READERS.get(config.model_type)
    if reader is None or getattr(config, "is_decoder", False):
        return None
    if getattr(config, "add_cross_attention", False):
        return None
    try:
        return reader(model)
    except (Unknown, AttributeError):  # another version of transformers may name parts otherwise
        return None


# ---- norms behind each block: BERT and those like it


def _bert(model: Any) -> Description:
    """BERT, RoBERTa, XLM-R, CamemBERT and the generator of ELECTRA."""
    body, config = model.base_model, model.config
    refuse(getattr(config, "position_embedding_type", "absolute") not in (None, "absolute"))
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
        named(config.hidden_act),
        scale=usual_scale(config),
        norm_attended=norm_of(layer.attention.output.LayerNorm),
        norm_out=norm_of(layer.output.LayerNorm),
    )


def _distilbert(model: Any) -> Description:
    table, config = model.distilbert.embeddings, model.config
    places = table.position_embeddings.weight
    return Description(
        Embedding(table.word_embeddings.weight, places, norm_of(table.LayerNorm)),
        [_distilbert_layer(layer, config) for layer in model.distilbert.transformer.layer],
        config.n_heads,
        None,
        HEADS["distilbert"](model),
        len(places),
    )


def _distilbert_layer(layer: Any, config: Any) -> Layer:
    inner = layer.attention
    return Layer(
        stacked(inner.q_lin, inner.k_lin, inner.v_lin),
        affine(inner.out_lin),
        affine(layer.ffn.lin1),
        affine(layer.ffn.lin2),
        named(config.activation),
        scale=(config.dim // config.n_heads) ** -0.5,
        norm_attended=norm_of(layer.sa_layer_norm),
        norm_out=norm_of(layer.output_layer_norm),
    )


def _albert(model: Any) -> Description:
    """A few layers, each applied several times."""
    body, config = model.albert, model.config
    table, groups = body.embeddings, body.encoder.albert_layer_groups
    places = table.position_embeddings.weight + table.token_type_embeddings.weight[0]
    read = [[_albert_layer(layer, config) for layer in group.albert_layers] for group in groups]
    each = config.num_hidden_layers / len(groups)  # applications of a group
    return Description(
        Embedding(
            table.word_embeddings.weight,
            places,
            norm_of(table.LayerNorm),
            affine(body.encoder.embedding_hidden_mapping_in),
        ),
        [layer for at in range(config.num_hidden_layers) for layer in read[int(at / each)]],
        config.num_attention_heads,
        None,
        HEADS["albert"](model),
        len(places),
    )


def _albert_layer(layer: Any, config: Any) -> Layer:
    inner = layer.attention
    return Layer(
        stacked(inner.query, inner.key, inner.value),
        affine(inner.dense),
        affine(layer.ffn),
        affine(layer.ffn_output),
        named(config.hidden_act),
        scale=usual_scale(config),
        norm_attended=norm_of(inner.LayerNorm),
        norm_out=norm_of(layer.full_layer_layer_norm),
    )


def _mpnet(model: Any) -> Description:
    """A term of the logits for each distance, the same in every layer."""
    body, config = model.mpnet, model.config
    table, encoder = body.embeddings, body.encoder
    places = table.position_embeddings.weight[table.padding_idx + 1 :]
    rows = encoder.relative_position_bucket(-distances(len(places), places.device))
    relative = Relative(rows, bias=encoder.relative_attention_bias.weight.T.contiguous())
    return Description(
        Embedding(table.word_embeddings.weight, places, norm_of(table.LayerNorm)),
        [_mpnet_layer(layer, config, relative) for layer in encoder.layer],
        config.num_attention_heads,
        None,
        HEADS["mpnet"](model),
        len(places),
    )


def _mpnet_layer(layer: Any, config: Any, relative: Relative) -> Layer:
    inner = layer.attention.attn
    return Layer(
        stacked(inner.q, inner.k, inner.v),
        affine(inner.o),
        affine(layer.intermediate.dense),
        affine(layer.output.dense),
        named(config.hidden_act),
        scale=usual_scale(config),
        norm_attended=norm_of(layer.attention.LayerNorm),
        norm_out=norm_of(layer.output.LayerNorm),
        relative=relative,
    )


# ---- DeBERTa: the distance of two tokens meets the content of either


def _deberta(model: Any) -> Description:
    """DeBERTa-v2 and -v3, which differ in what they share; no convolution."""
    body, config = model.deberta, model.config
    table, encoder = body.embeddings, body.encoder
    refuse(encoder.conv is not None, body.z_steps > 1)
    longest = config.max_position_embeddings
    norm, project = norm_of(table.LayerNorm), table.embed_proj
    embedding = Embedding(table.word_embeddings.weight, _deberta_places(table, longest))
    if project is None:
        embedding = embedding._replace(norm=norm)
    else:
        embedding = embedding._replace(project=affine(project), norm_projected=norm)
    with torch.no_grad():
        layers = [_deberta_layer(layer, encoder, config) for layer in encoder.layer]
    head = HEADS["deberta-v2"](model)
    return Description(embedding, layers, config.num_attention_heads, None, head, longest)


def _deberta_places(table: Any, longest: int) -> Tensor | None:
    """What is added to the words at each place, where anything is."""
    added = table.position_embeddings.weight if table.position_biased_input else None
    types = table.token_type_embeddings
    if types is None:
        return added
    if added is None:
        return types.weight[0].expand(longest, -1).contiguous()
    return added + types.weight[0]


def _deberta_layer(layer: Any, encoder: Any, config: Any) -> Layer:
    inner = layer.attention.self
    refuse(inner.all_head_size != config.hidden_size)
    terms = 1 + ("c2p" in inner.pos_att_type) + ("p2c" in inner.pos_att_type)
    weight = inner.query_proj.weight
    # transformers rounds this to float32 first, and then to the model's precision.
    over = torch.tensor(float(inner.attention_head_size * terms)).sqrt().to(weight.dtype)
    return Layer(
        stacked(inner.query_proj, inner.key_proj, inner.value_proj),
        affine(layer.attention.output.dense),
        affine(layer.intermediate.dense),
        affine(layer.output.dense),
        named(config.hidden_act),
        scale=1 / float(over),
        norm_attended=norm_of(layer.attention.output.LayerNorm),
        norm_out=norm_of(layer.output.LayerNorm),
        relative=_disentangled(inner, encoder, over.to(weight.device), config)
        if inner.relative_attention and terms > 1
        else None,
    )


def _disentangled(inner: Any, encoder: Any, over: Tensor, config: Any) -> Relative:
    """The embeddings of distances as keys (c2p) and as queries (p2c)."""
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    span, buckets = inner.pos_ebd_size, inner.position_buckets
    embedded = encoder.get_rel_embedding()[: 2 * span]
    apart = distances(config.max_position_embeddings, embedded.device)
    if buckets > 0:
        apart = make_log_bucket_position(apart, buckets, inner.max_relative_positions).long()

    def by_head(project: Any) -> Tensor:
        split = project(embedded).unflatten(-1, (inner.num_attention_heads, -1))
        return (split.transpose(0, 1) / over).contiguous()

    shared = inner.share_att_key
    keys = queries = None
    if "c2p" in inner.pos_att_type:
        keys = by_head(inner.key_proj if shared else inner.pos_key_proj)
    if "p2c" in inner.pos_att_type:
        queries = by_head(inner.query_proj if shared else inner.pos_query_proj)
    return Relative((apart + span).clamp(0, 2 * span - 1), keys, queries)


READERS: dict[str, Reader] = {
    "bert": _bert,
    "roberta": _bert,
    "xlm-roberta": _bert,
    "camembert": _bert,
    "electra": _bert,
    "distilbert": _distilbert,
    "albert": _albert,
    "mpnet": _mpnet,
    "deberta-v2": _deberta,
    "modernbert": modernbert,
    "esm": esm,
    "esmc": llama_like,
    "eurobert": llama_like,
    "nomic_bert": llama_like,
}

__all__ = ["HEADS", "READERS", "describe"]
