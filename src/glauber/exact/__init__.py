"""What would the chain do, exactly? Small models without sampling: the independent oracle."""

from glauber.exact.bottleneck import Bottleneck, best_bottleneck, conductance
from glauber.exact.distances import distances
from glauber.exact.entropy_production import entropy_production
from glauber.exact.exit_times import exit_times, hamming_ball
from glauber.exact.first_passage import committor, mean_first_passage, mean_passage_between
from glauber.exact.influence import Influence, exact_influence
from glauber.exact.mixing_time import MixingTime, mixing_time
from glauber.exact.operators import parallel_operator, sweep_operator
from glauber.exact.pair_chain import mean_distances, mean_meeting_times, pair_matrix
from glauber.exact.scans import least_confident_matrix, parallel_matrix, sweep_matrix
from glauber.exact.space import Space
from glauber.exact.spectrum import Spectrum, spectrum
from glauber.exact.stationary import stationary, total_variation
from glauber.exact.transition import site_matrix, transition_matrix

__all__ = [
    "Bottleneck",
    "Influence",
    "MixingTime",
    "Space",
    "Spectrum",
    "best_bottleneck",
    "committor",
    "conductance",
    "distances",
    "entropy_production",
    "exact_influence",
    "exit_times",
    "hamming_ball",
    "least_confident_matrix",
    "mean_distances",
    "mean_first_passage",
    "mean_meeting_times",
    "mean_passage_between",
    "mixing_time",
    "pair_matrix",
    "parallel_matrix",
    "parallel_operator",
    "site_matrix",
    "spectrum",
    "stationary",
    "sweep_matrix",
    "sweep_operator",
    "total_variation",
    "transition_matrix",
]
