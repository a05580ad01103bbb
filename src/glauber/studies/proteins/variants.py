"""Scores of variants of a sequence, and how much they depend on the order of filling.

A variant changes the letters of k sites M. Each convention sums log-ratios, new letter to old:

    wild-type fill   each site of M hidden alone in the parent
    mutant fill      each site of M hidden alone in the variant
    all hidden       all of M hidden at once, letters as if independent
    pll              pseudo-log-likelihood of the variant less that of the parent
    an order o       log p_o(new letters) - log p_o(old letters): all of M hidden, filled one after
                     the other in the order o, by the chain rule

If the conditionals had a joint distribution, every order would give the log-ratio of variant and
parent exactly. Masked models have none (paper A), and the spread over orders is that, summed.

An order adds g(S, i), with S the sites filled before i: the log-probability of the new letter of i
with the new letters at S, less that of the old one with the old letters at S, the rest of M hidden.
It depends on the set S alone, so that 2^k contexts contain all k! orders.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, permutations
from math import factorial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from glauber.dynamics.constrained import Constrained
from glauber.dynamics.noise import random_bits, uniform
from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import ModelOrName, Seed, WhereAndDtype
from glauber.foundation.progress import Advance, say, track
from glauber.foundation.statistics import (
    Estimate,
    Floats,
    jackknife,
    mean_over_chains,
    rank_correlation,
)
from glauber.foundation.study import counted, internal, needed, report_skipped, reported, study
from glauber.models.base import PAD, Conditionals, Model
from glauber.models.load import load
from glauber.studies.compatibility.pseudo_likelihood import conditional_log_probs
from glauber.studies.proteins.positions import (
    Mutations,
    apply_mutations,
    are_mutations,
    differences,
    read_mutations,
    spell_mutations,
)
from glauber.studies.proteins.sequences import (
    TABLES,
    SequenceResult,
    as_file,
    check_letters,
    read_sequences,
)
from glauber.texts.read import Row, suffix_of
from glauber.texts.starts import readable, skip, starts

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_EXACT_SITES = 12  # changed sites up to which all sets of them are followed, at most
MAX_LISTED_SITES = 7  # changed sites up to which every order is listed: 5,040
DRAWN_ORDERS = 2000  # drawn where all sets are known: they ask nothing of the model
SWAP_SHARE = 0.05  # share of orders that rank two variants the other way round: then it is flagged
MAX_COMPARED = 1000  # variants, the best, of which every pair is compared
MAX_PRINTED = 40  # variants
MAX_PAIRS = 1000  # flagged pairs of a JSON object, those that orders agree on least
MEAN = "mean_over_orders"
LABELS = {
    MEAN: "mean over orders",
    "wild_type_fill": "wild-type fill",
    "mutant_fill": "mutant fill",
    "all_hidden": "all hidden",
    "pll": "pll",
}
HEADS = {
    "wild_type_fill": "wild type",
    "mutant_fill": "mutant",
    "all_hidden": "hidden",
    "pll": "pll",
}

Filled = tuple[tuple[int, int], ...]  # (site, token) pairs that differ from the parent
Integers = NDArray[np.int64]
Reading = TypeVar("Reading")
Orders = Annotated[
    int,
    "Orders to follow; all of them, exactly, where that costs no more rows.",
    Whole(1, 10**6),
]
ParentOption = Annotated[str | Path | None, "A sequence, or a FASTA file with one."]


@study
def mutate(
    model: ModelOrName = "bundled:english",
    parent: ParentOption = None,
    variants: Annotated[
        str | Path | Sequence[str] | None,
        "A23G:Y45F,S31T, whole sequences, or a file: FASTA, or CSV with a column of them.",
    ] = None,
    *,
    orders: Orders = 32,
    pll: Annotated[bool, "The pseudo-log-likelihood too: one row per letter and variant."] = True,
    column: Annotated[str | None, "Column of a CSV file that contains the variants."] = None,
    seed: Seed = 0,
    **where: Unpack[WhereAndDtype],
) -> "Variants":
    """Score variants of a sequence, with the error of their order.

    By wild-type fill, mutant fill, all hidden at once, pseudo-log-likelihood, and the mean over the
    orders of filling the changed letters one after the other, with its standard deviation over
    orders, and a flag where the order decides which of two variants is better. `scan_mutations`
    scores all single mutants. Written to .fasta, .csv or .parquet with --out, too.
    """
    sequence = read_parent(parent)
    if variants is None:
        raise GlauberError(
            "variants are needed, such as A23G:Y45F; scan_mutations scores all single mutants."
        )
    rows = read_variants(variants, column)
    # What is spelled wrongly is refused before a model is loaded.
    rows = [*_legible(rows, lambda row: are_mutations(row.text) and read_mutations(row.text))]
    loaded = open_parent(load_scorer(model, **where), sequence)
    return score_variants(loaded, rows, orders=orders, pll=pll, seed=seed)


# ---- parent and variants, as the model reads them


class Parent(NamedTuple):
    """The parent as the model reads it."""

    model: Model
    tokens: Tensor  # (length,)
    sites: list[int]  # columns of its letters
    letters: list[str]
    name: str

    @property
    def text(self) -> str:
        return str(self.model.vocabulary.decode(self.tokens.tolist()))

    @property
    def kind(self) -> str:
        return f"exact up to rounding in {self.model.dtype}"


class Substitutions(NamedTuple):
    """The changed sites of a variant in rising order, as columns of tokens, and their tokens."""

    sites: tuple[int, ...]
    old: tuple[int, ...]
    new: tuple[int, ...]

    def fillings(self, places: Iterable[int]) -> Filled:
        """The new tokens at these of its sites."""
        return tuple((self.sites[i], self.new[i]) for i in places)


def read_parent(source: str | Path | None) -> Row:
    """The one sequence in a string or a file, with its name."""
    if source is None:
        needed("parent", source)
    if not isinstance(source, str | Path):
        raise GlauberError(f"the parent is {source!r:.60}, but it must be one sequence or a file.")
    rows = read_sequences(source)
    if len(rows) > 1:
        raise GlauberError(
            f"one parent is needed, but {counted(len(rows), 'sequence')} were given."
        )
    return rows[0]


def read_variants(source: str | Path | Sequence[str], column: str | None) -> list[Row]:
    """The variants, each as mutations or as a whole sequence, with its name."""
    if isinstance(source, str | Path):
        path = as_file(source)
        if path is not None and suffix_of(path) in TABLES:
            return read_sequences(path, column=column)
        if path is None and not str(source).lstrip().startswith(">"):
            names = [part.strip() for part in str(source).replace(";", ",").split(",")]
            if all(map(are_mutations, filter(None, names))):
                source = [part for part in names if part]
    return read_sequences(source)


def load_scorer(model: str | Conditionals, **where: Unpack[WhereAndDtype]) -> Model:
    """The model, which must score its whole vocabulary at a hidden site, unconstrained."""
    if isinstance(model, Constrained):
        raise GlauberError("mutants are scored by the model itself: give it without constraints.")
    loaded = load(model, exact=True, **where)
    if not getattr(loaded, "whole_vocabulary", True):
        raise GlauberError(
            f"{loaded.name} does not score the whole vocabulary at a hidden site, as mutants need."
        )
    return loaded


def open_parent(model: Model, row: Row) -> Parent:
    """The tokens and letters of a parent."""
    check_letters(model.vocabulary, row.text, f"the parent {row.id}".rstrip())
    tokens, free = starts(model, [row.text])
    sites = free[0].nonzero()[:, 0].tolist()
    letters = [model.vocabulary.spell(int(tokens[0, site])) for site in sites]
    return Parent(model, tokens[0], sites, letters, row.id)


def mutations_of(parent: Parent, row: Row) -> Mutations:
    """The mutations that a variant is, whether it is spelled by them or as a sequence."""
    if are_mutations(row.text):
        mutations = read_mutations(row.text)
        apply_mutations(parent.letters, mutations)
        return mutations
    name = f"the variant {row.id!r:.60}" if row.id else f"variant {row.number}"
    vocabulary = parent.model.vocabulary
    check_letters(vocabulary, row.text, name)
    (text,) = readable(vocabulary, [row.text], [name])
    letters = [vocabulary.spell(token) for token in vocabulary.pieces(text)]
    return differences(parent.letters, letters, name)


def substitutions(parent: Parent, mutations: Mutations) -> Substitutions:
    """The changed columns with their tokens, old and new."""
    vocabulary = parent.model.vocabulary
    proposable = vocabulary.proposable()
    sites = tuple(parent.sites[mutation.position - 1] for mutation in mutations)
    tokens = tuple(vocabulary.token(mutation.new) for mutation in mutations)
    for mutation, token in zip(mutations, tokens, strict=True):
        if not bool(proposable[token]):
            raise GlauberError(
                f"the mutation {mutation} puts {mutation.new!r}, which is never proposed."
            )
    return Substitutions(sites, tuple(int(parent.tokens[site]) for site in sites), tokens)


def _legible(rows: Iterable[Row], read: Callable[[Row], Reading]) -> dict[Row, Reading]:
    """What `read` makes of each variant; those that it refuses are left out and reported."""
    rows = list(rows)
    readings, skipped = {}, []
    for row in rows:
        try:
            readings[row] = read(row)
        except GlauberError as error:
            if len(rows) == 1:
                raise
            skipped.append(skip(row, f"cannot be scored: {str(error).rstrip('.')}"))
    report_skipped(skipped, len(rows))
    return readings


# ---- questions to the model, each asked once


class DeferredQueries:
    """What a model says about hidden sites of the changed parent; each context is asked once.

    A score is a sum of calls (what is filled in, hidden sites, site, token). It is worked out
    twice: before `evaluate` the calls are noted and give 0, afterwards they give log-probabilities.
    """

    def __init__(self, parent: Tensor) -> None:
        self.parent = parent  # (length,)
        self._log_probs: dict[tuple[Filled, tuple[int, ...]], dict[tuple[int, int], float]] = {}
        self._evaluated = False

    def __call__(self, filled: Filled, hidden: tuple[int, ...], site: int, token: int) -> float:
        """log p(token at site), the hidden sites hidden together, in nats over the vocabulary."""
        if self._evaluated:
            return self._log_probs[filled, hidden][site, token]
        self._log_probs.setdefault((filled, hidden), {})[site, token] = 0.0
        return 0.0

    @property
    def rows(self) -> int:
        """Rows through the model that are needed."""
        return len(self._log_probs)

    def evaluate(self, conditionals: Conditionals, advance: Advance | None = None) -> None:
        """Asks the model about every context that was noted."""
        contexts, self._evaluated = list(self._log_probs), True
        if not contexts:
            return
        tokens = self.parent.repeat(len(contexts), 1)
        most = max(len(hidden) for _, hidden in contexts)
        sites = torch.full((len(contexts), most), PAD)
        for row, (filled, hidden) in enumerate(contexts):
            for site, token in filled:
                tokens[row, site] = token
            sites[row, : len(hidden)] = torch.tensor(hidden)
        every = torch.arange(len(contexts))
        for part, distributions in conditional_log_probs(
            conditionals, tokens, every, sites, n_asked=most
        ):
            for row, log_probs in zip(part.tolist(), distributions.cpu().numpy(), strict=True):
                answers = self._log_probs[contexts[row]]
                slots = {site: slot for slot, site in enumerate(contexts[row][1])}
                for site, token in answers:
                    answers[site, token] = float(log_probs[slots[site], token])
                check_log_ratio(min(answers.values()))
            if advance is not None:
                advance(len(part))


def check_log_ratio(log_prob: float) -> None:
    """Refuses letters that the model never puts: their log-ratio has no value."""
    if not np.isfinite(log_prob):
        raise GlauberError(
            "the model gives a letter that is asked about no chance at all, so it has no log-ratio."
        )


# ---- the conventions, each one number


def wild_type_fill(ask: DeferredQueries, variant: Substitutions) -> float:
    """Each changed site hidden alone in the parent."""
    return sum(
        ask((), (i,), i, new) - ask((), (i,), i, old) for i, old, new in zip(*variant, strict=True)
    )


def mutant_fill(ask: DeferredQueries, variant: Substitutions) -> float:
    """Each changed site hidden alone in the variant."""
    total = 0.0
    for number, (i, old, new) in enumerate(zip(*variant, strict=True)):
        others = variant.fillings(other for other in range(len(variant.sites)) if other != number)
        total += ask(others, (i,), i, new) - ask(others, (i,), i, old)
    return total


def all_hidden(ask: DeferredQueries, variant: Substitutions) -> float:
    """All changed sites hidden at once, each by itself."""
    hidden = variant.sites
    return sum(
        ask((), hidden, i, new) - ask((), hidden, i, old)
        for i, old, new in zip(*variant, strict=True)
    )


def pseudo_likelihood_ratio(
    ask: DeferredQueries, variant: Substitutions, sites: Iterable[int]
) -> float:
    """The pseudo-log-likelihood over all sites, of the variant less that of the parent."""
    new = dict(zip(variant.sites, variant.new, strict=True))
    total = 0.0
    for site in sites:
        old = int(ask.parent[site])
        others = tuple((other, token) for other, token in new.items() if other != site)
        total += ask(others, (site,), site, new.get(site, old)) - ask((), (site,), site, old)
    return total


# ---- orders


def gain(ask: DeferredQueries, variant: Substitutions, before: int, number: int) -> float:
    """g(S, i) of the changed site number `number`, S as a number whose bits are its members."""
    inside = [i for i in range(len(variant.sites)) if before >> i & 1]
    hidden = tuple(site for i, site in enumerate(variant.sites) if not before >> i & 1)
    site = variant.sites[number]
    new = ask(variant.fillings(inside), hidden, site, variant.new[number])
    return new - ask((), hidden, site, variant.old[number])


def gains(ask: DeferredQueries, variant: Substitutions) -> Floats:
    """g(S, i) for every set S, (2^k, k); 0 where i is in S."""
    k = len(variant.sites)
    table = np.zeros((2**k, k))
    for before in range(2**k - 1):
        for number in range(k):
            if not before >> number & 1:
                table[before, number] = gain(ask, variant, before, number)
    return table


class OverOrders(NamedTuple):
    """What all k! orders give, exactly."""

    mean: float
    sd: float
    low: float
    high: float


def over_all_orders(table: Floats) -> OverOrders:
    """Mean, standard deviation and range over all k! orders, from g (2^k, k).

    Let X(S) be the sum of a uniformly random order of the set S. Its last site is each member i
    with chance 1/|S|, and those before it are in uniformly random order, so that
    E X(S) is the mean over i of m_i = E X(S - i) + g(S - i, i), and by the law of total variance
    Var X(S) = mean over i of Var X(S - i) + variance over i of m_i. The range likewise.
    """
    k = table.shape[1]
    mean, variance, low, high = np.zeros((4, 2**k))
    for filled in range(1, 2**k):
        last = np.array([i for i in range(k) if filled >> i & 1])
        before = filled ^ (1 << last)
        added = table[before, last]
        means = mean[before] + added
        mean[filled] = means.mean()
        variance[filled] = variance[before].mean() + means.var()
        low[filled], high[filled] = (low[before] + added).min(), (high[before] + added).max()
    return OverOrders(
        float(mean[-1]), float(np.sqrt(variance[-1])), float(low[-1]), float(high[-1])
    )


def sums_along(table: Floats, orders: Integers) -> Floats:
    """The score along each order (n, k) of a variant's sites, from g (2^k, k)."""
    member = 1 << orders
    return np.asarray(table[member.cumsum(axis=1) - member, orders].sum(axis=1))


