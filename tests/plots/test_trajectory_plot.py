"""What the picture of a trajectory shows."""

import numpy as np
import pytest

from glauber.landscape.trajectory import trajectory_in_plane
from glauber.plots.trajectory import plot_trajectory


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
