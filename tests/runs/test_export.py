import errno
import json
import os

import numpy as np
import pytest

from glauber.foundation.errors import GlauberError
from glauber.runs.export import export, survival
from glauber.runs.run import Run
from glauber.sampling.sample import sample


@pytest.fixture(scope="module")
def run(tiny_folder, tmp_path_factory):
    texts = ["the cat sat on the mat .", "a big dog ran under the old tree ."]
    return sample(str(tiny_folder), texts, steps=60, seed=1, out=tmp_path_factory.mktemp("x") / "r")


def test_the_events_are_an_xarray_dataset(run):
    data = run.events()
    assert data["site"].dims == ("chain", "step", "slot")
    assert data["site"].shape == (2, 60, 1)
    np.testing.assert_array_equal(data["token"].values, run.read("token"))


def test_jsonl_has_one_object_per_chain_and_step(run, tmp_path):
    export(run, to="jsonl", out=tmp_path / "run.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert len(lines) == 2 * 61
    for line in lines:
        assert line["text"] == run.text(line["chain"], line["step"])
        before, after = run.tokens(max(line["step"] - 1, 0)), run.tokens(line["step"])
        differing = np.nonzero(before[line["chain"]] != after[line["chain"]])[0]
        assert line["changed"] == (differing - 1).tolist()  # sites without [CLS]


def test_parquet_has_every_event(run, tmp_path):
    import pyarrow.parquet

    export(run, to="parquet", out=tmp_path / "run.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "run.parquet").to_pandas()
    assert len(table) == 2 * 60
    row = table[(table.chain == 1) & (table.step == 17)].iloc[0]
    assert row.token == run.read("token")[1, 16, 0]
    assert row.spelling == run.vocabulary.spell(row.token)


def test_arviz_reads_its_export(run, tmp_path):
    export(run, to="arviz", out=tmp_path / "run.nc")
    import arviz

    data = arviz.from_netcdf(str(tmp_path / "run.nc"))
    assert data.posterior["survival"].shape == (2, 60)
    np.testing.assert_allclose(
        data.sample_stats["entropy"], run.read("entropy")[:, :, 0], rtol=1e-6
    )
    assert float(run.to_arviz().posterior["survival"][0, -1]) == survival(run)[0, -1]


def test_text_is_what_from_reads(run, tmp_path):
    export(run, to="text", out=tmp_path / "run.txt")
    assert (tmp_path / "run.txt").read_text().splitlines() == [run.text(0), run.text(1)]


def test_a_full_disk_is_one_sentence(run, tmp_path, monkeypatch):
    """The room is taken before HDF5 writes: it would not survive a disk that fills up."""

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(GlauberError, match="No space left"):
        export(run, to="arviz", out=tmp_path / "run.nc")
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_the_user_is_touched(run, tmp_path):
    for name in ("run.txt.partial", "run.txt.draft", ".run.txt.partial"):
        (tmp_path / name).write_text("mine")
    export(run, to="text", out=tmp_path / "run.txt")
    assert all((tmp_path / f"{name}").read_text() == "mine" for name in ("run.txt.partial",))
    assert len(list(tmp_path.iterdir())) == 4
    with pytest.raises(GlauberError, match="is inside the run"):
        export(run, to="text", out=run.folder / "texts.txt")


def test_survival_counts_starting_tokens(run):
    start, free = run.tokens(0), run.free
    for step in (0, 30, 60):
        same = (run.tokens(step) == start) & free
        np.testing.assert_allclose(survival(run)[:, step], same.sum(axis=1) / free.sum(axis=1))


def test_an_existing_file_is_kept(run, tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(GlauberError, match="exists already"):
        export(run, to="text", out=tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_run_reads_without_its_model(run):
    assert Run(run.folder).text(0, 0) == "the cat sat on the mat."
