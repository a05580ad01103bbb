"""How is work split by memory, and so that a row's answer depends on nothing but the row?

The one place that decides how many rows are worked on at once.

On a CPU: rows of one exact length go together (no padding of lengths), in calls of 1, 2, 4, …
rows, each on one thread. Which of those sizes give the same bits is measured once per shape
against the largest one; sizes that differ are filled up with copies to the next one that does not.
On a GPU: one padded call for as many rows as fit the memory budget.
Many short rows of mixed length on a CPU: packed end to end (`PackedRows`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from glauber.conditionals.base import PAD
from glauber.conditionals.forward.description import Description, Layer
from glauber.conditionals.forward.encoder import Encoder
from glauber.threads import side_by_side

# tokens (rows, length), sites (rows, k), candidates (rows, k, c) or None -> (rows, k, vocab or c)
Forward = Callable[[Tensor, Tensor, Tensor | None], Tensor]

HELD = 2**28  # bytes of scores and the like that work on a CPU holds at once
HELD_CUDA = 2**30  # and on a GPU
ACTIVATIONS = 2**32  # bytes of activations in one GPU call of a model
CALL_TOKENS = 768  # about this many tokens keep a core's matrix products busy; more gains little
PACKED = 1024  # tokens of one packed call
LONGEST = 128  # rows beyond this waste too much of a packed call
HEAD_ROWS = 64  # rows of one product with the head


def rows_at_once(row_bytes: int, device: torch.device | str = "cpu", *, held: int = 0) -> int:
    """How many rows that take so many bytes each are worked on together: at least one.

    held is the room for all of them in bytes, by default HELD, or HELD_CUDA on a GPU.
    """
    room = held or (HELD_CUDA if torch.device(device).type == "cuda" else HELD)
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


@dataclass
class ExactRows:
    """Evaluates rows on a CPU so that each row's bits are its own."""

    forward: Forward
    vocab_size: int
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
        top = largest_call(length)
        generator = torch.Generator().manual_seed(length)
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
        size = rows_at_once(self.row_bytes(tokens.shape[1], sites.shape[1]), held=self.budget)
        if size >= len(tokens):
            return self.forward(tokens, sites, candidates)
        parts = [
            self.forward(
                tokens[first : first + size],
                sites[first : first + size],
                None if candidates is None else candidates[first : first + size],
            )
            for first in range(0, len(tokens), size)
        ]
        return torch.cat(parts)


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


