"""Which states hold a token exactly so many times?"""

import torch
from torch import Tensor

from glauber.conditionals.base import Conditionals, Restricted
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import start
from glauber.dynamics.run import run
from glauber.errors import GlauberError


def with_copies(
    texts: Tensor, free: Tensor, *, token: int, count: int, samples: int, seed: int = 0
) -> Tensor:
    """States (samples, length) with exactly `count` copies of the token, at random free sites.

    The other sites come from texts (rows, length), one drawn at random for each state. Where a
    text holds the token itself at another site, a random other token of that text goes there.
    free (length,) bool is the same for every text.
    """
    _check(int(free.sum()), count, samples)
    usable = texts[((texts != token) & free).any(1)]
    if count < int(free.sum()) and len(usable) == 0:
        raise GlauberError("every text consists of that token alone, so none can fill the rest.")
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randint(max(1, len(usable)), (samples,), generator=generator)
    states = (usable if len(usable) else texts)[chosen].clone()
    sites = free.nonzero()[:, 0]
    for state in states:
        own = state[sites]
        others = own[own != token]
        if len(others):
            picked = torch.randint(len(others), (len(sites),), generator=generator)
            own = torch.where(own == token, others[picked], own)
        own[torch.randperm(len(sites), generator=generator)[:count]] = token
        state[sites] = own
    return states


def settle(
    conditionals: Conditionals,
    states: Tensor,
    free: Tensor,
    *,
    token: int,
    n_steps: int,
    temperature: float = 1.0,
    seed: int = 0,
) -> Tensor:
    """The states (rows, length) after n_steps in which only sites without the token are redrawn.

    The token itself is never drawn, so each state keeps its copies and the rest is a state of
    the chain given them.
    """
    movable = free & (states != token)
    if n_steps == 0 or not bool(movable.any(1).all()):
        return states
    allowed = torch.ones(conditionals.vocab_size, dtype=torch.bool, device=states.device)
    allowed[token] = False
    kernel = glauber(Restricted(conditionals, allowed))
    state = start(states, movable, temperature=temperature, device=states.device)
    for after, _ in run(kernel, state, n_steps, seed=seed):
        state = after
    return state.tokens


def _check(n_sites: int, count: int, samples: int) -> None:
    if samples < 1:
        raise GlauberError(f"the number of samples is {samples}, but it must be at least 1.")
    if not 1 <= count <= n_sites:
        raise GlauberError(
            f"the count is {count}, but {n_sites} free tokens hold 1 to {n_sites} copies."
        )