def scores_along_orders(ask: DeferredQueries, variant: Substitutions, orders: Integers) -> Floats:
    """The same by asking for the sets that these orders meet."""
    known: dict[tuple[int, int], float] = {}
    totals = []
    for order in orders.tolist():
        before, total = 0, 0.0
        for number in order:
            if (before, number) not in known:
                known[before, number] = gain(ask, variant, before, number)
            total += known[before, number]
            before |= 1 << number
        totals.append(total)
    return np.array(totals)


class Rankings(NamedTuple):
    """Orders of all sites that some variant changes; of each variant only its own sites count."""

    sites: tuple[int, ...]
    ranks: Floats  # (orders, sites): the lower is filled earlier
    exact: bool  # these are all orders

    def of(self, variant: Substitutions) -> Integers:
        """The places of the variant's sites, in the order in which they are filled: (orders, k)."""
        columns = [self.sites.index(site) for site in variant.sites]
        return np.asarray(self.ranks[:, columns].argsort(axis=1, kind="stable"))


def every_ranking(sites: Sequence[int]) -> Rankings:
    """All orders of a few sites."""
    ranks = np.array(list(permutations(range(len(sites)))), dtype=np.float64)
    return Rankings(tuple(sites), ranks, exact=True)


def drawn_rankings(sites: Sequence[int], count: int, seed: int) -> Rankings:
    """Uniformly random orders; the noise is keyed by (seed, order, site), whatever the others."""
    order = torch.arange(count)[:, None]
    bits, _ = random_bits(torch.tensor(seed), torch.tensor(0), order, torch.tensor(list(sites)))
    return Rankings(tuple(sites), uniform(bits).numpy(), exact=False)


