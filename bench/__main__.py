"""python -m bench [--device cpu|cuda] [--seconds S] [--json FILE] [--engine]

On a CPU: the bundled model, 64 chains of 20 tokens; how cost grows (bench.growth), what each idea
is worth (bench.ideas), what the memo saves at three temperatures (bench.cold), every architecture
beside the plain loop (bench.families, which also has a table for GPUs); then the exact tools
beside PyDTMC and `score` beside minicons, each in an environment of its own (bench.exact,
bench.pseudo_likelihood).
On a GPU: the BERT-base shape with random weights in bfloat16, 1, 64 and 4,096 chains of 20 tokens,
and the memory of 4,096 chains of 64.
"""

import argparse
import copy
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from bench.ceiling import of_float32, of_int8, products, work_of
from bench.engine import engine, forward_only, sampled, temperature_at
from bench.environment import ROOT
from bench.measure import Rate, in_turns
from bench.plain import batched, one_chain
from glauber.dynamics.cuda import steps_per_pass
from glauber.models.base import Restricted
from glauber.models.masked_lm import MaskedLM
from glauber.models.shelf import bundled_folder
from glauber.texts.starts import passages

BESIDE = ("cold", "families", "exact", "pseudo_likelihood")


def on_cpu(seconds: float) -> dict[str, list[Rate]]:
    """The bundled model on this machine's cores."""
    conditionals = MaskedLM.load("bundled:english", device="cpu")
    coarse = MaskedLM.load("bundled:english", device="cpu", dtype="int8")
    texts = [text for _, text in passages()]
    tokens, _ = conditionals.vocabulary.encode(texts[:64], length=20)
    limited = Restricted(conditionals, conditionals.vocabulary.proposable())
    plain: Any = conditionals.model
    return {
        "bundled:english, CPU, 20 tokens": in_turns(
            {
                "plain loop, 1 chain, full logits": one_chain(
                    plain, tokens, conditionals.hidden_token
                ),
                "plain loop, 64 chains, full logits": batched(
                    plain, tokens, conditionals.hidden_token
                ),
                "glauber, 1 chain": sampled(limited, tokens[:1]),
                "glauber, 1 chain, --memo 0": sampled(limited, tokens[:1], remember=False),
                "glauber, 1 chain, one step a call": engine(limited, tokens[:1]),
                "glauber, 8 chains": engine(limited, tokens[:8]),
                "glauber, 64 chains": engine(limited, tokens),
                "glauber, 64 chains, forward pass alone": forward_only(conditionals, tokens),
                "glauber, 64 chains, int8": engine(Restricted(coarse, limited.allowed), tokens),
                "glauber, 64 chains, int8, forward pass alone": forward_only(coarse, tokens),
                "ceiling: float32 products alone": products(of_float32(), work_of(plain)),
                "ceiling: int8 products alone": products(of_int8(), work_of(plain)),
            },
            seconds,
        )
    }


def on_gpu(seconds: float) -> dict[str, list[Rate]]:
    """The BERT-base shape on the GPU."""
    torch.manual_seed(0)
    whole = BertForMaskedLM(BertConfig()).eval().cuda()
    half = copy.deepcopy(whole).bfloat16()
    conditionals = MaskedLM(half, AutoTokenizer.from_pretrained(bundled_folder("bundled:english")))
    hidden = conditionals.hidden_token
    tables = {}
    for n_chains in (1, 64, 4096):
        tokens = torch.randint(1000, 15000, (n_chains, 22), device="cuda")
        few = n_chains <= 256
        loops = {"plain loop, bf16, full logits": batched(half, tokens, hidden)}
        if n_chains == 1:
            loops["plain loop, fp32, full logits"] = one_chain(whole, tokens, hidden)
        loops["glauber"] = engine(conditionals, tokens, graph=few)
        if few:
            loops["glauber without CUDA graph"] = engine(conditionals, tokens)
            many = tokens.repeat(-(-64 // n_chains), 1)
            temperature = temperature_at(conditionals, many, 0.6)
            for name, further in (("", max(2, steps_per_pass(n_chains))), (" one step a pass,", 1)):
                loops[f"glauber,{name} 60% of the steps change a token"] = engine(
                    conditionals, tokens, temperature=temperature, graph=True, per_pass=further
                )
        loops["glauber, forward pass alone"] = forward_only(conditionals, tokens)
        tables[f"BERT-base shape, {n_chains} chains of 20 tokens"] = in_turns(loops, seconds)
    return tables


def memory_on_gpu() -> float:
    """GiB of GPU memory for 4,096 chains of 64 tokens, weights included."""
    conditionals = MaskedLM(
        BertForMaskedLM(BertConfig()).eval().cuda().bfloat16(),
        AutoTokenizer.from_pretrained(bundled_folder("bundled:english")),
    )
    tokens = torch.randint(1000, 15000, (4096, 66), device="cuda")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    loop = engine(conditionals, tokens)
    for _ in range(3):
        next(loop)
    return torch.cuda.max_memory_allocated() / 2**30


def show(table: str, rates: list[Rate]) -> None:
    """Prints a table of rates, each beside the first one."""
    print(f"\n{table}\n{'steps/s':>12} {'range':>21} {'ratio':>7}")
    for rate in rates:
        spread = f"{rate.low:,.0f} to {rate.high:,.0f}"
        print(
            f"{rate.median:12,.0f} {spread:>21} {rate.median / rates[0].median:7.2f}  {rate.name}"
        )


def beside(module: str) -> tuple[Any, bool]:
    """The figures of a comparison, and whether they are what they must be.

    It prints its own table, from a process of its own: it sets its own threads.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        words = [sys.executable, "-m", f"bench.{module}", "--json", str(found)]
        done = subprocess.run(words, cwd=ROOT)
        return json.loads(found.read_text()) if found.exists() else None, done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--engine", action="store_true", help="the engine's table alone")
    args = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}", end=", ")
    print(
        torch.cuda.get_device_name()
        if args.device == "cuda"
        else f"{torch.get_num_threads()} threads"
    )
    tables = on_gpu(args.seconds) if args.device == "cuda" else on_cpu(args.seconds)
    for table, rates in tables.items():
        show(table, rates)
    result: dict[str, Any] = {
        table: [r._asdict() for r in rates] for table, rates in tables.items()
    }
    if args.device == "cpu":
        of = {rate.name: rate.median for rate in rates}
        for name in ("glauber, 1 chain", "glauber, 64 chains", "glauber, 64 chains, int8"):
            chains = name.split(", ")[1].removesuffix("s")
            theirs = next(key for key in of if key.startswith(f"plain loop, {chains}"))
            print(f"\n{name}: {of[name] / of[theirs]:.2f} times the {theirs}", flush=True)
        for module in () if args.engine else ("growth", "ideas", *BESIDE):
            result[module], fine = beside(module)
            print(f"bench.{module}: {'as it must be' if fine else 'NOT as it must be'}", flush=True)
    else:
        result["GiB for 4,096 chains of 64 tokens"] = memory_on_gpu()
        print(f"\n4,096 chains of 64 tokens: {result['GiB for 4,096 chains of 64 tokens']:.1f} GiB")
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
