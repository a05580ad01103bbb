"""Verification of a run, file by file, and the repair that keeps its longest sound prefix."""

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from glauber.foundation.disk import RUN_HEADER as MANIFEST
from glauber.foundation.disk import digest, explained_errors, read_file, sync, write_file
from glauber.foundation.errors import DamagedRun, GlauberError
from glauber.foundation.parameters import Trust
from glauber.foundation.study import Result, counted, internal, reported, signature, study
from glauber.models.base import Conditionals
from glauber.runs.folder_log import (
    EVENTS,
    FORMAT,
    START,
    STATES,
    TOKENIZER,
    UNREADABLE,
    ArrayTable,
    FileDamage,
    Manifest,
    encode,
    file_damages,
    remove_strays,
    state_file,
    take_lock,
    tokenizer_damages,
    tokenizer_digests,
    write_manifest,
)
from glauber.runs.log import TOKENS, Segment
from glauber.runs.run import Folder, Run
from glauber.runs.spec import Spec, check_trust, record_of, spec_of

PLOT = "glauber.interfaces.plots.runs:plot_damages"


@study
def verify(run: Folder) -> "Verified":
    """Compare every file of a run with its checksum.

    The exit code of the command is 1 if something is damaged.
    """
    folder = stored_folder(run)
    inspection = inspect_log(folder)
    manifest = inspection.manifest
    return Verified(
        run=folder,
        steps=manifest.steps if manifest is not None and inspection.committed else None,
        sound=inspection.sound_steps,
        planned=None if manifest is None else manifest.spec.steps,
        damages=inspection.damages,
        signature=signature() if manifest is None else manifest.spec.signature,
    )


@dataclass(frozen=True, eq=False)
class Verified(Result):
    """Which files of a run are what was committed."""

    run: Path
    steps: int | None  # committed; None where run.json is damaged
    sound: int  # steps of the longest sound prefix
    planned: int | None  # steps; None where nothing says how the run was made
    damages: tuple[FileDamage, ...]
    signature: str
    format: int = FORMAT  # version of the format of runs

    FIGURES = {"damages": (PLOT, "damages", "n_shown")}

    @reported
    def finished(self) -> bool:
        """Whether all planned steps are committed."""
        return self.steps is not None and self.steps == self.planned

    @property
    def n_shown(self) -> int:
        """The steps that the figure shows."""
        return self.steps or 0

    @property
    def exit_code(self) -> int:
        return 1 if self.damages else 0

    def lines(self) -> Iterable[str]:
        steps = "an unknown number of steps" if self.steps is None else counted(self.steps, "step")
        planned = "" if self.planned is None or self.finished else f" of {self.planned:,} planned"
        yield f"{self.run}: {steps}{planned} committed"
        yield from (f"damaged: {damage}" for damage in self.damages)
        if not self.damages:
            yield "sound: every file is what was committed"
        elif self.planned is None:
            yield (
                "nothing is left that says how the run was made: restore run.json or "
                f"{START} from a backup"
            )
        else:
            sound = f"steps 0 to {self.sound:,} are sound" if self.sound else "no step is sound"
            yield f"{sound}; keep them with: glauber repair {self.run}"

    def table(self) -> dict[str, list[Any]]:
        """One row per damaged file."""
        return damage_table(self.damages)


@study
def repair(
    run: Folder,
    *,
    model: Annotated[
        str | Conditionals | None, "The run's model, to write a damaged tokenizer again."
    ] = None,
    trust_remote_code: Trust = False,
) -> "Repaired":
    """Keep the longest sound prefix of a run, from which it can be resumed to the same bits.

    A damaged run.json is rebuilt from the footers of the other files, a lost state by replay, a
    tokenizer from the run's model. What cannot be had again is cut off with all that follows it.
    """
    from glauber.models.load import load

    folder = stored_folder(run)
    if model is not None:  # refused before anything is written
        model = load(model, device="cpu", trust_remote_code=trust_remote_code)

    def save_tokenizer(target: Path, spec: Spec) -> None:
        """Write the tokenizer of a run's model; another model is refused."""
        if model is None:
            check_trust(folder, spec, trust_remote_code)
        source = spec.model if model is None else model
        dtype = spec.dtype if model is None else "float32"
        loaded = load(source, device="cpu", dtype=dtype, trust_remote_code=trust_remote_code)
        if loaded.fingerprint != spec.fingerprint:
            raise GlauberError(f"{loaded.name or 'this model'} is not the model that made the run.")
        loaded.vocabulary.save(target)

    return repair_log(folder, save_tokenizer=save_tokenizer)


def stored_folder(run: Run | str | Path) -> Path:
    """The folder of a run that is on the disk."""
    folder = run.folder if isinstance(run, Run) else Path(run)
    if folder is None:
        raise GlauberError("the run is in memory only, so it has no files.")
    if not folder.is_dir():
        raise GlauberError(f"{folder} is not a run: there is no such folder.")
    return folder


