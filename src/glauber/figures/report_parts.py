"""Where did a run get stuck, where did its texts go, what are they about, and are there basins?

The parts of a run's page that need more than the run itself. Each can fail alone (the run is too
short, the model is gone, a package is missing, the texts are not English), and says so then.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError
from glauber.figures.landscape import plot_topic_river
from glauber.figures.metastability import (
    plot_basin_network,
    plot_gaps_against_duration,
    plot_implied_timescales,
    plot_trap_timeline,
)
from glauber.figures.trajectory import plot_trajectory
from glauber.figures.watch import (
    Answer,
    basin_bands,
    first_seen,
    found_bands,
    topic_bands,
    trap_bands,
)
from glauber.landscape.scorers import scorer_for, topic_scores
from glauber.landscape.trajectory import trajectory_in_plane
from glauber.metastability.basins import basins
from glauber.metastability.catalogue import Catalogue
from glauber.metastability.trap_census import Trap, check_kernel
from glauber.metastability.traps import usual_traps
from glauber.progress import say
from glauber.runs.embedding import Choice, Embed, Embedder, Vectors, by_tokens, choose_embedder
from glauber.runs.run import Run
from glauber.runs.snapshots import Snapshots, snapshots
from glauber.sampling.reopened import drawn_from

SNAPSHOTS = 200  # of a chain, about, for its path and its basins


@dataclass(frozen=True)
class Card:
    """A text with what is known about it."""

    text: str
    lines: tuple[str, ...] = ()
    moment: tuple[int, int] | None = None  # chain and step where the text stood


@dataclass(frozen=True)
class Section:
    """A part of the page beyond what every run has."""

    name: str  # for the link to it
    heading: str
    notes: tuple[str, ...] = ()  # sentences
    figures: dict[str, go.Figure] = field(default_factory=dict)
    cards: tuple[Card, ...] = ()
    bands: Answer | None = None  # what was found in which steps of which chain


def sections_of(
    run: Run,
    embedder: Choice,
    chain: int | None,
    listed: int,
    model: str | Conditionals | None,
    device: str | None,
    trust_remote_code: bool,
) -> Iterable[Section]:
    """Traps, paths, topics and basins, each of them or why it is not there."""
    say("reading and embedding the texts")
    read, chosen, missing = read_texts(run, embedder, device, trust_remote_code)
    say("looking for traps")
    found, notes = _traps(run, chosen, model, device, trust_remote_code)
    yield _trap_section(run, found, notes, listed)
    if isinstance(read, str):
        yield Section("trajectory", "Where the texts went", (read,))
        yield Section("about", "Topics", (read,))
        yield Section("basins", "Basins", (read,))
        return
    yield _trajectory(read, chosen, found, chain)
    say("scoring topics and finding basins")
    yield _no_topics(missing) if missing else _about(read, chosen, device)
    yield _basins(run, chosen, read.every)


def read_texts(
    run: Run, embedder: Choice, device: str | None, trust_remote_code: bool
) -> tuple[Snapshots | str, Embedder, str]:
    """The snapshots, or why there are none; the embedder; what is missing for the default one."""
    try:
        read = snapshots(run, count=SNAPSHOTS)
    except GlauberError as error:
        return str(error), by_tokens(), ""
    try:
        chosen = choose_embedder(read, embedder, device=device, trust_remote_code=trust_remote_code)
    except GlauberError as error:
        if embedder is not None:
            raise
        return read, by_tokens(str(error).rstrip(".")), str(error)
    return read, replace(chosen, embed=remembered(chosen.embed)), ""


def remembered(embed: Embed) -> Embed:
    """The same embedding, each text worked out once."""
    known: dict[str, NDArray[np.float32]] = {}

    def once(texts: Sequence[str]) -> Vectors:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            known.update(zip(new, embed(new), strict=True))
        return np.stack([known[text] for text in texts])

    return once


def _traps(
    run: Run,
    chosen: Embedder,
    model: str | Conditionals | None,
    device: str | None,
    trust_remote_code: bool,
) -> tuple[Catalogue | None, list[str]]:
    """By the paper's detector; by Hamming balls where that finds none, or has too few steps."""
    try:
        check_kernel(run.spec)
        if run.steps == 0:
            raise GlauberError("The run has no steps yet, so no chain got stuck.")
    except GlauberError as error:
        return None, [f"Traps were not looked for: {error}"]
    try:
        drawn = drawn_from(
            run, model=model, device=device, trust_remote_code=trust_remote_code, precise=True
        )
    except GlauberError as error:
        if model is not None:  # it was asked for, so it must be there
            raise
        return None, [f"Traps were not looked for: {error}"]
    try:
        found = usual_traps(run, drawn.conditionals, chosen, device=drawn.device)
        return found, list(drawn.notes)
    except GlauberError as error:
        return None, [f"Traps were not looked for: {error}"]


