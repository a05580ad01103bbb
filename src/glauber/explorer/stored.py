"""What does a page ask about a stored run?

The folder is only read. A run that grows is read again; one that is damaged or deleted while a page
looks at it is said to be, and what was read before stays there.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from glauber.conditionals.base import PAD
from glauber.errors import DamagedRun, GlauberError
from glauber.explorer.answers import Answer
from glauber.explorer.bands import Bands
from glauber.explorer.conditional import Shown, conditional_at, sure_at
from glauber.explorer.models import Models, Turns
from glauber.progress import check_count
from glauber.result import counted
from glauber.runs.curves import POINTS, curves
from glauber.runs.embedding import Choice
from glauber.runs.film import column, film, state_at
from glauber.runs.folder_log import FolderLog
from glauber.runs.run import Run
from glauber.runs.spec import spec_digest
from glauber.sampling.reopened import COARSE, DrawnFrom, drawn_from

Found = TypeVar("Found")

EVENTS = 100_000  # of one film, at most
READ = 4_000_000  # events that are read for one film, at most
GROWN = 1.02  # curves are drawn anew when a run is so many times longer


class StoredRun:
    """A run's folder that a page looks at; each method answers one question."""

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
        self._finished = self._run.finished
        self._models, self._turns = models, Turns() if models is None else models.lock
        self._how: dict[str, Any] = {"device": device, "trust_remote_code": trust_remote_code}
        self._reading, self._drawing = threading.RLock(), threading.Lock()
        self._lost: str | None = None  # why the folder cannot be opened again
        self._torn: tuple[Callable[[], Any], str] | None = None  # what could not be read, and why
        self._drawn: DrawnFrom | None = None
        self._curves: tuple[int, int, Answer] | None = None  # steps, points, what was said
        self.found = self._searching(embedder)
        _ = self._run.text_spans  # learns how tokens are spelled

    # ---- questions

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
            "damaged": self.damaged,
            "signature": run.signature,
        }

    def film(
        self,
        source: Any,
        first: int,
        count: int,
        every: int = 1,
        chains: Sequence[int] | None = None,
    ) -> Answer:
        """States of some chains, frame by frame; fewer than asked for where they would be many."""
        check_count("number of frames", count, least=0, most=10**15)
        check_count("number of steps in a frame", every, most=10**15)
        if chains is not None and not isinstance(chains, list | tuple | range):
            raise GlauberError("the chains of a film are a list of numbers.")
        run = self.now()
        slots = run.log.n_slots
        shown = run.n_chains if chains is None else max(1, len(chains))
        events = shown * min(every * slots, int(run.free.sum(axis=1).max()))
        most = min(EVENTS // events, READ // (every * slots * run.n_chains))
        count = min(count, max(1, most))
        found = self._read(film, run, first=first, count=count, every=every, chains=chains)
        return found.to_dict()

    def curves(self, source: Any = "run", points: int = POINTS) -> Answer:
        """How the chains moved, in a few hundred points."""
        run = self.now()
        with self._drawing:
            known = self._curves
            if known is None or known[1] != points or self._longer(run, known[0]):
                found = self._read(curves, run, points=points)
                self._curves = known = run.steps, points, found.to_dict()
            return known[2]

    def _longer(self, run: Run, steps: int) -> bool:
        """Whether a run grew so much that its curves look different."""
        return run.steps > (steps if self._finished else GROWN * steps)

    def conditional(
        self, source: Any, chain: int, step: int, site: int, whole: bool = False
    ) -> Answer:
        """What could stand at a site of a chain after a step."""
        run, tokens, shown = self._moment(chain, step)
        position = shown.position(site)
        law = self._law(run, chain)
        with self._turns:
            found = conditional_at(
                law.drawn.conditionals,
                run.vocabulary,
                torch.from_numpy(tokens).to(law.drawn.device),
                position,
                law.temperature,
                whole=whole,
            )
        found["note"] = " ".join([found["note"], *law.notes])
        return {"site": site, "frozen": not bool(run.free[chain, position]), **found}

    def sure(self, source: Any, chain: int, step: int) -> Answer:
        """How sure the model is of every shown token of a chain after a step, at this moment."""
        run, tokens, shown = self._moment(chain, step)
        law = self._law(run, chain)
        row = torch.from_numpy(tokens).to(law.drawn.device)
        with self._turns:
            log_prob, entropy = sure_at(
                law.drawn.conditionals, row, shown.positions, law.temperature
            )
        return {
            "log_prob": column(log_prob.astype(np.float32)),
            "entropy": column(entropy.astype(np.float32)),
        }

    def bands(self, kind: str) -> Answer:
        """Stretches of steps: traps, basins or topics, as far as they were found."""
        run = self.now()
        return self.found(kind, run, finished=self._finished)

    # ---- the run behind them

    @property
    def damaged(self) -> str | None:
        """What is wrong with the run, in a sentence."""
        return self._lost or (None if self._torn is None else self._torn[1])

    def now(self, *, thoroughly: bool = False) -> Run:
        """The run as it is now, or as it was when it could last be opened.

        thoroughly: also looks whether all of its files are there.
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
            if self._torn is not None and thoroughly and self._lost is None:
                self._look_again(self._torn[0])
            return self._run

    def _look_again(self, read: Callable[[], Any]) -> None:
        """Whether a part that could not be read can be read by now."""
        with suppress(DamagedRun):
            read()
            self._torn = None

    def begin(self, chain: int, step: int) -> tuple[NDArray[np.int64], NDArray[np.bool_], Any]:
        """Tokens and free sites (length,) of a chain after a step, and what spells them."""
        run, tokens, _ = self._moment(chain, step)
        there = tokens != PAD
        return tokens[there], run.free[chain, there], run.vocabulary

    def _take(self, fresh: Run) -> None:
        """Continue with the run as it is now; forget what was computed for another run."""
        if fresh is self._run:
            return
        same = spec_digest(fresh.spec) == spec_digest(self._run.spec)
        same = same and np.array_equal(fresh.tokens(0), self._run.tokens(0))
        if not same or fresh.steps < self._run.steps:  # another run in the same folder
            self._drawn = self._curves = self._torn = None
            self.found.close()
            self.found = self._searching(self._embedder)
        self._run = fresh

    def _read(self, read: Callable[..., Found], *given: Any, **how: Any) -> Found:
        """What `read` gives; remembers it if a part could not be read."""
        try:
            found = read(*given, **how)
        except DamagedRun as error:
            self._torn = partial(read, *given, **how), str(error)
            raise
        return found

    def _moment(self, chain: int, step: int) -> tuple[Run, NDArray[np.int64], Shown]:
        """The run, a chain's tokens after a step (length,), and which of them are shown."""
        run = self.now()
        run.check_chain(chain)
        check_count("step", step, least=0, most=10**15)
        if step > run.steps:
            raise GlauberError(f"step {step} is outside the run, which has steps 0 to {run.steps}.")
        tokens, _ = self._read(state_at, run, step)
        return run, tokens[chain], Shown(*run.text_spans[chain])

    def _searching(self, embedder: Choice) -> Bands:
        self._embedder = embedder
        return Bands(self._in_float64, self._turns, embedder=embedder, **self._how)

    def _in_float64(self, run: Run) -> DrawnFrom:
        """What the run drew from, precisely; a copy of its own, so nobody waits for its loading."""
        return drawn_from(run, model=self._model(run), precise=True, **self._how)

    def close(self) -> None:
        """Nothing more is looked for."""
        self.found.close()

    def _law(self, run: Run, chain: int) -> "_Law":
        """What a chain of the run draws from; the model is loaded when it is first asked."""
        with self._turns:
            if self._drawn is None:
                self._drawn = drawn_from(run, model=self._model(run), generations=True, **self._how)
            drawn = self._drawn
        temperature = run.spec.temperatures[chain]
        notes = list(drawn.notes)
        if {"budget", "tied"} & set(run.spec.constraints or {}):
            notes.append("The run's budget of changes and its tied sites are not counted in.")
        if temperature == 0:
            notes.append("The likeliest token was taken; what is said here is at temperature 1.")
        return _Law(drawn, temperature or 1.0, notes)

    def _model(self, run: Run) -> Any:
        """The model that the page has open already; a coarse one is loaded again by its name."""
        name, models = run.spec.model, self._models
        there = models is not None and name in models.names and run.spec.dtype not in COARSE
        return models[name] if models is not None and there else None


class _Law(NamedTuple):
    """What a chain draws from, and at which temperature."""

    drawn: DrawnFrom
    temperature: float
    notes: list[str]


def _summary(run: Run) -> str:
    spec = run.spec
    low, high = min(spec.temperatures), max(spec.temperatures)
    heat = f"temperature {low:g}" if low == high else f"temperatures {low:g} to {high:g}"
    one, steps = ("text", "passes") if spec.unmasking else ("chain", "steps")
    how = "" if spec.unmasking else f", scan {spec.scan}"
    return f"{counted(run.n_chains, one)}, {run.steps:,} {steps}, {heat}{how}"
