"""Fill the hidden sites of many texts to the end: a generation.

A generation is a run whose steps are passes. What was done to which site is a `Trace`, from which
all figures of the texts are read. A folder that was begun by the same call is resumed to the same
bits, because noise and plan are functions of the pass.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import (
    Conditionals,
    Model,
    check_temperature,
    mask_token_of,
    no_mask_token,
)
from glauber.conditionals.load import load
from glauber.conditionals.own import Own
from glauber.conditionals.weights import check_device, choose_dtype, kind_of
from glauber.disk import RUN_HEADER, check_new, check_space
from glauber.dynamics.kernel import run as step_through
from glauber.dynamics.kernel import start
from glauber.dynamics.unmasking import Passes, Unmasking, unmasking
from glauber.errors import GlauberError
from glauber.progress import check_count, check_memory, check_seed, say, track
from glauber.result import counted
from glauber.runs.folder_log import FolderLog
from glauber.runs.log import Log, MemoryLog, bytes_needed
from glauber.runs.run import Run
from glauber.runs.spec import Spec, record_of, versions
from glauber.sampling.advance import (
    Batch,
    Session,
    advance,
    check_batch_size,
    stopped_by_interrupt,
)

MOST_PASSES = 10**5


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
    lengths: str = ""  # the number or range that was asked for, where one was

    @property
    def hidden_token(self) -> int:
        return mask_token_of(self.model)

    @cached_property
    def begin(self) -> Tensor:
        """The sites (chains, length) that are hidden at the start: only these ever change."""
        return self.tokens == self.hidden_token

    @cached_property
    def most_passes(self) -> Tensor:
        """Passes of each chain (chains,): those of its plan, or at most one for each site."""
        return Passes(None, self.how, self.hidden_token, self.begin).most

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
            standard_only=True,
            unmasking=asdict(self.how) | ({"length": self.lengths} if self.lengths else {}),
            own=isinstance(model, Own),
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
    def of(cls, events: Mapping[str, NDArray[Any]], length: int, *, first: int = 0) -> "Trace":
        """The events (chains, steps, slots) of passes from `first` on."""
        step, chain, slot = np.nonzero(events["site"].transpose(1, 0, 2) >= 0)
        at = (chain, step, slot)
        return cls(
            chain,
            step + first,
            slot // length,
            events["site"][at].astype(np.int64),
            events["token"][at].astype(np.int64),
            events["changed"][at],
            events["log_prob_new"][at].astype(np.float64),
        )

    @classmethod
    def of_log(cls, log: Log) -> "Trace":
        """The events of a generation."""
        length = log.free.shape[1]
        parts = [cls.of(part.arrays, length, first=part.first) for part in log.segments()]
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns))


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
        """Of each text (chains,): the sum over its tokens, each when it was last placed.

        That is the log-probability of the path only where each is placed once.
        """
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
    if how.passes is not None:
        check_count("number of passes", how.passes, most=MOST_PASSES)
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
    if how.passes is not None and how.passes > tokens and how.remasked.kind == "none":
        where = "" if how.block is None else " of a block"
        raise GlauberError(
            f"{how.passes} passes are more than the {counted(tokens, 'hidden token')}{where}: each "
            "pass fills at least one, unless some are hidden again."
        )


def open_masked(model: str | Conditionals, *, dtype: str, **how: Any) -> Model:
    """The model, which must have a token for what is hidden."""
    choose_dtype(dtype)
    if isinstance(model, str) and (model.endswith(".gguf") or kind_of(model) == "causal"):
        raise no_mask_token(model)
    opened = load(model, dtype=dtype, **how)
    mask_token_of(opened)  # refuses models without one
    return opened


def check_out(out: str | Path | None) -> None:
    """Refuse a path that is neither new nor a generation."""
    if out is None:
        return
    folder = Path(str(out))
    if not (folder / RUN_HEADER).is_file():
        check_new(folder)
    elif Run(folder).spec.unmasking is None:
        raise GlauberError(f"{folder} is a run of chains: choose another folder.")


def write(job: Job, *, out: str | Path | None = None, batch_size: int | None = None) -> Written:
    """Fill the hidden sites of every chain to the end; stored and resumed where out is given."""
    n_chains, length = job.tokens.shape
    check_memory(200.0 * n_chains * length, f"{counted(n_chains, 'text')} of {length} tokens")
    most = int(job.most_passes.max())
    sweeps = f" and {counted(job.how.correct, 'sweep')} of correction" if job.how.correct else ""
    say(f"{counted(n_chains, 'text')}, passes at most: {most:,}{sweeps}")
    with _open_log(job, None if out is None else Path(str(out))) as log:
        if log.steps < log.spec.steps:
            _fill(job, log, batch_size)
        trace = Trace.of_log(log)
        made = job.most_passes.cpu().numpy().astype(np.int64)
        if not job.how.counted.planned:  # each pass fills a site of a chain that has not ended
            made = np.zeros_like(made)
            np.maximum.at(made, trace.chain, trace.step + 1)
        tokens, begin = log.tokens().astype(np.int64), job.begin.cpu().numpy()
    run = Run(log.folder) if isinstance(log, FolderLog) else None
    return Written(tokens, begin, made, trace, job.hidden_token, run)


def _open_log(job: Job, folder: Path | None) -> Log:
    """The log of a generation in memory, in a new folder, or in the folder that it was begun in."""
    tokens, begin, spec = job.tokens.numpy(), job.begin.numpy(), job.spec
    if folder is None:
        return MemoryLog(spec, tokens, begin, job.slots)
    if not (folder / RUN_HEADER).is_file():
        n_chains, length = tokens.shape
        check_space(folder, bytes_needed(n_chains, spec.steps, job.slots, length))
        save = job.model.vocabulary.save
        return FolderLog.create(folder, spec, tokens, begin, job.slots, save_tokenizer=save)
    run = Run(folder)
    _check_same(job, run)
    run.verify()
    return run.log if run.finished else FolderLog(folder, write=True)


def _check_same(job: Job, run: Run) -> None:
    """A folder is resumed by the call that began it, and by no other."""
    stored, spec = record_of(run.spec), record_of(job.spec)
    names = {*stored, *spec} - {"steps", "versions"}
    differ = sorted(name for name in names if stored.get(name) != spec.get(name))
    same = run.free.shape == job.begin.shape and bool((run.tokens(0) == job.tokens.numpy()).all())
    if differ or not same:
        what = " and ".join(differ) or "texts"
        raise GlauberError(
            f"{run.folder} contains another generation (its {what} differ): choose another folder."
        )


def _fill(job: Job, log: Log, batch_size: int | None) -> None:
    """Make the missing passes; an interrupt commits those that are made."""
    most = int(job.most_passes.max())
    with track("passes", most) as bar:
        session = Session(lambda now: bar(to=now.step), decode=job.model.vocabulary.decode)
        with stopped_by_interrupt(session):
            advance(_batches(job, log, batch_size), log, until=most, session=session)
        bar(to=most)
    if session.stopping:
        resume = "" if isinstance(log, MemoryLog) else "; the same call resumes it"
        raise KeyboardInterrupt(f"stopped after {counted(log.steps, 'pass')}{resume}")
    log.describe(replace(log.spec, steps=log.steps))  # texts may be full before the last pass


def _batches(job: Job, log: Log, batch_size: int | None) -> list[Batch]:
    """The texts in batches, from the last pass in the log on."""
    device = job.model.state_device
    tokens = torch.from_numpy(log.tokens()).long()
    temperature, step = float(job.temperature), log.steps
    state = start(tokens, job.begin, temperature=temperature, step=step, device=device, greedy=True)
    if log.steps:
        state = state._replace(memory=_placed(log, tokens.shape).to(device))
    conditionals = job.model.conditionals()
    missing = int(job.most_passes.max()) - log.steps
    batches = []
    for rows in torch.arange(len(tokens), device=device).split(batch_size or len(tokens)):
        begin = job.begin.to(device)[rows]
        kernel = unmasking(conditionals, job.how, hidden_token=job.hidden_token, begin=begin)
        stream = step_through(kernel, state.rows(rows), missing, seed=job.seed)
        batches.append(Batch(len(rows), stream, job.model.device))
    return batches


def _placed(log: Log, shape: tuple[int, ...]) -> Tensor:
    """The log-probability (chains, length) with which each token was placed, as a state has it."""
    placed, trace = np.zeros(shape, np.float32), Trace.of_log(log)
    placed[trace.chain, trace.site] = trace.log_prob
    return torch.from_numpy(placed)
