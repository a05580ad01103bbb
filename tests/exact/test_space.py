"""Are all states there, once each and in order?"""

import itertools

import pytest
import torch

from glauber.errors import GlauberError
from glauber.exact import Space


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
