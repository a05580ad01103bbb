"""What does a chain do that somebody runs, stops and changes in the page?

A page asks with a trail (`trail`) for the steps that it shows. What is there is answered at once;
new steps are made for a few hundredths of a second, and the page asks again. Whoever else waits
for the model comes next.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from glauber.errors import GlauberError, GlauberWarning
from glauber.explorer.answers import Answer
from glauber.explorer.conditional import conditional_at, sure_at, words
from glauber.explorer.live import FromRun, LiveChains, Place, allowed_tokens
from glauber.explorer.models import Models
from glauber.explorer.trail import STEPS, Trail
from glauber.progress import check_count
from glauber.runs.curves import NAMES, POINTS, Curves, window_of
from glauber.runs.film import Film, column, thinned

LIMIT = 0.08  # seconds of new steps in one answer, less where somebody else waits
PATIENCE = 2.0  # seconds that a click waits for steps that are not there
TRAILS = 8
FRAMES = 20_000  # of one film
FOUND = 200  # tokens that a search lists, at most


class Living:
    """Chains that are run live; each method answers one question of a page."""

    def __init__(
        self,
        models: Models,
        *,
        from_run: FromRun | None = None,
        limit: float = LIMIT,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.models, self._limit, self._clock = models, limit, clock
        self.chains = LiveChains(models, from_run)
        self._spelled: dict[str, list[tuple[int, str, str]]] = {}

    # ---- questions

    def film(
        self,
        source: Any,
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
            places = self.chains.places(trails, first)
            self.chains.bring(places, first, stop)
            if min(place.step for place in places) < first:
                return self._replayed(places, first, every)
            begun = [Seen.of(place) for place in places]
            self.chains.bring(places, _last(trails, first, count, every), stop)
            reached = min(place.step for place in places)
            made = self._filmed(trails, begun, first, (reached - first) // every, every)
            if made.count or not count:
                return made.to_dict()
            return made.to_dict() | {"replayed": reached, "of": first + every}

    def conditional(
        self, source: Any, chain: int, step: int, site: int, whole: bool = False
    ) -> Answer:
        """What could stand at a site of a trail after a step."""
        with self._at(source, chain, step) as (place, tokens):
            model, position = place.trail.model, place.stretch.shown.position(site)
            found = conditional_at(
                self.models.conditionals(model),
                self.models[model].vocabulary,
                tokens,
                position,
                place.stretch.temperature,
                whole=whole,
            )
        return {"site": site, "frozen": not place.stretch.free[position], **found}

    def sure(self, source: Any, chain: int, step: int) -> Answer:
        """How sure the model is of every shown token of a trail after a step, at this moment."""
        with self._at(source, chain, step) as (place, tokens):
            log_prob, entropy = sure_at(
                self.models.conditionals(place.trail.model),
                tokens,
                place.stretch.shown.positions,
                place.stretch.temperature,
            )
        return {
            "log_prob": column(log_prob.astype(np.float32)),
            "entropy": column(entropy.astype(np.float32)),
        }

    def encode(self, model: str, text: str) -> Answer:
        """The tokens of a text, or why no chain can begin there."""
        trail = Trail.of({"model": model, "text": text})
        with self.models.lock, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", GlauberWarning)
            begun = self.chains.begin(trail, warn=True)
            vocabulary = self.models[trail.model].vocabulary
        tokens = begun.tokens[begun.shown.first : begun.shown.last].tolist()
        return {
            "tokens": tokens,
            "words": words(vocabulary, tokens),
            "sites": len(tokens),
            "note": " ".join(str(one.message) for one in caught),
        }

    def tokens(self, model: str, query: str, count: int = 20) -> Answer:
        """Tokens that can be put, whose spelling begins with the query or contains it."""
        check_count("number of tokens", count, most=FOUND)
        if not isinstance(query, str):
            raise GlauberError("a search for tokens needs a text.")
        wanted = query.strip().lower()
        with self.models.lock:
            spelled = self._spellings(self.models.check(model))
        ranked = [
            (bare != wanted, not bare.startswith(wanted), len(bare), token, text)
            for token, text, bare in spelled
            if wanted in bare
        ]
        best = sorted(ranked)[:count]
        return {"tokens": [{"token": token, "text": text} for *_, token, text in best]}

    def curves(self, source: Any, points: int = POINTS) -> Answer:
        """How some trails moved so far, as the curves of a run."""
        check_count("number of points", points, least=2, most=10_000)
        trails = _trails(source)
        with self.models.lock:
            end = min(place.step for place in self.chains.places(trails, STEPS))
            first = max(self.chains.known_from(trail, end) for trail in trails)
            steps = np.unique(np.linspace(first, end, points).round().astype(np.int64))
            window = window_of(end - first)
            found = [self._moved(trail, steps, window) for trail in trails]
        changed, entropy, left = (np.stack(column) for column in zip(*found, strict=True))
        answer = Curves(steps, window, changed, entropy, left, NAMES).to_dict()
        if first:
            answer["notes"].append(f"What happened up to step {first:,} is not kept any more.")
        return answer

    def _moved(
        self, trail: Trail, steps: NDArray[np.int64], window: int
    ) -> tuple[NDArray[np.float64], ...]:
        """Share changed, entropy and what is left of the start (steps,); of known steps."""
        first, last = int(steps[0]), int(steps[-1])
        events = self.chains.events(trail, first, last)
        made = {name: values[events["drawn"]] for name, values in events.items()}
        sums = np.zeros((3, last - first + 1))  # up to each step: moved, entropies, their number
        sums[0, made["step"][made["changed"]] - first] = 1
        np.add.at(sums[1], made["step"] - first, made["entropy"])
        np.add.at(sums[2], made["step"] - first, 1)
        at = np.cumsum(sums, axis=1)
        moved, entropy, drawn = at[:, steps - first] - at[:, np.maximum(steps - first - window, 0)]
        whole = (steps - first >= window) & (steps > first)
        begun, left = self.chains.seek(trail, 0), []
        for step in steps.tolist():
            same = self.chains.seek(trail, step).state.tokens == begun.state.tokens
            left.append(float(same[begun.stretch.free].mean()))
        return (
            np.where(whole, moved / max(1, window), np.nan),
            np.where(whole & (drawn > 0), entropy / np.maximum(1, drawn), np.nan),
            np.array(left),
        )

    def _stop(self) -> Callable[[], bool]:
        """Whether time is up, or somebody else waits for the model."""
        until = self._clock() + self._limit
        return lambda: self._clock() >= until or self.models.lock.waited_for

    @contextmanager
    def _at(self, source: Any, chain: int, step: int) -> Iterator[tuple[Place, torch.Tensor]]:
        """The place of one trail after a step and its tokens (length,), while nobody else asks.

        Steps that are not there are made now, if that does not take long.
        """
        check_count("step", step, least=0, most=STEPS)
        trails = _trails(source)
        check_count("chain", chain, least=0, most=len(trails) - 1)
        patience = self._clock() + PATIENCE
        while True:
            with self.models.lock:
                places = self.chains.places([trails[chain]], step)
                self.chains.bring(places, step, self._stop())
                place = places[0]
                if place.step == step:
                    device = self.models[place.trail.model].state_device
                    yield place, torch.from_numpy(place.state.tokens).to(device)
                    return
            if self._clock() >= patience:
                raise GlauberError(
                    f"this chain was made up to step {place.step:,} so far, and not to {step:,}: "
                    "play it up to there first."
                )

    # ---- films

    def _replayed(self, places: Sequence[Place], first: int, every: int) -> Answer:
        """A film of no frame, and how far the way to its first one is made up."""
        at = min(place.step for place in places)
        while any(place.step > at for place in places):  # those ahead go back to where all are
            places = [self.chains.seek(place.trail, at) for place in places]
            at = min(place.step for place in places)
        trails = [place.trail for place in places]
        begun = [Seen.of(place) for place in places]
        made = self._filmed(trails, begun, at, 0, every)
        return made.to_dict() | {"replayed": at, "of": first}

    def _filmed(
        self, trails: Sequence[Trail], begun: Sequence["Seen"], first: int, count: int, every: int
    ) -> Film:
        parts = [self.chains.events(trail, first, first + count * every) for trail in trails]
        events = _columns(parts, first, every)
        listed: dict[str, str] = {}
        for number, (trail, one) in enumerate(zip(trails, begun, strict=True)):
            new = events["token"][events["chain"] == number].tolist()
            vocabulary = self.models[trail.model].vocabulary
            listed |= words(vocabulary, sorted({*one.tokens.tolist(), *new}))
        return Film(
            first=first,
            every=every,
            count=count,
            chains=tuple(trail.chain for trail in trails),
            begin=tuple(one.tokens for one in begun),
            begin_log_prob=tuple(one.log_prob for one in begun),
            frozen=tuple(one.frozen for one in begun),
            **events,
            words=listed,
            end=min(self.chains.seek(trail, STEPS).step for trail in trails),
        )

    def _spellings(self, model: str) -> list[tuple[int, str, str]]:
        """Token, spelling and bare spelling of all tokens that can be drawn."""
        if model not in self._spelled:
            listed = np.flatnonzero(allowed_tokens(self.models.conditionals(model))).tolist()
            spelled = words(self.models[model].vocabulary, listed)
            self._spelled[model] = [
                (token, spelled[str(token)], spelled[str(token)].strip().lower())
                for token in listed
            ]
        return self._spelled[model]


class Seen(NamedTuple):
    """The shown part of a state."""

    tokens: NDArray[np.int32]
    log_prob: NDArray[np.float32]
    frozen: tuple[int, ...]

    @classmethod
    def of(cls, place: Place) -> "Seen":
        shown, state = slice(place.stretch.shown.first, place.stretch.shown.last), place.state
        frozen = np.flatnonzero(~place.stretch.free[shown]).tolist()
        return cls(state.tokens[shown].astype(np.int32), state.log_prob[shown], tuple(frozen))


def _trails(source: Any, chosen: Sequence[int] | None = None) -> list[Trail]:
    """The trails that a page asks about."""
    if not isinstance(source, Mapping) or source.keys() != {"trails"}:
        raise GlauberError("a living chain is asked for by its trails.")
    given = source["trails"]
    if not isinstance(given, list | tuple) or not 1 <= len(given) <= TRAILS:
        raise GlauberError(f"between 1 and {TRAILS} trails are followed at once.")
    trails = [Trail.of(one) for one in given]
    for number in chosen or ():
        check_count("chain", number, least=0, most=len(trails) - 1)
    return trails if chosen is None else [trails[number] for number in chosen]


def _last(trails: Sequence[Trail], first: int, count: int, every: int) -> int:
    """The last step of a film, which ends with the frame in which a site is frozen or released."""
    edits = [edit for trail in trails for edit in trail.edits if edit.kind in ("freeze", "free")]
    frames = [-((first - edit.step) // every) for edit in edits if edit.step > first]
    return first + min(count, (STEPS - first) // every, *frames) * every


def _columns(parts: list[dict[str, NDArray[Any]]], first: int, every: int) -> dict[str, Any]:
    """The columns of a film, of the events of each trail."""
    events = {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}
    events["chain"] = np.repeat(np.arange(len(parts)), [len(one["step"]) for one in parts])
    events["frame"] = -((first - events["step"]) // every)
    longest = 1 + int(events["site"].max(initial=0))
    found = thinned(events, (len(parts), longest))
    found["log_prob"] = found["log_prob_new"]
    return {
        name: found[name] for name in ("frame", "chain", "site", "token", "log_prob", "entropy")
    }