def all_orders_affordable(k: int, orders: int) -> bool:
    """Whether all orders of k sites cost no more rows than so many of them, each for itself."""
    return k <= MAX_EXACT_SITES and 2**k - 1 <= orders * k


def _rankings(variants: list[Substitutions], orders: int, seed: int) -> Rankings:
    """The orders that all variants are compared along: all of few sites, else drawn ones."""
    sites = sorted({site for variant in variants for site in variant.sites})
    if not all(all_orders_affordable(len(variant.sites), orders) for variant in variants):
        return drawn_rankings(sites, orders, seed)
    if len(sites) <= MAX_LISTED_SITES:
        return every_ranking(sites)
    return drawn_rankings(sites, DRAWN_ORDERS, seed)


# ---- how orders change a ranking


def order_disagreement(along: Floats, mean: Floats) -> Floats:
    """The share of orders that rank two variants unlike their means: (variants, variants).

    along (variants, orders); mean (variants,) over orders.
    """
    shares = np.zeros((len(along), len(along)))
    for row in range(len(along)):
        apart = (along[row] - along[row + 1 :]) * np.sign(mean[row] - mean[row + 1 :])[:, None]
        shares[row, row + 1 :] = (apart < 0).mean(axis=1)
    return shares + shares.T


def agreement(along: Floats) -> float:
    """Spearman's correlation of one order's ranking with another's, mean over pairs of orders.

    Ties share their rank; nan where some order ranks nothing, because all its scores are equal.
    With z_o the standardised ranks of order o, n orders: (|sum of z_o|^2 - n) / (n (n - 1)).
    """
    n = along.shape[1]
    if n < 2 or len(along) < 2 or (np.ptp(along, axis=0) == 0).any():
        return float("nan")
    ranks = rankdata(along, axis=0)
    apart = ranks - ranks.mean(axis=0)
    together = (apart / np.sqrt((apart**2).sum(axis=0))).sum(axis=1)
    mean = (together @ together - n) / (n * (n - 1))
    return round(float(mean), 12)  # 1 is 1 in spite of rounding


