"""Visits of a run against a plain count, and ranks from visits against the exact ones."""

from collections import Counter

import numpy as np
import pytest
import torch

from glauber import sample
from glauber.compatibility.hodge import ranking, ranks, with_neighbours
from glauber.compatibility.potential import potential, visits
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.table import Joint, Table
from glauber.dynamics.glauber import glauber as glauber_kernel
from glauber.dynamics.kernel import run as advance
from glauber.dynamics.kernel import start
from glauber.errors import GlauberError
from glauber.exact import Space, stationary, transition_matrix


@pytest.fixture
def made(tiny_folder, texts, tmp_path):
    return sample(
        str(tiny_folder), texts, steps=60, chains=5, length=3, temperature=0.4,
        device="cpu", out=tmp_path / "run",
    )  # fmt: skip


def test_visits_are_a_plain_count(made):
    plain = Counter(
        tuple(row) for step in range(21, made.steps + 1) for row in made.tokens(step).tolist()
    )
    found = visits(made, burn_in=20, most=10_000)
    counted = {tuple(x): int(n) for x, n in zip(found.states.tolist(), found.counts, strict=True)}
    assert counted == dict(plain)
    assert found.n_visited == len(plain) and found.n_steps == 40 * 5 == sum(plain.values())
    fewer = visits(made, burn_in=20, most=3)
    assert fewer.counts.tolist() == sorted(plain.values(), reverse=True)[:3]
    assert fewer.n_visited == len(plain)
    assert (fewer.free.sum(dim=1) == 3).all()
    own = Counter(tuple(made.tokens(step)[2].tolist()) for step in range(21, made.steps + 1))
    assert found.by_chain[2].tolist() == [own[tuple(x)] for x in found.states.tolist()]


@pytest.mark.parametrize(("burn_in", "most", "words"), [(60, 5, "burn-in"), (0, 1, "at least 2")])
def test_too_little_to_rank(made, burn_in, most, words):
    with pytest.raises(GlauberError, match=words):
        visits(made, burn_in=burn_in, most=most)


def test_ranks_from_visits_come_near_the_exact_ones():
    """20,000 chains of 40 steps on 27 states: counts differ from the law by about 2%."""
    table = Table.random(3, 3, seed=5)
    space = Space(3, 3)
    exact = ranks(table, space.states(), stationary(transition_matrix(table, space)))
    n_chains = 20_000
    begin = start(torch.zeros(n_chains, 3, dtype=torch.int64), torch.ones(n_chains, 3).bool())
    *_, (end, _) = advance(glauber_kernel(table), begin, 40, seed=1)
    states, counts = torch.unique(end.tokens, dim=0, return_counts=True)
    found = ranks(table, states, counts.numpy(), kind="estimate")
    assert found.kind == "estimate" and found.n_states == exact.n_states == 27
    assert found.potential_pll == pytest.approx(exact.potential_pll)
    # Swapping neighbours in rank moves Spearman's figure by 6 * 2 / (27 * 728) = 0.0006 each.
    assert found.pll_law == pytest.approx(exact.pll_law, abs=0.02)
    assert found.potential_law == pytest.approx(exact.potential_law, abs=0.02)


def test_states_beside_help_and_are_not_ranked():
    """A joint law's potential is its logarithm, whichever states help to find it."""
    joint = Joint.random(3, 3, seed=2, strength=2.0)
    states, law = Space(3, 3).states(), joint.probabilities().numpy()
    some = torch.tensor([0, 4, 8, 12, 20])  # no two of them differ at one site only
    found = ranking(joint, states[some], law[some.numpy()], beside=states)
    np.testing.assert_array_equal(found.states, states[some])
    logs = np.log(law[some.numpy()])
    np.testing.assert_allclose(found.potential - found.potential.mean(), logs - logs.mean())
    assert found.correlations().potential_law == pytest.approx(1)


def test_a_run_is_ranked_by_what_it_visited(made):
    found = potential(made, states=40, burn_in=10)
    answer = found.to_dict()
    assert 0 < answer["share"]["value"] < 1 and "exact" in answer["share"]["kind"]
    assert answer["checks"] > 0 and answer["correlations"]["kind"] == "estimate"
    assert (found.by_chain.sum(axis=0) == found.steps).all()
    for pair, ends in answer["correlation_intervals"].items():
        value = answer["correlations"][pair]
        assert value is None or ends is None or -1 <= ends[0] <= value <= ends[1] <= 1
    assert any(answer["correlation_intervals"].values())
    values = [one["potential"] for one in answer["texts"]]
    assert values == sorted(values, reverse=True) and len(values) == answer["ranked"]
    by_hand = ranking(
        MaskedLM.load(made.spec.model, device="cpu").conditionals(), found.seen.states,
        found.seen.counts, free=found.seen.free, temperature=0.4,
        beside=found.found.split.states,
    )  # fmt: skip
    assert by_hand.split.share == pytest.approx(found.share, rel=1e-9)
    assert "explained by no joint law" in str(found) and "estimates" in str(found)


@pytest.mark.int8
def test_an_int8_run_is_never_called_exact(tiny_folder, texts, tmp_path):
    how = dict(steps=60, chains=5, length=3, temperature=0.4, device="cpu")
    run = sample(str(tiny_folder), texts, dtype="int8", out=tmp_path / "run", **how)
    found = potential(run, states=20)
    laws = MaskedLM.load(str(tiny_folder), device="cpu").conditionals()  # float32
    beside = with_neighbours(laws, found.seen.states, found.seen.free, top=2)
    again = ranking(
        laws, found.seen.states, found.seen.counts, free=found.seen.free, beside=beside,
        temperature=0.4,
    )  # fmt: skip
    assert found.share == again.split.share
    assert "exact" not in str(found) and "float32" in str(found) and "int8" in str(found)
    assert "exact" not in found.to_dict()["share"]["kind"]


def test_of_several_temperatures_the_coldest_or_the_named_one_counts(tiny_folder, texts, tmp_path):
    made = sample(
        str(tiny_folder), texts, steps=60, chains=5, length=3, device="cpu",
        temperature=[0.4, 0.8, 0.4, 0.8, 0.4], out=tmp_path / "run",
    )  # fmt: skip
    cold, warm = potential(made, states=20), potential(made, states=20, temperature=0.8)
    assert (cold.temperature, cold.n_chains) == (0.4, 3) and (warm.n_chains) == 2
    assert "its 3 chains at 0.4" in str(cold)
    some = visits(made, most=20, chains=np.array([1, 3]))
    assert warm.seen.counts.tolist() == some.counts.tolist()
    with pytest.raises(GlauberError, match=r"no chain has the temperature 3: the run has 0.4, 0.8"):
        potential(made, temperature=3.0)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (dict(states=1), "at least 2"),
        (dict(burn_in=60), "burn-in"),
        (dict(neighbours=10_000), "most probable tokens"),
        (dict(neighbours=-1), "at least 0"),
        (dict(states=10**12), "cannot be done"),
    ],
)
def test_potential_refuses(made, how, said):
    with pytest.raises(GlauberError, match=said):
        potential(made, **how)
