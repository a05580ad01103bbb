"""Paper B, "Promises and Pitfalls of Generative Masked Language Modeling", sections 2 and 3.

In the order of the paper: what masks teach (Lemmas 2 to 4, Theorems 1 to 4, figures 1 and 2), how
to sample (Definition 8, figure 3, Corollary 3), and what the masks of training do to a language
model. Its translation tables are in `translation.py`.
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np

from glauber.exact.blocks.dynamics import (
    closed_sets,
    dirichlet_form,
    gibbs_matrix,
    mask_pair_matrix,
)
from glauber.exact.blocks.masks import Masks, given_mask, lemma_3_example, mean_over_events
from glauber.exact.blocks.products import product_distance
from glauber.exact.blocks.pseudolikelihood import (
    Pseudolikelihood,
    added_information,
    asymptotics,
    smallest_difference,
)
from glauber.exact.blocks.tensorisation import decay, log_sobolev, tensorisation
from glauber.exact.models import Clique, Ising, ising_family, ising_theta, mode_ratios
from glauber.exact.space import Space, conditional
from glauber.exact.stationary import stationary, total_variation
from glauber.exact.transition import Measure, Redraw, adaptive_matrix
from glauber.foundation.json_text import parse_json
from glauber.foundation.statistics import Estimate, difference, mean_over_chains, proportion
from glauber.interfaces.plots.generation import plot_mask_rates
from glauber.interfaces.plots.ising import plot_race
from glauber.models.load import load
from glauber.models.weights import PACKAGE
from glauber.papers.claims import LOWER, UPPER, Quantity, above, at_least, at_most, below, near
from glauber.papers.piece import Answers, Piece, Published, Record, Row, columns
from glauber.papers.work import Settings
from glauber.studies.decoding.parallel_cost import Sampling, sequential_fills
from glauber.studies.ising.block_gaps import gap
from glauber.studies.ising.efficiency import covariance
from glauber.studies.ising.error_amplification import amplification
from glauber.studies.ising.error_curves import errors
from glauber.studies.ising.finite_sample_bound import bound, deviations
from glauber.studies.ising.mode_race import Race, race
from glauber.studies.ising.sampler_separation import (
    corollary_steps,
    leaves_within,
    parallel_horizon,
    proof_steps,
    separation,
)
from glauber.texts.read import passages
from glauber.texts.starts import starts
from glauber.translation.data import by_source, read_pairs
from glauber.translation.entropy import SourceEntropy, source_entropies
from glauber.translation.evaluation import TEST_PAIRS, spread
from glauber.translation.model import BUNDLED

J_TWICE = (
    "equation 5 read over ordered pairs: each pair counts twice, as in the sum that it prints; the "
    "proof of Proposition 5 counts once, which is half of this J"
)
ROUNDING = 1e-10  # of an eigenvalue that is zero
TINY = 1e-12  # rounding of a probability
TINY_IS = f"differences up to {TINY:g} count as zero: floating-point rounding"
SEARCHED = (
    f"eigenvalues and differences up to {ROUNDING:g} count as zero: floating-point rounding",
    "a theorem is not proved by examples: a counterexample was sought in these two models and in "
    "random ones of as many sites",
)


# Lemmas 3 and 4: what knowing the mask tells about the hidden sites.


def ask_lemma_3(s: Settings) -> dict[str, object]:
    """The paper's distribution over two bits, in exact fractions."""
    p, chances = lemma_3_example()
    space, rows = Space(2, 2), []
    for hidden in (1, 0):
        block = (hidden,)
        rows.append(
            {
                "conditional": f"p(x_{hidden} = 0 | x_{1 - hidden} = 0)",
                "given_K_0": given_mask(p, chances[0], space, block)[0],
                "given_K_1": given_mask(p, chances[1], space, block)[0],
                "not_given_K": conditional(p, space, block)[0],
                "mean_over_events": mean_over_events(p, chances, space, block)[0],
            }
        )
    return {"rows": rows, "first": rows[0]}


LEMMA_3 = Piece(
    "what knowing the mask tells about the hidden sites (and Lemma 4)",
    "the paper's distribution over two bits, in exact fractions: p(00) = 1/2, p(01) = 1/3, "
    "p(10) = 1/6, with K = {{0}} chosen with probability 1/2, 1/3, 1/4 there and K = {{1}} "
    "otherwise",
    small={},
    ask=ask_lemma_3,
    table=lambda a: [
        {name: str(value) for name, value in row.items()}
        | {"kind": "exact", "published": "9/13 given K = {0}" if row is a.first else None}
        for row in a.rows
    ],
    claims=[
        Published(
            "knowing the mask changes the conditional",
            "paper B, Lemma 3",
            "it does in general",
            "difference of the two conditionals",
            lambda a: abs(float(a.first["given_K_0"]) - float(a.first["not_given_K"])),
            above(0.0),
        ),
        Published(
            "p(x_1 = 0 | x_0 = 0, {0}) is 9/13",
            "paper B, Lemma 3",
            "9/13 = 0.6923",
            "the conditional given that K is the set of site 0",
            lambda a: float(Fraction(a.first["given_K_0"])),
            near(9 / 13, TINY),
            choices=(TINY_IS,),
        ),
        Published(
            "the mean over mask events is the conditional without the mask",
            "paper B, Lemma 4",
            "equality",
            "largest difference",
            lambda a: max(
                abs(float(row["mean_over_events"]) - float(row["not_given_K"])) for row in a.rows
            ),
            at_most(0.0),
        ),
    ],
    seconds=5,
)


# Theorems 1 to 3 and Lemma 2: the covariance of the k-site estimate.


def ask_covariances(s: Settings, *, adaptive: bool) -> dict[str, object]:
    cliques = {
        coupling: covariance(sites=s.sites, coupling=coupling, adaptive=adaptive)
        for coupling in s.couplings
    }
    random = [
        covariance(Ising.random(s.sites, s.models * s.seed + number, 0.3), adaptive=True)
        for number in range(s.models)
    ]
    rows = [row for study in [*cliques.values(), *random] for row in study.to_dict()["rows"]]
    return {"cliques": cliques, "rows": rows}


def clique_columns(a: Answers, *names: str) -> list[Row]:
    return [
        {"J": coupling} | row
        for coupling, study in a.cliques.items()
        for row in columns(study.to_dict()["rows"], *names)
    ]


def uniform(a: Answers) -> list[Row]:
    """The rows of uniform masks, of the cliques and of the random models."""
    return [row for row in a.rows if row["masks"] == "uniform"]


def smallest_slack(a: Answers, masks: str) -> float:
    return float(min(row["slack"] for row in a.rows if row["masks"] == masks))


