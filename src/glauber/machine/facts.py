"""What is here? Versions, the machine, its devices, caches, extras and the models of the package.

Nothing here may raise: what cannot be found out is a line that says so. So nothing heavy is
imported before it is asked for, and a package that is missing or broken is a fact like any other.
"""

import os
import platform
import shutil
import socket
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlparse

from glauber.extras import EXTRAS, missing
from glauber.json_text import parse_json
from glauber.machine.checksums import bundled
from glauber.progress import usable_cores

PACKAGE = Path(__file__).resolve().parent.parent
ESSENTIAL = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", "pyarrow")
FURTHER = (
    "huggingface_hub", "sentencepiece", "xarray", "arviz", "h5netcdf", "pyarrow", "pandas",
    "plotly", "jinja2", "typer", "rich", "tqdm",
)  # fmt: skip
HUB, HUB_SECONDS = "https://huggingface.co", 3.0
SIZE_SECONDS = 1.0  # that the size of a cache may take to find out
# What an x86 or ARM processor calls its exact products of bytes, the fastest first.
BYTE_PRODUCTS = {
    "amx_int8": "AMX", "avx512_vnni": "AVX-512 VNNI", "avx_vnni": "AVX-VNNI", "i8mm": "I8MM",
    "asimddp": "dot products of ARM",
}  # fmt: skip


class Fact(NamedTuple):
    """One line: what was looked at, what was found, and what is wrong or worth knowing."""

    section: str
    name: str
    value: str
    state: str = ""  # "", note (works, but know it) or failed


Found = Iterable[tuple[str, str] | tuple[str, str, str]]  # name, value and, if not well, its state


def facts() -> Iterator[Fact]:
    """Everything that can be said without computing."""
    for section, look in SECTIONS.items():
        try:
            for name, value, *state in look():
                yield Fact(section, name, tidy(value), *state)
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


# ---- versions


def _versions() -> Found:
    from glauber import __version__

    yield "glauber", f"{__version__}, {_installed()}"
    build = platform.python_implementation()
    yield "python", f"{platform.python_version()} ({build}, {sys.executable})"
    for name in ESSENTIAL:
        yield _imported(name)
    listed = [f"{name} {_version(name)}" for name in FURTHER]
    lacking = [name for name in FURTHER if _version(name) == "missing"]
    yield "further", ", ".join(listed), "failed" if lacking else ""


def _installed() -> str:
    """Where this package lies, and whether it is a checkout."""
    told = {}
    with suppress(Exception):  # not installed, or by a tool that says nothing
        found = metadata.distribution("glauber").read_text("direct_url.json")
        told = parse_json(found or "{}")
    if any(part in ("site-packages", "dist-packages") for part in PACKAGE.parts):
        return f"installed in {PACKAGE}"
    home = Path(unquote(urlparse(told.get("url", "")).path) or "/nowhere")
    editable = told.get("dir_info", {}).get("editable") and home in PACKAGE.parents
    return f"editable checkout in {PACKAGE}" if editable else f"from {PACKAGE}, not installed"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except Exception:
        return "missing"


def _imported(name: str) -> tuple[str, str, str]:
    """The version of a package without which nothing works, if it can be imported."""
    try:
        module = import_module(name)
    except BaseException as error:  # a broken build may raise anything
        if isinstance(error, KeyboardInterrupt):
            raise
        return name, f"{_version(name)}, cannot be imported: {reason(error)}", "failed"
    return name, str(getattr(module, "__version__", None) or _version(name)), ""


# ---- machine and devices


def _machine() -> Found:
    yield "system", f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield "cpu", f"{_cpu_name()}, {os.cpu_count()} cores, of which {usable_cores()} may be used"
    yield from _unless_broken("threads", _threads)
    yield from _unless_broken("memory", _memory)
    yield from _unless_broken("disk", _disk)


def _unless_broken(name: str, look: Callable[[], str]) -> Found:
    try:
        yield name, look()
    except Exception as error:
        yield name, f"cannot be found out: {reason(error)}", "note"


def _cpu_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or "unknown"


def _flags() -> set[str]:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.lower().startswith(("flags", "features")):
                return set(line.partition(":")[2].split())
    return set()


def _threads() -> str:
    import torch

    named = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    asked = "".join(f", {name}={os.environ[name]}" for name in named if name in os.environ)
    return f"torch {torch.get_num_threads()}{asked}"


def _memory() -> str:
    from glauber.progress import memory

    left = ""
    with suppress(OSError):
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        free = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
        left = f", {int(free) / 2**20:.1f} free"
    return f"{memory() / 2**30:.1f} GiB{left}"


def _disk() -> str:
    from glauber.conditionals.shelf import cache_home

    usage = shutil.disk_usage(_there(cache_home()))
    return f"{usage.free / 1e9:.1f} GB free of {usage.total / 1e9:.1f} where the cache lies"


def _there(place: Path) -> Path:
    """The place, or the nearest folder above it that exists."""
    return next(one for one in (place.absolute(), *place.absolute().parents) if one.exists())


