"""What is here: versions, the machine and its devices, caches, extras, the files of the package.

Nothing here may raise: what cannot be found out is a line that says so. So nothing heavy is
imported before it is needed, and a package that is missing or broken is a fact like any other.
"""

import hashlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlparse

from glauber.extras import EXTRAS, missing
from glauber.json_text import parse_json
from glauber.progress import memory, usable_cores

PACKAGE = Path(__file__).resolve().parent.parent
SUMS = PACKAGE / "data" / "SHA256SUMS"  # as sha256sum writes it
ESSENTIAL = ["torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", "pyarrow"]
FURTHER = ["huggingface_hub", "sentencepiece", "xarray", "arviz", "h5netcdf", "pandas", "plotly"]
FURTHER += ["jinja2", "typer", "rich", "tqdm"]
# CPU features for products of bytes, one of which int8 needs; the fastest first.
BYTE_PRODUCTS = ("amx_int8", "avx512_vnni", "avx_vnni", "i8mm", "asimddp")


class Fact(NamedTuple):
    """One line of the report."""

    section: str
    name: str
    value: str
    state: str = ""  # "", note (works, but is worth knowing) or failed


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


def _line(name: str, value: Callable[[], str]) -> tuple[str, str, str]:
    """A line without which the others of its section are still useful."""
    try:
        return name, value(), ""
    except Exception as error:
        return name, f"cannot be found out: {reason(error)}", "note"


# ---- versions


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


# ---- machine and devices


def _machine() -> Lines:
    yield "system", f"{platform.system()} {platform.release()}, {platform.machine()}", ""
    processor = _proc("cpuinfo", "model name") or platform.processor() or "unknown"
    cores = f"{os.cpu_count()} cores, of which {usable_cores()} may be used"
    yield "cpu", f"{processor}, {cores}", ""
    yield _line("threads", _threads)
    yield _line("memory", _memory)
    yield _line("disk", _disk)


def _proc(file: str, *names: str) -> str:
    """The value of the first of these names in a file of /proc, where there is one."""
    with suppress(OSError):
        for line in Path("/proc", file).read_text(encoding="utf-8").splitlines():
            if line.lower().startswith(names):
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


def _disk() -> str:
    from glauber.conditionals.shelf import cache_home

    usage = shutil.disk_usage(_existing(cache_home()))
    return f"{usage.free / 1e9:.1f} GB free of {usage.total / 1e9:.1f} where the cache is"


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())


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
        built = f"torch is built for CUDA {torch.version.cuda}"
        yield "cuda", f"none can be used, though {built}", "note"
    yield _byte_products()
    yield _triton(cuda)


def _byte_products() -> tuple[str, str, str]:
    from glauber.conditionals.forward.encoder_int8 import check_machine

    features = _proc("cpuinfo", "flags", "features").split()
    by = ", ".join(name for name in BYTE_PRODUCTS if name in features) or "no known feature"
    try:
        check_machine()
    except Exception as error:
        return "int8", f"{reason(error)} (/proc/cpuinfo: {by})", "note"
    return "int8", f"products of bytes are exact here, by {by}: --dtype int8 works", ""


def _triton(cuda: bool) -> tuple[str, str, str]:
    if find_spec("triton") is None:
        loss = "steps on the GPU are slower" if cuda else "only CUDA devices use it"
        return "triton", f"not installed; {loss}", "note" if cuda else ""
    try:
        version = str(import_module("triton").__version__)
    except Exception as error:
        return "triton", f"cannot be imported: {reason(error)}", "failed" if cuda else "note"
    return "triton", version if cuda else f"{version}, not used without CUDA", ""


# ---- caches, extras, the files of the package


def _caches() -> Lines:
    from glauber.conditionals.shelf import cache_home

    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folders = {
        "GLAUBER_CACHE": cache_home(),
        "HF_HOME": Path(os.environ.get("HF_HOME") or home / "huggingface").expanduser(),
        "temporary": Path(tempfile.gettempdir()),
    }
    for name, folder in folders.items():
        state = "" if folder.is_dir() else ", not there yet"
        try:  # to make a file: permissions alone do not tell
            tempfile.TemporaryFile(dir=_existing(folder)).close()
            yield name, f"{folder}{state}, writable", ""
        except OSError:
            yield name, f"{folder}{state}, cannot be written", "note"
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE"):
            yield name, "is set: no model is fetched from the hub", "note"


def _extras() -> Lines:
    homes = metadata.packages_distributions()
    for extra, modules in EXTRAS.items():
        if missing(extra):
            yield extra, f"not installed: pip install 'glauber[{extra}]'", ""
            continue
        names = [homes.get(module, [module])[0] for module in modules]
        yield extra, ", ".join(f"{name} {_version(name)}" for name in names), ""


def bundled() -> Lines:
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
    "in the package": bundled,
}
