"""Pieces of the papers: certificates."""

from glauber.papers import a_table2

PIECES = {
    "A-table2": ("drift of the copies of '!' at the boundary of its basin", a_table2.make),
}
