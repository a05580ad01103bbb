"""Which schedules are compared, what does each cost, and what did it write?"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from glauber.conditionals.base import Conditionals, Model, mask_token_of
from glauber.conditionals.starts import check_length, reads_english, starts
from glauber.conditionals.texts import Texts
from glauber.dynamics.kernel import start
from glauber.dynamics.schedules import count_named
from glauber.dynamics.unmasking import Unmasking, unmask
from glauber.errors import GlauberError
from glauber.generation.quality import Judged, distinct, judged, self_bleu, token_entropy
from glauber.generation.writing import check_passes
from glauber.json_text import Record
from glauber.progress import Advance, check_count
from glauber.result import plain
from glauber.statistics import Estimate, Floats, mean_over_chains

# Which schedules, and what each costs


def plans(
    passes: Sequence[int] | None,
    orders: str | Sequence[str],
    counts: str | Sequence[str],
    remask: str | Sequence[str],
    correct: Sequence[int],
    correct_block: int | None,
    length: int,
    **cuts: Any,
) -> list[Unmasking]:
    """Every combination; a count that is no plan has no passes of its own to choose."""
    numbers = _powers(length) if passes is None else list(passes)
    for number in numbers:
        check_count("number of passes", number)
    if not numbers or not list(correct):
        raise GlauberError("there is nothing to measure: a list of numbers is empty.")
    found = [
        Unmasking(order, count, number, None, again, **cuts, correct=sweeps,
                  correct_block=_block(count, number, correct_block, length) if sweeps else None)
        for order in _listed("order", orders, ",")
        for count in _listed("count", counts, ",")
        for again in _listed("remasking", remask, r",(?![\d.])")
        for number in (numbers if count_named(count).planned else [None])
        for sweeps in correct
    ]  # fmt: skip
    for how in found:
        how.check()
        check_passes(how, length)
    return found


def _powers(length: int) -> list[int]:
    """1, 2, 4, … and the length itself."""
    return [2**power for power in range(32) if 2**power < length] + [length]


def _listed(name: str, given: str | Sequence[str], comma: str) -> list[str]:
    """The names of a list; in a string they have commas between them."""
    names = re.split(comma, given) if isinstance(given, str) else [str(one) for one in given]
    kept = [one.strip() for one in names if one.strip()]
    if not kept:
        raise GlauberError(f"no {name} is named, so nothing can be written.")
    return kept


def _block(count: str, passes: int | None, given: int | None, length: int) -> int:
    """How many tokens a sweep redraws at once: as many as a pass fills, if nothing is said."""
    if given is not None:
        check_count("size of a corrected block", given)
        return given
    kind = count_named(count)
    if kind.planned:
        return math.ceil(length / (passes or length))
    return int(kind.value) if kind.kind == "number" else 1


def rows_of(how: Unmasking, length: int) -> int:
    """Rows that a text of so many tokens takes: its passes, and one for each group of a sweep.

    Exact for plans and numbers, and at most that for counts that look at the text.
    """
    fixed = how.counted.kind == "number"
    filling = math.ceil(length / how.counted.value) if fixed else how.passes or length
    return filling + how.correct * math.ceil(length / (how.correct_block or 1))


def equal_costs(cells: Sequence["Cell"]) -> list[tuple["Cell", "Cell"]]:
    """Each corrected cell with the dearest uncorrected one of its schedule that costs no more."""
    found = []
    for cell in cells:
        if cell.corrected:
            others = [
                one
                for one in cells
                if one.schedule == cell.schedule and not one.corrected and one.cost <= cell.cost
            ]
            if others:
                found.append((cell, max(others, key=lambda one: one.cost)))
    return found


# Texts


@dataclass(frozen=True, eq=False)
class Counted:
    """The same conditionals; every row that they are asked for is counted."""

    base: Conditionals
    advance: Advance

    @property
    def vocab_size(self) -> int:
        return self.base.vocab_size

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        self.advance(len(tokens))
        return self.base.scores(tokens, sites, candidates)


@dataclass(frozen=True, eq=False)
class Cell:
    """Texts written in one way, or (how is None) texts of people."""

    how: Unmasking | None
    n_rows: int  # through the model, for all texts together: counted, not planned
    rows: list[tuple[int, ...]]  # the tokens of each text
    texts: list[str]
    judged: Judged | None = None

    @property
    def cost(self) -> float:
        """Passes of a text: each is one row of it through the model. Exact."""
        return self.n_rows / len(self.texts)

    @property
    def schedule(self) -> str:
        """How it was filled, without the number of passes and the correction."""
        if self.how is None:
            return "texts of people"
        parts = [self.how.order, str(self.how.count), self.how.remask]
        return " ".join(part for part in parts if part != "none")

    @property
    def corrected(self) -> str:
        """The correction in words, empty if there is none."""
        if self.how is None or not self.how.correct:
            return ""
        return f"{self.how.correct} by {self.how.correct_block or 1}"

    @cached_property
    def entropies(self) -> Floats:
        return np.array([token_entropy(row) for row in self.rows])

    @cached_property
    def figures(self) -> dict[str, Estimate]:
        """Every measure with its interval over texts; nats only where there is a judge."""
        said, most = self.judged, float(np.log(len(self.rows[0])))
        nats = {}
        if said is not None:
            each = {"nats_a_character": said.a_character, "nats_a_token": said.a_token}
            nats = {name: mean_over_chains(values) for name, values in each.items()}
        return nats | {
            "entropy": mean_over_chains(self.entropies, bounds=(0.0, most), student=True),
            **{f"distinct_{n}": distinct(self.rows, n) for n in (1, 2, 3)},
            "self_bleu": self_bleu(self.rows),
        }

    def row(self) -> Record:
        """As a line of a table."""
        how = self.how
        return {
            "schedule": self.schedule,
            "passes": how and how.passes,
            "corrected": self.corrected or None,
            "cost": self.cost,
            **{name: figure.value for name, figure in self.figures.items()},
        }


def everything_hidden(model: Model, chains: int, length: int) -> tuple[Tensor, Tensor]:
    """Tokens (chains, length) of texts with everything hidden, and the free sites."""
    tokens, free = model.vocabulary.rows([[mask_token_of(model)] * length] * chains)
    check_length(model, tokens)
    return tokens, free


def people(model: Model, texts: Texts, chains: int, length: int) -> Cell | None:
    """Texts of people, cut to the length: at most as many as are written."""
    if texts is None and not reads_english(model.vocabulary):
        return None
    tokens, free = starts(model, texts, length=length)
    return _cell(model, None, 0, tokens[:chains], free[:chains])


def written(
    asked: Counted,
    model: Model,
    how: Unmasking,
    hidden: tuple[Tensor, Tensor],
    temperature: float,
    seed: int,
) -> Cell:
    """The texts of one schedule, with the rows that they took."""
    n_rows = 0

    def advance(more: float = 1, *, to: float | None = None, note: str = "") -> None:
        nonlocal n_rows
        n_rows += int(more)
        asked.advance(more)

    state = start(*hidden, temperature=temperature, device=model.state_device)
    counted = Counted(asked.base, advance)
    for after, _ in unmask(counted, state, how, hidden_token=mask_token_of(model), seed=seed):
        state = after
    return _cell(model, how, n_rows, state.tokens.cpu(), hidden[1])


def _cell(model: Model, how: Unmasking | None, n_rows: int, tokens: Tensor, free: Tensor) -> Cell:
    rows = [tuple(row[there].tolist()) for row, there in zip(tokens, free, strict=True)]
    spelled = [model.vocabulary.text.decode(row) for row in rows]
    return Cell(how, n_rows, rows, spelled)


def with_judge(cell: Cell, reader: Any, advance: Advance) -> Cell:
    advance()
    return replace(cell, judged=judged(reader, cell.texts))


def named(cell: Cell) -> Record:
    how = cell.how
    if how is None:
        return {"schedule": cell.schedule, "passes": None, "sweeps": 0, "block": None}
    parts = {"schedule": cell.schedule, "passes": how.passes, "sweeps": how.correct}
    return parts | {"block": how.correct_block if how.correct else None, "cost": cell.cost}


def as_json(cell: Cell) -> Record:
    """A cell as JSON has it."""
    cost = {"cost": {"value": cell.cost, "kind": "exact"}, "rows": cell.n_rows}
    unknown = {"nats_a_character": None, "nats_a_token": None}
    return plain(named(cell) | cost | unknown | cell.figures | {"texts": cell.texts})


def by_text(cell: Cell) -> list[Record]:
    """A row for each text of a cell."""
    said = cell.judged
    return [
        named(cell) | {
            "text": text,
            "nats": None if said is None else said.nats[place],
            "judge_tokens": None if said is None else said.n_tokens[place],
            "characters": len(text),
            "entropy": cell.entropies[place],
        }
        for place, text in enumerate(cell.texts)
    ]  # fmt: skip
