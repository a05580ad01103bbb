"""The questions of a page about a stored run.

The folder of a run is only read. A run that grows is read again; one that is damaged or deleted
while a page shows it is reported, and what was read before stays.

Traps, basins and topics are searched for once each, in the background and one after another, as a
report does it. Meanwhile others need the model too, so it is called with a few rows at a time.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pandas  # noqa: F401  not first in a thread: plotly would use one that is half imported
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.foundation.errors import DamagedRun, GlauberError
from glauber.foundation.progress import check_count, quiet
from glauber.foundation.study import counted, one_of
from glauber.interfaces.explorer.conditional import Moment, Shown, Source
from glauber.interfaces.explorer.models import Models, Turns
from glauber.interfaces.explorer.questions import Answer, Workers
from glauber.models.base import PAD, Conditionals, Model
from glauber.models.vocabulary import Text
from glauber.runs.curves import POINTS, curves
from glauber.runs.embedding import Choice, Embedder
from glauber.runs.film import LONGEST, film
from glauber.runs.folder_log import FolderLog
from glauber.runs.run import Run
from glauber.runs.snapshots import Snapshots
from glauber.runs.spec import spec_digest
from glauber.sampling.reopened import COARSE, DrawnFrom, drawn_from

EVENTS = 100_000  # of one film, at most
READ_EVENTS = 4_000_000  # that are read for one film, at most
CURVE_GROWTH = 1.02  # curves are drawn again when a run is so many times longer
KINDS = ("traps", "basins", "topics")
ROWS = 4  # of a call of the model in a search, between two turns
BAND_GROWTH = 1.25  # a run so many times longer is searched again
PATHS = 2**31  # bytes of states that a search for traps may use

T = TypeVar("T")


class StoredRun(Source):
    """The folder of a run."""

    def __init__(
        self,
        run: Run | str | Path,
        *,
        models: Models | None = None,
        device: str | None = None,
        trust_remote_code: bool = False,
        embedder: Choice = None,
    ) -> None:
        self._run = Run.of(run, generations=True)
        self._models, self._turns = models, Turns() if models is None else models.lock
        self._device, self._trusted, self._embedder = device, trust_remote_code, embedder
        self._reading, self._drawing = threading.RLock(), threading.Lock()
        self._lost: str | None = None  # why the folder cannot be opened again
        self._forget()
        _ = self._run.text_spans  # learns how tokens are spelled

    def _forget(self) -> None:
        """Nothing is known yet about the run in the folder."""
        self._finished = self._run.finished
        self._unread: tuple[Callable[[], object], str] | None = None  # a damaged part, and why
        self._drawn: DrawnFrom | None = None
        self._curves: tuple[int, int, Answer] | None = None  # steps, points, the answer
        self.found = Bands(
            partial(self._drawn_from, precise=True),
            self._turns,
            embedder=self._embedder,
            device=self._device,
            trust_remote_code=self._trusted,
        )

    def about(self) -> Answer:
        """What the run is and how far it is now."""
        run = self.now(thoroughly=True)
        spans, spec = run.text_spans, run.spec
        return {
            "name": run.label,
            "title": f"{'Texts written by' if spec.unmasking else 'Chains of'} {spec.model}",
            "summary": _summary(run),
            "model": spec.model,
            "chains": run.n_chains,
            "length": max(last - first for first, last in spans),
            "steps": run.steps,
            "planned": max(spec.steps, run.steps),
            "finished": self._finished,
            "temperatures": spec.temperatures,
            "seed": spec.seed,
            "scan": spec.scan,
            "kind": "chain" if spec.unmasking is None else "generation",
            "first_site": max(0, run.first_site - min(first for first, _ in spans)),
            "damaged": self._lost or (self._unread[1] if self._unread else None),
            "signature": run.signature,
        }

    def film(
        self,
        source: object,
        first: int,
        count: int,
        every: int = 1,
        chains: Sequence[int] | None = None,
    ) -> Answer:
        """States of some chains, frame by frame; fewer than asked for where they would be many."""
        check_count("number of frames", count, least=0, most=LONGEST)
        check_count("number of steps in a frame", every, most=LONGEST)
        if chains is not None and not isinstance(chains, list | tuple | range):
            raise GlauberError("the chains of a film are a list of numbers.")
        run = self.now()
        slots = run.log.n_slots
        n_chains = run.n_chains if chains is None else max(1, len(chains))
        events = n_chains * min(every * slots, int(run.free.sum(axis=1).max()))
        most = min(EVENTS // events, READ_EVENTS // (every * slots * run.n_chains))
        count = min(count, max(1, most))
        return self._read(
            lambda: film(run, first=first, count=count, every=every, chains=chains)
        ).to_dict()

    def curves(self, source: object = "run", points: int = POINTS) -> Answer:
        """How the chains moved, in a few hundred points."""
        run = self.now()
        with self._drawing:
            known = self._curves
            growth = 1 if self._finished else CURVE_GROWTH
            if known is None or known[1] != points or run.steps > growth * known[0]:
                answer = self._read(lambda: curves(run, points=points)).to_dict()
                self._curves = known = run.steps, points, answer
            return known[2]

    @contextmanager
    def moment(self, source: object, chain: int, step: int) -> Iterator[Moment]:
        """The model is loaded when it is first needed."""
        run, tokens = self._tokens(chain, step)
        with self._turns:
            if self._drawn is None:
                self._drawn = self._drawn_from(run, generations=True)
            drawn, temperature = self._drawn, run.spec.temperatures[chain]
            notes = list(drawn.notes)
            if {"budget", "tied"} & set(run.spec.constraints or {}):
                notes.append("The run's budget of changes and its tied sites are not counted in.")
            if temperature == 0:
                notes.append("The likeliest token was taken; these values are at temperature 1.")
            yield Moment(
                drawn.conditionals,
                run.vocabulary,
                torch.from_numpy(tokens).to(drawn.device),
                run.free[chain],
                Shown(*run.text_spans[chain]),
                temperature or 1.0,
                notes,
            )

    def bands(self, kind: str) -> Answer:
        """Stretches of steps: traps, basins or topics, as far as they were found."""
        run = self.now()
        return self.found(kind, run, finished=self._finished)

    def begin(self, chain: int, step: int) -> tuple[NDArray[np.int64], NDArray[np.bool_], Text]:
        """Tokens and free sites (length,) of a chain after a step, and what spells them."""
        run, tokens = self._tokens(chain, step)
        return tokens[tokens != PAD], run.free[chain, tokens != PAD], run.vocabulary

    def close(self) -> None:
        """End the searches."""
        self.found.close()

    def now(self, *, thoroughly: bool = False) -> Run:
        """The run as it is now, or as it was when it could last be opened.

        thoroughly: also check that all of its files are there.
        """
        with self._reading:
            try:
                self._update(self._run.newest())
                if thoroughly and isinstance(self._run.log, FolderLog):
                    self._run.log.check_files()
                self._finished, self._lost = self._run.finished, None
            except GlauberError as error:
                gone = f"the run {self._run.name} is not there any more."
                folder = self._run.folder
                self._lost = str(error) if folder is not None and folder.exists() else gone
            if self._unread is not None and thoroughly and self._lost is None:
                with suppress(DamagedRun):
                    self._unread[0]()
                    self._unread = None
            return self._run

    def _update(self, run: Run) -> None:
        """Continue with the run as it is now; forget what was computed for another run."""
        before = self._run
        same = run is before or (
            spec_digest(run.spec) == spec_digest(before.spec)
            and run.steps >= before.steps
            and np.array_equal(run.tokens(0), before.tokens(0))
        )
        self._run = run
        if not same:
            self.found.close()
            self._forget()

    def _read(self, read: Callable[[], T]) -> T:
        """What `read` returns; remembers it if a part could not be read."""
        try:
            return read()
        except DamagedRun as error:
            self._unread = read, str(error)
            raise

    def _tokens(self, chain: int, step: int) -> tuple[Run, NDArray[np.int64]]:
        """The run, and a chain's tokens after a step (length,)."""
        run = self.now()
        run.check_chain(chain)
        check_count("step", step, least=0, most=LONGEST)
        if step > run.steps:
            raise GlauberError(f"step {step} is outside the run, which has steps 0 to {run.steps}.")
        return run, self._read(lambda: run.tokens(step))[chain]

    def _drawn_from(self, run: Run, **options: bool) -> DrawnFrom:
        """What the run drew from; precise: in float64, for searches.

        A model that the page has open is used; one of a coarse dtype is loaded again by its name.
        """
        model: Model | None = None
        name = run.spec.model
        if self._models is not None and name in self._models.names and run.spec.dtype not in COARSE:
            model = self._models[name]
        return drawn_from(
            run, model=model, device=self._device, trust_remote_code=self._trusted, **options
        )


