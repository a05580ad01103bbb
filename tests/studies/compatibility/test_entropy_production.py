"""Entropy production: the estimate from the engine's events against the exact chain."""

import math

import numpy as np
import pytest
import torch

from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.exact import Space, stationary, transition_matrix
from glauber.exact import entropy_production as exact_entropy_production
from glauber.foundation.errors import GlauberError
from glauber.foundation.statistics import standard_error
from glauber.models.base import Restricted, log_probs
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Joint, Table
from glauber.runs.spec import Spec
from glauber.sampling.sample import sample
from glauber.studies.compatibility.entropy_production import (
    check_kernel,
    entropy_production,
    estimate,
)

VOCAB, LENGTH = 3, 3
SPACE = Space(VOCAB, LENGTH)


def events(model, *, n_chains=1500, n_steps=110, temperature=1.0, seed=3, first_token=0):
    """log_prob_old and entropy (chains, steps) of chains of the engine."""
    tokens = torch.full((n_chains, LENGTH), first_token)
    begun = start(tokens, torch.ones_like(tokens, dtype=torch.bool), temperature=temperature)
    infos = [info for _, info in run(glauber(model), begun, n_steps, seed=seed)]
    columns = [[info.log_prob_old[:, 0] for info in infos], [info.entropy[:, 0] for info in infos]]
    return tuple(torch.stack(column, dim=1).numpy() for column in columns)


def by_hand(model, temperature):
    """sum mu(x) 1/n pi_i(y) log(pi_i(y) / pi_i(x)), move by move."""
    mu = stationary(transition_matrix(model, SPACE, temperature=temperature))
    states = SPACE.states()
    total = 0.0
    for site in range(LENGTH):
        sites = torch.full((SPACE.size, 1), site)
        laws = log_probs(model, states, sites, temperature=temperature)[:, 0].numpy()
        for x in range(SPACE.size):
            old = laws[x, states[x, site]]
            total += mu[x] / LENGTH * (np.exp(laws[x]) * (laws[x] - old)).sum()
    return total


@pytest.mark.parametrize("temperature", [0.6, 1.0, 3.0])
def test_the_exact_value_is_the_sum_over_single_site_moves(temperature):
    table = Table.random(VOCAB, LENGTH, seed=5)
    exact = exact_entropy_production(transition_matrix(table, SPACE, temperature=temperature))
    assert exact == pytest.approx(by_hand(table, temperature), rel=1e-10)
    assert exact > 0.001


def test_a_biased_ring_has_its_closed_form():
    """Steps p forward, q back, r stay on a ring: (p - q) log(p / q)."""
    p, q, size = 0.5, 0.2, 7
    matrix = 0.3 * np.eye(size) + p * np.roll(np.eye(size), 1, 1) + q * np.roll(np.eye(size), -1, 1)
    assert exact_entropy_production(matrix) == pytest.approx((p - q) * math.log(p / q), rel=1e-12)
    one_way = 0.5 * np.eye(size) + 0.5 * np.roll(np.eye(size), 1, 1)
    assert exact_entropy_production(one_way) == math.inf


@pytest.mark.parametrize("seed", range(3))
def test_a_joint_law_produces_no_entropy(seed):
    joint = Joint.random(VOCAB, LENGTH, seed=seed, strength=1.5)
    assert abs(exact_entropy_production(transition_matrix(joint, SPACE))) < 1e-14
    found = estimate(*events(joint, seed=seed), burn_in=40)
    assert abs(found.rate.value) < 3 * found.rate.standard_error
    assert found.rate.standard_error < 0.01


@pytest.mark.parametrize(
    ("seed", "temperature"), [(0, 0.7), (1, 0.7), (0, 1.0), (2, 1.0), (1, 2.0)]
)
def test_the_estimate_is_the_exact_value_on_incompatible_tables(seed, temperature):
    table = Table.random(VOCAB, LENGTH, seed=seed)
    exact = exact_entropy_production(transition_matrix(table, SPACE, temperature=temperature))
    found = estimate(*events(table, temperature=temperature, seed=seed), burn_in=40)
    assert abs(found.rate.value - exact) < 3 * found.rate.standard_error
    assert exact > 10 * found.rate.standard_error  # so that zero would not pass for it


def test_two_chains_have_no_interval_and_four_keep_theirs():
    """Chains that differ for good: batches of two chains called zero off in a fifth of cases."""
    generator = np.random.default_rng(4)
    held = []
    for _ in range(200):
        rates = 0.1 + 0.05 * generator.normal(size=(4, 1))
        old = -rates + 0.3 * generator.normal(size=(4, 64))
        two, four = (estimate(old[:n], 0 * old[:n], burn_in=0) for n in (2, 4))
        assert two.rate.interval is None and two.rate.reason.startswith("two values")
        held.append(four.rate.interval[0] <= 0.1 <= four.rate.interval[1])
        assert four.rate.interval[0] >= 0  # as the true rate is
        assert four.rate.standard_error == pytest.approx(standard_error(-old.mean(axis=1)))
    assert np.mean(held) > 0.93 - 3 * np.sqrt(0.93 * 0.07 / 200)


