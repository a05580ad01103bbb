"""Broken model folders end in one sentence that names the file."""

import json
import struct
from pathlib import Path

import pytest
import torch

import conftest
from glauber.foundation.errors import GlauberError
from glauber.models.load import load
from glauber.models.weights import choose_device, kind_of


@pytest.fixture
def folder(tmp_path):
    conftest.make_model().save_pretrained(tmp_path)
    conftest.make_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def why(folder):
    with pytest.raises(GlauberError) as said:
        load(str(folder), device="cpu")
    sentence = str(said.value)
    assert "\n" not in sentence and sentence.endswith(".")
    return sentence


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"hidden_size": "wide"}, "config.json is broken: hidden_size is 'wide'"),
        ({"num_hidden_layers": -1}, "config.json is broken: num_hidden_layers is -1"),
        ({"vocab_size": 1.5}, "config.json is broken: vocab_size is 1.5"),
        ({"vocab_size": 9}, "config.json has other sizes than the weights"),
        ({"hidden_size": 64}, "config.json has other sizes than the weights"),
        ({"num_attention_heads": 5}, "not a multiple"),
        ({"num_attention_heads": 0}, "holds no masked LM that can be loaded"),
        ({"hidden_act": "none such"}, "none such"),
        ({"model_type": 3}, "holds no masked LM that can be loaded"),
        ({"pad_token_id": 999}, "holds no masked LM that can be loaded"),
    ],
)
def test_configs(folder, change, expected):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert expected in why(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [b"[]", b"{", b"\xff\xfe", b'"x"'])
def test_files_that_are_no_json_objects(folder, name, content):
    (folder / name).write_bytes(content)
    assert f"{name} is broken: it is not" in why(folder)


def header(entries):
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[:-100],
        lambda whole: whole[:5],
        lambda whole: b"",
        lambda whole: b"\xff" * 1000,
        lambda whole: struct.pack("<Q", 40) + b"x" * 100,
        lambda whole: header([1, 2]),
        lambda whole: header({"a": 3}),
        lambda whole: header({"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}),
    ],
)
def test_broken_safetensors(folder, damage):
    path = folder / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    assert "model.safetensors is " in why(folder)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ("{", "is not JSON"),
        ('{"x": 1}', "does not list the files"),
        ('{"weight_map": {"a": "part-1.safetensors"}}', "names part-1.safetensors"),
        ('{"weight_map": {"a": 3}}', "does not list the files"),
    ],
)
def test_broken_indices(folder, index, expected):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(index)
    said = why(folder)
    assert "model.safetensors.index.json" in said and expected in said


def test_weights_that_are_not_numbers(folder):
    for value in (float("nan"), float("inf")):
        model = conftest.make_model()
        model.cls.predictions.bias.data[3] = value
        model.save_pretrained(folder)
        assert "not finite numbers, in cls.predictions.bias" in why(folder)


def test_pickles_with_foreign_types(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"bert": Path("x")}, folder / "pytorch_model.bin")
    assert "pytorch_model.bin holds more than weights" in why(folder)
    (folder / "pytorch_model.bin").write_bytes(b"no pickle")
    assert "holds no masked LM that can be loaded" in why(folder)
    (folder / "pytorch_model.bin").unlink()
    assert "no file named model.safetensors" in why(folder)


def test_folders_without_a_model(tmp_path):
    assert "holds no config.json" in why(tmp_path)
    assert "neither as a folder nor on the hub" in why(tmp_path / "nothing")


def test_code_of_a_folder_runs_only_if_the_caller_says_so(folder):
    """Whatever the config asks for."""
    path = folder / "config.json"
    asked = {
        "model_type": "mine",
        "auto_map": {"AutoConfig": "mine.Mine", "AutoModelForMaskedLM": "mine.Model"},
        "trust_remote_code": True,
    }
    path.write_text(json.dumps(json.loads(path.read_text()) | asked))
    (folder / "mine.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    assert "wants to run code of its own" in why(folder)
    assert kind_of(str(folder)) == "masked"
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("device", ["meta", "hpu:0", "cuda:99", "nothing", "cpu:x", ""])
def test_devices_that_cannot_be_used(device):
    with pytest.raises(GlauberError, match="cannot be used on this machine"):
        choose_device(device)


@pytest.mark.parametrize("name", ["a" * 5000, "a" * 300 + "/" + "b" * 5000, "no\0name"])
def test_a_name_that_no_folder_can_have_is_one_sentence(name):
    with pytest.raises(GlauberError, match="was found neither as a folder nor on the hub"):
        load(name, device="cpu")
