"""Which token of a sentence sways which?"""

from collections.abc import Sequence

import plotly.graph_objects as go

from glauber.figures.style import empty_figure
from glauber.figures.token_map import add_token_map
from glauber.mixing.influence import Influence


def plot_influence(influence: Influence, words: Sequence[str]) -> go.Figure:
    """The matrix c_ij as a heat map: a column is the token that changes, a row the one that feels.

    words holds the n tokens as they are spelled. The column of alpha is marked.
    """
    n = len(words)
    figure = empty_figure("Which token sways which", _subtitle(influence))
    add_token_map(
        figure,
        influence.total_variation,
        words,
        hover=[[f"{mover} → {felt}" for mover in words] for felt in words],
        across="the token that is replaced",
        down="the token whose law changes",
    )
    strongest = int(influence.column_sums.argmax())
    figure.add_shape(
        type="rect", x0=strongest - 0.5, x1=strongest + 0.5, y0=-0.5, y1=n - 0.5,
        line=dict(color="#d55e00", width=2),
    )  # fmt: skip
    return figure


def _subtitle(influence: Influence) -> str:
    kind = "" if influence.kind == "exact" else f" ({influence.kind})"
    return (
        f"largest total variation when one token changes{kind}<br>temperature "
        f"{influence.temperature:g}; framed: the largest column sum, {influence.alpha:.2f}"
    )
