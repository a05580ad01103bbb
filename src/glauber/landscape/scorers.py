"""Which scorer has that name?"""

from collections.abc import Sequence

from glauber.landscape.descriptions import SENTIMENTS, TOPICS
from glauber.landscape.entailment import ABOUT, FEELING, entailment_scorer
from glauber.landscape.similarity import similarity_scorer
from glauber.landscape.topics import Scorer, check_labels
from glauber.runs.embedding import load_embedder

SIMILARITY = "similarity"


def load_scorer(
    name: str = SIMILARITY,
    labels: Sequence[str] = tuple(TOPICS),
    *,
    embedder: str | None = None,
    device: str = "auto",
) -> Scorer:
    """`similarity` (with an embedding model of choice), or an entailment model by name or folder.

    Labels that are all sentiments are asked for as sentiments.
    """
    labels = check_labels(labels)
    if name == SIMILARITY:
        return similarity_scorer(load_embedder(embedder, device), labels)
    hypothesis = FEELING if set(labels) <= set(SENTIMENTS) else ABOUT
    return entailment_scorer(name, labels, device=device, hypothesis=hypothesis)
