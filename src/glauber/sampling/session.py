"""How does a run advance? In stretches of a few seconds, each committed."""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.dynamics.kernel import Info, Kernel, State, start
from glauber.dynamics.run import run as run_kernel
from glauber.errors import GlauberError
from glauber.runs.run import Run
from glauber.runs.spec import write_spec
from glauber.runs.store import FIELDS, Events, Writer, create
from glauber.sampling.plan import Plan

COMMIT_SECONDS = 5.0  # at most about this much work is lost by a kill
REPORT_SECONDS = 0.25


class Progress(NamedTuple):
    """How far a run is, as its listener hears it."""

    step: int  # steps that the chains at work have made
    steps: int  # steps planned
    updates: int  # chain steps made in this session
    seconds: float  # of this session
    changed: float  # share of this session's chain steps that changed a token
    tokens: Tensor  # of the first chain at work, now


Listener = Callable[[Progress], None]


@dataclass
class Session:
    """One sitting of a run: counts what is done, tells a listener, and can be asked to stop."""

    listener: Listener | None = None
    stopping: bool = False
    updates: int = 0
    begun: float = field(default_factory=time.perf_counter)
    _changed: Tensor | int = 0
    _heard: float = 0.0

    def count(self, state: State, info: Info, steps: int) -> None:
        """Takes note of one step of a batch of chains."""
        self.updates += len(state.step)
        self._changed = self._changed + info.changed.any(dim=1).sum()
        now = time.perf_counter()
        if self.listener is not None and now - self._heard > REPORT_SECONDS:
            self._heard = now
            self.listener(self.progress(state, steps))

    def progress(self, state: State, steps: int) -> Progress:
        """Where the session stands."""
        share = float(self._changed) / self.updates
        spent = time.perf_counter() - self.begun
        tokens = state.tokens[0].cpu()
        return Progress(int(state.step[0]), steps, self.updates, spent, share, tokens)


def begin(planned: Plan, folder: Path) -> None:
    """Makes the run's folder, with no steps yet; nothing is left behind if that fails."""
    if folder.exists():
        raise GlauberError(f"the folder {folder} exists already; give another one, or resume it.")
    draft = folder.with_name(f".{folder.name}.draft")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        create(draft, planned.tokens.numpy(), planned.free.numpy(), planned.slots)
        planned.model.vocabulary.save(draft / "tokenizer")
        write_spec(draft, planned.spec)
        draft.rename(folder)
    except OSError as error:
        raise GlauberError(f"{folder} cannot be made: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def check_batch_size(batch_size: int | None) -> None:
    """Refuses a batch of no chains."""
    if batch_size is not None and batch_size < 1:
        raise GlauberError(f"the batch size is {batch_size}, but it must be at least 1.")


def advance(
    planned: Plan, folder: Path, *, batch_size: int | None = None, session: Session | None = None
) -> None:
    """Makes the steps that are still missing, committing every few seconds."""
    check_batch_size(batch_size)
    session = session or Session()
    with Writer(folder) as writer:
        if writer.steps < planned.spec.steps:
            writer.reopen()
        write_spec(folder, planned.spec)
        tokens = torch.from_numpy(Run(folder).tokens())
        for events, marks in _stretches(planned, tokens, writer, batch_size, session):
            writer.append(events, marks)
        if writer.steps == planned.spec.steps:
            writer.finish()


def _stretches(
    planned: Plan, tokens: Tensor, writer: Writer, batch_size: int | None, session: Session
) -> Iterator[tuple[Events, dict[int, NDArray[Any]]]]:
    """Stretches of all chains' steps, each about COMMIT_SECONDS long, with the marks in them."""
    batches = torch.arange(len(tokens)).split(batch_size or len(tokens))
    kernels = [planned.kernel for _ in batches]
    size = 1
    while writer.steps < planned.spec.steps and not session.stopping:
        room = writer.every - writer.steps % writer.every  # a stretch ends at a mark
        size = min(size, room, planned.spec.steps - writer.steps)
        before = time.perf_counter()
        parts = []
        for kernel, rows in zip(kernels, batches, strict=True):
            after, events = _stretch(
                kernel, planned, tokens[rows], rows, writer.steps, size, session
            )
            tokens[rows] = after
            parts.append(events)
        done = min(part["site"].shape[1] for part in parts)  # a stop may come between batches
        if done == 0:
            return
        last = writer.steps + done
        marks = {last: tokens.numpy().copy()} if last % writer.every == 0 else {}
        yield (
            {name: np.concatenate([part[name][:, :done] for part in parts]) for name in FIELDS},
            marks,
        )
        size = max(1, int(size * min(2.0, COMMIT_SECONDS / (time.perf_counter() - before))))


def _stretch(
    kernel: Kernel,
    planned: Plan,
    tokens: Tensor,
    rows: Tensor,
    step: int,
    size: int,
    session: Session,
) -> tuple[Tensor, Events]:
    """Up to `size` steps of some chains: their tokens after it, and their events."""
    begun = state = start(
        tokens,
        planned.free[rows],
        temperature=planned.spec.temperature,
        chain=rows,
        step=step,
        device=planned.model.state_device,
    )
    infos: list[Info] = []
    for state, info in run_kernel(kernel, begun, size, seed=planned.spec.seed):
        infos.append(info)
        session.count(state, info, planned.spec.steps)
        if session.stopping:
            break
    return state.tokens.cpu(), _events(infos, planned.slots)


def _events(infos: list[Info], n_slots: int) -> Events:
    """Infos of successive steps as arrays (chains, steps, slots) in the store's types."""
    events = {}
    for (name, (dtype, nothing)), column in zip(
        FIELDS.items(), zip(*infos, strict=True), strict=True
    ):
        values = torch.stack(column, dim=1).cpu().numpy().astype(dtype)
        empty = [(0, 0), (0, 0), (0, n_slots - values.shape[2])]  # short texts use fewer slots
        events[name] = np.pad(values, empty, constant_values=nothing)
    return events


def rate(planned: Plan, *, batch_size: int | None = None) -> float:
    """Measured chain steps per second, from two steps that are not kept."""
    rows = torch.arange(min(batch_size or len(planned.tokens), len(planned.tokens)))
    kernel = planned.kernel
    _stretch(kernel, planned, planned.tokens[rows], rows, 0, 1, Session())
    session = Session()
    _stretch(kernel, planned, planned.tokens[rows], rows, 0, 2, session)
    return session.updates / (time.perf_counter() - session.begun)