def test_the_standard_error_is_the_spread_of_the_estimate():
    """Over 40 repetitions of one chain, the errors are as large as the batch means say.

    A chi of 40 degrees of freedom has a relative spread of 1/sqrt(80) = 0.11, the mean of the
    standard errors less; so 0.35 is three of them.
    """
    table = Table.random(VOCAB, LENGTH, seed=1)
    exact = exact_entropy_production(transition_matrix(table, SPACE))
    old, entropy = events(table, n_chains=40, n_steps=840, seed=8)
    found = [estimate(old[i : i + 1], entropy[i : i + 1], burn_in=40) for i in range(40)]
    assert {one.n_batches for one in found} == {32}
    errors = np.array([one.rate.value - exact for one in found])
    said = np.sqrt(np.mean([one.rate.standard_error**2 for one in found]))
    assert abs(np.sqrt((errors**2).mean()) / said - 1) < 0.35


def test_counting_begins_once_forbidden_starts_are_gone():
    """Starts outside the allowed tokens: log 0 at first, then the restricted chain's value."""
    table = Table.random(VOCAB, LENGTH, seed=4, strength=1.5)
    limited = Restricted(table, torch.tensor([True, True, False]))
    old, entropy = events(limited, n_chains=400, first_token=2)
    assert np.isneginf(old).sum() == 400 * LENGTH
    exact = exact_entropy_production(transition_matrix(limited, SPACE))
    found = estimate(old, entropy, burn_in=0)
    assert found.n_chains == 400
    assert found.n_steps == sum(110 - 1 - np.isneginf(row).nonzero()[0][-1] for row in old)
    settled = estimate(old, entropy, burn_in=40)
    assert abs(settled.rate.value - exact) < 3 * settled.rate.standard_error
    assert exact > 5 * settled.rate.standard_error


def test_a_chain_that_stays_forbidden_is_left_out():
    old, entropy = np.full((5, 20), -1.0), np.full((5, 20), 0.5)
    old[1, 18] = -np.inf
    found = estimate(old, entropy, burn_in=4, first=[0, 0, 20, 6, 0])
    assert (found.n_chains, found.n_steps) == (3, 16 + 14 + 16)
    assert found.rate.value == pytest.approx(0.5) and found.rate.kind == "estimate"


@pytest.mark.parametrize("burn_in", [-1, 20, 300])
def test_a_burn_in_leaves_something(burn_in):
    with pytest.raises(GlauberError, match="burn-in"):
        estimate(np.zeros((3, 20)), np.zeros((3, 20)), burn_in=burn_in)


def test_too_little_to_count():
    with pytest.raises(GlauberError, match="longer"):
        estimate(np.zeros((1, 2)), np.zeros((1, 2)), burn_in=1)
    with pytest.raises(GlauberError, match="at least one"):
        estimate(np.zeros((3, 0)), np.zeros((3, 0)))
    with pytest.raises(GlauberError, match="no recorded conditional"):
        estimate(np.full((3, 4), np.nan), np.zeros((3, 4)))
    with pytest.raises(GlauberError, match="longer"):
        estimate(np.zeros((2, 4)), np.zeros((2, 4)), first=[4, 4])


PLAIN = dict(
    model="", fingerprint="", device="", dtype="", seed=0, steps=1, chains=1, temperature=1.0
)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (dict(scan="sweep"), "reverse order"),
        (dict(scan="block:3"), "block"),
        (dict(scan="block:2", within="product"), "block"),
        (dict(scan="everywhere", within="parallel"), "all sites move at once"),
        (dict(scan="adaptive:entropy"), "depends on the state"),
        (dict(scan="conditioned:confidence:2"), "depends on the state"),
        (dict(scan="naive:confidence"), "depends on the state"),
        (dict(fill="greedy"), "greedy"),
    ],
)
def test_other_kernels_are_refused(how, why):
    with pytest.raises(GlauberError, match=why) as caught:
        check_kernel(Spec(**PLAIN, **how))
    assert str(caught.value).count(". ") == 0


def test_single_site_random_scans_are_accepted():
    check_kernel(Spec(**PLAIN))
    check_kernel(Spec(**PLAIN, fill="gumbel-max", within="product"))


@pytest.fixture
def made(tiny_folder, texts, tmp_path):
    """Makes a run of the tiny model with the given options."""

    def make(**how):
        how = {"steps": 200, "chains": 6, "length": 4, "temperature": 2.0} | how
        return sample(str(tiny_folder), texts, device="cpu", out=tmp_path / "run", **how)

    return make


