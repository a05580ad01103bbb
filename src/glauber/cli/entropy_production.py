"""glauber entropy-production: how far from reversible a run's chain is."""

from dataclasses import asdict
from typing import Annotated

import typer

from glauber.cli import options


def entropy_production(
    run: options.RunFolder,
    burn_in: Annotated[
        int | None, typer.Option("--burn-in", help="Steps not counted (default: half).")
    ] = None,
    json: options.Json = False,
) -> None:
    """Estimate a run's entropy production: zero exactly when one joint law owns the model."""
    from glauber.compatibility.entropy_production import entropy_production_of_run
    from glauber.runs.run import Run
    from glauber.runs.signature import signature

    opened = Run(run)
    found = entropy_production_of_run(opened, burn_in=burn_in)
    from glauber.cli.screen import answer

    how = {"run": str(run), "unit": "nats per step", "signature": signature(opened.spec)}
    lines = [
        f"entropy production {found.rate:.4f} nats per step, standard error "
        f"{found.standard_error:.4f} (an estimate)",
        f"{found.n_chains} chains, {found.n_steps:,} steps counted behind a burn-in of "
        f"{found.burn_in:,}; {found.n_batches} batches of at least {found.batch_steps:,} steps",
        signature(opened.spec),
    ]
    answer(asdict(found) | how, lines, json=json)
