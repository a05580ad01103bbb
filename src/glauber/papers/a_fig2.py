"""Paper A, figure 2: the slow-mixing regime, seen as distance from the start by temperature.

The figure itself is missing from the text that we have. The text says of it that it shows the slow
regime at low temperatures, where the embedding distance from the start grows far more slowly than
at high ones; that is what is made here.
"""

from glauber.conditionals.masked_lm import MaskedLM
from glauber.mixing.drift import distances
from glauber.mixing.hitting import hitting_times
from glauber.papers.drift_runs import CONDITIONS, THRESHOLD, embedder_of
from glauber.papers.reproduction import Reproduction, Scale
from glauber.plots.drift_by_temperature import plot_drift_by_temperature
from glauber.sampling.sample import sample
from glauber.statistics import mean_over_chains

TEMPERATURES = (0.1, 0.3, 0.5, 0.7, 1.0, 2.0)
LENGTH = 12
SIZES: dict[Scale, tuple[int, int, int]] = {  # chains, steps, steps between looks
    "small": (12, 240, 20),
    "paper": (100, 10_000, 200),
}


def make(scale: Scale, *, seed: int) -> Reproduction:
    """The distance from the start over time at each temperature, from the same starts."""
    chains, steps, every = SIZES[scale]
    model, embedder = MaskedLM.load(CONDITIONS[scale].model), embedder_of(CONDITIONS[scale])
    curves, rows = {}, []
    for temperature in TEMPERATURES:
        run = sample(
            model, steps=steps, chains=chains, length=LENGTH, temperature=temperature, seed=seed
        )
        found = curves[temperature] = distances(run, embedder.embed, every=every)
        times, end = hitting_times(found, THRESHOLD), mean_over_chains(found.values[:, -1])
        rows.append(
            {
                "temperature": temperature,
                "distance at the end": end.value,
                "interval": list(end.interval or ()),
                f"chains that reached {THRESHOLD:g}": f"{times.n_hit} of {chains}",
                "median step": times.median.value,
                "kind": end.kind,
                "model": model.name,
                "embedder": embedder.name,
                "published": "grows far more slowly at low temperatures; no number in our text",
            }
        )
    how = (
        f"{chains} chains of {steps:,} steps from the bundled passages, cut to {LENGTH} tokens; "
        "the same starts and seed at every temperature; 1 - cosine to the start"
    )
    pictures = {"distance": plot_drift_by_temperature(curves)}
    return Reproduction("A-fig2", scale, how, rows, seed, pictures)