# ---- scores


def score_variants(
    parent: Parent, rows: Iterable[Row], *, orders: int, pll: bool, seed: int
) -> "Variants":
    """The variants of a parent by every convention and over orders, the best first."""
    mutations = _legible(rows, lambda row: mutations_of(parent, row))
    changes = _legible(mutations, lambda row: substitutions(parent, mutations[row]))
    rankings = _rankings(list(changes.values()), orders, seed)
    ask = DeferredQueries(parent.tokens)

    def score() -> list[tuple[Variant, Floats]]:
        return [
            _score(ask, parent, row, mutations[row], variant, rankings, orders, pll)
            for row, variant in changes.items()
        ]

    score()  # notes what is asked
    say(
        f"{counted(len(changes), 'variant')}: {ask.rows:,} rows of {len(parent.tokens)} tokens "
        f"through {parent.model.name}"
    )
    with track("rows", ask.rows) as advance:
        ask.evaluate(parent.model, advance)
    ranked = sorted(score(), key=lambda pair: -pair[0].mean_over_orders.value)
    along = np.stack([scores for _, scores in ranked])
    means = np.array([variant.mean_over_orders.value for variant, _ in ranked])
    disagreement = order_disagreement(along[:MAX_COMPARED], means[:MAX_COMPARED])
    swaps = [*(disagreement > SWAP_SHARE).sum(axis=1).tolist(), *[0] * len(ranked)]
    return Variants(
        model=parent.model.name,
        kind=parent.kind,
        parent=parent.text,
        seed=seed,
        variants=[replace(pair[0], swaps=swaps[rank]) for rank, pair in enumerate(ranked)],
        along=along,
        disagreement=disagreement,
        every_order=rankings.exact,
    )


