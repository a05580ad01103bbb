"""What the commands that make steps do and say in common."""

import shutil
from pathlib import Path
from typing import Any

from glauber.cli.screen import emit, out, say, watched
from glauber.errors import GlauberError
from glauber.runs.run import Run
from glauber.runs.signature import signature
from glauber.runs.store import bytes_needed
from glauber.sampling import sample as sampling


def run_and_report(
    planned: sampling.Plan,
    folder: Path,
    *,
    batch_size: int | None,
    memo: int | None = None,
    json: bool,
) -> None:
    """Makes the steps that are missing, with progress, and says what came out."""
    with watched(planned.model.vocabulary.text, planned.spec.steps, quiet=json) as session:
        sampling.advance(planned, folder, batch_size=batch_size, memo=memo, session=session)
    run = Run(folder)
    if json:
        emit(summary(run))
    else:
        tell(run)


def summary(run: Run) -> dict[str, Any]:
    """A run in one JSON object."""
    changed = float(run.read("changed").any(axis=2).mean()) if run.steps else 0.0
    texts = [run.vocabulary.decode(row) for row in run.tokens()]
    return {
        "run": str(run.folder),
        "signature": signature(run.spec),
        "chains": run.n_chains,
        "steps": run.steps,
        "planned": run.spec.steps,
        "finished": run.finished,
        "changed": changed,
        "entropy_production": irreversibility(run),
        "texts": texts,
    }


def irreversibility(run: Run) -> dict[str, Any] | None:
    """The run's entropy production in nats per step; none where it is not defined."""
    if run.spec.dtype == "int8":
        return None  # it would have to be evaluated again
    from glauber.compatibility.entropy_production import entropy_production

    try:
        found = entropy_production(run)
    except GlauberError:  # another kernel than the one it is defined for, or too few steps
        return None
    return {"rate": found.rate, "standard_error": found.standard_error, "kind": found.kind}


def tell(run: Run) -> None:
    """A run for a person: where a few chains began and where they are now."""
    told = summary(run)
    first = run.tokens(0)
    for chain in range(min(run.n_chains, 8)):
        out.print(f"chain {chain}", style="bold", highlight=False)
        out.print(
            f"  began  {run.vocabulary.decode(first[chain])}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        out.print(f"  now    {told['texts'][chain]}", markup=False, highlight=False, soft_wrap=True)
    if run.n_chains > 8:
        out.print(f"… and {run.n_chains - 8} more chains", highlight=False)
    out.print(
        f"{run.n_chains} chains, {run.steps:,} steps each, "
        f"{told['changed']:.1%} of them changed a token",
        highlight=False,
    )
    if told["entropy_production"] is not None:
        rate, error = (told["entropy_production"][key] for key in ("rate", "standard_error"))
        out.print(
            f"entropy production {rate:.3f} +- {error:.3f} nats per step over the last half "
            "(an estimate; 0 if one joint law owned the conditionals)",
            highlight=False,
            soft_wrap=True,
        )
    if not run.finished:
        say(
            f"stopped at step {run.steps:,} of {run.spec.steps:,}; "
            f"go on with: glauber resume {run.folder}"
        )
    out.print(f"run: {run.folder}", markup=False, highlight=False, soft_wrap=True)
    out.print(told["signature"], style="dim", markup=False, highlight=False, soft_wrap=True)


def say_cost(planned: sampling.Plan, folder: Path, batch_size: int | None, *, quiet: bool) -> None:
    """What the run will cost: steps, disk, time at the measured rate."""
    spec = planned.spec
    size = bytes_needed(spec.chains, spec.steps, planned.slots, planned.tokens.shape[1])
    place = next(parent for parent in folder.absolute().parents if parent.exists())
    free = shutil.disk_usage(place).free
    if size > free:
        raise GlauberError(
            f"the run may need {size / 1e6:,.0f} MB, but {place} has {free / 1e6:,.0f} MB left."
        )
    updates = spec.chains * spec.steps
    if quiet or updates == 0:
        return
    rate = sampling.rate(planned, batch_size=batch_size)
    say(
        f"{spec.chains} chains x {spec.steps:,} steps on {spec.device} in {spec.dtype}: "
        f"up to {_clock(updates / rate)} at {rate:,.0f} steps/s, "
        f"at most {size / 1e6:,.1f} MB in {folder}"
    )


def _clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
