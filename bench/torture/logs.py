"""Does a log in a folder outlast damage, kills and power cuts?

python -m bench.torture.logs damage|kills|power [--count N] [--seed S] [--broken WRITER]

The same trials as those of `bench.torture`, on a `FolderLog` of synthetic events. --broken replaces
the writer by one with a known mistake, so that the trials must fail.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from glauber.errors import GlauberError
from glauber.runs import folder_log
from glauber.runs.folder_log import FolderLog, write_file
from glauber.runs.log import FIELDS, Events, MemoryLog
from glauber.runs.log_repair import inspect_log, repair_log
from glauber.runs.spec import Spec

SEGMENT_STEPS = 16
STEPS = 40


@dataclass(frozen=True)
class Chains:
    """Synthetic chains: their start, and events that follow from it."""

    spec: Spec
    tokens: np.ndarray
    free: np.ndarray
    events: Events
    rejects: bool

    @property
    def n_slots(self) -> int:
        return self.events["site"].shape[2]

    def part(self, first: int, last: int) -> Events:
        """The events of the steps first <= step < last."""
        return {name: values[:, first:last] for name, values in self.events.items()}

    def memory_log(self, **options: Any) -> MemoryLog:
        options = {"rejects": self.rejects} | options
        return MemoryLog(self.spec, self.tokens, self.free, self.n_slots, **options)

    def create(self, folder: Path, **options: Any) -> FolderLog:
        options = {"rejects": self.rejects, "save_tokenizer": save_tokenizer} | options
        return FolderLog.create(folder, self.spec, self.tokens, self.free, self.n_slots, **options)

    def tokens_after(self) -> list[np.ndarray]:
        """The tokens after 0, 1, … steps, by a plain loop."""
        states = [self.tokens.astype(np.int32)]
        sites, tokens = self.events["site"], self.events["token"]
        for step in range(sites.shape[1]):
            state = states[-1].copy()
            for chain in range(len(state)):
                for site, token in zip(sites[chain, step], tokens[chain, step], strict=True):
                    if site >= 0:
                        state[chain, site] = token
            states.append(state)
        return states


def save_tokenizer(folder: Path) -> None:
    """Two small files in the place of a tokenizer."""
    folder.mkdir()
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    (folder / "tokenizer_config.json").write_text("{}")


def synthetic_chains(
    n_chains: int,
    n_steps: int,
    n_slots: int = 1,
    *,
    length: int = 9,
    rejects: bool = False,
    empty: float = 0.0,
    seed: int = 0,
) -> Chains:
    """Chains of texts of different lengths; a share of the slots is empty."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(max(1, length // 2), length + 1, size=n_chains)
    lengths[0] = length
    inside = np.arange(length) < lengths[:, None]
    tokens = np.where(inside, rng.integers(1000, size=(n_chains, length)), -1).astype(np.int32)
    shape = (n_chains, n_steps, n_slots)
    vacant = rng.random(shape) < empty
    events = {
        "site": (rng.random(shape) * lengths[:, None, None]).astype(np.int32),
        "token": rng.integers(1000, size=shape).astype(np.int32),
        "changed": rng.random(shape) < 0.5,
        "log_prob_old": (-9 * rng.random(shape)).astype(np.float32),
        "log_prob_new": (-9 * rng.random(shape)).astype(np.float32),
        "entropy": (5 * rng.random(shape)).astype(np.float32),
        "accepted": rng.random(shape) < 0.5,
    }
    for name, values in events.items():
        values[vacant] = FIELDS[name][1]
    spec = Spec("synthetic", "0" * 12, "cpu", "float32", seed, n_steps, n_chains, 1.0)
    return Chains(spec, tokens, inside, events, rejects)


SUBJECTS = {
    "one slot": synthetic_chains(3, STEPS),
    "blocks": synthetic_chains(2, STEPS, 3, rejects=True, empty=0.4, seed=1),
}


def finish(
    chains: Chains, folder: Path, report: Callable[[int], object] = lambda steps: None
) -> None:
    """Begin a run, or continue it to its end; every commit is reported."""
    draw = random.Random(5)
    if folder.exists():
        log = FolderLog(folder, write=True)
    else:
        log = chains.create(folder, segment_steps=SEGMENT_STEPS)
    with log:
        report(log.steps)
        while log.steps < STEPS:
            log.append(chains.part(log.steps, min(STEPS, log.steps + draw.randint(1, 9))))
            report(log.steps)


