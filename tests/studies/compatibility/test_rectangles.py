"""Rectangles against closed forms, brute force and controls; draws against the protocol."""

import itertools
import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
import transformers

import conftest
from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.foundation.statistics import mean_over_chains
from glauber.models.base import Conditionals, Restricted, Tempered, log_probs
from glauber.models.causal_lm import CausalLM, LeftToRight
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Joint, Table
from glauber.studies.compatibility import rectangles as module
from glauber.studies.compatibility.rectangles import (
    Rectangles,
    RectangleTest,
    certificate,
    corners,
    delta_of,
    draw,
    evaluate,
    log_ratios,
    rectangles,
)


def every_rectangle(vocab_size: int, length: int):
    """tokens, sites and values of all rectangles with a' != a and b' != b."""
    rows = [
        (tokens, (i, j), (a, b))
        for tokens in itertools.product(range(vocab_size), repeat=length)
        for i, j in itertools.permutations(range(length), 2)
        for a, b in itertools.product(range(vocab_size), repeat=2)
        if a != tokens[i] and b != tokens[j]
    ]
    return tuple(torch.tensor(column) for column in zip(*rows, strict=True))


def by_hand_table() -> Table:
    """Two sites, two tokens; probability of token 1: .8 and .5 at site 0, .25 and .9 at site 1."""
    entries = torch.zeros(2, 3, 3, 2, dtype=torch.float64)
    # The context's own site is 2 (hidden); the other one is the token that is seen.
    entries[0, 2, 0] = torch.tensor([0.2, 0.8]).double().log()
    entries[0, 2, 1] = torch.tensor([0.5, 0.5]).double().log()
    entries[1, 0, 2] = torch.tensor([0.75, 0.25]).double().log()
    entries[1, 1, 2] = torch.tensor([0.1, 0.9]).double().log()
    return Table(entries)


ONE = torch.tensor([[0, 0]]), torch.tensor([[0, 1]]), torch.tensor([[1, 1]])


@pytest.mark.parametrize(("vocab_size", "length"), [(2, 2), (3, 3), (2, 4)])
@pytest.mark.parametrize("strength", [1.0, 10.0])
def test_every_rectangle_of_a_joint_distribution_closes(vocab_size, length, strength):
    for seed in range(5):
        joint = Joint.random(vocab_size, length, seed=seed, strength=strength)
        scores, _ = evaluate(joint, *every_rectangle(vocab_size, length))
        assert delta_of(scores).max() < 1e-12
        assert float(log_ratios(scores).abs().max()) > strength / 10  # edges that cancel


def test_a_table_by_hand_has_its_closed_form():
    """Odds 4 and 9 one way, 1/3 and 1 the other way: log(36) - log(1/3) = log(108).

    A 2 x 2 table has one loop: the same from whichever corner, in whichever order.
    """
    scores, variation = evaluate(by_hand_table(), *ONE)
    expected = torch.tensor([[4.0, 9.0, 1 / 3, 1.0]]).double().log()
    torch.testing.assert_close(log_ratios(scores), expected)
    torch.testing.assert_close(variation, torch.tensor([[0.3, 0.65]]).double())
    every, _ = evaluate(by_hand_table(), *every_rectangle(2, 2))
    assert delta_of(every) == pytest.approx(np.full(8, math.log(108)))


def test_against_brute_force_on_a_random_table():
    table = Table.random(3, 3, seed=4)
    tokens, sites, values = every_rectangle(3, 3)
    scores, variation = evaluate(table, tokens, sites, values)
    delta, texts = delta_of(scores), corners(tokens, sites, values)

    def log_prob(row, site, new):
        return float(log_probs(table, torch.tensor([row]), torch.tensor([[site]]))[0, 0][new])

    for number in range(0, len(tokens), 37):
        x, (i, j), (a, b) = (t[number].tolist() for t in (tokens, sites, values))
        with_a, with_b = list(x), list(x)
        with_a[i], with_b[j] = a, b
        total = log_prob(x, i, a) - log_prob(x, i, x[i])
        total += log_prob(with_a, j, b) - log_prob(with_a, j, x[j])
        total -= log_prob(x, j, b) - log_prob(x, j, x[j])
        total -= log_prob(with_b, i, a) - log_prob(with_b, i, x[i])
        assert delta[number] == pytest.approx(abs(total), abs=1e-12)
        tv = sum(
            abs(math.exp(log_prob(x, i, v)) - math.exp(log_prob(with_b, i, v))) for v in range(3)
        )
        assert float(variation[number, 0]) == pytest.approx(tv / 2, abs=1e-12)
        both = list(with_a)
        both[j] = b
        assert texts[number].tolist() == [x, with_a, with_b, both]