@dataclass(frozen=True, eq=False)
class Repaired(Result):
    """What was damaged, what was done about it, and what remains."""

    run: Path
    damages: tuple[FileDamage, ...]  # before
    done: tuple[str, ...]
    remains: tuple[str, ...]  # what is still damaged
    steps: int  # kept
    had: int | None  # steps committed before; None where run.json was damaged
    planned: int  # steps
    generates: bool = internal()  # whether it is a run of unmasking passes
    signature: str = ""

    FIGURES = {"damages": (PLOT, "damages", "n_shown")}

    @reported
    def finished(self) -> bool:
        """Whether all planned steps are there."""
        return self.steps == self.planned

    @property
    def n_shown(self) -> int:
        """The steps that the figure shows."""
        return max([self.steps, self.had or 0, *(damage.last or 0 for damage in self.damages)])

    @property
    def exit_code(self) -> int:
        return 1 if self.remains else 0

    def lines(self) -> Iterable[str]:
        yield from (f"damaged: {damage}" for damage in self.damages)
        yield from (f"done: {action}" for action in self.done)
        yield from (f"remains: {problem}" for problem in self.remains)
        if not self.damages and not self.done:
            yield "nothing was damaged"
        had = "" if self.had in (None, self.steps) else f" of {self.had:,}"
        yield f"{self.run} has {self.steps:,}{had} steps, {self.planned:,} planned"
        if not self.finished:
            call = "the call that began it" if self.generates else f"glauber resume {self.run}"
            yield f"the missing steps are made again, to the same bits, by: {call}"

    def table(self) -> dict[str, list[Any]]:
        """One row per file that was damaged."""
        return damage_table(self.damages)


def damage_table(damages: Sequence[FileDamage]) -> dict[str, list[Any]]:
    """One row per damaged file."""
    return {name: [getattr(damage, name) for damage in damages] for name in FileDamage._fields}


# ---- inspection


@dataclass(frozen=True)
class Inspection:
    """The damaged files of a run."""

    manifest: Manifest | None  # rebuilt where run.json is damaged; None if that is impossible
    damages: tuple[FileDamage, ...]
    committed: bool  # whether the manifest is that of run.json

    @property
    def sound_steps(self) -> int:
        """The steps before the first damaged events; lost states can be made again by replay."""
        lost = [d.first or 0 for d in self.damages if d.first != d.last or d.name == START]
        return min(lost, default=0 if self.manifest is None else self.manifest.steps)


def inspect_log(folder: Path) -> Inspection:
    """Read every file of a run and compare it with its digest."""
    while True:
        try:
            manifest = Manifest.read(folder)
        except DamagedRun:
            return _inspection_without_manifest(folder)
        inspection = Inspection(manifest, tuple(file_damages(folder, manifest)), True)
        if not inspection.damages:
            return inspection
        if Manifest.read(folder) != manifest:
            continue  # a writer replaced the tail
        # run.json may be older than the other files, or that of another run
        other = _inspection_without_manifest(folder)
        foreign = other.manifest is not None and other.manifest.run != manifest.run
        limit = inspection.sound_steps if foreign else manifest.steps
        return other if other.sound_steps > limit else inspection


def _inspection_without_manifest(folder: Path) -> Inspection:
    broken = FileDamage(MANIFEST, "is damaged")
    try:
        manifest = rebuilt_manifest(folder)
    except DamagedRun:
        return Inspection(None, (broken, FileDamage(START, "is damaged", 0, 0)), False)
    return Inspection(manifest, (broken, *file_damages(folder, manifest)), False)


# ---- repair


SaveTokenizer = Callable[[Path, Spec], None]


def repair_log(folder: Path, *, save_tokenizer: SaveTokenizer | None = None) -> Repaired:
    """Keep the longest sound prefix of a run.

    save_tokenizer writes the files of the tokenizer into a new folder. New files come first, then
    the manifest, then removals, so that a repair may be killed and repeated.
    """
    with suppress(DamagedRun):
        Manifest.read(folder)  # refuses what is no run, and runs of other formats
    handle = take_lock(folder)
    try:
        with explained_errors(folder):
            return _repair(folder, save_tokenizer)
    finally:
        os.close(handle)


