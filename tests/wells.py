"""Two small laws with three wells each, known exactly, and chains of them as labels."""

import numpy as np
import torch

from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.exact import Space
from glauber.models.table import Joint, Table

SPACE = Space(3, 3)


def three_wells(depth: float = 1.6) -> Joint:
    """A joint law that likes equal tokens: its chain is reversible, its wells of unlike depth."""
    weights = torch.zeros(3, 3, 3, dtype=torch.float64)
    for token in range(3):
        own = depth * (1 + 0.15 * token)
        weights[token, token, :] += own
        weights[:, token, token] += own
        weights[token, :, token] += own
    return Joint(weights)


def turning_wells(depth: float = 3.0, push: float = 1.5) -> Table:
    """Conditionals that like equal tokens and push 0 to 1 to 2 to 0: no joint law fits them."""
    entries = torch.zeros(3, 4, 4, 4, 3, dtype=torch.float64)
    for site in range(3):
        for context in np.ndindex(4, 4, 4):
            others = [context[other] for other in range(3) if other != site]
            for token in range(3):
                score = depth * others.count(token) + push * others.count((token - 1) % 3)
                entries[(site, *context, token)] = score
    return Table(entries)


def state_labels(law: Joint | Table, *, n_chains: int, n_steps: int, seed: int = 0) -> np.ndarray:
    """The state (chains, 1 + steps) of chains made by the engine, from all states in turn."""
    tokens = SPACE.states()[torch.arange(n_chains) % SPACE.size]
    found = [SPACE.index(tokens)]
    begun = start(tokens, torch.ones_like(tokens, dtype=torch.bool))
    for state, _ in run(glauber(law), begun, n_steps, seed=seed):
        found.append(SPACE.index(state.tokens))
    return torch.stack(found, dim=1).numpy()
