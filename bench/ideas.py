"""What is each idea worth? python -m bench.ideas [--steps N] [--temperature T] [--json FILE]

The bundled model, 16 chains of 20 tokens on a CPU, cold: the engine as it is, then with one idea
switched off at a time, in turns of ten steps. Exits with 1 if any chain differs.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch

from bench.engine import bundled_chains
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import Info, State, run, start
from glauber.dynamics.remembered import Memo, run_memoised
from glauber.models.base import Restricted

N_CHAINS, LENGTH, TURN = 16, 20, 10
Steps = Iterator[tuple[State, Info]]


def variants(conditionals: Restricted, begun: State, steps: int) -> dict[str, Steps]:
    """The same steps, made with all ideas and without each of them."""

    kernel = glauber(conditionals)

    def memo() -> Memo:
        return Memo(conditionals.vocab_size, begun.tokens.shape[1])

    return {
        "as it is": run_memoised(kernel, begun, steps, seed=0, memo=memo()),
        "no prefetching": run_memoised(kernel, begun, steps, seed=0, memo=memo(), prefetch=0),
        "chains in step": run_memoised(kernel, begun, steps, seed=0, memo=memo(), lead=1),
        "no memo at all": run(kernel, begun, steps, seed=0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--temperature", type=float, default=0.3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    conditionals, tokens, free = bundled_chains(N_CHAINS, LENGTH)
    begun = start(tokens, free, temperature=args.temperature)
    loops = variants(conditionals, begun, args.steps)
    spent, last = dict.fromkeys(loops, 0.0), {}
    for _ in range(0, args.steps, TURN):
        for name, loop in loops.items():
            before = time.perf_counter()
            last[name] = [state for state, _ in islice(loop, TURN)][-1].tokens
            spent[name] += time.perf_counter() - before
    same = all(torch.equal(last[name], last["as it is"]) for name in loops)
    rates = {name: args.steps * N_CHAINS / seconds for name, seconds in spent.items()}
    print(f"temperature {args.temperature:g}, {N_CHAINS} chains, {args.steps:,} steps")
    for name, rate in rates.items():
        print(f"{rate:9,.0f} steps/s  {rate / rates['no memo at all']:6.2f}  {name}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rates) + "\n")
    print("the chains are the same" if same else "THE CHAINS DIFFER")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
