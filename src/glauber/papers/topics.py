"""Pieces of the papers: topics."""

from glauber.papers import a_fig1, a_fig4, a_prefixes, a_table3, a_table4

PIECES = {
    "A-table3": (
        "politics and the seed topic at the start and the end of chains from five topics",
        a_table3.make,
    ),
    "A-table4": ("politics at the end of chains from five topics, by model", a_table4.make),
    "A-prefixes": ("topics and words that a frozen prefix pulls towards", a_prefixes.make),
    "A-fig1": ("a chain's trajectory in two dimensions, from warm to cool", a_fig1.make),
    "A-fig4": ("further trajectories in two dimensions", a_fig4.make),
}
