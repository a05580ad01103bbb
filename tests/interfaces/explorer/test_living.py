"""Living chains: the engine's own steps in any slices, edits, branches, and what is refused."""

import itertools
import math
import threading

import numpy as np
import pytest
import torch
import transformers

import conftest
import glauber
import tiny_diffusion
from alphabets import RESIDUES, letters
from glauber.dynamics import kernel as kernels
from glauber.dynamics.glauber import glauber as dynamics
from glauber.dynamics.scans import scan_named
from glauber.foundation.errors import GlauberError
from glauber.interfaces.explorer import live
from glauber.interfaces.explorer.live import EDITS, LiveChains, Trail
from glauber.interfaces.explorer.models import Models
from glauber.models.base import log_probs
from glauber.models.causal_lm import CausalLM
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Table
from glauber.runs.curves import curves
from glauber.studies.mixing.meeting import meet
from glauber.texts.starts import starts
from interfaces.explorer.films import numbers, played, states
from waiting import SECONDS, until

TEXT = "the cat sat on the mat ."
OTHER = "a dog ran under a tree ."
SCANS = [
    "uniform",
    "lazy",
    "sweep",
    "block:3",
    "everywhere",
    "adaptive:entropy",
    "naive:confidence:2",
]


class Clock:
    """Time that passes by so much whenever it is read."""

    def __init__(self, tick=0.0):
        self.now, self.tick = 0.0, tick

    def __call__(self):
        self.now += self.tick
        return self.now


@pytest.fixture(scope="module")
def tiny():
    return MaskedLM(conftest.make_model("bert"), conftest.make_tokenizer(), name="tiny")


@pytest.fixture
def living(tiny):
    return LiveChains(Models.of(tiny), clock=Clock())


def trail(text=TEXT, **how):
    return {"model": "tiny", "text": text} | how


def sampled(model, text, steps, chain=0, **how):
    """Tokens (1 + steps, length) of one chain of `glauber.sample`."""
    run = glauber.sample(model, [text], steps=steps, chains=chain + 1, **how)
    return np.stack([tokens[chain] for _, tokens in run.states()])


@pytest.mark.parametrize("scan", SCANS)
def test_a_living_chain_is_that_of_sample(living, tiny, scan):
    shown = played(living, [trail(seed=5, chain=1, temperature=1.3, scan=scan)], 0, 12)[0]
    expected = sampled(tiny, TEXT, 12, chain=1, seed=5, temperature=1.3, scan=scan)
    assert (shown == expected[:, 1:-1]).all()


@pytest.mark.parametrize("temperature", [1e-3, 1.0, 50.0])
def test_log_probabilities_are_those_of_the_draw(living, tiny, temperature):
    film = living.film({"trails": [trail(temperature=temperature)]}, 0, 40)
    tokens, sure = states(film)[0]
    frame, site = numbers(film["frame"]), numbers(film["site"])
    assert film["count"] == 40 and len(frame) == 40
    rows = torch.from_numpy(np.pad(tokens[:-1], ((0, 0), (1, 1))))
    rows[:, 0], rows[:, -1] = 2, 3
    law = log_probs(
        tiny.conditionals(),
        rows,
        torch.from_numpy(site + 1).long()[:, None],
        temperature=temperature,
    )[:, 0]
    drawn = torch.from_numpy(tokens[frame, site])[:, None]
    assert np.allclose(sure[frame, site], law.gather(1, drawn)[:, 0].numpy(), atol=1e-5)
    entropy = torch.special.entr(law.exp()).sum(dim=1).numpy()
    assert np.allclose(numbers(film["entropy"]), entropy, atol=1e-5)


