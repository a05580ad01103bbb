"""Paper A, table 2: drift of the copies of '!' at the boundary of its basin.

The text of the paper that we have lost its two temperatures and its k, so both are ours here; the
published figures stand beside them and are not to be matched.
"""

from typing import Any

from glauber.conditionals.base import Restricted
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.starts import starts
from glauber.metastability.token_basin import drift_study
from glauber.papers.reproduction import Reproduction, Scale

TEMPERATURES = (0.5, 1.0)
PUBLISHED = ((0.042, 0.080), (0.024, 0.066))  # min and median, 200 of 200 positive
LENGTH, COUNT, LEVELS, SAMPLES = 20, 14, 2, 200
HOW = (
    f"{SAMPLES} states of {LENGTH} tokens with exactly k = {COUNT} to {COUNT + LEVELS} "
    "copies of '!' at random places, the others from passages"
)


def make(scale: Scale, *, seed: int) -> Reproduction:
    """Boundary statistic and certificate at two temperatures."""
    name = "bundled:english" if scale == "small" else "bert-base-uncased"
    model = MaskedLM.load(name)
    rows = [_row(model, *pair, seed) for pair in zip(TEMPERATURES, PUBLISHED, strict=True)]
    return Reproduction("A-table2", scale, HOW, rows, seed)


def _row(
    model: MaskedLM, temperature: float, published: tuple[float, float], seed: int
) -> dict[str, Any]:
    laws = Restricted(model, model.vocabulary.proposable())
    tokens, free = starts(model, chains=198, length=LENGTH)
    found = drift_study(
        laws,
        tokens,
        free[0],
        token=int(model.vocabulary.tokenizer.convert_tokens_to_ids("!")),
        counts=range(COUNT, COUNT + LEVELS + 1),
        samples=SAMPLES,
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
