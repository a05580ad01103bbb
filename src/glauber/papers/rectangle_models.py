"""The rectangle study of paper A on one model, as its tables and figures share it."""

from glauber.compatibility.rectangles import RectangleStudy, rectangles
from glauber.conditionals.starts import passages

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


def study(name: str, *, seed: int) -> RectangleStudy:
    """Rectangles of the bundled passages in float32, with the noise floor against float64."""
    texts = [text for _, text in passages()]
    return rectangles(name, texts, count=COUNT, length=LENGTH, seed=seed)
