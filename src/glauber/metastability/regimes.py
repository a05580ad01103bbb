"""Is a chain frozen, does it wander, or is it noise?

Too cold, it falls into the nearest trap and stays; too hot, it draws tokens that have nothing to do
with one another. Between the two it wanders. Each figure is a mean over the second half of a run.
"""

from dataclasses import dataclass

import numpy as np

from glauber.metastability.episodes import check_steps, episodes_of_chain, sojourns
from glauber.metastability.looks import Embed, read_looks
from glauber.runs.run import Run


@dataclass(frozen=True)
class Regime:
    """How a run moves at its temperature; estimates."""

    temperature: float
    changed: float  # share of the steps that changed a token
    kept: float  # share of the free sites that hold their starting token at the end
    entropy: float  # of the conditionals drawn from, in nats
    log_prob: float  # of the drawn tokens
    pace: float  # 1 - cos between the embeddings of snapshots `stride` steps apart
    stuck: float  # share of the steps within episodes of radius 1 that last `shortest` steps
    kind: str = "estimate"


def regime(run: Run, embed: Embed, *, stride: int = 50, shortest: int = 150) -> Regime:
    """What a stored run shows of its regime; the embedding is texts in, unit vectors out."""
    check_steps(run)
    half = run.steps // 2
    there = run.read("site", half) >= 0
    vectors = read_looks(run, embed, every=stride).vectors
    late = vectors[:, vectors.shape[1] // 2 :]
    steps = 1 - (late[:, 1:].astype(np.float64) * late[:, :-1]).sum(axis=2)
    same = (run.tokens() == run.tokens(0))[run.free]
    return Regime(
        temperature=run.spec.temperature,
        changed=float(run.read("changed", half)[there].mean()),
        kept=float(same.mean()),
        entropy=float(run.read("entropy", half)[there].mean()),
        log_prob=float(run.read("log_prob_new", half)[there].mean()),
        pace=float(steps.mean().clip(min=0)),  # rounding may put equal texts a little below
        stuck=_stuck(run, half, shortest),
    )


def _stuck(run: Run, half: int, shortest: int) -> float:
    """Share of the states behind step `half` that lie in long episodes of radius 1."""
    inside = sum(
        max(0, episode.last - max(episode.first, half + 1) + 1)
        for path in sojourns(run)
        for episode in episodes_of_chain(path, radius=1)
        if episode.duration >= shortest
    )
    return inside / (run.n_chains * (run.steps - half))
