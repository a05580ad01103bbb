"""Is the attention that the tables show the one that the layer used?"""

import math

import pytest
import torch

from glauber.foundation.errors import GlauberError
from glauber.translation.data import pad_rows
from glauber.translation.model import FIRST_WORD, MASK, PAD
from glauber.translation.neighbours import (
    Pairs,
    attention_of_neighbours,
    last_attention,
    neighbours,
)
from tiny_translation import sources, tiny, toy_pairs, toy_vocabulary


@pytest.fixture(scope="module")
def vocabulary():
    return toy_vocabulary()


@torch.no_grad()
def test_attention_is_a_softmax_by_hand_and_gives_the_layers_output():
    model = tiny("refine")
    source = pad_rows(sources(4))
    draft = pad_rows(sources(4, seed=1))
    given, out = {}, {}
    layer = model.decoder[-1]

    def keep(name):
        def hook(module, args, result):
            given[name], out[name] = args, result

        return hook

    for name in ("own", "cross"):
        getattr(layer, name).register_forward_hook(keep(name))
    with last_attention(model) as seen:
        model.denoise(draft, model.encode(source))
    for name, reference in (("own", draft), ("cross", source)):
        part, (asking, asked, _) = getattr(layer, name), given[name]
        mixed = torch.zeros_like(out[name])
        for row in range(4):
            for head in range(2):
                part_of = slice(16 * head, 16 * head + 16)
                query, key = part.query(asking)[row, :, part_of], part.key(asked)[row, :, part_of]
                n = int((reference[row] != PAD).sum())
                for i in range(query.shape[0]):
                    scores = [float(query[i] @ key[j]) / 4 for j in range(n)]
                    weights = [math.exp(score - max(scores)) for score in scores]
                    law = torch.tensor(weights, dtype=torch.double) / sum(weights)
                    torch.testing.assert_close(seen[name][row, head, i, :n], law)
                    assert (seen[name][row, head, i, n:] == 0).all()
                    mixed[row, i, part_of] = law @ part.value(asked)[row, :n, part_of]
        torch.testing.assert_close(part.out(mixed), out[name])


@torch.no_grad()
def test_the_share_of_target_tokens_is_that_of_one_softmax():
    """Scores over target and source side by side, for a position of each row and head."""
    model = tiny("refine")
    source, draft = pad_rows(sources(3)), pad_rows(sources(3, seed=1))
    given, layer = {}, model.decoder[-1]
    for name in ("own", "cross"):
        getattr(layer, name).register_forward_hook(
            lambda module, args, result, name=name: given.update({name: args})
        )
    with last_attention(model) as seen:
        model.denoise(draft, model.encode(source))
    for row in range(3):
        for head in range(2):
            scores = []
            for name, reference in (("own", draft), ("cross", source)):
                part, (states, context, _) = getattr(layer, name), given[name]
                n, slots = int((reference[row] != PAD).sum()), slice(16 * head, 16 * head + 16)
                query, key = part.query(states)[row, 0, slots], part.key(context)[row, :n, slots]
                scores.append(key @ query / 4)
            joint, n_target = torch.cat(scores).softmax(0), len(scores[0])
            torch.testing.assert_close(seen["target"][row, head, 0], joint[:n_target].sum())
    # Pairs take that of both positions.
    predicted = torch.tensor([[9, 9, 12]])
    target = torch.tensor([[[0.2, 0.6, 0.9], [0.4, 0.8, 0.1]]])
    own, cross = torch.full((1, 2, 3, 3), 1 / 3), torch.full((1, 2, 3, 2), 1 / 2)
    measures = Pairs.of(predicted, own, cross, target=target).measures
    torch.testing.assert_close(measures["target_avg"][0], torch.tensor([0.3, 0.7]))
    torch.testing.assert_close(measures["target_min"][1], torch.tensor([0.6, 0.1]))
    assert "target_avg" not in Pairs.of(predicted, own, cross).measures


def test_hooks_are_gone_afterwards():
    model = tiny("refine")
    with last_attention(model) as seen:
        pass
    model.denoise(torch.tensor([[MASK, MASK]]), model.encode(torch.tensor([[7, 8]])))
    assert not seen


