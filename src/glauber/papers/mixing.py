"""Paper A on mixing: influence, couplings, drift of meaning by temperature and length, regimes.

Of figure 2 and of the influence of a sentence the text of the paper that we have shows no values.
It says of figure 2 that it shows the slow regime at low temperatures, where the embedding distance
from the start grows far more slowly than at high ones; that is what is made here. Of the coupling
figure it gives no table either: it shows the share of pairs that met and their median time over
(temperature, length), and that the boundary moves to higher temperatures as texts get longer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from glauber.conditionals.load import load
from glauber.conditionals.starts import passages
from glauber.figures.metastability import plot_regimes
from glauber.figures.semantic_drift import (
    plot_distance_by_length,
    plot_drift_by_temperature,
    plot_scaling,
)
from glauber.metastability.regimes import Regime, regime
from glauber.mixing.influence import influence
from glauber.mixing.phase import phase
from glauber.mixing.scaling import LawFit, Scaling, fit_scaling
from glauber.mixing.semantic_drift import HittingTimes, distances, first_passages, hitting_times
from glauber.papers.paper import Reproduction
from glauber.papers.settings import Piece, Scale, Settings
from glauber.papers.traps import CONDITIONS as TRAP_CONDITIONS
from glauber.runs.embedding import Embedder, load_embedder
from glauber.runs.run import Run
from glauber.sampling.sample import sample
from glauber.statistics import mean_over_chains

THRESHOLD = 0.5
GROWTH = "grows as n log n"
PLACE = "chains from the bundled passages, cut to n tokens, at temperature 1"
SLOW_TEMPERATURES = (0.1, 0.3, 0.5, 0.7, 1.0, 2.0)
SLOW_LENGTH = 12
SLOW_SIZES: dict[Scale, tuple[int, int, int]] = {  # chains, steps, steps between snapshots
    "small": (12, 240, 20),
    "paper": (100, 10_000, 200),
}
SMALL_MODEL = "bundled:english"
SENTENCE = "the old bridge over the river was closed because the water had risen too"
PHASES: dict[Scale, dict[str, Any]] = {
    "small": {
        "model": "bundled:english",
        "pairs": 12,
        "steps": 400,
        "lengths": [6, 10, 16],
        "temperatures": [0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5],
    },
    "paper": {
        "model": "bert-base-uncased",
        "pairs": 100,
        "steps": 5000,
        "lengths": [5, 10, 20, 40],
        "temperatures": [0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0],
    },
}
REGIMES = {
    0.01: "barely moves",
    0.1: "barely moves",
    1.0: "wanders among basins",
    10.0: "noise",
    100.0: "noise",
}
REGIME_SIZES: dict[Scale, tuple[int, int]] = {"small": (6, 600), "paper": (30, 10_000)}


@dataclass(frozen=True)
class Conditions:
    """One scale's model, embedding, lengths and sizes of figure 3."""

    model: str
    embedder: str | None  # none: the one in the package
    lengths: tuple[int, ...]
    trials: int
    step: int  # figure 3a: the fixed step at which distances are compared
    steps: int  # figure 3b: of every chain, at every length
    how: dict[str, Any]  # what the embedding model asks for beside its name


CONDITIONS: dict[Scale, Conditions] = {
    "small": Conditions(
        "bundled:english", None, (6, 9, 13, 19, 28), trials=50, step=20, steps=120, how={}
    ),
    "paper": Conditions(
        "bert-base-uncased",
        "jinaai/jina-embeddings-v4",
        (5, 10, 15, 20, 25),
        trials=100,
        step=20,
        steps=2000,
        how={"trust_remote_code": True, "task": "text-matching"},
    ),
}


