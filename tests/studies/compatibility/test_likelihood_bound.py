"""The bound and the log-likelihood along orders, against enumeration by plain loops."""

import json
from itertools import combinations, permutations

import numpy as np
import pytest
import torch

from conftest import make_model, make_tokenizer
from glauber.foundation.errors import GlauberError
from glauber.models.base import PAD
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Joint, Table, normals
from glauber.studies.compatibility import likelihood_bound as module
from glauber.studies.compatibility import pseudo_likelihood as hidden
from glauber.studies.compatibility.likelihood_bound import (
    likelihood_bound,
    order_slice,
    random_order_likelihoods,
    random_orders,
    row_count,
)
from glauber.studies.compatibility.score import score

LONG, SHORT = "the cats sat on the old mat .", "a big dog ran"


@pytest.fixture(scope="module")
def model():
    return MaskedLM(make_model("bert").double(), make_tokenizer(), name="tiny")


def along_orders(law, tokens, sites):
    """log p_o of every order of the sites, one token after the other; law(tokens, hidden, site)."""
    known = {}

    def said(site, hidden):
        if (site, hidden) not in known:
            known[site, hidden] = law(tokens, hidden, site)
        return known[site, hidden]

    return np.array(
        [
            sum(said(site, frozenset(order[j:])) for j, site in enumerate(order))
            for order in permutations(sites)
        ]
    )


def by_hidden_sets(law, tokens, sites):
    """The bound as masked diffusion has it: n E_k of the mean over the hidden sites."""
    n = len(sites)
    means = [
        np.mean([[-law(tokens, hidden, site) for site in hidden] for hidden in sets])
        for sets in (list(map(frozenset, combinations(sites, k))) for k in range(1, n + 1))
    ]
    return n * np.mean(means)


def of_table(table):
    """log pi of the token at a site from the table's entries, without its own `scores`."""

    def law(tokens, hidden, site):
        context = [table.vocab_size if i in hidden else token for i, token in enumerate(tokens)]
        return float(torch.log_softmax(table.entries[site][tuple(context)], dim=0)[tokens[site]])

    return law


def within(measured, truth):
    """Within four standard errors of what is known."""
    assert abs(measured.value - truth) < 4 * measured.standard_error + 1e-10


def test_every_order_of_a_joint_distribution_gives_its_logarithm():
    few, many = Joint.random(3, 4, seed=1), Joint.random(2, 7, seed=2, strength=2.0)
    for joint, tokens in ((few, [2, 0, 1, 1]), (many, [0, 1, 1, 0, 1, 0, 0])):
        row, n = torch.tensor([tokens]), len(tokens)
        truth = float(joint.log_weights[tuple(tokens)] - joint.log_weights.flatten().logsumexp(0))
        (found,) = random_order_likelihoods(joint, row, row >= 0, samples=200, orders=5, seed=3)
        assert found.log_probs == pytest.approx(np.full(24 if n == 4 else 5, truth), abs=1e-10)
        assert found.log_mean == pytest.approx(truth, abs=1e-10)
        assert found.order_sd.value < 1e-10
        if n == 4:
            assert found.exact and found.bound.value == pytest.approx(-truth, abs=1e-10)
        else:
            assert not found.exact and found.bound.standard_error > 1e-3
            within(found.bound, -truth)


def test_conditionals_without_a_joint_are_estimated_within_their_error():
    table, tokens = Table.random(2, 6, seed=4, strength=1.5), [0, 1, 1, 0, 1, 0]
    along = along_orders(of_table(table), tokens, range(6))
    whole = by_hidden_sets(of_table(table), tokens, range(6))
    assert whole == pytest.approx(-along.mean(), abs=1e-10) and along.std() > 0.5
    row = torch.tensor([tokens])
    (found,) = random_order_likelihoods(table, row, row >= 0, samples=500, orders=500, seed=1)
    within(found.bound, whole)
    within(found.log_likelihood, along.mean())
    within(found.order_sd, along.std())
    truth = np.log(np.exp(along).mean())
    assert along.mean() < found.log_mean and found.log_mean == pytest.approx(truth, abs=0.3)
    assert found.order_sd.interval is not None and found.bound.kind == "estimate"


def test_few_free_tokens_are_enumerated_and_frozen_ones_are_context():
    table, tokens = Table.random(2, 6, seed=7), [1, 0, 1, 1, 0, 0]
    free = torch.tensor([[True, False, True, True, False, True]])
    (found,) = random_order_likelihoods(
        table, torch.tensor([tokens]), free, samples=1, orders=0, seed=0
    )
    along = along_orders(of_table(table), tokens, [0, 2, 3, 5])
    assert sorted(found.log_probs) == pytest.approx(sorted(along), abs=1e-10)
    assert found.bound.value == pytest.approx(-along.mean(), abs=1e-10)
    assert found.log_mean == pytest.approx(np.log(np.exp(along).mean()), abs=1e-10)
    assert found.order_sd.value == pytest.approx(along.std(), abs=1e-10)
    assert found.bound.kind == "exact" and found.tokens == 4
    assert found.nll.sum() == pytest.approx(found.bound.value)
    assert row_count(free, samples=9, orders=9) == 15


