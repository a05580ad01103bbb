"""A rule of one's own is a model of every study; objects are never given a device they ignore."""

import itertools

import numpy as np
import pytest
import torch

import conftest
import glauber
from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.models.base import log_probs
from glauber.models.load import load
from glauber.models.masked_lm import MaskedLM
from glauber.models.own import Own, symbols
from glauber.models.table import Joint, Table
from glauber.models.vocabulary import Text
from glauber.texts.starts import starts

ATOMS = ["C", "l", "Cl", "(", ")", "=", "O", "Br", "B", "r"]


class Mine:
    """The least that a model can be: independent sites."""

    vocab_size = 10
    vocabulary = ATOMS

    def scores(self, tokens, sites):
        return torch.arange(10.0).expand(*sites.shape, -1)


def test_a_joint_is_a_model():
    joint = Joint.random(3, 4, seed=1)
    model = load(joint)
    assert isinstance(model, Own) and load(model) is model
    assert (model.name, model.dtype, model.longest, model.length) == ("Joint", "float64", 4, 4)
    assert model.to(dtype="float64") is model and model.whole_vocabulary
    tokens, free = starts(model, ["0121", "2201"])
    assert tokens.tolist() == [[0, 1, 2, 1], [2, 2, 0, 1]] and free.all()
    sites = torch.tensor([[2], [0]])
    expected = log_probs(joint, tokens, sites)
    assert torch.equal(log_probs(model.conditionals(), tokens, sites), expected)
    with pytest.raises(GlauberError, match="text 1 has 3 tokens, but Joint is a law over 4 sites"):
        starts(model, "220")
    with pytest.raises(GlauberError, match="'3' at character 2"):
        starts(model, "0321")


def test_the_fingerprint_tells_rules_apart():
    one, same, other = (load(Joint.random(3, 4, seed=seed)) for seed in (1, 1, 2))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert load(Table.random(3, 4, seed=1)).fingerprint not in (one.fingerprint, other.fingerprint)
    given = Mine()
    given.fingerprint = "abc"
    assert load(given).fingerprint == "abc"


def test_chains_of_a_joint_have_its_law():
    """Single-site marginals of many chains, within four standard errors."""
    joint = Joint.random(2, 3, seed=4)
    run = glauber.sample(load(joint), "010", chains=1500, steps=40, seed=1)
    states = torch.as_tensor(run.tokens())
    code = (states * torch.tensor([4, 2, 1])).sum(dim=1)
    seen = torch.bincount(code, minlength=8) / 1500
    law = joint.probabilities()
    assert ((seen - law).abs() < 4 * (law * (1 - law) / 1500).sqrt()).all()
    assert run.text(0) in {"".join(bits) for bits in itertools.product("01", repeat=3)}


def test_rectangles_of_one_s_own_rules():
    texts = ["0121", "2210"]
    closed = glauber.rectangles(Joint.random(3, 4), texts, count=8, length=4)
    open_ = glauber.rectangles(Table.random(3, 4), texts, count=8, length=4)
    assert closed.certified.value == 0 and open_.certified.value > 0


def test_symbols_round_trip(tmp_path):
    model = load(Mine())
    tokens, _ = starts(model, ["CCl(=O)Br", "C l Cl"])
    assert tokens.tolist() == [[0, 2, 3, 5, 6, 4, 7], [0, 1, 2, -1, -1, -1, -1]]
    texts = [model.vocabulary.decode(row) for row in tokens]
    assert torch.equal(starts(model, texts)[0], tokens)
    model.vocabulary.save(tmp_path / "saved")
    assert Text.open(tmp_path / "saved").decode(tokens[0]) == texts[0] == "C Cl ( = O ) Br"
    with pytest.raises(GlauberError, match="'X' at character 2"):
        starts(model, "CX")
    run = glauber.sample(model, "CCl", steps=5, out=tmp_path / "run")
    assert starts(model, run.text(0))[0].shape == (1, 2)


