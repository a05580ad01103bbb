"""A stored run is the same, byte by byte, whatever is remembered."""

import pytest

from glauber.errors import GlauberError
from glauber.runs.run import Run
from glauber.sampling.advance import Session
from glauber.sampling.engine import advance_chains
from glauber.sampling.sample import begin, open_log, plan, resume, sample
from run_bytes import contents

OPTIONS = {"steps": 80, "temperature": 0.4, "seed": 4, "chains": 6}


@pytest.fixture(scope="module")
def plain(tiny_folder, tmp_path_factory):
    from conftest import TEXTS

    out = tmp_path_factory.mktemp("plain") / "run"
    return contents(sample(str(tiny_folder), TEXTS, out=out, memo=0, **OPTIONS).folder)


@pytest.mark.parametrize(
    "options",
    [{}, {"memo": 1}, {"memo": 1, "batch_size": 4}, {"batch_size": 1}],
    ids=["default", "small", "batches", "one-by-one"],
)
def test_the_same_bytes(options, plain, tiny_folder, texts, tmp_path):
    session = Session()
    run = sample(
        str(tiny_folder), texts, out=tmp_path / "run", session=session, **OPTIONS, **options
    )
    assert contents(run.folder) == plain
    assert session.memo is not None and session.memo.hits > 0
    assert session.memo.hits + session.memo.misses == 80 * 6


class Stopping(Session):
    """Stops after so many steps."""

    left = 25

    def count(self, *args):
        super().count(*args)
        self.left -= 1
        self.stopping = self.left == 0


def test_stopped_runs_go_on_without_their_memo(plain, tiny_folder, texts, tmp_path):
    begin(plan(str(tiny_folder), texts, **OPTIONS), tmp_path / "run").close()
    for memo in (None, 0, 1):
        model = plan(str(tiny_folder), texts, **OPTIONS).model
        planned = plan(model, texts, **OPTIONS)
        with open_log(Run(tmp_path / "run"), planned) as log:
            advance_chains(planned, log, memo=memo, session=Stopping())
    assert Run(tmp_path / "run").steps == 75
    resume(tmp_path / "run")
    assert contents(tmp_path / "run") == plain


def test_progress_tells_what_was_remembered(tiny_folder, texts, monkeypatch):
    monkeypatch.setattr("glauber.sampling.advance.REPORT_SECONDS", 0.0)
    heard = []
    sample(str(tiny_folder), texts, session=Session(heard.append), **OPTIONS)
    assert 0 < heard[-1].remembered < 1
    sample(str(tiny_folder), texts, session=Session(heard.append), memo=0, **OPTIONS)
    assert heard[-1].remembered is None


def test_less_than_no_memo(tiny_folder, texts, glauber, tmp_path):
    with pytest.raises(GlauberError, match="at least 0"):
        sample(str(tiny_folder), texts, memo=-1, **OPTIONS)
    code, _, err = glauber("sample", "--memo", -1, "--model", tiny_folder, "--out", tmp_path / "r")
    assert code == 2 and "at least 0" in err
