"""The questions of a page about chains: those of a stored run, and those that are run live.

A page asks with a trail (`trail`) for the steps that it shows. What is there is answered at once;
new steps are made for a few hundredths of a second, and the page asks again. Whoever else waits for
the model comes next.

The folder of a run is only read. A run that grows is read again; one that is damaged or deleted
while a page shows it is reported, and what was read before stays.
"""

import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import PAD, Conditionals, Model
from glauber.conditionals.vocabulary import Text
from glauber.errors import DamagedRun, GlauberError, GlauberWarning
from glauber.explorer.answers import Answer
from glauber.explorer.bands import Bands
from glauber.explorer.conditional import Shown, conditional_at, sure_at, words
from glauber.explorer.live import Cursor, FromRun, StepCache, allowed_tokens
from glauber.explorer.models import Models, Turns
from glauber.explorer.trail import STEPS, Trail
from glauber.progress import check_count
from glauber.result import counted
from glauber.runs.curves import NAMES, POINTS, Curves, curves, window_of
from glauber.runs.embedding import Choice
from glauber.runs.film import Begin, Film, column, film, film_of, last_events
from glauber.runs.folder_log import FolderLog
from glauber.runs.run import Run
from glauber.runs.spec import spec_digest
from glauber.sampling.reopened import COARSE, DrawnFrom, drawn_from

LIMIT = 0.08  # seconds of new steps in one answer, less where somebody else waits
PATIENCE = 2.0  # seconds that a click waits for steps that are not there
TRAILS = 8
FRAMES = 20_000  # of the film of living chains
TOKENS = 200  # that a search lists, at most
EVENTS = 100_000  # of one film of a run, at most
READ_EVENTS = 4_000_000  # that are read for one film of a run, at most
GROWTH = 1.02  # curves are drawn again when a run is so many times longer
LONGEST = 10**15  # steps of any run

T = TypeVar("T")


class Moment(NamedTuple):
    """A chain after a step, and what it draws from."""

    conditionals: Conditionals
    vocabulary: Text
    tokens: Tensor  # (length,)
    free: NDArray[np.bool_]  # (length,)
    shown: Shown
    temperature: float
    notes: Sequence[str] = ()


class Source(ABC):
    """Chains that a page shows; each method answers one question (`film`, `curves` and these)."""

    @abstractmethod
    def moment(self, source: object, chain: int, step: int) -> AbstractContextManager[Moment]:
        """A chain after a step, while nobody else uses the model."""

    def conditional(
        self, source: object, chain: int, step: int, site: int, whole: bool = False
    ) -> Answer:
        """What could stand at a site of a chain after a step."""
        with self.moment(source, chain, step) as now:
            position = now.shown.position(site)
            answer = conditional_at(
                now.conditionals,
                now.vocabulary,
                now.tokens,
                position,
                now.temperature,
                whole=whole,
            )
        note = " ".join([answer["note"], *now.notes])
        return {"site": site, "frozen": not now.free[position], **answer, "note": note}

    def sure(self, source: object, chain: int, step: int) -> Answer:
        """How sure the model is of every shown token of a chain after a step, at this moment."""
        with self.moment(source, chain, step) as now:
            log_prob, entropy = sure_at(
                now.conditionals, now.tokens, now.shown.positions, now.temperature
            )
        return {"log_prob": column(log_prob), "entropy": column(entropy)}


