"""Chains spread over several devices make the run that one device makes."""

import pytest

from glauber.errors import GlauberError
from glauber.sampling.advance import Session
from glauber.sampling.engine import rate
from glauber.sampling.sample import plan, resume, sample
from run_bytes import contents

OPTIONS = {"steps": 80, "temperature": 0.4, "seed": 4, "chains": 6}


@pytest.fixture(scope="module")
def plain(tiny_folder, tmp_path_factory):
    from conftest import TEXTS

    out = tmp_path_factory.mktemp("one") / "run"
    return contents(sample(str(tiny_folder), TEXTS, out=out, memo=0, **OPTIONS).folder)


@pytest.mark.parametrize("device", ["cpu,cpu", "cpu,cpu,cpu,cpu,cpu,cpu,cpu"])
@pytest.mark.parametrize("batch_size", [None, 1, 4])
def test_the_same_bytes(device, batch_size, plain, tiny_folder, texts, tmp_path):
    session = Session()
    out = tmp_path / "run"
    sample(
        str(tiny_folder),
        texts,
        out=out,
        device=device,
        batch_size=batch_size,
        session=session,
        **OPTIONS,
    )
    assert contents(out) == plain
    assert session.updates == 80 * 6 and session.memo is None


def test_each_device_has_its_share(tiny_folder, texts):
    planned = plan(str(tiny_folder), texts, device="cpu,cpu,cpu", **OPTIONS)
    models = [one.model for one in planned.per_device]
    assert len(models) == 3
    assert len({model.fingerprint for model in models}) == 1
    assert rate(planned) > 0


def test_a_stopped_run_goes_on_with_other_devices(plain, tiny_folder, texts, tmp_path):
    class Stopping(Session):
        def count(self, *args):
            super().count(*args)
            self.stopping = self.updates >= 100

    out = tmp_path / "run"
    sample(str(tiny_folder), texts, out=out, device="cpu,cpu", session=Stopping(), **OPTIONS)
    assert contents(out) != plain
    resume(out, device="cpu,cpu,cpu")
    assert contents(out) == plain


def test_a_device_that_is_not_there(tiny_folder, texts):
    with pytest.raises(GlauberError, match="nowhere cannot be used"):
        plan(str(tiny_folder), texts, device="cpu,nowhere", **OPTIONS)
