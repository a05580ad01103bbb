"""Every named architecture by our own pass, against transformers' full model."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import conftest
from glauber.foundation.errors import GlauberWarning
from glauber.models.base import PAD, hide
from glauber.models.forward import guard
from glauber.models.forward.description import Description
from glauber.models.masked_lm import EncoderWeights, MaskedLM
from glauber.models.weights import in_precision
from glauber.sampling.sample import sample

SIZES = conftest.SIZES | {"hidden_dropout_prob": 0.0}
BARE = conftest.SIZES  # of configurations that know no dropout of that name
ENDS = dict(cls_token_id=2, bos_token_id=2, sep_token_id=3, eos_token_id=3)
DISTIL = dict(
    vocab_size=len(conftest.VOCABULARY),
    dim=32,
    n_layers=2,
    n_heads=2,
    hidden_dim=40,
    max_position_embeddings=40,
)
RELATIVE = SIZES | dict(relative_attention=True, position_biased_input=False)
BOTH = RELATIVE | dict(pos_att_type=["p2c", "c2p"], legacy=True)
ESM = BARE | dict(mask_token_id=4, position_embedding_type="rotary", token_dropout=True)

# Architecture, and what is switched: every option stands here on and off.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", SIZES),
    "roberta": ("Roberta", SIZES),
    "xlm-roberta": ("XLMRoberta", SIZES),
    "camembert": ("Camembert", SIZES),
    "electra": ("Electra", SIZES | {"embedding_size": 16}),
    "distilbert": ("DistilBert", DISTIL),
    "distilbert-relu": ("DistilBert", DISTIL | {"activation": "relu"}),
    "albert": ("Albert", SIZES | {"embedding_size": 16}),
    "albert-groups": (
        "Albert",
        SIZES
        | dict(num_hidden_layers=4, num_hidden_groups=2, inner_group_num=2, hidden_act="gelu"),
    ),
    "mpnet": ("MPNet", SIZES),
    "deberta-v2": ("DebertaV2", BOTH | {"position_buckets": 4}),
    "deberta-v3": (
        "DebertaV2",
        BOTH
        | dict(position_buckets=4, share_att_key=True, norm_rel_ebd="layer_norm", legacy=False),
    ),
    "deberta-no-buckets": ("DebertaV2", BOTH | dict(share_att_key=True, max_relative_positions=6)),
    "deberta-c2p": ("DebertaV2", RELATIVE | dict(pos_att_type=["c2p"], legacy=False)),
    "deberta-p2c": (
        "DebertaV2",
        RELATIVE | dict(pos_att_type=["p2c"], position_buckets=8, type_vocab_size=2),
    ),
    "deberta-absolute": (
        "DebertaV2",
        SIZES | dict(position_biased_input=True, type_vocab_size=2, embedding_size=16),
    ),
    "deberta-projected": (
        "DebertaV2",
        BOTH | dict(position_biased_input=True, embedding_size=16, position_buckets=8),
    ),
    "modernbert": (
        "ModernBert",
        BARE | ENDS | dict(num_hidden_layers=4, local_attention=8, global_attn_every_n_layers=2),
    ),
    "modernbert-biases": (
        "ModernBert",
        BARE
        | ENDS
        | dict(
            local_attention=6,
            norm_bias=True,
            attention_bias=True,
            mlp_bias=True,
            classifier_bias=True,
            decoder_bias=False,
            hidden_activation="silu",
            layer_types=["sliding_attention", "sliding_attention"],
        ),
    ),
    "esm": ("Esm", ESM),
    "esm-one-head": ("Esm", ESM | dict(num_attention_heads=1)),  # of 32: no power of 4
    "esm-norm-before": ("Esm", ESM | dict(emb_layer_norm_before=True, token_dropout=False)),
    "esm-absolute": ("Esm", ESM | dict(position_embedding_type="absolute")),
    "esmc": ("Esmc", BARE | dict(mask_token_id=4)),
    "esmc-biases": ("Esmc", BARE | dict(mask_token_id=4, attention_bias=True, mlp_bias=True)),
    "eurobert": ("EuroBert", BARE | ENDS | dict(mask_token_id=4)),
    "eurobert-grouped": (
        "EuroBert",
        BARE
        | ENDS
        | dict(
            num_attention_heads=4,
            num_key_value_heads=2,
            attention_bias=True,
            mlp_bias=True,
            mask_token_id=4,
        ),
    ),
    "nomic": ("NomicBert", BARE),
    "ernie": ("Ernie", SIZES),
    "ernie-tasks": ("Ernie", SIZES | {"use_task_id": True}),
    "data2vec": ("Data2VecText", SIZES),
    "megatron": ("MegatronBert", SIZES),
    "xlm-roberta-xl": ("XLMRobertaXL", SIZES),
    "roberta-prelayernorm": ("RobertaPreLayerNorm", SIZES | {"hidden_act": "relu"}),
    "roformer": ("RoFormer", SIZES),
    "roformer-projected": ("RoFormer", SIZES | {"embedding_size": 16, "hidden_act": "gelu_new"}),
    "deberta-v1": ("Deberta", BOTH),
    "deberta-v1-far": ("Deberta", BOTH | dict(max_relative_positions=6, type_vocab_size=2)),
    "deberta-v1-c2p": ("Deberta", RELATIVE | dict(pos_att_type=["c2p"], legacy=False)),
    "deberta-v1-absolute": ("Deberta", SIZES | {"position_biased_input": True}),
    "gte": ("Gte", BARE),
    "gte-types": ("Gte", BARE | {"type_vocab_size": 0}),
    "jina-v3": ("JinaEmbeddingsV3", BARE),
}
# One of each, where options make no difference.
ONE_OF_EACH = [
    "distilbert",
    "albert-groups",
    "mpnet",
    "deberta-v3",
    "modernbert",
    "esm",
    "esmc",
    "eurobert-grouped",
    "nomic",
]


def make(name: str, dtype: torch.dtype = torch.float32, **others: Any) -> Any:
    """A tiny masked LM with peaked conditionals; no norm or bias is trivial."""
    shape, options = FAMILIES[name]
    options = options | others
    torch.manual_seed(7)
    config = getattr(transformers, f"{shape}Config")(**options)
    model = transformers.AutoModelForMaskedLM.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=0.2)
            else:
                weight.add_(0.3 * torch.randn_like(weight))
    return model.to(dtype).eval()


def some_rows(lengths: list[int], k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random texts of these lengths, PAD behind, with k sites each."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(
        7, len(conftest.VOCABULARY), (len(lengths), max(lengths)), generator=generator
    )
    places = torch.arange(max(lengths))
    tokens[places >= torch.tensor(lengths)[:, None]] = PAD
    sites = [torch.randperm(length, generator=generator)[:k] for length in lengths]
    return tokens, torch.stack(sites)


def by_transformers(model: Any, tokens: torch.Tensor, sites: torch.Tensor) -> torch.Tensor:
    """The logits of the full model at the sites, in one padded call with a mask."""
    hidden = hide(tokens, sites, 4)
    there = hidden != PAD
    # Behind the text stands the token that each model itself pads with.
    filler = 1 if model.config.model_type == "mpnet" else 0
    with torch.no_grad():
        logits = model(
            input_ids=hidden.masked_fill(~there, filler), attention_mask=there.long()
        ).logits
    return logits.gather(1, sites[..., None].expand(-1, -1, logits.shape[-1]))


_describe = EncoderWeights.describe


def describe(model: Any) -> Any:
    """The description of a module, whatever a test puts in its place."""
    return _describe(EncoderWeights.of_module(model))


def opened(model: Any, tokenizer: Any) -> MaskedLM:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return MaskedLM(model, tokenizer)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_scores_are_those_of_transformers(name, dtype, tokenizer):
    model = make(name, dtype)
    laws = opened(model, tokenizer)
    assert laws.encoder is not None
    tokens, sites = some_rows([12, 5, 27, 12, 36, 8], 3)
    theirs = by_transformers(model, tokens, sites)
    assert theirs.std() > 0.5
    atol = 1e-5 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(laws.scores(tokens, sites), theirs, rtol=0, atol=atol)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_the_trajectory_is_the_same_for_any_batch(name, tokenizer, texts):
    """Chains of two lengths: alone, in threes and in eights, in batches of 1, 2 and 8."""
    model = MaskedLM(make(name), tokenizer, name="tiny")
    runs = [
        sample(model, texts[:2], chains=chains, steps=3, seed=3, batch_size=size)
        for chains, size in ((8, 8), (3, 2), (1, 1))
    ]
    whole = {field: runs[0].read(field) for field in runs[0].fields}
    for run in runs[1:]:
        for field in whole:
            there = run.read(field)
            np.testing.assert_array_equal(there, whole[field][: len(there)], err_msg=field)


def _without(part: str) -> Any:
    """The description of a model whose layers lack a part."""

    def broken(model: Any) -> Description:
        described = describe(model)
        return described._replace(layers=[one._replace(**{part: None}) for one in described.layers])

    return broken


def _swapped(model: Any) -> Description:
    """The two norms of each layer in each other's place."""
    described = describe(model)
    layers = [
        layer._replace(norm_attended=layer.norm_out, norm_out=layer.norm_attended)
        for layer in described.layers
    ]
    return described._replace(layers=layers)


