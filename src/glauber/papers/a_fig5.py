"""Paper A, figure 5: the incompatibility is broad, the rule and not the exception."""

from glauber.figures.compatibility import plot_deltas
from glauber.papers.rectangle_models import HOW, study
from glauber.papers.reproduction import Reproduction, Scale


def make(scale: Scale, *, seed: int) -> Reproduction:
    """The histogram of Delta, and its quantiles."""
    name = "bundled:english" if scale == "small" else "bert-base-uncased"
    found = study(name, seed=seed)
    told = found.summary()
    row = {"model": name, "median": told["median"], **told["quantiles"], "kind": "estimate"}
    row |= {"share above the noise floor": told["share_certified"], "published": "broad"}
    pictures = {"histogram": plot_deltas(found.delta, found.noise_floor)}
    return Reproduction("A-fig5", scale, HOW, [row], seed, pictures)
