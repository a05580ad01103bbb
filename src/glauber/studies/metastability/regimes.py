"""Regimes of temperature: whether a chain is frozen, wanders, or is noise.

Too cold, it falls into the nearest trap and stays; too hot, it draws tokens that have nothing to do
with one another. Between the two it wanders. The paper measures how far the text is from its start
over time; shares over the second half of a run are reported next to it. All are figures of each
chain, and the intervals are those of chains.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.errors import GlauberError
from glauber.foundation.statistics import Estimate, Estimates, Floats, jackknife, mean_over_chains
from glauber.runs.embedding import Choice, choose_embedder
from glauber.runs.run import Run
from glauber.runs.snapshots import snapshots
from glauber.studies.metastability.episodes import check_steps, episodes_of_chain, sojourns

# Each figure of a chain, and between which values it lies.
BOUNDS = {
    "changed": (0.0, 1.0),  # share of the steps that changed a token
    "kept": (0.0, 1.0),  # share of the free sites that hold their starting token at the end
    "entropy": (0.0, np.inf),  # of the conditionals drawn from, in nats
    "log_prob": (-np.inf, 0.0),  # of the drawn tokens
    "away": (0.0, 2.0),  # 1 - cos between the embeddings of a snapshot and of the chain's start
    "pace": (0.0, 2.0),  # 1 - cos between the embeddings of snapshots `stride` steps apart
    "stuck": (0.0, 1.0),  # share of the steps within episodes of radius 1 of `shortest` steps
}


def _mean(name: str) -> property:
    return property(lambda self: self.mean(name).value)


@dataclass(frozen=True, eq=False)
class Regime:
    """How a run moves at its temperature; estimates."""

    temperature: float
    by_chain: dict[str, Floats]  # each figure of BOUNDS, (chains,), over the second half
    steps: NDArray[np.int64]  # (snapshots,)
    distances: Floats  # (chains, snapshots): 1 - cos from the chain's start
    kind: str = "estimate"

    def mean(self, name: str) -> Estimate:
        """The mean of a figure over chains, with its interval; a name of BOUNDS."""
        return mean_over_chains(
            self.by_chain[name], bounds=BOUNDS[name], student=BOUNDS[name] != (0.0, 1.0)
        )

    @property
    def from_start(self) -> Estimates:
        """The mean distance (snapshots,) from the start over time, with intervals over chains."""
        return jackknife(
            lambda weights: weights @ self.distances / weights.sum(),
            len(self.distances),
            bounds=(0.0, 2.0),
        )

    @property
    def at_end(self) -> Estimate:
        """The mean distance from the start at the last snapshot, with its interval."""
        return mean_over_chains(self.distances[:, -1], bounds=(0.0, 2.0), student=True)

    # The mean of each figure over chains.
    changed = _mean("changed")
    kept = _mean("kept")
    entropy = _mean("entropy")
    log_prob = _mean("log_prob")
    away = _mean("away")
    pace = _mean("pace")
    stuck = _mean("stuck")


def regime(run: Run, embedder: Choice = None, *, stride: int = 50, shortest: int = 150) -> Regime:
    """What a stored run shows of its regime, chain by chain."""
    check_steps(run)
    temperature = np.unique(run.temperatures)
    if len(temperature) > 1:
        raise GlauberError("a regime is that of one temperature, but the chains have several.")
    half = run.steps // 2
    redrawn = run.read("site", half) >= 0
    texts = snapshots(run, every=stride)
    vectors = choose_embedder(texts, embedder).vectors(texts).astype(np.float64)
    # Rounding may put equal texts a little below zero.
    distances = (1 - (vectors * vectors[:, :1]).sum(axis=2)).clip(min=0)
    late = vectors[:, vectors.shape[1] // 2 :]
    paces = (1 - (late[:, 1:] * late[:, :-1]).sum(axis=2)).clip(min=0)
    same, free = (run.tokens() == run.tokens(0)) & run.free, run.free

    def over_steps(name: str) -> Floats:
        values = np.where(redrawn, run.read(name, half), 0)
        return np.asarray(values.sum(axis=(1, 2)) / redrawn.sum(axis=(1, 2)), np.float64)

    return Regime(
        temperature=float(temperature[0]),
        by_chain={
            "changed": over_steps("changed"),
            "kept": np.asarray(same.sum(axis=1) / free.sum(axis=1)),
            "entropy": over_steps("entropy"),
            "log_prob": over_steps("log_prob_new"),
            "away": np.asarray(distances[:, vectors.shape[1] // 2 :].mean(axis=1)),
            "pace": np.asarray(paces.mean(axis=1)) if paces.shape[1] else np.zeros(run.n_chains),
            "stuck": _stuck(run, half, shortest),
        },
        steps=np.asarray(texts.steps, np.int64),
        distances=distances,
    )


def _stuck(run: Run, half: int, shortest: int) -> Floats:
    """Share (chains,) of the states after step `half` that lie in long episodes of radius 1."""
    inside = [
        sum(
            max(0, episode.last - max(episode.first, half + 1) + 1)
            for episode in episodes_of_chain(path, radius=1)
            if episode.duration >= shortest
        )
        for path in sojourns(run)
    ]
    return np.array(inside) / (run.steps - half)
