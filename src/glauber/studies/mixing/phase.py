"""The phase diagram: where in temperature and length a chain forgets its start.

A cell is (temperature, length): pairs of texts and noise of its own, so that cells are independent
and their shares can be combined in one likelihood. Coupled pairs run in each cell: the share
that met within the steps goes from 0 to 1 as the chain gets hotter. The crossover of a length
(studies/mixing/crossover.py) is the temperature at which half of its pairs meet.

A fixed number of steps is fewer sweeps for a longer text, so that a crossover that moves to higher
temperatures with length may only say that longer texts were given less. Each cell keeps the times
of its pairs, so the same pairs answer at equal steps and at equal sweeps: pairs that met later than
the smaller budget count as not met.

The cells run in this process, or as a sweep: a folder that keeps each finished cell, and workers.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from glauber.dynamics.coupled import (
    MOST_STEPS,
    coupled,
    pairs_at_once,
    run_until_met,
    start_pairs,
)
from glauber.foundation.checks import Whole
from glauber.foundation.disk import write_json
from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import Record, parse_json
from glauber.foundation.parameters import (
    ModelOrName,
    Seed,
    Texts,
    Where,
    WhereAndDtype,
    check_temperatures,
)
from glauber.foundation.progress import Advance, check_memory, counter, say, track
from glauber.foundation.statistics import (
    MIN_CHAINS,
    Estimate,
    MedianTime,
    mean_over_chains,
    median_time,
    proportion,
)
from glauber.foundation.study import Result, reported, study
from glauber.foundation.tables import table
from glauber.models.base import Conditionals, Model
from glauber.models.load import check_name, load
from glauber.models.weights import choose_dtype
from glauber.sampling.sweeps.executors import Result as CellResult
from glauber.sampling.sweeps.executors import Work, choose_executor, run_sweep
from glauber.sampling.sweeps.folder import HEADER, Cell, Sweep, begin, grid, read_sweep
from glauber.studies.mixing.couple import CouplingName, distinct_texts, pairs_of_texts
from glauber.studies.mixing.crossover import (
    Crossover,
    CrossoverScaling,
    Ends,
    ends_text,
    fit_crossover,
    fit_exponents,
)
from glauber.studies.mixing.influence import measure_influence, sampled_contexts
from glauber.texts.read import Corpus
from glauber.texts.starts import bundled_texts, read_texts, starts

PICTURE = "phase.html"
CONTEXTS = 4  # of a text whose contraction threshold is measured
BATCH = 64  # pairs that move at a time on a CPU; a GPU takes as many as fit
STUDY = "phase"
Settings = dict[str, Any]  # that all cells share, as the folder of a sweep stores them
Axes = dict[str, list[Any]]  # of the grid: length and temperature


@study
def phase(
    model: ModelOrName = "bundled:english",
    texts: Texts = None,
    *,
    temperatures: Annotated[
        Sequence[float], "Temperatures, such as 0.5,1,2.", check_temperatures
    ] = (0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5),
    lengths: Annotated[Sequence[int], "Tokens of a text, such as 6,10,16.", Whole(1, 10**6)] = (
        6,
        10,
        16,
    ),
    pairs: Annotated[int, "Pairs of texts in each cell.", Whole()] = 12,
    steps: Annotated[int, "Steps that a pair may take to meet.", Whole(1, MOST_STEPS)] = 400,
    sweeps: Annotated[
        int | None, "Steps in multiples of the length, instead of --steps.", Whole(1, MOST_STEPS)
    ] = None,
    coupling: CouplingName = "maximal",
    thresholds: Annotated[
        int,
        "Texts of each length whose contraction threshold is compared with the crossover.",
        Whole(0, 10**6),
    ] = 0,
    threshold_lengths: Annotated[
        Sequence[int] | None, "Lengths of these texts; the work grows as its cube (default: all)."
    ] = None,
    seed: Seed = 0,
    on: Annotated[str, "local, processes or ray."] = "local",
    workers: Annotated[int | None, "Workers (default: one a core)."] = None,
    address: Annotated[
        str | None, "Address of a Ray cluster (default: one of this machine)."
    ] = None,
    out: Annotated[
        str | Path | None, "Folder that stores each finished cell; an existing one is resumed."
    ] = None,
    **where: Unpack[WhereAndDtype],
) -> "Phase":
    """Find where in temperature and length two chains meet, how fast, and where the boundary is.

    The coupling figure of paper A: the share of pairs that met within the steps and their median
    time (Kaplan and Meier) over temperature and length, the temperature at which half of the pairs
    of a length meet, and how it changes with length: at equal steps and at equal sweeps, from the
    same pairs. All are estimates with 95% intervals. Each cell has pairs of texts of its own.
    With thresholds, the temperature above which the contraction theorem speaks is measured on
    texts of each length (see influence) and divided by the crossover.
    """
    axes: Axes = {"length": list(lengths), "temperature": list(temperatures)}
    settings: Settings = {
        "texts": texts,
        "pairs": pairs,
        "steps": steps,
        "sweeps": sweeps,
        "seed": seed,
        "coupling": coupling,
        "device": where.get("device", "auto"),
        "dtype": where.get("dtype", "float32"),
    }
    choose_dtype(where.get("dtype", "float32"), exact=True)
    n_cells = len(grid(axes))
    if missing := set(threshold_lengths or ()) - set(lengths):
        raise GlauberError(
            f"thresholds of {min(missing)} tokens are asked for, but no cell has so many."
        )
    memory = n_cells * pairs * (40 * max(lengths) + 400)
    check_memory(memory, f"{n_cells * pairs:,} pairs of chains")
    most = max(_steps_of(settings, length) for length in lengths)
    say(f"{n_cells} cells of {pairs:,} pairs, at most {most:,} steps each")
    cells = run_cells(
        model, settings, axes, on=on, workers=workers, address=address, out=out, where=where
    )
    diagram = phase_diagram(cells)
    ratios = []
    if thresholds:
        loaded_model = load(model, **where)
        for crossover in diagram.crossovers:
            if crossover.length in (threshold_lengths or lengths):
                measured = contraction_thresholds(
                    loaded_model, texts, crossover.length, n_texts=thresholds, seed=seed
                )
                ratios.append(threshold_ratio(measured, crossover))
    name = getattr(model, "name", None) or type(model).__name__
    answer = Phase(
        **vars(diagram),
        ratios=tuple(ratios),
        model=model if isinstance(model, str) else str(name),
        folder=None if out is None else str(out),
    )
    if out is not None:
        from glauber.interfaces.report.page import write_picture

        write_picture(answer.figure(), path=Path(out) / PICTURE)
    return answer


@dataclass(frozen=True)
class PhaseCell:
    """Pairs at one temperature and length."""

    temperature: float
    length: int
    steps: int
    times: tuple[int, ...]  # (pairs,) the step at which a pair met, or the last one
    met: tuple[bool, ...]  # (pairs,) False: censored

    @reported
    def chance(self) -> Estimate:
        """The chance to meet within the steps."""
        return proportion(sum(self.met), len(self.met))

    @property
    def share(self) -> float:
        """The share of pairs that met within the steps."""
        return self.chance.value

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the chance to meet."""
        return self.chance.interval or (0.0, 1.0)

    @reported
    def median(self) -> MedianTime:
        """The median time to meet, with the censored pairs included."""
        return median_time(self.times, self.met)

    @property
    def median_sweeps(self) -> float | None:
        """The same median in steps for each token."""
        median = self.median.value
        return None if median is None else median / self.length

    @property
    def short(self) -> str:
        """Pairs that met, and their median time where half did."""
        median = self.median.value
        time = "" if median is None else f", {median:,.0f}"
        return f"{sum(self.met)}/{len(self.met)}{time}"

    def truncated_at(self, steps: int) -> "PhaseCell":
        """The same pairs, had they been stopped after so many steps."""
        met = tuple(m and time <= steps for m, time in zip(self.met, self.times, strict=True))
        times = tuple(min(time, steps) for time in self.times)
        return PhaseCell(self.temperature, self.length, min(self.steps, steps), times, met)