def test_films_in_any_slices_are_the_same(tiny):
    wanted = [trail(edits=[{"step": 20, "site": 2, "token": 12}]), trail(OTHER, seed=1)]
    whole = played(LiveChains(Models.of(tiny), clock=Clock()), wanted, 0, 60, count=60)
    slow = LiveChains(Models.of(tiny), limit=0.5, clock=Clock(1.0))  # one step an answer
    assert slow.film({"trails": wanted}, 0, 60)["count"] == 1
    for living, count in ((slow, 7), (slow, 13), (LiveChains(Models.of(tiny)), 9)):
        for one, other in zip(played(living, wanted, 0, 60, count=count), whole, strict=True):
            assert (one == other).all()
    thinned = slow.film({"trails": wanted}, 3, 8, every=7)
    for (tokens, _), other in zip(states(thinned), whole, strict=True):
        assert (tokens == other[3:60:7]).all()
    keys = np.stack([numbers(thinned[name]) for name in ("frame", "chain", "site")])
    assert len(np.unique(keys, axis=1).T) == keys.shape[1]  # one event a site in a frame


def test_a_miss_is_replayed_in_slices(tiny):
    """After a restart of the server, and whatever was asked before: the same bits."""
    wanted = {"trails": [trail(seed=2, edits=[{"step": 9, "temperature": 0.2}])]}
    expected = played(LiveChains(Models.of(tiny), clock=Clock()), wanted["trails"], 0, 50)[0]
    fresh = LiveChains(Models.of(tiny), limit=2.5, clock=Clock(1.0))
    answer, told = fresh.film(wanted, 40, 10), []
    while "replayed" in answer:
        assert answer["count"] == 0 and answer["of"] == 40 and answer["first"] == answer["replayed"]
        assert (np.array(answer["begin"][0]) == expected[answer["replayed"]]).all()
        told.append(answer["replayed"])
        answer = fresh.film(wanted, 40, 10)
    assert told == sorted(set(told)) and len(told) > 5
    assert (states(answer)[0][0] == expected[40 : 41 + answer["count"]]).all()
    made = fresh.steps.made
    assert (played(fresh, wanted["trails"], 0, 30)[0] == expected[:31]).all()
    assert fresh.steps.made == made  # going back costs nothing


def test_a_pair_of_which_one_is_known_is_replayed_together(tiny):
    """What is told on the way is one moment of both."""
    pair = [trail(), trail(OTHER)]
    expected = played(LiveChains(Models.of(tiny), clock=Clock()), pair, 0, 20)
    living = LiveChains(Models.of(tiny), limit=2.5, clock=Clock(1.0))
    played(living, pair[:1], 0, 15)
    answer = living.film({"trails": pair}, 18, 1)
    assert answer["replayed"] == answer["first"] < 15
    for begin, tokens in zip(answer["begin"], expected, strict=True):
        assert begin == tokens[answer["first"]].tolist()


def test_a_frame_of_many_steps_may_take_several_answers(tiny):
    slow = LiveChains(Models.of(tiny), limit=2.5, clock=Clock(1.0))
    answers = [slow.film({"trails": [trail()]}, 0, 1, every=10)]
    while "replayed" in answers[-1]:
        assert answers[-1]["of"] == 10
        answers.append(slow.film({"trails": [trail()]}, 0, 1, every=10))
    assert len(answers) > 2 and answers[-1]["count"] == 1


def by_hand(model, text, steps, edits, scan="uniform", seed=0, chain=0, temperature=1.0):
    """The same chain by the plain kernel, with edits applied to its state: (1 + steps, length)."""
    tokens, free = starts(model, [text])
    state = kernels.start(tokens, free, temperature=temperature, chain=torch.tensor([chain]))
    within = "parallel" if scan == "everywhere" else "sequential"
    kernel = dynamics(model.conditionals(), scan=scan_named(scan), within=within)
    found = []
    for step in range(steps + 1):
        for edit in (one for one in edits if one["step"] == step):
            state = _changed(state, edit)
        found.append(state.tokens[0, 1:-1].numpy())
        state, _ = kernel.step(state, kernel.draw(torch.tensor(seed), state))
    return np.stack(found)


def _changed(state, edit):
    tokens, free = state.tokens.clone(), state.free.clone()
    match edit:
        case {"temperature": value}:
            return state._replace(temperature=torch.tensor([float(value)]).double())
        case {"chain": value}:
            return state._replace(chain=torch.tensor([value]))
        case {"site": site, "token": token}:
            tokens[0, site + 1] = token
        case {"freeze": site}:
            free[0, site + 1] = False
        case {"free": site}:
            free[0, site + 1] = True
    return state._replace(tokens=tokens, free=free)


