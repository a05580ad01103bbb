"""Paper A, where chains get stuck: table 5, the traps.

The text of the paper that we have lost the temperature of the chains, so it is ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from glauber.errors import GlauberError
from glauber.metastability.traps import PUBLISHED, Trap, TrapList, trap_ranks
from glauber.papers.claims import EXACT, Claim, Quantity, Region, above, at_least, near
from glauber.papers.paper import Reproduction
from glauber.papers.settings import TOKENS, Chains, Piece, Scale, Settings, embeddings
from glauber.result import columns_of
from glauber.statistics import (
    Estimate,
    clopper_pearson,
    clustered_mean,
    clustered_proportion,
    mean_over_chains,
)

LONGEST = 20  # traps listed of each detector
PERIODS = " ".join(["."] * 15)
# The eight traps that table 5 lists: duration, mean gap, min gap. The min gaps of the approximate
# traps are lost in the text of the paper that we have; as such traps they have one of at most 0.
LISTED: tuple[tuple[int, float, float | None], ...] = (
    (4950, 9.14, 7.46), (650, 5.44, 0.56), (350, 4.16, 0.06), (350, 5.78, 0.01),
    (1200, 4.12, None), (1050, 4.99, None), (300, 9.23, None), (650, 3.10, None),
)  # fmt: skip
TABLE5 = "paper A, appendix A.1 and table 5"
TAKES = ("model", "texts", "temperature", "chains", "steps", "embedder", "device")


@dataclass(frozen=True)
class Conditions:
    """One scale's model, embedding and sizes."""

    model: str
    embedder: str | None  # none: the one in the package
    length: int
    chains: int
    steps: int
    temperature: float
    how: dict[str, Any]  # what the embedding model asks for beside its name


CONDITIONS: dict[Scale, Conditions] = {
    # 0.5: there texts of 12 tokens hold for one to nine sweeps, and their neighbourhoods for
    # hundreds of steps; at 1 they hold for less than a sweep, and no trap is found.
    "small": Conditions("bundled:english", None, 12, 8, 1500, temperature=0.5, how={}),
    # The text of the paper that we have does not say at which temperature it found its traps;
    # at 1 it has the chain wander among basins.
    "paper": Conditions(
        "bert-base-uncased",
        "jinaai/jina-embeddings-v4",
        20,
        30,
        10_000,
        temperature=1.0,
        how={"trust_remote_code": True, "task": "text-matching"},
    ),
}


def table5_chains(settings: Settings) -> list[Chains]:
    """The one run whose traps are listed."""
    found = settings.over(CONDITIONS[settings.scale])
    return [
        Chains(
            found.model, settings.texts, found.steps, found.chains, found.length,
            found.temperature, settings.seed,
        )
    ]  # fmt: skip


def table5(settings: Settings) -> Reproduction:
    """Summaries of both detectors beside the published one, their longest traps, and pictures."""
    from glauber.metastability.traps import traps
    from glauber.runs.embedding import choose_embedder, load_embedder

    found = settings.over(CONDITIONS[settings.scale])
    (chains,) = table5_chains(settings)
    run = settings.run(chains)
    if found.embedder in (None, TOKENS):
        embedder = choose_embedder(run, found.embedder)
    else:
        embedder = load_embedder(found.embedder, **found.how)
    study = traps(run, embedder=embedder, device=settings.device)
    rows = [_summary_row(each) for each in study.catalogues]
    periods = _periods(settings, found)
    rows += [] if periods is None else [periods]
    rows += [
        _trap_row(each, trap) for each in study.catalogues for trap in each.by_duration[:LONGEST]
    ]
    how = (
        f"{found.chains} chains of {found.steps:,} steps from "
        f"{'the bundled passages' if settings.texts is None else 'texts of your own'}, cut to "
        f"{found.length} tokens, {found.model} at temperature {found.temperature:g}; rolling "
        f"detector of the paper on {embedder.name}, and balls of Hamming radius 1"
    )
    claims = _claims(study.catalogues[0]) + _claims_on_periods(found.model, periods)
    ours = f"temperature {found.temperature:g}: the paper's is lost"
    return Reproduction.of(
        settings, how, rows, claims=[replace(one, ours=(*one.ours, ours)) for one in claims],
        pictures=study.figures(), model=found.model, differs=_differs(settings, found), ours=[ours],
    )  # fmt: skip