COVARIANCES: Record = dict(small=dict(sites=4, couplings=(0.05, 0.3), models=20), choices=SEARCHED)
THEOREM_1 = Piece(
    "covariance of the k-site estimate for every k: larger masks are never worse",
    "Ising cliques of {sites} sites without fields and {models} random models, exact covariances "
    "for every k (the same at both scales); the order is compared as Hessians, H of k + 1 less H "
    "of k. With all masks averaged it is another estimator, and the theorem does not speak of it",
    **COVARIANCES,
    ask=partial(ask_covariances, adaptive=False),
    table=lambda a: clique_columns(
        a,
        *("k", "trace", "trace_per_filling", "within_trace", "trace_all_masks"),
        *("equality_gap", "growth", "kind"),
    ),
    figures=lambda a: {f"J-{j:g}": study.figures()["masks"] for j, study in a.cliques.items()},
    claims=[
        Published(
            "the covariance of the k-site estimate does not grow with k",
            "paper B, Theorem 1",
            "Gamma of k + 1 is at most that of k",
            "smallest eigenvalue of H(k + 1) - H(k)",
            lambda a: min(row["growth"] for row in uniform(a) if row["growth"] is not None),
            at_least(-ROUNDING),
        ),
        Published(
            "the Hessian equals the covariance of the scores",
            "paper B, Lemma 2",
            "information matrix equality",
            "largest difference of their entries",
            lambda a: max(row["equality_gap"] for row in uniform(a)),
            at_most(ROUNDING),
        ),
    ],
    seconds=4,
)
THEOREM_2 = Piece(
    "the covariance compared with its bound by the Poincare constant (and Theorem 3)",
    "Ising cliques of {sites} sites without fields and {models} random models, exact (the same at "
    "both scales): covariance Gamma, Poincare constant C and Fisher information I; compared as "
    "Hessians, H - I/C. Adaptive masks hide a block with a probability proportional to "
    "1 - p(x_K | the rest)",
    **COVARIANCES,
    ask=partial(ask_covariances, adaptive=True),
    table=lambda a: clique_columns(a, "k", "masks", "poincare", "trace", "bound", "slack", "kind"),
    figures=lambda a: {f"J-{j:g}": study.figures()["bound"] for j, study in a.cliques.items()},
    claims=[
        Published(
            f"with {masks} masks the covariance is at most C times that of maximum likelihood",
            f"paper B, {theorem}",
            "Gamma is at most C / I",
            "smallest eigenvalue of H - I/C",
            partial(smallest_slack, masks=masks),
            at_least(-ROUNDING),
        )
        for masks, theorem in (("uniform", "Theorem 2"), ("adaptive", "Theorem 3"))
    ]
    + [
        Published(
            "with adaptive masks the Hessian equals the covariance of the scores",
            "paper B, Lemma 5",
            "information matrix equality",
            "largest difference of their entries",
            lambda a: max(row["equality_gap"] for row in a.rows if row["masks"] == "adaptive"),
            at_most(ROUNDING),
        )
    ],
    differs=("Theorem 3 with the Poincare constant of functions of X alone: else it is infinite",),
    seconds=5,
)


# Figures 1 and 2: squared error of the k-site estimate against samples.


def ask_errors(s: Settings) -> dict[str, object]:
    options = dict(sites=s.sites, coupling=s.coupling, repetitions=s.chains, seed=s.seed)
    return {"one_mask": errors(masks=1, **options), "all_masks": errors(masks="all", **options)}


def error_difference(a: Answers, slot: int) -> Estimate:
    """n times the paired difference of the errors, averaged over the sample sizes."""
    curves = a.one_mask
    scaled = curves.squared_errors * np.array(curves.sizes)[:, None]  # (ks, sizes, repetitions)
    difference = (scaled[slot] - scaled[slot + 1]).mean(axis=0)
    return mean_over_chains(difference, comparisons=len(curves.ks) - 1)


def error_figure(number: int, coupling: float, shows: str, seconds: float) -> Piece:
    return Piece(
        shows,
        "Ising clique of {sites} sites, J = {coupling:g}, h = 0; squared error of the k-site "
        "estimate over {chains} repetitions; every k sees the same samples, and the differences "
        "are paired. The theorem's estimator has one random mask per sample; with all masks "
        "averaged the order of the k nearly vanishes",
        small=dict(sites=4, coupling=coupling, chains=100),
        published=dict(chains=10),
        choices=("the numbers of samples", "one random mask for each sample"),
        differs=(J_TWICE, "Newton's method to the minimum in place of gradient descent"),
        ask=ask_errors,
        table=lambda a: [
            row
            for curves in (a.one_mask, a.all_masks)
            for row in columns(
                curves.to_dict()["rows"],
                *("k", "samples", "mean_squared_error", "standard_deviation"),
                *("without_an_estimate", "trace"),
                masks=curves.masks,
                kind="estimate; the trace is exact",
                published="larger k, lower error",
            )
        ],
        figures=lambda a: {"one-mask": a.one_mask.figure(), "all-masks": a.all_masks.figure()},
        claims=[
            Published(
                f"with as many samples {k + 1} hidden sites give a lower error than {k}",
                f"paper B, figure {number}",
                "larger k, lower error",
                f"n times the error of k = {k} less that of k = {k + 1}",
                partial(error_difference, slot=k - 1),
                above(0.0),
                effect=partial(trace_difference, slot=k - 1),
                unit="repetitions",
            )
            for k in (1, 2, 3)
        ]
        + [
            Published(
                "and also if equation 5 counts each pair once, so that J is half as much here",
                f"paper B, figure {number}",
                "larger k, lower error",
                "n times the error, least difference of two k for many samples",
                differences_counted_once,
                above(0.0),
            )
        ],
        seconds=seconds,
    )


def differences_counted_once(a: Answers) -> float:
    """The smallest difference of exact traces where each pair counts once: half of our J."""
    once = covariance(sites=a.settings.sites, coupling=a.settings.coupling / 2)
    return float(-np.diff([row.trace for row in once.rows]).max())


def trace_difference(a: Answers, slot: int) -> float:
    """The exact limit of `error_difference`."""
    return float(a.one_mask.traces[slot] - a.one_mask.traces[slot + 1])


FIGURE_1 = error_figure(
    1,
    0.05,
    "squared error of the k-site estimate against samples, Ising clique with J = 0.05",
    seconds=6,
)
FIGURE_2 = error_figure(
    2, 0.3, "the same with J = 0.3, where the distribution has two modes", seconds=7
)


# Theorem 4: the bound for finite samples.

