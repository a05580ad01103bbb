import pytest
import torch
from scipy.stats import chi2

from glauber.dynamics.draws import _by_sorting, fill_named, gumbel_max, inverse_cdf
from glauber.dynamics.noise import random_bits, uniform
from glauber.foundation.errors import GlauberError


def some_bits(n, seed=0):
    return random_bits(torch.tensor(seed), torch.arange(n), torch.tensor(0), torch.tensor(0))[0]


def by_hand(scores, temperature, u):
    """The definition, token by token: decreasing score, then id; the first beyond u."""
    law = torch.softmax(scores.double() / temperature, -1)
    total = 0.0
    for token in sorted(range(len(scores)), key=lambda t: (-float(scores[t]), t)):
        total += float(law[token])
        if total > u:
            return token
    return None


@pytest.mark.parametrize("temperature", [0.3, 1.0, 8.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inverse_cdf_is_its_definition(dtype, temperature):
    """Vocabulary beyond both heads, with many ties (bfloat16) and forbidden tokens."""
    torch.manual_seed(0)
    scores = (torch.randn(60, 3000) * 2).to(dtype)
    scores[:, ::5] = -torch.inf
    noise = some_bits(60)
    heat = torch.full((60,), temperature).double()
    drawn = inverse_cdf().draw(scores, heat, noise, torch.ones(60, dtype=torch.int64))
    for row in range(60):
        assert drawn.tokens[row] == by_hand(scores[row], temperature, float(uniform(noise[row])))


@pytest.mark.parametrize("scale", [0.0, 0.01, 3.0, 30.0])
def test_heads_agree_with_a_full_sort(scale):
    """Flat, mild and peaked laws: looking at 64, then 1,024, then all gives the same token."""
    torch.manual_seed(1)
    scores = torch.randn(500, 4000) * scale
    noise, old = some_bits(500, 7), torch.zeros(500, dtype=torch.int64)
    heat = torch.ones(500).double()
    fast = inverse_cdf().draw(scores, heat, noise, old)
    slow = _by_sorting(scores, heat, uniform(noise), old)
    assert torch.equal(fast.tokens, slow.tokens)
    torch.testing.assert_close(fast.entropy, slow.entropy, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("fill", [inverse_cdf, gumbel_max])
def test_fills_follow_the_law(fill):
    torch.manual_seed(2)
    scores, n = torch.randn(200) * 1.5, 100_000
    laws = torch.softmax(scores.double() / 0.7, -1)
    drawn = fill().draw(
        scores.expand(n, -1),
        torch.full((n,), 0.7).double(),
        some_bits(n, 3),
        torch.zeros(n).long(),
    )
    due = laws * n
    often = due > 5
    seen = torch.bincount(drawn.tokens, minlength=200)
    statistic = ((seen - due) ** 2 / due)[often].sum()
    assert chi2.sf(float(statistic), int(often.sum()) - 1) > 1e-3


def test_a_row_is_drawn_alone():
    """A row's draw and figures do not depend on the rows beside it."""
    torch.manual_seed(4)
    scores, noise = torch.randn(300, 2000), some_bits(300)
    heat, old = torch.rand(300).double() + 0.2, torch.randint(2000, (300,))
    whole = inverse_cdf().draw(scores, heat, noise, old)
    for rows in (slice(0, 1), slice(17, 20), slice(100, 300)):
        part = inverse_cdf().draw(scores[rows], heat[rows], noise[rows], old[rows])
        for one, other in zip(part, whole, strict=True):
            assert torch.equal(one, other[rows])


def test_greedy_takes_the_most_probable_token():
    scores = torch.tensor([[0.0, 3.0, 3.0], [5.0, 1.0, 2.0]])
    args = torch.ones(2).double(), some_bits(2), torch.zeros(2).long()
    assert fill_named("greedy").draw(scores, *args).tokens.tolist() == [1, 0]


def test_unknown_fills_are_refused():
    with pytest.raises(GlauberError, match="must be one of"):
        fill_named("dice")
