"""The model of basins, of chains whose wells are known exactly, and what cannot have basins."""

import sys
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import binom

from glauber.exact import committor, mean_passage_between, stationary, transition_matrix
from glauber.foundation.errors import GlauberError
from glauber.foundation.statistics import jackknife
from glauber.studies.metastability.basin_model import (
    basin_model,
    metastable_sets,
    passage_times,
    transition,
)
from glauber.studies.metastability.clusters import cluster
from glauber.studies.metastability.state_model import (
    StateModel,
    chapman_kolmogorov,
    deeptime,
    implied_timescales,
    largest_set,
    state_model,
    timescales,
    transition_counts,
)
from wells import SPACE, state_labels, three_wells, turning_wells

LAWS = {"reversible": three_wells(), "turning": turning_wells()}
CORES = [0, 13, 26]  # 000, 111, 222


@pytest.fixture(scope="module", params=sorted(LAWS))
def known(request):
    """The exact matrix of a law, and what was found in chains of it."""
    law = LAWS[request.param]
    labels = state_labels(law, n_chains=150, n_steps=300, seed=3)
    return transition_matrix(law, SPACE), basin_model(labels, lag=1, lags=[1, 2, 5]), labels


def slow_steps(matrix):
    moduli = np.sort(np.abs(np.linalg.eigvals(matrix.toarray())))[::-1]
    return -1 / np.log(moduli[1:])


def first_core(matrix):
    """The chance (size, cores) of each state to reach each core before the others."""
    at = np.isin(np.arange(SPACE.size), CORES)
    is_core = np.eye(SPACE.size, dtype=bool)
    return np.stack([committor(matrix, at & ~is_core[c], is_core[c]) for c in CORES], axis=1)


def close(found, exact):
    """Within three standard errors, which are small enough to say something."""
    error = found.standard_error
    assert np.all(error < 0.15 * np.abs(exact)), error / exact
    return np.all(np.abs(found.value - exact) < 3 * error)


def test_the_basins_are_the_wells(known):
    matrix, found, _ = known
    assert found.n_basins == 3 and found.model.share > 0.99
    chances = first_core(matrix)
    ordered = np.sort(chances, axis=1)
    clear = np.flatnonzero(ordered[:, -1] > ordered[:, -2] + 0.2)
    assert len(clear) >= 12
    basin = np.full(SPACE.size, -1)
    basin[found.model.states] = found.sets.assignment
    well_of_basin = {int(basin[core]): well for well, core in enumerate(CORES)}
    assert len(well_of_basin) == 3
    for state in clear:
        assert well_of_basin[int(basin[state])] == chances[state].argmax()


def test_shares_timescales_and_passage_times_are_the_exact_ones(known):
    matrix, found, _ = known
    basin = np.full(SPACE.size, -1)
    basin[found.model.states] = found.sets.assignment
    law = stationary(matrix)
    assert close(found.shares, np.array([law[basin == b].sum() for b in range(3)]))
    assert (np.diff(found.shares.value) <= 0).all()
    exact = slow_steps(matrix)[:2]
    assert close(found.slow.at(slice(2)), exact)
    for row in range(3):  # a lag of 1, 2 and 5
        assert close(found.implied_timescales.steps.at((row, slice(2))), exact)
    for a, b in permutations(range(3), 2):
        time = mean_passage_between(matrix, basin == a, basin == b)
        assert close(found.passage_times.at((a, b)), time)
    stays = [law[basin == b] @ matrix[basin == b][:, basin == b].sum(axis=1) for b in range(3)]
    expected = np.array(stays) / [law[basin == b].sum() for b in range(3)]
    assert close(found.staying, expected)


def test_full_states_pass_the_check(known):
    _, found, _ = known
    assert found.chapman_kolmogorov is not None and found.chapman_kolmogorov.holds
    assert found.chapman_kolmogorov.multiples == (2, 3, 4, 5)
    np.testing.assert_allclose(found.chapman_kolmogorov.predicted.value.sum(axis=2), 1)
    assert "nothing speaks against" in found.notes[-1]


