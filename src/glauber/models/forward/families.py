"""What the tensors of each architecture are called, and which options can be described.

One entry for each `model_type`, of masked LMs as transformers stores them and of the diffusion LMs
of the hub, whose own code is never run. What names cannot say is in a small function next to the
entry. `guard` compares every description with transformers' own answer, so an entry that has become
wrong costs speed and nothing else; diffusion LMs, which transformers does not know, are tested
against their definitions.
"""

from collections.abc import Sequence
from math import log, sqrt

import torch
from torch import Tensor
from torch.nn import functional as F

from glauber.models.forward.checkpoint import (
    MISFIT,
    Angles,
    Config,
    Family,
    HeadNames,
    LayerNames,
    Tensors,
    Unknown,
    WeightReader,
    distances,
    divide,
    stack,
)
from glauber.models.forward.description import (
    Affine,
    Description,
    Head,
    Layer,
    Norm,
    Relative,
    Rotary,
)

ENCODERS_ONLY: dict[str, Sequence[object]] = {
    "is_decoder": (False,),
    "add_cross_attention": (False,),
}
ABSOLUTE = ENCODERS_ONLY | {"position_embedding_type": ("absolute", None)}

# ---- BERT and those like it: norms after each block, places added to the words

BERT_LAYER = LayerNames(
    ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output.dense",
    ("intermediate.dense",),
    "output.dense",
    norm_attended="attention.output.LayerNorm",
    norm_out="output.LayerNorm",
)
BERT_HEAD = HeadNames(
    "cls.predictions.decoder",
    "cls.predictions.bias",
    transform="cls.predictions.transform.dense",
    activation="hidden_act",
    norm="cls.predictions.transform.LayerNorm",
)
ROBERTA_HEAD = HeadNames(
    "lm_head.decoder",
    "lm_head.bias",
    transform="lm_head.dense",
    activation="gelu",
    norm="lm_head.layer_norm",
)


def _norms_first(layer: LayerNames, attention: str, between: str) -> LayerNames:
    """The same layer with norms before each block instead of after it."""
    return layer._replace(
        norm_before=attention, norm_between=between, norm_attended="", norm_out=""
    )


def _bert(body: str, head: HeadNames = BERT_HEAD) -> Family:
    embeddings = f"{body}.embeddings"
    return Family(
        words=f"{embeddings}.word_embeddings.weight",
        places=f"{embeddings}.position_embeddings.weight",
        types=(f"{embeddings}.token_type_embeddings.weight",),
        norm_words=f"{embeddings}.LayerNorm",
        layers=f"{body}.encoder.layer.{{}}.",
        layer=BERT_LAYER,
        head=head,
        known=ABSOLUTE,
    )


def _roberta(body: str = "roberta") -> Family:
    return _bert(body, ROBERTA_HEAD)._replace(after_padding=True)


ROBERTA = _roberta()
ELECTRA_HEAD = HeadNames(
    "generator_lm_head",
    transform="generator_predictions.dense",
    activation="gelu",
    norm="generator_predictions.LayerNorm",
)
ELECTRA = _bert("electra", ELECTRA_HEAD)._replace(project="electra.embeddings_project")
ERNIE_TYPES = ("token_type_embeddings.weight", "task_type_embeddings.weight?")
ERNIE = _bert("ernie")._replace(types=tuple(f"ernie.embeddings.{n}" for n in ERNIE_TYPES))
DISTILBERT = Family(
    words="distilbert.embeddings.word_embeddings.weight",
    places="distilbert.embeddings.position_embeddings.weight",
    norm_words="distilbert.embeddings.LayerNorm",
    layers="distilbert.transformer.layer.{}.",
    layer=LayerNames(
        ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        "attention.out_lin",
        ("ffn.lin1",),
        "ffn.lin2",
        norm_attended="sa_layer_norm",
        norm_out="output_layer_norm",
    ),
    head=HeadNames(
        "vocab_projector",
        transform="vocab_transform",
        activation="activation",
        norm="vocab_layer_norm",
    ),
    keys={
        "width": "dim",
        "heads": "n_heads",
        "depth": "n_layers",
        "between": "hidden_dim",
        "activation": "activation",
    },
    fixed={"layer_norm_eps": 1e-12},
    known=ENCODERS_ONLY,
)


