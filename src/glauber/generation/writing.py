"""How are the hidden sites of many texts filled to the end?

All chains make a pass before any makes the next one, in batches. What was done to which site is a
`Trace`, from which all figures of the texts are read.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import check_temperature
from glauber.conditionals.load import Model, load
from glauber.conditionals.own import Own
from glauber.conditionals.weights import check_device, choose_dtype, kind_of
from glauber.dynamics.kernel import Info, Kernel, State, start
from glauber.errors import GlauberError
from glauber.generation.unmasking import Passes, Unmasking, unmasking
from glauber.progress import check_count, check_seed, track
from glauber.result import counted
from glauber.runs.run import Run
from glauber.runs.spec import Spec, versions
from glauber.runs.store import Events
from glauber.sampling.session import as_events, check_batch_size

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
        """The traces of passes that follow each other as one."""
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


def state_of(job: Job, tokens: Tensor, step: int) -> State:
    """The state of a job's chains that hold these tokens after so many passes."""
    place = job.model.state_device
    heat = float(job.temperature)
    return start(tokens, job.begin, temperature=heat, step=step, device=place, greedy=True)


def written(job: Job, tokens: NDArray[np.int64], trace: Trace, run: Run | None = None) -> Written:
    """What a job came to, with the passes that each chain made."""
    made = job.most_passes.cpu().numpy().astype(np.int64)
    if not job.how.counted.planned:  # each pass fills a site of a chain that has not ended
        made = np.zeros_like(made)
        np.maximum.at(made, trace.chain, trace.step + 1)
    return Written(tokens, job.begin.cpu().numpy(), made, trace, job.hidden_token, run)


def passes(job: Job, state: State, batch_size: int | None) -> Iterator[tuple[State, Events]]:
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