@dataclass(frozen=True)
class Boundary:
    """The crossover of each length, where every length has the same budget."""

    equal: Literal["steps", "sweeps"]
    budget: float  # steps, or steps for each token
    crossovers: tuple[Crossover, ...]
    scaling: (
        CrossoverScaling | None
    )  # None: fewer than two lengths, or no length shows its crossover

    def truncate(self, cell: PhaseCell) -> PhaseCell:
        """The cell within this budget."""
        steps = self.budget if self.equal == "steps" else self.budget * cell.length
        # A hair more, so that 400 / 7 sweeps of 7 tokens are 400 steps.
        return cell.truncated_at(int(steps + 1e-6))

    @reported
    def verdict(self) -> str:
        """Whether the boundary moves to higher temperatures as texts get longer."""
        rises = None if self.scaling is None else self.scaling.rises
        return {True: "rises", False: "falls", None: "cannot tell"}[rises]

    @property
    def line(self) -> str:
        unit = "steps" if self.equal == "steps" else "steps a token"
        head = f"at equal {self.equal} ({self.budget:,.4g} {unit})"
        if self.scaling is None:
            return f"{head}: too few lengths show a crossover to say how it changes with length"
        growth = self.scaling
        if growth.rise_interval == (None, None):
            return f"{head}: so few pairs bound no change of the crossover with length"
        verdicts = {"rises": "it rises with length", "falls": "it falls with length"}
        low, high = growth.sharpening_interval
        width = "is not bounded"
        if (low, high) != (None, None):
            ends = ends_text((None if high is None else -high, None if low is None else -low))
            width = f"as n^{-growth.sharpening:.2f} ({ends})"
        return (
            f"{head} the crossover temperature goes as n^{growth.rise:.2f} "
            f"({ends_text(growth.rise_interval)}): {verdicts.get(self.verdict, self.verdict)}; "
            f"its width {width}; estimates, 95%"
        )


