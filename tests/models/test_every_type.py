"""Every type of transformers' masked-LM mapping, against transformers alone.

A type that a new version of transformers adds is tested, and fails here until it works or is
refused.
"""

import json

import pytest
import torch
import transformers
from tests.models.every_type import REFUSED, TYPES, make_tiny, plain_scores, random_rows

import conftest
import glauber
from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.models.weights import join_name, split_name
from glauber.texts.starts import check_length

NO_FLOAT64 = {"mra"}  # transformers' code computes in float32 whatever the weights are
TEXTS = conftest.TEXTS[:3]

pytestmark = pytest.mark.filterwarnings("ignore:.*is not a shape that we know")


@pytest.mark.parametrize("model_type", TYPES)
def test_scores_are_those_of_transformers(model_type, tmp_path):
    folder = make_tiny(model_type, tmp_path)
    if model_type in REFUSED:
        with pytest.raises(GlauberError, match=REFUSED[model_type]):
            glauber.load(str(folder))
        return
    model = glauber.load(str(folder), device="cpu")
    for length, k in ((11, 1), (11, 3), (min(model.longest, 64), 1), (11, 1)):
        tokens, sites = random_rows(length, 6, k)
        expected, scores = plain_scores(folder, tokens, sites), model.scores(tokens, sites)
        assert (scores - expected).abs().max() < 1e-4 * expected.std()
        alone = torch.cat([model.scores(tokens[i : i + 1], sites[i : i + 1]) for i in range(6)])
        assert torch.equal(alone, scores)
    _check_longest(folder, model)
    _check_studies(model)


def _check_longest(folder, model):
    """One token more fails in transformers, or is more than the config says."""
    if model.longest > 10**5:
        assert getattr(model.model.config, "max_position_embeddings", None) is None
        return
    longer, sites = random_rows(model.longest + 1, 1, 1)
    with pytest.raises(GlauberError, match=f"at most {model.longest}"):
        check_length(model, longer)
    if model.longest != model.model.config.max_position_embeddings:
        with pytest.raises((IndexError, RuntimeError, ValueError)):
            plain_scores(folder, longer, sites)


def _check_studies(model):
    run = glauber.sample(model, TEXTS, chains=2, steps=3, seed=0)
    assert len(run.frame())
    scored = glauber.score(model, TEXTS).to_dict()
    assert "NaN" not in json.dumps(scored)
    if model.model.config.model_type in NO_FLOAT64:
        with pytest.raises(GlauberError, match="cannot score a text in float64"):
            glauber.rectangles(model, TEXTS, count=2, length=5)
    else:
        assert (glauber.rectangles(model, TEXTS, count=2, length=5).delta >= 0).all()
    (filled,) = glauber.infill(model, "the [MASK] sat").texts
    assert "[MASK]" not in filled


class Plain:
    """A masked LM by transformers alone, as a rule of one's own."""

    def __init__(self, folder, vocabulary):
        self.folder, self.vocabulary, self.vocab_size = folder, vocabulary, vocabulary.size

    def scores(self, tokens, sites):
        return torch.cat(
            [
                plain_scores(self.folder, row[None, : (row >= 0).sum()], at[None])
                for row, at in zip(tokens, sites, strict=True)
            ]
        )


@pytest.mark.parametrize("model_type", ["xlm", "flaubert"])
def test_models_with_a_head_of_that_name_are_masked(model_type, tmp_path):
    """`XLMWithLMHeadModel` is a masked LM, whose rectangles do not close."""
    folder = make_tiny(model_type, tmp_path)
    model = glauber.load(str(folder), device="cpu")
    assert model.whole_vocabulary
    settings = dict(count=4, length=5, seed=1)
    study = glauber.rectangles(model, TEXTS, **settings)
    with pytest.warns(GlauberWarning, match="computes in float32"):
        expected = glauber.rectangles(Plain(folder, model.vocabulary), TEXTS, **settings)
    assert study.delta == pytest.approx(expected.delta, abs=1e-4)
    assert study.delta.max() > 1e-3


