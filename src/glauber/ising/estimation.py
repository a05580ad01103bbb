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
from glauber.exact.models import Family, ising_family, ising_theta, state_counts
from glauber.exact.space import Floats
from glauber.ising.model import (
    Clique,
    Coupling,
    Field,
    Model,
    Sites,
    model_of,
    read_spins,
    spins_to_tokens,
)
from glauber.parameters import Seed
from glauber.progress import check_count, check_seed
from glauber.result import Result, one_of, plain, signature, study

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

MOST = 10**15  # samples times their masks, which 64-bit counts hold


@study
def fit(
    model: Model = None,
    *,
    k: Annotated[int, "Sites hidden together; N: maximum likelihood."] = 1,
    samples: Annotated[int, "Samples drawn from the model."] = 10_000,
    masks: Annotated[int | str, "Random masks of each sample (1, 2, …), or all to average."] = 1,
    sites: Sites = 4,
    clique: Clique = None,
    coupling: Coupling = 0.05,
    field: Field = 0.0,
    data: Annotated[
        str | Path | NDArray[np.int64] | None,
        "Fit rows of -1 and 1 in this file instead of samples.",
    ] = None,
    method: Annotated[str, "newton or lbfgs."] = "newton",
    seed: Seed = 0,
) -> "IsingFit":
    """Fit an Ising model by k-site pseudolikelihood, to samples of one or to a file.

    The estimate minimises the k-site pseudolikelihood (paper B), which is convex in the fields and
    couplings. Its standard errors are those of the fitted model for many samples. Where the samples
    leave a parameter at infinity or undetermined, no estimate is claimed.
    """
    check_seed(seed)
    check_count("number of samples", samples)
    drawing = drawing_of(masks, samples)
    one_of("the method", method, ("newton", "lbfgs"))
    generator = np.random.default_rng(seed)
    truth = None
    if data is None:
        chosen = model_of(
            model, sites=sites, clique=clique, coupling=coupling, field=field, learnt=True
        )
        family, truth = _family(chosen.n_sites, k), ising_theta(chosen)
        counts = draw_counts(family.distribution(truth), samples, 1, generator)[0]
    else:
        tokens = _tokens(data)
        family = _family(tokens.shape[1], k)
        counts = state_counts(family.space, tokens)
    problem = Pseudolikelihood.of_size(family, k)
    seen = observed(counts, problem.masks, drawing, generator)
    found = fit_pairs(problem, seen, method="lbfgs" if method == "lbfgs" else "newton")
    n_samples = int(counts.sum())
    check_found(found, n_samples)
    return IsingFit(
        names=family.names,
        estimate=found.theta,
        standard_error=_standard_errors(problem, found.theta, n_samples, drawing.per_sample),
        truth=truth,
        expected_squared_error=None
        if truth is None
        else asymptotics(problem, truth).trace(drawing.per_sample) / n_samples,
        samples=n_samples,
        k=k,
        masks=str(masks),
        seed=seed,
        fit=found,
        signature=signature(
            study="ising-fit", sites=family.space.length, k=k, samples=n_samples, masks=masks,
            method=method, data=None if data is None else "given", seed=seed,
        ),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class IsingFit(Result):
    """Fields h_i and couplings J_ij (d,), estimated, with their standard errors."""

    names: tuple[str, ...]
    estimate: Floats
    standard_error: Floats  # of the fitted model, for many samples
    truth: Floats | None  # where the samples came from a known model
    expected_squared_error: float | None  # exact for many samples
    samples: int
    k: int
    masks: str
    seed: int
    fit: Fit
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
        for slot, name in enumerate(self.names):
            shown = f"{name:>10}{self.estimate[slot]:>12.4f}{self.standard_error[slot]:>16.4f}"
            yield shown + (f"{self.truth[slot]:>12.4f}" if self.truth is not None else "")
        yield (
            f"{self.samples:,} samples, loss {float(self.fit.loss):.6f}, minimiser found to within "
            f"{float(self.fit.error):.0e} in {self.fit.n_steps} steps of {self.fit.method}"
        )
        if known:
            yield (
                f"squared error {self.squared_error:.3g}; over many repetitions "
                f"{self.expected_squared_error:.3g} is expected (exact for many samples)"
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


def _tokens(data: str | Path | NDArray[np.int64]) -> NDArray[np.int64]:
    if isinstance(data, str | Path):
        return read_spins(Path(data))
    wrong = "the rows of data are not all as many numbers -1 and 1."
    try:
        return spins_to_tokens(np.asarray(data, np.float64), wrong)
    except (ValueError, TypeError):
        raise GlauberError(wrong) from None


def check_found(found: Fit, n_samples: int) -> None:
    """Refuses a fit that has no finite, unique estimate."""
    if not found.found:
        raise GlauberError(
            f"these {n_samples:,} samples have no finite, unique estimate: "
            "some spins always agree, or too little was seen. More samples would help."
        )


def _standard_errors(
    problem: Pseudolikelihood, theta: Floats, n_samples: int, per_sample: int | None
) -> Floats:
    spread = np.diag(asymptotics(problem, theta).covariance(per_sample))
    return np.asarray(np.sqrt(spread / n_samples))
