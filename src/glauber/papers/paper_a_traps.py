"""Paper A on its traps, besides table 5: how they begin, hold and end, and those it quotes."""

from collections.abc import Callable, Iterable
from math import log
from typing import Any

import numpy as np

from glauber.foundation.statistics import (
    Estimate,
    clopper_pearson,
    clustered_mean,
    difference,
    jackknife,
)
from glauber.papers.claims import Quantity, Region, above, at_least, at_most, below, near
from glauber.papers.paper_a import BERT, SHARE, SMALL, TABLE_5, choose, share_of
from glauber.papers.piece import BART, Answers, Piece, Published, Row, columns
from glauber.papers.work import Settings, published_name
from glauber.sampling.reopened import drawn_from
from glauber.studies.landscape.persistence import Stay, persistence
from glauber.studies.landscape.scorers import SIMILARITY
from glauber.studies.metastability.quoted_traps import COHERENT, NONSENSICAL, quoted_traps
from glauber.studies.metastability.traps import RankCorrelation, Trap, TrapList, TrapSearch

A1, C2 = "paper A, appendix A.1", "paper A, appendix C.2"
DEPTH = "paper A, section 6.2.2"
NAMES = {"by_min_gap": "smallest gap", "by_escape_moves": "number of escape moves"}
TABLE_5_CHAINS = (
    "{chains} chains of {steps:,} steps from passages cut to {length} tokens, {model} at "
    "temperature {temperature:g}"
)
RARE = 0.1  # a token is improbable below this
PLL = (
    "coherence: pseudo-log-likelihood per token at temperature 1, which is computed from the same "
    "conditionals as the gaps"
)


def ask_mechanisms(s: Settings) -> dict[str, object]:
    run = s.run(s.chain_set())
    embedder = choose(run, s.embedder)
    drawn = drawn_from(run, model=None, device=s.device, precise=True)
    search = TrapSearch(run, drawn.conditionals, drawn.device, s.neighbours)
    begun = [search.neighbourhood(chain, run.tokens(0)[chain]) for chain in range(run.n_chains)]
    return {
        "rolling": search.rolling(embedder),
        "starts": [around.reinforcement for around in begun if around is not None],
        "embedded": embedder,
    }


def mechanism_rows(a: Answers) -> list[Row]:
    catalogue: TrapList = a.rolling
    published = {"perfect": "4 of 17", "approximate": "13 of 17, 150 to 1,200 steps"}
    rows = [
        row
        for each in catalogue.by_type
        for row in columns(
            [each],
            *("type", "n_traps", "n_unfinished", "mean", "shortest", "longest"),
            published=published[each.type],
        )
    ]
    rows += columns(
        catalogue.family_durations, *("n_chains", "steps", "most_traps", "most_steps"), families=1
    )
    for trap in catalogue.by_duration[:20]:
        around, entry, escape = trap.neighbourhood, trap.entry, trap.escape
        rows += columns(
            [trap],
            *("chain", "first", "duration", "type", "holding_time", "coherence", "escape_moves"),
            exit_time=around and float(np.exp(around.log_exit_time)),
            reinforcement=around and around.reinforcement,
            drift_before=entry and entry.drift_before,
            growth_before=entry and entry.growth_before,
            growth_after=entry and entry.growth_after,
            escape_probability=escape and escape.probability,
            at_weakest=escape and escape.at_weakest,
            looseness_by_prefactor=trap.log10_looseness_by_prefactor,
            looseness_by_smallest_gap=trap.log10_looseness_by_smallest_gap,
        )
    return rows


def mean_of(
    catalogue: TrapList,
    value: Callable[[Trap], float | None],
    bounds: tuple[float, float] | None = None,
) -> Estimate:
    """The mean over the traps that have the value, with an interval over chains."""
    pairs = [(value(trap), trap.chain) for trap in catalogue.traps]
    known = [(number, chain) for number, chain in pairs if number is not None]
    if not known:
        return Estimate(float("nan"), None, reason="no such trap was found")
    numbers, chains = zip(*known, strict=True)
    return clustered_mean(numbers, chains, bounds=bounds)


def exit_ratio(trap: Trap) -> float | None:
    """log of the exit time of an approximate trap's neighbourhood over its holding time."""
    if trap.perfect or trap.neighbourhood is None:
        return None
    return trap.neighbourhood.log_exit_time + trap.margins.log_escape_rate


