"""The dynamics of masked language models.

run = glauber.sample("bundled:english", texts, steps=2000, temperature=1.0, seed=0)
run.text(chain=0, step=500)
run.to_arviz()
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["GlauberError", "MaskedLM", "Run", "resume", "sample"]

if TYPE_CHECKING:
    from glauber.conditionals.masked_lm import MaskedLM
    from glauber.errors import GlauberError
    from glauber.runs.run import Run
    from glauber.sampling import resume, sample

_HOMES = {
    "GlauberError": "glauber.errors",
    "MaskedLM": "glauber.conditionals.masked_lm",
    "Run": "glauber.runs.run",
    "resume": "glauber.sampling",
    "sample": "glauber.sampling",
}


def __getattr__(name: str) -> Any:
    """Imports what is asked for when it is asked for: torch takes seconds to load."""
    if name not in _HOMES:
        raise AttributeError(f"module 'glauber' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
