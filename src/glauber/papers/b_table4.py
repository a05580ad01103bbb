"""Paper B, table 4: self-attention between neighbouring positions, stuttering or not."""

from glauber.papers.neighbour_rows import make_table
from glauber.papers.reproduction import Reproduction, Scale

MEASURES = ("self_min", "self_avg", "self_max", "self_top_1", "self_top_2")
PUBLISHED = {
    "yes": {"self_min": 0.0004, "self_avg": 0.032, "self_max": 0.16, "self_top_1": 0.20,
            "self_top_2": 0.39},
    "no": {"self_min": 0.0005, "self_avg": 0.033, "self_max": 0.17, "self_top_1": 0.17,
           "self_top_2": 0.37},
}  # fmt: skip


def make(scale: Scale, *, seed: int) -> Reproduction:
    """Attention of the two to each other in the last layer, in three passes."""
    return make_table("B-table4", MEASURES, PUBLISHED, scale=scale, seed=seed)
