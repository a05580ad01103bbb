"""Pieces of the papers: rectangles."""

from glauber.papers import a_fig5, a_fig6, a_table1

PIECES = {
    "A-table1": ("mean rectangle incompatibility by model", a_table1.make),
    "A-fig5": ("distribution of the rectangle incompatibility", a_fig5.make),
    "A-fig6": ("rectangle incompatibility against influence", a_fig6.make),
}
