"""What every room may use: results, errors, progress, files, tables, statistics."""

from collections.abc import Callable, Mapping
from typing import Any


def lazy(homes: Mapping[str, str], room: str = "") -> Callable[[str], Any]:
    """The `__getattr__` of glauber, or of a room of it: its names and the modules they are in.

    They are imported when they are used: torch takes seconds to load.
    """
    package = f"glauber.{room}" if room else "glauber"

    def import_name(name: str) -> Any:
        from importlib import import_module

        if name not in homes:
            from difflib import get_close_matches

            near = get_close_matches(name, homes, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        return getattr(import_module(f"glauber.{homes[name]}"), name)

    return import_name
