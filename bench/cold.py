"""How much does it save never to do the same work twice?

python -m bench.cold [--steps N] [--temperature T] [--json FILE]

The bundled model, 16 chains of 20 tokens, cold to hot, with the memo and without it. The two go in
turns, so that whatever else the machine does meets both: ten steps with the memo, then some without
it, whose rate does not depend on how far the chains are; as many where the two are nearly equal.
Prints steps/s, their ratio and the share of steps that needed no pass; exits with 1 if the chains
differ, or if a ratio is below what it must be over 4,000 steps.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from bench.engine import bundled_chains
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import Info, State, run, start
from glauber.dynamics.remembered import Memo, run_memoised
from glauber.models.base import Restricted

N_CHAINS, LENGTH = 16, 20
TURN = 10  # steps with the memo
PLAIN = {0.3: 1, 0.7: 5, 1.5: 10}  # steps without it, by temperature
DUE = {0.3: 3.0, 0.7: 1.3, 1.5: 0.97}  # the ratio of their rates, at least


class Saving(NamedTuple):
    """Chain steps per second at one temperature, and whether the chains agree."""

    temperature: float
    plain: float
    memo: float
    ratio: float
    remembered: float
    same: bool


def saving(conditionals: Restricted, begun: State, steps: int) -> Saving:
    """Both ways to make the steps, in turns."""
    memo = Memo(conditionals.vocab_size, begun.tokens.shape[1])
    fast = run_memoised(glauber(conditionals), begun, steps, seed=0, memo=memo)
    slow = run(glauber(conditionals), begun, steps, seed=0)
    temperature = float(begun.temperature[0])
    spent = {"fast": 0.0, "slow": 0.0}
    early: list[Tensor] = []  # tokens with the memo
    same, made = True, 0
    for _ in range(0, steps, TURN):
        states = timed(fast, TURN, spent, "fast")
        early += [state.tokens for state in states]
        for state in timed(slow, PLAIN.get(temperature, TURN), spent, "slow"):
            same &= torch.equal(state.tokens, early[made])
            made += 1
    n_chains = len(begun.step)
    rates = made * n_chains / spent["slow"], steps * n_chains / spent["fast"]
    return Saving(temperature, *rates, rates[1] / rates[0], memo.rate, same)


def timed(
    stream: Iterator[tuple[State, Info]], steps: int, spent: dict[str, float], name: str
) -> list[State]:
    """The states of the next steps; the seconds that they took go into `spent`."""
    before = time.perf_counter()
    states = [state for state, _ in islice(stream, steps)]
    spent[name] += time.perf_counter() - before
    return states


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--temperature", type=float, action="append")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    conditionals, tokens, free = bundled_chains(N_CHAINS, LENGTH)
    print(f"bundled:english, CPU, {N_CHAINS} chains of {LENGTH} tokens, {args.steps:,} steps each")
    print(f"{'temperature':>11} {'no memo':>9} {'memo':>9} {'ratio':>7} {'remembered':>11}")
    found = []
    for temperature in args.temperature or DUE:
        one = saving(conditionals, start(tokens, free, temperature=temperature), args.steps)
        rates = f"{one.plain:9,.0f} {one.memo:9,.0f} {one.ratio:7.2f} {one.remembered:11.0%}"
        print(f"{temperature:11g} {rates}{'' if one.same else '  the chains differ'}", flush=True)
        found.append(one)
    if args.json:
        args.json.write_text(json.dumps([one._asdict() for one in found]) + "\n")
    fine = all(one.same and one.ratio >= DUE.get(one.temperature, 0) for one in found)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
