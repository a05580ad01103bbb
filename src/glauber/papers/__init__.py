"""Which tables and figures of the two papers can be made again?

One file each: what it shows, how it is made at a small scale and at the paper's own, and the
published numbers beside ours.
"""

from importlib import import_module

from glauber.errors import GlauberError
from glauber.papers.reproduction import Reproduction, Scale

PIECES = {
    "A-table1": "mean rectangle incompatibility by model",
    "A-table2": "drift of the copies of '!' at the boundary of its basin",
    "A-fig3a": "embedding distance from the start after a fixed number of steps, by length",
    "A-fig3b": "hitting time of an embedding distance by length, against n, n log n and n^2",
    "A-fig5": "distribution of the rectangle incompatibility",
    "A-fig6": "rectangle incompatibility against influence",
    "A-fig-coupling": "where in temperature and length two chains meet",
    "A-influence": "influence, alpha and the contraction threshold of one sentence",
    "B-fig3": "steps from one mode of an Ising model to the other, k-Gibbs and parallel",
    "B-corollary3": "one step of N-Gibbs against M steps of the parallel sampler",
}


def reproduce(name: str, *, scale: Scale = "small", seed: int = 0) -> Reproduction:
    """Makes one table or figure again."""
    if name not in PIECES:
        raise GlauberError(f"{name} is not a piece of the papers; there is {', '.join(PIECES)}.")
    if scale not in ("small", "paper"):
        raise GlauberError(f"the scale is {scale}, but it must be small or paper.")
    module = import_module(f"glauber.papers.{name.lower().replace('-', '_')}")
    made: Reproduction = module.make(scale, seed=seed)
    return made
