"""Pieces of the papers: traps."""

from glauber.papers import a_table5

PIECES = {
    "A-table5": ("the catalogue of traps: texts, gaps and durations", a_table5.make),
}
