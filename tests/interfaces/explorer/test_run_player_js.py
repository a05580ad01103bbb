"""Does a run's player show the right texts while runs grow, servers stop and chains are many?"""

from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from crafted_run import crafted_run
from glauber.interfaces.report.bundle import css, script
from glauber.runs.film import film
from glauber.runs.run import Run

pytestmark = pytest.mark.browser

CHAINS, STEPS, LENGTH = 35, 60, 6
RNG = np.random.default_rng(1)
STOPPED = "The explorer does not answer: was it stopped?"

# A link whose answers a test can change: how far the run is, and whether anybody answers.
OPEN = """async (options) => {
  window.now = { steps: 60, planned: 60, finished: true, stopped: false };
  const bands = [
    { chain: 0, first: 10, last: 30, at: 12, name: "trap", text: "stuck", lines: ["long"] },
    { chain: 34, first: 0, last: 60, name: "trap", text: "<b>elsewhere</b>", lines: [] }];
  const answers = {
    run: () => ({ name: "a", chains: 35, model: "m", damaged: null, kind: "chain", ...now }),
    film: ({ first, count, every, chains }) =>
      filmOf(first, Math.min(count, Math.floor((now.steps - first) / every)), every, chains),
    curves: () => ({ steps: [0, 30, 60], notes: [], names: { left: "Left" },
      series: { left: { mean: [1, 0.5, 0.2], chains: [] } } }),
    bands: ({ kind }) => kind === "traps" ? { state: "done", note: "exact", bands }
      : { state: "failed", why: "There is no such thing.", bands: [] },
  };
  const ask = async (name, args) => {
    if (now.stopped) throw new Error("The explorer does not answer: was it stopped?");
    return answers[name](args);
  };
  Object.assign(now, options.now);
  document.body.replaceChildren(Object.assign(document.createElement("div"), { id: "root" }));
  window.made?.close();
  window.made = await player.runPlayer(root, { ask, live: true }, options);
}"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    start = RNG.integers(10, 40, (CHAINS, LENGTH))
    sites = RNG.integers(0, LENGTH, (CHAINS, STEPS))
    tokens = RNG.integers(10, 40, (CHAINS, STEPS))
    return crafted_run(tmp_path_factory.mktemp("player") / "run", start, sites, tokens)


@pytest.fixture(scope="module")
def page(run: Run, chromium: Browser) -> Iterator[Page]:
    page = chromium.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.expose_function(
        "filmOf",
        lambda first, count, every, chains: film(
            run, first=first, count=count, every=every, chains=chains
        ).to_dict(),
    )
    page.add_style_tag(content=css())
    page.evaluate(f"window.player = {script('runplayer.js')}; null")
    yield page
    page.close()
    assert errors == []


def large(page: Page) -> list[int]:
    found = page.locator(".large .token").evaluate_all("all => all.map((a) => +a.dataset.token)")
    return [int(token) for token in found]


def at(page: Page, step: int) -> None:
    expect(page.locator("[data-step]")).to_have_attribute("data-step", str(step))


def test_a_band_leads_to_its_text(page: Page, run: Run) -> None:
    page.evaluate(OPEN, {"step": 50})
    page.get_by_role("button", name="trap, chain 0, steps 10 to 30").press("Enter")
    at(page, 12)
    assert large(page) == run.tokens(12)[0].tolist()
    expect(page.locator(".found")).to_contain_text("stuck")
    expect(page.locator(".found")).to_contain_text("exact")
    expect(page.get_by_role("group", name="basins")).to_have_text("There is no such thing.")


def test_many_chains_are_paged_and_markup_stays_text(page: Page, run: Run) -> None:
    page.evaluate(OPEN, {"step": 7})
    small = page.locator(".one")
    expect(small).to_have_count(30)
    page.get_by_role("button", name="Later chains").click()
    expect(small).to_have_count(5)
    assert large(page) == run.tokens(7)[0].tolist()
    page.get_by_role("button", name="Chain 34: show it large").click()
    expect(page.locator(".large [data-chain]")).to_have_attribute("data-chain", "34")
    assert large(page) == run.tokens(7)[34].tolist()
    page.get_by_role("button", name="trap, chain 34, steps 0 to 60").click()
    at(page, 0)
    expect(page.locator(".found")).to_contain_text("<b>elsewhere</b>")


def test_who_is_at_the_end_of_a_growing_run_stays_there(page: Page, run: Run) -> None:
    page.evaluate(OPEN, {"step": 20, "now": {"steps": 20, "finished": False}})
    at(page, 20)
    slider = page.get_by_role("slider", name="Step")
    expect(slider).to_have_attribute("aria-valuetext", "step 20 of 20")
    page.evaluate("now.steps = 45; null")
    at(page, 45)
    expect(slider).to_have_attribute("aria-valuetext", "step 45 of 45")
    assert large(page) == run.tokens(45)[0].tolist()
    slider.fill("30")
    page.evaluate("Object.assign(now, { steps: 60, finished: true }); null")
    expect(slider).to_have_attribute("aria-valuetext", "step 30 of 60")


def test_a_stopped_server_is_told_and_the_page_goes_on(page: Page, run: Run) -> None:
    page.evaluate(OPEN, {"step": 20, "now": {"finished": False}})
    alarm = page.locator(".trouble")
    expect(alarm).to_be_hidden()
    page.evaluate("now.stopped = true; null")
    expect(alarm).to_have_text(STOPPED)
    page.get_by_role("slider", name="Step").fill("33")
    at(page, 33)
    assert large(page) == run.tokens(33)[0].tolist()
    page.evaluate("Object.assign(now, { stopped: false, damaged: 'a chunk is torn.' }); null")
    expect(alarm).to_have_text("A chunk is torn.")
