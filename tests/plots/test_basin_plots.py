"""What the pictures of basins and trajectories show."""

import numpy as np
import pytest

from glauber.figures.metastability import passage_words, plot_basin_network, plot_implied_timescales
from glauber.landscape.trajectory import trajectory_in_plane
from glauber.metastability.basin_model import basin_model
from glauber.metastability.clusters import Readable
from glauber.plots.trajectory import plot_trajectory
from wells import state_labels, turning_wells

WORDS = [Readable((f"text & <{k}>",), (f"word{k}",), 10, 4) for k in range(3)]


@pytest.fixture(scope="module")
def found():
    return basin_model(state_labels(turning_wells(), n_chains=12, n_steps=300), lag=2)


def test_the_network_has_a_readable_circle_for_each_basin(found):
    figure = plot_basin_network(found, WORDS)
    circles = figure.data[-1]
    area = np.array(circles.marker.size) ** 2
    np.testing.assert_allclose(area / area.sum(), found.shares.value, atol=1e-9)
    labels = [note.text for note in figure.layout.annotations if note.text]
    assert len(labels) == 3 and "text &amp; &lt;0&gt;" in labels[0]
    assert "word2" in circles.hovertext[2] and "4 chains" in circles.hovertext[2]
    arrows = {(line.text.split(":")[0]): line.line.width for line in figure.data[:-1]}
    # The law turns from token 0 to 1 to 2, so of each pair one way is busier, by far.
    ways = [("from 0 to 1", "from 1 to 0"), ("from 1 to 2", "from 2 to 1")]
    for way, back in ways:
        one, other = arrows.get(way, 0), arrows.get(back, 0)
        assert max(one, other) > 1.5 * min(one, other)
    assert len(plot_basin_network(found).data) == len(figure.data)


def test_a_passage_in_words(found):
    value, error = found.passages.value[0, 1], found.passages.standard_error[0, 1]
    assert passage_words(found, (0, 1)) == f"{value:,.0f} +- {error:,.0f} steps"


def test_the_timescales_and_their_bands(found):
    figure = plot_implied_timescales(found.timescales, lag=2)
    lines = [trace for trace in figure.data if trace.name]
    assert len(lines) == 5 and len(figure.data) == 11  # with bands, and the shade
    np.testing.assert_array_equal(lines[0].y, found.timescales.steps.value[:, 0])
    assert figure.layout.shapes[0].x0 == 2
    alone = basin_model(state_labels(turning_wells(), n_chains=1, n_steps=400), lag=2)
    figure = plot_implied_timescales(alone.timescales)
    assert "no errors" in figure.layout.title.text and len(figure.layout.shapes) == 0


def test_the_trajectory_goes_from_warm_to_cool():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(3, 90, 5)).cumsum(axis=1).astype(np.float32)
    texts = [[f"<{chain}> {look}" for look in range(90)] for chain in range(3)]
    plane = trajectory_in_plane(vectors, np.arange(90) * 10, texts)
    figure = plot_trajectory(plane, chain=1, traps=[(1, 300, 500), (2, 0, 50), (1, 5_000, 6_000)])
    points = next(trace for trace in figure.data if trace.hovertext and len(trace.hovertext) == 90)
    np.testing.assert_array_equal(points.x, plane.points[1, :, 0])
    assert points.marker.color.tolist() == (np.arange(90) * 10).tolist()
    assert "&lt;1&gt; 7" in points.hovertext[7]
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    assert len(lines) == 40 and sum(len(line.x) - 1 for line in lines) == 89
    reds, blues = (
        [int(line.line.color[4:-1].split(",")[part]) for line in lines] for part in (0, 2)
    )
    assert reds[0] > 150 > reds[-1] and blues[0] < 100 < blues[-1]
    rings = [trace for trace in figure.data if trace.name == "trap"]
    assert len(rings) == 1
    assert rings[0].x[0] == pytest.approx(np.median(plane.points[1, 30:51, 0]))
