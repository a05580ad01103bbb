"""Which chains did not move, and which numbers of the text are followed along a run?

Standard diagnostics take a chain that never moves for a perfect one: nothing varies, so nothing
disagrees. Whether it moved is read from the events, not from a statistic: a statistic of the last
step goes up and down with the site that the step chose, though the text stays as it is.

A site that never changed is not always stuck. Where the model leaves hardly a choice there (its
conditional entropy is small) and all chains hold the same token, the site is settled: the law
itself conserves it, as the framework of an antibody.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from glauber.runs.export import forced, step_means
from glauber.runs.run import Run

Floats = NDArray[np.float64]
Statistic = Callable[[str], float]  # of one text
Motion = Literal["moving", "partly frozen", "frozen"]
STATISTICS = ("unchanged", "distinct", "copies", "log_prob")
STOOD_STILL = (
    "stood still for half of the steps on end, or at most of the sites that are not settled"
)
SETTLED = 0.5  # nats: mean conditional entropy up to which a site that stands still is settled


@dataclass(frozen=True)
class Motions:
    """How each chain moved in a window of steps."""

    chains: tuple[Motion, ...]
    still: tuple[int, ...]  # most steps on end without a change, of each chain
    sites_moved: tuple[float, ...]  # share of its free sites that changed at least once
    sites_settled: tuple[float, ...]  # share that never did, since the law leaves no choice there
    n_states: int | None  # different texts in which frozen chains stand; None if none is frozen

    def of(self, motion: Motion) -> list[int]:
        """The numbers of the chains that moved so."""
        return [chain for chain, own in enumerate(self.chains) if own == motion]

    @property
    def summary(self) -> str:
        """What happened, in one sentence."""
        frozen, partly, total = self.of("frozen"), self.of("partly frozen"), len(self.chains)
        if len(frozen) == total:
            if total == 1:
                return "the only chain is frozen: it did not move in the steps that count"
            where = "one state" if self.n_states == 1 else f"{self.n_states} different states"
            return f"all {total} chains are frozen, in {where}: none moved in the steps that count"
        if total == 1:
            return "the only chain " + (
                "stood still for half of the steps on end, or at most of the "
                "sites that are not settled"
                if partly
                else "moves"
            )
        notes = []
        if frozen:
            notes.append(f"{len(frozen)} of {total} chains did not move (frozen: {_list(frozen)})")
        if partly:
            notes.append(
                f"{len(partly)} of {total} chains {STOOD_STILL} (partly frozen: {_list(partly)})"
            )
        return " and ".join(notes) or f"all {total} chains move"


def motions(run: Run, first: int) -> Motions:
    """How each chain moved in the steps behind `first`.

    frozen: no step changed a token. Partly frozen: for at least half of the steps on end no token
    changed, or more than half of the free sites that are not settled never changed.
    """
    changed, sites = run.read("changed", first), run.read("site", first)  # (chains, steps, slots)
    n_steps = changed.shape[1]
    still = [longest_run(~row.any(axis=1)) for row in changed]
    moved = np.zeros(run.free.shape, bool)
    chain, step, slot = np.nonzero(changed)
    moved[chain, sites[chain, step, slot]] = True
    entropies = _mean_entropy(run, sites, first)
    end = run.tokens()
    settled = run.free & ~moved & (entropies <= SETTLED) & _agreed(end, run.free & ~moved)
    n_free, n_moved, n_settled = (part.sum(axis=1) for part in (run.free, moved, settled))
    named = tuple(
        _named(*each, n_steps)
        for each in zip(still, n_moved.tolist(), (n_free - n_settled).tolist(), strict=True)
    )
    frozen = {tuple(row) for row, own in zip(end, named, strict=True) if own == "frozen"}
    moving, holding = (tuple((part / n_free).tolist()) for part in (n_moved, n_settled))
    return Motions(named, tuple(still), moving, holding, len(frozen) or None)


def longest_run(flags: NDArray[np.bool_]) -> int:
    """The most true flags on end, of (count,)."""
    edges = np.diff(np.concatenate([[0], flags.astype(np.int8), [0]]))
    begins, ends = np.nonzero(edges == 1)[0], np.nonzero(edges == -1)[0]
    return int((ends - begins).max(initial=0))


def follow(
    run: Run, statistics: tuple[str, ...] | Mapping[str, Statistic], *, first: int, every: int
) -> dict[str, Floats]:
    """Statistics (chains, draws) after the steps beyond `first` that `every` divides.

    unchanged    share of the free sites that hold their starting token
    distinct     different tokens among the free sites, over their number
    copies       free sites that hold the run's most common token, over their number
    log_prob     log-probability that the last redraw gave to what it drew, mean over its sites

    A function is asked about the text of each chain.
    """
    late = [tokens for step, tokens in run.states(every) if step > first]
    if isinstance(statistics, Mapping):
        return {name: _asked(run, one, late) for name, one in statistics.items()}
    return dict(_built_in(run, name, late, first, every) for name in statistics)


def _built_in(
    run: Run, name: str, late: list[NDArray[np.int64]], first: int, every: int
) -> tuple[str, Floats]:
    free, n_free = run.free, run.free.sum(axis=1)
    if name == "log_prob":
        steps = [step for step in range(every, run.steps + 1, every) if step > first]
        return name, _log_probs(run, steps)
    if name == "unchanged":
        start = run.tokens(0)
        counts = [((tokens == start) & free).sum(axis=1) for tokens in late]
    elif name == "distinct":
        counts = [_n_distinct(tokens, free) for tokens in late]
    else:
        common = _most_common(late, free)
        name = f"copies of {run.vocabulary.spell(common)}"
        counts = [((tokens == common) & free).sum(axis=1) for tokens in late]
    return name, np.asarray(np.stack(counts, axis=1) / n_free[:, None])


def _asked(run: Run, statistic: Statistic, late: list[NDArray[np.int64]]) -> Floats:
    """What a function says of each text, (chains, draws); of a text that stands still once."""
    known: dict[bytes, float] = {}

    def values(tokens: NDArray[np.int64]) -> Iterator[float]:
        for row in tokens:
            key = row.tobytes()
            if key not in known:
                known[key] = float(statistic(run.vocabulary.decode(row)))
            yield known[key]

    return np.stack([np.array(list(values(tokens))) for tokens in late], axis=1)


def _mean_entropy(run: Run, sites: NDArray[np.int64], first: int) -> Floats:
    """The mean entropy of each site's conditionals where it was redrawn (chains, length).

    Infinite where it never was, or only while the budget of changes was spent.
    """
    entropy = run.read("entropy", first).astype(np.float64)
    open_events = ~forced(run)[:, first:, None]
    chain, step, slot = np.nonzero((sites >= 0) & open_events)
    total, count = np.zeros(run.free.shape), np.zeros(run.free.shape)
    place = chain, sites[chain, step, slot]
    np.add.at(total, place, entropy[chain, step, slot])
    np.add.at(count, place, 1)
    return np.where(count > 0, total / np.maximum(count, 1), np.inf)


def _agreed(tokens: NDArray[np.int64], still: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Sites (length,) at which all chains that stand still there hold the same token."""
    low = np.where(still, tokens, np.iinfo(np.int64).max).min(axis=0)
    high = np.where(still, tokens, np.iinfo(np.int64).min).max(axis=0)
    return np.asarray(low >= high)


def _named(still: int, n_moved: int, n_due: int, n_steps: int) -> Motion:
    if n_moved == 0:
        return "frozen"
    return "partly frozen" if 2 * still >= n_steps or 2 * n_moved < n_due else "moving"


def _list(chains: list[int]) -> str:
    shown = ", ".join(str(chain) for chain in chains[:8])
    return f"chain {shown}" + (f" and {len(chains) - 8} more" if len(chains) > 8 else "")


def _n_distinct(tokens: NDArray[np.int64], free: NDArray[np.bool_]) -> NDArray[np.int64]:
    rows = [len(np.unique(row[own])) for row, own in zip(tokens, free, strict=True)]
    return np.array(rows)


def _most_common(late: list[NDArray[np.int64]], free: NDArray[np.bool_]) -> int:
    values, counts = np.unique(np.stack(late)[:, free], return_counts=True)
    return int(values[counts.argmax()])


def _log_probs(run: Run, steps: list[int]) -> Floats:
    """Mean over the redrawn sites of the steps that end at `steps`, (chains, draws)."""
    return step_means(run, "log_prob_new")[:, np.array(steps) - 1]
