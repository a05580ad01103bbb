"""The explorer as one uses it: a real browser, a real server, the bundled model.

Every page of these tests counts its console errors and its requests to other hosts.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import glauber
from glauber.conditionals.base import log_probs
from glauber.explorer.explore import Explorer

pytestmark = [pytest.mark.browser, pytest.mark.weights]

TEXT = "the old king walked slowly through the empty garden"
SITES = len(TEXT.split())
LONG = 120_000  # ms, a deadline: traps are looked for in the background


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        yield found
        found.close()


@contextmanager
def watched(browser: Browser, **how: Any) -> Iterator[Page]:
    """A page that may complain about nothing and reach nobody but this machine."""
    page = browser.new_page(**({"viewport": {"width": 1280, "height": 900}} | how))
    page.set_default_timeout(LONG)
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
def page(browser: Browser) -> Iterator[Page]:
    with watched(browser) as found:
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


def chain_link(explorer: Explorer, **more: Any) -> str:
    given = {"view": "live", "model": "bundled:english", "text": TEXT, "seed": 3} | more
    from urllib.parse import urlencode

    return f"{explorer.url}#{urlencode(given)}"


def start_chain(page: Page, explorer: Explorer, *, temperature: float = 1.0) -> None:
    page.goto(explorer.url)
    page.get_by_role("tab", name="Chain").click()
    page.get_by_label("Text", exact=True).first.fill(TEXT)
    page.get_by_label("Seed").fill("3")
    page.get_by_role("button", name="Start").click()
    page.get_by_role("button", name="Pause").wait_for()
    until(page, 5)


def pause(page: Page) -> None:
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Play").wait_for()


def test_a_run_is_opened_sought_and_its_trap_leads_to_its_text(page, explorer, run):
    page.goto(explorer.url)
    large = page.locator("[data-chain]").first
    expect(large).to_be_visible()
    slider = page.get_by_role("slider", name="Step")
    slider.fill("150")
    until(page, 150, 150)
    inside = run.tokens(150)[0]
    special = set(run.vocabulary.around[0] + run.vocabulary.around[1])
    assert tokens(page) == [t for t in inside.tolist() if t >= 0 and t not in special]
    band = page.get_by_role("button", name=re.compile(r"^trap, chain \d+, steps"))
    band.first.wait_for()
    name = band.first.get_attribute("aria-label") or band.first.inner_text()
    chain, first, last = (int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", name))
    band.first.press("Enter")
    until(page, first, last)
    shown = run.tokens(step(page))[chain].tolist()
    assert tokens(page) == [t for t in shown if t >= 0 and t not in special]


def test_a_token_shows_the_models_own_distribution(page, explorer, model):
    start_chain(page, explorer)
    pause(page)
    with page.expect_response(re.compile("ask/conditional")) as asked:
        page.locator("[data-chain] [data-site='4']").first.click()
    region = page.get_by_role("region", name="Conditional")
    expect(region).to_be_visible()
    question = asked.value.request.post_data_json | {"whole": True}
    # The same question again, with every probability.
    whole = page.evaluate(
        "async (q) => (await fetch('ask/conditional', {method: 'POST', headers:"
        " {'Content-Type': 'application/json'}, body: JSON.stringify(q)})).json()",
        question,
    )
    probabilities = np.array(whole["probabilities"])
    assert probabilities.sum() == pytest.approx(1, abs=1e-9)
    around = model.vocabulary.text.around if hasattr(model.vocabulary, "text") else None
    rows, _ = model.vocabulary.encode([TEXT])
    row = rows.clone()
    first = rows.shape[1] - SITES - (1 if around is None else len(around[1]))
    row[0, first : first + SITES] = rows.new_tensor(tokens(page))
    import torch

    exact = log_probs(model.conditionals(), row, torch.tensor([[first + 4]])).exp()[0, 0].numpy()
    assert np.abs(exact - probabilities).max() < 1e-6
    top = [one["probability"] for one in whole["top"]]
    assert top == sorted(top, reverse=True) and len(top) == 20
    assert region.get_by_text("%").count() >= 10


def test_a_token_is_put_frozen_and_a_branch_runs_beside(page, explorer):
    start_chain(page, explorer)
    pause(page)
    page.locator("[data-chain] [data-site='2']").first.click()
    region = page.get_by_role("region", name="Conditional")
    region.get_by_role("searchbox").fill("queen")
    region.get_by_role("button", name=re.compile("^queen")).first.click()
    region.get_by_role("button", name=re.compile("^Put")).click()
    expect(page.locator("[data-chain] [data-site='2']").first).to_have_text("queen")
    region.get_by_role("button", name="Freeze").click()
    expect(region.get_by_role("button", name="Release")).to_be_visible()
    region.get_by_role("button", name="Branch").click()
    expect(page.locator("[data-chain]")).to_have_count(2)
    here = step(page)
    assert tokens(page, 0) == tokens(page, 1)
    page.get_by_role("button", name="Play").click()
    until(page, here + 60)
    pause(page)
    assert tokens(page, 0) != tokens(page, 1)
    for which in (0, 1):  # frozen in both
        expect(page.locator("[data-chain]").nth(which).locator("[data-site='2']")).to_have_text(
            "queen"
        )
    before = [step(page), tokens(page, 0), tokens(page, 1)]
    page.reload()
    until(page, before[0], before[0])
    assert [step(page), tokens(page, 0), tokens(page, 1)] == before


def test_the_temperature_is_dragged_while_it_runs(page, explorer):
    start_chain(page, explorer)
    slider = page.get_by_role("slider", name="Temperature").last
    slider.focus()
    for _ in range(8):
        slider.press("ArrowLeft")
    expect(page).to_have_url(re.compile("edits="))
    assert page.get_by_role("button", name="Pause").is_visible()
    here = step(page)
    until(page, here + 20)
    pause(page)
    assert re.search(r"edits=\d+t\d", page.url)
    before = [step(page), tokens(page)]
    page.reload()
    until(page, before[0], before[0])
    assert [step(page), tokens(page)] == before


def test_two_texts_meet(page, explorer):
    page.goto(explorer.url)
    page.get_by_role("tab", name="Pair").click()
    page.get_by_label("First text").fill("the old king walked")
    page.get_by_label("Second text").fill("a young girl slept")
    slider = page.get_by_role("slider", name="Temperature").first
    slider.evaluate("(one) => { one.focus(); }")
    slider.press("Home")  # as cold as it goes: both soon hold what the model likes best
    page.get_by_role("button", name="Start").click()
    page.get_by_text(re.compile(r"They met after step \d+")).first.wait_for(timeout=LONG)
    pause(page)
    assert tokens(page, 0) == tokens(page, 1)


def test_blanks_are_filled(page, explorer, model):
    page.goto(explorer.url)
    page.get_by_role("tab", name="Fill in").click()
    page.get_by_label("Text", exact=True).first.fill("the [MASK] of the ___ is [MASK] .")
    page.get_by_role("button", name="Start").click()
    passes = page.get_by_role("list", name="Passes").get_by_role("listitem")
    expect(passes).to_have_count(3, timeout=LONG)
    until(page, 3, 3)
    shown = tokens(page)
    assert len(shown) == 8 and model.hidden_token not in shown


def test_a_saved_page_opens_from_disk(browser, explorer, run, tmp_path):
    with watched(browser) as page:
        page.goto(f"{explorer.url}#view=run&step=120&chain=1")
        until(page, 120, 120)
        shown = tokens(page)
        page.get_by_role("button", name=re.compile("^trap, chain")).first.wait_for()
        with page.expect_download() as saving:
            page.get_by_role("button", name="Save page").click()
        saving.value.save_as(tmp_path / "saved.html")
    assert (tmp_path / "saved.html").stat().st_size < 2e6
    with watched(browser) as page:
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
def test_nothing_is_wider_than_the_window(browser, explorer, scheme, width):
    with watched(browser, viewport={"width": width, "height": 844}, color_scheme=scheme) as page:
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


def test_the_report_plays_and_its_traps_lead_to_their_texts(browser, run, tmp_path):
    out = tmp_path / "report.html"
    glauber.report(run, out=out)
    assert out.stat().st_size < 2e6
    with watched(browser) as page:
        page.goto(Path(out).as_uri())
        page.get_by_role("slider", name="Step").fill("100")
        until(page, 100, 100)
        page.get_by_role("button", name=re.compile("^trap, chain")).first.press("Enter")
        expect(page.locator("[data-step='100']")).to_have_count(0)
