"""The Ising model and the samples that a study is about: a clique, a graph, a file or an object."""

from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from glauber.exact.blocks.masks import Masks
from glauber.exact.models import STRONGEST, Ising, check_ising_fits
from glauber.exact.space import Floats, Integers, Space
from glauber.foundation.checks import Real, Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import parse_json

Strength = Real(-STRONGEST, STRONGEST)
SMALLEST_DELTA = 1e-300  # below it, chances are no longer exact in floating point


def check_delta(name: str, value: object) -> None:
    """Refuses what is no probability of failure, and what is too small to compute with."""
    if not isinstance(value, int | float) or not 0 < value < 1:
        raise GlauberError(f"{name} is {value}, but it must lie between 0 and 1.")
    if value < SMALLEST_DELTA:
        raise GlauberError(f"{name} is {value}, but it must be at least {SMALLEST_DELTA}.")


def not_empty(name: str, value: object) -> None:
    """Refuses a list without any item."""
    if isinstance(value, list | tuple) and not value:
        raise GlauberError(f"{name} is empty: name at least one.")


Model = Annotated[
    str | Path | Ising | None,
    "JSON with fields (N) and couplings (N x N) instead of a clique; in Python an Ising too.",
]
Sites = Annotated[int, "Number of sites N.", Whole()]
Clique = Annotated[int | None, "The first so many sites are coupled (default: all).", Whole()]
Coupling = Annotated[
    float, "J of each ordered pair in the clique: each pair counts twice.", Strength
]
Field = Annotated[float, "h of every site.", Strength]
Adaptive = Annotated[
    bool, "Masks chosen where the present tokens are unlikely; the loss conditions on them."
]
Delta = Annotated[float, "Probability of failure.", check_delta]
Data = Annotated[
    str | Path | ArrayLike | None,
    "Rows of -1 and 1 to learn from instead of samples: a file or, in Python, an array.",
]


def model_of(
    model: str | Path | Ising | None,
    *,
    sites: int,
    clique: int | None,
    coupling: float,
    field: float,
    learnt: bool = False,
) -> Ising:
    """The model that the parameters name; to be learnt it has to fit memory with its statistics."""
    if isinstance(model, Ising):
        return model
    if isinstance(model, str | Path):
        return read_model(Path(model))
    if model is not None:
        raise GlauberError(f"the model is {model!r}, but it must be a file or an Ising.")
    if learnt:
        check_ising_fits(sites)
    return Ising.clique(sites, sites if clique is None else clique, coupling=coupling, field=field)


def masks_of(space: Space, distribution: Floats, k: int, adaptive: bool) -> Masks:
    """Uniform masks of k sites, or those with p_K(K | x) proportional to 1 - p(x_K | the rest)."""
    if adaptive:
        return Masks.least_confident(space, distribution, k)
    return Masks.uniform(space, k)


def read_model(file: Path) -> Ising:
    """The model of a JSON file with fields (N) and couplings (N x N)."""
    try:
        record = parse_json(file.read_text(encoding="utf-8"))
        fields, couplings = record["fields"], record["couplings"]
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


def tokens_of(data: str | Path | ArrayLike) -> Integers:
    """Tokens (n, N) of 0 and 1 of an array of -1 and 1, or of a file of such rows.

    In a file, spaces or commas separate the numbers.
    """
    file = Path(data) if isinstance(data, str | Path) else None
    wrong = GlauberError(f"the rows of {file or 'data'} are not all as many numbers -1 and 1.")
    try:
        if file is not None:
            lines = file.read_text("utf-8").replace(",", " ").splitlines()
            data = [np.array(line.split(), np.int64) for line in lines if line.strip()]
        rows = np.asarray(data, np.float64)
    except OSError as error:
        raise GlauberError(f"{file} cannot be read: {error.strerror or error}.") from error
    except (ValueError, TypeError, OverflowError):
        raise wrong from None
    if rows.ndim != 2 or rows.size == 0 or not np.isin(rows, (-1, 1)).all():
        raise wrong
    return np.asarray((rows.astype(np.int64) + 1) // 2)
