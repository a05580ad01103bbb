"""Ising models of thousands of sites, learnt from conditionals of a few sites given the rest.

p(x_K | x_{-K}) of k hidden sites needs the 2^k fillings of K alone: the rest enters by the fields
    F_a = h_a + 2 sum over j not in K of J_aj x_j,
so no state of the whole is enumerated, and a site needs its neighbours on the graph only. With
t = (x_a; x_a x_b) inside K and E, Cov under that conditional, the score has the entries x_a - E x_a
for h_a, 2 (x_a - E x_a) x_j for J_aj that leaves K, and 2 (x_a x_b - E x_a x_b) inside; the Hessian
of minus its logarithm is Cov of the same. theta = (h_i; J_ij of every edge i < j).

Estimators (paper B's weighted pseudolikelihood, with masks that do not look at x):
    m masks   each sample hides m random blocks of k sites, one after the other
    tiles     the sites are cut into tiles of k sites, connected where the graph allows it, and
              every tile is hidden in turn; each sample has one of a few random tilings. With k = 1
              every site is hidden once: Besag's pseudolikelihood

Standard errors are those of the sandwich H^-1 S H^-1, H the summed Hessian and S = sum of u u',
u the score of a sample or, where samples depend on each other, of a cluster of them (times
G / (G - 1) for G clusters). It needs no well-specified model. Only its diagonal is computed, as
sums of (H^-1 u)^2, so no d x d covariance is stored; H is sparse where the graph is.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.sparse import coo_array, csc_array, csr_array
from scipy.sparse.linalg import LinearOperator, eigsh, splu

from glauber.exact.blocks.pseudolikelihood import CONVERGED_STEP, FLAT, Fit
from glauber.exact.space import Floats, Integers, Space
from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import check_memory, memory, track

LARGEST = 20_000  # sites
LARGEST_BLOCK = 10
TILINGS = 8  # random ones that samples choose from
CHUNK = 2**21  # numbers of one array of fillings: larger ones no longer fit the cache
DENSE = 0.2  # share of all pairs that are edges, from which on the Hessian is a full matrix
UNBOUNDED = 50.0  # fields and couplings that no number of samples can tell from infinite ones
NEWTON_STEPS = 20  # after SciPy's optimiser; two are usual where an estimate exists


@dataclass(frozen=True, eq=False)
class InteractionGraph:
    """Sites 0, …, N - 1 and the pairs (edges, 2) that are coupled, i < j, in order."""

    n_sites: int
    edges: Integers

    @classmethod
    def of_pairs(cls, n_sites: int, pairs: Integers) -> "InteractionGraph":
        """The graph of any pairs (n, 2), repeated or in any order."""
        if not 1 <= n_sites <= LARGEST:
            raise GlauberError(f"there are {n_sites:,} sites, but 1 to {LARGEST:,} can be fitted.")
        pairs = np.sort(np.asarray(pairs, np.int64).reshape(-1, 2), axis=1)
        if len(pairs) and (pairs.min() < 0 or pairs.max() >= n_sites):
            raise GlauberError(
                f"an edge names a site outside 0 to {n_sites - 1}: sites are counted from 0."
            )
        if (pairs[:, 0] == pairs[:, 1]).any():
            raise GlauberError("an edge joins a site to itself.")
        return cls(n_sites, np.unique(pairs, axis=0))

    @classmethod
    def complete(cls, n_sites: int) -> "InteractionGraph":
        """Every pair is coupled."""
        parameters = n_sites * (n_sites + 1) // 2
        if n_sites <= LARGEST and (size := 24.0 * parameters**2) > memory():  # Hessian and factor
            raise GlauberError(
                f"{n_sites:,} sites have {parameters - n_sites:,} pairs, and to fit them all takes "
                f"about {size / 2**30:,.0f} GiB of memory: name those that may be coupled by "
                "graph: grid, chain, or a file with two sites a line."
            )
        pairs = np.stack(np.triu_indices(min(n_sites, LARGEST), 1), axis=1)
        return cls.of_pairs(n_sites, pairs)

    @classmethod
    def grid(cls, rows: int, columns: int) -> "InteractionGraph":
        """A square lattice with open ends, site = row * columns + column."""
        site = np.arange(rows * columns).reshape(rows, columns)
        across = np.stack([site[:, :-1].ravel(), site[:, 1:].ravel()], axis=1)
        down = np.stack([site[:-1].ravel(), site[1:].ravel()], axis=1)
        return cls.of_pairs(rows * columns, np.concatenate([across, down]))

    @property
    def n_parameters(self) -> int:
        return self.n_sites + len(self.edges)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parameters, as in h0 and J0,1."""
        couplings = (f"J{i},{j}" for i, j in self.edges.tolist())
        return (*(f"h{i}" for i in range(self.n_sites)), *couplings)

    @cached_property
    def neighbours(self) -> list[list[tuple[int, int]]]:
        """Of each site: its neighbours, rising, and the numbers of the edges to them."""
        near: list[list[tuple[int, int]]] = [[] for _ in range(self.n_sites)]
        for edge, (i, j) in enumerate(self.edges.tolist()):
            near[i].append((j, edge))
            near[j].append((i, edge))
        return [sorted(pairs) for pairs in near]


