"""The pictures of rectangles count and show every rectangle."""

import numpy as np

from glauber.interfaces.plots.compatibility import plot_delta_against_influence, plot_deltas

DELTA = np.random.default_rng(0).exponential(size=200)


def test_the_histogram_counts_every_rectangle():
    figure = plot_deltas(DELTA, 1e-5)
    bars = figure.data[0]
    assert sum(bars.y) == 200
    low, high = bars.x[3] - bars.width[3] / 2, bars.x[3] + bars.width[3] / 2
    assert bars.y[3] == np.histogram(DELTA, bins=[low, high])[0][0]
    assert [line.x0 for line in figure.layout.shapes] == [DELTA.mean(), 1e-5]


def test_closed_rectangles_can_be_drawn():
    assert sum(plot_deltas(np.zeros(5), 0.0).data[0].y) == 5


def test_every_rectangle_is_a_point_and_tenths_have_their_medians():
    influence = np.random.default_rng(1).random(200)
    points, line = plot_delta_against_influence(influence, DELTA).data
    np.testing.assert_array_equal(points.x, influence)
    np.testing.assert_array_equal(points.y, DELTA)
    lowest = np.sort(influence)[:20]
    assert line.x[0] == np.median(lowest)
    assert line.y[0] == np.median(DELTA[np.isin(influence, lowest)])
    assert len(plot_delta_against_influence(influence[:1], DELTA[:1]).data[1].x) == 1
