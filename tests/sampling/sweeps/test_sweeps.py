"""A sweep gives the same cells wherever it runs, and whatever happens on the way."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from glauber.foundation.errors import GlauberError
from glauber.sampling.sweeps.executors import choose_executor, run_sweep, tasks
from glauber.sampling.sweeps.folder import Sweep, begin, grid, read_sweep, results
from glauber.studies.mixing import phase
from waiting import until


@pytest.fixture
def small(tiny_folder, texts):
    """A sweep over the tiny model."""
    rows = [{"text": text, "id": "", "number": i} for i, text in enumerate(texts, 1)]
    arguments = {
        "model": str(tiny_folder),
        "device": "cpu",
        "dtype": "float32",
        "texts": rows,
        "pairs": 5,
        "steps": 7,
        "sweeps": None,
        "seed": 3,
        "coupling": "maximal",
    }
    return Sweep("phase", arguments, {"length": [2, 4], "temperature": [0.3, 1.0, 4.0]})


def work_of(sweep):
    return partial(phase.open_cells, sweep.arguments)


def unfinished(folder):
    return [cell for cell in read_sweep(folder).cells if cell.name not in results(folder)]


@pytest.fixture
def expected(small, tmp_path):
    """Its cells, run in this process."""
    begin(tmp_path / "plain", small)
    return run_sweep(tmp_path / "plain", work_of(small))


def test_cells_are_what_a_plain_coupling_gives(small, expected):
    """Each cell by itself, so in other batches, gives what the packed batch gave."""
    work = work_of(small)()
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

    found = run_sweep(
        folder, work_of(small), executor=choose_executor("processes", workers=2), progress=kill_once
    )
    assert killed and found == expected


def fatal_work(victim, folder):
    """Work in which the process dies on one cell, and on another the first time."""

    def work(cells):
        for cell in cells:
            once = folder / "died"
            if cell.values["x"] == victim or (cell.values["x"] == 2 and not once.exists()):
                once.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield cell, {"square": cell.values["x"] ** 2}

    return work


def test_a_cell_that_kills_every_worker_ends_the_sweep(tmp_path):
    """Another cell that kills one worker does not; what was finished is kept."""
    sweep = Sweep("squares", {}, {"x": list(range(6))})
    begin(tmp_path / "s", sweep)
    with pytest.raises(GlauberError, match="workers died 3 times without finishing a cell"):
        run_sweep(
            tmp_path / "s",
            partial(fatal_work, 1, tmp_path),
            executor=choose_executor("processes", workers=1),
        )
    kept = results(tmp_path / "s")
    assert [one["x"] for one in kept.values()] == [2, 3, 4, 5]  # the last cells come first
    heard = []
    found = run_sweep(
        tmp_path / "s",
        partial(fatal_work, None, tmp_path),
        progress=lambda *now: heard.append(now),
    )
    assert [one["square"] for one in found.values()] == [0, 1, 4, 9, 16, 25]
    assert heard == [(4, 6), (5, 6), (6, 6)]


def slow_work(folder):
    def work(cells):
        for cell in cells:
            (folder / f"pid-{os.getpid()}").touch()
            threading.Event().wait(600)
            yield cell, {}

    return work


@pytest.mark.parametrize("ended", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_the_process_that_began_them(ended, tmp_path):
    """Killed or interrupted, at once: not when their cells are finished."""
    begin(tmp_path / "s", Sweep("slow", {}, {"x": [1, 2]}))
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from functools import partial; from pathlib import Path\n"
        "from test_sweeps import slow_work\n"
        "from glauber.sampling.sweeps.executors import choose_executor, run_sweep\n"
        "if __name__ == '__main__':\n"
        "    folder = Path(sys.argv[1])\n"
        "    executor = choose_executor('processes', workers=2)\n"
        "    run_sweep(folder / 's', partial(slow_work, folder), executor=executor)\n"
    )
    script = tmp_path / "run.py"
    script.write_text(code)
    parent = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), *map(str, Path(__file__).parents[:3])],
        stderr=subprocess.DEVNULL,
    )
    until(lambda: len(list(tmp_path.glob("pid-*"))) == 2)
    pids = [int(path.name.partition("-")[2]) for path in tmp_path.glob("pid-*")]
    parent.send_signal(ended)
    parent.wait(timeout=120)
    until(lambda: not any(map(is_running, pids)))


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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
        run_sweep(folder, work_of(small), progress=stop)
    kept = results(folder)
    assert len(kept) == 2 and len(unfinished(folder)) == 4
    heard = []
    begin(folder, small)  # the same command again
    found = run_sweep(folder, work_of(small), progress=lambda *now: heard.append(now))
    assert found == expected and heard[0] == (2, 6) and heard[-1] == (6, 6)
    assert {name: found[name] for name in kept} == kept


def test_a_study_that_cannot_begin_is_one_sentence(small, tmp_path):
    wrong = Sweep(small.study, small.arguments | {"model": "/nowhere"}, small.axes)
    for number, executor in enumerate(
        (choose_executor("local"), choose_executor("processes", workers=1))
    ):
        begin(tmp_path / str(number), wrong)
        with pytest.raises(GlauberError, match="nowhere"):
            run_sweep(tmp_path / str(number), work_of(wrong), executor=executor)


def test_another_sweep_is_not_written_over(small, tmp_path):
    begin(tmp_path / "s", small)
    with pytest.raises(GlauberError, match="another sweep"):
        begin(tmp_path / "s", Sweep(small.study, small.arguments | {"seed": 4}, small.axes))
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
        packed = tasks(cells, n_tasks)
        assert [cell for task in reversed(packed) for cell in task] == cells
        assert len(packed) == min(n_tasks, 12)
        sizes = [len(task) for task in packed]
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
        choose_executor(**how)


def test_a_ray_address_that_does_not_answer(tiny_folder, source, tmp_path):
    words = f"phase --model {tiny_folder} --from {source} --on ray --address 127.0.0.1:1"
    done = subprocess.run(
        [sys.executable, "-c", "from glauber.interfaces.cli import main; main()", *words.split(),
         "--lengths", "2", "--out", str(tmp_path / "s")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and done.stdout == ""
    said = "glauber: no Ray cluster answers at 127.0.0.1:1; finished cells are kept."
    assert done.stderr.splitlines()[-1] == said
    assert len(unfinished(tmp_path / "s")) == 7


HEADERS = {
    "unknown study": {"study": "os:system"},
    "a function that is no study": {"study": "allow_long"},
    "a study without cells": {"study": "couple"},
    "a study of pieces": {"study": "paper"},
    "a study that is a list": {"study": ["coalescence"]},
    "an axis that is a path": {"axes": {"../../x": [1, 2]}},
    "an axis of texts": {"axes": {"length": ["a/b"], "temperature": [1.0]}},
    "an axis that is a text": {"axes": {"length": "123"}},
    "an axis that the study lacks": {"axes": {"width": [1, 2]}},
    "arguments that are a list": {"arguments": [1]},
    "arguments that lack the model": {"arguments": {}},
    "a format of words": {"format": "new"},
    "another format": {"format": 1},
}


@pytest.mark.parametrize("case", HEADERS)
def test_foreign_headers_end_in_one_sentence(case, small, tmp_path):
    from glauber.sampling.sweeps.cells import resume, status

    begin(tmp_path / "s", small)
    header = tmp_path / "s" / "sweep.json"
    header.write_text(json.dumps(json.loads(header.read_text()) | HEADERS[case]))
    with pytest.raises(GlauberError) as caught:
        status(tmp_path / "s")
        resume(tmp_path / "s")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "s" / "cells").iterdir())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"seed": None}, "damaged"),
        ({"seed": 10**30}, "seed is"),
        ({"pairs": -1}, "at least 1"),
        ({"pairs": "x"}, "damaged"),
        ({"pairs": True}, "damaged"),
        ({"steps": []}, "damaged"),
        ({"steps": 10**30}, "is not possible"),
        ({"sweeps": "x"}, "damaged"),
        ({"coupling": None}, "damaged"),
        ({"coupling": "magic"}, "must be one of"),
        ({"texts": "abc"}, "another sweep"),
        ({"texts": [{"text": "abc"}]}, "texts are wrong"),
        ({"texts": 3}, "texts are wrong"),
        ({"model": 3}, "damaged"),
        ({"trust_remote_code": True}, "without code of its own"),
        ({"surprise": 1}, "phase takes no surprise"),
    ],
)
def test_arguments_that_no_sweep_has_end_in_one_sentence(wrong, said, small, tmp_path):
    """The study's own parameters and checks decide."""
    from glauber.sampling.sweeps.cells import resume

    begin(tmp_path / "s", small)
    header = tmp_path / "s" / "sweep.json"
    content = json.loads(header.read_text())
    header.write_text(json.dumps(content | {"arguments": content["arguments"] | wrong}))
    with pytest.raises(GlauberError, match=said):
        resume(tmp_path / "s")
    assert not list((tmp_path / "s" / "cells").iterdir())


