"""Studies of Ising models small enough to know everything about them.

    glauber.ising.race(couplings=[0.5, 2])             # steps from one mode to the other, exactly
    glauber.ising.fit(k=2, samples=50_000)             # learn a model from masked samples
    glauber.ising.covariance(coupling=0.3).frame()     # how well every k can do

Every study is a function here, and the same function is a command: `glauber ising race --help`.
"""

from glauber.foundation import lazy

# Every study and its module.
STUDIES = {
    "fit": "studies.ising.fitting",
    "covariance": "studies.ising.efficiency",
    "errors": "studies.ising.error_curves",
    "bound": "studies.ising.finite_sample_bound",
    "gap": "studies.ising.block_gaps",
    "amplification": "studies.ising.error_amplification",
    "race": "studies.ising.mode_race",
    "separation": "studies.ising.sampler_separation",
}
__all__ = sorted(STUDIES)
__getattr__ = lazy(STUDIES, "ising")


def __dir__() -> list[str]:
    return [*__all__, "STUDIES"]
