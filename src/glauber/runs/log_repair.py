"""The damaged files of a run in a folder, and the repair that keeps its longest sound prefix."""

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from glauber.errors import DamagedRun
from glauber.runs.folder_log import (
    EVENTS,
    MANIFEST,
    START,
    STATES,
    TOKENIZER,
    UNREADABLE,
    FileDamage,
    Manifest,
    Table,
    digest,
    encode,
    explained_errors,
    file_damage,
    read_file,
    remove_strays,
    spec_record,
    state_file,
    sync,
    take_lock,
    tokenizer_damages,
    tokenizer_digests,
    write_file,
    write_manifest,
)
from glauber.runs.log import TOKENS, Segment
from glauber.runs.spec import spec_of


@dataclass(frozen=True)
class Inspection:
    """The damaged files of a run."""

    manifest: Manifest | None  # None where run.json is damaged
    damages: tuple[FileDamage, ...]
    sound_steps: int  # of the longest prefix that is sound, or follows from what is sound


def inspect_log(folder: Path) -> Inspection:
    """Read every file of a run and compare it with its digest."""
    while True:
        try:
            manifest = Manifest.read(folder)
        except DamagedRun:
            return _inspection_without_manifest(folder)
        damages = tuple(file_damages(folder, manifest))
        if damages and Manifest.read(folder) != manifest:
            continue  # a writer replaced the tail
        names = {item.name for item in damages}
        if names.issuperset(manifest.needed_files()):  # run.json may be that of another run
            inspection = _inspection_without_manifest(folder)
            if inspection.sound_steps > 0:
                return inspection
        return Inspection(manifest, damages, sound_steps(manifest, damages))


def _inspection_without_manifest(folder: Path) -> Inspection:
    broken = FileDamage(MANIFEST, "is damaged")
    try:
        manifest = rebuilt_manifest(folder)
    except DamagedRun:
        return Inspection(None, (broken, FileDamage(START, "is damaged", 0, 0)), 0)
    damages = (broken, *file_damages(folder, manifest))
    return Inspection(None, damages, sound_steps(manifest, damages))


def file_damages(folder: Path, manifest: Manifest) -> Iterator[FileDamage]:
    """The files that are not what the manifest says, in the order of steps."""
    for name in manifest.needed_files():
        number = int(re.findall(r"\d+", name)[0]) if name != START else 0
        first = number * manifest.segment_steps
        last = min(first + manifest.segment_steps, manifest.steps)
        if name == manifest.tail:
            first, last = manifest.n_full * manifest.segment_steps, manifest.steps
        if name.startswith(STATES) or name == START:
            last = first
        reason = file_damage(folder, name, manifest)
        if reason is not None:
            yield FileDamage(name, reason, first, last)
    yield from tokenizer_damages(folder, manifest)


def sound_steps(manifest: Manifest, damages: tuple[FileDamage, ...]) -> int:
    """The steps before the first damaged events; lost states can be made again by replay."""
    names = {item.name for item in damages}
    if START in names:
        return 0
    number = 0
    while number < manifest.n_full and manifest.events_file(number) not in names:
        number += 1
    complete = number == manifest.n_full and manifest.tail not in names
    return manifest.steps if complete else number * manifest.segment_steps


@dataclass(frozen=True)
class LogRepair:
    """What a repair did."""

    damages: tuple[FileDamage, ...]  # before
    done: tuple[str, ...]
    remains: tuple[FileDamage, ...]  # what is still damaged
    steps: int
    previous_steps: int | None  # None where run.json was damaged


def repair_log(folder: Path, *, save_tokenizer: Callable[[Path], None] | None = None) -> LogRepair:
    """Keep the longest sound prefix of a run, from which it can be resumed to the same bits.

    A damaged run.json is rebuilt from the footers of the other files, a lost state by replay, a
    tokenizer by save_tokenizer. What cannot be had again is cut off with all that follows it. New
    files come first, then the manifest, then removals, so that a repair may be killed and repeated.
    """
    with suppress(DamagedRun):
        Manifest.read(folder)  # refuses what is no run, and runs of other formats
    handle = take_lock(folder)
    try:
        with explained_errors(folder):
            return _repair(folder, save_tokenizer)
    finally:
        os.close(handle)


