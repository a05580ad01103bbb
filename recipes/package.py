"""python -m recipes.package [FOLDER]: builds wheel and sdist, and says what is wrong with them.

The sources are copied to a temporary folder first: nothing is written here, and nothing of an
earlier build gets in. The wheel is made from the sdist, so both are whole. Needs no network:
setuptools, build and twine are in the environment.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = (
    "src", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff",
)  # fmt: skip
LARGEST = 100 * 2**20  # bytes of a file that PyPI takes unasked


def build(folder: Path, *what: str) -> list[Path]:
    """Wheel and sdist, or what of them is asked for (--wheel); a warning counts as a failure."""
    folder = folder.absolute()
    with tempfile.TemporaryDirectory() as place:
        for name in SOURCES:
            _copy(ROOT / name, Path(place) / name)
        asked = ["build", "--no-isolation", *what, "--outdir", str(folder), place]
        said = run(*asked)
    if warned := [line for line in said.splitlines() if "warning" in line.lower()]:
        raise SystemExit("\n".join(["building warns:", *warned]))
    return sorted(folder.iterdir())


def _copy(old: Path, new: Path) -> None:
    if old.is_file():
        shutil.copy(old, new)
    else:
        shutil.copytree(old, new, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))


def run(*module: str) -> str:
    """What a module of this Python prints, away from our folder `build`; its failure is ours."""
    kept = {name: one for name, one in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-m", *module], capture_output=True, text=True, env=kept, cwd=ROOT.parent
    )
    if done.returncode:
        raise SystemExit(f"{module[0]} fails:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def package_files() -> set[str]:
    """Every file of the package, as a wheel names it: code, models, data, pages."""
    files = (path for path in (ROOT / "src" / "glauber").rglob("*") if path.is_file())
    return {
        path.relative_to(ROOT / "src").as_posix()
        for path in files
        if "__pycache__" not in path.parts
    }


def faults(wheel: Path) -> list[str]:
    """What the wheel lacks, and what has no place in it, as sentences."""
    with zipfile.ZipFile(wheel) as opened:
        held = {name for name in opened.namelist() if ".dist-info/" not in name}
    expected = package_files()
    found = [f"the wheel has no {name}." for name in sorted(expected - held)]
    found += [f"the wheel has {name}, no file of the package." for name in sorted(held - expected)]
    if wheel.stat().st_size > LARGEST:
        found.append(f"the wheel has {wheel.stat().st_size:,} bytes, more than PyPI takes.")
    return found


def strays(sdist: Path) -> list[str]:
    """What has no place in the sdist, as sentences."""
    with tarfile.open(sdist) as opened:
        names = [one.name.partition("/")[2] for one in opened if one.isfile()]
    beside = {*SOURCES, "PKG-INFO", "setup.cfg"}
    return [f"the sdist has {name}." for name in names if name.split("/")[0] not in beside]


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        sdist, wheel = sorted(build(folder), key=lambda path: path.suffix)
        run("twine", "check", "--strict", str(wheel), str(sdist))
        if wrong := [*faults(wheel), *strays(sdist)]:
            raise SystemExit("\n".join(wrong))
        for path in (wheel, sdist):
            print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
