"""What did a stored run draw from? Its model, checked, over the tokens that it could propose.

A run drawn in int8 or bfloat16 recorded conditionals that were rounded. What is measured about the
model needs its own precision, so the same questions can be asked again, in float32, at the states
that the run visited.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glauber.conditionals.base import Conditionals, Model, log_probs
from glauber.conditionals.batching import rows_at_once
from glauber.dynamics.constrained import Ball
from glauber.errors import GlauberError
from glauber.progress import say, track
from glauber.runs.export import forced, trajectory
from glauber.runs.run import Run
from glauber.runs.spec import check_trust
from glauber.sampling.plan import Plan, open_model

Floats = NDArray[np.float64]
COARSE = ("int8", "bfloat16")  # dtypes too coarse for what is measured about a model


@dataclass(frozen=True)
class DrawnFrom:
    """What a run drew from, asked again."""

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
    opened = Run.of(run, generations=generations)
    drawn = opened.spec.dtype
    again = drawn in COARSE
    dtype = "float32" if again and (model is None or isinstance(model, str)) else None
    found = _model_of(opened, model, device, dtype, trust_remote_code)[0]
    if found.dtype in COARSE:
        raise GlauberError(f"the model is in {found.dtype}: give it in float32 or float64 here.")
    if precise and found.dtype != "float64":
        found = found.to(dtype="float64")
    note = (
        f"The run was drawn in {drawn}; what is said about the model is of the same weights in "
        f"{found.dtype}."
    )
    return DrawnFrom(
        _planned(opened, found).conditionals, found.state_device, (note,) if again else ()
    )


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
    opened = Run.of(run)
    spec = opened.spec if steps is None else replace(opened.spec, steps=steps)
    found, others = _model_of(opened, model, device, None, trust_remote_code)
    return replace(_planned(opened, found), spec=spec, others=others)


def _planned(run: Run, model: Model) -> Plan:
    begun = torch.from_numpy(run.tokens(0))
    if int(begun.max()) >= model.vocab_size:
        raise GlauberError(
            f"{model.name} is not the model of the run {run.name}: a token is unknown."
        )
    return Plan(model, run.spec, begun, torch.from_numpy(run.free))


def model_of(
    run: Run | str | Path,
    *,
    device: str | None = None,
    dtype: str | None = None,
    trust_remote_code: bool = False,
) -> Model:
    """The model that made a stored run, checked against the run's fingerprint."""
    opened = Run.of(run, generations=True)
    return _model_of(opened, None, device, dtype, trust_remote_code)[0]


def _model_of(
    run: Run,
    model: str | Conditionals | None,
    device: str | None,
    dtype: str | None,
    trust_remote_code: bool,
) -> tuple[Model, tuple[Model, ...]]:
    spec = run.spec
    if isinstance(model, str) or model is None:
        name = spec.model if model is None else model
        if model is None:
            check_trust(run.folder, spec, trust_remote_code)
        where, kind = device or spec.device, dtype or spec.dtype
        found, others = open_model(name, where, kind, trust_remote_code)
    else:
        found, others = open_model(model, device or "auto", dtype, trust_remote_code)
    if found.fingerprint != spec.fingerprint:
        raise GlauberError(
            f"{found.name or 'this model'} is not the model that made the run {run.name}: its "
            "weights or its vocabulary have changed."
        )
    return found, others


def evaluate_again(run: Run, conditionals: Conditionals, begin: int) -> tuple[Floats, Floats]:
    """log_prob_old and entropy (chains, steps - begin) of a run's events from step `begin` on."""
    sites = run.read("site")[:, :, 0]
    temperatures = torch.from_numpy(run.temperatures)
    steps = run.steps - begin
    say(f"{steps * run.n_chains:,} conditionals to evaluate again in float32")
    old, entropy = np.empty((run.n_chains, steps)), np.empty((run.n_chains, steps))
    most = rows_at_once(8 * conditionals.vocab_size * run.n_chains)  # steps at once
    held: list[NDArray[np.int64]] = []
    with track("conditionals", steps * run.n_chains) as advance:
        for step, tokens in trajectory(run):
            if begin <= step < run.steps:
                held.append(tokens)
            if held and (len(held) == most or step == run.steps):
                last = min(step + 1, run.steps) - begin
                part = slice(last - len(held), last)
                here = sites[:, begin + part.start : begin + part.stop]
                old[:, part], entropy[:, part] = _asked_again(
                    conditionals, np.stack(held, axis=1), here, temperatures
                )
                advance(len(held) * run.n_chains)
                held = []
    still = forced(run)[:, begin:]
    old[still] = entropy[still] = 0.0
    return old, entropy


def _asked_again(
    conditionals: Conditionals,
    tokens: NDArray[np.int64],
    sites: NDArray[Any],
    temperatures: torch.Tensor,
) -> tuple[Floats, Floats]:
    """Of tokens (chains, steps, length) before the redraw of sites (chains, steps)."""
    rows = torch.from_numpy(tokens).flatten(0, 1)
    asked = torch.from_numpy(sites.astype(np.int64)).reshape(-1, 1)
    by_row = temperatures.repeat_interleave(sites.shape[1])
    found = log_probs(conditionals, rows, asked, temperature=by_row)[:, 0].cpu()
    old = found.gather(1, rows.gather(1, asked))
    entropy = torch.special.entr(found.exp()).sum(dim=1)
    return old.view(sites.shape).numpy(), entropy.view(sites.shape).numpy()
