"""Which engine makes a run's steps? Chosen here, and only here.

plain       one step of all chains after the other; several devices share the chains
memoised    chains that advance on their own and never ask twice (a CPU, single sites)
prefetched  the same with nothing remembered: very few chains, whose next steps share a call
graph       a step recorded as a CUDA graph (few chains)
multi-step  several steps of very few chains in one pass, recorded too

All of them make the same steps: to the bit on a CPU, up to the rounding of a batch on CUDA.
"""

import time
import warnings
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from glauber.dynamics.kernel import Annealing, State, run, start
from glauber.dynamics.remembered import Memo, memoised
from glauber.errors import GlauberWarning
from glauber.progress import check_count, check_memory
from glauber.runs.log import Log
from glauber.sampling.advance import Batch, Session, Stream, advance, current_device
from glauber.sampling.plan import Plan

FEW = 256  # up to this many chains a CUDA step is bound by launches, and is replayed as a graph
VERY_FEW = 4  # up to this many chains leave a CPU's cores idle unless steps share a call
MEMO = 256  # MiB of remembered conditionals, on a CPU

Engine = Literal["plain", "memoised", "prefetched", "graph", "multi-step"]


def check_memo(memo: int | None) -> None:
    """Refuses a memo of less than nothing, and one that the machine has no memory for."""
    if memo is not None:
        check_count("memo's MiB", memo, least=0, most=10**12)
        check_memory(memo * 2**20, "the memo")


def new_memo(planned: Plan, size: int | None) -> Memo | None:
    """An empty memo of so many MiB (default: MEMO on a CPU), if the run has a use for it."""
    if size is None:
        size = 0 if planned.on_cuda else MEMO
    if planned.others:
        return None  # each device would need its own
    if not size or planned.kernel.lookup is None:
        return None
    return Memo(planned.conditionals.vocab_size, planned.tokens.shape[1], budget=size * 2**20)


def choose(planned: Plan, n_chains: int, n_devices: int, memo: Memo | None) -> Engine:
    """The engine for so many chains of a batch.

    Steps are recorded for one device only: a recording suffers nothing else beside it.
    """
    if n_devices > 1:
        return "plain"
    if memo is not None:
        return "memoised"
    single = planned.kernel.lookup is not None
    if not planned.on_cuda:
        return "prefetched" if single and n_chains <= VERY_FEW else "plain"
    from glauber.dynamics.cuda import steps_per_pass

    if steps_per_pass(n_chains) > 1 and single and planned.can_be_recorded:
        return "multi-step"
    few = planned.spec.chains <= FEW and planned.can_be_recorded
    return "graph" if few else "plain"


def advance_chains(
    planned: Plan,
    log: Log,
    *,
    batch_size: int | None = None,
    memo: int | None = None,
    session: Session | None = None,
    until: int | None = None,
) -> None:
    """Make the steps that a log of chains lacks, up to `until` (default: the planned number).

    memo is the room for remembered conditionals in MiB, 0 for none (default: some on a CPU).
    """
    session = session or Session()
    session.memo = new_memo(planned, memo)
    session.decode = planned.model.vocabulary.decode
    until = planned.spec.steps if until is None else until
    batches = chain_batches(planned, log, until, batch_size, session.memo)
    advance(batches, log, until=until, session=session)


