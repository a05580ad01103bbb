"""What do chains do at each temperature and length? Every cell is a stored run.

A cell is (length, temperature): chains from the same passages at every temperature of a length.
The run lies under runs/NAME in the sweep's folder and can be used like any other; one that was cut
short is resumed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from glauber.conditionals.load import load
from glauber.conditionals.starts import read_sites, read_texts
from glauber.disk import check_space
from glauber.dynamics.scans import SCAN_HELP, scan_named
from glauber.errors import GlauberError
from glauber.parameters import Freeze, Seed, Texts
from glauber.progress import check_count, counter, say, track
from glauber.result import Result as Answer
from glauber.result import plain, signature, study
from glauber.runs.log import bytes_needed
from glauber.runs.run import Run
from glauber.sampling.plan import STEPS, check_numbers, plan, read_temperature
from glauber.sampling.sample import run_in_folder
from glauber.sweeps import folder as sweeps
from glauber.sweeps.executor import Result, Work, executor_named, run_sweep
from glauber.sweeps.folder import Cell, Sweep

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

STUDY = "glauber.sweeps.cells:open_runs"
Folder = Annotated[str | Path, "Folder of a sweep."]
On = Annotated[str, "Where cells run: local, processes or ray."]
Workers = Annotated[int | None, "Processes or Ray workers (default: one a core)."]
Address = Annotated[str | None, "Address of a Ray cluster (default: one of this machine)."]


@study
def sample(
    model: Annotated[
        str, "bundled:english, a local folder, or a name on the hub."
    ] = "bundled:english",
    texts: Texts = None,
    *,
    out: Annotated[str | Path, "Folder; the same sweep in it is resumed."],
    temperatures: Annotated[Sequence[float], "Temperatures of the grid."] = (0.3, 0.7, 1, 1.5, 2),
    lengths: Annotated[Sequence[int], "Lengths of the grid, in tokens."] = (10, 20),
    chains: Annotated[int, "Chains of each run."] = 8,
    steps: Annotated[int, "Steps of every chain, in all."] = 500,
    scan: Annotated[str, SCAN_HELP] = "uniform",
    freeze: Freeze = "",
    seed: Seed = 0,
    device: Annotated[str, "auto, cpu, cuda or mps."] = "auto",
    dtype: Annotated[str, "float32, bfloat16, float64 or int8."] = "float32",
    on: On = "local",
    workers: Workers = None,
    address: Address = None,
) -> "Cells":
    """Store a run for each temperature and length, and compare them in one table.

    Chains of one length begin from the same texts at every temperature; each cell has noise of its
    own, the same wherever and with whatever other cells it is run.
    """
    if not isinstance(model, str):
        raise GlauberError("a sweep needs a model by its name: its workers load it themselves.")
    at = read_temperature(list(temperatures))
    check_count("number of steps", steps, most=STEPS)
    for length in lengths:
        check_numbers(steps, chains, length, seed)
    n_runs = len(list(temperatures)) * len(list(lengths))
    check_space(Path(out), n_runs * bytes_needed(chains, steps, 1, max(lengths, default=1)))
    corpus = None if texts is None else read_texts(texts).sound()
    settings: dict[str, Any] = {
        "model": model, "device": device, "dtype": dtype,
        "texts": None if corpus is None else corpus.plain(),
        "chains": chains, "steps": steps, "scan": scan_named(scan).name, "seed": seed,
    }  # fmt: skip
    if sites := read_sites(freeze):
        settings["freeze"] = sites
    if corpus is not None and corpus.unknown != "skip":
        settings["unknown"] = corpus.unknown
    axes: dict[str, list[Any]] = {"length": list(lengths), "temperature": at}  # type: ignore[dict-item]
    return _run(Path(out), Sweep(STUDY, settings, axes), on, workers, address)


@study
def resume(
    folder: Folder, *, on: On = "local", workers: Workers = None, address: Address = None
) -> "Cells":
    """Run the cells that are left; where they run may change, the results do not."""
    return _run(Path(folder), sweeps.read_sweep(Path(folder)), on, workers, address)


@study
def status(folder: Folder) -> "Cells":
    """Say which cells of a sweep are finished and which are left."""
    return _answer(Path(folder))


def _run(folder: Path, sweep: Sweep, on: str, workers: int | None, address: str | None) -> "Cells":
    """Begins the sweep, or resumes it, to its end."""
    executor = executor_named(on, workers=workers, address=address)
    sweeps.begin(folder, sweep)
    missing = len(sweeps.left(folder))
    if 0 < missing < len(sweep.cells):
        say(f"{len(sweep.cells) - missing} of {len(sweep.cells)} cells are there already")
    with track("cells", len(sweep.cells)) as bar:
        run_sweep(folder, executor=executor, progress=counter(bar))
    return _answer(folder)


def _answer(folder: Path) -> "Cells":
    sweep, found = sweeps.read_sweep(folder), sweeps.results(folder)
    missing = [cell.name for cell in sweep.cells if cell.name not in found]
    known = {
        name: sweep.settings[name]
        for name in ("model", "chains", "pairs", "steps", "scan", "seed")
        if isinstance(sweep.settings.get(name), str | int | float)
    }
    made = signature(sweep=sweep.study.partition(":")[2], cells=len(sweep.cells), **known)
    return Cells(folder, sweep, list(found.values()), missing, made)


@dataclass(frozen=True, eq=False)
class Cells(Answer):
    """The finished cells of a sweep, and the names of those that are left."""

    folder: Path
    sweep: Sweep
    cells: list[dict[str, Any]]  # in the grid's order
    left: list[str]
    signature: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "sweep": str(self.folder),
            "study": self.sweep.study,
            "total": len(self.sweep.cells),
            "finished": len(self.cells),
            "left": self.left,
            "cells": plain(self.cells),
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        axes = ", ".join(f"{len(values)} x {axis}" for axis, values in self.sweep.axes.items())
        yield f"{axes}: {len(self.cells)} of {len(self.sweep.cells)} cells are finished"
        for one in self.cells:
            if "changed" in one:
                yield (
                    f"{one['length']:>6} tokens at {one['temperature']:<5g} {one['changed']:>5.0%} "
                    f"changed, entropy {one['entropy']:.2f}, {one['kept']:>4.0%} kept: "
                    f"{one['text']}"
                )
        if any("changed" in one for one in self.cells):
            yield "changed: steps that changed a token; entropy: of a redraw, in nats;"
            yield "kept: sites that hold their first token at the end; the text is chain 0's last"
        yield from (f"  left: {name}" for name in self.left)
        if self.left:
            yield f"resume with: glauber sweep resume {self.folder}"

    def frame(self) -> "pandas.DataFrame":
        """One row per finished cell."""
        import pandas

        return pandas.DataFrame(self.cells, columns=None if self.cells else list(self.sweep.axes))

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.sweeps import plot_cells

        return plot_cells(self.cells, list(self.sweep.axes))


def open_runs(settings: dict[str, Any], folder: Path) -> Work:
    """The work over (length, temperature) cells.

    settings: model, device, dtype, texts (None: the bundled passages), chains, steps, seed, scan,
    freeze and unknown.
    """
    model = load(settings["model"], device=settings["device"], dtype=settings["dtype"])
    texts = settings["texts"]
    if texts is not None:
        texts = read_texts(texts, unknown=settings.get("unknown"))

    def work(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Result]]:
        for cell in cells:
            place = folder / "runs" / cell.name
            planned = plan(
                model,
                texts,
                steps=settings["steps"],
                chains=settings["chains"],
                scan=settings["scan"],
                freeze=settings.get("freeze", ()),
                length=int(cell.values["length"]),
                temperature=cell.values["temperature"],
                seed=cell.seed(settings["seed"]),
            )
            run = run_in_folder(planned, place)
            yield cell, _summary(run, place.relative_to(folder))

    return work


def _summary(run: Run, place: Path) -> Result:
    """What a table of cells shows; everything else is in the run."""
    start, end = run.tokens(0), run.tokens()
    kept = ((start == end) & run.free).sum() / run.free.sum()
    return {
        "run": str(place),
        "steps": run.steps,
        "changed": run.share_changed,
        "entropy": float(np.nanmean(run.read("entropy"))),
        "kept": float(kept),
        "text": run.text(0),
    }
