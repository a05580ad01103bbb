"""How fast is the explorer's page? python -m bench.explorer [--run FOLDER]

In Chromium, with the server in this process's machine and nothing else running:
shown steps a second of a living chain of 20 tokens, the time of a click on a token while it runs
(from the press to the bars), the time to open a run of 30 chains x 10,000 steps (from the address
to the first text), and the time of a seek in it (from the slider's move to the new text). Times are
medians and the largest of so many tries. Needs the extra `explore`, Playwright and Chromium.
"""

import argparse
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import glauber
from glauber.models.table import Table

TEXT = " ".join(["the old king walked slowly through the empty garden"] * 3).split()[:20]

# Waits for a change of the page and says how many ms it took; runs inside the page.
CLICK = """async () => {
  const before = document.querySelector("[aria-label=Conditional] h3");
  const tokens = document.querySelectorAll("[data-chain] [data-site]");
  const token = tokens[Math.floor(20 * Math.random())];
  const begun = performance.now();
  token.click();
  while (true) {
    await new Promise(requestAnimationFrame);
    const now = document.querySelector("[aria-label=Conditional] h3");
    if (now && now !== before) return performance.now() - begun;
  }
}"""
SEEK = """async (step) => {
  const slider = document.querySelector("input[aria-label=Step]");
  const begun = performance.now();
  slider.value = step;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  while (document.querySelector("[data-step]").dataset.step !== String(step))
    await new Promise(requestAnimationFrame);
  return performance.now() - begun;
}"""
STEPS = """async (seconds) => {
  const now = () => Number(document.querySelector("[data-step]").dataset.step);
  const seen = new Set();
  const first = now(), begun = performance.now();
  while (performance.now() - begun < 1000 * seconds) {
    await new Promise(requestAnimationFrame);
    seen.add(now());
  }
  return [(now() - first) / seconds, seen.size / seconds];
}"""


@contextmanager
def served(*given: str) -> Iterator[str]:
    """The address of an explorer in a process of its own, as a user has it."""
    command = [sys.executable, "-m", "glauber", "explore", *given, "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        found = next(m for line in server.stdout if (m := re.search(r"http://\S+", line)))
        yield found[0]
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def living(page: Page, address: str, seconds: float, tries: int) -> None:
    text = "+".join(TEXT)
    page.goto(f"{address}#view=live&model=bundled:english&text={text}&seed=0&temperature=1")
    page.locator("[data-token]").first.wait_for(timeout=120_000)
    speed = page.get_by_role("slider", name="Speed")
    speed.press("ArrowRight")  # from 30 to 60 steps a second
    page.get_by_role("button", name="Play", exact=True).click()
    page.evaluate(STEPS, 3)  # the first steps load and measure the model
    steps, frames = page.evaluate(STEPS, seconds)
    print(f"living chain, 20 tokens: {steps:.0f} steps/s, {frames:.0f} shown states/s")
    clicks = []
    for _ in range(tries):
        clicks.append(page.evaluate(CLICK))
        play = page.get_by_role("button", name="Play", exact=True)
        if play.count():
            play.click()
        page.evaluate(STEPS, 0.3)
    report("click on a token while it runs, to its bars", clicks)


def stored(page: Page, address: str, tries: int) -> None:
    opened = []
    for _ in range(3):
        page.goto("about:blank")
        page.goto(address)
        page.locator("[data-token]").first.wait_for()
        opened.append(page.evaluate("performance.now()"))
    report("30 x 10,000: from the address to the first text", opened)
    page.evaluate("() => new Promise((go) => setTimeout(go, 3000))")
    report("seek", [page.evaluate(SEEK, (7919 * (i + 1)) % 10_000) for i in range(tries)])


def report(what: str, times: list[float]) -> None:
    middle, most = statistics.median(times), max(times)
    print(f"{what}: {middle:.0f} ms (largest of {len(times)}: {most:.0f})", flush=True)


def big_run(folder: Path) -> Path:
    """30 chains of 20 tokens, 10,000 steps, by a rule without a network."""
    law = Table.random(vocab_size=4, length=8, seed=0)
    return Path(glauber.sample(law, ["00000000"], chains=30, steps=10_000, out=folder).folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, help="a run of 30 x 10,000 (default: one is made)")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--tries", type=int, default=20)
    args = parser.parse_args()
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as made:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        with served() as address:
            living(page, address, args.seconds, args.tries)
        with served(str(args.run or big_run(Path(made) / "run"))) as address:
            stored(page, address, args.tries)
        browser.close()


if __name__ == "__main__":
    main()
