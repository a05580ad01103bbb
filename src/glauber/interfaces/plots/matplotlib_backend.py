"""Charts drawn by Matplotlib: axes to restyle, and PDF, SVG, PNG and PGF files for a paper.

It reads the part of Plotly's vocabulary that charts are made of (scatter, bar, heat map, table,
shapes and notes) from the figure itself, so that it also draws a figure that was changed, or one
that a user's own study made of such traces. A figure is one column wide (8.5 cm) with fonts of at
least 7 points.
"""

import re
import shutil
import warnings
from collections.abc import Iterable, Sequence
from html import unescape
from io import BytesIO
from textwrap import fill
from typing import Any

import matplotlib
import numpy as np
import plotly.graph_objects as go
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from numpy.typing import NDArray

from glauber.foundation.errors import GlauberError
from glauber.interfaces.plots.chart import COLOURS, CREATOR, FAINT, HEIGHT, INK, QUIET, WHITE

WIDTH = 8.5 / 2.54  # inches
PIXELS = 150  # of a chart on a page that become one inch
POINT = 0.5  # points of a pixel, of lines and marks
LETTERS = 60  # of a line above the axes
LEADING = 1.25  # of a line above the axes, in font sizes
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 7,
    "axes.titlesize": 8,
    "axes.labelsize": 7,
    "axes.linewidth": 0.6,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "text.color": INK,
    "text.parse_math": False,  # a token may contain dollars
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,
    "svg.hashsalt": "glauber",
}
DASHES: dict[str, Any] = {
    "dash": (0, (5, 3)),
    "dot": ":",
    "dashdot": "-.",
    "longdash": (0, (9, 3)),
}
SYMBOLS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "triangle-up": "^",
    "x-thin": "x",
    "cross-thin": "+",
    "line-ns": "|",
    "line-ew": "_",
}
LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
}
SYSTEMS = ("xelatex", "lualatex", "pdflatex")
Data = NDArray[Any]


def draw(figure: go.Figure, canvas: Figure | None = None) -> Any:
    """The axes of a chart; an array of axes where it has several panels.

    Without a canvas it becomes a figure of `pyplot`, which a notebook shows.
    """
    for trace in figure.data:
        if not hasattr(_Panel, f"_add_{trace.type}"):
            raise GlauberError(f"Matplotlib draws no marks of the kind {trace.type}: write .html.")
    with matplotlib.rc_context(STYLE):
        if canvas is None:
            from matplotlib import pyplot

            canvas = pyplot.figure()
        layout = figure.layout
        height = min(max((layout.height or HEIGHT) / PIXELS, 2.2), 9.0)
        canvas.set_size_inches(WIDTH, height)
        canvas.set_layout_engine("constrained")
        pairs = {
            (trace.xaxis or "x", trace.yaxis or "y"): None
            for trace in figure.data
            if trace.type != "table"
        }
        names = [name for name in pairs if not _axis(figure, name[1]).overlaying] or [("x", "y")]
        panels = np.atleast_1d(canvas.subplots(len(names), 1))
        panels_by_name = dict(zip(names, panels, strict=True))
        for name, axes in panels_by_name.items():
            _Panel(figure, axes, name).draw()
        for name in pairs.keys() - panels_by_name.keys():
            second = panels_by_name[name[0], _axis(figure, name[1]).overlaying].twinx()
            second.spines["right"].set_visible(True)
            _Panel(figure, second, name).draw()
        _add_title(canvas, str(layout.title.text or ""))
        _add_legend(canvas, figure, list(panels_by_name.values()))
    return panels if len(panels) > 1 else panels[0]