RARE = 1e-12  # probability of the start that shows how KL really falls


def tightness(a: Answers) -> Quantity:
    """The largest ratio of the true distance to a bound that is below 1; above, it says nothing.

    The largest of a few random samples: others may be larger.
    """
    rows = [row for study in a.bounds.values() for row in study.to_dict()["rows"]]
    ratios = [
        row["true_total_variation"] / row["as_written"] for row in rows if row["as_written"] < 1
    ]
    if not ratios:
        reason = f"vacuous: the bound is above 1 in all {len(rows)} rows, as no distance can be"
        return Quantity("", None, n=len(rows), unit="samples", kind=LOWER, reason=reason)
    return Quantity("", max(ratios), n=len(ratios), unit="samples", kind=LOWER)


def kl_ratio(a: Answers) -> float:
    """KL(p_1, q) / KL(p_0, q) over e^(-2/C_AT): two independent bits, k = 1, so C_AT = 2.

    Bit 0 begins at a value of probability `RARE`. A step redraws it with probability 1/2, so about
    half of KL is left, more than 1/e.
    """
    first, fair = np.array([RARE, 1 - RARE]), np.full(2, 0.5)
    joint = np.outer(first, fair).ravel()
    start = np.outer([1.0, 0.0], fair).ravel()
    fall = decay(joint, Masks.uniform(Space(2, 2), 1), start, 1)
    return float(fall.kl[1] / fall.kl[0] / math.exp(-2 / 2))


THEOREM_4 = Piece(
    "the finite-sample bound and its terms: an optimistic evaluation, and over a box of models",
    "Ising cliques of {sites} sites without fields, k = 1, {masks:,} masks per sequence, "
    "delta = 0.05; C_AT is an upper bound, the same at both scales. Optimistic evaluation: a "
    "cover of one member, eps = 0, and the beta of the two distributions, which is lower than the "
    "theorem's bound; over the box: the cover and beta of all |h|, |J| <= 1, an upper bound. "
    "Above 1 a bound says nothing, and as written it is above. J = 0 is three uniform bits",
    small=dict(sites=3, couplings=(0.0, 0.1), masks=1_000_000),
    not_in_paper=("sites", "couplings", "masks"),
    choices=("delta and the box are ours",),
    ask=lambda s: {
        "bounds": {
            j: bound(sites=s.sites, coupling=j, masks=s.masks, seed=s.seed) for j in s.couplings
        }
    },
    table=lambda a: [
        {"J": j} | row for j, study in a.bounds.items() for row in study.to_dict()["rows"]
    ],
    figures=lambda a: {f"J-{j:g}": study.figure() for j, study in a.bounds.items()},
    claims=[
        Published(
            "the learnt distribution is closer to the truth than the bound",
            "paper B, Theorem 4",
            "with probability 1 - delta",
            "true distance over the optimistic evaluation, largest of these samples",
            tightness,
            below(1.0),
        ),
        Published(
            "KL(p_t, q) falls by e^(-2t/C_AT)",
            "paper B, section 2.3",
            "at most e^(-2t/C_AT) of KL(p_0, q)",
            "KL after one step over that, two independent sites from a rare start",
            kl_ratio,
            at_most(1.0),
        ),
    ],
    seconds=6,
)


# Statements between the theorems: the probability after Lemma 1, the word strictly, steps of the
# proofs, the chain on pairs, product transitions and the order of the entropy constants.


def statement_rows(a: Answers, statements: Sequence[Published]) -> list[Row]:
    """One row per statement: what is published, and our number."""
    return [
        {
            "statement": entry.sentence,
            "source": entry.source,
            "published": entry.published,
            "number": entry.quantity(a).name,
            "value": entry.quantity(a).value,
            "kind": entry.quantity(a).kind,
        }
        for entry in statements
    ]


def ask_estimation(s: Settings) -> dict[str, object]:
    family = ising_family(s.sites)
    theta = ising_theta(Ising.clique(s.sites, s.sites, coupling=s.coupling))
    sizes = [asymptotics(Pseudolikelihood.of_size(family, k), theta) for k in range(1, s.sites + 1)]
    added = [added_information(family, theta, k) for k in range(1, s.sites)]
    steps = list(zip(pairwise(sizes), added, strict=True))
    return {
        "sizes": sizes,
        "smallest": min(smallest_difference(b.hessian, a.hessian) for (a, b), _ in steps),
        "identity": max(np.abs(a.hessian + c - b.hessian).max() for (a, b), c in steps),
    }


ON_ESTIMATION = [
    Published(
        "the squared error is at most Tr(Gamma) / n",
        "paper B, after Lemma 1",
        "with probability at least 0.99",
        "its probability for many samples, largest over k",
        lambda a: max(size.share_within() for size in a.sizes),
        at_least(0.99),
    ),
    Published(
        "it is at most 100 Tr(Gamma) / n, which is what Markov's inequality gives",
        "paper B, after Lemma 1",
        "with probability 0.99 (the constant may be lost in our copy)",
        "99% quantile of the error over Tr(Gamma) / n, largest over k",
        lambda a: max(size.quantile(0.99) for size in a.sizes),
        at_most(100.0),
    ),
    Published(
        "larger masks are strictly better: the trace falls",
        "paper B, section 2.2.1",
        "strictly improves",
        "smallest fall of the trace from k to k + 1",
        lambda a: -max(np.diff([size.trace() for size in a.sizes])),
        above(0.0),
    ),
    Published(
        "larger masks are strictly better in every direction",
        "paper B, section 2.2.1",
        "strictly improves (Theorem 1 itself has at least as good)",
        "smallest eigenvalue of H(k + 1) - H(k), smallest over k",
        lambda a: a.smallest,
        above(ROUNDING),
        choices=("the last step adds a matrix of rank N at most",),
    ),
    Published(
        "H(k + 1) = H(k) + C, with C the covariance of the score of one more site",
        "paper B, (B.14) to (B.17)",
        "equality, so the cross term is zero",
        "largest difference of entries",
        lambda a: a.identity,
        at_most(ROUNDING),
    ),
]

PROOF_STEPS = Piece(
    "what the covariance says: probabilities, the word strictly, and the proof of Theorem 1",
    "Ising clique of {sites} sites, J = {coupling:g}, h = 0, one random mask per sample; exact",
    small=dict(sites=4, coupling=0.05),
    not_in_paper=("sites", "coupling"),
    differs=(J_TWICE,),
    ask=ask_estimation,
    table=lambda a: statement_rows(a, ON_ESTIMATION),
    claims=ON_ESTIMATION,
    seconds=2,
)


