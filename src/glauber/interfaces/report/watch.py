"""What does a page need to play a run? Its film, its curves, and what was found in which steps."""

import base64
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.study import counted, plain
from glauber.interfaces.plots.chart import COLOURS
from glauber.interfaces.plots.landscape import colour_of
from glauber.runs.curves import curves
from glauber.runs.film import Film, whole_film
from glauber.runs.run import Run
from glauber.runs.snapshots import Snapshots
from glauber.studies.landscape.scorers import TopicScores
from glauber.studies.metastability.basins import Basins
from glauber.studies.metastability.traps import Trap, TrapList

EVENTS = 60_000  # of a film that a page carries: less than half a megabyte
MOST = 50  # chains that it holds

Band = dict[str, Any]  # chain, first, last (steps), name, text, lines
Answer = dict[str, Any]


class WatchData(NamedTuple):
    """A run as a page carries it."""

    packed: str  # all that the player asks for: base64 of compressed JSON
    note: str  # what of the run it does not hold, as sentences
    n_chains: int


def watch_data(
    run: Run, bands: Mapping[str, Answer], *, chain: int, notes: Sequence[str] = ()
) -> WatchData:
    """The first chains of a run, thinned where it is long, with curves and what was found.

    bands: by kind (traps, basins, topics), as `found_bands` and `no_bands` give them; chain: the
    one that is shown first.
    """
    n = min(run.n_chains, MOST)
    film, run_curves = whole_film(run, most_events=EVENTS, chains=range(n)), curves(run).to_dict()
    content = plain(
        {
            "run": _about(run, film),
            "film": film.with_three_digits().to_dict(),
            "curves": run_curves | {"notes": [*run_curves["notes"], *notes]},
            "bands": {kind: _of_first(answer, n) for kind, answer in bands.items()},
            "chain": min(chain, n - 1),
        }
    )
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode("ascii")
    return WatchData(packed, _note(run, film), n)


def _note(run: Run, film: Film) -> str:
    n, few = len(film.chains), []
    if n < run.n_chains:
        few.append(f"The first {n} of {run.n_chains:,} chains.")
    if film.every > 1:
        few.append(f"The page carries one state in {film.every:,} steps.")
    return " ".join(few)


def _about(run: Run, film: Film) -> Answer:
    last = film.count * film.every
    chains = counted(len(film.chains), "chain")
    return {
        "model": run.spec.model,
        "summary": f"{chains}, {last:,} steps, {run.spec.model}",
        "chains": len(film.chains),
        "steps": last,
        "planned": last,
        "finished": True,
        "every": film.every,
        "damaged": None,
    }


def _of_first(answer: Answer, chains: int) -> Answer:
    return answer | {"bands": [band for band in answer["bands"] if band["chain"] < chains]}


def no_bands(why: str) -> Answer:
    """A kind of which there is none."""
    return {"state": "none", "why": why, "note": "", "bands": []}


def found_bands(bands: Iterable[Band], note: str = "") -> Answer:
    """What was found of a kind."""
    return {"state": "done", "why": "", "note": note, "bands": list(bands)}


def trap_bands(run: Run, catalogue: TrapList) -> Iterable[Band]:
    """Each trap, with its text, its figures, and the first step `at` which the text stood."""
    for trap in catalogue.traps:
        when, text, *further = trap.lines()
        yield {
            "chain": trap.chain,
            "first": trap.first,
            "last": trap.last,
            "name": "perfect trap" if trap.perfect else "trap",
            "text": text,
            "lines": [when, *further],
            "at": first_seen(run, trap),
        }


def first_seen(run: Run, trap: Trap) -> int:
    """The first step of a trap after which its representative text stood there."""
    chain, first = trap.chain, trap.first
    tokens = run.tokens(first)[chain].copy()
    last = min(trap.last, run.steps)
    events = (run.read(name, first, last)[chain].tolist() for name in ("site", "token"))
    for step, (sites, drawn) in enumerate(zip(*events, strict=True), first):
        if np.array_equal(tokens, trap.tokens):
            return step
        for site, token in zip(sites, drawn, strict=True):
            if site >= 0:
                tokens[site] = token
    return last if np.array_equal(tokens, trap.tokens) else first


def basin_bands(basins: Basins) -> Iterable[Band]:
    """In which basin each chain was, with its text when it came in."""
    labels = [", ".join(own.words) for own in basins.basins]
    for band, number in _stretches(basins.basin_of, basins.snapshots):
        color = COLOURS[number % len(COLOURS)]  # that of the basin's circle
        yield band | {"name": f"basin {number}", "lines": [labels[number]], "color": color}


def topic_bands(scores: TopicScores, read: Snapshots) -> Iterable[Band]:
    """The topic of highest score along each chain, with the text where it began."""
    best = scores.values.argmax(axis=2)
    for band, number in _stretches(best, read):
        first = band["first"] // read.every
        mean = scores.values[band["chain"], first : band["last"] // read.every + 1, number].mean()
        line = f"mean score {mean:.2f} (estimate; {scores.baseline:.2f} without any knowledge)"
        label = scores.labels[number]
        color = colour_of(label, scores.labels)
        yield band | {"name": label, "lines": [line], "color": color}


def _stretches(labels: NDArray[np.int64], read: Snapshots) -> Iterable[tuple[Band, int]]:
    """Where a label (chains, snapshots) stays the same; -1 is no label."""
    steps = read.steps.tolist()
    for chain, row in enumerate(labels):
        edges = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
        for begin, end in pairwise(edges):
            if row[begin] < 0:
                continue
            last = steps[end] - 1 if end < len(steps) else read.run.steps
            band = {"chain": chain, "first": steps[begin], "last": last}
            yield band | {"text": read.texts[chain][begin]}, int(row[begin])
