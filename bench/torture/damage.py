"""Is every damage to a run's files noticed, and is the longest sound beginning kept by a repair?

A file is chosen by its kind, so that the small ones are hit as often as the chunks, and one thing
befalls it. Then every reader must refuse, or see what it saw before; what `verify` calls sound
must all be readable; a repair must keep what was not hit; and `resume` must end with the bytes of
the run that nothing befell.
"""

import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import glauber
from bench.torture.harm import KINDS, Beside, may_be_lost, sound_before
from bench.torture.readers import READERS, Refusal, Seen, frozen, observe
from bench.torture.subjects import EVERY, SUBJECTS, Subject, differences, small_parts, sound
from glauber.errors import GlauberError
from glauber.runs.run import Run

STOPPED = {"generation": 11}  # passes after which the unfinished run is stopped


@dataclass(frozen=True)
class Made:
    """A subject's runs, and what readers see of them where they are tortured."""

    subject: Subject
    place: Path  # where the tortured copy lies
    whole: Path
    stopped: Path
    early: Path  # stopped before
    other: Path  # by another seed
    longer: Path
    unmarked: Path  # whole, but killed before its finish mark was set
    seen: dict[str, Seen]  # of each of these
    readers: tuple[str, ...]

    def copy(self, which: str) -> Path:
        """A fresh copy of one of the runs, always at the same place."""
        shutil.rmtree(self.place, ignore_errors=True)
        return shutil.copytree(getattr(self, which), self.place)


def made(subject: Subject, home: Path, readers: tuple[str, ...] = tuple(READERS)) -> Made:
    """Makes a subject's runs in a folder."""
    names = ("whole", "stopped", "early", "other", "longer", "unmarked")
    whole, stopped, early, other, longer, unmarked = (home / name for name in names)
    with small_parts():
        subject.begin(whole)
        subject.stop(stopped, STOPPED.get(subject.name, 22))
        subject.stop(early, 5)
        subject.begin(other, seed=1000)
        shutil.copytree(whole, longer)
        subject.extend(longer)
    shutil.copytree(whole, unmarked)
    (unmarked / "finished.json").unlink()
    found = Made(subject, home / "run", whole, stopped, early, other, longer, unmarked, {}, readers)
    for name in ("whole", "stopped", "longer", "unmarked"):
        found.seen[name] = observe(found.copy(name), readers)
        bad = {k: v for k, v in found.seen[name].items() if isinstance(v, Refusal)}
        if bad:
            raise SystemExit(f"{subject.name}: the undamaged run cannot be read: {bad}")
    return found


@dataclass
class Trial:
    """What came of one damage."""

    what: str
    kind: str
    hit: list[str]  # files
    noticed: bool = True
    failures: list[str] = field(default_factory=list)
    kept: float | None = None  # share of the steps, after a repair
    refused: str = ""  # why it could not be repaired

    def fail(self, why: str) -> None:
        self.failures.append(why)

    def beyond(self, differ: list[str]) -> list[str]:
        """The files that differ, but for one that was too many."""
        return [name for name in differ if self.kind != "stray" or name not in self.hit]


def trial(made: Made, which: str, kind: str, draw: random.Random) -> Trial:
    """One damage to one of a subject's runs, and everything that must hold after it."""
    run = made.copy(which)
    beside = Beside(made.other, made.stopped if which == "whole" else made.early)
    hit = [str(path.relative_to(run)) for path in KINDS[kind](run, beside, draw)]
    found = Trial(f"{made.subject.name}, {which}: {kind} {' and '.join(hit[:3])}", kind, hit)
    damaged = run.with_name("damaged")
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(run, damaged)
    _check_readers(found, run, _right(made, which, found))
    for name, end in (("resume", "whole"), ("extend", "longer")):
        _again(damaged, run)
        _check_writer(found, made, name, end)
    _again(damaged, run)
    _check_repair(found, made, which)
    return found


def _right(made: Made, which: str, found: Trial) -> list[Seen]:
    """What readers may see; nothing is said of what an earlier commit or spec lets them see."""
    if found.kind == "stale" and found.hit[0] in ("committed.json", "run.json"):
        return []
    # Without its mark a finished run is one that was killed just before it.
    unmarked = which == "whole" and "finished.json" in found.hit
    return [made.seen[which], *([made.seen["unmarked"]] if unmarked else [])]


def _again(damaged: Path, run: Path) -> None:
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(damaged, run)


