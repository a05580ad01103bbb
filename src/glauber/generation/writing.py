"""Fill the hidden sites of many texts to the end: a generation.

A generation is a run whose steps are passes: planned, begun, advanced and resumed as any other.
What was done to which site is a `Trace`, from which all figures of the texts are read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
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
from glauber.dynamics.unmasking import Unmasking, most_passes
from glauber.errors import GlauberError
from glauber.progress import check_count, check_memory, check_seed, say, track
from glauber.result import counted
from glauber.runs.folder_log import FolderLog
from glauber.runs.log import Log, MemoryLog
from glauber.runs.run import Run
from glauber.runs.spec import Spec, versions
from glauber.sampling.advance import Session, advance_chains, check_batch_size, stopped_by_interrupt
from glauber.sampling.plan import Plan
from glauber.sampling.sample import log_of

MOST_PASSES = 10**5


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


def plan_generation(
    model: Model,
    how: Unmasking,
    tokens: Tensor,
    *,
    temperature: float,
    seed: int,
    prefix: str = "",
    frozen: Sequence[int] = (),
    trust_remote_code: bool = False,
    lengths: str = "",
) -> Plan:
    """The plan that fills the hidden sites of tokens (chains, length), PAD after shorter texts.

    frozen are the sites before the first hidden one, as people count them; lengths is the number or
    the range of tokens that was asked for.
    """
    hidden = tokens == mask_token_of(model)
    spec = Spec(
        model=model.name,
        fingerprint=model.fingerprint,
        device=model.device.type,
        dtype=model.dtype,
        seed=seed,
        steps=int(most_passes(how, hidden).max()),
        chains=len(tokens),
        temperature=float(temperature),
        scan="unmasking",
        within="product",
        prefix=prefix,
        frozen=list(frozen),
        trust_remote_code=trust_remote_code,
        versions=versions(),
        standard_only=True,
        unmasking=asdict(how) | ({"length": lengths} if lengths else {}),
        own=isinstance(model, Own),
    )
    return Plan(model, spec, tokens, hidden)


def write(
    planned: Plan, *, out: str | Path | None = None, batch_size: int | None = None
) -> Written:
    """Fill the hidden sites of every chain to the end; stored and resumed where out is given."""
    how, hidden = planned.unmasking, planned.free
    assert how is not None
    n_chains, length = hidden.shape
    check_memory(200.0 * n_chains * length, f"{counted(n_chains, 'text')} of {length} tokens")
    sweeps = f" and {counted(how.correct, 'sweep')} of correction" if how.correct else ""
    say(f"{counted(n_chains, 'text')}, passes at most: {planned.spec.steps:,}{sweeps}")
    folder = None if out is None else Path(str(out))
    if folder is not None and not (folder / RUN_HEADER).is_file():
        check_space(folder, planned.size)
    with log_of(planned, folder) as log:
        if log.steps < log.spec.steps:
            _fill(planned, log, batch_size)
        trace, tokens = Trace.of_log(log), log.tokens().astype(np.int64)
    if how.counted.planned:
        passes = most_passes(how, hidden).numpy().astype(np.int64)
    else:  # each pass fills a site of a chain that has not ended
        passes = np.zeros(n_chains, np.int64)
        np.maximum.at(passes, trace.chain, trace.step + 1)
    run = Run(log.folder) if isinstance(log, FolderLog) else None
    return Written(tokens, hidden.numpy(), passes, trace, mask_token_of(planned.model), run)


def _fill(planned: Plan, log: Log, batch_size: int | None) -> None:
    """Make the missing passes; an interrupt commits those that are made."""
    with track("passes", planned.spec.steps) as bar:
        session = Session(lambda now: bar(to=now.step))
        with stopped_by_interrupt(session):
            advance_chains(planned, log, batch_size=batch_size, session=session)
        bar(to=planned.spec.steps)
    if session.stopping:
        resume = "" if isinstance(log, MemoryLog) else "; the same call resumes it"
        raise KeyboardInterrupt(f"stopped after {counted(log.steps, 'pass')}{resume}")
    log.describe(replace(log.spec, steps=log.steps))  # texts may be full before the last pass
