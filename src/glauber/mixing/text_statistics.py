"""Which numbers of the text are followed along a run?"""

import numpy as np
from numpy.typing import NDArray

from glauber.runs.export import trajectory
from glauber.runs.run import Run

Floats = NDArray[np.float64]


def text_statistics(run: Run, *, first: int, every: int) -> dict[str, Floats]:
    """Statistics (chains, draws) after the steps beyond `first` that `every` divides.

    unchanged    share of the free sites that hold their starting token
    distinct     different tokens among the free sites, over their number
    copies       free sites that hold the run's most common token, over their number
    log_prob     log-probability that the last step gave to what it drew, mean over its sites
    """
    looks = [tokens for step, tokens in trajectory(run, every) if step > first]
    steps = [step for step in range(every, run.steps + 1, every) if step > first]
    free, start = run.free, run.tokens(0)
    n_free = free.sum(axis=1)
    common = _most_common(looks, free)
    return {
        "unchanged": _share([((tokens == start) & free).sum(axis=1) for tokens in looks], n_free),
        "distinct": _share([_n_distinct(tokens, free) for tokens in looks], n_free),
        f"copies of {run.vocabulary.spell(common)}": _share(
            [((tokens == common) & free).sum(axis=1) for tokens in looks], n_free
        ),
        "log_prob": _log_probs(run, steps),
    }


def _share(counts: list[NDArray[np.int64]], n_free: NDArray[np.int64]) -> Floats:
    return np.asarray(np.stack(counts, axis=1) / n_free[:, None])


def _n_distinct(tokens: NDArray[np.int64], free: NDArray[np.bool_]) -> NDArray[np.int64]:
    rows = [len(np.unique(row[own])) for row, own in zip(tokens, free, strict=True)]
    return np.array(rows)


def _most_common(looks: list[NDArray[np.int64]], free: NDArray[np.bool_]) -> int:
    values, counts = np.unique(np.stack(looks)[:, free], return_counts=True)
    return int(values[counts.argmax()])


def _log_probs(run: Run, steps: list[int]) -> Floats:
    """Mean over the redrawn sites of the steps that end at `steps`, (chains, draws)."""
    rows = np.array(steps) - 1
    values, there = run.read("log_prob_new")[:, rows], run.read("site")[:, rows] >= 0
    total = np.where(there, values.astype(np.float64), 0.0).sum(axis=2)
    return np.asarray(total / there.sum(axis=2))