EDITED = [
    {"step": 0, "freeze": 0},
    {"step": 6, "temperature": 4.0},
    {"step": 6, "site": 3, "token": 20},
    {"step": 15, "freeze": 3},
    {"step": 15, "chain": 9},
    {"step": 30, "free": 0},
    {"step": 31, "temperature": 0.01},
]


@pytest.mark.parametrize("scan", ["uniform", "everywhere", "adaptive:confidence"])
def test_edits_change_the_state_and_nothing_before(living, tiny, scan):
    shown = played(living, [trail(scan=scan, edits=EDITED)], 0, 45, count=11)[0]
    assert (shown == by_hand(tiny, TEXT, 45, EDITED, scan=scan)).all()
    plain = played(living, [trail(scan=scan, edits=EDITED[:1])], 0, 6)[0]
    assert (plain[:6] == shown[:6]).all() and shown[6, 3] == 20
    assert (shown[:, 0] == shown[0, 0])[:31].all()  # frozen
    assert (shown[15:, 3] == shown[15, 3]).all()


def test_frozen_sites_are_told_from_the_edit_on(living):
    wanted = {"trails": [trail(frozen=[1], edits=[{"step": 5, "freeze": 4}])]}
    first = living.film(wanted, 0, 20)
    assert first["frozen"] == [[1]] and first["count"] == 5
    assert living.film(wanted, 5, 20)["frozen"] == [[1, 4]]
    assert [living.film(wanted, 0, 9, every=every)["count"] for every in (2, 10)] == [3, 1]


def test_a_branch_is_a_fresh_chain_with_that_noise(living, tiny):
    """From step 0 on it is the other chain itself; later the state is shared up to there."""
    both = [trail(), trail(edits=[{"step": 0, "chain": 4}])]
    assert (played(living, both, 0, 30)[1] == sampled(tiny, TEXT, 30, chain=4)[:, 1:-1]).all()
    made = living.steps.made
    first, second = played(living, [trail(), trail(edits=[{"step": 20, "chain": 4}])], 0, 30)
    assert living.steps.made == made + 10  # what is shared is not made again
    assert (first[:21] == second[:21]).all() and (first[21:] != second[21:]).any()


def test_shared_noise_is_the_inverse_cdf_coupling(living, tiny):
    tokens, free = starts(tiny, [TEXT, OTHER])
    seed, steps = 11, 400
    expected = meet(
        tiny.conditionals(),
        tokens[:1],
        tokens[1:],
        free[:1],
        temperature=3.0,
        seed=seed,
        steps=steps,
        coupling="inverse-cdf",
        every=1,
    )
    assert expected.met[0]
    met = int(expected.times[0])
    pair = [trail(seed=seed, temperature=3.0), trail(OTHER, seed=seed, temperature=3.0)]
    first, second = played(living, pair, 0, met + 20)
    distance = (first != second).sum(axis=1)
    assert (distance[: met + 1] == expected.distances[0][: met + 1]).all()
    assert (distance[met:] == 0).all() and (distance[:met] > 0).all()


def test_pairs_of_unequal_lengths_are_as_each_alone(living):
    long = "a big dog ran under the old tree and the bird flew over it ."
    both = played(living, [trail(), trail(long)], 0, 25)
    alone = LiveChains(living.models, clock=Clock())
    for text, one in zip((TEXT, long), both, strict=True):
        assert (played(alone, [trail(text)], 0, 25)[0] == one).all()


