"""Random families on which the theorems must hold: Ising, Potts and arbitrary laws, N <= 6."""

from itertools import combinations

import numpy as np

from glauber.exact.blocks.masks import Masks
from glauber.exact.models import Family, Ising, ising_family, ising_theta
from glauber.exact.space import Space
from glauber.models.table import Joint


def random_family(seed):
    """A family and a theta: in turn Ising (2 to 6 sites), Potts of 3 colours, any tilted law."""
    rng = np.random.default_rng(seed)
    strength = rng.uniform(0.1, 0.8)
    if seed % 3 == 0:
        n = 2 + seed // 3 % 5
        return ising_family(n), ising_theta(Ising.random(n, seed, strength))
    if seed % 3 == 1:
        family = potts_family(2 + seed // 3 % 3, 3)
        return family, rng.normal(size=family.n_parameters) * strength
    vocab, n = ((2, 2), (2, 4), (2, 6), (3, 3))[seed // 3 % 4]
    space = Space(vocab, n)
    law = Joint.random(vocab, n, seed, strength).probabilities().numpy()
    statistics = rng.normal(size=(3, space.size))
    return tilted_family(law, space, statistics), rng.normal(size=3) * 0.3


def potts_family(n_sites, colours):
    """p(x) ~ exp(sum_i h_i(x_i) + sum_{i != j} J_ij [x_i = x_j]), the fields of colour 0 at zero.

    theta = (h_i(c) for c > 0; J_ij for i < j).
    """
    space = Space(colours, n_sites)
    states = space.states().numpy().T
    singles = [states[i] == c for i in range(n_sites) for c in range(1, colours)]
    pairs = [2 * (states[i] == states[j]) for i, j in combinations(range(n_sites), 2)]
    statistics = np.stack([*singles, *pairs]).astype(np.float64)
    return Family(space, statistics, np.zeros(space.size), tuple(map(str, range(len(statistics)))))


def tilted_family(law, space, statistics):
    """Any distribution (size,), tilted by statistics (d, size); it has theta = 0 itself."""
    return Family(space, statistics, np.log(law), tuple(map(str, range(len(statistics)))))


def random_weighted(space, rng):
    """Some blocks with random weights; the singletons make sure that no site is missed."""
    blocks = [(site,) for site in range(space.length)] + some_blocks(space, rng)
    return Masks.from_weights(space, blocks, rng.uniform(0.1, 1, len(blocks)))


def random_adaptive(space, rng):
    """Blocks whose chances depend on the state; a tenth of the chances are zero."""
    blocks = [(site,) for site in range(space.length)] + some_blocks(space, rng)
    weights = rng.uniform(0.05, 1, (len(blocks), space.size))
    weights[1:] *= rng.random(weights[1:].shape) > 0.1
    return Masks.adaptive(space, blocks, weights / weights.sum(axis=0))


def some_blocks(space, rng):
    larger = [b for k in range(2, space.length + 1) for b in combinations(range(space.length), k)]
    chosen = rng.choice(len(larger), size=min(3, len(larger)), replace=False)
    return [larger[slot] for slot in chosen]
