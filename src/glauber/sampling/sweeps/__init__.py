"""Many cells of a grid: in one process, in several, or on a Ray cluster, to the same bits.

    glauber.sweeps.sample(out="sweep", temperatures=[0.5, 1, 2], lengths=[10, 20])
    glauber.sweeps.status("sweep")
    glauber.sweeps.resume("sweep", on="processes")

Every question is a function here, and the same function is a command: `glauber sweep status`.
"""

from glauber.foundation import lazy

# Every study and the module that answers it.
STUDIES = {
    "sample": "sampling.sweeps.cells",
    "status": "sampling.sweeps.cells",
    "resume": "sampling.sweeps.cells",
}
__all__ = sorted(STUDIES)
__getattr__ = lazy(STUDIES, "sweeps")


def __dir__() -> list[str]:
    return [*__all__, "STUDIES"]