def test_a_wider_stride_scales_the_steps(known):
    _, found, labels = known
    wide = basin_model(labels[:, ::5], every=5, lag=1, lags=[1, 2])
    assert wide.model.lag_steps == 5 and wide.implied_timescales.lags.tolist() == [5, 10]
    error = np.hypot(wide.slow.standard_error[0], found.slow.standard_error[0])
    assert abs(wide.slow.value[0] - found.slow.value[0]) < 3 * error


def test_times_are_counted_in_steps(known):
    """The same labels, five steps apart: every time is five times as long."""
    _, found, labels = known
    apart = basin_model(labels, every=5, lag=1, lags=[1, 2, 5])
    for times in ("slow", "passage_times"):
        expected = 5 * getattr(found, times).value
        np.testing.assert_allclose(getattr(apart, times).value, expected, rtol=1e-9)
    np.testing.assert_allclose(apart.shares.value, found.shares.value)
    for near, far in zip(found.transitions, apart.transitions, strict=True):
        assert far.flux == pytest.approx(near.flux / 5)


def exact_model(law):
    matrix = transition_matrix(law, SPACE)
    return StateModel(np.arange(27), matrix.toarray(), 1, 1, 1.0), matrix


@pytest.mark.parametrize("name", sorted(LAWS))
def test_the_exact_matrix_gives_the_exact_passages(name):
    model, matrix = exact_model(LAWS[name])
    sets = metastable_sets(model)
    assert sets.n_sets == 3
    np.testing.assert_allclose(model.stationary, stationary(matrix), rtol=1e-9)
    np.testing.assert_allclose(sets.memberships.sum(axis=1), 1)
    np.testing.assert_allclose(timescales(model.matrix, 1)[:5], slow_steps(matrix)[:5], rtol=1e-6)
    times = passage_times(model, sets.assignment, 3)
    for pair in permutations(range(3), 2):
        a, b = (sets.assignment == basin for basin in pair)
        assert times[pair] == pytest.approx(mean_passage_between(matrix, a, b), rel=1e-8)
        found = transition(model, sets.assignment, pair)
        np.testing.assert_allclose(found.committor, committor(matrix, a, b), atol=1e-9)
        assert found.flux == pytest.approx(passages_per_step(model.matrix, a, b), rel=1e-8)
        shares = [path.share for path in found.paths]
        assert shares == sorted(shares, reverse=True) and 0.9 < sum(shares) <= 1 + 1e-9
        assert all(path.basins[0] == pair[0] and path.basins[-1] == pair[1] for path in found.paths)


def passages_per_step(matrix, a, b):
    """By the chain that also remembers which of the two sets it saw last."""
    n = len(matrix)
    doubled = np.zeros((2 * n, 2 * n))
    for last in range(2):
        for j in range(n):
            now = 0 if a[j] else 1 if b[j] else last
            doubled[last * n : (last + 1) * n, now * n + j] = matrix[:, j]
    law = stationary(doubled)
    return float(law[:n] @ matrix[:, b].sum(axis=1))


def test_a_number_of_sets_that_splits_a_pair_gives_a_neighbour():
    model, _ = exact_model(LAWS["turning"])
    found = metastable_sets(model, 2)
    assert found.n_sets == 3 and "complex" in found.note and " 2" in found.note
    assert metastable_sets(model, 3).note == "There are 3 basins, as asked."


def test_a_model_without_memory_of_the_phase_is_off():
    """Two labels of a cycle of three: where it goes next depends on more than the label."""
    rng = np.random.default_rng(0)
    turns = (rng.random((40, 400)) < 0.95).cumsum(axis=1) + rng.integers(3, size=(40, 1))
    labels = (turns % 3 > 0).astype(np.int64)
    check = chapman_kolmogorov(labels, np.arange(2), lag=1)
    assert check is not None and check.holds is False and check.worst > 20
    alone = chapman_kolmogorov(labels[:1], np.arange(2), lag=1)
    assert alone is not None and alone.holds is None
    assert chapman_kolmogorov(labels[:, :3], np.arange(2), lag=1) is None