def test_a_sweep_of_another_study_is_resumed_by_that_study(small, expected, tmp_path):
    from glauber.sampling.sweeps.cells import resume

    begin(tmp_path / "s", small)
    found = resume(tmp_path / "s")
    assert not found.left and results(tmp_path / "s") == expected


def test_a_sweep_of_runs_with_frozen_sites(tiny_folder, texts, tmp_path):
    from glauber.runs.cite import cite
    from glauber.runs.run import Run
    from glauber.sampling.sweeps.cells import resume, sample, status

    options = dict(temperatures=[0.5, 2.0], lengths=[4], chains=3, steps=12, freeze="0-1")
    found = sample(str(tiny_folder), texts, out=tmp_path / "s", device="cpu", **options)
    assert [cell["temperature"] for cell in found.cells] == [0.5, 2.0] and not found.left
    run = Run(tmp_path / "s" / found.cells[1]["run"])
    assert run.free.sum(axis=1).tolist() == [2, 2, 2] and run.first_site == 1
    assert run.spec.frozen == [0, 1] and run.temperatures.tolist() == [2.0] * 3
    (command,) = cite(run).commands[-1:]
    assert "--temperature 2.0" in command and "--length 4 --freeze 0,1" in command
    (tmp_path / "s" / "cells" / "length-4_temperature-2.json").unlink()
    assert status(tmp_path / "s").left == ["length-4_temperature-2"]
    assert resume(tmp_path / "s").cells == found.cells


def test_damaged_folders(small, tmp_path):
    begin(tmp_path / "s", small)
    (tmp_path / "s" / "cells" / f"{small.cells[0].name}.json").write_text("{")
    with pytest.raises(GlauberError, match="damaged"):
        results(tmp_path / "s")
    header = tmp_path / "s" / "sweep.json"
    header.write_text(json.dumps({"format": 2}))
    with pytest.raises(GlauberError, match="an entry of sweep"):
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
    assert unfinished(new) == [] and results(new) == expected
