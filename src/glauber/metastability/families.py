"""Which traps are neighbours of one another?

Traps whose representatives are a few edits apart are taken as one family: single linkage on the
edit distance of their free tokens, so a family may be longer than its links.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from glauber.errors import GlauberError

Ints = NDArray[np.int64]


def families(rows: Sequence[Sequence[int]], *, reach: int = 3) -> list[list[int]]:
    """Row numbers grouped so that rows at most `reach` edits apart are together; largest first."""
    if reach < 0:
        raise GlauberError(f"the reach is {reach}, but a number of edits cannot be negative.")
    if not rows:
        return []
    near = csr_array(edit_distances(rows) <= reach)
    count, label = connected_components(near, directed=False)
    groups = [np.flatnonzero(label == one).tolist() for one in range(count)]
    return sorted(groups, key=lambda group: (-len(group), group))


def edit_distances(rows: Sequence[Sequence[int]]) -> Ints:
    """Insertions, deletions and replacements of tokens between each two rows: (rows, rows)."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), int(lengths.max())), -1)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return np.stack([_from_one(row, padded, lengths) for row in rows])


def _from_one(row: Sequence[int], padded: Ints, lengths: Ints) -> Ints:
    """The distances (rows,) of one row to the rows padded (rows, longest)."""
    longest = padded.shape[1]
    before = np.tile(np.arange(longest + 1), (len(padded), 1))  # to each beginning of each row
    for done, token in enumerate(row, start=1):
        now = np.empty_like(before)
        now[:, 0] = done
        for place in range(1, longest + 1):
            replaced = before[:, place - 1] + (padded[:, place - 1] != token)
            moved = np.minimum(before[:, place], now[:, place - 1]) + 1
            now[:, place] = np.minimum(replaced, moved)
        before = now
    return np.asarray(before[np.arange(len(padded)), lengths])
