"""glauber diagnose: has a run mixed, as far as its own statistics can tell?"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from glauber.cli import options

if TYPE_CHECKING:
    from glauber.mixing.diagnostics import Diagnosis


def diagnose(
    run: options.RunFolder,
    burn_in: Annotated[
        int | None, typer.Option("--burn-in", help="Steps not counted (default: half).")
    ] = None,
    json: options.Json = False,
) -> None:
    """Judge whether a run has mixed; frozen chains are named and get no comfortable number."""
    from glauber.mixing.diagnostics import diagnose as judge
    from glauber.runs.run import Run
    from glauber.runs.signature import signature

    opened = Run(run)
    found = judge(opened, burn_in=burn_in)
    from glauber.cli.screen import answer

    told = asdict(found) | {"run": str(run), "signature": signature(opened.spec)}
    width = max(len(row.statistic) for row in found.rows)
    lines = [
        f"{'':>{width}}  effective draws    R-hat  autocorrelation (estimates)",
        *(_line(row, width) for row in found.rows),
        f"{opened.n_chains} chains, {found.n_steps:,} steps each behind a burn-in of "
        f"{found.burn_in:,}",
        found.verdict,
        signature(opened.spec),
    ]
    answer(told, lines, json=json)


def _line(row: "Diagnosis", width: int) -> str:
    ess = "-" if row.ess is None else f"{row.ess:,.0f}"
    r_hat = "-" if row.r_hat is None else f"{row.r_hat:.3f}"
    time = "-" if row.autocorrelation_time is None else f"{row.autocorrelation_time:,.1f} steps"
    return f"{row.statistic:>{width}}  {ess:>15} {r_hat:>8}  {time:>15}  {row.state}"
