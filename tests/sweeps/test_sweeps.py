"""A sweep gives the same cells wherever it runs, and whatever happens on the way."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from glauber.errors import GlauberError
from glauber.mixing import phase
from glauber.sweeps.executor import executor_named, in_processes, run_sweep
from glauber.sweeps.folder import Sweep, begin, grid, left, pack, read_sweep, results


@pytest.fixture
def small(tiny_folder, texts):
    """A sweep over the tiny model."""
    settings = {
        "model": str(tiny_folder), "device": "cpu", "dtype": "float32", "texts": texts, "pairs": 5,
        "steps": 7, "sweeps": None, "seed": 3, "coupling": "maximal",
    }  # fmt: skip
    return Sweep(phase.STUDY, settings, {"length": [2, 4], "temperature": [0.3, 1.0, 4.0]})


@pytest.fixture
def expected(small, tmp_path):
    """Its cells, run in this process."""
    begin(tmp_path / "plain", small)
    return run_sweep(tmp_path / "plain")


def test_cells_are_what_a_plain_coupling_gives(small, expected, tmp_path):
    """Each cell by itself, so in other batches, gives what the packed batch gave."""
    work = phase.open_cells(small.settings, tmp_path)
    for cell in small.cells:
        ((_, alone),) = work([cell])
        assert expected[cell.name] == {**cell.values, **alone}
    shares = {name: sum(one["met"]) for name, one in expected.items()}
    assert shares["length-2_temperature-4"] > shares["length-4_temperature-4"]  # short ones meet
    assert min(shares.values()) < 5


def test_a_ray_cluster_gives_the_same_cells_and_survives_a_killed_worker(small, expected, tmp_path):
    begin(tmp_path / "ray", small)
    script = Path(__file__).parent / "on_ray.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "ray")], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr
    assert results(tmp_path / "ray") == expected


def test_two_processes_give_the_same_cells_and_survive_a_kill(small, expected, tmp_path):
    """Kills a worker process once two cells are kept."""
    folder = tmp_path / "killed"
    begin(folder, small)
    killed = []

    def kill_once(done, total):
        if done == 2 and not killed:
            children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
            workers = [int(c) for c in children if b"spawn_main" in _command(int(c))]
            killed.append(workers[0])
            os.kill(workers[0], signal.SIGKILL)

    found = run_sweep(folder, executor=in_processes(2), progress=kill_once)
    assert killed and found == expected


def _command(process):
    return Path(f"/proc/{process}/cmdline").read_bytes()


def test_a_stopped_sweep_goes_on(small, expected, tmp_path):
    folder = tmp_path / "stopped"
    begin(folder, small)

    class Stop(Exception):
        pass

    def stop(done, total):
        if done == 2:
            raise Stop

    with pytest.raises(Stop):
        run_sweep(folder, progress=stop)
    kept = results(folder)
    assert len(kept) == 2 and len(left(folder)) == 4
    heard = []
    begin(folder, small)  # the same command again
    found = run_sweep(folder, progress=lambda *now: heard.append(now))
    assert found == expected and heard[0] == (2, 6) and heard[-1] == (6, 6)
    assert {name: found[name] for name in kept} == kept


def test_a_study_that_cannot_begin_is_one_sentence(small, tmp_path):
    wrong = Sweep(small.study, small.settings | {"model": "/nowhere"}, small.axes)
    for number, executor in enumerate((executor_named("local"), in_processes(1))):
        begin(tmp_path / str(number), wrong)
        with pytest.raises(GlauberError, match="nowhere"):
            run_sweep(tmp_path / str(number), executor=executor)


def test_another_sweep_is_not_written_over(small, tmp_path):
    begin(tmp_path / "s", small)
    with pytest.raises(GlauberError, match="another sweep"):
        begin(tmp_path / "s", Sweep(small.study, small.settings | {"seed": 4}, small.axes))
    assert read_sweep(tmp_path / "s") == small
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(GlauberError, match="not a sweep"):
        begin(tmp_path / "full", small)


@pytest.mark.parametrize(
    ("axes", "words"),
    [({}, "no axis"), ({"length": []}, "empty"), ({"length": [2, 2]}, "twice")],
)
def test_grids_that_are_refused(axes, words):
    with pytest.raises(GlauberError, match=words):
        grid(axes)


def test_tasks_hold_every_cell_once():
    cells = grid({"length": [1, 2, 3], "temperature": [0.5, 1.0, 1.5, 2.0]})
    for n_tasks in (1, 5, 12, 40):
        tasks = pack(cells, n_tasks)
        assert [cell for task in tasks for cell in task] == cells
        assert len(tasks) == min(n_tasks, 12)
        sizes = [len(task) for task in tasks]
        assert max(sizes) - min(sizes) <= 1
    assert len({cell.seed(0) for cell in cells}) == 12


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"on": "moon"}, "must be one of"),
        ({"on": "processes", "workers": 0}, "at least 1"),
        ({"on": "local", "address": "ray://x:1"}, "for ray"),
    ],
)
def test_executors_that_are_refused(how, words):
    with pytest.raises(GlauberError, match=words):
        executor_named(**how)


def test_a_ray_address_that_does_not_answer(tiny_folder, source, tmp_path):
    words = f"phase --model {tiny_folder} --from {source} --on ray --address 127.0.0.1:1"
    done = subprocess.run(
        [sys.executable, "-c", "from glauber.cli import main; main()", *words.split(),
         "--lengths", "2", "--out", str(tmp_path / "s")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and done.stdout == ""
    said = "glauber: no Ray cluster answers at 127.0.0.1:1; finished cells are kept."
    assert done.stderr.splitlines()[-1] == said
    assert len(left(tmp_path / "s")) == 7


HEADERS = {
    "unknown study": {"study": "os:system"},
    "a study of another module": {"study": "glauber.progress:say"},
    "a study that is a list": {"study": ["coalescence"]},
    "an axis that is a path": {"axes": {"../../x": [1, 2]}},
    "an axis of texts": {"axes": {"length": ["a/b"], "temperature": [1.0]}},
    "an axis that is a text": {"axes": {"length": "123"}},
    "settings that are a list": {"settings": [1]},
    "settings that lack the model": {"settings": {}},
    "a format of words": {"format": "new"},
}


@pytest.mark.parametrize("case", HEADERS)
def test_foreign_headers_end_in_one_sentence(case, small, tmp_path):
    from glauber.sweeps.cells import resume, status

    begin(tmp_path / "s", small)
    header = tmp_path / "s" / "sweep.json"
    header.write_text(json.dumps(json.loads(header.read_text()) | HEADERS[case]))
    with pytest.raises(GlauberError) as caught:
        status(tmp_path / "s")
        resume(tmp_path / "s")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "s" / "cells").iterdir())


@pytest.mark.parametrize(
    "wrong",
    [{"seed": None}, {"seed": 10**30}, {"pairs": -1}, {"pairs": "x"}, {"steps": []},
     {"steps": 10**30}, {"sweeps": "x"}, {"coupling": None}, {"texts": "abc"}, {"model": 3}],
)  # fmt: skip
def test_settings_that_no_sweep_has_end_in_one_sentence(wrong, small, tmp_path):
    begin(tmp_path / "s", small)
    header = tmp_path / "s" / "sweep.json"
    found = json.loads(header.read_text())
    header.write_text(json.dumps(found | {"settings": found["settings"] | wrong}))
    with pytest.raises(GlauberError, match="is damaged: "):
        run_sweep(tmp_path / "s")


def test_a_sweep_of_runs_with_frozen_sites(tiny_folder, texts, tmp_path):
    from glauber.runs.run import Run
    from glauber.sweeps.cells import resume, sample, status

    options = dict(temperatures=[0.5, 2.0], lengths=[4], chains=3, steps=12, freeze="0-1")
    found = sample(str(tiny_folder), texts, out=tmp_path / "s", device="cpu", **options)
    assert [cell["temperature"] for cell in found.cells] == [0.5, 2.0] and not found.left
    run = Run(tmp_path / "s" / found.cells[1]["run"])
    assert run.free.sum(axis=1).tolist() == [2, 2, 2] and run.first_site == 1
    assert run.spec.frozen == [0, 1] and run.temperatures.tolist() == [2.0] * 3
    (tmp_path / "s" / "cells" / "length-4_temperature-2.json").unlink()
    assert status(tmp_path / "s").left == ["length-4_temperature-2"]
    assert resume(tmp_path / "s").cells == found.cells


def test_sweeps_of_the_first_version_still_open(small, expected, tmp_path):
    """They named the study and two of its settings otherwise."""
    folder = tmp_path / "old"
    begin(folder, small)
    header = json.loads((folder / "sweep.json").read_text())
    settings = header["settings"]
    settings |= {"budget": settings.pop("steps"), "how": settings.pop("coupling")}
    (folder / "sweep.json").write_text(json.dumps(header | {"study": "coalescence"}))
    assert read_sweep(folder) == small and run_sweep(folder) == expected


def test_damaged_folders(small, tmp_path):
    begin(tmp_path / "s", small)
    (tmp_path / "s" / "cells" / f"{small.cells[0].name}.json").write_text("{")
    with pytest.raises(GlauberError, match="damaged"):
        results(tmp_path / "s")
    header = tmp_path / "s" / "sweep.json"
    header.write_text(json.dumps({"format": 1}))
    with pytest.raises(GlauberError, match="lacks entries"):
        read_sweep(tmp_path / "s")
    header.unlink()
    with pytest.raises(GlauberError, match="not a sweep"):
        read_sweep(tmp_path / "s")


def test_a_header_of_many_brackets_is_one_sentence(tmp_path, glauber):
    (tmp_path / "sweep.json").write_text("[" * 100_000)
    code, out, err = glauber("sweep", "status", tmp_path)
    assert (code, out, err.count("\n")) == (2, "", 1) and "is damaged" in err


def test_the_advice_for_a_damaged_header_loses_no_cell(small, expected, tmp_path):
    """It asks nobody to delete anything; what it recommends gives the same results."""
    old, new = tmp_path / "plain", tmp_path / "new"
    (old / "sweep.json").write_text("{")
    with pytest.raises(GlauberError) as refusal:
        read_sweep(old)
    assert "delete" not in str(refusal.value) and "new folder" in str(refusal.value)
    begin(new, small)
    shutil.copytree(old / "cells", new / "cells", dirs_exist_ok=True)
    assert left(new) == [] and results(new) == expected
