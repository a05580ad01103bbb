"""From a model and some texts to a run: begin, resume, extend."""

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, TypedDict, Unpack

import numpy as np

from glauber.dynamics.adaptive import n_proposable
from glauber.foundation import progress
from glauber.foundation.call import Call, current_call
from glauber.foundation.checks import Whole
from glauber.foundation.disk import RUN_HEADER, check_new, check_space
from glauber.foundation.errors import GlauberError, TooLong
from glauber.foundation.parameters import ModelOrName, Texts, Trust
from glauber.foundation.progress import check_memory, is_watched, say, track
from glauber.foundation.study import Default, counted, defaults_of, study
from glauber.models.base import Conditionals
from glauber.models.weights import check_device
from glauber.runs.log import Log, MemoryLog, bytes_needed
from glauber.runs.run import Folder, Run
from glauber.runs.spec import CHANGING, record_of
from glauber.sampling.advance import Session, advance_chains, rate, stopped_by_interrupt
from glauber.sampling.plan import DEFAULTS, ChainOptions, Plan, Steps, check_chains, plan

MEASURED_STEPS = 100_000  # a run of so many steps has its rate measured before it begins
NOT_STORED = ("out", "keep_run", "device", "batch_size", "memo", "session")  # of a run's call
MEMO_SPEEDUP = 10.0  # allowed for: remembered conditionals make later steps faster
BatchSize = Annotated[int | None, "Chains advanced together (default: all).", Whole(1, 10**12)]
Remembered = Annotated[
    int | None, "MiB for remembered conditionals, 0 for none (CPU: 256).", Whole(0, 10**12)
]
SessionOption = Annotated[Session | None, "Counts the steps, reports them and can stop the run."]


@study
def sample(
    model: ModelOrName = "bundled:english",
    texts: Texts = None,
    *,
    batch_size: BatchSize = None,
    memo: Remembered = None,
    out: Annotated[str | Path | None, "New folder of the run."] = None,
    session: SessionOption = None,
    **chain_options: Unpack[ChainOptions],
) -> Run:
    """Run Glauber dynamics from starting texts and store every event.

    Each step hides sites of every chain, asks the model for their conditionals and redraws them
    (paper A, section 3). The run can be read while it runs, stopped, resumed and made longer.
    Without `out`, Python keeps it in memory (`run.save(folder)` stores it), and the command line
    makes a folder under runs/. memo and batch_size change the speed and nothing else.
    """
    options: ChainOptions = {**DEFAULTS, **chain_options}
    check_device(options["device"])
    check_memory((memo or 0) * 2**20, "the memo")
    chains, length = options["chains"], options["length"]
    check_chains(chains, length)
    folder = None if out is None else Path(str(out))
    if folder is not None:
        check_new(folder)
    _check_size(folder, bytes_needed(chains or 1, options["steps"], 1, length or 1))
    planned = plan(model, texts, **options)
    _check_size(folder, planned.size)
    _say_cost(planned, folder, batch_size)
    log = begin(planned, folder)
    try:
        return _complete(planned, log, batch_size, memo, session)
    except Exception as error:  # a start that fails leaves no folder; interrupts keep the steps
        early = isinstance(error, TooLong) and error.early
        if folder is not None and (early or log.steps == 0):
            shutil.rmtree(folder, ignore_errors=True)
        raise


class ResumeOptions(TypedDict, total=False):
    """What may change when a run is resumed: where it runs and how fast."""

    model: Annotated[
        str | Conditionals | None,
        "The run's model, where its name does not lead to it any more.",
        Default(None),
    ]
    batch_size: Annotated[BatchSize, Default(None)]
    memo: Annotated[Remembered, Default(None)]
    device: Annotated[str | None, "Another device than the run's own.", Default(None)]
    trust_remote_code: Annotated[Trust, Default(False)]
    session: Annotated[SessionOption, Default(None)]