def ask_chains(s: Settings) -> dict[str, object]:
    ising = Ising.clique(s.sites, s.sites, coupling=s.coupling)
    p, masks = ising.probabilities, Masks.least_confident(ising.space, ising.probabilities, 1)
    pairs, weights = mask_pair_matrix(p, masks), (masks.chances * p).ravel()
    f, g = np.random.default_rng(s.seed).normal(size=(2, *masks.chances.shape))
    by_matrix = weights @ (f.ravel() * (g.ravel() - pairs @ g.ravel()))
    first = np.zeros_like(f)
    first[0] = 1.0  # whether K is the first mask: its variance is positive
    fair, single = np.full(4, 0.25), Masks.uniform(Space(2, 2), 1)
    bit, alone = np.array([0.1, 0.9]), Masks.uniform(Space(2, 3), 1)
    product = np.einsum("i,j,k", bit, bit, bit).ravel()
    return {
        "form_difference": abs(dirichlet_form(p, masks, f, g) - by_matrix),
        "form_of_mask": dirichlet_form(p, masks, first),
        "closed": closed_sets(pairs),
        "random_site": product_distance(gibbs_matrix(fair, single).toarray()[0].reshape(2, 2)),
        "two_sites": product_distance(Ising.clique(2, 2, coupling=0.3).probabilities.reshape(2, 2)),
        "modified": log_sobolev(product, alone),
        "tensorised": tensorisation(product, alone),
        "standard": log_sobolev(product, alone, modified=False),
        "by_sum": Clique(6, 3, 0.6, field=0.1, outside=-0.05),
        "by_largest": Clique(6, 3, 0.6, field=0.5, outside=-0.45),
    }


ON_CHAINS = [
    Published(
        "the Dirichlet form of functions of (X, K) is the mean covariance given (X_-K, K)",
        "paper B, Proposition 1",
        "equality",
        "difference from the matrix of (C.23), two random functions",
        lambda a: a.form_difference,
        at_most(ROUNDING),
    ),
    Published(
        "the chain on pairs (X, K) has a finite Poincare constant",
        "paper B, Definition 8, (C.23) and Theorem 3",
        "assumed by Theorem 3",
        "Dirichlet form of a function of K; the chain falls into {closed} closed sets",
        lambda a: a.form_of_mask,
        above(ROUNDING),
        choices=("single sites, adaptive: K and the visible sites never change",),
    ),
    Published(
        "a step of 1-Gibbs draws from a product distribution",
        "paper B, section 2.4.1",
        "encodes a product distribution for each transition",
        "total variation from the products, at least; two fair bits and a random site",
        lambda a: a.random_site.at_least,
        at_most(ROUNDING),
        kind=LOWER,
        choices=("given the site it is a product, which may be what is meant",),
    ),
    Published(
        "a step of k-Gibbs with k > 1 does not",
        "paper B, section 2.4.1",
        "far from a product distribution",
        "total variation from the products, at least; k = N = 2, J = 0.3",
        lambda a: a.two_sites.at_least,
        above(ROUNDING),
        kind=LOWER,
    ),
    Published(
        "tensorisation is stronger than modified log-Sobolev",
        "paper B, section 2.3",
        "stronger",
        "largest possible ratio of the constants, three bits with p(0) = 0.1",
        lambda a: a.modified.upper / a.tensorised.lower,
        at_most(1 + 1e-9),
        kind=UPPER,
    ),
    Published(
        "and weaker than log-Sobolev",
        "paper B, section 2.3",
        "weaker",
        "largest possible ratio of tensorisation to log-Sobolev, the same bits",
        lambda a: a.tensorised.upper / a.standard.lower,
        at_most(1 + 1e-9),
        kind=UPPER,
    ),
    Published(
        "p(R-1) is above e^(2 J_0) p of any state in neither mode, J_0 = J - sum of |h_i|",
        "paper B, Proposition 8",
        "above 1",
        "smallest ratio, N = 6, |C| = 3, J = 0.6, h = 0.1 and -0.05 outside",
        lambda a: (
            mode_ratios(a.by_sum.ising(), 3)[1] / math.exp(2 * a.by_sum.ferromagnet.margin_of_sum)
        ),
        above(1.0),
    ),
    Published(
        "the same with J_0 = J - the largest |h_i|",
        "paper B, Proposition 8",
        "above 1, if the norm of h is this one (our copy shows both norms alike)",
        "smallest ratio, h = 0.5 and -0.45 outside",
        lambda a: (
            mode_ratios(a.by_largest.ising(), 3)[1] / math.exp(2 * a.by_largest.ferromagnet.margin)
        ),
        above(1.0),
    ),
]


CHAINS = Piece(
    "what the chains are: pairs of states and masks, products, constants of entropy, modes",
    "Ising clique of {sites} sites, J = {coupling:g}, h = 0, unless a row says otherwise; exact",
    small=dict(sites=4, coupling=0.05),
    not_in_paper=("sites", "coupling"),
    differs=(J_TWICE,),
    ask=ask_chains,
    table=lambda a: statement_rows(a, ON_CHAINS),
    claims=ON_CHAINS,
    seconds=3,
)


# Lemmas 7 and 8 and the corollaries between: simulated deviations next to their bounds.

DEVIATIONS = (
    *("empirical", "corollary_1", "uniform", "corollary_2", "sequence_step", "population"),
    *("hoeffding", "total_variation", "lemma_8", "largest_kl", "log_margin"),
)
SAMPLE_SIZES = ((3, 200, 50), (3, 200, 5000), (3, 20_000, 50), (2, 200, 50), (4, 200, 50))


def beyond(a: Answers, slot: int) -> Estimate:
    """The share of repetitions beyond a bound, at the sizes where it is largest."""
    worst = max(a.deviations, key=lambda each: each.outside[slot])
    return proportion(worst.outside[slot], worst.repetitions)


def corollary_ratio(a: Answers, first: int, second: int) -> float:
    return float(a.deviations[second].corollary_1 / a.deviations[first].corollary_1)


