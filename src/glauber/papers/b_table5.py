"""Paper B, table 5: distance of the cross-attention of neighbours, stuttering or not."""

from glauber.papers.neighbour_rows import make_table
from glauber.papers.reproduction import Reproduction, Scale
from glauber.translation.neighbours import CROSS

MEASURES = (*CROSS, "cross_top_1", "cross_top_2")
PUBLISHED = {
    "yes": dict(zip(MEASURES, (0.06, 0.13, 0.23, 0.01, 0.10, 0.25, 0.57, 0.89), strict=True)),
    "no": dict(zip(MEASURES, (0.11, 0.23, 0.35, 0.04, 0.20, 0.38, 0.40, 0.81), strict=True)),
}


def make(scale: Scale, *, seed: int) -> Reproduction:
    """Total variation and cosine distance in the last layer, in three passes."""
    return make_table("B-table5", MEASURES, PUBLISHED, scale=scale, seed=seed)
