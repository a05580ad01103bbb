"""The Ising model that samples come from, by k-site pseudolikelihood."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from glauber.exact.blocks.pseudolikelihood import (
    Fit,
    Pseudolikelihood,
    all_masks,
    asymptotics,
    draw_counts,
    fit_pairs,
    observe_masks,
)
from glauber.exact.models import Ising, check_block_size, ising_family, ising_theta, state_counts
from glauber.exact.space import Floats, Integers
from glauber.foundation.checks import OneOf, Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import Seed
from glauber.foundation.progress import say
from glauber.foundation.statistics import CONFIDENCE, MIN_CHAINS, normal_quantile, t_quantile
from glauber.foundation.study import Result, internal, reported, study
from glauber.studies.ising.block_fitting import (
    LARGEST_BLOCK,
    BlockLikelihood,
    InteractionGraph,
    fit_blocks,
    gibbs_samples,
    random_blocks,
    random_tilings,
    sandwich_errors,
)
from glauber.studies.ising.model import (
    Adaptive,
    Clique,
    Coupling,
    Data,
    Field,
    Model,
    Sites,
    masks_of,
    model_of,
    tokens_of,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

LARGEST_COUNT = 10**15  # samples times their masks, which 64-bit counts can represent
ENUMERATED = 12  # sites, up to which all states are counted
EVERY = 5  # sweeps between two samples of a Gibbs chain
PRINTED = 40  # parameters that are printed one by one
TILES = "tiles"


@study
def fit(
    model: Model = None,
    *,
    k: Annotated[int, "Sites hidden together; N: maximum likelihood."] = 1,
    samples: Annotated[int, "Samples drawn from the model.", Whole()] = 10_000,
    masks: Annotated[
        int | str | None,
        "Random masks of each sample (1, 2, …), all to average, or tiles: each site hidden once, "
        "with its neighbours (default: 1, beyond 12 sites tiles).",
    ] = None,
    adaptive: Adaptive = False,
    sites: Sites = 4,
    clique: Clique = None,
    coupling: Coupling = 0.05,
    field: Field = 0.0,
    graph: Annotated[
        str | Path | None,
        "Pairs that may be coupled: all, chain, grid, 25x40, or a file with two sites a line "
        "(default: all, or those of a large model).",
    ] = None,
    data: Data = None,
    cluster: Annotated[
        int, "Rows of data in a row that depend on each other, as a chain's.", Whole()
    ] = 1,
    chains: Annotated[
        int, "Gibbs chains that samples beyond 12 sites come from.", Whole(MIN_CHAINS)
    ] = 100,
    sweeps: Annotated[int, "Gibbs sweeps before the first sample of a chain.", Whole()] = 200,
    method: Annotated[str, "newton or lbfgs.", OneOf(("newton", "lbfgs"))] = "newton",
    seed: Seed = 0,
) -> "IsingFit":
    """Fit an Ising model by k-site pseudolikelihood, to samples of one or to a file.

    The estimate minimises the k-site pseudolikelihood (paper B), which is convex in the fields and
    couplings. Up to 12 sites all states are counted; beyond, each block is enumerated given the
    rest, so that 1,000 sites are fitted in seconds. Standard errors are those of the sandwich for
    many samples: no model has to be right for them. Where the samples leave a parameter at infinity
    or undetermined, no estimate is claimed. Adaptive masks (paper B, Definition 7; up to 12 sites)
    are chosen by the true model, with data of one's own by a first fit with uniform masks.
    """
    if masks not in (None, TILES):
        masks_per_sample(masks, samples)
    tokens, truth = None, None
    alike = dict(clique=clique, coupling=coupling, field=field)
    if data is not None:
        tokens = tokens_of(data)
        sites = tokens.shape[1]
    elif model is not None:
        truth = model_of(model, sites=sites, **alike)  # type: ignore[arg-type]
        sites = truth.n_sites
    optimiser: Literal["newton", "lbfgs"] = "lbfgs" if method == "lbfgs" else "newton"
    if sites <= ENUMERATED and graph in (None, "all") and masks != TILES and cluster == 1:
        if truth is None and tokens is None:
            truth = model_of(None, sites=sites, **alike)  # type: ignore[arg-type]
        return fit_counts(tokens, truth, k, samples, masks or 1, optimiser, seed, adaptive=adaptive)
    if adaptive:
        raise GlauberError(
            f"adaptive masks need p_K(K | x) of every state: up to {ENUMERATED} sites, without "
            "graph, tiles or cluster."
        )
    if tokens is not None:
        pairs = graph_of(graph or "all", sites)
        spins, theta = np.ascontiguousarray(2 * tokens.T - 1, np.int8), None
    else:
        if clique is not None and graph is not None:
            raise GlauberError("give a clique or a graph, not both.")
        pairs, drawn, theta, own = _true_theta(truth, graph, sites, clique, coupling, field)
        chains = min(chains, samples)
        each = samples // chains
        cluster, n_sweeps = max(cluster, each), sweeps + EVERY * (each - 1)
        say(f"{chains} Gibbs chains of {n_sweeps:,} sweeps, {sites:,} sites")
        rows = gibbs_samples(drawn, own, (chains, each), sweeps=sweeps, every=EVERY, seed=seed)
        spins = np.ascontiguousarray(rows.reshape(-1, sites).T)
    return fit_given_the_rest(pairs, spins, theta, k, masks or TILES, cluster, optimiser, seed)


def fit_counts(
    tokens: Integers | None,
    model: Ising | None,
    k: int,
    samples: int,
    masks: int | str,
    method: Literal["newton", "lbfgs"],
    seed: int,
    *,
    adaptive: bool = False,
) -> "IsingFit":
    """The estimate from how often each state occurs in tokens (n, N), or in samples of a model.

    With p_K chosen by a first fit the sandwich is unchanged: given any p_K that does not depend on
    theta the score has mean zero, so that what p_K was chosen by matters only to second order.
    """
    generator, truth = np.random.default_rng(seed), None
    if tokens is not None:
        check_block_size(k, tokens.shape[1])
        family = ising_family(tokens.shape[1])
        counts = state_counts(family.space, tokens)
    else:
        assert model is not None
        check_block_size(k, model.n_sites)
        family, truth = ising_family(model.n_sites), ising_theta(model)
        counts = draw_counts(family.distribution(truth), samples, 1, generator)[0]
    problem, per_sample = Pseudolikelihood.of_size(family, k), masks_per_sample(masks, samples)
    if adaptive:
        theta = truth
        if theta is None:
            first = fit_pairs(problem, all_masks(counts, problem.masks), method=method)
            check_converged(first, int(counts.sum()))
            theta = first.theta
        by = masks_of(family.space, family.distribution(theta), k, adaptive)
        problem = Pseudolikelihood(family, by)
    estimate = fit_pairs(
        problem, observe_masks(counts, problem.masks, per_sample, generator), method=method
    )
    n_samples = int(counts.sum())
    check_converged(estimate, n_samples)
    spread = asymptotics(problem, estimate.theta, under=counts / n_samples).covariance(per_sample)
    expected = None
    if truth is not None:
        expected = asymptotics(problem, truth).trace(per_sample) / n_samples
    error = np.sqrt(np.diag(spread) / n_samples)
    return IsingFit(
        family.names,
        estimate.theta,
        error,
        truth,
        expected,
        n_samples,
        k,
        f"{masks}, adaptive" if adaptive else str(masks),
        None,
        estimate,
    )


def fit_given_the_rest(
    graph: InteractionGraph,
    spins: NDArray[np.int8],
    truth: Floats | None,
    k: int,
    masks: int | str,
    cluster: int,
    method: Literal["newton", "lbfgs"],
    seed: int,
) -> "IsingFit":
    """The estimate from blocks given the rest of spins (N, n): nothing of size 2^N is computed."""
    n_sites, n_samples = spins.shape
    largest = min(LARGEST_BLOCK, n_sites)
    if not isinstance(k, int) or not 1 <= k <= largest:
        raise GlauberError(
            f"the block has k = {k} sites, but k must be from 1 to {largest} with {n_sites:,} "
            "sites: each block takes 2^k fillings."
        )
    if masks == "all" and k > 1:
        raise GlauberError(
            f"all masks of k = {k} sites are averaged up to {ENUMERATED} sites only, with every "
            "pair coupled: take a number of random ones, or tiles."
        )
    n_clusters = -(-n_samples // cluster)
    if cluster > 1 and n_clusters < MIN_CHAINS:
        raise GlauberError(
            f"{n_samples:,} rows in clusters of {cluster:,} make {n_clusters}, but with fewer than "
            f"{MIN_CHAINS} nothing can be said of the errors."
        )
    generator, masks = np.random.default_rng([seed, 1]), TILES if masks == "all" else masks
    if masks == TILES:
        blocks = random_tilings(graph, n_samples, k, generator)
    else:
        blocks = random_blocks(graph, n_samples, k, int(masks), generator)
    problem = BlockLikelihood(graph, spins, blocks)
    say(f"{graph.n_parameters:,} parameters from {problem.n_blocks:,} conditionals")
    estimate, hessian = fit_blocks(problem, method)
    check_converged(estimate, n_samples)
    error = sandwich_errors(problem, estimate.theta, hessian, cluster_size=cluster)
    clusters = None if cluster == 1 else n_clusters
    return IsingFit(
        graph.names,
        estimate.theta,
        error,
        truth,
        None,
        n_samples,
        k,
        str(masks),
        clusters,
        estimate,
    )


@dataclass(frozen=True, eq=False)
class IsingFit(Result):
    """Fields h_i and couplings J_ij (d,), estimated, with their standard errors."""

    names: tuple[str, ...]  # (d,) such as h0 and J0,1
    estimate: Floats  # (d,)
    standard_error: Floats  # of the sandwich, for many samples
    truth: Floats | None  # where the samples came from a known model
    expected_squared_error: float | None  # exact for many samples
    samples: int
    k: int
    masks: str
    clusters: int | None  # of samples that depend on each other; None: all are independent
    fit: Fit = internal()

    kind = reported(lambda self: "estimate")  # of the parameters
    standard_error_is = reported(lambda self: "sandwich, for many samples")  # its kind
    loss = reported(lambda self: float(self.fit.loss))  # at the estimate
    gradient = reported(lambda self: float(self.fit.max_gradient))  # its largest entry
    distance_to_minimiser = reported(lambda self: float(self.fit.error))  # estimated
    curvature = reported(lambda self: float(self.fit.curvature))  # smallest of the loss
    steps = reported(lambda self: self.fit.n_iterations)  # of the optimiser
    method = reported(lambda self: self.fit.method)

    @reported
    def squared_error(self) -> float | None:
        """The squared distance of the estimate from the truth."""
        return None if self.truth is None else float(((self.estimate - self.truth) ** 2).sum())

    def lines(self) -> Iterable[str]:
        known = self.truth is not None
        yield f"{'parameter':>10}{'estimate':>12}{'standard error':>16}" + f"{'truth':>12}" * known
        printed = list(range(len(self.names)))
        if len(self.names) > PRINTED:  # the first fields and couplings
            n_fields = sum(name.startswith("h") for name in self.names)
            printed = [*printed[: min(5, n_fields)], *printed[n_fields : n_fields + 5]]
        for slot in printed:
            truth = "" if self.truth is None else f"{self.truth[slot]:>12.4f}"
            yield (
                f"{self.names[slot]:>10}{self.estimate[slot]:>12.4f}"
                f"{self.standard_error[slot]:>16.4f}{truth}"
            )
        if len(self.names) > PRINTED:
            yield f"{len(self.names):,} parameters; all are in --out, --json and frame()"
        yield (
            f"{self.samples:,} samples, k = {self.k}, masks: {self.masks}; loss {self.loss:.6f}, "
            f"minimiser found to within {self.distance_to_minimiser:.0e} in {self.steps} steps of "
            f"{self.method}"
        )
        dependence = "samples taken as independent"
        if self.clusters is not None:
            dependence = f"samples in {self.clusters:,} clusters that may depend on each other"
        yield f"standard errors of the sandwich, an estimate for many samples; {dependence}"
        if self.truth is not None:
            yield from self._comparison(self.truth)

    def _comparison(self, truth: Floats) -> Iterable[str]:
        reach = normal_quantile() if self.clusters is None else t_quantile(self.clusters)
        inside = np.abs(self.estimate - truth) <= reach * self.standard_error
        yield (
            f"{int(inside.sum()):,} of {len(inside):,} parameters within {reach:.2f} standard "
            f"errors of the truth ({inside.mean():.1%}; nominal {CONFIDENCE:.0%})"
        )
        expected, source = float((self.standard_error**2).sum()), "by the standard errors"
        if self.expected_squared_error is not None:
            expected, source = self.expected_squared_error, "exact for many samples"
        yield (
            f"squared error {self.squared_error:.3g}; over many repetitions {expected:.3g} is "
            f"expected ({source})"
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.ising import plot_estimates

        shown = plot_estimates(self.names, self.estimate, self.standard_error, truth=self.truth)
        return {"estimates": shown}

    def table(self) -> Mapping[str, object]:
        """One row per field and coupling."""
        return {
            "parameter": self.names,
            "estimate": self.estimate,
            "standard_error": self.standard_error,
            "truth": np.nan if self.truth is None else self.truth,
        }


def _true_theta(
    model: Ising | None,
    graph: str | Path | None,
    sites: int,
    clique: int | None,
    coupling: float,
    field: float,
) -> tuple[InteractionGraph, InteractionGraph, Floats | None, Floats]:
    """The graph to fit, that of the samples, the true theta on each; None where a pair is missing.

    The model is one's own, or has the same J at every edge of the graph.
    """
    if model is None:
        pairs = graph_of(graph or "all", sites)
        inside = pairs.edges.max(axis=1, initial=0) < (sites if clique is None else clique)
        theta = np.concatenate([np.full(sites, float(field)), coupling * inside])
        return pairs, pairs, theta, theta
    drawn = InteractionGraph.of_pairs(sites, np.argwhere(np.triu(model.couplings, 1) != 0))
    pairs = drawn if graph is None else graph_of(graph, sites)
    own, theta = (
        np.concatenate([model.fields, model.couplings[tuple(g.edges.T)]]) for g in (drawn, pairs)
    )
    is_complete = set(map(tuple, drawn.edges)) <= set(map(tuple, pairs.edges))
    return pairs, drawn, theta if is_complete else None, own


def graph_of(name: str | Path, n_sites: int) -> InteractionGraph:
    """all, chain, grid (as square as N allows), ROWSxCOLUMNS, or a file with two sites a line."""
    if name == "all":
        return InteractionGraph.complete(n_sites)
    if name == "chain":
        return InteractionGraph.grid(1, n_sites)
    if name == "grid":
        rows = next(r for r in range(int(n_sites**0.5), 0, -1) if n_sites % r == 0)
        return InteractionGraph.grid(rows, n_sites // rows)
    sides = str(name).split("x")
    if len(sides) == 2 and all(side.isdecimal() for side in sides):
        rows, columns = map(int, sides)
        if rows * columns != n_sites:
            raise GlauberError(
                f"a grid of {name} has {rows * columns:,} sites, but there are {n_sites:,}."
            )
        return InteractionGraph.grid(rows, columns)
    wrong = GlauberError(f"{name} has no edges: every line must name two sites, as in 0 1.")
    try:
        lines = [
            line.replace(",", " ").split() for line in Path(name).read_text("utf-8").splitlines()
        ]
        pairs = np.array([[int(number) for number in line] for line in lines if line])
    except OSError as error:
        raise GlauberError(
            f"the graph is {name}, but it must be all, chain, grid, ROWSxCOLUMNS or a file with "
            f"two sites a line: {error.strerror or error}."
        ) from error
    except ValueError:
        raise wrong from None
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise wrong
    return InteractionGraph.of_pairs(n_sites, pairs)


def masks_per_sample(masks: int | str | None, samples: int = 1) -> int | None:
    """How many random masks each sample meets; None: all of them, averaged."""
    if masks == "all":
        return None
    if not str(masks).isdecimal():
        raise GlauberError(f"masks is {masks}, but it must be a number such as 1, or all.")
    Whole(1, LARGEST_COUNT)("number of samples times the masks of each", samples * int(masks or 0))
    return int(masks or 0)


def check_converged(fit: Fit, n_samples: int) -> None:
    """Refuses a fit that has no finite, unique estimate."""
    if not fit.converged:
        raise GlauberError(
            f"these {n_samples:,} samples have no finite, unique estimate: "
            "some spins always agree, or too little was seen. More samples would help."
        )
