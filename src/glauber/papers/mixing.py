"""Pieces of the papers: mixing."""

from glauber.papers import a_fig2, a_fig3a, a_fig3b, a_fig_coupling, a_influence, a_regimes

PIECES = {
    "A-fig2": ("distance from the start over time, by temperature: the slow regime", a_fig2.make),
    "A-fig3a": (
        "embedding distance from the start after a fixed number of steps, by length",
        a_fig3a.make,
    ),
    "A-fig3b": (
        "hitting time of an embedding distance by length, against n, n log n and n^2",
        a_fig3b.make,
    ),
    "A-fig-coupling": ("where in temperature and length two chains meet", a_fig_coupling.make),
    "A-influence": (
        "influence, alpha and the contraction threshold of one sentence",
        a_influence.make,
    ),
    "A-regimes": ("how chains move at temperatures from 0.01 to 100", a_regimes.make),
}
