"""At which temperature does a text of that length begin to forget its start?

Coupled pairs at each (temperature, length): the share that met within the steps goes from 0 to 1 as
the chain gets hotter. The crossover of a length (mixing/crossover.py) is where half of them meet.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from glauber.conditionals.base import Conditionals, Model, check_temperature
from glauber.conditionals.load import load
from glauber.errors import GlauberError
from glauber.mixing.boundary import (
    Boundary,
    PhaseDiagram,
    ThresholdRatio,
    over_crossover,
    phase_diagram,
)
from glauber.mixing.contexts import sampled_contexts
from glauber.mixing.crossover import Crossover, shown
from glauber.mixing.influence_matrix import measure_influence
from glauber.mixing.pairs import joint_draw_named, pairs_of_texts
from glauber.mixing.phase_cells import run_cells, some_texts
from glauber.parameters import Device, Dtype, ModelOrName, Seed, Texts, Trust
from glauber.progress import check_count, check_memory, check_seed, say
from glauber.result import Result, plain, signature, study
from glauber.sweeps.folder import grid
from glauber.tables import table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

STEPS = 10**12  # more than anybody waits for
PICTURE = "phase.html"
CONTEXTS = 4  # of a text whose contraction threshold is measured


@study
def phase(
    model: ModelOrName = "bundled:english",
    texts: Texts = None,
    *,
    temperatures: Annotated[Sequence[float], "Temperatures, such as 0.5,1,2."] = (
        0.5,
        1.0,
        1.25,
        1.5,
        1.75,
        2.0,
        2.5,
    ),
    lengths: Annotated[Sequence[int], "Tokens of a text, such as 6,10,16."] = (6, 10, 16),
    pairs: Annotated[int, "Pairs of texts in each cell."] = 12,
    steps: Annotated[int, "Steps that a pair may take to meet."] = 400,
    sweeps: Annotated[int | None, "Steps in multiples of the length, instead of --steps."] = None,
    coupling: Annotated[str, "maximal, inverse-cdf or gumbel-max."] = "maximal",
    thresholds: Annotated[
        int, "Texts of each length whose contraction threshold is set against the crossover."
    ] = 0,
    threshold_lengths: Annotated[
        Sequence[int] | None, "Lengths of these texts; the work grows as its cube (default: all)."
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
    on: Annotated[str, "local, processes or ray."] = "local",
    workers: Annotated[int | None, "Workers (default: one a core)."] = None,
    address: Annotated[
        str | None, "Address of a Ray cluster (default: one of this machine)."
    ] = None,
    out: Annotated[
        str | Path | None, "Folder that keeps each finished cell; an existing one is resumed."
    ] = None,
) -> "Phase":
    """Find where in temperature and length two chains meet, how fast, and where the boundary is.

    The coupling figure of paper A: the share of pairs that met within the steps and their median
    time (Kaplan and Meier) over temperature and length, the temperature at which half of the pairs
    of a length meet, and how it changes with length: at equal steps and at equal sweeps, from the
    same pairs. All are estimates with 95% intervals. Each cell has pairs of texts of its own.
    With thresholds, the temperature above which the contraction theorem speaks is measured on
    texts of each length (see influence) and divided by the crossover.
    """  # fmt: skip
    axes: dict[str, list[Any]] = {"length": list(lengths), "temperature": list(temperatures)}
    settings = {
        "texts": texts, "pairs": pairs, "steps": steps, "sweeps": sweeps, "seed": seed,
        "coupling": coupling, "device": device, "dtype": dtype,
    }  # fmt: skip
    _check(settings, axes)
    check_count("number of thresholds", thresholds, least=0, most=10**6)
    if missing := set(threshold_lengths or ()) - set(lengths):
        raise GlauberError(
            f"thresholds of {min(missing)} tokens are asked for, but no cell has so many."
        )
    n_cells = len(axes["length"]) * len(axes["temperature"])
    say(f"{n_cells} cells of {pairs:,} pairs, at most {_most(settings, axes):,} steps each")
    found = run_cells(
        model, settings, axes, on=on, workers=workers, address=address, out=out,
        trust_remote_code=trust_remote_code,
    )  # fmt: skip
    name = model if isinstance(model, str) else _name(model)
    made = signature(
        model=name, pairs=pairs, steps=steps if sweeps is None else None, sweeps=sweeps,
        coupling=coupling, dtype=dtype, seed=seed,
    )  # fmt: skip
    diagram = phase_diagram(found)
    ratios = []
    if thresholds:
        opened = load(model, device=device, dtype=dtype, trust_remote_code=trust_remote_code)
        chosen = threshold_lengths or lengths
        for one in (each for each in diagram.crossovers if each.length in chosen):
            measured = _thresholds(opened, texts, one.length, n_texts=thresholds, seed=seed)
            ratios.append(over_crossover(measured, one))
    answer = Phase(
        **vars(diagram), ratios=tuple(ratios), name=name,
        folder=None if out is None else str(out), signature=made,
    )  # fmt: skip
    if out is not None:
        from glauber.figures.page import write_picture

        write_picture(answer.figure(), path=Path(out) / PICTURE)
    return answer


@dataclass(frozen=True)
class Phase(PhaseDiagram, Result):
    """The phase diagram of a model: where in temperature and length two chains meet."""

    ratios: tuple[ThresholdRatio, ...]  # one for each length, if they were asked for
    name: str  # of the model
    folder: str | None  # that keeps the cells
    signature: str

    def to_dict(self) -> dict[str, Any]:
        cells = [
            asdict(cell)
            | {"share": cell.share, "interval": cell.interval, "median": asdict(cell.median)}
            for cell in self.cells
        ]
        record = {
            "model": self.name,
            "cells": cells,
            "crossovers": self.crossovers,
            "scaling": self.scaling,
            "equal_steps": _record(self.at_steps),
            "equal_sweeps": _record(self.at_sweeps),
            "threshold_over_crossover": self.ratios,
            "folder": self.folder,
            "signature": self.signature,
        }
        return dict(plain(record))

    def lines(self) -> Iterable[str]:
        yield "pairs that met, and their median steps, by tokens (down) and temperature (across)"
        rows = []
        for n in self.lengths:
            found = {f"{t:g}": self.cell(t, n) for t in self.temperatures}
            rows.append({"tokens": n} | {t: "" if c is None else c.short for t, c in found.items()})
        yield from table(rows)
        for one in self.crossovers:
            yield _crossover_line(one)
        if len(self.lengths) > 1:
            yield from (self.at_steps.line, self.at_sweeps.line)
        yield from (one.line for one in self.ratios)
        if self.folder is not None:
            yield f"the cells are kept in {self.folder}, with the picture {PICTURE}"

    def frame(self) -> "pandas.DataFrame":
        """One row per cell."""
        import pandas

        rows = [
            {
                "length": cell.length, "temperature": cell.temperature, "steps": cell.steps,
                "pairs": len(cell.met), "met": sum(cell.met), "share": cell.share,
                "low": cell.interval[0], "high": cell.interval[1],
                "median_time": cell.median.value,
                "median_sweeps": cell.median_sweeps,
            }
            for cell in self.cells
        ]  # fmt: skip
        return pandas.DataFrame(rows)

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.mixing import plot_phase

        return {"phase": plot_phase(self)}


def _crossover_line(one: Crossover) -> str:
    if one.temperature is None:
        return f"{one.length} tokens: half of the pairs meet at a temperature {one.label} (95%)"
    return (
        f"{one.length} tokens: half of the pairs meet at temperature {one.label}, width in log "
        f"temperature {one.width:.2g} ({shown(one.width_interval, '.2g')}); estimates, 95%"
    )


def _thresholds(model: Model, texts: Any, length: int, *, n_texts: int, seed: int) -> list[float]:
    """The contraction thresholds of some texts of that length, from contexts at temperature 1."""
    tokens, free = (part.to(model.state_device) for part in some_texts(model, texts, length))
    chosen = pairs_of_texts(len(tokens), n_texts, seed=seed)[:, 0].tolist()
    conditionals, found = model.conditionals(), []
    say(f"contraction thresholds of {n_texts} texts of {length} tokens")
    for row in chosen:
        contexts = sampled_contexts(
            conditionals, tokens[row], free[row], n_contexts=CONTEXTS, seed=seed
        )
        found.append(measure_influence(conditionals, contexts).threshold)
    return found


def _record(found: Boundary) -> dict[str, Any]:
    return asdict(found) | {"verdict": found.verdict}


def _name(model: Conditionals) -> str:
    return str(getattr(model, "name", "")) or type(model).__name__


def _most(settings: dict[str, Any], axes: dict[str, list[Any]]) -> int:
    """Steps of the longest cell."""
    if settings["sweeps"] is None:
        return int(settings["steps"])
    return int(settings["sweeps"]) * max(axes["length"])


def _check(settings: dict[str, Any], axes: dict[str, list[Any]]) -> None:
    """Refuses what no cell could use, before a model is loaded."""
    joint_draw_named(settings["coupling"])
    check_seed(settings["seed"])
    grid(axes)
    for temperature in axes["temperature"]:
        check_temperature(temperature)
    for length in axes["length"]:
        check_count("length", length, most=10**6)
    check_count("number of pairs", settings["pairs"])
    check_count("number of steps", settings["steps"], most=STEPS)
    if settings["sweeps"] is not None:
        check_count("number of sweeps", settings["sweeps"], most=STEPS)
    n_pairs = settings["pairs"] * len(axes["length"]) * len(axes["temperature"])
    check_memory(n_pairs * (40 * max(axes["length"]) + 400), f"{n_pairs:,} pairs of chains")