def markov_chains(n_chains, rng, *, n_states=6, n_snapshots=100):
    """Chains (chains, snapshots) of a random law with two wells, even states and odd ones."""
    well = np.arange(n_states) % 2
    law = rng.dirichlet(np.full(n_states, 2.0), size=n_states)
    law *= np.where(well[:, None] == well, 1.0, 0.05)
    steps = (np.eye(n_states) + law / law.sum(axis=1, keepdims=True)).cumsum(axis=1) / 2
    state, path = rng.integers(n_states, size=n_chains), []
    for _ in range(n_snapshots):
        path.append(state)
        state = (rng.random(n_chains)[:, None] > steps[state]).sum(axis=1).clip(max=n_states - 1)
    return np.stack(path, axis=1), well


@pytest.mark.parametrize(("n_chains", "models"), [(8, 80), (30, 20), (100, 8)])
def test_true_models_pass_the_check_as_often_as_it_says(n_chains, models):
    """95% or more; so few as are let pass here come about once in a thousand times at 95%."""
    rng = np.random.default_rng(n_chains)
    checks = []
    for _ in range(models):
        labels, well = markov_chains(n_chains, rng)
        checks.append(chapman_kolmogorov(labels, well, lag=2))
    assert all(check.is_judged.any() and 0 < check.unseen < 1 for check in checks)
    assert sum(check.holds for check in checks) > binom.ppf(0.001, models, 0.95)


def test_a_model_that_is_off_is_found_with_eight_chains():
    """Six states of two wells seen as two labels that mix the wells: no Markov chain."""
    rng = np.random.default_rng(0)
    labels, _ = markov_chains(8, rng, n_snapshots=400)
    mixed = np.array([0, 0, 1, 1, 1, 1])[labels]
    check = chapman_kolmogorov(mixed, np.arange(2), lag=1)
    assert check.holds is False and check.worst > 4


def test_the_check_is_that_of_deeptime():
    """The library makes the same comparison of models of all chains, without errors."""
    labels = state_labels(LAWS["turning"], n_chains=30, n_steps=400, seed=5)
    markov, basin = deeptime().markov, np.arange(27) % 3
    found = chapman_kolmogorov(labels, basin, lag=1)
    models = [
        markov.msm.MaximumLikelihoodMSM(reversible=False, lagtime=lag).fit_fetch(list(labels))
        for lag in (1, *found.multiples)
    ]
    assert all(model.n_states == 27 for model in models)
    observable = markov._observables.MembershipsObservable(models[0], np.eye(3)[basin])
    for row, (k, later) in enumerate(zip(found.multiples, models[1:], strict=True)):
        ahead = models[0].propagate
        predicted = [ahead(observable.P0[:, b], k) @ np.eye(3)[basin] for b in range(3)]
        np.testing.assert_allclose(found.predicted.value[row], predicted, atol=1e-10)
        np.testing.assert_allclose(found.counted.value[row], observable(later), atol=1e-10)


def test_counts_are_those_of_each_chain_alone():
    labels = np.array([[0, 1, 1, 2, 0], [2, 2, 2, 2, 2]])
    counts = transition_counts(labels, 2)
    assert counts[0].tolist() == [[0, 1, 0], [1, 0, 1], [0, 0, 0]]
    assert counts[1].tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 3]]
    pairs = np.array([[5.0, 1, 0], [2, 2, 1], [0, 0, 3]])  # 2 is never left
    assert largest_set(pairs).tolist() == [0, 1]
    model = state_model(pairs)
    assert model.share == pytest.approx(10 / 14)
    np.testing.assert_allclose(model.matrix, [[5 / 6, 1 / 6], [0.5, 0.5]])
    np.testing.assert_allclose(model.stationary, [0.75, 0.25])