def _albert_layers(reader: WeightReader) -> list[str]:
    """A few layers, each applied several times."""
    depth, groups = reader.size("depth"), int(reader.option("num_hidden_groups"))
    per_group = depth / groups
    return [
        f"albert.encoder.albert_layer_groups.{int(number / per_group)}.albert_layers.{inner}."
        for number in range(depth)
        for inner in range(int(reader.option("inner_group_num")))
    ]


ALBERT = _bert(
    "albert",
    HeadNames(
        "predictions.decoder",
        "predictions.bias",
        transform="predictions.dense",
        activation="hidden_act",
        norm="predictions.LayerNorm",
    ),
)._replace(
    project="albert.encoder.embedding_hidden_mapping_in",
    layers=_albert_layers,
    layer=LayerNames(
        ("attention.query", "attention.key", "attention.value"),
        "attention.dense",
        ("ffn",),
        "ffn_output",
        norm_attended="attention.LayerNorm",
        norm_out="full_layer_layer_norm",
    ),
)

# ---- the same with norms before each block

MEGATRON = _bert("bert")._replace(
    norm_words="",
    norm="bert.encoder.ln",
    layer=_norms_first(BERT_LAYER, "attention.ln", "ln"),
)
XLM_ROBERTA_XL = _roberta()._replace(
    norm_words="",
    norm="roberta.encoder.LayerNorm",
    layer=_norms_first(BERT_LAYER, "attention.self_attn_layer_norm", "LayerNorm"),
)
ROBERTA_PRELAYERNORM = _roberta("roberta_prelayernorm")._replace(
    norm="roberta_prelayernorm.LayerNorm",
    layer=_norms_first(BERT_LAYER, "attention.LayerNorm", "intermediate.LayerNorm"),
)

# ---- terms of attention that depend on the distance


MPNET_ROWS = 32  # whatever the size of the table


def _mpnet(reader: WeightReader, layer: Layer) -> Layer:
    """A term of the logits for each distance, the same in every layer."""
    if "relative" not in reader.shared:
        bias = reader.at("mpnet.encoder.relative_attention_bias.")("weight")
        longest = reader.size("longest") - reader.first
        rows = _mpnet_buckets(distances(longest, reader.device))
        reader.shared["relative"] = Relative(rows, bias=bias.T.contiguous())
    return layer._replace(relative=reader.shared["relative"])


def _mpnet_buckets(apart: Tensor) -> Tensor:
    """The row of each distance i - j: half for either sign, near ones by themselves.

    Far ones share their rows by the logarithm of the distance, up to 128.
    """
    half = MPNET_ROWS // 2
    near, far = half // 2, apart.abs()
    logarithms = torch.log(far.float() / near) / log(128 / near) * (half - near)
    shared = (near + logarithms.to(torch.long)).clamp(max=half - 1)
    return (apart < 0).to(torch.long) * half + torch.where(far < near, far, shared)


MPNET = _roberta("mpnet")._replace(
    types=(),
    fixed={"pad_token_id": 1},
    layer=LayerNames(
        ("attention.attn.q", "attention.attn.k", "attention.attn.v"),
        "attention.attn.o",
        ("intermediate.dense",),
        "output.dense",
        norm_attended="attention.LayerNorm",
        norm_out="output.LayerNorm",
    ),
    known=ENCODERS_ONLY | {"relative_attention_num_buckets": (MPNET_ROWS,)},
    adapt=_mpnet,
)


def _deberta_terms(config: Config) -> Config:
    """The kinds of terms as a list; older configs have p2c|c2p."""
    terms = config.get("pos_att_type") or []
    terms = terms.lower().split("|") if isinstance(terms, str) else terms
    return {**config, "pos_att_type": [term.strip() for term in terms if term.strip()]}


def _deberta_scale(reader: WeightReader) -> Tensor:
    """By what q . k is divided: transformers rounds it to float32 and then to the precision."""
    terms = reader.config["pos_att_type"]
    count = 1 + ("c2p" in terms) + ("p2c" in terms)
    return torch.tensor(float(reader.head_size * count)).sqrt().to(reader.dtype)


