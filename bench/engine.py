"""Our engine as an endless loop."""

from collections.abc import Iterator

import torch
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.conditionals.masked_lm import MaskedLM
from glauber.dynamics.glauber import glauber
from glauber.dynamics.graph import replayed
from glauber.dynamics.kernel import start
from glauber.dynamics.run import run

FOREVER = 2**40


def engine(
    laws: Conditionals, tokens: Tensor, *, temperature: float = 1.0, graph: bool = False
) -> Iterator[int]:
    """Random-scan single-site Glauber dynamics. Yields the chain steps made."""
    free = torch.ones_like(tokens, dtype=torch.bool)
    free[:, 0] = free[:, -1] = False
    kernel = glauber(laws)
    begun = start(tokens, free, temperature=temperature, device=tokens.device)
    for state, _ in run(replayed(kernel) if graph else kernel, begun, FOREVER, seed=0):
        yield len(state.step)


def forward_only(laws: MaskedLM, tokens: Tensor) -> Iterator[int]:
    """The forward pass and head at one hidden site, without the draw."""
    sites = torch.randint(1, tokens.shape[1] - 1, (len(tokens), 1), device=tokens.device)
    while True:
        laws.scores(tokens, sites)
        yield len(tokens)
