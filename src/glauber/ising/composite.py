"""How is a model with a thousand sites learnt? From conditionals of a few sites, given the rest.

p(x_K | x_{-K}) of k hidden sites needs the 2^k fillings of K alone: the rest enters by the fields
    F_a = h_a + 2 sum over j not in K of J_aj x_j,
so no state of the whole is enumerated. With t = (x_a; x_a x_b) inside K and E, Cov under that
conditional, the score has the entries x_a - E x_a for h_a, 2 (x_a - E x_a) x_j for J_aj that leaves
K, and 2 (x_a x_b - E x_a x_b) inside; the Hessian of minus its logarithm is Cov of the same.

Estimators (paper B's weighted pseudolikelihood, with masks that do not look at x):
    m masks   each sample hides m random blocks of k sites, one after the other
    tiles     the sites are cut into tiles of k sites, connected where the graph allows it, and
              every tile is hidden in turn; each sample has one of a few random tilings. With k = 1
              every site is hidden once: Besag's pseudolikelihood

Standard errors are those of the sandwich H^-1 S H^-1, H the summed Hessian and S = sum of u u',
u the score of a sample or, where samples depend on each other, of a cluster of them (times
G / (G - 1) for G clusters). It needs no well-specified model. Only its diagonal is worked out, as
sums of (H^-1 u)^2, so no d x d covariance is kept; H is sparse where the graph is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import coo_array, csc_array

from glauber.exact.blocks.pseudolikelihood import smallest_eigenvalue, solver
from glauber.exact.blocks.pseudolikelihood import FLAT, SETTLED, STEPS, Fit
from glauber.exact.space import Floats, Space
from glauber.ising.graph import Graph, Group, Integers, terms_of
from glauber.progress import check_memory

ENTRIES = 2**21  # numbers of one array of fillings: larger ones no longer fit the cache
DENSE = 0.2  # share of all pairs that are edges, from which on the Hessian is a full matrix
UNBOUNDED = 50.0  # fields and couplings that no number of samples can tell from infinite ones
NEAR = 1e-6  # a Newton step below this no longer needs a new Hessian


class Chunk(NamedTuple):
    """Some samples and their blocks: M samples, B blocks.

    fields (k, B, M) are without what comes from inside a block, inside (pairs, B, 1) the couplings
    there, inner (pairs, B) their edges; owner (B,) is the sample of each block, if it has one.
    """

    spins: Floats  # (N + 1, M), with a row for the sites that are none
    hidden: Floats  # (k, B, M): the spins at the blocks' sites
    fields: Floats
    inside: Floats
    sites: Integers  # (k, B)
    inner: Integers
    owner: Integers | None


@dataclass(frozen=True, eq=False)
class Piece:
    """What one chunk of samples says at a theta.

    spins and residuals are (N + 1, M); inner is what the scores of edges inside blocks have beyond
    2 (r_i x_j + r_j x_i).
    """

    spins: Floats
    residuals: Floats
    inner: list[tuple[Integers, Integers | None, Floats]]  # edges (I,), samples (I,), values (I, M)
    loss: float


@dataclass(frozen=True, eq=False)
class Composite:
    """The negative log pseudolikelihood of spins (N, n) of -1 and 1, summed over all blocks."""

    graph: Graph
    spins: NDArray[np.int8]
    groups: list[Group]

    @cached_property
    def n_blocks(self) -> int:
        """Conditionals that are summed."""
        return sum(
            group.sites.shape[1] * (1 if group.per_sample else len(group.columns))
            for group in self.groups
        )

    def value(self, theta: Floats) -> tuple[float, Floats]:
        """The loss and its gradient (d,), per block."""
        loss, slope = 0.0, np.zeros(self.graph.n_parameters)
        for group, part in self._parts():
            piece = self._piece(theta, group, part)
            loss += piece.loss
            slope[: self.graph.n_sites] -= piece.residuals[:-1].sum(axis=1)
            slope[self.graph.n_sites :] -= self._edge_sums(piece)
        return loss / self.n_blocks, slope / self.n_blocks

    def scores(self, theta: Floats) -> Iterator[tuple[Integers, Floats]]:
        """The samples (M,) of each chunk and their summed scores (d, M)."""
        (i, j), n = self.graph.edges.T, self.graph.n_sites
        for group, part in self._parts():
            piece = self._piece(theta, group, part)
            x, r = piece.spins, piece.residuals
            scores = np.concatenate([r[:-1], 2 * (r[i] * x[j] + r[j] * x[i])])
            for edges, samples, values in piece.inner:
                if samples is None:
                    np.add.at(scores, n + edges, values)
                else:
                    np.add.at(scores, (n + edges, samples), values[:, 0])
            yield group.columns[part], scores

    def hessian(self, theta: Floats) -> "Floats | csc_array":
        """The Hessian (d, d), summed over all blocks; sparse where the graph is."""
        d = self.graph.n_parameters
        if self._is_dense:
            check_memory(24.0 * d**2, f"the Hessian of {d:,} parameters")
        total: Any = np.zeros((d, d)) if self._is_dense else csc_array((d, d))
        for names, local in self._curvatures(theta):
            rows, columns = np.broadcast_arrays(names[:, :, None], names[:, None, :])
            real = (rows < d) & (columns < d)
            placed = coo_array((local[real], (rows[real], columns[real])), shape=(d, d)).tocsc()
            total = total + (placed.toarray() if self._is_dense else placed)
        return total

    @property
    def _is_dense(self) -> bool:
        n = self.graph.n_sites
        return n <= 30 or len(self.graph.edges) > DENSE * n * (n - 1) / 2

    def _parts(self, wide: int = 1) -> Iterator[tuple[Group, slice]]:
        """Chunks of samples whose arrays, `wide` numbers for each filling, stay small."""
        for group in self.groups:
            k, n_blocks = group.sites.shape
            blocks = group.per_sample or n_blocks
            size = max(1, ENTRIES // max(wide * 2**k * blocks, self.graph.n_sites))
            for first in range(0, len(group.columns), size):
                yield group, slice(first, min(first + size, len(group.columns)))

    def _chunk(self, theta: Floats, group: Group, part: slice) -> Chunk:
        n, columns = self.graph.n_sites, group.columns[part]
        spins = np.ones((n + 1, len(columns)))
        spins[:n] = self.spins[:, columns]
        fields = np.zeros_like(spins)
        fields[:n] = theta[:n, None] + self.graph.matrix(2 * theta[n:]) @ spins[:n]
        blocks, owner = slice(None), None
        if group.per_sample:
            blocks = slice(part.start * group.per_sample, part.stop * group.per_sample)
            owner = np.repeat(np.arange(len(columns)), group.per_sample)
        sites, inner = group.sites[:, blocks], group.inner[:, blocks]
        inside = np.append(theta[n:], 0.0)[inner][..., None]
        hidden, fields = _taken(spins, sites, owner), _taken(fields, sites, owner)
        for slot, (a, b) in enumerate(combinations(range(len(sites)), 2)):
            fields[a] -= 2 * inside[slot] * hidden[b]
            fields[b] -= 2 * inside[slot] * hidden[a]
        return Chunk(spins, hidden, fields, inside, sites, inner, owner)

    def _piece(self, theta: Floats, group: Group, part: slice) -> Piece:
        at = self._chunk(theta, group, part)
        x, sites, owner = at.hidden, at.sites, at.owner
        p, normaliser = _fillings(at.fields, at.inside)
        single, double = _statistics(len(sites))
        apart = x - np.tensordot(single, p, (0, 0))
        energy, inner = (at.fields * x).sum(axis=0), []
        for slot, (a, b) in enumerate(combinations(range(len(sites)), 2)):
            energy += 2 * at.inside[slot] * x[a] * x[b]
            there = np.flatnonzero(at.inner[slot] < len(self.graph.edges))
            both = x[a, there] * x[b, there] - np.tensordot(double[:, slot], p[:, there], (0, 0))
            counted = apart[a, there] * x[b, there] + apart[b, there] * x[a, there]
            owners = None if owner is None else owner[there]
            inner.append((at.inner[slot, there], owners, 2 * (both - counted)))
        nobody = np.log(2) * int((sites == self.graph.n_sites).sum()) * energy.shape[-1]
        residuals = np.zeros_like(at.spins)
        if owner is None:
            residuals[sites] = apart  # a tiling has every site once
            residuals[-1] = 0.0
        else:
            np.add.at(residuals, (sites, np.broadcast_to(owner, sites.shape)), apart[..., 0])
        return Piece(at.spins, residuals, inner, float((normaliser - energy).sum() - nobody))

    def _edge_sums(self, piece: Piece) -> Floats:
        """2 (r_i x_j + r_j x_i), or what stands inside a block, summed over samples: (edges,)."""
        (i, j), x, r = self.graph.edges.T, piece.spins, piece.residuals
        if self._is_dense:
            both = r[:-1] @ x[:-1].T
            sums = 2 * (both[i, j] + both[j, i])
        else:
            sums = 2 * (np.einsum("em,em->e", r[i], x[j]) + np.einsum("em,em->e", r[j], x[i]))
        for edges, _, values in piece.inner:
            np.add.at(sums, edges, values.sum(axis=1))
        return np.asarray(sums)

    def _curvatures(self, theta: Floats) -> Iterator[tuple[Integers, Floats]]:
        """For blocks their parameters (B, L) and Cov of these statistics (B, L, L), summed.

        With A = (t - E t) sqrt(p) over the fillings, Cov of z t is the sum of (z A) (z A)'.
        """
        local, before = np.zeros((0, 0, 0)), None
        for group, part in self._parts(wide=8):
            at = self._chunk(theta, group, part)
            again = at.owner is None and before is not None and before[0] is group
            of = before[1] if again and before else terms_of(self.graph, at.sites, at.inner)
            p, _ = _fillings(at.fields, at.inside)
            statistics = np.concatenate(_statistics(len(at.sites)), axis=1).T  # (k + pairs, 2**k)
            means = np.tensordot(statistics, p, (1, 0))
            moved = (statistics[..., None, None] - means[:, None]) * np.sqrt(p)
            z = _taken(at.spins, of.source, None if at.owner is None else at.owner[:, None])
            z *= of.factor[..., None]
            block = np.arange(len(z))[:, None]
            rows = moved.transpose(2, 0, 1, 3)[block, of.place] * z[:, :, None]  # (B, L, 2**k, M)
            rows = rows.reshape(*z.shape[:2], -1)
            found = rows @ rows.swapaxes(1, 2)
            if again:
                local += found
                continue
            if before is not None:
                yield before[1].name, local
            local, before = found, (group, of)
        if before is not None:
            yield before[1].name, local


def _taken(values: Floats, sites: Integers, owner: Integers | None) -> Floats:
    """values (N + 1, M) at the blocks' sites (k, B): (k, B, M), or (k, B, 1) of each one's own."""
    if owner is None:
        return values[sites]
    return np.asarray(values[sites, owner][..., None])


def _statistics(k: int) -> tuple[Floats, Floats]:
    """x_a (2**k, k) and x_a x_b (2**k, pairs) of all fillings."""
    single = Space(2, k).states().numpy() * 2.0 - 1.0
    pairs = list(combinations(range(k), 2))
    double = [single[:, a] * single[:, b] for a, b in pairs]
    return single, np.array(double).T.reshape(len(single), len(pairs))


def _fillings(fields: Floats, inside: Floats) -> tuple[Floats, Floats]:
    """Probabilities (2**k, B, M) of all fillings, and the log of what normalises them (B, M)."""
    single, double = _statistics(len(fields))
    energy = np.tensordot(single, fields, (1, 0))
    if len(inside):
        energy += 2 * np.tensordot(double, inside, (1, 0))
    peak = energy.max(axis=0)
    energy -= peak
    np.exp(energy, out=energy)
    total = energy.sum(axis=0)
    energy /= total
    return energy, peak + np.log(total)


def fit_composite(
    problem: Composite, method: Literal["newton", "lbfgs"] = "newton"
) -> tuple[Fit, Floats | csc_array]:
    """The estimate and the Hessian there: Newton steps until one is below 1e-8.

    With lbfgs they begin where L-BFGS ends, which needs no Hessian and so is faster where every
    pair is coupled.
    """
    theta, n_steps, settled = np.zeros(problem.graph.n_parameters), 0, False
    if method == "lbfgs":
        begun = minimize(
            problem.value, theta, jac=True, method="L-BFGS-B",
            options={"maxiter": 500, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-6},
        )  # fmt: skip
        theta, n_steps = np.asarray(begun.x), int(begun.nit)
    loss, slope = problem.value(theta)
    hessian = problem.hessian(theta)
    while n_steps < STEPS + 500 * (method == "lbfgs") and not settled:
        solve = solver(hessian)
        if solve is None:
            break
        step = solve(slope * problem.n_blocks)
        if not np.abs(theta - step).max() <= UNBOUNDED:
            break
        theta, loss, slope = _stepped(problem, theta, step, loss)
        settled = bool(np.abs(step).max() <= SETTLED * (1 + np.abs(theta).max()))
        if not np.abs(step).max() <= NEAR:  # else the Hessian stays the same to that accuracy
            hessian = problem.hessian(theta)
        n_steps += 1
    least = smallest_eigenvalue(hessian) / problem.n_blocks
    found = Fit(
        theta=theta,
        loss=np.asarray(loss),
        slope=np.asarray(np.abs(slope).max()),
        curvature=np.asarray(least),
        found=np.asarray(settled and least > FLAT),
        n_steps=n_steps,
        method=method,
    )
    return found, hessian


def _stepped(
    problem: Composite, theta: Floats, step: Floats, loss: float
) -> tuple[Floats, float, Floats]:
    """theta less the step, halved until the loss does not grow, with loss and gradient there."""
    for _ in range(30):
        reached, slope = problem.value(theta - step)
        if reached <= loss + 1e-13 * (1 + abs(loss)):
            break
        step = step / 2
    return theta - step, reached, slope


def sandwich_errors(
    problem: Composite,
    theta: Floats,
    hessian: "Floats | csc_array",
    *,
    clusters: Integers | None = None,
) -> Floats:
    """Standard errors (d,): sqrt of the diagonal of H^-1 S H^-1, from the scores of samples.

    clusters (n,) number the samples that depend on each other; None: all are independent.
    """
    solve = solver(hessian)
    assert solve is not None, "an estimate that was found has a Hessian that can be inverted"
    total = np.zeros(problem.graph.n_parameters)
    n_groups = problem.spins.shape[1] if clusters is None else int(clusters.max()) + 1
    if clusters is None:
        for _, scores in problem.scores(theta):
            total += (solve(scores) ** 2).sum(axis=1)
    else:
        summed = np.zeros((problem.graph.n_parameters, n_groups))
        for samples, scores in problem.scores(theta):
            shape = (len(samples), n_groups)
            places = (np.arange(len(samples)), clusters[samples])
            summed += (coo_array((np.ones(len(samples)), places), shape=shape).T @ scores.T).T
        total = (solve(summed) ** 2).sum(axis=1)
    return np.asarray(np.sqrt(total * n_groups / (n_groups - 1)))
