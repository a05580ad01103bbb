"""Paper A, the coupling figure: where in temperature and length two chains meet.

The paper shows the share of pairs that coalesced and their median time over (temperature, length),
and that the boundary moves to higher temperatures as texts get longer. It gives no table of values.
"""

import tempfile
from pathlib import Path
from typing import Any

from glauber.mixing.phase import PhaseDiagram, phase_diagram
from glauber.papers.reproduction import Reproduction, Scale
from glauber.plots.phase import plot_phase
from glauber.sweeps.folder import Sweep, begin
from glauber.sweeps.run import run_sweep

SMALL = {
    "model": "bundled:english",
    "pairs": 12,
    "budget": 400,
    "axes": {"length": [6, 10, 16], "temperature": [0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5]},
}
PAPER = {
    "model": "bert-base-uncased",
    "pairs": 100,
    "budget": 5000,
    "axes": {
        "length": [5, 10, 20, 40],
        "temperature": [0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0],
    },
}
PUBLISHED = "the boundary moves to higher temperatures as the length grows"


def make(scale: Scale, *, seed: int) -> Reproduction:
    """The share met and the crossover of each length, and the heat map with its boundary."""
    chosen: dict[str, Any] = SMALL if scale == "small" else PAPER
    diagram = _diagram(chosen, seed)
    how = (
        f"{chosen['pairs']} pairs of bundled passages a cell, the same site at each step, redraws "
        f"from the maximal coupling, at most {chosen['budget']:,} steps"
    )
    rows = [
        {
            "model": chosen["model"],
            "tokens": one.length,
            "crossover temperature": one.temperature,
            "interval": list(one.interval) if one.interval else None,
            "width in log temperature": one.width,
            "crossover is": one.kind,
            "met": ", ".join(_met(diagram, one.length)),
            "published": PUBLISHED,
        }
        for one in diagram.crossovers
    ]
    return Reproduction("A-fig-coupling", scale, how, rows, seed, {"phase": plot_phase(diagram)})


def _diagram(chosen: dict[str, Any], seed: int) -> PhaseDiagram:
    settings = {
        "model": chosen["model"], "device": "auto", "dtype": "float32", "texts": None,
        "pairs": chosen["pairs"], "budget": chosen["budget"], "sweeps": None, "seed": seed,
        "how": "maximal",
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="glauber-") as place:
        begin(Path(place), Sweep("coalescence", settings, chosen["axes"]))
        return phase_diagram(run_sweep(Path(place)).values())


def _met(diagram: PhaseDiagram, length: int) -> list[str]:
    cells = [cell for cell in diagram.cells if cell.length == length]
    return [f"{sum(cell.met)}/{len(cell.met)} at {cell.temperature:g}" for cell in cells]
