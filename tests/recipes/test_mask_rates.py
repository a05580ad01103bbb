"""Masked LMs that differ in their masks alone: the masks are what they are said to be."""

import math

import torch

from recipes.mask_rates_training import KINDS, LENGTH, hidden_sites, row_counts


def test_sites_are_drawn_in_favour_of_their_weights() -> None:
    rows, weights = 40_000, torch.tensor([0.0, 1.0, 2.0, 5.0])
    tokens = torch.zeros(rows, 4, dtype=torch.long)
    noise = torch.rand(rows, 4, generator=torch.Generator().manual_seed(0)).clamp(min=1e-12)
    counts = torch.ones(rows, dtype=torch.long)
    sites = hidden_sites(tokens, counts, weights.expand(rows, 4), noise) % 4
    share = torch.bincount(sites, minlength=4) / rows
    expected = weights / weights.sum()
    error = 4.5 * (expected * (1 - expected) / rows).sqrt()
    assert (share - expected).abs().le(error).all()


def test_no_site_is_hidden_twice_and_none_of_weight_zero() -> None:
    counts = torch.tensor([3, 1, 2])
    weights = torch.tensor([[0.0, 1, 1, 1, 0]]).expand(3, 5)
    noise = torch.rand(3, 5, generator=torch.Generator().manual_seed(1))
    sites = hidden_sites(torch.zeros(3, 5, dtype=torch.long), counts, weights, noise)
    assert len(set(sites.tolist())) == 6
    assert {site % 5 for site in sites.tolist()} <= {1, 2, 3}
    assert torch.bincount(sites // 5).tolist() == counts.tolist()


def test_every_kind_hides_the_share_it_names() -> None:
    for name, masks in KINDS.items():
        counts = row_counts(masks, 512, "cpu").double()
        expected = max(1 / (LENGTH - 2), sum(masks.share) / 2)
        assert math.isclose(counts.mean() / (LENGTH - 2), expected, abs_tol=0.01), name
