"""Is every architecture as fast as BERT? python -m bench.families [--device cpu|cuda]

For each shape of masked LM, with random weights: chain steps per second of the plain batched loop
(transformers' own forward pass, the logits of every position) and of ours, in turns within one run.
On a GPU the published base sizes in bfloat16, ours with the engine that `glauber sample` would
choose (steps recorded as a CUDA graph for few chains). On a CPU the same architectures with 6
layers of width 384, in float32 and int8. A text of 20 tokens has two special ones around it.

A shape that fails has its error in its row, and the next one follows.
"""

import argparse
import gc
import json
import os
import platform
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from tokenizers import Tokenizer, models, processors
from torch import Tensor

from bench.engine import engine
from bench.measure import Rate, in_turns
from bench.plain import batched
from glauber.dynamics.cuda import WINDOW, steps_per_pass
from glauber.models.masked_lm import MaskedLM

FEW = 256  # up to this many chains the engine records its steps (glauber.sampling.advance)
AROUND = 2  # special tokens around a text
PROTEIN = [*"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>"]
ON_CPU = [(64, 20), (1, 20), (8, 128)]  # chains, tokens
ON_GPU = [(1024, 20), (256, 128), (64, 20), (1, 20)]
FURTHER = {"DeBERTa-v3-base": [(4096, 20)]}  # on a GPU
SMALL = dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536)


class Family(NamedTuple):
    """An architecture: its published configuration, and what makes it small."""

    config: Callable[..., Any]
    options: dict[str, Any]
    small: dict[str, Any] = SMALL


