"""Are runs stored, replayed, exported and resumed as they should where proposals are rejected?"""

import json

import numpy as np
import pytest
import torch

import glauber as package
from glauber.foundation.errors import GlauberError
from glauber.models.table import Joint
from glauber.runs.export import export
from glauber.runs.run import Run
from glauber.sampling.advance import Session
from glauber.sampling.sample import cost_line, plan, resume, sample
from run_bytes import contents

OPTIONS = {"scan": "adaptive:confidence:2", "temperature": [0.05, 0.7, 4.0], "seed": 4, "chains": 3}


@pytest.fixture(scope="module")
def run(tiny_folder, tmp_path_factory):
    from conftest import TEXTS

    texts = [text for text in TEXTS if "?" not in text]
    out = tmp_path_factory.mktemp("adaptive") / "run"
    return sample(
        str(tiny_folder), texts, steps=25, prefix="the dog", freeze="1", out=out, **OPTIONS
    )


def test_a_rejected_step_changes_nothing_and_is_counted(run):
    changed, accepted = run.read("changed")[:, :, 0], run.read("accepted")[:, :, 0]
    tokens = np.stack([tokens for _, tokens in run.states()])
    moved = (tokens[1:] != tokens[:-1]).any(axis=2).T
    np.testing.assert_array_equal(moved, changed)
    assert (~accepted).sum() > 10 and not (changed & ~accepted).any()
    assert run.acceptance == changed.sum() / (changed.sum() + (~accepted).sum())
    assert f"{run.acceptance:.1%} of the proposals to change one were accepted" in str(run)
    assert run.to_dict()["acceptance"] == run.acceptance
    replayed, sites, drawn = run.tokens(0), run.read("site"), run.read("token")
    for chain, step in np.ndindex(run.n_chains, run.steps):
        replayed[chain, sites[chain, step, 0]] = drawn[chain, step, 0]
    np.testing.assert_array_equal(replayed, run.tokens())
    held = ~run.free
    assert (tokens[:, held] == tokens[0, held]).all()
    run.verify()


def test_exports_tell_rejections(run, tmp_path):
    import pyarrow.parquet

    export(run, to="parquet", out=tmp_path / "run.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "run.parquet").to_pandas()
    assert (~table.accepted).sum() == (~run.read("accepted")).sum()
    assert "accepted" in run.frame(events=True).columns
    export(run, to="jsonl", out=tmp_path / "run.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert sum(bool(line["changed"]) for line in lines) == run.read("changed").sum()


def test_stops_and_batches_leave_no_trace(tiny_folder, texts, tmp_path):
    class Stopping(Session):
        def count(self, *args):
            super().count(*args)
            self.stopping = self.updates >= 33

    whole = sample(str(tiny_folder), texts, steps=30, out=tmp_path / "whole", **OPTIONS)
    how = {"steps": 30, "session": Stopping(), "batch_size": 1}
    sample(str(tiny_folder), texts, out=tmp_path / "run", **how, **OPTIONS)
    assert 0 < Run(tmp_path / "run").steps < 30
    assert contents(resume(tmp_path / "run").folder) == contents(whole.folder)


def test_a_law_of_ones_own():
    joint = Joint.random(4, 3, seed=2)
    for scan in ("conditioned:entropy", "adaptive:entropy", "naive:entropy"):
        for chains in (1, 2, 8) if scan == "adaptive:entropy" else (2,):
            texts = ["012", "330"]
            run = sample(joint, texts, chains=chains, steps=20, scan=scan, temperature=0.5)
            assert run.spec.scan == scan and run.n_chains == chains
            assert (run.acceptance is None) == (scan != "adaptive:entropy")


def test_what_is_refused_before_it_begins(tiny_folder, tmp_path):
    with pytest.raises(GlauberError, match=r"must be one of .*adaptive:confidence"):
        package.sample("no such model", ["a"], scan="adaptive:doubt")
    with pytest.raises(GlauberError, match=r"adaptive:entropy keeps the same distribution"):
        package.sample(glauber_of(200), ["1 2"], scan="conditioned:entropy", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def glauber_of(vocab):
    return Joint(torch.zeros(vocab, vocab, dtype=torch.float64))


def test_the_cost_says_how_many_rows_a_step_takes(tmp_path):
    """Three sites of four tokens: a redraw and the weights of every state it could lead to."""
    joint = Joint.random(4, 3, seed=2)
    rows = {"adaptive:entropy": 1 + 3, "naive:entropy": 1 + 3, "conditioned:entropy": 1 + 3 * 3}
    for scan, expected in rows.items():
        said = cost_line(plan(joint, ["012"], steps=5, scan=scan), tmp_path, 10.0)
        assert f"up to {expected} rows through the model a step" in said
    assert "rows" not in cost_line(plan(joint, ["012"], steps=5), tmp_path, 10.0)
