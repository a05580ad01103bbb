"""Paper A, figure 4: further trajectories in the plane."""

from glauber.papers.reproduction import Reproduction, Scale
from glauber.papers.trajectory_runs import HOW, trajectories
from glauber.plots.trajectory import plot_trajectory

CHAINS = 3


def make(scale: Scale, *, seed: int) -> Reproduction:
    """The paths of three chains in one plane, a picture each."""
    plane, rows = trajectories(scale, n_chains=CHAINS, seed=seed)
    pictures = {f"chain-{chain}": plot_trajectory(plane, chain=chain) for chain in range(CHAINS)}
    return Reproduction("A-fig4", scale, HOW, rows, seed, pictures)