def test_delta_falls_with_temperature_and_ignores_the_allowed_vocabulary():
    table = Table.random(4, 3, seed=1)
    rectangle = torch.tensor([[0, 1, 2]]), torch.tensor([[0, 2]]), torch.tensor([[1, 0]])

    def delta(conditionals, **options):
        return delta_of(evaluate(conditionals, *rectangle, **options)[0])

    base = delta(table)
    assert delta(Tempered(table, 2.5)) == pytest.approx(base / 2.5)
    allowed = torch.tensor([True, True, True, False])
    assert delta(Restricted(table, allowed)) == pytest.approx(base)
    assert delta(table, influence=False) == base  # by the scores of two tokens only
    forbidden = Restricted(by_hand_table(), torch.tensor([False, True]))
    with pytest.raises(GlauberError, match="probability 0"):
        evaluate(forbidden, *ONE)


TABLE = Table.random(8, 4, seed=5)
TOKENS = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7], [2, 2, 2, 2]])
FREE = torch.tensor([[True] * 4, [True, True, False, True], [True] * 4])


def check_uniform(counts: Counter, cells: int) -> None:
    """Every cell within five standard deviations of an even spread, and no cell missing."""
    total = counts.total()
    assert len(counts) == cells
    spread = 5 * math.sqrt(total / cells * (1 - 1 / cells))
    assert all(abs(n - total / cells) < spread for n in counts.values())


def test_passages_pairs_and_replacements_are_uniform():
    top = 5
    sample = draw(TABLE, TOKENS, FREE, count=12_000, top=top, seed=0)
    check_uniform(Counter(sample.passages.tolist()), 3)
    assert torch.equal(sample.tokens, TOKENS[sample.passages])
    check_uniform(Counter(map(tuple, sample.sites[sample.passages == 0].tolist())), 12)
    check_uniform(Counter(map(tuple, sample.sites[sample.passages == 1].tolist())), 6)
    assert FREE[sample.passages].gather(1, sample.sites).all()
    for passage, site in ((0, 1), (1, 3), (2, 0)):
        scores = TABLE.scores(TOKENS[passage : passage + 1], torch.tensor([[site]]))[0, 0]
        best = scores.argsort(descending=True)[:top].tolist()
        others = {token for token in best if token != int(TOKENS[passage, site])}
        for slot in (0, 1):
            chosen = (sample.passages == passage) & (sample.sites[:, slot] == site)
            counts = Counter(sample.values[chosen, slot].tolist())
            assert set(counts) == others
            check_uniform(counts, len(others))


def test_the_seed_decides_and_more_rectangles_keep_the_first():
    few = draw(TABLE, TOKENS, FREE, count=50, seed=3, top=5)
    many = draw(TABLE, TOKENS, FREE, count=700, seed=3, top=5)
    other = draw(TABLE, TOKENS, FREE, count=50, seed=4, top=5)
    assert all(torch.equal(a, b[:50]) for a, b in zip(few, many, strict=True))
    assert not torch.equal(few.sites, other.sites)


def test_sites_with_a_forbidden_token_are_never_drawn():
    allowed = torch.ones(8, dtype=torch.bool)
    allowed[[1, 4, 2]] = False  # text 1 keeps sites 0 and 3, text 2 sites 1 and 3, text 3 none
    sample = draw(Restricted(TABLE, allowed), TOKENS, FREE, count=300, top=4, seed=0)
    assert set(sample.passages.tolist()) == {0, 1}
    for passage, pair in ((0, (0, 3)), (1, (1, 3))):
        sites = sample.sites[sample.passages == passage].tolist()
        assert {tuple(sorted(each)) for each in sites} == {pair}
    assert allowed[sample.values].all() and allowed[sample.tokens.gather(1, sample.sites)].all()
    with pytest.raises(GlauberError, match="text 2 has fewer than two tokens"):
        one = FREE & torch.tensor([[1], [0], [1]]).bool()
        draw(TABLE, TOKENS, one, count=3, top=5, seed=0)
    none = torch.tensor([False] * 2 + [True] * 6)
    with pytest.raises(GlauberError, match="allowed vocabulary"):
        draw(Restricted(TABLE, none), TOKENS[:1] * 0, FREE[:1], count=3, top=5, seed=0)


@dataclass(frozen=True)
class Single:
    """The same conditionals with scores rounded to float32."""

    base: Conditionals

    @property
    def vocab_size(self) -> int:
        return self.base.vocab_size

    def scores(self, tokens, sites, candidates=None):
        return self.base.scores(tokens, sites, candidates).float()


def measured(conditionals, count=200, rounded=Single) -> Rectangles:
    tokens = torch.randint(6, (9, 4), generator=torch.Generator().manual_seed(0))
    free = torch.ones_like(tokens, dtype=torch.bool)
    sample = draw(rounded(conditionals), tokens, free, count=count, top=5, seed=0)
    scores, variation = evaluate(rounded(conditionals), *sample[:3])
    precise, _ = evaluate(conditionals, *sample[:3], influence=False)
    return Rectangles(*sample, scores, precise, variation)


