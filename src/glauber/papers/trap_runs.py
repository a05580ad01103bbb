"""Which chains stand behind the traps of paper A, at both scales?"""

from dataclasses import dataclass
from typing import Any

from glauber.papers.reproduction import Scale


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
