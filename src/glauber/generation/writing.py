"""How are hidden sites filled to the end, kept as a run, and resumed?

All chains make a pass before any makes the next one, in batches. What a pass did goes into a
`Trace`, and into the run's folder where there is one; a folder that was begun by the same call is
resumed to the same bits, because noise and plan are functions of the pass.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import check_temperature
from glauber.conditionals.load import Model, load
from glauber.conditionals.weights import check_device, choose_dtype, kind_of
from glauber.dynamics.kernel import Info, Kernel, State, start
from glauber.errors import GlauberError
from glauber.generation.unmasking import Passes, Unmasking, unmasking
from glauber.progress import check_count, check_memory, check_seed, say, track
from glauber.result import counted
from glauber.runs.run import Run
from glauber.runs.spec import GENERATION, HEADER, Spec, versions, write_spec
from glauber.runs.store import Events, Writer, bytes_needed, check_new, create, make_folder
from glauber.sampling.plan import check_disk
from glauber.sampling.session import COMMIT_SECONDS, as_events, check_batch_size

BLOCK = 64  # passes of a stored generation read at a time


@dataclass(frozen=True)
class Job:
    """Texts with hidden sites, and how they are to be filled."""

    model: Model
    how: Unmasking
    tokens: Tensor  # (chains, length), the model's hidden token at hidden sites, PAD behind the end
    temperature: float
    seed: int
    prefix: str = ""
    frozen: tuple[int, ...] = ()  # sites before the first hidden one, as people count them
    trust_remote_code: bool = False

    @property
    def hidden_token(self) -> int:
        return int(self.model.hidden_token)

    @cached_property
    def begin(self) -> Tensor:
        """The sites (chains, length) that are hidden at the start: only these ever change."""
        return self.tokens == self.hidden_token

    @cached_property
    def most_passes(self) -> Tensor:
        """Passes of each chain (chains,): those of its plan, or at most one for each site."""
        table = Passes(None, self.how, self.hidden_token, self.begin).table
        return self.begin.sum(dim=1) if table is None else table.passes

    @property
    def slots(self) -> int:
        return self.how.slots(self.tokens.shape[1])

    @property
    def spec(self) -> Spec:
        model = self.model
        return Spec(
            model=model.name,
            fingerprint=model.fingerprint,
            device=model.device.type,
            dtype=model.dtype,
            seed=self.seed,
            steps=int(self.most_passes.max()),
            chains=len(self.tokens),
            temperature=float(self.temperature),
            scan="unmasking",
            within="product",
            prefix=self.prefix,
            frozen=list(self.frozen),
            trust_remote_code=self.trust_remote_code,
            versions=versions(),
            format=GENERATION,
            standard_only=True,
            unmasking=asdict(self.how),
        )


@dataclass(frozen=True, eq=False)
class Trace:
    """What was done to which site, one entry an event, in the order of passes."""

    chain: NDArray[np.int64]
    step: NDArray[np.int64]  # the pass, from 0
    part: NDArray[np.int64]  # 0: of the pass itself; 1, 2, …: of a sweep behind it
    site: NDArray[np.int64]  # by position
    token: NDArray[np.int64]  # placed, or the hidden token
    changed: NDArray[np.bool_]
    log_prob: NDArray[np.float64]  # of the token when it was placed, in the law read

    @classmethod
    def of(cls, events: Events, length: int, *, first: int = 0) -> "Trace":
        """The events (chains, steps, slots) of passes from `first` on."""
        step, chain, slot = np.nonzero(events["site"].transpose(1, 0, 2) >= 0)
        at = (chain, step, slot)
        return cls(
            chain, step + first, slot // length, events["site"][at].astype(np.int64),
            events["token"][at].astype(np.int64), events["changed"][at],
            events["log_prob_new"][at].astype(np.float64),
        )  # fmt: skip

    @classmethod
    def joined(cls, parts: "list[Trace]") -> "Trace":
        return cls(*(np.concatenate(c) for c in zip(*(vars(p).values() for p in parts))))  # noqa: B905


@dataclass(frozen=True, eq=False)
class Written:
    """Texts that were filled to the end."""

    tokens: NDArray[np.int64]  # (chains, length)
    begin: NDArray[np.bool_]  # (chains, length): what was hidden
    passes: NDArray[np.int64]  # (chains,)
    trace: Trace
    hidden_token: int
    run: Run | None = None

    @property
    def log_probs(self) -> NDArray[np.float64]:
        """Of each text (chains,): the sum over the tokens that stand, each when it was placed."""
        placed = np.zeros(self.tokens.shape)
        placed[self.trace.chain, self.trace.site] = self.trace.log_prob  # the last one counts
        return np.asarray((placed * self.begin).sum(axis=1))

    @property
    def revised(self) -> NDArray[np.int64]:
        """How often (chains,) a placed token was hidden again, or redrawn to another one."""
        trace = self.trace
        again = trace.token == self.hidden_token
        redrawn = (trace.part > 0) & trace.changed
        return np.bincount(trace.chain[again | redrawn], minlength=len(self.tokens))


def check(
    how: Unmasking, *, temperature: float, seed: int, batch_size: int | None, device: str
) -> None:
    """What needs no model."""
    how.check()
    if isinstance(temperature, bool) or not isinstance(temperature, int | float):
        raise GlauberError(f"the temperature is {temperature!r}, but it must be a number.")
    if not temperature >= 0:
        raise GlauberError(f"the temperature is {temperature}, but it must be 0 or above.")
    if temperature > 0:
        check_temperature(temperature)
    check_seed(seed)
    check_batch_size(batch_size)
    check_device(device)
    if how.counted.kind == "number":
        check_count("number of tokens a pass", int(how.counted.value))
    if how.passes is not None and not how.counted.planned:
        raise GlauberError(
            f"the count {how.count} has no number of passes: leave it out, or take linear or "
            "cosine."
        )
    if not how.correct and (how.between or how.correct_block is not None):
        raise GlauberError("there is nothing to correct: say by how many sweeps (correct).")


def check_passes(how: Unmasking, fewest: int) -> None:
    """Refuses more passes than there are tokens to fill, of which no plan could fill one each."""
    tokens = fewest if how.block is None else min(how.block, fewest)
    if how.passes is not None and how.passes > tokens and how.remasked.kind != "loop":
        where = "" if how.block is None else " of a block"
        raise GlauberError(
            f"{how.passes} passes are more than the {counted(tokens, 'hidden token')}{where}: each "
            "pass fills at least one."
        )


def open_masked(model: Any, *, dtype: str, **how: Any) -> Model:
    """The model, which must have a token for what is hidden."""
    choose_dtype(dtype)
    if isinstance(model, str) and (model.endswith(".gguf") or kind_of(model) == "causal"):
        raise _without_mask(model)
    opened = load(model, dtype=dtype, **how)
    if getattr(opened, "hidden_token", None) is None:
        raise _without_mask(opened.name)
    return opened


def _without_mask(name: str) -> GlauberError:
    return GlauberError(
        f"{name} is autoregressive and has no mask, so it cannot fill hidden tokens: take a masked "
        "model."
    )


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
    state = _state(job, job.tokens, 0)
    for after, events in _passes(job, state, batch_size):
        state = after
        traces.append(Trace.of(events, length, first=len(traces)))
    return _written(job, state.tokens.cpu().numpy(), Trace.joined(traces))


def _state(job: Job, tokens: Tensor, step: int) -> State:
    place = job.model.state_device
    heat = float(job.temperature)
    return start(tokens, job.begin, temperature=heat, step=step, device=place, greedy=True)


def _written(job: Job, tokens: NDArray[np.int64], trace: Trace, run: Run | None = None) -> Written:
    made = job.most_passes.cpu().numpy().astype(np.int64)
    if not job.how.counted.planned:  # each pass fills a site of a chain that has not ended
        made = np.zeros_like(made)
        np.maximum.at(made, trace.chain, trace.step + 1)
    return Written(tokens, job.begin.cpu().numpy(), made, trace, job.hidden_token, run)


def _passes(job: Job, state: State, batch_size: int | None) -> Iterator[tuple[State, Events]]:
    """Each pass until all chains are at their end: the state, and events (chains, 1, slots)."""
    place = state.step.device
    batches = torch.arange(len(state.step), device=place).split(batch_size or len(state.step))
    kernels = [_kernel(job, job.begin.to(place)[rows]) for rows in batches]
    over = Passes(None, job.how, job.hidden_token, job.begin.to(place)).ended
    seed = torch.as_tensor(job.seed, device=place)
    most = int(job.most_passes.max())
    with track("passes", most * len(batches)) as advance:
        advance(int(state.step[0]) * len(batches))
        while not bool(over(state).all()):
            done = []
            for rows, kernel in zip(batches, kernels, strict=True):
                some = state.rows(rows)
                done.append(kernel.step(some, kernel.draw(seed, some)))
                advance()
            state = State(*(torch.cat(part) for part in zip(*(s for s, _ in done), strict=True)))
            info = Info(*(torch.cat(part) for part in zip(*(i for _, i in done), strict=True)))
            yield state, as_events([info], job.slots)


def _kernel(job: Job, begin: Tensor) -> Kernel:
    conditionals = job.model.conditionals()
    return unmasking(conditionals, job.how, hidden_token=job.hidden_token, begin=begin)


# ---- kept in a folder


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
    return _written(job, run.tokens(), _trace(run), run)


def _create(job: Job, draft: Path) -> None:
    create(draft, job.tokens.numpy(), job.begin.numpy(), job.slots)
    job.model.vocabulary.save(draft / "tokenizer")
    write_spec(draft, job.spec)


def _check_same(job: Job, run: Run) -> None:
    """A folder is resumed by the call that began it, and by no other."""
    kept, asked = asdict(run.spec), asdict(job.spec)
    differ = [
        name for name in asked if name not in ("steps", "versions") and kept[name] != asked[name]
    ]
    same = run.free.shape == job.begin.shape and bool((run.tokens(0) == job.tokens.numpy()).all())
    if differ or not same:
        what = " and ".join(differ) or "texts"
        raise GlauberError(
            f"{run.folder} holds another generation (its {what} differ): choose another folder."
        )


def _advance(job: Job, run: Run, batch_size: int | None) -> None:
    """Makes the missing passes and commits them every few seconds, and when interrupted."""
    state = _state(job, torch.from_numpy(run.tokens()), run.steps)
    if run.steps:
        state = state._replace(
            placed=_placed(_trace(run), state.tokens.shape).to(state.step.device)
        )
    with Writer(run.folder) as writer:
        held: list[Events] = []
        passes = _passes(job, state, batch_size)
        try:
            since = time.perf_counter()
            for state, events in passes:
                held.append(events)
                late = time.perf_counter() - since > COMMIT_SECONDS
                if late or (writer.steps + len(held)) % writer.every == 0:
                    _commit(writer, held, state)
                    since = time.perf_counter()
        finally:
            _commit(writer, held, state)
        write_spec(run.folder, replace(run.spec, steps=writer.steps))
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
