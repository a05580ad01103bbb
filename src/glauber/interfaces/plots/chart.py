"""Charts made of a few marks, in one style.

A `Chart` is a Plotly figure that is built from marks: `line`, `dots` (with error bars),
`intervals`, `columns`, `band`, `cells` and `network`, with `rule`, `region` and `note` for what is
drawn around them. Its traces and layout are plain data in a small part of Plotly's vocabulary,
which pages and notebooks draw by Plotly and `matplotlib_backend` draws by Matplotlib. Every text
that reaches a chart passes `plain`, so that a token can contain no markup.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from textwrap import wrap
from typing import Any

import numpy as np
import plotly.graph_objects as go
import plotly.io as pio
from numpy.typing import ArrayLike, NDArray

from glauber.foundation.statistics import Estimate
from glauber.foundation.study import visible
from glauber.foundation.tables import short

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK, QUIET, FAINT, WHITE = "#1f2328", "#6b7280", "#e5e7eb", "white"
# The colours of Okabe and Ito, distinguishable in every common colour blindness; yellow is too
# light on white.
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
COLOURS = (BLUE, ORANGE, GREEN, "#cc79a7", "#e69f00", "#56b4e9", QUIET, "#882255")
AMBER = COLOURS[4]
THIN = "rgba(107, 114, 128, 0.5)"
VEIL = "rgba(255, 255, 255, 0.7)"  # paper under a label
COLD_TO_HOT = ["#2166ac", "#67a9cf", "#e8b500", "#ef8a62", "#b2182b"]
# What a dark page draws instead; colours that are not here it makes light enough by itself.
DARK = {
    INK: "#e6e8eb",
    QUIET: "#a4abb6",
    FAINT: "#363c46",
    WHITE: "#14171b",
    VEIL: "rgba(20, 23, 27, 0.7)",
}
CREATOR = "glauber chart"  # in the metadata of pictures of ours
HEIGHT = 340
LETTERS = 110  # of a line of a subtitle; narrow pages make them shorter
TITLE, LINE = 12, 20  # pixels above the title, and of each further line of the subtitle
CELL = 34  # pixels of a row of a token map
MOST_NUMBERED = 16  # tokens of a map with numbers in its cells
MOST_CHARACTERS = 120  # of a cell of a table
STEP: dict[str, Any] = dict(title="step", tickformat=",d", rangemode="tozero")
# A line along 0% or 100% keeps its width.
SHARE: dict[str, Any] = dict(tickformat=".0%", range=[-0.02, 1.02])
AXIS: dict[str, Any] = dict(
    zeroline=False,
    linecolor=QUIET,
    tickcolor=QUIET,
    ticks="outside",
    nticks=6,
    automargin=True,
    title=dict(font_size=13, standoff=8),
)
pio.templates["glauber"] = go.layout.Template(
    layout=dict(
        colorway=COLOURS,
        hovermode="closest",
        dragmode="zoom",
        hoverlabel=dict(bgcolor=WHITE, bordercolor=FAINT, font_color=INK),
        paper_bgcolor=WHITE,
        xaxis=AXIS | dict(showgrid=False),
        yaxis=AXIS | dict(gridcolor=FAINT),
    )
)

Axis = Mapping[str, Any]  # settings of Plotly's axes; title and ticktext are plain text
Interval = tuple[float, float, float]  # value, low, high
Values = ArrayLike | Sequence[float | None] | Sequence[str] | Sequence[Estimate]


class Chart(go.Figure):  # type: ignore[misc]  # Plotly is untyped
    """A figure with a title, a subtitle and two axes (x is the step unless it is given).

    `height` is that of a chart with one line of subtitle; further lines make it higher. A legend
    lies above the chart, or below where there are many or long names.
    """

    def __init__(
        self,
        title: str,
        subtitle: str = "",
        *,
        x: Axis | None = None,
        y: Axis | None = None,
        height: int = HEIGHT,
        legend: str = "above",
        **layout: Any,
    ) -> None:
        super().__init__()
        text = heading(title, subtitle)
        height += LINE * (text.count("<br>") - 1)
        top = 46 + LINE * (1 + text.count("<br>"))
        names: dict[str, Any] = dict(orientation="h", x=0, font_color=QUIET, traceorder="normal")
        if legend == "above":
            names |= dict(y=1.02, yanchor="bottom")
        else:
            height, top = height + 40, top - LINE
            names |= dict(yref="container", y=0.01, yanchor="bottom")
        self.update_layout(
            template="glauber",
            height=height,
            margin=dict(l=46, r=14, t=top, b=46),
            font=dict(family=FONT, size=13, color=INK),
            title=dict(text=text, x=0, y=1 - TITLE / height, yanchor="top", font_size=16),
            legend=names,
            xaxis=axis(STEP if x is None else x),
            yaxis=axis(y or {}),
        )
        self.update_layout(**layout)

    def __reduce__(self) -> Any:
        return go.Figure, super().__reduce__()[1]

    def line(
        self,
        x: Values,
        y: Values,
        name: str = "",
        hover: str = "",
        *,
        dots: bool = False,
        labels: Sequence[str] = (),
        color: str | None = None,
        width: float = 2.5,
        dash: str = "solid",
        shape: str = "linear",
        marker: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
        **trace: Any,
    ) -> None:
        """A line through the points; with `dots` marked points, with `labels` texts at them."""
        mode = "lines" + "+markers" * dots + "+text" * bool(len(labels))
        color = color or self.next_color()
        if len(labels):
            trace |= dict(text=plain_all(labels), textfont=dict(color=color, size=12))
        if error:
            trace["error_y"] = dict(color=color) | error
        self._scatter(
            x,
            y,
            name,
            hover,
            mode=mode,
            marker=dict(color=color) | (marker or {}),
            line=dict(color=color, width=width, dash=dash, shape=shape),
            **trace,
        )

    def dots(
        self,
        x: Values,
        y: Values,
        name: str = "",
        hover: str = "",
        *,
        text: Sequence[str] = (),
        color: Any = None,
        size: Any = 7,
        error: dict[str, Any] | None = None,
        error_x: dict[str, Any] | None = None,
        trace: dict[str, Any] | None = None,
        **marker: Any,
    ) -> None:
        """Points; `text` is for the hover text. Estimates (`Estimate`) get their error bars."""
        if isinstance(y, Sequence) and len(y) and isinstance(y[0], Estimate):
            estimates = [value for value in y if isinstance(value, Estimate)]
            y, error = [estimate.value for estimate in estimates], bars(estimates) | (error or {})
        color = self.next_color() if color is None else color
        bar: dict[str, Any] = dict(color=color if isinstance(color, str) else QUIET, thickness=1)
        more = dict(trace or {})
        if len(text):
            more["text"] = plain_all(text)
        if error:
            more["error_y"] = bar | error
        if error_x:
            more["error_x"] = bar | error_x
        marks: dict[str, Any] = dict(color=color, size=size) | marker
        self._scatter(x, y, name, hover, marker=marks, **(dict(mode="markers") | more))

    def intervals(self, rows: Mapping[str, Interval], name: str, color: str) -> None:
        """Dots with horizontal intervals, one row for each name."""
        if not rows:
            return
        centre, low, high = np.array(list(rows.values()), dtype=float).T
        self.dots(
            centre,
            list(rows),
            name,
            "%{y}: %{x:+.3f} (%{customdata[0]:+.3f} to %{customdata[1]:+.3f})",
            color=color,
            size=9,
            error_x=ends(centre, low, high) | dict(thickness=2),
            trace=dict(customdata=list(zip(low, high, strict=True))),
        )

    def columns(
        self,
        x: Values,
        y: Values,
        name: str = "",
        hover: str = "",
        *,
        text: Sequence[str] = (),
        color: Any = None,
        horizontal: bool = False,
        marker: dict[str, Any] | None = None,
        **trace: Any,
    ) -> None:
        """Columns, or horizontal bars; `text` is for the hover text unless `textposition` is given.

        Numeric positions need a `width`: otherwise Plotly makes columns as wide as the gaps.
        """
        if len(text):
            trace = dict(text=plain_all(text), textposition="none") | trace
        style = dict(color=self.next_color() if color is None else color) | (marker or {})
        x, y = (_text_values(each) for each in (x, y))
        self.add_bar(
            x=x,
            y=y,
            marker=style,
            **(dict(orientation="h") if horizontal else {}),
            **_legend_name(name),
            **_hover(hover),
            **_texts(trace),
        )

    def band(self, x: Values, low: Values, high: Values, name: str, *, color: str = BLUE) -> None:
        """The area between two lines."""
        x, low, high = (np.asarray(each) for each in (x, low, high))
        self._scatter(
            np.concatenate([x, x[::-1]]),
            np.concatenate([high, low[::-1]]),
            name,
            mode="lines",
            fill="toself",
            fillcolor=transparent(color, 0.18),
            line=dict(width=0),
        )

    def cells(
        self,
        z: Values,
        hover: str,
        *,
        data: Sequence[Sequence[str]] | None = None,
        text: Sequence[Sequence[str]] | None = None,
        numbers: str | None = None,
        bar: str | None = None,
        format: str | None = None,
        colors: Sequence[Any] = ((0, WHITE), (1, BLUE)),
        gap: int = 1,
        **trace: Any,
    ) -> None:
        """A heat map: `data` for the hover text, `text` or `numbers` in cells, `bar` its key."""
        key = dict(
            title=dict(text=plain(bar or ""), side="right", font=dict(color=QUIET, size=13)),
            thickness=12,
            outlinecolor=FAINT,
            tickformat=format,
        )
        if data is not None:
            trace["customdata"] = [plain_all(row) for row in data]
        if text is not None:
            trace = dict(texttemplate="%{text}") | trace | dict(text=[plain_all(r) for r in text])
        if numbers:
            trace["texttemplate"] = numbers
        trace = dict(zmin=0, zmax=1, xgap=gap, ygap=gap) | trace
        self.add_heatmap(
            z=z,
            hoverongaps=False,
            colorscale=[list(each) for each in colors],
            showscale=bar is not None,
            colorbar=key if bar is not None else None,
            **_hover(hover),
            **trace,
        )

    def network(
        self,
        places: NDArray[np.float64],
        sizes: Values,
        weights: NDArray[np.float64],
        hover: Sequence[str],
        arrow_hover: Mapping[tuple[int, int], str],
        *,
        widest: float = 9.0,
    ) -> None:
        """Numbered circles at `places` (n, 2), with bent arrows as wide as `weights` (n, n)."""
        for pair in zip(*(each.tolist() for each in np.nonzero(weights > 0)), strict=True):
            (a, b), share = (places[end] for end in pair), weights[pair] / weights.max()
            across = np.array([b[1] - a[1], a[0] - b[0]])
            along = np.linspace(0, 1, 31)[:, None]
            bent = a + along * (b - a) + 4 * along * (1 - along) * 0.16 * across  # two-way streets
            color = COLOURS[pair[0] % len(COLOURS)]
            self._scatter(
                bent[:, 0],
                bent[:, 1],
                "",
                mode="lines",
                opacity=0.25 + 0.6 * share,
                line=dict(color=color, width=0.8 + widest * share),
                text=plain(arrow_hover[pair]),
                hoverinfo="text",
            )
            self.add_annotation(
                x=bent[17, 0],
                y=bent[17, 1],
                ax=bent[14, 0],
                ay=bent[14, 1],
                axref="x",
                ayref="y",
                text="",
                arrowhead=2,
                arrowwidth=1.5 + 2 * share,
                arrowcolor=color,
            )
        n = len(places)
        self._scatter(
            places[:, 0],
            places[:, 1],
            "",
            mode="markers+text",
            marker=dict(
                size=sizes,
                opacity=1,
                line=dict(color=WHITE, width=2),
                color=[COLOURS[number % len(COLOURS)] for number in range(n)],
            ),
            text=[str(number) for number in range(n)],
            textfont=dict(color=WHITE, size=14),
            hovertext=plain_all(hover),
            hoverinfo="text",
        )

    def rule(
        self,
        name: str = "",
        *,
        x: float | None = None,
        y: float | None = None,
        dash: str = "solid",
        color: str = QUIET,
        width: float = 2,
        note: str = "",
    ) -> None:
        """A line over the whole height (x) or width (y), named in the legend or by a note."""
        line = dict(color=color, width=width, dash=dash)
        legend = dict(name=plain(name), showlegend=True) if name else {}
        noted = dict(annotation=dict(text=plain(note), font_color=QUIET)) if note else {}
        if x is not None:
            self.add_vline(x=x, line=line, **legend, **noted)
        else:
            self.add_hline(y=y, line=line, **legend, **noted)

    def region(
        self,
        *,
        x: tuple[float, float] | None = None,
        y: tuple[float, float] | None = None,
        frame: str | None = None,
        fill: str = FAINT,
    ) -> None:
        """A shaded or framed region between two x, two y, or both."""
        style: dict[str, Any] = dict(line=dict(color=frame, width=2))
        if not frame:
            style = dict(line_width=0, fillcolor=fill, layer="below")
        if y is None and x is not None:
            self.add_vrect(x0=x[0], x1=x[1], **style)
        elif x is None and y is not None:
            self.add_hrect(y0=y[0], y1=y[1], **style)
        elif x is not None and y is not None:
            self.add_shape(type="rect", x0=x[0], x1=x[1], y0=y[0], y1=y[1], **style)

    def note(self, x: Any, y: Any, text: str, **how: Any) -> None:
        """A text at a point; with `ax` and `ay` (pixels) at the end of a pointer."""
        settings = dict(showarrow="ax" in how, font=dict(color=INK)) | how
        self.add_annotation(x=x, y=y, text=plain(text), **settings)

    def next_color(self) -> str:
        """The colour of a mark that is given none."""
        return COLOURS[len(self.data) % len(COLOURS)]

    def _scatter(self, x: Values, y: Values, name: str, hover: str = "", **trace: Any) -> None:
        about = {} if "hoverinfo" in trace else _hover(hover)
        x, y = (_text_values(each) for each in (x, y))
        self.add_scatter(x=x, y=y, **_legend_name(name), **about, **_texts(trace))


def heading(title: str, subtitle: str) -> str:
    """The title with its subtitle below, in lines that fit a page, in Plotly's markup."""
    below = plain("\n".join(wrap(visible(subtitle), LETTERS)))
    return f'{plain(title)}<br><span style="font-size: 13px; color: {QUIET}">{below}</span>'


