"""How long traps last, on chains whose holding and exit times are known exactly.

What remains of a visit, whatever happened before, has the exit time of the present state as its
mean. So for a visit that is cut by the end of the chain, the steps so far plus the exit time of the
last state stand in for its duration, and no visit is left out.
"""

from functools import cache

import numpy as np
import pytest
import torch

from glauber.exact.hitting_times import hamming_ball, mean_exit_times
from glauber.studies.metastability.episodes import (
    episodes_of_chain,
    hamming_episodes,
    sojourns,
    sojourns_of_path,
    visits_to_ball,
)
from glauber.studies.metastability.traps import TrapSearch
from table_chains import LAW, MATRIX, SPACE, WELLS, simulate, stored


@pytest.fixture(scope="module")
def paths():
    """The numbers of the states, and the path, of each chain."""
    return [(numbers(path), path) for path in simulate(400, 600, seed=5)[0]]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return stored(tmp_path_factory.mktemp("wells") / "run", 200, 600, seed=8)


@cache
def times_of_ball(centre, radius):
    return mean_exit_times(MATRIX, hamming_ball(SPACE, torch.tensor(centre), radius))


def numbers(path):
    return SPACE.index(torch.from_numpy(path)).numpy()


def excess(episode, indices, times, after=0):
    """Steps the episode lasted beyond its first `after`, less their exact mean. Mean zero."""
    lasted = episode.duration - after
    if not episode.ended:
        lasted += times[indices[episode.last]] - 1
    return lasted - times[indices[episode.first + after]]


def score(per_chain):
    """The mean over independent chains in standard errors."""
    values = np.array(per_chain)
    return values.mean() / (values.std(ddof=1) / np.sqrt(len(values)))


def test_radius_0_lasts_as_long_as_states_hold(paths):
    held = 1 / (1 - MATRIX.diagonal())
    found = [episodes_of_chain(sojourns_of_path(path), radius=0) for _, path in paths]
    assert sum(map(len, found)) > 7000
    for times, agrees in ((held, True), (1.15 * held, False)):
        per_chain, per_well = [], {0: [], 1: [], 2: []}
        for (indices, _), episodes in zip(paths, found, strict=True):
            over = [excess(s, indices, times) for s in episodes]
            per_chain.append(sum(over))
            for well, rows in per_well.items():
                rows.append(
                    sum(
                        o
                        for o, s in zip(over, episodes, strict=True)
                        if (s.centre == WELLS[well]).all()
                    )
                )
        assert (abs(score(per_chain)) < 3) == agrees
        assert all((abs(score(rows)) < 3) == agrees for rows in per_well.values())


@pytest.mark.parametrize("radius", [1, 2])
def test_balls_are_left_after_their_exit_times(paths, radius):
    for well in WELLS:
        exact = times_of_ball(tuple(well), radius)
        visits = [visits_to_ball(sojourns_of_path(path), well, radius) for _, path in paths]
        for (_, path), found in zip(paths, visits, strict=True):
            near = (path != well).sum(axis=1) <= radius
            assert sum(s.duration for s in found) == near.sum()
        for times, agrees in ((exact, True), (1.3 * exact, False)):
            rows = zip(paths, visits, strict=True)
            per_chain = [sum(excess(s, indices, times) for s in v) for (indices, _), v in rows]
            assert (abs(score(per_chain)) < 3) == agrees


@pytest.mark.parametrize(("radius", "shortest"), [(0, 20), (1, 40)])
def test_traps_of_a_stored_run_last_as_long_as_their_balls_hold(kept, radius, shortest):
    """The detector itself, centres and all: beyond `shortest` steps, the exact exit time."""
    run, paths = kept
    found = [
        episode
        for episode in hamming_episodes(list(sojourns(run)), radius=radius)
        if episode.duration >= shortest
    ]
    deep = sum((episode.centre == WELLS).all(axis=1).any() for episode in found)
    assert len(found) > 300 and deep > 0.95 * len(found)
    for factor, agrees in ((1, True), (1.25, False)):
        per_chain = np.zeros(len(paths))
        for episode in found:
            assert episode.duration >= shortest
            times = factor * times_of_ball(tuple(episode.centre), radius)
            over = excess(episode, numbers(paths[episode.chain]), times, after=shortest - 1)
            per_chain[episode.chain] += over
        assert (abs(score(per_chain)) < 3) == agrees


@pytest.mark.parametrize(("radius", "shortest"), [(0, 35), (1, 40)])
def test_seen_holding_times_are_the_exact_ones(kept, radius, shortest):
    """Traps are chosen by their length: the plain mean of their stays is too long, `seen` is not.

    Departures seen, less those that the exact rate expects in the steps seen, have mean zero.
    """
    run, _ = kept
    found = TrapSearch(run, LAW).hamming(radius=radius, shortest=shortest).traps
    assert len(found) > 500
    paths, over, naive = list(sojourns(run)), np.zeros((2, run.n_chains)), []
    for trap in found:
        held, chain = trap.margins.holding_time, trap.chain
        over[0, chain] += trap.observed.departures - trap.observed.steps / held
        over[1, chain] += trap.observed.departures - 1.15 * trap.observed.steps / held
        path = paths[chain]
        touched, _ = path.between(trap.first, trap.last)
        own = touched[(path.states[touched] == trap.tokens).all(axis=1)]
        own = own[own < len(path.first) - 1]  # without the one that the end cut off
        naive += [(path.last - path.first + 1)[own].mean() / held] if len(own) else []
    assert abs(score(over[0])) < 3 and abs(score(over[1])) > 3
    expected = sum(trap.observed.steps / trap.margins.holding_time for trap in found)
    assert expected > 500
    assert np.mean(naive) > (1.6 if radius == 0 else 1.15)
