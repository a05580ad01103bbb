"""The draws of rectangles are what the protocol says, and come from the seed alone."""

import math
from collections import Counter

import pytest
import torch

from glauber.compatibility.rectangle_test import draw
from glauber.conditionals.base import Restricted
from glauber.conditionals.table import Table
from glauber.errors import GlauberError

LAW = Table.random(8, 4, seed=5)
TOKENS = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7], [2, 2, 2, 2]])
FREE = torch.tensor([[True] * 4, [True, True, False, True], [True] * 4])


def evenly(counted: Counter, cells: int) -> None:
    """Every cell within five standard deviations of an even spread, and no cell missing."""
    total = counted.total()
    assert len(counted) == cells
    spread = 5 * math.sqrt(total / cells * (1 - 1 / cells))
    assert all(abs(n - total / cells) < spread for n in counted.values())


def test_passages_pairs_and_replacements_are_uniform():
    count, top = 12_000, 5
    drawn = draw(LAW, TOKENS, FREE, count=count, top=top)
    evenly(Counter(drawn.passages.tolist()), 3)
    assert torch.equal(drawn.tokens, TOKENS[drawn.passages])
    evenly(Counter(map(tuple, drawn.sites[drawn.passages == 0].tolist())), 12)
    evenly(Counter(map(tuple, drawn.sites[drawn.passages == 1].tolist())), 6)
    assert FREE[drawn.passages].gather(1, drawn.sites).all()
    for passage, site in ((0, 1), (1, 3), (2, 0)):
        scores = LAW.scores(TOKENS[passage : passage + 1], torch.tensor([[site]]))[0, 0]
        first = scores.argsort(descending=True)[:top].tolist()
        others = {token for token in first if token != int(TOKENS[passage, site])}
        for slot in (0, 1):
            here = (drawn.passages == passage) & (drawn.sites[:, slot] == site)
            seen = Counter(drawn.values[here, slot].tolist())
            assert set(seen) == others
            evenly(seen, len(others))


def test_the_seed_decides_and_more_rectangles_keep_the_first():
    few = draw(LAW, TOKENS, FREE, count=50, seed=3, top=5)
    many = draw(LAW, TOKENS, FREE, count=700, seed=3, top=5)
    other = draw(LAW, TOKENS, FREE, count=50, seed=4, top=5)
    for one, two in zip(few, many, strict=True):
        assert torch.equal(one, two[:50])
    assert not torch.equal(few.sites, other.sites)


def test_sites_with_a_forbidden_token_are_never_drawn():
    allowed = torch.ones(8, dtype=torch.bool)
    allowed[[1, 4, 2]] = False  # text 1 keeps sites 0 and 3, text 2 sites 1 and 3, text 3 none
    drawn = draw(Restricted(LAW, allowed), TOKENS, FREE, count=300, top=4)
    assert set(drawn.passages.tolist()) == {0, 1}
    assert {tuple(sorted(pair)) for pair in drawn.sites[drawn.passages == 0].tolist()} == {(0, 3)}
    assert {tuple(sorted(pair)) for pair in drawn.sites[drawn.passages == 1].tolist()} == {(1, 3)}
    assert allowed[drawn.values].all() and allowed[drawn.tokens.gather(1, drawn.sites)].all()


def test_refusals():
    with pytest.raises(GlauberError, match="number of rectangles is 0"):
        draw(LAW, TOKENS, FREE, count=0, top=5)
    with pytest.raises(GlauberError, match="text 2 has fewer than two tokens"):
        draw(LAW, TOKENS, FREE & torch.tensor([[1], [0], [1]]).bool(), count=3, top=5)
    with pytest.raises(GlauberError, match="first choices is 1"):
        draw(LAW, TOKENS, FREE, count=3, top=1)
    with pytest.raises(GlauberError, match="seed"):
        draw(LAW, TOKENS, FREE, count=3, seed=-1, top=5)
    none = torch.tensor([False] * 2 + [True] * 6)
    with pytest.raises(GlauberError, match="allowed vocabulary"):
        draw(Restricted(LAW, none), TOKENS[:1] * 0, FREE[:1], count=3, top=5)