def test_a_masked_lm_is_asked_with_masks_at_all_hidden_sites(model):
    tokens = model.vocabulary.tokenizer(SHORT)["input_ids"]

    def law(tokens, hidden, site):
        masked = [model.hidden_token if i in hidden else token for i, token in enumerate(tokens)]
        logits = model.model(torch.tensor([masked])).logits[0, site]
        return float(torch.log_softmax(logits, dim=0)[tokens[site]])

    along = along_orders(law, tokens, range(1, 5))
    (found,) = likelihood_bound(model, [SHORT]).texts
    assert found.exact and sorted(found.log_probs) == pytest.approx(sorted(along), abs=1e-8)
    (few,) = likelihood_bound(model, [SHORT], freeze="0,2").texts
    held = along_orders(law, tokens, [2, 4])
    assert sorted(few.log_probs) == pytest.approx(sorted(held), abs=1e-8)


@pytest.mark.parametrize("packs", [True, False])
def test_an_order_is_followed_as_by_hand(packs):
    """The j-th token of an order, with it and all later ones masked."""
    model = MaskedLM(make_model("bert").double(), make_tokenizer(), name="tiny")
    model.packed = model.packed if packs else None
    tokens, free = model.vocabulary.encode([SHORT, LONG])
    found = random_order_likelihoods(model, tokens, free, samples=1, orders=3, seed=4)[1]
    orders, _ = random_orders(free, torch.arange(2), module.FIRST_ORDER + torch.arange(3), 4)
    for total, order in zip(found.log_probs, orders[1, :, :9].tolist(), strict=True):
        assert sorted(order) == list(range(1, 10))
        by_hand = 0.0
        for place, site in enumerate(order):
            masked = tokens[1].clone()
            masked[order[place:]] = model.hidden_token
            logits = model.model(masked[None]).logits[0, site]
            by_hand += float(torch.log_softmax(logits, dim=0)[tokens[1, site]])
        assert total == pytest.approx(by_hand, abs=1e-8)


class Independent:
    """Tokens that know nothing of each other: the bound is a sum, whatever is hidden."""

    vocab_size, name = 3, "independent"
    rows = torch.log_softmax(normals((24, 3), seed=0), dim=1)

    def scores(self, tokens, sites, candidates=None):
        found = self.rows[sites]
        return found if candidates is None else found.gather(-1, candidates)


def test_more_hidden_sites_than_are_asked_about_leave_the_bound_unbiased():
    text = "012012210021012210210120"
    found = likelihood_bound(Independent(), [text], samples=400, orders=3)
    truth = -float(sum(Independent.rows[i, int(one)] for i, one in enumerate(text)))
    (one,) = found.texts
    assert -one.log_probs == pytest.approx(np.full(3, truth), abs=1e-9)
    assert (one.shares * 24 > module.EVALUATED).mean() > 0.2
    within(one.bound, truth)


def test_the_two_sets_of_a_sample_are_antithetic_and_all_counts_are_alike():
    free = torch.tensor([[False, True, True, True, True, False, True, True, False]])
    asked = []

    class Watched(Independent):
        def scores(self, tokens, sites, candidates=None):
            asked.extend(map(frozenset, sites.tolist()))
            return super().scores(tokens, sites, candidates)

    tokens = torch.zeros_like(free, dtype=torch.int64)
    nll, counts = module.hidden_sets(Watched(), tokens, free, torch.tensor([5]), 1400, 2)
    assert (counts.sum(dim=2) == 6 + 1).all() and nll.shape == (1, 1400, 2)
    assert set().union(*asked) == {1, 2, 3, 4, 6, 7} and len(asked) == 2800
    for side in (0, 1):
        seen = counts[0, :, side].bincount(minlength=7)[1:].double()
        assert ((seen - 1400 / 6).abs() < 4 * (1400 * 5 / 36) ** 0.5).all()
    singles = [next(iter(one)) for one in asked if len(one) == 1]
    seen = torch.tensor(singles).bincount(minlength=8)[[1, 2, 3, 4, 6, 7]].double()
    share = len(singles) / 6
    assert ((seen - share).abs() < 4 * (share * 5 / 6) ** 0.5).all()
    order, _ = random_orders(free, torch.tensor([5]), torch.arange(2), 2)
    first, last = order[0, 0, :6], order[0, 0, 6:]
    assert sorted(first.tolist()) == [1, 2, 3, 4, 6, 7] and (last == PAD).all()
    part = order_slice(order[0], torch.tensor([4, 0]), torch.tensor([6, 3]))
    assert part[0, :2].equal(order[0, 0, 4:6]) and (part[1, 3:] == PAD).all()