def test_it_is_the_mean_over_the_recorded_events(made):
    run = made()
    found = entropy_production(run, burn_in=80)
    values = -run.read("entropy", 80) - run.read("log_prob_old", 80)
    assert found.rate.value == pytest.approx(values.mean(), rel=1e-4)
    total = found.total
    assert (total.n_chains, total.n_steps, total.burn_in) == (6, 720, 80)
    assert found.rate.standard_error > 0
    for chain, one in enumerate(found.chains):
        assert one.rate.value == pytest.approx(values[chain].mean(), rel=1e-4)
        assert one.rate.interval[0] < one.rate.value < one.rate.interval[1]
    answer = found.to_dict()
    assert answer["total"]["rate"]["kind"] == "estimate" and answer["evaluated_again"] is None
    assert f"{found.rate.value:.4f} nats per step" in str(found) and "estimate" in str(found)
    half = entropy_production(str(run.folder))  # a folder is a run, too
    assert half.total.burn_in == 100
    ratio = run.to_arviz().sample_stats["log_ratio"].values
    assert ratio[:, 100:].mean() == pytest.approx(half.rate.value, rel=1e-5)


def test_a_start_that_the_run_may_not_draw_is_not_counted(made):
    run = made(steps=6, chains=40, forbid=["the"])
    the = run.vocabulary.pieces("the")[0]
    kept = (run.tokens() == the).any(axis=1)
    old = run.read("log_prob_old")[:, :, 0]
    assert kept.any() and not kept.all()
    late = np.isneginf(old[:, 3:]).any(axis=1)
    assert entropy_production(run, burn_in=0).total.n_chains == (~kept & ~late).sum()


def test_unknown_start_words_are_not_counted(tiny_folder, tmp_path):
    """A token that is never drawn has log 0 until redrawn; a chain that keeps it is left out."""
    texts = ["[MASK] the cat sat on it", "the [MASK] cat ran on it", "the cat sat on a mat"]
    run = sample(
        str(tiny_folder),
        texts,
        chains=60,
        steps=8,
        temperature=3.0,
        out=tmp_path / "run",
        device="cpu",
    )
    old = run.read("log_prob_old")[:, :, 0]
    kept = (run.tokens() == 4).any(axis=1)  # [MASK] is token 4
    late = np.isneginf(old[:, 4:]).any(axis=1)
    assert kept.any() and late.any()
    found = entropy_production(run, burn_in=0)
    begin = [row.nonzero()[0][-1] + 1 if row.any() else 0 for row in np.isneginf(old)]
    counted = [8 - at for at, held in zip(begin, kept, strict=True) if not held and at <= 4]
    assert (found.total.n_chains, found.total.n_steps) == (len(counted), sum(counted))
    assert np.isfinite(found.rate.value)


@pytest.mark.int8
def test_a_run_drawn_in_int8_is_evaluated_again_in_float32(made):
    """The float32 conditionals at the states that the run visited, one state at a time."""
    run = made(steps=30, chains=3, dtype="int8")
    found = entropy_production(run, burn_in=10)
    model = MaskedLM.load(run.spec.model, device="cpu")
    laws = model.conditionals()
    sites = run.read("site")[:, :, 0]
    total = 0.0
    for step in range(10, 30):
        before = torch.from_numpy(run.tokens(step))
        for chain in range(3):
            row, site = before[chain : chain + 1], torch.tensor([[int(sites[chain, step])]])
            law = log_probs(laws, row, site, temperature=2.0)[0, 0]
            mean = float((law.exp() * law).nansum())
            total += mean - float(law[row[0, site[0, 0]]])
    assert found.rate.value == pytest.approx(total / 60, rel=1e-9)
    recorded = (-run.read("entropy", 10) - run.read("log_prob_old", 10)).mean()
    assert found.rate.value != pytest.approx(recorded, rel=1e-6)  # int8 rounds
    assert found.to_dict()["evaluated_again"] == "float32"
    assert "int8" in str(found) and "float32" in str(found) and "exact" not in str(found)


def test_each_temperature_of_a_run_has_its_estimate(made):
    run = made(steps=80, chains=4, temperature=[2.0, 3.0, 2.0, 3.0])
    found = entropy_production(run, burn_in=20)
    old, entropy = run.read("log_prob_old")[:, :, 0], run.read("entropy")[:, :, 0]
    assert list(found.by_temperature) == [2.0, 3.0]
    for first, temperature in enumerate((2.0, 3.0)):
        alone = estimate(old[first::2], entropy[first::2], burn_in=20)
        assert found.by_temperature[temperature].rate == alone.rate
    assert [one.temperature for one in found.chains] == [2.0, 3.0, 2.0, 3.0]
    assert "at several temperatures" in str(found)


def test_a_run_needs_steps(made, tmp_path):
    with pytest.raises(GlauberError, match="no steps yet"):
        entropy_production(made(steps=0))
    with pytest.raises(GlauberError, match="is not a run"):
        entropy_production(tmp_path)


@pytest.mark.weights
def test_the_bundled_model_is_irreversible():
    """A masked LM of English at temperature 1 is far from every joint law."""
    made = sample("bundled:english", steps=60, chains=16, length=6, seed=0, device="cpu")
    found = entropy_production(made, burn_in=20)
    assert found.rate.value > 3 * found.rate.standard_error


def test_chains_that_stood_still_say_nothing_about_a_joint_law(tiny_folder, texts):
    run = sample(str(tiny_folder), texts[:1], chains=2, steps=200, temperature=0.001, seed=0)
    found = entropy_production(run)
    assert found.rate.standard_error < 1e-9
    assert "says nothing about a joint distribution" in str(found)
