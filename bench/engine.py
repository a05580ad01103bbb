"""Our engine as an endless loop."""

from collections.abc import Iterator

import torch
from torch import Tensor

from glauber.dynamics.cuda import graph_kernel, laid_out, multi_step
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import State, run, start
from glauber.dynamics.remembered import BUDGET, Memo, run_memoised
from glauber.models.base import Conditionals, Restricted
from glauber.models.masked_lm import MaskedLM
from glauber.texts.starts import passages

FOREVER = 2**40


def engine(
    conditionals: Conditionals,
    tokens: Tensor,
    *,
    temperature: float = 1.0,
    graph: bool = False,
    per_pass: int = 1,
) -> Iterator[int]:
    """Random-scan single-site Glauber dynamics. Yields the chain steps made."""
    kernel, begun = glauber(conditionals), _begun(tokens, temperature)
    if per_pass > 1:
        steps = multi_step(kernel, begun, FOREVER, seed=0, per_pass=per_pass)
    else:
        kernel = graph_kernel(kernel) if graph else laid_out(kernel)
        steps = run(kernel, begun, FOREVER, seed=0)
    for state, _ in steps:
        yield len(state.step)


def sampled(conditionals: Conditionals, tokens: Tensor, *, remember: bool = True) -> Iterator[int]:
    """The same steps as `glauber sample` makes them of few chains on a CPU, and with --memo 0."""
    memo = Memo(conditionals.vocab_size, tokens.shape[1], budget=BUDGET if remember else 0)
    for state, _ in run_memoised(
        glauber(conditionals), _begun(tokens, 1.0), FOREVER, seed=0, memo=memo
    ):
        yield len(state.step)


def temperature_at(conditionals: Conditionals, tokens: Tensor, share: float) -> float:
    """A temperature at which about that share of the steps changes a token."""
    low, high = 1e-3, 1e2
    for _ in range(12):
        middle = (low * high) ** 0.5
        steps = run(glauber(conditionals), _begun(tokens, middle), 40, seed=0)
        moved = torch.stack([info.changed.double().mean() for _, info in steps][20:]).mean()
        low, high = (middle, high) if float(moved) < share else (low, middle)
    return (low * high) ** 0.5


def bundled_chains(n_chains: int, length: int) -> tuple[Restricted, Tensor, Tensor]:
    """The bundled model on a CPU, warmed up, with starting tokens and free sites of its chains."""
    model = MaskedLM.load("bundled:english", device="cpu")
    conditionals = Restricted(model, model.vocabulary.proposable())
    texts = [text for _, text in passages()][:n_chains]
    tokens, free = model.vocabulary.encode(texts, length=length)
    for _ in run(glauber(conditionals), start(tokens, free), 3, seed=1):
        pass  # what is measured once per shape is not counted
    return conditionals, tokens, free


def _begun(tokens: Tensor, temperature: float) -> State:
    free = torch.ones_like(tokens, dtype=torch.bool)
    free[:, 0] = free[:, -1] = False
    return start(tokens, free, temperature=temperature, device=tokens.device)


def forward_only(conditionals: MaskedLM, tokens: Tensor) -> Iterator[int]:
    """The forward pass and head at one hidden site, without the draw."""
    sites = torch.randint(1, tokens.shape[1] - 1, (len(tokens), 1), device=tokens.device)
    while True:
        conditionals.scores(tokens, sites)
        yield len(tokens)
