"""Which models and starting passages ship with the package?"""

from functools import lru_cache
from pathlib import Path

from glauber.errors import GlauberError

PACKAGE = Path(__file__).resolve().parent.parent
MODELS = PACKAGE / "models"


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


@lru_cache
def passages() -> list[tuple[str, str]]:
    """(topic, text) of each starting passage, topics taking turns."""
    lines = (PACKAGE / "data" / "passages.tsv").read_text(encoding="utf-8").splitlines()
    return [(topic, text) for topic, text in (line.split("\t") for line in lines)]
