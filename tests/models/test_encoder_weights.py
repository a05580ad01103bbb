"""Described models from a folder: without transformers' module, and as it would have been."""

import json
import subprocess
import sys

import pytest
import torch
from transformers import AutoTokenizer

from conftest import make_tokenizer
from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.models import masked_lm
from glauber.models.forward import guard
from glauber.models.forward.guard import Record
from glauber.models.masked_lm import MaskedLM
from glauber.models.shelf import bundled_folder
from glauber.models.vocabulary import PlainTokenizer, Vocabulary
from glauber.models.weights import fingerprint_of
from glauber.texts.starts import passages
from models.test_families import FAMILIES, make, some_rows

# Those which transformers converts from names and layouts of the hub as it loads them.
STORED_OTHERWISE = {"nomic", "gte", "gte-types", "jina-v3"}
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")

pytestmark = pytest.mark.filterwarnings("ignore:.*mask decoder")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GLAUBER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def save(name, folder):
    module = make(name)
    module.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return module


def forbid_modules(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a module of transformers was asked for")

    monkeypatch.setattr(masked_lm, "from_pretrained", refuse)


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - STORED_OTHERWISE))
def test_the_second_time_no_module_is_made(name, tmp_path, monkeypatch):
    module = save(name, tmp_path / "model")
    first = MaskedLM.load(str(tmp_path / "model"), device="cpu")
    forbid_modules(monkeypatch)
    model = MaskedLM.load(str(tmp_path / "model"), device="cpu")
    given = MaskedLM(module, make_tokenizer())
    tokens, sites = some_rows([12, 5, 27, 12], 3)
    expected = given.scores(tokens, sites)
    assert torch.equal(model.scores(tokens, sites), expected)
    assert torch.equal(first.scores(tokens, sites), expected)
    assert model.fingerprint == fingerprint_of(module.state_dict(), make_tokenizer())
    assert model.longest == given.longest
    assert model.weights.parameters == sum(weight.numel() for weight in module.parameters())
    assert torch.equal(model.conditionals().allowed, given.conditionals().allowed)


@pytest.mark.parametrize("name", sorted(STORED_OTHERWISE))
def test_other_layouts_are_read_by_transformers(name, tmp_path):
    module = save(name, tmp_path / "model")
    model = MaskedLM.load(str(tmp_path / "model"), device="cpu")
    assert model.encoder is not None
    assert model.fingerprint == fingerprint_of(module.state_dict(), make_tokenizer())


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_the_module_has_the_weights_of_the_model(dtype, tmp_path):
    save("modernbert", tmp_path)
    model = MaskedLM.load(str(tmp_path), device="cpu").to(dtype=dtype)
    assert str(model.model.dtype) == f"torch.{dtype}"
    for name, values in model.model.state_dict().items():
        assert torch.equal(values, model.weights.tensors[name])


def test_a_pass_is_compared_once_and_again_on_demand(tmp_path, cache, monkeypatch):
    save("bert", tmp_path)
    comparisons = []

    def difference(*_, **__):
        comparisons.append(1)
        return 1e-12 * len(comparisons)

    monkeypatch.setattr(guard, "difference", difference)

    def load(dtype="float32"):
        return MaskedLM.load(str(tmp_path), device="cpu", dtype=dtype)

    load(), load()
    assert len(comparisons) == 1 and len(list((cache / "compared").iterdir())) == 1
    load("float64")
    assert len(comparisons) == 2
    difference, tolerated = load().verify()
    assert len(comparisons) == 3 and difference == 3e-12 < tolerated
    monkeypatch.setattr(guard, "version", lambda package: "99")
    load()
    assert len(comparisons) == 4


@pytest.mark.filterwarnings("ignore:.*is not a shape that we know")
def test_what_differs_is_not_recorded(tmp_path, cache, monkeypatch):
    save("bert", tmp_path)
    model = MaskedLM.load(str(tmp_path), device="cpu")
    assert model._record.exists()
    monkeypatch.setattr(guard, "difference", lambda *_, **__: 0.5)
    assert model.verify()[0] == 0.5
    assert not model._record.exists()
    with pytest.warns(GlauberWarning, match="differs from transformers'"):
        assert MaskedLM.load(str(tmp_path), device="cpu").encoder is None


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path, monkeypatch):
    save("bert", tmp_path / "model")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GLAUBER_CACHE", str(tmp_path / "file"))
    model = MaskedLM.load(str(tmp_path / "model"), device="cpu")
    assert model.encoder is not None and not model._record.exists()
    Record("f", {}, torch.float32, torch.device("cpu")).remove()


