"""Does the page show at each step what the run holds? Its modules inside Chromium."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from crafted_run import crafted_run
from glauber.interfaces.report.bundle import script
from glauber.runs.film import film
from glauber.runs.run import Run

pytestmark = pytest.mark.browser

CHAINS, STEPS, LENGTH = 3, 700, 9
RNG = np.random.default_rng(0)
START = RNG.integers(10, 40, (CHAINS, LENGTH))
SITES = RNG.integers(0, LENGTH, (CHAINS, STEPS))
TOKENS = RNG.integers(10, 14, (CHAINS, STEPS))  # few, so that many redraws change nothing
LOG_PROBS = np.log(RNG.uniform(0.001, 1, (CHAINS, STEPS))).astype(np.float32)

# A source of the run's films that counts how often it is asked, and refuses where it is told to.
SOURCE = """
window.asks = 0; window.refuse = false; window.end = 700; window.growing = false;
window.source = {
  film: async (first, count, every) => {
    asks++;
    if (refuse) throw new Error("The explorer does not answer: was it stopped?");
    return filmOf(first, Math.min(count, Math.floor((end - first) / every)), every);
  },
  end: () => end, growing: () => growing, chunk: 100,
};
window.shown = (player) => player.moment.chains.map((chain) => Array.from(chain.tokens));
window.until = async (test) => { while (!test()) await new Promise((go) => setTimeout(go, 5)); };
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("films") / "run"
    return crafted_run(folder, START, SITES, TOKENS, LOG_PROBS)


@pytest.fixture(scope="module")
def browser_page(run: Run, chromium: Browser) -> Iterator[Page]:
    page = chromium.new_page()
    page.expose_function(
        "filmOf",
        lambda first, count, every: film(run, first=first, count=count, every=every).to_dict(),
    )
    for name in ("film", "player", "tokens"):
        page.evaluate(f"window.{name}Module = {script(f'{name}.js')}; null")
    yield page
    page.close()


@pytest.fixture
def page(browser_page: Page) -> Page:
    browser_page.evaluate(f"() => {{ {SOURCE} }}")
    return browser_page


def state(step: int) -> tuple[list[list[int]], np.ndarray]:
    """Tokens after a step and the log-probability at each site's last visit, by hand."""
    tokens, log_probs = START.copy(), np.full(START.shape, np.nan, np.float32)
    for t in range(step):
        for chain in range(CHAINS):
            tokens[chain, SITES[chain, t]] = TOKENS[chain, t]
            log_probs[chain, SITES[chain, t]] = LOG_PROBS[chain, t]
    return tokens.tolist(), log_probs


@pytest.mark.parametrize("every", [1, 7])
def test_a_reel_forward_and_back_is_the_run(page: Page, run: Run, every: int) -> None:
    first, frames = 23, [40, 0, 17, 18, 3, 40, 39, 1]
    made = film(run, first=first, count=40, every=every).to_dict()
    seen: list[Any] = page.evaluate(
        """([made, frames]) => {
          const reel = new filmModule.Reel(made);
          return frames.map((frame) => reel.seek(frame).moment().map((chain) => [
            Array.from(chain.tokens), Array.from(chain.logProb, String), [...chain.changed]]));
        }""",
        [made, frames],
    )
    for frame, chains in zip(frames, seen, strict=True):
        tokens, log_probs = state(first + frame * every)
        before, _ = state(first + (frame - 1) * every if frame else first)
        differs = [np.flatnonzero(row) for row in np.not_equal(tokens, before)]
        for chain, (shown, sure, changed) in enumerate(chains):
            assert shown == tokens[chain]
            assert np.array_equal(np.array(sure, np.float32), log_probs[chain], equal_nan=True)
            assert sorted(changed) == differs[chain].tolist()


def test_a_player_seeks_anywhere_and_asks_only_for_what_it_lacks(page: Page) -> None:
    steps = [0, 350, 699, 351, 301, 400, 700, 5, 349]
    seen = page.evaluate(
        """async (steps) => {
          window.player = new playerModule.Player(source);
          const seen = [];
          for (const step of steps) {
            await player.seek(step);
            seen.push([player.at, shown(player)]);
          }
          return seen;
        }""",
        steps,
    )
    assert seen == [[step, state(step)[0]] for step in steps]
    assert page.evaluate("asks") == 3  # steps 0 to 100, 300 to 400 and 600 to 700


