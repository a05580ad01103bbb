"""Charts: every text stays plain, error bars end at the intervals, and both backends agree."""

import io
import pickle

import numpy as np
import plotly.graph_objects as go
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.image import imread
from matplotlib.text import Text

from glauber.foundation.errors import GlauberError
from glauber.foundation.statistics import mean_over_chains
from glauber.interfaces.plots.chart import BLUE, COLOURS, ORANGE, Chart, plain, plot_rows
from glauber.interfaces.plots.matplotlib_backend import color_of, draw, picture

MARKUP = "<b>a</b> & \x1b[1m$x_1$"
SHOWN = plain(MARKUP)


@pytest.fixture(autouse=True)
def closed():
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def chart_with_every_mark(text="a"):
    x = np.arange(3.0)
    chart = Chart(text, text, x=dict(title=text, tickvals=[0, 1], ticktext=[text, "b"]))
    chart.line(x, x, text, text, labels=[text, "b", "c"])
    chart.dots(x, x, text, text, text=[text, "b", "c"], trace=dict(customdata=[text, "b", "c"]))
    chart.columns(x, x, text, text, text=[text, "b", "c"], customdata=[[text], ["b"], ["c"]])
    chart.band(x, x - 1, x + 1, text)
    chart.cells(np.eye(3), text, data=[[text] * 3] * 3, text=[[text] * 3] * 3, bar=text)
    chart.network(np.eye(2), [20.0, 30.0], np.eye(2)[::-1], [text, "b"], {(0, 1): text, (1, 0): ""})
    chart.rule(text, y=1)
    chart.rule(x=1, note=text)
    chart.note(1, 1, text, ax=5, ay=5)
    return chart


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from strings(one)
    elif isinstance(value, list | tuple | np.ndarray):
        for one in value:
            yield from strings(one)


def test_no_mark_lets_markup_through():
    figure = chart_with_every_mark(MARKUP).to_plotly_json()
    texts = [one for one in strings([figure["data"], figure["layout"]]) if "a</b" in one]
    assert texts == []
    assert sum(SHOWN in one for one in strings([figure["data"], figure["layout"]])) > 20
    intervals = Chart("t")
    intervals.intervals({MARKUP: (0.0, -1.0, 2.0)}, "name", BLUE)
    assert intervals.data[0].y == (SHOWN,)


def test_markup_and_mathematics_are_letters_in_matplotlib():
    axes = draw(chart_with_every_mark(MARKUP))
    assert axes.get_xlabel().replace("\n", " ") == MARKUP.replace("\x1b", r"\x1b")
    assert picture(chart_with_every_mark(MARKUP), "svg")  # $x_1$ is no formula


def test_estimates_get_bars_to_the_ends_of_their_intervals():
    rng = np.random.default_rng(0)
    estimates = [mean_over_chains(rng.normal(size=6)) for _ in range(3)]
    chart = Chart("t", y={})
    chart.dots([1, 2, 3], estimates)
    trace = chart.data[0]
    low, high = np.array([one.interval for one in estimates]).T
    np.testing.assert_allclose(trace.y + trace.error_y.array, high)
    np.testing.assert_allclose(trace.y - trace.error_y.arrayminus, low)
    segments = draw(chart).containers[0].lines[2][0].get_segments()
    np.testing.assert_allclose([[s[0][1], s[1][1]] for s in segments], np.stack([low, high], 1))


def test_both_backends_draw_the_same_numbers():
    chart = Chart("title", "subtitle", x=dict(title="x", type="log"), y=dict(range=[0, 5]))
    chart.line([1, 10, 100], [1, None, 3], "a line", color=ORANGE, dash="dash")
    chart.columns([1, 10], [2, 3], "columns", width=0.5)
    chart.rule("limit", y=4)
    axes = draw(chart)
    assert isinstance(axes, Axes) and axes.get_xscale() == "log" and axes.get_ylim() == (0, 5)
    line = axes.lines[0]
    np.testing.assert_array_equal(line.get_ydata(), [1, np.nan, 3])
    assert to_hex(line.get_color()) == ORANGE and line.get_linestyle() == "--"
    assert [(one.get_x() + one.get_width() / 2, one.get_height()) for one in axes.patches[:2]] == [
        (1, 2),
        (10, 3),
    ]
    names = [one.get_text() for one in axes.figure.legends[0].get_texts()]
    assert set(names) == {"a line", "columns", "limit"}
    assert [one.get_text() for one in axes.figure.texts] == ["title", "subtitle"]


def test_reversed_and_stacked_and_grouped():
    chart = Chart("t", x={}, y=dict(autorange="reversed"), barmode="stack")
    for value in (0.25, 0.75):
        chart.columns([value, value], ["first", "second"], horizontal=True)
    axes = draw(chart)
    low, high = axes.get_ylim()
    assert low > high and [one.get_text() for one in axes.get_yticklabels()] == ["first", "second"]
    assert [one.get_x() for one in axes.patches if one.get_width() == 0.75] == [0.25, 0.25]
    second = Chart("t", yaxis2=dict(overlaying="y", side="right"))
    second.line([1], [1])
    second.dots([1], [100], trace=dict(yaxis="y2"))
    assert len(draw(second).figure.axes) == 2


def test_a_figure_of_a_user_is_drawn_as_well():
    figure = go.Figure([go.Scatter(y=[1, 2], name="one"), go.Heatmap(z=[[1, 2], [3, 4]])])
    axes = draw(figure)
    assert axes.lines[0].get_ydata().tolist() == [1, 2] and len(axes.collections) == 1
    with pytest.raises(GlauberError, match="no marks of the kind pie"):
        draw(go.Figure(go.Pie(values=[1])))


def test_a_picture_is_one_column_wide_and_the_same_each_time():
    chart = chart_with_every_mark()
    content = picture(chart, "png")
    assert content == picture(chart, "png") and picture(chart, "pdf") == picture(chart, "pdf")
    width = imread(io.BytesIO(content)).shape[1] / 300 * 2.54
    assert 8.0 < width < 9.0
    assert min(one.get_fontsize() for one in draw(chart).figure.findobj(Text)) >= 7


def test_a_table_is_drawn_and_a_chart_survives_pickling():
    assert draw(plot_rows("rows", "", [{"a": 1, "b": "x"}])).tables
    chart = chart_with_every_mark()
    assert pickle.loads(pickle.dumps(chart)) == chart


def test_colours_differ_and_are_read_in_every_spelling():
    assert len(set(COLOURS)) == len(COLOURS) == 8
    assert color_of("rgba(255, 0, 0, 0.5)", 0.5) == (1.0, 0.0, 0.0, 0.25)
    assert to_hex(color_of("#0072b2")) == BLUE
    chart = Chart("t")
    for _ in range(3):
        chart.line([1], [1])
    assert [one.line.color for one in chart.data] == list(COLOURS[:3])
