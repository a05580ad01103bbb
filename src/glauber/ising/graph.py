"""Which sites are coupled, and which are hidden together, in models of up to thousands of sites?

theta = (h_i; J_ij of every edge i < j); J_ij enters the exponent as 2 J_ij x_i x_j, as everywhere.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from glauber.errors import GlauberError
from glauber.exact.models import Ising
from glauber.exact.space import Floats
from glauber.progress import check_memory, memory

Integers = NDArray[np.int64]
LARGEST = 20_000  # sites
LARGEST_BLOCK = 10
TILINGS = 8  # random ones that samples choose from


@dataclass(frozen=True, eq=False)
class Graph:
    """Sites 0, …, N - 1 and the pairs (edges, 2) that are coupled, i < j, in order."""

    n_sites: int
    edges: Integers

    @classmethod
    def of_pairs(cls, n_sites: int, pairs: NDArray[np.int64]) -> "Graph":
        """The graph of any pairs (n, 2); each may stand several times and in both orders."""
        check_sites(n_sites)
        pairs = np.sort(np.asarray(pairs, np.int64).reshape(-1, 2), axis=1)
        if len(pairs) and (pairs.min() < 0 or pairs.max() >= n_sites):
            raise GlauberError(
                f"an edge names a site outside 0 to {n_sites - 1}: sites are counted from 0."
            )
        if (pairs[:, 0] == pairs[:, 1]).any():
            raise GlauberError("an edge joins a site to itself.")
        return cls(n_sites, np.unique(pairs, axis=0))

    @classmethod
    def complete(cls, n_sites: int) -> "Graph":
        """Every pair is coupled."""
        check_sites(n_sites)
        parameters = n_sites * (n_sites + 1) // 2
        if (needed := 24.0 * parameters**2) > memory():  # of the Hessian and its factor
            raise GlauberError(
                f"{n_sites:,} sites have {parameters - n_sites:,} pairs, and to fit them all takes "
                f"about {needed / 2**30:,.0f} GiB of memory: name those that may be coupled by "
                "graph: grid, chain, or a file with two sites a line."
            )
        return cls(n_sites, np.stack(np.triu_indices(n_sites, 1), axis=1))

    @classmethod
    def grid(cls, rows: int, columns: int) -> "Graph":
        """A square lattice with open ends, site = row * columns + column."""
        check_sites(rows * columns)
        site = np.arange(rows * columns).reshape(rows, columns)
        across = np.stack([site[:, :-1].ravel(), site[:, 1:].ravel()], axis=1)
        down = np.stack([site[:-1].ravel(), site[1:].ravel()], axis=1)
        return cls.of_pairs(rows * columns, np.concatenate([across, down]))

    @classmethod
    def of_model(cls, model: Ising) -> "Graph":
        """The pairs that a model couples."""
        return cls.of_pairs(model.n_sites, np.argwhere(np.triu(model.couplings, 1) != 0))

    @property
    def n_parameters(self) -> int:
        return self.n_sites + len(self.edges)

    @property
    def is_complete(self) -> bool:
        return 2 * len(self.edges) == self.n_sites * (self.n_sites - 1)

    @cached_property
    def names(self) -> tuple[str, ...]:
        couplings = (f"J{i},{j}" for i, j in self.edges.tolist())
        return (*(f"h{i}" for i in range(self.n_sites)), *couplings)

    def matrix(self, values: Floats) -> csr_array:
        """A symmetric matrix (N, N) with values (edges,) at the edges."""
        i, j = self.edges.T
        both = np.concatenate([values, values])
        places = (np.concatenate([i, j]), np.concatenate([j, i]))
        return csr_array((both, places), shape=(self.n_sites, self.n_sites))

    @cached_property
    def neighbours(self) -> tuple[tuple[Integers, Integers], ...]:
        """Of each site: its neighbours and the numbers of the edges to them."""
        numbered = self.matrix(np.arange(1.0, len(self.edges) + 1))
        parts = np.split(np.arange(numbered.nnz), numbered.indptr[1:-1])
        numbers = numbered.data.astype(np.int64) - 1
        return tuple((numbered.indices[part].astype(np.int64), numbers[part]) for part in parts)

    def edge_between(self, first: Integers, second: Integers) -> Integers:
        """The number of the edge between two sites, elementwise; the number of edges if none."""
        keys = self.edges[:, 0] * (self.n_sites + 1) + self.edges[:, 1]
        asked = np.minimum(first, second) * (self.n_sites + 1) + np.maximum(first, second)
        slots = np.searchsorted(keys, asked)
        there = keys[np.minimum(slots, len(keys) - 1)] == asked if len(keys) else asked < 0
        return np.where(there, slots, len(keys))

    def colours(self) -> list[Integers]:
        """Sites that can be redrawn at once: no edge inside a colour (greedy)."""
        colour = np.full(self.n_sites, -1)
        for site in np.argsort([-len(near) for near, _ in self.neighbours], kind="stable"):
            taken = set(colour[self.neighbours[site][0]].tolist())
            colour[site] = next(c for c in range(self.n_sites) if c not in taken)
        return [np.flatnonzero(colour == c) for c in range(colour.max() + 1)]


def check_sites(n_sites: int) -> None:
    """Refuses more sites than are computed."""
    if not 1 <= n_sites <= LARGEST:
        raise GlauberError(f"there are {n_sites:,} sites, but 1 to {LARGEST:,} can be fitted.")


def graph_of(name: str | Path, n_sites: int) -> Graph:
    """all, chain, grid (as square as N allows), ROWSxCOLUMNS, or a file with two sites a line."""
    named = str(name)
    if named == "all":
        return Graph.complete(n_sites)
    if named == "chain":
        return Graph.grid(1, n_sites)
    if named == "grid":
        rows = next(r for r in range(int(n_sites**0.5), 0, -1) if n_sites % r == 0)
        return Graph.grid(rows, n_sites // rows)
    sides = named.split("x")
    if len(sides) == 2 and all(side.isdecimal() for side in sides):
        rows, columns = map(int, sides)
        if rows * columns != n_sites:
            raise GlauberError(
                f"a grid of {named} has {rows * columns:,} sites, but there are {n_sites:,}."
            )
        return Graph.grid(rows, columns)
    return Graph.of_pairs(n_sites, _read_edges(Path(named)))


def _read_edges(file: Path) -> Integers:
    wrong = f"{file} has no edges: every line must name two sites, as in 0 1."
    try:
        lines = [one.replace(",", " ").split() for one in file.read_text("utf-8").splitlines()]
        rows = np.array([[int(number) for number in line] for line in lines if line])
    except OSError as error:
        raise GlauberError(
            f"the graph is {file}, but it must be all, chain, grid, ROWSxCOLUMNS or a file with "
            f"two sites a line: {error.strerror or error}."
        ) from error
    except ValueError:
        raise GlauberError(wrong) from None
    if rows.ndim != 2 or rows.shape[1] != 2:
        raise GlauberError(wrong)
    return rows


@dataclass(frozen=True, eq=False)
class Group:
    """Samples (columns,) that hide blocks sites (k, B), filled up with N where one is shorter.

    Without per_sample every sample hides every block; else the blocks 0, …, m - 1 belong to the
    first sample, the next m to the second, and so on. inner (pairs, B) are the edges inside.
    """

    columns: Integers
    sites: Integers
    inner: Integers
    per_sample: int | None = None


def random_blocks(
    graph: Graph, n_samples: int, k: int, *, per_sample: int, generator: np.random.Generator
) -> list[Group]:
    """Every sample with its own random blocks."""
    check_blocks(k, graph.n_sites)
    count = n_samples * per_sample
    check_memory(24.0 * count * k, "the masks of all samples")
    drawn = np.stack([_distinct(graph.n_sites, k, generator) for _ in range(count)], axis=1)
    return [_group(graph, np.arange(n_samples), np.sort(drawn, axis=0), per_sample)]


def _distinct(n_sites: int, k: int, generator: np.random.Generator) -> Integers:
    return generator.choice(n_sites, k, replace=False, shuffle=False)


def random_tilings(
    graph: Graph, n_samples: int, k: int, *, generator: np.random.Generator
) -> list[Group]:
    """Every sample with one of a few random tilings, drawn for it."""
    check_blocks(k, graph.n_sites)
    count = 1 if k in (1, graph.n_sites) else TILINGS
    drawn = generator.integers(count, size=n_samples)
    tilings = [tiling(graph, k, generator) for _ in range(count)]
    groups = (
        _group(graph, np.flatnonzero(drawn == slot), sites) for slot, sites in enumerate(tilings)
    )
    return [group for group in groups if len(group.columns)]


def tiling(graph: Graph, k: int, generator: np.random.Generator) -> Integers:
    """All sites in tiles (k, B) that grow along edges; N fills up those that could not."""
    free = np.ones(graph.n_sites, bool)
    tiles = []
    for seed in generator.permutation(graph.n_sites):
        if not free[seed]:
            continue
        tile, free[seed] = [int(seed)], False
        while len(tile) < k:
            near = np.concatenate([graph.neighbours[site][0] for site in tile])
            near = np.unique(near[free[near]])
            if not len(near):
                break
            tile.append(int(generator.choice(near)))
            free[tile[-1]] = False
        tiles.append(sorted(tile) + [graph.n_sites] * (k - len(tile)))
    return np.array(tiles, np.int64).T


def _group(
    graph: Graph, columns: Integers, sites: Integers, per_sample: int | None = None
) -> Group:
    pairs = combinations(range(len(sites)), 2)
    inner = [graph.edge_between(sites[a], sites[b]) for a, b in pairs]
    held = np.array(inner, np.int64).reshape(-1, sites.shape[1])
    return Group(columns, sites, held, per_sample)


def check_blocks(k: int, n_sites: int) -> None:
    """Refuses blocks of too many sites."""
    most = min(LARGEST_BLOCK, n_sites)
    if not isinstance(k, int | np.integer) or not 1 <= k <= most:
        raise GlauberError(
            f"the block has k = {k} sites, but k must be from 1 to {most} with {n_sites:,} sites: "
            "each block takes 2^k fillings."
        )


class Terms(NamedTuple):
    """Of each block the parameters that move with it (B, L): name, statistic, other spin, factor.

    Parameter `name` has the statistic factor * x[source] * t[place]; d names none.
    """

    name: Integers
    place: Integers
    source: Integers
    factor: Floats


def terms_of(graph: Graph, sites: Integers, inner: Integers) -> Terms:
    """The terms of blocks (k, B) with edges inner (pairs, B)."""
    n, rows = graph.n_sites, []
    for block in range(sites.shape[1]):
        mine = sites[:, block]
        held: list[tuple[int, int, int, float]] = []
        for a, site in enumerate(mine.tolist()):
            if site < n:
                near, edges = (one.tolist() for one in graph.neighbours[site])
                held.append((site, a, n, 1.0))
                outside = zip(near, edges, strict=True)
                held += [(n + e, a, j, 2.0) for j, e in outside if j not in mine]
        there = enumerate(inner[:, block].tolist())
        held += [(n + e, len(mine) + s, n, 2.0) for s, e in there if e < len(graph.edges)]
        rows.append(held)
    widest = max(len(held) for held in rows)
    nothing = (graph.n_parameters, 0, n, 0.0)
    full = np.array([held + [nothing] * (widest - len(held)) for held in rows])
    name, place, source = full[..., :3].astype(np.int64).transpose(2, 0, 1)
    return Terms(name, place, source, full[..., 3])