@dataclass(frozen=True)
class ThresholdRatio:
    """How far above the measured crossover the contraction theorem begins to speak.

    The thresholds are of suprema over sampled contexts, so they and the ratio err to the low side.
    """

    length: int
    thresholds: tuple[float, ...]  # of some texts of that length
    threshold: float  # their geometric mean
    ratio: float | None  # to the crossover temperature; None where one of the two is not known
    interval: Ends
    kind: str = "estimate, too low if anything"

    @property
    def line(self) -> str:
        head = f"{self.length} tokens: contraction threshold {self.threshold:.3g}"
        if self.ratio is None:
            return f"{head} ({self.kind}), and no crossover to set it against"
        sure = (
            "" if self.interval == (None, None) else f", {ends_text(self.interval, '.3g')} at 95%"
        )
        return f"{head}, {self.ratio:.3g} times the crossover temperature ({self.kind}{sure})"


@dataclass(frozen=True)
class PhaseDiagram:
    """All cells, and the boundary at equal steps and at equal sweeps."""

    cells: tuple[PhaseCell, ...]
    at_steps: Boundary
    at_sweeps: Boundary

    @property
    def boundary(self) -> Boundary:
        """The one of the budget that the pairs were given."""
        is_complete = all(cell.steps == self.at_steps.budget for cell in self.cells)
        return self.at_steps if is_complete else self.at_sweeps

    @property
    def crossovers(self) -> tuple[Crossover, ...]:
        """Where pairs begin to meet, for each length."""
        return self.boundary.crossovers

    @property
    def scaling(self) -> CrossoverScaling | None:
        """How that temperature goes with the length."""
        return self.boundary.scaling

    @property
    def temperatures(self) -> list[float]:
        """Of the cells, each once."""
        return sorted({cell.temperature for cell in self.cells})

    @property
    def lengths(self) -> list[int]:
        """Of the cells, each once."""
        return sorted({cell.length for cell in self.cells})

    def cell(self, temperature: float, length: int) -> PhaseCell | None:
        """The cell at a temperature and length, if it was run."""
        cells = (c for c in self.cells if (c.temperature, c.length) == (temperature, length))
        return next(cells, None)