def picture(figure: go.Figure, kind: str) -> bytes:
    """A chart as the content of a pdf, svg, png or pgf file, the same bytes each time."""
    canvas, settings, content = Figure(), dict(STYLE), BytesIO()
    draw(figure, canvas)
    if kind == "pgf":
        settings |= {"pgf.texsystem": _tex_system(), "pgf.rcfonts": False}
        _escape_for_latex(canvas)
    about = {
        "pdf": {"Creator": CREATOR, "CreationDate": None},
        "svg": {"Creator": CREATOR, "Date": None},
        "png": {"Software": CREATOR},
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # it is drawn as a box
        more: dict[str, Any] = {"metadata": about[kind]} if kind in about else {}
        canvas.savefig(content, format=kind, bbox_inches="tight", pad_inches=0.06, **more)
    mark = f"% {CREATOR}\n".encode() if kind == "pgf" else b""
    return mark + content.getvalue()


def _tex_system() -> str:
    installed = [name for name in SYSTEMS if shutil.which(name)]
    if not installed:
        raise GlauberError(
            f"a PGF needs a TeX installation ({', '.join(SYSTEMS)}), or write a PDF."
        )
    return installed[0]


def _escape_for_latex(canvas: Figure) -> None:
    """Makes every text of the figure plain text for LaTeX, which typesets it."""
    canvas.draw_without_rendering()
    for axes in canvas.axes:
        for side in (axes.xaxis, axes.yaxis):
            ticks = side.get_majorticklocs()
            side.set_ticks(ticks, labels=side.get_major_formatter().format_ticks(list(ticks)))
            side.set_minor_formatter(ticker.NullFormatter())
    for text in canvas.findobj(Text):
        text.set_text("".join(LATEX.get(letter, letter) for letter in text.get_text()))


def words(text: object) -> str:
    """A text of a chart without Plotly's markup."""
    return unescape(re.sub(r"<[^>]*>", "", re.sub(r"<br\s*/?>", "\n", str(text))))


def _add_title(canvas: Figure, text: str) -> None:
    """The title and the subtitle at the left edge; the axes keep their height below them."""
    title, _, subtitle = text.partition("<br><span")
    lines = [fill(line, LETTERS - 10) for line in words(title).split("\n") if line]
    below = [fill(words(f"<span{subtitle}").replace("\n", " "), LETTERS)] if subtitle else []
    sizes = ((8, "\n".join(lines), INK, "bold"), (7, "\n".join(below), QUIET, "normal"))
    points = [LEADING * size * (block.count("\n") + bool(block)) for size, block, *_ in sizes]
    height = 72 * canvas.get_figheight() + sum(points)
    canvas.set_figheight(height / 72)
    top = 1 - 3 / height
    for (size, block, color, weight), room in zip(sizes, points, strict=True):
        canvas.text(
            0.01, top, block, va="top", size=size, color=color, weight=weight, linespacing=1.1
        )
        top -= room / height
    engine: Any = canvas.get_layout_engine()
    engine.set(rect=(0, 0, 1, top))


def _add_legend(canvas: Figure, figure: go.Figure, panels: Sequence[Axes]) -> None:
    if figure.layout.showlegend is False:
        return
    handles: dict[str, Any] = {}
    for axes in [
        *panels,
        *(axes_of_data for axes_of_data in canvas.axes if axes_of_data not in panels),
    ]:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    wanted = figure.layout.showlegend or any(
        getattr(trace, "showlegend", None) for trace in figure.data
    )
    if len(handles) > 1 or (handles and wanted):
        longest = max(map(len, handles))
        columns = max(1, min(len(handles), 66 // (longest + 6)))
        canvas.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=columns)


def _axis(figure: go.Figure, name: str) -> Any:
    """The settings of the axis x, y2, …"""
    return figure.layout[f"{name[0]}axis{name[1:]}"]


def color_of(value: object, opacity: float | None = None) -> Any:
    """A colour as Matplotlib reads it: #rrggbb, a name, rgb(…) or rgba(…)."""
    text = str(value)
    if text.startswith("rgb"):
        red, green, blue, *alpha = (float(part) for part in re.findall(r"[\d.]+", text))
        rgba = (red / 255, green / 255, blue / 255, alpha[0] if alpha else 1.0)
    else:
        rgba = to_rgba(text)
    return rgba if opacity is None else (*rgba[:3], rgba[3] * opacity)


def _colormap(scale: Iterable[Any] | None) -> LinearSegmentedColormap:
    scale = ((0, WHITE), (1, COLOURS[0])) if scale is None else scale
    stops = [(float(at), color_of(color)) for at, color in scale]
    return LinearSegmentedColormap.from_list("chart", stops)


def _array(values: Any, count: int | None = None) -> Data:
    """Values of a trace, None as NaN; without any, their numbers from 0."""
    if values is None:
        return np.arange(count or 0)
    array = np.asarray(values)
    return array.astype(float) if array.dtype == object and _are_numbers(array) else array


def _are_numbers(array: Data) -> bool:
    return all(
        value is None or isinstance(value, int | float | np.number) for value in array.ravel()
    )


def _each(value: Any, number: int) -> Any:
    """The setting of one mark: of a list its own, else that of all."""
    is_list = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
    return value[number] if is_list else value


class _Panel:
    """One pair of axes and the traces, shapes and notes that belong to it."""

    def __init__(self, figure: go.Figure, axes: Axes, name: tuple[str, str]) -> None:
        self.figure, self.axes, self.name = figure, axes, name
        self.traces = [
            trace
            for trace in figure.data
            if trace.visible in (None, True)
            and (getattr(trace, "xaxis", None) or "x", getattr(trace, "yaxis", None) or "y") == name
        ]
        self.x, self.y = (_axis(figure, axis_name) for axis_name in name)
        self.categories = {side: self._categories(side) for side in ("x", "y")}
        self.stacks: dict[Any, Data] = {}  # heights so far, of stacked areas and columns

    def draw(self) -> None:
        for side in ("x", "y"):
            self._set_scale(side)
        for trace in self.traces:
            getattr(self, f"_add_{trace.type}")(trace, self._number_of(trace))
        if self.name == ("x", "y"):
            for shape in self.figure.layout.shapes:
                self._add_shape(shape)
            for note in self.figure.layout.annotations:
                self._add_note(note)
        for side in ("x", "y"):
            self._set_axis(side)

    def _number_of(self, trace: Any) -> int:
        return next(k for k, other in enumerate(self.figure.data) if other is trace)

    def _categories(self, side: str) -> list[str] | None:
        settings = getattr(self, side)
        values = [
            value
            for trace in self.traces
            if trace.type != "table"
            for value in (trace[side] if trace[side] is not None else ())
        ]
        if settings.type != "category" and not any(isinstance(value, str) for value in values):
            return None
        return list(dict.fromkeys(map(str, [*(settings.categoryarray or ()), *values])))

    def _places(self, side: str, values: Any, count: int | None = None) -> Data:
        """Values along an axis, categories by their number."""
        categories = self.categories[side]
        if categories is None or values is None:
            return _array(values, count)
        number = {name: k for k, name in enumerate(categories)}
        return np.array([number[str(value)] for value in values], dtype=float)

    def _set_scale(self, side: str) -> None:
        if getattr(self, side).type == "log":
            getattr(self.axes, f"set_{side}scale")("log")

    def _set_axis(self, side: str) -> None:
        settings, axes = getattr(self, side), self.axes
        if settings.visible is False:
            axes.set_axis_off()
        axis, is_log = getattr(axes, f"{side}axis"), settings.type == "log"
        title = words(settings.title.text or "")
        inches = axes.get_figure(root=True).get_figheight()  # type: ignore[union-attr]
        room = 12 * inches if side == "y" else LETTERS
        getattr(axes, f"set_{side}label")(fill(title, int(room)))
        labels, values = settings.ticktext, settings.tickvals
        if self.categories[side] is not None:
            labels, values = self.categories[side], range(len(self.categories[side] or ()))
        low, high = getattr(axes, f"get_{side}lim")()
        if values is not None and len(values):
            ticks = np.asarray(values, dtype=float)
            axis.set_minor_locator(ticker.NullLocator())
            if labels is None:
                axis.set_ticks(ticks)
            else:
                shown = slice(None, None, max(1, -(-len(ticks) // 60)))
                axis.set_ticks(ticks[shown], labels=[words(label) for label in labels][shown])
                self._turn_long_labels(side, [words(label) for label in labels])
        elif not is_log:
            integers = (settings.tickformat or "").endswith("d")
            axis.set_major_locator(
                ticker.MaxNLocator(6, integer=integers, steps=[1, 2, 2.5, 5, 10])
            )
            if isinstance(settings.dtick, int | float) and (high - low) / settings.dtick < 15:
                axis.set_major_locator(ticker.MultipleLocator(settings.dtick))
        if labels is None and (settings.tickformat or is_log):
            pattern = (settings.tickformat or "g").replace("~", "")
            pattern = pattern.replace("d", ".0f") if pattern.endswith("d") else pattern
            axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: format(value, pattern)))
            axis.set_minor_formatter(ticker.NullFormatter())
        if settings.showticklabels is False:
            axis.set_ticks([])
        if settings.range is not None:
            low, high = (10.0**end if is_log else float(end) for end in settings.range)
        elif self.categories[side] and not any(trace.type == "heatmap" for trace in self.traces):
            low, high = -0.6, len(self.categories[side] or ()) - 0.4
        elif settings.rangemode == "tozero" and not is_log:
            low = min(low, 0.0) if low < 0 else 0.0
        if settings.autorange == "reversed":
            low, high = high, low
        getattr(axes, f"set_{side}lim")(low, high)
        template = self.figure.layout.template.layout[f"{side}axis"]
        grid = template.showgrid if settings.showgrid is None else settings.showgrid
        if grid or (grid is None and side == "y"):
            axis.grid(True, color=FAINT, linewidth=0.5)

    def _turn_long_labels(self, side: str, labels: Sequence[str]) -> None:
        if side == "x" and max((len(label) for label in labels), default=0) * len(labels) > 34:
            for label in self.axes.get_xticklabels():
                label.set(rotation=60, ha="right", rotation_mode="anchor")

    def _add_scatter(self, trace: Any, number: int) -> None:
        axes, mode = self.axes, trace.mode or "lines"
        count = len(trace.x if trace.y is None else trace.y)
        x, y = (self._places(side, trace[side], count) for side in ("x", "y"))
        fallback = COLOURS[number % len(COLOURS)]
        color = color_of(
            trace.line.color or _plain_color(trace.marker.color) or fallback, trace.opacity
        )
        label = words(trace.name) if trace.name and trace.showlegend is not False else None
        if trace.stackgroup:
            base = self.stacks.get(trace.stackgroup, np.zeros(len(y)))
            axes.fill_between(x, base, base + y, color=color_of(trace.fillcolor), lw=0, label=label)
            self.stacks[trace.stackgroup] = base + y
            return
        if trace.fill == "toself":
            axes.fill(x, y, color=color_of(trace.fillcolor, trace.opacity), lw=0, label=label)
            return
        width = POINT * (2 if trace.line.width is None else trace.line.width)
        dash, steps = DASHES.get(trace.line.dash, "-"), trace.line.shape == "hv"
        if "lines" in mode and width:
            axes.plot(
                x,
                y,
                color=color,
                lw=width,
                ls=dash,
                label=label,
                drawstyle="steps-post" if steps else "default",
            )
            label = None
        for side, error in (("x", trace.error_x), ("y", trace.error_y)):
            if error.array is not None and len(x):
                above = np.nan_to_num(_array(error.array))
                below = (
                    above if error.arrayminus is None else np.nan_to_num(_array(error.arrayminus))
                )
                spread = np.clip([below, above], 0, None)
                thickness = POINT * (2 if error.thickness is None else error.thickness)
                axes.errorbar(
                    x,
                    y,
                    **{f"{side}err": spread},
                    fmt="none",
                    ecolor=color_of(error.color or color_hex(color)),
                    elinewidth=thickness,
                    capsize=0,
                )
        if "markers" in mode and len(x):
            self._add_markers(trace, x, y, color, label)
        if "text" in mode:
            self._add_labels(trace, x, y)

    def _add_markers(self, trace: Any, x: Data, y: Data, color: Any, label: str | None) -> None:
        marker, symbol = trace.marker, trace.marker.symbol or "circle"
        shape = SYMBOLS.get(symbol.removesuffix("-open"), "o")
        hollow = symbol.endswith("-open") and shape not in "x+|_"
        sizes = POINT * np.asarray(6 if marker.size is None else marker.size, dtype=float)
        colors, scale = marker.color, dict[str, Any]()
        if isinstance(colors, Sequence | np.ndarray) and not isinstance(colors, str):
            if all(isinstance(value, str) for value in colors):
                colors = [color_of(value) for value in colors]
            elif marker.colorscale is not None:
                scale = dict(cmap=_colormap(marker.colorscale))
        else:
            colors = [color_of(colors, trace.opacity) if colors else color]
        edge = marker.line.color
        lined: dict[str, Any] = dict(
            linewidths=POINT * (marker.line.width or 0) or (0.8 if hollow or shape in "x+|_" else 0)
        )
        if hollow:
            lined |= dict(facecolors="none", edgecolors=colors)
            colors = None
        elif edge and shape not in "x+|_":
            lined |= dict(edgecolors=color_of(edge))
        drawn = self.axes.scatter(
            x,
            y,
            s=sizes**2,
            c=colors,
            marker=shape,
            alpha=marker.opacity,
            label=label,
            zorder=2.5,
            **lined,
            **scale,
        )
        if scale and marker.colorbar.thickness is not None:
            self._add_key(drawn, marker.colorbar)

    def _add_labels(self, trace: Any, x: Data, y: Data) -> None:
        down = "bottom" in str(trace.textposition)
        middle = trace.textposition is None
        for number, text in enumerate(trace.text if trace.text is not None else ()):
            size = np.asarray(_each(trace.marker.size, number) or 6, dtype=float)
            shift = 0 if middle else (-1 if down else 1) * (POINT * float(size) / 2 + 2)
            self.axes.annotate(
                words(text),
                (x[number], y[number]),
                (0, shift),
                textcoords="offset points",
                ha="center",
                va="center" if middle else "top" if down else "bottom",
                color=color_of(_each(trace.textfont.color, number) or INK),
                zorder=3,
            )

    def _add_bar(self, trace: Any, number: int) -> None:
        horizontal, mode = trace.orientation == "h", self.figure.layout.barmode
        along, value = ("y", "x") if horizontal else ("x", "y")
        heights = _array(trace[value])
        places = self._places(along, trace[along], len(heights)).astype(float)
        bars = [other for other in self.traces if other.type == "bar"]
        width = np.asarray(0.8 if trace.width is None else trace.width, dtype=float)
        base = 0.0 if trace.base is None else _array(trace.base)
        if mode == "group" and len(bars) > 1:
            width = width / len(bars)
            slot = next(k for k, other in enumerate(bars) if other is trace)
            places = places + (slot - (len(bars) - 1) / 2) * width
        elif mode == "stack":
            base = np.array([self.stacks.get(position, 0.0) for position in places])
            self.stacks |= dict(zip(places.tolist(), base + heights, strict=True))
        marker, label = trace.marker, words(trace.name) if trace.name else None
        fallback = COLOURS[number % len(COLOURS)]
        colors = [
            color_of(_each(marker.color, k) or fallback, _each(marker.opacity, k))
            for k in range(len(places))
        ]
        edge: dict[str, Any] = (
            dict(edgecolor=WHITE, linewidth=0.4) if marker.line.width else dict(linewidth=0)
        )
        add = self.axes.barh if horizontal else self.axes.bar
        start: dict[str, Any] = dict(left=base) if horizontal else dict(bottom=base)
        add(places, heights, width, color=colors or None, **edge, **start)
        if label and trace.showlegend is not False:
            # Columns may have colours of their own: the legend shows an empty area of the first.
            self.axes.fill([], [], color=color_of(_each(marker.color, 0) or fallback), label=label)
        error = trace.error_y
        if error.array is not None:
            below = error.array if error.arrayminus is None else error.arrayminus
            spread = np.nan_to_num([_array(below), _array(error.array)]).clip(0)
            self.axes.errorbar(
                places, heights, yerr=spread, fmt="none", ecolor=QUIET, elinewidth=0.6
            )
        if trace.textposition == "inside":
            for k, text in enumerate(trace.text):
                size = min(_each(trace.insidetextfont.size, k) * POINT, 14)
                at = (places[k], np.broadcast_to(base, heights.shape)[k] + heights[k] / 2)
                if size >= 6.5 or heights[k] > 0.06:
                    self.axes.text(
                        *at, words(text), ha="center", va="center", fontsize=max(7, size)
                    )

    def _add_heatmap(self, trace: Any, number: int) -> None:
        z = np.array([_array(row, 0).astype(float) for row in trace.z])
        x = self._places("x", trace.x, z.shape[1]).astype(float)
        y = self._places("y", trace.y, z.shape[0]).astype(float)
        edges_x, edges_y = (_edges(*pair) for pair in ((x, z.shape[1]), (y, z.shape[0])))
        low = np.nanmin(z) if trace.zmin is None else trace.zmin
        high = np.nanmax(z) if trace.zmax is None else trace.zmax
        mesh = self.axes.pcolormesh(
            edges_x,
            edges_y,
            z,
            cmap=_colormap(trace.colorscale),
            norm=Normalize(low, high),
            edgecolors=WHITE if trace.xgap else "none",
            linewidth=0.4 if trace.xgap else 0,
        )
        if self.figure.layout.plot_bgcolor:
            self.axes.set_facecolor(color_of(self.figure.layout.plot_bgcolor))
        if trace.texttemplate:
            self._add_cell_texts(trace, mesh, z, edges_x, edges_y)
        if trace.showscale is not False:
            self._add_key(mesh, trace.colorbar)

    def _add_cell_texts(self, trace: Any, mesh: Any, z: Data, x: Data, y: Data) -> None:
        """Numbers or texts in the cells, as far as they have room at 7 points."""
        rows = [[f"{value:.2f}" for value in row] for row in z]
        if trace.text is not None:
            rows = [[words(cell).strip("\n ") for cell in row] for row in trace.text]
        letters = max(
            (len(line) for row in rows for cell in row for line in cell.split("\n")), default=0
        )
        if letters * len(rows[0]) * 0.065 > 0.85 * WIDTH:
            return
        is_log = self.x.type == "log"
        centres = np.sqrt(x[1:] * x[:-1]) if is_log else (x[1:] + x[:-1]) / 2
        for i, row in enumerate(rows):
            for j, text in enumerate(row):
                if np.isfinite(z[i, j]):
                    dark = sum(mesh.cmap(mesh.norm(z[i, j]))[:3]) < 1.6
                    self.axes.text(
                        centres[j],
                        (y[i] + y[i + 1]) / 2,
                        text,
                        ha="center",
                        va="center",
                        color=WHITE if dark else INK,
                    )

    def _add_table(self, trace: Any, number: int) -> None:
        head, columns = trace.header.values or (), trace.cells.values or ()
        rows = [[words(cell) for cell in row] for row in zip(*columns, strict=True)]
        self.axes.set_axis_off()
        if rows:
            drawn = self.axes.table(
                rows, colLabels=[words(cell) for cell in head], loc="upper center"
            )
            drawn.auto_set_font_size(False)
            drawn.auto_set_column_width(list(range(len(head))))
            drawn.set_fontsize(7)

    def _add_key(self, mesh: Any, settings: Any) -> None:
        key = self.axes.figure.colorbar(mesh, ax=self.axes, pad=0.02, aspect=24)
        key.outline.set_visible(False)
        solids: Any = key.solids
        solids.set(rasterized=False, edgecolor="face")  # PGF contains no images
        key.set_label(words(settings.title.text or ""))
        if settings.tickformat and "%" in settings.tickformat:
            key.ax.yaxis.set_major_formatter(ticker.PercentFormatter(1, decimals=0))

    def _add_shape(self, shape: Any) -> None:
        """A line or a region over the whole width or height, or a rectangle."""
        width = POINT * (2 if shape.line.width is None else shape.line.width)
        style: dict[str, Any] = dict(
            color=color_of(shape.line.color or QUIET), lw=width, ls=DASHES.get(shape.line.dash, "-")
        )
        if shape.name and shape.showlegend:
            style["label"] = words(shape.name)
        below = 0.5 if shape.layer == "below" else 2
        across, down = "domain" in str(shape.xref), "domain" in str(shape.yref)
        if shape.type == "line":
            draw_line: Any = self.axes.axhline if across else self.axes.axvline
            draw_line(shape.y0 if across else shape.x0, zorder=below, **style)
        elif across or down:
            draw_span: Any = self.axes.axhspan if across else self.axes.axvspan
            span = (shape.y0, shape.y1) if across else (shape.x0, shape.x1)
            draw_span(*span, color=color_of(shape.fillcolor or FAINT), lw=0, zorder=0.5)
        else:
            corner, size = (shape.x0, shape.y0), (shape.x1 - shape.x0, shape.y1 - shape.y0)
            frame = dict(fill=False, edgecolor=style["color"], lw=width, zorder=3)
            self.axes.add_patch(Rectangle(corner, *size, **frame))

    def _add_note(self, note: Any) -> None:
        text, color = words(note.text or ""), color_of(note.font.color or INK)
        places = []
        for side, ref in (("x", note.xref), ("y", note.yref)):
            value = note[side]
            free = "paper" in str(ref) or "domain" in str(ref)
            is_log = getattr(self, side).type == "log" and not free
            places.append((10.0**value if is_log else value, free))
        (x, x_free), (y, y_free) = places
        frame = self.axes.transAxes
        transform = {
            (False, False): self.axes.transData,
            (True, True): frame,
            (True, False): self.axes.get_yaxis_transform(),
            (False, True): self.axes.get_xaxis_transform(),
        }[x_free, y_free]
        if note.axref == "x":  # an arrow between two points of the chart
            arrow = dict(
                arrowstyle="-|>", color=color_of(note.arrowcolor or INK), lw=0, shrinkA=0, shrinkB=0
            )
            self.axes.annotate(
                "", (x, y), (note.ax, note.ay), arrowprops=arrow | dict(mutation_scale=7)
            )
            return
        shift = np.array([note.xshift or 0, note.yshift or 0], dtype=float) * POINT
        shift[1] += dict(bottom=1.5, top=-1.5).get(str(note.yanchor), 0)
        pointer = None
        if note.showarrow:
            shift = np.array([note.ax or 0, -(note.ay or 0)], dtype=float) * POINT
            pointer = dict(arrowstyle="-", color=color_of(note.arrowcolor or INK), lw=0.5)
        self.axes.annotate(
            text,
            (x, y),
            tuple(shift),
            xycoords=transform,
            textcoords="offset points",
            color=color,
            ha={"left": "left", "right": "right"}.get(str(note.xanchor), "center"),
            va={"top": "top", "bottom": "bottom"}.get(str(note.yanchor), "center"),
            arrowprops=pointer,
            zorder=4,
            annotation_clip=False,
        )


def _plain_color(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def color_hex(rgba: Any) -> str:
    """A colour as #rrggbb."""
    return str(matplotlib.colors.to_hex(rgba))


def _edges(places: Data, count: int) -> Data:
    """The edges of cells: the places themselves where they are one more, else midpoints."""
    if len(places) == count + 1:
        return places
    if count == 1:
        return np.array([places[0] - 0.5, places[0] + 0.5])
    middles = (places[1:] + places[:-1]) / 2
    return np.concatenate([[2 * places[0] - middles[0]], middles, [2 * places[-1] - middles[-1]]])
