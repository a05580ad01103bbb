"""Which Ising model is asked about, and which samples? A clique, a graph, a file or an object."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.exact.models import STRONGEST, Ising, check_ising_fits
from glauber.exact.space import Floats
from glauber.ising.graph import Graph, graph_of
from glauber.ising.simulation import gibbs_samples
from glauber.json_text import parse_json
from glauber.progress import check_count, say
from glauber.statistics import MIN_CHAINS

EVERY = 5  # sweeps between two samples of a Gibbs chain

Model = Annotated[
    str | Path | Ising | None,
    "JSON with fields (N) and couplings (N x N) instead of a clique; in Python an Ising too.",
]
Sites = Annotated[int, "Number of sites N."]
Clique = Annotated[int | None, "The first so many sites are coupled (default: all)."]
Coupling = Annotated[float, "J of each ordered pair in the clique: each pair counts twice."]
Field = Annotated[float, "h of every site."]


def model_of(
    model: str | Path | Ising | None,
    *,
    sites: int,
    clique: int | None,
    coupling: float,
    field: float,
    learnt: bool = False,
) -> Ising:
    """The model that was asked for; to be learnt it has to fit memory with its statistics."""
    if isinstance(model, Ising):
        return model
    if isinstance(model, str | Path):
        return read_model(Path(model))
    if model is not None:
        raise GlauberError(f"the model is {model!r}, but it must be a file or an Ising.")
    check_count("number of sites", sites)
    if clique is not None:
        check_count("number of sites of the clique", clique)
    check_strengths(coupling, field)
    if learnt:
        check_ising_fits(sites)
    return Ising.clique(sites, sites if clique is None else clique, coupling=coupling, field=field)


def check_strengths(*values: float) -> None:
    """Refuses fields and couplings that are no numbers, or too large to compute with."""
    for value in values:
        if not isinstance(value, int | float) or not abs(value) <= STRONGEST:
            raise GlauberError(
                f"a field or a coupling is {value}, but it must be a number of at most "
                f"{STRONGEST:g} in size."
            )


def read_model(file: Path) -> Ising:
    """The model of a JSON file with fields (N) and couplings (N x N)."""
    try:
        held = parse_json(file.read_text(encoding="utf-8"))
        fields, couplings = held["fields"], held["couplings"]
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


def read_spins(file: Path) -> NDArray[np.int64]:
    """Tokens (n, N) of 0 and 1 from rows of -1 and 1, with spaces or commas between them."""
    wrong = f"the rows of {file} are not all as many numbers -1 and 1."
    try:
        lines = file.read_text("utf-8").replace(",", " ").splitlines()
        rows = np.stack([np.array(line.split(), np.int64) for line in lines if line.strip()])
    except OSError as error:
        raise GlauberError(f"{file} cannot be read: {error.strerror or error}.") from error
    except (ValueError, OverflowError):
        raise GlauberError(wrong) from None
    return spins_to_tokens(rows, wrong)


def spins_to_tokens(rows: NDArray[Any], wrong: str) -> NDArray[np.int64]:
    """Tokens (n, N) of 0 and 1 from spins (n, N) of -1 and 1; refused if they are not."""
    if rows.ndim != 2 or rows.size == 0 or not np.isin(rows, (-1, 1)).all():
        raise GlauberError(wrong)
    return np.asarray((rows.astype(np.int64) + 1) // 2)


def tokens_of(data: str | Path | NDArray[np.int64]) -> NDArray[np.int64]:
    """Tokens (n, N) of 0 and 1 of a file or of an array of -1 and 1."""
    if isinstance(data, str | Path):
        return read_spins(Path(data))
    wrong = "the rows of data are not all as many numbers -1 and 1."
    try:
        return spins_to_tokens(np.asarray(data, np.float64), wrong)
    except (ValueError, TypeError):
        raise GlauberError(wrong) from None


@dataclass(frozen=True, eq=False)
class Source:
    """Spins (N, n), the pairs that may be coupled, the true theta if known, samples of a chain."""

    spins: NDArray[np.int8]
    graph: Graph
    truth: Floats | None
    in_a_row: int = 1


def source_of(
    tokens: NDArray[np.int64] | None,
    model: Ising | None,
    graph: str | Path | None,
    alike: tuple[int, int | None, float, float],
    gibbs: tuple[int, int, int],
    seed: int,
) -> Source:
    """Rows of data, or samples of a model: its own, or one with the same J at every edge."""
    sites, clique, coupling, field = alike
    if tokens is not None:
        wanted = graph_of("all" if graph is None else graph, tokens.shape[1])
        return Source(np.ascontiguousarray(2 * tokens.T - 1, np.int8), wanted, None)
    if model is None:
        check_strengths(coupling, field)
        if clique is not None and graph is not None:
            raise GlauberError("give a clique or a graph, not both.")
        drawn = wanted = graph_of("all" if graph is None else graph, sites)
        inside = wanted.edges.max(axis=1, initial=0) < (sites if clique is None else clique)
        truth = np.concatenate([np.full(sites, float(field)), coupling * inside])
    else:
        drawn = Graph.of_model(model)
        wanted = drawn if graph is None else graph_of(graph, model.n_sites)
        truth = np.concatenate([model.fields, model.couplings[tuple(wanted.edges.T)]])
    samples, chains, sweeps = gibbs
    check_count("number of chains", chains, least=MIN_CHAINS)
    check_count("number of sweeps", sweeps)
    chains = min(chains, samples)
    each = samples // chains
    say(f"{chains} Gibbs chains of {sweeps + EVERY * (each - 1):,} sweeps of {sites:,} sites")
    own = truth if model is None else np.concatenate(
        [model.fields, model.couplings[tuple(drawn.edges.T)]]
    )  # fmt: skip
    spins = gibbs_samples(drawn, own, (chains, each), sweeps=sweeps, every=EVERY, seed=seed)
    lacks = len(drawn.edges) and (wanted.edge_between(*drawn.edges.T) == len(wanted.edges)).any()
    rows = np.ascontiguousarray(spins.reshape(chains * each, -1).T)
    return Source(rows, wanted, None if lacks else truth, each)