def chain_batches(
    planned: Plan, log: Log, until: int, batch_size: int | None, memo: Memo | None
) -> list[Batch]:
    """The chains of a log in batches; several devices take them in turn."""
    devices = planned.per_device
    tokens = torch.from_numpy(log.tokens()).long()
    memory = placed_log_probs(log) if planned.unmasking is not None and log.steps else None
    size = batch_size or -(-len(tokens) // len(devices))
    batches = []
    for number, rows in enumerate(torch.arange(len(tokens)).split(size)):
        device = devices[number % len(devices)]
        state = begin_at(device, tokens[rows], rows, log.steps)
        steps = until - log.steps
        if memory is not None:
            state = state._replace(memory=memory[rows].to(state.memory.device))
        stream = step_stream(device, state, steps, n_devices=len(devices), memo=memo)
        batches.append(Batch(len(rows), stream, device.model.device))
    return batches


def step_stream(
    planned: Plan, state: State, steps: int, *, n_devices: int = 1, memo: Memo | None = None
) -> Stream:
    """The next steps of the chains of a state, at the temperatures of the plan's annealing."""
    if planned.annealing is None:
        return _steps(planned, state, steps, n_devices=n_devices, memo=memo)
    return _annealed_steps(planned, planned.annealing, state, steps, n_devices, memo)


def _annealed_steps(
    planned: Plan,
    annealing: Annealing,
    state: State,
    steps: int,
    n_devices: int,
    memo: Memo | None,
) -> Stream:
    first = int(state.step[0])
    for temperature, count in annealing.stages(first, first + steps):
        state = state._replace(temperature=torch.full_like(state.temperature, temperature))
        stage = _steps(planned, state, count, n_devices=n_devices, memo=memo)
        for state, info in stage:
            yield state, info


def _steps(planned: Plan, state: State, steps: int, *, n_devices: int, memo: Memo | None) -> Stream:
    """The next steps of the chains of a state, at its own temperatures."""
    seed, n_chains, kernel = planned.spec.seed, len(state.step), planned.kernel_of(state.free)
    engine = choose(planned, n_chains, n_devices, memo)
    if engine in ("memoised", "prefetched"):
        if memo is None:
            memo = Memo(planned.conditionals.vocab_size, state.tokens.shape[1], budget=0)
        return memoised(kernel, state, steps, seed=seed, memo=memo)
    if planned.on_cuda:
        from glauber.dynamics.cuda import laid_out, multi_step, replayed, steps_per_pass

        if engine == "multi-step":
            per_pass = steps_per_pass(n_chains)
            return multi_step(kernel, state, steps, seed=seed, per_pass=per_pass)
        if engine == "graph":
            kernel = replayed(kernel)
        elif planned.can_be_recorded:
            kernel = laid_out(kernel)
    return run(kernel, state, steps, seed=seed)


def begin_at(planned: Plan, tokens: Tensor, rows: Tensor, step: int = 0) -> State:
    """The state of the chains `rows` after so many steps."""
    temperatures = torch.tensor(planned.spec.temperatures, dtype=torch.float64)
    return start(
        tokens,
        planned.free[rows],
        temperature=temperatures[rows],
        chain=rows,
        step=step,
        device=planned.model.state_device,
        greedy=planned.unmasking is not None,
    )


def placed_log_probs(log: Log) -> Tensor:
    """The log-probability (chains, length) with which each token of a generation was placed."""
    placed = np.zeros(log.free.shape, np.float32)
    for segment in log.segments():
        sites = segment.arrays["site"]
        chain, step, slot = np.nonzero(sites >= 0)
        log_probs = segment.arrays["log_prob_new"][chain, step, slot]
        placed[chain, sites[chain, step, slot]] = log_probs  # the last one counts
    return torch.from_numpy(placed)


def rate(planned: Plan, *, batch_size: int | None = None) -> float:
    """Measured chain steps per second, from two steps that are not kept.

    Several devices: what the first does with its share of the chains, times their number.
    """
    devices = planned.per_device
    share = -(-len(planned.tokens) // len(devices))
    rows = torch.arange(min(batch_size or share, share))
    with current_device(devices[0].model.device), warnings.catch_warnings():
        warnings.simplefilter("ignore", GlauberWarning)  # the run itself says it
        begun = begin_at(devices[0], planned.tokens[rows], rows)
        graph = choose(devices[0], len(rows), len(devices), None) in ("graph", "multi-step")
        kernel = planned.kernel
        if graph:
            from glauber.dynamics.cuda import replayed

            kernel = replayed(kernel)
        steps = run(kernel, begun, 3, seed=planned.spec.seed)
        next(steps)  # compilation, recording and caches are not counted
        before = time.perf_counter()
        for _, info in steps:
            info.changed.cpu()  # waits for the device
        return len(devices) * 2 * len(rows) / (time.perf_counter() - before)
