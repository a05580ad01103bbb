"""What do designs of a protein look like, and how were they met?"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from glauber.conditionals.starts import spell_sites
from glauber.conditionals.texts import Row, fasta
from glauber.json_text import Record
from glauber.proteins.diversity import distance_counts, frequencies
from glauber.proteins.fasta import SequenceResult, write_bytes
from glauber.proteins.variants import Variant, Variants
from glauber.result import counted, plain
from glauber.tables import table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

PRINTED = 20  # designs that are printed
DRAWN = 8  # parents whose designs are drawn
FALLEN = 0.95  # of the way to what is kept in the end: then the parent is forgotten
FEW_LOOKS = 4  # below which nothing is said about forgetting


@dataclass(frozen=True, eq=False)
class Design:
    """A sequence near its parent, with its score beside the parent's, in nats."""

    name: str
    rank: int
    sequence: str
    scored: Variant  # mutations, mean and standard deviation over orders, other conventions
    swaps: int  # designs with which it changes places in more than 5% of the orders
    distance: int  # positions that differ from the parent
    nearest: int | None  # positions that differ from the nearest other design
    chain: int  # that met it first
    step: int

    def to_dict(self) -> Record:
        return {
            "name": self.name,
            "rank": self.rank,
            "sequence": self.sequence,
            "mutations": self.scored.mutations,
            "score": self.scored.mean.value,
            "score_kind": self.scored.mean.kind,
            "order_sd": self.scored.sd.value,
            "lowest_order": self.scored.low,
            "highest_order": self.scored.high,
            "orders": self.scored.orders,
            "wild_type_fill": self.scored.scores["wild_type_fill"],
            "all_hidden": self.scored.scores["all_hidden"],
            "swaps": self.swaps,
            "distance": self.distance,
            "nearest": self.nearest,
            "chain": self.chain,
            "step": self.step,
        }


