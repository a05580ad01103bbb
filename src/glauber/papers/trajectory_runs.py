"""Which chains stand behind the trajectory pictures of paper A (figures 1 and 4), at both scales?

The paper's text gives the protocol (appendix B.6) and what is seen: clusters of points that are
one sentence repeated. It gives neither the temperature nor the starts of the two figures.
"""

from dataclasses import dataclass
from itertools import groupby
from typing import Any

from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.starts import passages
from glauber.landscape.trajectory import Trajectory, trajectory_in_plane
from glauber.papers.reproduction import Scale
from glauber.runs.embedding import load_embedder
from glauber.runs.snapshots import snapshots
from glauber.sampling.sample import sample

PUBLISHED = "clear clusters of points, which are one sentence repeated; no number in our text"
HOW = "two-dimensional PCA of sentence embeddings, joined in time order from warm to cool"


@dataclass(frozen=True)
class Conditions:
    """One scale's model, embedding and sizes."""

    model: str
    embedder: str | None  # none: the one in the package
    length: int | None
    steps: int
    every: int
    temperature: float
    how: dict[str, Any]  # what the embedding model asks for beside its name


CONDITIONS: dict[Scale, Conditions] = {
    "small": Conditions("bundled:english", None, 12, 600, 10, 0.7, {}),
    "paper": Conditions(
        "bert-base-uncased",
        "jinaai/jina-embeddings-v4",
        None,
        10_000,
        50,
        0.7,
        {"trust_remote_code": True, "task": "text-matching"},
    ),
}


def trajectories(
    scale: Scale, *, n_chains: int, seed: int
) -> tuple[Trajectory, list[dict[str, Any]]]:
    """The chains in one plane, and a row of figures for each."""
    found = CONDITIONS[scale]
    texts = [text for _, text in passages()]
    run = sample(
        MaskedLM.load(found.model), texts, steps=found.steps, chains=n_chains,
        length=found.length, temperature=found.temperature, seed=seed,
    )  # fmt: skip
    embedder = load_embedder(found.embedder, **found.how)
    looks = snapshots(run, every=found.every)
    plane = trajectory_in_plane(embedder.vectors(looks), looks.steps, looks.texts)
    rows = [
        {
            "chain": chain,
            "looks": len(own),
            "different texts": len(set(own)),
            "longest repeat in steps": _longest(own) * found.every,
            "shown spread": sum(plane.explained or ()),
            "kind": "exact",
            "temperature": found.temperature,
            "model": found.model,
            "embedder": embedder.name,
            "published": PUBLISHED,
        }
        for chain, own in enumerate(looks.texts)
    ]
    return plane, rows


def _longest(texts: tuple[str, ...]) -> int:
    """The most looks in a row that show one text, less one."""
    return max(len(list(same)) for _, same in groupby(texts)) - 1