def test_what_is_forgotten_is_made_again(tiny, monkeypatch):
    monkeypatch.setattr(live, "PIECE", 8)
    living = LiveChains(Models.of(tiny), clock=Clock())
    wanted = [trail(edits=[{"step": 37, "temperature": 2.0}])]
    expected = played(living, wanted, 0, 100)[0]
    living.steps.max_bytes = 600  # a few pieces
    living.film({"trails": wanted}, 100, 0)
    assert 0 < living.steps.n_bytes <= 600
    note = living.curves({"trails": wanted}, points=10)["notes"]
    assert any("not kept any more" in one for one in note)
    made = living.steps.made
    assert (np.array(living.film({"trails": wanted}, 56, 0)["begin"][0]) == expected[56]).all()
    assert living.steps.made - made <= 8  # from the mark before
    assert (played(living, wanted, 0, 100, count=6)[0] == expected).all()
    monkeypatch.setattr(live, "STRETCHES", 0)
    living.film({"trails": [trail(OTHER)]}, 0, 0)
    assert (played(living, wanted, 30, 45)[0] == expected[30:46]).all()


def test_a_start_in_a_run_goes_on_as_the_run(tiny, tmp_path):
    run = glauber.sample(tiny, [TEXT, OTHER], steps=40, seed=3, temperature=1.5, out=tmp_path / "r")
    living = LiveChains(
        Models.of(tiny),
        from_run=lambda chain, step: (run.tokens(step)[chain], run.free[chain], run.vocabulary),
    )
    begun = {"model": "tiny", "start": {"chain": 1, "step": 10}}
    shown = played(living, [begun | {"seed": 3, "chain": 1, "temperature": 1.5}], 0, 30)[0]
    assert (shown == np.stack([run.tokens(step)[1, 1:-1] for step in range(10, 41)])).all()
    with pytest.raises(GlauberError, match="no run is open"):
        LiveChains(Models.of(tiny)).film({"trails": [begun]}, 0, 1)


def protein():
    """Twenty residues and five special tokens."""
    torch.manual_seed(3)
    sizes = conftest.SIZES | {"vocab_size": 25, "hidden_dropout_prob": 0.0}
    model = transformers.AutoModelForMaskedLM.from_config(transformers.BertConfig(**sizes))
    return MaskedLM(model.eval(), letters(RESIDUES), name="protein")


def test_a_protein_is_spelled_without_blanks():
    model, text = protein(), "MKTAYIAKQRQISFVKSHFSRQ"
    living = LiveChains(Models.of(model), clock=Clock())
    wanted = {"model": "protein", "text": text, "temperature": 0.5, "scan": "conditioned:entropy"}
    film = living.film({"trails": [wanted]}, 0, 5)
    assert film["lengths"] == [len(text)]
    assert "".join(film["words"][str(token)] for token in film["begin"][0]) == text
    expected = sampled(model, text, 5, temperature=0.5, scan="conditioned:entropy")
    assert (states(film)[0][0] == expected[:, 1:-1]).all()
    assert living.encode("protein", "mktay")["note"].startswith("lower case")
    found = [one["text"] for one in living.tokens("protein", "", 200)["tokens"]]
    assert sorted(found) == sorted(RESIDUES)


def test_a_rule_of_ones_own_and_a_diffusion_model(tmp_path):
    rule = glauber.load(Table.random(3, 4, seed=1))
    diffusion = glauber.load(str(tiny_diffusion.llada(tmp_path / "llada")[0]), kind="diffusion")
    living = LiveChains(Models.of(rule, diffusion), clock=Clock())
    for model, text in ((rule, "0120"), (diffusion, "the cat sat on the mat")):
        wanted = {"model": model.name, "text": text, "seed": 4, "temperature": 0.7}
        shown = played(living, [wanted], 0, 40)[0]
        assert (shown == sampled(model, text, 40, seed=4, temperature=0.7)).all()
    with pytest.raises(GlauberError, match="law over 4 sites"):
        living.film({"trails": [{"model": rule.name, "text": "012"}]}, 0, 1)


def test_an_autoregressive_model_is_refused(tmp_path):
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=len(conftest.VOCABULARY), n_embd=8, n_layer=1, n_head=1)
    )
    causal = CausalLM(model, conftest.make_tokenizer(), name="causal")
    with pytest.raises(GlauberError, match="cannot be run live"):
        LiveChains(Models.of(causal)).encode("causal", TEXT)


