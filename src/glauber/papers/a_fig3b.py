"""Paper A, figure 3b: the hitting time of an embedding distance against n, and which law fits."""

from typing import Any

from glauber.mixing.hitting import HittingTimes, first_passages
from glauber.mixing.scaling import LawFit, Scaling, fit_scaling
from glauber.papers.drift_runs import CONDITIONS, PLACE, PUBLISHED, THRESHOLD, embedder_of, runs
from glauber.papers.reproduction import Reproduction, Scale
from glauber.plots.scaling import plot_scaling


def make(scale: Scale, *, seed: int) -> Reproduction:
    """The median time at each length, and the fits of n, n log n and n^2."""
    found = CONDITIONS[scale]
    embedder = embedder_of(found)
    times = {
        n: first_passages(run, embedder.embed, THRESHOLD)
        for n, run in runs(found, steps=found.steps, seed=seed)
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
    return Reproduction("A-fig3b", scale, how, rows, seed, pictures)


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
        "published": PUBLISHED if fit.law == "n log n" else None,
    }
