"""Run folders that were made to read, write or delete elsewhere, to run code, or to hang."""

import contextlib
import io
import json
import os
import pickle
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glauber.runs.folder_log import ArrayTable, encode
from resealed import committed_to, digest, record_of, reseal

HERE = Path(__file__).parent
EVENTS, STATE, TAIL = "events/00000000.parquet", "states/00000001.parquet", "tail-00000027.parquet"
CODE = "import pathlib\npathlib.Path({!r}).write_text('code was run')\n"
Craft = Callable[[Path, Path], object]  # a run, and a folder outside of it


def respecify(run: Path, **entries: Any) -> None:
    """Other entries in the spec."""
    reseal(run, spec=record_of(run)["spec"] | entries)


def put(run: Path, name: str, content: bytes) -> None:
    """Other bytes in a file, with a digest that fits."""
    (run / name).write_bytes(content)
    name_file(run, name, digest(content))


def name_file(run: Path, name: str, value: str = "0" * 32) -> None:
    """Another name among the files of run.json."""
    reseal(run, files=record_of(run)["files"] | {name: value})


def recode(run: Path, name: str, **changes: Any) -> None:
    """Other columns or entries of the footer in a Parquet file, with digests that fit."""
    table = ArrayTable((run / name).read_bytes())
    columns = {column: table.column(column) for column in table._file.schema_arrow.names}
    about = table.about | changes.pop("about", {})
    columns |= {column: change(columns[column]) for column, change in changes.items()}
    put(
        run, name, encode({c: values for c, values in columns.items() if values is not None}, about)
    )


def rewrite(run: Path, name: str, change: Callable[[pa.Table], pa.Table], **options: Any) -> None:
    """Another Arrow table in a Parquet file, with its old footer."""
    buffer = io.BytesIO()
    pq.write_table(change(pq.read_table(run / name)), buffer, **options)
    put(run, name, buffer.getvalue())


def with_footer(run: Path, name: str, footer: bytes) -> None:
    rewrite(run, name, lambda table: table.replace_schema_metadata({"glauber": footer}))


def bomb(run: Path, name: str, parts: int) -> None:
    """A few kilobytes that say that they are very many equal rows."""
    table = pq.read_table(run / name)
    many = table.take(pa.array(np.zeros(10**5, np.int64)))
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, table.schema, compression="zstd") as writer:
        for _ in range(parts):
            writer.write_table(many)
    put(run, name, buffer.getvalue())


def extension(table: pa.Table, outside: Path) -> pa.Table:
    """A column of a type whose metadata is a pickle that writes a file."""

    class Evil:
        def __reduce__(self) -> Any:
            return exec, (CODE.format(str(outside / "ran")),)

    name = b"arrow.py_extension_type"
    metadata = {b"ARROW:extension:name": name, b"ARROW:extension:metadata": pickle.dumps(Evil())}
    fields = [field.with_metadata(metadata) for field in table.schema]
    return table.cast(pa.schema(fields, table.schema.metadata))


def link(name: str) -> Craft:
    """A symbolic link in the place of a part of the run, to the same thing outside."""

    def craft(run: Path, outside: Path) -> None:
        target = outside / name.replace("/", "-")
        if (run / name).exists():
            (run / name).rename(target)
        else:
            target.write_bytes(b"something else")
        (run / name).symlink_to(target)

    return craft


def hard_link(name: str) -> Craft:
    def craft(run: Path, outside: Path) -> None:
        target = outside / name.replace("/", "-")
        shutil.copy(run / name, target)
        (run / name).unlink()
        os.link(target, run / name)

    return craft


def instead(name: str, make: Callable[[Path], object]) -> Craft:
    """Something else in the place of a file."""

    def craft(run: Path, outside: Path) -> None:
        (run / name).unlink(missing_ok=True)
        make(run / name)

    return craft


def make_device(path: Path) -> None:
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        os.mkfifo(path)


def make_socket(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)  # names of sockets are short


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


def foreign_tokenizer(run: Path, outside: Path) -> None:
    """A tokenizer that is read by its own code."""
    folder = run / "tokenizer"
    for path in folder.iterdir():
        path.unlink()
    config = {"auto_map": {"AutoTokenizer": ["code.Evil", None]}, "tokenizer_class": "Evil"}
    files = {
        "tokenizer_config.json": json.dumps(config),
        "config.json": json.dumps({"model_type": "evil", "auto_map": {"AutoConfig": "code.Evil"}}),
        "code.py": CODE.format(str(outside / "ran")) + "class Evil:\n    pass\n",
    }
    files_of_run = record_of(run)["files"]
    kept = {n: value for n, value in files_of_run.items() if not n.startswith("tokenizer/")}
    reseal(run, files=kept)
    for name, text in files.items():
        put(run, f"tokenizer/{name}", text.encode())


def lose_manifest(craft: Craft) -> Craft:
    """The same without run.json, which is then rebuilt from the footers."""

    def craft_without(run: Path, outside: Path) -> None:
        craft(run, outside)
        (run / "run.json").unlink()

    return craft_without


