"""How does a table of the papers look as a picture?"""

from typing import Any

import plotly.graph_objects as go

from glauber.figures.style import FAINT, empty_figure
from glauber.tables import short

MOST = 120  # characters of a cell


def plot_rows(title: str, subtitle: str, rows: list[dict[str, Any]]) -> go.Figure:
    """The rows as a table, a column for each field that one of them has."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [[short(row.get(name))[:MOST] for row in rows] for name in names]
    figure = empty_figure(title, subtitle[:MOST])
    figure.add_table(
        header=dict(values=names, fill_color=FAINT, align="left"),
        cells=dict(values=columns, fill_color="white", align="left"),
    )
    figure.update_layout(height=160 + 34 * len(rows))
    return figure