def test_the_error_of_a_mean_over_resampled_chains():
    values = np.random.default_rng(1).normal(size=400)
    found = jackknife(lambda weights: np.array([weights @ values / weights.sum()]), 400)
    assert found.value[0] == pytest.approx(values.mean())
    # Two chains are left out at a time, 200 pairs: they tell a standard deviation to about 5%.
    assert found.standard_error[0] == pytest.approx(values.std() / 20, rel=0.2)
    assert found.low[0] < found.value[0] < found.high[0]
    rare = jackknife(lambda weights: np.array([1.0 if weights[0] > 0 else np.nan]), 400)
    assert np.isnan(rare.standard_error[0])


def test_basins_of_few_chains_have_no_errors():
    labels = state_labels(LAWS["turning"], n_chains=2, n_steps=800)
    found = basin_model(labels, lag=1, lags=[1])
    assert (
        found.passage_times.standard_error is None and np.isfinite(found.passage_times.value).all()
    )
    assert any("Fewer than 3 chains" in words for words in found.notes)
    assert found.chapman_kolmogorov is not None and found.chapman_kolmogorov.holds is None


def test_one_chain_is_said_in_the_notes():
    labels = state_labels(LAWS["turning"], n_chains=1, n_steps=800)
    found = basin_model(labels, lag=1, lags=[1])
    assert found.n_basins >= 2 and found.passage_times.standard_error is None
    assert any("one chain only" in words for words in found.notes)
    assert any("too few chains" in words for words in found.notes)


def test_what_has_no_basins():
    labels = state_labels(LAWS["turning"], n_chains=2, n_steps=100)
    cases = [
        (lambda: basin_model(labels, lag=51), "too short for a lag of 51"),
        (lambda: basin_model(np.zeros((3, 40), np.int64), lag=1), "no basins to tell apart"),
        (lambda: basin_model(np.arange(40)[None], lag=1), "comes back"),
        (lambda: basin_model(labels, lag=1, n_sets=1), "1 basins are asked for"),
        (lambda: basin_model(labels, lag=1, n_sets=28), "28 basins are asked for"),
        (lambda: implied_timescales(labels, [1, 60]), "too short"),
    ]
    for ask, why in cases:
        with pytest.raises(GlauberError, match=why):
            ask()


def test_chains_in_separate_places_have_figures_of_one_place():
    """Two chains share two states, the others move on: some resamples hold only the others."""
    rng = np.random.default_rng(0)
    both = (rng.random((2, 60)) < 0.3).astype(np.int64)
    labels = np.concatenate([both, np.repeat([[2], [3], [4], [5]], 60, axis=1)])
    labels[2:, 30:] += 4
    found = basin_model(labels, lag=1, lags=[1, 5])
    assert found.model.states.tolist() == [0, 1] and found.model.share == pytest.approx(1 / 3, 0.05)
    assert any(words.startswith("Only 3") for words in found.notes)
    # Six chains, but only two of them stand behind the timescales.
    assert np.isfinite(found.slow.value).all() and np.isnan(found.slow.low).all()
    assert np.isnan(found.implied_timescales.steps.low[0]).all()
    # 0, 1, 0 has no end; at lag 3 nothing comes back.
    late = implied_timescales(
        np.array([[0, 1, 0, 2, 3, 4, 5, 6]]), [1, 3]
    )  # no end to 0, 1, 0; none at lag 3
    assert late.steps.value[0, 0] == np.inf and np.isnan(late.steps.value[1]).all()


@pytest.mark.parametrize("package", ["sklearn", "deeptime"])
def test_a_missing_package_is_named(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    labels = state_labels(LAWS["turning"], n_chains=3, n_steps=100)
    with pytest.raises(GlauberError, match=r"glauber\[basins\]"):
        if package == "sklearn":
            cluster(np.random.default_rng(0).random((2, 9, 3), np.float32), 2)
        basin_model(labels, lag=1)
