"""How tests wait for threads and processes: as long as a busy machine may need."""

import threading
import time
from collections.abc import Callable

SECONDS = 120.0  # for what takes milliseconds on an idle machine
MILLISECONDS = 1000 * SECONDS


def until(condition: Callable[[], object]) -> None:
    """Returns when the condition holds."""
    end = time.monotonic() + SECONDS
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, "the condition never held"
        pause.wait(0.001)  # lets other threads run
