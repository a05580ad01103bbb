"""How work is split by memory, and so that a row's answer depends on nothing but the row.

Here it is decided how many rows are worked on at once.

On a CPU: rows of one exact length go together (no padding of lengths), in calls of 1, 2, 4, …
rows, each on one thread. Which of those sizes give the same bits is measured once per shape
against the largest one; sizes that differ are filled up with copies to the next one that does not.
On a GPU: one padded call for as many rows as fit the memory budget.
Many rows with one hidden site each on a CPU: packed end to end (`forward.packed`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from glauber.foundation.threads import side_by_side
from glauber.models.base import PAD
from glauber.models.forward.description import Description

if TYPE_CHECKING:
    from glauber.models.weights import PreTrainedModel

# tokens (rows, length), sites (rows, k), candidates (rows, k, c) or None -> (rows, k, vocab or c)
Forward = Callable[[Tensor, Tensor, Tensor | None], Tensor]

HELD = 2**28  # bytes of scores and the like that work on a CPU holds at once
HELD_CUDA = 2**30  # and on a GPU
ACTIVATIONS = 2**32  # bytes of activations in one GPU call of a model
CALL_TOKENS = 768  # about this many tokens keep a core's matrix products busy; more gains little


def rows_at_once(row_bytes: int, device: torch.device | str = "cpu", *, max_bytes: int = 0) -> int:
    """How many rows that take so many bytes each are worked on together: at least one.

    max_bytes is the room for all of them in bytes, by default HELD, or HELD_CUDA on a GPU.
    """
    room = max_bytes or (HELD_CUDA if torch.device(device).type == "cuda" else HELD)
    return max(1, room // max(1, row_bytes))


def in_parts(rows: Tensor, scores_per_row: int) -> Iterator[Tensor]:
    """The rows in parts, by the room that so many float64 scores per row take."""
    yield from torch.split(rows, rows_at_once(8 * scores_per_row, rows.device))


def lengths_of(tokens: Tensor) -> Tensor:
    """Number of tokens of each row, (rows,)."""
    return (tokens != PAD).sum(dim=1)


def largest_call(length: int) -> int:
    """Rows of the largest CPU call: a power of two with about CALL_TOKENS tokens."""
    rows = max(1, CALL_TOKENS // length)
    return min(64, 1 << (rows.bit_length() - 1))


def probes_for(model: "PreTrainedModel") -> int:
    """Random batches by which transformers' pass is measured: more where a width is unusual.

    Torch may round the last few numbers of a tensor differently where their number is not a
    multiple of 64. This changes few scores, so that one batch may not show it.
    """
    shapes = [weight.shape for weight in model.parameters() if weight.ndim > 1]
    if any(shape[-1] % 8 for shape in shapes if len(shape) == 2):
        return 64
    return 8 if any(shape[-1] % 64 for shape in shapes) else 1


@dataclass
class ExactRows:
    """Evaluates rows on a CPU so that each row's bits are its own."""

    forward: Forward
    vocab_size: int
    probes: int = 1  # random batches by which a shape is measured; 0: a row by itself
    _sizes: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def __call__(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None) -> Tensor:
        calls = []
        share = -(-len(tokens) // torch.get_num_threads())  # so that every thread has work
        lengths = lengths_of(tokens)
        for length in lengths.unique().tolist():
            rows = (lengths == length).nonzero()[:, 0]
            calls += self._calls(rows, length, sites.shape[1], share)
        width = self.vocab_size if candidates is None else candidates.shape[-1]
        answers = side_by_side(
            lambda call: self._call(tokens, sites, candidates, *call),
            calls,
        )
        scores = answers[0].new_empty(len(tokens), sites.shape[1], width)
        for (rows, _, _), answer in zip(calls, answers, strict=True):
            scores[rows] = answer
        return scores

    def _calls(
        self, rows: Tensor, length: int, k: int, share: int
    ) -> list[tuple[Tensor, int, int]]:
        """(rows, size, length) of each call; size is the number of rows that it is filled up to."""
        sizes = self.sizes(length, k)
        calls = []
        while len(rows):
            fitting = [size for size in sizes if size <= min(share, len(rows))]
            size = max(fitting) if fitting else min(sizes)
            calls.append((rows[:size], size, length))
            rows = rows[size:]
        return calls

    def _call(
        self,
        tokens: Tensor,
        sites: Tensor,
        candidates: Tensor | None,
        rows: Tensor,
        size: int,
        length: int,
    ) -> Tensor:
        filled = rows[torch.arange(size) % len(rows)]
        chosen = None if candidates is None else candidates[filled]
        return self.forward(tokens[filled, :length], sites[filled], chosen)[: len(rows)]

    def sizes(self, length: int, k: int) -> list[int]:
        """The call sizes that give the same bits as the largest one, for rows of this shape."""
        if (length, k) not in self._sizes:
            self._sizes[length, k] = side_by_side(
                lambda shape: self._measure(*shape), [(length, k)]
            )[0]
        return self._sizes[length, k]

    def _measure(self, length: int, k: int) -> list[int]:
        """The sizes that every probe allows; only a row by itself where a probe finds that."""
        if not self.probes:
            return [1]
        generator = torch.Generator().manual_seed(length)
        sizes = [set(self._probe(length, k, generator)) for _ in range(self.probes)]
        return [1] if {1} in sizes else sorted(set.intersection(*sizes))

    def _probe(self, length: int, k: int, generator: torch.Generator) -> list[int]:
        top = largest_call(length)
        tokens = torch.randint(self.vocab_size, (top, length), generator=generator)
        sites = torch.randint(length, (top, k), generator=generator)
        reference = self.forward(tokens, sites, None)
        if not torch.equal(self.forward(tokens.flip(0), sites.flip(0), None), reference.flip(0)):
            return [1]  # a row's slot matters on this machine: only a row by itself is safe
        sizes = [top]
        for size in (1 << power for power in range(top.bit_length() - 1)):
            # The last rows of the largest call, so that a row's slot is tested too.
            if torch.equal(self.forward(tokens[-size:], sites[-size:], None), reference[-size:]):
                sizes.append(size)
        return sorted(sizes)


@dataclass(frozen=True)
class PaddedRows:
    """Evaluates rows on a GPU, as many at once as the memory budget allows."""

    forward: Forward
    row_bytes: Callable[[int, int], int]  # of a row of so many tokens with k hidden sites
    budget: int

    def __call__(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None) -> Tensor:
        size = rows_at_once(self.row_bytes(tokens.shape[1], sites.shape[1]), max_bytes=self.budget)
        if size >= len(tokens):
            return self.forward(tokens, sites, candidates)
        answers = []
        for first in range(0, len(tokens), size):
            rows = slice(first, first + size)
            chosen = None if candidates is None else candidates[rows]
            answers.append(self.forward(tokens[rows], sites[rows], chosen))
        return torch.cat(answers)


def row_bytes(described: Description, length: int, k: int, itemsize: int) -> int:
    """A bound on the memory that the GPU pass of one row takes, weights apart.

    What a layer holds at once: states, their norm and a sum; queries, keys, values and what they
    become, with the terms of every distance; or the feed-forward with its gate. The head: the
    scores of the hidden sites, twice more in float32.
    """
    width, most = described.width, 0
    for layer in described.layers:
        terms = 0
        if layer.relative is not None:
            tables = [table for table in layer.relative[1:3] if table is not None]
            columns = min([2 * length + 32, *(table.shape[1] for table in tables)])
            terms = len(tables) * described.heads * columns
        between = len(layer.between.weight) * (1.5 if layer.gated else 1)
        most = max(most, 6 * width + terms, width + int(between))
    scores = k * len(described.embedding.words) * (itemsize + 8)
    return length * itemsize * (4 * width + most) + scores
