"""Single-mask ratios and the chain's, against enumeration by hand."""

import itertools
import math

import numpy as np
import pytest
import torch

from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.models.base import log_probs
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Joint, Table
from glauber.studies.compatibility.potential import size_match
from glauber.studies.compatibility.single_mask import TokensOfSites, exact_chain, single_mask
from studies.compatibility.test_rectangles import by_hand_table

SIZES = dict(chains=0, length=None)


def chain_by_hand(single, vocab_size, n_sites):
    """The stationary law {filling: probability}: one random site redrawn, by powers of the matrix.

    single(filling, site) are the probabilities of the tokens there.
    """
    fillings = list(itertools.product(range(vocab_size), repeat=n_sites))
    matrix = np.zeros((len(fillings), len(fillings)))
    for row, filling in enumerate(fillings):
        for site in range(n_sites):
            for token, chance in enumerate(single(filling, site)):
                new = (*filling[:site], token, *filling[site + 1 :])
                matrix[row, fillings.index(new)] += chance / n_sites
    return dict(zip(fillings, np.linalg.matrix_power(matrix, 2**14)[0], strict=True))


def test_a_joint_distribution_reads_off_its_own_ratios():
    for seed in range(3):
        found = single_mask(Joint.random(3, 3, seed=seed, strength=2), ["012"], count=2, **SIZES)
        assert found.differing == 0 and "nothing speaks against a joint distribution" in str(found)
        (one, _) = found.texts
        assert one.largest < 1e-9 and one.reversed == 0
        assert abs(one.ratio.single) > 0.01  # a ratio that is there


def test_a_table_by_hand():
    """Two sites of two tokens: every figure from the 4 x 4 matrix, written out."""
    ones = {0: (0.8, 0.5), 1: (0.25, 0.9)}  # P(1) at a site, the other one being 0 or 1

    def single(filling, site):
        chance = ones[site][filling[1 - site]]
        return 1 - chance, chance

    mu = chain_by_hand(single, 2, 2)
    apart, weight, distance = [], [], []
    for site, other in itertools.product((0, 1), (0, 1)):
        states = [(token, other) if site == 0 else (other, token) for token in (0, 1)]
        law = np.array([mu[state] for state in states])
        law, met = law / law.sum(), law.sum() / 2
        pi = np.array(single(states[0], site))
        apart.append(abs(math.log(pi[1] / pi[0]) - math.log(law[1] / law[0])))
        weight.append(met * law[0] * law[1])
        distance.append(met * abs(pi - law).sum() / 2)
    (one,) = single_mask(by_hand_table(), ["00"], count=1, **SIZES).texts
    assert one.largest == pytest.approx(max(apart), abs=1e-6) and one.largest > 0.1
    assert one.difference == pytest.approx(np.average(apart, weights=weight), abs=1e-6)
    assert one.total_variation == pytest.approx(sum(distance), abs=1e-6)


def test_a_language_model_against_the_chain_by_hand(tiny_folder, texts):
    """Held text, two free sites, at another temperature: no enumeration of ours."""
    model = MaskedLM.load(str(tiny_folder), device="cpu")
    found = single_mask(model, texts[:1], at="1,4", top=4, temperature=1.5, **SIZES)
    (one,) = found.texts
    assert one.sites == (1, 4) and found.kind.startswith("exact")
    laws = model.to(dtype="float64").conditionals()
    row = model.vocabulary.encode(texts[:1])[0][0]
    columns, choices = [2, 5], []
    for column in columns:
        first = log_probs(model.conditionals(), row[None], torch.tensor([[column]]))[0, 0]
        others = [t for t in first.argsort(descending=True).tolist() if t != row[column]]
        choices.append([int(row[column]), *others[:3]])

    def single(filling, site):
        tokens = row.clone()
        tokens[columns] = torch.tensor([choices[k][filling[k]] for k in (0, 1)])
        scores = laws.scores(tokens[None], torch.tensor([[columns[site]]]))[0, 0]
        return torch.softmax(scores[choices[site]] / 1.5, dim=0).tolist()

    mu = chain_by_hand(single, 4, 2)
    kept = [model.vocabulary.spell(t) for t in choices[(1, 4).index(one.ratio.site)]]
    a, b = (kept.index(token) for token in one.ratio.tokens)
    slot = (1, 4).index(one.ratio.site)
    pairs = [((a, c), (b, c)) if slot == 0 else ((c, a), (c, b)) for c in range(4)]
    first, second = max(
        pairs,
        key=lambda pair: (
            mu[pair[0]]
            * mu[pair[1]]
            / sum(mu[(t, pair[0][1]) if slot == 0 else (pair[0][0], t)] for t in range(4))
        ),
    )
    assert one.ratio.stationary == pytest.approx(math.log(mu[first] / mu[second]), abs=1e-6)
    law = single(first, slot)
    assert one.ratio.single == pytest.approx(math.log(law[a] / law[b]), abs=1e-9)


