"""What do events make of tokens, and do stored events follow from each other?"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

SLACK = 1e-4  # that rounding may add to a log-probability or take from an entropy


def replay(tokens: NDArray[Any], sites: NDArray[Any], new: NDArray[Any]) -> None:
    """Applies events (chains, steps, slots) to tokens (chains, length), in place."""
    chains = np.arange(len(tokens))
    for step in range(sites.shape[1]):
        for slot in range(sites.shape[2]):
            there = sites[:, step, slot] >= 0
            tokens[chains[there], sites[there, step, slot]] = new[there, step, slot]


def replaced(
    tokens: NDArray[Any], sites: NDArray[Any], new: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The token that each event (chains, steps, slots) took away, and the tokens after all."""
    n_chains, length = tokens.shape
    flat = sites.reshape(n_chains, -1).astype(np.int64)
    place = np.where(flat >= 0, flat + np.arange(n_chains)[:, None] * length, n_chains * length)
    place, drawn = place.ravel(), new.ravel()
    order = np.argsort(place, kind="stable")  # events of one site in the order of their steps
    behind = np.concatenate([[False], place[order][1:] == place[order][:-1]])
    spare = np.append(tokens.ravel(), 0)  # takes the empty slots
    old = spare[place]
    old[order[behind]] = drawn[order[np.nonzero(behind)[0] - 1]]
    last = order[np.append(~behind[1:], True)]  # the last event of each site
    spare[place[last]] = drawn[last]
    return old.reshape(sites.shape), spare[:-1].reshape(tokens.shape)


def forced_events(
    start: NDArray[Any], sites: NDArray[Any], new: NDArray[Any], budget: int
) -> NDArray[np.bool_]:
    """Which events (chains, steps, slots) a budget of changes forced, (chains, steps).

    There so many other sites differed from the start that only its own tokens were left.
    """
    forced = np.zeros(sites.shape[:2], bool)
    differs, chains = np.zeros(start.shape, bool), np.arange(len(start))[:, None]
    for step in range(sites.shape[1]):
        there = sites[:, step] >= 0
        own = np.where(there, sites[:, step], 0)
        others = differs.sum(axis=1) - (differs[chains, own] & there).sum(axis=1)
        forced[:, step] = others + there.sum(axis=1) > budget
        rows, slots = np.nonzero(there)
        place = own[rows, slots]
        differs[rows, place] = new[rows, step, slots] != start[rows, place]
    return forced


def contradiction(
    events: dict[str, NDArray[Any]],
    start: NDArray[Any],
    end: NDArray[Any] | None,
    free: NDArray[np.bool_],
    *,
    gaps: bool = False,
) -> str | None:
    """What is wrong with events (chains, steps, slots) that begin at start and lead to end.

    Seen are moves of frozen sites, `changed` flags that do not fit, another end, and figures that
    no conditional has: swapped or lost parts. Figures that are wrong but possible are not.
    gaps: any slot may be empty, as in a generation.
    """
    sites, tokens = events["site"], events["token"]
    there = sites >= 0
    if not gaps and not there[:, :, 0].all():
        return "are missing"
    if sites.max() >= start.shape[1] or not free[np.nonzero(there)[0], sites[there]].all():
        return "change sites that are not free"
    old, after = replaced(start, sites, tokens)
    if (((old != tokens) & there) != events["changed"]).any():
        return "do not follow from their start"
    if (events["changed"] & ~events.get("accepted", there)).any():
        return "change tokens though the change was rejected"
    if end is not None and (after != end).any():
        return "do not lead to the tokens after them"
    signs = {"log_prob_old": -1, "log_prob_new": -1, "entropy": 1}
    if not all((sign * events[name][there] >= -SLACK).all() for name, sign in signs.items()):
        return "have figures that no conditional has"
    return None