@study
def resume(run: Folder, **options: Unpack[ResumeOptions]) -> Run:
    """Resume a run that was stopped or killed; it ends with the same bytes as without the stop.

    What is there is compared with its checksums first: a run that was damaged is refused.
    """
    return _continue(run, None, options)


@study
def extend(run: Folder, *, steps: Steps, **options: Unpack[ResumeOptions]) -> Run:
    """Make a run longer: steps is the new total, so the same command can be given again."""
    return _continue(run, steps, options)


def _continue(run: Run | str | Path, steps: int | None, options: ResumeOptions) -> Run:
    chosen: ResumeOptions = {**defaults_of(ResumeOptions), **options}
    model, batch_size, memo = chosen["model"], chosen["batch_size"], chosen["memo"]
    device, trust_remote_code = chosen["device"], chosen["trust_remote_code"]
    check_device(device)
    check_memory((memo or 0) * 2**20, "the memo")
    run = Run.of(run).newest()
    if steps is not None and steps < run.steps:
        raise GlauberError(
            f"the run has {run.steps} steps already, more than {steps}: steps is the new total."
        )
    run.verify()
    finished = run.finished and steps in (None, run.spec.steps)
    if finished and model is None:
        return run
    missing = (run.spec.steps if steps is None else steps) - run.steps
    size = bytes_needed(run.n_chains, missing, run.log.n_slots, run.free.shape[1])
    _check_size(run.folder, size)
    from glauber.sampling.reopened import reopen

    planned = reopen(
        run, steps=steps, device=device, model=model, trust_remote_code=trust_remote_code
    )
    if finished:  # a wrong model is refused also where it has nothing to do
        return run
    _say_cost(planned, run.folder, batch_size, done=run.steps)
    return _complete(planned, open_log(run, planned), batch_size, memo, chosen["session"])


def begin(planned: Plan, folder: Path | None = None) -> Log:
    """A log without steps, in a new folder or in memory."""
    arrays = planned.tokens.numpy(), planned.free.numpy(), planned.slots
    call = planned.call or stored_call(current_call())
    if folder is None:
        return MemoryLog(planned.spec, *arrays, rejects=planned.rejects, call=call)
    check_new(folder)
    from glauber.runs.folder_log import FolderLog

    save = planned.model.vocabulary.save
    return FolderLog.create(
        folder, planned.spec, *arrays, rejects=planned.rejects, save_tokenizer=save, call=call
    )


def stored_call(call: Call | None) -> Call | None:
    """A call as a run stores it: without what does not change the run."""
    if call is None:
        return None
    arguments = {name: call.arguments[name] for name in call.arguments if name not in NOT_STORED}
    return Call(call.study, arguments)


def open_log(run: Run, planned: Plan) -> Log:
    """The log of a run, to which the steps of a plan can be appended."""
    if isinstance(run.log, MemoryLog):
        log: Log = run.log.copy()
    else:
        from glauber.runs.folder_log import FolderLog

        assert isinstance(run.log, FolderLog)
        log = FolderLog(run.log.folder, write=True)
    try:
        log.describe(planned.spec)
    except BaseException:
        log.close()
        raise
    return log


def log_of(planned: Plan, folder: Path | None) -> Log:
    """The log of a plan: a new one, or that of the folder in which the plan was begun.

    The steps of a generation that has ended are only read.
    """
    if folder is None or not (folder / RUN_HEADER).exists():
        return begin(planned, folder)
    run = Run(folder)
    _check_same(run, planned)
    run.verify()
    ended = run.finished and planned.unmasking is not None
    return run.log if ended else open_log(run, planned)


def _check_same(run: Run, planned: Plan) -> None:
    """Refuse to complete a run by another plan than the one that it was begun with."""
    stored, wanted = record_of(run.spec), record_of(planned.spec)
    names = {*stored, *wanted} - {*CHANGING}
    differ = sorted(name for name in names if stored.get(name) != wanted.get(name))
    if not differ and not np.array_equal(run.tokens(0), planned.tokens.numpy()):
        differ = ["texts"]
    if differ:
        raise GlauberError(
            f"{run.folder} contains another run (its {' and '.join(differ)} differ): choose "
            "another folder."
        )


