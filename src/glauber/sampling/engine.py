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
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor

from glauber.dynamics.cuda import laid_out, multi_step, replayed, steps_per_pass
from glauber.dynamics.kernel import Info, State, run, start
from glauber.dynamics.memo import Memo
from glauber.dynamics.scheduler import can_be_memoised, memoised
from glauber.errors import GlauberWarning
from glauber.progress import check_count, check_memory
from glauber.sampling.plan import Plan

FEW = 256  # up to this many chains a CUDA step is bound by launches, and is replayed as a graph
VERY_FEW = 4  # up to this many chains leave a CPU's cores idle unless steps share a call
MEMO = 256  # MiB of remembered conditionals, on a CPU

Engine = Literal["plain", "memoised", "prefetched", "graph", "multi-step"]
Stream = Iterator[tuple[State, Info]]


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
    if not size or not can_be_memoised(planned.scan, planned.fill):
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
    single = can_be_memoised(planned.scan, planned.fill)
    if not planned.on_cuda:
        return "prefetched" if single and n_chains <= VERY_FEW else "plain"
    if steps_per_pass(n_chains) > 1 and single:
        return "multi-step"
    few = planned.spec.chains <= FEW and planned.scan.can_be_recorded
    return "graph" if few else "plain"


def stream(
    planned: Plan, tokens: Tensor, rows: Tensor, step: int, *, n_devices: int, memo: Memo | None
) -> Stream:
    """All the steps still missing of the chains `rows`, from `step` on."""
    begun, missing = begin_at(planned, tokens, rows, step), planned.spec.steps - step
    seed = planned.spec.seed
    match choose(planned, len(rows), n_devices, memo):
        case "memoised" | "prefetched":
            scan, fill = planned.scan, planned.fill
            if memo is None:
                memo = Memo(planned.conditionals.vocab_size, tokens.shape[1], budget=0)
            return memoised(
                planned.conditionals, begun, missing, seed=seed, memo=memo, scan=scan, fill=fill,
                limits=planned.limits,
            )  # fmt: skip
        case "multi-step":
            per_pass = steps_per_pass(len(rows))
            return multi_step(planned.kernel, begun, missing, seed=seed, per_pass=per_pass)
        case "graph":
            return run(replayed(planned.kernel), begun, missing, seed=seed)
        case _:
            once = planned.on_cuda and planned.scan.can_be_recorded
            kernel = laid_out(planned.kernel) if once else planned.kernel
            return run(kernel, begun, missing, seed=seed)


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
    )


def on_its_device(planned: Plan) -> AbstractContextManager[object]:
    """Makes the plan's CUDA device the current one; nothing on a CPU."""
    return torch.cuda.device(planned.model.device) if planned.on_cuda else nullcontext()


def rate(planned: Plan, *, batch_size: int | None = None) -> float:
    """Measured chain steps per second, from two steps that are not kept.

    Several devices: what the first does with its share of the chains, times their number.
    """
    devices = planned.per_device
    share = -(-len(planned.tokens) // len(devices))
    rows = torch.arange(min(batch_size or share, share))
    with on_its_device(devices[0]), warnings.catch_warnings():
        warnings.simplefilter("ignore", GlauberWarning)  # the run itself says it
        begun = begin_at(devices[0], planned.tokens[rows], rows)
        graph = choose(devices[0], len(rows), len(devices), None) in ("graph", "multi-step")
        kernel = replayed(planned.kernel) if graph else planned.kernel
        steps = run(kernel, begun, 3, seed=planned.spec.seed)
        next(steps)  # compilation, recording and caches are not counted
        before = time.perf_counter()
        for _, info in steps:
            info.changed.cpu()  # waits for the device
        return len(devices) * 2 * len(rows) / (time.perf_counter() - before)
