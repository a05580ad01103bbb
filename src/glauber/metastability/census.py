"""What is there to say of each trap?

A trap's representative is the state in which the chain spent most steps of the stretch. It holds
what the theorem speaks of: its gaps, whether it is perfect, the bound on its escape and, beside it,
its exact holding time. The escape that happened is read from the run's events.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError
from glauber.metastability.margins import Margins, margins_of
from glauber.metastability.stays import Ints, Stays, Stretch, stays
from glauber.runs.run import Run
from glauber.runs.spec import Spec

Listener = Callable[[int, int], None]  # traps measured, traps in all


@dataclass(frozen=True)
class Escape:
    """The step that left a representative for the last time in its stretch. Exact, as recorded."""

    step: int
    site: int
    old: int  # the token that was there
    new: int  # the token that was drawn
    probability: float  # of the new token, given that the site was redrawn
    kind: str = "exact"


@dataclass(frozen=True, eq=False)
class Trap:
    """A stretch, its representative state and how firmly that holds itself."""

    stretch: Stretch
    tokens: Ints  # (length,): the representative; of equally long ones, the first
    text: str
    share: float  # of the stretch's steps that were spent in the representative
    observed: float | None  # mean length in steps of the ended stays in it; none if none ended
    margins: Margins  # of the representative, at the run's temperature
    escape: Escape | None  # none if the run ended first

    @property
    def duration(self) -> int:
        return self.stretch.duration

    @property
    def perfect(self) -> bool:
        """Whether each token of the representative is the likeliest at its site."""
        return self.margins.perfect

    @property
    def mean_gap(self) -> float:
        return float(self.margins.gaps.mean())

    @property
    def min_gap(self) -> float:
        return self.margins.margin

    @property
    def weakest(self) -> int:
        """The site with the smallest gap, numbered in the row of tokens."""
        return self.margins.sites[int(self.margins.gaps.argmin())]


def census(
    run: Run,
    laws: Conditionals,
    stretches: Sequence[Stretch],
    *,
    device: torch.device | str = "cpu",
    listener: Listener | None = None,
) -> list[Trap]:
    """The traps behind the stretches of a run; laws are the conditionals that it drew from.

    A start may hold a token that is never drawn. A state with such a token has no gaps, so the
    representative is the longest-held state without one; a stretch without such a state is left
    out. The holding time is that of a random scan of single sites, so other runs are refused.
    """
    check_kernel(run.spec)
    paths = dict(enumerate(stays(run))) if stretches else {}
    traps: list[Trap] = []
    for number, stretch in enumerate(stretches):
        found = _trap(run, laws, stretch, paths[stretch.chain], device)
        traps += [] if found is None else [found]
        if listener is not None:
            listener(number + 1, len(stretches))
    return traps


def _trap(
    run: Run, laws: Conditionals, stretch: Stretch, path: Stays, device: torch.device | str
) -> Trap | None:
    touched, counts = path.between(stretch.first, stretch.last)
    free = torch.from_numpy(run.free[stretch.chain])
    begun = run.tokens(0)[stretch.chain]
    for tokens, steps in _by_time(path.states[touched], counts):
        try:
            held = margins_of(
                laws,
                torch.from_numpy(tokens).to(device),
                free.to(device),
                temperature=run.spec.temperature,
            )
        except GlauberError:
            # Only a token of the start can be one that is never drawn.
            if not (tokens == begun)[run.free[stretch.chain]].any():
                raise
            continue
        same = touched[(path.states[touched] == tokens).all(axis=1)]
        lengths = (path.last - path.first + 1)[same]
        ended = lengths[same < len(path.first) - 1]
        return Trap(
            stretch=stretch,
            tokens=tokens,
            text=run.vocabulary.decode(tokens),
            share=float(steps / stretch.duration),
            observed=float(ended.mean()) if len(ended) else None,
            margins=held,
            escape=_escape(run, stretch.chain, path, int(same[-1])),
        )
    return None


def _by_time(states: Ints, counts: Ints) -> list[tuple[Ints, int]]:
    """The different states (k, length) with the steps spent in each, the longest-held first."""
    spent: dict[bytes, int] = {}
    for state, count in zip(states, counts, strict=True):
        spent[state.tobytes()] = spent.get(state.tobytes(), 0) + int(count)
    order = sorted(spent, key=lambda state: -spent[state])
    return [(np.frombuffer(state, np.int64).copy(), spent[state]) for state in order]


def _escape(run: Run, chain: int, path: Stays, stay: int) -> Escape | None:
    """What ended that stay, from the run's events."""
    if stay == len(path.first) - 1:
        return None
    step = int(path.first[stay + 1])
    site, new, log_prob = (
        run.read(name, step - 1, step)[chain, 0, 0] for name in ("site", "token", "log_prob_new")
    )
    old = int(path.states[stay, site])
    return Escape(step, int(site), old, int(new), float(np.exp(np.float64(log_prob))))


def check_kernel(spec: Spec) -> None:
    """Refuses runs whose steps are not draws at one random site."""
    if spec.fill == "greedy" or spec.scan not in ("uniform", "block:1"):
        raise GlauberError(
            "a trap's holding time is known for tokens drawn at one random site a step, but this "
            f"run's scan is {spec.scan} and its fill {spec.fill}."
        )