class Blocks(NamedTuple):
    """Blocks of k sites (filled up with N where one is shorter) and the samples that hide them.

    t are the k hidden spins and then their pairs, q in all. The exponent of t[i] is the sum over l
    of design[l, i] x[source[l]] theta[name[l]], where d names no parameter.
    """

    samples: Integers  # (n,) that are read
    hidden_in: Integers  # (B, M) of these, or (1, M) where all blocks are hidden in the same ones
    sites: Integers  # (B, k)
    name: Integers  # (B, L)
    source: Integers  # (B, L)
    design: Floats  # (B, L, q)


def blocks_of(graph: InteractionGraph, sites: Integers, samples: Integers) -> list[Blocks]:
    """Blocks (B, k) hidden in samples (B, M) or (1, M), in pieces whose arrays stay small."""
    n, k = graph.n_sites, sites.shape[1]
    pairs = {pair: k + slot for slot, pair in enumerate(combinations(range(k), 2))}
    terms: list[list[tuple[int, int, int, float]]] = []
    for block in sites.tolist():
        slots = {site: slot for slot, site in enumerate(block) if site < n}
        row = [(site, n, slot, 1.0) for site, slot in slots.items()]
        for site, slot in slots.items():
            for j, edge in graph.neighbours[site]:
                if j not in slots:
                    row.append((n + edge, j, slot, 2.0))
                elif j > site:
                    row.append((n + edge, n, pairs[slot, slots[j]], 2.0))
        terms.append(row)
    widest = max(map(len, terms))
    padding = (graph.n_parameters, n, 0, 0.0)
    table = np.array([row + [padding] * (widest - len(row)) for row in terms])
    name, source, slot_of = table[..., :3].astype(np.int64).transpose(2, 0, 1)
    design = np.eye(k + len(pairs))[slot_of] * table[..., 3:]
    size = max(1, CHUNK // (2**k * widest))  # blocks times samples
    if len(samples) == 1:
        step = max(1, size // len(sites))
        starts = range(0, samples.shape[1], step)
        selections = [(slice(None), samples[:, first : first + step]) for first in starts]
    else:
        step = max(1, size // (each := int((samples == samples[0]).sum()))) * each
        rows = [slice(first, first + step) for first in range(0, len(samples), step)]
        selections = [(part, samples[part]) for part in rows]
    pieces = []
    for part, hidden in selections:
        read, position = np.unique(hidden, return_inverse=True)
        own = sites[part], name[part], source[part]
        pieces.append(Blocks(read, position.reshape(hidden.shape), *own, design[part]))
    return pieces


def random_blocks(
    graph: InteractionGraph, n_samples: int, k: int, per_sample: int, generator: np.random.Generator
) -> list[Blocks]:
    """Every sample with its own random blocks."""
    count = n_samples * per_sample
    check_memory(24.0 * count * k, "the masks of all samples")
    sites = [generator.choice(graph.n_sites, k, False, shuffle=False) for _ in range(count)]
    samples = np.repeat(np.arange(n_samples), per_sample)
    return blocks_of(graph, np.sort(np.stack(sites), axis=1), samples[:, None])


def random_tilings(
    graph: InteractionGraph, n_samples: int, k: int, generator: np.random.Generator
) -> list[Blocks]:
    """Every sample with one of a few random tilings, drawn for it."""
    count = 1 if k in (1, graph.n_sites) else TILINGS
    choice = generator.integers(count, size=n_samples)
    tilings = [tiling(graph, k, generator) for _ in range(count)]
    samples = [np.flatnonzero(choice == number)[None] for number in range(count)]
    groups = zip(tilings, samples, strict=True)
    return [b for tiles, hidden in groups if hidden.size for b in blocks_of(graph, tiles, hidden)]


def tiling(graph: InteractionGraph, k: int, generator: np.random.Generator) -> Integers:
    """All sites in tiles (B, k) that grow along edges; N fills up those that could not."""
    free = np.ones(graph.n_sites, bool)
    tiles = []
    for seed in generator.permutation(graph.n_sites).tolist():
        tile = [seed] if free[seed] else []
        while 0 < len(tile) <= k:
            free[tile[-1]] = False
            near = {j for site in tile for j, _ in graph.neighbours[site] if free[j]}
            if not near or len(tile) == k:
                break
            tile.append(int(generator.choice(sorted(near))))
        if tile:
            tiles.append(sorted(tile) + [graph.n_sites] * (k - len(tile)))
    return np.array(tiles, np.int64)


@dataclass(frozen=True, eq=False)
class BlockLikelihood:
    """The negative log pseudolikelihood of spins (N, n) of -1 and 1, summed over all blocks."""

    graph: InteractionGraph
    spins: NDArray[np.int8]
    blocks: list[Blocks]

    @property
    def n_blocks(self) -> int:
        """Conditionals that are summed."""
        return sum(len(b.sites) * b.hidden_in.shape[1] for b in self.blocks)

    def value(self, theta: Floats) -> tuple[float, Floats]:
        """The loss and its gradient (d,), per block."""
        loss, gradient = 0.0, np.zeros(self.graph.n_parameters + 1)
        for blocks in self.blocks:
            at = self._evaluate(theta, blocks)
            sums = at.scores(blocks.design).sum(axis=2)
            gradient -= np.bincount(blocks.name.ravel(), sums.ravel(), len(gradient))
            loss += at.loss
        return loss / self.n_blocks, gradient[:-1] / self.n_blocks

    def scores(self, theta: Floats) -> Iterator[tuple[Integers, Floats]]:
        """Some samples (M,) and the scores (d, M) of each, summed over its blocks."""
        for blocks in self.blocks:
            scores = self._evaluate(theta, blocks).scores(blocks.design)
            index = np.broadcast_arrays(blocks.name[..., None], blocks.hidden_in[:, None])
            shape = self.graph.n_parameters + 1, len(blocks.samples)
            entries = scores.ravel(), (index[0].ravel(), index[1].ravel())
            yield blocks.samples, coo_array(entries, shape=shape).toarray()[:-1]

    def hessian(self, theta: Floats) -> Floats | csc_array:
        """The Hessian (d, d), summed over all blocks; sparse where the graph is.

        With A = (t - E t) sqrt(p) over the fillings, Cov of z t is the sum of (z A) (z A)'.
        """
        n, d = self.graph.n_sites, self.graph.n_parameters
        is_dense = n <= 30 or len(self.graph.edges) > DENSE * n * (n - 1) / 2
        check_memory(24.0 * d**2 if is_dense else 0.0, f"the Hessian of {d:,} parameters")
        total: Floats | csc_array = np.zeros((d, d)) if is_dense else csc_array((d, d))
        for blocks in self.blocks:
            at = self._evaluate(theta, blocks)
            moments = at.statistics.T[..., None] - at.means[:, :, None]  # (B, q, 2**k, M)
            moments = moments * np.sqrt(at.probabilities)[:, None]
            rows = (blocks.design @ moments.reshape(*moments.shape[:2], -1)).reshape(
                *blocks.name.shape, *moments.shape[2:]
            )
            rows = (rows * at.weights[:, :, None]).reshape(*blocks.name.shape, -1)
            first, second = np.broadcast_arrays(blocks.name[:, :, None], blocks.name[:, None])
            real = (first < d) & (second < d)
            entries = (rows @ rows.swapaxes(1, 2))[real], (first[real], second[real])
            local = coo_array(entries, shape=(d, d))
            total = total + (local.toarray() if is_dense else local.tocsc())
        return total

    def _evaluate(self, theta: Floats, blocks: Blocks) -> "Conditional":
        """What theta says of the fillings of some blocks."""
        spins = np.ones((self.graph.n_sites + 1, len(blocks.samples)))  # 1 at no site
        spins[:-1] = self.spins[:, blocks.samples]
        hidden = spins[blocks.sites[..., None], blocks.hidden_in[:, None]]  # (B, k, M)
        weights = spins[blocks.source[..., None], blocks.hidden_in[:, None]]  # (B, L, M)
        scaled = weights * np.append(theta, 0.0)[blocks.name][..., None]
        exponents = blocks.design.swapaxes(1, 2) @ scaled  # (B, q, M)
        k = blocks.sites.shape[1]
        statistics = _with_pairs(Space(2, k).states().numpy().T * 2.0 - 1.0, 0).T  # (2**k, q)
        observed = _with_pairs(hidden, 1)
        p = statistics @ exponents  # (B, 2**k, M)
        peak = p.max(axis=1, keepdims=True)
        np.exp(p - peak, out=p)
        total = p.sum(axis=1, keepdims=True)
        p /= total
        nobody = np.log(2) * int((blocks.sites == self.graph.n_sites).sum()) * p.shape[2]
        loss = (peak + np.log(total)).sum() - (exponents * observed).sum() - nobody
        return Conditional(weights, observed, statistics, p, float(loss))


def _with_pairs(spins: Floats, axis: int) -> Floats:
    """Spins and their products of two, along an axis."""
    rows = np.moveaxis(spins, axis, 0)
    pairs = [rows[a] * rows[b] for a, b in combinations(range(len(rows)), 2)]
    return np.moveaxis(np.array([*rows, *pairs]), 0, axis)


class Conditional(NamedTuple):
    """The distribution of the fillings of some blocks given the rest, at a theta."""

    weights: Floats  # (B, L, M): x[source]
    observed: Floats  # (B, q, M): t
    statistics: Floats  # (2**k, q): t of every filling
    probabilities: Floats  # (B, 2**k, M)
    loss: float

    @property
    def means(self) -> Floats:
        """E t (B, q, M)."""
        return np.asarray(self.statistics.T @ self.probabilities)

    def scores(self, design: Floats) -> Floats:
        """The derivatives (B, L, M) of the log-probability."""
        return np.asarray(self.weights * (design @ (self.observed - self.means)))


def fit_blocks(
    problem: BlockLikelihood, method: Literal["newton", "lbfgs"] = "newton"
) -> tuple[Fit, Floats | csc_array]:
    """The estimate and the Hessian there: SciPy's optimiser, then Newton steps below 1e-8."""
    options = {"xtol": 1e-5, "maxiter": 60} if method == "newton" else {"maxiter": 500}
    optimum = minimize(
        problem.value,
        np.zeros(problem.graph.n_parameters),
        jac=True,
        hess=(lambda at: problem.hessian(at) / problem.n_blocks) if method == "newton" else None,
        method="Newton-CG" if method == "newton" else "L-BFGS-B",
        options=options,
    )
    theta, n_iterations, converged = np.asarray(optimum.x), int(optimum.nit), False
    hessian = problem.hessian(theta)
    for _ in range(NEWTON_STEPS):
        solve, (loss, gradient) = solver(hessian), problem.value(theta)
        if solve is None or not np.abs(theta).max() <= UNBOUNDED:
            break
        step = solve(gradient * problem.n_blocks)
        theta, n_iterations = theta - step, n_iterations + 1
        converged = bool(np.abs(step).max() <= CONVERGED_STEP * (1 + np.abs(theta).max()))
        if converged:
            break
        hessian = problem.hessian(theta)
    loss, gradient = problem.value(theta)
    curvature = smallest_eigenvalue(hessian) / problem.n_blocks
    fit = Fit(
        theta=theta,
        loss=np.asarray(loss),
        max_gradient=np.asarray(np.abs(gradient).max()),
        curvature=np.asarray(curvature),
        converged=np.asarray(converged and curvature > FLAT),
        n_iterations=n_iterations,
        method=method,
    )
    return fit, hessian


def sandwich_errors(
    problem: BlockLikelihood,
    theta: Floats,
    hessian: Floats | csc_array,
    *,
    cluster_size: int = 1,
) -> Floats:
    """Standard errors (d,): sqrt of the diagonal of H^-1 S H^-1, from the scores of samples.

    Samples that come in a row of cluster_size depend on each other, others do not.
    """
    solve = solver(hessian)
    assert solve is not None, "an estimate that was found has a Hessian that can be inverted"
    n_clusters = -(-problem.spins.shape[1] // cluster_size)
    pieces: Iterable[Floats] = (scores for _, scores in problem.scores(theta))
    if cluster_size > 1:
        summed = np.zeros((problem.graph.n_parameters, n_clusters))
        for samples, scores in problem.scores(theta):
            np.add.at(summed.T, samples // cluster_size, scores.T)
        pieces = [summed]
    total = sum((solve(scores) ** 2).sum(axis=1) for scores in pieces)
    return np.asarray(np.sqrt(total * n_clusters / (n_clusters - 1)))


def solver(hessian: Floats | csc_array) -> Callable[[Floats], Floats] | None:
    """What solves H y = u for u (d,) or (d, m); None where a direction is undetermined."""
    try:
        if isinstance(hessian, np.ndarray):
            factor = cho_factor(hessian)
            return lambda u: np.asarray(cho_solve(factor, u))
        factored = splu(hessian)
        return lambda u: np.asarray(factored.solve(np.ascontiguousarray(u)))
    except (np.linalg.LinAlgError, RuntimeError):
        return None


def smallest_eigenvalue(hessian: Floats | csc_array) -> float:
    """Of a positive matrix (d, d); 0 where it cannot be inverted."""
    if isinstance(hessian, np.ndarray) and len(hessian) <= 1000:
        return float(np.linalg.eigvalsh(hessian)[0])
    solve = solver(hessian)
    if solve is None:
        return 0.0
    inverse = LinearOperator(hessian.shape, matvec=solve, dtype=np.float64)
    start = np.random.default_rng(1).standard_normal(hessian.shape[0])
    return float(1 / eigsh(inverse, k=1, which="LA", v0=start, return_eigenvectors=False)[0])


def gibbs_samples(
    graph: InteractionGraph,
    theta: Floats,
    shape: tuple[int, int],
    *,
    sweeps: int,
    every: int,
    seed: int,
) -> NDArray[np.int8]:
    """Spins (chains, samples of each, N) of Gibbs chains, shape = (chains, samples of each).

    All sites of a colour of a greedy colouring are redrawn at once, which is exact since none sees
    another. Each chain starts at random, makes `sweeps` sweeps and is then read every so many. The
    samples are those of the model but for what is left of the start; within a chain they depend on
    each other.
    """
    n_chains, n_reads = shape
    check_memory(2.0 * n_chains * n_reads * graph.n_sites, "these samples")
    colour = np.full(graph.n_sites, -1)
    for site in np.argsort([-len(near) for near in graph.neighbours], kind="stable"):
        taken = {colour[j] for j, _ in graph.neighbours[site]}
        colour[site] = next(c for c in range(graph.n_sites) if c not in taken)
    values, pairs = (
        np.tile(2 * theta[graph.n_sites :], 2),
        np.concatenate([graph.edges, graph.edges[:, ::-1]]),
    )
    couplings = csr_array((values, tuple(pairs.T)), shape=(graph.n_sites,) * 2)
    groups = [np.flatnonzero(colour == c) for c in range(colour.max() + 1)]
    colours = [(sites, couplings[sites], theta[sites, None]) for sites in groups]
    generator = np.random.default_rng(seed)
    spins = generator.choice([-1.0, 1.0], (graph.n_sites, n_chains))
    reads = np.empty((n_reads, graph.n_sites, n_chains), np.int8)
    total = sweeps + every * (n_reads - 1)
    with track("sweeps", total) as advance:
        for sweep in range(1, total + 1):
            for sites, rows, field in colours:
                # P(x_i = 1) = 1 / (1 + exp(-2 F)), so x_i = 1 where a uniform draw is below it.
                chance = 1 / (1 + np.exp(-2 * (field + rows @ spins)))
                spins[sites] = np.where(generator.random(chance.shape) < chance, 1.0, -1.0)
            if sweep >= sweeps and (sweep - sweeps) % every == 0:
                reads[(sweep - sweeps) // every] = spins
            advance()
    return np.ascontiguousarray(reads.transpose(2, 0, 1))
