"""What a run tells of its entropy production."""

import json

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