@dataclass(frozen=True)
class Phase(PhaseDiagram, Result):
    """The phase diagram of a model: where in temperature and length two chains meet."""

    ratios: tuple[ThresholdRatio, ...]  # one for each length, if they were asked for
    model: str
    folder: str | None  # that stores the cells

    FIGURES = {"phase": "glauber.interfaces.plots.mixing:plot_phase"}

    def lines(self) -> Iterable[str]:
        yield "pairs that met, and their median steps, by tokens (down) and temperature (across)"
        rows = []
        for n in self.lengths:
            cells = {f"{t:g}": self.cell(t, n) for t in self.temperatures}
            rows.append({"tokens": n} | {t: "" if c is None else c.short for t, c in cells.items()})
        yield from table(rows)
        for crossover in self.crossovers:
            yield _crossover_line(crossover)
        if len(self.lengths) > 1:
            yield from (self.at_steps.line, self.at_sweeps.line)
        yield from (ratio.line for ratio in self.ratios)
        if self.folder is not None:
            yield f"the cells are stored in {self.folder}, with the picture {PICTURE}"

    def table(self) -> Iterator[dict[str, object]]:
        """One row per cell."""
        for cell in self.cells:
            yield {
                "length": cell.length,
                "temperature": cell.temperature,
                "steps": cell.steps,
                "pairs": len(cell.met),
                "met": sum(cell.met),
                "share": cell.chance,
                "median_time": cell.median.value,
                "median_sweeps": cell.median_sweeps,
            }


def phase_diagram(results: Iterable[Settings]) -> PhaseDiagram:
    """The diagram of cells given as temperature, length, steps, times and met."""
    cells = tuple(
        PhaseCell(
            float(result["temperature"]),
            int(result["length"]),
            int(result["steps"]),
            tuple(result["times"]),
            tuple(result["met"]),
        )
        for result in results
    )
    if not cells:
        raise GlauberError("no cell is finished yet, so there is nothing to draw.")
    steps = min(cell.steps for cell in cells)
    sweeps = min(cell.steps / cell.length for cell in cells)
    return PhaseDiagram(cells, _boundary("steps", steps, cells), _boundary("sweeps", sweeps, cells))


def _boundary(
    equal: Literal["steps", "sweeps"], budget: float, cells: Sequence[PhaseCell]
) -> Boundary:
    """The crossovers of all lengths within an equal budget."""
    boundary = Boundary(equal, budget, (), None)
    truncated = [boundary.truncate(cell) for cell in cells]
    temperatures = [cell.temperature for cell in cells]
    ends = (min(temperatures), max(temperatures))
    fits = []
    for n in sorted({cell.length for cell in cells}):
        row = [cell for cell in truncated if cell.length == n]
        met = [(sum(cell.met), len(cell.met)) for cell in row]
        fits.append(fit_crossover(n, [cell.temperature for cell in row], met, ends=ends))
    crossovers = tuple(fitted.crossover for fitted in fits)
    seen = any(crossover.temperature is not None for crossover in crossovers)
    growth = fit_exponents(fits) if seen and len(fits) > 1 else None
    return replace(boundary, crossovers=crossovers, scaling=growth)


