"""Paper B, learning from masks: figures 1 and 2, Theorems 1, 2 and 4, Lemma 3."""

from functools import partial
from typing import Any

from glauber.exact.blocks.masks import given_mask, lemma_3_example, mean_over_events
from glauber.exact.space import Space, conditional
from glauber.ising.efficiency import Covariances, covariance
from glauber.ising.error_curves import ErrorCurves, errors
from glauber.ising.finite_samples import bound
from glauber.papers.paper import Reproduction
from glauber.papers.settings import Piece, Settings

SITES, COUPLINGS, REPETITIONS = 4, (0.05, 0.3), 10  # of figures 1 and 2 and of Theorems 1 and 2
THREE, WEAK, MASKS = 3, (0.0, 0.1), 1_000_000  # of Theorem 4: sites, couplings, masks a sequence


def make_errors(coupling: float, settings: Settings) -> Reproduction:
    """Figure 1 or 2: one random mask per sample, and beside it all masks averaged."""
    given = dict(sites=SITES, coupling=coupling, repetitions=REPETITIONS, seed=settings.seed)
    found = {
        "one-mask": errors(masks=1, **given),  # type: ignore[arg-type]
        "all-masks": errors(masks="all", **given),  # type: ignore[arg-type]
    }
    rows = [row for each in found.values() for row in _error_rows(each)]
    how = (
        f"Ising clique of {SITES} sites, J = {coupling:g}, h = 0; squared error of the k-site "
        f"estimate over {REPETITIONS} repetitions, bars of half a standard deviation; the sample "
        "sizes are ours, the same at both scales. The theorem's estimator has one random mask per "
        "sample; with all masks averaged the order of the k nearly vanishes"
    )
    pictures = {key: each.figure() for key, each in found.items()}
    return Reproduction.of(settings, how, rows, pictures=pictures)


def _error_rows(found: ErrorCurves) -> list[dict[str, Any]]:
    return [
        {
            "masks per sample": found.masks,
            "k": row["k"],
            "n": row["samples"],
            "mean squared error": row["mean_squared_error"],
            "half a standard deviation": [
                None if one is None else one / 2 for one in row["standard_deviation"]
            ],
            "kind": "estimate",
            "without an estimate": row["without_an_estimate"],
            "trace of the covariance": row["trace"],
            "trace is": "exact",
            "published": "larger k, lower error",
        }
        for row in found.to_dict()["rows"]
    ]


def theorem1(settings: Settings) -> Reproduction:
    """The covariance of the k-site estimate does not grow with k."""
    how = (
        f"Ising clique of {SITES} sites without fields, exact covariances for every k (the same at "
        "both scales); the order is compared as Hessians, H of k + 1 less H of k. With all masks "
        "averaged it is another estimator, and the theorem does not speak of it"
    )
    found = {coupling: covariance(sites=SITES, coupling=coupling) for coupling in COUPLINGS}
    rows = [row for coupling, each in found.items() for row in _growth_rows(coupling, each)]
    pictures = {f"J-{coupling:g}": each.figures()["masks"] for coupling, each in found.items()}
    return Reproduction.of(settings, how, rows, pictures=pictures)


def _growth_rows(coupling: float, found: Covariances) -> list[dict[str, Any]]:
    rows = found.to_dict()["rows"]
    following = [*(row["growth"] for row in rows[1:]), None]
    return [
        {
            "J": coupling,
            "k": row["k"],
            "trace, one mask": row["trace"],
            "trace, all masks": row["trace_all_masks"],
            "kind": "exact",
            "Hessian less score covariance": row["equality_gap"],
            "smallest eigenvalue of the next Hessian less this": growth,
            "published": "not negative",
        }
        for row, growth in zip(rows, following, strict=True)
    ]


