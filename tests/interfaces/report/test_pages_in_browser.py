"""Pages in a real browser: pictures zoom, follow the reader's colours, and ask nothing."""

import numpy as np
import plotly.graph_objects as go
import pytest

from glauber.interfaces.plots.chart import BLUE, INK, Chart
from glauber.interfaces.plots.runs import plot_survival
from glauber.interfaces.report.page import CARTESIAN, write_picture

pytestmark = pytest.mark.browser
LIMITS = (
    "(() => { const a = document.querySelector('.picture')._fullLayout; return a.xaxis.range; })()"
)


@pytest.fixture
def opened(chromium, tmp_path):
    """Opens a page of figures; no error and no request beyond the page itself."""
    asked, errors, contexts = [], [], []

    def show(*figures, **how):
        write_picture(*figures, path=tmp_path / "page.html")
        context = chromium.new_context(**how)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda one: asked.append(one.url))
        page.on("console", lambda one: errors.append(one.text))
        page.on("pageerror", lambda one: errors.append(str(one)))
        page.goto(f"file://{tmp_path}/page.html")
        drawn = "[...document.querySelectorAll('.picture')].every(one => one._fullLayout?.xaxis)"
        page.wait_for_function(f"() => {drawn}")
        return page

    yield show
    for context in contexts:
        context.close()
    assert errors == [] and [url for url in asked if not url.startswith("data:")] == [
        f"file://{tmp_path}/page.html"
    ] * len(contexts)


def lines():
    return plot_survival(np.linspace(1, 0.2, 200)[None].repeat(3, axis=0))


def test_dragging_zooms_and_a_double_click_goes_back(opened):
    page = opened(lines(), viewport={"width": 1280, "height": 800})
    before = page.evaluate(LIMITS)
    box = page.locator(".nsewdrag").first.bounding_box()
    at = [(box["x"] + box["width"] * part, box["y"] + box["height"] / 2) for part in (0.25, 0.5)]
    page.mouse.move(*at[0])
    page.mouse.down()
    page.mouse.move(*at[1], steps=8)
    page.mouse.up()
    low, high = page.evaluate(LIMITS)
    span = before[1] - before[0]
    assert low == pytest.approx(before[0] + span / 4, abs=0.02 * span)
    assert high == pytest.approx(before[0] + span / 2, abs=0.02 * span)
    page.mouse.dblclick(*at[0])
    page.wait_for_function(f"() => {LIMITS}[1] == {before[1]}")
    assert page.evaluate(LIMITS) == before


def swipe(page, *, across, down):
    """A finger over the first picture, from its middle."""
    devices = page.context.new_cdp_session(page)
    box = page.locator(".nsewdrag").first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def touch(kind, *points):
        places = [{"x": x + across * part, "y": y + down * part} for part in points]
        devices.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

    touch("touchStart", 0)
    for tenth in range(1, 11):
        touch("touchMove", tenth / 10)
    touch("touchEnd")


def test_a_finger_scrolls_until_it_is_asked_to_zoom(opened):
    page = opened(
        *[lines() for _ in range(6)],
        viewport={"width": 390, "height": 700}, has_touch=True, is_mobile=True,
    )  # fmt: skip
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    before = page.evaluate(LIMITS)
    page.get_by_role("button", name="Zoom").first.tap()
    page.wait_for_function(
        "() => document.querySelector('.picture')._fullLayout.dragmode == 'zoom'"
    )
    swipe(page, across=100, down=0)
    page.wait_for_function(f"() => {LIMITS}[1] < {before[1]}")
    page.get_by_role("button", name="Whole picture").tap()
    page.wait_for_function(f"() => {LIMITS}[1] == {before[1]}")
    swipe(page, across=0, down=-200)
    page.wait_for_function("() => scrollY > 100")
    assert page.evaluate(LIMITS) == before


def test_pictures_follow_the_colours_of_the_reader(opened):
    """Ink is light on dark; every other colour is light enough; texts are left alone."""
    figure = Chart("white", "a word")
    figure.add_bar(x=["white", "#1f2328"], y=[1, 2], marker=dict(color=["#882255", BLUE]))
    page = opened(figure, color_scheme="dark", viewport={"width": 1280, "height": 800})
    shown = "document.querySelector('.picture')"
    words = page.locator(".xtick text").all_text_contents()
    assert words == ["white", "#1f2328"]
    fills = page.evaluate(
        f"[...{shown}.querySelectorAll('.point path')].map(p => getComputedStyle(p).fill)"
    )
    assert len(fills) == 2 and all(luminance(fill) > 0.15 for fill in fills)
    ink = f"getComputedStyle({shown}.querySelector('.gtitle')).fill"
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert luminance(page.evaluate(ink)) > 0.7 and luminance(ground) < 0.02
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"() => {ink} == 'rgb(31, 35, 40)'")  # INK
    assert INK == "#1f2328"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def luminance(colour):
    parts = [float(one) / 255 for one in colour.split("(")[1].rstrip(")").split(",")[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def test_the_small_build_draws_what_it_is_said_to_draw(opened):
    page = opened(lines())
    assert set(page.evaluate("Object.keys(Plotly.PlotSchema.get().traces)")) >= CARTESIAN


def test_markup_in_data_stays_text(opened):
    name = "</script><script>document.title = 'changed'</script><img src=x onerror=alert(1)>"
    page = opened(go.Figure([go.Scatter(y=[1], name=name), go.Scatter(y=[2])]))
    assert page.title() == "glauber" and page.locator("img").count() == 0
