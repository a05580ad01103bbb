"""Paper A, table 2: drift of the copies of '!' at the boundary of its basin.

The text of the paper that we have lost its two temperatures and its k, so both are ours here; the
published figures stand beside them and are not to be matched.
"""

from typing import Any

from glauber.conditionals.load import Model, load
from glauber.metastability.drift import drift
from glauber.papers.reproduction import Reproduction, Scale

TEMPERATURES = (0.5, 1.0)
PUBLISHED = ((0.042, 0.080), (0.024, 0.066))  # min and median, 200 of 200 positive
LENGTH, COUNT, LEVELS, SAMPLES = 20, 14, 2, 200
HOW = (
    f"{SAMPLES} states of {LENGTH} tokens with exactly k = {COUNT} to {COUNT + LEVELS} "
    "copies of '!' at random places, the others from passages; the temperatures and k are ours, "
    "because the paper's are lost, so the published figures are not to be matched"
)


def table_2(scale: Scale, *, seed: int) -> Reproduction:
    """Boundary statistic and certificate at two temperatures."""
    model = load("bundled:english" if scale == "small" else "bert-base-uncased")
    rows = [_row(model, *pair, seed) for pair in zip(TEMPERATURES, PUBLISHED, strict=True)]
    return Reproduction("A-table2", scale, HOW, rows, seed)


def _row(
    model: Model, temperature: float, published: tuple[float, float], seed: int
) -> dict[str, Any]:
    found = drift(
        model,
        token="!",
        count=COUNT,
        levels=LEVELS,
        samples=SAMPLES,
        length=LENGTH,
        temperature=temperature,
        seed=seed,
    )
    edge = found.levels[0]
    return {
        "model": model.name,
        "temperature": temperature,
        "min": edge.smallest,
        "median": edge.median,
        "positive": f"{edge.positive} of {SAMPLES}",
        "published min, median": list(published),
        "chance to descend": found.descent,
        "kind": found.kind,
    }


PIECES = {
    "A-table2": ("drift of the copies of '!' at the boundary of its basin", table_2),
}
