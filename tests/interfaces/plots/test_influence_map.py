"""The heat map shows the matrix as it is, a column for the token that changes."""

import numpy as np

from glauber.interfaces.plots.chart import MOST_NUMBERED
from glauber.interfaces.plots.mixing import plot_influence
from glauber.studies.mixing.influence import InfluenceMatrix


def measured(matrix: list[list[float]]) -> InfluenceMatrix:
    array = np.array(matrix)
    sites = tuple(range(1, len(array) + 1))
    return InfluenceMatrix(array, array * 4, sites, 0.5, "lower bound")


def test_the_cells_are_the_matrix_and_the_largest_column_is_framed() -> None:
    figure = plot_influence(measured([[0, 0.1, 0.2], [0.3, 0, 0.9], [0.5, 0.2, 0]]), list("aba"))
    cells = np.asarray(figure.data[0].z, dtype=float)
    assert np.isnan(np.diag(cells)).all()
    assert (cells[1, 2], cells[2, 0]) == (0.9, 0.5)
    assert figure.data[0].customdata[1][2] == "a → b"  # column 2 changes, row 1 feels it
    assert list(figure.layout.xaxis.ticktext) == list(figure.layout.yaxis.ticktext) == list("aba")
    assert (figure.layout.shapes[0].x0, figure.layout.shapes[0].x1) == (1.5, 2.5)
    assert "1.10" in figure.layout.title.text and "(lower bound)" in figure.layout.title.text


def test_many_tokens_have_no_figures_in_their_cells() -> None:
    many = MOST_NUMBERED + 1
    figure = plot_influence(measured([[0.0] * many] * many), ["x"] * many)
    assert figure.data[0].texttemplate is None