def _check_readers(found: Trial, run: Path, before: list[Seen]) -> None:
    """Every reader refuses, or sees what it saw before, and none refuses what verifies."""
    now = observe(run, tuple(before[0])) if before else {}
    found.noticed = not sound(run)
    if not before and not found.noticed:
        found.fail("verify does not notice that it is older than its copy")
    for name, value in now.items():
        if isinstance(value, Refusal):
            if value.kind == "crashed":
                found.fail(f"{name} breaks down: {value.why}")
            elif not found.noticed:
                found.fail(f"verify sees nothing, but {name} says: {value.why}")
        elif all(value != one[name] for one in before):
            found.fail(f"{name} shows something else")


def _check_writer(found: Trial, made: Made, name: str, end: str) -> None:
    """resume and extend refuse, or end as if nothing had happened."""
    try:
        with small_parts():
            getattr(made.subject, name)(made.place)
    except GlauberError:
        return
    except Exception as error:
        return found.fail(f"{name} breaks down: {type(error).__name__}: {error}")
    if not found.beyond(differences(made.place, getattr(made, end))):
        return
    wrong = [
        k for k, seen in observe(made.place, made.readers).items() if seen != made.seen[end][k]
    ]
    if wrong:
        found.fail(f"{name} goes on, and then {', '.join(wrong)} differ")


def _check_repair(found: Trial, made: Made, which: str) -> None:
    """A repair keeps what was not hit, and what it keeps verifies and is resumed to the end."""
    repair = getattr(glauber, "repair", None)
    if repair is None:
        found.refused = "there is no repair"
        return
    run, model = made.place, made.subject.model()
    try:
        repair(run, model=model)
        if not sound(run):
            found.fail("what was repaired does not verify")
        _check_kept(found, Run(getattr(made, which)), Run(run))
        with small_parts():
            made.subject.resume(run)
        _check_end(found, made)
    except GlauberError as error:
        found.refused = str(error)
        if not may_be_lost(found.kind, found.hit):
            found.fail(f"not repaired: {error}")
    except Exception as error:
        found.fail(f"repair breaks down: {type(error).__name__}: {error}")


def _check_end(found: Trial, made: Made) -> None:
    """The same bytes; where nothing was noticed, a header may be laid out in another way."""
    differ = found.beyond(differences(made.place, made.whole))
    if differ and not found.noticed:
        seen = observe(made.place, made.readers)
        differ = [name for name in made.readers if seen[name] != made.seen["whole"][name]]
    if differ:
        found.fail(f"repaired and resumed, there differ: {', '.join(differ)}")


def _check_kept(found: Trial, before: Run, after: Run) -> None:
    found.kept = after.steps / before.steps
    least = min([before.steps, *map(sound_before, found.hit)])
    if found.kind == "twice" and before.spec.unmasking is not None:
        least = least // EVERY * EVERY  # passes may do nothing: only marks tell how many there were
    if after.steps < least:
        found.fail(f"{after.steps} steps are kept, but {least} are sound")
    for name in before.fields:
        if frozen(after.read(name)) != frozen(before.read(name, 0, after.steps)):
            found.fail(f"{name} of the steps that are kept differs")
    for step in range(after.steps + 1):
        if (after.tokens(step) != before.tokens(step)).any():
            return found.fail(f"the tokens after step {step} differ")
    return None


def damage(
    home: Path,
    *,
    count: int = 200,
    seed: int = 0,
    names: tuple[str, ...] = (),
    kinds: tuple[str, ...] = tuple(KINDS),
) -> int:
    """So many damages over all kinds of runs; prints a line for each kind, returns failures."""
    draw = random.Random(seed)
    subjects = [made(SUBJECTS[name], home / name) for name in names or SUBJECTS]
    tally: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    for number in range(count):
        kind = kinds[number % len(kinds)]
        which = draw.choice(("whole", "stopped"))
        found = trial(draw.choice(subjects), which, kind, draw)
        tally[kind].update(_counts(found))
        if found.failures:
            print(f"  FAILED {found.what}: {'; '.join(found.failures)}", flush=True)
    for kind, counts in tally.items():
        print(f"damage, {kind}: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
    return sum(counts["failed"] for counts in tally.values())


def _counts(found: Trial) -> dict[str, int]:
    return {
        "trials": 1,
        "noticed": int(found.noticed),
        "harmless": int(not found.noticed and not found.failures),
        "repaired": int(found.kept is not None),
        "of them without loss": int(found.kept == 1.0),
        "refused by repair": int(bool(found.refused)),
        "failed": int(bool(found.failures)),
    }