def threshold_ratio(thresholds: Sequence[float], crossover: Crossover) -> ThresholdRatio:
    """The ratio of the thresholds' geometric mean to the crossover, with its interval.

    On the log scale the two intervals, Student's over texts and the profile likelihood's, are put
    together by their squares on each side (the method of variance estimates recovery).
    """
    measured = (crossover.length, tuple(thresholds))
    if crossover.temperature is None or not all(0 < value < np.inf for value in thresholds):
        return ThresholdRatio(*measured, float(np.median(thresholds)), None, (None, None))
    mean, middle = mean_over_chains(np.log(thresholds)), float(np.log(crossover.temperature))
    few = len(thresholds) < MIN_CHAINS or mean.interval is None
    low, high = (-np.inf, np.inf) if few else mean.interval or (-np.inf, np.inf)
    cold, hot = (None if end is None else float(np.log(end)) for end in crossover.interval)
    ends: list[float | None] = [None, None]
    if np.isfinite(low) and hot is not None:
        ends[0] = float(np.exp(mean.value - middle - np.hypot(mean.value - low, hot - middle)))
    if np.isfinite(high) and cold is not None:
        ends[1] = float(np.exp(mean.value - middle + np.hypot(high - mean.value, middle - cold)))
    ratio = float(np.exp(mean.value - middle))
    return ThresholdRatio(*measured, float(np.exp(mean.value)), ratio, (ends[0], ends[1]))


def run_cells(
    model: str | Conditionals,
    settings: Settings,
    axes: Axes,
    *,
    on: str,
    workers: int | None,
    address: str | None,
    out: str | Path | None,
    where: Where,
) -> list[Record]:
    """Every cell's temperature, length, steps, times and met, in the grid's order."""
    executor = choose_executor(on, workers=workers, address=address)
    if out is None and on == "local":
        return _run_here(load(model, exact=True, **where), settings, axes)
    if where.get("trust_remote_code") or not isinstance(model, str):
        raise GlauberError(
            "a folder and workers need a model by its name, without code of its own: leave out "
            "and on at their defaults to run such a model in this process."
        )
    check_name(model)
    texts = None if settings["texts"] is None else read_texts(settings["texts"]).sound()
    if texts is not None and texts.unknown != "skip":
        settings["unknown"] = texts.unknown
    plain_texts = None if texts is None else texts.plain()
    arguments = settings | {"model": model, "texts": plain_texts}
    sweep = Sweep(STUDY, arguments, axes)
    with ExitStack() as stack:
        if out is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="glauber-")))
        else:
            folder = _sweep_folder(out)
        _move(folder, sweep)
        begin(folder, sweep)
        with track("cells", len(sweep.cells)) as advance:
            work, progress = partial(open_cells, arguments), counter(advance)
            return list(run_sweep(folder, work, executor=executor, progress=progress).values())


def open_cells(settings: Settings) -> Work:
    """The work over (temperature, length) cells, in a worker.

    settings: model, device, dtype, texts (None: the bundled passages), pairs, steps or sweeps
    (steps in multiples of the length), seed, coupling.
    """
    loaded_model = load(settings["model"], device=settings["device"], dtype=settings["dtype"])
    return lambda cells: cells_of(loaded_model, settings, cells)


def cells_of(
    model: Model,
    settings: Settings,
    cells: Sequence[Cell],
    advance: Advance = lambda *_, **__: None,
) -> Iterator[tuple[Cell, CellResult]]:
    """(cell, result) of each cell as soon as its last pair is finished, length by length."""
    lengths = sorted({int(cell.values["length"]) for cell in cells})
    unknown = settings.get("unknown")
    corpora = {n: some_texts(model, settings["texts"], n, unknown=unknown) for n in lengths}
    for n in lengths:
        row = [cell for cell in cells if int(cell.values["length"]) == n]
        row.sort(key=lambda cell: float(cell.values["temperature"]))
        yield from _run_length(model, settings, row, *corpora[n], advance)


