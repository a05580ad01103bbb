"""From a model and some texts to a run: begin, resume, extend."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np

from glauber import progress
from glauber.conditionals.base import Conditionals
from glauber.conditionals.constraints import Allow, Bias, Tie
from glauber.conditionals.weights import check_device
from glauber.disk import RUN_HEADER, check_new, check_space
from glauber.dynamics.adaptive import proposed
from glauber.dynamics.scans import SCAN_HELP
from glauber.errors import GlauberError, TooLong
from glauber.parameters import Freeze, Length, ModelOrName, Seed, Texts, Trust
from glauber.progress import check_count, check_memory, say, track, watched
from glauber.result import counted, study
from glauber.runs.folder_log import FolderLog
from glauber.runs.log import Log, MemoryLog, bytes_needed
from glauber.runs.run import Run
from glauber.runs.spec import CHANGING, record_of
from glauber.sampling.advance import Session, check_batch_size, stopped_by_interrupt
from glauber.sampling.engine import advance_chains, check_memo, rate
from glauber.sampling.plan import STEPS, Plan, check_numbers, plan, read_temperature

MEASURED_STEPS = 100_000  # a run of so many steps has its rate measured before it begins
MEMO_SPEEDUP = 10.0  # allowed for: remembered conditionals make later steps faster
Folder = Annotated[Run | str | Path, "Folder of a run."]
BatchSize = Annotated[int | None, "Chains advanced together (default: all)."]
Remembered = Annotated[int | None, "MiB for remembered conditionals, 0 for none (CPU: 256)."]
SessionOption = Annotated[Session | None, "Counts the steps, reports them and can stop the run."]
OtherDevice = Annotated[str | None, "Another device than the run's own."]
OtherModel = Annotated[
    str | Conditionals | None, "The run's model, where its name does not lead to it any more."
]


@study
def sample(
    model: ModelOrName = "bundled:english",
    texts: Texts = None,
    *,
    steps: Annotated[int, "Steps of every chain, in all."] = 1000,
    temperature: Annotated[
        float | Sequence[float], "Cold (0.3) repeats itself, hot (2) is noise; or one per chain."
    ] = 1.0,
    seed: Seed = 0,
    chains: Annotated[int | None, "Number of chains; they take the texts in turn."] = None,
    length: Length = None,
    prefix: Annotated[str, "Text put before each start and never redrawn."] = "",
    freeze: Freeze = "",
    scan: Annotated[str, SCAN_HELP] = "uniform",
    within: Annotated[
        str | None,
        "Sites of one step: sequential, product or parallel (default: sequential; parallel for "
        "everywhere).",
    ] = None,
    fill: Annotated[str, "inverse-cdf, gumbel-max or greedy."] = "inverse-cdf",
    forbid: Annotated[Sequence[str] | str, "Tokens never proposed, such as X,B,Z."] = "",
    allow: Annotated[Allow, "The tokens a site may hold, such as 3:king|queen,5-7:ST."] = "",
    bias: Annotated[Bias, "Added to the scores of a site, such as 3:king=1|queen=-2."] = "",
    max_changes: Annotated[int | None, "Sites that may differ from a chain's own start."] = None,
    tie: Annotated[Tie, "Sites that always hold the same token, such as 3=9,4-6=10-12."] = "",
    special_tokens: Annotated[bool, "Let special and unused tokens be proposed."] = False,
    device: Annotated[str, "auto, cpu, cuda or mps; cuda:0,cuda:1 share the chains."] = "auto",
    dtype: Annotated[
        str | None,
        "float32 (default), bfloat16, float64, or int8: faster on a CPU, coarser.",
    ] = None,
    batch_size: BatchSize = None,
    memo: Remembered = None,
    out: Annotated[str | Path | None, "New folder of the run."] = None,
    trust_remote_code: Trust = False,
    session: SessionOption = None,
) -> Run:
    """Run Glauber dynamics from starting texts and store every event.

    Each step hides sites of every chain, asks the model for their conditionals and redraws them
    (paper A, section 2). The run can be read while it goes on, stopped, resumed and made longer.
    Without `out`, Python keeps it in memory (`run.save(folder)` stores it), and the command line
    makes a folder under runs/. memo and batch_size change the speed and nothing else.
    """
    check_batch_size(batch_size)
    check_memo(memo)
    check_device(device)
    _check_cost(steps, temperature, seed, chains, length, out)
    planned = plan(
        model,
        texts,
        steps=steps,
        temperature=temperature,
        seed=seed,
        chains=chains,
        length=length,
        prefix=prefix,
        freeze=freeze,
        scan=scan,
        within=within,
        fill=fill,
        forbid=forbid,
        allow=allow,
        bias=bias,
        max_changes=max_changes,
        tie=tie,
        special_tokens=special_tokens,
        device=device,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
    )
    folder = None if out is None else Path(str(out))
    with _nothing_left(folder):
        _check_size(folder, planned.size)
        _check_time(planned, batch_size)
        _say_cost(planned, folder, batch_size)
        return _complete(planned, begin(planned, folder), batch_size, memo, session)


@study
def resume(
    run: Folder,
    *,
    model: OtherModel = None,
    batch_size: BatchSize = None,
    memo: Remembered = None,
    device: OtherDevice = None,
    trust_remote_code: Trust = False,
    session: SessionOption = None,
) -> Run:
    """Resume a run that was stopped or killed; it ends with the same bytes as without the stop.

    What is there is compared with its checksums first: a run that was damaged is refused.
    """
    return _continue(run, None, model, batch_size, memo, device, trust_remote_code, session)


@study
def extend(
    run: Folder,
    *,
    steps: Annotated[int, "Steps of every chain, in all: the new total."],
    model: OtherModel = None,
    batch_size: BatchSize = None,
    memo: Remembered = None,
    device: OtherDevice = None,
    trust_remote_code: Trust = False,
    session: SessionOption = None,
) -> Run:
    """Make a run longer: steps is the new total, so the same command can be given again."""
    check_count("number of steps", steps, least=0, most=STEPS)
    return _continue(run, steps, model, batch_size, memo, device, trust_remote_code, session)


def _continue(
    run: Run | str | Path,
    steps: int | None,
    model: str | Conditionals | None,
    batch_size: int | None,
    memo: int | None,
    device: str | None,
    trust_remote_code: bool,
    session: Session | None,
) -> Run:
    from glauber.sampling.reopened import reopen

    check_batch_size(batch_size)
    check_memo(memo)
    check_device(device)
    run = Run.of(run).newest()
    if steps is not None and steps < run.steps:
        raise GlauberError(
            f"the run has {run.steps} steps already, more than {steps}: steps is the new total."
        )
    run.verify()
    if run.finished and steps in (None, run.spec.steps):
        if model is not None:  # a wrong one is refused also where it has nothing to do
            reopen(run, device=device, model=model, trust_remote_code=trust_remote_code)
        return run
    total = run.spec.steps if steps is None else steps
    missing = total - run.steps
    size = bytes_needed(run.n_chains, missing, run.log.n_slots, run.free.shape[1])
    _check_size(run.folder, size)
    planned = reopen(
        run, steps=steps, device=device, model=model, trust_remote_code=trust_remote_code
    )
    _check_time(planned, batch_size, done=run.steps)
    _say_cost(planned, run.folder, batch_size, done=run.steps)
    return _complete(planned, open_log(run, planned), batch_size, memo, session)


def begin(planned: Plan, folder: Path | None = None) -> Log:
    """A log without steps, in a new folder or in memory."""
    tokens, free = planned.tokens.numpy(), planned.free.numpy()
    rejects = planned.rejects
    if folder is None:
        return MemoryLog(planned.spec, tokens, free, planned.slots, rejects=rejects)
    check_new(folder)
    return FolderLog.create(
        folder,
        planned.spec,
        tokens,
        free,
        planned.slots,
        rejects=rejects,
        save_tokenizer=planned.model.vocabulary.save,
    )


def open_log(run: Run, planned: Plan) -> Log:
    """The log of a run, to which the steps of a plan can be appended."""
    if isinstance(run.log, MemoryLog):
        log: Log = run.log.copy()
    else:
        assert run.folder is not None
        log = FolderLog(run.folder, write=True)
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


def _check_cost(
    steps: int,
    temperature: float | Sequence[float],
    seed: int,
    chains: int | None,
    length: int | None,
    out: str | Path | None,
) -> None:
    """Checks that need no model: numbers, the folder, and the size of so many events."""
    read_temperature(temperature)
    check_numbers(steps, chains, length, seed)
    folder = None if out is None else Path(str(out))
    if folder is not None:
        check_new(folder)
    _check_size(folder, bytes_needed(chains or 1, steps, 1, length or 1))


def _check_size(folder: Path | None, size: int) -> None:
    """Refuse a run that the disk, or the memory, has no space for."""
    if folder is None:
        check_memory(size, "the events of the run, which is in memory without `out`,")
    else:
        check_space(folder, size)


@contextmanager
def _nothing_left(folder: Path | None) -> Iterator[None]:
    """A start that fails leaves no folder; a run that has steps, or was interrupted, is kept.

    A run that is refused in its first minute because it would take days is not kept either.
    """
    existed = folder is None or folder.exists()
    try:
        yield
    except Exception as error:
        refused = isinstance(error, TooLong) and error.early
        created = folder is not None and not existed and folder.exists()
        if folder is not None and created and (refused or Run(folder).steps == 0):
            shutil.rmtree(folder, ignore_errors=True)
        raise


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
    run = Run(log.folder) if isinstance(log, FolderLog) else Run(log, planned.model.vocabulary)
    if own_session and session.stopping:
        if run.folder is None:  # an interrupt must not lose the steps
            run = run.save(Path(tempfile.mkdtemp(prefix="glauber-")) / "run")
        raise KeyboardInterrupt(f"{run.where()}, or in Python: glauber.resume({run.name!r})")
    return run


def _check_time(planned: Plan, batch_size: int | None, *, done: int = 0) -> None:
    """Refuses a run that would take many days, by the rate of a few steps that are not kept.

    Remembered conditionals can make a run several times as fast as its first steps.
    """
    missing = planned.spec.steps - done
    if missing >= MEASURED_STEPS:
        seconds = planned.spec.chains * missing / rate(planned, batch_size=batch_size)
        if seconds > MEMO_SPEEDUP * progress.LONGEST:
            progress.refuse_days("steps", seconds)


def _say_cost(planned: Plan, folder: Path | None, batch_size: int | None, *, done: int = 0) -> None:
    """What the run will cost: steps, disk, time at the measured rate."""
    if watched() and planned.spec.steps > done:
        say(cost(planned, folder, rate(planned, batch_size=batch_size), done=done))


def cost(planned: Plan, folder: Path | None, steps_per_second: float, *, done: int = 0) -> str:
    """The cost of the missing steps in one line."""
    spec = planned.spec
    where = "memory" if folder is None else folder
    seconds = spec.chains * (spec.steps - done) / steps_per_second
    return (
        f"{counted(spec.chains, 'chain')} x {spec.steps - done:,} steps on {spec.device} in "
        f"{spec.dtype}: up to {_clock(seconds)} at {steps_per_second:,.0f} steps/s, "
        f"{_rows(planned)}at most {planned.size / 1e6:,.1f} MB in {where}"
    )


def _rows(planned: Plan) -> str:
    """What a step costs whose site the state decides about."""
    adaptive = planned.scan.adaptive
    if adaptive is None:
        return ""
    rows = adaptive.rows(int(planned.free.sum(dim=1).max()), proposed(planned.conditionals))
    return f"up to {rows:,} rows through the model a step, "


def _clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def unused_folder(
    parent: Path, model: str, temperature: float | Sequence[float], seed: int
) -> Path:
    """A folder name that says what the run is and is not taken."""
    temperatures = temperature if isinstance(temperature, Sequence) else [temperature]
    shown = "-".join(f"{float(one):g}" for one in sorted(set(temperatures))[:3])
    name = f"{Path(model.replace(':', '-')).name}-t{shown}-s{seed}"
    number = 1
    while (parent / f"{name}-{number}").exists():
        number += 1
    return parent / f"{name}-{number}"