class LiveChains(Source):
    """Chains that are run live."""

    def __init__(
        self,
        models: Models,
        *,
        from_run: FromRun | None = None,
        limit: float = LIMIT,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.models, self._limit, self._clock = models, limit, clock
        self.steps = StepCache(models, from_run)
        self._spellings: dict[str, list[tuple[int, str, str]]] = {}

    def film(
        self,
        source: object,
        first: int,
        count: int,
        every: int = 1,
        chains: Sequence[int] | None = None,
    ) -> Answer:
        """The states of some trails from a step on; fewer frames than asked for if time is up."""
        check_count("first step", first, least=0, most=STEPS)
        check_count("number of frames", count, least=0, most=FRAMES)
        check_count("number of steps in a frame", every, most=STEPS)
        trails = _trails(source, chains)
        if count and first + every > STEPS:
            raise GlauberError(f"a living chain is followed for {STEPS:,} steps: begin a new one.")
        with self.models.lock:
            stop = self._stop()
            cursors = self.steps.cursors(trails, first)
            self.steps.bring(cursors, first, stop)
            cursors = self._together(cursors)
            begin, now = [self._begin(cursor) for cursor in cursors], cursors[0].step
            if now == first:
                self.steps.bring(cursors, _last(trails, first, count, every), stop)
            reached = min(cursor.step for cursor in cursors)
            film = self._film(trails, begin, now, (reached - now) // every, every)
        if now == first and (film.count or not count):
            return film.to_dict()
        return film.to_dict() | {"replayed": reached, "of": first + every * (now == first)}

    def curves(self, source: object, points: int = POINTS) -> Answer:
        """How some trails moved so far, as the curves of a run."""
        check_count("number of points", points, least=2, most=10_000)
        trails = _trails(source)
        with self.models.lock:
            last = min(cursor.step for cursor in self.steps.cursors(trails, STEPS))
            first = max(self.steps.known_from(trail, last) for trail in trails)
            steps = np.unique(np.linspace(first, last, points).round().astype(np.int64))
            window = window_of(last - first)
            sums = np.stack([self._sums(trail, steps, window) for trail in trails], axis=1)
            left = np.array([self._left(trail, steps) for trail in trails])
        sums = np.ascontiguousarray(sums)  # means over the chains add them up in their order
        answer = Curves.of(steps, window, sums, left, NAMES, first).to_dict()
        if first:
            answer["notes"].append(f"What happened up to step {first:,} is not kept any more.")
        return answer

    @contextmanager
    def moment(self, source: object, chain: int, step: int) -> Iterator[Moment]:
        """Steps that are not there are made now, if that does not take long."""
        check_count("step", step, least=0, most=STEPS)
        trails = _trails(source)
        check_count("chain", chain, least=0, most=len(trails) - 1)
        trail, patience = trails[chain], self._clock() + PATIENCE
        while True:
            with self.models.lock:
                cursors = self.steps.cursors([trail], step)
                self.steps.bring(cursors, step, self._stop())
                cursor = cursors[0]
                if cursor.step == step:
                    model, stretch = self.models[trail.model], cursor.stretch
                    yield Moment(
                        self.models.conditionals(trail.model),
                        model.vocabulary.text,
                        torch.from_numpy(cursor.state.tokens).to(model.state_device),
                        stretch.free,
                        stretch.shown,
                        stretch.temperature,
                    )
                    return
            if self._clock() >= patience:
                raise GlauberError(
                    f"this chain was made up to step {cursor.step:,} so far, and not to {step:,}: "
                    "play it up to there first."
                )

    def encode(self, model: str, text: str) -> Answer:
        """The tokens of a text, or why no chain can begin there."""
        trail = Trail.of({"model": model, "text": text})
        with self.models.lock, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", GlauberWarning)
            begin = self.steps.begin(trail, warn=True)
            vocabulary = self.models[trail.model].vocabulary
        tokens = begin.pieces[0].tokens[begin.shown.positions].tolist()
        return {
            "tokens": tokens,
            "words": words(vocabulary, tokens),
            "sites": len(tokens),
            "note": " ".join(str(warning.message) for warning in caught),
        }

    def tokens(self, model: str, query: str, count: int = 20) -> Answer:
        """Tokens that can be put, whose spelling begins with the query or contains it."""
        check_count("number of tokens", count, most=TOKENS)
        if not isinstance(query, str):
            raise GlauberError("a search for tokens needs a text.")
        wanted = query.strip().lower()
        with self.models.lock:
            spellings = self._all_spellings(self.models.check(model))
        ranked = [
            (bare != wanted, not bare.startswith(wanted), len(bare), token, text)
            for token, text, bare in spellings
            if wanted in bare
        ]
        best = sorted(ranked)[:count]
        return {"tokens": [{"token": token, "text": text} for *_, token, text in best]}

    def _stop(self) -> Callable[[], bool]:
        """Whether time is up, or somebody else waits for the model."""
        until = self._clock() + self._limit
        return lambda: self._clock() >= until or self.models.lock.waited_for

    def _together(self, cursors: list[Cursor]) -> list[Cursor]:
        """The cursors where all are; those ahead go back."""
        last = min(cursor.step for cursor in cursors)
        while any(cursor.step > last for cursor in cursors):
            cursors = [self.steps.seek(cursor.trail, last) for cursor in cursors]
            last = min(cursor.step for cursor in cursors)
        return cursors

    def _begin(self, cursor: Cursor) -> Begin:
        """The shown part of a state."""
        stretch, state = cursor.stretch, cursor.state
        shown = slice(stretch.shown.first, stretch.shown.last)
        spelling = self.models[cursor.trail.model].vocabulary.text
        tokens, log_prob, free = state.tokens[shown], state.log_prob[shown], stretch.free[shown]
        return Begin(cursor.trail.chain, spelling, tokens, log_prob, free)

    def _film(
        self, trails: Sequence[Trail], begin: Sequence[Begin], first: int, count: int, every: int
    ) -> Film:
        parts = [self.steps.events(trail, first, first + count * every) for trail in trails]
        events = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        events["chain"] = np.repeat(np.arange(len(parts)), [len(part["step"]) for part in parts])
        events["frame"] = -((first - events["step"]) // every)
        events = last_events(events, (len(begin), max(len(row.tokens) for row in begin)))
        end = min(self.steps.seek(trail, STEPS).step for trail in trails)
        return film_of(begin, events, first=first, count=count, every=every, end=end)

    def _sums(self, trail: Trail, steps: NDArray[np.int64], window: int) -> NDArray[np.float64]:
        """Sums (3, steps) over the window that ends at each step, as `Curves.of` takes them."""
        first, last = int(steps[0]), int(steps[-1])
        events = self.steps.events(trail, first, last)
        events = {name: values[events["drawn"]] for name, values in events.items()}
        sums = np.zeros((3, last - first + 1))  # of each step, then up to it
        sums[0, events["step"][events["changed"]] - first] = 1
        np.add.at(sums[1], events["step"] - first, events["entropy"])
        np.add.at(sums[2], events["step"] - first, 1)
        sums = np.cumsum(sums, axis=1)
        return sums[:, steps - first] - sums[:, np.maximum(steps - first - window, 0)]

    def _left(self, trail: Trail, steps: NDArray[np.int64]) -> list[float]:
        """The share of the free sites that have their first tokens, after some steps."""
        begin = self.steps.seek(trail, 0)
        states = (self.steps.seek(trail, step).state.tokens for step in steps.tolist())
        return [float((row == begin.state.tokens)[begin.stretch.free].mean()) for row in states]

    def _all_spellings(self, model: str) -> list[tuple[int, str, str]]:
        """Token, spelling and bare spelling of all tokens that can be drawn."""
        if model not in self._spellings:
            tokens = np.flatnonzero(allowed_tokens(self.models.conditionals(model))).tolist()
            spellings = words(self.models[model].vocabulary, tokens).values()
            self._spellings[model] = [
                (token, text, text.strip().lower())
                for token, text in zip(tokens, spellings, strict=True)
            ]
        return self._spellings[model]


def _trails(source: object, chains: Sequence[int] | None = None) -> list[Trail]:
    """The trails that a page asks about."""
    if not isinstance(source, Mapping) or source.keys() != {"trails"}:
        raise GlauberError("a living chain is asked for by its trails.")
    if not isinstance(source["trails"], list | tuple) or not 1 <= len(source["trails"]) <= TRAILS:
        raise GlauberError(f"between 1 and {TRAILS} trails are followed at once.")
    trails = [Trail.of(trail) for trail in source["trails"]]
    for chain in chains or ():
        check_count("chain", chain, least=0, most=len(trails) - 1)
    return trails if chains is None else [trails[chain] for chain in chains]


def _last(trails: Sequence[Trail], first: int, count: int, every: int) -> int:
    """The last step of a film, which ends with the frame in which a site is frozen or released."""
    edits = [edit for trail in trails for edit in trail.edits if edit.kind in ("freeze", "free")]
    frames = [-((first - edit.step) // every) for edit in edits if edit.step > first]
    return first + min(count, (STEPS - first) // every, *frames) * every


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
        self._unread: tuple[Callable[[], object], str] | None = None  # a damaged part, and why
        self._forget()
        _ = self._run.text_spans  # learns how tokens are spelled

    def _forget(self) -> None:
        """Nothing is known yet about what the run in the folder drew from."""
        self._finished = self._run.finished
        self._drawn: DrawnFrom | None = None
        self._curves: tuple[int, int, Answer] | None = None  # steps, points, the answer
        self._unread = None
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
            growth = 1 if self._finished else GROWTH
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
                notes.append(
                    "The likeliest token was taken; what is said here is at temperature 1."
                )
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
                self._take(self._run.newest())
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

    def _take(self, run: Run) -> None:
        """Continue with the run as it is now; forget what was computed for another run."""
        before = self._run
        if run is before:
            return
        same = spec_digest(run.spec) == spec_digest(before.spec) and run.steps >= before.steps
        same = same and np.array_equal(run.tokens(0), before.tokens(0))
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

    def _drawn_from(self, run: Run, **how: bool) -> DrawnFrom:
        """What the run drew from; precise: in float64, for searches.

        A model that the page has open is taken; one of a coarse dtype is loaded again by its name.
        """
        model: Model | None = None
        name = run.spec.model
        if self._models is not None and name in self._models.names and run.spec.dtype not in COARSE:
            model = self._models[name]
        return drawn_from(
            run, model=model, device=self._device, trust_remote_code=self._trusted, **how
        )


def _summary(run: Run) -> str:
    spec = run.spec
    low, high = min(spec.temperatures), max(spec.temperatures)
    chains, steps = ("text", "passes") if spec.unmasking else ("chain", "steps")
    parts = [
        counted(run.n_chains, chains),
        f"{run.steps:,} {steps}",
        f"temperature {low:g}" if low == high else f"temperatures {low:g} to {high:g}",
    ]
    return ", ".join(parts if spec.unmasking else [*parts, f"scan {spec.scan}"])
