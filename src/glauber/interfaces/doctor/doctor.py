"""A check of this machine: what is installed, what it can do, and whether it computes correctly.

Nothing here may raise: what cannot be found out is a line that says so. So nothing heavy is
imported before it is needed, and a package that is missing or broken is a fact like any other.
"""

import faulthandler
import hashlib
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple
from urllib.parse import unquote, urlparse

from glauber.foundation.extras import EXTRAS, missing
from glauber.foundation.json_text import Record, parse_json
from glauber.foundation.progress import memory, usable_cores
from glauber.foundation.study import Result, counted, plain, study

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

PACKAGE = Path(__file__).resolve().parents[2]
SUMS = PACKAGE / "data" / "SHA256SUMS"  # as sha256sum writes it
ESSENTIAL = ["torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", "pyarrow"]
FURTHER = ["huggingface_hub", "sentencepiece", "xarray", "arviz", "h5netcdf", "pandas", "plotly"]
FURTHER += ["jinja2", "typer", "rich", "tqdm"]


class Fact(NamedTuple):
    """One line about the machine."""

    section: str
    name: str
    value: str
    state: str = ""  # "", note (works, but is worth knowing) or failed


class Check(NamedTuple):
    """One line of the self-test."""

    name: str
    device: str
    passed: bool
    number: float | None  # None: an exception
    limit: float | None
    result: str
    seconds: float


@study
def doctor(
    *,
    quick: Annotated[bool, "Leave out the self-test, which takes about ten seconds."] = False,
) -> "Checkup":
    """Check this machine: versions, devices, caches, extras, and a self-test of the engine.

    The self-test compares chains with the exact transition matrix and stationary distribution of a
    small model, our forward pass with transformers', batches with each other, and a resumed run
    with one that was never stopped, on every device there is. What is printed can be pasted into a
    bug report as it is. The command's exit code is 1 if something failed. It needs no network, and
    leaves no files.
    """
    with suppress(Exception):  # where a broken build of a package kills Python, say where
        faulthandler.enable(sys.__stderr__ or sys.stderr)
    start = time.perf_counter()
    lines = list(facts())
    checks = [] if quick else _self_test()
    return Checkup(lines, checks, time.perf_counter() - start, _signature(lines))


