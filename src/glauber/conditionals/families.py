"""Which loader does the name of a model belong to? The table that rooms above this one extend.

Light, so that the package can fill the table without importing torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from glauber.conditionals.base import Model


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


FAMILIES: list[Family] = []  # the first that matches a name loads it, before those of `load`