def _differs(settings: Settings, found: Conditions) -> list[str]:
    published = CONDITIONS["paper"]
    texts = "the bundled passages" if settings.texts is None else "texts of your own"
    differs = [f"{texts} in place of MS MARCO"]
    if found.model != published.model:
        differs.append(f"{found.model} in place of BERT-base")
    if found.embedder != published.embedder:
        differs.append("the embedding in the package in place of Jina v4")
    if (found.chains, found.steps) != (published.chains, published.steps):
        differs.append(f"{found.chains} chains of {found.steps:,} steps, not 30 of 10,000")
    if found.length != 15:
        differs.append(f"{found.length} tokens: the paper's longest trap has 15")
    return differs


def _claims(found: TrapList) -> list[Claim]:
    """What the paper says of its catalogue, of ours by the same detector."""
    traps, chain = found.traps, [trap.chain for trap in found.traps]
    by_chain = np.bincount(np.array(chain, np.int64), minlength=found.n_chains)
    count = mean_over_chains(
        by_chain * 30 * 10_000 / found.n_steps, bounds=(0.0, np.inf)
    )  # of as many steps as the paper's
    per_chain = _poisson_ends(PUBLISHED["traps"])
    perfect = _share(traps, [trap.perfect for trap in traps], found.n_chains)
    duration = (
        clustered_mean([trap.duration for trap in traps], chain, bounds=(150, np.inf))
        if traps
        else _nothing("no trap was found")
    )
    return [
        _gap_claim(found),
        Claim(
            "17 traps in 30 chains of 10,000 steps", TABLE5, PUBLISHED["traps"],
            Quantity.of("traps in 300,000 steps of chains", count, bounds=(0.0, np.inf)),
            Region(*per_chain, strict=False),
            ours=(f"{per_chain[0]:.1f} to {per_chain[1]:.1f}: the Poisson interval of 17",),
        ),
        Claim(
            "4 of the 17 traps are perfect, 13 approximate", TABLE5, "4 of 17",
            Quantity.of("share of the traps that are perfect", perfect, bounds=(0.0, 1.0)),
            Region(*clopper_pearson(4, 17), strict=False),
            effect=4 / 17, ours=("0.07 to 0.50: the interval of 4 of 17",),
        ),
        Claim(
            "traps last 671 steps on average, from 150 to 4,950", TABLE5, 671,
            Quantity.of("mean duration of a trap, cut ones as they are", duration),
            Region(671 / 2, 671 * 2, strict=False),
            ours=("within a factor of two counts as the same: the paper gives no error",),
        ),
        _vacuous_claim(traps),
        _weakest_claim(traps, found.n_chains),
    ]  # fmt: skip


def _gap_claim(found: TrapList) -> Claim:
    apart = None if found.ranks is None else found.ranks.difference
    name = "rank correlation (Somers' D) by the mean gap less that by the min gap"
    quantity = (
        Quantity(name, None, reason="too few families of traps")
        if apart is None
        else Quantity(
            name, apart.value, apart.interval, apart.n_families, "families of traps",
            bounds=(-2.0, 2.0), reason=apart.reason,
        )
    )  # fmt: skip
    return Claim(
        "the mean gap correlates better with observed duration than the minimal gap", TABLE5,
        "better, no number",
        quantity, above(0.0), effect=0.3,
        ours=("power for a difference of 0.3", listed_ranks().line),
    )  # fmt: skip


