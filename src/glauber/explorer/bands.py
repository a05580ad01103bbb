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
from glauber.runs.embedding import Choice, Embedder
from glauber.runs.run import Run
from glauber.runs.snapshots import Snapshots
from glauber.sampling.reopened import DrawnFrom

KINDS = ("traps", "basins", "topics")
ROWS = 4  # that the model is asked for between two turns
GROWTH = 1.25  # a run so many times longer is looked through again
PATHS = 2**31  # bytes of states that a search for traps may hold


@dataclass(frozen=True)
class InTurns:
    """The same conditionals, asked for a few rows at a time, each time in turn."""

    base: Conditionals
    turns: Turns
    closed: Callable[[], bool] = lambda: False  # whether the explorer was stopped

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
                some = None if candidates is None else candidates[rows]
                parts.append(self.base.scores(tokens[rows], sites[rows], some))
        return torch.cat(parts)


class _Search(NamedTuple):
    """A search through so many steps, and the bands of the one before it."""

    steps: int
    answer: "Future[Answer]"
    bands_before: list[Any]


class Bands:
    """Stretches of steps of a run, by kind; `drawn_from` gives its conditionals in float64."""

    def __init__(
        self,
        drawn_from: Callable[[Run], DrawnFrom],
        turns: Turns,
        *,
        embedder: Choice = None,
        device: str | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        self._drawn_from, self._turns = drawn_from, turns
        self._embedder, self._device, self._trusted = embedder, device, trust_remote_code
        self._searches: dict[str, _Search] = {}
        self._lock = threading.Lock()
        self._workers: Workers | None = None
        self._texts: tuple[Run, tuple[Snapshots | str, Embedder, str]] | None = None

    def __call__(self, kind: str, run: Run, *, finished: bool) -> Answer:
        """What was found of a kind so far; the search begins when it is first asked for."""
        one_of("the kind", kind, KINDS)
        if run.spec.unmasking is not None:
            return _answer("none", "A generation is no chain: it is not looked through.")
        if run.steps == 0:
            return _answer("none", "The run has no steps yet.")
        with self._lock:
            search = self._searches.get(kind)
            if search is None or run.steps > search.steps * (1 if finished else GROWTH):
                search = self._searches[kind] = self._begin(kind, run, search)
        if search.answer.done():
            return search.answer.result()
        return _answer("working") | {"bands": search.bands_before}

    def wait(self, kind: str) -> Answer:
        """What the search for a kind finds, once it has ended."""
        return self._searches[kind].answer.result()

    def close(self) -> None:
        """Begin no further search."""
        with self._lock:
            if self._workers is not None:
                self._workers.close()

    def _begin(self, kind: str, run: Run, last: _Search | None) -> _Search:
        self._workers = workers = self._workers or Workers(1)
        known = last is not None and last.answer.done()
        bands_before = last.answer.result()["bands"] if last is not None and known else []
        answer = workers.submit(lambda: self._search(kind, run, lambda: workers.closed))
        return _Search(run.steps, answer, bands_before)

    def _search(self, kind: str, run: Run, closed: Callable[[], bool]) -> Answer:
        """What is found; what goes wrong is said in one sentence and harms nothing else."""
        try:
            with quiet():
                if kind == "traps":
                    return self._traps(run, closed)
                return self._basins(run) if kind == "basins" else self._topics(run)
        except GlauberError as error:
            return _answer("failed", str(error))
        except Exception as error:  # of a model or a package: the page goes on without
            reason = (str(error).strip() or repr(error)).splitlines()[0].rstrip(".")
            return _answer("failed", f"{type(error).__name__}: {reason}.")

    def _traps(self, run: Run, closed: Callable[[], bool]) -> Answer:
        from glauber.figures.report import what_a_trap_is
        from glauber.figures.watch import found_bands, trap_bands
        from glauber.metastability.trap_census import check_kernel
        from glauber.metastability.traps import usual_traps

        try:
            check_kernel(run.spec)
        except GlauberError as error:
            return _answer("none", f"Traps were not looked for: {error}")
        _check_paths(run)
        drawn = self._drawn_from(run)
        conditionals = InTurns(drawn.conditionals, self._turns, closed)
        catalogue = usual_traps(run, conditionals, self._read(run)[1], device=drawn.device)
        notes = [*([] if catalogue.traps else [catalogue.none_found()]), what_a_trap_is(catalogue)]
        return found_bands(trap_bands(run, catalogue), " ".join([*notes, *drawn.notes]))

    def _basins(self, run: Run) -> Answer:
        from glauber.figures.watch import basin_bands, found_bands
        from glauber.metastability.basins import basins

        snapshots, embedder, _ = self._read(run)
        if isinstance(snapshots, str):
            return _answer("none", snapshots)
        try:
            result = basins(run, embedder=embedder, every=snapshots.every)
        except GlauberError as error:
            return _answer("none", f"There are no basins: {error}")
        note = " ".join(["Basins are estimates.", *result.notes])
        return found_bands(basin_bands(result), note)

    def _topics(self, run: Run) -> Answer:
        from glauber.figures.watch import found_bands, topic_bands
        from glauber.landscape.scorers import scorer_for, topic_scores

        snapshots, embedder, missing = self._read(run)
        if missing or isinstance(snapshots, str):
            return _answer("none", missing or str(snapshots))
        try:
            scorer = scorer_for(snapshots, embedder=embedder, device=self._device or "auto")
        except GlauberError as error:
            return _answer("none", f"Topics are left out: {error}")
        note = "Scores from the similarity to descriptions of the labels; an estimate."
        return found_bands(topic_bands(topic_scores(snapshots, scorer), snapshots), note)

    def _read(self, run: Run) -> tuple[Snapshots | str, Embedder, str]:
        """Snapshots of the run and what embeds them, as a report reads them; read once."""
        from glauber.figures.report import read_texts

        if self._texts is None or self._texts[0] is not run:
            self._texts = run, read_texts(run, self._embedder, self._device, self._trusted)
        return self._texts[1]


def _check_paths(run: Run) -> None:
    """Refuse a run whose paths do not fit: all states of the chains are in memory."""
    n_changed = sum(int(segment.arrays["changed"].sum()) for segment in run.log.segments())
    if 8 * n_changed * run.free.shape[1] > PATHS:
        raise GlauberError(
            "traps are not looked for in so long a run while a page is open: see `glauber traps`."
        )


def _answer(state: str, why: str = "") -> Answer:
    return {"state": state, "why": why, "note": "", "bands": []}
