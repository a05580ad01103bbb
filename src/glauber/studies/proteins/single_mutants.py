"""Log-ratios of all single mutants of a sequence: every letter at every position, as a map.

A single mutant has one order, so its score is the log-ratio with its site hidden in the parent.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Unpack

import numpy as np
import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import ModelOrName, WhereAndDtype
from glauber.foundation.progress import say, track
from glauber.foundation.statistics import Floats
from glauber.foundation.study import counted, internal, study
from glauber.studies.compatibility.pseudo_likelihood import conditional_log_probs
from glauber.studies.proteins.positions import (
    Mutation,
    apply_mutations,
    check_loops,
    read_positions,
)
from glauber.studies.proteins.sequences import SequenceResult
from glauber.studies.proteins.variants import (
    Parent,
    ParentOption,
    check_log_ratio,
    load_scorer,
    open_parent,
    read_parent,
)
from glauber.texts.read import Row

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_LETTERS = 64  # of an alphabet whose single mutants are all listed
MAX_PRINTED = 10  # single mutants


@study
def scan_mutations(
    model: ModelOrName = "bundled:english",
    parent: ParentOption = None,
    *,
    positions: Annotated[
        Sequence[int] | str | None, "Positions such as 97-109,31 or H3, counted from 1."
    ] = None,
    **where: Unpack[WhereAndDtype],
) -> "SingleMutants":
    """Score all single mutants of a sequence.

    The log-ratio of every other letter to the parent's at each position, hidden in the parent.
    `mutate` scores variants of several changes. Written to .fasta, .csv or .parquet with --out,
    too.
    """
    row = read_parent(parent)
    if isinstance(positions, str):
        check_loops(positions)
    return single_mutants(open_parent(load_scorer(model, **where), row), positions)


def single_mutants(parent: Parent, listed: Sequence[int] | str | None) -> "SingleMutants":
    """The scores of all letters at the listed positions of a parent (None: at all of them)."""
    model = parent.model
    positions = list(range(1, len(parent.sites) + 1))
    if listed is not None:
        positions = read_positions(listed, parent.letters)
    columns = model.vocabulary.proposable().nonzero()[:, 0].tolist()
    if len(columns) > MAX_LETTERS:
        raise GlauberError(
            f"{model.name} knows {len(columns):,} tokens, too many for a map of all single "
            "mutants: give variants, such as cat2dog."
        )
    columns = sorted(columns, key=model.vocabulary.spell)
    sites = torch.tensor([parent.sites[position - 1] for position in positions])
    say(f"{counted(len(positions), 'row')} of {len(parent.sites)} letters through {model.name}")
    log_probs = _log_probs_alone(parent, sites)
    own = log_probs.gather(1, parent.tokens[sites][:, None])
    scores = (log_probs - own)[:, columns].numpy()
    check_log_ratio(float(scores.min()))
    return SingleMutants(
        model=model.name,
        kind=parent.kind,
        parent=parent.text,
        positions=positions,
        wild_type=[parent.letters[position - 1] for position in positions],
        letters=[model.vocabulary.spell(token) for token in columns],
        scores=scores,
        parent_letters=parent.letters,
    )


def _log_probs_alone(parent: Parent, sites: Tensor) -> Tensor:
    """Log-probabilities (sites, vocab) of sites (n,), each hidden alone in the parent."""
    table = torch.zeros(len(sites), parent.model.vocab_size, dtype=torch.float64)
    rows = torch.zeros(len(sites), dtype=torch.int64)
    with track("positions", len(sites)) as advance:
        queries = conditional_log_probs(parent.model, parent.tokens[None], rows, sites[:, None])
        for part, log_probs in queries:
            table[part] = log_probs[:, 0].cpu()
            advance(len(part))
    return table


@dataclass(frozen=True, eq=False, kw_only=True)
class SingleMutants(SequenceResult):
    """The log-ratio of every letter to the parent's, hidden alone at each position."""

    model: str
    unit: str = "nats"  # The unit of every score
    kind: str  # exact up to rounding, in words
    parent: str
    positions: list[int]  # from 1
    wild_type: list[str]  # the parent's letters there
    letters: list[str]  # of the columns
    scores: Floats  # (positions, letters) in nats; 0 for the parent's own letter
    parent_letters: list[str] = internal()  # all of them

    @property
    def ranking(self) -> list[tuple[Mutation, float]]:
        """Every single mutant with its score, the best first."""
        mutants = [
            (Mutation(old, position, new), float(score))
            for position, old, row in zip(self.positions, self.wild_type, self.scores, strict=True)
            for new, score in zip(self.letters, row, strict=True)
            if new != old
        ]
        return sorted(mutants, key=lambda pair: (-pair[1], pair[0].position, pair[0].new))

    def lines(self) -> Iterable[str]:
        ranked = self.ranking
        better = sum(score > 0 for _, score in ranked)
        yield (
            f"{len(ranked):,} single mutants at {counted(len(self.positions), 'position')}; "
            f"{better:,} are likelier than the parent's letter"
        )
        yield f"the best, log-ratio to the parent in nats ({self.kind}):"
        for mutation, score in ranked[:MAX_PRINTED]:
            yield f"{score:9.3f}  {mutation}"
        own = np.array([[new == old for new in self.letters] for old in self.wild_type])
        best = np.where(own, -np.inf, self.scores).max(axis=1)
        firmest = [
            f"{self.wild_type[i]}{self.positions[i]} {best[i]:.2f}" for i in best.argsort()[:5]
        ]
        yield f"most conserved positions (best other letter): {', '.join(firmest)}"

    def table(self) -> Iterable[dict[str, object]]:
        """One row per single mutant, the best first."""
        return [
            {
                "mutation": str(mutation),
                "position": mutation.position,
                "wild_type": mutation.old,
                "mutant": mutation.new,
                "score": score,
                "kind": self.kind,
            }
            for mutation, score in self.ranking
        ]

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.proteins import plot_singles

        return {"singles": plot_singles(self.positions, self.wild_type, self.letters, self.scores)}

    def records(self) -> Iterable[Row]:
        """Each single mutant with its score in the header."""
        blank = "" if all(len(letter) == 1 for letter in self.parent_letters) else " "
        for mutation, score in self.ranking:
            sequence = blank.join(apply_mutations(self.parent_letters, (mutation,)))
            yield Row(sequence, f"{mutation} score={score:.4f}")
