"""Every architecture on an NVIDIA GPU gives the scores of transformers on the CPU."""

import warnings
from itertools import islice

import pytest
import torch
import transformers

from bench.families import FAMILIES, built, ours, starting, tokenizer_of
from glauber.dynamics.cuda import graph_kernel
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.foundation.errors import GlauberWarning
from glauber.models.base import PAD, hide
from glauber.models.forward import guard
from glauber.models.masked_lm import MaskedLM

pytestmark = pytest.mark.cuda

TINY = dict(
    vocab_size=60,
    hidden_size=64,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=96,
    max_position_embeddings=1100,
    pad_token_id=0,
)
ENDS = dict(cls_token_id=1, bos_token_id=1, sep_token_id=2, eos_token_id=2)
RELATIVE = TINY | dict(
    relative_attention=True, position_biased_input=False, pos_att_type=["p2c", "c2p"]
)
# Heads of 64, a scale that is a power of two: transformers rounds queries after scaling them.
ESM = TINY | dict(
    num_attention_heads=1, mask_token_id=4, position_embedding_type="rotary", token_dropout=True
)
SMALL = {
    "bert": ("Bert", TINY),
    "roberta": ("Roberta", TINY),
    "xlm-roberta": ("XLMRoberta", TINY),
    "camembert": ("Camembert", TINY),
    "electra": ("Electra", TINY | {"embedding_size": 16}),
    "bert, heads of 24": ("Bert", TINY | {"hidden_size": 48}),
    "distilbert": (
        "DistilBert",
        dict(
            vocab_size=60,
            dim=64,
            n_layers=2,
            n_heads=2,
            hidden_dim=96,
            max_position_embeddings=1100,
        ),
    ),
    "albert": ("Albert", TINY | {"embedding_size": 16}),
    "mpnet": ("MPNet", TINY),
    "deberta-v2": ("DebertaV2", RELATIVE | {"legacy": True}),
    "deberta-v3": (
        "DebertaV2",
        RELATIVE
        | dict(position_buckets=16, share_att_key=True, norm_rel_ebd="layer_norm", legacy=False),
    ),
    "modernbert": (
        "ModernBert",
        TINY | ENDS | dict(local_attention=128, global_attn_every_n_layers=2),
    ),
    "modernbert, heads of 16": (
        "ModernBert",
        TINY | ENDS | dict(num_attention_heads=4, local_attention=16, hidden_activation="silu"),
    ),
    "esm": ("Esm", ESM),
    "esm-absolute": ("Esm", ESM | {"position_embedding_type": "absolute"}),
    "esmc": ("Esmc", TINY | {"mask_token_id": 4}),
    "eurobert": ("EuroBert", TINY | ENDS),
    "eurobert, heads of 128": ("EuroBert", TINY | ENDS | {"hidden_size": 256}),
    "nomic": ("NomicBert", TINY),
    "ernie": ("Ernie", TINY),
    "megatron": ("MegatronBert", TINY),
    "roformer": ("RoFormer", TINY),
    "data2vec": ("Data2VecText", TINY),
    "xlm-roberta-xl": ("XLMRobertaXL", TINY),
    "roberta-prelayernorm": ("RobertaPreLayerNorm", TINY),
    "gte": ("Gte", TINY),
    "jina-v3": ("JinaEmbeddingsV3", TINY),
}
SMALL = {
    name: (shape, options)
    for name, (shape, options) in SMALL.items()
    if hasattr(transformers, f"{shape}Config")  # the oldest transformers has not all
}
LENGTHS = (22, 130, 514, 1024)
LIMIT = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 1}


def tiny(name):
    """A model of random weights, on the CPU in float64."""
    shape, options = SMALL[name]
    torch.manual_seed(7)
    config = getattr(transformers, f"{shape}Config")(**options)
    model = transformers.AutoModelForMaskedLM.from_config(config)
    spread = 1.2 / getattr(config, "hidden_size", 64) ** 0.5  # wider ones would amplify rounding
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=spread)
            else:
                weight.add_(0.3 * torch.randn_like(weight))
    return model.double().eval()