def _deberta(reader: WeightReader, layer: Layer) -> Layer:
    """The scale, also where nothing is relative, and what depends on distances."""
    terms, config, width = reader.config["pos_att_type"], reader.config, reader.size("width")
    divisor = _deberta_scale(reader)
    layer = layer._replace(scale=1 / float(divisor))
    if not config.get("relative_attention"):
        return layer
    encoder = reader.at("deberta.encoder.")
    embedded, places = encoder("rel_embeddings.weight"), reader.size("longest")
    apart = distances(places, reader.device)
    if shape_of(config) == "deberta":
        span, names = len(embedded) // 2, ("pos_proj", "pos_q_proj")
    else:
        if "layer_norm" in str(config.get("norm_rel_ebd")).lower():
            weight, bias, eps = encoder("LayerNorm.weight"), encoder("LayerNorm.bias"), reader.eps
            embedded = F.layer_norm(embedded, (width,), weight, bias, eps)
        farthest, buckets = config.get("max_relative_positions", -1), config.get("position_buckets")
        farthest = places if farthest < 1 else farthest
        span, names = farthest, ("pos_key_proj", "pos_query_proj")
        if buckets is not None and buckets > 0:
            span, apart = buckets, _deberta_buckets(apart, buckets, farthest)
        embedded = embedded[: 2 * span]
    if not terms:
        return layer
    rows = (apart + span).clamp(0, 2 * span - 1)
    projections: list[Tensor | None] = []  # of the distances, as keys (c2p) and as queries (p2c)
    for number, term in enumerate(("c2p", "p2c")):
        if term not in terms:
            projections.append(None)
            continue
        if config.get("share_att_key") and shape_of(config) != "deberta":
            first = (1 - number) * width
            project = layer.queries_keys_values.rows(first, first + width)
        else:
            project = reader.affine(f"attention.self.{names[number]}")
        by_head = project(embedded).unflatten(-1, (reader.size("heads"), -1)).transpose(0, 1)
        projections.append((by_head / divisor.to(embedded.device)).contiguous())
    return layer._replace(relative=Relative(rows, *projections))


def _deberta_buckets(apart: Tensor, buckets: int, farthest: int) -> Tensor:
    """Distances up to half the buckets as they are, farther ones by their logarithm."""
    middle = buckets // 2
    near = (apart < middle) & (apart > -middle)
    far = torch.where(near, torch.tensor(middle - 1).type_as(apart), apart.abs())
    logarithms = torch.log(far / middle) / torch.log(torch.tensor((farthest - 1) / middle))
    steps = torch.ceil(logarithms * (middle - 1)) + middle
    return torch.where(far <= middle, apart.type_as(steps), steps * apart.sign()).long()


DEBERTA_V2 = _bert("deberta")._replace(
    places="deberta.embeddings.position_embeddings.weight?",
    types=("deberta.embeddings.token_type_embeddings.weight?",),
    project="deberta.embeddings.embed_proj",
    norm_last=True,
    layer=BERT_LAYER._replace(
        queries_keys_values=(
            "attention.self.query_proj",
            "attention.self.key_proj",
            "attention.self.value_proj",
        )
    ),
    prepare=_deberta_terms,
    known=ENCODERS_ONLY,
    adapt=_deberta,
)
# With "legacy": false the head reads the words as they are, whatever is tied.
NEW_DEBERTA_HEAD = HeadNames(
    "deberta.embeddings.word_embeddings",
    "lm_predictions.lm_head.bias",
    tied_bias=False,
    transform="lm_predictions.lm_head.dense",
    activation="hidden_act",
    norm="lm_predictions.lm_head.LayerNorm",
)


def _deberta_v1(reader: WeightReader, layer: Layer) -> Layer:
    """Queries, keys and values of a head next to each other, and every distance its own row."""
    width = reader.size("width")
    weight = layer.queries_keys_values.weight.unflatten(0, (reader.size("heads"), 3, -1))
    queries, values = (reader(f"attention.self.{name}_bias") for name in ("q", "v"))
    products = Affine(
        weight.transpose(0, 1).reshape(3 * width, width),
        torch.cat([queries, queries.new_zeros(width), values]),
    )
    return _deberta(reader, layer._replace(queries_keys_values=products))


# Its norms are formed in float32, which our pass on CUDA does not do.
DEBERTA = DEBERTA_V2._replace(
    layer=BERT_LAYER._replace(queries_keys_values=("attention.self.in_proj",)),
    single=True,
    adapt=_deberta_v1,
    cuda=False,
)

# ---- queries and keys that are turned


