"""Readers of encoders whose queries and keys are turned: ModernBERT, ESM, and those like Llama."""

from typing import Any

from glauber.conditionals.forward.description import Description, Embedding, Layer, Rotary
from glauber.conditionals.forward.parts import (
    HEADS,
    affine,
    for_every_head,
    named,
    norm_of,
    refuse,
    rotary_of,
    stacked,
    usual_scale,
)


def modernbert(model: Any) -> Description:
    """Layers that see a window and layers that see everything, each with a rotation of its own."""
    body, config = model.model, model.config
    table, places = body.embeddings, config.max_position_embeddings
    kinds = {layer.attention_type for layer in body.layers}
    refuse(kinds - {"full_attention", "sliding_attention"})
    weight = table.tok_embeddings.weight
    turns = {kind: rotary_of(body.rotary_emb, weight, places, kind) for kind in kinds}
    return Description(
        Embedding(weight, norm=norm_of(table.norm)),
        [_modernbert_layer(layer, config, turns[layer.attention_type]) for layer in body.layers],
        config.num_attention_heads,
        norm_of(body.final_norm),
        HEADS["modernbert"](model),
        places,
    )


def _modernbert_layer(layer: Any, config: Any, rotary: Rotary) -> Layer:
    local = layer.attention_type == "sliding_attention"
    return Layer(
        affine(layer.attn.Wqkv),
        affine(layer.attn.Wo),
        affine(layer.mlp.Wi),
        affine(layer.mlp.Wo),
        named(config.hidden_activation),
        scale=usual_scale(config),
        gated=True,
        norm_before=norm_of(layer.attn_norm),
        norm_between=norm_of(layer.mlp_norm),
        rotary=rotary,
        window=config.local_attention // 2 if local else None,
    )


def esm(model: Any) -> Description:
    """ESM-2 (rotations) and ESM-1b (places added)."""
    body, config = model.esm, model.config
    table, kind = body.embeddings, body.embeddings.position_embedding_type
    refuse(kind not in ("absolute", "rotary"))
    weight = table.word_embeddings.weight
    added = rotary = None
    longest = config.max_position_embeddings - table.padding_idx - 1
    if kind == "absolute":
        added = table.position_embeddings.weight[table.padding_idx + 1 :]
    else:
        rotary = rotary_of(body.rotary_embeddings, weight, longest)
    embedding = Embedding(weight, added, norm_of(table.layer_norm))
    if table.token_dropout:
        embedding = embedding._replace(hidden_token=table.mask_token_id, kept=1 - 0.15 * 0.8)
    return Description(
        embedding,
        [_esm_layer(layer, config, rotary) for layer in body.encoder.layer],
        config.num_attention_heads,
        norm_of(body.encoder.emb_layer_norm_after),
        HEADS["esm"](model),
        longest,
    )


def _esm_layer(layer: Any, config: Any, rotary: Rotary | None) -> Layer:
    inner = layer.attention.self
    # ESM scales its queries before they are turned, and turning rounds them.
    queries = affine(inner.query, divided_by=1 / usual_scale(config))
    return Layer(
        stacked(queries, inner.key, inner.value),
        affine(layer.attention.output.dense),
        affine(layer.intermediate.dense),
        affine(layer.output.dense),
        "gelu",  # whatever the configuration says
        scale=1.0,
        norm_before=norm_of(layer.attention.LayerNorm),
        norm_between=norm_of(layer.LayerNorm),
        rotary=rotary,
    )


# ---- layers named as Llama's: ESM C, EuroBERT, NomicBERT


def llama_like(model: Any) -> Description:
    """Norms before the blocks (ESM C, EuroBERT) or behind them (NomicBERT), with a gate."""
    body, config = model.base_model, model.config
    places = config.max_position_embeddings
    embedding = _llama_embedding(body, places)
    rotary = rotary_of(body.rotary_emb, embedding.words, places)
    return Description(
        embedding,
        [_llama_layer(layer, config, rotary) for layer in body.layers],
        config.num_attention_heads,
        norm_of(getattr(body, "norm", None)),
        HEADS[config.model_type](model),
        places,
    )


def _llama_embedding(body: Any, places: int) -> Embedding:
    if hasattr(body, "embed_tokens"):
        return Embedding(body.embed_tokens.weight)
    table = body.embeddings
    added = table.token_type_embeddings.weight[0].expand(places, -1).contiguous()
    return Embedding(table.word_embeddings.weight, added, norm_of(table.LayerNorm))


def _llama_layer(layer: Any, config: Any, rotary: Rotary) -> Layer:
    inner, mlp, size = layer.self_attn, layer.mlp, layer.self_attn.head_dim
    refuse(size * config.num_attention_heads != config.hidden_size)
    shared = getattr(inner, "num_key_value_groups", 1)  # heads that share their keys and values
    # ESM C divides what is added by a number that grows with the depth.
    less = getattr(layer, "scaling_factor", 1.0)
    # What Llama calls the norm after attention stands in front of the feed-forward.
    behind, norm = hasattr(layer, "post_mlp_layernorm"), norm_of(layer.post_attention_layernorm)
    return Layer(
        stacked(
            inner.q_proj,
            *(for_every_head(affine(part), size, shared) for part in (inner.k_proj, inner.v_proj)),
        ),
        affine(inner.o_proj, divided_by=less),
        stacked(mlp.gate_proj, mlp.up_proj),
        affine(mlp.down_proj, divided_by=less),
        named(config.hidden_act),
        scale=inner.scaling,
        gated=True,
        norm_queries=norm_of(getattr(inner, "q_norm", None)),
        norm_keys=norm_of(getattr(inner, "k_norm", None)),
        norm_before=norm_of(getattr(layer, "input_layernorm", None)),
        norm_attended=norm if behind else None,
        norm_between=None if behind else norm,
        norm_out=norm_of(getattr(layer, "post_mlp_layernorm", None)),
        rotary=rotary,
    )
