"""What do chains do at each temperature and length? Every cell is a stored run.

A cell is (length, temperature): chains from the same passages at every temperature of a length.
The run lies under runs/NAME in the sweep's folder and can be used like any other; one that was cut
short is resumed.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glauber.conditionals.masked_lm import MaskedLM
from glauber.runs.run import Run
from glauber.sampling.sample import advance, begin, plan, reopen
from glauber.sweeps.grid import Cell
from glauber.sweeps.work import Result, Work


def open_study(settings: dict[str, Any], folder: Path) -> Work:
    """The work over (length, temperature) cells.

    settings: model, device, dtype, texts (None: the bundled passages), chains, steps, seed, scan.
    """
    model = MaskedLM.load(settings["model"], device=settings["device"], dtype=settings["dtype"])

    def work(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Result]]:
        for cell in cells:
            place = folder / "runs" / cell.name
            if (place / "run.json").exists():
                planned = reopen(Run(place))
            else:
                planned = plan(
                    model,
                    settings["texts"],
                    steps=settings["steps"],
                    chains=settings["chains"],
                    scan=settings["scan"],
                    length=int(cell.values["length"]),
                    temperature=cell.values["temperature"],
                    seed=cell.seed(settings["seed"]),
                )
                begin(planned, place)
            advance(planned, place)
            yield cell, _summary(Run(place), place.relative_to(folder))

    return work


def _summary(run: Run, place: Path) -> Result:
    """What a table of cells shows; everything else is in the run."""
    start, end = run.tokens(0), run.tokens()
    kept = ((start == end) & run.free).sum() / run.free.sum()
    return {
        "run": str(place),
        "steps": run.steps,
        "changed": float(run.read("changed").any(axis=2).mean()),
        "entropy": float(np.nanmean(run.read("entropy"))),
        "kept": float(kept),
        "text": run.text(0),
    }
