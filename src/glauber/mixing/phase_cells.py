"""When do coupled chains meet, at each temperature and length?

A cell is (temperature, length): pairs of texts and noise of its own, so that cells are independent
and their shares can be put together in one likelihood. All pairs of a length move in one batch that
stays full. The cells run in this process, or as a sweep: a folder that keeps each finished cell,
and workers. Nothing here needs more than torch, transformers and numpy.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glauber.conditionals.base import Conditionals, Model
from glauber.conditionals.load import load
from glauber.conditionals.starts import bundled_texts, read_texts, starts
from glauber.conditionals.texts import Corpus
from glauber.conditionals.weights import choose_dtype
from glauber.disk import write_json
from glauber.errors import GlauberError
from glauber.json_text import parse_json
from glauber.mixing.coalescence import Finished, finished
from glauber.mixing.pairs import different_texts, pairs_of_texts
from glauber.progress import Advance, counter, track
from glauber.sweeps.executors import Result, Work, choose_executor, run_sweep
from glauber.sweeps.folder import HEADER, Cell, Sweep, begin, grid, read_sweep

BATCH = 64  # pairs that move at a time on a CPU; a GPU takes as many as fit
STUDY = "phase"


def run_cells(
    model: str | Conditionals,
    settings: dict[str, Any],
    axes: dict[str, list[Any]],
    *,
    on: str,
    workers: int | None,
    address: str | None,
    out: str | Path | None,
    trust_remote_code: bool,
) -> list[dict[str, Any]]:
    """Every cell's temperature, length, steps, times and met, in the grid's order."""
    executor = choose_executor(on, workers=workers, address=address)
    if out is None and on == "local":
        opened = load(
            model,
            device=settings["device"],
            dtype=settings["dtype"],
            trust_remote_code=trust_remote_code,
            exact=True,
        )
        return _here(opened, settings, axes)
    if trust_remote_code or not isinstance(model, str):
        raise GlauberError(
            "a folder and workers need a model by its name, without code of its own: leave out "
            "and on at their defaults to run such a model in this process."
        )
    choose_dtype(settings["dtype"], exact=True)
    texts = None if settings["texts"] is None else read_texts(settings["texts"]).sound()
    if texts is not None and texts.unknown != "skip":
        settings["unknown"] = texts.unknown
    arguments = settings | {"model": model, "texts": None if texts is None else texts.plain()}
    sweep = Sweep(STUDY, arguments, axes)
    with ExitStack() as stack:
        folder = _checked(out) if out is not None else Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="glauber-"))
        )  # fmt: skip
        _move(folder, sweep)
        begin(folder, sweep)
        with track("cells", len(sweep.cells)) as advance:
            work, progress = partial(open_cells, arguments), counter(advance)
            return list(run_sweep(folder, work, executor=executor, progress=progress).values())


def cells_in_folder(
    folder: str | Path,
    *,
    model: str,
    lengths: list[int],
    temperatures: list[float],
    pairs: int,
    steps: int,
    seed: int,
    texts: list[str] | None = None,
    device: str = "auto",
) -> list[dict[str, Any]]:
    """The cells alone, for a machine without SciPy; `phase` with the same values goes on there."""
    settings = {
        "texts": texts, "pairs": pairs, "steps": steps, "sweeps": None, "seed": seed,
        "coupling": "maximal", "device": device, "dtype": "float32",
    }  # fmt: skip
    axes: dict[str, list[Any]] = {"length": lengths, "temperature": temperatures}
    place: dict[str, Any] = {"on": "local", "workers": None, "address": None, "out": folder}
    return run_cells(model, settings, axes, trust_remote_code=False, **place)


def open_cells(settings: dict[str, Any]) -> Work:
    """The work over (temperature, length) cells, in a worker.

    settings: model, device, dtype, texts (None: the bundled passages), pairs, steps or sweeps
    (steps in multiples of the length), seed, coupling.
    """
    opened = load(settings["model"], device=settings["device"], dtype=settings["dtype"])
    return lambda cells: cells_of(opened, settings, cells)


def cells_of(
    model: Model, settings: dict[str, Any], cells: Sequence[Cell], advance: Advance | None = None
) -> Iterator[tuple[Cell, Result]]:
    """(cell, result) of each cell as soon as its last pair is finished, length by length."""
    lengths = sorted({int(cell.values["length"]) for cell in cells})
    unknown = settings.get("unknown")
    begun = {n: some_texts(model, settings["texts"], n, unknown=unknown) for n in lengths}
    for n in lengths:
        row = [cell for cell in cells if int(cell.values["length"]) == n]
        row.sort(key=lambda cell: float(cell.values["temperature"]))
        yield from _row_of_cells(model, settings, row, begun[n], advance)


def _row_of_cells(
    model: Model,
    settings: dict[str, Any],
    cells: Sequence[Cell],
    begun: tuple[Tensor, Tensor],
    advance: Advance | None,
) -> Iterator[tuple[Cell, Result]]:
    """The cells of one length, all their pairs in one batch: rows of one length need no filling."""
    rows = [(cell, number) for cell in cells for number in range(settings["pairs"])]
    starts = [pair for cell in cells for pair in begin_pairs(*begun, settings, cell)]
    left, right, free = (
        torch.stack(list(part)).to(model.state_device) for part in zip(*starts, strict=True)
    )
    steps = steps_of(settings, begun[0].shape[1])
    found = finished(
        model.conditionals(),
        left,
        right,
        free=free,
        temperature=torch.tensor([cell.values["temperature"] for cell, _ in rows]).double(),
        seed=torch.tensor([cell.seed(settings["seed"]) for cell, _ in rows]),
        pair=torch.tensor([number for _, number in rows]),
        steps=steps,
        coupling=settings["coupling"],
        batch_size=None if model.device.type == "cuda" else BATCH,
        every=steps,  # no distances between
        advance=advance,
    )
    yield from _by_cell(cells, rows, found, settings)


def steps_of(settings: dict[str, Any], length: int) -> int:
    """Steps that a pair of that length may take."""
    sweeps = settings["sweeps"]
    return int(settings["steps"]) if sweeps is None else int(sweeps) * length


def some_texts(
    model: Model, texts: Any, length: int, *, unknown: str | None = None
) -> tuple[Tensor, Tensor]:
    """Tokens and free sites (texts, length) of the texts that are long enough, cut to it."""
    corpus = read_texts(bundled_texts(model) if texts is None else texts, unknown=unknown).sound()
    rows = [row for row in corpus.rows if model.vocabulary.count(row.text) >= length]
    long = Corpus(rows, unknown=corpus.unknown)
    if len(long) < 2:
        raise GlauberError(
            f"a pair needs two different texts of {length} tokens or more, but there is "
            f"{'one' if long else 'none'}."
        )
    return different_texts(*starts(model, long, length=length))


def begin_pairs(
    tokens: Tensor, free: Tensor, settings: dict[str, Any], cell: Cell
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Left and right tokens and free sites (length,) of each pair of a cell: different texts."""
    seed = cell.seed(settings["seed"])
    chosen = pairs_of_texts(len(tokens), settings["pairs"], seed=seed).tolist()
    return ((tokens[left], tokens[right], free[left]) for left, right in chosen)