def test_a_masked_model_is_not_taken_for_a_causal_one(tmp_path):
    folder = make_tiny("xlm", tmp_path)
    with pytest.raises(GlauberError, match=r"a later token changes.*\?kind=masked"):
        glauber.load(f"{folder}?kind=causal")
    assert glauber.load(f"{folder}?kind=masked").name == str(folder)
    with pytest.raises(GlauberError, match="the kind"):
        glauber.load(f"{folder}?kind=other")


def test_a_name_carries_its_kind_and_its_mask_token():
    name, options = split_name("folder?kind=masked&mask_token=<|mask|>")
    assert (name, options) == ("folder", {"kind": "masked", "mask_token": "<|mask|>"})
    assert join_name(name, options) == "folder?kind=masked&mask_token=<|mask|>"
    assert split_name("folder?mask_token=a=b") == ("folder", {"mask_token": "a=b"})
    assert split_name("a?b/c") == ("a?b/c", {}) and join_name("a", {"kind": None}) == "a"


@pytest.mark.parametrize("model_type", ["deberta", "deberta-v2"])
def test_the_head_of_published_debertas(model_type, tmp_path):
    folder = make_tiny(model_type, tmp_path)
    path = folder / "config.json"
    config = json.loads(path.read_text()) | {"legacy": False}
    tiny = transformers.AutoConfig.for_model(**config)
    transformers.AutoModelForMaskedLM.from_config(tiny).save_pretrained(folder)
    path.write_text(json.dumps({k: v for k, v in config.items() if k != "legacy"}))
    with pytest.raises(GlauberError, match=r'lm_predictions.*"legacy": false.*mask decoder'):
        glauber.load(str(folder))
    path.write_text(json.dumps(config))
    with pytest.warns(GlauberWarning, match="enhanced mask decoder"):
        model = glauber.load(str(folder), device="cpu")
    tokens, sites = random_rows(11, 4, 3)
    expected = plain_scores(folder, tokens, sites)
    assert (model.scores(tokens, sites) - expected).abs().max() < 1e-4 * expected.std()


def _without_tokenizer(folder):
    for path in folder.glob("tokenizer*"):
        path.unlink()


def _with_a_large_mask(folder):
    config = json.loads((folder / "config.json").read_text())
    tokenizer = conftest.make_tokenizer()
    tokenizer.add_special_tokens({"mask_token": "<hidden>"})
    tokenizer.save_pretrained(folder)
    assert tokenizer.mask_token_id >= config["vocab_size"]


def _of_another_diffusion_model(folder):
    path = folder / "config.json"
    auto = {"AutoConfig": "c.C", "AutoModel": "m.M"}
    path.write_text(json.dumps({"model_type": "unknown-diffusion", "auto_map": auto}))


BROKEN = {
    "no tokenizer": (_without_tokenizer, "bert", "has no tokenizer", []),
    "mask outside": (_with_a_large_mask, "bert", "do not belong together", []),
    "dtype": (lambda folder: None, "fnet", "score a text in bfloat16", ["--dtype", "bfloat16"]),
    "diffusion": (_of_another_diffusion_model, "bert", "offers AutoConfig, AutoModel only", []),
    "multimodal": (lambda folder: None, "modernvbert", "is a multimodal model", []),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_loaded_is_refused_in_one_sentence(case, tmp_path, glauber):
    spoil, model_type, words, options = BROKEN[case]
    folder = make_tiny(model_type, tmp_path / "model")
    spoil(folder)
    out = tmp_path / "run"
    code, _, said = glauber(
        "sample", "the cat sat", "--model", folder, "--steps", 3, "--out", out, *options
    )
    assert code == 2 and words in said and "Traceback" not in said
    assert not out.exists()
