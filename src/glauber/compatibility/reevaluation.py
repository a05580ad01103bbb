"""What would the model have said along a run, asked again? For coarse runs, in float32.

A run drawn in int8 or bfloat16 recorded conditionals that were rounded. What is measured about the
model needs its own precision, so the same questions are asked again at the states that the run
visited.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glauber.conditionals.base import Conditionals, log_probs
from glauber.conditionals.batching import rows_at_once
from glauber.progress import say, track
from glauber.runs.export import trajectory
from glauber.runs.run import Run

Floats = NDArray[np.float64]


def evaluate_again(run: Run, conditionals: Conditionals, begin: int) -> tuple[Floats, Floats]:
    """log_prob_old and entropy (chains, steps - begin) of a run's events from step `begin` on."""
    sites = run.read("site")[:, :, 0]
    temperatures = torch.from_numpy(run.temperatures)
    steps = run.steps - begin
    say(f"{steps * run.n_chains:,} conditionals to evaluate again in float32")
    old, entropy = np.empty((run.n_chains, steps)), np.empty((run.n_chains, steps))
    most = rows_at_once(8 * conditionals.vocab_size * run.n_chains)  # steps at once
    held: list[NDArray[np.int64]] = []
    with track("conditionals", steps * run.n_chains) as advance:
        for step, tokens in trajectory(run):
            if begin <= step < run.steps:
                held.append(tokens)
            if held and (len(held) == most or step == run.steps):
                last = min(step + 1, run.steps) - begin
                part = slice(last - len(held), last)
                here = sites[:, begin + part.start : begin + part.stop]
                old[:, part], entropy[:, part] = _asked_again(
                    conditionals, np.stack(held, axis=1), here, temperatures
                )
                advance(len(held) * run.n_chains)
                held = []
    return old, entropy


def _asked_again(
    conditionals: Conditionals,
    tokens: NDArray[np.int64],
    sites: NDArray[Any],
    temperatures: torch.Tensor,
) -> tuple[Floats, Floats]:
    """Of tokens (chains, steps, length) before the redraw of sites (chains, steps)."""
    rows = torch.from_numpy(tokens).flatten(0, 1)
    asked = torch.from_numpy(sites.astype(np.int64)).reshape(-1, 1)
    by_row = temperatures.repeat_interleave(sites.shape[1])
    found = log_probs(conditionals, rows, asked, temperature=by_row)[:, 0].cpu()
    old = found.gather(1, rows.gather(1, asked))
    entropy = torch.special.entr(found.exp()).sum(dim=1)
    return old.view(sites.shape).numpy(), entropy.view(sites.shape).numpy()
