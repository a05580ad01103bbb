"""Paper A, figure 3a: the embedding distance from the start after a fixed number of steps, by n."""

import numpy as np

from glauber.mixing.drift import distances
from glauber.papers.drift_runs import CONDITIONS, PLACE, PUBLISHED, embedder_of, runs
from glauber.papers.reproduction import Reproduction, Scale
from glauber.plots.semantic_drift import plot_distance_by_length
from glauber.statistics import mean_over_chains


def make(scale: Scale, *, seed: int) -> Reproduction:
    """The distance after the fixed step at each length, as means with intervals."""
    found = CONDITIONS[scale]
    embedder = embedder_of(found)
    values, means, rows = {}, {}, []
    for n, run in runs(found, steps=found.look, seed=seed):
        values[n] = distances(run, embedder.embed, every=found.look).at(found.look)
        means[n] = mean_over_chains(values[n])
        rows.append(
            {
                "n": n,
                "mean distance": means[n].value,
                "interval": list(means[n].interval or ()),
                "quartiles": np.quantile(values[n], [0.25, 0.5, 0.75]).tolist(),
                "kind": means[n].kind,
                "step": found.look,
                "trials": found.trials,
                "model": found.model,
                "embedder": embedder.name,
                "published": f"the time to drift away {PUBLISHED}; no number in our text",
            }
        )
    how = f"version 1: 1 - cosine to the start after {found.look} steps; {PLACE}"
    pictures = {"distance": plot_distance_by_length(values, means, step=found.look)}
    return Reproduction("A-fig3a", scale, how, rows, seed, pictures)