def figure2(settings: Settings) -> Reproduction:
    """The distance from the start over time at each temperature, from the same starts."""
    chains, steps, every = SLOW_SIZES[settings.scale]
    model, embedder = load(CONDITIONS[settings.scale].model), _embedder(CONDITIONS[settings.scale])
    curves, rows = {}, []
    for temperature in SLOW_TEMPERATURES:
        run = sample(
            model, _texts(), steps=steps, chains=chains, length=SLOW_LENGTH,
            temperature=temperature, seed=settings.seed,
        )  # fmt: skip
        found = curves[temperature] = distances(run, embedder, every=every)
        times = hitting_times(found, THRESHOLD)
        end = mean_over_chains(found.values[:, -1], bounds=(0.0, 2.0))
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
        f"{chains} chains of {steps:,} steps from the bundled passages, cut to {SLOW_LENGTH} "
        "tokens; the same starts and seed at every temperature; 1 - cosine to the start"
    )
    pictures = {"distance": plot_drift_by_temperature(curves)}
    return Reproduction.of(settings, how, rows, pictures=pictures)


def figure3a(settings: Settings) -> Reproduction:
    """The distance after the fixed step at each length, as means with intervals."""
    found = CONDITIONS[settings.scale]
    embedder = _embedder(found)
    values, means, rows = {}, {}, []
    for n, run in _runs(found, steps=found.step, seed=settings.seed):
        values[n] = distances(run, embedder, every=found.step).at(found.step)
        means[n] = mean_over_chains(values[n], bounds=(0.0, 2.0))
        rows.append(
            {
                "n": n,
                "mean distance": means[n].value,
                "interval": list(means[n].interval or ()),
                "quartiles": np.quantile(values[n], [0.25, 0.5, 0.75]).tolist(),
                "kind": means[n].kind,
                "step": found.step,
                "trials": found.trials,
                "model": found.model,
                "embedder": embedder.name,
                "published": f"the time to drift away {GROWTH}; no number in our text",
            }
        )
    how = f"version 1: 1 - cosine to the start after {found.step} steps; {PLACE}"
    pictures = {"distance": plot_distance_by_length(values, means, step=found.step)}
    return Reproduction.of(settings, how, rows, pictures=pictures)


def figure3b(settings: Settings) -> Reproduction:
    """The median time at each length, and the fits of n, n log n and n^2."""
    found = CONDITIONS[settings.scale]
    embedder = _embedder(found)
    times = {
        n: first_passages(run, embedder, THRESHOLD)
        for n, run in _runs(found, steps=found.steps, seed=settings.seed)
    }
    fitted = fit_scaling(times)
    other = fit_scaling(times, family="log-normal")
    made = {"model": found.model, "embedder": embedder.name}
    rows = [_time_row(n, each) | made for n, each in times.items()]
    rows += [_law_row(fit, each) for each in (fitted, other) for fit in each.fits]
    how = (
        f"version 2: first step with 1 - cosine to the start of at least {THRESHOLD:g}, within "
        f"{found.steps} steps; {PLACE}; fits by likelihood with censoring"
    )
    pictures = {"times": plot_scaling(times, fitted)}
    return Reproduction.of(settings, how, rows, pictures=pictures)


def coupling_figure(settings: Settings) -> Reproduction:
    """The share met and the crossover of each length, and the heat map with its boundary."""
    chosen = PHASES[settings.scale]
    found = phase(seed=settings.seed, **chosen)
    how = (
        f"{chosen['pairs']} pairs of bundled passages a cell, the same site at each step, redraws "
        f"from the maximal coupling, at most {chosen['steps']:,} steps"
    )
    rows = [
        {
            "model": chosen["model"],
            "tokens": one.length,
            "crossover temperature": one.temperature,
            "interval": list(one.interval),
            "width in log temperature": one.width,
            "crossover is": one.kind,
            "met": ", ".join(
                f"{sum(cell.met)}/{len(cell.met)} at {cell.temperature:g}"
                for cell in found.cells
                if cell.length == one.length
            ),
            "published": "the boundary moves to higher temperatures as the length grows",
        }
        for one in found.crossovers
    ]
    return Reproduction.of(settings, how, rows, pictures=found.figures())


