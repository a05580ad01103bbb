"""The doctor finds what is wrong, says it in a line, and never falls over itself."""

import json
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

import glauber
from conftest import int8_works
from glauber.interfaces.doctor import doctor, self_test
from glauber.interfaces.doctor.doctor import Checkup, Fact


@pytest.fixture
def tiny(tiny_folder, monkeypatch):
    """The self-test on a tiny model, which is fast."""
    model = glauber.load(str(tiny_folder), device="cpu")
    monkeypatch.setattr(self_test, "_model", cache(lambda device: model))
    text = "the cat sat on the mat and the dog ran under the old tree ."
    monkeypatch.setattr(self_test, "TEXT", text)
    return model


def test_a_sound_machine_is_well(tiny):
    found = self_test.self_test()
    assert [one.passed for one in found] == [True] * 7, found
    by_name = {one.name: one for one in found}
    assert by_name["one step from every state"].number >= self_test.LEVEL
    assert 0 < by_name["our forward pass"].number < 1e-4
    exact = {"batches of 1, 3 and all", "a run stopped and resumed", "steps that look ahead"}
    assert {by_name[name].number for name in exact} == {0.0}
    assert all(one.result and "0 differ" in one.result for one in map(by_name.get, exact))


def test_an_engine_at_another_temperature_is_found(monkeypatch):
    start = self_test._start

    def hotter(tokens, device):
        return start(tokens, device)._replace(temperature=torch.full((len(tokens),), 1.3).double())

    monkeypatch.setattr(self_test, "_start", hotter)
    for check in (self_test.one_step, self_test.long_run):
        found = check("cpu")
        assert not found.passed and found.number < 1e-6, found


def test_a_pass_bytes_and_events_that_differ_are_found(tiny, monkeypatch):
    from glauber.models.forward import encoder_int8

    scores = tiny.scores
    monkeypatch.setattr(tiny, "scores", lambda *asked: scores(*asked) * 1.001)
    assert not self_test.forward_pass("cpu").passed
    monkeypatch.setattr(tiny, "scores", scores)
    multiply = encoder_int8.Product._multiply
    monkeypatch.setattr(  # sums that saturate, as without exact byte products
        encoder_int8.Product, "_multiply", lambda *a: multiply(*a).clamp(-(2**18), 2**25)
    )
    # Where products are not exact anyway, there is nothing to test.
    assert (self_test.byte_products().number > 0) == int8_works()
    sampled, seeds = self_test._sample, iter(range(9))
    monkeypatch.setattr(self_test, "SEED", 0)

    def another(**how):
        monkeypatch.setattr(self_test, "SEED", next(seeds))
        return sampled(**how)

    monkeypatch.setattr(self_test, "_sample", another)
    assert not self_test.resumed_run().passed


def test_draws_are_compared_with_another_devices(tiny, monkeypatch):
    """On the CPU itself they agree; a device whose temperature is off does not."""
    found = self_test.compare_run("cpu")
    assert found.passed and found.number < 1e-5
    sampled = self_test._sample
    monkeypatch.setattr(self_test, "_sample", lambda **how: sampled(**how, temperature=1.01))
    assert not self_test.compare_run("cpu").passed


def test_an_exception_is_a_line(monkeypatch):
    def broken():
        raise RuntimeError(f"no kernel image in {Path.home()}/torch\nmore")

    check = self_test._check("a test", "cuda:0", broken)
    assert not check.passed and check.result == "RuntimeError: no kernel image in ~/torch"
    monkeypatch.setattr(self_test, "devices", broken)
    (only,) = doctor._self_test()
    assert (only.name, only.passed) == ("torch", False) and "no kernel image" in only.result