@dataclass(frozen=True)
class ListedRanks:
    """Somers' D of duration and gap of the eight traps that the paper lists, computed by us."""

    by_mean_gap: float
    by_min_gap: tuple[float, float]  # least and largest over all that the lost min gaps may be

    @property
    def line(self) -> str:
        low, high = self.by_min_gap
        return (
            f"computed by us from the {len(LISTED)} traps of the published table: D is "
            f"{self.by_mean_gap:.2f} by the mean gap, and between {low:.2f} and {high:.2f} by the "
            "min gap, four of which are lost (any values up to 0)"
        )


def listed_ranks() -> ListedRanks:
    """How the durations of the paper's eight listed traps rank with their gaps.

    The lost min gaps lie below the four that are known, so only their own order matters: every
    order of them with ties is tried.
    """
    lasted, means, least = zip(*LISTED, strict=True)
    n_lost, each = least.count(None), range(len(LISTED))
    correlations = []
    for order in product(range(n_lost), repeat=n_lost):
        lost = iter(order)
        filled = [-float(next(lost)) if gap is None else gap for gap in least]
        ranks = trap_ranks(lasted, [True] * len(each), [means, filled], text=each, family=each)
        assert ranks is not None  # eight families, whose order is known
        correlations.append((ranks.by_mean_gap.value, ranks.by_min_gap.value))
    by_mean_gap, by_min_gap = zip(*correlations, strict=True)
    return ListedRanks(by_mean_gap[0], (min(by_min_gap), max(by_min_gap)))


def _vacuous_claim(traps: Sequence[Trap]) -> Claim:
    perfect = [trap for trap in traps if trap.perfect]
    empty = sum(trap.margins.vacuous for trap in perfect)
    value = empty / len(perfect) if perfect else None
    return Claim(
        "for all observed perfect traps the bound falls below one step", TABLE5, 1.0,
        Quantity(
            f"share of the {len(perfect)} perfect traps found whose bound is vacuous", value,
            kind=EXACT, n=len(perfect), unit="traps", reason="" if perfect else "none is perfect",
        ),
        at_least(1.0),
    )  # fmt: skip


def _weakest_claim(traps: Sequence[Trap], n_chains: int) -> Claim:
    left = [trap for trap in traps if trap.escape is not None]
    at_weakest = [
        trap.escape is not None and trap.escape.site == trap.weakest.site for trap in left
    ]
    return Claim(
        "escapes are typically triggered at the weakest-scoring position", "paper A, appendix C.2",
        "typically",
        Quantity.of("share of escapes at the site with the smallest gap",
                    _share(left, at_weakest, n_chains), bounds=(0.0, 1.0)),
        above(0.5), effect=0.75, ours=("typically: more than half; power for three quarters",),
    )  # fmt: skip


def _share(traps: Sequence[Trap], which: Sequence[bool], n_chains: int) -> Estimate:
    """The share of traps that are so, with an interval over chains."""
    if not traps:
        return _nothing("no such trap was found")
    counts, totals = np.zeros((2, n_chains))
    for trap, one in zip(traps, which, strict=True):
        counts[trap.chain] += one
        totals[trap.chain] += 1
    return clustered_proportion(counts, totals)


def _nothing(reason: str) -> Estimate:
    return Estimate(float("nan"), None, reason=reason)


def _poisson_ends(count: int) -> tuple[float, float]:
    """Between which the mean of a Poisson count lies, at 95%."""
    from scipy.special import gammaincinv

    return float(gammaincinv(count, 0.025)), float(gammaincinv(count + 1, 0.975))


