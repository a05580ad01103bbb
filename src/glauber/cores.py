"""How many cores may this process use?"""

import os


def usable_cores() -> int:
    """Cores that this process may use; all of the machine's where the system does not tell."""
    if hasattr(os, "process_cpu_count"):  # from Python 3.13 on
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