def test_measures_of_a_pair_by_hand():
    """One row, two heads, three positions of which the first two stutter; three source tokens."""
    said = torch.tensor([[9, 9, 12, PAD]])
    own = torch.zeros(1, 2, 4, 4)
    own[0, 0, :3, :3] = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.8, 0.1], [0.0, 0.4, 0.6]])
    own[0, 1, :3, :3] = torch.tensor([[0.6, 0.1, 0.3], [0.7, 0.2, 0.1], [1.0, 0.0, 0.0]])
    cross = torch.zeros(1, 2, 4, 3)
    cross[0, 0, :3] = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]])
    cross[0, 1, :3] = torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.1, 0.3, 0.6]])
    pairs = Pairs.of(said, own, cross, 4)
    assert pairs.stutters.tolist() == [True, False] and pairs.sentence.tolist() == [4, 4]
    first = {name: values[0].tolist() for name, values in pairs.measures.items()}
    # There: 0.5 and 0.1; back: 0.1 and 0.7.
    assert first["self_min"] == pytest.approx([0.1, 0.1])
    assert first["self_avg"] == pytest.approx([0.3, 0.4])
    assert first["self_max"] == pytest.approx([0.5, 0.7])
    assert first["self_top_1"] == [0.5, 0.5]  # head 0 there, head 1 back
    assert first["self_top_2"] == [0.5, 1.0]  # back in head 0 only its own position is above
    # Head 0: disjoint, distance 1; head 1: equal, distance 0.
    assert first["variation_min"] == [0.0] and first["variation_max"] == [1.0]
    assert first["variation_avg"] == [0.5]
    assert first["cosine_max"] == [1.0] and first["cosine_min"] == pytest.approx([0.0], abs=1e-6)
    assert first["cross_top_1"] == [0.5] and first["cross_top_2"] == [1.0]
    second = pairs.measures["variation_avg"][1].tolist()
    assert second == pytest.approx([(0.5 + 0.4) / 2])
    cosine = 1 - 0.5 / math.sqrt(0.5)
    assert pairs.measures["cosine_avg"][1, 0] == pytest.approx(
        (cosine + 1 - (0.05 + 0.09 + 0.12) / math.sqrt(0.38 * 0.46)) / 2, abs=1e-6
    )


def test_standard_errors_count_sentences():
    """Pairs that repeat one another within a sentence carry no more than one of them."""
    draw = torch.Generator().manual_seed(0)
    values = torch.randn(50, 1, generator=draw, dtype=torch.double)
    one = Pairs(torch.arange(50) % 2 == 0, torch.arange(50), {"x": values})
    many = Pairs(*(x.repeat_interleave(4, 0) for x in one[:2]), {"x": values.repeat(4, 1)})
    many = many._replace(sentence=torch.arange(50).repeat(4), stutters=one.stutters.repeat(4))
    few, repeated = neighbours(one, 1).stuttering, neighbours(many, 1).stuttering
    plain = values[::2].std(correction=0) / 5
    assert few.measures["x"].standard_error == pytest.approx(float(plain))
    assert repeated.measures["x"].standard_error == pytest.approx(float(plain))
    assert (few.n_pairs, repeated.n_pairs) == (25, 100)
    assert few.n_sentences == repeated.n_sentences == 25


def test_intervals_of_the_difference_hold_over_sentences():
    """Pairs share what is special to their sentence, in both groups: it must cancel."""
    draw, held, naive = torch.Generator().manual_seed(1), 0, 0
    for _ in range(200):
        special = 3 * torch.randn(40, generator=draw, dtype=torch.double).repeat_interleave(10)
        stutters = torch.arange(400) % 2 == 0
        own = torch.randn(40, generator=draw, dtype=torch.double).repeat_interleave(10)
        values = special + torch.where(stutters, 0.5 + own, 0.0)
        values = values + 0.1 * torch.randn(400, generator=draw, dtype=torch.double)
        found = neighbours(
            Pairs(stutters, torch.arange(40).repeat_interleave(10), {"x": values[:, None]}), 1
        )
        low, high = found.difference("x").interval
        held += low <= 0.5 <= high
        errors = [part.measures["x"].standard_error for part in (found.stuttering, found.others)]
        naive += (high - low) < 2 * 1.96 * (errors[0] ** 2 + errors[1] ** 2) ** 0.5
    # 200 intervals of 95%: the standard error of the share is 0.015.
    assert held / 200 > 0.95 - 3 * 0.0154
    assert naive == 200  # as if the groups were independent they would be too wide


def test_pairs_are_those_of_the_pass_and_do_not_depend_on_the_batch(vocabulary):
    model = tiny("refine", vocabulary.size, scale=1.5)
    texts = [source for source, _ in toy_pairs(10, seed=5)]
    whole = attention_of_neighbours(model, vocabulary, texts)
    parts = attention_of_neighbours(model, vocabulary, texts, batch_size=3)
    assert whole.stuttering.n_pairs == parts.stuttering.n_pairs > 0
    assert whole.others.n_pairs == parts.others.n_pairs > 0
    for name, one in whole.others.measures.items():
        assert one.mean == pytest.approx(parts.others.measures[name].mean, abs=1e-6)
    gap = whole.difference("self_avg")
    yes, no = (part.measures["self_avg"].mean for part in (whole.stuttering, whole.others))
    assert gap.value == pytest.approx(yes - no) and gap.interval[0] < gap.value < gap.interval[1]
    assert whole.difference("self_avg", relative=True).value == pytest.approx((yes - no) / no)
    later = attention_of_neighbours(model, vocabulary, texts, n_steps=3)
    assert later.n_steps == 3 and later.others.measures != whole.others.measures


def test_what_cannot_be_looked_at(vocabulary):
    texts = ["the cat."]
    with pytest.raises(GlauberError, match="kind refine"):
        attention_of_neighbours(tiny("ar", vocabulary.size), vocabulary, texts)
    with pytest.raises(GlauberError, match="at least 1"):
        attention_of_neighbours(tiny("refine", vocabulary.size), vocabulary, texts, n_steps=0)
    said = torch.tensor([[FIRST_WORD, FIRST_WORD + 1]])
    with pytest.raises(GlauberError, match="no pair"):
        neighbours(Pairs.of(said, torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2)), 1)
