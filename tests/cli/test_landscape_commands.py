"""glauber topics, prefixes and compare on tiny models."""

import json

import pytest

from tiny_nli import make_nli

LABELS = "cat,dog,bird"


@pytest.fixture(scope="module")
def nli(tmp_path_factory):
    return make_nli(tmp_path_factory.mktemp("models") / "nli")


@pytest.fixture
def run(glauber, tmp_path, tiny_folder, source):
    folder = tmp_path / "run"
    code, _, _ = glauber("sample", "--model", tiny_folder, "--from", source, "--steps", 12,
                         "--out", folder, "--json")  # fmt: skip
    assert code == 0
    return folder


def test_topics(glauber, run, nli, tmp_path):
    picture = tmp_path / "topics.html"
    words = ("topics", run, "--labels", LABELS, "--scorer", nli, "--scorer", nli, "--every", 4)
    code, out, _ = glauber(*words, "--track", "dog", "--out", picture, "--json")
    assert code == 0
    told = json.loads(out)
    first, second = told["tables"]
    assert first == second and first["track"] == "dog" and first["baseline"] == 1 / 3
    (row,) = first["rows"]
    assert row["seed"] == "all" and row["n_chains"] == 5
    assert told["agreement"][0]["same_label"] == 1 and told["scores"][0]["steps"] == [0, 4, 8, 12]
    assert "model:" in told["signature"] and "plotly" in picture.read_text()
    code, out, _ = glauber(*words, "--seeds", "cat,bird")
    assert code == 0 and "name the same label for 100%" in out
    assert [line.split()[0] for line in out.splitlines() if " chains " not in line][1:4] == [
        "cat", "bird", "all",
    ]  # fmt: skip


def test_topics_of_bad_input(glauber, run, nli, tmp_path, tiny_folder):
    def says(*words):
        code, out, err = glauber("topics", *words)
        assert code == 2 and out == "" and err.count("\n") == 1
        return err

    how = ("--labels", LABELS, "--scorer", nli)
    assert "at least two" in says(run, "--labels", "cat")
    assert "not among the labels" in says(run, *how, "--track", "fish")
    assert "looks are 50 steps apart" in says(run, *how, "--every", 50)
    assert "is not a run" in says(tmp_path, *how)
    for name, steps, chains in (("empty", 0, 2), ("alone", 4, 1)):
        glauber("sample", "--model", tiny_folder, "--chains", chains, "--length", 4, "--steps",
                steps, "--out", tmp_path / name, "--json")  # fmt: skip
    assert "no steps yet" in says(tmp_path / "empty", *how)
    assert "one chain only" in says(tmp_path / "alone", *how)


def test_prefixes(glauber, nli, tiny_folder, source, tmp_path):
    how = (
        "--model", tiny_folder, "--from", source, "--chains", 4, "--length", 5, "--steps", 12,
        "--every", 4, "--labels", LABELS, "--scorer", nli, "--prefix", "we will be",
        "--prefix", "the old dog",
    )  # fmt: skip
    code, out, _ = glauber("prefixes", *how, "--out", tmp_path / "p.html", "--json")
    assert code == 0
    told = json.loads(out)
    assert [pull["prefix"] for pull in told["pulls"]] == ["we will be", "the old dog"]
    assert all(text.startswith("we will be") for text in told["pulls"][0]["examples"])
    assert told["kind"] == "estimate" and (tmp_path / "p.html").is_file()
    code, out, _ = glauber("prefixes", *how)
    assert code == 0 and "the old dog" in out and "  words" in out


def test_compare(glauber, nli, tiny_folder, source, tmp_path):
    again = tmp_path / "again"
    again.symlink_to(tiny_folder)
    how = (
        "compare", "--from", source, "--chains", 4, "--length", 5, "--steps", 40, "--labels",
        LABELS, "--scorer", nli, "--rectangles", 6, "--top", 10,
    )  # fmt: skip
    both = ("--models", f"{tiny_folder},{again}")
    code, out, _ = glauber(*how, *both, "--out", tmp_path / "c.html", "--json")
    assert code == 0
    first, second = json.loads(out)["models"]
    assert first["rectangles"]["mean"] == second["rectangles"]["mean"]  # the same model twice
    assert first["traps"] == second["traps"] and set(first["traps"]) >= {"found", "perfect"}
    assert first["entropy_production"]["kind"] == "estimate"
    assert "share of steps" in (tmp_path / "c.html").read_text()
    code, out, _ = glauber(*how, *both)
    assert code == 0 and out.count("mean rectangle Delta") == 2
    code, _, err = glauber(*how, "--models", str(tiny_folder))
    assert code == 2 and "at least two models" in err