LEMMA_7 = Piece(
    "deviations of the empirical losses, simulated, next to the bounds of Lemmas 7 and 8",
    "Ising cliques with J = 0.1, k = 1, delta = 0.05, {chains} repetitions; 95% quantiles, and the "
    "bounds at that level; uniform: the largest deviation over 20 random members of the box of all "
    "|h|, |J| <= 1, a lower bound on that over the box",
    small=dict(sizes=SAMPLE_SIZES, chains=400),
    not_in_paper=("sizes", "chains"),
    choices=("delta, J and the box are ours",),
    differs=(J_TWICE,),
    ask=lambda s: {
        "deviations": [deviations(*size, repetitions=s.chains, seed=s.seed) for size in s.sizes]
    },
    table=lambda a: columns(
        a.deviations, "sites", "n_sequences", "n_masks", *DEVIATIONS, "kind", "bound_kind"
    ),
    claims=[
        *(
            Published(
                f"{what} stays within its bound",
                f"paper B, {source}",
                "with probability 1 - delta = 0.95",
                "share of repetitions beyond it, largest over the sizes",
                partial(beyond, slot=slot),
                below(0.05),
                unit="repetitions",
            )
            for slot, (what, source) in enumerate(
                (
                    ("the empirical loss of one model", "Lemma 7 and Corollary 1"),
                    ("the empirical loss of every model", "Corollary 2"),
                    ("the log loss over sequences", "Lemma 6, as Lemma 7 uses it"),
                    ("the empirical distribution", "Lemma 8"),
                )
            )
        ),
        Published(
            "the sequences add a deviation of their own, which Hoeffding's inequality bounds",
            "paper B, Lemma 7, step 2",
            "below t / n",
            "largest |mean of f over the sequences - E f|, rounding apart",
            lambda a: max(each.sequence_step for each in a.deviations),
            above(1e-12),
            choices=(
                "E is over the empirical distribution, so it is the same mean: the step is empty",
            ),
        ),
        *(
            Published(
                f"the bound {how}",
                "paper B, Remark 4",
                how,
                "bound at the larger number over that at the smaller",
                partial(corollary_ratio, first=0 if size < 4 else 3, second=size),
                region,
            )
            for size, how, region in (
                (1, "falls with the masks m", below(1.0)),
                (2, "falls with the sequences n", below(1.0)),
                (4, "grows with N", above(1.0)),
            )
        ),
        Published(
            "the KL of a conditional is between 0 and ln(1 / beta)",
            "paper B, Proposition 7",
            "at most 1",
            "largest KL over ln(1 / beta)",
            lambda a: max(each.largest_kl / each.log_margin for each in a.deviations),
            at_most(1.0),
            choices=("the largest of these samples",),
        ),
    ],
    seconds=3,
)


# Section 3.4 and appendix M: what stronger dependency does to learning, to sampling, and to errors.


def ask_dependency(s: Settings) -> dict[str, object]:
    options = dict(sites=s.sites, field=0.0)
    gaps = gap(clique=s.sites, couplings=s.couplings, blocks=[1], **options)
    errors_of = amplification(
        couplings=s.couplings, error=s.error, repetitions=s.chains, seed=s.seed, **options
    )
    models = [Ising.clique(s.sites, s.sites, coupling=j) for j in s.couplings]
    single = Masks.uniform(Space(2, s.sites), 1)
    rows = [
        {
            "J": j,
            "gap": step.gaps[1].value,
            "tensorisation": tensorisation(model.probabilities, single),
            "n_times_kl": covariance(model).rows[0].divergence,
            "theorem_4": bound(model, sequences=[10**6], seed=s.seed).rows[0],
            "free": free,
            "joint": joint,
        }
        for j, model, step, free, joint in zip(
            s.couplings, models, gaps.rows, errors_of.rows[::2], errors_of.rows[1::2], strict=True
        )
    ]
    return {"rows": rows, "figure": errors_of.figure()}


def smallest_growth(values: Iterable[float]) -> float:
    return float(min(later / former for former, later in pairwise(values)))


DEPENDENCY = Piece(
    "stronger dependency: slower chains, worse estimates, larger errors of what is sampled",
    "Ising cliques of {sites} sites without fields, one site at a time; C_AT between bounds, n KL "
    "of the one-site estimate for many samples (exact; maximum likelihood has half the number of "
    "parameters at any J), Theorem 4 for a million sequences and masks, and TV(p, where the chain "
    "ends) over the error of a conditional, for log odds with errors of {error:g}",
    small=dict(sites=4, couplings=(0.0, 0.1, 0.2, 0.3), error=0.1, chains=20),
    not_in_paper=("sites", "couplings", "error", "chains"),
    differs=(J_TWICE,),
    ask=ask_dependency,
    table=lambda a: [
        columns([row], "J", "gap", "n_times_kl")[0]
        | {
            "tensorisation_at_least": row["tensorisation"].lower,
            "tensorisation_at_most": row["tensorisation"].upper,
            "theorem_4_optimistic": row["theorem_4"]["as_written"],
            "theorem_4_excess": row["theorem_4"]["with_excess"],
        }
        | columns([row["free"]], "conditional_error", "distance", "amplification", "bound")[0]
        | {
            "amplification_of_joint_errors": columns([row["joint"]], "amplification")[0][
                "amplification"
            ]
        }
        | {"kind": "exact; bounds; amplification is an estimate"}
        for row in a.rows
    ],
    figures=lambda a: {"amplification": a.figure},
    claims=[
        Published(
            "stronger dependency slows sampling",
            "paper B, section 3.4",
            "slower",
            "gap at each J over that at the next, smallest",
            lambda a: 1 / max(b["gap"] / f["gap"] for f, b in pairwise(a.rows)),
            above(1.0),
        ),
        Published(
            "stronger dependency worsens generalisation: what is learnt one site at a time",
            "paper B, section 3.4",
            "worse",
            "n KL at each J over that before, smallest",
            lambda a: smallest_growth(row["n_times_kl"] for row in a.rows),
            above(1.0),
        ),
        Published(
            "the constant of Theorem 4 grows with dependency",
            "paper B, section 3.4",
            "larger",
            "least C_AT at the largest J over the largest possible at the smallest",
            lambda a: a.rows[-1]["tensorisation"].lower / a.rows[0]["tensorisation"].upper,
            above(1.0),
            kind=LOWER,
        ),
        Published(
            "Gibbs sampling amplifies errors of conditionals that have no joint distribution",
            "paper B, appendix M",
            "may amplify errors",
            "distance of the stationary distribution over the error, at the largest J",
            lambda a: a.rows[-1]["free"].amplification,
            above(1.0),
            unit="repetitions",
            choices=("independent normal errors of the log odds",),
        ),
        Published(
            "and does so because they have none: errors of a joint distribution grow less",
            "paper B, appendix M",
            "named as the reason",
            "amplification of free errors over that of joint ones, difference at the largest J",
            lambda a: difference(a.rows[-1]["free"].ratios, a.rows[-1]["joint"].ratios),
            above(0.0),
            unit="repetitions",
        ),
    ],
    seconds=9,
)


# Definition 8: what the redraw must know of the choice of its site.


