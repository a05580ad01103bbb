"""Does the page do what one asks of it? The views with a living model, inside Chromium."""

import re
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, expect

import glauber
from glauber.interfaces.report.bundle import script

pytestmark = pytest.mark.browser

TEXT = "The old man walked along the river."
FIRST, SECOND = "The cat sat on the mat.", "The dog lay on the bed."
BLANKS = "The [MASK] walked along the ___ ."
TRAIL = f"#view=live&model=bundled:english&text={TEXT.replace(' ', '+')}&seed=0&scan=uniform"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with glauber.explore("bundled:english", browser=False) as explorer:
        yield explorer.url


@pytest.fixture
def page(chromium: Browser, address: str) -> Iterator[Page]:
    """A fresh page; it made no error and asked nobody else."""
    wrong: list[str] = []
    page = chromium.new_page()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: foreign(asked.url, address, wrong))
    yield page
    page.close()
    assert wrong == []


def foreign(asked: str, address: str, wrong: list[str]) -> None:
    if not asked.startswith((address, "data:", "blob:")):
        wrong.append(asked)


def text_of(page: Page, chain: int = 0) -> Locator:
    return page.locator(f'[data-chain="{chain}"]')


def site_of(page: Page, site: int, chain: int = 0) -> Locator:
    return text_of(page, chain).locator(f'[data-site="{site}"]')


def step_of(page: Page) -> int:
    return int(page.locator("[data-step]").get_attribute("data-step") or -1)


def tokens_of(page: Page, chain: int = 0) -> list[int]:
    spans = text_of(page, chain).locator("[data-token]")
    return [int(one) for one in spans.evaluate_all("all => all.map((s) => s.dataset.token)")]


def wait_for_step(page: Page, step: int) -> None:
    shown = "Number(document.querySelector('[data-step]')?.dataset.step ?? -1)"
    page.wait_for_function(f"step => {shown} >= step", arg=step)


def run_until(page: Page, step: int) -> None:
    page.get_by_role("button", name="Play", exact=True).click()
    wait_for_step(page, step)
    page.get_by_role("button", name="Pause", exact=True).click()


def test_a_chain_is_run_asked_and_changed(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.get_by_role("button", name="Start").click()
    wait_for_step(page, 10)
    page.get_by_label("Temperature").fill("0.5")
    expect(page.get_by_role("status").first).to_contain_text("Temperature 0.5 from step")
    site_of(page, 2).click()
    panel = page.get_by_role("region", name="Conditional")
    check_bars(page, panel, site=2, temperature=0.5)
    panel.get_by_label("Another token").fill("woman")
    panel.locator(".matches button").first.click()
    panel.get_by_role("button", name="Put", exact=True).click()
    expect(site_of(page, 2)).to_have_text("woman")
    panel.get_by_role("button", name="Freeze").click()
    expect(panel.get_by_role("button", name="Release")).to_be_visible()
    expect(panel.locator(".facts")).to_contain_text("none: frozen")
    expect(page.get_by_text("not the same in both")).to_be_hidden()
    panel.get_by_role("button", name="Branch").click()
    expect(text_of(page, 1)).to_have_text(text_of(page).inner_text())
    run_until(page, step_of(page) + 30)
    assert [site_of(page, 2, chain).inner_text() for chain in (0, 1)] == ["woman"] * 2
    assert tokens_of(page) != tokens_of(page, 1)  # other noise
    expect(page).to_have_url(re.compile(rf"step={step_of(page)}\b"))
    before = [step_of(page), tokens_of(page), tokens_of(page, 1)]
    page.reload()
    expect(text_of(page, 1).locator("[data-site]").first).to_be_visible()
    assert [step_of(page), tokens_of(page), tokens_of(page, 1)] == before


def check_bars(page: Page, panel: Locator, site: int, temperature: float) -> None:
    """The bars sum to 1 and are what the model says, asked directly."""
    expect(panel.locator(".present, .rest").first).to_be_visible()
    bars = panel.locator("[data-probability]")
    shown = bars.evaluate_all(
        "all => all.map((b) => [Number(b.dataset.token ?? -1), Number(b.dataset.probability)])"
    )
    assert sum(share for _, share in shown) == pytest.approx(1, abs=1e-9)
    model = glauber.load("bundled:english")
    rows, free = model.vocabulary.rows([tokens_of(page)])
    place = torch.tensor([[int(free[0].nonzero()[0]) + site]])
    scores = model.conditionals().scores(rows, place)[0, 0]
    law = torch.softmax(scores.double() / temperature, dim=-1)
    listed = [(token, share) for token, share in shown if token >= 0]
    assert len(listed) == 20
    np.testing.assert_allclose(
        [law[token] for token, _ in listed], [s for _, s in listed], atol=1e-6
    )


def test_an_edit_in_the_past_drops_what_came_later_and_says_so(page: Page, address: str) -> None:
    page.goto(f"{address}{TRAIL}&step=30&edits=10t0.5,20f3")
    expect(site_of(page, 3)).to_have_class(re.compile("frozen"))
    page.get_by_role("slider", name="Step").fill("15")
    expect(site_of(page, 3)).not_to_have_class(re.compile("frozen"))
    page.get_by_label("Temperature").fill("1.5")
    expect(page.get_by_role("status").first).to_contain_text("after step 15 is dropped")
    expect(page).to_have_url(re.compile(r"edits=10t0.5,15t1.5$"))


def test_a_view_that_was_left_and_a_refused_text_leave_nothing_behind(
    page: Page, address: str
) -> None:
    page.goto(f"{address}{TRAIL}&step=900000")
    expect(page.get_by_role("status").first).to_contain_text("Recomputing")
    page.get_by_role("tab", name="Fill in").click()
    expect(page.get_by_role("status").first).to_have_text("")
    page.get_by_label("Text", exact=True).fill("the [MASK] .")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("group", name="Player")).to_be_visible()
    page.get_by_text("A new text").click()
    page.get_by_label("Text", exact=True).fill("no blank")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert")).to_contain_text("no blank")
    expect(page.get_by_role("group", name="Player")).to_have_count(0)
    page.get_by_role("tab", name="Chain").click()
    page.get_by_text("A new chain").click()
    page.get_by_label("Text", exact=True).fill("")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert").first).to_contain_text("empty")
    expect(page.get_by_role("group", name="Player")).to_be_hidden()


