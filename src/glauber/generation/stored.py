"""How is a generation kept as a run, and resumed?

A step of the run is a pass. A folder that was begun by the same call is resumed to the same bits,
because noise and plan are functions of the pass.
"""

import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glauber.dynamics.kernel import State
from glauber.errors import GlauberError
from glauber.generation.writing import Job, Trace, Written, passes, state_of, written
from glauber.progress import check_memory, say
from glauber.result import counted
from glauber.runs.run import Run
from glauber.runs.spec import HEADER
from glauber.runs.store import Events, bytes_needed, check_new, create, make_folder, seal
from glauber.runs.writer import Writer
from glauber.sampling.plan import check_disk
from glauber.sampling.session import COMMIT_SECONDS

BLOCK = 64  # passes of a stored generation read at a time


def check_out(out: str | Path | None) -> None:
    """Refuses a place that is neither new nor a generation."""
    if out is None:
        return
    folder = Path(str(out))
    if not (folder / HEADER).is_file():
        check_new(folder)
    elif Run(folder).spec.unmasking is None:
        raise GlauberError(f"{folder} is a run of chains: choose another folder.")


def write(job: Job, *, out: str | Path | None = None, batch_size: int | None = None) -> Written:
    """Fills the hidden sites of every chain to the end; kept and resumed where out is given."""
    n_chains, length = job.tokens.shape
    check_memory(200.0 * n_chains * length, f"{counted(n_chains, 'text')} of {length} tokens")
    most = int(job.most_passes.max())
    behind = f" and {counted(job.how.correct, 'sweep')} of correction" if job.how.correct else ""
    say(f"{counted(n_chains, 'text')}, passes at most: {most:,}{behind}")
    if out is not None:
        return _stored(job, Path(str(out)), batch_size)
    traces: list[Trace] = []
    state = state_of(job, job.tokens, 0)
    for after, events in passes(job, state, batch_size):
        state = after
        traces.append(Trace.of(events, length, first=len(traces)))
    return written(job, state.tokens.cpu().numpy(), Trace.joined(traces))


def _stored(job: Job, folder: Path, batch_size: int | None) -> Written:
    """The generation in that folder, begun or resumed, and read to its end."""
    if not (folder / HEADER).is_file():
        n_chains, length = job.tokens.shape
        check_disk(folder, bytes_needed(n_chains, job.spec.steps, job.slots, length))
        make_folder(folder, lambda draft: _create(job, draft))
    run = Run(folder)
    _check_same(job, run)
    run.verify()
    if not run.finished:
        _advance(job, run, batch_size)
        run = Run(folder)
    return written(job, run.tokens(), _trace(run), run)


def _create(job: Job, draft: Path) -> None:
    create(draft, job.tokens.numpy(), job.begin.numpy(), job.slots)
    job.model.vocabulary.save(draft / "tokenizer")
    seal(draft, job.spec)


def _check_same(job: Job, run: Run) -> None:
    """A folder is resumed by the call that began it, and by no other."""
    kept, asked = asdict(run.spec), asdict(job.spec)
    for one in (kept, asked):  # what older runs do not say; their tokens do
        one.pop("own")
        one["unmasking"].pop("length", None)
    differ = [
        name
        for name in asked
        if name not in ("steps", "versions", "format") and kept[name] != asked[name]
    ]
    same = run.free.shape == job.begin.shape and bool((run.tokens(0) == job.tokens.numpy()).all())
    if differ or not same:
        what = " and ".join(differ) or "texts"
        raise GlauberError(
            f"{run.folder} holds another generation (its {what} differ): choose another folder."
        )


def _advance(job: Job, run: Run, batch_size: int | None) -> None:
    """Makes the missing passes and commits them every few seconds, and when interrupted."""
    state = state_of(job, torch.from_numpy(run.tokens()), run.steps)
    if run.steps:
        state = state._replace(
            placed=_placed(_trace(run), state.tokens.shape).to(state.step.device)
        )
    with Writer(run.folder) as writer:
        held: list[Events] = []
        made = passes(job, state, batch_size)
        try:
            since = time.perf_counter()
            for state, events in made:
                held.append(events)
                late = time.perf_counter() - since > COMMIT_SECONDS
                if late or (writer.steps + len(held)) % writer.every == 0:
                    _commit(writer, held, state)
                    since = time.perf_counter()
        finally:
            _commit(writer, held, state)
        writer.describe(replace(run.spec, steps=writer.steps))
        writer.finish()


def _commit(writer: Writer, held: list[Events], state: State) -> None:
    if held:
        events = {name: np.concatenate([one[name] for one in held], axis=1) for name in held[0]}
        last = writer.steps + len(held)
        marks = {last: state.tokens.cpu().numpy()} if last % writer.every == 0 else {}
        held.clear()
        writer.append(events, marks)


def _trace(run: Run) -> Trace:
    """The events of a stored generation, read in parts."""
    length = run.free.shape[1]
    names = ("site", "token", "changed", "log_prob_new")
    firsts = range(0, run.steps, BLOCK)
    return Trace.joined(
        [
            Trace.of(
                {n: run.read(n, at, min(at + BLOCK, run.steps)) for n in names}, length, first=at
            )
            for at in firsts
        ]
    )


def _placed(trace: Trace, shape: tuple[int, ...]) -> Tensor:
    """The log-probability (chains, length) with which each token was placed, as a state has it."""
    placed = np.zeros(shape, np.float32)
    placed[trace.chain, trace.site] = trace.log_prob
    return torch.from_numpy(placed)
