"""Which chains did not move?

Standard diagnostics take a chain that never moves for a perfect one: nothing varies, so nothing
disagrees. Whether it moved is read from the events, not from a statistic: a statistic of the last
step goes up and down with the site that the step chose, though the text stays as it is.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from glauber.runs.run import Run

Motion = Literal["moving", "partly frozen", "frozen"]


@dataclass(frozen=True)
class Motions:
    """How each chain moved in a window of steps."""

    chains: tuple[Motion, ...]
    still: tuple[int, ...]  # longest stretch of steps without a change, of each chain
    sites_moved: tuple[float, ...]  # share of its free sites that changed at least once
    n_states: int | None  # different texts in which frozen chains stand; None if none is frozen

    def of(self, motion: Motion) -> list[int]:
        """The numbers of the chains that moved so."""
        return [chain for chain, own in enumerate(self.chains) if own == motion]

    @property
    def words(self) -> str:
        """What happened, in one sentence."""
        frozen, partly, total = self.of("frozen"), self.of("partly frozen"), len(self.chains)
        if len(frozen) == total:
            if total == 1:
                return "the only chain is frozen: it did not move in the steps that count"
            where = "one state" if self.n_states == 1 else f"{self.n_states} different states"
            return f"all {total} chains are frozen, in {where}: none moved in the steps that count"
        said = []
        if frozen:
            said.append(f"{len(frozen)} of {total} chains did not move (frozen: {_list(frozen)})")
        if partly:
            said.append(
                f"{len(partly)} of {total} chains stood still for half of the steps on end, or at "
                f"most of the sites (partly frozen: {_list(partly)})"
            )
        return " and ".join(said) or f"all {total} chains move"


def motions(run: Run, first: int) -> Motions:
    """How each chain moved in the steps behind `first`.

    frozen: no step changed a token. Partly frozen: for at least half of the steps on end no token
    changed, or more than half of the free sites never changed.
    """
    changed, sites = run.read("changed", first), run.read("site", first)  # (chains, steps, slots)
    n_steps = changed.shape[1]
    still = [longest_stretch(~row.any(axis=1)) for row in changed]
    moved = np.zeros(run.free.shape, bool)
    chain, step, slot = np.nonzero(changed)
    moved[chain, sites[chain, step, slot]] = True
    share = moved.sum(axis=1) / run.free.sum(axis=1)
    named = tuple(_named(*each, n_steps) for each in zip(still, share, strict=True))
    frozen = [tuple(row) for row, own in zip(run.tokens(), named, strict=True) if own == "frozen"]
    return Motions(named, tuple(still), tuple(share.tolist()), len(set(frozen)) or None)


def longest_stretch(flags: NDArray[np.bool_]) -> int:
    """The longest run of true flags (count,)."""
    edges = np.diff(np.concatenate([[0], flags.astype(np.int8), [0]]))
    begins, ends = np.nonzero(edges == 1)[0], np.nonzero(edges == -1)[0]
    return int((ends - begins).max(initial=0))


def _named(still: int, share: float, n_steps: int) -> Motion:
    if share == 0:
        return "frozen"
    return "partly frozen" if 2 * still >= n_steps or share < 0.5 else "moving"


def _list(chains: list[int]) -> str:
    shown = ", ".join(str(chain) for chain in chains[:8])
    return f"chain {shown}" + (f" and {len(chains) - 8} more" if len(chains) > 8 else "")
