"""What does a model say of mutants? All single ones as a map, or variants of several changes.

A single mutant has one order, so its score is the log-ratio with its site hidden in the parent.
Variants of several changes are scored by every convention of `order_scores`.
"""

from collections.abc import Callable, Sequence
from math import factorial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from glauber.conditionals.files import Row
from glauber.conditionals.load import load
from glauber.conditionals.starts import skip
from glauber.dynamics.constrained import Constrained
from glauber.errors import GlauberError
from glauber.parameters import Device, Dtype, ModelOrName, Seed, Trust
from glauber.progress import check_count, check_seed, say, track
from glauber.proteins.mutations import (
    Mutations,
    apply,
    are_mutations,
    read_mutations,
    spelled_mutations,
)
from glauber.proteins.order_scores import (
    CONVENTIONS,
    DRAWN,
    LISTED,
    Changed,
    Questions,
    Rankings,
    asked_along,
    drawn_rankings,
    every_ranking,
    followed_exactly,
    gains,
    over_all_orders,
    pseudo_likelihood_ratio,
    sums_along,
)
from glauber.proteins.parent import (
    Parent,
    changed_tokens,
    mutations_of,
    open_parent,
    read_parent,
    read_variants,
)
from glauber.proteins.regions import check_loops
from glauber.proteins.singles import Singles, single_mutants
from glauber.proteins.variants import Variant, Variants
from glauber.result import counted, needed, report_skipped, signature, study
from glauber.statistics import Estimate, Floats, jackknife, mean_over_chains


@study
def mutate(
    model: ModelOrName = "bundled:english",
    parent: Annotated[str | Path | None, "A sequence, or a FASTA file with one."] = None,
    variants: Annotated[
        str | Path | Sequence[str] | None,
        "A23G:Y45F,S31T, whole sequences, or a file: FASTA, or CSV with a column of them.",
    ] = None,
    *,
    positions: Annotated[
        Sequence[int] | str | None, "Of single mutants: such as 97-109,31 or H3, counted from 1."
    ] = None,
    orders: Annotated[
        int, "Orders to follow; all of them, exactly, where that costs no more rows."
    ] = 32,
    pll: Annotated[bool, "The pseudo-log-likelihood too: a row a letter and variant."] = True,
    column: Annotated[str | None, "Of a CSV file: the column that holds the variants."] = None,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
) -> "Singles | Variants":
    """Score all single mutants of a sequence, or variants with the error of their order.

    Without variants: the log-ratio of every other letter at each position, hidden in the parent.
    With variants: by wild-type fill, mutant fill, all hidden at once, pseudo-log-likelihood, and
    the mean over the orders of filling the changed letters one after the other, with its standard
    deviation over orders, and a flag where the order decides which of two variants is better.
    Written to .fasta, .csv or .parquet with --out, too.
    """
    check_count("number of orders", orders, most=10**6)
    check_seed(seed)
    named = read_parent(needed("parent", parent))  # type: ignore[arg-type]
    listed = None if variants is None else read_variants(variants, column)
    _check_asked(listed, positions, column)
    if listed is not None:  # what is spelled wrongly is seen before a model is loaded
        spelled = _legible(listed, lambda row: are_mutations(row.text) and read_mutations(row.text))
        listed = [row for row, _ in spelled]
    if isinstance(model, Constrained):
        raise GlauberError("mutants are scored by the model itself: give it without constraints.")
    opened = load(
        model, device=device, dtype=dtype, trust_remote_code=trust_remote_code, exact=True
    )
    if not getattr(opened, "whole_vocabulary", True):
        raise GlauberError(
            f"{opened.name} does not score the whole vocabulary at a hidden site, as mutants need."
        )
    begun = open_parent(opened, named)
    if listed is None:
        return single_mutants(begun, positions)
    return score_variants(begun, listed, orders=orders, pll=pll, seed=seed)


def _check_asked(listed: list[Row] | None, positions: Any, column: str | None) -> None:
    if listed is not None and positions is not None:
        raise GlauberError("positions choose single mutants, but variants say their own.")
    if listed is None and column is not None:
        raise GlauberError("a column is one of a CSV file of variants, and none was given.")
    if isinstance(positions, str):
        check_loops(positions)