def theorem2(settings: Settings) -> Reproduction:
    """The covariance is at most C times that of maximum likelihood (and Theorem 3)."""
    how = (
        f"Ising clique of {SITES} sites without fields, exact (the same at both scales): "
        "covariance Gamma, Poincare constant C and Fisher information I; compared as Hessians, "
        "H - I/C. Adaptive masks hide a block with a chance proportional to 1 - p(x_K | the rest)"
    )
    found = {j: covariance(sites=SITES, coupling=j, adaptive=True) for j in COUPLINGS}
    rows = [
        {
            "J": coupling,
            "k": row["k"],
            "masks": row["masks"],
            "Poincare constant": row["poincare"],
            "trace of the covariance": row["trace"],
            "kind": "exact",
            "bound on the trace": row["bound"],
            "bound is": "upper bound",
            "smallest eigenvalue of H - I/C": row["slack"],
            "published": "not negative",
        }
        for coupling, each in found.items()
        for row in each.to_dict()["rows"]
    ]
    pictures = {f"J-{coupling:g}": each.figures()["bound"] for coupling, each in found.items()}
    return Reproduction.of(settings, how, rows, pictures=pictures)


def theorem4(settings: Settings) -> Reproduction:
    """The terms of the bound for growing numbers of sequences; as written it is vacuous."""
    how = (
        f"Ising cliques of {THREE} sites without fields, k = 1, {MASKS:,} masks per sequence, "
        "delta = 0.05 and the most favourable cover of all (one member, eps = 0); C_AT is the "
        "upper bound, the same at both scales. J = 0 is three uniform bits"
    )
    found = {j: bound(sites=THREE, coupling=j, masks=MASKS, seed=settings.seed) for j in WEAK}
    names = {
        "sequences": "n",
        "true_total_variation": "true total variation",
        "by_population_excess": "bound by the population's excess",
    }
    rows = [
        {"J": coupling, **{names.get(key, key): value for key, value in row.items()}}
        | {"published": None}
        for coupling, each in found.items()
        for row in each.to_dict()["rows"]
    ]
    pictures = {f"J-{coupling:g}": each.figure() for coupling, each in found.items()}
    return Reproduction.of(settings, how, rows, pictures=pictures)


def lemma3(settings: Settings) -> Reproduction:
    """Both conditionals with and without the mask, and Lemma 4's mean.

    The paper prints 9/13, which comes from reading K as the visible set; with K hidden it is 9/17.
    """
    how = (
        "the paper's distribution over two bits, in exact fractions: p(00) = 1/2, p(01) = 1/3, "
        "p(10) = 1/6, with K = {0} chosen with probability 1/2, 1/3, 1/4 there and K = {1} "
        "otherwise; K is hidden"
    )
    rows = [_lemma_row(1, "9/13"), _lemma_row(0, None)]
    return Reproduction.of(settings, how, rows)


def _lemma_row(hidden: int, published: str | None) -> dict[str, Any]:
    p, chances = lemma_3_example()
    space, block = Space(2, 2), (hidden,)
    return {
        "asked": f"p(x_{hidden} = 0 | x_{1 - hidden} = 0)",
        "given K": str(given_mask(p, chances[hidden], space, block)[0]),
        "not given K": str(conditional(p, space, block)[0]),
        "mean over mask events (Lemma 4)": str(mean_over_events(p, chances, space, block)[0]),
        "kind": "exact",
        "published, given K": published,
    }


PIECES = {
    "B-fig1": Piece(
        "squared error of the k-site estimate against samples, Ising clique with J = 0.05",
        partial(make_errors, COUPLINGS[0]),
    ),
    "B-fig2": Piece(
        "the same with J = 0.3, where the distribution has two modes",
        partial(make_errors, COUPLINGS[1]),
    ),
    "B-theorem1": Piece(
        "covariance of the k-site estimate for every k: larger masks are never worse",
        theorem1,
    ),
    "B-theorem2": Piece(
        "the covariance beside its bound by the Poincare constant (and Theorem 3)",
        theorem2,
    ),
    "B-theorem4": Piece(
        "the finite-sample bound with its terms, as written and with the excess loss",
        theorem4,
    ),
    "B-lemma3": Piece("what knowing the mask tells about the hidden sites (and Lemma 4)", lemma3),
}
