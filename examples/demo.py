"""What do eight texts become? Chains of the bundled model, and a page to look at them."""

import argparse
import sys
from pathlib import Path

from glauber.cli.screen import watched
from glauber.conditionals.starts import passages
from glauber.errors import GlauberError
from glauber.figures.report import report
from glauber.runs.run import Run
from glauber.sampling import sample as sampling

PLACE = Path(__file__).resolve().parent.parent / "demo"
STARTS = passages()[:8]  # of eight topics


def prepared(folder: Path, model: str, steps: int) -> sampling.Plan:
    """A new run in that folder, or the one that is there, gone on with."""
    if folder.exists():
        print(f"going on with {folder}", file=sys.stderr)
        return sampling.reopen(Run(folder), steps=steps)
    texts = [text for _, text in STARTS]
    planned = sampling.plan(model, texts, steps=steps, length=20, temperature=1.0, seed=0)
    sampling.begin(planned, folder)
    return planned


def demo(folder: Path, model: str, steps: int) -> Run:
    """The run of the demo, with at least that many steps unless it is stopped by Ctrl-C."""
    if not folder.exists() or Run(folder).steps < steps:
        planned = prepared(folder, model, steps)
        with watched(planned.model.vocabulary.text, steps, quiet=False) as session:
            sampling.advance(planned, folder, session=session)
    return Run(folder)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", default="bundled:english")
    options.add_argument("--steps", type=int, default=2000)
    options.add_argument("--out", type=Path, default=PLACE, help="folder of the run and the page")
    chosen = options.parse_args()
    run = demo(chosen.out / "run", chosen.model, chosen.steps)
    for chain, (topic, _) in enumerate(STARTS):
        print(f"chain {chain}, {topic}\n  began  {run.text(chain, 0)}\n  ended  {run.text(chain)}")
    report(run, out=chosen.out / "index.html")
    print(chosen.out / "index.html")


if __name__ == "__main__":
    try:
        main()
    except GlauberError as error:
        sys.exit(f"demo: {error}")