def test_a_broken_head_is_not_used(monkeypatch):
    """Where the layers are not described, the head at the hidden sites is compared by itself."""
    module = make("deberta-v3", conv_kernel_size=3)
    tokens, sites = some_rows([9, 9], 2)
    known = MaskedLM(module, make_tokenizer())
    assert known.encoder is None and known._head is not None
    head = masked_lm.EncoderWeights.head
    monkeypatch.setattr(
        masked_lm.EncoderWeights, "head", lambda weights: head(weights)._replace(norm=None)
    )
    with pytest.warns(UserWarning, match="every position"):
        unknown = MaskedLM(module, make_tokenizer())
    torch.testing.assert_close(
        unknown.scores(tokens, sites), known.scores(tokens, sites), rtol=0, atol=1e-5
    )


def test_what_transformers_computes_cannot_be_verified():
    with pytest.raises(GlauberError, match="is computed by transformers itself"):
        MaskedLM(make("deberta-v3", conv_kernel_size=3), make_tokenizer(), name="m").verify()


def test_a_bundled_model_is_loaded_without_transformers(tmp_path):
    code = (
        "import sys, glauber; glauber.load('bundled:english', device='cpu');"
        "print('transformers' in sys.modules)"
    )
    said = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [one.stdout.strip() for one in said] == ["True", "False"]


def test_bundled_models_agree_with_transformers():
    model = MaskedLM.load("bundled:english", device="cpu")
    difference, tolerated = model.verify()
    assert difference < 1e-5 < tolerated


# ---- tokenizers


def both(folder):
    plain = PlainTokenizer.open(folder)
    assert plain is not None
    return plain, AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


@pytest.fixture(params=["english", "tiny"])
def tokenizers(request, tmp_path):
    if request.param == "english":
        return both(bundled_folder("bundled:english"))
    make_tokenizer().save_pretrained(tmp_path)
    return both(tmp_path)


def test_a_plain_tokenizer_reads_as_transformers(tokenizers, tmp_path):
    plain, theirs = tokenizers
    assert plain.get_vocab() == theirs.get_vocab() and len(plain) == len(theirs)
    assert sorted(plain.all_special_ids) == sorted(theirs.all_special_ids)
    assert plain.model_max_length == theirs.model_max_length and theirs.is_fast
    for role in ROLES:
        assert getattr(plain, f"{role}_token_id") == getattr(theirs, f"{role}_token_id")
    state = [json.loads(one.backend_tokenizer.to_str()) for one in (plain, theirs)]
    assert state[0] == state[1]
    texts = [text for _, text in passages()[:40]]
    texts += ["", " ", "Café naïve \u2013 中文 [MASK] x", "a" * 300, "don't [UNK] \u200b STOP"]
    for text in texts:
        for special in (False, True):
            how = dict(add_special_tokens=special, return_offsets_mapping=True, verbose=False)
            one, two = plain(text, **how), theirs(text, **how)
            assert one["input_ids"] == two["input_ids"]
            assert one["offset_mapping"] == two["offset_mapping"]
            assert one.word_ids() == two.word_ids()
    plain.save_pretrained(tmp_path / "saved")
    again = both(tmp_path / "saved")
    assert all(one.get_vocab() == theirs.get_vocab() for one in again)
    saved = Vocabulary.open(tmp_path / "saved")
    assert torch.equal(saved.proposable(), Vocabulary(theirs, len(theirs)).proposable())


def test_a_mask_token_can_be_given_to_a_plain_tokenizer(tmp_path):
    make_tokenizer().save_pretrained(tmp_path)
    plain, theirs = both(tmp_path)
    for one in (plain, theirs):
        one.add_special_tokens({"mask_token": "<hidden>"})
    assert plain.mask_token_id == theirs.mask_token_id == len(plain) - 1 == len(theirs) - 1


@pytest.mark.parametrize(
    "change",
    [
        {"tokenizer_class": "RobertaTokenizer"},
        {"tokenizer_class": "BertTokenizer", "do_lower_case": False},
        {"mask_token": "<not there>"},
        {"mask_token": {"content": "[MASK]", "lstrip": True}},
        {"added_tokens_decoder": {}},
        {"split_special_tokens": True},
    ],
)
def test_what_transformers_may_read_otherwise_is_left_to_it(change, tmp_path):
    make_tokenizer().save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert PlainTokenizer.open(tmp_path) is None


def test_models_are_verified_on_demand(tmp_path, monkeypatch, glauber):
    save("bert", tmp_path / "model")
    code, out, _ = glauber("models", tmp_path / "model", "--verify", "--json")
    (row,) = json.loads(out)["models"]
    assert code == 0 and 0 < row["difference"] < 1e-5 < row["tolerated"]
    assert glauber("models", "--verify")[0] == 2
    monkeypatch.setattr(guard, "difference", lambda *_, **__: 0.5)
    code, _, said = glauber("models", tmp_path / "model", "--verify")
    assert code == 2 and "differs from transformers' by 0.5" in said
