"""A tiny random model of every type in transformers' masked-LM mapping."""

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

import conftest

TYPES = sorted(MODEL_FOR_MASKED_LM_MAPPING_NAMES)
ENDS = dict(cls_token_id=2, bos_token_id=2, sep_token_id=3, eos_token_id=3)
SEQ2SEQ = dict(
    d_model=32,
    encoder_layers=1,
    decoder_layers=1,
    encoder_ffn_dim=40,
    decoder_ffn_dim=40,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    decoder_start_token_id=3,
    forced_eos_token_id=None,
    **ENDS,
)
XLM = dict(emb_dim=32, n_layers=2, n_heads=2, pad_index=0, bos_index=2, eos_index=3, mask_index=4)
GROUPED = dict(num_key_value_heads=2, head_dim=16)
LAYERS = dict(layer_types=["sliding_attention", "full_attention"], sliding_window=8)

# What each type needs beyond the sizes of `conftest.SIZES`; None removes a size.
SETTINGS: dict[str, dict[str, Any]] = {
    "bart": SEQ2SEQ,
    "big_bird": dict(block_size=4, num_random_blocks=1),
    "convbert": dict(embedding_size=16, conv_kernel_size=3),
    "distilbert": dict(dim=32, n_layers=2, n_heads=2, hidden_dim=40),
    "esm": dict(mask_token_id=4),
    "eurobert": ENDS,
    "flaubert": XLM,
    "funnel": dict(
        block_sizes=[1, 1],
        d_model=32,
        n_head=2,
        d_head=16,
        d_inner=40,
        num_decoder_layers=1,
        num_hidden_layers=None,
        hidden_size=None,
        num_attention_heads=None,
    ),
    "layoutlm": dict(max_2d_position_embeddings=20),
    "longformer": dict(attention_window=[4, 4]),
    "luke": dict(entity_vocab_size=10, entity_emb_size=8),
    "mbart": SEQ2SEQ,
    "mobilebert": dict(
        embedding_size=16, intra_bottleneck_size=16, num_feedforward_networks=1, true_hidden_size=16
    ),
    "modernbert": dict(**ENDS, local_attention=8, global_attn_every_n_layers=2),
    "mvp": SEQ2SEQ,
    "neomme": dict(**GROUPED, **LAYERS, embedding_rank=8, embedding_dim=8, per_layer_config={}),
    "nystromformer": dict(num_landmarks=4, segment_means_seq_len=4),
    "perceiver": dict(
        num_latents=4,
        d_latents=32,
        d_model=32,
        num_self_attends_per_block=1,
        num_self_attention_heads=2,
        num_cross_attention_heads=2,
    ),
    "reformer": dict(
        attention_head_size=16,
        axial_pos_shape=[4, 10],
        axial_pos_embds_dim=[16, 16],
        attn_layers=["local", "lsh"],
        lsh_attn_chunk_length=4,
        local_attn_chunk_length=4,
        feed_forward_size=40,
        is_decoder=False,
        num_hidden_layers=None,
        num_buckets=2,
        hash_seed=1,
        eos_token_id=3,
    ),
    "rembert": dict(input_embedding_size=16, output_embedding_size=16),
    "roc_bert": dict(
        pronunciation_vocab_size=10,
        shape_vocab_size=10,
        pronunciation_embed_dim=8,
        shape_embed_dim=8,
    ),
    "squeezebert": dict(embedding_size=32, intermediate_size=64),
    "ultrabert": dict(**GROUPED, **LAYERS, prediction_head_size=32),
    "xlm": XLM,
    "xmod": dict(languages=["en_XX"], default_language="en_XX"),
}

# What cannot be used, and words of the refusal.
REFUSED = {"modernvbert": "is a multimodal model", "ultravbert": "is a multimodal model"}


def make_tiny(model_type: str, folder: Path) -> Path:
    """A folder with a tiny random model of that type and the tests' tokenizer.

    Types that are refused are refused by their config, so that is all they have.
    """
    tokenizer = conftest.make_tokenizer()
    tokenizer.model_max_length = 10**6  # so that the model's own limit counts
    tokenizer.save_pretrained(folder)
    if model_type in REFUSED:
        transformers.AutoConfig.for_model(model_type).save_pretrained(folder)
        return folder
    settings = conftest.SIZES | SETTINGS.get(model_type, {})
    settings = {key: value for key, value in settings.items() if value is not None}
    config = transformers.AutoConfig.for_model(model_type, **settings)
    torch.manual_seed(7)
    model = transformers.AutoModelForMaskedLM.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=0.15)
    model.eval().save_pretrained(folder)
    return folder


def plain_scores(folder: Path, tokens: torch.Tensor, sites: torch.Tensor) -> torch.Tensor:
    """Scores (rows, k, vocab) by transformers alone, one row at a time, sites hidden."""
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    hidden = tokens.scatter(1, sites, 4)
    with torch.no_grad():
        rows = [model(input_ids=row[None]).logits[0] for row in hidden]
    return torch.stack([row[at] for row, at in zip(rows, sites, strict=True)])


def random_rows(length: int, rows: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Texts [CLS] ... [SEP] of random words and k different sites of each."""
    generator = torch.Generator().manual_seed(length)
    words = (7, len(conftest.VOCABULARY))
    tokens = torch.randint(*words, (rows, length), generator=generator)
    tokens[:, 0], tokens[:, -1] = 2, 3
    order = torch.rand(rows, length - 2, generator=generator).argsort(dim=1)
    return tokens, order[:, :k] + 1