def plain(text: object) -> str:
    """A text as Plotly shows it letter by letter; line breaks stay."""
    return escape(visible(str(text)), quote=False).replace("\n", "<br>")


def plain_all(texts: Iterable[object]) -> list[str]:
    """Texts as Plotly shows them letter by letter."""
    return [plain(text) for text in texts]


def axis(settings: Axis) -> dict[str, Any]:
    """Settings of an axis, with plain texts for its title and its ticks."""
    text_settings = [
        name for name in ("ticktext", "categoryarray") if settings.get(name) is not None
    ]
    texts = {name: plain_all(settings[name]) for name in text_settings}
    title = settings.get("title", "")
    return {**settings, **texts, "title": dict(text=plain(title))}


def transparent(color: str, opacity: float) -> str:
    """A colour given as #rrggbb, at an opacity."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity:g})"


def bars(estimates: Sequence[Estimate]) -> dict[str, Any]:
    """Error bars to the ends of each interval; none where there is no interval."""
    centre = [estimate.value for estimate in estimates]
    low, high = zip(
        *(estimate.interval or (estimate.value, estimate.value) for estimate in estimates),
        strict=True,
    )
    return ends(centre, low, high)


def ends(centre: Values, low: Values, high: Values) -> dict[str, Any]:
    """Error bars from the centres to both ends."""
    middle = np.asarray(centre, dtype=float)
    above, below = np.asarray(high, dtype=float) - middle, middle - np.asarray(low, dtype=float)
    return dict(type="data", symmetric=False, array=above, arrayminus=below)


def token_axes(tokens: Sequence[str], across: str, down: str) -> dict[str, Any]:
    """Both axes of a map of tokens by tokens, the first row on top."""
    n = len(tokens)
    ticks = dict(tickvals=list(range(n)), ticktext=tokens, showgrid=False)
    x = ticks | dict(range=[-0.5, n - 0.5], tickangle=-45, title=across)
    return dict(x=x, y=ticks | dict(range=[n - 0.5, -0.5], title=down))


def token_map(
    title: str,
    subtitle: str,
    values: NDArray[Any],
    tokens: Sequence[str],
    *,
    hover: Sequence[Sequence[str]],
    across: str,
    down: str,
) -> Chart:
    """Total variation (n, n) between tokens, with the diagonal left out."""
    n = len(tokens)
    chart = Chart(
        title,
        subtitle,
        **token_axes(tokens, across, down),
        height=CELL * n + 200,
        plot_bgcolor=FAINT,
    )
    chart.cells(
        np.where(np.eye(n, dtype=bool), np.nan, values),
        "%{customdata}\ntotal variation %{z:.3f}",
        data=hover,
        numbers="%{z:.2f}" if n <= MOST_NUMBERED else None,
        bar="total variation",
    )
    return chart


def table(
    title: str, subtitle: str, head: Sequence[str], rows: Sequence[Sequence[object]]
) -> Chart:
    """Rows of texts below a head, as a chart that is a table."""
    chart = Chart(title, subtitle[:MOST_CHARACTERS], height=160 + 34 * len(rows))
    cut = [[short(cell)[:MOST_CHARACTERS] for cell in row] for row in rows]
    chart.add_table(
        header=dict(values=list(head), fill_color=FAINT, align="left"),
        cells=dict(values=list(zip(*cut, strict=True)), fill_color=WHITE, align="left"),
    )
    return chart


def plot_rows(title: str, subtitle: str, rows: list[dict[str, Any]]) -> Chart:
    """The rows as a table, a column for each field that one of them has."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return table(title, subtitle, names, [[row.get(name) for name in names] for row in rows])


def _hover(template: str) -> dict[str, Any]:
    """A hover text of Plotly's placeholders and plain text."""
    return (
        dict(hovertemplate=f"{plain(template)}<extra></extra>")
        if template
        else dict(hoverinfo="skip")
    )


def _legend_name(name: str) -> dict[str, Any]:
    return dict(name=plain(name)) if name else dict(showlegend=False)


def _text_values(values: Any) -> Any:
    """Values of an axis, with names among them as plain text."""
    if isinstance(values, range):
        return list(values)
    if isinstance(values, Sequence) and any(isinstance(each, str) for each in values):
        return plain_all(values)
    return values


def _texts(trace: dict[str, Any]) -> dict[str, Any]:
    """A trace whose `customdata` of texts is plain."""
    data = trace.get("customdata")
    if isinstance(data, Sequence) and len(data) and isinstance(data[0], str):
        return trace | dict(customdata=plain_all(data))
    if isinstance(data, Sequence) and len(data) and isinstance(data[0], Sequence):
        rows = [[plain(cell) if isinstance(cell, str) else cell for cell in row] for row in data]
        return trace | dict(customdata=rows)
    return trace
