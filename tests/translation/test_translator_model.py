"""Who attends to whom: hidden positions that are not read, and scores of distances."""

import dataclasses

import pytest
import torch

from glauber.translation.data import Corpus, pad_rows
from glauber.translation.decoding import Decoding, translate_texts
from glauber.translation.model import FIRST_WORD, MASK, MAX_DISTANCE, PAD, Translator, load, save
from glauber.translation.neighbours import last_attention
from glauber.translation.training import TrainingPlan, take_over, train
from tiny_translation import sources, tiny, toy_pairs, toy_vocabulary


def with_sizes(kind="refine", **changes):
    """The tiny translator with other sizes and, where they fit, the same weights."""
    model = tiny(kind)
    torch.manual_seed(5)
    other = Translator(dataclasses.replace(model.shape, **changes)).double().eval()
    take_over(other, model)
    return other


DRAFT = torch.tensor([[9, MASK, 11, MASK, 13], [20, MASK, 22, PAD, PAD]])


def sensitivity(model):
    """How much the scores of each position depend on what is read at each: (rows, to, from)."""
    read = {}
    hook = model.words.register_forward_hook(lambda _, __, out: read.update(words=out))
    memory = model.encode(pad_rows(sources(2)))
    scores = model.denoise(DRAFT, memory)
    hook.remove()
    sizes = torch.zeros(2, 5, 5, dtype=torch.double)
    for site in range(5):
        (slope,) = torch.autograd.grad(scores[:, site].sum(), read["words"], retain_graph=True)
        sizes[:, site] = slope.abs().sum(-1)
    return sizes


def test_hidden_positions_are_read_by_themselves_alone():
    seen = sensitivity(with_sizes(attend_masks=False)) > 0
    for row, own in enumerate(DRAFT.tolist()):
        for to in range(5):
            for source, token in enumerate(own):
                if own[to] == PAD:
                    continue  # nobody reads what a padded position says
                shown = token not in (MASK, PAD) or to == source
                assert bool(seen[row, to, source]) == shown, (row, to, source)
    usual = sensitivity(with_sizes()) > 0
    assert usual[0].all() and not usual[1, :3, 3:].any()


def test_a_draft_of_masks_alone_is_read_position_by_position():
    """Then each position is its own: what another length would write there is the same."""
    model = with_sizes(attend_masks=False)
    memory = model.encode(pad_rows(sources(1)))
    scores = [model.denoise(torch.full((1, n), MASK), memory) for n in (3, 6)]
    torch.testing.assert_close(scores[0], scores[1][:, :3])
    usual = with_sizes()
    scores = [usual.denoise(torch.full((1, n), MASK), memory) for n in (3, 6)]
    assert (scores[0] - scores[1][:, :3]).abs().max() > 1e-3


@torch.no_grad()
def test_scores_of_distances_are_added_to_the_attention():
    """Without content and positions, attention is the softmax of the table, by hand."""
    model = with_sizes(relative=True, positional=False)
    for layer in model.decoder:
        layer.own.query.weight.zero_(), layer.own.query.bias.zero_()
    table = model.target_distances.table.weight.normal_(0, 2)
    with last_attention(model) as seen:
        model.denoise(DRAFT, model.encode(pad_rows(sources(2))))
    for row, length in ((0, 5), (1, 3)):
        for head in range(2):
            for to in range(length):
                own = [table[MAX_DISTANCE + at - to, head] for at in range(length)]
                expected = torch.stack(own).softmax(0)
                torch.testing.assert_close(seen["own"][row, head, to, :length], expected)
                assert (seen["own"][row, head, to, length:] == 0).all()


@torch.no_grad()
@pytest.mark.parametrize("kind", ["refine", "ar"])
def test_a_table_of_zeros_changes_nothing_and_another_does(kind):
    usual, model = with_sizes(kind), with_sizes(kind, relative=True)
    source = pad_rows(sources(3))
    read = [one.denoise if kind == "refine" else one.follow for one in (usual, model)]
    model.source_distances.table.weight.zero_()
    if kind == "refine":
        model.target_distances.table.weight.zero_()
    target = torch.randint(FIRST_WORD, 60, (3, 40))  # longer than the table reaches
    scores = [one(target, m.encode(source)) for one, m in zip(read, (usual, model), strict=True)]
    torch.testing.assert_close(*scores)
    model.source_distances.table.weight.normal_()
    assert (read[1](target, model.encode(source)) - scores[0]).abs().max() > 1e-3


@pytest.mark.parametrize("changes", [{"relative": True}, {"attend_masks": False}])
def test_other_attention_is_trained_stored_and_decoded(changes, tmp_path):
    vocabulary = toy_vocabulary()
    model = with_sizes(vocab_size=vocabulary.size, **changes).float()
    began = {name: weight.clone() for name, weight in model.state_dict().items()}
    train(model, Corpus.of(toy_pairs(30), vocabulary), TrainingPlan(3, 8, warmup=1))
    assert all(not began[n].equal(w) for n, w in model.state_dict().items() if "distances" in n)
    save(model, tmp_path, "student")
    again = load(tmp_path, "student")
    assert again.shape == model.shape
    for decoder in ("refine", "mask-predict", "easy-first"):
        decoding = Decoding(decoder, n_steps=2, n_lengths=2, judge="itself")
        assert len(translate_texts(again, vocabulary, ["the cat."], decoding=decoding)) == 1


def test_one_site_in_each_row_is_that_row_of_all():
    model, draft = tiny("refine"), torch.tensor([[9, 10, 11], [12, MASK, PAD]])
    memory = model.encode(pad_rows(sources(2)))
    sites = torch.tensor([2, 1])
    rows = model.denoise(draft, memory)[torch.arange(2), sites][:, None]
    torch.testing.assert_close(model.denoise(draft, memory, sites), rows)