def test_the_conditional_is_that_of_the_state(living, tiny):
    wanted = {"trails": [trail(OTHER), trail(edits=[{"step": 4, "temperature": 0.5}])]}
    tokens = played(living, wanted["trails"], 0, 12)[1][12]
    row = torch.tensor([[2, *tokens, 3]])
    for site in (0, 5):
        found = living.conditional(wanted, 1, 12, site, whole=True)
        law = log_probs(tiny.conditionals(), row, torch.tensor([[site + 1]]), temperature=0.5)
        assert found["token"] == tokens[site] and found["site"] == site and not found["frozen"]
        assert math.isclose(sum(found["probabilities"]), 1.0, abs_tol=1e-9)
        assert np.allclose(found["probabilities"], law[0, 0].exp().numpy(), atol=1e-6)
    sure = living.sure(wanted, 1, 12)
    asked = torch.arange(1, len(tokens) + 1)[:, None]
    laws = log_probs(tiny.conditionals(), row.repeat(len(tokens), 1), asked, temperature=0.5)[:, 0]
    own = laws.gather(1, torch.from_numpy(tokens)[:, None])[:, 0]
    assert np.allclose(numbers(sure["log_prob"]), own.numpy(), atol=1e-5)


def test_a_click_does_not_wait_for_steps_that_take_long(tiny):
    living = LiveChains(Models.of(tiny), limit=0.5, clock=Clock(0.4))
    with pytest.raises(GlauberError, match="play it up to there first"):
        living.conditional({"trails": [trail()]}, 0, 1000, 0)
    assert living.conditional({"trails": [trail()]}, 0, 3, 0)["site"] == 0


def test_whoever_waits_for_the_model_ends_a_film(tiny):
    """A film without a time limit stops after the step at which somebody else came."""
    came, readings = [], itertools.count()

    def click():
        with living.models.lock:
            came.append(living.steps.made)

    def clock():
        if next(readings) == 6:  # once at the beginning, and after each step
            thread.start()
            until(lambda: living.models.lock.waited_for)
        return 0.0

    thread, living = threading.Thread(target=click), LiveChains(Models.of(tiny), clock=clock)
    film = living.film({"trails": [trail()]}, 0, 400)
    thread.join(SECONDS)
    assert film["count"] == 6 and came == [6]


def test_curves_are_those_of_a_run_with_the_same_chains(living, tiny):
    run = glauber.sample(tiny, [TEXT, OTHER], steps=60, seed=8)
    wanted = {"trails": [trail(seed=8), trail(OTHER, seed=8, chain=1)]}
    assert living.film(wanted, 0, 60)["end"] == 60
    assert living.curves(wanted, points=13) == curves(run, points=13).to_dict()


def test_texts_and_tokens(living):
    found = living.encode("tiny", TEXT)
    assert found["sites"] == 7 and "".join(found["words"][str(t)] for t in found["tokens"]) == (
        " " + TEXT
    )
    assert [one["text"] for one in living.tokens("tiny", " Ca", 3)["tokens"]] == [" cat"]
    assert living.tokens("tiny", "zebra")["tokens"] == []
    with pytest.raises(GlauberError, match="not in the vocabulary"):
        living.encode("tiny", "the zebra sat")
    with pytest.raises(GlauberError, match="reads at most"):
        living.encode("tiny", "the " * 60)


def test_trails_that_agree_so_far_have_the_same_keys_so_far():
    given = trail(seed=2**63 - 1, frozen=[2, 0], edits=EDITED)
    once = Trail.of(given)
    assert Trail.of(given | {"frozen": [0, 2, 0]}) == once and once.frozen == (0, 2)
    keys = [segment.key for segment in once.segments]
    assert len(set(keys)) == len(keys) == 5
    assert keys[:3] == [one.key for one in Trail.of(given | {"edits": EDITED[:5]}).segments]
    assert keys[0] != Trail.of(given | {"seed": 1, "edits": EDITED[:1]}).segments[0].key