def rows_of(length, k=3):
    """Padded rows of different lengths, and k sites of each, which do not lie in order."""
    generator = torch.Generator().manual_seed(length)
    lengths = torch.tensor([length, length - 5, 9, length // 2])
    tokens = torch.randint(7, 60, (4, length), generator=generator)
    tokens[torch.arange(length) >= lengths[:, None]] = PAD
    sites = [torch.randperm(n, generator=generator)[:k] for n in lengths]
    return tokens, torch.stack(sites, dim=1).T


def by_transformers(model, tokens, sites):
    masked = hide(tokens, sites, 4)
    present = masked != PAD
    filler = 1 if model.config.model_type == "mpnet" else 0
    with torch.no_grad():
        logits = model(
            input_ids=masked.masked_fill(~present, filler), attention_mask=present.long()
        ).logits
    return logits.gather(1, sites[..., None].expand(-1, -1, logits.shape[-1]))


def scaled(gap, exact):
    """The largest difference in standard deviations of the scores."""
    return float(gap.abs().max() / exact.std())


@pytest.mark.parametrize("dtype", LIMIT)
@pytest.mark.parametrize("name", SMALL)
def test_scores_are_those_of_transformers(name, dtype):
    """Against transformers on the CPU in float64, and in float64 on the GPU too."""
    model = tiny(name)
    rows = [rows_of(length) for length in LENGTHS]
    exact = [by_transformers(model, *part) for part in rows]
    model = model.to("cuda", dtype)
    conditionals = MaskedLM(model, tokenizer_of(60, 0))
    assert conditionals.encoder is not None, "our own forward pass is not used"
    to_exact, theirs_to_exact, to_theirs = [], [], []
    for part, expected in zip(rows, exact, strict=True):
        there = [tensor.cuda() for tensor in part]
        found = conditionals.scores(*there).cpu()
        theirs = by_transformers(model, *there).cpu()
        to_exact.append(scaled(found - expected, expected))
        theirs_to_exact.append(scaled(theirs - expected, expected))
        to_theirs.append(scaled(found - theirs, expected))
    limit = LIMIT[dtype]
    if dtype == torch.float64:
        if guard.tolerance(conditionals.encoder.described, dtype) == guard.ROUNDED:
            limit = guard.ROUNDED
        assert max(to_theirs) <= limit
        # Tables of float32 (rotations) differ between the devices in transformers itself.
        limit = max(limit, 2 * max(theirs_to_exact))
    assert max(to_exact) <= limit


@pytest.mark.parametrize("name", SMALL)
def test_recorded_steps_are_the_plain_ones(name):
    """Chains of different lengths in bfloat16; a step that is not recorded would warn."""
    conditionals = MaskedLM(tiny(name).to("cuda", torch.bfloat16), tokenizer_of(60, 0))
    tokens = rows_of(40)[0].repeat(8, 1).cuda()
    begin = start(tokens, tokens != PAD, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("error", GlauberWarning)
        plain, recorded = (
            list(run(kernel, begin, 40, seed=1))[-1][0].tokens
            for kernel in (glauber(conditionals), graph_kernel(glauber(conditionals)))
        )
    assert torch.equal(plain, recorded)


@pytest.mark.parametrize("name", FAMILIES)
def test_base_sizes_in_bfloat16(name):
    """We are not further from float32 than 1.5 times transformers' own pass."""
    model, tokenizer = built(FAMILIES[name], "cuda")
    conditionals = MaskedLM(model, tokenizer)
    tokens = starting(conditionals, 16, 126)
    sites = torch.arange(1, 17, device="cuda")[:, None]
    masked = hide(tokens, sites, conditionals.hidden_token)
    found, theirs = conditionals.scores(tokens, sites), conditionals._theirs(masked, sites)
    exact = MaskedLM(model.float(), tokenizer)._theirs(masked, sites)
    ours_off, theirs_off = ((x - exact).square().mean().sqrt() for x in (found, theirs))
    assert float(ours_off) <= 1.5 * float(theirs_off)


@pytest.mark.parametrize("chains, length", [(1, 20), (64, 20), (64, 128), (4096, 20), (4096, 510)])
def test_the_memory_of_a_step_is_bounded(chains, length):
    conditionals = MaskedLM(*built(FAMILIES["DeBERTa-v3-base"], "cuda"))
    torch.cuda.reset_peak_memory_stats()
    with warnings.catch_warnings():
        warnings.simplefilter("error", GlauberWarning)
        assert sum(islice(ours(conditionals, starting(conditionals, chains, length)), 2)) > 0
    assert torch.cuda.max_memory_allocated() <= 16 * 2**30