def test_without_torch_the_doctor_says_so():
    code = (
        "import sys; sys.modules['torch'] = None; from glauber.interfaces.cli import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, "doctor", "--json"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    told = json.loads(ended.stdout)
    assert ended.returncode == 1, ended.stderr
    assert "torch" in told["failed"] and "torch (cpu)" in told["failed"]
    assert "cannot be imported" in told["facts"]["versions"]["torch"]
    assert told["facts"]["versions"]["numpy"][0].isdigit()
    assert told["facts"]["in the package"]["english"] == "5 files as released"


def test_the_command_prints_a_report_without_this_users_home(glauber, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GLAUBER_CACHE", f"{tmp_path}/models")
    code, out, err = glauber("doctor", "--quick")
    assert code == 0 and err == ""
    assert "GLAUBER_CACHE      ~/models, not there yet, writable" in out
    assert str(tmp_path) not in out and socket.gethostname() not in out.split()
    assert "self-test left out" in out and "lines marked - are notes" in out.splitlines()[-2]


def test_damaged_and_missing_files_of_the_package_are_found(tmp_path, monkeypatch):
    (tmp_path / "models" / "one").mkdir(parents=True)
    for name in ("whole", "changed", "gone"):
        (tmp_path / "models" / "one" / name).write_bytes(b"weights")
    sums = [
        f"{doctor.checksum(p)}  models/one/{p.name}\n" for p in tmp_path.rglob("*") if p.is_file()
    ]
    (tmp_path / "SUMS").write_text("".join(sorted(sums)))
    monkeypatch.setattr(doctor, "PACKAGE", tmp_path)
    monkeypatch.setattr(doctor, "SUMS", tmp_path / "SUMS")
    assert list(doctor.check_bundled()) == [("one", "3 files as released", "")]
    (tmp_path / "models/one/changed").write_bytes(b"Weights")
    (tmp_path / "models/one/gone").unlink()
    ((name, said, state),) = doctor.check_bundled()
    assert state == "failed" and "changed differs" in said and "gone is missing" in said


def carried():
    """The files whose checksums `data/SHA256SUMS` lists: models and data, without their words."""
    every = [*doctor.PACKAGE.glob("models/[et]*/*"), *doctor.PACKAGE.glob("data/*")]
    return sorted(path for path in every if path.suffix != ".md" and path != doctor.SUMS)


def test_the_checksums_are_of_what_the_package_carries():
    listed = dict(reversed(line.split("  ")) for line in doctor.SUMS.read_text().splitlines())
    there = {str(p.relative_to(doctor.PACKAGE)): doctor.checksum(p) for p in carried()}
    assert listed == there, (
        "cd src/glauber && find models/[et]*/* data/* -type f ! -name '*.md' ! -name SHA256SUMS | "
        "LC_ALL=C sort | xargs sha256sum > data/SHA256SUMS"
    )


def test_a_cache_that_cannot_be_written_is_worth_knowing(monkeypatch):
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(doctor, "_existing", lambda path: Path("/proc"))
    assert {state for _, _, state in doctor._caches()} == {"note"}


def test_an_offline_hub_is_worth_knowing(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    states = {name: (value, state) for name, value, state in doctor._caches()}
    assert states["HF_HUB_OFFLINE"] == ("is set: no model is fetched from the hub", "note")


def test_a_checkout_is_told_from_a_copy(monkeypatch, tmp_path):
    class Installed:
        def read_text(self, name):
            return json.dumps({"url": (tmp_path / "a b").as_uri(), "dir_info": {"editable": True}})

    monkeypatch.setattr(doctor.metadata, "distribution", lambda name: Installed())
    monkeypatch.setattr(doctor, "PACKAGE", tmp_path / "a b" / "src" / "glauber")
    assert doctor._installation().startswith("editable checkout in")
    monkeypatch.setattr(doctor, "PACKAGE", tmp_path / "copy" / "glauber")
    assert doctor._installation().endswith("not installed")
    monkeypatch.setattr(doctor, "PACKAGE", tmp_path / "site-packages" / "glauber")
    assert doctor._installation().startswith("installed in")


def test_a_section_that_fails_is_a_line_and_the_others_stay(monkeypatch):
    def fails():
        raise OSError("gone")

    monkeypatch.setattr(doctor, "SECTIONS", {"one": fails, "two": lambda: [("a", "b", "")]})
    found = list(doctor.facts())
    assert found == [
        Fact("one", "one", "cannot be found out: OSError: gone", "failed"),
        Fact("two", "a", "b"),
    ]
    assert Checkup(found, [], 0.0, "glauber:0").exit_code == 1
    assert Checkup(found[1:], [], 0.0, "glauber:0").exit_code == 0