def wrong_values(chains: Chains, folder: Path, *, tolerant: bool = False) -> list[str]:
    """What a reader gets that is wrong; a tolerant one lets refusals pass."""
    wrong = []
    states = chains.tokens_after()

    def check(what: str, read: Callable[[FolderLog], Any], right: Callable[[int], Any]) -> None:
        try:
            log = FolderLog(folder)
            values, expected = read(log), right(log.steps)
        except GlauberError as error:
            if not tolerant:
                wrong.append(f"{what}: {error}")
        except Exception as error:
            wrong.append(f"{what} breaks down: {type(error).__name__}: {error}")
        else:
            if _bits(values) != _bits(expected):
                wrong.append(f"{what} differs")

    for name in FIELDS:
        if name != "accepted" or chains.rejects:
            check(
                name,
                lambda log, name=name: log.read(name),
                lambda steps, name=name: chains.events[name][:, :steps],
            )
    check("free", lambda log: log.free, lambda steps: chains.free)
    check("tokens", lambda log: log.tokens(), lambda steps: states[steps])
    check("middle", lambda log: log.tokens(log.steps // 2), lambda steps: states[steps // 2])
    check(
        "states",
        lambda log: np.stack([tokens for _, tokens in log.states(3)]),
        lambda steps: np.stack(states[: steps + 1 : 3]),
    )
    return wrong


def _bits(values: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    return str(values.dtype), values.shape, values.tobytes()


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of every file of a run except the lock."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def unfinished(chains: Chains, folder: Path, steps: int) -> list[str]:
    """What is wrong with a run that was cut short after so many steps were committed."""
    if not folder.exists():
        wrong = [] if steps < 0 else ["the run is missing"]
    else:
        wrong = wrong_values(chains, folder)
        if not wrong and FolderLog(folder).steps < steps:
            wrong = [f"{steps} steps were committed, {FolderLog(folder).steps} are there"]
        if not wrong and inspect_log(folder).damages:
            wrong = ["verification reports damage"]
    if wrong:
        return wrong
    with without_sync(), tempfile.TemporaryDirectory() as parent:
        finish(chains, folder)
        finish(chains, Path(parent) / "run")
        return [] if contents(folder) == contents(Path(parent) / "run") else ["the end differs"]


# ---- damage


def flip(path: Path, other: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def cut(path: Path, other: Path, draw: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size)])


def zero(path: Path, other: Path, draw: random.Random) -> None:
    content = path.read_bytes()
    first = draw.randrange(len(content))
    last = draw.randint(first + 1, len(content))
    path.write_bytes(content[:first] + bytes(last - first) + content[last:])


def delete(path: Path, other: Path, draw: random.Random) -> None:
    path.unlink()


def empty(path: Path, other: Path, draw: random.Random) -> None:
    path.write_bytes(b"")


def swap(path: Path, other: Path, draw: random.Random) -> None:
    """With another file of the same run."""
    siblings = sorted({*path.parent.iterdir()} - {path, path.parent / "lock"})
    sibling = draw.choice([item for item in siblings if item.is_file()] or [path])
    content = path.read_bytes()
    path.write_bytes(sibling.read_bytes())
    sibling.write_bytes(content)


def foreign(path: Path, other: Path, draw: random.Random) -> None:
    """The file of the same name of another run."""
    name = path.relative_to(path.parents[1] if path.parent.name != "run" else path.parent)
    path.write_bytes((other / name).read_bytes())


KINDS = {change.__name__: change for change in (flip, cut, zero, delete, empty, swap, foreign)}


def damage_trial(
    chains: Chains, home: Path, kind: str, steps: int, draw: random.Random
) -> Counter[str]:
    """One damage to a run of so many steps, and everything that must hold after it."""
    shutil.rmtree(home, ignore_errors=True)
    folder, other, whole = home / "run", home / "other" / "run", home / "whole" / "run"
    others = synthetic_chains(
        len(chains.tokens), STEPS, chains.n_slots, rejects=chains.rejects, seed=99
    )
    for source, target in ((chains, folder), (others, other)):
        with source.create(target, segment_steps=SEGMENT_STEPS) as log:
            log.append(source.part(0, steps))
    finish(chains, whole)
    before = contents(folder)
    name = draw.choice(sorted(before))
    KINDS[kind](folder / name, other, draw)
    hit = [item for item in before if contents(folder).get(item) != before[item]]
    counts = Counter(trials=1)

    def fail(reason: str) -> None:
        counts["failed"] += 1
        print(f"  FAILED {kind} of {' and '.join(hit)} at {steps} steps: {reason}", flush=True)

    for reason in wrong_values(chains, folder, tolerant=True):
        fail(reason)
    inspection = inspect_log(folder)
    counts["noticed" if inspection.damages else "harmless"] += 1
    if hit and not inspection.damages and wrong_values(chains, folder):
        fail("verification reports no damage")
    try:
        repaired = repair_log(folder, save_tokenizer=save_tokenizer)
    except GlauberError as error:
        counts["refused"] += 1
        undecidable = kind == "foreign" and steps == 0  # which of two files is of another run
        if "start.parquet" not in hit and not undecidable:
            fail(f"not repaired: {error}")
        return counts
    if inspect_log(folder).damages or repaired.remains:
        fail("there is still damage")
    for reason in unfinished(chains, folder, inspection.sound_steps):
        fail(reason)
    counts["repaired"] += 1
    counts["without loss"] += repaired.steps == steps
    return counts


def damage(home: Path, *, count: int = 200, seed: int = 0) -> int:
    """So many damages; prints their counts, returns failures."""
    draw, total = random.Random(seed), Counter[str]()
    with without_sync():  # which plays no part here
        for number in range(count):
            chains = draw.choice(list(SUBJECTS.values()))
            kind = list(KINDS)[number % len(KINDS)]
            total += damage_trial(chains, home, kind, draw.choice((0, 7, 32, 37, 40)), draw)
    print("damage: " + ", ".join(f"{number} {what}" for what, number in total.items()))
    return total["failed"]


# ---- kills


def kills(home: Path, *, count: int = 100, seed: int = 0) -> int:
    """So many writers killed before an operation on files or by the clock; returns failures."""
    from bench.torture.kills import Moments, forked

    draw, failed, killed = random.Random(seed), 0, 0
    for _ in range(count):
        chains = draw.choice(list(SUBJECTS.values()))
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        folder, notes = home / "run", home.with_name("committed")
        notes.write_bytes(b"")

        def act(chains: Chains, at: int | None, folder: Path = folder, notes: Path = notes) -> None:
            with notes.open("ab", buffering=0) as file:
                Moments(folder.parent, at).watch()
                finish(chains, folder, lambda number: file.write(bytes([number])))

        for _ in range(draw.choice((1, 1, 2, 3))):
            at, after = (draw.randint(1, 90), None)
            if draw.random() < 0.3:
                at, after = None, draw.uniform(0.0, 0.2)
            try:
                killed += forked(lambda chains=chains, at=at: act(chains, at), after)
            except SystemExit:  # the writer refuses what a killed one left
                break
        steps = max(notes.read_bytes(), default=-1)
        reasons = unfinished(chains, folder, steps)
        failed += bool(reasons)
        if reasons:
            print(f"  FAILED at {steps} steps: {reasons[0]}", flush=True)
    print(f"kills: {count} trials, {killed} kills, {failed} failed")
    return failed


# ---- power cuts


def power(home: Path, *, count: int = 200, seed: int = 0) -> int:
    """So many power cuts of a writer on a simulated disk; returns failures."""
    from bench.torture.power import Disk, ragged

    draw, failed, tried = random.Random(seed), 0, 0
    for chains in SUBJECTS.values():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        disk = Disk(home)
        disk.steps = -1
        with disk.watching():
            finish(
                chains,
                home / "deep" / "run",
                lambda steps, disk=disk: vars(disk).update(steps=steps),
            )
        disk.end()
        moments = draw.sample(disk.moments, min(count // (2 * len(SUBJECTS)), len(disk.moments)))
        for moment in moments:
            for tree in (moment.durable, ragged(moment, draw)):
                shutil.rmtree(home)
                tree.build(disk.root, home, disk.kinds)
                reasons = unfinished(chains, home / "deep" / "run", moment.steps)
                tried += 1
                failed += bool(reasons)
                if reasons:
                    print(f"  FAILED at {moment.steps} steps: {reasons[0]}", flush=True)
        disk.close()
    print(f"power: {tried} cuts, {failed} failed")
    return failed


# ---- writers with a known mistake


@contextmanager
def without_sync() -> Iterator[None]:
    """A writer that never waits for the disk."""
    with patch.object(folder_log, "flush_to_disk", lambda handle: None):
        yield


@contextmanager
def manifest_first() -> Iterator[None]:
    """A writer that commits before it writes what the commit names."""
    waiting: dict[Path, bytes] = {}
    write_manifest = folder_log.write_manifest

    def write(log: FolderLog, name: str, content: bytes, digests: dict[str, str]) -> None:
        waiting[log.folder / name] = content
        digests[name] = folder_log.digest(content)

    def commit(folder: Path, manifest: folder_log.Manifest) -> None:
        write_manifest(folder, manifest)
        for path, content in waiting.items():
            write_file(path, content)
        waiting.clear()
        folder_log.sync(folder, folder / "events", folder / "states")

    with ExitStack() as stack:
        stack.enter_context(patch.object(FolderLog, "_write", write))
        stack.enter_context(patch.object(folder_log, "write_manifest", commit))
        yield


BROKEN = {"without-sync": without_sync, "manifest-first": manifest_first}
TRIALS = {"damage": damage, "kills": kills, "power": power}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=tuple(TRIALS))
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--broken", choices=tuple(BROKEN))
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # no threads are alive when a child is forked
    with tempfile.TemporaryDirectory() as parent, ExitStack() as stack:
        if args.broken is not None:
            stack.enter_context(BROKEN[args.broken]())
        failures = TRIALS[args.which](Path(parent) / "trial", count=args.count, seed=args.seed)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
