"""Which single mutants does a model prefer? Every letter at every position, as a map.

A single mutant has one order, so its score is the log-ratio with its site hidden in the parent.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from glauber.compatibility.pseudo_likelihood import conditional_log_probs
from glauber.conditionals.files import Row
from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.progress import say, track
from glauber.proteins.fasta import SequenceResult
from glauber.proteins.mutations import Mutation, apply, read_positions
from glauber.proteins.order_scores import check_finite
from glauber.proteins.parent import Parent
from glauber.result import counted, plain, signature
from glauber.statistics import Floats

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

WIDEST = 64  # letters of an alphabet whose single mutants are all listed
BEST = 10  # single mutants that are printed


@dataclass(frozen=True, eq=False)
class Singles(SequenceResult):
    """The log-ratio of every letter to the parent's, hidden alone at each position."""

    parent: str
    positions: list[int]  # from 1
    wild_type: list[str]  # the parent's letters there
    letters: list[str]  # of the columns
    scores: Floats  # (positions, letters) in nats; 0 for the parent's own letter
    sequences: list[str]  # the parent's letters, all of them
    name: str  # of the model
    kind: str  # exact up to rounding, in words
    signature: str

    @property
    def ranked(self) -> list[tuple[Mutation, float]]:
        """Every single mutant with its score, the best first."""
        found = [
            (Mutation(old, place, new), float(self.scores[row, column]))
            for row, (place, old) in enumerate(zip(self.positions, self.wild_type, strict=True))
            for column, new in enumerate(self.letters)
            if new != old
        ]
        return sorted(found, key=lambda one: (-one[1], one[0].position, one[0].new))

    def to_dict(self) -> Record:
        return {
            "model": self.name,
            "unit": "nats",
            "kind": self.kind,
            "parent": self.parent,
            "positions": self.positions,
            "wild_type": self.wild_type,
            "letters": self.letters,
            "scores": plain(self.scores),
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        ranked = self.ranked
        better = sum(score > 0 for _, score in ranked)
        yield (
            f"{len(ranked):,} single mutants at {counted(len(self.positions), 'position')}; "
            f"{better:,} are likelier than the parent's letter"
        )
        yield f"the best, log-ratio to the parent in nats ({self.kind}):"
        for mutation, score in ranked[:BEST]:
            yield f"{score:9.3f}  {mutation}"
        held = self._held()
        yield f"held most firmly (best other letter): {held}"

    def _held(self) -> str:
        own = [self.letters.index(old) if old in self.letters else -1 for old in self.wild_type]
        others = self.scores.copy()
        for row, column in enumerate(own):
            if column >= 0:
                others[row, column] = -np.inf
        best = others.max(axis=1)
        few = best.argsort()[:5]
        return ", ".join(f"{self.wild_type[i]}{self.positions[i]} {best[i]:.2f}" for i in few)

    def frame(self) -> "pandas.DataFrame":
        """One row per single mutant, the best first."""
        import pandas

        return pandas.DataFrame(
            [
                {"mutation": str(one), "position": one.position, "wild_type": one.old}
                | {"mutant": one.new, "score": score, "kind": self.kind}
                for one, score in self.ranked
            ]
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.proteins import plot_singles

        return {"singles": plot_singles(self.positions, self.wild_type, self.letters, self.scores)}

    def records(self) -> Iterable[Row]:
        """Each single mutant with its score in the header."""
        blank = "" if all(len(letter) == 1 for letter in self.sequences) else " "
        for one, score in self.ranked:
            changed = blank.join(apply(self.sequences, (one,)))
            yield Row(changed, f"{one} score={score:.4f}")


def single_mutants(parent: Parent, positions: Any) -> Singles:
    model = parent.model
    places = list(range(1, len(parent.sites) + 1))
    if positions is not None:
        places = read_positions(positions, parent.letters)
    columns = model.vocabulary.proposable().nonzero()[:, 0].tolist()
    if len(columns) > WIDEST:
        raise GlauberError(
            f"{model.name} knows {len(columns):,} tokens, too many for a map of all single "
            "mutants: give variants, such as cat2dog."
        )
    spelled = [model.vocabulary.spell(token) for token in columns]
    order = sorted(range(len(columns)), key=lambda i: spelled[i])
    sites = torch.tensor([parent.sites[place - 1] for place in places])
    say(f"{counted(len(places), 'row')} of {len(parent.sites)} letters through {model.name}")
    laws = _laws_alone(parent, sites)
    own = laws.gather(1, parent.tokens[sites][:, None])
    scores = (laws - own)[:, [columns[i] for i in order]].numpy()
    check_finite(float(scores.min()))
    asked = {"positions": len(places), "score": "wild-type fill"}
    return Singles(
        parent.spelled,
        places,
        [parent.letters[place - 1] for place in places],
        [spelled[i] for i in order],
        scores,
        parent.letters,
        model.name,
        parent.kind,
        signature(**parent.parts(), **asked),
    )


def _laws_alone(parent: Parent, sites: Tensor) -> Tensor:
    """Log-probabilities (sites, vocab) of sites (n,), each hidden alone in the parent."""
    found = torch.zeros(len(sites), parent.model.vocab_size, dtype=torch.float64)
    rows = torch.zeros(len(sites), dtype=torch.int64)
    with track("positions", len(sites)) as advance:
        for part, laws in conditional_log_probs(
            parent.model, parent.tokens[None], rows, sites[:, None]
        ):
            found[part] = laws[:, 0].cpu()
            advance(len(part))
    return found
