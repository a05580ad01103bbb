"""Calibrations against enumeration, on rules whose answer is known, and on fresh texts."""

import json
from itertools import product

import numpy as np
import pytest
import torch

import glauber
from conftest import WORDS, make_model, make_tokenizer
from glauber.foundation.errors import GlauberError
from glauber.models.base import log_probs
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Joint, Table
from glauber.studies.decoding.calibrate import (
    RULES,
    MaskedStates,
    SequentialFill,
    calibrate_rule,
    confidence_of,
    confidence_of_each,
    hidden_at_random,
    raise_until_violated,
    risk_is_controlled,
)

ENTROPY = RULES[0]


def situations(law, n=40, *, seed=0, length=4):
    tokens = torch.randint(law.vocab_size, (n, length), generator=torch.manual_seed(seed))
    hidden, text = hidden_at_random(torch.ones(n, length, dtype=torch.bool), 2, seed)
    return MaskedStates.of(law, tokens[text], hidden, text, seed=seed)


def divergence(law, tokens, order, hidden):
    """KL(in turn || at once) of the sites of an order, by enumeration of all they may hold."""

    def asked(row, site, left):
        sites = torch.tensor([[site, *(s for s in left if s != site)]])
        return log_probs(law, row[None], sites)[0, 0]

    total = 0.0
    for values in product(range(law.vocab_size), repeat=len(order)):
        row, left, in_turn, at_once = tokens.clone(), list(hidden), 0.0, 0.0
        for site, value in zip(order, values, strict=True):
            in_turn += float(asked(row, site, left)[value])
            at_once += float(asked(tokens, site, hidden)[value])
            row[site] = value
            left.remove(site)
        total += np.exp(in_turn) * (in_turn - at_once)
    return total


@pytest.mark.parametrize("law", [Joint.random(3, 4, seed=1), Table.random(3, 4, seed=1)])
@pytest.mark.parametrize("rule", RULES[::3], ids=lambda rule: rule.name)
def test_the_cost_of_a_pass_by_enumeration(law, rule):
    """Within four standard errors of 2,000 samples; stratified ones have less."""
    probe = SequentialFill(situations(law, 3, seed=4), rule.order, 2000)
    for size in (2, 3):
        probe.fill_to(torch.minimum(probe.hidden.sum(dim=1), torch.tensor(size)))
        for row, hidden in enumerate(probe.hidden):
            order = probe.sites[row, : int(probe.done[row])].tolist()
            there = hidden.nonzero()[:, 0].tolist()
            assert set(order) <= {*there} and len(order) == min(size, len(there))
            exact = divergence(law, probe.states.tokens[row], order, there)
            noise = float(probe.cost[row].std() / 2000**0.5)
            assert abs(float(probe.cost[row].mean()) - exact) < 4 * noise + 1e-9


def test_the_entropy_bound_holds_for_a_joint_law():
    """Sum less largest bounds the total correlation (exactly so, but for the noise of the cost)."""
    probe = SequentialFill(situations(Joint.random(3, 4, seed=7, strength=2.0)), "entropy", 400)
    probe.fill_to(probe.hidden.sum(dim=1))
    cost, noise = probe.cost.mean(dim=1), probe.cost.std(dim=1) / 20
    assert bool((cost <= probe.bound() + 4 * noise + 1e-9).all()) and float(cost.max()) > 0.2


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_independent_sites_are_filled_all_at_once(rule):
    field = torch.tensor([0.5, -1.0, 0.3], dtype=torch.float64)
    law = Joint(sum(field.reshape([-1 if a == b else 1 for b in range(4)]) for a in range(4)))
    probe = SequentialFill(situations(law), rule.order, 4)
    *_, last = raise_until_violated(probe, rule.ladder(4, 3), 0.001)
    assert last.kept == 1.0 and bool((probe.sizes(last.count) == probe.hidden.sum(dim=1)).all())


