"""glauber ising: learn an Ising model from masks, and know how well that can work."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options

if TYPE_CHECKING:
    from glauber.exact.inequalities.efficiency import Efficiency
    from glauber.exact.ising import Ising
    from glauber.exact.learning.fit import Fit

ising = typer.Typer(
    help="Ising models small enough to know everything about them.", no_args_is_help=True
)
Sites = Annotated[int, typer.Option("--sites", help="Number of sites N.")]
Clique = Annotated[
    int | None, typer.Option("--clique", help="The first so many sites are coupled (default: all).")
]
Coupling = Annotated[
    float, typer.Option("--coupling", help="J of each ordered pair in the clique.")
]
Field = Annotated[float, typer.Option("--field", help="h of every site.")]
ModelFile = Annotated[
    Path | None,
    typer.Option("--model", help="JSON with fields (N) and couplings (N x N) instead of a clique."),
]


@ising.command()
def fit(
    k: Annotated[
        int, typer.Option("--k", help="Sites hidden together; N: maximum likelihood.")
    ] = 1,
    samples: Annotated[int, typer.Option(help="Samples drawn from the model.")] = 10_000,
    masks: Annotated[
        str, typer.Option(help="Random masks of each sample (1, 2, …), or all to average.")
    ] = "1",
    sites: Sites = 4,
    clique: Clique = None,
    coupling: Coupling = 0.05,
    field: Field = 0.0,
    model: ModelFile = None,
    data: Annotated[
        Path | None, typer.Option(help="Fit rows of -1 and 1 in this file instead of samples.")
    ] = None,
    method: Annotated[str, typer.Option(help="newton or lbfgs.")] = "newton",
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Fit an Ising model by k-site pseudolikelihood, to samples of one or to a file."""
    import numpy as np

    from glauber.cli.ising_words import read_drawing, read_spins, tell_fit
    from glauber.cli.screen import emit
    from glauber.exact.learning.family import ising_family, ising_theta, state_counts
    from glauber.exact.learning.fit import fit as fit_pairs
    from glauber.exact.learning.observations import draw_counts, observed
    from glauber.exact.learning.pseudolikelihood import Pseudolikelihood

    way, generator = read_drawing(masks), np.random.default_rng(seed)
    truth = None
    if data is None:
        chosen = model_of(sites, clique, coupling=coupling, field=field, file=model)
        family, truth = ising_family(chosen.n_sites), ising_theta(chosen)
        counts = draw_counts(family.law(truth), samples, 1, generator)[0]
    else:
        tokens = read_spins(data)
        family = ising_family(tokens.shape[1])
        counts = state_counts(family.space, tokens)
    problem = Pseudolikelihood.of_size(family, k)
    found = fit_pairs(problem, observed(counts, problem.masks, way, generator), method=method)  # type: ignore[arg-type]
    told = fit_told(problem, found, truth, n_samples=int(counts.sum()), per_sample=way.per_sample)
    told |= {"k": k, "masks": masks, "seed": seed}
    if json:
        emit(told)
    else:
        tell_fit(told)


def fit_told(
    problem: Any, found: "Fit", truth: Any, *, n_samples: int, per_sample: int | None
) -> dict[str, Any]:
    """A fit in one JSON object; the standard errors are those of the fitted model."""
    import numpy as np

    from glauber.errors import GlauberError
    from glauber.exact.learning.covariance import asymptotics

    if not found.found:
        raise GlauberError(
            f"these {n_samples:,} samples have no finite, unique estimate: "
            "some spins always agree, or too little was seen. More samples would help."
        )
    spread = np.sqrt(np.diag(asymptotics(problem, found.theta).covariance(per_sample)) / n_samples)
    told: dict[str, Any] = {
        "samples": n_samples, "names": list(problem.family.names),
        "estimate": found.theta.tolist(), "standard_error": spread.tolist(), "kind": "estimate",
        "loss": float(found.loss), "gradient": float(found.slope),
        "distance_to_minimiser": float(found.error), "curvature": float(found.curvature),
        "steps": found.n_steps, "method": found.method,
    }  # fmt: skip
    if truth is not None:
        expected = asymptotics(problem, truth).trace(per_sample) / n_samples
        told |= {
            "truth": truth.tolist(),
            "squared_error": float(((found.theta - truth) ** 2).sum()),
            "expected_squared_error": expected,
        }
    return told


@ising.command()
def covariance(
    sites: Sites = 4,
    clique: Clique = None,
    coupling: Coupling = 0.05,
    field: Field = 0.0,
    model: ModelFile = None,
    adaptive: Annotated[
        bool, typer.Option(help="Also masks chosen where the present tokens are doubted.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Covariance of the k-site estimates for every k, and its bound by the Poincare constant."""
    from glauber.cli.ising_words import tell_covariance
    from glauber.cli.screen import emit
    from glauber.exact.inequalities.efficiency import efficiency
    from glauber.exact.learning.family import ising_family, ising_theta
    from glauber.exact.learning.masks import doubting_masks, uniform_masks
    from glauber.exact.learning.pseudolikelihood import Pseudolikelihood

    chosen = model_of(sites, clique, coupling=coupling, field=field, file=model)
    family, theta = ising_family(chosen.n_sites), ising_theta(chosen)
    rows: list[dict[str, Any]] = []
    before = None
    for k in range(1, chosen.n_sites + 1):
        found = efficiency(Pseudolikelihood(family, uniform_masks(family.space, k)), theta)
        rows.append(_row(k, "uniform", found, before))
        before = found
    if adaptive:
        for k in range(1, chosen.n_sites + 1):
            law = doubting_masks(family.space, chosen.probabilities, k)
            rows.append(_row(k, "adaptive", efficiency(Pseudolikelihood(family, law), theta), None))
    told = {"sites": chosen.n_sites, "parameters": family.n_parameters, "rows": rows}
    if json:
        emit(told)
    else:
        tell_covariance(told)


def model_of(
    sites: int, clique: int | None, *, coupling: float, field: float, file: Path | None
) -> "Ising":
    """The model that was asked for: a clique, or what a file holds."""
    from glauber.cli.ising_words import read_model
    from glauber.exact.ising import Ising

    if file is not None:
        return read_model(file)
    return Ising.clique(sites, sites if clique is None else clique, coupling=coupling, field=field)


def _row(k: int, masks: str, found: "Efficiency", before: "Efficiency | None") -> dict[str, Any]:
    """One estimator in JSON. `growth` is the smallest eigenvalue of H less that of k - 1."""
    from glauber.exact.learning.covariance import smallest_difference

    here = found.asymptotics
    return {
        "k": k, "masks": masks,
        "trace": here.trace(), "trace_all_masks": here.trace(None), "kind": "exact",
        "poincare": found.poincare.constant, "gap_error": found.poincare.error,
        "bound": found.bound_trace, "bound_kind": "upper bound", "slack": found.slack,
        "growth": None
        if before is None
        else smallest_difference(here.hessian, before.asymptotics.hessian),
        "equality_gap": here.equality_gap,
    }  # fmt: skip
