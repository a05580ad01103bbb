"""Paper A on rectangles: table 1, figures 5 and 6. All three read one study of each model."""

from functools import lru_cache
from typing import Any

from glauber.compatibility.rectangles import RectangleStudy, rectangles
from glauber.papers.paper import Reproduction, Scale

COUNT, LENGTH = 300, 20
# Mean Delta, paper A, table 1.
PUBLISHED = {
    "bert-base-uncased": 0.644,
    "bert-large-uncased": 0.798,
    "roberta-base": 0.705,
    "roberta-large": 0.735,
    "answerdotai/ModernBERT-base": 0.753,
}
HOW = (
    f"{COUNT} random rectangles of {LENGTH}-token passages (bundled ones; the paper takes "
    "MS MARCO), replacements from the model's own top 50"
)


@lru_cache(maxsize=8)
def measured(name: str, seed: int) -> RectangleStudy:
    """Rectangles of the bundled passages in float32, with the noise floor against float64."""
    return rectangles(name, count=COUNT, length=LENGTH, seed=seed)


def table_1(scale: Scale, *, seed: int) -> Reproduction:
    """Mean rectangle incompatibility: the bundled model, or the paper's five masked LMs."""
    names = ["bundled:english"] if scale == "small" else list(PUBLISHED)
    return Reproduction("A-table1", scale, HOW, [_row(name, seed) for name in names], seed)


def _row(name: str, seed: int) -> dict[str, Any]:
    found = measured(name, seed).summary()
    return {
        "model": name,
        "mean": found["mean"],
        "interval": found["interval"],
        "kind": "estimate",
        "certified": found["certified"],
        "count": found["count"],
        "published": PUBLISHED.get(name),
        "published, BERT-base": PUBLISHED["bert-base-uncased"],
    }


def figure_5(scale: Scale, *, seed: int) -> Reproduction:
    """The incompatibility is broad, the rule and not the exception: the histogram of Delta."""
    name = _one(scale)
    found = measured(name, seed)
    summary = found.summary()
    row = {"model": name, "median": summary["median"], **summary["quantiles"], "kind": "estimate"}
    row |= {"share above the noise floor": summary["share_certified"], "published": "broad"}
    pictures = {"histogram": found.figures()["histogram"]}
    return Reproduction("A-fig5", scale, HOW, [row], seed, pictures)


def figure_6(scale: Scale, *, seed: int) -> Reproduction:
    """The incompatibility grows with the influence between the two sites."""
    name = _one(scale)
    found = measured(name, seed)
    row = {
        "model": name,
        "rank correlation": found.summary()["influence_rank_correlation"],
        "kind": "estimate",
        "published": "it grows",
    }
    pictures = {"influence": found.figures()["influence"]}
    return Reproduction("A-fig6", scale, HOW, [row], seed, pictures)


def _one(scale: Scale) -> str:
    return "bundled:english" if scale == "small" else "bert-base-uncased"


PIECES = {
    "A-table1": ("mean rectangle incompatibility by model", table_1),
    "A-fig5": ("distribution of the rectangle incompatibility", figure_5),
    "A-fig6": ("rectangle incompatibility against influence", figure_6),
}
