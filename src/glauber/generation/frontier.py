"""What do fewer passes cost in quality, and does correction pay for its passes?

A masked model writes in few passes or in many. Fewer are faster and, because tokens filled at once
do not see each other, worse (paper B). Every schedule is measured at every number of passes, with
and without sweeps of correction, and corrected texts are compared with uncorrected ones of the
same cost: a pass is one row through the model, whether it fills or revises.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from glauber.conditionals.base import Conditionals, check_temperature
from glauber.dynamics.candidates import ORDERS
from glauber.dynamics.schedules import COUNTS, REMASKS
from glauber.generation.frontier_cells import (
    Cell,
    Counted,
    as_json,
    by_text,
    equal_costs,
    everything_hidden,
    named,
    people,
    plans,
    rows_of,
    with_judge,
    written,
)
from glauber.generation.quality import open_judge
from glauber.generation.writing import open_masked
from glauber.json_text import Record
from glauber.parameters import Device, Dtype, ModelOrName, Seed, Temperature, Texts, Trust
from glauber.progress import check_count, check_memory, check_seed, say, track
from glauber.result import Result, model_parts, plain, signature, study
from glauber.statistics import Estimate, mean_over_chains
from glauber.tables import table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

SHOWN = 2  # texts of each cell that are printed
NO_JUDGE = "no judge was given, so nothing is said about how likely the texts are"


@study
def frontier(
    model: ModelOrName = "bundled:english",
    texts: Texts = None,
    *,
    passes: Annotated[
        Sequence[int] | None, "Passes that fill a text (default: 1, 2, 4, … up to its length)."
    ] = None,
    orders: Annotated[str | Sequence[str], f"Of {', '.join(ORDERS)}."] = ("confidence", "random"),
    counts: Annotated[str | Sequence[str], f"Of {COUNTS}."] = ("linear",),
    remask: Annotated[str | Sequence[str], f"Of {REMASKS}."] = ("none",),
    correct: Annotated[Sequence[int], "Sweeps of correction at the end."] = (0, 1),
    correct_block: Annotated[
        int | None, "Tokens redrawn at once in a sweep (default: as many as a pass fills)."
    ] = None,
    length: Annotated[int, "Tokens of each text."] = 32,
    chains: Annotated[int, "Texts of each schedule."] = 32,
    judge: Annotated[
        str | Conditionals | None,
        "An autoregressive LM (folder, name or GGUF file) that says how likely the texts are.",
    ] = None,
    temperature: Temperature = 1.0,
    top_k: Annotated[int | None, "Draw among so many likeliest tokens only."] = None,
    top_p: Annotated[float | None, "Draw among the likeliest tokens with this mass only."] = None,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
) -> "Frontier":
    """Measure texts written in few and in many passes: likelihood, diversity and cost.

    Texts are written from nothing. Likelihood is that under the judge, without which there is
    none; diversity is the entropy of a text's tokens, distinct n-grams and self-BLEU. With the same
    seed, texts of the same number share their noise, so differences are paired. texts (the bundled
    passages, for English models) are measured beside them, cut to the same length.
    """
    check_count("length", length)
    check_count("number of texts", chains, least=2)
    check_temperature(temperature)
    check_seed(seed)
    hows = plans(
        passes, orders, counts, remask, correct, correct_block, length, top_k=top_k, top_p=top_p
    )
    check_memory(64.0 * chains * length * len(hows), f"{len(hows) * chains:,} texts")
    opened = open_masked(model, device=device, dtype=dtype, trust_remote_code=trust_remote_code)
    hidden = everything_hidden(opened, chains, length)
    known = people(opened, texts, chains, length)
    reader = None
    if judge is not None:
        reader = open_judge(judge, device=device, trust_remote_code=trust_remote_code)
    cost = chains * sum(rows_of(how, length) for how in hows)
    say(f"{len(hows)} schedules, about {cost:,} rows through the model")
    with track("rows", cost) as advance:
        asked = Counted(opened.conditionals(), advance)
        cells = [written(asked, opened, how, hidden, temperature, seed) for how in hows]
    cells += [] if known is None else [known]
    if reader is not None:
        say(f"{len(cells) * chains:,} texts through the judge")
        with track("schedules judged", len(cells)) as advance:
            cells = [with_judge(cell, reader, advance) for cell in cells]
    made = signature(
        **model_parts(opened), judge=None if reader is None else reader.name, length=length,
        chains=chains, temperature=float(temperature), top_k=top_k, top_p=top_p, seed=seed,
    )  # fmt: skip
    said_by = None if reader is None else reader.name
    return Frontier(cells, opened.name, said_by, length, float(temperature), made)


@dataclass(frozen=True)
class Gain:
    """A corrected schedule less an uncorrected one of the same kind, text by text."""

    corrected: Cell
    other: Cell
    nats_a_character: Estimate | None
    entropy: Estimate

    @property
    def equal(self) -> bool:
        """Whether both cost the same number of passes."""
        return self.corrected.cost == self.other.cost

    def to_dict(self) -> Record:
        return plain(
            {
                "schedule": self.corrected.schedule,
                "corrected": named(self.corrected),
                "uncorrected": named(self.other),
                "equal_cost": self.equal,
                "nats_a_character": self.nats_a_character,
                "entropy": self.entropy,
            }
        )

    def line(self) -> str:
        one, other = self.corrected, self.other
        assert one.how is not None and other.how is not None
        said = [f"entropy {self.entropy.text()}"]
        if self.nats_a_character is not None:
            said.insert(0, f"nats a character {self.nats_a_character.text()}")
        return (
            f"  {one.schedule}: {one.how.passes or 'its'} passes and {one.corrected} "
            f"(cost {one.cost:g}) less {other.how.passes or 'its'} passes (cost {other.cost:g}): "
            + ", ".join(said)
        )


@dataclass(frozen=True, eq=False)
class Frontier(Result):
    """Quality, diversity and cost of each schedule."""

    cells: list[Cell]
    model: str
    judge: str | None
    length: int
    temperature: float
    signature: str

    @property
    def gains(self) -> list[Gain]:
        """Each corrected schedule against the dearest uncorrected one that costs no more."""
        return [self._gain(one, other) for one, other in equal_costs(self.cells)]

    @property
    def own_gains(self) -> list[Gain]:
        """Each corrected schedule against itself without correction, which costs less."""
        written = [cell for cell in self.cells if cell.how is not None]
        plain_ones = {cell.how: cell for cell in written}
        return [
            self._gain(cell, plain_ones[before])
            for cell in written
            if cell.how is not None and cell.how.correct
            and (before := replace(cell.how, correct=0, correct_block=None)) in plain_ones
        ]  # fmt: skip

    def _gain(self, one: Cell, other: Cell) -> Gain:
        nats = None
        if one.judged is not None and other.judged is not None:
            nats = mean_over_chains(one.judged.a_character - other.judged.a_character)
        return Gain(one, other, nats, mean_over_chains(one.entropies - other.entropies))

    def to_dict(self) -> Record:
        return {
            "model": self.model,
            "judge": self.judge,
            "length": self.length,
            "temperature": self.temperature,
            "cells": [as_json(cell) for cell in self.cells],
            "at_equal_cost": [gain.to_dict() for gain in self.gains],
            "against_its_own_start": [gain.to_dict() for gain in self.own_gains],
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        yield (
            f"texts of {self.length} tokens, {len(self.cells[0].texts)} of each schedule; costs "
            "are exact, all else estimates (intervals in the JSON)"
        )
        yield NO_JUDGE if self.judge is None else f"judge: {self.judge}"
        yield from table([cell.row() for cell in self.cells])
        yield "corrected less uncorrected, at a cost that is no higher, text by text:"
        yield from [gain.line() for gain in self.gains] or ["  nothing was corrected"]
        yield "corrected less the same texts before:"
        yield from [gain.line() for gain in self.own_gains] or ["  nothing was corrected"]
        for cell in self.cells:
            yield f"{cell.schedule}, cost {cell.cost:g}{', corrected' * bool(cell.corrected)}:"
            yield from (f"  {text}" for text in cell.texts[:SHOWN])

    def frame(self) -> "pandas.DataFrame":
        """One row for each text."""
        import pandas

        return pandas.DataFrame([row for cell in self.cells for row in by_text(cell)])

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.frontier import plot_frontier, plot_quality_diversity

        pictures = {"frontier": plot_frontier(self)}
        if self.judge is not None:
            pictures["diversity"] = plot_quality_diversity(self)
        return pictures
