"""How fast, and how wrong, are the ways of redrawing several sites in one step?"""

from glauber.exact.samplers.block_gap import Gap, block_gap
from glauber.exact.samplers.clique import Clique
from glauber.exact.samplers.hitting_times import arrival_within, mean_hitting_times
from glauber.exact.samplers.masks import Masks
from glauber.exact.samplers.parallel_law import ParallelLaw, parallel_law

__all__ = [
    "Clique",
    "Gap",
    "Masks",
    "ParallelLaw",
    "arrival_within",
    "block_gap",
    "mean_hitting_times",
    "parallel_law",
]