def _modernbert_kinds(config: Config) -> Config:
    """Which layers see everything; older configs say every how many."""
    if config.get("layer_types") is not None:
        return config
    every, depth = config.get("global_attn_every_n_layers"), config.get("num_hidden_layers")
    if not isinstance(every, int) or not isinstance(depth, int):
        raise Unknown("the config.json of this modernbert checkpoint has no layer_types.")
    kinds = ("full_attention", "sliding_attention")
    return {**config, "layer_types": [kinds[number % every > 0] for number in range(depth)]}


def _modernbert(reader: WeightReader, layer: Layer) -> Layer:
    """Layers that see a window and layers that see everything, each with its own rotation."""
    kind = reader.config["layer_types"][int(reader.prefix.split(".")[2])]
    if kind not in ("full_attention", "sliding_attention"):
        raise Unknown(f"a layer of this modernbert checkpoint is of type {kind!r}.")
    local = kind == "sliding_attention"
    window = int(reader.option("local_attention")) // 2 if local else None
    return layer._replace(rotary=reader.rotary(kind), window=window)


MODERNBERT = Family(
    words="model.embeddings.tok_embeddings.weight",
    norm_words="model.embeddings.norm",
    layers="model.layers.{}.",
    layer=LayerNames(
        ("attn.Wqkv",),
        "attn.Wo",
        ("mlp.Wi",),
        "mlp.Wo",
        norm_before="attn_norm?",
        norm_between="mlp_norm",
    ),
    norm="model.final_norm",
    head=HeadNames(
        "decoder", transform="head.dense", activation="classifier_activation", norm="head.norm"
    ),
    keys={"eps": "norm_eps", "activation": "hidden_activation"},
    gated=True,
    known=ENCODERS_ONLY,
    prepare=_modernbert_kinds,
    angles=Angles(
        buffer="model.rotary_emb.{}inv_freq",
        kinds={"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"},
        rounds=True,
    ),
    adapt=_modernbert,
)


def _esm_layer(reader: WeightReader, layer: Layer) -> Layer:
    # ESM scales its queries before they are turned, and turning rounds them.
    width = reader.size("width")
    queries = divide(layer.queries_keys_values.rows(0, width), 1 / layer.scale)
    others = layer.queries_keys_values.rows(width, 3 * width)
    rotary = layer.rotary if _turns(reader) else None
    return layer._replace(queries_keys_values=stack(queries, others), scale=1.0, rotary=rotary)


def _turns(reader: WeightReader) -> bool:
    return reader.config.get("position_embedding_type") == "rotary"


def _esm(reader: WeightReader, described: Description) -> Description:
    """Hidden tokens enter as zeros where the model was trained so."""
    embedding = described.embedding
    if not _turns(reader) and embedding.places is None:
        raise Unknown("this esm checkpoint has no places.")
    if reader.config.get("token_dropout"):
        token = int(reader.option("mask_token_id"))
        embedding = embedding._replace(hidden_token=token, kept=1 - 0.15 * 0.8)
    return described._replace(embedding=embedding)


ESM = _bert("esm", ROBERTA_HEAD._replace(tied_bias=False, activation="gelu_python"))._replace(
    after_padding=True,
    types=(),
    places="esm.embeddings.position_embeddings.weight?",
    norm_words="esm.embeddings.layer_norm?",
    norm="esm.encoder.emb_layer_norm_after",
    layer=_norms_first(BERT_LAYER, "attention.LayerNorm", "LayerNorm"),
    known=ENCODERS_ONLY | {"position_embedding_type": ("absolute", "rotary")},
    fixed={"hidden_act": "gelu"},  # whatever the config says
    angles=Angles(10000.0, "esm.rotary_embeddings.inv_freq", rounds=True),
    adapt=_esm_layer,
    finish=_esm,
    unused=("contact_head.", "rotary_embeddings."),
)


def _roformer(reader: WeightReader, layer: Layer) -> Layer:
    """Neighbouring entries of a head are turned together, which are halves elsewhere."""
    if "rotary" not in reader.shared:
        table = reader.at("roformer.encoder.embed_positions.")("weight")
        sin, cos = (half.contiguous() for half in table.chunk(2, dim=1))
        reader.shared["rotary"] = Rotary(cos, sin)
    size, width = reader.head_size, reader.size("width")
    order = torch.cat([torch.arange(0, size, 2), torch.arange(1, size, 2)])
    order = (torch.arange(0, 2 * width, size)[:, None] + order).flatten()
    order = torch.cat([order, torch.arange(2 * width, 3 * width)]).to(reader.device)
    weight, bias = layer.queries_keys_values
    products = Affine(weight[order], None if bias is None else bias[order])
    return layer._replace(queries_keys_values=products, rotary=reader.shared["rotary"])