@pytest.mark.parametrize("rule", RULES[:3], ids=lambda rule: rule.name)
def test_a_larger_error_allows_more(rule):
    at = situations(Joint.random(3, 4, seed=3, strength=0.7), 80)
    tokens = []
    for error in (0.001, 0.02, 0.1, 2.0):
        *_, last = raise_until_violated(
            SequentialFill(at, rule.order, 16), rule.ladder(4, 3), error
        )
        tokens.append(last.tokens)
    assert tokens == sorted(tokens) and tokens[0] < tokens[-1]


def test_a_promise_is_rarely_given_where_it_is_broken():
    """2,000 calibrations each; the mean loss is just above 5%, so at most 5% may pass."""
    random = np.random.default_rng(0)
    for n, trials in ((132, 1), (132, 4), (66, 2)):
        losses = random.binomial(trials, 0.051, size=(2000, n)) / trials
        passed = sum(risk_is_controlled(row) for row in losses) / 2000
        assert passed < 0.05 + 4 * (0.05 * 0.95 / 2000) ** 0.5
    assert risk_is_controlled(np.zeros(132)) and risk_is_controlled(np.zeros(20))
    few = np.zeros(20)
    few[7] = 0.25
    assert not risk_is_controlled(few)  # so few texts may lose nothing
    some = np.zeros(132)
    some[::20] = 0.25
    assert risk_is_controlled(some)


@pytest.mark.parametrize("n_texts", [132, 100, 66])
def test_the_fastest_of_several_rules_is_rarely_one_that_breaks_its_promise(n_texts):
    """All four rules lose just above 5%, independently: whichever is chosen, some may pass.

    2,000 calibrations, with the stated confidence and four standard errors. With the threshold of
    a single rule, any of four passes far more often.
    """
    random = np.random.default_rng(n_texts)
    losses = random.binomial(1, 0.051, size=(2000, len(RULES), n_texts)).astype(float)
    wrong, single = (
        np.mean([any(risk_is_controlled(row, rules=rules) for row in rows) for rows in losses])
        for rules in (len(RULES), 1)
    )
    allowed = 1 - confidence_of(n_texts, rules=len(RULES))
    assert wrong < allowed + 4 * (allowed * (1 - allowed) / 2000) ** 0.5
    if n_texts >= 100:
        assert single > 0.05 + 4 * (0.05 * 0.95 / 2000) ** 0.5


def test_the_confidence_in_several_rules_together():
    """Without a loss, a stake of 1.05^n or less is won: 4 rules need 80 for 95%."""
    assert confidence_of(132, rules=4) == pytest.approx(0.95)
    assert confidence_of_each(132, rules=4) == pytest.approx(1 - 0.05 / 4)
    assert confidence_of(20, rules=4) == 0.0 and confidence_of_each(20, rules=4) < 0.63
    for n_texts in (60, 80):
        each = confidence_of_each(n_texts, rules=4)
        assert confidence_of(n_texts, rules=4) == pytest.approx(1 - 4 * (1 - each))
        assert each <= 1 - 1.05**-n_texts + 1e-9


@pytest.fixture(scope="module")
def tiny():
    return MaskedLM(make_model("bert"), make_tokenizer(), name="tiny")


def sentences(n, seed):
    words = [word for word in WORDS if word.isalpha()]
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(words, 6)) for _ in range(n)]


def test_the_promise_holds_on_fresh_texts(tiny):
    """At least 95% of the passes, within two standard errors over texts."""
    error, rule = 0.05, ENTROPY
    how = calibrate_rule(tiny, error, texts=sentences(120, 1), length=6, passes=2, samples=16)
    assert how.order == "entropy" and how.count.startswith("entropy-bound:")
    tokens, free = tiny.vocabulary.encode(sentences(120, 2))
    hidden, text = hidden_at_random(free, 2, 9)
    at = MaskedStates.of(tiny.conditionals(), tokens[text], hidden, text, seed=9)
    probe = SequentialFill(at, rule.order, 64)
    sizes = probe.sizes(how.count)
    probe.fill_to(sizes)
    kept = (probe.cost.mean(dim=1) <= error).double()
    by_text = kept.view(-1, 2).mean(dim=1)
    assert float(kept.mean()) >= 0.95 - 2 * float(by_text.std()) / 120**0.5
    assert float(sizes.double().mean()) > 1.05  # it is no promise to fill nothing


