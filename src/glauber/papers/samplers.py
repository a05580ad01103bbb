"""Pieces of the papers: samplers."""

from glauber.papers import b_corollary3, b_fig3

PIECES = {
    "B-fig3": (
        "steps from one mode of an Ising model to the other, k-Gibbs and parallel",
        b_fig3.make,
    ),
    "B-corollary3": (
        "one step of N-Gibbs against M steps of the parallel sampler",
        b_corollary3.make,
    ),
}