@pytest.mark.parametrize("strength", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("rounded", [Single, lambda same: same], ids=["float32", "float64"])
def test_a_joint_distribution_gets_no_certificate(strength, rounded):
    """Equal Deltas in both dtypes must not make the floor zero either."""
    for seed in range(4):
        sample = measured(Joint.random(6, 4, seed=seed, strength=strength), rounded=rounded)
        assert sample.delta.max() > 0  # rounding shows
        assert not sample.certified.any()


def test_the_reported_numbers_are_those_of_the_rectangles():
    sample = measured(Table.random(6, 4, seed=2))
    answer = RectangleTest("a table", "custom", None, 5, 5, [], None, sample)
    delta = sample.delta.tolist()
    assert answer.mean.value == pytest.approx(sum(delta) / len(delta))
    assert answer.quantiles["0.5"] == pytest.approx(sorted(delta)[99] / 2 + sorted(delta)[100] / 2)
    difference = np.abs(sample.delta - delta_of(sample.precise)).max()
    assert 0 < difference < 1e-5
    assert answer.noise_floor.value == pytest.approx(difference, rel=1e-4)
    assert answer.certified.value == sum(d > answer.noise_floor.value for d in delta) >= 195
    assert answer.influence == pytest.approx(np.asarray(sample.variation).mean(axis=1))


def test_rectangles_of_one_passage_are_not_independent():
    """Deltas that only their passage decides: 60 of 6 passages say no more than 6 do."""
    sample = measured(Table.random(6, 4, seed=2), count=60)
    passages = torch.arange(60) % 6
    shared = torch.tensor([0.1, 0.4, 0.5, 0.7, 0.9, 1.0], dtype=torch.float64)[passages]
    scores = torch.zeros(60, 4, 2, dtype=torch.float64)
    scores[:, 0, 0] = shared
    alike = replace(sample, passages=passages, scores=scores)
    answer = RectangleTest("a table", "custom", None, 5, 5, [], None, alike)
    by_passage = mean_over_chains(shared[:6].numpy(), bounds=(0.0, np.inf))
    assert answer.mean.interval == pytest.approx(by_passage.interval, rel=1e-6)
    assert answer.population == "passages like these 6"
    of_one = replace(alike, passages=torch.zeros(60, dtype=torch.int64))
    answer = RectangleTest("a table", "custom", None, 5, 5, [], None, of_one)
    assert answer.mean.n_chains == 60 and "this passage" in answer.population


def test_a_certificate_is_four_sentences(tiny_folder):
    model = MaskedLM.load(str(tiny_folder), device="cpu")
    tokens, _ = model.vocabulary.encode(["the cat sat on the mat ."])
    words = model.vocabulary.tokenizer.get_vocab()
    sites, values = torch.tensor([[2, 6]]), torch.tensor([[words["dog"], words["tree"]]])
    scores, variation = evaluate(model, tokens, sites, values)
    sample = Rectangles(tokens, sites, values, torch.tensor([0]), scores, scores, variation)
    sentence = certificate(sample, 0, model.vocabulary)
    assert sentence.changes == (("cat", "dog"), ("mat", "tree"))
    assert sentence.corners == (
        "the cat sat on the mat.",
        "the dog sat on the mat.",
        "the cat sat on the tree.",
        "the dog sat on the tree.",
    )
    assert abs(sentence.one_way - sentence.other_way) == pytest.approx(sentence.delta)


@pytest.fixture
def ask(tiny_folder, texts):
    def call(**options):
        options = {"count": 40, "length": 5, "top": 10, "device": "cpu"} | options
        return rectangles(str(tiny_folder), texts[:3] + texts[4:], **options)

    return call


def test_the_study_reports_everything(ask):
    result = ask(seed=3)
    answer = result.to_dict()
    low, high = answer["mean"]["interval"]
    assert answer["count"] == 40 and low < answer["mean"]["value"] < high
    assert 0 < answer["noise_floor"]["value"] < 1e-3 < answer["quantiles"]["0.5"]
    assert 30 <= answer["certified"]["value"] <= 40
    assert "|count:40|length:5|top:10|seed:3|" in answer["signature"]
    assert len(answer["certificates"]) == 3 and len(answer["certificates"][0]["corners"]) == 4
    assert answer["certificates"][0]["delta"] == answer["quantiles"]["1"]
    assert ask(seed=3).to_dict() == answer
    assert "above the noise floor" in str(result) and "with both" in str(result)
    assert "requested" not in str(result)
    assert len(result.frame()) == 40 and set(result.figures()) == {"histogram", "influence"}


def test_a_top_above_the_vocabulary_is_reduced_and_reported(ask, tiny_folder):
    """The tiny vocabulary has 41 words to propose: all of them, whatever is requested."""
    words = int(MaskedLM.load(str(tiny_folder), device="cpu").vocabulary.proposable().sum())
    result, all_of_them = ask(top=5000), ask(top=words)
    assert result.delta.tolist() == all_of_them.delta.tolist()
    assert (result.top, result.top_requested) == (words, 5000)
    assert f"the {words} tokens that the model proposes, fewer than the 5000" in str(result)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(count=0), "count is 0"),
        (dict(count=10**12), "is not possible"),
        (dict(length=1), "length is 1, but it must be at least 2"),
        (dict(top=1), "top is 1"),
        (dict(strongest=-1), "at least 0"),
        (dict(seed=2**70), "seed is"),
        (dict(control="nothing.gguf"), "there is no file"),
    ],
)
def test_bad_arguments_are_refused(ask, options, message):
    with pytest.raises(GlauberError, match=message):
        ask(**options)