ROFORMER = _bert("roformer")._replace(
    places="",
    project="roformer.embeddings_project",
    known=ENCODERS_ONLY | {"rotary_value": (False,)},
    adapt=_roformer,
)

# ---- layers named as Llama's

LLAMA_LAYER = LayerNames(
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attn.o_proj",
    ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.down_proj",
    norm_before="input_layernorm",
    norm_between="post_attention_layernorm",
)
# What Llama calls the norm after attention stands before its feed-forward.
NOMIC_LAYER = _norms_first(LLAMA_LAYER, "", "")._replace(
    norm_attended="post_attention_layernorm", norm_out="post_mlp_layernorm"
)


def _esmc(reader: WeightReader, layer: Layer) -> Layer:
    """ESM C divides what is added by a number that grows with the depth."""
    by = sqrt(reader.size("depth") / 36)
    return layer._replace(attended=divide(layer.attended, by), out=divide(layer.out, by))


ESMC = Family(
    words="esmc.embed_tokens.weight",
    layers="esmc.layers.{}.",
    layer=LLAMA_LAYER._replace(norm_queries="self_attn.q_norm", norm_keys="self_attn.k_norm"),
    norm="esmc.norm",
    head=ROBERTA_HEAD._replace(bias=""),
    fixed={"layer_norm_eps": 1e-5},
    defaults={"tie_word_embeddings": False},
    known=ENCODERS_ONLY,
    angles=Angles(buffer="esmc.rotary_emb.inv_freq"),
    adapt=_esmc,
)
EUROBERT = Family(
    words="model.embed_tokens.weight",
    layers="model.layers.{}.",
    layer=LLAMA_LAYER,
    norm="model.norm",
    head=HeadNames("lm_head"),
    keys={"eps": "rms_norm_eps"},
    defaults={"tie_word_embeddings": False},
    known=ENCODERS_ONLY,
    angles=Angles(buffer="model.rotary_emb.inv_freq"),
    rms=True,
)


def _nomic(body: str, head: HeadNames, layer: LayerNames = NOMIC_LAYER, types: str = "") -> Family:
    return _bert(body, head)._replace(
        places="",
        types=(f"{body}.embeddings.token_type_embeddings.weight{types}",),
        layers=f"{body}.layers.{{}}.",
        layer=layer,
        angles=Angles(buffer=f"{body}.rotary_emb.inv_freq"),
    )


NOMIC = _nomic("nomic_bert", BERT_HEAD._replace(norm="cls.predictions.transform.layer_norm"))
GTE = _nomic("gte", ROBERTA_HEAD._replace(bias=""), types="?")
JINA = _nomic("roberta", ROBERTA_HEAD, NOMIC_LAYER._replace(between=("mlp.fc1",), out="mlp.fc2"))

# ---- diffusion LMs: LLaDA has Llama's layers under its own names

GLUERS = ("silu", "gelu", "relu")
WIDE = Angles(1e4, buffer="", wide=True)


def _llada_config(config: Config) -> Config:
    width, has_one_key = config.get("d_model"), bool(config.get("multi_query_attention"))
    ratio = config.get("mlp_ratio", 4)
    return {
        **config,
        "embedding_size": config.get("embedding_size") or config.get("vocab_size"),
        "n_kv_heads": 1 if has_one_key else config.get("n_kv_heads"),
        "mlp_hidden_size": config.get("mlp_hidden_size") or (width and ratio * width),
    }


def _llada_layers(reader: WeightReader) -> list[str]:
    """Blocks one by one, or in groups."""
    size, numbers = reader.config.get("block_group_size") or 1, range(reader.size("depth"))
    if size == 1:
        return [f"model.transformer.blocks.{number}." for number in numbers]
    return [f"model.transformer.block_groups.{n // size}.{n % size}." for n in numbers]


def _llada(reader: WeightReader, described: Description) -> Description:
    if not reader.config.get("scale_logits"):
        return described
    weight, bias = described.head.scores
    return described._replace(head=Head(Affine(weight / sqrt(described.width), bias)))


