"""Chains of small tables with known wells, as paths and as stored runs."""

import itertools

import numpy as np
import torch

from crafted_run import crafted_run
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.exact.space import Space
from glauber.exact.transition import transition_matrix
from glauber.models.table import Table

VOCAB, LENGTH = 3, 4
SPACE = Space(VOCAB, LENGTH)
WELLS = np.array([[token] * LENGTH for token in range(VOCAB)])


def wells(depth: float, seed: int) -> Table:
    """Random conditionals, of no joint law, that reward agreement: a well at 0000, 1111, 2222."""
    entries = Table.random(VOCAB, LENGTH, seed=seed, strength=0.5).entries
    for site in range(LENGTH):
        for context in itertools.product(range(VOCAB), repeat=LENGTH):
            others = [token for place, token in enumerate(context) if place != site]
            place = list(context)
            place[site] = VOCAB  # the site itself is hidden
            row = entries[(site, *place)]
            if context[site] == 0:  # each context once
                row += depth * torch.tensor([others.count(v) / len(others) for v in range(VOCAB)])
    return Table(entries)


LAW = wells(4.0, seed=3)
MATRIX = transition_matrix(LAW, SPACE)


def simulate(n_chains: int, n_steps: int, seed: int):
    """Paths (chains, 1 + steps, length), and the sites and log-probabilities of the steps."""
    tokens = torch.from_numpy(WELLS[np.arange(n_chains) % VOCAB])
    begun = start(tokens, torch.ones_like(tokens, dtype=torch.bool))
    states, sites, log_probs = [tokens.numpy()], [], []
    for state, info in run(glauber(LAW), begun, n_steps, seed=seed):
        states.append(state.tokens.numpy())
        sites.append(info.sites[:, 0].numpy())
        log_probs.append(info.log_prob_new[:, 0].numpy())
    return np.stack(states, axis=1), np.stack(sites, axis=1), np.stack(log_probs, axis=1)


def stored(folder, n_chains: int, n_steps: int, seed: int):
    """The same as a stored run, and its paths."""
    paths, sites, log_probs = simulate(n_chains, n_steps, seed)
    tokens = np.take_along_axis(paths[:, 1:], sites[:, :, None], axis=2)[:, :, 0]
    return crafted_run(folder, paths[:, 0], sites, tokens, log_probs), paths
