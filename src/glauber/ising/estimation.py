"""Which Ising model do these samples come from? The k-site pseudolikelihood estimate."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.exact.blocks.covariance import asymptotics
from glauber.exact.blocks.masks import check_block
from glauber.exact.blocks.pseudolikelihood import (
    Drawing,
    Fit,
    Pseudolikelihood,
    draw_counts,
    fit_pairs,
    observed,
)
from glauber.exact.models import Family, Ising, ising_family, ising_theta, state_counts
from glauber.exact.space import Floats
from glauber.ising.composite import Composite, fit_composite, sandwich_errors
from glauber.ising.graph import random_blocks, random_tilings
from glauber.ising.model import (
    Clique,
    Coupling,
    Field,
    Model,
    Sites,
    Source,
    model_of,
    source_of,
    tokens_of,
)
from glauber.parameters import Seed
from glauber.progress import check_count, check_seed, say
from glauber.result import Result, one_of, plain, signature, study
from glauber.statistics import CONFIDENCE, MIN_CHAINS, normal_quantile, t_quantile

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

MOST = 10**15  # samples times their masks, which 64-bit counts hold
ENUMERATED = 12  # sites, up to which all states are counted
SHOWN = 40  # parameters that are printed one by one
TILES = "tiles"


@study
def fit(
    model: Model = None,
    *,
    k: Annotated[int, "Sites hidden together; N: maximum likelihood."] = 1,
    samples: Annotated[int, "Samples drawn from the model."] = 10_000,
    masks: Annotated[
        int | str | None,
        "Random masks of each sample (1, 2, …), all to average, or tiles: each site hidden once, "
        "with its neighbours (default: 1, beyond 12 sites tiles).",
    ] = None,
    sites: Sites = 4,
    clique: Clique = None,
    coupling: Coupling = 0.05,
    field: Field = 0.0,
    graph: Annotated[
        str | Path | None,
        "Pairs that may be coupled: all, chain, grid, 25x40, or a file with two sites a line "
        "(default: all, or those of a large model).",
    ] = None,
    data: Annotated[
        str | Path | NDArray[np.int64] | None,
        "Fit rows of -1 and 1 in this file instead of samples.",
    ] = None,
    cluster: Annotated[int, "Rows of data in a row that depend on each other, as a chain's."] = 1,
    chains: Annotated[int, "Gibbs chains that samples beyond 12 sites come from."] = 100,
    sweeps: Annotated[int, "Gibbs sweeps before the first sample of a chain."] = 200,
    method: Annotated[str, "newton or lbfgs."] = "newton",
    seed: Seed = 0,
) -> "IsingFit":
    """Fit an Ising model by k-site pseudolikelihood, to samples of one or to a file.

    The estimate minimises the k-site pseudolikelihood (paper B), which is convex in the fields and
    couplings. Up to 12 sites all states are counted; beyond, each block is enumerated given the
    rest, so that 1,000 sites are fitted in seconds. Standard errors are those of the sandwich for
    many samples: no model has to be right for them. Where the samples leave a parameter at infinity
    or undetermined, no estimate is claimed.
    """
    check_seed(seed)
    check_count("number of samples", samples)
    check_count("number of rows in a cluster", cluster)
    one_of("the method", method, ("newton", "lbfgs"))
    if masks not in (None, TILES):
        drawing_of(masks, samples)
    tokens = None if data is None else tokens_of(data)
    chosen = None
    if tokens is None and model is not None:
        chosen = model_of(model, sites=sites, clique=clique, coupling=coupling, field=field)
    n_sites = sites if chosen is None else chosen.n_sites
    n_sites = n_sites if tokens is None else tokens.shape[1]
    check_count("number of sites", n_sites)
    counted = n_sites <= ENUMERATED and graph in (None, "all") and masks != TILES and cluster == 1
    if counted:
        if chosen is None and tokens is None:
            chosen = model_of(None, sites=sites, clique=clique, coupling=coupling, field=field)
        found = _counted(tokens, chosen, k, samples=samples, masks=masks, method=method, seed=seed)
    else:
        gibbs = (samples, chains, sweeps)
        source = source_of(tokens, chosen, graph, (n_sites, clique, coupling, field), gibbs, seed)
        found = _given_the_rest(source, k, masks=masks, cluster=cluster, method=method, seed=seed)
    made = signature(
        study="ising-fit", sites=n_sites, k=k, samples=found["samples"], masks=found["masks"],
        graph=graph, method=method, data=None if data is None else "given",
        clusters=found["clusters"], seed=seed,
    )  # fmt: skip
    return IsingFit(**found, k=k, seed=seed, signature=made)


def _counted(
    tokens: NDArray[np.int64] | None,
    model: Ising | None,
    k: int,
    *,
    samples: int,
    masks: int | str | None,
    method: str,
    seed: int,
) -> dict[str, Any]:
    """The estimate from how often each state was seen."""
    masks = 1 if masks is None else masks
    generator, drawing, truth = np.random.default_rng(seed), drawing_of(masks, samples), None
    if tokens is None:
        assert model is not None
        family, truth = _family(model.n_sites, k), ising_theta(model)
        counts = draw_counts(family.distribution(truth), samples, 1, generator)[0]
    else:
        family = _family(tokens.shape[1], k)
        counts = state_counts(family.space, tokens)
    problem = Pseudolikelihood.of_size(family, k)
    seen = observed(counts, problem.masks, drawing, generator)
    found = fit_pairs(problem, seen, method="lbfgs" if method == "lbfgs" else "newton")
    n_samples = int(counts.sum())
    check_found(found, n_samples)
    spread = asymptotics(problem, found.theta, under=counts / n_samples)
    expected = None
    if truth is not None:
        expected = asymptotics(problem, truth).trace(drawing.per_sample) / n_samples
    return dict(
        names=family.names,
        estimate=found.theta,
        standard_error=np.sqrt(np.diag(spread.covariance(drawing.per_sample)) / n_samples),
        truth=truth,
        expected_squared_error=expected,
        samples=n_samples,
        masks=str(masks),
        clusters=None,
        fit=found,
    )


def _given_the_rest(
    source: Source, k: int, *, masks: int | str | None, cluster: int, method: str, seed: int
) -> dict[str, Any]:
    """The estimate from blocks given the rest: nothing of size 2^N is made."""
    graph, n_samples = source.graph, source.spins.shape[1]
    masks = TILES if masks is None or (masks == "all" and k == 1) else masks
    if masks == "all":
        raise GlauberError(
            f"all masks of k = {k} sites are averaged up to {ENUMERATED} sites only, with every "
            "pair coupled: take a number of random ones, or tiles."
        )
    generator = np.random.default_rng([seed, 1])
    if masks == TILES:
        groups = random_tilings(graph, n_samples, k, generator=generator)
    else:
        groups = random_blocks(graph, n_samples, k, per_sample=int(masks), generator=generator)
    clusters = _clusters(n_samples, max(cluster, source.in_a_row))
    problem = Composite(graph, source.spins, groups)
    say(f"{graph.n_parameters:,} parameters from {problem.n_blocks:,} conditionals")
    found, hessian = fit_composite(problem, "lbfgs" if method == "lbfgs" else "newton")
    check_found(found, n_samples)
    return dict(
        names=graph.names,
        estimate=found.theta,
        standard_error=sandwich_errors(problem, found.theta, hessian, clusters=clusters),
        truth=source.truth,
        expected_squared_error=None,
        samples=n_samples,
        masks=str(masks),
        clusters=None if clusters is None else int(clusters.max()) + 1,
        fit=found,
    )


def _clusters(n_samples: int, in_a_row: int) -> NDArray[np.int64] | None:
    """A number for each sample: those that come in a row have the same."""
    if in_a_row == 1:
        return None
    clusters = np.arange(n_samples) // in_a_row
    if clusters[-1] + 1 < MIN_CHAINS:
        raise GlauberError(
            f"{n_samples:,} rows in clusters of {in_a_row:,} make {clusters[-1] + 1}, but with "
            f"fewer than {MIN_CHAINS} nothing can be said of the errors."
        )
    return clusters


@dataclass(frozen=True, eq=False)
class IsingFit(Result):
    """Fields h_i and couplings J_ij (d,), estimated, with their standard errors."""

    names: tuple[str, ...]  # (d,) such as h0 and J0,1
    estimate: Floats  # (d,)
    standard_error: Floats  # of the sandwich, for many samples
    truth: Floats | None  # where the samples came from a known model
    expected_squared_error: float | None  # exact for many samples
    samples: int
    masks: str
    clusters: int | None  # of samples that depend on each other; None: all are independent
    fit: Fit
    k: int
    seed: int
    signature: str

    @property
    def squared_error(self) -> float | None:
        """The squared distance of the estimate from the truth."""
        return None if self.truth is None else float(((self.estimate - self.truth) ** 2).sum())

    def to_dict(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "samples": self.samples,
            "names": list(self.names),
            "estimate": self.estimate,
            "standard_error": self.standard_error,
            "kind": "estimate",
            "standard_error_is": "sandwich, for many samples",
            "clusters": self.clusters,
            "loss": float(self.fit.loss),
            "gradient": float(self.fit.slope),
            "distance_to_minimiser": float(self.fit.error),
            "curvature": float(self.fit.curvature),
            "steps": self.fit.n_steps,
            "method": self.fit.method,
        }
        if self.truth is not None:
            record |= {
                "truth": self.truth,
                "squared_error": self.squared_error,
                "expected_squared_error": self.expected_squared_error,
            }
        record |= {"k": self.k, "masks": self.masks, "seed": self.seed, "signature": self.signature}
        return dict(plain(record))

    def lines(self) -> Iterable[str]:
        known = self.truth is not None
        yield f"{'parameter':>10}{'estimate':>12}{'standard error':>16}" + f"{'truth':>12}" * known
        for slot in self._shown():
            shown = f"{self.estimate[slot]:>12.4f}{self.standard_error[slot]:>16.4f}"
            truth = "" if self.truth is None else f"{self.truth[slot]:>12.4f}"
            yield f"{self.names[slot]:>10}{shown}{truth}"
        if len(self.names) > SHOWN:
            yield f"{len(self.names):,} parameters; all are in --out, --json and frame()"
        yield (
            f"{self.samples:,} samples, k = {self.k}, masks: {self.masks}; loss "
            f"{float(self.fit.loss):.6f}, minimiser found to within {float(self.fit.error):.0e} in "
            f"{self.fit.n_steps} steps of {self.fit.method}"
        )
        depend = "samples taken as independent"
        if self.clusters is not None:
            depend = f"samples in {self.clusters:,} clusters that may depend on each other"
        yield f"standard errors of the sandwich, an estimate for many samples; {depend}"
        if self.truth is not None:
            yield from self._beside(self.truth)

    def _shown(self) -> list[int]:
        """All parameters, or the first fields and couplings of many."""
        if len(self.names) <= SHOWN:
            return list(range(len(self.names)))
        fields = sum(name.startswith("h") for name in self.names)
        return [*range(min(5, fields)), *range(fields, min(fields + 5, len(self.names)))]

    def _beside(self, truth: Floats) -> Iterable[str]:
        reach = normal_quantile() if self.clusters is None else t_quantile(self.clusters)
        inside = np.abs(self.estimate - truth) <= reach * self.standard_error
        yield (
            f"{int(inside.sum()):,} of {len(inside):,} parameters within {reach:.2f} standard "
            f"errors of the truth ({inside.mean():.1%}; nominal {CONFIDENCE:.0%})"
        )
        expected = float((self.standard_error**2).sum()), "by the standard errors"
        if self.expected_squared_error is not None:
            expected = self.expected_squared_error, "exact for many samples"
        yield (
            f"squared error {self.squared_error:.3g}; over many repetitions {expected[0]:.3g} is "
            f"expected ({expected[1]})"
        )

    def frame(self) -> "pandas.DataFrame":
        """One row per field and coupling."""
        import pandas

        return pandas.DataFrame(
            {
                "parameter": self.names,
                "estimate": self.estimate,
                "standard_error": self.standard_error,
                "truth": np.nan if self.truth is None else self.truth,
            }
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.ising import plot_estimates

        truth = self.truth
        return {
            "estimates": plot_estimates(self.names, self.estimate, self.standard_error, truth=truth)
        }


def drawing_of(masks: int | str, samples: int = 1) -> Drawing:
    """How samples meet masks: a number of random ones, or all."""
    if masks == "all":
        return Drawing(None)
    if not str(masks).isdecimal():
        raise GlauberError(f"masks is {masks}, but it must be a number such as 1, or all.")
    check_count("number of samples times the masks of each", samples * int(masks), most=MOST)
    return Drawing(int(masks))


def _family(n_sites: int, k: int) -> Family:
    """The family of all Ising models; refused where k cannot be."""
    if n_sites <= 64:
        check_block(k, n_sites)
    return ising_family(n_sites)


def check_found(found: Fit, n_samples: int) -> None:
    """Refuses a fit that has no finite, unique estimate."""
    if not found.found:
        raise GlauberError(
            f"these {n_samples:,} samples have no finite, unique estimate: "
            "some spins always agree, or too little was seen. More samples would help."
        )
