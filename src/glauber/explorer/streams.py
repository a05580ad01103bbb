"""Who makes the next step of living chains? Streams that go on from where they were.

Chains of one model and scan move together, one step at a time, by the engine's own kernels. A
stream keeps what it knows in advance; if other chains are asked for, a new one begins, and only
what is remembered of the model (a memo) is kept. Calls of the model are kept short, so that
whoever waits for it waits little.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import PAD
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import Info, Kernel, State, run
from glauber.dynamics.remembered import Memo, memoised
from glauber.dynamics.scans import scan_named
from glauber.explorer.models import Models

if TYPE_CHECKING:
    from glauber.explorer.tapes import Tape

STEPS = 512  # of one stream
LEAD = 64  # steps whose noise is drawn in advance
MEMO = 64 * 2**20  # bytes of remembered conditionals, for each model and length
MEMOS = 4


class Row(NamedTuple):
    """A chain whose next step is wanted."""

    tape: "Tape"
    step: int  # of the trail
    seed: int
    noise: int  # the step in the key of the noise


class Stream(NamedTuple):
    """Steps on their way, and whose the next one is."""

    steps: Iterator[tuple[State, Info]]
    rows: list[Row]

    def goes_on(self, rows: Sequence[Row]) -> bool:
        """Whether its next step is that of these chains."""
        return len(rows) == len(self.rows) and all(
            one.tape is other.tape and one.step == other.step
            for one, other in zip(rows, self.rows, strict=True)
        )


class Streams:
    """The streams of each model and scan, and what is remembered of the models."""

    def __init__(self, models: Models) -> None:
        self.models = models
        self._streams: dict[tuple[str, str], Stream] = {}
        self._kernels: dict[tuple[str, str], Kernel] = {}
        self._memos: OrderedDict[tuple[str, int], Memo] = OrderedDict()

    def step(self, model: str, scan: str, rows: list[Row]) -> list[NDArray[Any]]:
        """One step of each chain: site, token, changed, log_prob, entropy, (chains, slots) each."""
        stream = self._streams.pop((model, scan), None)
        found = next(stream.steps, None) if stream is not None and stream.goes_on(rows) else None
        if stream is None or found is None:
            stream = Stream(self._begin(model, scan, rows), rows)
            found = next(stream.steps)
        after = [row._replace(step=row.step + 1, noise=row.noise + 1) for row in rows]
        self._streams[model, scan] = stream._replace(rows=after)
        info = found[1]
        parts = (info.sites, info.tokens, info.changed, info.log_prob_new, info.entropy)
        return [part.cpu().numpy() for part in parts]

    def _begin(self, model: str, scan: str, rows: list[Row]) -> Iterator[tuple[State, Info]]:
        """Further steps of these chains."""
        state, seeds = _state(rows, self.models[model].state_device)
        kernel = self._kernel(model, scan)
        if kernel.lookup is None:
            return run(kernel, state, STEPS, seed=seeds)
        conditionals = self.models.conditionals(model)
        memo = self._memo(model, conditionals.vocab_size, state.tokens.shape[1])
        # A browser needs the other cores: nothing is asked for ahead. A GPU asks for what pays.
        prefetch = None if state.tokens.is_cuda else 0
        return memoised(kernel, state, STEPS, seed=seeds, memo=memo, lead=LEAD, prefetch=prefetch)

    def _kernel(self, model: str, scan: str) -> Kernel:
        """Kept, because one whose sites the state chooses remembers what it asked."""
        if (model, scan) not in self._kernels:
            named, conditionals = scan_named(scan), self.models.conditionals(model)
            self._kernels[model, scan] = glauber(conditionals, scan=named, within=named.within)
        return self._kernels[model, scan]

    def _memo(self, model: str, vocab_size: int, length: int) -> Memo:
        key = model, length
        if key not in self._memos:
            self._memos[key] = Memo(vocab_size, length, budget=MEMO)
            if len(self._memos) > MEMOS:
                self._memos.popitem(last=False)
        self._memos.move_to_end(key)
        return self._memos[key]


def _state(rows: Sequence[Row], device: torch.device) -> tuple[State, Tensor]:
    """The chains as one batch, and the seed of each."""
    width = max(len(row.tape.free) for row in rows)
    tokens = torch.full((len(rows), width), PAD)
    free = torch.zeros((len(rows), width), dtype=torch.bool)
    for i, row in enumerate(rows):
        found = row.tape.moment(row.step).tokens
        tokens[i, : len(found)] = torch.from_numpy(found)
        free[i, : len(found)] = torch.from_numpy(row.tape.free)
    state = State(
        tokens,
        torch.tensor([row.noise for row in rows]),
        torch.tensor([row.tape.chain for row in rows]),
        free,
        torch.tensor([row.tape.temperature for row in rows], dtype=torch.float64),
        torch.zeros((len(rows), 0), dtype=torch.float32),
    )
    seeds = torch.tensor([row.seed for row in rows])
    return State(*(part.to(device) for part in state)), seeds.to(device)
