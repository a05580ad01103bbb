"""Which token of a sentence sways which?"""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from glauber.mixing.influence import Influence
from glauber.plots.style import FAINT, QUIET, STRONG, empty_figure

CELL = 34  # pixels of a row
FEW = 16  # up to this many tokens the figures stand in the cells


def plot_influence(influence: Influence, words: Sequence[str]) -> go.Figure:
    """The matrix c_ij as a heat map: a column is the token that changes, a row the one that feels.

    words holds the n tokens as they are spelled. The column of alpha is marked.
    """
    n = len(words)
    figure = empty_figure("Which token sways which", _subtitle(influence))
    figure.add_trace(_cells(influence, words))
    height = CELL * n + 200
    figure.update_layout(height=height, plot_bgcolor=FAINT, title_y=1 - 12 / height)
    places = dict(
        tickmode="array",
        tickvals=list(range(n)),
        ticktext=list(words),
        showgrid=False,
        automargin=True,
    )
    figure.update_xaxes(**places, range=[-0.5, n - 0.5], tickangle=-45, rangemode="normal")
    figure.update_xaxes(title=dict(text="the token that is replaced", standoff=8, font_size=13))
    figure.update_yaxes(**places, range=[n - 0.5, -0.5], rangemode="normal")
    figure.update_yaxes(title=dict(text="the token whose law changes", standoff=8, font_size=13))
    strongest = int(influence.column_sums.argmax())
    figure.add_shape(
        type="rect", x0=strongest - 0.5, x1=strongest + 0.5, y0=-0.5, y1=n - 0.5,
        line=dict(color="#d55e00", width=2),
    )  # fmt: skip
    return figure


def _cells(influence: Influence, words: Sequence[str]) -> go.Heatmap:
    n = len(words)
    shown = np.where(np.eye(n, dtype=bool), np.nan, influence.total_variation)
    return go.Heatmap(
        z=shown,
        zmin=0,
        zmax=1,
        colorscale=[[0, "white"], [1, STRONG]],
        texttemplate="%{z:.2f}" if n <= FEW else None,
        customdata=[[f"{mover} → {felt}" for mover in words] for felt in words],
        hovertemplate="%{customdata}<br>total variation %{z:.3f}<extra></extra>",
        hoverongaps=False,
        xgap=1,
        ygap=1,
        colorbar=dict(
            title=dict(text="total variation", side="right", font=dict(color=QUIET, size=13)),
            thickness=12,
            outlinecolor=FAINT,
        ),
    )


def _subtitle(influence: Influence) -> str:
    kind = "" if influence.kind == "exact" else f" ({influence.kind})"
    return (
        f"largest total variation when one token changes{kind}<br>temperature "
        f"{influence.temperature:g}; framed: the largest column sum, {influence.alpha:.2f}"
    )