@pytest.fixture(scope="module")
def found(tiny):
    return glauber.calibrate(
        tiny, sentences(90, 3), length=6, error=0.2, passes=1, samples=4, written=3
    )


def test_the_study(found, tiny):
    """The table is that of the passes behind it, and both halves are different texts."""
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["texts"] == {"calibration": 60, "held_out": 30} and told["error"] == 0.2
    assert [row["rule"] for row in told["rules"]] == [rule.name for rule in RULES]
    for row, one in zip(told["rules"], found.rules, strict=True):
        passes = one.held_out
        assert len(passes.cost) == 30 and row["kept"]["value"] == pytest.approx(
            (passes.cost <= 0.2).mean()
        )
        assert row["tokens_a_pass"]["value"] == pytest.approx(passes.sizes.mean())
        assert row["count"] == one.steps[-1].count
        assert (passes.cost[passes.sizes == 1] == 0).all()
        # Every token of a text that is written is filled once.
        np.testing.assert_array_equal(np.bincount(one.writing.text, one.writing.sizes), [6, 6, 6])
    fastest = max(told["rules"], key=lambda row: row["tokens_a_pass"]["value"])
    assert told["fastest"] == {"order": fastest["order"], "count": fastest["count"]}
    assert told["confidence"] == pytest.approx(1 - 4 * (1 - told["confidence_of_each"]))
    assert 0.7 < told["confidence"] < 0.95 and 0.9 < confidence_of(60) < 0.95
    assert "confidence from 60 texts for all 4 rules together" in str(found)
    assert "at least 95% of the passes" in str(found) and set(found.figures()) == {"cost", "tokens"}
    few = glauber.calibrate(
        tiny, sentences(30, 3), length=6, error=0.2, passes=1, samples=4, written=3
    )
    assert few.confidence == 0 and "too few texts for the fastest of 4" in str(few)


def test_a_text_is_written_within_an_error(found, tiny, tmp_path):
    """By the stored calibration, or by one made on the way; the parts are those found there."""
    stored = found.write(tmp_path / "calibration.json")
    by_file = glauber.generate(tiny, length=6, chains=2, calibration=stored)
    how = found.unmasking
    said = glauber.generate(tiny, length=6, chains=2, order=how.order, count=how.count)
    assert by_file.texts == said.texts
    for asked, problem in (
        ({"error": 0.1}, "for 0.2 nats, not 0.1"),
        ({"temperature": 0.5}, "at temperature 1, not 0.5"),
        ({"count": 2}, "leave out order, count"),
        ({"temperature": 0}, "at temperature 0"),
        ({"calibration": tmp_path / "none.json"}, "cannot be read"),
    ):
        with pytest.raises(GlauberError, match=problem):
            glauber.generate("no/such-model", **({"calibration": stored} | asked))
    other = MaskedLM(make_model("bert", scale=4.0), make_tokenizer(), name="other")
    with pytest.raises(GlauberError, match="other weights"):
        glauber.generate(other, length=6, calibration=stored)
    with pytest.raises(GlauberError, match="give texts to start from"):
        glauber.generate(tiny, length=6, error=0.1)  # a model that does not read the passages


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"error": -1}, "error is -1, but it must be above 0"),
        ({"texts": sentences(29, 0)}, "there are 29 texts.* at least 30"),
        ({"samples": 1}, "at least 2"),
        ({"passes": 0}, "at least 1"),
        ({"temperature": 0.0}, "temperature"),
        ({"written": 2}, "at least 3"),
    ],
)
def test_what_the_study_refuses(asked, said):
    """Before a model is loaded."""
    with pytest.raises(GlauberError, match=said) as problem:
        glauber.calibrate("no/such-model", **asked)
    assert "\n" not in str(problem.value)
