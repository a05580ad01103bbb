"""How the chains of a run go, in a few hundred points.

What is left of the start, the share of steps that changed a token, and the entropy where tokens
were drawn. Segment by segment, so that only sums at the wanted steps are in memory.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.progress import check_count
from glauber.runs.film import shown_events
from glauber.runs.run import Run

Floats = NDArray[np.float64]
POINTS = 400  # of a curve
MOST = 50  # chains drawn one by one
DIGITS = 4
NAMES = {
    "changed": "Steps that changed a token",
    "entropy": "How open the draws were, in nats",
    "left": "What is left of the start",
}
WRITTEN = {  # of a generation, which starts from hidden sites
    "changed": "Passes that changed a token",
    "entropy": NAMES["entropy"],
    "left": "What is still hidden",
}
LINES = "Numbers and thick lines are means over all chains; the dark thin line is the chain shown."


@dataclass(frozen=True, eq=False)
class Curves:
    """Three figures of each chain (chains, points), at the same steps.

    changed and entropy are over the `window` steps that end there, NaN where there are not as many.
    """

    steps: NDArray[np.int64]  # (points,)
    window: int
    changed: Floats
    entropy: Floats
    left: Floats
    names: dict[str, str]

    @classmethod
    def of(
        cls,
        steps: NDArray[np.int64],
        window: int,
        sums: Floats,
        left: Floats,
        names: dict[str, str],
        first: int = 0,
    ) -> "Curves":
        """From sums (3, chains, points) over the window that ends at each step.

        Steps with a changed token, entropies, and their number; known after step `first`.
        """
        changed, entropy, drawn = sums
        known = (steps - first >= window) & (steps > first)
        share = np.where(known, changed / max(1, window), np.nan)
        mean = np.where(known & (drawn > 0), entropy / np.maximum(1, drawn), np.nan)
        return cls(steps, window, share, mean, left, names)

    def to_dict(self) -> dict[str, Any]:
        """As a page draws them: the mean over all chains, and chains one by one if not too many."""
        rows = {"changed": self.changed, "entropy": self.entropy, "left": self.left}
        return {
            "steps": self.steps.tolist(),
            "series": {name: _series(values) for name, values in rows.items()},
            "names": self.names,
            "notes": self._notes(),
        }

    def _notes(self) -> list[str]:
        steps = "passes" if self.names is WRITTEN else "steps"
        mean = f"Shares and entropies are means over the last {self.window:,} {steps}."
        several = [LINES] if 1 < len(self.changed) <= MOST else []
        return [mean, *several] if self.window else several


def curves(run: Run, *, points: int = POINTS) -> Curves:
    """The curves of a run at about so many steps, the first and the last among them."""
    check_count("number of points", points, least=2, most=10**5)
    window = window_of(run.steps)
    steps = np.unique(np.linspace(0, run.steps, points).round().astype(np.int64))
    early = np.maximum(steps - window, 0)
    wanted = np.union1d(steps, early)
    sums = _sums(run, wanted)
    at, before = (sums[:, :, np.searchsorted(wanted, ends)] for ends in (steps, early))
    left = 1 + at[3] / run.free.sum(axis=1, keepdims=True)
    names = NAMES if run.spec.unmasking is None else WRITTEN
    return Curves.of(steps, window, (at - before)[:3], left, names)


def window_of(n_steps: int) -> int:
    """A twentieth of a run, but not so few steps that the mean is mostly noise."""
    return min(n_steps, max(20, n_steps // 20))


def _sums(run: Run, wanted: NDArray[np.int64]) -> Floats:
    """What `_per_step` says, summed up to each of the wanted steps: (4, chains, wanted)."""
    sums = np.zeros((4, run.n_chains, len(wanted)))
    before = np.zeros((4, run.n_chains, 1))
    for first in range(0, run.steps, run.log.segment_steps):
        total = before + np.cumsum(_per_step(run, first), axis=2)
        here = (wanted > first) & (wanted <= first + total.shape[2])
        sums[:, :, here] = total[:, :, wanted[here] - first - 1]
        before = total[:, :, -1:]
    return sums


def _per_step(run: Run, first: int) -> Floats:
    """Of the steps of one segment (4, chains, steps).

    Whether a token changed, the entropies and their number, and sites that came back to their
    start less those that left it.
    """
    number = first // run.log.segment_steps
    events = shown_events(run, number).arrays
    site, token, entropy = events["site"], events["token"], events["entropy"]
    event = site >= 0
    old = run.log.segment(number).replaced_tokens()
    start = run.tokens(0)[np.arange(len(site))[:, None, None], np.where(event, site, 0)]
    known = event & np.isfinite(entropy)
    returned = np.where(event, (token == start).astype(np.int8) - (old == start), 0)
    sums = (
        ((old != token) & event).any(axis=2),
        np.where(known, entropy, 0.0).sum(axis=2),
        known.sum(axis=2),
        returned.sum(axis=2),
    )
    return np.stack(sums).astype(np.float64)


def _series(values: Floats) -> dict[str, Any]:
    """The mean, and each chain where they are not too many; none where nothing is known."""
    known = np.isfinite(values)
    total = np.where(known, values, 0).sum(axis=0)
    mean = np.where(known.any(axis=0), total / np.maximum(1, known.sum(axis=0)), np.nan)
    several = 1 < len(values) <= MOST
    return {"mean": _short(mean), "chains": [_short(row) for row in values] if several else []}


def _short(row: Floats) -> list[float | None]:
    return [round(value, DIGITS) if value == value else None for value in row.tolist()]