def long_segment(run: Path, outside: Path) -> None:
    """One segment of very many steps, whose file has a few events."""
    name = f"tail-{10**15}.parquet"
    recode(run, TAIL, about={"first": 0, "last": 10**15})
    (run / TAIL).rename(run / name)
    name_file(run, name, digest((run / name).read_bytes()))
    respecify(run, steps=10**15)
    reseal(run, steps=10**15, segment_steps=10**16)


LINKS = [
    "run.json", "lock", "start.parquet", "events", EVENTS, "states", STATE, TAIL,
    "tail-00000099.parquet", "events/00000009.parquet", "events/.x.glauber-draft", "tokenizer",
    "tokenizer/tokenizer.json", "tokenizer/more.json", "notes.txt",
]  # fmt: skip
NAMES = ["../outside/letter", "/etc/passwd", "tokenizer/../../outside/letter", "tokenizer/.hidden",
         "tokenizer/a\nb", "tokenizer/\ud800", "tokenizer/a\0b", "events/../run.json",
         "tokenizer/ʎɹʇǝoԀ"]  # fmt: skip
PARQUET: dict[str, Craft] = {
    "no Parquet": lambda run, outside: put(run, EVENTS, b"PAR1" + b"\0" * 99 + b"PAR1"),
    "no columns": lambda run, outside: rewrite(run, EVENTS, lambda table: table.select(["step"])),
    "strings": lambda run, outside: rewrite(
        run, TAIL, lambda table: table.cast(
            pa.schema([pa.field(n, pa.string()) for n in table.column_names], table.schema.metadata)
        )
    ),
    "missing values": lambda run, outside: rewrite(
        run, TAIL, lambda table: pa.table(
            {n: pa.nulls(len(table), table.schema.field(n).type) for n in table.column_names}
        ).replace_schema_metadata(table.schema.metadata)
    ),
    "another length": lambda run, outside: recode(run, STATE, tokens=lambda v: v[:, :3].copy()),
    "another number of chains": lambda run, outside: recode(run, STATE, tokens=lambda v: v[:2]),
    "no free site": lambda run, outside: recode(run, "start.parquet", free=np.zeros_like),
    "negative tokens": lambda run, outside: recode(run, "start.parquet", tokens=lambda v: v - 99),
    "unknown tokens": lambda run, outside: recode(run, "start.parquet", tokens=lambda v: v + 10**9),
    "negative sites": lambda run, outside: recode(run, EVENTS, site=lambda v: v - 99),
    "distant sites": lambda run, outside: recode(run, EVENTS, site=lambda v: v + 10**6),
    "distant chains": lambda run, outside: recode(run, TAIL, chain=lambda v: v + 10**6,
                                                  step=lambda v: v - 99),
    "distant steps": lambda run, outside: recode(run, EVENTS, about={"last": 10**15}),
    "other steps": lambda run, outside: recode(run, TAIL, about={"first": -5, "last": "x"}),
    "a list as footer": lambda run, outside: with_footer(run, TAIL, b"[1, 2]"),
    "a deep footer": lambda run, outside: with_footer(run, "start.parquet", b"[" * 10**5),
    "a foreign spec": lambda run, outside: recode(run, TAIL, about={"spec": {"steps": "many"}}),
    "a pickle": lambda run, outside: rewrite(run, TAIL, lambda table: extension(table, outside)),
    "many events": lambda run, outside: bomb(run, TAIL, 20),
    "many chains": lambda run, outside: bomb(run, "start.parquet", 2),
}  # fmt: skip
WITHOUT_MANIFEST = [
    "strings", "another length", "distant sites", "distant steps", "other steps",
    "a list as footer", "a deep footer", "a foreign spec", "many events",
]  # fmt: skip
CASES: dict[str, Craft] = {
    **{f"a link: {name}": link(name) for name in LINKS},
    **{f"a name: {name!a}": lambda run, outside, name=name: name_file(run, name) for name in NAMES},
    **PARQUET,
    **{f"{name}, no run.json": lose_manifest(PARQUET[name]) for name in WITHOUT_MANIFEST},
    "very many steps": lambda run, outside: reseal(run, steps=10**15),
    "very many steps planned": lambda run, outside: respecify(run, steps=10**15),
    "a very long segment": long_segment,
    "segments of a step": lambda run, outside: reseal(run, segment_steps=1),
    "very many chains": lambda run, outside: (
        respecify(run, chains=10**9), reseal(run, chains=10**9)
    ),
    "very many slots": lambda run, outside: reseal(run, slots=10**9),
    "a number without an end": lambda run, outside: reseal(run, format=float("inf")),
    "a number of 4,000 digits": lambda run, outside: reseal(run, steps=10**4000),
    "a deep manifest": lambda run, outside: (run / "run.json").write_text("[" * 10**5),
    "a call that is a list": lambda run, outside: reseal(run, call=[1]),
    "a call without a name": lambda run, outside: reseal(run, call={"study": 3, "arguments": {}}),
    "a call of no study": lambda run, outside: reseal(
        run, call={"study": "__getattr__", "arguments": {"name": "x"}}
    ),
    "a call of odd arguments": lambda run, outside: reseal(
        run, call={"study": "sample", "arguments": {"texts": [3], "allow": {"x": {}}, "bias": 3}}
    ),
    "a seed of 30 digits": lambda run, outside: respecify(run, seed=10**30),
    "no temperature": lambda run, outside: respecify(run, temperature=float("nan")),
    "an unknown scan": lambda run, outside: respecify(run, scan="../../x", within="x", fill="x"),
    "an unknown way to redraw": lambda run, outside: respecify(run, within="x"),
    "an unknown device": lambda run, outside: respecify(run, device="cuda:99", dtype="x"),
    "a model elsewhere": lambda run, outside: respecify(run, model="/dev/stdin"),
    "a tokenizer with code": foreign_tokenizer,
    "a tokenizer of noise": lambda run, outside: put(run, "tokenizer/tokenizer.json", b"\xff" * 99),
    "a hard link: lock": hard_link("lock"),
    "a hard link: run.json": hard_link("run.json"),
    "a hard link: events": hard_link(EVENTS),
    "a hard link: tail": hard_link(TAIL),
    "a pipe: run.json": instead("run.json", os.mkfifo),
    "a pipe: lock": instead("lock", os.mkfifo),
    "a pipe: start": instead("start.parquet", os.mkfifo),
    "a pipe: tail": instead(TAIL, os.mkfifo),
    "a pipe: another tail": instead("tail-00000002.parquet", os.mkfifo),
    "a pipe: tokenizer": instead("tokenizer/tokenizer_config.json", os.mkfifo),
    "a device": instead(EVENTS, make_device),
    "a socket": instead(STATE, make_socket),
    "a folder": instead("run.json", Path.mkdir),
    "a terabyte": instead(TAIL, make_sparse),
    "a terabyte: run.json": instead("run.json", make_sparse),
}  # fmt: skip
HARMLESS = [
    "a hard link: lock", "a hard link: run.json", "a hard link: events", "a hard link: tail",
    "a pipe: another tail", "a foreign spec", "a pickle", "a call of no study",
    "a call of odd arguments",
    "distant chains",  # of a segment without empty slots only the fields are read
]  # fmt: skip


