"""Chains at each temperature and length of a grid: every cell is a stored run.

A cell is (length, temperature): chains from the same passages at every temperature of a length.
The run lies under runs/NAME in the sweep's folder and can be used like any other; one that was cut
short is resumed.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from glauber.dynamics.scans import SCAN_HELP, scan_named
from glauber.foundation.call import call_of
from glauber.foundation.checks import Whole
from glauber.foundation.disk import check_space
from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import has_type
from glauber.foundation.parameters import Freeze, Seed, Texts
from glauber.foundation.progress import counter, say, track
from glauber.foundation.study import Result as Answer
from glauber.foundation.study import internal, parameter_types, reported, signature, study
from glauber.models.load import load
from glauber.runs.log import bytes_needed
from glauber.runs.run import Run
from glauber.sampling.plan import Steps, check_chains, plan, read_temperature
from glauber.sampling.sample import run_in_folder, stored_call
from glauber.sampling.sample import sample as sample_run
from glauber.sampling.sweeps.executors import Result, Work, choose_executor, run_sweep
from glauber.sampling.sweeps.folder import Cell, Sweep, begin, read_sweep, results
from glauber.texts.starts import read_sites, read_texts

if TYPE_CHECKING:
    import plotly.graph_objects as go

STUDY = "sweeps.sample"
PLACE = ("out", "on", "workers", "address")  # parameters of every study whose cells are a sweep
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
    lengths: Annotated[Sequence[int], "Lengths of the grid, in tokens.", Whole()] = (10, 20),
    chains: Annotated[int, "Chains of each run.", Whole(1, 10**12)] = 8,
    steps: Steps = 500,
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
    read_temperature(list(temperatures))
    check_chains(chains, max(lengths, default=1))
    axes: dict[str, list[Any]] = {
        "length": list(lengths),
        "temperature": [float(value) for value in temperatures],
    }
    arguments: dict[str, Any] = {
        "model": model,
        "texts": None,
        "chains": chains,
        "steps": steps,
        "scan": scan_named(scan).name,
        "freeze": read_sites(freeze),
        "seed": seed,
        "device": device,
        "dtype": dtype,
    }
    if texts is not None:
        corpus = read_texts(texts).sound()
        arguments |= {"texts": corpus.plain(), "unknown": corpus.unknown}
    executor = choose_executor(on, workers=workers, address=address)
    folder, sweep = Path(out), Sweep(STUDY, arguments, axes)
    cells = sweep.cells
    check_space(folder, len(cells) * bytes_needed(chains, steps, 1, max(lengths)))
    begin(folder, sweep)
    if 0 < (n_finished := len(results(folder))) < len(cells):
        say(f"{n_finished} of {len(cells)} cells are there already")
    open_work = partial(open_runs, arguments, folder)
    with track("cells", len(cells)) as bar:
        run_sweep(folder, open_work, executor=executor, progress=counter(bar))
    return _cells(folder)


@study
def resume(
    folder: Folder, *, on: On = "local", workers: Workers = None, address: Address = None
) -> "Cells":
    """Run the cells that are left; where they run may change, the results do not."""
    folder = Path(folder)
    function, arguments = _call(folder, read_sweep(folder))
    where_to_run = {"out": folder, "on": on, "workers": workers, "address": address}
    function(**arguments | where_to_run)
    return _cells(folder)


@study
def status(folder: Folder) -> "Cells":
    """Say which cells of a sweep are finished and which are left."""
    return _cells(Path(folder))


def _call(folder: Path, sweep: Sweep) -> tuple[Callable[..., Answer], dict[str, Any]]:
    """The public study of a sweep and its arguments, which have the types of the parameters.

    The folder may come from somebody else: it can only name a study whose cells are a sweep, which
    checks the values as it does those of any call.
    """
    import glauber

    name = "sample" if sweep.study == STUDY else sweep.study
    public = {name for group in glauber.STUDIES.values() for name in group}
    function = sample if sweep.study == STUDY else name in public and getattr(glauber, name)
    types = parameter_types(function) if function else {}
    if not function or not types.keys() >= set(PLACE):
        raise GlauberError(f"{folder} is a sweep of {sweep.study!r:.80}, which is not known here.")
    arguments = sweep.arguments | {f"{axis}s": values for axis, values in sweep.axes.items()}
    texts, unknown = arguments.pop("texts", None), arguments.pop("unknown", "skip")
    for parameter, value in arguments.items():
        if parameter not in types or not has_type(value, types[parameter]):
            raise GlauberError(
                f"the sweep {folder} is damaged: {name} takes no {parameter} {value!r:.60}."
            )
    try:
        if texts is not None:
            arguments["texts"] = read_texts(list(texts), unknown=unknown)
    except (KeyError, TypeError) as error:
        raise GlauberError(f"the sweep {folder} is damaged: its texts are wrong.") from error
    return function, arguments


def _cells(folder: Path) -> "Cells":
    sweep, finished = read_sweep(folder), results(folder)
    missing = [cell.name for cell in sweep.cells if cell.name not in finished]
    shown = {
        name: sweep.arguments[name]
        for name in ("model", "chains", "pairs", "steps", "scan", "seed")
        if isinstance(sweep.arguments.get(name), str | int | float)
    }
    line = signature(sweep=sweep.study, cells=len(sweep.cells), **shown)
    return Cells(folder, sweep.study, list(finished.values()), missing, sweep.axes, line)


@dataclass(frozen=True, eq=False)
class Cells(Answer):
    """The finished cells of a sweep, and the names of those that are left."""

    sweep: Path  # its folder
    study: str  # that each cell answers
    cells: list[dict[str, Any]]  # in the grid's order
    left: list[str]
    axes: dict[str, list[Any]] = internal()  # the values of each parameter of the grid
    signature: str = ""

    @reported
    def finished(self) -> int:
        """Number of finished cells."""
        return len(self.cells)

    @reported
    def total(self) -> int:
        """Number of cells of the grid."""
        return len(self.cells) + len(self.left)

    def lines(self) -> Iterable[str]:
        axes = ", ".join(f"{len(values)} x {axis}" for axis, values in self.axes.items())
        yield f"{axes}: {len(self.cells)} of {self.total} cells are finished"
        runs = [cell for cell in self.cells if "changed" in cell]
        for cell in runs:
            yield (
                f"{cell['length']:>6} tokens at {cell['temperature']:<5g} {cell['changed']:>5.0%} "
                f"changed, entropy {cell['entropy']:.2f}, {cell['kept']:>4.0%} kept: "
                f"{cell['text']}"
            )
        if runs:
            yield "changed: steps that changed a token; entropy: of a redraw, in nats;"
            yield "kept: sites with their first token at the end; the text is chain 0's last"
        yield from (f"  left: {name}" for name in self.left)
        if self.left:
            yield f"resume with: glauber sweep resume {self.sweep}"

    def table(self) -> list[dict[str, Any]] | dict[str, list[Any]]:
        """One row per finished cell."""
        return self.cells or {axis: [] for axis in self.axes}

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.runs import plot_cells

        return plot_cells(self.cells, list(self.axes))


def open_runs(arguments: dict[str, Any], folder: Path) -> Work:
    """The work over (length, temperature) cells: a run of each, in the folder."""
    model = load(arguments["model"], device=arguments["device"], dtype=arguments["dtype"])
    texts = arguments["texts"]
    if texts is not None:
        texts = read_texts(texts, unknown=arguments["unknown"])
    same = {name: arguments[name] for name in ("steps", "chains", "scan", "freeze")}
    sample_signature = inspect.signature(sample_run)

    def work(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Result]]:
        for cell in cells:
            own = {
                "length": int(cell.values["length"]),
                "temperature": cell.values["temperature"],
                "seed": cell.seed(arguments["seed"]),
            }
            bound = sample_signature.bind(arguments["model"], texts, **same, **own)
            planned = plan(model, texts, **same, **own)
            planned = replace(planned, call=stored_call(call_of("sample", bound)))
            path = Path("runs") / cell.name
            run = run_in_folder(planned, folder / path)
            yield cell, {"run": str(path), **_summary(run)}

    return work


def _summary(run: Run) -> Result:
    """What a table of cells shows; everything else is in the run."""
    start, end = run.tokens(0), run.tokens()
    return {
        "steps": run.steps,
        "changed": run.share_changed,
        "entropy": float(np.nanmean(run.read("entropy"))),
        "kept": float(((start == end) & run.free).sum() / run.free.sum()),
        "text": run.text(0),
    }
