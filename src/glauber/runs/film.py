"""A stretch of a stored run, frame by frame, for a page that plays it.

A film is one state and the events after it, so that a page can play, step and seek without asking
again. It is read from the segments around it; the run's size does not matter.
"""

import base64
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count as counts
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.errors import DamagedRun, GlauberError
from glauber.foundation.progress import check_count
from glauber.runs.log import Segment
from glauber.runs.run import Run

EVENTS = 100_000  # of a film of a whole run, about
LONGEST = 10**15  # steps of any run
FIELDS = ("site", "token", "log_prob_new", "entropy")

Parts = dict[str, NDArray[Any]]
Column = dict[str, str]


@dataclass(frozen=True, eq=False)
class Film:
    """Some chains from one state on; frame f is the state after step first + f * every.

    One entry per event, in the order of frames 1 to count. Sites are counted in the shown text.
    """

    first: int
    every: int
    count: int  # frames after frame 0, which is `begin`
    chains: tuple[int, ...]
    begin: tuple[NDArray[np.int32], ...]  # tokens of each shown text
    begin_log_prob: tuple[NDArray[np.float32], ...]  # of each, at its last visit; NaN if unknown
    frozen: tuple[tuple[int, ...], ...]  # shown sites that are never redrawn
    frame: NDArray[np.int32]
    chain: NDArray[np.int32]  # an index into `chains`
    site: NDArray[np.int32]
    token: NDArray[np.int32]  # the new one
    log_prob: NDArray[np.float32]  # of it, in the conditional that it was drawn from
    entropy: NDArray[np.float32]  # of that conditional, in nats
    words: dict[str, str]  # how each token is spelled
    end: int  # the last step that there is now

    def with_three_digits(self) -> "Film":
        """The film with log-probabilities and entropies to three digits."""
        log_prob, entropy = three_digits(self.log_prob), three_digits(self.entropy)
        return replace(self, log_prob=log_prob, entropy=entropy)

    def to_dict(self) -> dict[str, Any]:
        """The film as a page reads it: columns by `column`, starts and sites as lists."""
        columns = ("frame", "chain", "site", "token", "log_prob", "entropy")
        return {
            "first": self.first,
            "every": self.every,
            "count": self.count,
            "chains": list(self.chains),
            "lengths": [len(row) for row in self.begin],
            "begin": [row.tolist() for row in self.begin],
            "begin_log_prob": [column(row) for row in self.begin_log_prob],
            "frozen": [list(sites) for sites in self.frozen],
            **{name: column(getattr(self, name)) for name in columns},
            "words": self.words,
            "end": self.end,
        }


