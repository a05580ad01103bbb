"""glauber influence, as a user types it, on a tiny model."""

import json

import numpy as np
import pytest

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


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["influence", "cat"], "needs two"),
        (["influence", TEXT, "--samples", 0], "samples is 0"),
        (["influence", TEXT, "--temperature", 0], "temperature is 0.0"),
        (["influence", TEXT, "--against", "hot"], "not a list of temperatures"),
        (["influence", TEXT, "--epsilon", 1.5], "epsilon is 1.5"),
        (["influence", " "], "empty"),
    ],
)
def test_bad_input_ends_in_one_sentence(glauber, tiny_folder, words, sentence):
    code, out, err = glauber(*words, "--model", tiny_folder)
    assert code == 2 and out == ""
    assert sentence in err and err.count("\n") == 1
