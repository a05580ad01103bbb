"""What the pictures of semantic drift show."""

import numpy as np

from glauber.foundation.statistics import mean_over_chains
from glauber.interfaces.plots.mixing import (
    plot_distance_by_length,
    plot_scaling,
    plot_semantic_drift,
)
from glauber.studies.mixing.scaling import fit_scaling
from glauber.studies.mixing.semantic_drift import DriftDistances, HittingTimes, saturation


def test_the_median_and_the_band_of_the_distances():
    values = np.random.default_rng(0).uniform(size=(30, 12))
    found = DriftDistances(np.arange(12) * 5, values, 5)
    figure = plot_semantic_drift(found, saturation(found), threshold=0.4)
    band, middle = figure.data
    high, low = np.array(band.y[:12]), np.array(band.y[:11:-1])
    assert np.allclose(middle.y, np.median(values, axis=0))
    assert ((values > high).sum(axis=0) <= 2).all() and (low < middle.y).all()
    assert [line.y0 for line in figure.layout.shapes] == [values[:, -6:].mean(), 0.4]
    assert len(plot_semantic_drift(found).layout.shapes) == 0


def test_the_means_by_length():
    values = {n: np.random.default_rng(n).uniform(size=20) for n in (4, 8)}
    means = {n: mean_over_chains(each) for n, each in values.items()}
    points, line = plot_distance_by_length(values, means, step=7).data
    assert len(points.y) == 40 and np.allclose(line.y, [values[4].mean(), values[8].mean()])
    assert np.isclose(line.y[0] + line.error_y.array[0], means[4].interval[1])


def test_times_and_laws():
    rng = np.random.default_rng(1)
    times = {
        n: HittingTimes(rng.integers(1, 9 * n, 30), rng.random(30) < 0.8, 1, 0.5) for n in (5, 9)
    }
    scaling = fit_scaling(times)
    figure = plot_scaling(times, scaling)
    hit, late, *laws = figure.data
    assert len(hit.y) + len(late.y) == 60 and len(late.y) == scaling.n_censored
    *known, free = [law.name.split(" ", 1)[1].split(",")[0] for law in laws]
    assert known == ["n", "n log n", "n^2"] and free.startswith("n^")
    assert np.isclose(laws[1].y[0], scaling.fits[1].c * 5 * np.log(5))
