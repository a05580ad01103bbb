"""What would the chain do, exactly? Small models without sampling: the independent oracle.

    from glauber import exact
    from glauber.conditionals.table import Joint, Table

    space = exact.Space(vocab_size=3, length=4)                  # all 81 sequences
    matrix = exact.transition_matrix(Table.random(3, 4), space)  # one random-scan step
    mu = exact.stationary(matrix)
    exact.mixing_time(matrix, epsilon=0.25).steps
    exact.entropy_production(matrix)

It stands on the conditionals alone and shares no arithmetic with the engine that samples, which is
tested against it.

States and conditionals
    Space                            all sequences of a length, numbered
    conditional, marginal            what a distribution over a space says about a block of sites
    redraw_probabilities             the conditionals of any model at every state
One step as a matrix or an operator
    transition_matrix, site_matrix   random scan, with blocks filled in sequence or as a product
    sweep_matrix, parallel_matrix    in order, and all at once; sweep_operator, parallel_operator
    adaptive_matrix                  the state chooses the site: naive, adaptive or conditioned
    pair_matrix                      two coupled chains; mean_meeting_times, mean_distances
The long run
    stationary, entropy_production   where the chain is in the end, and how irreversible it is
    spectrum                         spectral gaps, also of chains that are not reversible
    distances, mixing_time           total variation against time, and t_mix
    exact_influence                  influence matrix, alpha and the threshold temperature
    conductance, best_bottleneck     which set of states is hardest to leave
Texts with hidden sites
    Procedure, exact_law             the law of what an unmasking writes: order, count, hiding again
    exact_passes                     how many passes it takes
    correction_matrix                a sweep of redraws in a random order, which corrects it
Times until something happens
    mean_hitting_times               to a set, however long; mean_exit_times, mean_passage_between
    committor, arrival_within        which set comes first; the chance to be there within n steps
    hamming_ball                     the states near a sequence
Blocks of sites (paper B)
    Masks                            which sites are hidden together, fixed or adaptive
    gibbs_matrix, block_chain        redrawing a block from its joint conditional
    one_by_one_matrix, at_once_matrix    one site after another, and all at once
    block_gap                        spectral gap and Poincare constant; best_masks,
                                     best_adaptive_masks look for masks that mix faster
    tensorisation, log_sobolev       constants of relative entropy between bounds; decay
    dirichlet_form, variance, entropy    the functionals that these constants compare
    product_distance, block_forms    what one pass can draw; parallel_stationary: what it ends in
Models and learning (paper B)
    Ising, Potts, Clique             small models in full; ferromagnet: the paper's condition
    ising_family, potts_family, tilted_family    exponential families to fit
    Pseudolikelihood, fit_pairs      loss, gradient, Hessian and the convex fit
    asymptotics, efficiency          covariance of the estimate, and its bound by the gap
"""