def _here(
    model: Model, settings: dict[str, Any], axes: dict[str, list[Any]]
) -> list[dict[str, Any]]:
    """All cells as one task in this process and in memory, in the grid's order."""
    cells = grid(axes)
    total = settings["pairs"] * sum(steps_of(settings, cell.values["length"]) for cell in cells)
    with track("steps of pairs", total) as advance:
        found = {
            cell.name: cell.values | result
            for cell, result in cells_of(model, settings, cells, advance)
        }
    return [found[cell.name] for cell in cells]


def _move(folder: Path, sweep: Sweep) -> None:
    """A folder that was begun on another device goes on on this one."""
    if not (folder / HEADER).is_file():
        return
    there = read_sweep(folder)
    if replace(there, arguments=there.arguments | {"device": sweep.arguments["device"]}) == sweep:
        header = parse_json((folder / HEADER).read_text(encoding="utf-8"))
        write_json(folder / HEADER, header | {"arguments": sweep.arguments})


def _checked(out: str | Path) -> Path:
    """The sweep's folder, if it can be one."""
    folder = Path(out)
    try:
        no_folder = folder.is_file() or folder.suffix in (".html", ".json", ".csv", ".png")
        if no_folder and not (folder / HEADER).exists():
            raise GlauberError(f"{out} cannot be the folder of a sweep: give another name.")
    except OSError as error:
        raise GlauberError(f"{out} cannot be written: {error.strerror or error}.") from error
    return folder


def _by_cell(
    cells: Sequence[Cell],
    rows: list[tuple[Cell, int]],
    found: Iterator[Finished],
    settings: dict[str, Any],
) -> Iterator[tuple[Cell, Result]]:
    """(cell, result) as soon as the last pair of a cell is finished."""
    waiting: dict[str, dict[int, tuple[int, bool]]] = {cell.name: {} for cell in cells}
    for one in found:
        cell, number = rows[one.row]
        known = waiting[cell.name]
        known[number] = (one.time, one.met)
        if len(known) == settings["pairs"]:
            pairs = [known[number] for number in sorted(known)]
            yield (
                cell,
                {
                    "steps": steps_of(settings, int(cell.values["length"])),
                    "times": [time for time, _ in pairs],
                    "met": [met for _, met in pairs],
                },
            )