class PackedRows:
    """log pi(x_site | the other tokens) of one hidden site per row.

    Rows of any length lie end to end in one list of PACKED tokens, filled up with dummies, so
    that every matrix product has the same shape whatever the rows are; only attention looks at
    rows one by one. Nothing is measured per length and no call is small. Whether a row's place in
    the list matters on this machine is measured once; where it does, this way is not taken.
    """

    def __init__(
        self, encoder: Encoder, read: Callable[[Tensor], Tensor], hidden_token: int
    ) -> None:
        self.encoder = encoder
        self.read = read  # states (HEAD_ROWS, 1, d) -> scores (HEAD_ROWS, 1, vocab)
        self.hidden_token = hidden_token
        self.vocab_size = len(encoder.described.embedding.words)
        self._places_matter: bool | None = None

    def log_probs(self, tokens: Tensor, sites: Tensor, *, temperature: float = 1.0) -> Tensor:
        """(rows,) float64, for tokens (rows, length up to LONGEST) with PAD behind, sites (rows,).

        The token at the site is the one that is asked about; the model does not see it.
        """
        asked = tokens.gather(1, sites[:, None])
        visible = tokens.scatter(1, sites[:, None], self.hidden_token)
        states = self._states(visible, sites)
        found = side_by_side(
            lambda part: self._at(states[part], asked[part], temperature),
            list(torch.arange(len(tokens)).split(HEAD_ROWS)),
        )
        return torch.cat(found)

    def usable(self) -> bool:
        """Whether a row gives the same bits at any place of a call, on this machine."""
        if self._places_matter is None:
            generator = torch.Generator().manual_seed(0)
            length = min(23, self.encoder.described.places)
            tokens = torch.randint(self.vocab_size, (PACKED // length, length), generator=generator)
            sites = torch.randint(length, (len(tokens),), generator=generator)
            here = self.log_probs(tokens, sites)
            there = self.log_probs(tokens.flip(0), sites.flip(0)).flip(0)
            few = torch.cat([self.log_probs(tokens[:3], sites[:3]), here[3:]])
            self._places_matter = not (torch.equal(here, there) and torch.equal(here, few))
        return not self._places_matter

    def _at(self, states: Tensor, asked: Tensor, temperature: float) -> Tensor:
        filled = F.pad(states, (0, 0, 0, HEAD_ROWS - len(states)))
        scores = self.read(filled[:, None])[: len(states), 0].double() / temperature
        return scores.gather(1, asked)[:, 0] - scores.logsumexp(dim=1)

    def _states(self, tokens: Tensor, sites: Tensor) -> Tensor:
        """Hidden states (rows, d) of the last layer at the sites."""
        lengths = lengths_of(tokens)
        order = lengths.argsort(stable=True)
        calls = _cut(order, lengths[order].tolist())
        answers = side_by_side(
            lambda rows: self._call(tokens[rows], sites[rows], lengths[rows].tolist()), calls
        )
        states = answers[0].new_empty(len(tokens), answers[0].shape[-1])
        states[torch.cat(calls)] = torch.cat(answers)
        return states

    def _call(self, tokens: Tensor, sites: Tensor, lengths: list[int]) -> Tensor:
        """One call of the encoder: rows in order of length, PACKED tokens at most."""
        runs = [(length, lengths.count(length)) for length in sorted(set(lengths))]
        there = torch.arange(tokens.shape[1]) < torch.tensor(lengths)[:, None]
        begins = torch.tensor([0, *lengths[:-1]]).cumsum(0)
        first, last = self.encoder.layers[0], self.encoder.layers[-1]
        states, together = self._bottom(first, tokens[there], there.nonzero()[:, 1])
        for layer in self.encoder.layers[:-1]:
            if layer is not first:
                together = F.linear(states, *layer.queries_keys_values)
            states = self.encoder.finish(layer, states, self._attend(together, runs))
        return self._last(last, states, begins + sites, runs)

    def _bottom(self, layer: Layer, tokens: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings (PACKED, d) of tokens at places, with queries, keys and values (PACKED, 3 d).

        Here a token knows only itself and its place, and the rows of one text share most of
        theirs, so each pair is worked out once.
        """
        both = F.pad(places * self.vocab_size + tokens, (0, PACKED - len(tokens)))
        distinct, which = both.unique(return_inverse=True)
        filled = F.pad(distinct, (0, -len(distinct) % HEAD_ROWS)).split(HEAD_ROWS)
        blocks = [
            self.encoder.embed_at(part % self.vocab_size, part // self.vocab_size)
            for part in filled
        ]
        together = [F.linear(block, *layer.queries_keys_values) for block in blocks]
        return torch.cat(blocks)[which], torch.cat(together)[which]

    def _attend(self, together: Tensor, runs: list[tuple[int, int]]) -> Tensor:
        """Attention within each row, (PACKED, 3 d) -> (PACKED, d); zeros behind the last row."""
        mixed = together.new_zeros(len(together), together.shape[1] // 3)
        begin = 0
        for length, count in runs:
            end = begin + length * count
            parts = together[begin:end].unflatten(0, (count, length)).chunk(3, dim=-1)
            mixed[begin:end] = self.encoder.attend(self.encoder.layers[0], *parts).flatten(0, 1)
            begin = end
        return mixed

    def _last(
        self, layer: Layer, states: Tensor, hidden: Tensor, runs: list[tuple[int, int]]
    ) -> Tensor:
        """The last layer at the places hidden (rows,) of states (PACKED, d): (rows, d)."""
        width = states.shape[-1]
        weight, bias = layer.queries_keys_values
        there = _blocks(states[hidden])
        queries = torch.cat([F.linear(block, weight[:width], bias[:width]) for block in there])
        together = F.linear(states, weight[width:], bias[width:])
        mixed, begin, row = [], 0, 0
        for length, count in runs:
            end = begin + length * count
            parts = together[begin:end].unflatten(0, (count, length)).chunk(2, dim=-1)
            mixed.append(self.encoder.attend(layer, queries[row : row + count, None], *parts)[:, 0])
            begin, row = end, row + count
        pairs = zip(there, _blocks(torch.cat(mixed)), strict=True)
        return torch.cat([self.encoder.finish(layer, *pair) for pair in pairs])[: len(hidden)]


def _blocks(rows: Tensor) -> list[Tensor]:
    """The rows in blocks of HEAD_ROWS, the last one filled up with zeros."""
    return list(F.pad(rows, (0, 0, 0, -len(rows) % HEAD_ROWS)).split(HEAD_ROWS))


def _cut(order: Tensor, lengths: list[int]) -> list[Tensor]:
    """The rows in calls of at most PACKED tokens."""
    calls, begin, total = [], 0, 0
    for place, length in enumerate(lengths):
        if total + length > PACKED:
            calls.append(order[begin:place])
            begin, total = place, 0
        total += length
    return [*calls, order[begin:]]