def control_of(tokenizer, seed=3):
    """A tiny autoregressive LM with random weights."""
    torch.manual_seed(seed)
    config = transformers.GPT2Config(
        vocab_size=len(conftest.VOCABULARY),
        n_embd=32,
        n_layer=2,
        n_head=2,
        n_positions=40,
        bos_token_id=2,
        eos_token_id=3,
    )
    tokenizer.bos_token = "[CLS]"
    return CausalLM(transformers.GPT2LMHeadModel(config).eval(), tokenizer, name="tiny GPT-2")


@pytest.mark.parametrize("kind", ["left-to-right", "causal"])
def test_the_rectangles_of_a_control_close(ask, kind, monkeypatch):
    """The model's own do not, by the same arithmetic; edges of nats cancel up to rounding."""
    control = kind if kind == "left-to-right" else control_of(conftest.make_tokenizer())
    result = ask(control=control)
    assert result.control.count == 10 and result.control.certified == 0
    assert result.control.largest < 1e-5 and result.control.largest_in_float64 < 1e-11
    assert result.control.largest_edge > 0.5 and result.delta.mean() > 0.1
    assert "by construction" in str(result)
    assert result.delta.tolist() == ask().delta.tolist()
    # Were one edge evaluated at another corner, the control would not close.
    monkeypatch.setattr(module, "CORNER", [0, 2, 0, 2])
    assert ask(control=control).control.largest > 0.01


def test_what_is_no_control(ask, tiny_folder):
    with pytest.raises(GlauberError, match="is a masked LM, but a control must be autoregressive"):
        ask(control=str(tiny_folder))
    causal = control_of(conftest.make_tokenizer())
    with pytest.raises(GlauberError, match="autoregressive already"):
        rectangles(causal, conftest.TEXTS[:3], count=2, length=5, control="left-to-right")


def test_left_to_right_is_a_joint_distribution():
    """Its conditionals are those of the product of next-token distributions, written out."""
    table = Table.random(3, 3, seed=1)

    def log_joint(row):
        total = 0.0
        for site in range(3):
            hidden = torch.arange(site, 3)[None]
            total += float(log_probs(table, torch.tensor([row]), hidden)[0, 0, row[site]])
        return total

    for row in itertools.product(range(3), repeat=3):
        for site in range(3):
            texts = [[*row[:site], token, *row[site + 1 :]] for token in range(3)]
            joint = torch.tensor([log_joint(text) for text in texts]).double()
            scores = LeftToRight(table).scores(torch.tensor([row]), torch.tensor([[site]]))[0, 0]
            torch.testing.assert_close(scores.log_softmax(0), joint.log_softmax(0))


def test_a_short_text_is_taken_whole(tiny_folder, texts):
    model = MaskedLM.load(str(tiny_folder), device="cpu")
    with pytest.warns(GlauberWarning, match="fewer than 20 tokens and is taken whole"):
        result = rectangles(model, texts[0], count=5, top=3)
    assert (result.delta == rectangles(model, texts[0], count=5, top=3, length=None).delta).all()
    assert (result.rectangles.sites < model.vocabulary.count(texts[0]) + 1).all()


def test_the_control_has_as_many_rectangles_as_are_asked_for(tiny_folder):
    options = dict(count=12, length=5, control="left-to-right")
    ten, all_of_them = (
        module.rectangles(str(tiny_folder), conftest.TEXTS[:3], control_count=n, **options)
        for n in (10, 300)
    )
    assert (ten.control.count, all_of_them.control.count) == (10, 12)
    assert (ten.kind, ten.control.kind) == ("masked", "causal")
    assert ten.parameters == ten.control.parameters > 1000
    table = module.rectangles(Table.random(3, 3), ["012"], count=3, length=None)
    assert (table.kind, table.parameters) == ("custom", None)
