"""What do eight texts become? Chains of the bundled model, and a page to look at them."""

import argparse
import sys
from pathlib import Path

import glauber
from glauber.foundation.errors import GlauberError
from glauber.texts.starts import passages

PLACE = Path(__file__).resolve().parent.parent / "demo"
STARTS = passages()[:8]  # of eight topics


def demo(folder: Path, model: str, steps: int) -> glauber.Run:
    """The run of the demo, with at least that many steps; one that is there is made longer."""
    if folder.exists():
        there = glauber.Run(folder)
        return glauber.extend(there, steps=max(steps, there.steps))
    texts = [text for _, text in STARTS]
    return glauber.sample(model, texts, steps=steps, length=20, temperature=1.0, seed=0, out=folder)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", default="bundled:english")
    options.add_argument("--steps", type=int, default=2000)
    options.add_argument("--out", type=Path, default=PLACE, help="folder of the run and the page")
    chosen = options.parse_args()
    run = demo(chosen.out / "run", chosen.model, chosen.steps)
    for chain, (topic, _) in enumerate(STARTS):
        print(f"chain {chain}, {topic}\n  began  {run.text(chain, 0)}\n  ended  {run.text(chain)}")
    glauber.report(run, out=chosen.out / "index.html")
    print(chosen.out / "index.html")


if __name__ == "__main__":
    try:
        main()
    except GlauberError as error:
        sys.exit(f"demo: {error}")
