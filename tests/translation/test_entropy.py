"""Entropy given a source: draws, their probabilities and one pass, against sums over all tokens."""

import numpy as np
import pytest
import torch

from glauber.translation.data import pad_rows
from glauber.translation.decoding import length_log_probs, next_log_probs, read_log_probs
from glauber.translation.entropy import _one_pass, draw, source_entropies
from glauber.translation.model import BEGIN, BUNDLED, FIRST_WORD, MASK, PAD
from tiny_translation import sources, tiny


def test_draws_follow_the_teacher():
    model, rows = tiny("ar", scale=3.0), 4000
    source = pad_rows(sources(1))
    memory = model.encode(source).rows(torch.zeros(rows, dtype=torch.long))
    drawn = draw(model, memory, torch.Generator().manual_seed(1))
    one = model.encode(source)
    first = next_log_probs(model, torch.tensor([[BEGIN]]), one, model.empty_cache())[0].exp()
    counts = torch.bincount(drawn[:, 0], minlength=60) / rows
    error = 4.5 * (first * (1 - first) / rows).sqrt() + 1e-9
    assert ((counts - first).abs() <= error)[FIRST_WORD:].all()
    ends = (drawn != PAD).int().diff(dim=1)
    assert (ends <= 0).all()  # nothing is written after the end
    # The mean of 1 / p over draws with one token is how many one-token sentences there are.
    log_probs = read_log_probs(model, drawn, memory).sum(1)
    assert (log_probs <= 0).all() and torch.isfinite(log_probs).all()


def test_one_pass_is_the_length_and_a_product():
    model = tiny("refine", scale=3.0)
    source, drawn = pad_rows(sources(1)), torch.tensor([[7, 9, 11], [8, PAD, PAD]])
    found = _one_pass(model, source, drawn)
    memory = model.encode(source)
    lengths = length_log_probs(model, memory, source)[0]
    for row, tokens in enumerate(([7, 9, 11], [8])):
        scores = model.denoise(torch.full((1, len(tokens)), MASK), memory)[0, :, FIRST_WORD:]
        by_hand = lengths[len(tokens) - 1].item()
        for site, token in enumerate(tokens):
            by_hand += scores[site].float().log_softmax(0)[token - FIRST_WORD].item()
        assert found[row].item() == pytest.approx(by_hand, rel=1e-4)


def test_a_short_source_is_nearly_certain():
    """The same draws for the same seed; a greeting has fewer translations than a long sentence."""
    texts = ["Thank you.", "I was reading a book about old ships when my brother came home."]
    short, long = source_entropies(BUNDLED, texts, n_samples=8, seed=2)
    assert (short, long) == tuple(source_entropies(BUNDLED, texts, n_samples=8, seed=2))
    assert short.tokens < long.tokens and short.agreement > long.agreement
    assert 0 < short.entropy < 3 and 0 < long.cost < 8
    assert np.isfinite([*short, *long]).all()
