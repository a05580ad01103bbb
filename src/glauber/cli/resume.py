"""glauber resume and glauber extend: go on with a stored run."""

from typing import Annotated

import typer

from glauber.cli import options
from glauber.errors import GlauberError

OtherDevice = Annotated[
    str | None, typer.Option("--device", help="Another device than the run's own.")
]


def resume(
    run: options.RunFolder,
    batch_size: options.BatchSize = None,
    memo: options.Memo = None,
    device: OtherDevice = None,
    json: options.Json = False,
) -> None:
    """Go on with a run that was stopped or killed; it ends as if it never had been."""
    _go_on(run, None, batch_size, memo, device, json)


def extend(
    run: options.RunFolder,
    steps: options.Steps,
    batch_size: options.BatchSize = None,
    memo: options.Memo = None,
    device: OtherDevice = None,
    json: options.Json = False,
) -> None:
    """Make a run longer: --steps is the new total, so the same command can be given again."""
    _go_on(run, steps, batch_size, memo, device, json)


def _go_on(
    folder: options.RunFolder,
    steps: int | None,
    batch_size: int | None,
    memo: int | None,
    device: str | None,
    json: bool,
) -> None:
    from glauber.runs.run import Run

    run = Run(folder)
    if steps is not None and steps < run.steps:
        raise GlauberError(f"the run has {run.steps} steps already; --steps is the new total.")
    from glauber.cli.screen import emit
    from glauber.cli.telling import run_and_report, summary, tell
    from glauber.sampling import sample as sampling

    if run.finished and steps in (None, run.spec.steps):
        emit(summary(run)) if json else tell(run)
        return
    planned = sampling.reopen(run, steps=steps, device=device)
    run_and_report(planned, folder, batch_size=batch_size, memo=memo, json=json)