def devices() -> list[str]:
    """The devices that torch can use, by the names that `--device` takes."""
    import torch

    found = ["cpu", *(f"cuda:{at}" for at in range(torch.cuda.device_count()))]
    return [*found, "mps"] if torch.backends.mps.is_available() else found


def _devices() -> Found:
    import torch

    for name in devices():
        if name.startswith("cuda"):
            card: Any = torch.cuda.get_device_properties(name)
            yield (
                name,
                f"{card.name}, {card.total_memory / 2**30:.1f} GiB, compute capability "
                f"{card.major}.{card.minor}, CUDA {torch.version.cuda}",
            )
        else:
            units = torch.backends.cpu.get_cpu_capability()
            yield name, "Apple's GPU" if name == "mps" else f"torch computes by {units}"
    if torch.version.cuda and not torch.cuda.is_available():
        built = f"torch is built for CUDA {torch.version.cuda}"
        yield "cuda", f"none can be used, though {built}", "note"
    yield _byte_products()
    yield _triton(torch.cuda.is_available())


def _byte_products() -> tuple[str, str, str]:
    from glauber.conditionals.forward.encoder_int8 import check_machine

    by = next((name for flag, name in BYTE_PRODUCTS.items() if flag in _flags()), "unknown ways")
    try:
        check_machine()
    except Exception as error:
        return "int8", reason(error), "note"
    return "int8", f"products of bytes are exact here, by {by}: --dtype int8 works", ""


def _triton(cuda: bool) -> tuple[str, str, str]:
    if find_spec("triton") is None:
        return "triton", "not installed; " + _without_triton(cuda), "note" if cuda else ""
    try:
        found = str(import_module("triton").__version__)
    except Exception as error:
        return "triton", f"cannot be imported: {reason(error)}", "failed" if cuda else "note"
    return "triton", found if cuda else f"{found}, not used without CUDA", ""


def _without_triton(cuda: bool) -> str:
    return "steps on the GPU are slower" if cuda else "only CUDA devices use it"


# ---- network, caches, extras


def _hub() -> Found:
    endpoint = os.environ.get("HF_ENDPOINT") or HUB
    if any(_on(name) for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")):
        yield "hub", f"{_bare(endpoint)} is not asked: HF_HUB_OFFLINE is set", "note"
        return
    found = reached(endpoint, HUB_SECONDS)
    yield "hub", f"{_bare(endpoint)} {found or 'is reachable'}", "note" if found else ""


def _on(name: str) -> bool:
    return os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")


def _bare(address: str) -> str:
    """An address without user and password."""
    scheme, _, rest = address.rpartition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if scheme else rest.rpartition("@")[2]


def reached(address: str, seconds: float) -> str:
    """Nothing if the address answers, else why not; whatever happens, within these seconds."""
    found = [f"did not answer within {seconds:g} s"]

    def ask() -> None:
        try:
            request = urllib.request.Request(address, method="HEAD")
            urllib.request.urlopen(request, timeout=seconds).close()
            found.append("")
        except urllib.error.HTTPError:  # an answer all the same
            found.append("")
        except Exception as error:
            why = getattr(error, "reason", error)
            late = isinstance(why, TimeoutError | socket.timeout)
            found.append(found[0] if late else f"is not reachable ({reason(why)})")

    # Looking a name up cannot be interrupted, so it is left alone where it takes longer.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return found[-1]


def _caches() -> Found:
    from glauber.conditionals.shelf import cache_home

    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    places = {
        "GLAUBER_CACHE": cache_home(),
        "HF_HOME": Path(os.environ.get("HF_HOME") or Path(home) / "huggingface").expanduser(),
        "temporary": Path(tempfile.gettempdir()),
    }
    for name, place in places.items():
        size = "" if name == "temporary" else f", {_size(place)}"
        writable = _writable(_there(place))
        how = "writable" if writable else "cannot be written"
        yield name, f"{place}{size}, {how}", "" if writable else "note"


def _writable(folder: Path) -> bool:
    """Whether a file can be made there, which is tried: rights alone do not tell."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _size(place: Path) -> str:
    """How much lies there, as far as a second is enough to count it."""
    if not place.is_dir():
        return "not there yet"
    until, total = time.monotonic() + SIZE_SECONDS, 0
    for folder, _, names in os.walk(place):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
        if time.monotonic() > until:
            return f"more than {total / 1e6:,.0f} MB"
    return f"{total / 1e6:,.0f} MB"


def _extras() -> Found:
    homes = metadata.packages_distributions()
    for extra, modules in EXTRAS.items():
        if missing(extra):
            yield extra, f"not installed: pip install 'glauber[{extra}]'"
            continue
        names = [homes.get(module, [module])[0] for module in modules]
        yield extra, ", ".join(f"{name} {_version(name)}" for name in names)


SECTIONS: dict[str, Callable[[], Found]] = {
    "versions": _versions,
    "machine": _machine,
    "devices": _devices,
    "network": _hub,
    "caches": _caches,
    "extras": _extras,
    "in the package": bundled,
}
