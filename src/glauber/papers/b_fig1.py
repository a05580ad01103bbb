"""Paper B, figure 1: squared error of the k-site estimate, Ising clique with J = 0.05."""

from glauber.papers.ising_errors import COUPLINGS, make_errors
from glauber.papers.reproduction import Reproduction, Scale


def make(scale: Scale, *, seed: int) -> Reproduction:
    """The errors against the samples for k = 1 … 4."""
    return make_errors("B-fig1", COUPLINGS[0], scale=scale, seed=seed)