BAD = [
    (3, "no trail"),
    ({"text": TEXT}, "name of a model"),
    ({"model": "tiny"}, "begins from a text"),
    (trail(start={"chain": 0, "step": 0}), "begins from a text"),
    (trail(""), "the text is empty"),
    (trail(["a"]), "the text is empty"),
    (trail("a" * 30_000), "characters"),
    (trail(colour="red"), "has no 'colour'"),
    (trail(seed=-1), "seed is -1"),
    (trail(seed=1.5), "the seed is 1.5"),
    (trail(chain=2**40), "the chain is"),
    (trail(chain=True), "whole number"),
    (trail(temperature=0), "temperature is 0"),
    (trail(temperature="warm"), "must be a number"),
    (trail(temperature=math.inf), "must be a number"),
    (trail(scan="diagonal"), "the scan is diagonal"),
    (trail(scan=7), "must be a name"),
    (trail(scan="conditioned:entropy:inf"), "infinite sharpness"),
    (trail(scan="block:9"), "needs 9 free sites"),
    (trail(frozen="0"), "must be a list"),
    (trail(frozen=[7]), "no site 7"),
    (trail(frozen=list(range(7))), "0 sites of the text"),
    (trail(edits={}), "must be a list"),
    (trail(edits=[{"step": 1}]), "is no edit"),
    (trail(edits=[{"temperature": 1}]), "needs a step"),
    (trail(edits=[{"step": 1, "temperature": 1, "chain": 2}]), "is no edit"),
    (trail(edits=[{"step": -1, "chain": 2}]), "at least 0"),
    (trail(edits=[{"step": 10**9, "chain": 2}]), "cannot be done"),
    (trail(edits=[{"step": 1, "site": 7, "token": 12}]), "no site 7"),
    (trail(edits=[{"step": 1, "site": 0, "token": 4}]), "never drawn"),
    (trail(edits=[{"step": 1, "site": 0, "token": 10**6}]), "never drawn"),
    (trail(edits=[{"step": 2, "chain": 1}, {"step": 1, "chain": 1}]), "order of their steps"),
    (trail(edits=[{"step": 1, "freeze": site} for site in range(7)]), "0 sites of the text"),
    (trail(edits=[{"step": 1, "chain": 1}] * (EDITS + 1)), "at most 5,000 are allowed"),
    ({"model": "/etc/passwd", "text": TEXT}, "start with --model"),
    ({"model": "tiny", "start": {"chain": 0}}, "a chain and a step"),
]


@pytest.mark.parametrize(("given", "why"), BAD)
def test_bad_trails_are_refused_in_one_sentence(living, given, why):
    with pytest.raises(GlauberError, match=why) as refused:
        living.film({"trails": [given]}, 0, 3)
    assert "\n" not in str(refused.value) and str(refused.value).endswith(".")


@pytest.mark.parametrize(
    "asked",
    [
        {"source": "run", "first": 0, "count": 1},
        {"source": {"trails": []}, "first": 0, "count": 1},
        {"source": {"trails": [trail()] * 9}, "first": 0, "count": 1},
        {"source": {"trails": [trail()]}, "first": -1, "count": 1},
        {"source": {"trails": [trail()]}, "first": 10**7, "count": 1},
        {"source": {"trails": [trail()]}, "first": 10**6, "count": 1},
        {"source": {"trails": [trail()]}, "first": 0, "count": 10**9},
        {"source": {"trails": [trail()]}, "first": 0, "count": 1, "every": 0},
        {"source": {"trails": [trail()]}, "first": 0, "count": 1, "chains": [1]},
    ],
)
def test_bad_questions_are_refused(living, asked):
    with pytest.raises(GlauberError):
        living.film(**asked)


def test_many_edits_cost_little(living):
    """A temperature that is dragged leaves an edit at every step."""
    edits = [{"step": step, "temperature": 1 + step / 1000} for step in range(1, 150)]
    shown = played(living, [trail(edits=edits)], 0, 160)[0]
    made = living.steps.made
    assert made == 160 and len(shown) == 161
    assert living.film({"trails": [trail(edits=edits[:100])]}, 50, 50)["count"] == 50
    assert living.steps.made == made