def _score(
    ask: DeferredQueries,
    parent: Parent,
    row: Row,
    mutations: Mutations,
    variant: Substitutions,
    rankings: Rankings,
    orders: int,
    pll: bool,
) -> "tuple[Variant, Floats]":
    """A variant and its score along each order; before the evaluation it only notes queries."""
    scores = {
        "wild_type_fill": wild_type_fill(ask, variant),
        "mutant_fill": mutant_fill(ask, variant),
        "all_hidden": all_hidden(ask, variant),
    }
    if pll:
        scores["pll"] = pseudo_likelihood_ratio(ask, variant, parent.sites)
    if all_orders_affordable(len(variant.sites), orders):
        table = gains(ask, variant)
        every, along = over_all_orders(table), sums_along(table, rankings.of(variant))
        mean, sd = Estimate(every.mean, None, "exact"), Estimate(every.sd, None, "exact")
        low, high, n_orders = every.low, every.high, factorial(len(mutations))
    else:
        along = scores_along_orders(ask, variant, rankings.of(variant))
        mean = mean_over_chains(along)
        sd = jackknife(lambda w: np.asarray(_sd(along[w > 0])), len(along), scale="log").item()
        low, high, n_orders = float(along.min()), float(along.max()), len(along)
    spelling = spell_mutations(mutations)
    blank = "" if parent.model.vocabulary.text.letters else " "
    scored = Variant(
        name=row.id or spelling or "parent",
        mutations=spelling,
        sequence=blank.join(apply_mutations(parent.letters, mutations)),
        changes=len(mutations),
        mean_over_orders=mean,
        order_sd=sd,
        lowest_order=low,
        highest_order=high,
        orders=n_orders,
        scores=scores,
    )
    return scored, along