def tree(folder: Path) -> dict[str, Any]:
    """Everything in a folder: kinds, bytes and times of change."""
    entries = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
        entries[str(path)] = status.st_mode, status.st_mtime_ns, content
    return entries


def fill_outside(outside: Path) -> None:
    """Files with the names that a writer of a run removes, among others."""
    outside.mkdir(parents=True)
    for name in ("letter", "00000009.parquet", "tail-00000003.parquet", ".x.glauber-draft"):
        (outside / name).write_bytes(b"not of the run")


@pytest.fixture(scope="module")
def results(stored: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What every operation came to on every folder, and what it did to the folder outside."""
    home = tmp_path_factory.mktemp("crafted")
    outside, base = home / "outside", home / "base"
    fill_outside(outside)
    shutil.copytree(stored, base)
    committed_to(base, 27)
    folders = {}
    for number, (name, craft) in enumerate(CASES.items()):
        folders[name] = shutil.copytree(base, home / f"{number:03}" / "run")
        inside = outside / f"{number:03}"
        fill_outside(inside)
        craft(folders[name], inside)
    before = tree(outside)
    command = [
        sys.executable,
        str(HERE / "crafted_operations.py"),
        str(outside),
        str(base),
        *folders.values(),
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=environment) as process:  # fmt: skip
        lines = [json.loads(line) for line in process.stdout]
    assert len(lines) == len(CASES)
    after = tree(outside)
    results = dict(zip(CASES, lines, strict=True))
    changed = [path for path in {*before, *after} if before.get(path) != after.get(path)]
    for number, name in enumerate(CASES):
        results[name]["changed"] = [path for path in changed if f"outside/{number:03}" in path]
    return results


@pytest.mark.parametrize("case", CASES)
def test_a_crafted_run_does_no_harm(case, results):
    result = results[case]
    assert not result["changed"] and not result["violations"], result["violations"]
    assert result["status"] == 0, f"hung or crashed after {list(result['results'])}"
    for operation, outcome in result["results"].items():
        assert outcome["result"] != "broke down", f"{operation}: {outcome['sentence']}"
        if outcome["result"] == "refused":
            assert "\n" not in outcome["sentence"] and outcome["sentence"].endswith(".")
    assert result["memory"] < 2 * 2**30
    refused = [name for name, item in result["results"].items() if item["result"] == "refused"]
    if case in HARMLESS:
        assert not refused
    elif case.startswith("a link"):
        assert {"resume", "repair"} <= {*refused}
        sentences = [result["results"][name]["sentence"] for name in refused]
        assert all("symbolic link" in text or "damaged" in text for text in sentences)
    elif not case.endswith("no run.json"):
        assert {"resume", "read", "vocabulary"} & {*refused}
