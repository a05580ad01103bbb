"""The plane of a trajectory against its definition."""

import numpy as np
import pytest

from glauber.foundation.errors import GlauberError
from glauber.studies.landscape.trajectory import trajectory_in_plane

STEPS = np.arange(20) * 10
TEXTS = [[f"text {chain} {look}" for look in range(20)] for chain in range(3)]


def test_the_plane_holds_the_largest_spread():
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(3, 20, 6)) * [5, 3, 1, 0.5, 0.2, 0.1]).astype(np.float32)
    found = trajectory_in_plane(vectors, STEPS, TEXTS)
    flat = vectors.reshape(-1, 6).astype(np.float64)
    flat -= flat.mean(axis=0)
    _, sizes, directions = np.linalg.svd(flat, full_matrices=False)
    share = sizes**2 / (sizes**2).sum()
    assert found.explained == pytest.approx(tuple(share[:2]))
    own = found.points.reshape(-1, 2)
    for axis in range(2):
        assert abs(own[:, axis] @ (flat @ directions[axis])) == pytest.approx(sizes[axis] ** 2)
    assert found.points.shape == (3, 20, 2) and found.texts[2][1] == "text 2 1"
    again = trajectory_in_plane(vectors, STEPS, TEXTS)
    assert np.array_equal(again.points, found.points)


def test_a_text_that_never_moves_has_a_plane_too():
    still = trajectory_in_plane(np.ones((1, 5, 3), np.float32), STEPS[:5], [["a"] * 5])
    assert np.allclose(still.points, 0) and still.explained == pytest.approx((0, 0))


def test_two_texts_and_equal_texts_of_many_dimensions_have_a_plane():
    """An iteration for the first two directions has no room there."""
    rng = np.random.default_rng(2)
    two = rng.normal(size=(1, 2, 1200)).astype(np.float32)
    found = trajectory_in_plane(two, STEPS[:2], [["a", "b"]])
    apart = np.linalg.norm(np.diff(found.points[0], axis=0))
    assert apart == pytest.approx(np.linalg.norm(np.diff(two[0].astype(float), axis=0)))
    assert found.explained == pytest.approx((1, 0))
    still = trajectory_in_plane(np.repeat(two[:, :1], 7, axis=1), STEPS[:7], [["a"] * 7])
    assert np.allclose(still.points, 0)


def test_what_has_no_plane():
    for shape, why in (((1, 1, 3), "two snapshots"), ((1, 5, 1), "one dimension")):
        with pytest.raises(GlauberError, match=why):
            trajectory_in_plane(np.ones(shape, np.float32), STEPS, TEXTS)


def test_many_dimensions_have_the_same_plane(monkeypatch):
    rng = np.random.default_rng(1)
    vectors = (rng.normal(size=(3, 20, 8)) * [5, 3, 1, 1, 1, 1, 1, 1]).astype(np.float32)
    whole = trajectory_in_plane(vectors, STEPS, TEXTS)
    monkeypatch.setattr("glauber.studies.landscape.trajectory.WIDE", 7)
    found = trajectory_in_plane(vectors, STEPS, TEXTS)
    assert np.allclose(found.points, whole.points, atol=1e-6)
    assert found.explained == pytest.approx(whole.explained)
