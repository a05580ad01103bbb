"""What the picture of a trajectory shows."""

import numpy as np
import pytest

from glauber.interfaces.plots.landscape import MOST, TRACES, plot_trajectory
from glauber.studies.landscape.trajectory import trajectory_in_plane


def plane_of(n_chains, n=90):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(n_chains, n, 5)).cumsum(axis=1).astype(np.float32)
    texts = [[f"<{chain}> {number}" for number in range(n)] for chain in range(n_chains)]
    return trajectory_in_plane(vectors, np.arange(n) * 10, texts)


def test_the_trajectory_goes_from_warm_to_cool():
    plane = plane_of(3)
    figure = plot_trajectory(plane, chain=1, traps=[(1, 300, 500), (2, 0, 50), (1, 5_000, 6_000)])
    points = next(
        trace for trace in figure.data if trace.text is not None and len(trace.text) == 90
    )
    np.testing.assert_array_equal(points.x, plane.points[1, :, 0])
    assert points.marker.color.tolist() == (np.arange(90) * 10).tolist()
    assert "&lt;1&gt; 7" in points.text[7]
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    assert len(lines) == 40 and sum(len(line.x) - 1 for line in lines) == 89
    reds, blues = (
        [int(line.line.color[4:-1].split(",")[part]) for line in lines] for part in (0, 2)
    )
    assert reds[0] > 150 > reds[-1] and blues[0] < 100 < blues[-1]
    (rings,) = [trace for trace in figure.data if trace.name == "trap"]
    assert len(rings.x) == 1
    assert rings.x[0] == pytest.approx(np.median(plane.points[1, 30:51, 0]))


def test_a_menu_shows_the_chain_that_one_chooses():
    plane = plane_of(MOST + 2, n=4)
    figure = plot_trajectory(plane, chain=MOST + 1, choose=True)
    (menu,) = figure.layout.updatemenus
    assert [b.label for b in menu.buttons] == [f"chain {k}" for k in (*range(MOST), MOST + 1)]
    assert menu.active == MOST and len(figure.data) == 1 + TRACES * (MOST + 1)
    visible = menu.buttons[3].args[0]["visible"]
    shown = [trace for trace, seen in zip(figure.data, visible, strict=True) if seen]
    assert len(shown) == 1 + TRACES and np.array_equal(shown[1].x, plane.points[3, :, 0])
    assert "chain 3" in menu.buttons[3].args[1]["title.text"]


def test_rings_in_one_place_share_their_label():
    """A chain that came back: two traps in one text, and a third elsewhere."""
    vectors = np.zeros((1, 60, 5), np.float32)
    vectors[0, 20:40, 0] = 5
    vectors[0, :, 1] = np.random.default_rng(0).normal(size=60) * 0.01
    vectors[0, 41, 1] = 3
    plane = trajectory_in_plane(vectors, np.arange(60), [["a"] * 60])
    figure = plot_trajectory(plane, traps=[(0, 0, 15), (0, 42, 59), (0, 22, 38)])
    (rings,) = [trace for trace in figure.data if trace.name == "trap"]
    assert list(rings.text) == ["0 to 15<br>42 to 59", "", "22 to 38"]
    assert list(rings.ids) == ["chain 0 step 0", "chain 0 step 42", "chain 0 step 22"]
