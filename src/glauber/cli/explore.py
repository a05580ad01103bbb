"""The command `explore`: prints the address of the page and answers it until Ctrl-C."""

import inspect
import os
import sys
from typing import Annotated, Any, get_args

from glauber.cli.command import spellings
from glauber.explorer import explore as explorer


def explore(*, browser: bool, **asked: Any) -> None:
    found = explorer.explore(**asked, browser=False)
    print(f"glauber explore: {found.url}\nCtrl-C stops it.", flush=True)
    if browser:
        found.open()
    found.wait()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # an answer that still computes writes nothing and is not waited for


def _parameters() -> list[inspect.Parameter]:
    """Those of the function, except that a model may be given several times."""
    spelled = spellings(explorer.explore)
    option = get_args(spelled["model"].annotation)[1]
    several = spelled["model"]._replace(annotation=Annotated[list[str] | None, option])
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=s.default, annotation=s[0])
        for name, s in (spelled | {"model": several}).items()
    ]


explore.__signature__ = inspect.Signature(_parameters())  # type: ignore[attr-defined]
explore.__doc__ = " ".join((inspect.getdoc(explorer.explore) or "").split())
