"""A stored run as one looks at it: a real browser, a real server, the bundled model.

Every page of these tests counts its console errors and its requests to other hosts.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

import glauber
from glauber.interfaces.explorer.explore import Explorer

pytestmark = [pytest.mark.browser, pytest.mark.weights]


@pytest.fixture(scope="module")
def model() -> Any:
    return glauber.load("bundled:english")


@pytest.fixture(scope="module")
def run(model: Any, tmp_path_factory: pytest.TempPathFactory) -> glauber.Run:
    """Cold enough that chains get stuck."""
    out = tmp_path_factory.mktemp("explored") / "run"
    return glauber.sample(model, chains=3, length=10, steps=400, temperature=0.25, seed=1, out=out)


@pytest.fixture(scope="module")
def explorer(run: glauber.Run, model: Any) -> Iterator[Explorer]:
    with glauber.explore(run, browser=False) as found:
        yield found


@contextmanager
def watched(chromium: Browser, **how: Any) -> Iterator[Page]:
    """A page that may complain about nothing and reach nobody but this machine."""
    page = chromium.new_page(**({"viewport": {"width": 1280, "height": 900}} | how))
    complaints: list[str] = []
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    own = ("http://127.0.0.1:", "blob:", "data:", "file:")
    page.on("request", lambda r: None if r.url.startswith(own) else complaints.append(r.url))
    try:
        yield page
        assert complaints == []
    finally:
        page.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    with watched(chromium) as found:
        yield found


def step(page: Page) -> int:
    return int(page.locator("[data-step]").first.get_attribute("data-step") or -1)


def until(page: Page, first: int, last: int | None = None) -> None:
    """Waits until the step shown lies in first … last (default: beyond first); CSP forbids eval."""
    page.evaluate(
        """async ([a, b]) => {
            const now = () => Number(document.querySelector("[data-step]")?.dataset.step ?? -1);
            const end = Date.now() + 120000;
            while ((now() < a || now() > b) && Date.now() < end)
                await new Promise((go) => setTimeout(go, 10));
        }""",
        [first, 10**9 if last is None else last],
    )
    assert step(page) >= first and (last is None or step(page) <= last)


def tokens(page: Page, which: int = 0) -> list[int]:
    """The tokens of one of the texts that are shown, the large one of a run first."""
    text = page.locator("[data-chain]").nth(which)
    return [
        int(one)
        for one in text.locator("[data-token]").evaluate_all(
            "all => all.map(one => one.dataset.token)"
        )
    ]


def test_a_run_is_opened_sought_and_its_trap_leads_to_its_text(page, explorer, run):
    page.goto(explorer.url)
    large = page.locator("[data-chain]").first
    expect(large).to_be_visible()
    slider = page.get_by_role("slider", name="Step")
    slider.fill("150")
    until(page, 150, 150)
    inside = run.tokens(150)[0]
    special = set(run.vocabulary.boundary_tokens[0] + run.vocabulary.boundary_tokens[1])
    assert tokens(page) == [t for t in inside.tolist() if t >= 0 and t not in special]
    band = page.get_by_role("button", name=re.compile(r"^trap, chain \d+, steps"))
    band.first.wait_for()
    name = band.first.get_attribute("aria-label") or band.first.inner_text()
    chain, first, last = (int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", name))
    band.first.press("Enter")
    until(page, first, last)
    shown = run.tokens(step(page))[chain].tolist()
    assert tokens(page) == [t for t in shown if t >= 0 and t not in special]


def test_a_saved_page_opens_from_disk(chromium, explorer, run, tmp_path):
    with watched(chromium) as page:
        page.goto(f"{explorer.url}#view=run&step=120&chain=1")
        until(page, 120, 120)
        shown = tokens(page)
        page.get_by_role("button", name=re.compile("^trap, chain")).first.wait_for()
        with page.expect_download() as saving:
            page.get_by_role("button", name="Save page").click()
        saving.value.save_as(tmp_path / "saved.html")
    assert (tmp_path / "saved.html").stat().st_size < 2e6
    with watched(chromium) as page:
        page.goto((tmp_path / "saved.html").as_uri())
        until(page, 120, 120)
        assert tokens(page) == shown
        page.get_by_role("slider", name="Step").fill("60")
        until(page, 60, 60)
        page.get_by_role("button", name=re.compile("^trap, chain")).first.press("Enter")


def test_text_with_markup_is_text(page, explorer):
    page.goto(explorer.url)
    page.get_by_role("tab", name="Chain").click()
    page.get_by_label("Text", exact=True).first.fill(
        "<img src=x onerror=alert(1)> the <b>old</b> king"
    )
    page.on("dialog", lambda dialog: pytest.fail("a script of the text ran"))
    page.get_by_role("button", name="Start").click()
    until(page, 3)
    assert page.locator("main img, [data-chain] b").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(chromium, explorer, scheme, width):
    with watched(chromium, viewport={"width": width, "height": 844}, color_scheme=scheme) as page:
        for view in ("run", "live", "pair", "fill"):
            page.goto(f"{explorer.url}#view={view}")
            page.reload()
            page.get_by_role("tab", name="Fill in").wait_for()
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, view


def test_keys_play_and_step(page, explorer):
    page.goto(explorer.url)
    page.locator("[data-chain]").first.wait_for()
    page.locator("body").press("ArrowRight")
    until(page, 1, 1)
    page.locator("body").press("Shift+ArrowRight")
    until(page, 11, 11)
    page.locator("body").press("Space")
    page.get_by_role("button", name="Pause").wait_for()
    page.locator("body").press("Space")
    page.get_by_role("button", name="Play").wait_for()
    page.locator("body").press("Home")
    until(page, 0, 0)
    assert step(page) == 0


def test_the_report_plays_and_its_traps_lead_to_their_texts(chromium, run, tmp_path):
    out = tmp_path / "report.html"
    glauber.report(run, out=out)
    assert out.stat().st_size < 2e6
    with watched(chromium) as page:
        page.goto(Path(out).as_uri())
        page.get_by_role("slider", name="Step").fill("100")
        until(page, 100, 100)
        page.get_by_role("button", name=re.compile("^trap, chain")).first.press("Enter")
        expect(page.locator("[data-step='100']")).to_have_count(0)