@dataclass(frozen=True, eq=False)
class Walk:
    """What the chains did until they were stopped."""

    kept: NDArray[np.float64]  # (chains, looks) share of the free positions as in the parent
    changed: NDArray[np.bool_]  # (chains, steps) whether a step changed anything
    every: int  # steps between two looks
    ladder: list[float]  # temperatures, one after the other and again
    stage: int  # steps at each of them, where there are several
    looks: int  # states that were compared with the designs before them

    @property
    def steps(self) -> int:
        return int(self.changed.shape[1])

    @property
    def moving(self) -> NDArray[np.float64]:
        """The share of steps that changed a residue, by chain."""
        return np.asarray(self.changed.mean(axis=1))

    @property
    def trapped(self) -> int:
        """Chains that changed nothing in the second half of their steps."""
        return int((~self.changed[:, self.steps // 2 :].any(axis=1)).sum())

    @property
    def forgotten(self) -> int | None:
        """Steps until the share kept, mean over chains, did 95% of its fall to its later mean.

        The later mean is that over the second half of the looks. None where half of the chains
        stand still there: what they keep says where they are stuck.
        """
        looks = self.kept.mean(axis=0)
        if len(looks) < FEW_LOOKS or 2 * self.trapped >= len(self.kept):
            return None
        later = looks[len(looks) // 2 :].mean()
        return int((looks - later <= (1 - FALLEN) * (1 - later)).argmax()) * self.every

    def to_dict(self) -> Record:
        found = {
            "chains": len(self.kept), "steps": self.steps, "temperatures": self.ladder,
            "looked_at": self.looks, "steps_between_looks": self.every,
            "changed_by_chain": self.moving, "trapped_chains": self.trapped,
            "steps_until_parent_forgotten": self.forgotten,
            "parent_kept": self.kept.mean(axis=0),
        }  # fmt: skip
        return {"kind": "estimate", **plain(found)}


@dataclass(frozen=True, eq=False)
class Family:
    """The designs of one parent, the best first."""

    name: str
    parent: str
    positions: list[int]  # that could change, counted from 1
    alphabet: list[str]
    budget: int
    space: int  # designs that there are, exactly
    designs: list[Design]
    walk: Walk
    scored: Variants

    @property
    def short(self) -> str:
        return self.name.split()[0]

    @property
    def at_positions(self) -> list[list[str]]:
        """The letters of each design at the free positions."""
        return [[one.sequence[i - 1] for i in self.positions] for one in self.designs]

    @cached_property
    def frequencies(self) -> NDArray[np.float64]:
        """The share of each letter at each free position, (positions, alphabet)."""
        return frequencies(self.at_positions, self.alphabet)

    @cached_property
    def distances(self) -> list[int]:
        """How many pairs of designs differ at 0, 1, 2, … positions."""
        place = {letter: number for number, letter in enumerate(self.alphabet)}
        return distance_counts(np.array([[place[a] for a in row] for row in self.at_positions]))

    @property
    def mean_distance(self) -> float | None:
        """Between two designs, over all pairs: exact."""
        pairs = sum(self.distances)
        return float(np.dot(self.distances, range(len(self.distances))) / pairs) if pairs else None

    def to_dict(self) -> Record:
        return {
            "parent": {"name": self.name, "sequence": self.parent},
            "free": self.positions,
            "max_mutations": self.budget,
            "design_space": self.space,
            "designs": [one.to_dict() for one in self.designs],
            "pairs_by_distance": self.distances,
            "mean_distance": self.mean_distance,
            "frequencies": {
                str(position): {
                    a: float(x) for a, x in zip(self.alphabet, row, strict=True) if x > 0
                }
                for position, row in zip(self.positions, self.frequencies, strict=True)
            },
            "walk": self.walk.to_dict(),
        }

    def lines(self) -> Iterable[str]:
        walk = self.walk
        heat = " to ".join(f"{one:g}" for one in dict.fromkeys((walk.ladder[0], walk.ladder[-1])))
        yield (
            f"{counted(len(self.designs), 'design')} of {self.short}, at most "
            f"{counted(self.budget, 'mutation')} at positions {spell_sites(self.positions)}; "
            f"{self.space:,} are possible (exact)"
        )
        yield (
            f"met by {counted(len(walk.kept), 'chain')} in {walk.steps:,} steps each at "
            f"temperature {heat}, in {walk.looks:,} looks"
        )
        yield from _rows(self.designs[:PRINTED])
        if len(self.designs) > PRINTED:
            yield f"… and {len(self.designs) - PRINTED:,} more; --out writes all of them"
        yield "score: log-ratio to the parent in nats, mean over orders, with its SD over orders"
        if self.mean_distance is not None:
            yield f"two designs differ at {self.mean_distance:.1f} positions in the mean (exact)"
        if walk.forgotten is not None:
            yield f"the parent was forgotten after about {walk.forgotten:,} steps (an estimate)"
        yield (
            f"{np.mean(walk.moving):.0%} of steps changed a residue; "
            f"{counted(walk.trapped, 'chain')} changed none in the second half"
        )


def _rows(designs: list[Design]) -> list[str]:
    rows = [
        {
            "rank": one.rank,
            "score": f"{one.scored.mean.value:.2f}",
            "order SD": f"{one.scored.sd.value:.2f}",
            "wild-type fill": f"{one.scored.scores['wild_type_fill']:.2f}",
            "distance": one.distance,
            "nearest": one.nearest,
            "mutations": one.scored.mutations,
        }
        for one in designs
    ]
    return table(rows)


@dataclass(frozen=True, eq=False)
class Designs(SequenceResult):
    """Designs of each parent, ranked by their mean over orders."""

    families: list[Family]
    model: str
    wanted: int  # designs that were asked for, of each parent
    min_distance: int
    seed: int
    signature: str

    @property
    def notes(self) -> list[str]:
        """Where the steps did not bring as many designs as were asked for."""
        return [
            f"Only {len(one.designs):,} of {self.wanted:,} designs of {one.short} were met in "
            f"{one.walk.steps:,} steps{self._apart}: take more steps or chains, or a higher "
            "temperature."
            for one in self.families
            if len(one.designs) < self.wanted
        ]

    @property
    def _apart(self) -> str:
        far = self.min_distance
        return f" that differ at {far} positions" if far > 1 else ""

    def records(self) -> Iterable[Row]:
        """Each design under its name, with score, spread over orders, distance and mutations."""
        for family in self.families:
            for one in family.designs:
                header = (
                    f"{one.name} score={one.scored.mean.value:.4f} "
                    f"order_sd={one.scored.sd.value:.4f} distance={one.distance} "
                    f"mutations={one.scored.mutations}"
                )
                yield Row(one.sequence, header)

    def to_dict(self) -> Record:
        return {
            "model": self.model,
            "unit": "nats",
            "asked": self.wanted,
            "min_distance": self.min_distance,
            "seed": self.seed,
            "notes": self.notes,
            "families": [plain(one.to_dict()) for one in self.families],
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        for family in self.families:
            yield from family.lines()
        yield from self.notes

    def frame(self) -> "pandas.DataFrame":
        """One row per design."""
        import pandas

        rows = [
            {"parent": family.name, **one.to_dict()}
            for family in self.families
            for one in family.designs
        ]
        return pandas.DataFrame(rows)

    def figures(self) -> "dict[str, go.Figure]":
        """The pictures of each of the first parents."""
        from glauber.figures.proteins import design_figures

        found: dict[str, go.Figure] = {}
        for number, family in enumerate(self.families[:DRAWN], 1):
            behind = f"-{number}" if len(self.families) > 1 else ""
            drawn = design_figures(family, named=len(self.families) > 1)
            found |= {f"{name}{behind}": figure for name, figure in drawn.items()}
        return found

    def write(self, path: str | Path) -> Path:
        """As sequences are written; a folder also holds designs.fasta, .parquet and a page."""
        from glauber.figures.page import page, write_text

        place = super().write(path)
        if place.is_dir():
            write_bytes(place / "designs.fasta", fasta(self.records()).encode())
            super().write(place.parent / place.name / "designs.parquet")
            shown = page("result.html", figures=self.figures(), text=str(self))
            write_text(place / "page.html", shown)
        return place