def test_numbers_are_spellings():
    few = symbols([str(i) for i in range(10)], 10)
    many = symbols([str(i) for i in range(12)], 12)
    assert few.decode([1, 0, 9]) == "109" and many.decode([1, 0, 11]) == "1 0 11"
    for vocabulary in (few, many):
        for row in itertools.product(range(vocabulary.size), repeat=2):
            assert vocabulary.pieces(vocabulary.decode(row)) == list(row)


def test_a_model_in_float32_says_so():
    with pytest.warns(GlauberWarning, match="Mine computes in float32"):
        load(Mine()).to(dtype="float64")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["a", "b"], "2 spellings for 10 tokens"),
        (["a"] * 10, "there twice"),
        ([*ATOMS[:9], "New York"], "has a blank in it"),
        (["", *ATOMS[1:]], "is empty"),
        (7, "a vocabulary is a list"),
    ],
)
def test_vocabularies_that_cannot_be_read_back(given, why):
    mine = Mine()
    mine.vocabulary = given
    with pytest.raises(GlauberError, match=why):
        load(mine)


def test_objects_that_are_no_models():
    with pytest.raises(GlauberError, match="int is no model"):
        load(3)
    mine = Mine()
    mine.scores = lambda tokens, sites: torch.zeros(2)
    with pytest.raises(GlauberError, match="the scores of Mine have shape"):
        _ = load(mine).fingerprint


class Five:
    """A rule for texts of five tokens that does not announce its length."""

    vocab_size = 3
    coupling = torch.linspace(-1, 1, 25).view(5, 5)

    def scores(self, tokens, sites):
        field = tokens.double() @ self.coupling.double()  # fails unless there are five tokens
        return field.gather(1, sites)[..., None] * torch.arange(3.0)


def test_a_rule_of_one_length_need_not_announce_it():
    model = load(Five())
    assert model.dtype == "float64"
    announced = Five()
    announced.length = np.int64(5)
    assert load(announced).length == 5 and load(announced).fingerprint == model.fingerprint
    run = glauber.sample(Five(), "01201", steps=10, chains=2)
    assert run.tokens().shape == (2, 5)


def test_a_rule_that_answers_no_probe_is_asked_for_its_length():
    long = Five()
    long.coupling = torch.zeros(70, 70)
    with pytest.raises(GlauberError, match=r"RuntimeError.*the attribute `length`"):
        load(long)
    long.length = 70
    assert len(load(long).fingerprint) == 64


def test_devices_and_dtypes_of_objects_are_not_ignored(tiny_folder):
    model = load(str(tiny_folder), device="cpu")
    assert load(model) is model and load(model, device="cpu") is model
    for asked, why in (
        ({"device": "cuda:7"}, "cannot be used"),
        ({"device": "meta"}, "cannot be used"),
        ({"dtype": "float16x"}, "must be one of"),
        ({"dtype": "float64"}, "computes in float32, not in float64"),
        ({"kind": "maskd"}, "did you mean masked"),
    ):
        with pytest.raises(GlauberError, match=why):
            load(model, **asked)
        with pytest.raises(GlauberError):
            load(Mine(), **({"dtype": "int8"} if "kind" in asked else asked))


def test_a_model_without_a_name_has_one():
    model = MaskedLM(conftest.make_model(), conftest.make_tokenizer())
    assert model.name == "unnamed" and len(model.fingerprint) == 64
    named = MaskedLM(conftest.make_model(), conftest.make_tokenizer(), name="mine")
    assert named.fingerprint == model.fingerprint
    assert MaskedLM.scores.__doc__ and "hidden" in MaskedLM.scores.__doc__


def test_models_lists_what_is_there(tiny_folder):
    found = glauber.models()
    assert [row["name"] for row in found.models] == ["bundled:english"] and "bert" in str(found)
    (row,) = glauber.models(str(tiny_folder)).to_dict()["models"]
    assert row["vocabulary"] == len(conftest.VOCABULARY) and row["forward"] == "described"
    assert row["proposable"] == row["vocabulary"] - 7