def test_of_many_seeks_the_last_one_counts(page: Page) -> None:
    at = page.evaluate(
        """async () => {
          const player = new playerModule.Player(source);
          for (let step = 0; step < 700; step += 13) player.seek(step);
          await player.seek(222);
          return [player.at, shown(player), asks];
        }"""
    )
    assert at[:2] == [222, state(222)[0]]
    assert at[2] <= 2


def test_a_fast_player_shows_every_few_steps_and_pauses_at_the_end(page: Page) -> None:
    seen = page.evaluate(
        """async () => {
          const seen = [];
          const player = new playerModule.Player(source, { speed: 1000 });
          await player.seek(0);
          player.watch({ moment: ({ step }) => seen.push([step, shown(player)]) });
          player.play();
          await until(() => !player.playing);
          return seen;
        }"""
    )
    steps = [step for step, _ in seen]
    assert steps[-1] == STEPS and steps == sorted(steps) and len(steps) < 40
    assert [tokens for _, tokens in seen] == [state(step)[0] for step in steps]


def test_a_source_of_every_tenth_step_is_played_in_tens(page: Page, run: Run) -> None:
    """As a page in one file has it: one film, whatever is asked for."""
    seen = page.evaluate(
        """async (whole) => {
          const film = async () => { asks++; return whole; };
          const source = { film, end: () => 690, stride: 10 };
          const player = new playerModule.Player(source, { speed: 1000 });
          const seen = [];
          const look = () => seen.push([player.at, shown(player)]);
          for (const step of [0, 123, 9999]) { await player.seek(step); look(); }
          await player.step(-1); look();
          await player.step(-10); look();
          player.play();
          await until(() => !player.playing);
          look();
          return seen;
        }""",
        film(run, first=0, count=69, every=10).to_dict(),
    )
    assert seen == [[step, state(step)[0]] for step in (0, 120, 690, 680, 580, 690)]
    assert page.evaluate("asks") == 1


def test_a_player_waits_at_the_end_of_a_run_that_grows(page: Page) -> None:
    seen = page.evaluate(
        """async () => {
          end = 30; growing = true;
          const player = new playerModule.Player(source, { speed: 1000 });
          await player.seek(25);
          player.play();
          await until(() => player.waiting && player.at === 30);
          end = 60; growing = false; player.grew();
          await until(() => !player.playing);
          return [player.at, shown(player)];
        }"""
    )
    assert seen == [60, state(60)[0]]


def test_a_player_that_is_refused_says_so_and_keeps_what_it_has(page: Page) -> None:
    seen = page.evaluate(
        """async () => {
          const player = new playerModule.Player(source);
          await player.seek(50);
          refuse = true;
          await player.seek(650);
          const error = player.error;
          await player.seek(90);
          const had = [player.at, shown(player)];
          refuse = false;
          await player.seek(650);
          return [error, had, [player.at, shown(player)], player.error];
        }"""
    )
    sentence = "The explorer does not answer: was it stopped?"
    assert seen == [sentence, [90, state(90)[0]], [650, state(650)[0]], None]


def test_markup_in_a_token_is_text(page: Page) -> None:
    word = " <img src=x onerror=alert(1)>"
    html, text, classes = page.evaluate(
        """(word) => {
          const text = tokensModule.tokenText({ onpick: () => {} });
          const chain = { number: 2, tokens: [5, 6, 5], words: { 5: word, 6: "s" },
            logProb: [-0.01, NaN, -6], changed: new Set([1]), frozen: new Set([2]) };
          text.show(chain);
          return [text.element.querySelectorAll("img").length, text.element.textContent,
            [...text.element.querySelectorAll(".token")].map((one) => one.className)];
        }""",
        word,
    )
    assert (html, text) == (0, f"{word[1:]}s{word}")
    assert classes == ["token sure6", "token unknown changed", "token sure0 frozen"]
