"""Best weights of masks against SLSQP, random weights and their own bound."""

import numpy as np
import pytest
from scipy.optimize import minimize

from glauber.exact import Pseudolikelihood, asymptotics, best_masks
from glauber.exact.blocks.dynamics import block_gap
from glauber.exact.blocks.masks import Masks
from glauber.exact.models import Ising, ising_family, ising_theta
from glauber.exact.space import Space
from glauber.foundation.errors import GlauberError


@pytest.mark.parametrize("k", [1, 2])
def test_the_largest_gap(k):
    model, space = Ising.clique(5, 3, coupling=0.4, field=0.1), Space(2, 5)
    p, blocks = model.probabilities, Masks.uniform(space, k).blocks
    found = best_masks(p, space, blocks)
    assert found.gain > 1.5 and found.criterion == "gap"
    assert found.bound * (1 - 2e-3) <= found.value <= found.bound * (1 + 1e-9)
    assert block_gap(p, found.masks).value == pytest.approx(found.value, abs=1e-9)
    assert found.uniform == pytest.approx(block_gap(p, Masks.uniform(space, k)).value, abs=1e-12)
    for weights in np.random.default_rng(0).dirichlet(np.ones(len(blocks)), size=20):
        assert block_gap(p, Masks.from_weights(space, blocks, weights)).value <= found.bound


@pytest.mark.parametrize("k", [1, 2])
def test_the_smallest_trace(k):
    """The trace of Gamma, as `asymptotics` has it; SLSQP on the same function finds no less."""
    model, space, family = Ising.random(4, seed=3, strength=0.6), Space(2, 4), ising_family(4)
    p, blocks = model.probabilities, Masks.uniform(space, k).blocks

    def trace(weights):
        masks = Masks.from_weights(space, blocks, weights)
        return asymptotics(Pseudolikelihood(family, masks), ising_theta(model)).trace()

    found = best_masks(p, space, blocks, statistics=family.statistics)
    assert found.bound * (1 - 1e-9) <= found.value <= found.bound * (1 + 2e-3)
    assert trace(found.masks.chances) == pytest.approx(found.value, rel=1e-9)
    equal = np.full(len(blocks), 1 / len(blocks))
    assert found.uniform == pytest.approx(trace(equal), rel=1e-9) and found.gain > 1.01
    other = minimize(
        trace,
        equal,
        method="SLSQP",
        bounds=[(1e-6, 1)] * len(blocks),
        constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1},
    )
    assert found.bound <= other.fun * (1 + 1e-9) and found.value <= other.fun * (1 + 1e-3)


def test_what_is_refused():
    space = Space(2, 11)
    with pytest.raises(GlauberError, match="at most 1,024 states"):
        best_masks(np.full(2**11, 2.0**-11), space, Masks.uniform(space, 1).blocks)
    model, space = Ising.random(3, seed=1), Space(2, 3)
    statistics = np.vstack([ising_family(3).statistics[:1]] * 2)
    with pytest.raises(GlauberError, match="undetermined"):
        best_masks(model.probabilities, space, [(0, 1, 2)], statistics=statistics)
