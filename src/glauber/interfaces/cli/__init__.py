"""The command line: made from the studies (`command.py`), one group per question."""

import sys
import warnings
from typing import NoReturn, TextIO

from glauber.foundation.errors import GlauberError, GlauberWarning

INTERRUPTED = 130  # the exit code of what Ctrl-C stopped: 128 and the signal's number
NO_MEMORY = "this machine's memory is too small for that; ask for less."
NO_THREAD = (
    "this machine has no room for another thread (too little memory, or too many processes): "
    "ask for less, or set OMP_NUM_THREADS=1."
)


def main() -> None:
    """Runs a command; a mistake in the input ends in one sentence and exit code 2."""
    from glauber.interfaces.cli.group import app

    warnings.showwarning = _show_warning
    try:
        app()
    except GlauberError as error:
        _fail(str(error))
    except MemoryError:
        _fail(NO_MEMORY)
    except RuntimeError as error:
        reason = _shortage(error)
        if reason is None:
            raise
        _fail(reason)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        _fail("stopped.", INTERRUPTED)


def _fail(sentence: str, code: int = 2) -> NoReturn:
    """Ends the program with one line on stderr."""
    from glauber.foundation.study import one_line, shorten

    print(f"glauber: {shorten(one_line(sentence))}", file=sys.stderr)
    sys.exit(code)


def _shortage(error: RuntimeError) -> str | None:
    """What the machine lacks, where Python or torch say that in an error of their own."""
    if "can't start new thread" in str(error):
        return NO_THREAD
    return NO_MEMORY if "can't allocate memory" in str(error) else None


_show_other = warnings.showwarning


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """What was repaired or left out is one line on stderr; other warnings stay as they are."""
    from glauber.foundation.study import one_line

    if issubclass(category, GlauberWarning):
        print(f"glauber: {one_line(str(message))}", file=sys.stderr)
    else:
        _show_other(message, category, filename, lineno, file, line)