FAMILIES = {
    "BERT-base": Family(transformers.BertConfig, dict(vocab_size=30522)),
    "ModernBERT-base": Family(
        transformers.ModernBertConfig, dict(vocab_size=50368), SMALL | dict(intermediate_size=576)
    ),
    "ESM-2 150M": Family(
        transformers.EsmConfig,
        dict(
            vocab_size=33, hidden_size=640, num_hidden_layers=30, num_attention_heads=20,
            intermediate_size=2560, max_position_embeddings=1026, layer_norm_eps=1e-5,
            position_embedding_type="rotary", token_dropout=True, emb_layer_norm_before=False,
            pad_token_id=1, mask_token_id=32, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
    ),
    "ALBERT-base": Family(
        transformers.AlbertConfig,
        dict(
            vocab_size=30000, embedding_size=128, hidden_size=768, num_hidden_layers=12,
            num_attention_heads=12, intermediate_size=3072, hidden_act="gelu_new",
        ),
    ),
    "DistilBERT": Family(
        transformers.DistilBertConfig,
        dict(vocab_size=30522),
        dict(dim=384, n_layers=6, n_heads=6, hidden_dim=1536),
    ),
    "DeBERTa-v3-base": Family(
        transformers.DebertaV2Config,
        dict(
            vocab_size=128100, hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
            intermediate_size=3072, relative_attention=True, position_buckets=256,
            norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"],
            position_biased_input=False, type_vocab_size=0, max_relative_positions=-1,
            layer_norm_eps=1e-7,
        ),
    ),
    "RoBERTa-base": Family(
        transformers.RobertaConfig,
        dict(
            vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, pad_token_id=1,
            layer_norm_eps=1e-5,
        ),
    ),
    "MPNet-base": Family(
        transformers.MPNetConfig,
        dict(vocab_size=30527, max_position_embeddings=514, pad_token_id=1, layer_norm_eps=1e-5),
    ),
    "ERNIE": Family(transformers.ErnieConfig, dict(vocab_size=40000)),
    "Megatron-BERT": Family(transformers.MegatronBertConfig, dict(vocab_size=29056)),
    "RoFormer": Family(
        transformers.RoFormerConfig,
        dict(vocab_size=50000, embedding_size=768),
        SMALL | dict(embedding_size=384),
    ),
    "data2vec-text": Family(
        transformers.Data2VecTextConfig,
        dict(
            vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, pad_token_id=1,
            layer_norm_eps=1e-5,
        ),
    ),
    "XLM-R-XL": Family(
        transformers.XLMRobertaXLConfig,
        dict(  # of the size of XLM-R-large
            vocab_size=250880, max_position_embeddings=514, pad_token_id=1, hidden_size=1024,
            num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
        ),
        SMALL | dict(vocab_size=50265),
    ),
    "RoBERTa-PreLayerNorm": Family(
        transformers.RobertaPreLayerNormConfig,
        dict(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, pad_token_id=1),
    ),
    "DeBERTa-base": Family(
        transformers.DebertaConfig,
        dict(
            vocab_size=50265, relative_attention=True, pos_att_type=["c2p", "p2c"],
            position_biased_input=False, type_vocab_size=0, max_relative_positions=-1,
        ),
    ),
}  # fmt: skip
if hasattr(transformers, "GteConfig"):  # new in transformers 5.22
    FAMILIES["GTE"] = Family(
        transformers.GteConfig, dict(vocab_size=250048), SMALL | dict(vocab_size=30522)
    )
    FAMILIES["Jina v3"] = Family(
        transformers.JinaEmbeddingsV3Config,
        dict(vocab_size=250002),
        SMALL | dict(vocab_size=30522),
    )


class Row(NamedTuple):
    """One line of the table: steps per second; a ratio is to the plain loop."""

    shape: str
    chains: int
    tokens: int
    rates: dict[str, Rate]
    error: str = ""

    def ratio(self, name: str) -> float:
        return self.rates[name].median / self.rates["plain"].median

    def to_dict(self) -> dict[str, Any]:
        found = {"shape": self.shape, "chains": self.chains, "tokens": self.tokens}
        rates = {name: rate._asdict() for name, rate in self.rates.items()}
        ratios = {f"ratio {name}": self.ratio(name) for name in self.rates if name != "plain"}
        return {**found, **rates, **ratios, "error": self.error or None}

    def __str__(self) -> str:
        cells = f"{self.chains:,} x {self.tokens}"
        if not self.rates:
            return f"{self.shape:<16} {cells:>11}  {self.error}"
        figures = f"{self.rates['plain'].median:12,.1f}"
        for name in list(self.rates)[1:]:
            figures += f" {self.rates[name].median:12,.1f} {self.ratio(name):6.2f}"
        return f"{self.shape:<16} {cells:>11} {figures}  {self.error}".rstrip()


def tokenizer_of(size: int, pad: int) -> Any:
    """As many tokens as the model has; letters of proteins where it has only 33."""
    if size == len(PROTEIN) + 5:
        names = ["<cls>", "<pad>", "<eos>", "<unk>", *PROTEIN, "<mask>"]
        special = dict(zip(("cls", "pad", "sep", "unk"), names, strict=False)) | {"mask": "<mask>"}
    else:
        names = [f"w{number}" for number in range(size)]
        rest = iter([0, 1, 2, 3, 4])
        places = {"pad": pad} | {
            name: next(place for place in rest if place != pad)
            for name in ("cls", "sep", "unk", "mask")
        }
        special = {name: f"[{name.upper()}]" for name in places}
        for name, place in places.items():
            names[place] = special[name]
    backend = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, special["unk"]))
    ends = [(special[name], names.index(special[name])) for name in ("cls", "sep")]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{special['cls']} $A {special['sep']}", special_tokens=ends
    )
    words = {f"{name}_token": spelling for name, spelling in special.items()}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **words)


def built(family: Family, device: str) -> tuple[Any, Any]:
    """The model with random weights (small on a CPU, bfloat16 on a GPU), and a tokenizer."""
    on_gpu = device != "cpu"
    config = family.config(**family.options | ({} if on_gpu else family.small))
    tokenizer = tokenizer_of(config.vocab_size, config.pad_token_id)
    for name in ("cls", "sep", "bos", "eos"):  # those of the published vocabulary are elsewhere
        if getattr(config, f"{name}_token_id", None) is not None:
            end = tokenizer.cls_token_id if name in ("cls", "bos") else tokenizer.sep_token_id
            setattr(config, f"{name}_token_id", end)
    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.AutoModelForMaskedLM.from_config(config).eval()
    return model.to(torch.bfloat16 if on_gpu else torch.float32), tokenizer


def starting(model: MaskedLM, n_chains: int, length: int) -> Tensor:
    """Random texts with special tokens around them, (chains, length + AROUND)."""
    usual = model.vocabulary.proposable().nonzero()[:, 0]
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(len(usual), (n_chains, length + AROUND), generator=generator)
    tokens = usual[drawn]
    tokenizer = model.vocabulary.tokenizer
    tokens[:, 0], tokens[:, -1] = tokenizer.cls_token_id, tokenizer.sep_token_id
    return tokens.to(model.device)


