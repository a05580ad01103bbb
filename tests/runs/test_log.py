"""Logs of events in memory and in a folder: what is appended is read, bit by bit."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from glauber.foundation import disk
from glauber.foundation.errors import GlauberError
from glauber.runs.folder_log import FolderLog
from glauber.runs.log import MemoryLog, event_fields, stored_events
from synthetic_chains import Chains, synthetic_chains

SHAPES = {
    "one chain": synthetic_chains(1, 33),
    "two chains": synthetic_chains(2, 40, rejects=True),
    "eight chains, blocks": synthetic_chains(8, 35, 3, empty=0.3),
    "no steps": synthetic_chains(3, 0),
    "empty steps": synthetic_chains(2, 20, 2, empty=1.0),
    "4,096 chains": synthetic_chains(4096, 20),
}


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power cuts are tried elsewhere."""
    monkeypatch.setattr(disk, "flush_to_disk", lambda handle: None)


def opened_log(kind: str, chains: Chains, folder: Path, **options: int) -> MemoryLog | FolderLog:
    if kind == "memory":
        return chains.memory_log(**options)
    return chains.create(folder / "run", **options)


def check_log(log: MemoryLog | FolderLog, chains: Chains) -> None:
    assert log.steps == chains.events["site"].shape[1]
    assert log.fields == event_fields(chains.rejects)
    for name in log.fields:
        for first, last in ((0, log.steps), (log.steps // 3, log.steps // 2)):
            values, expected = log.read(name, first, last), chains.events[name][:, first:last]
            assert values.dtype == expected.dtype and values.shape == expected.shape
            assert values.tobytes() == expected.tobytes()
    states = chains.tokens_after()
    for step in {0, log.steps // 2, log.steps}:
        assert log.tokens(step).dtype == np.int32
        assert (log.tokens(step) == states[step]).all()
    for every in (1, 7):
        snapshots = dict(log.states(every))
        assert list(snapshots) == list(range(0, log.steps + 1, every))
        assert all((tokens == states[step]).all() for step, tokens in snapshots.items())
    assert (log.free == chains.free).all()


@pytest.mark.parametrize("kind", ["memory", "folder"])
@pytest.mark.parametrize("shape", SHAPES)
def test_events_and_tokens_are_read_as_they_were_appended(
    kind: str, shape: str, tmp_path: Path
) -> None:
    chains = SHAPES[shape]
    log = opened_log(kind, chains, tmp_path, segment_steps=16)
    log.append(chains.part(0, 9))
    log.append(chains.part(9, 9))
    log.append(chains.part(9, chains.spec.steps))
    check_log(log, chains)
    if isinstance(log, FolderLog):
        log.close()
        check_log(log, chains)
        check_log(FolderLog(log.folder), chains)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_any_division_into_appends_gives_the_same_log(kind: str, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    chains = synthetic_chains(2, 50, 2, empty=0.2, seed=seed)
    log = opened_log(kind, chains, tmp_path, segment_steps=int(rng.integers(1, 20)))
    ends = [0, *sorted(rng.integers(0, 51, size=rng.integers(0, 9))), 50]
    for first, last in itertools.pairwise(ends):
        log.append(chains.part(first, last))
    check_log(log, chains)


def test_empty_slots_and_nan_have_the_same_bits_everywhere() -> None:
    events = synthetic_chains(1, 2).part(0, 2)
    events["site"][0, 0] = -1
    events["entropy"].view(np.uint32)[0, 1] = 0xFFC00001
    stored = stored_events(events, event_fields(False), (1, 1))
    assert stored["token"][0, 0, 0] == -1 and not stored["changed"][0, 0, 0]
    assert stored["entropy"].tobytes() == np.full(2, np.nan, np.float32).tobytes()
    with pytest.raises(ValueError, match="shape"):
        stored_events(events, event_fields(False), (1, 2))


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_what_is_not_in_the_log_is_refused(kind: str, tmp_path: Path) -> None:
    chains = synthetic_chains(2, 5)
    log = opened_log(kind, chains, tmp_path)
    log.append(chains.part(0, 5))
    with pytest.raises(GlauberError, match="no 'accepted'"):
        log.read("accepted")
    with pytest.raises(GlauberError, match="steps 3 to 6 are outside the run"):
        log.read("site", 3, 6)
    with pytest.raises(GlauberError, match="step 6 is outside the run"):
        log.tokens(6)
    with pytest.raises(GlauberError, match="at least 1"):
        next(log.states(0))


def test_the_token_that_each_event_replaced() -> None:
    chains = synthetic_chains(3, 30, 2, empty=0.2)
    log, states = chains.memory_log(segment_steps=16), chains.tokens_after()
    log.append(chains.part(0, 30))
    for segment in log.segments():
        replaced, sites = segment.replaced_tokens(), segment.arrays["site"]
        assert (replaced[sites < 0] == -1).all()
        for chain, step in np.ndindex(3, sites.shape[1]):
            tokens = states[segment.first + step][chain].copy()
            for slot in range(2):
                if (site := sites[chain, step, slot]) >= 0:
                    assert replaced[chain, step, slot] == tokens[site]
                    tokens[site] = segment.arrays["token"][chain, step, slot]
