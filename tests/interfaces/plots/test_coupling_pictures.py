"""The pictures of pairs of chains show the figures that were found."""

import numpy as np
import pytest

from glauber.interfaces.plots.mixing import plot_distance, plot_total_variation
from glauber.studies.mixing.meeting import Meetings

FOUND = Meetings(
    times=np.array([2, 3, 3]),
    met=np.array([True, True, False]),
    distances=np.array([[2, 1, 0, 0], [3, 2, 1, 0], [3, 3, 2, 1]], dtype=np.int16),
    lag=0,
    coupling="maximal",
)


def lagged(times, met):
    """Meetings with a lag of 1."""
    none = np.empty((len(times), 0), np.int16)
    return Meetings(np.array(times), np.array(met), "maximal", 1, none)


def test_the_mean_distance_stands_beside_the_contraction_bound():
    figure = plot_distance(FOUND, FOUND.contraction(0.4, 3))
    lines = {trace.name: trace for trace in figure.data}
    np.testing.assert_allclose(lines["mean distance"].y, [8 / 3, 2, 1, 1 / 3])
    np.testing.assert_allclose(lines["contraction bound"].y, 8 / 3 * 0.8 ** np.arange(4))
    assert "2 of 3 met" in figure.layout.title.text
    assert FOUND.contraction(1.0, 3) is None
    mixed = FOUND.contraction(0.4, [1, 2, 3])  # rates 0.4, 0.7 and 0.8
    assert mixed[1] == pytest.approx((0.4 * 2 + 0.7 * 3 + 0.8 * 3) / 3)
    assert "contraction bound" not in {trace.name for trace in plot_distance(FOUND).data}


def test_the_bound_is_cut_at_one_and_has_a_band():
    found = lagged([3, 4, 9], [True] * 3)
    figure = plot_total_variation(found)
    band, line = figure.data
    assert line.y[0] == 1 and line.y[-1] == 0
    assert line.y[6] == pytest.approx(2 / 3)  # (9 - 1 - 6)/1, of three pairs
    assert max(band.y) == 1 and min(band.y) == 0 and band.name == "95%, pointwise"


def test_with_censored_pairs_the_picture_ends_before_the_budget_and_says_so():
    found = lagged([3, 4, 9], [True, True, False])
    figure = plot_total_variation(found)
    (line,) = figure.data  # no band: nothing holds the bound from above
    assert line.name == "lower estimate of the bound"
    assert line.x[-1] == 7 and line.y[-1] == pytest.approx(1 / 3)
    assert "1 of 3 pairs did not meet" in figure.layout.title.text