def influence_of_a_sentence(settings: Settings) -> Reproduction:
    """alpha and the threshold temperature of appendix A.1, and the heat map."""
    name = SMALL_MODEL if settings.scale == "small" else "bert-base-uncased"
    found = influence(
        name, SENTENCE, samples=4 if settings.scale == "small" else 32, chains=1, seed=settings.seed
    )
    row = {
        "model": name,
        "alpha": found.alpha,
        "alpha is": found.matrix.kind,
        "threshold temperature": found.threshold,
        "threshold is": found.matrix.threshold_kind,
        "published": None,
    }
    how = "suprema over sampled contexts and replacement tokens of one sentence of about 14 tokens"
    pictures = {"heat": found.figure()}
    return Reproduction.of(settings, how, [row], pictures=pictures)


def regimes(settings: Settings) -> Reproduction:
    """How chains move at each temperature, with the text that one of them ended in."""
    found = TRAP_CONDITIONS[settings.scale]
    model, embedder = load(found.model), load_embedder(found.embedder, **found.how)
    chains, steps = REGIME_SIZES[settings.scale]
    seen, rows = [], []
    for temperature, published in REGIMES.items():
        run = sample(
            model, _texts(), steps=steps, chains=chains, length=found.length,
            temperature=temperature, seed=settings.seed,
        )  # fmt: skip
        seen.append(regime(run, embedder))
        rows.append(_regime_row(seen[-1], run.text(), published) | {"model": model.name})
    how = (
        f"{chains} chains of {steps:,} steps from the bundled passages, cut to {found.length} "
        "tokens; the same starts and seed at every temperature; shares over the second half"
    )
    return Reproduction.of(settings, how, rows, pictures={"shares": plot_regimes(seen)})


PIECES = {
    "A-fig2": Piece("distance from the start over time, by temperature: the slow regime", figure2),
    "A-fig3a": Piece(
        "embedding distance from the start after a fixed number of steps, by length",
        figure3a,
    ),
    "A-fig3b": Piece(
        "hitting time of an embedding distance by length, against n, n log n and n^2",
        figure3b,
    ),
    "A-fig-coupling": Piece("where in temperature and length two chains meet", coupling_figure),
    "A-influence": Piece(
        "influence, alpha and the contraction threshold of one sentence",
        influence_of_a_sentence,
    ),
    "A-regimes": Piece("how chains move at temperatures from 0.01 to 100", regimes),
}


def _texts() -> list[str]:
    return [text for _, text in passages()]


def _embedder(found: Conditions) -> Embedder:
    return load_embedder(found.embedder, **found.how)


def _runs(found: Conditions, *, steps: int, seed: int) -> Iterator[tuple[int, Run]]:
    """(n, run) for each length: all trials of a length are the chains of one run."""
    model = load(found.model)
    for place, n in enumerate(found.lengths):
        # Another seed for each length, so that no noise is shared between conditions.
        own = len(found.lengths) * seed + place
        yield n, sample(model, _texts(), steps=steps, chains=found.trials, length=n, seed=own)


def _time_row(n: int, times: HittingTimes) -> dict[str, Any]:
    median = times.median
    return {
        "n": n,
        "median time": median.value,
        "interval": list(median.interval),
        "kind": median.kind,
        "hit": times.n_hit,
        "censored": len(times.hit) - times.n_hit,
        "times": [
            int(step) if hit else None for step, hit in zip(times.steps, times.hit, strict=True)
        ],
    }


def _law_row(fit: LawFit, scaling: Scaling) -> dict[str, Any]:
    return {
        "law": fit.law,
        "times vary by": scaling.family,
        "c": fit.c,
        "interval of c": list(fit.interval),
        "kind": fit.kind,
        "log-likelihood": fit.log_likelihood,
        "AIC difference": fit.aic_difference,
        "weight": fit.weight,
        "misfit p-value": fit.misfit,
        "best of the three": fit is scaling.best,
        "published": GROWTH if fit.law == "n log n" else None,
    }


def _regime_row(found: Regime, text: str, published: str) -> dict[str, Any]:
    return {
        "temperature": found.temperature,
        "steps that change a token": found.changed,
        "start tokens kept": found.kept,
        "entropy, nats": found.entropy,
        "log-probability of draws": found.log_prob,
        "1 - cosine from the start": found.away,
        "1 - cosine per 50 steps": found.pace,
        "steps within a trap": found.stuck,
        "kind": found.kind,
        "chain 0 ends in": text,
        "published": published,
    }
