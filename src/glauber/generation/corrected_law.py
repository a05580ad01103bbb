"""How far is what an unmasking writes from filling one token at a time, before and after sweeps?

Exact, over the likeliest few tokens of a few hidden sites of a text; all other sites are held.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.conditionals.table import Table
from glauber.exact.space import Space
from glauber.exact.stationary import entropy_production, stationary, total_variation
from glauber.exact.transition import transition_matrix
from glauber.exact.unmasking import Procedure, correction_matrix, exact_law
from glauber.statistics import Floats

WORK = 2_000_000  # paths that are followed: seconds
ROUNDING = 12  # digits of a total variation that float64 has


@dataclass(frozen=True, eq=False)
class Distances:
    """Total variations by (passes, sweeps), from filling one by one and from the sweeps' limit."""

    distances: dict[tuple[int, int], tuple[float, float]]
    apart: float  # of these two laws from each other: 0 where there is a joint law
    production: float  # nats a redraw of the single-site chain in the long run: 0 for a joint law
    mass: Floats  # (sites,) of the tokens tried, with everything hidden


def exact_distances(
    conditionals: Conditionals,
    tokens: Tensor,
    hidden: Tensor,
    *,
    order: str,
    passes: Sequence[int],
    sweeps: Sequence[int],
    block: int,
    top: int,
    temperature: float,
) -> Distances | None:
    """The distances, or None where there are too many fillings to follow."""
    n, v = len(hidden), min(top, conditionals.vocab_size)
    if n > 6 or v < 2 or math.factorial(n) * float(v) ** (2 * n) > WORK:
        return None
    rule, mass = few_tokens(conditionals, tokens, hidden, v, temperature)
    nothing, free = torch.zeros(n, dtype=torch.int64), torch.ones(n, dtype=torch.bool)

    def law(count: str, number: int | None) -> Floats:
        how = Procedure(order, count, number, temperature=temperature)
        return exact_law(rule, nothing, free, how)

    how = Procedure(temperature=temperature, correct=1, correct_block=block)
    matrix = correction_matrix(rule, nothing, free, how)
    one_by_one, limit = law("1", None), stationary(matrix)
    found = {}
    for filled_in in passes:
        begun = law("linear", filled_in)
        for number in sweeps:
            after = begun @ np.linalg.matrix_power(matrix, number)
            far = (total_variation(after, other) for other in (one_by_one, limit))
            near, long_run = (round(one, ROUNDING) for one in far)
            found[filled_in, number] = near, long_run
    single = transition_matrix(rule, Space(v, n), temperature=temperature)
    apart = total_variation(one_by_one, limit)
    return Distances(found, apart, entropy_production(single), mass)


def few_tokens(
    conditionals: Conditionals, tokens: Tensor, hidden: Tensor, count: int, temperature: float
) -> tuple[Table, Floats]:
    """The conditionals of the hidden sites over their likeliest tokens, and the mass (n,) of these.

    Likeliest with all of them hidden; each set of hidden sites is asked once, for all fillings of
    the others.
    """
    n = len(hidden)
    scores = conditionals.scores(tokens[None], hidden[None])[0].double() / temperature
    offered = scores.topk(count, dim=1).indices  # (n, count)
    mass = torch.softmax(scores, dim=1).gather(1, offered).sum(dim=1)
    entries = torch.zeros(n, *(count + 1,) * n, count, dtype=torch.float64)
    for open_ones in product((False, True), repeat=n):
        slots = [slot for slot in range(n) if open_ones[slot]]
        if not slots:
            continue
        choices = [[count] if open_ones[slot] else range(count) for slot in range(n)]
        contexts = torch.tensor([*product(*choices)], device=tokens.device)
        whole = tokens.repeat(len(contexts), 1)
        whole[:, hidden] = offered[
            torch.arange(n, device=tokens.device), contexts.clamp(max=count - 1)
        ]
        asked = hidden[slots].expand(len(contexts), -1)
        wanted = offered[slots].expand(len(contexts), -1, -1).contiguous()
        found = conditionals.scores(whole, asked.contiguous(), wanted).double().cpu()
        for place, slot in enumerate(slots):
            entries[slot][contexts.cpu().unbind(dim=1)] = found[:, place]
    return Table(entries), np.asarray(mass.cpu().numpy())
