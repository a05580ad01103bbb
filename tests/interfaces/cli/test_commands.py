"""Every command, as a user types it, on a tiny model."""

import itertools
import json
import os
import signal
import subprocess
import sys

import pytest

from glauber.foundation import progress
from glauber.foundation.disk import digest
from glauber.interfaces.cli import main
from glauber.runs.run import Run

BIN = [sys.executable, "-c", "from glauber.interfaces.cli import main; main()"]


@pytest.fixture
def run(glauber, tiny_folder, source, tmp_path):
    words = ["--model", tiny_folder, "--from", source, "--steps", 40, "--out", tmp_path / "run"]
    assert glauber("sample", *words)[0] == 0
    return tmp_path / "run"


def test_sample_prints_one_json_object(glauber, tiny_folder, source, tmp_path):
    code, out, err = glauber(
        "sample", "--model", tiny_folder, "--from", source, "--chains", 7, "--length", 4,
        "--steps", 30, "--temperature", 1.5, "--seed", 9, "--batch-size", 3, "--device", "cpu",
        "--dtype", "float64", "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    told = json.loads(out)
    assert code == 0 and err == ""
    assert (told["chains"], told["steps"], told["finished"]) == (7, 30, True)
    assert told["texts"][2] == Run(tmp_path / "run").text(2)
    spec = json.loads((tmp_path / "run" / "run.json").read_text())["spec"]
    assert (spec["temperature"], spec["seed"], spec["dtype"]) == (1.5, 9, "float64")


def test_sample_says_what_became_of_the_texts(glauber, tiny_folder, source, tmp_path):
    code, out, _ = glauber(
        "sample", "--model", tiny_folder, "--from", source, "--steps", 20, "--out", tmp_path / "r"
    )
    assert code == 0
    assert "began  the cat sat on the mat." in out
    assert "model:" in out and "|seed:0|" in out.replace("\n", "")


def test_a_run_without_a_name_gets_one(glauber, tiny_folder, source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--model", tiny_folder, "--from", source, "--steps", 3, "--temperature", 0.5, "--json"]
    for number in (1, 2):
        told = json.loads(glauber("sample", *words)[1])
        assert told["run"] == f"runs/tiny-t0.5-s0-{number}" and Run(told["run"]).finished


def test_a_command_that_is_not_there_names_the_nearest(glauber):
    code, _, err = glauber("sampel")
    assert code == 2 and err == "glauber: there is no command 'sampel'; did you mean sample?\n"
    code, _, err = glauber("ising", "xyzzy")
    assert code == 2 and "no command 'xyzzy'" in err and "--help" in err


def test_a_run_of_days_must_be_allowed(glauber, tiny_folder, source, tmp_path, monkeypatch):
    monkeypatch.setattr("glauber.foundation.progress.JUDGED_AFTER", 0.0)
    monkeypatch.setattr("glauber.foundation.progress.LONGEST", 1e-6)
    monkeypatch.setattr("glauber.sampling.advance.REPORT_SECONDS", 0.0)
    words = ["--model", tiny_folder, "--from", source, "--steps", 9, "--out", tmp_path / "run"]
    code, _, err = glauber("sample", *words)
    assert code == 2 and "hours" in err and "--yes" in err
    assert not (tmp_path / "run").exists()  # no step was committed yet
    assert glauber("sample", *words, "--yes")[0] == 0 and Run(tmp_path / "run").finished


def test_a_run_of_days_is_refused_before_it_begins(
    glauber, tiny_folder, source, tmp_path, monkeypatch
):
    """By the rate of a few steps, long before the rate of the run itself is believed."""
    monkeypatch.setattr("glauber.foundation.progress.LONGEST", 1e-6)
    monkeypatch.setattr("glauber.sampling.sample.MEASURED_STEPS", 9)
    words = ["--model", tiny_folder, "--from", source, "--steps", 9, "--out", tmp_path / "run"]
    code, out, err = glauber("sample", *words)
    assert (code, out) == (2, "") and "hours" in err and "--yes" in err
    assert not (tmp_path / "run").exists()
    assert glauber("sample", *words, "--yes")[0] == 0 and Run(tmp_path / "run").finished
    code, _, err = glauber("extend", tmp_path / "run", "--steps", 30)
    assert code == 2 and "hours" in err and Run(tmp_path / "run").steps == 9


@pytest.mark.parametrize(("seconds", "kept"), [(30.0, False), (3000.0, True)])
def test_a_run_that_is_refused_in_its_first_minute_leaves_nothing(
    glauber, tiny_folder, source, tmp_path, monkeypatch, seconds, kept
):
    """Also if steps were committed; what took longer is kept."""
    judge = progress.judge

    def judge_later(what, spent, done, total):
        judge(what, seconds if done > 5 else 0.0, done, total)

    monkeypatch.setattr("glauber.foundation.progress.LONGEST", 1e-6)
    monkeypatch.setattr("glauber.foundation.progress.judge", judge_later)
    monkeypatch.setattr("glauber.sampling.advance.REPORT_SECONDS", 0.0)
    monkeypatch.setattr("glauber.sampling.advance.COMMIT_SECONDS", 0.0)
    words = ["--model", tiny_folder, "--from", source, "--steps", 9, "--out", tmp_path / "run"]
    code, _, err = glauber("sample", *words)
    assert code == 2 and "hours" in err
    assert (tmp_path / "run").exists() == kept
    assert not kept or Run(tmp_path / "run").steps > 0


def test_ctrl_c_ends_any_command_with_130_and_a_line(glauber, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    for words in (["doctor", "--quick"], ["ising", "separation"], ["models"]):
        monkeypatch.setattr("glauber.interfaces.cli.command.show", interrupted)
        assert glauber(*words) == (130, "", "glauber: stopped.\n")


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("can't start new thread", "no room for another thread"),
        ("DefaultCPUAllocator: can't allocate memory: 8 bytes", "memory is too small"),
    ],
)
def test_a_machine_without_room_is_one_sentence(glauber, monkeypatch, said, sentence):
    def fail(*_, **__):
        raise RuntimeError(said)

    monkeypatch.setattr("glauber.interfaces.cli.command.show", fail)
    code, out, err = glauber("ising", "separation")
    assert (code, out, err.count("\n")) == (2, "", 1) and sentence in err


def test_other_faults_are_not_hidden(monkeypatch):
    monkeypatch.setattr("glauber.interfaces.cli.group.app", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        main()

    def fail():
        raise RuntimeError("something else")

    monkeypatch.setattr("glauber.interfaces.cli.group.app", fail)
    with pytest.raises(RuntimeError, match="something else"):
        main()


def test_a_prefix_is_never_redrawn(glauber, tiny_folder, source, tmp_path):
    code, out, _ = glauber(
        "sample", "--model", tiny_folder, "--from", source, "--prefix", "they will be", "--length",
        3, "--steps", 80, "--temperature", 5, "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert code == 0
    assert all(text.startswith("they will be") for text in json.loads(out)["texts"])
    assert Run(tmp_path / "run").free.sum(axis=1).tolist() == [3] * 5


def test_frozen_sites_are_never_redrawn(glauber, tiny_folder, source, tmp_path):
    glauber(
        "sample", "--model", tiny_folder, "--from", source, "--freeze", "0,2", "--steps", 80,
        "--out", tmp_path / "run",
    )  # fmt: skip
    run = Run(tmp_path / "run")
    assert not set(run.read("site").flatten().tolist()) & {0, 1, 3}
    assert run.spec.frozen == [0, 2]


def test_resume_and_extend(glauber, run):
    code, out, _ = glauber("extend", run, "--steps", 55, "--json")
    assert code == 0 and json.loads(out)["steps"] == 55
    assert json.loads(glauber("resume", run, "--json")[1])["finished"]
    code, _, err = glauber("extend", run, "--steps", 10)
    assert code == 2 and "new total" in err


def test_show_marks_what_changed(glauber, run):
    snapshots = json.loads(glauber("show", run, "--chain", 1, "--every", 10, "--json")[1])[
        "snapshots"
    ]
    opened = Run(run)
    assert [snapshot["step"] for snapshot in snapshots] == [0, 10, 20, 30, 40]
    for before, after in itertools.pairwise(snapshots):
        old, new = opened.tokens(before["step"])[1], opened.tokens(after["step"])[1]
        assert after["changed"] == [i - 1 for i in (old != new).nonzero()[0].tolist()]
    assert "the old tree" in glauber("show", run, "--chain", 1, "--rows", 3)[1]


@pytest.mark.parametrize("to", ["arviz", "parquet", "jsonl", "text"])
def test_export(glauber, run, tmp_path, to):
    code, out, _ = glauber("export", run, "--to", to, "--out", tmp_path / "file", "--json")
    assert code == 0
    assert json.loads(out)["bytes"] == (tmp_path / "file").stat().st_size > 0


# Commits often, and says so in a line of its own.
COMMITTING = """
import os, sys
from glauber.interfaces.cli import main
from glauber.sampling import advance
advance.COMMIT_SECONDS = 0.1
def hook(event, args):
    if event == "os.rename" and str(args[1]).endswith("run.json"):
        os.write(2, b"\\ncommitted\\n")
sys.addaudithook(hook)
main()
"""


def test_ctrl_c_stops_cleanly_and_resume_goes_on(tiny_folder, source, tmp_path):
    """The signal is sent when the run has begun to commit; nothing waits for a clock."""
    folder = tmp_path / "run"
    words = ["sample", "--model", str(tiny_folder), "--from", str(source), "--steps", "100000"]
    words += ["--yes"]  # on a busy machine its first steps may look like days
    lines = []
    with subprocess.Popen(
        [sys.executable, "-c", COMMITTING, *words, "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    ) as child:
        try:
            while line := child.stderr.readline():
                lines.append(line)
                if line == b"committed\n" and folder.is_dir() and Run(folder).steps > 0:
                    child.send_signal(signal.SIGINT)
                    break
            out, err = (said.decode() for said in child.communicate())
        finally:
            child.kill()
    assert child.returncode == 130, (lines[-5:], err)
    assert f"resume with: glauber resume {folder}" in out
    assert "Traceback" not in err
    stopped = Run(folder)
    assert 0 < stopped.steps < 100_000 and not stopped.finished


BAD = {
    "empty text": (["--from", "EMPTY"], "holds no text"),
    "missing file": (["--from", "NOWHERE"], "cannot be read"),
    "too long": (["--from", "LONG"], "at most 38"),
    "temperature zero": (["--temperature", "0"], "positive finite"),
    "temperature negative": (["--temperature", "-1"], "positive finite"),
    "temperature nan": (["--temperature", "nan"], "positive finite"),
    "temperature infinite": (["--temperature", "inf"], "positive finite"),
    "steps negative": (["--steps", "-3"], "at least 0"),
    "chains zero": (["--chains", "0"], "at least 1"),
    "length zero": (["--length", "0"], "at least 1"),
    "length beyond": (["--length", "30"], "no starting text has 30"),
    "seed negative": (["--seed", "-1"], "between 0"),
    "unknown model": (["--model", "nobody/nothing"], "give the path of its folder"),
    "unknown bundled": (["--model", "bundled:klingon"], "bundled:english"),
    "no mask token": (["--model", "NO_MASK"], "no mask token"),
    "no head": (["--model", "NO_HEAD"], "no masked-LM head"),
    "not a model": (["--model", "EMPTY_FOLDER"], "holds no"),
    "prefix freezes all": (["--freeze", "0,1,2,3", "--length", "4"], "text is frozen"),
    "site outside": (["--freeze", "9", "--length", "4"], "cannot be frozen"),
    "not sites": (["--freeze", "x"], "not a list of sites"),
    "existing folder": (["--out", "EMPTY_FOLDER"], "exists already"),
    "unwritable folder": (["--out", "/proc/nowhere/run"], "MB left"),
    "file in the way": (["--out", "TEXTS/run"], "cannot be made"),
    "unknown scan": (["--scan", "zigzag"], "must be one of"),
    "block too large": (["--scan", "block:9", "--length", "4"], "at least 9 free sites"),
    "unknown within": (["--within", "sideways"], "must be one of"),
    "unknown fill": (["--fill", "dice"], "must be one of"),
    "unknown device": (["--device", "abacus"], "cannot be used"),
    "unknown dtype": (["--dtype", "int3"], "must be one of"),
    "batch size zero": (["--batch-size", "0"], "at least 1"),
    "chains of no machine": (["--chains", "1000000000"], "GiB of memory"),
    "steps of no disk": (["--steps", "1000000000000000"], "MB left"),
    "steps of no run": (["--steps", "1" + "0" * 18], "is not possible"),
    "memo of no machine": (["--memo", "1000000000"], "GiB of memory"),
    "no name": (["--out", ""], "no name"),
    "the root": (["--out", "/"], "no name"),
    "a name too long": (["--out", "x" * 300], "too long"),
    "temperatures too few": (["--temperature", "1,2", "--chains", "3"], "2 temperatures"),
    "an unknown token": (["--forbid", "birdd"], "not a single token"),
    "an unknown allowed token": (["--allow", "0:birdd"], "not a single token"),
    "no change": (["--max-changes", "0"], "no token could ever change"),
    "a bias without a number": (["--bias", "0:the"], "no list of biases"),
    "a tie of one": (["--tie", "3"], "ties no sites"),
}  # fmt: skip


@pytest.fixture(scope="session")
def places(tmp_path_factory, tiny_folder):
    """Folders and files that are wrong in one way each."""
    import shutil

    import transformers

    import conftest

    root = tmp_path_factory.mktemp("places")
    (root / "empty.txt").write_text("\n  \n")
    (root / "long.txt").write_text("the cat " * 40)
    (root / "texts.txt").write_text("\n".join(conftest.TEXTS))
    (root / "empty").mkdir()
    words = conftest.make_tokenizer()
    words.mask_token = None
    shutil.copytree(tiny_folder, root / "no-mask")
    words.save_pretrained(root / "no-mask")
    transformers.BertModel(conftest.make_config("bert")).save_pretrained(root / "no-head")
    conftest.make_tokenizer().save_pretrained(root / "no-head")
    config = transformers.GPT2Config(vocab_size=48, n_embd=8, n_layer=1, n_head=1, n_positions=40)
    transformers.GPT2LMHeadModel(config).save_pretrained(root / "causal")
    conftest.make_tokenizer().save_pretrained(root / "causal")
    return {
        "EMPTY": root / "empty.txt", "LONG": root / "long.txt", "NOWHERE": root / "nowhere.txt",
        "EMPTY_FOLDER": root / "empty", "NO_MASK": root / "no-mask", "NO_HEAD": root / "no-head",
        "CAUSAL": root / "causal", "TEXTS/run": root / "texts.txt" / "run",
    }  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_sentence(case, glauber, tiny_folder, source, tmp_path, places):
    given, expected = BAD[case]
    defaults = {"--model": tiny_folder, "--from": source, "--steps": 10, "--out": tmp_path / "run"}
    given = dict(zip(given[::2], given[1::2], strict=True))
    words = [str(places.get(x, x)) for pair in (defaults | given).items() for x in pair]
    before = sorted(tmp_path.rglob("*"))
    code, out, err = glauber("sample", *words)
    assert code == 2 and out == ""
    assert expected in err
    assert err.startswith("glauber: ") and err.count("\n") == 1 and "Traceback" not in err
    assert sorted(tmp_path.rglob("*")) == before  # nothing is half-written


def damage(run, how):
    if how == "not json":
        (run / "run.json").write_text("{")
    elif how == "newer":
        record = json.loads((run / "run.json").read_text()) | {"format": 99}
        del record["digest"]
        seal = digest(json.dumps(record, sort_keys=True).encode())
        (run / "run.json").write_text(json.dumps(record | {"digest": seal}))
    elif how == "earlier":
        (run / "events.zarr").mkdir()
    elif how == "no start":
        (run / "start.parquet").unlink()
    elif how == "no manifest":
        (run / "run.json").unlink()
    elif how == "segment lost":
        next((run / "events").iterdir()).unlink()
    elif how == "segment garbled":
        path = next((run / "events").iterdir())
        path.write_bytes(path.read_bytes()[:-9] + b"123456789")


@pytest.mark.parametrize("command", ["show", "resume", "extend"])
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("not json", "damaged"),
        ("newer", "newer glauber"),
        ("earlier", "sample it again"),
        ("no start", "damaged"),
        ("no manifest", "run.json is missing"),
        ("segment lost", "damaged"),
        ("segment garbled", "damaged"),
    ],
)
def test_damaged_runs_are_refused(how, expected, command, glauber, run):
    damage(run, how)
    more = ["--steps", 60] if command == "extend" else []
    code, _, err = glauber(command, run, *more)
    assert code == 2, err
    assert expected in err and err.count("\n") == 1


def test_other_bad_input(glauber, run, tmp_path):
    for words, expected in (
        (("show", run, "--chain", 9), "no chain 9"),
        (("show", run, "--rows", 0), "at least 1"),
        (("show", tmp_path), "not a run"),
        (("export", run, "--to", "excel", "--out", tmp_path / "x"), "must be one of"),
        (("export", run, "--to", "text", "--out", tmp_path / "no" / "x"), "cannot be written"),
    ):
        code, _, err = glauber(*words)
        assert code == 2 and expected in err and err.count("\n") == 1


@pytest.mark.parametrize("silent", [True, False])
def test_an_answer_decides_the_exit_code(silent, capsys):
    import typer

    from glauber.foundation.study import Result, study
    from glauber.interfaces.cli.command import command

    class Wrong(Result):
        signature, exit_code = "glauber:0", 1
        to_dict = dict
        lines = list

    @study
    def verdict() -> Wrong:
        """Say that something is wrong."""
        return Wrong()

    with pytest.raises(typer.Exit) as ended:
        command(verdict)(json=silent, yes=False, out=None)
    assert ended.value.exit_code == 1  # after the answer was printed
    printed = capsys.readouterr().out
    if silent:
        assert json.loads(printed) == {"call": {"study": "verdict", "arguments": {}}}
    else:
        assert printed == "glauber:0\n"