def _trap_section(run: Run, found: Catalogue | None, notes: Sequence[str], listed: int) -> Section:
    heading = "Where the chains got stuck"
    if found is None:
        return Section("traps", heading, tuple(notes))
    paragraphs = [what_a_trap_is(found), *notes]
    if not found.traps:
        none = found.none_found()
        return Section("traps", heading, (*paragraphs, none), bands=found_bands((), note=none))
    counted = found.summary()
    few = min(listed, counted.n_traps)
    paragraphs.append(
        f"{counted.n_traps} {'was' if counted.n_traps == 1 else 'were'} found, "
        f"{counted.n_perfect} of them perfect: every token is the model's first choice there. "
        f"They take up {counted.share:.0%} of all steps. "
        + (f"The {few} longest are" if few < counted.n_traps else "All are")
        + f" written out below ({few} of {counted.n_traps})."
    )
    figures = {"timeline": plot_trap_timeline(found)}
    if len(found.traps) > 3:
        figures["gaps"] = plot_gaps_against_duration(found)
    cards = tuple(_trap_card(run, trap) for trap in found.by_duration[:listed])
    bands = found_bands(trap_bands(run, found))
    return Section("traps", heading, tuple(paragraphs), figures, cards, bands)


def _trap_card(run: Run, trap: Trap) -> Card:
    when, text, *rest = trap.lines()
    return Card(text, (when, *rest), (trap.episode.chain, first_seen(run, trap)))


def what_a_trap_is(found: Catalogue) -> str:
    asked = found.settings
    if found.detector == "rolling":
        return (
            f"A trap is an episode of at least {asked['shortest']:,.0f} steps in which the text "
            f"drifted by less than {asked['threshold']:g} on average over the next "
            f"{asked['window']:,.0f} steps. {found.distance}"
        )
    return (
        f"A trap is an episode of at least {asked['shortest']:,.0f} steps in which the text stayed "
        f"within {asked['radius']:g} token of one state."
    )


def most_stuck(chains: Iterable[int]) -> int:
    """The chain with the most traps, which has most to show; of equals, the first."""
    return min(Counter(chains).most_common() or [(0, 0)], key=lambda one: (-one[1], one[0]))[0]


def _trajectory(
    read: Snapshots, chosen: Embedder, found: Catalogue | None, chain: int | None
) -> Section:
    heading = "Where the texts went"
    stuck = () if found is None else found.traps
    intervals = [(t.episode.chain, t.episode.first, t.episode.last) for t in stuck]
    if chain is None:
        chain = most_stuck(whose for whose, *_ in intervals)
    what = "its embeddings" if chosen.reads_meaning else "its tokens"
    try:
        plane = trajectory_in_plane(chosen.vectors(read), read.steps, read.texts, what=what)
    except GlauberError as error:
        return Section("trajectory", heading, (str(error),))
    drawn = plot_trajectory(plane, chain=chain, traps=intervals, choose=True)
    return Section("trajectory", heading, (chosen.description,), {"trajectory": drawn})


def _about(read: Snapshots, chosen: Embedder, device: str | None) -> Section:
    try:
        scores = topic_scores(read, scorer_for(read, embedder=chosen, device=device or "auto"))
    except GlauberError as error:
        return _no_topics(str(error))
    note = "Scores from the similarity to descriptions of the labels; an estimate."
    bands = found_bands(topic_bands(scores, read), note=note)
    return Section("about", "Topics", (note,), {"river": plot_topic_river(scores)}, bands=bands)


def _no_topics(why: str) -> Section:
    return Section("about", "Topics", (f"Topics are left out: {why}",))


def _basins(run: Run, chosen: Embedder, every: int) -> Section:
    heading = "Basins of meaning" if chosen.reads_meaning else "Basins"
    try:
        found = basins(run, embedder=chosen, every=every)
    except GlauberError as error:
        return Section("basins", heading, (f"There are no basins: {error}",))
    figures = {
        "network": plot_basin_network(found, found.readable),
        "timescales": plot_implied_timescales(found.timescales, lag=found.model.lag_steps),
    }
    cards = tuple(
        Card(own.texts[0], (f"basin {number}: {', '.join(own.words)}",))
        for number, own in enumerate(found.readable)
        if own.texts
    )
    bands = found_bands(basin_bands(found), note="Basins are estimates.")
    return Section("basins", heading, tuple(map(_sentence, found.notes)), figures, cards, bands)


def _sentence(note: str) -> str:
    return note if note.endswith((".", "!", "?")) else note + "."
