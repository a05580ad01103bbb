"""Where did chains of a run get stuck, in which basins were they, and about what are the texts?

Each is looked for once, in the background and one after another, as a report does it. Meanwhile
others ask the model too: it is asked for a few rows at a time.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas  # noqa: F401  not first in a thread: plotly takes one that is half imported for whole
import torch
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError
from glauber.explorer.answers import Answer
from glauber.explorer.models import Turns
from glauber.explorer.workers import Workers
from glauber.progress import quiet
from glauber.result import one_of
from glauber.runs.embedding import Choice
from glauber.runs.run import Run
from glauber.sampling.reopened import DrawnFrom

KINDS = ("traps", "basins", "topics")
ROWS = 4  # that the model is asked for between two turns
GROWN = 1.25  # a run so many times longer is looked through again
PATHS = 2**31  # bytes of states that a search for traps may hold


@dataclass(frozen=True)
class InTurns:
    """The same conditionals, asked for a few rows at a time, each time in turn."""

    base: Conditionals
    turns: Turns
    closed: Callable[[], bool] = lambda: False  # whether nobody waits for the answer any more

    @property
    def vocab_size(self) -> int:
        return self.base.vocab_size

    @property
    def whole_vocabulary(self) -> bool:
        return getattr(self.base, "whole_vocabulary", True)

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        parts = []
        for first in range(0, len(tokens), ROWS):
            if self.closed():
                raise GlauberError("the explorer was stopped.")
            rows = slice(first, first + ROWS)
            with self.turns:
                asked = None if candidates is None else candidates[rows]
                parts.append(self.base.scores(tokens[rows], sites[rows], asked))
        return torch.cat(parts)


class _Job(NamedTuple):
    """A search through so many steps, and what the one before it found."""

    steps: int
    answer: "Future[Answer]"
    before: list[Any]


class Bands:
    """Stretches of steps of a run, by kind; `drawn` gives its conditionals in float64."""

    def __init__(
        self,
        drawn: Callable[[Run], DrawnFrom],
        turns: Turns,
        *,
        embedder: Choice = None,
        device: str | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        self._drawn, self._turns = drawn, turns
        self._embedder, self._device, self._trusted = embedder, device, trust_remote_code
        self._jobs: dict[str, _Job] = {}
        self._lock = threading.Lock()
        self._workers: Workers | None = None
        self._texts: tuple[Run, Any] | None = None  # of the run looked through last

    def __call__(self, kind: str, run: Run, *, finished: bool) -> Answer:
        """What was found of a kind so far; the search begins when it is first asked for."""
        one_of("the kind", kind, KINDS)
        if run.spec.unmasking is not None:
            return _none("A generation is no chain: it is not looked through.")
        if run.steps == 0:
            return _none("The run has no steps yet.")
        with self._lock:
            job = self._jobs.get(kind)
            if job is None or run.steps > job.steps * (1 if finished else GROWN):
                job = self._jobs[kind] = self._begin(kind, run, job)
        if job.answer.done():
            return job.answer.result()
        return {"state": "working", "why": "", "note": "", "bands": job.before}

    def wait(self, kind: str) -> Answer:
        """What the search for a kind finds, once it has ended."""
        return self._jobs[kind].answer.result()

    def close(self) -> None:
        """No further search is begun."""
        with self._lock:
            if self._workers is not None:
                self._workers.close()

    def _closed(self) -> bool:
        return self._workers is not None and self._workers.closed

    def _begin(self, kind: str, run: Run, last: _Job | None) -> _Job:
        if self._workers is None:
            self._workers = Workers(1)
        known = last is not None and last.answer.done()
        before = last.answer.result()["bands"] if last is not None and known else []
        return _Job(run.steps, self._workers.submit(lambda: self._search(kind, run)), before)

    def _search(self, kind: str, run: Run) -> Answer:
        """What is found; what goes wrong is said in one sentence and harms nothing else."""
        search = {"traps": self._traps, "basins": self._basins, "topics": self._topics}[kind]
        try:
            with quiet():
                return search(run)
        except GlauberError as error:
            return _failed(str(error))
        except Exception as error:  # of a model or a package: the page goes on without
            said = (str(error).strip() or repr(error)).splitlines()[0].rstrip(".")
            return _failed(f"{type(error).__name__}: {said}.")

    def _traps(self, run: Run) -> Answer:
        from glauber.figures.report_parts import what_a_trap_is
        from glauber.figures.watch import found_bands, trap_bands
        from glauber.metastability.trap_census import check_kernel
        from glauber.metastability.traps import usual_traps

        try:
            check_kernel(run.spec)
        except GlauberError as error:
            return _none(f"Traps were not looked for: {error}")
        _check_paths(run)
        drawn = self._drawn(run)
        law = InTurns(drawn.conditionals, self._turns, self._closed)
        found = usual_traps(run, law, self._read(run)[1], device=drawn.device)
        notes = [*([] if found.traps else [found.none_found()]), what_a_trap_is(found)]
        return found_bands(trap_bands(run, found), " ".join([*notes, *drawn.notes]))

    def _basins(self, run: Run) -> Answer:
        from glauber.figures.watch import basin_bands, found_bands
        from glauber.metastability.basins import basins

        read, chosen, _ = self._read(run)
        if isinstance(read, str):
            return _none(read)
        try:
            found = basins(run, embedder=chosen, every=read.every)
        except GlauberError as error:
            return _none(f"There are no basins: {error}")
        return found_bands(basin_bands(found), " ".join(["Basins are estimates.", *found.notes]))

    def _topics(self, run: Run) -> Answer:
        from glauber.figures.watch import found_bands, topic_bands
        from glauber.landscape.scorers import scorer_for, topic_scores

        read, chosen, missing = self._read(run)
        if missing or isinstance(read, str):
            return _none(missing or read)
        try:
            scorer = scorer_for(read, embedder=chosen, device=self._device or "auto")
        except GlauberError as error:
            return _none(f"Topics are left out: {error}")
        note = "Scores from the similarity to descriptions of the labels; an estimate."
        return found_bands(topic_bands(topic_scores(read, scorer), read), note)

    def _read(self, run: Run) -> Any:
        """Snapshots of the run and what embeds them, as a report reads them; read once."""
        from glauber.figures.report_parts import read_texts

        if self._texts is None or self._texts[0] is not run:
            found = read_texts(run, self._embedder, self._device, self._trusted)
            self._texts = run, found
        return self._texts[1]


def _check_paths(run: Run) -> None:
    """Refuses a run whose paths do not fit: every state that a chain was in is held."""
    changed = sum(
        int(run.read("changed", first, min(first + run.log.segment_steps, run.steps)).sum())
        for first in range(0, run.steps, run.log.segment_steps)
    )
    if 8 * changed * run.free.shape[1] > PATHS:
        raise GlauberError(
            "traps are not looked for in so long a run while a page is open: see `glauber traps`."
        )


def _none(why: str) -> Answer:
    return {"state": "none", "why": why, "note": "", "bands": []}


def _failed(why: str) -> Answer:
    return {"state": "failed", "why": why, "note": "", "bands": []}
