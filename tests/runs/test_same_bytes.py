"""A stored run is the same, byte by byte, however it is remembered, batched, shared or stopped."""

import pytest

from conftest import TEXTS
from glauber.foundation.errors import GlauberError
from glauber.runs.run import Run
from glauber.sampling.advance import Session, rate
from glauber.sampling.sample import plan, resume, sample
from run_bytes import contents

OPTIONS = {"steps": 80, "temperature": 0.4, "seed": 4, "chains": 6}
SEVEN_DEVICES = ",".join(["cpu"] * 7)


class Stopping(Session):
    """Stops after so many steps of a batch."""

    left = 25

    def count(self, *args):
        super().count(*args)
        self.left -= 1
        self.stopping = self.left == 0


@pytest.fixture(scope="module")
def plain(tiny_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("plain") / "run"
    return contents(sample(str(tiny_folder), TEXTS, out=out, memo=0, **OPTIONS).folder)


@pytest.mark.parametrize(
    "options",
    [{}, {"memo": 1}, {"memo": 1, "batch_size": 4}, {"batch_size": 1}]
    + [{"device": d, "batch_size": n} for d in ("cpu,cpu", SEVEN_DEVICES) for n in (None, 1, 4)],
    ids=str,
)
def test_memo_batches_and_devices(options, plain, tiny_folder, tmp_path):
    session, out = Session(), tmp_path / "run"
    sample(str(tiny_folder), TEXTS, out=out, session=session, **OPTIONS, **options)
    assert contents(out) == plain and session.updates == 80 * 6
    if "device" in options:
        assert session.memo is None
    else:
        assert session.memo.hits > 0 and session.memo.hits + session.memo.misses == 80 * 6


@pytest.mark.parametrize("device", ["cpu", "cpu,cpu,cpu"])
def test_stops(device, plain, tiny_folder, tmp_path):
    out = tmp_path / "run"
    sample(str(tiny_folder), TEXTS, out=out, session=Stopping(), device=device, **OPTIONS)
    for memo in (0, 1):
        assert contents(out) != plain and not Run(out).finished
        resume(out, memo=memo, session=Stopping(), device=device)
    assert Run(out).steps == (75 if device == "cpu" else Run(out).steps) < 80
    resume(out)
    assert contents(out) == plain


def test_each_device_has_its_share(tiny_folder):
    planned = plan(str(tiny_folder), TEXTS, device="cpu,cpu,cpu", **OPTIONS)
    models = [device.model for device in planned.per_device]
    assert len(models) == 3 and len({model.fingerprint for model in models}) == 1
    assert rate(planned) > 0


def test_progress_tells_what_was_remembered(tiny_folder, monkeypatch):
    monkeypatch.setattr("glauber.sampling.advance.REPORT_SECONDS", 0.0)
    reports = []
    sample(str(tiny_folder), TEXTS, session=Session(reports.append), **OPTIONS)
    assert 0 < reports[-1].remembered < 1
    sample(str(tiny_folder), TEXTS, session=Session(reports.append), memo=0, **OPTIONS)
    assert reports[-1].remembered is None


@pytest.mark.parametrize(
    ("options", "words"),
    [({"memo": -1}, "at least 0"), ({"device": "cpu,nowhere"}, "nowhere cannot be used")],
)
def test_what_is_refused(options, words, tiny_folder):
    with pytest.raises(GlauberError, match=words):
        sample(str(tiny_folder), TEXTS, **OPTIONS, **options)
