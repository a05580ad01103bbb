"""Is a chain frozen, does it wander, or is it noise?

Too cold, it falls into the nearest trap and stays; too hot, it draws tokens that have nothing to do
with one another. Between the two it wanders. Each figure is a mean over the second half of a run.
"""

from dataclasses import dataclass

import numpy as np

from glauber.errors import GlauberError
from glauber.metastability.episodes import check_steps, episodes_of_chain, sojourns
from glauber.runs.embedding import Choice, choose_embedder
from glauber.runs.run import Run
from glauber.runs.snapshots import snapshots


@dataclass(frozen=True)
class Regime:
    """How a run moves at its temperature; estimates."""

    temperature: float
    changed: float  # share of the steps that changed a token
    kept: float  # share of the free sites that hold their starting token at the end
    entropy: float  # of the conditionals drawn from, in nats
    log_prob: float  # of the drawn tokens
    away: float  # 1 - cos between the embeddings of a snapshot and of the chain's start
    pace: float  # 1 - cos between the embeddings of snapshots `stride` steps apart
    stuck: float  # share of the steps within episodes of radius 1 that last `shortest` steps
    kind: str = "estimate"


def regime(run: Run, embedder: Choice = None, *, stride: int = 50, shortest: int = 150) -> Regime:
    """What a stored run shows of its regime, over all its chains."""
    check_steps(run)
    temperature = np.unique(run.temperatures)
    if len(temperature) > 1:
        raise GlauberError("a regime is that of one temperature, but the chains have several.")
    half = run.steps // 2
    there = run.read("site", half) >= 0
    texts = snapshots(run, every=stride)
    vectors = choose_embedder(texts, embedder).vectors(texts).astype(np.float64)
    late = vectors[:, vectors.shape[1] // 2 :]
    steps = 1 - (late[:, 1:] * late[:, :-1]).sum(axis=2)
    away = 1 - (late * vectors[:, :1]).sum(axis=2)
    same = (run.tokens() == run.tokens(0))[run.free]
    return Regime(
        temperature=float(temperature[0]),
        changed=float(run.read("changed", half)[there].mean()),
        kept=float(same.mean()),
        entropy=float(run.read("entropy", half)[there].mean()),
        log_prob=float(run.read("log_prob_new", half)[there].mean()),
        away=float(away.mean().clip(min=0)),
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