from glauber.exact.blocks.ceilings import (
    Ceiling,
    ceiling,
)
from glauber.exact.blocks.clique import (
    Clique,
    Ferromagnet,
    ferromagnet,
)
from glauber.exact.blocks.covariance import (
    Asymptotics,
    Efficiency,
    asymptotics,
    asymptotics_by_size,
    efficiency,
    fisher_information,
)
from glauber.exact.blocks.dynamics import (
    at_once_matrix,
    block_chain,
    dirichlet_form,
    entropy,
    gibbs_matrix,
    one_by_one_matrix,
    variance,
)
from glauber.exact.blocks.gap import (
    BestAdaptiveMasks,
    BestMasks,
    Gap,
    best_adaptive_masks,
    best_masks,
    block_gap,
)
from glauber.exact.blocks.masks import (
    Masks,
    given_mask,
    mean_over_events,
)
from glauber.exact.blocks.products import (
    ParallelStationary,
    ProductDistance,
    block_forms,
    parallel_stationary,
    parallel_stationary_of,
    product_distance,
)
from glauber.exact.blocks.pseudolikelihood import (
    Drawing,
    Fit,
    Pseudolikelihood,
    all_masks,
    draw_counts,
    fit_pairs,
    observed,
    random_masks,
)
from glauber.exact.blocks.tensorisation import (
    Constant,
    Decay,
    decay,
    log_sobolev,
    tensorisation,
)
from glauber.exact.bottleneck import (
    Bottleneck,
    best_bottleneck,
    conductance,
)
from glauber.exact.conditionals import (
    redraw_probabilities,
)
from glauber.exact.hitting_times import (
    arrival_distribution,
    arrival_within,
    committor,
    hamming_ball,
    log_arrival_within,
    log_mean_hitting_times,
    mean_exit_times,
    mean_hitting_times,
    mean_passage_between,
)
from glauber.exact.influence import (
    Influence,
    exact_influence,
    mixing_bound,
    threshold_temperature,
)
from glauber.exact.mixing_time import (
    MixingTime,
    distances,
    mixing_time,
)
from glauber.exact.models import (
    Family,
    Ising,
    Potts,
    ising_family,
    ising_model,
    ising_theta,
    potts_family,
    potts_theta,
    state_counts,
    tilted_family,
)
from glauber.exact.pair_chain import (
    mean_distances,
    mean_meeting_times,
    pair_matrix,
)
from glauber.exact.scans import (
    adaptive_matrix,
    least_confident_matrix,
    parallel_matrix,
    parallel_operator,
    sweep_matrix,
    sweep_operator,
)
from glauber.exact.schedules import (
    Procedure,
)
from glauber.exact.space import (
    Space,
    conditional,
    log_conditional,
    marginal,
)
from glauber.exact.spectrum import (
    Spectrum,
    spectrum,
)
from glauber.exact.stationary import (
    entropy_production,
    stationary,
    total_variation,
)
from glauber.exact.transition import (
    site_matrix,
    transition_matrix,
)
from glauber.exact.unmasking import (
    correction_matrix,
    exact_law,
    exact_passes,
)

__all__ = [
    "Asymptotics",
    "BestAdaptiveMasks",
    "BestMasks",
    "Bottleneck",
    "Ceiling",
    "Clique",
    "Constant",
    "Decay",
    "Drawing",
    "Efficiency",
    "Family",
    "Ferromagnet",
    "Fit",
    "Gap",
    "Influence",
    "Ising",
    "Masks",
    "MixingTime",
    "ParallelStationary",
    "Potts",
    "Procedure",
    "ProductDistance",
    "Pseudolikelihood",
    "Space",
    "Spectrum",
    "adaptive_matrix",
    "all_masks",
    "arrival_distribution",
    "arrival_within",
    "asymptotics",
    "asymptotics_by_size",
    "at_once_matrix",
    "best_adaptive_masks",
    "best_bottleneck",
    "best_masks",
    "block_chain",
    "block_forms",
    "block_gap",
    "ceiling",
    "committor",
    "conditional",
    "conductance",
    "correction_matrix",
    "decay",
    "dirichlet_form",
    "distances",
    "draw_counts",
    "efficiency",
    "entropy",
    "entropy_production",
    "exact_influence",
    "exact_law",
    "exact_passes",
    "ferromagnet",
    "fisher_information",
    "fit_pairs",
    "gibbs_matrix",
    "given_mask",
    "hamming_ball",
    "ising_family",
    "ising_model",
    "ising_theta",
    "least_confident_matrix",
    "log_arrival_within",
    "log_conditional",
    "log_mean_hitting_times",
    "log_sobolev",
    "marginal",
    "mean_distances",
    "mean_exit_times",
    "mean_hitting_times",
    "mean_meeting_times",
    "mean_over_events",
    "mean_passage_between",
    "mixing_bound",
    "mixing_time",
    "observed",
    "one_by_one_matrix",
    "pair_matrix",
    "parallel_matrix",
    "parallel_operator",
    "parallel_stationary",
    "parallel_stationary_of",
    "potts_family",
    "potts_theta",
    "product_distance",
    "random_masks",
    "redraw_probabilities",
    "site_matrix",
    "spectrum",
    "state_counts",
    "stationary",
    "sweep_matrix",
    "sweep_operator",
    "tensorisation",
    "threshold_temperature",
    "tilted_family",
    "total_variation",
    "transition_matrix",
    "variance",
]
