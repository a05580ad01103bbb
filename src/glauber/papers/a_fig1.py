"""Paper A, figure 1: one chain's trajectory in the plane, with the sentences it stays at."""

from glauber.papers.reproduction import Reproduction, Scale
from glauber.papers.trajectory_runs import HOW, trajectories
from glauber.plots.trajectory import plot_trajectory


def make(scale: Scale, *, seed: int) -> Reproduction:
    """The path of a single chain."""
    plane, rows = trajectories(scale, n_chains=1, seed=seed)
    return Reproduction("A-fig1", scale, HOW, rows, seed, {"trajectory": plot_trajectory(plane)})
