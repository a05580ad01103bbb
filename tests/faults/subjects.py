"""The runs that trials are made on: small ones of every kind, the same each time."""

import math
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import glauber
from glauber.foundation.errors import GlauberError
from glauber.models.load import Model
from glauber.models.table import Joint
from glauber.runs import folder_log
from glauber.runs.curves import curves
from glauber.runs.film import film, whole_film
from glauber.runs.log import MemoryLog
from glauber.runs.run import Run
from glauber.sampling.advance import Session, advance

sys.path.insert(0, str(Path(__file__).parents[1]))

from conftest import make_model, make_tokenizer
from run_bytes import contents, values

__all__ = ["contents", "values"]
SEGMENT_STEPS = 16
STEPS = 40
SCRATCH = tempfile.TemporaryDirectory(prefix="glauber-faults-")
TEXTS = ["the cat sat on the mat .", "a big dog ran under the old tree .", "is it red or blue !"]


@contextmanager
def small_parts(seconds: float = math.inf, stop: int | None = None) -> Iterator[None]:
    """Segments of 16 steps, and commits that do not depend on the clock: every step, or with
    infinitely many seconds after 1, 9, 40 … steps. A run stops after `stop` steps."""

    def advance_in_parts(batches: Any, log: Any, *, until: int, session: Session) -> None:
        end = until if stop is None else min(until, stop)
        advance(batches, log, until=end, session=session, seconds=seconds)
        session.stopping = session.stopping or end < until

    with ExitStack() as stack:
        stack.enter_context(patch("glauber.sampling.advance.advance", advance_in_parts))
        steps = patch.object(folder_log, "default_segment_steps", lambda *shape: SEGMENT_STEPS)
        stack.enter_context(steps)
        yield


@cache
def tiny() -> Model:
    """A tiny BERT with random weights."""
    folder = Path(SCRATCH.name) / "model"
    make_model().save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return glauber.load(str(folder), device="cpu")


@cache
def table() -> Joint:
    """A joint distribution of three sites and four tokens."""
    return Joint.random(4, 3, seed=2)


