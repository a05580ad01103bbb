"""States, marginals and conditionals against sums by hand; the public names."""

import itertools
import pydoc

import numpy as np
import pytest
import torch

from glauber import exact
from glauber.exact.space import Space, conditional, log_conditional, marginal, over_block
from glauber.foundation.errors import GlauberError
from glauber.models.table import Joint


def test_states_are_in_lexicographic_order_and_numbered_by_it():
    space = Space(3, 4)
    states = space.states()
    assert states.dtype == torch.int64 and space.size == 81
    assert states.tolist() == [list(s) for s in itertools.product(range(3), repeat=4)]
    shuffled = torch.randperm(81, generator=torch.Generator().manual_seed(0))
    assert torch.equal(space.index(states[shuffled]), shuffled)


def test_too_large_a_space_is_refused_with_its_count():
    with pytest.raises(GlauberError, match=r"1,000,000 states.*999,999"):
        Space(10, 6, limit=999_999)
    assert Space(10, 6, limit=1_000_000).size == 10**6
    with pytest.raises(GlauberError, match="1,048,576"):
        Space(2, 21)


def test_tokens_that_are_no_states_are_refused():
    for tokens in ([[0, 1]], [[0, 1, 3]], [[0, -1, 2]]):
        with pytest.raises(GlauberError):
            Space(3, 3).index(torch.tensor(tokens))


SPACE = Space(3, 3)
LAW = Joint.random(3, 3, seed=2).probabilities().numpy()
STATES = list(itertools.product(range(3), repeat=3))


@pytest.mark.parametrize("hidden", [(0,), (2,), (0, 2), (0, 1, 2)])
def test_conditionals(hidden):
    seen = [s for s in range(3) if s not in hidden]
    for number, state in enumerate(STATES):
        alike = [LAW[m] for m, x in enumerate(STATES) if all(x[s] == state[s] for s in seen)]
        assert conditional(LAW, SPACE, hidden)[number] == pytest.approx(LAW[number] / sum(alike))
    logs = np.log(LAW) + 800  # weights that overflow if they are not kept as logarithms
    np.testing.assert_allclose(
        np.exp(log_conditional(logs, SPACE, hidden)), conditional(LAW, SPACE, hidden), rtol=1e-12
    )


def test_a_weight_of_zero_and_many_laws_at_once():
    logs = np.log(LAW)
    logs[:9] = -np.inf  # all states with token 0 at site 0
    found = log_conditional(np.stack([logs, np.log(LAW)]), SPACE, (1, 2))
    assert np.isneginf(found[0, :9]).all()
    np.testing.assert_allclose(np.exp(found[0, 9:18]).sum(), 1)
    np.testing.assert_allclose(found[1], log_conditional(np.log(LAW), SPACE, (1, 2)))
    assert over_block(LAW, SPACE, (1,), np.maximum)[4] == max(LAW[1], LAW[4], LAW[7])


def test_marginals_keep_the_order_of_the_sites():
    found = marginal(LAW, SPACE, (2, 0)).reshape(3, 3)
    for a, b in itertools.product(range(3), repeat=2):
        by_hand = sum(LAW[m] for m, x in enumerate(STATES) if (x[2], x[0]) == (a, b))
        assert found[a, b] == pytest.approx(by_hand)
    with pytest.raises(GlauberError, match="outside 0 to 2"):
        marginal(LAW, SPACE, (3,))
    with pytest.raises(GlauberError, match="each one once"):
        marginal(LAW, SPACE, (1, 1))


NAMES = [name for name in vars(exact) if name[0] != "_" and callable(getattr(exact, name))]


def test_every_public_name_is_there_and_says_what_it_is():
    assert {"Space", "stationary", "block_gap", "fit_pairs", "exact_law"} <= set(NAMES)
    for name in NAMES:
        found = getattr(exact, name)
        assert callable(found) and (found.__doc__ or "").strip(), name


def test_the_page_names_the_tools_that_people_ask_for():
    page = pydoc.render_doc(exact, renderer=pydoc.plaintext)
    for name in ("Space", "transition_matrix", "stationary", "spectrum", "mixing_time", "Masks"):
        assert name in page.split("PACKAGE CONTENTS")[0]
