"""What a stored run drew from: its model, checked, over the tokens that it could propose.

A run drawn in int8 or bfloat16 recorded conditionals that were rounded. What is measured about the
model needs its own precision, so the conditionals can be evaluated again, in float32, at the states
that the run visited.
"""

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from glauber.dynamics.constrained import Ball
from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import say, track
from glauber.models.base import Conditionals, Model, log_probs
from glauber.models.batching import rows_at_once
from glauber.runs.export import forced_steps
from glauber.runs.run import Run
from glauber.runs.spec import check_trust
from glauber.sampling.plan import Plan, open_model

Floats = NDArray[np.float64]
COARSE = ("int8", "bfloat16")  # dtypes too coarse for what is measured about a model


@dataclass(frozen=True)
class DrawnFrom:
    """What a run drew from."""

    conditionals: Conditionals  # of the tokens that the run could propose, in its own spec
    device: torch.device  # where states should live
    notes: tuple[str, ...]  # what must be said about it, as sentences


def of_chain(conditionals: Conditionals, run: Run, chain: int) -> Conditionals:
    """What one chain of a run drew from: within its budget of changes, if it has one."""
    budget = run.spec.budget
    if budget is None:
        return conditionals
    return Ball(conditionals, torch.from_numpy(run.tokens(0)[chain]), budget)


def drawn_from(
    run: Run | str | Path,
    *,
    model: str | Conditionals | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
    precise: bool = False,
    generations: bool = False,
) -> DrawnFrom:
    """What a run drew from: its own tokens and dtype, or float32 if drawn in a coarser one.

    precise: in float64, for figures that are called exact. Of generations, if they are allowed,
    it is what the model says before top_k and top_p.
    """
    run = Run.of(run, generations=generations)
    own_dtype = run.spec.dtype
    coarse = own_dtype in COARSE
    dtype = "float32" if coarse and (model is None or isinstance(model, str)) else None
    loaded = _load(run, model, device, dtype, trust_remote_code)[0]
    if loaded.dtype in COARSE:
        raise GlauberError(f"the model is in {loaded.dtype}: give it in float32 or float64 here.")
    if precise and loaded.dtype != "float64":
        loaded = loaded.to(dtype="float64")
    note = (
        f"The run was drawn in {own_dtype}; what is said about the model is of the same weights in "
        f"{loaded.dtype}."
    )
    conditionals = _plan(run, loaded).conditionals
    return DrawnFrom(conditionals, loaded.state_device, (note,) if coarse else ())


def reopen(
    run: Run | str | Path,
    *,
    steps: int | None = None,
    device: str | None = None,
    model: str | Conditionals | None = None,
    trust_remote_code: bool = False,
) -> Plan:
    """The plan of a stored run, with its model loaded and checked against the fingerprint.

    model is the model itself, or where it lies now, for one whose name does not lead to it.
    """
    run = Run.of(run)
    spec = run.spec if steps is None else replace(run.spec, steps=steps)
    loaded, others = _load(run, model, device, None, trust_remote_code)
    return replace(_plan(run, loaded), spec=spec, others=others)


def _plan(run: Run, model: Model) -> Plan:
    tokens = torch.from_numpy(run.tokens(0))
    if int(tokens.max()) >= model.vocab_size:
        raise GlauberError(
            f"{model.name} is not the model of the run {run.name}: a token is unknown."
        )
    return Plan(model, run.spec, tokens, torch.from_numpy(run.free))


def model_of(
    run: Run | str | Path,
    *,
    device: str | None = None,
    dtype: str | None = None,
    trust_remote_code: bool = False,
) -> Model:
    """The model that made a stored run, checked against the run's fingerprint."""
    return _load(Run.of(run, generations=True), None, device, dtype, trust_remote_code)[0]


def _load(
    run: Run,
    model: str | Conditionals | None,
    device: str | None,
    dtype: str | None,
    trust_remote_code: bool,
) -> tuple[Model, tuple[Model, ...]]:
    spec = run.spec
    if model is None:
        check_trust(run.folder, spec, trust_remote_code)
    source = spec.model if model is None else model
    if isinstance(source, str):
        device, dtype = device or spec.device, dtype or spec.dtype
    loaded, others = open_model(source, device or "auto", dtype, trust_remote_code)
    if loaded.fingerprint != spec.fingerprint:
        raise GlauberError(
            f"{loaded.name or 'this model'} is not the model that made the run {run.name}: its "
            "weights or its vocabulary have changed."
        )
    return loaded, others


def evaluate_again(run: Run, conditionals: Conditionals, begin: int) -> tuple[Floats, Floats]:
    """log_prob_old and entropy (chains, steps - begin) of a run's events from step `begin` on."""
    sites = torch.from_numpy(run.read("site")[:, :, 0].astype(np.int64))
    n_conditionals = (run.steps - begin) * run.n_chains
    say(f"{n_conditionals:,} conditionals to evaluate again in float32")
    old, entropy = np.empty((2, run.n_chains, run.steps - begin))
    states = (tokens for step, tokens in run.states() if step >= begin)
    n_steps = rows_at_once(8 * conditionals.vocab_size * run.n_chains)  # at once
    with track("conditionals", n_conditionals) as advance:
        for first in range(begin, run.steps, n_steps):
            last = min(first + n_steps, run.steps)
            tokens = torch.from_numpy(np.stack([*islice(states, last - first)], axis=1))
            rows, row_sites = tokens.flatten(0, 1), sites[:, first:last].reshape(-1, 1)
            temperatures = torch.from_numpy(run.temperatures).repeat_interleave(last - first)
            drawn_from = log_probs(conditionals, rows, row_sites, temperature=temperatures)
            values = drawn_from[:, 0].cpu()
            part = slice(first - begin, last - begin)
            old[:, part] = values.gather(1, rows.gather(1, row_sites)).view(run.n_chains, -1)
            spread = torch.special.entr(values.exp()).sum(dim=1)
            entropy[:, part] = spread.view(run.n_chains, -1)
            advance((last - first) * run.n_chains)
    unmoved = forced_steps(run)[:, begin:]
    old[unmoved] = entropy[unmoved] = 0.0
    return old, entropy