def _periods(settings: Settings, found: Conditions) -> dict[str, Any] | None:
    """The paper's deepest trap, fifteen periods, in this model; none where it has no such text."""
    from glauber.metastability.margins import margins

    device = settings.device
    try:
        study = margins(found.model, PERIODS, temperature=found.temperature, device=device)
        held = study.margins
    except GlauberError:
        return None
    published = PUBLISHED["fifteen_periods"]
    return {
        "trap": "the paper's longest",
        "detector": "none: the text alone",
        "text": study.text,
        "mean gap": float(held.gaps.mean()),
        "min gap": held.margin,
        "perfect": held.perfect,
        "holds, exact": held.holding_time,
        "escape bound": _bound(held.escape_bound),
        "published mean gap, min gap, duration": list(published.values()),
    }


def _claims_on_periods(model: str, row: dict[str, Any] | None) -> list[Claim]:
    """That fifteen periods are a perfect trap; their gaps, where the model is the paper's."""
    if row is None:
        return []
    published = PUBLISHED["fifteen_periods"]
    gap = Quantity("smallest gap of fifteen periods", row["min gap"], kind=EXACT)
    claims = [
        Claim(
            "a string of 15 periods is a perfect trap: every token is the argmax", TABLE5,
            published["min_gap"], gap, above(0.0),
        )
    ]  # fmt: skip
    if model == PUBLISHED["model"]:
        for name, key in (("mean", "mean_gap"), ("smallest", "min_gap")):
            own = Quantity(f"{name} gap of fifteen periods", row[f"{key[:-4]} gap"], kind=EXACT)
            claims.append(
                Claim(
                    f"the {name} gap of fifteen periods is {published[key]}", TABLE5,
                    published[key], own, near(published[key], 0.05), ours=("within 0.05",),
                )
            )  # fmt: skip
    return claims


def _summary_row(found: TrapList) -> dict[str, Any]:
    ranks, mean, seen = found.ranks, found.mean_duration, found.seen_to_exact
    gaps = [None, None] if ranks is None else [ranks.by_mean_gap, ranks.by_min_gap]
    return {
        "detector": found.detector,
        "traps": found.n_traps,
        "perfect": found.n_perfect,
        "unfinished": found.n_unfinished,
        "without gaps, not counted": len(found.skipped),
        "families": len(found.families),
        "mean duration": None if mean is None else mean.value,
        "its interval": None if mean is None else mean.interval,
        "range": [found.shortest, found.longest],
        "rank correlation of duration with mean gap, min gap": [
            None if each is None else each.value for each in gaps
        ],
        "their intervals": [None if each is None else each.interval for each in gaps],
        "better predictor": (ranks and ranks.better) or "cannot tell",
        "seen over exact holding time": None if seen is None else seen.value,
        "interval of that": None if seen is None else seen.interval,
        "kind": "estimate",
        "published traps, perfect": [PUBLISHED["traps"], PUBLISHED["perfect"]],
        "published mean duration": PUBLISHED["mean_duration"],
        "published range": [PUBLISHED["shortest"], PUBLISHED["longest"]],
        "published better predictor": PUBLISHED["better_predictor"],
    }


def _trap_row(found: TrapList, trap: Trap) -> dict[str, Any]:
    own = columns_of(trap)
    return {
        "trap": f"{found.detector}, chain {own['chain']}, step {own['first']:,}",
        "detector": found.detector,
        "text": own["text"],
        "duration": own["duration"],
        "duration is": own["duration_kind"],
        "mean gap": own["mean_gap"],
        "min gap": own["min_gap"],
        "perfect": own["perfect"],
        "holds, exact": own["holding_time"],
        "escape bound": _bound(own["escape_bound"]),
    }


def _bound(value: float | None) -> str:
    """The theorem's bound, called vacuous where it is one or more."""
    if value is None:
        return "none: not perfect"
    return f"vacuous ({value:.3g})" if value >= 1 else f"{value:.3g}, {1 / value:,.3g} steps"


PIECES = {
    "A-table5": Piece(
        "the catalogue of traps: texts, gaps and durations", table5, TAKES, table5_chains,
        seconds=35, extras=embeddings,
    ),
}  # fmt: skip