def _sd(values: Floats) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else float("nan")


# ---- the result


@dataclass(frozen=True, eq=False, kw_only=True)
class Variant:
    """A changed sequence with its scores compared with the parent's, in nats."""

    name: str
    mutations: str  # as in A23G:Y45F
    sequence: str
    changes: int
    mean_over_orders: Estimate
    order_sd: Estimate
    lowest_order: float  # of the orders that were followed
    highest_order: float
    orders: int  # that were followed
    scores: dict[str, float]  # by convention
    swaps: int = 0  # others with which it changes places in more than 5% of the orders

    @property
    def exact(self) -> bool:
        """Whether all orders were followed."""
        return self.mean_over_orders.kind == "exact"

    @property
    def by_convention(self) -> dict[str, float]:
        return {MEAN: self.mean_over_orders.value, **self.scores}

    @property
    def header(self) -> str:
        """The scores as a FASTA header has them."""
        mean, sd = self.mean_over_orders.value, self.order_sd.value
        return f"score={mean:.4f} order_sd={sd:.4f}"

    def row(self) -> dict[str, object]:
        """A row of a table: each convention has a column."""
        fields = {name: value for name, value in vars(self).items() if name != "scores"}
        return fields | self.scores | {"kind": self.mean_over_orders.kind}


@dataclass(frozen=True, eq=False, kw_only=True)
class Variants(SequenceResult):
    """Variants by their mean over orders, the best first."""

    model: str
    kind: str  # of what one order or one convention gives
    unit: str = "nats"  # The unit of every score
    parent: str
    seed: int
    variants: list[Variant]
    every_order: bool = internal()  # the columns of along are all orders
    along: Floats = internal()  # (variants, orders): the score along each of the same orders
    disagreement: Floats = internal()  # of the best 1,000: share of orders unlike their means

    @reported
    def compared_orders(self) -> dict[str, object]:
        """The orders along which variants are compared."""
        return {"count": self.along.shape[1], "all": self.every_order}

    @reported
    def flagged_pairs(self) -> dict[str, object]:
        """Pairs that more than 5% of the orders rank the other way round, of all pairs."""
        n, flagged = len(self.disagreement), int((self.disagreement > SWAP_SHARE).sum()) // 2
        return {"count": flagged, "of": n * (n - 1) // 2, "share_of_orders": SWAP_SHARE}

    @reported
    def pairs(self) -> list[dict[str, object]]:
        """The flagged pairs, those that orders agree on least first."""
        higher, lower = np.nonzero(np.triu(self.disagreement > SWAP_SHARE))
        shares = self.disagreement[higher, lower]
        return [
            {
                "higher": self.variants[int(higher[at])].name,
                "lower": self.variants[int(lower[at])].name,
                "contrary_orders": float(shares[at]),
                "kind": "exact" if self.every_order else "estimate",
            }
            for at in shares.argsort()[::-1][:MAX_PAIRS]
        ]

    @reported
    def order_sd(self) -> Estimate | None:
        """The standard deviation over orders, mean over variants of several changes."""
        spreads = [variant.order_sd.value for variant in self._several]
        return mean_over_chains(spreads, bounds=(0, np.inf)) if self._comparable else None

    @reported
    def order_range(self) -> Estimate | None:
        """The highest order less the lowest, mean over variants of several changes."""
        ranges = [variant.highest_order - variant.lowest_order for variant in self._several]
        return mean_over_chains(ranges, bounds=(0, np.inf)) if self._comparable else None

    @reported
    def between_variants_sd(self) -> Estimate | None:
        """The standard deviation between variants of their means over orders."""
        if not self._comparable:
            return None
        means = np.array([variant.mean_over_orders.value for variant in self.variants])
        return jackknife(lambda w: np.std(means[w > 0], ddof=1), len(means), scale="log").item()

    @reported
    def order_agreement(self) -> Estimate | None:
        """Spearman's correlation of two orders' rankings, mean over pairs of orders."""
        if not self._comparable:
            return None
        along = self.along[self._distinct]
        return jackknife(
            lambda w: np.asarray(agreement(along[w > 0])), len(along), scale="atanh"
        ).item()

    @reported
    def spearman(self) -> list[dict[str, object]] | None:
        """Spearman's correlation between each two conventions, over different variants."""
        if not self._comparable:
            return None
        return [
            {"of": first, "with": second, **vars(correlation)}
            for (first, second), correlation in self.correlations.items()
        ]

    @cached_property
    def correlations(self) -> dict[tuple[str, str], Estimate]:
        """Spearman's correlation between each two conventions, over different variants."""
        scores = [self.variants[at].by_convention for at in self._distinct]
        columns = {name: [row[name] for row in scores] for name in scores[0]}
        return {
            (first, second): rank_correlation(columns[first], columns[second])
            for first, second in combinations(columns, 2)
        }

    @cached_property
    def _distinct(self) -> list[int]:
        """The first place of each sequence: a variant given twice is one observation."""
        places = reversed(list(enumerate(self.variants)))
        return list({variant.sequence: at for at, variant in places}.values())

    @property
    def _several(self) -> list[Variant]:
        """Variants of several changes: one by itself has one order."""
        return [variant for variant in self.variants if variant.changes > 1]

    @property
    def _comparable(self) -> bool:
        return len(self.variants) > 1 and bool(self._several)

    def lines(self) -> Iterable[str]:
        head = "".join(f" {HEADS[name]:>9}" for name in self.variants[0].scores)
        over = f"rank {'mean':>9} {'sd':>7} {'lowest':>7} {'highest':>7}"
        yield f"{'over orders':>38} | by each convention, nats"
        yield f"{over} |{head} | swaps  variant"
        for rank, variant in enumerate(self.variants[:MAX_PRINTED], 1):
            mark = " " if variant.exact else "~"
            scores = "".join(f" {value:9.3f}" for value in variant.scores.values())
            mean, sd = variant.mean_over_orders.value, variant.order_sd.value
            ends = f"{variant.lowest_order:7.2f} {variant.highest_order:7.2f}"
            yield (
                f"{rank:4} {mark}{mean:8.3f} {mark}{sd:6.3f} {ends} |{scores} | "
                f"{variant.swaps:5}  {variant.name}"
            )
        if len(self.variants) > MAX_PRINTED:
            yield f"and {counted(len(self.variants) - MAX_PRINTED, 'variant')} more"
        yield (
            "log-ratio to the parent; swaps: other variants that more than "
            f"{SWAP_SHARE:.0%} of the orders rank the other way round"
        )
        exact = sum(variant.exact for variant in self.variants)
        drawn = len(self.variants) - exact
        kinds = []
        if exact:
            kinds.append(f"{counted(exact, 'variant')} over all orders (exact up to rounding)")
        if drawn:
            most = max(variant.orders for variant in self.variants)
            kinds.append(f"{counted(drawn, 'variant')} over {most:,} orders (~, estimates)")
        yield f"mean and sd of {', '.join(kinds)}; each convention by itself is {self.kind}"
        yield from self._comparison()

    def _comparison(self) -> Iterable[str]:
        for estimate, what in (
            (self.order_sd, "standard deviation over orders, mean over variants"),
            (self.order_range, "highest order less lowest, mean over variants"),
            (self.between_variants_sd, "standard deviation between variants"),
        ):
            if estimate is None:
                return
            yield f"{what}: {estimate.text()}"
        flagged, n = self.flagged_pairs, len(self.disagreement)
        orders = f"{'all ' * self.every_order}{self.along.shape[1]:,} orders"
        kind = "exact" if self.every_order else "an estimate"
        yield (
            f"the order decides between {flagged['count']:,} of "
            f"{counted(n * (n - 1) // 2, 'pair')} of variants: more than {SWAP_SHARE:.0%} of "
            f"{orders} rank them the other way round ({kind})"
        )
        if self.order_agreement is not None:
            yield (
                "one order's ranking compared with another's, Spearman: "
                f"{self.order_agreement.text()}"
            )
        for (first, second), correlation in self.correlations.items():
            if first == MEAN and len(self.variants) > 3:
                yield f"Spearman of {LABELS[first]} and {LABELS[second]}: {correlation.text()}"

    def table(self) -> Iterable[dict[str, object]]:
        """One row per variant, the best first."""
        return [{"rank": rank} | row.row() for rank, row in enumerate(self.variants, 1)]

    def figures(self) -> "dict[str, go.Figure]":
        """The scores with their spread over orders; the spread; conventions next to the mean."""
        from glauber.interfaces.plots.proteins import (
            plot_conventions,
            plot_order_scores,
            plot_order_spread,
        )

        figures = {"scores": plot_order_scores(self.variants)}
        if self._comparable:
            figures["spread"] = plot_order_spread(self.variants)
            figures["conventions"] = plot_conventions(self.variants, LABELS)
        return figures

    def records(self) -> Iterable[Row]:
        """Each variant with its score and the spread over orders in the header."""
        for variant in self.variants:
            by_name = variant.name == variant.mutations
            mutations = "" if by_name else f" mutations={variant.mutations or 'none'}"
            yield Row(variant.sequence, f"{variant.name} {variant.header}{mutations}")