def ask_scans(s: Settings) -> dict[str, object]:
    """Total variation of each stationary distribution from the joint, of four Ising sites."""
    ising = Ising.clique(4, 4, coupling=s.coupling, field=s.field)
    redraws: tuple[Redraw, ...] = ("conditioned", "adaptive", "naive")
    measures: tuple[Measure, ...] = ("confidence", "entropy")
    distances = {}
    for redraw in redraws:
        for measure in measures:
            matrix = adaptive_matrix(ising.joint(), ising.space, redraw=redraw, measure=measure)
            distance = total_variation(stationary(matrix), ising.probabilities)
            distances[f"{redraw}:{measure}"] = distance
    return {"distances": distances}


DEFINITION_8 = Piece(
    "adaptive dynamics: which redraw keeps the joint, and how far off the naive one is",
    "four Ising sites, J = {coupling:g}, h = {field:g}; the state chooses the site; exact "
    "stationary distributions; adaptive is a Metropolis correction, which real models can afford",
    small=dict(coupling=0.05, field=0.2),
    choices=("the model and its size",),
    ask=ask_scans,
    table=lambda a: [
        {"scan": scan, "total_variation": distance, "kind": "exact"}
        for scan, distance in a.distances.items()
    ],
    claims=[
        Published(
            "adaptive block dynamics, the redraw conditioned on K, keep the joint",
            "paper B, Definition 8",
            "the joint is stationary",
            "total variation of its stationary distribution from the joint",
            lambda a: max(
                distance for scan, distance in a.distances.items() if scan.startswith("conditioned")
            ),
            at_most(TINY),
            choices=("one site at a time, chosen by confidence or entropy", TINY_IS),
        ),
        Published(
            "the redraw must be conditioned on K: otherwise the stationary distribution differs",
            "paper B, Lemma 3 and Definition 8",
            "in general not equal",
            "total variation of the naive scan's distribution from the joint, by confidence",
            lambda a: a.distances["naive:confidence"],
            above(1e-6),
        ),
    ],
    seconds=1,
)


# Figure 3: steps that k-Gibbs needs from R-1 to R1, and the parallel sampler's failure. The
# couplings are missing in our text. With h = 5 at all ten sites h_G = 20 is below 30, so the model
# is not strongly ferromagnetic, and the propositions apply only as far as each row says.

FIELD, BUDGET = 5.0, 1000
RARELY = 1e-6  # a probability below which nobody would have observed an arrival
FASTER = "larger k faster, larger J slower; the parallel sampler never arrives"


def races(s: Settings, couplings: Sequence[float], chains: int) -> list[Race]:
    study = race(
        sites=s.sites,
        clique=s.clique,
        field=s.field,
        couplings=couplings,
        budget=s.budget,
        chains=chains,
        seed=s.seed,
    )
    return list(study.races)


def ask_races(s: Settings) -> dict[str, object]:
    grid = [float(j) for j in np.arange(0.25, 8.0, 0.25) if j not in s.couplings]
    simulated = races(s, s.couplings, s.chains)
    shown = sorted([*simulated, *races(s, grid, 0)], key=lambda each: each.model.coupling)
    chances = ", ".join(
        f"{each.parallel.within_budget:.2g} at {each.model.coupling:g}" for each in simulated
    )
    steps = np.array([[runner.log10_mean for runner in each.gibbs] for each in simulated])  # (J, k)
    return {"races": simulated, "shown": shown, "chances": chances, "log10_steps": steps}


def race_rows(a: Answers) -> list[Row]:
    return [
        row
        for each in a.races
        for runner in each.runners
        for row in columns(
            [runner],
            *("log10_mean", "within_budget", "budget_mean", "horizon", "horizon_kept"),
            J=each.model.coupling,
            sampler="parallel" if runner.k is None else f"{runner.k}-Gibbs",
            kind="exact; what is simulated is an estimate",
            simulated_mean=runner.simulated.mean,
            simulated_error=runner.simulated.standard_error,
            simulated_deviation=runner.simulated.deviation,
            simulated_arrivals=f"{int(runner.simulated.arrived.sum())} of "
            f"{len(runner.simulated.steps)}",
            published=FASTER,
        )
    ]


def horizons_kept(a: Answers) -> float:
    """Of k-Gibbs. The parallel sampler's are 0 steps for a clique of four, which is no promise."""
    runners = [runner for each in a.races for runner in each.gibbs if runner.horizon is not None]
    return float(np.mean([bool(runner.horizon_kept) for runner in runners]))


FIGURE_3 = Piece(
    "steps from one mode of an Ising model to the other, k-Gibbs and parallel",
    "N = {sites}, |C| = {clique}, h = {field:g}, from all -1 to R1: exact means, {chains} "
    "simulated chains with a budget of {budget:,} steps. h_G = 20 < 30 breaks the strongly "
    "ferromagnetic condition; J_0 = J - {field:g}, so the propositions speak of J above {field:g} "
    "only",
    small=dict(
        sites=10,
        clique=4,
        field=FIELD,
        budget=BUDGET,
        couplings=(0.5, 1.0, 2.0, 5.0, 8.0),
        chains=100,
    ),
    paper=dict(couplings=(0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)),
    published=dict(chains=10),
    not_in_paper=("couplings",),
    differs=("h_G = 20 < 30 breaks the strongly ferromagnetic condition", J_TWICE),
    ask=ask_races,
    table=race_rows,
    figures=lambda a: {
        "race": plot_race(a.shown),
        "budget": plot_race(a.shown, up_to=2 * a.settings.budget),
    },
    claims=[
        Published(
            "larger k is faster",
            "paper B, figure 3",
            "larger k is faster",
            "mean steps of k + 1 over those of k, largest over k and J",
            lambda a: float(10 ** np.diff(a.log10_steps, axis=1).max()),
            below(1.0),
        ),
        Published(
            "larger J is slower (N-Gibbs takes one step at any J)",
            "paper B, figure 3",
            "larger J is slower",
            "mean steps at the largest J over those at the smallest, smallest over k < N",
            lambda a: float((10.0 ** (a.log10_steps[-1] - a.log10_steps[0]))[:-1].min()),
            above(1.0),
        ),
        Published(
            "the parallel sampler never arrives within the budget, for any J that was tried",
            "paper B, figure 3",
            "never, for any of the J tried",
            "its probability at these J, which are not in our text; at ours: {chances}",
            None,
            below(RARELY),
        ),
        Published(
            f"the parallel sampler never arrives within the budget, for J >= {FIELD:g}",
            "paper B, figure 3",
            "never, for any of the J tried",
            "its probability to arrive within {budget:,} steps, largest over these J",
            lambda a: max(
                each.parallel.within_budget for each in a.races if each.model.coupling >= FIELD
            ),
            below(RARELY),
        ),
        Published(
            "k-Gibbs arrives within the horizon",
            "paper B, Proposition 4",
            "with probability 1 - delta",
            "share of the horizons that the exact chain keeps",
            horizons_kept,
            at_least(1.0),
        ),
    ],
    seconds=9,
)


