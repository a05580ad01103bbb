"""Which variants does a model prefer to the parent, and would another order say so too?"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from glauber.conditionals.files import Row
from glauber.json_text import Record
from glauber.proteins.fasta import SequenceResult
from glauber.proteins.order_scores import agreement, contrary
from glauber.result import counted, plain
from glauber.statistics import Estimate, Floats, jackknife, mean_over_chains, rank_correlation

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

CONTRARY = 0.05  # share of orders that rank two variants the other way round: then it is flagged
COMPARED = 1000  # variants, the best, of which every pair is compared
PRINTED = 40  # variants that are printed
PAIRS = 1000  # flagged pairs that a record holds, those that orders agree on least
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


@dataclass(frozen=True, eq=False)
class Variant:
    """A changed sequence with its scores beside the parent's, in nats."""

    name: str
    mutations: str  # as in A23G:Y45F
    sequence: str
    changes: int
    scores: dict[str, float]  # by convention
    mean: Estimate  # over orders
    sd: Estimate  # over orders
    low: float  # of the orders that were followed
    high: float
    orders: int  # that were followed

    @property
    def exact(self) -> bool:
        """Whether all orders were followed."""
        return self.mean.kind == "exact"

    @property
    def by_convention(self) -> dict[str, float]:
        return {MEAN: self.mean.value, **self.scores}

    def to_dict(self) -> Record:
        return {
            "name": self.name,
            "mutations": self.mutations,
            "sequence": self.sequence,
            "changes": self.changes,
            "mean_over_orders": plain(self.mean),
            "order_sd": plain(self.sd),
            "lowest_order": self.low,
            "highest_order": self.high,
            "orders": self.orders,
            **self.scores,
        }

    def to_row(self) -> Record:
        """A row of a table."""
        ends = self.mean.interval or (None, None)
        return self.to_dict() | {
            "mean_over_orders": self.mean.value,
            "mean_low": ends[0],
            "mean_high": ends[1],
            "order_sd": self.sd.value,
            "kind": self.mean.kind,
        }


