"""From a model and some texts to a stored run: begin, resume, extend."""

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glauber.conditionals.masked_lm import MaskedLM
from glauber.errors import GlauberError
from glauber.runs.run import Run
from glauber.sampling.plan import Plan, plan, reopen
from glauber.sampling.session import (
    Progress,
    Session,
    advance,
    begin,
    check_batch_size,
    check_memo,
    rate,
)

__all__ = [
    "Plan",
    "Progress",
    "Session",
    "advance",
    "begin",
    "check_batch_size",
    "check_memo",
    "plan",
    "rate",
    "reopen",
    "resume",
    "sample",
]


def sample(
    model: str | MaskedLM = "bundled:english",
    texts: Sequence[str] | None = None,
    *,
    steps: int,
    temperature: float = 1.0,
    seed: int = 0,
    out: str | Path | None = None,
    batch_size: int | None = None,
    memo: int | None = None,
    session: Session | None = None,
    **options: Any,
) -> Run:
    """Glauber dynamics from each text, stored as a run in the folder `out`.

    texts default to the bundled passages. Without `out` the run lives in a temporary folder that
    goes with the object. memo is the room for remembered conditionals in MiB: it changes the speed
    and nothing else. Further options are those of `plan`.
    """
    planned = plan(model, texts, steps=steps, temperature=temperature, seed=seed, **options)
    brief = tempfile.mkdtemp(prefix="glauber-") if out is None else None
    folder = Path(str(out)) if brief is None else Path(brief) / "run"
    begin(planned, folder)
    advance(planned, folder, batch_size=batch_size, memo=memo, session=session)
    run = Run(folder)
    if brief is not None:
        weakref.finalize(run, shutil.rmtree, brief, ignore_errors=True)
    return run


def resume(
    folder: str | Path,
    *,
    steps: int | None = None,
    batch_size: int | None = None,
    memo: int | None = None,
    device: str | None = None,
    session: Session | None = None,
) -> Run:
    """Goes on with a run that was stopped; with steps, to that many (`extend`)."""
    run = Run(folder)
    if steps is not None and steps < run.steps:
        raise GlauberError(f"the run has {run.steps} steps already, more than {steps}.")
    if run.finished and (steps is None or steps == run.spec.steps):
        return run
    planned = reopen(run, steps=steps, device=device)
    advance(planned, run.folder, batch_size=batch_size, memo=memo, session=session)
    return Run(run.folder)
