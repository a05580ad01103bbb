"""Which conditionals may be wanted soon, and how many of them are worth asking for now?

The sites of the next steps are known in advance. A row asked for j steps ahead is the right one
if no step before changes a token; else it was asked for in vain, and nothing is wrong: entries of
the memo are found by their row. A model call costs about `overhead + rows`, in rows, so the best
number of rows is the one with the most useful rows for the cost.
"""

import torch

LEAST = 0.25  # a row with a smaller chance of being used is not asked for
MOST = 64  # rows that a batch is filled up to, at most


def overhead(device: torch.device) -> float:
    """What a call costs beside its rows, in rows.

    On one core and the bundled model at 20 tokens, calls of 1, 2, 4, 8 and 16 rows take 17.6, 21,
    28, 40 and 71 ms: about four rows and the rows. On a GPU a few rows cost as much as one.
    """
    return 8.0 * MOST if device.type == "cuda" else 4.0 * torch.get_num_threads()


def chances(moving: float, most: int | None) -> list[float]:
    """The chance that nothing changes in the next j steps, j = 1, 2, …, while it is worth it.

    moving is the chain's recent share of steps that changed a token; with `most`, the next so
    many steps are looked at whatever the chance.
    """
    if most is not None:
        return [1.0] * most
    if moving > 1 - LEAST:
        return []
    found: list[float] = []
    chance = 1.0 - moving
    while chance >= LEAST and len(found) < MOST:
        found.append(chance)
        chance *= 1.0 - moving
    return found


def worthwhile(needed: int, offered: list[float], cost: float) -> int:
    """How many of the offered rows (chances, decreasing) to ask for with the needed ones.

    Batches end at powers of two, which is how calls on a CPU are cut.
    """
    if needed >= MOST:
        return 0
    useful, best, chosen = float(needed), needed / (cost + _whole(needed)), 0
    for added, chance in enumerate(offered[: MOST - needed], start=1):
        useful += chance
        value = useful / (cost + _whole(needed + added))
        if value > best:
            best, chosen = value, added
    return chosen


def _whole(rows: int) -> int:
    """The next power of two."""
    return 1 << (rows - 1).bit_length()