LLADA = Family(
    words="model.transformer.wte.weight",
    layers=_llada_layers,
    layer=LayerNames(
        ("q_proj", "k_proj", "v_proj"),
        "attn_out",
        ("ff_proj", "up_proj"),
        "ff_out",
        norm_before="attn_norm",
        norm_between="ff_norm",
    ),
    norm="model.transformer.ln_f",
    head=HeadNames("model.transformer.ff_out"),
    keys={
        "width": "d_model",
        "heads": "n_heads",
        "shared": "n_kv_heads",
        "depth": "n_layers",
        "between": "mlp_hidden_size",
        "longest": "max_sequence_length",
        "vocab": "embedding_size",
        "eps": "rms_norm_eps",
        "activation": "activation_type",
    },
    fixed={"tie_word_embeddings": False},
    defaults={"rms_norm_eps": 1e-5, "activation_type": "silu"},
    known={
        "architectures": (["LLaDAModelLM"],),
        "block_type": ("llama",),
        "rope": (True,),
        "layer_norm_type": ("rms",),
        "alibi": (False,),
        "attention_layer_norm": (False,),
        "input_emb_norm": (False,),
        "bias_for_layer_norm": (False, None),
        "activation_type": GLUERS,
    },
    prepare=_llada_config,
    angles=WIDE,
    rms=True,
    finish=_llada,
    strict=False,
)
# Dream and others took over the layers of an autoregressive model, read with full attention.
QWEN = Family(
    words="model.embed_tokens.weight",
    layers="model.layers.{}.",
    layer=LLAMA_LAYER,
    norm="model.norm",
    head=HeadNames("lm_head"),
    keys={"eps": "rms_norm_eps"},
    defaults={"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False},
    known={"rope_scaling": (None,), "use_sliding_window": (False,), "hidden_act": GLUERS},
    angles=WIDE,
    rms=True,
    strict=False,
)
# DreamForCausalLM, of the same model_type, is another one: block by block and not shifted.
DREAM = QWEN._replace(known={**QWEN.known, "architectures": (["DreamModel"],)})

# ---- MDLM: a diffusion transformer, whose time is always 0

TIME_FEATURES = 256  # cosines and sines of the time, half each


def _silent_time(reader: WeightReader) -> Tensor:
    """What the layers see of time 0, in float64: silu of its embedding."""
    if "time" not in reader.shared:
        half = TIME_FEATURES // 2
        state = torch.cat([torch.ones(half), torch.zeros(half)]).double()  # cosines, sines of 0
        for number in (0, 2):
            state = F.silu(_in_float64(reader.at(f"backbone.sigma_map.mlp.{number}."), state))
        reader.shared["time"] = state
    time: Tensor = reader.shared["time"]
    return time


def _in_float64(reader: WeightReader, state: Tensor) -> Tensor:
    """The product of that part of the checkpoint."""
    return F.linear(state, reader.raw("weight").double(), reader.raw("bias").double())


def _modulation(reader: WeightReader, count: int) -> tuple[Tensor, ...]:
    """Shifts, scales and gates, (width,) float64 each."""
    product = reader.at(f"{reader.prefix}adaLN_modulation.")
    return _in_float64(product, _silent_time(reader)).chunk(count)


def _modulated_norm(reader: WeightReader, name: str, shift: Tensor, scale: Tensor) -> Norm:
    """A norm with a weight, then x (1 + scale) + shift."""
    weight = reader.raw(f"{name}.weight").double() * (1 + scale)
    return Norm(reader.put(weight), reader.put(shift), reader.eps)


def _gated_product(reader: WeightReader, name: str, gate: Tensor) -> Affine:
    """A product whose outputs are multiplied by a gate."""
    weight, bias = reader.raw(f"{name}.weight").double() * gate[:, None], None
    if f"{name}.bias" in reader:
        bias = reader.put(reader.raw(f"{name}.bias").double() * gate)
    return Affine(reader.put(weight), bias)


def _mdlm_layer(reader: WeightReader, layer: Layer) -> Layer:
    """A layer modulated by the time.

    A model that was trained without it (time_conditioning false) reads time 0 always. What the
    modulation gives is then constant: shift and scale go into the norms, gates into the products.
    """
    shift, scale, gate, shift_between, scale_between, gate_out = _modulation(reader, 6)
    return layer._replace(
        attended=_gated_product(reader, "attn_out", gate),
        out=_gated_product(reader, "mlp.2", gate_out),
        norm_before=_modulated_norm(reader, "norm1", shift, scale),
        norm_between=_modulated_norm(reader, "norm2", shift_between, scale_between),
    )


def _mdlm(reader: WeightReader, described: Description) -> Description:
    last = reader.at("backbone.output_layer.", described.layers[-1].device)
    return described._replace(norm=_modulated_norm(last, "norm_final", *_modulation(last, 2)))


MDLM = Family(
    words="backbone.vocab_embed.embedding",
    layers="backbone.blocks.{}.",
    layer=LayerNames(("attn_qkv",), "attn_out", ("mlp.0",), "mlp.2"),
    head=HeadNames("backbone.output_layer.linear"),
    keys={
        "width": "hidden_dim",
        "depth": "n_blocks",
        "heads": "n_heads",
        "longest": "model_length",
        "between": "",
    },
    fixed={"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-5, "tie_word_embeddings": False},
    known={"time_conditioning": (False,), "causal": (False,)},
    angles=WIDE,
    adapt=_mdlm_layer,
    finish=_mdlm,
    strict=False,
)

# ---- by the model_type of the config

ENCODERS = {
    "albert": ALBERT,
    "bert": _bert("bert"),
    "camembert": ROBERTA,
    "data2vec-text": _roberta("data2vec_text"),
    "deberta": DEBERTA,
    "deberta-v2": DEBERTA_V2,
    "distilbert": DISTILBERT,
    "electra": ELECTRA,
    "ernie": ERNIE,
    "esm": ESM,
    "esmc": ESMC,
    "eurobert": EUROBERT,
    "gte": GTE,
    "jina_embeddings_v3": JINA,
    "megatron-bert": MEGATRON,
    "modernbert": MODERNBERT,
    "mpnet": MPNET,
    "nomic_bert": NOMIC,
    "roberta": ROBERTA,
    "roberta-prelayernorm": ROBERTA_PRELAYERNORM,
    "roformer": ROFORMER,
    "xlm-roberta": ROBERTA,
    "xlm-roberta-xl": XLM_ROBERTA_XL,
}
DIFFUSION = {"llada": LLADA, "dream": DREAM, "a2d-qwen2": QWEN, "a2d-llama": QWEN, "mdlm": MDLM}
SHIFTED = {"dream"}  # the scores of site i are read at i - 1
# Diffusion LMs whose noise is other tokens: nothing in a text says that a site is hidden.
NO_MASK = {"diffusion_gemma": "DiffusionGemma", "duo": "DUO"}


def shape_of(config: Config) -> str:
    """The shape that a config names, in lower case: Dream spells its own with a capital."""
    return str(config.get("model_type", "")).lower()


def family_of(config: Config) -> Family:
    """The entry of the table; `Unknown` where there is none."""
    shape = shape_of(config)
    family = ENCODERS.get(shape) or DIFFUSION.get(shape)
    if family is None:
        raise Unknown(f"{shape} is not one of the architectures that can be described.")
    if shape in ("deberta", "deberta-v2") and config.get("legacy", True) is False:
        return family._replace(head=NEW_DEBERTA_HEAD)
    if shape == "llada" and config.get("weight_tying"):
        return family._replace(head=HeadNames("model.transformer.wte"))
    return family


def describe(
    config: Config,
    tensors: Tensors,
    devices: Sequence[torch.device],
    dtype: torch.dtype,
    buffers: Tensors | None = None,
) -> Description:
    """How a checkpoint is built, its layers spread over the devices; `Unknown` where none says."""
    family = family_of(config)
    if not family.cuda and any(device.type == "cuda" for device in devices):
        raise Unknown(f"{shape_of(config)} is computed on a CPU only.")
    try:
        return WeightReader(family, config, tensors, devices, dtype, buffers).description()
    except RuntimeError as error:  # torch's, of tensors that do not go together
        raise Unknown(MISFIT) from error


def head_of(
    config: Config, tensors: Tensors, device: torch.device, dtype: torch.dtype
) -> Head | None:
    """The head alone: the layers may be built in a way that no description says."""
    try:
        return WeightReader(family_of(config), config, tensors, [device], dtype).head()
    except Unknown:
        return None