def _repair(folder: Path, save_tokenizer: Callable[[Path], None] | None) -> LogRepair:
    before = inspect_log(folder)
    manifest = before.manifest or rebuilt_manifest(folder)
    done = [] if before.manifest else [f"{MANIFEST} was rebuilt from the footers of the segments"]
    damaged_names = {item.name for item in before.damages}
    if START in damaged_names:
        raise DamagedRun(
            f"the run {folder} cannot be repaired: {START} is lost, and nothing else contains the "
            "tokens before the first step."
        )
    steps, digests = before.sound_steps, dict(manifest.files)
    for folder_name in (EVENTS, STATES):
        (folder / folder_name).mkdir(exist_ok=True)
    for number in range(steps // manifest.segment_steps):
        name = state_file(number + 1)
        if name in damaged_names:
            content = _remade_state(folder, manifest, number)
            write_file(folder / name, content)
            digests[name] = digest(content)
            done.append(f"{name} was made again by replay")
    if steps < manifest.steps:
        done.append(f"steps {steps} to {manifest.steps} were cut off")
    if save_tokenizer is not None and tokenizer_damages(folder, manifest):
        digests = _write_tokenizer(folder, digests, save_tokenizer)
        done.append(f"{TOKENIZER}/ was written again")
    sync(folder / EVENTS, folder / STATES, folder)
    repaired = manifest.with_steps(steps, manifest.spec, digests)
    if repaired != before.manifest:
        write_manifest(folder, repaired)
    remove_strays(folder, repaired.files)
    remains = tuple(tokenizer_damages(folder, repaired))
    previous_steps = None if before.manifest is None else before.manifest.steps
    return LogRepair(before.damages, tuple(done), remains, steps, previous_steps)


def _remade_state(folder: Path, manifest: Manifest, number: int) -> bytes:
    """The file of the tokens after a full segment, whose events and tokens before it are sound."""
    before = Table(read_file(folder / state_file(number)))
    events = Table(read_file(folder / f"{EVENTS}/{number:08}.parquet"))
    arrays = {
        name: events.events(name, manifest.chains, manifest.slots) for name in ("site", "token")
    }
    first, last = events.about["first"], events.about["last"]
    segment = Segment(first, {TOKENS: before.rows(TOKENS), **arrays})
    about = {**events.about, "first": last, "last": last}
    return encode({TOKENS: segment.tokens_after(last)}, about)


def _write_tokenizer(
    folder: Path, digests: Mapping[str, str], save_tokenizer: Callable[[Path], None]
) -> dict[str, str]:
    """Write the tokenizer again; the digests of all files then."""
    with tempfile.TemporaryDirectory() as parent:
        save_tokenizer(Path(parent) / TOKENIZER)
        files = tokenizer_digests(Path(parent))
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_file(folder / name, read_file(Path(parent) / name))
    folders = [path for path in (folder / TOKENIZER).rglob("*") if path.is_dir()]
    sync(folder / TOKENIZER, *folders)
    others = {n: value for n, value in digests.items() if not n.startswith(f"{TOKENIZER}/")}
    return others | files


def rebuilt_manifest(folder: Path) -> Manifest:
    """The manifest of the sound files in a folder; the footer of each says what it contains."""
    try:
        content = read_file(folder / START)
        start = Table(content)
        if not start.is_sound():
            raise ValueError("the digest differs")
        files = {START: digest(content), **start.about["tokenizer"]}
        manifest = Manifest.from_record(folder, {**start.about, "steps": 0, "files": files})
    except UNREADABLE as error:
        raise DamagedRun(
            f"the run {folder} cannot be repaired: {MANIFEST} and {START} are lost, and nothing "
            "else contains how the run was made."
        ) from error
    digests = dict(manifest.files)
    while (longer := _longer_manifest(folder, manifest, digests)) is not None:
        manifest = longer
    return manifest.with_steps(manifest.steps, manifest.spec, digests)


def _longer_manifest(folder: Path, manifest: Manifest, digests: dict[str, str]) -> Manifest | None:
    """The manifest with one more segment, whose digests are added; None where there is none."""
    first = manifest.steps
    if first % manifest.segment_steps:
        return None
    candidates = []
    names = [f"{EVENTS}/{manifest.n_full:08}.parquet", *_tail_names(folder, manifest.n_full)]
    for name in names:
        table = sound_table(folder, name)
        if table is None or table.about["run"] != manifest.run or table.about["first"] != first:
            continue
        spec = spec_of(folder, spec_record(manifest.spec) | table.about["spec"])
        longer = replace(manifest, steps=table.about["last"], spec=spec)
        if name in longer.needed_files():
            candidates.append((longer.steps, name, longer))
    if not candidates:
        return None
    steps, name, longer = max(candidates)
    digests[name] = digest(read_file(folder / name))
    state = sound_table(folder, state_file(longer.n_full)) if longer.tail is None else None
    if state is not None and (state.about["run"], state.about["first"]) == (manifest.run, steps):
        digests[state_file(longer.n_full)] = digest(read_file(folder / state_file(longer.n_full)))
    return longer


def _tail_names(folder: Path, number: int) -> list[str]:
    paths = [*folder.glob("tail-*.parquet"), *folder.glob(f"{EVENTS}/{number:08}-*.parquet")]
    return [path.relative_to(folder).as_posix() for path in paths]


def sound_table(folder: Path, name: str) -> Table | None:
    """A file whose own digest agrees with its values; None where there is no such file."""
    try:
        table = Table(read_file(folder / name))
        return table if table.is_sound() else None
    except UNREADABLE:
        return None
