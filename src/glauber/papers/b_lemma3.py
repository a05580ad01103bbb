"""Paper B, Lemmas 3 and 4: what knowing the mask tells about the hidden sites.

The paper prints 9/13, which comes from reading K as the visible set; with K hidden it is 9/17.
"""

from typing import Any

from glauber.exact.blocks import conditional
from glauber.exact.learning.conditioning import given_mask, mean_over_events, paper_example
from glauber.exact.space import Space
from glauber.papers.reproduction import Reproduction, Scale

HOW = (
    "the paper's law over two bits, in exact fractions: p(00) = 1/2, p(01) = 1/3, p(10) = 1/6, "
    "with K = {0} chosen with probability 1/2, 1/3, 1/4 there and K = {1} otherwise; K is hidden"
)


def make(scale: Scale, *, seed: int) -> Reproduction:
    """Both conditionals with and without the mask, and Lemma 4's mean."""
    return Reproduction("B-lemma3", scale, HOW, [_row(1, "9/13"), _row(0, None)], seed)


def _row(hidden: int, published: str | None) -> dict[str, Any]:
    law, chances = paper_example()
    space, block = Space(2, 2), (hidden,)
    seen = 1 - hidden
    return {
        "asked": f"p(x_{hidden} = 0 | x_{seen} = 0)",
        "given K": str(given_mask(law, chances[hidden], space, block)[0]),
        "not given K": str(conditional(law, space, block)[0]),
        "mean over mask events (Lemma 4)": str(mean_over_events(law, chances, space, block)[0]),
        "kind": "exact",
        "published, given K": published,
    }
