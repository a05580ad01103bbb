"""Gaps, basins and escapes against loops by hand and the exact transition matrix."""

import itertools
import json
import math

import numpy as np
import pytest
import torch

from glauber.exact.hitting_times import hamming_ball, mean_exit_times
from glauber.exact.space import Space
from glauber.exact.transition import transition_matrix
from glauber.foundation.errors import GlauberError
from glauber.models.base import Restricted, log_probs
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Joint, Table
from glauber.studies.metastability.margins import basin_margin, format_log, neighbourhood_of
from glauber.studies.metastability.margins import margins as study
from glauber.studies.metastability.margins import margins_of as margins


@pytest.mark.parametrize("temperature", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("law", [Table.random(3, 3, seed=2), Joint.random(4, 2, seed=2)])
def test_every_state_holds_as_the_transition_matrix_says(law, temperature):
    space = Space(law.vocab_size, law.length)
    stay = transition_matrix(law, space, temperature=temperature).diagonal()
    traps = 0
    for state, kept in zip(space.states(), stay, strict=True):
        found = margins(law, state, torch.ones(law.length).bool(), temperature=temperature)
        for i, token in enumerate(state.tolist()):
            scores = law.scores(state[None], torch.tensor([[i]]))[0, 0].tolist()
            others = [score for v, score in enumerate(scores) if v != token]
            assert found.gaps[i] == pytest.approx(scores[token] - max(others), abs=1e-12)
        assert found.escape_rate == pytest.approx(1 - kept, rel=1e-9)
        assert found.holding_time == pytest.approx(1 / (1 - kept), rel=1e-9)
        assert found.perfect == bool((found.gaps > 0).all()) == (found.escape_bound is not None)
        if found.escape_bound is not None:
            traps += 1
            size = law.vocab_size - 1
            assert found.escape_bound == pytest.approx(
                size * math.exp(-found.gaps.min() / temperature)
            )
            assert found.escape_rate <= found.escape_bound
    assert traps > 0


def test_a_deep_trap_keeps_its_digits():
    entries = torch.zeros(2, 3, 3, 2, dtype=torch.float64)
    entries[..., 0] = 60.0
    found = margins(Table(entries), torch.tensor([0, 0]), torch.ones(2).bool())
    assert found.escape_rate == pytest.approx(math.exp(-60), rel=1e-9)
    assert found.holding_time == pytest.approx(math.exp(60), rel=1e-9)


def test_only_free_sites_and_allowed_tokens_count():
    table = Table.random(4, 3, seed=3)
    law = Restricted(table, torch.tensor([True, True, False, True]))
    found = margins(law, torch.tensor([0, 2, 1]), torch.tensor([True, False, True]))
    assert found.sites == (0, 2) and found.n_tokens == 3
    scores = table.scores(torch.tensor([[0, 2, 1]]), torch.tensor([[0]]))[0, 0]
    assert found.gaps[0] == pytest.approx(float(scores[0] - max(scores[1], scores[3])))
    with pytest.raises(GlauberError, match="site 1 may never be drawn"):
        margins(law, torch.tensor([0, 2, 1]), torch.ones(3).bool())
    with pytest.raises(GlauberError, match="frozen"):
        margins(law, torch.tensor([0, 2, 1]), torch.zeros(3).bool())


def margin_by_hand(law, basin, vocab):
    """(margin, whether x_i is the argmax wherever a change can leave), by the definition."""
    margin, argmax = math.inf, True
    for x in basin:
        for i in range(len(x)):
            scores = law.scores(torch.tensor([x]), torch.tensor([[i]]))[0, 0].tolist()
            leaving = [v for v in range(vocab) if (*x[:i], v, *x[i + 1 :]) not in basin]
            if leaving:
                argmax &= scores[x[i]] == max(scores)
                margin = min(margin, *(scores[x[i]] - scores[v] for v in leaving))
    return margin, argmax


def test_the_margin_of_a_basin_is_that_of_its_definition():
    rng = np.random.default_rng(0)
    held = 0
    space = Space(3, 3)
    everything = [tuple(state) for state in space.states().tolist()]
    for seed in range(60):
        # Agreement is rewarded, so that some of the basins have a margin.
        weights = Joint.random(3, 3, seed=seed, strength=0.5).log_weights
        for token in range(3):
            weights[token, token, :] += 3.0
            weights[:, token, token] += 1.0
        law = Joint(weights)
        if seed % 2:
            basin = {x for x in everything if x[:2] == (0, 0)}
        else:
            basin = {everything[k] for k in rng.choice(27, size=int(rng.integers(1, 9)))}
        states = torch.tensor(sorted(basin))
        found = basin_margin(law, states, temperature=0.5)
        margin, argmax = margin_by_hand(law, basin, 3)
        assert (found.margin, found.argmax) == (pytest.approx(margin, abs=1e-12), argmax)
        inside = space.index(states).numpy()
        matrix = transition_matrix(law, space, temperature=0.5).toarray()
        outside = 1 - matrix[np.ix_(inside, inside)].sum(axis=1)
        np.testing.assert_allclose(found.escape_rates, outside, atol=1e-12)
        if found.holds:
            held += 1
            assert found.escape_bound is not None and found.mixing_time_bound is not None
            assert found.escape_bound == pytest.approx(2 * math.exp(-margin / 0.5))
            assert outside.max() <= found.escape_bound
            assert found.mixing_time_bound == pytest.approx(math.exp(margin / 0.5) / 8)
        else:
            assert found.escape_bound is None and found.mixing_time_bound is None
    assert 5 <= held <= 55


def test_the_whole_space_has_no_way_out():
    law = Table.random(2, 2)
    states = torch.tensor(list(itertools.product(range(2), repeat=2)))
    found = basin_margin(law, states)
    assert found.margin == math.inf and found.escape_bound == 0
    with pytest.raises(GlauberError, match="at least one state"):
        basin_margin(law, states[:0])


TEXT = "the cat sat on the mat ."


def test_the_study_is_the_models_own_conditionals(tiny_folder):
    found = study(str(tiny_folder), TEXT, temperature=0.7, device="cpu")
    model = MaskedLM.load(str(tiny_folder), device="cpu")
    law = Restricted(model, model.vocabulary.proposable())
    tokens = model.vocabulary.encode([TEXT])[0]
    stay = [
        float(log_probs(law, tokens, torch.tensor([[i]]), temperature=0.7)[0, 0, tokens[0, i]])
        for i in range(1, 8)
    ]
    answer = found.to_dict()
    assert answer["tokens"] == TEXT.split()
    assert answer["escape_rate"]["value"] == pytest.approx(1 - np.exp(stay).mean(), rel=1e-6)
    assert answer["holding_time"]["value"] == pytest.approx(1 / (1 - np.exp(stay).mean()), rel=1e-6)
    assert answer["perfect"] == (min(answer["gaps"]["value"]) > 0)
    *_, last, _ = str(found).splitlines()
    assert last.startswith("mean holding time") and last.endswith("(exact)")
    picture = found.figure()
    np.testing.assert_array_equal(picture.data[0].y, found.margins.gaps)
    np.testing.assert_allclose(10 ** picture.data[1].y, 1 / found.margins.leaving)


def deep(depth):
    """Two sites, three tokens: token 0 beats the others by `depth` everywhere."""
    entries = torch.zeros(2, 3, 3, 2, dtype=torch.float64)
    entries[..., 0] = depth
    return Table(entries)


def test_rates_below_all_numbers_keep_their_logarithms():
    """Two sites, two tokens: odds of exp(-5 / 0.005), which float64 cannot hold."""
    found = margins(deep(5.0), torch.tensor([0, 0]), torch.ones(2).bool(), temperature=0.005)
    assert found.escape_rate == 0 and found.holding_time == math.inf
    assert found.log_escape_rate == pytest.approx(-1000.0, rel=1e-12)
    assert found.log_escape_bound == pytest.approx(-1000.0) and not found.vacuous
    # As bounds they are cut on the safe side.
    assert 0 < found.escape_bound < 1e-300
    cold = margins(deep(5.0), torch.tensor([0, 0]), torch.ones(2).bool(), temperature=1e-290)
    assert cold.log_escape_rate == pytest.approx(-5e290)
    basin = basin_margin(deep(5.0), torch.tensor([[0, 0]]), temperature=0.005)
    assert math.isfinite(basin.mixing_time_bound) and basin.mixing_time_bound > 1e300
    assert basin.log_escape_bound == pytest.approx(-1000.0)


def test_escape_rates_of_a_basin_keep_their_logarithms():
    """From (0, 0) and (0, 1) only the first site leads out, with odds of exp(-10 / 0.005)."""
    entries = deep(5.0).entries.clone()
    entries[0, ..., 0] = 10.0
    found = basin_margin(Table(entries), torch.tensor([[0, 0], [0, 1]]), temperature=0.005)
    np.testing.assert_allclose(found.log_escape_rates, -2000 - math.log(2), rtol=1e-12)
    np.testing.assert_allclose(found.log10_escape_rates, -868.89, atol=0.01)
    assert (found.escape_rates == 0).all()


def test_a_token_without_rival_is_held_for_ever():
    law = Restricted(Table.random(3, 2, seed=0), torch.tensor([True, False, False]))
    found = margins(law, torch.tensor([0, 0]), torch.ones(2).bool())
    assert found.log_escape_rate == -math.inf and found.escape_bound == 0


def test_powers_of_ten_stand_for_what_float64_cannot_hold():
    assert format_log(math.log(12.5)) == "12.5" and format_log(-math.inf) == "0"
    assert format_log(-1000 * math.log(10)) == "10^-1,000.0"
    assert format_log(400.5 * math.log(10)) == "10^400.5"


def test_the_coldest_text_is_said_in_powers_of_ten(tiny_folder):
    warm = study(str(tiny_folder), TEXT, temperature=1e-2, device="cpu")
    found = study(str(tiny_folder), TEXT, temperature=1e-6, device="cpu")
    assert warm.perfect == found.perfect
    own = found.to_dict()["leaving"]
    held = np.asarray(found.margins.gaps) > 0
    assert held.any() and "10^-" in str(found) and found.figures()
    # So cold that only the best rival counts: log10 of the odds is -gap / temperature / log 10.
    powers = np.array([row for row in own["log10"]])[held]
    np.testing.assert_allclose(powers, -found.margins.gaps[held] / 1e-6 / math.log(10), rtol=1e-6)
    assert [value for value, firm in zip(own["value"], held, strict=True) if firm] == [None] * sum(
        held
    )
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_what_is_called_exact_is_in_float64_whatever_the_dtype(tiny_folder, temperature):
    exact = study(str(tiny_folder), TEXT, temperature=temperature, device="cpu", dtype="float64")
    assert exact.rounded is None and exact.margins.kind == "exact"
    single = study(str(tiny_folder), TEXT, temperature=temperature, device="cpu")
    assert single.margins.log_escape_rate == exact.margins.log_escape_rate
    coarse = study(str(tiny_folder), TEXT, temperature=temperature, device="cpu", dtype="bfloat16")
    np.testing.assert_array_equal(coarse.margins.gaps, exact.margins.gaps)
    assert coarse.margins.escape_bound == exact.margins.escape_bound
    assert coarse.dtype == "float64" and coarse.rounded.dtype == "bfloat16"
    assert coarse.rounded.margins.kind == "estimate"
    off = exact.margins.log_escape_rate - coarse.rounded.margins.log_escape_rate
    assert off != 0 and coarse.to_dict()["rounded"]["log10_error"] == off / math.log(10)
    assert str(coarse).count("(estimate)") == 1 and "in bfloat16" in str(coarse)


def test_an_object_in_bfloat16_is_asked_in_float64_too(tiny_folder):
    model = MaskedLM.load(str(tiny_folder), device="cpu", dtype="bfloat16")
    found = study(model, TEXT)
    assert found.dtype == "float64" and found.rounded.dtype == "bfloat16"
    tokens = model.vocabulary.encode([TEXT])[0][0]
    asked = margins(model.conditionals(), tokens, torch.tensor([False] + [True] * 7 + [False]))
    assert asked.kind == "estimate" and asked.dtype == "bfloat16"
    np.testing.assert_array_equal(asked.gaps, found.rounded.gaps)


@pytest.mark.parametrize(
    ("text", "how", "said"),
    [
        ("", {}, "empty"),
        ("the [MASK]", {}, "may never be drawn"),
        (TEXT, dict(temperature=-1), "temperature is -1"),
        (TEXT, dict(temperature=float("nan")), "temperature is nan"),
        (TEXT, dict(temperature=1e-320), "at least 1e-300"),
        (TEXT, dict(dtype="int8"), "int8"),
    ],
)
def test_the_study_refuses_in_one_sentence(tiny_folder, text, how, said):
    with pytest.raises(GlauberError, match=said):
        study(str(tiny_folder), text, device="cpu", **how)


@pytest.mark.parametrize("temperature", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("law", [Table.random(3, 3, seed=2), Joint.random(4, 2, seed=2)])
def test_the_exit_time_is_that_of_the_transition_matrix(law, temperature):
    """From every neighbour it is exact; from some of them it is that of a smaller set."""
    space, free = Space(law.vocab_size, law.length), torch.ones(law.length).bool()
    matrix = transition_matrix(law, space, temperature=temperature)
    every = law.length * (law.vocab_size - 1)
    for state in space.states():
        ball = hamming_ball(space, state, 1)
        time = mean_exit_times(matrix, ball)[int(space.index(state[None]))]
        how = dict(temperature=temperature)
        found = neighbourhood_of(law, state, free, neighbours=every, **how)
        assert found.kind == "exact" and found.covered == pytest.approx(1)
        assert math.exp(found.log_exit_time) == pytest.approx(time, rel=1e-9)
        fewer = neighbourhood_of(law, state, free, neighbours=2, **how)
        assert fewer.kind == "lower bound" and fewer.covered < 1
        step = matrix.toarray()[int(space.index(state[None]))]
        step[int(space.index(state[None]))] = 0
        inside = np.zeros(len(step), bool)
        inside[[int(space.index(state[None])), *np.argsort(-step)[:2]]] = True
        time = mean_exit_times(matrix, inside)[int(space.index(state[None]))]
        assert math.exp(fewer.log_exit_time) == pytest.approx(time, rel=1e-9)
        assert fewer.covered == pytest.approx(np.sort(step)[-2:].sum() / step.sum())


@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_moves_looseness_and_coherence_by_hand(temperature):
    law = Table.random(3, 3, seed=2)
    space = Space(3, 3)
    matrix = transition_matrix(law, space, temperature=temperature).toarray()
    perfect = 0
    for number, state in enumerate(space.states()):
        found = margins(law, state, torch.ones(3).bool(), temperature=temperature)
        away = np.delete(matrix[number], number)
        away = away[away > 0] / away.sum()
        assert found.escape_moves == pytest.approx(np.exp(-(away * np.log(away)).sum()))
        alone = [log_probs(law, state[None], torch.tensor([[i]]))[0, 0, state[i]] for i in range(3)]
        assert found.coherence == pytest.approx(float(sum(alone)) / 3)
        if not found.perfect:
            assert found.log_looseness is None
            continue
        perfect += 1
        prefactor, smallest = found.log_looseness
        assert prefactor >= 0 and smallest >= 0
        assert prefactor + smallest == pytest.approx(found.log_escape_bound - found.log_escape_rate)
        each = np.exp(-found.gaps / temperature).mean()  # every site by its own gap
        assert smallest == pytest.approx(-found.margin / temperature - math.log(each))
    assert perfect > 0


def test_a_departure_that_others_feel_has_reinforcement():
    """Two sites that agree with a probability of 0.9 each: log 0.9 becomes log 0.1."""
    weights = torch.tensor([[0.9, 0.1], [0.1, 0.9]], dtype=torch.float64).log()
    state, free = torch.tensor([1, 1]), torch.ones(2).bool()
    found = neighbourhood_of(Joint(weights), state, free, neighbours=2)
    assert found.reinforcement == pytest.approx(math.log(9))
    apart = Joint(torch.zeros(2, 2, dtype=torch.float64))
    assert neighbourhood_of(apart, state, free, neighbours=2).reinforcement == pytest.approx(0)


def test_the_study_measures_the_neighbourhood(tiny_folder):
    assert study(str(tiny_folder), TEXT, device="cpu").neighbourhood is None
    found = study(str(tiny_folder), TEXT, device="cpu", neighbours=3, temperature=0.1)
    around = found.to_dict()["neighbourhood"]
    assert around["n_neighbours"] == 3 and around["exit_time"]["kind"] == "lower bound"
    assert around["exit_time"]["value"] > found.margins.holding_time
    assert "two tokens differ at once" in str(found)
    coldest = study(str(tiny_folder), TEXT, device="cpu", neighbours=3, temperature=1e-6)
    assert math.isfinite(coldest.neighbourhood.log_exit_time)
    json.dumps(coldest.to_dict(), allow_nan=False)
