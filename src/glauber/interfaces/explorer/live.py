"""Live chains: the questions of a page about them, and the cache of their steps.

A page asks with a trail for the steps that it shows: the start, the noise and every edit of a live
chain. The state after n steps is a function of the trail alone, so whatever a page shows can be
computed again from its address. An edit with step s changes the state after s steps: step s + 1
starts from the edited state. Sites are counted in the shown text.

What the cache contains is answered at once; new steps are made for a few hundredths of a second,
and the page asks again. Whoever else waits for the model comes next.

A stretch is the steps of a trail from one edit to the next, in pieces of one log each. Trails that
agree up to some edit share the stretches up to there, so continuing, going back, branching and
editing cost only the new steps. The events of the pieces used longest ago are forgotten, and made
again from the state before them, to the bit on a CPU: noise is keyed by (seed, chain, step).
"""

import hashlib
import math
import time
import warnings
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import groupby, pairwise
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import Kernel, State, run, start
from glauber.dynamics.remembered import Memo, run_memoised
from glauber.dynamics.scans import scan_named
from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.foundation.progress import check_count, check_seed
from glauber.foundation.study import counted
from glauber.interfaces.explorer.conditional import Moment, Shown, Source, words
from glauber.interfaces.explorer.models import Models
from glauber.interfaces.explorer.questions import Answer
from glauber.models.base import PAD, Conditionals, Model, Restricted, check_temperature
from glauber.models.causal_lm import CausalLM
from glauber.models.vocabulary import Text
from glauber.runs.curves import NAMES, POINTS, Curves, window_of
from glauber.runs.film import FIELDS, Begin, Film, Parts, film_of, last_events, segment_events
from glauber.runs.log import Events, MemoryLog, Segment
from glauber.runs.spec import Spec
from glauber.sampling.advance import Batch, Session, Stream, advance
from glauber.texts.starts import check_length, starts

STEPS = 10**6  # the most of a live chain
EDITS = 5000
CHARACTERS = 20_000
SITES = 2**24
CHAINS = 2**32 - 1  # the largest that the key of the noise can contain


class Edit(NamedTuple):
    """One change of a chain: kind is temperature, token, freeze, free or chain."""

    step: int
    kind: str
    value: float  # the temperature, the token, the site to freeze or release, the chain's number
    site: int = -1  # of a token


class TrailSegment(NamedTuple):
    """The steps from one edit to the next: the edits at its start, and a key of all so far."""

    first: int
    edits: tuple[Edit, ...]
    key: bytes


@dataclass(frozen=True)
class Trail:
    """Everything that determines a live chain."""

    model: str
    text: str | None = None
    start: tuple[int, int] | None = None  # chain and step of the opened run, instead of a text
    seed: int = 0
    chain: int = 0
    temperature: float = 1.0
    scan: str = "uniform"
    frozen: tuple[int, ...] = ()
    edits: tuple[Edit, ...] = ()

    @classmethod
    def of(cls, question: object) -> "Trail":
        """From a page's JSON; whatever is not a trail is refused in one sentence."""
        if not isinstance(question, Mapping):
            raise GlauberError(f"{question!r:.80} is no trail.")
        unknown = sorted(map(str, question.keys() - READERS.keys()))
        if unknown:
            raise GlauberError(f"a trail has no {unknown[0]!r:.40}.")
        if ("text" in question) == ("start" in question):
            raise GlauberError("a trail begins from a text, or from a start in the opened run.")
        if not isinstance(question.get("model"), str):
            raise GlauberError("a trail needs the name of a model.")
        values = {name: READERS[name](value) for name, value in question.items()}
        return cls(**values)  # type: ignore[arg-type]

    @property
    def offset(self) -> int:
        """Steps of the run before it: with the run's seed and chain, a trail continues the run."""
        return 0 if self.start is None else self.start[1]

    @cached_property
    def segments(self) -> list[TrailSegment]:
        """The trail cut at its edits. Trails that agree so far have the same keys so far."""
        digest = hashlib.sha256(repr(replace(self, edits=())).encode())
        groups = groupby(self.edits, lambda edit: edit.step)
        segments = []
        for step, edits in {0: (), **{step: tuple(edits) for step, edits in groups}}.items():
            digest.update(repr((step, edits)).encode())
            segments.append(TrailSegment(step, edits, digest.digest()))
        return segments

    @cached_property
    def ends(self) -> list[int]:
        """The step at which each segment ends."""
        return [*(segment.first for segment in self.segments[1:]), STEPS]


