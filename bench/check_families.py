"""Does every architecture say on a GPU what transformers says on the CPU? Parts of check_gpu."""

import warnings
from collections import Counter
from itertools import islice
from typing import Any

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
from glauber.models.table import Table

failed: list[str] = []


def check(name: str, value: float, limit: float) -> None:
    print(
        f"{'ok' if value <= limit else 'FAILED':>6}  {value:10.3g}  (limit {limit:g})  {name}",
        flush=True,
    )
    if not value <= limit:
        failed.append(name)


TINY = dict(
    vocab_size=60, hidden_size=64, num_hidden_layers=3, num_attention_heads=2,
    intermediate_size=96, max_position_embeddings=1100, pad_token_id=0,
)  # fmt: skip
ENDS = dict(cls_token_id=1, bos_token_id=1, sep_token_id=2, eos_token_id=2)
RELATIVE = TINY | dict(
    relative_attention=True, position_biased_input=False, pos_att_type=["p2c", "c2p"]
)
# Heads of 64, a scale that is a power of two: transformers rounds queries after scaling them.
ESM = TINY | dict(
    num_attention_heads=1, mask_token_id=4, position_embedding_type="rotary", token_dropout=True
)
SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", TINY),
    "roberta": ("Roberta", TINY),
    "xlm-roberta": ("XLMRoberta", TINY),
    "camembert": ("Camembert", TINY),
    "electra": ("Electra", TINY | {"embedding_size": 16}),
    "bert, heads of 24": ("Bert", TINY | {"hidden_size": 48}),
    "distilbert": (
        "DistilBert",
        dict(vocab_size=60, dim=64, n_layers=2, n_heads=2, hidden_dim=96,
             max_position_embeddings=1100),
    ),
    "albert": ("Albert", TINY | {"embedding_size": 16}),
    "mpnet": ("MPNet", TINY),
    "deberta-v2": ("DebertaV2", RELATIVE | {"legacy": True}),
    "deberta-v3": (
        "DebertaV2",
        RELATIVE | dict(position_buckets=16, share_att_key=True, norm_rel_ebd="layer_norm",
                        legacy=False),
    ),
    "modernbert": (
        "ModernBert", TINY | ENDS | dict(local_attention=128, global_attn_every_n_layers=2)
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
}  # fmt: skip
LENGTHS = (22, 130, 514, 1024)


def tiny(name: str) -> Any:
    """A model of random weights, on the CPU in float64; None where transformers has none."""
    shape, options = SMALL[name]
    if not hasattr(transformers, f"{shape}Config"):
        return None
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


