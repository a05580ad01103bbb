"""Where rows of different lengths lie when they are worked on without padding.

End to end in one list of tokens: products and norms run over the list, and attention knows where
each row begins. To lay rows out one must ask the GPU how long they are: the host waits for that,
and a CUDA graph cannot do it while it is recorded. The lengths of chains never change, so
`Recording` keeps the layouts of a step's calls, and later steps use them in the same order.
"""

from contextvars import ContextVar
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from glauber.models.base import PAD


class Layout(NamedTuple):
    """Rows in a list of tokens; row and place are None where the list is the rows as they are."""

    shape: tuple[int, ...]  # of the padded rows
    longest: int  # tokens of the longest row, or a bound
    begins: Tensor  # (rows,) int32: where each row begins in the list
    lengths: Tensor  # (rows,) int32
    row: Tensor | None = None  # (tokens,) int64: the row of each token of the list
    place: Tensor | None = None  # (tokens,) int64: its place there

    @property
    def n_tokens(self) -> int:
        """Tokens of the list."""
        return self.shape[0] * self.shape[1] if self.row is None else len(self.row)

    def on(self, device: torch.device) -> "Layout":
        """The same rows on another device."""
        return self._replace(
            begins=self.begins.to(device),
            lengths=self.lengths.to(device),
            row=None if self.row is None else self.row.to(device),
            place=None if self.place is None else self.place.to(device),
        )

    def at(self, sites: Tensor) -> Tensor:
        """Where sites (rows, k) stand in the list."""
        return self.begins[:, None] + sites.clamp(min=0)


class Recording:
    """While it is open, layouts are kept call by call, and read again when the calls come again.

    It must live as long as a graph that reads its tensors.
    """

    def __init__(self) -> None:
        self.layouts: list[Layout] = []
        self.reading = False
        self._next = 0

    def __enter__(self) -> "Recording":
        self._token = _OPEN.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _OPEN.reset(self._token)

    def repeat(self, *, reading: bool) -> None:
        """The same calls follow once more; reading: with the layouts that they had."""
        self._next, self.reading = 0, reading

    def keep(self, layout: Layout) -> None:
        """The layout of the next call."""
        self.layouts[self._next :] = [layout]
        self._next += 1

    def previous(self, shape: tuple[int, ...]) -> Layout | None:
        """What the next call of that shape used before."""
        self._next += 1
        layouts = self.layouts[self._next - 1 : self._next]
        return layouts[0] if layouts and layouts[0].shape == shape else None


_OPEN: ContextVar[Recording | None] = ContextVar("recording", default=None)


def layout_of(tokens: Tensor) -> Layout:
    """The layout of tokens (rows, length) with PAD after them; it asks the GPU unless known."""
    recording = _OPEN.get()
    if recording is not None and recording.reading:
        previous = recording.previous(tuple(tokens.shape))
        if previous is not None:
            return previous
    elif recording is not None:
        layout = _pack(tokens)
        recording.keep(layout)
        return layout
    return pad(tokens) if capturing(tokens) else _pack(tokens)


def pad(tokens: Tensor) -> Layout:
    """The rows as they are, with padding; nothing is asked of the GPU."""
    rows, length = tokens.shape
    lengths = (tokens != PAD).sum(dim=1, dtype=torch.int32)
    begins = torch.arange(rows, device=tokens.device, dtype=torch.int32) * length
    return Layout((rows, length), length, begins, lengths)


def capturing(tokens: Tensor) -> bool:
    """Whether a CUDA graph is being recorded: nothing may be asked of the GPU then, or kept."""
    return tokens.is_cuda and torch.cuda.is_current_stream_capturing()


def _pack(tokens: Tensor) -> Layout:
    (rows, length), device = tokens.shape, tokens.device
    lengths = (tokens != PAD).sum(dim=1)
    longest, count = torch.stack([lengths.max(), lengths.sum()]).tolist()
    if count == rows * length:
        return _even(rows, length, device)
    begins = lengths.cumsum(0) - lengths
    each = torch.arange(rows, device=device)
    row = each.repeat_interleave(lengths, output_size=count)
    place = torch.arange(count, device=device) - begins[row]
    return Layout((rows, length), longest, begins.int(), lengths.int(), row, place)


@lru_cache(maxsize=64)
def _even(rows: int, length: int, device: torch.device) -> Layout:
    """Rows of one length."""
    begins = torch.arange(rows, device=device, dtype=torch.int32) * length
    return Layout((rows, length), length, begins, torch.full_like(begins, length))
