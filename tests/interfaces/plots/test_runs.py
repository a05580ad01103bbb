"""The figures show the numbers that they were given, averaged as they say."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from glauber.interfaces.plots.runs import (
    MOMENTS,
    MOST,
    moving_mean,
    plot_changed,
    plot_entropy,
    plot_survival,
    window_of,
)
from glauber.interfaces.report.page import page
from glauber.interfaces.report.report import _pieces
from glauber.runs.timeline import Piece

N_CHAINS, N_STEPS, WINDOW = 3, 90, 7


def lines(figure: go.Figure) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], Any]:
    """The chains' lines (chains, moments), the mean's line, and the steps below them."""
    *chains, mean = figure.data
    steps = np.asarray(mean.x)
    assert all(np.array_equal(line.x, steps) for line in chains)
    return np.stack([line.y for line in chains]), np.asarray(mean.y), steps


def by_hand(values: np.ndarray[Any, Any], step: int) -> list[float]:
    """The mean of the last WINDOW values up to that step (counted from 1), chain by chain."""
    return [sum(float(v) for v in row[step - WINDOW : step]) / WINDOW for row in values]


def test_changed_is_the_share_of_the_last_steps() -> None:
    changed = np.random.default_rng(0).random((N_CHAINS, N_STEPS)) < 0.6
    chains, mean, steps = lines(plot_changed(changed, window=WINDOW))
    assert steps.tolist() == list(range(WINDOW, N_STEPS + 1))
    expected = np.array([by_hand(changed, step) for step in steps]).T
    np.testing.assert_allclose(chains, expected, atol=1e-12)
    np.testing.assert_allclose(mean, expected.sum(axis=0) / N_CHAINS, atol=1e-12)


def test_entropy_is_the_mean_of_the_last_steps() -> None:
    entropy = np.random.default_rng(1).random((N_CHAINS, N_STEPS)).astype(np.float32)
    chains, mean, steps = lines(plot_entropy(entropy, window=WINDOW))
    expected = np.array([by_hand(entropy, step) for step in steps]).T
    np.testing.assert_allclose(chains, expected, atol=1e-12)
    np.testing.assert_allclose(mean, expected.sum(axis=0) / N_CHAINS, atol=1e-12)


def test_survival_is_drawn_as_given_at_its_steps() -> None:
    survival = np.array([[1.0, 0.5, 0.25], [1.0, 1.0, 0.75]])
    figure = plot_survival(survival, every=10)
    chains, mean, steps = lines(figure)
    assert steps.tolist() == [0, 10, 20]
    np.testing.assert_array_equal(chains, survival)
    np.testing.assert_array_equal(mean, [1.0, 0.75, 0.5])
    names = [line.hovertemplate.partition(",")[0] for line in figure.data]
    assert names == ["chain 0", "chain 1", "mean"]


def test_a_single_chain_is_one_line() -> None:
    figure = plot_survival(np.array([[1.0, 0.5]]))
    assert len(figure.data) == 1
    assert list(figure.data[0].y) == [1.0, 0.5]


def test_of_many_chains_some_are_drawn_and_all_are_averaged() -> None:
    survival = np.random.default_rng(2).random((MOST + 40, 5))
    chains, mean, _ = lines(plot_survival(survival))
    np.testing.assert_array_equal(chains, survival[:MOST])
    np.testing.assert_allclose(mean, survival.mean(axis=0))


def test_a_long_run_keeps_its_first_and_last_window() -> None:
    values = np.arange(10_000.0)[None]
    steps, means = moving_mean(values, 100)
    assert len(steps) == MOMENTS and steps[0] == 100 and steps[-1] == 10_000
    np.testing.assert_allclose(means[0], steps - 1 - 49.5)


@pytest.mark.parametrize(("n_steps", "window"), [(1, 1), (12, 12), (300, 20), (2000, 100)])
def test_the_window_fits_into_the_run(n_steps: int, window: int) -> None:
    assert window_of(n_steps) == window


def test_the_timeline_marks_and_escapes_tokens() -> None:
    pieces = [
        Piece(" <b>", changed=True, frozen=False),
        Piece("ing", changed=True, frozen=False),
        Piece(' "&"', changed=False, frozen=True),
        Piece(" cat", changed=False, frozen=False),
    ]
    chain = {"number": 0, "topic": "", "began": "", "ended": ""}
    chain["rows"] = [{"step": 1200, "pieces": list(_pieces(pieces))}]
    table = page(
        "report.html", summary="", watch=None, sections=(), n_chains=1, chains=[chain],
        signature="",
    )  # fmt: skip
    assert '<th scope="row">1,200</th>' in table
    assert (
        "<mark>&lt;b&gt;</mark><mark>ing</mark> "
        '<span class="frozen">&#34;&amp;&#34;</span> cat</td>'
    ) in table
