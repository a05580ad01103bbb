"""Paper A, table 1: mean rectangle incompatibility by model."""

from typing import Any

from glauber.papers.rectangle_models import HOW, PUBLISHED, study
from glauber.papers.reproduction import Reproduction, Scale


def make(scale: Scale, *, seed: int) -> Reproduction:
    """The bundled model at small scale, the paper's five masked LMs at its own."""
    names = ["bundled:english"] if scale == "small" else list(PUBLISHED)
    return Reproduction("A-table1", scale, HOW, [_row(name, seed) for name in names], seed)


def _row(name: str, seed: int) -> dict[str, Any]:
    told = study(name, seed=seed).summary()
    published = PUBLISHED.get(name)
    return {
        "model": name,
        "mean": told["mean"],
        "interval": told["interval"],
        "kind": "estimate",
        "certified": told["certified"],
        "count": told["count"],
        "published": published,
        "published, BERT-base": PUBLISHED["bert-base-uncased"],
    }
