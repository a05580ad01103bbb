import pytest
import torch

from conftest import make_tokenizer
from glauber.foundation.threads import side_by_side
from glauber.models import masked_lm
from glauber.models.base import PAD
from glauber.models.batching import ExactRows, largest_call
from glauber.models.masked_lm import EncoderWeights
from models.test_families import make as make_family


def make(forward):
    return ExactRows(forward, vocab_size=3)


def counted(calls):
    """A forward pass whose scores are made of the row's own tokens; notes each call's shape."""

    def forward(tokens, sites, candidates):
        calls.append(tuple(tokens.shape))
        total = tokens.sum(dim=1).float()[:, None, None]
        return total + torch.arange(3.0) + 10 * sites[:, :, None]

    return forward


def test_rows_are_grouped_by_exact_length():
    calls = []
    rows = make(counted(calls))
    tokens = torch.tensor([[1, 2, PAD], [1, 1, 1], [2, 2, PAD], [0, 1, 2]])
    sites = torch.tensor([[0], [2], [1], [1]])
    for length in (2, 3):
        rows.sizes(length, 1)
    calls.clear()
    scores = rows(tokens, sites, None)
    assert sorted(calls) == [(2, 2), (2, 3)]  # two rows each, never padded
    assert scores[:, 0, 0].tolist() == [3, 23, 14, 13]


def test_a_size_that_changes_bits_is_filled_up():
    """Calls of fewer than four rows answer with a hair of difference here, so they are not used."""
    calls = []
    plain = counted(calls)

    def forward(tokens, sites, candidates):
        scores = plain(tokens, sites, candidates)
        return scores + (1e-6 if len(tokens) < 4 else 0.0) * scores

    rows = make(forward)
    assert rows.sizes(10, 1) == [4, 8, 16, 32, 64]
    calls.clear()
    tokens, sites = torch.ones(6, 10, dtype=torch.int64), torch.zeros(6, 1, dtype=torch.int64)
    rows(tokens, sites, None)
    assert sorted(calls) == [(4, 10), (4, 10)]


def test_a_machine_where_slots_matter_gets_rows_alone():
    def forward(tokens, sites, candidates):
        slot = torch.arange(len(tokens)).float()[:, None, None]
        return tokens.sum(dim=1).float()[:, None, None] + slot * 1e-3 + torch.zeros(3)

    rows = make(forward)
    assert rows.sizes(10, 1) == [1]
    tokens, sites = torch.ones(5, 10, dtype=torch.int64), torch.zeros(5, 1, dtype=torch.int64)
    assert rows(tokens, sites, None).unique().tolist() == [10.0]


def test_large_calls_have_about_as_many_tokens():
    for length in (3, 12, 22, 66, 130, 514):
        assert (
            largest_call(length) == 1 or 350 < largest_call(length) * length <= 800 or length < 12
        )


def test_side_by_side_computes_on_one_thread_and_restores():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert side_by_side(lambda i: (i, torch.get_num_threads()), [1, 2, 3]) == [
            (1, 1),
            (2, 1),
            (3, 1),
        ]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("activation", ["gelu_new", "silu", "gelu"])
@pytest.mark.parametrize("ours", [True, False])
def test_bits_do_not_depend_on_the_batch_at_odd_widths(ours, activation, monkeypatch):
    """A small ALBERT in batches of 1 to 64 rows, by our own pass and by transformers'."""
    if not ours:
        monkeypatch.setattr(EncoderWeights, "describe", lambda weights: None)
    odd = dict(hidden_size=30, embedding_size=13, intermediate_size=37, hidden_act=activation)
    model = masked_lm.MaskedLM(make_family("albert", **odd), make_tokenizer())
    assert (model.encoder is not None) == ours
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(5, model.vocab_size, (64, 7), generator=generator)
    sites = torch.randint(7, (64, 1), generator=generator)
    wanted = model.scores(tokens, sites)
    for size in range(1, 64):
        assert torch.equal(model.scores(tokens[-size:], sites[-size:]), wanted[-size:])