def _legible(listed: list[Row], read: Callable[[Row], Any]) -> list[tuple[Row, Any]]:
    """What `read` makes of each variant; those that it refuses are left out and reported."""
    pairs, skipped = [], []
    for row in listed:
        try:
            pairs.append((row, read(row)))
        except GlauberError as error:
            if len(listed) == 1:
                raise
            skipped.append(skip(row, f"cannot be scored: {str(error).rstrip('.')}"))
    report_skipped(skipped, len(listed))
    return pairs


def score_variants(
    parent: Parent, listed: list[Row], *, orders: int, pll: bool, seed: int
) -> Variants:
    """The variants of a parent by every convention and over orders, the best first."""
    mutations = dict(_legible(listed, lambda row: mutations_of(parent, row)))
    changes = dict(_legible(list(mutations), lambda row: changed_tokens(parent, mutations[row])))
    changed = list(changes.values())
    rankings = _rankings(changed, orders, seed)
    ask = Questions(parent.tokens)
    _score(ask, parent, changed, rankings, orders, pll)
    say(
        f"{counted(len(changed), 'variant')}: {ask.rows:,} rows of {len(parent.tokens)} tokens "
        f"through {parent.model.name}"
    )
    with track("rows", ask.rows) as advance:
        ask.ask(parent.model, advance)
    scored = _score(ask, parent, changed, rankings, orders, pll)
    found = [
        _named(parent, row, mutations[row], each) for row, each in zip(changes, scored, strict=True)
    ]
    ranked = sorted(range(len(found)), key=lambda i: -found[i].mean.value)
    asked = {"variants": len(found), "orders": orders, "seed": seed}
    return Variants(
        [found[i] for i in ranked],
        np.stack([scored[i].along for i in ranked]),
        rankings.exact,
        parent.spelled,
        parent.model.name,
        parent.kind,
        seed,
        signature(**parent.parts(), **asked),
    )


def _rankings(changed: list[Changed], orders: int, seed: int) -> Rankings:
    """The orders that all variants are compared along: all of few sites, else drawn ones."""
    sites = sorted({site for one in changed for site in one.sites})
    if not all(followed_exactly(len(one.sites), orders) for one in changed):
        return drawn_rankings(sites, orders, seed)
    return every_ranking(sites) if len(sites) <= LISTED else drawn_rankings(sites, DRAWN, seed)


class Scored(NamedTuple):
    """What the conventions and the orders give for a variant."""

    scores: dict[str, float]
    along: Floats  # (orders,)
    mean: Estimate
    sd: Estimate
    low: float
    high: float


def _score(
    ask: Questions,
    parent: Parent,
    changed: list[Changed],
    rankings: Rankings,
    orders: int,
    pll: bool,
) -> list[Scored]:
    """The scores of every variant; before the questions are asked it only notes them."""
    found = []
    for one in changed:
        scores = {name: rule(ask, one) for name, rule in CONVENTIONS.items()}
        if pll:
            scores["pll"] = pseudo_likelihood_ratio(ask, one, parent.sites)
        found.append(Scored(scores, *_over_orders(ask, one, rankings, orders)))
    return found


def _over_orders(
    ask: Questions, variant: Changed, rankings: Rankings, orders: int
) -> tuple[Floats, Estimate, Estimate, float, float]:
    """Along each order; mean and standard deviation; lowest and highest."""
    followed = rankings.of(variant)
    if followed_exactly(len(variant.sites), orders):
        table = gains(ask, variant)
        every = over_all_orders(table)
        mean, sd = (Estimate(value, None, "exact") for value in (every.mean, every.sd))
        return sums_along(table, followed), mean, sd, every.low, every.high
    along = asked_along(ask, variant, followed)
    spread = jackknife(lambda w: np.asarray(_sd(along[w > 0])), len(along), scale="log").item()
    return along, mean_over_chains(along), spread, float(along.min()), float(along.max())


def _sd(values: Floats) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else float("nan")


def _named(parent: Parent, given: Row, mutations: Mutations, scored: Scored) -> Variant:
    letters = apply(parent.letters, mutations)
    blank = "" if parent.model.vocabulary.text.letters else " "
    spelled = spelled_mutations(mutations)
    exact = scored.mean.kind == "exact"
    return Variant(
        name=given.id or spelled or "parent",
        mutations=spelled,
        sequence=blank.join(letters),
        changes=len(mutations),
        scores=scored.scores,
        mean=scored.mean,
        sd=scored.sd,
        low=scored.low,
        high=scored.high,
        orders=factorial(len(mutations)) if exact else len(scored.along),
    )