def test_frequencies_agree_with_the_enumerated_chain():
    """95% intervals over 16 chains: of 30 ratios, 24 or more hold the exact one (4 sigma)."""
    rule = Table.random(4, 5, seed=3)
    found = single_mask(rule, ["01230"], count=30, length=None, top=4, chains=16, steps=400)
    held, known = found.covered
    assert known >= 25 and held >= 0.8 * known
    assert found.differing == 30 and "no joint distribution" in str(found)


def test_more_sites_than_two_and_tokens_of_each_site():
    rule = Table.random(3, 3, seed=1)
    few = TokensOfSites(
        rule, torch.tensor([0, 1, 2]), torch.arange(3), torch.arange(3).repeat(3, 1)
    )
    exact = exact_chain(few, 3, 1.0)

    def single(filling, site):
        return log_probs(rule, torch.tensor([filling]), torch.tensor([[site]]))[0, 0].exp().tolist()

    mu = chain_by_hand(single, 3, 3)
    assert exact.mu == pytest.approx(list(mu.values()), abs=1e-9)


@pytest.mark.parametrize("chains", [1, 2, 8])
def test_few_chains_have_no_interval(chains):
    rule = Table.random(3, 3, seed=2)
    found = single_mask(rule, ["012"], count=1, length=None, top=3, chains=chains, steps=100)
    seen = found.texts[0].ratio.seen
    assert seen is not None and (seen.interval is not None) == (chains > 2)
    assert found.difference.interval is None and str(found)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (dict(sites=1), "at least 2"),
        (dict(at="2"), "one free site"),
        (dict(at="0,9"), "sites 0 to 2 only"),
        (dict(sites=4), "sites 0 to 2 only"),
        (dict(top=200, sites=3), "more than the"),
        (dict(temperature=1e-4), "too small for a number"),
        (dict(chains=-1), "at least 0"),
    ],
)
def test_refusals(how, said):
    asked = {"count": 1, "length": None, "chains": 0} | how
    with pytest.raises(GlauberError, match=said):
        single_mask(Table.random(3, 3, seed=2), ["012"], **asked)


def test_a_short_text_is_taken_whole(tiny_folder, texts):
    model = MaskedLM.load(str(tiny_folder), device="cpu")
    with pytest.warns(GlauberWarning, match="fewer than 20 tokens and is taken whole"):
        found = single_mask(model, texts[0], count=1, top=3, chains=1, steps=50)
    same = single_mask(model, texts[0], count=1, top=3, chains=1, steps=50, length=None)
    assert found.texts[0].difference == same.texts[0].difference
    with (
        pytest.warns(GlauberWarning, match="whole: texts 1, 2, 5"),
        pytest.warns(GlauberWarning, match="left out: texts 3, 4"),  # they have no site 6
    ):
        found = single_mask(model, texts, at="0,6", count=3, top=3, chains=0)
    assert [one.sites for one in found.texts] == [(0, 6)] * 3


