"""Every named architecture by our own pass, against transformers' full model."""

import warnings
from typing import Any

import pytest
import torch
import transformers

import conftest
from glauber.conditionals.base import PAD, hide
from glauber.conditionals.masked_lm import MaskedLM

SIZES = conftest.SIZES | {"hidden_dropout_prob": 0.0}
BARE = conftest.SIZES  # of configurations that know no dropout of that name
ENDS = dict(cls_token_id=2, bos_token_id=2, sep_token_id=3, eos_token_id=3)
DISTIL = dict(
    vocab_size=len(conftest.VOCABULARY), dim=32, n_layers=2, n_heads=2, hidden_dim=40,
    max_position_embeddings=40,
)  # fmt: skip
RELATIVE = SIZES | dict(relative_attention=True, position_biased_input=False)
BOTH = RELATIVE | dict(pos_att_type=["p2c", "c2p"], legacy=True)
ESM = BARE | dict(mask_token_id=4, position_embedding_type="rotary", token_dropout=True)

# Architecture, and what is switched: every option stands here on and off.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", SIZES),
    "roberta": ("Roberta", SIZES),
    "electra": ("Electra", SIZES | {"embedding_size": 16}),
    "distilbert": ("DistilBert", DISTIL),
    "distilbert-relu": ("DistilBert", DISTIL | {"activation": "relu"}),
    "albert": ("Albert", SIZES | {"embedding_size": 16}),
    "albert-groups": (
        "Albert",
        SIZES | dict(
            num_hidden_layers=4, num_hidden_groups=2, inner_group_num=2, hidden_act="gelu"
        ),
    ),
    "mpnet": ("MPNet", SIZES),
    "deberta-v2": ("DebertaV2", BOTH | {"position_buckets": 4}),
    "deberta-v3": (
        "DebertaV2",
        BOTH | dict(
            position_buckets=4, share_att_key=True, norm_rel_ebd="layer_norm", legacy=False
        ),
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
        BARE | ENDS | dict(
            local_attention=6, norm_bias=True, attention_bias=True, mlp_bias=True,
            classifier_bias=True, decoder_bias=False, hidden_activation="silu",
            layer_types=["sliding_attention", "sliding_attention"],
        ),
    ),
    "esm": ("Esm", ESM),
    "esm-norm-before": ("Esm", ESM | dict(emb_layer_norm_before=True, token_dropout=False)),
    "esm-absolute": ("Esm", ESM | dict(position_embedding_type="absolute")),
    "esmc": ("Esmc", BARE | dict(mask_token_id=4)),
    "esmc-biases": ("Esmc", BARE | dict(mask_token_id=4, attention_bias=True, mlp_bias=True)),
    "eurobert": ("EuroBert", BARE | ENDS),
    "eurobert-grouped": (
        "EuroBert",
        BARE | ENDS | dict(
            num_attention_heads=4, num_key_value_heads=2, attention_bias=True, mlp_bias=True
        ),
    ),
    "nomic": ("NomicBert", BARE),
}  # fmt: skip
# One of each, where options make no difference.
ONE_OF_EACH = [
    "distilbert", "albert-groups", "mpnet", "deberta-v3", "modernbert", "esm", "esmc",
    "eurobert-grouped", "nomic",
]  # fmt: skip


def make(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A tiny masked LM with peaked conditionals; no norm or bias is trivial."""
    shape, options = FAMILIES[name]
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
