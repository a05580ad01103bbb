"""Distances, saturation and hitting times of stored runs, against plain recomputation."""

import zlib
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.optimize import curve_fit

from crafted_run import crafted_run
from glauber.foundation.errors import GlauberError
from glauber.runs.embedding import Embedder, by_tokens
from glauber.sampling.sample import sample
from glauber.studies.mixing.semantic_drift import (
    DriftDistances,
    HittingTimes,
    distances,
    fit_saturation,
    hitting_times,
    passages_of,
    saturation,
    semantic_drift,
)


@cache
def direction(word):
    return np.random.default_rng(zlib.crc32(word.encode())).normal(size=12)


def embed(texts):
    """A bag of words: each word has a random direction of its own."""
    stacked = np.stack([sum(direction(word) for word in text.split()) for text in texts])
    return (stacked / np.linalg.norm(stacked, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def run(tiny_folder, tmp_path_factory):
    texts = ["the cat sat on the mat .", "a big dog ran under the old tree and the bird flew"]
    out = tmp_path_factory.mktemp("drift") / "run"
    return sample(str(tiny_folder), texts, steps=120, chains=6, temperature=2.0, out=out)


@cache
def texts_after(run):
    """The texts of every chain after each step, by replaying the events."""
    return [[run.vocabulary.decode(row) for row in tokens] for _, tokens in run.states()]


@cache
def plain_distance(run, chain, step):
    texts = texts_after(run)
    begun, now = embed([texts[0][chain], texts[step][chain]]).astype(np.float64)
    return 1 - begun @ now


def test_distances_are_those_of_the_texts(run):
    found = distances(run, embed, every=7)
    assert found.steps.tolist() == list(range(0, 120, 7))
    for look, step in enumerate(found.steps.tolist()):
        for chain in range(6):
            expected = plain_distance(run, chain, step)
            assert found.values[chain, look] == pytest.approx(expected, abs=1e-6)
    assert (found.values[:, 0] < 1e-6).all() and found.values.min() >= 0
    assert (found.at(14) == found.values[:, 2]).all()
    with pytest.raises(GlauberError, match="every 7 steps"):
        found.at(15)


@pytest.mark.parametrize(("threshold", "every"), [(0.3, 1), (0.8, 1), (0.5, 7), (1.9, 5)])
def test_passages_are_the_hitting_times_of_the_distances(run, threshold, every):
    read = []

    def counted(texts):
        read.extend(texts)
        return embed(texts)

    whole = hitting_times(distances(run, embed, every=every), threshold)
    lazy = passages_of(run, counted, (threshold,), every=every)[threshold]
    assert lazy.steps.tolist() == whole.steps.tolist() and lazy.hit.tolist() == whole.hit.tolist()
    for chain in range(6):
        steps = range(0, 121, every)
        above = [step for step in steps if plain_distance(run, chain, step) >= threshold]
        assert bool(lazy.hit[chain]) == bool(above)
        assert lazy.steps[chain] == (above[0] if above else steps[-1])
    if threshold == 0.3:
        assert len(read) < 121 * 6 / 2


def test_bounds_of_seen_and_censored_times():
    times = HittingTimes(np.array([10, 40]), np.array([True, False]), 5, 0.5)
    low, high = times.bounds()
    assert low.tolist() == [5, 40] and high.tolist() == [10, np.inf]


STEPS = np.arange(32) * 50
RISES = {
    "line": lambda t: t / 1600,
    "root": lambda t: 0.8 * np.sqrt(t / 1600),
    "logarithm": lambda t: 0.2 * np.log1p(t / 50),
    "slow line": lambda t: 0.02 * t / 1600,
}


def drifting(curve, n_chains, rng, *, noise=0.05):
    """Distances of chains with a pace and a level of their own, and noise with a memory."""
    pace, level = rng.normal(1.0, 0.3, (n_chains, 1)), rng.normal(0.0, 0.02, (n_chains, 1))
    wiggle = rng.normal(scale=noise, size=(n_chains, len(STEPS)))
    for i in range(1, len(STEPS)):
        wiggle[:, i] += 0.6 * wiggle[:, i - 1]
    return DriftDistances(STEPS, np.abs(pace * curve(STEPS) + level + wiggle), 50)


@pytest.mark.parametrize("name", RISES)
def test_a_distance_that_never_settles_is_not_called_settled(name):
    """At most 5%: of 200, at most 20 (a chance of 1e-3 at 5%); none where two chains are all."""
    rng = np.random.default_rng(0)
    for n_chains in (2, 4, 8):
        noise = 0.05 if name != "slow line" else 0.001
        found = [saturation(drifting(RISES[name], n_chains, rng, noise=noise)) for _ in range(200)]
        assert sum(one.settled is True for one in found) <= (0 if n_chains == 2 else 20)


def test_a_rise_at_the_margin_is_called_settled_in_a_few_cases_only():
    """The worst case of an equivalence test: a true rise of just the margin."""
    rng = np.random.default_rng(1)
    half = STEPS[16:] - STEPS[16:].mean()
    rise = 0.1 * half / np.ptp(half)
    for n_chains in (4, 8):
        found = 0
        for _ in range(400):
            values = 1 + rise + rng.normal(scale=0.05, size=(n_chains, 16))
            whole = np.concatenate([values, values], axis=1)  # the first half is not looked at
            found += saturation(DriftDistances(STEPS, whole, 50)).settled is True
        assert found <= 36  # 5% of 400, and 3.7 standard errors


def test_saturation_says_whether_the_distance_stays():
    rng = np.random.default_rng(0)
    noise = rng.normal(scale=0.02, size=(40, 32))
    level = rng.normal(0.8, 0.05, size=(40, 1))  # of each chain
    found = saturation(DriftDistances(STEPS, level + noise, 50))
    low, high = found.level.interval
    assert low < level.mean() < high and high - low == pytest.approx(4.0 * 0.05 / 40**0.5, rel=0.3)
    assert found.verdict == "settled" and found.kind == "estimate"
    assert found.margin == pytest.approx(0.1 * found.level.value)
    rising = saturation(DriftDistances(STEPS, level + noise + STEPS / 3200, 50))
    assert rising.verdict == "still moving" and rising.kind == "lower bound"
    assert rising.rise.value == pytest.approx(15 * 50 / 3200, abs=0.02)
    wild = saturation(DriftDistances(STEPS, level[:4] + 20 * noise[:4], 50))
    assert wild.verdict == "cannot tell" and "cannot tell whether it stays" in wild.line
    frozen = saturation(DriftDistances(STEPS, np.broadcast_to(level, noise.shape), 50))
    assert frozen.settled is None and "no chain moved" in frozen.line
    for few in (1, 2):
        alone = saturation(DriftDistances(STEPS, (level + noise)[:few], 50))
        assert alone.settled is None and "3 chains at least" in alone.line


def test_distances_that_saturate_are_found_with_enough_chains():
    rng = np.random.default_rng(2)
    found = [
        saturation(drifting(lambda t: 0.8 * (1 - np.exp(-t / 100)), 16, rng, noise=0.02)).settled
        for _ in range(50)
    ]
    assert sum(one is True for one in found) >= 45 and sum(one is False for one in found) <= 7


def test_the_median_keeps_censored_chains():
    steps = np.array([3, 5, 9, 20, 20, 20])
    hit = np.array([True, True, True, False, False, False])
    assert HittingTimes(steps, hit, 1, 0.5).median.value == 9
    half = HittingTimes(steps[1:], hit[1:], 1, 0.5)
    assert half.median.value is None  # 2 of 5: left out, the median would be 5
    none = HittingTimes(steps[3:], hit[3:], 1, 0.5)
    assert none.median.value is None
    for count, ends in ((5, (None, None)), (6, (20, 20))):  # 0.5^5 > 0.025 > 0.5^6
        at_once = HittingTimes(np.full(count, 20), np.ones(count, bool), 20, 0.5)
        assert at_once.median.value == 20 and at_once.median.interval == ends
    times = np.random.default_rng(1).exponential(100, size=400)
    kept = times < 150
    found = HittingTimes(np.where(kept, times, 150.0), kept, 1, 0.5).median
    low, high = found.interval
    assert low < 100 * np.log(2) < high and low < found.value < high < 1.6 * low


def test_what_cannot_be_looked_at(run):
    for every, why in ((0, "at least 1"), (121, "120 steps")):
        with pytest.raises(GlauberError, match=why):
            distances(run, embed, every=every)
        with pytest.raises(GlauberError, match=why):
            passages_of(run, embed, (0.5,), every=every)
    for threshold in (0, -1, 2.5):
        with pytest.raises(GlauberError, match="threshold is"):
            semantic_drift(run, threshold=threshold)
    with pytest.raises(GlauberError, match="share of sites that differ is at most 1"):
        semantic_drift(run, embedder="tokens", threshold=1.5)


def test_the_study(run):
    found = semantic_drift(run, embedder=Embedder("bag of words", embed), every=10, threshold=0.4)
    told = found.to_dict()
    assert (
        told["distances"]["steps"] == list(range(0, 121, 10)) and told["embedder"] == "bag of words"
    )
    assert told["saturation"]["kind"] in ("estimate", "lower bound", "unknown")
    times = told["times"]
    assert times["n_hit"] == sum(times["hit"]) and times["median"]["kind"] == "estimate"
    assert f"{times['n_hit']} of 6 chains reached 0.4" in str(found)
    np.testing.assert_allclose(found.frame().distance, found.distances.values.ravel())
    assert "too few snapshots" in str(semantic_drift(run.folder, embedder=embed, every=60))


def test_what_is_not_english_is_compared_by_tokens(run):
    """The English embedder would give all these sequences nearly one vector."""
    found = semantic_drift(run, embedder="tokens", every=20)
    tokens = [run.tokens(step) for step in range(0, 121, 20)]
    differ = [((t != tokens[0]) & run.free).sum(1) / run.free.sum(1) for t in tokens]
    np.testing.assert_allclose(found.distances.values, np.stack(differ, axis=1), atol=1e-6)
    assert "share of free sites" in str(found)
    lazy = passages_of(run, by_tokens(), (0.5,), every=20)[0.5]
    assert lazy.steps.tolist() == hitting_times(found.distances, 0.5).steps.tolist()


def test_a_protein_is_never_read_by_the_english_embedder(tmp_path):
    """Tokens of single letters: the distance is of tokens, and the answer says why."""
    rng = np.random.default_rng(0)
    start = rng.integers(0, 20, size=(3, 12))
    sites = rng.integers(0, 12, size=(3, 120))
    run = crafted_run(tmp_path / "run", start, sites, rng.integers(0, 20, size=(3, 120)))
    run.vocabulary = Residues()
    found = semantic_drift(run, every=10)
    assert found.embedder == "tokens" and "single characters" in found.description
    assert found.distances.values[:, -1].min() > 0.3


class Residues:
    """Spells tokens as residues, one letter each."""

    def decode(self, tokens):
        return "".join(self.spell(int(token)) for token in tokens)

    def spell(self, token):
        return "ACDEFGHIKLMNPQRSTVWY"[token]


def test_an_embedder_that_cannot_be_loaded_is_one_sentence(run, tmp_path):
    for name in (tmp_path, "nobody/nothing"):
        with pytest.raises(GlauberError, match=str(name)):
            semantic_drift(run, embedder=str(name))


def curves(level, time, *, steps=200, every=10, count=12, seed=0):
    """Chains about L (1 - exp(-t / T)), each with a level of its own."""
    rng = np.random.default_rng(seed)
    at = np.arange(0, steps + 1, every)
    own = level + rng.normal(0, 0.05, size=(count, 1))
    noise = rng.normal(0, 0.02, size=(count, len(at))) * (at > 0)
    return DriftDistances(at, own * -np.expm1(-at / time) + noise, every)


def test_the_fitted_level_and_time():
    found = fit_saturation(curves(0.8, 30.0))
    assert found.level.interval[0] < 0.8 < found.level.interval[1]
    assert found.time.interval[0] < 30 < found.time.interval[1]
    assert found.reason == "" and found.level.interval[1] - found.level.interval[0] < 0.1
    exact = curves(0.8, 30.0)
    shape, _ = curve_fit(
        lambda t, a, b: a * -np.expm1(-t / b), exact.steps, exact.values.mean(axis=0), p0=(1, 20)
    )
    assert (found.level.value, found.time.value) == pytest.approx(tuple(shape), rel=1e-4)


def test_a_curve_that_does_not_bend_has_no_level():
    assert "still rises" in fit_saturation(curves(0.8, 2000.0)).reason
    still = curves(0.8, 30.0)
    assert fit_saturation(replace(still, values=still.values * 0)).reason == "no chain moved"
