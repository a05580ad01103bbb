# ruff: noqa: F403
"""Small models without sampling: the independent oracle.

    from glauber import exact
    from glauber.models.table import Joint, Table

    space = exact.Space(vocab_size=3, length=4)                  # all 81 sequences
    matrix = exact.transition_matrix(Table.random(3, 4), space)  # one random-scan step
    mu = exact.stationary(matrix)
    exact.mixing_time(matrix, epsilon=0.25).steps
    exact.entropy_production(matrix)

It depends on the conditionals alone and shares no arithmetic with the engine that samples, which
is tested against it.

States and conditionals
    Space                            all sequences of a length, numbered
    conditional, marginal            blocks of sites under a distribution over a space
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
    Procedure, exact_law             what an unmasking writes: order, count, hiding again
    exact_passes                     how many passes it takes
    correction_matrix                a sweep of redraws in a random order, which corrects it
Times until something happens
    mean_hitting_times               to a set, however long; mean_exit_times, mean_passage_between
    committor, arrival_within        which set comes first; the chance to arrive within n steps
    hamming_ball                     the states near a sequence
Blocks of sites (paper B)
    Masks                            which sites are hidden together, fixed or adaptive
    gibbs_matrix, block_chain        redrawing a block from its joint conditional
    sequential_block_matrix, parallel_block_matrix    one site after another, and all at once
    block_gap                        spectral gap and Poincare constant
    best_masks                       the mask weights that mix fastest or learn best
    mask_pair_matrix, closed_sets    the chain on pairs of state and mask, and why it is not ergodic
    tensorisation, log_sobolev       constants of relative entropy between bounds; decay
    dirichlet_form, variance, entropy    the functionals that these constants compare
    product_distance, block_forms    what one pass can draw; parallel_stationary: what it ends in
Models and learning (paper B)
    Ising, Clique                    small models in full, and the paper's condition
    ising_family                     exponential families to fit
    Pseudolikelihood, fit_pairs      loss, gradient, Hessian and the convex fit
    added_information, mode_ratios   what one more hidden site adds; how likely the two modes are
    asymptotics, efficiency          covariance of the estimate, and its bound by the gap
"""

from glauber.exact.blocks.dynamics import *
from glauber.exact.blocks.masks import *
from glauber.exact.blocks.products import *
from glauber.exact.blocks.pseudolikelihood import *
from glauber.exact.blocks.search import *
from glauber.exact.blocks.tensorisation import *
from glauber.exact.conditionals import *
from glauber.exact.hitting_times import *
from glauber.exact.influence import *
from glauber.exact.mixing_time import *
from glauber.exact.models import *
from glauber.exact.pair_chain import *
from glauber.exact.space import *
from glauber.exact.spectrum import *
from glauber.exact.stationary import *
from glauber.exact.transition import *
from glauber.exact.unmasking import *
