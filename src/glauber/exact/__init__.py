"""What would the chain do, exactly? Small models without sampling: the independent oracle."""

from glauber.exact.entropy_production import entropy_production
from glauber.exact.scans import least_confident_matrix, parallel_matrix, sweep_matrix
from glauber.exact.space import Space
from glauber.exact.stationary import stationary, total_variation
from glauber.exact.transition import site_matrix, transition_matrix

__all__ = [
    "Space",
    "entropy_production",
    "least_confident_matrix",
    "parallel_matrix",
    "site_matrix",
    "stationary",
    "sweep_matrix",
    "total_variation",
    "transition_matrix",
]