def disturbed(joint, noise):
    """The conditionals of a joint distribution of three sites with noise added to every score."""
    size = joint.vocab_size
    entries = torch.zeros(3, *(size + 1,) * 3, size, dtype=torch.float64)
    for site, context in itertools.product(range(3), itertools.product(range(size), repeat=3)):
        row, where = torch.tensor([context]), torch.tensor([[site]])
        index = [site, *context]
        index[1 + site] = size
        entries[tuple(index)] = joint.scores(row, where)[0, 0]
    return Table(entries + noise)


def test_deviation_grows_with_incompatibility():
    """Under a joint distribution the potential is its logarithm; noise drives both apart."""
    joint = Joint.random(3, 3, seed=1, strength=1.0)
    noise = Table.random(3, 3, seed=2).entries.double()
    variation, unexplained = [], []
    for size in (0.0, 0.1, 0.2, 0.4, 0.8, 1.6):
        found = single_mask(disturbed(joint, size * noise), ["012"], count=1, sites=3, **SIZES)
        (one,) = found.texts
        variation.append(one.potential.total_variation)
        unexplained.append(one.unexplained)
        if size == 0:
            assert one.potential[:3] == pytest.approx((0, 0, 1), abs=1e-7)
            # The pseudo-log-likelihood is no log joint even here, but with independent sites.
            assert one.pll.total_variation > 0.01
    assert variation == sorted(variation) and unexplained == sorted(unexplained)
    assert unexplained[0] < 1e-9 and variation[-1] > 5 * variation[1] > 0.05
    assert unexplained[2] == pytest.approx(2 * unexplained[1], rel=1e-6)  # the flow is linear
    weights = sum(torch.meshgrid(*(torch.tensor([0.0, 0.7, -0.4]),) * 3, indexing="ij"))
    alone = single_mask(Joint(weights), ["012"], count=1, sites=3, **SIZES).texts[0]
    assert alone.pll[:3] == pytest.approx((0, 0, 1), abs=1e-7) and alone.pll.rank == 1


def test_rounding_is_no_order():
    """Joint distributions in several texts: nothing is unexplained, so nothing correlates."""
    weights = sum(torch.meshgrid(*(torch.tensor([0.0, 0.7, -0.4]),) * 3, indexing="ij"))
    found = single_mask(Joint(weights), ["012", "120", "201", "000"], count=4, **SIZES)
    for correlation in found.by_incompatibility.values():
        assert math.isnan(correlation.value) or correlation.interval is None
    assert "nan" not in found.to_dict()["sizes"] and str(found)


def test_size_match_by_hand():
    p, score = np.array([0.5, 0.3, 0.2]), np.array([1.0, 0.0, -1.0])
    q = np.exp(score) / np.exp(score).sum()
    found = size_match(score, 10 * p)
    assert found.total_variation == pytest.approx(abs(p - q).sum() / 2)
    assert found.divergence == pytest.approx((p * np.log(p / q)).sum())
    slope = np.polyfit(score, np.log(p), 1, w=np.sqrt(p))[0]
    assert found.slope == pytest.approx(slope) and found.rank == pytest.approx(1.0)
    assert math.isnan(size_match(np.zeros(3), p).slope) and size_match(np.zeros(3), p).rank is None


def test_the_match_over_texts(tiny_folder):
    texts = ["the cat sat on the mat .", "a big dog ran under the old tree", "the bird flew ."]
    found = single_mask(str(tiny_folder), texts, count=3, length=4, sites=2, top=3, chains=0)
    values = [text.potential.total_variation for text in found.texts]
    assert found.sizes["potential"]["total_variation"].value == pytest.approx(np.mean(values))
    assert set(found.by_incompatibility) == {"pll", "potential"}
    assert {"unexplained", "pll_rank", "potential_slope"} <= set(found.frame().columns)
    assert "exp(best potential) against the stationary distribution" in str(found)
