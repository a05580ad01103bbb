"""One step of the engine, from every state of a small model, follows the exact chain."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from glauber.dynamics import scans
from glauber.dynamics.draws import gumbel_max, inverse_cdf
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.dynamics.remembered import run_memoised
from glauber.exact.models import Ising
from glauber.exact.space import Space
from glauber.exact.stationary import stationary, total_variation
from glauber.exact.transition import (
    adaptive_matrix,
    parallel_matrix,
    site_matrix,
    sweep_matrix,
    transition_matrix,
)
from glauber.models.base import Clamped, Restricted, Tempered
from glauber.models.table import Joint, Table

VOCAB, LENGTH = 3, 3
SPACE = Space(VOCAB, LENGTH)
MODELS = {
    "joint": Joint.random(VOCAB, LENGTH, seed=1, strength=1.5),
    "table": Table.random(VOCAB, LENGTH, seed=2, strength=1.5),
}
# Scans of single sites, and how their matrix follows from that of the random scan.
SCANS = {
    "uniform": lambda matrix: matrix,
    "block:1": lambda matrix: matrix,
    "lazy": lambda matrix: (np.eye(SPACE.size) + matrix) / 2,
}
EACH = 3000  # chains from every state
FREE = torch.tensor([True, False, True])


def after(kernel, steps=1, *, temperature=1.0, free=None, seed=11):
    """Counts (states, states) of where EACH chains from every state are after the steps."""
    return counts_of(
        lambda begun: run(kernel, begun, steps, seed=seed), temperature=temperature, free=free
    )


def counts_of(steps_from, *, temperature=1.0, free=None):
    """The same for any engine: steps_from(state) yields its steps."""
    states = SPACE.states().repeat_interleave(EACH, dim=0)
    free = torch.ones_like(states, dtype=torch.bool) if free is None else free.expand_as(states)
    begun = start(states, free, temperature=temperature)
    for state, _ in steps_from(begun):
        last = state
    counts = torch.zeros(SPACE.size, SPACE.size)
    where = SPACE.index(states) * SPACE.size + SPACE.index(last.tokens)
    return counts.view(-1).index_add_(0, where, torch.ones(len(where))).view_as(counts).numpy()


def assert_follows(counts, matrix):
    """Pearson's chi-square over all rows at once; impossible moves never happen."""
    matrix = np.asarray(matrix.todense() if hasattr(matrix, "todense") else matrix)
    expected = matrix * EACH
    assert counts[matrix < 1e-15].sum() == 0
    often = expected >= 5
    rest_seen = np.where(often, 0, counts).sum(axis=1)
    rest_expected = np.where(often, 0, expected).sum(axis=1)
    seen = np.append(counts[often], rest_seen[rest_expected >= 5])
    due = np.append(expected[often], rest_expected[rest_expected >= 5])
    freedom = len(due) - SPACE.size
    statistic = ((seen - due) ** 2 / due).sum()
    assert chi2.sf(statistic, freedom) > 1e-3, (statistic, freedom)


def single_site_matrix(name, scan):
    matrix = transition_matrix(MODELS[name], SPACE, temperature=0.7)
    return SCANS[scan](np.asarray(matrix.todense()))


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("fill", [inverse_cdf, gumbel_max])
@pytest.mark.parametrize("name", MODELS)
def test_scans_of_single_sites(name, fill, scan):
    kernel = glauber(MODELS[name], scan=scans.scan_named(scan), fill=fill())
    assert_follows(after(kernel, temperature=0.7), single_site_matrix(name, scan))


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("name", MODELS)
def test_chains_that_remember(name, prefetch, scan):
    """Nearly every draw comes from the memo; two steps follow the square of the matrix."""
    matrix = single_site_matrix(name, scan)
    kernel = glauber(MODELS[name], scan=scans.scan_named(scan))
    counts = counts_of(
        lambda begun: run_memoised(kernel, begun, 2, seed=11, prefetch=prefetch), temperature=0.7
    )
    assert_follows(counts, matrix @ matrix)


@pytest.mark.parametrize("name", MODELS)
def test_each_step_of_a_sweep_and_the_whole_sweep(name):
    kernel = glauber(MODELS[name], scan=scans.sweep())
    assert_follows(after(kernel, 1), site_matrix(MODELS[name], SPACE, 0))
    assert_follows(after(kernel, LENGTH), sweep_matrix(MODELS[name], SPACE))


@pytest.mark.parametrize("within", ["sequential", "product"])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_blocks(name, size, within):
    kernel = glauber(MODELS[name], scan=scans.block(size), within=within)
    assert_follows(after(kernel), transition_matrix(MODELS[name], SPACE, block=size, within=within))


@pytest.mark.parametrize("name", MODELS)
def test_all_sites_in_parallel(name):
    kernel = glauber(MODELS[name], scan=scans.everywhere(), within="parallel")
    assert_follows(after(kernel), parallel_matrix(MODELS[name], SPACE))


ADAPTIVE = [
    (redraw, measure, sharpness)
    for redraw in ("naive", "adaptive", "conditioned")
    for measure in ("confidence", "entropy")
    for sharpness in (1.0, 3.0)
] + [("naive", "confidence", math.inf)]


