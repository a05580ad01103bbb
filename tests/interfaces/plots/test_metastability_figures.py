"""What the pictures of basins show."""

import numpy as np
import pytest

from glauber.interfaces.plots.metastability import plot_basin_network, plot_implied_timescales
from glauber.studies.metastability.basin_model import basin_model
from glauber.studies.metastability.clusters import Readable
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
    assert len(labels) == 4 and "0: text &amp; &lt;0&gt;<br>1: text" in labels[-1]
    assert "word2" in circles.hovertext[2] and "4 chains" in circles.hovertext[2]
    arrows = {(line.text.split(":")[0]): line.line.width for line in figure.data[:-1]}
    # The law turns from token 0 to 1 to 2, so of each pair one way is busier, by far.
    ways = [("from 0 to 1", "from 1 to 0"), ("from 1 to 2", "from 2 to 1")]
    for way, back in ways:
        one, other = arrows.get(way, 0), arrows.get(back, 0)
        assert max(one, other) > 1.5 * min(one, other)
    assert len(plot_basin_network(found).data) == len(figure.data)


def test_a_circle_says_whose_share_it_is(found):
    """A share of the stationary distribution of the connected part is no share of the time."""
    alone = [Readable(("a text",), (), 10, 1)] * 3
    for hover in plot_basin_network(found, alone).data[-1].hovertext:
        assert "of the stationary distribution of the connected part" in hover
        assert "100% of the transitions" in hover and "of the time" not in hover
        assert "1 chain was in it" in hover


def test_a_passage_in_words(found):
    of = found.passage_times
    value, low, high = of.value[0, 1], of.low[0, 1], of.high[0, 1]
    (line,) = [one for one in plot_basin_network(found).data[:-1] if "from 0 to 1" in one.text]
    assert f"{value:,.0f} ({low:,.0f} to {high:,.0f}) steps" in line.text


def test_the_timescales_and_their_bands(found):
    figure = plot_implied_timescales(found.implied_timescales, lag=2)
    lines = [trace for trace in figure.data if trace.name]
    assert len(lines) == 5 and len(figure.data) == 6  # and the shade
    steps = found.implied_timescales.steps
    np.testing.assert_allclose(lines[1].y + lines[1].error_y.array, steps.high[:, 1])
    np.testing.assert_allclose(lines[1].y - lines[1].error_y.arrayminus, steps.low[:, 1])
    np.testing.assert_array_equal(lines[0].y, found.implied_timescales.steps.value[:, 0])
    assert figure.layout.shapes[0].x0 == 2
    alone = basin_model(state_labels(turning_wells(), n_chains=1, n_steps=400), lag=2)
    figure = plot_implied_timescales(alone.implied_timescales)
    assert (
        "too few chains for intervals" in figure.layout.title.text
        and len(figure.layout.shapes) == 0
    )
