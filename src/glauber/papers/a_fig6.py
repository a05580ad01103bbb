"""Paper A, figure 6: the incompatibility grows with the influence between the two sites."""

from glauber.figures.compatibility import plot_delta_against_influence
from glauber.papers.rectangle_models import HOW, study
from glauber.papers.reproduction import Reproduction, Scale


def make(scale: Scale, *, seed: int) -> Reproduction:
    """Delta against influence, and their rank correlation."""
    name = "bundled:english" if scale == "small" else "bert-base-uncased"
    found = study(name, seed=seed)
    influence = found.influence
    assert influence is not None
    told = found.summary()
    row = {
        "model": name,
        "rank correlation": told["influence_rank_correlation"],
        "kind": "estimate",
        "published": "it grows",
    }
    pictures = {"influence": plot_delta_against_influence(influence, found.delta)}
    return Reproduction("A-fig6", scale, HOW, [row], seed, pictures)