def ours(model: MaskedLM, tokens: Tensor) -> Iterator[int]:
    """Our steps by the engine that would be chosen for so many chains."""
    conditionals = model.conditionals()
    if not tokens.is_cuda:
        return engine(conditionals, tokens)
    per_pass = steps_per_pass(len(tokens))
    loop = engine(conditionals, tokens, graph=len(tokens) <= FEW, per_pass=per_pass)
    return loop if per_pass == 1 else _whole_windows(loop)


def _whole_windows(loop: Iterator[int]) -> Iterator[int]:
    """Steps that are made window by window must also be counted so."""
    while True:
        yield sum(islice(loop, WINDOW))


def measured(models: dict[str, MaskedLM], n_chains: int, length: int, seconds: float) -> Row:
    """One line: the plain loop and ours, for about so many seconds in all."""
    first = next(iter(models.values()))
    tokens = starting(first, n_chains, length)
    loops = {"plain": batched(first.model, tokens, first.hidden_token)}
    loops |= {name: ours(model, tokens) for name, model in models.items()}
    rates = in_turns(loops, seconds / (3 * len(loops)))
    return Row("", n_chains, length, {rate.name: rate for rate in rates})


def opened(family: Family, device: str) -> tuple[dict[str, MaskedLM], str]:
    """The model, on a CPU in int8 too, and what was said about them."""
    model, tokenizer = built(family, device)
    notes = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = {"ours": MaskedLM(model, tokenizer)}
        if device == "cpu":
            try:
                found["int8"] = MaskedLM(model, tokenizer, int8=True)
            except Exception as error:
                notes.append(_line(error))
    notes += [_line(one.message) for one in said]
    return found, "; ".join(dict.fromkeys(notes))


def rows(name: str, device: str, seconds: float) -> Iterator[Row]:
    """The lines of one shape."""
    cells = ON_CPU if device == "cpu" else ON_GPU + FURTHER.get(name, [])
    try:
        found, note = opened(FAMILIES[name], device)
    except Exception as error:
        yield Row(name, *cells[0], {}, _line(error))
        return
    for n_chains, length in cells:
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                row = measured(found, n_chains, length, seconds)
            notes = dict.fromkeys([note, *(_line(one.message) for one in said)])
            yield row._replace(shape=name, error="; ".join(filter(None, notes)))
        except Exception as error:
            yield Row(name, n_chains, length, {}, _line(error))
        note = ""
        _free()


def _line(error: Any) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0]


def _free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def profile_passes() -> None:
    """Where the time of a pass goes, by the profiler."""
    kinds = {
        "attention": ("attention",), "norms": ("add_and_norm", "layer_norm"),
        "activation": ("activate", "gelu"),
        "products": ("gemm", "nvjet", "cutlass", "xmma", "cublas"),
    }  # fmt: skip
    for name, family in FAMILIES.items():
        model = MaskedLM(*built(family, "cuda"))
        for n_chains, length in ((1024, 20), (256, 128)):
            loop = ours(model, starting(model, n_chains, length))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a line, about")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", help="the shapes whose name contains this")
    parser.add_argument("--profile", action="store_true", help="where the time of a pass goes")
    args = parser.parse_args()
    if args.profile:
        profile_passes()
        return
    cpu = args.device == "cpu"
    machine = f"{torch.get_num_threads()} threads" if cpu else torch.cuda.get_device_name()
    processor, load = platform.processor() or platform.machine(), os.getloadavg()[0]
    print(f"{processor}, torch {torch.__version__}, {machine}, load {load:.1f}")
    size = "6 layers of width 384, float32" if cpu else "bfloat16"
    print(f"steps/s, {size}, random weights")
    head = f"{'shape':<16} {'chains x':>11} {'plain':>12} {'ours':>12} {'ratio':>6}"
    print(head + (f" {'int8':>12} {'ratio':>6}" if cpu else ""))
    done = []
    for name in FAMILIES:
        if args.only and args.only.lower() not in name.lower():
            continue
        for row in rows(name, args.device, args.seconds):
            print(row, flush=True)
            done.append(row.to_dict())
            if args.json:
                args.json.write_text(json.dumps(done, indent=1) + "\n")
        _free()


if __name__ == "__main__":
    main()
