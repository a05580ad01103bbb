"""When do coupled chains meet, at each temperature and length?

A cell is (temperature, length): the same pairs of passages at every temperature of a length, with
noise of the cell's own. All pairs of all cells of a task move in one batch that stays full.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glauber.conditionals.base import PAD, Restricted
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.starts import passages, starts
from glauber.errors import GlauberError
from glauber.mixing.coupling import finished
from glauber.mixing.passages import passage_pairs
from glauber.sweeps.grid import Cell
from glauber.sweeps.work import Result, Work

TOGETHER = 64  # pairs that move at a time on a CPU; a GPU takes as many as fit


def open_study(settings: dict[str, Any], folder: Path) -> Work:
    """The work over (temperature, length) cells.

    settings: model, device, dtype, texts (None: the bundled passages), pairs, budget (steps) or
    sweeps (budget in multiples of the length), seed, how.
    """
    model = MaskedLM.load(settings["model"], device=settings["device"], dtype=settings["dtype"])
    laws = Restricted(model, model.vocabulary.proposable().to(model.state_device))
    texts = settings["texts"] or [text for _, text in passages()]
    together = None if model.device.type == "cuda" else TOGETHER

    def work(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Result]]:
        cells = sorted(cells, key=lambda cell: (cell.values["length"], cell.values["temperature"]))
        begun = {
            length: pairs_of_texts(model, texts, settings["pairs"], length, settings["seed"])
            for length in {int(cell.values["length"]) for cell in cells}
        }
        rows = [(cell, number) for cell in cells for number in range(settings["pairs"])]
        lengths = [int(cell.values["length"]) for cell, _ in rows]
        left, right, free = _stacked(
            [tuple(x[i] for x in begun[n]) for n, (_, i) in zip(lengths, rows, strict=True)]
        )
        found = finished(
            laws,
            *(x.to(model.state_device) for x in (left, right)),
            free=free.to(model.state_device),
            temperature=torch.tensor([cell.values["temperature"] for cell, _ in rows]).double(),
            seed=torch.tensor([cell.seed(settings["seed"]) for cell, _ in rows]),
            pair=torch.tensor([number for _, number in rows]),
            budget=torch.tensor([budget_of(settings, n) for n in lengths]),
            how=settings["how"],
            together=together,
            every=max(budget_of(settings, n) for n in lengths),  # no distances between
        )
        yield from _by_cell(cells, rows, found, settings)

    return work


def budget_of(settings: dict[str, Any], length: int) -> int:
    """Steps that a pair of that length may take."""
    if settings.get("sweeps") is not None:
        return int(settings["sweeps"]) * length
    return int(settings["budget"])


def pairs_of_texts(
    model: MaskedLM, texts: Sequence[str], n_pairs: int, length: int, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Left and right tokens and free sites (pairs, length): different texts, drawn by the seed."""
    long = [text for text in texts if model.vocabulary.count(text) >= length]
    if len(long) < 2:
        raise GlauberError(
            f"a pair needs two different texts of {length} tokens or more, but there is "
            f"{'one' if long else 'none'}."
        )
    tokens, free = starts(model, long, length=length)
    left, right = passage_pairs(len(long), n_pairs, seed=seed).unbind(dim=1)
    return tokens[left], tokens[right], free[left]


def _stacked(rows: list[tuple[Tensor, ...]]) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of (left, right, free), padded to one length and stacked."""
    sides = (torch.nn.utils.rnn.pad_sequence([row[i] for row in rows], True, PAD) for i in (0, 1))
    free = torch.nn.utils.rnn.pad_sequence([row[2] for row in rows], True, False)
    return (*sides, free)  # type: ignore[return-value]


def _by_cell(
    cells: Sequence[Cell],
    rows: list[tuple[Cell, int]],
    found: Iterator[Any],
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
                    "budget": budget_of(settings, int(cell.values["length"])),
                    "times": [time for time, _ in pairs],
                    "met": [met for _, met in pairs],
                },
            )
