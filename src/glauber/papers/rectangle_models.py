"""The rectangle study of paper A on one model, as its tables and figures share it."""

from glauber.compatibility import RectangleStudy, rectangle_study
from glauber.conditionals.base import Restricted
from glauber.conditionals.masked_lm import MaskedLM
from glauber.sampling.plan import starts

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
    laws = MaskedLM.load(name)
    place = "cuda" if laws.device.type == "cuda" else "cpu"
    precise = MaskedLM.load(name, device=place, dtype="float64")
    tokens, free = starts(laws, chains=198, length=LENGTH)
    allowed = laws.vocabulary.proposable()
    return rectangle_study(
        Restricted(laws, allowed),
        Restricted(precise, allowed),
        tokens,
        free=free,
        count=COUNT,
        seed=seed,
    )
