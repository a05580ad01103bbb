"""Truncation: against transformers' own, and ties by hand."""

import pytest
import torch
from transformers import TopKLogitsWarper, TopPLogitsWarper

from glauber.dynamics.draws import Truncation
from glauber.foundation.errors import GlauberError


@pytest.mark.parametrize("top_k, top_p", [(5, None), (None, 0.7), (40, 0.8), (None, 0.999)])
def test_truncation_is_that_of_transformers(top_k: int | None, top_p: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(50, 300, generator=generator, dtype=torch.float64) * 2
    wanted = scores
    if top_k is not None:
        wanted = TopKLogitsWarper(top_k)(None, wanted)
    if top_p is not None:
        wanted = TopPLogitsWarper(top_p)(None, wanted)
    found = Truncation(top_k, top_p)(torch.log_softmax(scores, dim=-1))
    wanted = torch.log_softmax(wanted, dim=-1)
    assert torch.equal(found > -torch.inf, wanted > -torch.inf)
    kept = found > -torch.inf
    torch.testing.assert_close(found[kept], wanted[kept], rtol=1e-12, atol=1e-12)


def test_equal_tokens_are_taken_by_their_number() -> None:
    log_probs = torch.tensor([[0.1, 0.3, 0.1, 0.3, 0.1, 0.1]]).double().log()
    for top_k, kept in ((1, [1]), (2, [1, 3]), (3, [0, 1, 3]), (4, [0, 1, 2, 3]), (9, [*range(6)])):
        found = Truncation(top_k)(log_probs)
        assert (found > -torch.inf)[0].nonzero()[:, 0].tolist() == kept
    for top_p, kept in ((0.2, [1]), (0.5, [1, 3]), (0.65, [0, 1, 3]), (1.0, [*range(6)])):
        found = Truncation(None, top_p)(log_probs)
        assert (found > -torch.inf)[0].nonzero()[:, 0].tolist() == kept
    # Top-p is measured in what top-k leaves: 0.3 / 0.7 and 0.6 / 0.7.
    found = Truncation(3, 0.8)(log_probs)
    assert found[0].exp().tolist() == pytest.approx([0, 0.5, 0, 0.5, 0, 0])


def test_what_keeps_nothing_is_refused() -> None:
    for bad in (Truncation(0), Truncation(None, 1.5), Truncation(None, -1)):
        with pytest.raises(GlauberError, match="but it must"):
            bad.check()