# ---- values of a page's JSON


def _count(name: str, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        number = cast("int", value)
        check_count(name, number, least=0, most=most)
        return number

    return read


def _seed(value: object) -> int:
    check_seed(cast("int", value))
    return cast("int", value)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise GlauberError("the text is empty: there is no token to redraw.")
    if len(value) > CHARACTERS:
        raise GlauberError(
            f"the text has {len(value):,} characters, but a live chain takes at most "
            f"{CHARACTERS:,}."
        )
    return value


def _start(value: object) -> tuple[int, int]:
    if not isinstance(value, Mapping) or value.keys() != {"chain", "step"}:
        raise GlauberError("the start of a trail is a chain and a step of the opened run.")
    return _count("chain", 10**9)(value["chain"]), _count("step", 10**15)(value["step"])


def _temperature(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise GlauberError(f"the temperature is {value!r:.40}, but it must be a number.")
    check_temperature(value)
    return float(value)


def _scan(value: object) -> str:
    if not isinstance(value, str) or len(value) > 60:
        raise GlauberError(f"the scan is {value!r:.40}, but it must be a name such as uniform.")
    return scan_named(value).name


def _list(name: str, value: object, most: int) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise GlauberError(f"the {name} of a trail are {value!r:.40}, but they must be a list.")
    if len(value) > most:
        raise GlauberError(f"a trail has {len(value):,} {name}, but at most {most:,} are allowed.")
    return value


def _frozen(value: object) -> tuple[int, ...]:
    sites = _list("frozen sites", value, CHARACTERS)
    return tuple(sorted(set(map(_count("frozen site", SITES), sites))))


def _edit(value: object) -> Edit:
    if not isinstance(value, Mapping) or "step" not in value:
        raise GlauberError(f"{value!r:.80} is no edit: it needs a step.")
    step, site = (
        _count("step of an edit", STEPS - 1)(value["step"]),
        _count("site of an edit", SITES),
    )
    match sorted(value.keys() - {"step"}):
        case ["temperature"]:
            return Edit(step, "temperature", _temperature(value["temperature"]))
        case ["site", "token"]:
            token = _count("token of an edit", 2**31 - 1)(value["token"])
            return Edit(step, "token", token, site(value["site"]))
        case ["freeze" | "free" as kind]:
            return Edit(step, kind, site(value[kind]))
        case ["chain"]:
            return Edit(step, "chain", _count("chain of an edit", CHAINS)(value["chain"]))
    raise GlauberError(
        f"{dict(value)!r:.80} is no edit: it has a temperature, a site and a token, freeze, free "
        "or chain."
    )


def _edits(value: object) -> tuple[Edit, ...]:
    edits = tuple(map(_edit, _list("edits", value, EDITS)))
    for before, after in pairwise(edits):
        if after.step < before.step:
            raise GlauberError(
                f"an edit at step {after.step:,} comes after one at step {before.step:,}, but "
                "edits are listed in the order of their steps."
            )
    return edits


READERS: dict[str, Callable[[object], object]] = {
    "model": str,
    "text": _text,
    "start": _start,
    "seed": _seed,
    "chain": _count("chain", CHAINS),
    "temperature": _temperature,
    "scan": _scan,
    "frozen": _frozen,
    "edits": _edits,
}


LIMIT = 0.08  # seconds of new steps in one answer, less where somebody else waits
PATIENCE = 2.0  # seconds that a click waits for steps that are not made yet
SAVING = 60.0  # seconds for chains of a saved page to be made again
REDRAWS = 200_000  # of live chains in a saved page
TRAILS = 8  # in one question
FRAMES = 20_000  # of one film
TOKENS = 200  # that a search lists, at most
PIECE = 128  # steps of a log
STRETCHES = 4096  # that are kept
EVENTS = 64 * 2**20  # bytes of events that are kept
CHECKED = 256  # trails whose edits are known to be possible
STREAM = 512  # steps planned at once
LEAD = 64  # steps whose noise is drawn in advance
MEMO = 64 * 2**20  # bytes of remembered conditionals, for each model and length
MEMOS = 4
TURN = 16  # steps of a turn, where chains of several models or scans take turns

# chain and step of the opened run -> tokens (length,), free (length,), vocabulary
FromRun = Callable[[int, int], tuple[NDArray[np.int64], NDArray[np.bool_], Text]]


@dataclass(eq=False)
class Piece:
    """Up to PIECE steps of a chain, and the state before them."""

    first: int
    tokens: NDArray[np.int64]  # (length,)
    log_prob: NDArray[np.float32]  # (length,) of each token when it was drawn; NaN if it never was
    log: MemoryLog | None = None

    @property
    def last(self) -> int:
        """The last step that is in the log."""
        return self.first + (0 if self.log is None else self.log.steps)

    @property
    def n_bytes(self) -> int:
        """The size of the events."""
        return 0 if self.log is None else 32 * self.log.steps * self.log.n_slots

    @property
    def segment(self) -> Segment | None:
        """The events, by steps of the trail."""
        return None if self.log is None else Segment(self.first, self.log.segment(0).arrays)

    def state(self, step: int) -> "Piece":
        """The state after a step that is in the log, with no steps."""
        tokens, log_prob = self.tokens.copy(), self.log_prob.copy()
        if step > self.first and (segment := self.segment) is not None:
            segment.replay(tokens[None], self.first, step)
            segment.replay(log_prob[None], self.first, step, field="log_prob_new")
        return Piece(step, tokens, log_prob)


@dataclass(eq=False)
class Stretch:
    """The steps of a chain between two edits."""

    spec: Spec
    shown: Shown
    free: NDArray[np.bool_]  # (length,)
    chain: int  # in the key of the noise
    pieces: list[Piece]

    @property
    def temperature(self) -> float:
        return self.spec.temperatures[0]

    @property
    def n_slots(self) -> int:
        """Sites that one step may redraw."""
        return scan_named(self.spec.scan).sites_per_step(torch.from_numpy(self.free)[None])

    def piece_before(self, step: int) -> Piece:
        """The last piece that begins at a step or before it."""
        return self.pieces[min((step - self.pieces[0].first) // PIECE, len(self.pieces) - 1)]

    def piece_after(self, step: int) -> Piece:
        """The piece that has the step after a known one."""
        piece = self.piece_before(step)
        if step == piece.first + PIECE:
            piece = piece.state(step)
            self.pieces.append(piece)
        return piece

    def with_edits(self, step: int, edits: Sequence[Edit]) -> "Stretch":
        """The stretch that begins with edits of the state after a step."""
        state, free = self.piece_before(step).state(step), self.free.copy()
        spec, chain = self.spec, self.chain
        for edit in edits:
            match edit.kind:
                case "temperature":
                    spec = replace(spec, temperature=edit.value)
                case "chain":
                    chain = int(edit.value)
                case "token":
                    position = self.shown.position(edit.site)
                    state.tokens[position], state.log_prob[position] = edit.value, np.nan
                case _:
                    free[self.shown.position(int(edit.value))] = edit.kind == "free"
        return Stretch(spec, self.shown, free, chain, [state])


@dataclass(eq=False)
class Cursor:
    """A step of a trail whose state is known."""

    trail: Trail
    index: int  # of the stretch
    stretch: Stretch
    step: int

    @property
    def end(self) -> int:
        """The step after which the next edit comes."""
        return self.trail.ends[self.index]

    @property
    def state(self) -> Piece:
        """Tokens and their log-probabilities."""
        return self.stretch.piece_before(self.step).state(self.step)


Row = tuple[Stretch, int]  # a chain and the steps that it has made


class StepCache:
    """The stretches of recent trails. For one thread at a time: the models' lock is taken."""

    def __init__(
        self, models: Models, from_run: FromRun | None = None, *, max_bytes: int = EVENTS
    ) -> None:
        self.models, self.max_bytes, self._from_run = models, max_bytes, from_run
        self.made = 0  # steps of chains that were made
        self.n_bytes = 0  # of events
        self._stretches: OrderedDict[bytes, Stretch] = OrderedDict()
        self._used: OrderedDict[Piece, None] = OrderedDict()  # pieces with events
        self._streams: dict[tuple[str, str], tuple[list[Row], Batch]] = {}
        self._kernel = lru_cache(self._new_kernel)  # an adaptive one remembers conditionals
        self._memo = lru_cache(MEMOS)(self._new_memo)
        self._check = lru_cache(CHECKED)(self._check_edits)

    # ---- cursors on trails

    def cursors(self, trails: Sequence[Trail], step: int) -> list[Cursor]:
        """The last known cursor of each trail up to a step; the trails are checked first.

        What was not used for longest is forgotten, where there is too much.
        """
        while len(self._stretches) > STRETCHES:
            for piece in self._stretches.popitem(last=False)[1].pieces:
                self._forget(piece)
        while self.n_bytes > self.max_bytes:
            self._forget(next(iter(self._used)))
        for trail in trails:
            self._check(trail)
        return [self.seek(trail, step) for trail in trails]

    def _forget(self, piece: Piece) -> None:
        self.n_bytes -= piece.n_bytes
        self._used.pop(piece, None)
        piece.log = None

    def _use(self, piece: Piece) -> None:
        self._used[piece] = None
        self._used.move_to_end(piece)

    def seek(self, trail: Trail, step: int) -> Cursor:
        """The last known cursor up to a step."""
        segments = trail.segments
        top = index = bisect_right([segment.first for segment in segments], step) - 1
        while index and segments[index].key not in self._stretches:
            index -= 1
        cursor = Cursor(trail, index, self._stretch(trail, index), 0)
        while True:
            last = min(step, cursor.end)
            cursor.step = min(last, cursor.stretch.piece_before(last).last)
            if cursor.index == top or cursor.step < cursor.end:
                return cursor
            self._turn(cursor)

    def forward(self, cursor: Cursor, last: int) -> None:
        """Move on through the steps that are there, up to a step."""
        while cursor.step < last:
            step = min(cursor.stretch.piece_after(cursor.step).last, cursor.end, last)
            if step <= cursor.step:
                return
            cursor.step = step
            if step == cursor.end < STEPS:
                self._turn(cursor)

    def _turn(self, cursor: Cursor) -> None:
        """Apply the edits at the end of a stretch."""
        cursor.stretch = self._stretch(cursor.trail, cursor.index + 1, cursor)
        cursor.index += 1

    def _stretch(self, trail: Trail, index: int, cursor: Cursor | None = None) -> Stretch:
        """A stretch that is there; or the first one, or that after a cursor."""
        segment = trail.segments[index]
        if segment.key not in self._stretches:
            before = self.begin(trail) if cursor is None else cursor.stretch
            self._stretches[segment.key] = before.with_edits(segment.first, segment.edits)
        self._stretches.move_to_end(segment.key)
        return self._stretches[segment.key]

    def known_from(self, trail: Trail, last: int) -> int:
        """The step after which all events up to the last known step are there."""
        known = last
        for segment, end in zip(trail.segments[::-1], trail.ends[::-1], strict=True):
            if segment.first >= last:
                continue
            stretch = self._stretches.get(segment.key)
            if stretch is None:
                return known
            for piece in stretch.pieces[-(-(min(end, last) - segment.first) // PIECE) - 1 :: -1]:
                if piece.last < known:
                    return known
                known = piece.first
        return known

    def events(self, trail: Trail, first: int, last: int) -> Parts:
        """The events of the steps first < step <= last, which are there: one entry each.

        A token that an edit puts is an event too, with drawn False and no probability.
        """
        sections = [_put_tokens(0, ())]
        for segment, end in zip(trail.segments, trail.ends, strict=True):
            if first < segment.first <= last:
                sections.append(_put_tokens(segment.first, segment.edits))
            step, high = max(first, segment.first), min(last, end)
            while step < high:
                stretch = self._stretches[segment.key]
                piece = stretch.piece_after(step)
                begin, step = step, min(high, piece.last)
                assert piece.segment is not None and step > begin
                self._use(piece)
                part = segment_events(piece.segment, begin, step, [*FIELDS, "changed"])
                part["site"] = part["site"] - stretch.shown.first
                sections.append(part | {"drawn": np.ones(len(part["site"]), np.bool_)})
        return {name: np.concatenate([part[name] for part in sections]) for name in sections[0]}

    # ---- steps

    def bring(self, cursors: Sequence[Cursor], step: int, stop: Callable[[], bool]) -> None:
        """Move all to a step, making the steps that are not there until `stop` says so.

        `stop` is called after each step. Chains of different models or scans take turns.
        """
        stopping = False
        while True:
            for cursor in cursors:
                self.forward(cursor, step)
            groups: dict[tuple[str, str], list[Cursor]] = {}
            for cursor in cursors:
                if cursor.step < step:
                    groups.setdefault((cursor.trail.model, cursor.trail.scan), []).append(cursor)
            if not groups or stopping:
                return
            for (model, scan), group in groups.items():
                session = Session(stop=stop)
                self._make(model, scan, group, step if len(groups) == 1 else TURN, step, session)
                stopping = stopping or session.stopping

    def _make(
        self,
        model: str,
        scan: str,
        cursors: Sequence[Cursor],
        most: int,
        step: int,
        session: Session,
    ) -> None:
        """Make at most so many steps at some cursors, and none after `step`."""
        by_row = {(cursor.stretch, cursor.step): cursor for cursor in cursors}  # trails share steps
        rows, together = list(by_row), list(by_row.values())
        room = [
            min(cursor.end, step, cursor.stretch.piece_after(cursor.step).first + PIECE)
            - cursor.step
            for cursor in together
        ]
        planned, batch = self._streams.pop((model, scan), ([], None))
        if batch is None or planned != rows:
            batch = self._batch(model, scan, together)
        log = MemoryLog(
            rows[0][0].spec,
            _pad((cursor.state.tokens for cursor in together), PAD).numpy(),
            _pad((stretch.free for stretch, _ in rows), False).numpy(),
            max(stretch.n_slots for stretch, _ in rows),
        )
        advance([batch], log, until=min(most, *room), session=session)
        events = {name: log.read(name) for name in log.fields}
        for row, (stretch, step) in enumerate(rows):
            part = {name: values[row : row + 1] for name, values in events.items()}
            self._append(stretch, stretch.piece_after(step), part)
        self.made += log.steps * len(rows)
        planned = [(stretch, step + log.steps) for stretch, step in rows]
        self._streams[model, scan] = planned, batch

    def _append(self, stretch: Stretch, piece: Piece, events: Events) -> None:
        if piece.log is None:
            tokens, free, n_slots = piece.tokens[None], stretch.free[None], stretch.n_slots
            piece.log = MemoryLog(stretch.spec, tokens, free, n_slots, segment_steps=PIECE)
        self.n_bytes -= piece.n_bytes
        n_slots = piece.log.n_slots
        piece.log.append({name: values[:, :, :n_slots] for name, values in events.items()})
        self.n_bytes += piece.n_bytes
        self._use(piece)

    def _batch(self, model: str, scan: str, cursors: Sequence[Cursor]) -> Batch:
        """The chains at some cursors, and their steps from there on."""
        loaded, stretches = self.models[model], [cursor.stretch for cursor in cursors]
        state = start(
            _pad((cursor.state.tokens for cursor in cursors), PAD),
            _pad((stretch.free for stretch in stretches), False),
            temperature=torch.tensor(
                [stretch.temperature for stretch in stretches], dtype=torch.float64
            ),
            chain=torch.tensor([stretch.chain for stretch in stretches]),
        )
        steps = torch.tensor([cursor.step + cursor.trail.offset for cursor in cursors])
        state = State(*(part.to(loaded.state_device) for part in state._replace(step=steps)))
        seeds = torch.tensor([cursor.trail.seed for cursor in cursors], device=state.step.device)
        return Batch(len(cursors), self._stream(model, scan, state, seeds), loaded.device)

    def _stream(self, model: str, scan: str, state: State, seeds: Tensor) -> Stream:
        """All further steps of some chains; calls of the model are short, for whoever waits."""
        while True:
            for after, info in self._steps(model, scan, state, seeds):
                state = after
                yield after, info

    def _steps(self, model: str, scan: str, state: State, seeds: Tensor) -> Stream:
        kernel = self._kernel(model, scan)
        if kernel.lookup is None:
            return run(kernel, state, STREAM, seed=seeds)
        # A browser needs the other cores: nothing is asked for ahead. A GPU asks for what pays.
        return run_memoised(
            kernel,
            state,
            STREAM,
            seed=seeds,
            memo=self._memo(model, state.tokens.shape[1]),
            lead=LEAD,
            prefetch=None if state.tokens.is_cuda else 0,
        )

    def _new_kernel(self, model: str, scan: str) -> Kernel:
        kind = scan_named(scan)
        return glauber(self.models.conditionals(model), scan=kind, within=kind.within)

    def _new_memo(self, model: str, length: int) -> Memo:
        return Memo(self.models.conditionals(model).vocab_size, length, budget=MEMO)

    # ---- beginnings

    def begin(self, trail: Trail, *, warn: bool = False) -> Stretch:
        """The state before the first edit; warn: also of a text that was repaired."""
        model = self.models[self.models.check(trail.model)]
        if isinstance(model, CausalLM):
            raise GlauberError(
                f"{model.name} is an autoregressive LM: each token that could stand at a site "
                "costs a pass, so it cannot be run live."
            )
        with warnings.catch_warnings():
            if not warn:
                warnings.simplefilter("ignore", GlauberWarning)
            tokens, free = self._start(model, trail)
        shown = Shown.of(model.vocabulary, tokens, free)
        for site in trail.frozen:
            free[shown.position(site)] = False
        spec = Spec(
            model=trail.model,
            fingerprint="",  # the log is not stored: no need to read all weights
            device=model.device.type,
            dtype=model.dtype,
            seed=trail.seed,
            steps=STEPS,
            chains=1,
            temperature=trail.temperature,
            scan=trail.scan,
        )
        piece = Piece(0, tokens, np.full(len(tokens), np.nan, np.float32))
        return Stretch(spec, shown, free, trail.chain, [piece])

    def _start(self, model: Model, trail: Trail) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        if trail.text is not None:
            rows = starts(model, [trail.text])
            return rows[0][0].numpy(), rows[1][0].numpy()
        if self._from_run is None or trail.start is None:
            raise GlauberError("no run is open here: begin from a text.")
        tokens, free, vocabulary = self._from_run(*trail.start)
        row = tokens[tokens != PAD]
        known = int(row.max()) < model.vocab_size
        if not known or any(vocabulary.spell(t) != model.vocabulary.spell(t) for t in set(row)):
            raise GlauberError(f"{model.name} has another vocabulary than the loaded run.")
        check_length(model, torch.from_numpy(row)[None])
        return row.copy(), free[: len(row)].copy()

    def _check_edits(self, trail: Trail) -> None:
        """Refuse a scan that cannot draw here, and edits that no state of the trail allows."""
        begin, conditionals = self.begin(trail), self.models.conditionals(trail.model)
        scan, allowed, free = scan_named(trail.scan), allowed_tokens(conditionals), begin.free
        glauber(conditionals, scan=scan)
        for edit in (None, *trail.edits):
            if edit is not None and edit.kind == "token":
                begin.shown.position(edit.site)
                if edit.value >= len(allowed) or not allowed[int(edit.value)]:
                    raise GlauberError(f"the token {edit.value} cannot be put: it is never drawn.")
            elif edit is not None and edit.kind in ("freeze", "free"):
                free[begin.shown.position(int(edit.value))] = edit.kind == "free"
            if free.sum() < scan.fewest:
                raise GlauberError(
                    f"the scan {trail.scan} needs {counted(scan.fewest, 'free site')}, but "
                    f"{counted(int(free.sum()), 'site')} of the text would be left."
                )


def allowed_tokens(conditionals: Conditionals) -> NDArray[np.bool_]:
    """Which tokens can be drawn, (vocab,)."""
    if isinstance(conditionals, Restricted):
        return conditionals.allowed.cpu().numpy()
    return np.ones(conditionals.vocab_size, np.bool_)


def _pad(rows: Iterable[NDArray[np.generic]], fill: int) -> Tensor:
    """Rows of different lengths as one tensor, filled up after the shorter ones."""
    tensors = [torch.from_numpy(row) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=fill)


def _put_tokens(step: int, edits: Sequence[Edit]) -> Parts:
    """The tokens that edits put after a step, as events."""
    put = [edit for edit in edits if edit.kind == "token"]
    unknown = np.full(len(put), np.nan, np.float32)
    return {
        "step": np.full(len(put), step),
        "site": np.array([edit.site for edit in put], np.int32),
        "token": np.array([edit.value for edit in put], np.int32),
        "changed": np.zeros(len(put), np.bool_),
        "log_prob_new": unknown,
        "entropy": unknown,
        "drawn": np.zeros(len(put), np.bool_),
    }


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
            raise GlauberError(f"a live chain has at most {STEPS:,} steps: begin a new one.")
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

    def whole_film(self, source: object, last: int) -> Film:
        """Every step of some trails up to `last`, which are made now where they are not there."""
        trails, end = _trails(source), self._clock() + SAVING
        too_many = f"a page contains at most {REDRAWS:,} redraws: save an earlier step."
        if last * len(trails) > REDRAWS:
            raise GlauberError(too_many)
        while True:
            with self.models.lock:
                cursors = self.steps.cursors(trails, 0)
                begin = [self._begin(cursor) for cursor in cursors]
                self.steps.bring(cursors, last, self._stop())
                if all(cursor.step == last for cursor in cursors):
                    film = self._film(trails, begin, 0, last, 1)
                    break
            if self._clock() > end:
                raise GlauberError(f"{last:,} steps take too long to be made again.")
        if len(film.frame) > REDRAWS:
            raise GlauberError(too_many)
        return film

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
        rows = [self.steps.events(trail, first, first + count * every) for trail in trails]
        events = {name: np.concatenate([part[name] for part in rows]) for name in rows[0]}
        events["chain"] = np.repeat(np.arange(len(rows)), [len(part["step"]) for part in rows])
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
        raise GlauberError("live chains are asked for by their trails.")
    if not isinstance(source["trails"], list | tuple) or not 1 <= len(source["trails"]) <= TRAILS:
        raise GlauberError(f"between 1 and {TRAILS} trails are shown at once.")
    trails = [Trail.of(trail) for trail in source["trails"]]
    for chain in chains or ():
        check_count("chain", chain, least=0, most=len(trails) - 1)
    return trails if chains is None else [trails[chain] for chain in chains]


def _last(trails: Sequence[Trail], first: int, count: int, every: int) -> int:
    """The last step of a film, which ends with the frame in which a site is frozen or released."""
    edits = [edit for trail in trails for edit in trail.edits if edit.kind in ("freeze", "free")]
    frames = [-((first - edit.step) // every) for edit in edits if edit.step > first]
    return first + min(count, (STEPS - first) // every, *frames) * every