@dataclass(frozen=True, eq=False)
class Subject:
    """A kind of run: how it is begun and finished, and what a reader should find in it."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    texts: tuple[str, ...] = ()  # none: those of a table
    generates: bool = False
    first_steps: int = STEPS  # planned at the beginning; extended to STEPS

    @property
    def model(self) -> Any:
        return tiny() if self.texts or self.generates else table()

    def finish(self, folder: Path) -> None:
        """Begin the run, or continue it to its end."""
        if self.generates:
            glauber.generate(self.model, out=folder, **self.options)
            return
        if not folder.exists():
            texts = list(self.texts) or ["012", "330"]
            steps = self.first_steps
            glauber.sample(self.model, texts, steps=steps, memo=0, out=folder, **self.options)
        glauber.resume(folder, model=self.model, memo=0)
        glauber.extend(folder, steps=STEPS, model=self.model, memo=0)

    def stop(self, folder: Path, steps: int) -> None:
        """A run that was interrupted after so many steps."""
        with small_parts(stop=steps), suppress(KeyboardInterrupt):
            self.finish(folder)

    @cache  # noqa: B019 (there are few subjects)
    def stopped(self, steps: int) -> Path:
        """A run that was interrupted after so many steps, to be copied."""
        folder = Path(SCRATCH.name) / f"{self.name} {steps}"
        self.stop(folder, steps)
        return folder

    def repair(self, folder: Path) -> None:
        glauber.repair(folder, model=self.model)

    @property
    def compare_repaired(self) -> Any:
        """How the end of a repaired run is compared: the footers of an extended one may differ.

        They say how many steps were planned when they were written.
        """
        return committed_files if self.first_steps == STEPS else values

    @cached_property
    def complete(self) -> Run:
        """The run that nothing befell."""
        folder = Path(SCRATCH.name) / self.name
        with small_parts():
            self.finish(folder)
        return Run(folder)

    @cached_property
    def other(self) -> "Subject":
        """The same with another seed."""
        options = self.options | {"seed": 99}
        return replace(self, name=f"other {self.name}", options=options)

    @cache  # noqa: B019 (there are few subjects)
    def expected(self, reader: str, steps: int) -> Any:
        """What a reader should find after so many steps, worked out in memory."""
        log = self.complete.log
        memory = MemoryLog(
            log.spec,
            log.tokens(0),
            log.free,
            log.n_slots,
            rejects="accepted" in log.fields,
            segment_steps=SEGMENT_STEPS,
        )
        memory.append({name: log.read(name, 0, steps) for name in log.fields})
        return bits(READERS[reader](Run(memory, self.complete.model_vocabulary)))


SUBJECTS = {
    subject.name: subject
    for subject in (
        Subject("one site", {"seed": 3, "temperature": [0.5, 1.3, 4.0]}, tuple(TEXTS)),
        Subject("blocks", {"seed": 6, "chains": 2, "scan": "block:2"}),
        Subject("adaptive", {"seed": 4, "scan": "adaptive:entropy", "temperature": [0.1, 4.0]}),
        Subject("constrained", {"seed": 8, "chains": 2, "max_changes": 3, "freeze": "1",
                                "tie": "0=4", "allow": "0:the|a|cat"}, (TEXTS[0],)),
        Subject("generation", {"length": 18, "chains": 2, "order": "random", "seed": 3,
                               "temperature": 0.9, "remask": "conf", "correct": 1},
                generates=True),
        Subject("extended", {"seed": 9, "chains": 1}, first_steps=22),
    )
}  # fmt: skip


# ---- readers


def _film(run: Run) -> Any:
    late = film(run, first=run.steps // 2, count=5).to_dict()
    return [whole_film(run).to_dict(), late]


READERS = {
    **{
        name: partial(lambda run, name: run.read(name) if name in run.fields else None, name=name)
        for name in ("site", "token", "changed", "log_prob_old", "log_prob_new", "entropy",
                     "accepted")
    },
    "free": lambda run: [run.free, run.first_site],
    "tokens": lambda run: [run.tokens(step) for step in range(run.steps, -1, -5)],
    "states": lambda run: [tokens for _, tokens in run.states()],
    "texts": lambda run: run.texts(every=3),
    "show": lambda run: [s.text for s in glauber.show(run, chain=run.n_chains - 1).snapshots],
    "film": _film,
    "curves": lambda run: curves(run).to_dict(),
    "frame": lambda run: run.frame(events=True).to_csv(),
}  # fmt: skip


def bits(value: Any) -> Any:
    """Something that equals another only if every bit of both does."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, dict):
        return tuple((key, bits(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(bits(item) for item in value)
    return value if isinstance(value, str | bytes) else repr(value)


def wrong_readings(
    subject: Subject, run: Path | Run, *, tolerant: bool = False, names: Any = READERS
) -> list[str]:
    """What readers find that is wrong; a tolerant trial lets refusals pass."""
    wrong = []
    for name in names:
        try:
            opened = run if isinstance(run, Run) else Run(run)
            right = bits(READERS[name](opened)) == subject.expected(name, opened.steps)
        except GlauberError as error:
            if not tolerant:
                wrong.append(f"{name}: {error}")
        except Exception as error:
            wrong.append(f"{name} breaks down: {type(error).__name__}: {error}")
        else:
            wrong += [] if right else [f"{name} differs"]
    return wrong


def committed_files(folder: Path) -> dict[str, bytes]:
    """The files that belong to a run; a writer that was killed may have left another tail."""
    names = {"run.json", *folder_log.Manifest.read(folder).files}
    return {name: content for name, content in contents(folder).items() if name in names}


def unfinished(
    subject: Subject, folder: Path, steps: int, compare: Any = committed_files
) -> list[str]:
    """What is wrong with a run that was cut short after so many steps were committed."""
    if not folder.exists():
        wrong = ["the run is missing"] if steps >= 0 else []
    else:
        wrong = wrong_readings(subject, folder)
        if not wrong and Run(folder).steps < steps:
            wrong = [f"{steps} steps were committed, {Run(folder).steps} are there"]
        if not wrong and glauber.verify(folder).damages:
            wrong = ["verify reports damage"]
    return wrong or wrong_end(subject, folder, compare)


def wrong_end(subject: Subject, folder: Path, compare: Any = committed_files) -> list[str]:
    """What is wrong with a run after it was continued to its end."""
    try:
        with small_parts():
            subject.finish(folder)
    except Exception as error:
        return [f"it cannot be continued: {type(error).__name__}: {error}"]
    run, complete = compare(folder), compare(subject.complete.folder)
    differ = sorted(name for name in run | complete if run.get(name) != complete.get(name))
    return [f"at the end {', '.join(differ)} differ"] if differ else []
