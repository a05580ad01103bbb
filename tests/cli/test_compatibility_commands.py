"""entropy-production and score, as a user types them."""

import json

import numpy as np
import pytest

from glauber.runs.run import Run


@pytest.fixture
def sampled(glauber, tiny_folder, tmp_path, texts):
    """Makes a run of the tiny model with the given flags: its folder."""
    source = tmp_path / "texts.txt"
    source.write_text("\n".join(texts))

    def make(*words):
        folder = tmp_path / "run"
        code, _, err = glauber(
            "sample", "--model", tiny_folder, "--from", source, "--length", 4, "--out", folder,
            *words,
        )  # fmt: skip
        assert code == 0, err
        return folder

    return make


def test_entropy_production_is_the_mean_over_the_recorded_events(glauber, sampled):
    run = sampled("--steps", 200, "--chains", 6, "--temperature", 2)
    code, out, err = glauber("entropy-production", run, "--burn-in", 80, "--json")
    told = json.loads(out)
    opened = Run(run)
    values = -opened.read("entropy", 80) - opened.read("log_prob_old", 80)
    assert (code, err) == (0, "")
    assert told["rate"] == pytest.approx(values.mean(), rel=1e-4)
    assert told["kind"] == "estimate" and told["standard_error"] > 0
    assert (told["n_chains"], told["n_steps"], told["burn_in"]) == (6, 720, 80)
    code, out, _ = glauber("entropy-production", run, "--burn-in", 80)
    assert code == 0 and f"{told['rate']:.4f} nats per step" in out and "estimate" in out
    assert json.loads(glauber("entropy-production", run, "--json")[1])["burn_in"] == 100


def test_unknown_start_words_are_not_counted(glauber, tiny_folder, tmp_path):
    """[UNK] is never drawn: log 0 until its site is redrawn; a chain that keeps it is left out."""
    source = tmp_path / "texts.txt"
    source.write_text("zzz the cat sat on it\nthe zzz cat ran on it\nthe cat sat on a mat\n")
    run = tmp_path / "run"
    glauber(
        "sample", "--model", tiny_folder, "--from", source, "--chains", 60, "--steps", 8,
        "--temperature", 3, "--out", run,
    )  # fmt: skip
    opened = Run(run)
    old = opened.read("log_prob_old")[:, :, 0]
    kept = (opened.tokens() == 1).any(axis=1)  # [UNK] is token 1
    late = np.isneginf(old[:, 4:]).any(axis=1)
    assert kept.any() and late.any()
    told = json.loads(glauber("entropy-production", run, "--burn-in", 0, "--json")[1])
    begin = [row.nonzero()[0][-1] + 1 if row.any() else 0 for row in np.isneginf(old)]
    counted = [8 - at for at, held in zip(begin, kept, strict=True) if not held and at <= 4]
    assert (told["n_chains"], told["n_steps"]) == (len(counted), sum(counted))
    assert np.isfinite(told["rate"])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--scan", "sweep"], "sweep"),
        (["--scan", "block:2"], "block:2"),
        (["--scan", "block:2", "--within", "product"], "block:2"),
        (["--scan", "everywhere"], "everywhere"),
        (["--scan", "least-confident"], "least-confident"),
        (["--fill", "greedy"], "greedy"),
    ],
)
def test_entropy_production_refuses_other_kernels(glauber, sampled, words, why):
    code, out, err = glauber("entropy-production", sampled("--steps", 20, *words), "--json")
    assert (code, out) == (2, "") and why in err and err.count("\n") == 1


def test_entropy_production_needs_steps(glauber, sampled):
    run = sampled("--steps", 0)
    code, out, err = glauber("entropy-production", run)
    assert (code, out) == (2, "") and "no steps yet" in err
    code, _, err = glauber("entropy-production", run.parent)
    assert code == 2 and "is not a run" in err


def test_score_prints_both_variants(glauber, tiny_folder, tmp_path):
    source = tmp_path / "texts.txt"
    source.write_text("a big dog ran .\n\nthe cats sat\n")
    words = ["score", "the cat sat", "--from", source, "--model", tiny_folder]
    code, out, err = glauber(*words, "--json")
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert [one["text"] for one in told["scores"]] == [
        "the cat sat", "a big dog ran .", "the cats sat",
    ]  # fmt: skip
    assert (told["kind"], told["unit"]) == ("exact", "nats")
    for one in told["scores"]:
        assert one["original"] == pytest.approx(sum(one["log_probs"]))
        assert one["within_word"] == pytest.approx(sum(one["log_probs_within_word"]))
        assert (one["original"] == one["within_word"]) == ("cats" not in one["text"])
    shown = glauber(*words)[1]
    assert f"{told['scores'][2]['within_word']:.3f}" in shown


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "no text to score"),
        ([""], "text 1 is empty"),
        (["the cat", "dog"], "text 2 has a single token"),
        (["the " * 50], "at most 36"),
        (["--from", "nowhere.txt"], "cannot be read"),
    ],
)
def test_score_refuses_in_one_sentence(glauber, tiny_folder, words, why):
    code, out, err = glauber("score", "--model", tiny_folder, *words)
    assert (code, out) == (2, "") and why in err and err.count("\n") == 1


def test_potential_ranks_what_a_run_visited(glauber, sampled, tmp_path):
    run = sampled("--steps", 300, "--chains", 4, "--temperature", 0.5)
    picture = tmp_path / "p.html"
    words = ("potential", run, "--states", 40, "--neighbours", 2)
    code, out, err = glauber(*words, "--out", picture, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert 0 < told["share"]["value"] < 1 and "exact" in told["share"]["kind"]
    assert told["checks"] > 0 and told["correlations"]["kind"] == "estimate"
    assert -1 <= told["correlations"]["potential_pll"] <= 1
    values = [one["potential"] for one in told["texts"]]
    assert values == sorted(values, reverse=True) and len(values) == told["ranked"]
    assert "plotly" in picture.read_text().lower()
    code, out, _ = glauber(*words)
    assert code == 0 and "explained by no joint law" in out and "estimates" in out


@pytest.mark.parametrize(
    ("steps", "words", "said"),
    [
        (0, (), "no steps yet"),
        (20, ("--states", 1), "at least 2"),
        (20, ("--burn-in", 20), "burn-in"),
        (20, ("--neighbours", 10_000), "most probable tokens"),
    ],
)
def test_potential_refuses(glauber, sampled, steps, words, said):
    code, out, err = glauber("potential", sampled("--steps", steps), *words)
    assert code == 2 and out == "" and said in err and err.count("\n") <= 2


def test_a_run_tells_its_entropy_production(glauber, sampled):
    run = sampled("--steps", 200, "--chains", 6, "--temperature", 2)
    told = json.loads(glauber("resume", run, "--json")[1])["entropy_production"]
    alone = json.loads(glauber("entropy-production", run, "--json")[1])
    assert told == {key: alone[key] for key in ("rate", "standard_error", "kind")}
    ratio = Run(run).to_arviz().sample_stats["log_ratio"].values
    assert ratio[:, 100:].mean() == pytest.approx(told["rate"], rel=1e-5)


def test_other_kernels_tell_no_entropy_production(glauber, sampled):
    run = sampled("--steps", 40, "--scan", "sweep")
    assert json.loads(glauber("resume", run, "--json")[1])["entropy_production"] is None