def some_rows(length: int, k: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of different lengths, PAD behind, and k sites of each, which do not lie in order."""
    generator = torch.Generator().manual_seed(length)
    lengths = torch.tensor([length, length - 5, 9, length // 2])
    tokens = torch.randint(7, 60, (4, length), generator=generator)
    tokens[torch.arange(length) >= lengths[:, None]] = PAD
    chosen = [torch.randperm(n, generator=generator)[:k] for n in lengths]
    return tokens, torch.stack(chosen, dim=1).T


def by_transformers(model: Any, tokens: torch.Tensor, sites: torch.Tensor) -> torch.Tensor:
    hidden = hide(tokens, sites, 4)
    there = hidden != PAD
    filler = 1 if model.config.model_type == "mpnet" else 0
    with torch.no_grad():
        logits = model(
            input_ids=hidden.masked_fill(~there, filler), attention_mask=there.long()
        ).logits
    return logits.gather(1, sites[..., None].expand(-1, -1, logits.shape[-1]))


def families() -> None:
    """Every architecture in a tiny size: ours on CUDA against transformers on the CPU."""
    for name in SMALL:
        model = tiny(name)
        if model is None:
            print(f"        this transformers has no {name}")
            continue
        asked = [some_rows(length) for length in LENGTHS]
        due = [by_transformers(model, *rows) for rows in asked]
        for dtype, limit in ((torch.float64, 1e-10), (torch.float32, 1e-5), (torch.bfloat16, 1)):
            model = model.to("cuda", dtype)
            laws = MaskedLM(model, tokenizer_of(60, 0))
            check(f"{name}, {dtype}: our pass is not used", float(laws.encoder is None), 0)
            gaps, theirs, apart = [], [], []
            for rows, exact in zip(asked, due, strict=True):
                there = [part.cuda() for part in rows]
                one, two = laws.scores(*there).cpu(), by_transformers(model, *there).cpu()
                gaps.append(scaled(one - exact, exact))
                theirs.append(scaled(two - exact, exact))
                apart.append(scaled(one - two, exact))
            told = f"{name}, {dtype}, lengths {LENGTHS}"
            if dtype == torch.float64:
                described = None if laws.encoder is None else laws.encoder.described
                if described is not None and guard.tolerance(described, dtype) == guard.ROUNDED:
                    limit = guard.ROUNDED
                # Tables of float32 (rotations) differ between the devices in transformers itself.
                check(f"{told}, to transformers on the GPU", max(apart), limit)
                limit = max(limit, 2 * max(theirs))
            listed = " ".join(f"{gap:.1g}" for gap in theirs)
            check(f"{told}, to the CPU (transformers: {listed})", max(gaps), limit)


def scaled(gap: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest difference in spreads of the scores."""
    return float(gap.abs().max() / exact.std())


def base_sizes() -> None:
    """In bfloat16 and in base size: how far ours and transformers are from float32."""
    for name, family in FAMILIES.items():
        model, tokenizer = built(family, "cuda")
        laws = MaskedLM(model, tokenizer)
        tokens = starting(laws, 16, 126)
        sites = torch.arange(1, 17, device="cuda")[:, None]
        ours_, theirs = (
            laws.scores(tokens, sites),
            laws._theirs(hide(tokens, sites, laws.hidden_token), sites),
        )
        exact = MaskedLM(model.float(), tokenizer)
        due = exact._theirs(hide(tokens, sites, laws.hidden_token), sites)
        gaps = [float((x - due).square().mean().sqrt() / due.std()) for x in (ours_, theirs)]
        check(f"{name}, bfloat16, spreads (transformers {gaps[1]:.2g})", gaps[0], 1.5 * gaps[1])


def recorded() -> None:
    """Chains of different lengths: recorded steps are the plain ones, for every architecture."""
    for name in SMALL:
        model = tiny(name)
        if model is None:
            continue
        laws = MaskedLM(model.to("cuda", torch.bfloat16), tokenizer_of(60, 0))
        tokens = some_rows(40)[0].repeat(8, 1).cuda()
        begun = start(tokens, tokens != PAD, device="cuda")
        with warnings.catch_warnings():
            warnings.simplefilter("error", GlauberWarning)
            ends = [
                list(run(kernel, begun, 40, seed=1))[-1][0].tokens
                for kernel in (glauber(laws), graph_kernel(glauber(laws)))
            ]
        check(f"{name}: tokens that differ when recorded", int((ends[0] != ends[1]).sum()), 0)


def deberta() -> None:
    """One, 64 and 4,096 chains, by the engine that would be chosen, in base size."""
    laws = MaskedLM(*built(FAMILIES["DeBERTa-v3-base"], "cuda"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", GlauberWarning)
        for n_chains, length in ((1, 20), (64, 20), (64, 128), (4096, 20), (4096, 510)):
            torch.cuda.reset_peak_memory_stats()
            made = sum(islice(ours(laws, starting(laws, n_chains, length)), 2))
            peak = torch.cuda.max_memory_allocated() / 2**30
            check(f"DeBERTa {n_chains} x {length}: GiB ({made} steps made)", peak, 16)


class Asking:
    """Conditionals that ask the host and draw a random number: they cannot be recorded."""

    def __init__(self) -> None:
        self.table, self.vocab_size = Table.random(8, 4, seed=0, strength=2.0), 8

    def scores(self, tokens: Any, sites: Any, candidates: Any = None) -> torch.Tensor:
        torch.rand(1, device=tokens.device)
        here = self.table.scores(tokens.cpu(), sites.cpu())
        return here.to(tokens.device)


def refused() -> None:
    """What cannot be recorded is made step by step with one note, and nothing stays broken."""
    zeros = torch.zeros(64, 4, dtype=torch.int64)
    begun = start(zeros, zeros == 0, device="cuda")
    plain = list(run(glauber(Asking()), begun, 30, seed=1))[-1][0].tokens
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        steps = list(run(graph_kernel(glauber(Asking())), begun, 30, seed=1))
    check("tokens that differ when refused", int((steps[-1][0].tokens != plain).sum()), 0)
    check("notes but one", abs(len(said) - 1), 0)
    print(f"        {said[0].message if said else None}")
    stream = torch.cuda.current_stream() != torch.cuda.default_stream()
    check("another stream than before", float(stream), 0)
    big = [torch.randn(2**26, device="cuda").sum().item() for _ in range(3)]
    held = torch.cuda.memory_allocated()
    check("a random number that is none", float(not all(abs(x) < 1e6 for x in big)), 0)
    del steps
    torch.cuda.empty_cache()
    left = torch.cuda.memory_reserved() - held
    check("bytes that stay reserved", left, 2**27)


def times() -> None:
    """Where the time of a pass goes, by the profiler."""
    kinds = {
        "attention": ("attention",), "norms": ("add_and_norm", "layer_norm"),
        "activation": ("activate", "gelu"),
        "products": ("gemm", "nvjet", "cutlass", "xmma", "cublas"),
    }  # fmt: skip
    for name, family in FAMILIES.items():
        laws = MaskedLM(*built(family, "cuda"))
        for n_chains, length in ((1024, 20), (256, 128)):
            loop = ours(laws, starting(laws, n_chains, length))
            list(islice(loop, 3))
            torch.cuda.synchronize()
            activities = [torch.profiler.ProfilerActivity.CUDA]
            with torch.profiler.profile(activities=activities) as profile:
                list(islice(loop, 5))
                torch.cuda.synchronize()
            spent: Counter[str] = Counter()
            for event in profile.key_averages():
                named = (k for k, parts in kinds.items() if any(p in event.key for p in parts))
                spent[next(named, "rest")] += event.self_device_time_total / 5e3
            listed = ", ".join(f"{kind} {value:.2f}" for kind, value in spent.most_common())
            print(f"        {name} {n_chains} x {length}, ms a step: {listed}", flush=True)
