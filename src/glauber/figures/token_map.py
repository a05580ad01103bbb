"""How does each token of a text stand to each other one? A square map of total variations."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.figures.style import FAINT, QUIET, STRONG

CELL = 34  # pixels of a row
FEW = 16  # up to this many tokens the figures stand in the cells


def add_token_map(
    figure: go.Figure,
    values: NDArray[Any],
    words: Sequence[str],
    *,
    hover: Sequence[Sequence[str]],
    across: str,
    down: str,
    above: int = 200,
) -> None:
    """Draws values (n, n) with the diagonal left out; `above` pixels stay for what is around."""
    n = len(words)
    shown = np.where(np.eye(n, dtype=bool), np.nan, values)
    figure.add_heatmap(
        z=shown,
        zmin=0,
        zmax=1,
        colorscale=[[0, "white"], [1, STRONG]],
        texttemplate="%{z:.2f}" if n <= FEW else None,
        customdata=hover,
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
    height = CELL * n + above
    figure.update_layout(height=height, plot_bgcolor=FAINT, title_y=1 - 12 / height)
    places = dict(
        tickmode="array",
        tickvals=list(range(n)),
        ticktext=list(words),
        showgrid=False,
        automargin=True,
        rangemode="normal",
    )
    figure.update_xaxes(**places, range=[-0.5, n - 0.5], tickangle=-45)
    figure.update_xaxes(title=dict(text=across, standoff=8, font_size=13))
    figure.update_yaxes(**places, range=[n - 0.5, -0.5])
    figure.update_yaxes(title=dict(text=down, standoff=8, font_size=13))