def prefactor_share(trap: Trap) -> float | None:
    """The prefactor's share of the logarithm by which a perfect trap's bound is too large."""
    parts = trap.margins.log_looseness
    return None if parts is None else parts[0] / sum(parts)


def slowing(trap: Trap) -> float | None:
    """Growth of the distance from the start before a trap begins, less that after."""
    return None if trap.entry is None else trap.entry.growth_before - trap.entry.growth_after


def coherence_by_type(catalogue: TrapList) -> Estimate:
    """Mean coherence of perfect traps less that of approximate ones, leaving out each chain."""
    sums, counts = np.zeros((2, 2, catalogue.n_chains))
    for trap in catalogue.traps:
        sums[int(trap.perfect), trap.chain] += trap.coherence
        counts[int(trap.perfect), trap.chain] += 1
    if not counts.sum(axis=1).all():
        return Estimate(float("nan"), None, reason="the traps are all of one type")

    def contrast(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        present = counts @ weights
        if not present.all():
            return np.full(1, np.nan)
        approximate, perfect = sums @ weights / present
        return np.array([perfect - approximate])

    return jackknife(contrast, catalogue.n_chains).item(0)


def reinforcement(a: Answers) -> Estimate:
    """That of approximate traps, by chain, less that of the texts in which chains began."""
    by_chain: dict[int, list[float]] = {}
    for trap in a.rolling.traps:
        if not trap.perfect and trap.neighbourhood is not None:
            by_chain.setdefault(trap.chain, []).append(trap.neighbourhood.reinforcement)
    return difference([float(np.mean(values)) for values in by_chain.values()], a.starts)


def longest_family(catalogue: TrapList) -> Quantity:
    """The largest share of one chain's steps in several traps of one family."""
    shared = [each for each in catalogue.family_durations if each.most_traps > 1]
    if not shared:
        return Quantity("", None, reason="no chain has two traps of one family")
    most = max(each.most_steps for each in shared)
    return Quantity("", most / catalogue.n_steps, kind="exact", n=catalogue.n_chains)


def rank_correlation(catalogue: TrapList, by: str) -> Quantity:
    """A rank correlation of durations over families."""
    rank: RankCorrelation | None = catalogue.ranks and getattr(catalogue.ranks, by)
    return rank_quantity(rank, "families of traps", "too few families of traps")


def rank_quantity(rank: RankCorrelation | None, unit: str, missing: str) -> Quantity:
    """A rank correlation over independent units, or the reason why there is none."""
    if rank is None:
        return Quantity("", None, reason=missing)
    n, ends = rank.n_families, rank.interval
    return Quantity("", rank.value, ends, n, unit, bounds=(-1.0, 1.0), reason=rank.reason)


def depth_claim(regions: str, by: str, agrees: Region, effect: float, *choices: str) -> Published:
    """That deeper regions are harder to leave, by the rank correlation with durations."""
    return Published(
        f"regions with {regions} are harder to leave",
        DEPTH,
        "harder, no number",
        f"rank correlation (Somers' D) of a trap's duration with its {NAMES[by]}",
        lambda a: rank_correlation(a.rolling, by),
        agrees,
        effect=effect,
        choices=choices,
    )


MECHANISMS = Piece(
    "how traps begin, hold and end: entries, neighbourhoods, families, escapes, coherence",
    TABLE_5_CHAINS
    + "; rolling detector of the paper on {embedded.name}; exit times from the {neighbours} most "
    "probable texts one token away",
    small={**TABLE_5.small, "neighbours": 32},
    paper=TABLE_5.paper,
    published=TABLE_5.published,
    not_in_paper=("temperature",),
    chains=TABLE_5.chains,
    ask=ask_mechanisms,
    table=mechanism_rows,
    choices=TABLE_5.choices,
    differs=TABLE_5.differs,
    claims=[
        Published(
            "approximate traps persist for 150 to 1,200 steps",
            A1,
            "13 of 13",
            "share of the approximate traps of at most 1,200 steps",
            lambda a: share_of(
                a.rolling, lambda trap: trap.duration <= 1200, among=lambda trap: not trap.perfect
            ),
            at_least(clopper_pearson(13, 13)[0]),
            effect=1.0,
            choices=("0.75 or more: the interval of 13 of 13", "unfinished ones as they are"),
            bounds=SHARE,
        ),
        Published(
            "locked surroundings hold a trap whose single tokens are suboptimal",
            A1,
            "collective stability, no number",
            "log of the mean time until two tokens differ (lower bound) over the text's own "
            "holding time, approximate traps",
            lambda a: mean_of(a.rolling, exit_ratio),
            above(log(2)),
            effect=log(10),
            choices=("at least twice as long; power for ten times",),
        ),
        Published(
            "traps of one chain belong to one family, for over 3,000 combined steps",
            A1,
            0.3,
            "largest share of one chain's steps in several traps of one family",
            lambda a: longest_family(a.rolling),
            at_least(0.3),
            choices=("3,000 of 10,000 steps; a family: within 3 edits of a neighbour",),
        ),
        Published(
            "the prefactor and the smallest gap are the main sources of the bound's looseness",
            A1,
            "both, no number",
            "prefactor's share of the logarithm of bound over probability, perfect traps",
            lambda a: mean_of(a.rolling, prefactor_share, SHARE),
            Region(0.1, 0.9),
            effect=0.5,
            choices=(
                "prefactor: every other token as likely as the best; smallest gap: used for every "
                "site; a main source has at least a tenth of the logarithm",
            ),
            bounds=SHARE,
        ),
        Published(
            "a trap is entered as the distance from the start stops growing",
            C2,
            "stops growing",
            "growth of the distance in the 300 steps before a trap less that in the 300 after",
            lambda a: mean_of(a.rolling, slowing),
            above(0.0),
            effect=0.1,
            choices=("power for 0.1",),
        ),
        Published(
            "escapes are typically triggered by a low-probability token",
            C2,
            "typically",
            f"share of the steps that end a trap whose token had a probability below {RARE:g}",
            lambda a: share_of(
                a.rolling,
                lambda trap: trap.escape is not None and trap.escape.probability < RARE,
                among=lambda trap: trap.escape is not None,
            ),
            above(0.5),
            effect=0.75,
            choices=(f"low: below {RARE:g}; typically: more than half; power for three quarters",),
            bounds=SHARE,
        ),
        Published(
            "coherent traps tend to be perfect, incoherent ones approximate",
            C2,
            "tend to, no number",
            "mean coherence of the perfect traps less that of the approximate ones, nats a token",
            lambda a: coherence_by_type(a.rolling),
            above(0.0),
            effect=0.5,
            choices=(PLL, "power for half a nat"),
        ),
        Published(
            "in approximate traps each token is made likely by the others",
            C2,
            "mutual reinforcement, no number",
            "nats that a departure costs each other token, less that in the first texts of chains",
            reinforcement,
            above(0.0),
            effect=0.1,
            choices=("compared with the texts in which the chains begin; power for 0.1",),
        ),
        depth_claim("larger local margins", "by_min_gap", above(0.0), 0.3),
        depth_claim(
            "fewer likely escape moves",
            "by_escape_moves",
            below(0.0),
            -0.3,
            "moves: exp(entropy) of the site and token that end the trap's text",
        ),
    ],
)


def ask_quotes(s: Settings) -> dict[str, object]:
    return {"study": quoted_traps(s.model, temperature=s.temperature, device=s.device)}


def quote_rows(a: Answers) -> list[Row]:
    facts = [
        {"number": number, "fact": pair.fact.text, "other": pair.other.text}
        | {"fact_gap": pair.fact.mean_gap, "other_gap": pair.other.mean_gap}
        for number, pair in enumerate(a.study.facts)
    ]
    return [*a.study.rows(), *facts]


def quote_claims(a: Answers) -> Iterable[Published]:
    """Of the quotations that the model reads."""
    theme, scoring = a.study.trap("theme song"), a.study.trap("scoring")

    def entry(
        sentence: str, published: object, name: str, number: Any, region: Region
    ) -> Published:
        near_by = "within 0.05; final periods, which the quotations leave out, are ours"
        return Published(sentence, A1, published, name, number, region, choices=(near_by,))

    if theme is not None:
        name = "gap of the theme song"
        yield entry(
            "the theme song is a perfect trap", 0.56, f"smallest {name}", theme.min_gap, above(0.0)
        )
        if published_name(a.settings.model) == BERT:
            yield entry(
                "its mean gap is 5.44", 5.44, f"mean {name}", theme.mean_gap, near(5.44, 0.05)
            )
            yield entry(
                "its smallest gap is 0.56",
                0.56,
                f"smallest {name}",
                theme.min_gap,
                near(0.56, 0.05),
            )
    if scoring is not None:
        weak = [scoring.gap_of(word) for word in ("while", "would")]
        known = [gap for gap in weak if gap is not None]
        yield entry(
            "in the scoring sentence neither 'while' nor 'would' is the argmax",
            "gaps that are lost, at most 0",
            "larger gap of the two",
            max(known) if len(known) == 2 else None,
            at_most(0.0),
        )
        if published_name(a.settings.model) == BERT:
            yield entry(
                "the mean gap of the scoring sentence is 4.12",
                4.12,
                "mean gap of the scoring sentence",
                scoring.mean_gap,
                near(4.12, 0.05),
            )
    for meaning, kind in ((COHERENT, "perfect"), (NONSENSICAL, "approximate")):
        own = [each.ours for each in a.study.traps if each.published.meaning == meaning]
        if own:
            yield Published(
                f"quoted {meaning} traps tend to be {kind}",
                C2,
                "tend to",
                f"share of the {len(own)} quoted {meaning} traps that are {kind}",
                sum(text.type == kind for text in own) / len(own),
                above(0.5),
            )
    if a.study.facts:
        yield Published(
            "factual specificity makes strong traps",
            A1,
            "a hypothesis, no number",
            "mean gap of facts less that of other sentences of the same form",
            a.study.fact_gap,
            above(0.0),
            effect=1.0,
            choices=(
                f"{len(a.study.facts)} pairs of sentences with equally many words, which we chose",
                "power for a gap of 1",
            ),
            unit="pairs",
        )


QUOTES = Piece(
    "the traps that the paper quotes, and facts next to other sentences",
    "gaps of the quoted texts on {model} in float64, at temperature {temperature:g} for the "
    "holding times; the gaps of an excerpt are those of the excerpt",
    small=dict(model=SMALL, temperature=1.0),
    paper=dict(model=BERT),
    not_in_paper=("temperature",),
    ask=ask_quotes,
    table=quote_rows,
    figures=lambda a: a.study.figures(),
    claims=quote_claims,
    differs=TABLE_5.differs,
)


def ask_persistence(s: Settings) -> dict[str, object]:
    run = s.run(s.chain_set())
    embedder = choose(run, s.embedder)
    return {
        "basins": persistence(run, of="basins", embedder=embedder, device=s.device),
        "topics": persistence(
            run, of="topics", scorer=s.scorer, embedder=embedder, device=s.device
        ),
        "embedded": embedder,
    }


def persistence_claims(a: Answers) -> Iterable[Published]:
    for stays in (a.basins, a.topics):
        for sentence, by, region, effect in (
            ("larger local margins", "by_min_gap", above(0.0), 0.3),
            ("fewer likely escape moves", "by_escape_moves", below(0.0), -0.3),
        ):
            ranks = stays.ranks
            rank: RankCorrelation | None = ranks and getattr(ranks, by)
            yield Published(
                f"regions with {sentence} are harder to leave (by {stays.of})",
                DEPTH,
                "harder, no number",
                f"Somers' D of the duration of stays and the mean {NAMES[by]} of their texts",
                rank_quantity(rank, "chains", "stays in too few chains"),
                region,
                effect=effect,
                choices=("stays: snapshots in a row with one label; over pairs of chains",),
            )


PERSISTENCE = Piece(
    "how long chains stay in basins and with topics, by the margins of their texts",
    TABLE_5_CHAINS + "; basins of the Markov model on {embedded.name}, topics by {scorer}",
    small={**TABLE_5.small, "scorer": SIMILARITY},
    paper={**TABLE_5.paper, "scorer": BART},
    not_in_paper=("temperature",),
    choices=("the chains are those of table 5: the paper gives no protocol",),
    chains=TABLE_5.chains,
    ask=ask_persistence,
    table=lambda a: [
        row
        for stays in (a.basins, a.topics)
        for label in sorted({stay.label for stay in stays.stays})
        for row in label_rows([stay for stay in stays.stays if stay.label == label])
    ],
    figures=lambda a: {"basins": a.basins.figure(), "topics": a.topics.figure()},
    claims=persistence_claims,
)


def label_rows(stays: list[Stay]) -> list[Row]:
    """The means over the stays of one label."""
    names = "duration", "mean_gap", "min_gap", "escape_moves", "escape_rate"
    means = {name: float(np.mean([getattr(stay, name) for stay in stays])) for name in names}
    return [{"label": stays[0].label, "stays": len(stays)} | means | {"kind": "estimate"}]


PIECES = {"A-persistence": PERSISTENCE, "A-quotes": QUOTES, "A-traps": MECHANISMS}