def _summary(run: Run) -> str:
    spec = run.spec
    low, high = min(spec.temperatures), max(spec.temperatures)
    chains, steps = ("text", "passes") if spec.unmasking else ("chain", "steps")
    phrases = [
        counted(run.n_chains, chains),
        f"{run.steps:,} {steps}",
        f"temperature {low:g}" if low == high else f"temperatures {low:g} to {high:g}",
    ]
    return ", ".join(phrases if spec.unmasking else [*phrases, f"scan {spec.scan}"])


# ---- traps, basins and topics


@dataclass(frozen=True)
class InTurns:
    """The same conditionals, evaluated for a few rows at a time, each time in turn."""

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
        scores = []
        for first in range(0, len(tokens), ROWS):
            if self.closed():
                raise GlauberError("the explorer was stopped.")
            rows = slice(first, first + ROWS)
            with self.turns:
                columns = None if candidates is None else candidates[rows]
                scores.append(self.base.scores(tokens[rows], sites[rows], columns))
        return torch.cat(scores)


class Search(NamedTuple):
    """A search through so many steps, and the bands of the one before it."""

    steps: int
    answer: "Future[Answer]"
    bands_before: list[Answer]


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
        self._searches: dict[str, Search] = {}
        self._lock = threading.Lock()
        self._workers: Workers | None = None
        self._texts: tuple[Run, tuple[Snapshots | str, Embedder, str]] | None = None

    def __call__(self, kind: str, run: Run, *, finished: bool) -> Answer:
        """What was found of a kind so far; the first call starts the search."""
        one_of("the kind", kind, KINDS)
        if run.spec.unmasking is not None:
            return _bands("none", "A generation is no chain: it is not searched.")
        if run.steps == 0:
            return _bands("none", "The run has no steps yet.")
        with self._lock:
            search = self._searches.get(kind)
            if search is None or run.steps > search.steps * (1 if finished else BAND_GROWTH):
                search = self._searches[kind] = self._start(kind, run, search)
        if search.answer.done():
            return search.answer.result()
        return _bands("working") | {"bands": search.bands_before}

    def wait(self, kind: str) -> Answer:
        """What the search for a kind finds, once it has ended."""
        return self._searches[kind].answer.result()

    def close(self) -> None:
        """Start no further search."""
        with self._lock:
            if self._workers is not None:
                self._workers.close()

    def _start(self, kind: str, run: Run, last: Search | None) -> Search:
        self._workers = workers = self._workers or Workers(1)
        known = last is not None and last.answer.done()
        bands_before = last.answer.result()["bands"] if last is not None and known else []
        answer = workers.submit(lambda: self._search(kind, run, lambda: workers.closed))
        return Search(run.steps, answer, bands_before)

    def _search(self, kind: str, run: Run, closed: Callable[[], bool]) -> Answer:
        """The bands of a kind; an error is reported in one sentence and harms nothing else."""
        try:
            with quiet():
                if kind == "traps":
                    return self._traps(run, closed)
                return self._basins(run) if kind == "basins" else self._topics(run)
        except GlauberError as error:
            return _bands("failed", str(error))
        except Exception as error:  # of a model or a package: the page continues without
            reason = (str(error).strip() or repr(error)).splitlines()[0].rstrip(".")
            return _bands("failed", f"{type(error).__name__}: {reason}.")

    def _traps(self, run: Run, closed: Callable[[], bool]) -> Answer:
        from glauber.interfaces.report.report import what_a_trap_is
        from glauber.interfaces.report.watch import found_bands, trap_bands
        from glauber.studies.metastability.traps import check_kernel, default_traps

        try:
            check_kernel(run.spec)
        except GlauberError as error:
            return _bands("none", f"Traps were not looked for: {error}")
        # All states of the chains are in memory.
        n_changed = sum(int(segment.arrays["changed"].sum()) for segment in run.log.segments())
        if 8 * n_changed * run.free.shape[1] > PATHS:
            raise GlauberError(
                "traps are not looked for in so long a run while a page is open: see `glauber "
                "traps`."
            )
        drawn = self._drawn_from(run)
        conditionals = InTurns(drawn.conditionals, self._turns, closed)
        catalogue = default_traps(run, conditionals, self._read(run)[1], device=drawn.device)
        notes = [*([] if catalogue.traps else [catalogue.none_found()]), what_a_trap_is(catalogue)]
        return found_bands(trap_bands(run, catalogue), " ".join([*notes, *drawn.notes]))

    def _basins(self, run: Run) -> Answer:
        from glauber.interfaces.report.watch import basin_bands, found_bands
        from glauber.studies.metastability.basins import basins

        snapshots, embedder, _ = self._read(run)
        if isinstance(snapshots, str):
            return _bands("none", snapshots)
        try:
            result = basins(run, embedder=embedder, every=snapshots.every)
        except GlauberError as error:
            return _bands("none", f"There are no basins: {error}")
        note = " ".join(["Basins are estimates.", *result.notes])
        return found_bands(basin_bands(result), note)

    def _topics(self, run: Run) -> Answer:
        from glauber.interfaces.report.watch import found_bands, topic_bands
        from glauber.studies.landscape.scorers import scorer_for, topic_scores

        snapshots, embedder, missing = self._read(run)
        if missing or isinstance(snapshots, str):
            return _bands("none", missing or str(snapshots))
        try:
            scorer = scorer_for(snapshots, embedder=embedder, device=self._device or "auto")
        except GlauberError as error:
            return _bands("none", f"Topics are left out: {error}")
        note = "Scores from the similarity to descriptions of the labels; an estimate."
        return found_bands(topic_bands(topic_scores(snapshots, scorer), snapshots), note)

    def _read(self, run: Run) -> tuple[Snapshots | str, Embedder, str]:
        """Snapshots of the run and what embeds them, as a report reads them; read once."""
        from glauber.interfaces.report.report import read_texts

        if self._texts is None or self._texts[0] is not run:
            self._texts = run, read_texts(run, self._embedder, self._device, self._trusted)
        return self._texts[1]


def _bands(state: str, why: str = "") -> Answer:
    return {"state": state, "why": why, "note": "", "bands": []}