@dataclass(frozen=True, eq=False)
class Checkup(Result):
    """Facts about the machine and the checks of the self-test; seconds are of both together."""

    facts: list[Fact]
    checks: list[Check]  # none where it was left out
    seconds: float
    signature: str

    @property
    def failures(self) -> list[str]:
        """What failed, by name."""
        wrong = [fact.name for fact in self.facts if fact.state == "failed"]
        return wrong + [
            f"{check.name} ({check.device})" for check in self.checks if not check.passed
        ]

    @property
    def exit_code(self) -> int:
        return 1 if self.failures else 0

    def to_dict(self) -> Record:
        sections: dict[str, dict[str, str]] = {}
        for fact in self.facts:
            sections.setdefault(fact.section, {})[fact.name] = fact.value
        return {
            "facts": sections,
            "notes": [fact.name for fact in self.facts if fact.state == "note"],
            "self_test": plain(self.checks),
            "failed": self.failures,
            "seconds": self.seconds,
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        section = ""
        for fact in self.facts:
            if fact.section != section:
                section = fact.section
                yield section
            mark = {"": " ", "note": "-", "failed": "!"}[fact.state]
            yield f" {mark}{fact.name:<18} {fact.value}"
        yield "self-test" if self.checks else "self-test left out"
        for check in self.checks:
            mark, verdict = (" ", "passed") if check.passed else ("!", "failed")
            yield f" {mark}{verdict}  {check.device}: {check.name}, {check.result}"
        if self.failures:
            yield f"Failed: {', '.join(self.failures)}"
        else:
            passed = f"All {counted(len(self.checks), 'check')} passed; " if self.checks else ""
            yield f"{passed}lines marked - are notes ({self.seconds:.0f} s)"

    def frame(self) -> "pandas.DataFrame":
        """One row per check, or per fact where the self-test was left out."""
        import pandas

        return pandas.DataFrame(self.checks or self.facts)

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.chart import Chart

        figure = Chart("Self-test", "seconds of each check")
        names = [f"{check.name}, {check.device}" for check in self.checks]
        figure.add_bar(x=[check.seconds for check in self.checks], y=names, orientation="h")
        figure.update_xaxes(title="seconds")
        return {"self_test": figure}


def _self_test() -> list[Check]:
    try:
        from glauber.interfaces.doctor.self_test import self_test

        return self_test()
    except Exception as error:  # no torch, or a broken one
        return [Check("torch", "cpu", False, None, None, reason(error), 0.0)]


def _signature(facts: list[Fact]) -> str:
    """The versions that matter most; unlike `result.signature`, also where torch is missing."""
    from glauber import __version__

    torch = next((fact.value for fact in facts if fact.name == "torch"), "missing")
    return f"study:doctor|glauber:{__version__}|torch:{torch.partition(',')[0]}"


# ---- facts

Lines = Iterator[tuple[str, str, str]]  # name, value and state


def facts() -> Iterator[Fact]:
    """Everything that can be said without computing."""
    for section, lines in SECTIONS.items():
        try:
            for name, value, state in lines():
                yield Fact(section, name, tidy(value), state)
        except Exception as error:
            yield Fact(section, section, f"cannot be found out: {reason(error)}", "failed")


def reason(error: BaseException) -> str:
    """An exception in one line, without this user's home."""
    first = (str(error).strip().splitlines() or [""])[0][:200]
    return tidy(f"{type(error).__name__}: {first}" if first else type(error).__name__)


def tidy(text: str) -> str:
    """The text with ~ in place of the home folder: it is meant for a public bug report."""
    for home in {str(Path.home()), os.path.realpath(Path.home())}:
        if len(home) > 1:
            text = text.replace(home, "~")
    return text


def _versions() -> Lines:
    from glauber import __version__

    yield "glauber", f"{__version__}, {_installation()}", ""
    build = platform.python_implementation()
    yield "python", f"{platform.python_version()} ({build}, {sys.executable})", ""
    for name in ESSENTIAL:
        try:
            version = str(getattr(import_module(name), "__version__", None) or _version(name))
            yield name, version, ""
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a broken build may raise anything
            yield name, f"{_version(name)}, cannot be imported: {reason(error)}", "failed"
    versions = {name: _version(name) for name in FURTHER}
    further = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield "further", further, "failed" if "missing" in versions.values() else ""


def _installation() -> str:
    """Where this package is, and whether it is a checkout."""
    if any(part in ("site-packages", "dist-packages") for part in PACKAGE.parts):
        return f"installed in {PACKAGE}"
    with suppress(Exception):  # not installed, or by a tool that writes no such file
        record = parse_json(metadata.distribution("glauber").read_text("direct_url.json") or "{}")
        checkout = Path(unquote(urlparse(record["url"]).path))
        if record["dir_info"]["editable"] and checkout in PACKAGE.parents:
            return f"editable checkout in {PACKAGE}"
    return f"from {PACKAGE}, not installed"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except Exception:
        return "missing"


def _machine() -> Lines:
    yield "system", f"{platform.system()} {platform.release()}, {platform.machine()}", ""
    processor = _proc("cpuinfo", "model name") or platform.processor() or "unknown"
    cores = f"{os.cpu_count()} cores, of which {usable_cores()} may be used"
    yield "cpu", f"{processor}, {cores}", ""
    for name, value in (("threads", _threads), ("memory", _memory)):
        try:
            yield name, value(), ""
        except Exception as error:  # the other lines are still useful
            yield name, f"cannot be found out: {reason(error)}", "note"


def _proc(file: str, name: str) -> str:
    """The value of a name in a file of /proc, where there is one."""
    with suppress(OSError):
        for line in Path("/proc", file).read_text(encoding="utf-8").splitlines():
            if line.lower().startswith(name):
                return line.partition(":")[2].strip()
    return ""


def _threads() -> str:
    import torch

    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    limits = [f", {name}={os.environ[name]}" for name in names if name in os.environ]
    return f"torch {torch.get_num_threads()}{''.join(limits)}"


def _memory() -> str:
    available = _proc("meminfo", "memavailable").removesuffix(" kB")
    free = f", {int(available) / 2**20:.1f} free" if available else ""
    return f"{memory() / 2**30:.1f} GiB{free}"


def devices() -> list[str]:
    """The devices that torch can use, by the names that `--device` takes."""
    import torch

    names = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    return [*names, "mps"] if torch.backends.mps.is_available() else names


def _devices() -> Lines:
    import torch

    for name in devices():
        if name == "cpu":
            yield name, f"torch computes by {torch.backends.cpu.get_cpu_capability()}", ""
        elif name == "mps":
            yield name, "Apple's GPU", ""
        else:
            card = torch.cuda.get_device_properties(name)
            size = f"{card.total_memory / 2**30:.1f} GiB"
            capability = f"compute capability {card.major}.{card.minor}"
            yield name, f"{card.name}, {size}, {capability}, CUDA {torch.version.cuda}", ""
    cuda = torch.cuda.is_available()
    if torch.version.cuda and not cuda:
        build = f"torch is built for CUDA {torch.version.cuda}"
        yield "cuda", f"none can be used, though {build}", "note"
    try:
        from glauber.models.forward.encoder_int8 import check_machine

        check_machine()
        yield "int8", "products of bytes are exact here: --dtype int8 works", ""
    except Exception as error:
        yield "int8", reason(error), "note"
    yield _triton(cuda)


def _triton(cuda: bool) -> tuple[str, str, str]:
    if find_spec("triton") is None:
        loss = "steps on the GPU are slower" if cuda else "only CUDA devices use it"
        return "triton", f"not installed; {loss}", "note" if cuda else ""
    try:
        version = str(import_module("triton").__version__)
    except Exception as error:
        return "triton", f"cannot be imported: {reason(error)}", "failed" if cuda else "note"
    return "triton", version if cuda else f"{version}, not used without CUDA", ""


def _caches() -> Lines:
    from glauber.models.shelf import cache_home

    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folders = {
        "GLAUBER_CACHE": cache_home(),
        "HF_HOME": Path(os.environ.get("HF_HOME") or home / "huggingface").expanduser(),
        "temporary": Path(tempfile.gettempdir()),
    }
    for name, folder in folders.items():
        state = "" if folder.is_dir() else ", not there yet"
        try:  # to create a file: permissions alone do not tell
            tempfile.TemporaryFile(dir=_existing(folder)).close()
            yield name, f"{folder}{state}, writable", ""
        except OSError:
            yield name, f"{folder}{state}, cannot be written", "note"
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE"):
            yield name, "is set: no model is fetched from the hub", "note"


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())