def run_in_folder(planned: Plan, folder: Path) -> Run:
    """The run of a plan in a folder, which is made or completed."""
    with log_of(planned, folder) as log:
        advance_chains(planned, log)
    return Run(folder)


def _check_size(folder: Path | None, size: int) -> None:
    """Refuse a run that the disk, or the memory, has no space for."""
    if folder is None:
        check_memory(size, "the events of the run, which is in memory without `out`,")
    else:
        check_space(folder, size)


def _complete(
    planned: Plan, log: Log, batch_size: int | None, memo: int | None, session: Session | None
) -> Run:
    """Make the missing steps with progress; an interrupt says where the run is."""
    own_session = session is None
    with log, ExitStack() as stack:
        if session is None:
            bar = stack.enter_context(track("steps", planned.spec.steps))
            session = Session(lambda now: bar(to=now.step, note=now.text))
            stack.enter_context(stopped_by_interrupt(session))
        try:
            advance_chains(planned, log, batch_size=batch_size, memo=memo, session=session)
        except KeyboardInterrupt:  # the second one, or one of another thread
            session.stopping = own_session = True
    run = Run(log.folder or log, planned.model.vocabulary)
    if own_session and session.stopping:
        if run.folder is None:  # an interrupt must not lose the steps
            run = run.save(Path(tempfile.mkdtemp(prefix="glauber-")) / "run")
        raise KeyboardInterrupt(f"{run.where()}, or in Python: glauber.resume({run.name!r})")
    return run


def _say_cost(planned: Plan, folder: Path | None, batch_size: int | None, *, done: int = 0) -> None:
    """Say what the run will cost, by the rate of a few steps that are not kept.

    One that would take many days is refused. Remembered conditionals can make a run several times
    as fast as its first steps.
    """
    missing = planned.spec.steps - done
    if missing < MEASURED_STEPS and not (is_watched() and missing > 0):
        return
    steps_per_second = rate(planned, batch_size=batch_size)
    seconds = planned.spec.chains * missing / steps_per_second
    if missing >= MEASURED_STEPS and seconds > MEMO_SPEEDUP * progress.LONGEST:
        progress.refuse_days("steps", seconds)
    say(cost_line(planned, folder, steps_per_second, done=done))


def cost_line(planned: Plan, folder: Path | None, steps_per_second: float, *, done: int = 0) -> str:
    """The cost of the missing steps in one line: steps, time and space."""
    spec, adaptive = planned.spec, planned.scan.adaptive
    seconds = spec.chains * (spec.steps - done) / steps_per_second
    rows = ""
    if adaptive is not None:  # the state decides about the site of a step
        n_free = int(planned.free.sum(dim=1).max())
        n_rows = adaptive.rows(n_free, n_proposable(planned.conditionals))
        rows = f"up to {n_rows:,} rows through the model a step, "
    return (
        f"{counted(spec.chains, 'chain')} x {spec.steps - done:,} steps on {spec.device} in "
        f"{spec.dtype}: up to {_clock(seconds)} at {steps_per_second:,.0f} steps/s, {rows}"
        f"at most {planned.size / 1e6:,.1f} MB in {'memory' if folder is None else folder}"
    )


def _clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def unused_folder(
    parent: Path, model: str, temperature: float | Sequence[float], seed: int
) -> Path:
    """A folder name that says what the run is and is not taken."""
    temperatures = temperature if isinstance(temperature, Sequence) else [temperature]
    shown = "-".join(f"{float(value):g}" for value in sorted(set(temperatures))[:3])
    name = f"{Path(model.replace(':', '-')).name}-t{shown}-s{seed}"
    number = 1
    while (parent / f"{name}-{number}").exists():
        number += 1
    return parent / f"{name}-{number}"