# Corollary 3: N-Gibbs is in R1 after one step, the parallel sampler not within M. The corollary
# asks for large cliques (25 sites and more), so the chains are lumped by the number of ones in the
# clique. `smallest` is the smallest clique for which the separation holds with the same h_G and
# J_0 = |C| ln 2 / 2.

STAYS = 10_000  # steps that a horizon is followed for, at most


def largest_step(a: Answers, proof: str) -> float:
    """The smaller less the larger side, largest over the inequalities of a proof."""
    steps = proof_steps(Clique(24, 20, coupling=0.8, field=0.01), k=22, n_steps=50)
    if proof == "Corollary 3":
        cases = [(study.steps, study.delta) for study in a.studies]
        steps = [step for case in cases for step in corollary_steps(*case)]
    return max(step.smaller - step.larger for step in steps)


COROLLARY_3 = Piece(
    "one step of N-Gibbs against M steps of the parallel sampler",
    "the weakest model that the corollary allows (N = |C|, no site outside), from the best start "
    "with sum <= -2; exact probabilities by lumping",
    small=dict(cases=((1, 0.5), (10, 0.1))),
    paper=dict(cases=((1, 0.5), (10, 0.1), (100, 0.1), (1000, 0.1), (1000, 0.01))),
    not_in_paper=("cases",),
    ask=lambda s: {"studies": [separation(steps=m, delta=delta) for m, delta in s.cases]},
    differs=(J_TWICE,),
    table=lambda a: [
        columns([record], "steps", "delta")[0]
        | {"horizon_of_proposition_5": record["horizon_of_proposition_5"]["value"]}
        | {
            f"{which}_{name}": record[which][name]
            for which in ("promised", "smallest")
            for name in (
                *("sites", "gibbs_misses", "log10_parallel_arrives"),
                *("low_start", "random_arrives"),
            )
        }
        | {"kind": "exact"}
        for record in (study.to_dict() for study in a.studies)
    ],
    figures=lambda a: a.studies[0].figures(),
    claims=[
        Published(
            "N-Gibbs is in R1 after one step and the parallel sampler not within M",
            "paper B, Corollary 3",
            "with probability 1 - delta",
            "exact probability of failure over delta, largest",
            lambda a: max(
                (study.promised.gibbs_misses + study.promised.parallel_arrives)
                / study.promised.delta
                for study in a.studies
            ),
            at_most(1.0),
        ),
        Published(
            "the parallel sampler stays in sum <= -2 for the steps that are promised",
            "paper B, Proposition 5",
            "with probability 1 - delta",
            "exact probability to leave within the horizon over delta, largest",
            lambda a: max(
                leaves_within(study.promised.model, min(STAYS, horizon)) / (study.delta / 2)
                for study in a.studies
                for horizon in [parallel_horizon(study.promised.model, study.delta / 2) or 0]
            ),
            at_most(1.0),
            choices=(f"horizons above {STAYS:,} steps are followed for as many",),
        ),
        Published(
            "a random start has sum <= -2 with a probability that is not small",
            "paper B, section 2.4.2",
            "nontrivial probability",
            "its smallest probability, the binomial tail",
            lambda a: min(study.promised.low_start for study in a.studies),
            above(0.1),
            choices=("above 0.1 is not small",),
        ),
        *(
            Published(
                f"every inequality in the proof of {proof}, from {first} to {last}",
                f"paper B, appendices {appendices}",
                "smaller or equal",
                "smaller side less the larger one, largest of them",
                partial(largest_step, proof=proof),
                at_most(ROUNDING),
            )
            for proof, first, last, appendices in (
                ("Propositions 4 and 5", "(F.39)", "(G.44)", "F and G"),
                ("Corollary 3", "(H.46)", "(H.50)", "H"),
            )
        ),
    ],
    seconds=5,
)


# The masks of training, on language. The theorems speak of distributions that the model class
# contains and of minimisers of the loss. Here small networks differ in their training masks alone
# (`recipes/mask_rates.py`): each seed has the same first weights and the same rows in the same
# order for every kind of mask. They were trained and measured once on a GPU.

LADDER = ("one token", "15%", "30%", "50%", "80%")  # from smaller masks to larger ones
OBJECTIVE = "paper A, section 1, item 1"
USUAL = "30%"  # the others are compared with it
SHARES = {"1 token": "1 token", "0.15": "15%", "0.3": "30%", "0.5": "50%", "0.8": "80%"}
SWEEPS = ("1.5", "2")  # temperatures at which every pair met
Models = dict[str, list[Record]]  # by kind of mask: the model of each seed


@lru_cache(maxsize=1)
def mask_record() -> Record:
    path = PACKAGE / "data" / "mask-rates.json"
    record: Record = parse_json(path.read_text(encoding="utf-8"))
    return record


def ask_masks(s: Settings) -> dict[str, object]:
    models: Models = {}
    for model in mask_record()["models"]:
        models.setdefault(model["masks"], []).append(model)
    return {"models": models, "how": mask_record()["how"]}


def mask_difference(
    a: Answers, kind: str, other: str, *, comparisons: int = 1, figure: str = "filled"
) -> Estimate:
    """The difference in nll over seeds that both have, which share rows and first weights."""
    others = {model["seed"]: model[figure] for model in a.models[other]}
    return mean_over_chains(
        [
            model[figure] - others[model["seed"]]
            for model in a.models[kind]
            if model["seed"] in others
        ],
        comparisons=comparisons,
    )


def mask_rows(a: Answers) -> Iterable[Row]:
    for kind, models in a.models.items():
        row: Row = {f"nll_{share}": np.mean([m["nll"][share] for m in models]) for share in SHARES}
        row["filled"] = mean_over_chains([model["filled"] for model in models])
        if kind != USUAL:
            row[f"less_{USUAL}"] = mask_difference(a, kind, USUAL, comparisons=len(a.models) - 1)
        row["delta"] = mean_over_chains([model["delta"] for model in models], bounds=(0.0, np.inf))
        for temperature in SWEEPS:  # all pairs met, so that nothing is censored
            medians = [np.median(model["meeting_steps"][temperature]) / 16 for model in models]
            row[f"median_sweeps_{temperature}"] = mean_over_chains(medians, bounds=(0.0, np.inf))
        times = [time for model in models for time in model["meeting_steps"]["1"]]
        row["met_at_1"] = f"{sum(time is not None for time in times)} of {len(times)} pairs"
        yield from columns([row], *row, masks=kind, seeds=len(models), kind="estimate")


