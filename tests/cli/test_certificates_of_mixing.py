"""glauber influence, margins and drift, as a user types them, on a tiny model."""

import json

import numpy as np
import pytest
import torch

from glauber.conditionals.base import Restricted, log_probs
from glauber.conditionals.masked_lm import MaskedLM

TEXT = "the cat sat on the mat ."
KINDS = {"exact", "upper bound", "lower bound", "estimate"}


def test_influence_prints_one_json_object_and_a_picture(glauber, tiny_folder, tmp_path):
    code, out, err = glauber(
        "influence", TEXT, "--model", tiny_folder, "--samples", 2, "--replacements", 2,
        "--against", "0.5,2", "--chains", 2, "--out", tmp_path / "new" / "map.html", "--json",
    )  # fmt: skip
    told = json.loads(out)
    assert code == 0 and err == ""
    matrix = np.array(told["influence"]["value"])
    assert matrix.shape == (7, 7) and (np.diag(matrix) == 0).all() and matrix.max() <= 1
    assert told["alpha"] == {"value": matrix.sum(axis=0).max(), "kind": "lower bound"}
    assert told["threshold"]["kind"] == told["mixing_time"]["kind"] == "estimate"
    assert [one["temperature"] for one in told["averaged"]] == [0.5, 2]
    assert told["tokens"] == TEXT.split()
    page = (tmp_path / "new" / "map.html").read_text()
    assert "the token that is replaced" in page and "lower bound" in page


def test_influence_says_the_kind_of_each_figure(glauber, tiny_folder):
    words = ["--model", tiny_folder, "--samples", 1, "--replacements", 1, "--chains", 1]
    code, out, _ = glauber("influence", TEXT, *words)
    assert code == 0
    for start in ("alpha", "contraction threshold", "influence met on average"):
        (line,) = (line for line in out.splitlines() if line.startswith(start))
        assert any(f"({kind})" in line for kind in KINDS), line
    hot = glauber("influence", TEXT, *words, "--temperature", 1000)[1]
    assert "t_mix(0.25): " in hot and "steps (estimate)" in hot


def test_margins_are_those_of_the_model(glauber, tiny_folder):
    words = ["margins", TEXT, "--model", tiny_folder, "--temperature", 0.7]
    code, out, err = glauber(*words, "--json")
    told = json.loads(out)
    assert code == 0 and err == "" and told["tokens"] == TEXT.split()
    model = MaskedLM.load(str(tiny_folder), device="cpu")
    law = Restricted(model, model.vocabulary.proposable())
    tokens = model.vocabulary.encode([TEXT])[0]
    stay = [
        float(log_probs(law, tokens, torch.tensor([[i]]), temperature=0.7)[0, 0, tokens[0, i]])
        for i in range(1, 8)
    ]
    assert told["escape_rate"]["value"] == pytest.approx(1 - np.exp(stay).mean(), rel=1e-6)
    assert told["holding_time"]["value"] == pytest.approx(1 / (1 - np.exp(stay).mean()), rel=1e-6)
    assert told["perfect"] == (min(told["gaps"]["value"]) > 0)
    code, out, _ = glauber(*words)
    assert code == 0
    assert "(exact)" in out.splitlines()[-1] and out.splitlines()[-1].startswith("mean holding")


def test_drift_samples_every_level(glauber, tiny_folder, source):
    words = [
        "drift", "--token", "!", "--count", 1, "--levels", 2, "--length", 5, "--samples", 6,
        "--from", source, "--model", tiny_folder, "--settle", 3,
    ]  # fmt: skip
    code, out, err = glauber(*words, "--json")
    told = json.loads(out)
    assert code == 0 and err == ""
    assert [level["count"] for level in told["levels"]] == [1, 2, 3]
    assert told["certificate"]["kind"] == "estimate"
    assert told["others"] == "3 chain steps from passages"
    assert told["certificate"]["epsilon"] == min(level["smallest"] for level in told["levels"])
    code, out, _ = glauber(*words)
    assert code == 0 and "other sites from 3 chain steps" in out.replace("\n", " ")


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["influence", "cat"], "needs two"),
        (["influence", TEXT, "--samples", 0], "samples is 0"),
        (["influence", TEXT, "--temperature", 0], "temperature is 0.0"),
        (["influence", TEXT, "--against", "hot"], "not a list of temperatures"),
        (["influence", TEXT, "--epsilon", 1.5], "epsilon is 1.5"),
        (["influence", " "], "empty"),
        (["margins", ""], "empty"),
        (["margins", "the zebra"], "may never be drawn"),
        (["margins", TEXT, "--temperature", -1], "temperature is -1.0"),
        (["drift", "--token", "zebra", "--count", 2], "'zebra' is not a single token"),
        (["drift", "--token", "the cat", "--count", 2], "'the cat' is not a single token"),
        (["drift", "--token", "[MASK]", "--count", 2], "'[MASK]' is not a single token"),
        (["drift", "--token", "!", "--count", 0], "the count is 0"),
        (["drift", "--token", "!", "--count", 21], "the count is 21"),
        (["drift", "--token", "!", "--count", 2, "--samples", 0], "samples is 0"),
        (["drift", "--token", "!", "--count", 2, "--levels", 19], "19 levels above 2"),
        (["drift", "--token", "!", "--count", 2, "--settle", -1], "cannot be negative"),
    ],
)
def test_bad_input_ends_in_one_sentence(glauber, tiny_folder, words, sentence):
    code, out, err = glauber(*words, "--model", tiny_folder)
    assert code == 2 and out == ""
    assert sentence in err and err.count("\n") == 1
