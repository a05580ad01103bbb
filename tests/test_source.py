"""What the source never does: run a stranger's code, read stdin for permission, assume Linux."""

import ast
import json
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import usable_cores
from glauber.models.vocabulary import Text, Vocabulary
from glauber.sampling.sweeps.executors import choose_executor

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "glauber"
OPENED = "how"  # keyword arguments that contain trust_remote_code


@lru_cache
def nodes(folder: Path = SOURCE) -> list[tuple[str, ast.AST]]:
    """The expressions and assignments of all modules in a folder, with their places."""
    return [
        (f"{path.relative_to(folder)}:{node.lineno}", node)
        for path in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.expr | ast.Assign)
    ]


def test_every_from_pretrained_says_whether_code_may_run() -> None:
    silent = []
    calls = 0
    for place, node in nodes():
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr == "from_pretrained":
            calls += 1
            passed_through = [
                isinstance(word.value, ast.Name) and word.value.id == OPENED
                for word in node.keywords
                if word.arg is None
            ]
            named = any(word.arg == "trust_remote_code" for word in node.keywords)
            if not named and not any(passed_through):
                silent.append(place)
    assert calls >= 8 and not silent


def test_nothing_asks_a_question_on_stdin() -> None:
    asking = [
        place
        for place, node in nodes()
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("input", "breakpoint")
    ]
    assert not asking


def test_one_function_counts_the_cores() -> None:
    names = ("sched_getaffinity", "process_cpu_count")
    users = {
        place.partition(":")[0]
        for place, node in nodes()
        if isinstance(node, ast.Attribute) and node.attr in names
    }
    assert users == {"foundation/progress.py"}


@pytest.mark.parametrize("missing", [(), ("process_cpu_count",), ("sched_getaffinity",)])
def test_cores_are_counted_on_any_system(
    missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("process_cpu_count", *missing):
        monkeypatch.delattr(os, name, raising=False)
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
    assert choose_executor("processes") is not None


def test_a_tokenizer_with_code_of_its_own_is_refused_without_running_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    config = {
        "tokenizer_class": "Mine",
        "auto_map": {"AutoTokenizer": ["code.Mine", None]},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "mine"}))
    (folder / "code.py").write_text(f"open({str(ran)!r}, 'w')\nclass Mine: pass\n")

    def answer(*_: object) -> str:
        ran.touch()
        return "y"

    monkeypatch.setattr("builtins.input", answer)
    for kind in (Text, Vocabulary):
        with pytest.raises(GlauberError, match="cannot be read"):
            kind.open(folder)
    assert not ran.exists()


READERS_OF_OWN_JSON = {  # what glauber or the page has just written; the server limits depth itself
    "interfaces/explorer/server.py",
    "foundation/disk.py",
}


def test_files_of_json_are_read_in_one_place() -> None:
    """There, a file that is nested too deeply is damaged like any other."""
    readers = {
        place.partition(":")[0]
        for place, node in nodes()
        if isinstance(node, ast.Attribute)
        and node.attr in ("load", "loads")
        and isinstance(node.value, ast.Name)
        and node.value.id == "json"
    }
    assert readers - READERS_OF_OWN_JSON == {"foundation/json_text.py"}


MINUTE = 60
LIMITED = ("wait", "join", "communicate", "acquire", "result", "alarm", "create_connection")
SLEEPING = ("sleep", "wait_for_timeout", "sched_yield")
CLOCKS = ("monotonic", "perf_counter")
WAITING = "waiting.py"  # polls until a condition holds, with a limit of its own
LIMIT_NAMES = ("SECONDS", "MILLISECONDS", "PATIENCE", "TIMEOUT", "DEADLINE")


def limits(node: ast.AST) -> Iterator[float]:
    """The numbers of seconds or milliseconds after which a line of a test gives up."""
    values: list[ast.expr] = []
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        values += [word.value for word in node.keywords if word.arg == "timeout"]
        values += node.args if name in LIMITED else []
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        values += [node.value] if node.targets[0].id in LIMIT_NAMES else []
    for value in values:
        if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
            yield value.value


def test_no_test_waits_for_less_than_a_minute() -> None:
    """On a busy machine, what takes milliseconds may take many seconds."""
    short = [
        place
        for place, node in nodes(TESTS)
        if not place.startswith(WAITING) and any(0 < limit < MINUTE for limit in limits(node))
    ]
    assert not short
    assert [*limits(ast.parse("child.wait(2)").body[0].value)] == [2]  # type: ignore[attr-defined]


def test_no_test_sleeps_or_compares_clocks() -> None:
    impatient = [
        place
        for place, node in nodes(TESTS)
        if isinstance(node, ast.Attribute)
        and node.attr in (*SLEEPING, *CLOCKS)
        and not place.startswith(WAITING)
    ]
    assert not impatient
