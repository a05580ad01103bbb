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
    "A-table3": "politics and the seed topic at the start and the end of chains from five topics",
    "A-table4": "politics at the end of chains from five topics, by model",
    "A-table5": "the catalogue of traps: texts, gaps and durations",
    "A-fig1": "a chain's trajectory in two dimensions, from warm to cool",
    "A-fig2": "distance from the start over time, by temperature: the slow regime",
    "A-fig3a": "embedding distance from the start after a fixed number of steps, by length",
    "A-fig3b": "hitting time of an embedding distance by length, against n, n log n and n^2",
    "A-fig4": "further trajectories in two dimensions",
    "A-fig5": "distribution of the rectangle incompatibility",
    "A-fig6": "rectangle incompatibility against influence",
    "A-fig-coupling": "where in temperature and length two chains meet",
    "A-prefixes": "topics and words that a frozen prefix pulls towards",
    "A-influence": "influence, alpha and the contraction threshold of one sentence",
    "A-regimes": "how chains move at temperatures from 0.01 to 100",
    "B-fig1": "squared error of the k-site estimate against samples, Ising clique with J = 0.05",
    "B-fig2": "the same with J = 0.3, where the law has two modes",
    "B-theorem1": "covariance of the k-site estimate for every k: larger masks are never worse",
    "B-theorem2": "the covariance beside its bound by the Poincare constant (and Theorem 3)",
    "B-theorem4": "the finite-sample bound with its terms, as written and with the excess loss",
    "B-lemma3": "what knowing the mask tells about the hidden sites (and Lemma 4)",
    "B-fig3": "steps from one mode of an Ising model to the other, k-Gibbs and parallel",
    "B-corollary3": "one step of N-Gibbs against M steps of the parallel sampler",
    "B-table1": "translation: the autoregressive model beside refinement at 4 and 10 steps",
    "B-table2": "translation: refinement beside mask-predict, easy-first and SUNDAE",
    "B-table3": "translation by a learned metric, where its weights are at hand",
    "B-table4": "self-attention between neighbouring positions, stuttering or not",
    "B-table5": "distance of the cross-attention of neighbouring positions, stuttering or not",
    "B-ablation": "translation: what each choice in decoding and in training is worth",
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