@pytest.mark.parametrize("packs", [True, False])
def test_the_same_numbers_for_any_batch(monkeypatch, packs):
    model = MaskedLM(make_model("bert"), make_tokenizer(), name="tiny")
    if not packs:
        model.packed = None
    texts = [LONG, SHORT, "a cateding bird flewing under dogs", LONG]
    how = {"samples": 3, "orders": 2, "seed": 5}
    whole = likelihood_bound(model, texts, **how).texts
    (alone,) = likelihood_bound(model, texts[:1], **how).texts
    for name in ("_at_once", "_packed_at_once"):
        monkeypatch.setattr(hidden, name, lambda *_: 1)
    monkeypatch.setattr(module, "rows_at_once", lambda *_: 1)
    for one, other in zip(
        [*whole, alone], [*likelihood_bound(model, texts, **how).texts, whole[0]], strict=True
    ):
        for name in ("bounds", "nll", "shares", "log_probs"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
    assert not np.array_equal(whole[0].bounds, whole[3].bounds)  # its noise is another


def test_the_answer_says_everything(model):
    texts = [LONG, SHORT, "is it red !", "the bird flew over the big tree ."]
    found = likelihood_bound(model, texts, samples=4, orders=3, seed=1)
    answer = json.loads(json.dumps(found.to_dict()))
    assert [one["kind"] for one in answer["texts"]] == ["estimate", "exact", "exact", "estimate"]
    assert sum(one["tokens"] for one in answer["texts"]) == 25
    total = sum(one["bound"]["value"] for one in answer["texts"])
    assert answer["bound_per_token"]["value"] == pytest.approx(total / 25)
    assert answer["bound_per_token"]["interval"][0] < total / 25
    assert answer["bound"]["value"] == pytest.approx(total / 4)
    along = sum(one["log_likelihood"]["value"] for one in answer["texts"])
    assert answer["log_likelihood"]["value"] == pytest.approx(along / 4)
    assert answer["log_likelihood_per_token"]["value"] == pytest.approx(along / 25)
    assert len(answer["texts"][0]["log_probs"]) == 3 and len(answer["texts"][1]["log_probs"]) == 24
    assert answer["texts"][1]["bound"]["interval"] is None
    assert all(0 < one["share"] < 1 for one in answer["by_hidden_share"])
    table = found.frame()
    assert len(table) == 4 and table["log_mean"].ge(table["log_likelihood"]).all()
    assert set(found.figures()) == {"hidden-share", "orders"}
    assert "exact" in str(found) and "-log p a token is at most" in str(found)
    bare = likelihood_bound(model, texts, samples=4, orders=0, seed=1)
    assert bare.texts[0].log_likelihood is None and bare.log_likelihood_per_token is None
    assert np.array_equal(bare.texts[0].bounds, found.texts[0].bounds)
    # An interval from three samples reaches far, but no probability lies above 1.
    few = likelihood_bound(model, [LONG], samples=3, orders=3, seed=4)
    assert few.bound.interval[0] >= 0 >= few.log_likelihood.interval[1]
    (cut,) = likelihood_bound(model, [LONG], length=3).texts
    assert cut.text == "the cats" and cut.exact


def test_pseudo_likelihoods_take_frozen_sites_and_a_length_too(model):
    (whole,) = score(model, [LONG]).scores
    (held,) = score(model, [LONG], freeze="0,2").scores
    kept = [i for i in range(9) if i not in (0, 2)]
    assert held.pieces == [whole.pieces[i] for i in kept]
    assert held.log_probs == pytest.approx([whole.log_probs[i] for i in kept], abs=1e-9)
    # The second piece of the word is context now, so both variants ask the same of the first.
    assert held.log_probs_within_word[0] == held.log_probs[0]
    (cut,) = score(model, [LONG], length=4).scores
    (same,) = score(model, ["the cats sat"]).scores
    assert cut.pieces == same.pieces and cut.log_probs == pytest.approx(same.log_probs, abs=1e-9)


class Causal(Independent):
    whole_vocabulary = False


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("the cat", {"samples": 0}, "samples is 0"),
        ("the cat", {"orders": -1}, "orders is -1"),
        ("the cat", {"seed": -1}, "seed is -1"),
        ("the cat", {"dtype": "int8"}, "int8 is for drawing samples only"),
        ("the cat", {"freeze": "0,1"}, "every site of a text is frozen"),
        ("the käse", {}, "not in the vocabulary"),
    ],
)
def test_bad_arguments_are_refused(model, text, options, message):
    with pytest.raises(GlauberError, match=message):
        likelihood_bound(model, [text], **options)
    with pytest.raises(GlauberError, match="independent is autoregressive"):
        likelihood_bound(Causal(), ["012"])
    with pytest.raises(GlauberError, match="does not score the whole vocabulary"):
        score(Causal(), ["012"])