def _extras() -> Lines:
    distributions = metadata.packages_distributions()
    for extra, modules in EXTRAS.items():
        if missing(extra):
            yield extra, f"not installed: pip install 'glauber[{extra}]'", ""
            continue
        names = [distributions.get(module, [module])[0] for module in modules]
        yield extra, ", ".join(f"{name} {_version(name)}" for name in names), ""


def check_bundled() -> Lines:
    """Whether each folder of models or data of the package is as it was released."""
    expected = [line.split() for line in SUMS.read_text().splitlines()]
    for folder in sorted({Path(name).parent for _, name in expected}):
        files = {Path(name): digest for digest, name in expected if Path(name).parent == folder}
        wrong = [
            f"{name.name} {'differs' if (PACKAGE / name).is_file() else 'is missing'}"
            for name, digest in files.items()
            if checksum(PACKAGE / name) != digest
        ]
        if wrong:
            yield folder.name, f"damaged, install glauber again: {', '.join(wrong)}", "failed"
        else:
            yield folder.name, f"{len(files)} files as released", ""


def checksum(path: Path) -> str:
    """SHA-256 of a file; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


SECTIONS: dict[str, Callable[[], Lines]] = {
    "versions": _versions,
    "machine": _machine,
    "devices": _devices,
    "caches": _caches,
    "extras": _extras,
    "in the package": check_bundled,
}