@pytest.mark.parametrize(("redraw", "measure", "sharpness"), ADAPTIVE)
def test_sites_that_the_state_chooses(redraw, measure, sharpness):
    """On a joint law and on conditionals that have none, also with a frozen site, cold and hot."""
    options = {"redraw": redraw, "measure": measure, "sharpness": sharpness}
    for name, free, temperature in (("table", None, 0.6), ("joint", FREE, 2.0)):
        kernel = glauber(MODELS[name], scan=scans.by_state(*options.values()))
        matrix = adaptive_matrix(MODELS[name], SPACE, **options, temperature=temperature, free=free)
        assert_follows(after(kernel, temperature=temperature, free=free), matrix)


def test_a_chain_without_the_correction_is_noticed():
    """The test above can fail: the naive chain does not follow the corrected one's matrix."""
    counts = after(glauber(MODELS["joint"], scan=scans.by_state("naive", "confidence")))
    for redraw in ("adaptive", "conditioned"):
        with pytest.raises(AssertionError):
            assert_follows(counts, adaptive_matrix(MODELS["joint"], SPACE, redraw=redraw))


@pytest.mark.parametrize("name", MODELS)
def test_frozen_sites(name):
    counts = after(glauber(MODELS[name]), free=FREE)
    assert_follows(counts, transition_matrix(MODELS[name], SPACE, free=FREE))


def test_the_wrong_temperature_is_noticed():
    """The test above can fail: a chain at temperature 1 does not follow the law at 0.9."""
    counts = after(glauber(MODELS["table"]))
    with pytest.raises(AssertionError):
        assert_follows(counts, transition_matrix(MODELS["table"], SPACE, temperature=0.9))


def test_wrappers():
    tempered = glauber(Tempered(MODELS["joint"], 2.0))
    assert_follows(after(tempered), transition_matrix(MODELS["joint"], SPACE, temperature=2.0))
    allowed = torch.tensor([True, False, True])
    limited = Restricted(MODELS["table"], allowed)
    assert_follows(after(glauber(limited)), transition_matrix(limited, SPACE))


def test_a_clamped_chain_is_the_frozen_chain():
    """Freezing a site of the state or clamping it in the conditionals is the same chain."""
    clamped = Clamped(MODELS["table"], torch.tensor([-1, 2, -1]))
    small = Space(VOCAB, 2)
    frozen = transition_matrix(MODELS["table"], SPACE, free=FREE).todense()
    pairs = torch.tensor([[a, 2, b] for a in range(VOCAB) for b in range(VOCAB)])
    inside = SPACE.index(pairs).numpy()
    np.testing.assert_allclose(
        transition_matrix(clamped, small).todense(), np.asarray(frozen)[np.ix_(inside, inside)]
    )


def tolerance(law, count):
    """Total variation of `count` independent draws: its mean, and six standard deviations more."""
    return 0.5 * np.sqrt(law * (1 - law) / count).sum() + 6 / (2 * math.sqrt(count))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kernel", ["random", "sweep", "block", "parallel"])
def test_stationary_laws(name, kernel):
    """After many steps independent chains are spread by the exact stationary law."""
    model, n_chains, steps = MODELS[name], 8_000, 90
    made = {
        "random": (glauber(model), transition_matrix(model, SPACE)),
        "sweep": (glauber(model, scan=scans.sweep()), sweep_matrix(model, SPACE)),
        "block": (glauber(model, scan=scans.block(2)), transition_matrix(model, SPACE, block=2)),
        "parallel": (
            glauber(model, scan=scans.everywhere(), within="parallel"),
            parallel_matrix(model, SPACE),
        ),
    }
    engine, matrix = made[kernel]
    law = stationary(matrix)
    dense = np.asarray(matrix.todense() if hasattr(matrix, "todense") else matrix)
    near = np.linalg.matrix_power(dense, steps if kernel != "sweep" else steps // LENGTH)[0]
    assert total_variation(near, law) < 1e-3  # so many steps forget the start
    begun = start(
        torch.zeros(n_chains, LENGTH, dtype=torch.int64), torch.ones(n_chains, LENGTH).bool()
    )
    for state, _ in run(engine, begun, steps, seed=5):
        last = state
    seen = np.bincount(SPACE.index(last.tokens).numpy(), minlength=SPACE.size) / n_chains
    assert total_variation(seen, law) < tolerance(law, n_chains) + 1e-3
    if name == "joint" and kernel != "parallel":
        np.testing.assert_allclose(law, model.probabilities().numpy(), atol=1e-10)


@pytest.mark.parametrize("measure", ["confidence", "entropy"])
@pytest.mark.parametrize("redraw", ["naive", "adaptive", "conditioned"])
def test_chains_whose_state_chooses_end_in_the_joint_unless_naive(redraw, measure):
    """Independent chains of a four-site Ising model after many steps, by Pearson's chi-square."""
    ising, n_chains, steps = Ising.clique(4, 4, coupling=0.05, field=0.2), 2000, 50
    model, sharpness = ising.joint(), 3.0 if measure == "entropy" else 1.0
    scan = scans.by_state(redraw, measure, sharpness)
    begun = start(torch.zeros(n_chains, 4, dtype=torch.int64), torch.ones(n_chains, 4).bool())
    for state, _ in run(glauber(model, scan=scan), begun, steps, seed=7):
        last = state
    seen = np.bincount(ising.space.index(last.tokens).numpy(), minlength=16)

    def chance(law):
        return chi2.sf(((seen - n_chains * law) ** 2 / (n_chains * law)).sum(), 15)

    own = stationary(
        adaptive_matrix(model, ising.space, redraw=redraw, measure=measure, sharpness=sharpness)
    )
    assert chance(own) > 1e-3
    if redraw == "naive":
        assert chance(ising.probabilities) < 1e-6
    else:
        assert total_variation(own, ising.probabilities) < 1e-12
