"""The pictures of Ising models show the numbers that they are given."""

import numpy as np
import pytest

from glauber import ising
from glauber.interfaces.plots.ising import plot_bounds, plot_by_size, plot_error_curves
from glauber.studies.ising.error_curves import ErrorCurves


@pytest.mark.parametrize(("per_sample", "says"), [(1, "1 random mask each"), (None, "all masks")])
def test_error_curves_have_bars_of_half_a_deviation(per_sample, says):
    errors = np.array([[[1.0, 3.0], [0.5, 0.7]], [[0.4, 0.6], [0.1, 0.3]]])
    curves = ErrorCurves((1, 3), (10, 100), per_sample, errors, np.array([20.0, 5.0]), np.ones(2))
    figure = plot_error_curves(curves)
    assert [trace.name for trace in figure.data[::2]] == ["k = 1", "k = 3"]
    np.testing.assert_allclose(figure.data[0].y, [2.0, 0.6])
    np.testing.assert_allclose(figure.data[0].error_y.array[0], np.sqrt(2) / 2)
    np.testing.assert_allclose(figure.data[1].y, [2.0, 0.2])  # trace / n
    # Bars and the dotted line of one k have one colour, those of another k another one.
    assert figure.data[0].marker.color == figure.data[1].line.color != figure.data[3].line.color
    assert says in figure.layout.title.text


def test_lines_by_size_and_bounds():
    figure = plot_by_size([1, 2], {"a": [3.0, 1.0], "b": [9.0, 2.0]}, title="t", subtitle="s")
    assert [trace.name for trace in figure.data] == ["a", "b"]
    assert list(figure.data[1].y) == [9.0, 2.0]
    bounds = plot_bounds([10, 100], {"true": [0.1, 0.01], "bound": [2.0, 1.5]})
    assert list(bounds.data[1].y) == [2.0, 1.5] and bounds.layout.shapes[0].y0 == 1


def test_estimates_stand_beside_the_truth():
    found = ising.fit(sites=2, samples=1000)
    estimate, truth = found.figure().data
    np.testing.assert_allclose(estimate.y, found.estimate)
    np.testing.assert_allclose(estimate.error_y.array, 2 * found.standard_error)
    np.testing.assert_allclose(truth.y, found.truth)


def test_figure_3_draws_the_paper_s_bars_and_points_at_the_budget():
    found = ising.race(couplings=[1.0, 5.0], blocks=[1, 10], budget=200, chains=20, seed=3)
    figure = found.figure("budget")
    points = {trace.marker.color: [] for trace in figure.data if trace.mode == "markers"}
    for trace in figure.data:
        if trace.mode == "markers" and trace.x:
            points[trace.marker.color].append(trace)
    runner = found.races[1].gibbs[0]  # k = 1 at J = 5 never arrives
    assert not runner.simulated.arrived.any()
    full, opened = points[figure.data[0].line.color]
    assert (full.marker.symbol, opened.marker.symbol) == ("circle", "circle-open")
    assert list(opened.y) == [200] and list(opened.x) == [5.0] and list(opened.error_y.array) == [0]
    first = found.races[0].gibbs[0].simulated
    assert full.y[0] == pytest.approx(first.steps.mean())
    assert full.error_y.array[0] == pytest.approx(first.steps.std(ddof=1) / 2)
