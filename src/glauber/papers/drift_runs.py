"""Which chains stand behind figure 3 of paper A, at both scales?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.starts import passages
from glauber.papers.reproduction import Scale
from glauber.runs.embedding import Embedder, load_embedder
from glauber.sampling.sample import sample

THRESHOLD = 0.5
PUBLISHED = "grows as n log n"
PLACE = "chains from the bundled passages, cut to n tokens, at temperature 1"


@dataclass(frozen=True)
class Conditions:
    """One scale's model, embedding, lengths and sizes."""

    model: str
    embedder: str | None  # none: the one in the package
    lengths: tuple[int, ...]
    trials: int
    look: int  # figure 3a: the fixed step at which distances are compared
    steps: int  # figure 3b: of every chain, at every length
    how: dict[str, Any]  # what the embedding model asks for beside its name


CONDITIONS: dict[Scale, Conditions] = {
    "small": Conditions(
        "bundled:english", None, (6, 9, 13, 19, 28), trials=50, look=20, steps=120, how={}
    ),
    "paper": Conditions(
        "bert-base-uncased",
        "jinaai/jina-embeddings-v4",
        (5, 10, 15, 20, 25),
        trials=100,
        look=20,
        steps=2000,
        how={"trust_remote_code": True, "task": "text-matching"},
    ),
}


def embedder_of(found: Conditions) -> Embedder:
    """The embedding of a scale."""
    return load_embedder(found.embedder, **found.how)


def runs(found: Conditions, *, steps: int, seed: int) -> Iterator[tuple[int, Any]]:
    """(n, run) for each length: all trials of a length are the chains of one run."""
    model = MaskedLM.load(found.model)
    texts = [text for _, text in passages()]
    for place, n in enumerate(found.lengths):
        # Another seed for each length, so that no noise is shared between conditions.
        own = len(found.lengths) * seed + place
        yield n, sample(model, texts, steps=steps, chains=found.trials, length=n, seed=own)