def three_digits(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rounded to about as many digits as a colour shows, which take less room when compressed."""
    return ((values.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)


def column(values: NDArray[Any]) -> Column:
    """Numbers as a page reads them: base64 of little-endian int32, float32 or uint8."""
    small = values.dtype == np.bool_ or values.dtype == np.uint8
    kind = "float32" if values.dtype.kind == "f" else "uint8" if small else "int32"
    raw = np.ascontiguousarray(values, np.dtype(kind).newbyteorder("<")).tobytes()
    return {"dtype": kind, "data": base64.b64encode(raw).decode("ascii")}


def film(
    run: Run, *, first: int, count: int, every: int = 1, chains: Sequence[int] | None = None
) -> Film:
    """The film of some chains (default: all) from step `first` on, count frames of `every` steps.

    Fewer frames come back where the run ends before. Of several events of a site in one frame the
    last is kept. `begin_log_prob` is that of the last visit before; where the last two segments of
    the run have none, it is NaN, as where there never was one.
    """
    check_count("first step", first, least=0, most=LONGEST)
    check_count("number of frames", count, least=0, most=LONGEST)
    check_count("number of steps in a frame", every, most=LONGEST)
    if first > run.steps:
        raise GlauberError(f"step {first} is outside the run, which has steps 0 to {run.steps}.")
    chosen = _chosen(run, chains)
    count = min(count, (run.steps - first) // every)
    tokens, log_prob = state_at(run, first)
    begin = []
    for chain in chosen:
        row = chain, slice(*run.text_spans[chain])
        begin.append(Begin(chain, run.vocabulary, tokens[row], log_prob[row], run.free[row]))
    events = _events(run, first, count, every, chosen)
    return film_of(begin, events, first=first, count=count, every=every, end=run.steps)


class Spelling(Protocol):
    """What spells tokens, with a blank before where a word begins."""

    def parts(self, tokens: Sequence[int]) -> list[str]: ...


class Begin(NamedTuple):
    """The shown text of a chain before the events of a film; arrays are (sites,)."""

    chain: int
    vocabulary: Spelling
    tokens: NDArray[Any]
    log_prob: NDArray[np.float32]  # NaN where it is not known
    free: NDArray[np.bool_]


def film_of(
    begin: Sequence[Begin], events: Parts, *, first: int, count: int, every: int, end: int
) -> Film:
    """The film of chains and the events after their first frame.

    events: the columns frame, chain (an index into `begin`), site (of the shown text), token,
    log_prob_new and entropy.
    """
    sites = {name: events[name].astype(np.int32) for name in ("frame", "chain", "site", "token")}
    return Film(
        first=first,
        every=every,
        count=count,
        chains=tuple(row.chain for row in begin),
        begin=tuple(row.tokens.astype(np.int32) for row in begin),
        begin_log_prob=tuple(row.log_prob for row in begin),
        frozen=tuple(tuple(np.flatnonzero(~row.free).tolist()) for row in begin),
        **sites,
        log_prob=events["log_prob_new"].astype(np.float32),
        entropy=events["entropy"].astype(np.float32),
        words=_words(begin, events),
        end=end,
    )


def whole_film(run: Run, *, most_events: int = EVENTS, chains: Sequence[int] | None = None) -> Film:
    """The film of a whole run, with as few steps a frame as so many events allow.

    Steps after the last whole frame are not in it.
    """
    check_count("number of events", most_events)
    chosen = _chosen(run, chains)
    sites, slots = run.free[chosen].sum(axis=1), run.log.n_slots
    for every in (10**power * digit for power in counts() for digit in (1, 2, 5)):
        n_frames = run.steps // every
        expected = (sites * (1 - (1 - 1 / sites) ** (every * slots))).sum()  # a frame, if uniform
        if n_frames > 1 and n_frames * expected > 1.1 * most_events:
            continue
        candidate = film(run, first=0, count=n_frames, every=every, chains=chosen)
        if n_frames <= 1 or len(candidate.frame) <= most_events:
            break
    return candidate


def _chosen(run: Run, chains: Sequence[int] | None) -> list[int]:
    if chains is None:
        return list(range(run.n_chains))
    chosen = [run.check_chain(chain) for chain in chains]
    if not chosen or len(set(chosen)) < len(chosen):
        raise GlauberError("a film needs at least one chain, and each chain once.")
    return chosen


def _words(begin: Sequence[Begin], events: Parts) -> dict[str, str]:
    """How the tokens are spelled, with a blank before where a word begins."""
    spellings: dict[str, str] = {}
    for vocabulary in {id(row.vocabulary): row.vocabulary for row in begin}.values():
        rows = [i for i, row in enumerate(begin) if row.vocabulary is vocabulary]
        new_tokens = events["token"][np.isin(events["chain"], rows)]
        tokens = np.unique(np.concatenate([*(begin[i].tokens for i in rows), new_tokens]))
        listed = tokens[tokens >= 0].tolist()
        spellings |= zip(map(str, listed), vocabulary.parts(listed), strict=True)
    return spellings


def state_at(run: Run, step: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Tokens (chains, length) after a step, and the log-probability of each at its last visit."""
    tokens = run.tokens(step)
    log_prob = np.full(tokens.shape, np.nan, np.float32)
    number = max(0, step - 1) // run.log.segment_steps
    with suppress(DamagedRun):  # of the segment before: what it would say is unknown
        if number:
            before = shown_events(run, number - 1)
            before.replay(log_prob, before.first, before.last, field="log_prob_new")
    segment = shown_events(run, number)
    segment.replay(log_prob, segment.first, step, field="log_prob_new")
    return tokens, log_prob


def shown_events(run: Run, number: int) -> Segment:
    """The events of a segment as they are shown: sites that are still hidden have no figures."""
    segment = run.log.segment(number)
    arrays = {name: segment.arrays[name] for name in FIELDS}
    if run.spec.unmasking is not None:
        hidden = np.isin(arrays["token"], run.hidden_tokens)
        arrays |= {n: np.where(hidden, np.nan, arrays[n]) for n in ("log_prob_new", "entropy")}
    return Segment(segment.first, arrays)


def _events(run: Run, first: int, count: int, every: int, chosen: list[int]) -> Parts:
    """The columns of a film: the last event of each site of each chain in each frame."""
    last, size = first + count * every, run.log.segment_steps
    lows = np.array([run.text_spans[chain][0] for chain in chosen])
    columns = [{name: np.empty(0, np.int64) for name in (*FIELDS, "frame", "chain")}]
    for number in range(first // size, -(-last // size) if count else 0):
        segment = shown_events(run, number)
        arrays = {name: values[chosen] for name, values in segment.arrays.items()}
        begin, end = max(first, segment.first), min(last, segment.first + size)
        part = segment_events(Segment(segment.first, arrays), begin, end, FIELDS)
        part["site"] = part["site"] - lows[part["chain"]]
        part["frame"] = -((first - part.pop("step")) // every)
        columns.append(last_events(part, run.free.shape))
    joined = {name: np.concatenate([part[name] for part in columns]) for name in columns[0]}
    return last_events(joined, run.free.shape)


def segment_events(segment: Segment, first: int, last: int, fields: Sequence[str]) -> Parts:
    """The events of the steps first < step <= last of a segment, one entry each.

    step counts from 1: the event is part of the state after that many steps.
    """
    steps = slice(first - segment.first, last - segment.first)
    arrays = {name: segment.arrays[name][:, steps] for name in fields}
    chain, step, slot = np.nonzero(arrays["site"] >= 0)
    columns = {name: values[chain, step, slot] for name, values in arrays.items()}
    return columns | {"chain": chain, "step": 1 + first + step}


def last_events(events: Parts, shape: tuple[int, ...]) -> Parts:
    """Only the last event of each frame, chain and site, in this order; shape (chains, length)."""
    n_chains, length = shape
    keys = (events["frame"] * n_chains + events["chain"]) * length + events["site"]
    _, reversed_index = np.unique(keys[::-1], return_index=True)
    last = len(keys) - 1 - reversed_index
    return {name: values[last] for name, values in events.items()}