def test_two_texts_with_shared_noise_meet(page: Page, address: str) -> None:
    page.goto(f"{address}#view=pair")
    page.get_by_label("First text").fill(FIRST)
    page.get_by_label("Second text").fill("Too short.")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert")).to_contain_text("both need the same number")
    page.get_by_label("Second text").fill(SECOND)
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".meeting")).to_contain_text("They met after step")
    page.get_by_role("button", name="Pause", exact=True).click()
    assert tokens_of(page) == tokens_of(page, 1)
    met = int(page.locator(".meeting").inner_text().split()[4])
    page.get_by_role("slider", name="Step").fill(str(met - 1))
    expect(text_of(page).locator(".differs").first).to_be_visible()
    assert tokens_of(page) != tokens_of(page, 1)


def test_blanks_are_filled_as_infill_fills_them(page: Page, address: str) -> None:
    page.goto(f"{address}#view=fill")
    page.get_by_label("Text", exact=True).fill(BLANKS)
    page.get_by_label("Correction sweeps").fill("1")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("listitem").nth(2)).to_have_attribute("aria-current", "step")
    blanks = [BLANKS.replace("___", "[MASK]")]
    made = glauber.infill("bundled:english", blanks, count="1", temperature=1, correct=1, seed=0)
    page.get_by_text("Result").click()
    expect(page.get_by_text(made.texts[0], exact=True).last).to_be_visible()
    page.get_by_role("button", name="pass 1").click()
    expect(text_of(page).locator(".hidden")).to_have_count(1)
    expect(page.locator('.token[data-pass="1"]')).to_have_count(1)


@pytest.mark.parametrize(
    ("edit", "kept", "dropped"),
    [
        ({"step": 5, "temperature": 2}, [{"step": 3, "freeze": 1},
         {"step": 5, "temperature": 2}], 1),
        ({"step": 3, "free": 1}, [{"step": 3, "free": 1}], 2),
        ({"step": 9, "freeze": 0}, [{"step": 3, "freeze": 1}, {"step": 5, "temperature": 1},
         {"step": 8, "site": 0, "token": 7}, {"step": 9, "freeze": 0}], 0),
        ({"step": 8, "site": 0, "token": 9}, [{"step": 3, "freeze": 1},
         {"step": 5, "temperature": 1}, {"step": 8, "site": 0, "token": 9}], 0),
    ],
)  # fmt: skip
def test_one_more_edit(
    page: Page, edit: dict[str, float], kept: list[dict[str, float]], dropped: int
) -> None:
    before = [{"step": 3, "freeze": 1}, {"step": 5, "temperature": 1},
              {"step": 8, "site": 0, "token": 7}]  # fmt: skip
    page.evaluate(f"window.trail = {script('trail.js')}; null")
    made = page.evaluate("([edits, edit]) => trail.withEdit(edits, edit)", [before, edit])
    assert made == {"edits": kept, "dropped": dropped}
