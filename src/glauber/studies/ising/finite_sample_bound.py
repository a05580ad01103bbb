"""What n sequences with m masks each promise about the distribution that is learnt.

Paper B, Theorem 4. With probability 1 - delta,
    TV(p_hat, p) < sqrt( C_AT/2 * (L_hat + B ln(1/beta) + eps) ) + C,
    B = sqrt( 2^(3N) |Omega|^N C_eps / (m delta) ) + sqrt( ln(8 C_eps/delta) / (2n) ),
    C = sqrt( |Omega|^(3N) / (8 delta n) ).
L_hat is a log loss, which does not go to zero for the true distribution: the first term alone is
often above 1. It is compared with the excess loss: if the losses of p_hat and of the truth each
deviate by at most B ln(1/beta) + eps, L_hat becomes their difference and that term counts twice.
And TV(p_hat, p) <= sqrt( C_AT/2 * (L(p_hat) - L(p)) ) with the population's loss needs no sampling
term.

The theorem speaks of a class of models: C_eps and beta belong to all of it. Two evaluations:
    optimistic   one member (C_eps = 1, eps = 0) and the beta of the two distributions at hand. No
                 class of models has so little: the theorem's bound is larger
    over a box   all models with |h_i|, |J_ij| <= b, cut into g cells along each of the d axes. Two
                 models of a cell differ by at most w = 2b/g in each parameter, and
                 |log p_1(x_K|x_{-K}) - log p_2| <= max over x'_K of |(theta_1 - theta_2)(T(x) -
                 T(x'))| <= w (2k + 4 t), t the pairs that touch K; so eps = 2 w (2k + 4 t) has
                 C_eps <= g^d. A filling that flips f of k sites gains at most 2fb + 4f(N - f)b, so
                 beta >= 1 / sum_f C(k, f) exp(2fb + 4f(N - f)b). g is the best one; it does not
                 look at data. An upper bound, if the theorem holds
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from glauber.exact.blocks.dynamics import block_gap, possible_conditionals
from glauber.exact.blocks.pseudolikelihood import (
    Pseudolikelihood,
    all_masks,
    draw_counts,
    fit_pairs,
    random_masks,
)
from glauber.exact.blocks.tensorisation import entropy_constant_bound, population_bound
from glauber.exact.models import (
    Ising,
    check_block_size,
    check_ising_fits,
    ising_family,
    ising_theta,
    state_counts,
)
from glauber.exact.space import Floats, Space, over_block
from glauber.exact.stationary import total_variation
from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import Seed
from glauber.foundation.progress import say, track
from glauber.foundation.study import Result, internal, study
from glauber.studies.ising.fitting import LARGEST_COUNT, check_converged
from glauber.studies.ising.model import (
    Clique,
    Coupling,
    Data,
    Delta,
    Field,
    Model,
    Sites,
    model_of,
    not_empty,
    tokens_of,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

Record = dict[str, Any]  # one row
SEQUENCES = (1000, 10_000, 100_000, 1_000_000)
STEEPEST = 600.0  # of an exponent, so that it is a float
CELLS = 10**6  # along an axis of the box, at most
OPTIMISTIC, UPPER = "optimistic evaluation", "upper bound"
LINES = {
    "true distance": "true_total_variation",
    "by population": "by_population_excess",
    "excess, optimistic": "with_excess",
    "optimistic": "as_written",
    "over the box": "as_written_over_box",
}


@study
def bound(
    model: Model = None,
    *,
    sequences: Annotated[Sequence[int], "Numbers of sequences n.", not_empty, Whole()] = SEQUENCES,
    masks: Annotated[int, "Random masks of each sequence, m.", Whole()] = 1_000_000,
    k: Annotated[int, "Sites hidden together."] = 1,
    delta: Delta = 0.05,
    sites: Sites = 3,
    clique: Clique = None,
    coupling: Coupling = 0.1,
    field: Field = 0.0,
    data: Data = None,
    box: Annotated[float, "Largest |h| and |J| of the class that the cover is for."] = 1.0,
    seed: Seed = 0,
) -> "FiniteSamples":
    """The finite-sample bound on what is learnt, term by term, and the true distance.

    Paper B, Theorem 4, with an upper bound in place of the tensorisation constant. Twice: as an
    optimistic evaluation (a cover of one member, beta of two distributions), lower than the
    theorem's bound, and over a box of models, an upper bound. With data of one's own, whose number
    of rows is n, the truth is not known.
    """
    largest = max(sequences) * masks
    Whole(1, LARGEST_COUNT)("number of sequences times the masks of each", largest)
    counts, truth = None, None
    if data is not None:
        tokens = tokens_of(data)
        n_sites, sequences = tokens.shape[1], [len(tokens)]
        check_ising_fits(n_sites)
        counts = state_counts(Space(2, n_sites), tokens)
    else:
        ising = model_of(
            model, sites=sites, clique=clique, coupling=coupling, field=field, learnt=True
        )
        n_sites, truth = ising.n_sites, ising_theta(ising)
    check_block_size(k, n_sites)
    box_margin(n_sites, k, box)
    problem = Pseudolikelihood.of_size(ising_family(n_sites), k)
    say(f"{len(sequences)} fits over {problem.family.space.size:,} states")
    rows = []
    with track("fits", len(sequences)) as advance:
        for n in sequences:
            generator = np.random.default_rng(seed)
            if truth is not None:
                counts = draw_counts(problem.family.distribution(truth), n, 1, generator)[0]
            assert counts is not None
            seen = random_masks(counts, problem.masks, generator, masks)
            rows.append(_row(problem, seen, truth, TheoremInputs(n, masks, delta), box))
            advance()
    return FiniteSamples(tuple(rows), box)


def _row(
    problem: Pseudolikelihood,
    seen: Floats,
    truth: Floats | None,
    inputs: "TheoremInputs",
    box: float,
) -> Record:
    """One number of sequences: the fit, both evaluations of the bound, and what is true."""
    family, masks = problem.family, problem.masks
    fit = fit_pairs(problem, seen)
    check_converged(fit, inputs.n_sequences)
    learnt = family.distribution(fit.theta)
    p = learnt if truth is None else family.distribution(truth)
    constant = entropy_constant_bound(learnt, masks, block_gap(learnt, masks)).value
    other = math.nan if truth is None else float(problem.loss(truth, seen))
    losses, space, k = (float(fit.loss), other), masks.space, len(masks.blocks[0])
    margin = min(float(possible_conditionals(q, masks).min()) for q in (learnt, p))
    terms = finite_sample_bound(losses, space, constant, inputs, margin)
    over_box, wide_margin = (
        cover_of_box(space.length, k, box, inputs),
        box_margin(space.length, k, box),
    )
    wide = finite_sample_bound(losses, space, constant, over_box, wide_margin, kind=UPPER)
    inside = max(np.abs(theta).max() for theta in (fit.theta, truth) if theta is not None) <= box
    distance, population = (
        total_variation(learnt, p),
        population_bound(learnt, p, masks, tensorisation=constant),
    )
    return {
        "sequences": inputs.n_sequences,
        "true_total_variation": None if truth is None else distance,
        **terms.terms(),
        "by_population_excess": None if truth is None else population,
        "box": box,
        "box_holds_the_estimate": inside,
        "box_margin": wide.margin,
        "box_epsilon": over_box.epsilon,
        "box_log_covering": over_box.log_covering,
        "as_written_over_box": wide.as_written if inside else None,
        "with_excess_over_box": wide.with_excess if inside else None,
        "over_box_kind": UPPER,
    }


@dataclass(frozen=True, eq=False)
class FiniteSamples(Result):
    """The bound and its terms for each number of sequences."""

    rows: tuple[Record, ...]  # one for each number of sequences
    box: float = internal()

    def lines(self) -> Iterable[str]:
        yield f"{'sequences':>10}" + "".join(f"{name:>19}" for name in LINES)
        for row in self.rows:
            shown = "".join(
                f"{'unknown':>19}" if row[key] is None else f"{row[key]:>19.4g}"
                for key in LINES.values()
            )
            yield f"{row['sequences']:>10,}{shown}"
        yield "total variation: the true one is exact, that by the population's loss an upper bound"
        yield (
            "optimistic: a cover of one member and the beta of two distributions; the theorem's is "
            "larger"
        )
        yield f"over the box of |h|, |J| <= {self.box:g}: the theorem's, an upper bound"
        yield "above 1 a bound says nothing. All terms are in to_dict() and --json"
        if not all(row["box_holds_the_estimate"] for row in self.rows):
            yield "the estimate or the truth lies outside the box: take a larger one"

    def table(self) -> tuple[Record, ...]:
        """One row per number of sequences."""
        return self.rows

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.ising import plot_bounds

        lines = {name: [row[key] for row in self.rows] for name, key in LINES.items()}
        return {"bounds": plot_bounds([row["sequences"] for row in self.rows], lines)}


@dataclass(frozen=True)
class TheoremInputs:
    """What the theorem depends on: n sequences, m masks each, delta, and the cover of the class.

    log_covering is the logarithm of C_eps, the number of parts of the class in each of which log
    conditionals differ by at most epsilon / 2; 0 with epsilon 0 belongs to a single distribution.
    """

    n_sequences: int
    n_masks: int
    delta: float = 0.05
    log_covering: float = 0.0
    epsilon: float = 0.0

    def sampling_terms(self, sites: int, tokens: int) -> tuple[float, float]:
        """The two summands of B."""
        states = 3 * sites * math.log(2) + sites * math.log(tokens) + self.log_covering
        first = (states - math.log(self.n_masks * self.delta)) / 2
        cover = math.log(8 / self.delta) + self.log_covering
        return math.exp(min(first, 700.0)), math.sqrt(cover / (2 * self.n_sequences))


@dataclass(frozen=True)
class FiniteSampleBound:
    """The bound of Theorem 4 and its terms.

    An upper bound with probability 1 - delta, if C_AT is one and cover and margin are those of a
    whole class; else an optimistic evaluation.
    """

    tensorisation: float
    loss: float
    excess: float
    margin: float  # beta
    mask_term: float  # the first summand of B
    sequence_term: float  # the second
    empirical_term: float  # C
    epsilon: float
    delta: float
    kind: str = OPTIMISTIC

    @property
    def deviation(self) -> float:
        """B ln(1/beta) + eps."""
        return (self.mask_term + self.sequence_term) * math.log(1 / self.margin) + self.epsilon

    @property
    def loss_term(self) -> float:
        """sqrt(C_AT/2 * L_hat): the first term alone."""
        return math.sqrt(self.tensorisation / 2 * self.loss)

    @property
    def as_written(self) -> float:
        """The bound of the paper."""
        inside = self.tensorisation / 2 * (self.loss + self.deviation)
        return math.sqrt(inside) + self.empirical_term

    @property
    def with_excess(self) -> float | None:
        """The bound with the excess loss in place of the loss; None where the truth is unknown."""
        if math.isnan(self.excess):
            return None
        inside = self.tensorisation / 2 * (max(0.0, self.excess) + 2 * self.deviation)
        return math.sqrt(inside) + self.empirical_term

    def terms(self) -> Record:
        """All terms in one object."""
        derived = "deviation", "loss_term", "as_written", "with_excess"
        return asdict(self) | {name: getattr(self, name) for name in derived}


def finite_sample_bound(
    losses: tuple[float, float],
    space: Space,
    tensorisation: float,
    inputs: TheoremInputs,
    margin: float,
    *,
    kind: str = OPTIMISTIC,
) -> FiniteSampleBound:
    """The bound from the empirical losses of p_hat and of the truth (nan: unknown).

    tensorisation is (an upper bound on) C_AT(p_hat), margin is (a lower bound on) beta.
    """
    sites, tokens = space.length, space.vocab_size
    mask_term, sequence_term = inputs.sampling_terms(sites, tokens)
    return FiniteSampleBound(
        tensorisation=tensorisation,
        loss=losses[0],
        excess=losses[0] - losses[1],
        margin=margin,
        mask_term=mask_term,
        sequence_term=sequence_term,
        empirical_term=math.sqrt(tokens ** (3 * sites) / (8 * inputs.delta * inputs.n_sequences)),
        epsilon=inputs.epsilon,
        delta=inputs.delta,
        kind=kind,
    )


def cover_of_box(n_sites: int, k: int, largest: float, inputs: TheoremInputs) -> TheoremInputs:
    """The inputs with the cover of all |h|, |J| <= largest whose B ln(1/beta) + eps is least."""
    touched = math.comb(n_sites, 2) - math.comb(n_sites - k, 2)
    parameters = n_sites + math.comb(n_sites, 2)
    worst = math.log(1 / box_margin(n_sites, k, largest))

    def cut(cells: int) -> TheoremInputs:
        epsilon = 2 * (2 * largest / cells) * (2 * k + 4 * touched)
        return replace(inputs, log_covering=parameters * math.log(cells), epsilon=epsilon)

    def deviation(cover: TheoremInputs) -> float:
        return sum(cover.sampling_terms(n_sites, 2)) * worst + cover.epsilon

    cells = {round(CELLS ** (slot / 200)) for slot in range(201)}
    return min((cut(count) for count in sorted(cells)), key=deviation)


def box_margin(n_sites: int, k: int, largest: float) -> float:
    """A lower bound on p(x_K | x_{-K}) of all models with |h|, |J| <= largest."""
    steepest = max(2 * f * largest + 4 * f * (n_sites - f) * largest for f in range(k + 1))
    if not 0 < steepest <= STEEPEST:
        raise GlauberError(
            f"the box is {largest}, but it must be above 0 and, with {n_sites} sites of which {k} "
            f"are hidden, at most {largest * STEEPEST / abs(steepest or 1):.3g}."
        )
    fillings = (
        math.comb(k, f) * math.exp(2 * f * largest + 4 * f * (n_sites - f) * largest)
        for f in range(k + 1)
    )
    return 1 / sum(fillings)


@dataclass(frozen=True)
class Deviations:
    """Lemma 7, its corollaries and Lemma 8 for one N, n and m: 1 - delta quantiles, and bounds.

    The quantiles are estimates over repetitions; bounds are those of the paper at level delta.
    """

    sites: int
    n_sequences: int
    n_masks: int
    empirical: float  # |L_hat - L_tilde| at the truth
    corollary_1: float  # its bound
    uniform: float  # the largest of |L_hat - L_tilde| over random members of the box: a lower bound
    corollary_2: float  # the bound over the whole box
    sequence_step: (
        float  # largest |mean of f over the sequences - E f| under their own distribution
    )
    population: float  # |L_tilde - L| of the log loss, which Hoeffding's inequality is about
    hoeffding: float  # its bound
    total_variation: float  # between the empirical distribution and the truth
    lemma_8: float  # its bound
    outside: tuple[int, int, int, int]  # repetitions beyond each of these four bounds
    repetitions: int
    largest_kl: float  # of a conditional
    log_margin: float  # ln(1/beta), Proposition 7's bound on it
    kind: str = "estimate"
    bound_kind: str = "upper bound"


def deviations(
    n_sites: int,
    n_sequences: int,
    n_masks: int,
    *,
    coupling: float = 0.1,
    delta: float = 0.05,
    box: float = 1.0,
    members: int = 20,
    repetitions: int = 400,
    seed: int = 0,
) -> Deviations:
    """How far the empirical losses really deviate, k = 1, for samples of an Ising clique.

    L_hat is the mean over sequences and their masks of f_K(X), the KL of p~(. | X_{-K}) from p,
    with p~ the empirical distribution, and L_tilde its mean over all masks. The paper splits the
    difference into masks and sequences, but E f is the mean over the same sequences: the second
    step is empty, and its term belongs to |L_tilde - L|.
    """
    family, generator = ising_family(n_sites), np.random.default_rng(seed)
    problem = Pseudolikelihood.of_size(family, 1)
    truth = ising_theta(Ising.clique(n_sites, n_sites, coupling=coupling))
    thetas = generator.uniform(-box, box, (members, len(truth)))
    p = family.distribution(truth)
    counts = draw_counts(p, n_sequences, repetitions, generator)
    seen, averaged = (
        random_masks(counts, problem.masks, generator, n_masks),
        all_masks(counts, problem.masks),
    )
    losses = np.array([_divergences(problem, theta, counts) for theta in (truth, *thetas)])
    apart = np.abs(((seen - averaged) * losses).sum(axis=(-2, -1)))  # (members + 1, repetitions)
    logs = np.stack([problem.log_conditional(truth, slot) for slot in range(n_sites)])
    f = losses[0].mean(axis=1)  # (repetitions, size): every mask is as likely
    steps = [
        abs(np.repeat(row, count.astype(int)).mean() - count / n_sequences @ row)
        for row, count in zip(f, counts, strict=True)
    ]
    population = np.abs(-(averaged * logs).sum(axis=(-2, -1)) + (p * logs.mean(axis=0)).sum())
    distances = np.abs(counts / n_sequences - p).sum(axis=1) / 2
    own = TheoremInputs(
        n_sequences, n_masks, 2 * delta
    )  # a corollary is at delta, not at delta / 2
    cover = cover_of_box(n_sites, 1, box, own)
    log_margin, widest = float(-logs.min()), math.log(1 / box_margin(n_sites, 1, box))
    measured = (apart[0], apart[1:].max(axis=0), population, distances)
    bounds = (
        sum(own.sampling_terms(n_sites, 2)) * log_margin,
        sum(cover.sampling_terms(n_sites, 2)) * widest + cover.epsilon,
        math.sqrt(math.log(2 / delta) / (2 * n_sequences)) * log_margin,
        math.sqrt(2 ** (3 * n_sites) / (16 * delta * n_sequences)),
    )
    quantiles = [float(np.quantile(values, 1 - delta)) for values in measured]
    beyond = [int((v >= b).sum()) for v, b in zip(measured, bounds, strict=True)]
    return Deviations(
        n_sites,
        n_sequences,
        n_masks,
        empirical=quantiles[0],
        corollary_1=bounds[0],
        uniform=quantiles[1],
        corollary_2=bounds[1],
        sequence_step=float(max(steps)),
        population=quantiles[2],
        hoeffding=bounds[2],
        total_variation=quantiles[3],
        lemma_8=bounds[3],
        outside=(beyond[0], beyond[1], beyond[2], beyond[3]),
        repetitions=repetitions,
        largest_kl=float(losses[0].max()),
        log_margin=log_margin,
    )


def _divergences(problem: Pseudolikelihood, theta: Floats, counts: Floats) -> Floats:
    """KL(p~(. | x_{-K}) || p_theta) (repetitions, masks, size); 0 in contexts never seen."""
    space, values = problem.masks.space, []
    for slot, block in enumerate(problem.masks.blocks):
        mass = over_block(counts, space, block)
        share = np.divide(counts, mass, where=mass > 0, out=np.zeros_like(counts))
        logs = np.log(np.where(share > 0, share, 1.0)) - problem.log_conditional(theta, slot)
        values.append(over_block(share * logs, space, block))
    return np.stack(values, axis=-2)