def _repair(folder: Path, save_tokenizer: SaveTokenizer | None) -> Repaired:
    before = inspect_log(folder)
    manifest = before.manifest or rebuilt_manifest(folder)
    done = [] if before.committed else [f"{MANIFEST} was rebuilt from the footers of the segments"]
    damaged_names = {item.name for item in before.damages}
    if START in damaged_names:
        raise DamagedRun(
            f"the run {folder} cannot be repaired: {START} is lost, and nothing else contains the "
            "tokens before the first step."
        )
    steps, digests = before.sound_steps, dict(manifest.files)
    for name in (EVENTS, STATES):
        (folder / name).mkdir(exist_ok=True)
    for number in range(steps // manifest.segment_steps):
        name = state_file(number + 1)
        if name in damaged_names:
            try:
                content = _remade_state(folder, manifest, number)
            except UNREADABLE as error:
                raise DamagedRun(
                    f"the run {folder} cannot be repaired: {name} is lost, and the events before "
                    "it are not of this run."
                ) from error
            write_file(folder / name, content)
            digests[name] = digest(content)
            done.append(f"{name} was made again by replay")
    if steps < manifest.steps:
        done.append(f"steps {steps} to {manifest.steps} were cut off")
    problem = ""
    if save_tokenizer is not None and tokenizer_damages(folder, manifest):
        try:
            digests = _write_tokenizer(folder, manifest.spec, digests, save_tokenizer)
            done.append(f"{TOKENIZER}/ was written again from the model")
        except GlauberError as error:
            problem = f": {error} Give its model (--model)."
    sync(folder / EVENTS, folder / STATES, folder)
    repaired = manifest.with_steps(steps, manifest.spec, digests)
    if repaired != manifest or not before.committed:
        write_manifest(folder, repaired)
    remove_strays(folder, repaired.files)
    remains = tuple(f"{item}{problem}" for item in tokenizer_damages(folder, repaired))
    had = manifest.steps if before.committed else None
    spec = repaired.spec
    return Repaired(
        folder,
        before.damages,
        tuple(done),
        remains,
        steps,
        had,
        spec.steps,
        generates=spec.unmasking is not None,
        signature=spec.signature,
    )


def _remade_state(folder: Path, manifest: Manifest, number: int) -> bytes:
    """The file of the tokens after a full segment, whose events and tokens before it are sound."""
    before = ArrayTable(read_file(folder, state_file(number)))
    events = ArrayTable(read_file(folder, f"{EVENTS}/{number:08}.parquet"))
    first = manifest.segment_steps * number
    shape = (manifest.segment_steps, manifest.chains, manifest.slots)
    arrays = {name: events.events(name, first, shape) for name in ("site", "token")}
    segment = Segment(first, {TOKENS: before.rows(TOKENS, manifest.chains), **arrays})
    last = first + manifest.segment_steps
    about = {**events.about, "first": last, "last": last}
    return encode({TOKENS: segment.tokens_after(last)}, about)


def _write_tokenizer(
    folder: Path, spec: Spec, digests: Mapping[str, str], save_tokenizer: SaveTokenizer
) -> dict[str, str]:
    """Write the tokenizer again; the digests of all files then."""
    with tempfile.TemporaryDirectory() as parent:
        save_tokenizer(Path(parent) / TOKENIZER, spec)
        files = tokenizer_digests(Path(parent))
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_file(folder / name, read_file(Path(parent), name))
    folders = [path for path in (folder / TOKENIZER).rglob("*") if path.is_dir()]
    sync(folder / TOKENIZER, *folders)
    others = {n: value for n, value in digests.items() if not n.startswith(f"{TOKENIZER}/")}
    return others | files


def rebuilt_manifest(folder: Path) -> Manifest:
    """The manifest of the sound files in a folder; the footer of each says what it contains."""
    try:
        content = read_file(folder, START)
        start = ArrayTable(content)
        if start.n_rows != start.about["chains"] or not start.is_sound():
            raise ValueError("the digest differs")
        files = {START: digest(content), **start.about["tokenizer"]}
        manifest = Manifest.from_record({**start.about, "steps": 0, "files": files})
    except (RecursionError, *UNREADABLE) as error:
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
    first, limit = manifest.steps, manifest.steps + manifest.segment_steps
    if first % manifest.segment_steps:
        return None
    candidates, rows = {}, manifest.chains * manifest.slots
    for name in (f"{EVENTS}/{manifest.n_full:08}.parquet", *_tail_names(folder, manifest.n_full)):
        table = sound_table(folder, name, rows * manifest.segment_steps)
        if table is None or table.about.get("run") != manifest.run:
            continue
        last = table.about.get("last")
        if table.about.get("first") != first or last not in range(first + 1, limit + 1):
            continue
        with suppress(*UNREADABLE):
            spec = spec_of(record_of(manifest.spec) | table.about["spec"])
            longer = replace(manifest, steps=int(last), spec=spec)
            if name in longer.needed_files():
                candidates[longer.steps] = name, longer
    if not candidates:
        return None
    steps, (name, longer) = max(candidates.items(), key=lambda item: item[0])
    digests[name] = digest(read_file(folder, name))
    name = state_file(longer.n_full)
    state = sound_table(folder, name, manifest.chains) if longer.tail is None else None
    if state is not None and (state.about.get("run"), state.about.get("first")) == (
        manifest.run,
        steps,
    ):
        digests[name] = digest(read_file(folder, name))
    return longer


def _tail_names(folder: Path, number: int) -> list[str]:
    paths = [*folder.glob("tail-*.parquet"), *folder.glob(f"{EVENTS}/{number:08}-*.parquet")]
    return [path.relative_to(folder).as_posix() for path in paths]


def sound_table(folder: Path, name: str, most_rows: int) -> ArrayTable | None:
    """A file whose own digest agrees with its values; None where there is no such file."""
    try:
        table = ArrayTable(read_file(folder, name))
        return table if table.n_rows <= most_rows and table.is_sound() else None
    except UNREADABLE:
        return None