@dataclass(frozen=True, eq=False)
class Variants(SequenceResult):
    """Variants by their mean over orders, the best first."""

    variants: list[Variant]
    along: Floats  # (variants, orders): the score along each of the same orders
    every_order: bool  # the columns of along are all orders
    parent: str
    name: str  # of the model
    kind: str  # of what one order or one convention says
    seed: int
    signature: str

    @cached_property
    def contrary(self) -> Floats:
        """The share of orders that rank two variants unlike their means, of the best 1,000."""
        means = np.array([one.mean.value for one in self.variants[:COMPARED]])
        return contrary(self.along[:COMPARED], means)

    @cached_property
    def swaps(self) -> list[int]:
        """With how many others each variant changes places in more than 5% of the orders."""
        found: list[int] = (self.contrary > CONTRARY).sum(axis=1).tolist()
        return found + [0] * (len(self.variants) - len(found))

    @property
    def flagged(self) -> tuple[int, int]:
        """Pairs that more than 5% of the orders rank the other way round, and all pairs."""
        compared = len(self.contrary)
        return sum(self.swaps) // 2, compared * (compared - 1) // 2

    @property
    def order_sd(self) -> Estimate:
        """The standard deviation over orders, mean over variants."""
        return mean_over_chains([one.sd.value for one in self._several], bounds=(0, np.inf))

    @property
    def order_range(self) -> Estimate:
        """The highest order less the lowest, mean over variants."""
        ranges = [one.high - one.low for one in self._several]
        return mean_over_chains(ranges, bounds=(0, np.inf))

    @property
    def between(self) -> Estimate:
        """The standard deviation between variants of their means over orders."""
        means = np.array([one.mean.value for one in self.variants])
        spread = jackknife(lambda w: np.std(means[w > 0], ddof=1), len(means), scale="log")
        return spread.item()

    @cached_property
    def agreement(self) -> Estimate:
        """Spearman's correlation of two orders' rankings, mean over pairs of orders."""
        along = self.along[self._distinct]
        found = jackknife(lambda w: np.asarray(agreement(along[w > 0])), len(along), scale="atanh")
        return found.item()

    @cached_property
    def correlations(self) -> dict[tuple[str, str], Estimate]:
        """Spearman's correlation between each two conventions, over different variants."""
        listed = [self.variants[at].by_convention for at in self._distinct]
        columns = {name: [one[name] for one in listed] for name in listed[0]}
        return {
            (one, other): rank_correlation(columns[one], columns[other])
            for one, other in combinations(columns, 2)
        }

    @cached_property
    def _distinct(self) -> list[int]:
        """The first place of each sequence: a variant given twice is one observation."""
        return list(
            {one.sequence: at for at, one in reversed(list(enumerate(self.variants)))}.values()
        )

    @property
    def _several(self) -> list[Variant]:
        """Variants of several changes: one by itself has one order."""
        return [one for one in self.variants if one.changes > 1]

    @property
    def _comparable(self) -> bool:
        return len(self.variants) > 1 and bool(self._several)

    def pairs(self) -> list[Record]:
        """The flagged pairs, those that orders agree on least first."""
        higher, lower = np.nonzero(np.triu(self.contrary > CONTRARY))
        shares = self.contrary[higher, lower]
        kind = "exact" if self.every_order else "estimate"
        return [
            {
                "higher": self.variants[int(higher[at])].name,
                "lower": self.variants[int(lower[at])].name,
                "contrary_orders": float(shares[at]),
                "kind": kind,
            }
            for at in shares.argsort()[::-1][:PAIRS]
        ]

    def to_dict(self) -> Record:
        flagged, pairs = self.flagged
        return {
            "model": self.name,
            "unit": "nats",
            "kind": self.kind,
            "parent": self.parent,
            "seed": self.seed,
            "variants": [
                one.to_dict() | {"swaps": swaps}
                for one, swaps in zip(self.variants, self.swaps, strict=True)
            ],
            "compared_orders": {"count": self.along.shape[1], "all": self.every_order},
            "flagged_pairs": {"count": flagged, "of": pairs, "share_of_orders": CONTRARY},
            "pairs": self.pairs(),
            **(self._summary() if self._comparable else {}),
            "signature": self.signature,
        }

    def _summary(self) -> Record:
        return {
            "order_sd": plain(self.order_sd),
            "order_range": plain(self.order_range),
            "between_variants_sd": plain(self.between),
            "order_agreement": plain(self.agreement),
            "spearman": [
                {"of": one, "with": other, **plain(found)}
                for (one, other), found in self.correlations.items()
            ],
        }

    def lines(self) -> Iterable[str]:
        head = "".join(f" {HEADS[name]:>9}" for name in self.variants[0].scores)
        over = f"rank {'mean':>9} {'sd':>7} {'lowest':>7} {'highest':>7}"
        yield f"{'over orders':>38} | by each convention, nats"
        yield f"{over} |{head} | swaps  variant"
        for rank, (one, swaps) in enumerate(zip(self.variants, self.swaps, strict=True), 1):
            if rank > PRINTED:
                yield f"and {counted(len(self.variants) - PRINTED, 'variant')} more"
                break
            mark = " " if one.exact else "~"
            shown = "".join(f" {value:9.3f}" for value in one.scores.values())
            orders = f"{mark}{one.mean.value:8.3f} {mark}{one.sd.value:6.3f}"
            ends = f"{one.low:7.2f} {one.high:7.2f}"
            yield f"{rank:4} {orders} {ends} |{shown} | {swaps:5}  {one.name}"
        yield from self._meaning()
        if self._comparable:
            yield from self._compared()

    def _meaning(self) -> Iterable[str]:
        yield (
            "log-ratio to the parent; swaps: other variants that more than "
            f"{CONTRARY:.0%} of the orders rank the other way round"
        )
        exact = sum(one.exact for one in self.variants)
        drawn = len(self.variants) - exact
        told = [f"{counted(exact, 'variant')} over all orders (exact up to rounding)"] * (exact > 0)
        most = max(one.orders for one in self.variants)
        told += [f"{counted(drawn, 'variant')} over {most:,} orders (~, estimates)"] * (drawn > 0)
        yield f"mean and sd of {', '.join(told)}; each convention by itself is {self.kind}"

    def _compared(self) -> Iterable[str]:
        yield f"standard deviation over orders, mean over variants: {self.order_sd.text()}"
        yield f"highest order less lowest, mean over variants: {self.order_range.text()}"
        yield f"standard deviation between variants: {self.between.text()}"
        flagged, pairs = self.flagged
        orders = f"{'all ' * self.every_order}{self.along.shape[1]:,} orders"
        kind = "exact" if self.every_order else "an estimate"
        yield (
            f"the order decides between {flagged:,} of {counted(pairs, 'pair')} of variants: more "
            f"than {CONTRARY:.0%} of {orders} rank them the other way round ({kind})"
        )
        yield f"one order's ranking against another's, Spearman: {self.agreement.text()}"
        for (one, other), found in self.correlations.items():
            if one == MEAN and len(self.variants) > 3:
                yield f"Spearman of {LABELS[one]} and {LABELS[other]}: {found.text()}"

    def frame(self) -> "pandas.DataFrame":
        """One row per variant, the best first."""
        import pandas

        rows = zip(self.variants, self.swaps, strict=True)
        return pandas.DataFrame(
            [
                {"rank": rank} | one.to_row() | {"swaps": swaps}
                for rank, (one, swaps) in enumerate(rows, 1)
            ]
        )

    def figures(self) -> "dict[str, go.Figure]":
        """The scores with their spread over orders; the spread; conventions beside the mean."""
        from glauber.figures.proteins import plot_conventions, plot_order_scores, plot_order_spread

        found = {"scores": plot_order_scores(self.variants)}
        if self._comparable:
            found["spread"] = plot_order_spread(self.variants)
            found["conventions"] = plot_conventions(self.variants, LABELS)
        return found

    def records(self) -> Iterable[Row]:
        """Each variant with its score and the spread over orders in the header."""
        for one in self.variants:
            score = f"score={one.mean.value:.4f} order_sd={one.sd.value:.4f}"
            called = "" if one.name == one.mutations else f" mutations={one.mutations or 'none'}"
            yield Row(one.sequence, f"{one.name} {score}{called}")
