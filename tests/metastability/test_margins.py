"""Gaps, basins and escapes against loops by hand and the exact transition matrix."""

import itertools
import math

import numpy as np
import pytest
import torch

from glauber.conditionals.base import Restricted
from glauber.conditionals.table import Joint, Table
from glauber.errors import GlauberError
from glauber.exact.space import Space
from glauber.exact.transition import transition_matrix
from glauber.metastability.margins import basin_margin
from glauber.metastability.margins import margins_of as margins


@pytest.mark.parametrize("temperature", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("law", [Table.random(3, 3, seed=2), Joint.random(4, 2, seed=2)])
def test_every_state_holds_as_the_transition_matrix_says(law, temperature):
    space = Space(law.vocab_size, law.length)
    stay = transition_matrix(law, space, temperature=temperature).diagonal()
    traps = 0
    for state, kept in zip(space.states(), stay, strict=True):
        found = margins(law, state, torch.ones(law.length).bool(), temperature=temperature)
        for i, token in enumerate(state.tolist()):
            scores = law.scores(state[None], torch.tensor([[i]]))[0, 0].tolist()
            others = [score for v, score in enumerate(scores) if v != token]
            assert found.gaps[i] == pytest.approx(scores[token] - max(others), abs=1e-12)
        assert found.escape_rate == pytest.approx(1 - kept, rel=1e-9)
        assert found.holding_time == pytest.approx(1 / (1 - kept), rel=1e-9)
        assert found.perfect == bool((found.gaps > 0).all()) == (found.escape_bound is not None)
        if found.escape_bound is not None:
            traps += 1
            size = law.vocab_size - 1
            assert found.escape_bound == pytest.approx(
                size * math.exp(-found.gaps.min() / temperature)
            )
            assert found.escape_rate <= found.escape_bound
    assert traps > 0


def test_a_deep_trap_keeps_its_digits():
    entries = torch.zeros(2, 3, 3, 2, dtype=torch.float64)
    entries[..., 0] = 60.0
    found = margins(Table(entries), torch.tensor([0, 0]), torch.ones(2).bool())
    assert found.escape_rate == pytest.approx(math.exp(-60), rel=1e-9)
    assert found.holding_time == pytest.approx(math.exp(60), rel=1e-9)


def test_only_free_sites_and_allowed_tokens_count():
    table = Table.random(4, 3, seed=3)
    law = Restricted(table, torch.tensor([True, True, False, True]))
    found = margins(law, torch.tensor([0, 2, 1]), torch.tensor([True, False, True]))
    assert found.sites == (0, 2) and found.n_tokens == 3
    scores = table.scores(torch.tensor([[0, 2, 1]]), torch.tensor([[0]]))[0, 0]
    assert found.gaps[0] == pytest.approx(float(scores[0] - max(scores[1], scores[3])))
    with pytest.raises(GlauberError, match="site 1 may never be drawn"):
        margins(law, torch.tensor([0, 2, 1]), torch.ones(3).bool())
    with pytest.raises(GlauberError, match="frozen"):
        margins(law, torch.tensor([0, 2, 1]), torch.zeros(3).bool())


def margin_by_hand(law, basin, vocab):
    """(margin, whether x_i is the argmax wherever a change can leave), by the definition."""
    margin, argmax = math.inf, True
    for x in basin:
        for i in range(len(x)):
            scores = law.scores(torch.tensor([x]), torch.tensor([[i]]))[0, 0].tolist()
            leaving = [v for v in range(vocab) if (*x[:i], v, *x[i + 1 :]) not in basin]
            if leaving:
                argmax &= scores[x[i]] == max(scores)
                margin = min(margin, *(scores[x[i]] - scores[v] for v in leaving))
    return margin, argmax


def test_the_margin_of_a_basin_is_that_of_its_definition():
    rng = np.random.default_rng(0)
    held = 0
    space = Space(3, 3)
    everything = [tuple(state) for state in space.states().tolist()]
    for seed in range(60):
        # Agreement is rewarded, so that some of the basins have a margin.
        weights = Joint.random(3, 3, seed=seed, strength=0.5).log_weights
        for token in range(3):
            weights[token, token, :] += 3.0
            weights[:, token, token] += 1.0
        law = Joint(weights)
        if seed % 2:
            basin = {x for x in everything if x[:2] == (0, 0)}
        else:
            basin = {everything[k] for k in rng.choice(27, size=int(rng.integers(1, 9)))}
        states = torch.tensor(sorted(basin))
        found = basin_margin(law, states, temperature=0.5)
        margin, argmax = margin_by_hand(law, basin, 3)
        assert (found.margin, found.argmax) == (pytest.approx(margin, abs=1e-12), argmax)
        inside = space.index(states).numpy()
        matrix = transition_matrix(law, space, temperature=0.5).toarray()
        outside = 1 - matrix[np.ix_(inside, inside)].sum(axis=1)
        np.testing.assert_allclose(found.escape_rates, outside, atol=1e-12)
        if found.holds:
            held += 1
            assert found.escape_bound is not None and found.mixing_time_bound is not None
            assert found.escape_bound == pytest.approx(2 * math.exp(-margin / 0.5))
            assert outside.max() <= found.escape_bound
            assert found.mixing_time_bound == pytest.approx(math.exp(margin / 0.5) / 8)
        else:
            assert found.escape_bound is None and found.mixing_time_bound is None
    assert 5 <= held <= 55


def test_the_whole_space_has_no_way_out():
    law = Table.random(2, 2)
    states = torch.tensor(list(itertools.product(range(2), repeat=2)))
    found = basin_margin(law, states)
    assert found.margin == math.inf and found.escape_bound == 0
    with pytest.raises(GlauberError, match="at least one state"):
        basin_margin(law, states[:0])