MASKS = Piece(
    "masked LMs by the masks of their training: quality, rectangles, coupled chains",
    "masked LMs of {how[layers]} layers of {how[width]} and {how[vocabulary]:,} tokens, "
    "{how[steps]:,} steps of {how[rows]} rows of {how[length]}, the same rows and first weights "
    "for every kind of mask; nll in nats on held-out text, and `filled` that of half a row, token "
    "by token; rectangles of 20 tokens; coupled chains of {how[tokens_of_a_chain]} tokens; means "
    "over training seeds",
    small={},
    model="31 masked LMs of 4 layers of 256, trained for this",
    differs=(
        "text and a network in place of a distribution that the model class contains; trained for "
        "1,600 steps, far from the least loss, so speed of learning counts as well",
        "masks that favour rare or unsure tokens have the plain loss, not Definition 7's",
    ),
    choices=("the shares of the masks, sizes and training", "30% as what others are compared with"),
    ask=ask_masks,
    table=lambda a: list(mask_rows(a)),
    figures=lambda a: {
        "nll": plot_mask_rates(
            list(SHARES.values()),
            {
                kind: [
                    float(np.mean([model["nll"][share] for model in models])) for share in SHARES
                ]
                for kind, models in a.models.items()
            },
        )
    },
    claims=[
        Published(
            f"larger masks estimate better: {larger} of a row compared with {smaller}",
            "paper B, Theorem 1",
            "never worse, at equal data",
            f"nll of half a row filled token by token, {larger} less {smaller}",
            partial(mask_difference, kind=larger, other=smaller),
            below(0.0),
            effect=-0.1,
            unit="training seeds",
        )
        for smaller, larger in pairwise(LADDER)
    ]
    + [
        Published(
            "the pseudo-likelihood objective, which hides one token, gives incompatible "
            "conditionals",
            OBJECTIVE,
            "mean Delta from 0.644 to 0.798 over five models",
            "mean Delta of models trained with one hidden token",
            lambda a: mean_over_chains(
                [model["delta"] for model in a.models[LADDER[0]]], bounds=(0.0, np.inf)
            ),
            above(0.0),
            effect=0.644,
            unit="training seeds",
            bounds=(0.0, np.inf),
        ),
        Published(
            "incompatibility is an artifact of that objective: there is less under one that hides "
            "most of a row",
            OBJECTIVE,
            "an intrinsic structural artifact, no comparison",
            f"mean Delta, {LADDER[0]} less {LADDER[-1]}",
            partial(mask_difference, kind=LADDER[0], other=LADDER[-1], figure="delta"),
            above(0.0),
            effect=0.1,
            unit="training seeds",
            choices=("the comparison of objectives; the smallest difference that matters, 0.1",),
        ),
    ],
    seconds=2,
)

# Section 1: why translation can be decoded in parallel. What a source leaves open, next to what
# an English text of as many tokens does when nothing of it is given.


def ask_entropy(s: Settings) -> dict[str, object]:
    pairs = spread(by_source(read_pairs(TEST_PAIRS)), s.n_sentences)
    options = dict(n_samples=s.n_samples, seed=s.seed)
    given = source_entropies(BUNDLED, [pair.source for pair in pairs], **options)
    model = load(s.model, exact=True)
    tokens, free = starts(model, [passages()[0][1]], length=s.length)  # all of it is hidden
    sites = free[0].nonzero()[:, 0].tolist()
    sampling = Sampling(s.n_open, 1.0, s.seed, None)
    fills = sequential_fills(model.conditionals(), tokens[0], [sites], sampling)
    opened = [
        SourceEntropy(len(sites), -joint / len(sites), math.exp(joint), cost / len(sites))
        for joint, cost in zip(
            fills.log_in_turn.sum(axis=1).tolist(),
            fills.divergence.sum(axis=1).tolist(),
            strict=True,
        )
    ]
    return {"given": given, "opened": opened}


def entropy_difference(a: Answers, name: str) -> Estimate:
    """Mean over sentences, of translation less open text."""
    values = [[getattr(each, name) for each in group] for group in (a.given, a.opened)]
    return difference(*values, bounds=(0.0, np.inf))


ENTROPY = Piece(
    "what a source leaves open: entropy and cost of one pass, translation and open text",
    "English to Spanish by the bundled teacher, {n_sentences} sentences of Tatoeba with "
    "{n_samples} draws each, and {n_open} texts of {length} tokens by the bundled English model, "
    "from nothing, one token at a time in random order; nats per token. Cost: KL from the "
    "joint to one pass; of translation with the student's length and first pass, which is more "
    "than the total correlation",
    small=dict(model="bundled:english", n_sentences=40, n_samples=16, n_open=200, length=9),
    not_in_paper=("n_sentences", "n_samples", "n_open", "length"),
    choices=("the models, which have different vocabularies; open text is English with no prompt",),
    extra="translation",
    ask=ask_entropy,
    table=lambda a: [
        columns(
            [
                {
                    name: mean_over_chains([getattr(e, name) for e in group], bounds=(0.0, np.inf))
                    for name in SourceEntropy._fields
                }
            ],
            *SourceEntropy._fields,
            output=output,
            kind="estimate",
        )[0]
        for output, group in (("translation", a.given), ("open text", a.opened))
    ],
    claims=[
        Published(
            f"translation outputs have {what} than other generation tasks",
            "paper B, section 1",
            what,
            f"{name} per token, translation less open text"
            if name != "agreement"
            else "chance that two outputs are the same, translation less open text",
            partial(entropy_difference, name=name),
            region,
            unit="sentences and texts",
        )
        for name, what, region in (
            ("entropy", "lower entropy", below(0.0)),
            ("agreement", "fewer modes", above(0.0)),
            ("cost", "a lower cost of one pass (our reading)", below(0.0)),
        )
    ],
    seconds=20,
)

PIECES = {
    "B-lemma3": LEMMA_3,
    "B-theorem1": THEOREM_1,
    "B-theorem2": THEOREM_2,
    "B-fig1": FIGURE_1,
    "B-fig2": FIGURE_2,
    "B-theorem4": THEOREM_4,
    "B-proofs": PROOF_STEPS,
    "B-chains": CHAINS,
    "B-lemma7": LEMMA_7,
    "B-dependency": DEPENDENCY,
    "B-definition8": DEFINITION_8,
    "B-fig3": FIGURE_3,
    "B-corollary3": COROLLARY_3,
    "B-masks": MASKS,
    "B-entropy": ENTROPY,
}