def _embedded(**changed: Any) -> Any:
    def broken(model: Any) -> Description:
        described = describe(model)
        return described._replace(embedding=described.embedding._replace(**changed))

    return broken


def _wider(model: Any) -> Description:
    """Local layers that look one token too far."""
    described = describe(model)
    layers = [
        layer._replace(window=layer.window and layer.window + 1) for layer in described.layers
    ]
    return described._replace(layers=layers)


def _fewer_heads(model: Any) -> Description:
    """One that cannot be computed."""
    return describe(model)._replace(heads=3)


BROKEN = {
    "rotation": ("modernbert", _without("rotary")),
    "window": ("modernbert", _wider),
    "norms": ("distilbert", _swapped),
    "last-norm": ("eurobert", lambda model: describe(model)._replace(norm=None)),
    "relative": ("deberta-v3", _without("relative")),
    "places": ("albert", _embedded(places=None)),
    "dropout": ("esm", _embedded(kept=1.0)),
    "heads": ("mpnet", _fewer_heads),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_wrong_description_is_found_and_not_used(what, tokenizer, texts, monkeypatch):
    name, broken = BROKEN[what]
    monkeypatch.setattr(EncoderWeights, "describe", lambda weights: broken(weights.module))
    model = make(name)
    said = "fails on tiny" if what == "heads" else "differs from transformers' by .* on tiny"
    with pytest.warns(GlauberWarning, match=f"{said}, so transformers' is used"):
        laws = MaskedLM(model, tokenizer, name="tiny")
    assert laws.encoder is None
    tokens, sites = some_rows([12, 5, 12], 2)
    theirs = by_transformers(model, tokens, sites)
    torch.testing.assert_close(laws.scores(tokens, sites), theirs, rtol=0, atol=1e-5)
    if what == "rotation":
        monkeypatch.undo()
        right = MaskedLM(model, tokenizer, name="tiny")
        slow, fast = (
            sample(one, texts[:1], chains=4, steps=5, seed=3).read("token") for one in (laws, right)
        )
        np.testing.assert_array_equal(slow, fast)


UNKNOWN = {
    "convolution": ("deberta-v3", {"conv_kernel_size": 3}),
    "decoder": ("bert", {"is_decoder": True}),
    "angles-by-length": (
        "eurobert",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
    ),
    "other-heads": ("eurobert", {"head_dim": 8}),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_no_description_says_is_left_to_transformers(what, tokenizer):
    name, options = UNKNOWN[what]
    model = make(name, **options)
    assert describe(model) is None
    laws = opened(model, tokenizer)
    tokens, sites = some_rows([9, 9], 2)
    theirs = by_transformers(model, tokens, sites)
    torch.testing.assert_close(laws.scores(tokens, sites), theirs, rtol=0, atol=1e-5)


def test_a_text_is_tried_that_is_longer_than_the_window_and_the_even_distances():
    assert guard.lengths_to_try(describe(make("bert"))) == [guard.SHORT]
    assert guard.lengths_to_try(describe(make("modernbert"))) == [guard.SHORT, 4 + guard.BEYOND]
    # Distances up to 6 have rows of their own, and farther ones share the last.
    clamped = describe(make("deberta-no-buckets"))
    assert guard.lengths_to_try(clamped) == [guard.SHORT, 5 + guard.BEYOND]


def test_norms_of_float32_may_round_in_a_model_of_float64():
    """The root-mean-square norm sums in float32: by another order of the sum it says 3e-8 else."""
    plain, rounding = (describe(make(name).double()) for name in ("bert", "eurobert"))
    assert guard.tolerance(plain, torch.float64) == guard.TOLERANCE[torch.float64]
    assert guard.tolerance(rounding, torch.float64) == guard.ROUNDED
    assert guard.tolerance(rounding, torch.float32) == guard.TOLERANCE[torch.float32]


def test_angles_keep_their_bits_in_half_precision():
    model = in_precision(make("modernbert"), torch.device("cpu"), torch.bfloat16)
    whole = make("modernbert").model.rotary_emb
    for kind in ("full_attention", "sliding_attention"):
        torch.testing.assert_close(
            getattr(model.model.rotary_emb, f"{kind}_inv_freq"),
            getattr(whole, f"{kind}_inv_freq"),
            rtol=0,
            atol=0,
        )
    assert model.dtype == torch.bfloat16
