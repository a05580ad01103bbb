"""What the ising commands read and say."""

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glauber.errors import GlauberError

if TYPE_CHECKING:
    from glauber.exact.ising import Ising
    from glauber.exact.learning.observations import Drawing


def read_model(file: Path) -> "Ising":
    """The model of a JSON file with fields (N) and couplings (N x N)."""
    from glauber.exact.ising import Ising

    try:
        told = json_module.loads(file.read_text())
        fields, couplings = told["fields"], told["couplings"]
    except OSError as error:
        raise GlauberError(f"{file} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError):
        raise GlauberError(
            f'{file} is no Ising model: it must be {{"fields": […], "couplings": [[…], …]}}.'
        ) from None
    try:
        return Ising.make(fields, couplings)
    except (ValueError, TypeError):
        raise GlauberError(f"the fields or couplings in {file} are not lists of numbers.") from None


def read_spins(file: Path) -> Any:
    """Tokens (n, N) of 0 and 1 from rows of -1 and 1, with spaces or commas between them."""
    import numpy as np

    try:
        lines = [line.replace(",", " ").split() for line in file.read_text().splitlines()]
        rows = np.array([[int(word) for word in line] for line in lines if line])
    except OSError as error:
        raise GlauberError(f"{file} cannot be read: {error.strerror or error}.") from error
    except ValueError:
        raise GlauberError(f"the rows of {file} are not all as many numbers -1 and 1.") from None
    if rows.ndim != 2 or not np.isin(rows, (-1, 1)).all():
        raise GlauberError(f"the rows of {file} are not all as many numbers -1 and 1.")
    return (rows + 1) // 2


def read_drawing(masks: str) -> "Drawing":
    """How samples meet masks: a number of random ones, or all."""
    from glauber.exact.learning.observations import Drawing

    if masks == "all":
        return Drawing(None)
    if not masks.isdigit():
        raise GlauberError(f"masks is {masks}, but it must be a number such as 1, or all.")
    return Drawing(int(masks))


def tell_fit(told: dict[str, Any]) -> None:
    """A fit for a person."""
    from rich.table import Table

    from glauber.cli.screen import out

    known = "truth" in told
    table = Table("parameter", "estimate", "standard error", *(["truth"] if known else []))
    for slot, name in enumerate(told["names"]):
        columns = ["estimate", "standard_error", *(["truth"] if known else [])]
        table.add_row(name, *(f"{told[column][slot]:.4f}" for column in columns))
    out.print(table)
    out.print(
        f"{told['samples']:,} samples, loss {told['loss']:.6f}, minimiser found to within "
        f"{told['distance_to_minimiser']:.0e} in {told['steps']} steps of {told['method']}",
        highlight=False,
        soft_wrap=True,
    )
    if known:
        out.print(
            f"squared error {told['squared_error']:.3g}; over many repetitions "
            f"{told['expected_squared_error']:.3g} is expected (exact for many samples)",
            highlight=False,
            soft_wrap=True,
        )


def tell_covariance(told: dict[str, Any]) -> None:
    """Covariances for a person."""
    from rich.table import Table

    from glauber.cli.screen import out

    table = Table("k", "masks", "trace", "all masks", "C", "bound", "H - I/C", "H - H before")
    for row in told["rows"]:
        growth = "" if row["growth"] is None else f"{row['growth']:.1e}"
        table.add_row(
            str(row["k"]), row["masks"], f"{row['trace']:.4g}", f"{row['trace_all_masks']:.4g}",
            f"{row['poincare']:.4g}", f"{row['bound']:.4g}", f"{row['slack']:.1e}", growth,
        )  # fmt: skip
    out.print(table)
    for line in (
        "trace: n times the squared error with one random mask per sample, for large n; exact",
        "all masks: the same with all masks averaged, another estimator",
        "C: Poincare constant of the block dynamics; bound: C times the trace at k = N",
        "the last two columns are smallest eigenvalues: not negative, but for rounding",
    ):
        out.print(line, style="dim", highlight=False, soft_wrap=True)
