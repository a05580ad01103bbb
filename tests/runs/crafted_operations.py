"""What can be done with run folders, each in a process of its own that is watched.

python crafted_operations.py OUTSIDE SOUND RUN...

Everything is done with the run SOUND first, so that all modules are imported. Prints a line of JSON
for every other run: what each operation came to, and what the process did that it must not do: read
or write in the folder OUTSIDE, start a program, or ask for input.
"""

import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers  # noqa: F401

import glauber
from glauber.foundation.errors import GlauberError
from glauber.runs.run import Run

SECONDS = 60  # an operation that takes longer hangs
MEMORY = 3 * 2**30  # bytes that an operation may reserve
CODE = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "builtins.input",
    "socket.connect",
)


def read_everything(folder: Path) -> None:
    run = Run(folder)
    for name in run.fields:
        run.read(name)
    run.free, run.tokens(), run.tokens(0), list(run.states(5)), run.temperatures, str(run)


OPERATIONS: dict[str, Callable[[Path], object]] = {
    "open": lambda folder: str(Run(folder).signature),
    "read": read_everything,
    "vocabulary": lambda folder: Run(folder).model_vocabulary,
    "show": lambda folder: str(glauber.show(folder)),
    "cite": lambda folder: str(glauber.cite(folder)),
    "verify": lambda folder: str(glauber.verify(folder)),
    "resume": lambda folder: str(glauber.resume(folder)),
    "repair": lambda folder: str(glauber.repair(folder)),
    "resume again": lambda folder: str(glauber.resume(folder)),
}


def watch(outside: Path, report: Callable[[str], None]) -> None:
    """Report what this process must not do."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in CODE:
            report(f"{event} {args[0]}")
        if event == "open" and isinstance(args[0], str | bytes | os.PathLike):
            path = Path(os.path.realpath(os.fsdecode(args[0])))
            if outside in (path, *path.parents):
                report(f"opens {path}")

    sys.addaudithook(hook)


def operate(folder: Path, outside: Path, handle: int) -> None:
    """Do everything with a run; each result is a line of JSON."""

    def report(**entries: object) -> None:
        os.write(handle, json.dumps(entries).encode() + b"\n")

    watch(outside, lambda what: report(violation=what))
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))
    for name, operation in OPERATIONS.items():
        signal.alarm(SECONDS)
        try:
            operation(folder)
            report(operation=name, result="done")
        except GlauberError as error:
            report(operation=name, result="refused", sentence=str(error))
        except BaseException:
            report(operation=name, result="broke down", sentence=traceback.format_exc())
    report(memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def main() -> None:
    outside, sound, *folders = map(Path, sys.argv[1:])
    torch.set_num_threads(1)
    for operation in OPERATIONS.values():  # everything is imported once
        operation(sound)
    for folder in folders:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            operate(folder, outside, write)
            os._exit(0)
        os.close(write)
        with open(read, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        _, status = os.waitpid(child, 0)
        result = {line["operation"]: line for line in lines if "operation" in line}
        violations = [line["violation"] for line in lines if "violation" in line]
        memory = next((line["memory"] for line in lines if "memory" in line), None)
        print(json.dumps({"status": status, "results": result, "violations": violations,
                          "memory": memory}), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
