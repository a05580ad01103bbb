"""The command line: made from the studies (`command.py`), one group per question."""

import sys
import warnings
from typing import Any

from glauber.errors import GlauberError, GlauberWarning


def main() -> None:
    """Runs a command; a mistake in the input ends in one sentence and exit code 2."""
    from glauber.cli.group import app
    from glauber.result import visible

    warnings.showwarning = _say
    try:
        app()
    except GlauberError as error:
        print(f"glauber: {visible(str(error))}", file=sys.stderr)
        sys.exit(2)
    except MemoryError:
        print(
            "glauber: this machine's memory is too small for that; ask for less.", file=sys.stderr
        )
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        print("glauber: stopped; what was committed is kept.", file=sys.stderr)
        sys.exit(130)


_plain = warnings.showwarning


def _say(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
    """What was repaired or left out is one line on stderr; other warnings stay as they are."""
    from glauber.result import visible

    if issubclass(category, GlauberWarning):
        print(f"glauber: {visible(str(message))}", file=sys.stderr)
    else:
        _plain(message, category, *where, **more)