def _run_length(
    model: Model,
    settings: Settings,
    cells: Sequence[Cell],
    tokens: Tensor,
    free: Tensor,
    advance: Advance,
) -> Iterator[tuple[Cell, CellResult]]:
    """The cells of one length: all their pairs are one batch, which needs no filling.

    Each cell has texts, numbers and noise of its own.
    """
    n_pairs, device = settings["pairs"], model.state_device
    seeds = [cell.seed(settings["seed"]) for cell in cells]
    numbers = torch.cat([pairs_of_texts(len(tokens), n_pairs, seed=seed) for seed in seeds])
    temperatures = torch.tensor([float(cell.values["temperature"]) for cell in cells]).double()
    pairs = start_pairs(
        tokens[numbers[:, 0]].to(device),
        tokens[numbers[:, 1]].to(device),
        free[numbers[:, 0]].to(device),
        temperature=temperatures.repeat_interleave(n_pairs),
        pair=torch.arange(n_pairs).repeat(len(cells)),
    )
    conditionals, steps = model.conditionals(), _steps_of(settings, cells[0].values["length"])
    meetings = run_until_met(
        coupled(conditionals, settings["coupling"]),
        pairs,
        steps,
        seed=torch.tensor(seeds).repeat_interleave(n_pairs),
        batch_size=pairs_at_once(conditionals, device) if device.type == "cuda" else BATCH,
        advance=advance,
    )
    finished: list[list[tuple[int, int, bool]]] = [[] for _ in cells]
    for pair, time, met in meetings:
        index, number = divmod(pair, n_pairs)
        finished[index].append((number, time, met))
        if len(finished[index]) == n_pairs:
            _, times, all_met = zip(*sorted(finished[index]), strict=True)
            yield cells[index], {"steps": steps, "times": list(times), "met": list(all_met)}


def _steps_of(settings: Settings, length: int) -> int:
    """Steps that a pair of that length may take."""
    sweeps = settings["sweeps"]
    return int(settings["steps"]) if sweeps is None else int(sweeps) * length


def some_texts(
    model: Model, texts: Texts, length: int, *, unknown: str | None = None
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
    return distinct_texts(*starts(model, long, length=length))


def _run_here(model: Model, settings: Settings, axes: Axes) -> list[Record]:
    """All cells as one task in this process and in memory, in the grid's order."""
    cells = grid(axes)
    total = settings["pairs"] * sum(_steps_of(settings, cell.values["length"]) for cell in cells)
    with track("steps of pairs", total) as advance:
        results = {
            cell.name: cell.values | result
            for cell, result in cells_of(model, settings, cells, advance)
        }
    return [results[cell.name] for cell in cells]


def _move(folder: Path, sweep: Sweep) -> None:
    """A folder that was started on another device is resumed on this one."""
    if not (folder / HEADER).is_file():
        return
    stored = read_sweep(folder)
    arguments = stored.arguments | {"device": sweep.arguments["device"]}
    if replace(stored, arguments=arguments) == sweep:
        header = parse_json((folder / HEADER).read_text(encoding="utf-8"))
        write_json(folder / HEADER, header | {"arguments": sweep.arguments})


def _sweep_folder(out: str | Path) -> Path:
    """The sweep's folder, if it can be one."""
    folder = Path(out)
    try:
        no_folder = folder.is_file() or folder.suffix in (".html", ".json", ".csv", ".png")
        if no_folder and not (folder / HEADER).exists():
            raise GlauberError(f"{out} cannot be the folder of a sweep: give another name.")
    except OSError as error:
        raise GlauberError(f"{out} cannot be written: {error.strerror or error}.") from error
    return folder


def _crossover_line(crossover: Crossover) -> str:
    head = f"{crossover.length} tokens: half of the pairs meet at"
    if crossover.temperature is None:
        return f"{head} a temperature {crossover.label} (95%)"
    return (
        f"{head} temperature {crossover.label}, width in log temperature {crossover.width:.2g} "
        f"({ends_text(crossover.width_interval, '.2g')}); estimates, 95%"
    )


def contraction_thresholds(
    model: Model, texts: Texts, length: int, *, n_texts: int, seed: int
) -> list[float]:
    """The contraction thresholds of some texts of that length, from contexts at temperature 1."""
    tokens, free = (part.to(model.state_device) for part in some_texts(model, texts, length))
    conditionals, thresholds = model.conditionals(), []
    say(f"contraction thresholds of {n_texts} texts of {length} tokens")
    for row in pairs_of_texts(len(tokens), n_texts, seed=seed)[:, 0].tolist():
        contexts = sampled_contexts(
            conditionals, tokens[row], free[row], n_contexts=CONTEXTS, seed=seed
        )
        thresholds.append(measure_influence(conditionals, contexts).threshold)
    return thresholds
