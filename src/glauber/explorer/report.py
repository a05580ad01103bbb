"""What did a run do, in one page: its traps, its topics, its basins, and its way through them?"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.explorer.page import Section, write_page
from glauber.runs.run import Run

if TYPE_CHECKING:
    from glauber.conditionals.base import Conditionals
    from glauber.metastability.catalogue import Catalogue
    from glauber.metastability.trap_census import Trap
    from glauber.runs.embedding import Embedder

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
SHOWN = 12  # traps whose texts are printed


def write_report(
    run: Run,
    out: Path,
    *,
    laws: "Conditionals",
    embedder: "Embedder",
    topics: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> None:
    """Writes the page of a run with all that is known about where it went.

    laws are the conditionals that it drew from. A part that a run is too short for says so in its
    place. progress hears what is being worked out.
    """
    tell = progress or (lambda part: None)
    embed = remembered(embedder.embed)
    tell("reading and embedding the texts")
    looks = _looks(run, replace(embedder, embed=embed))
    tell("looking for traps")
    traps = _traps(run, laws, embed)
    tell("scoring topics and finding basins")
    sections = [*_trap_sections(traps), *_ways(run, looks, traps), *_about(run, embedder, embed)]
    sections += list(_basins(looks))
    tell("writing the page")
    write_page(run, out, topics=topics, sections=sections)


def remembered(embed: Embed) -> Embed:
    """The same embedding, each text worked out once."""
    known: dict[str, NDArray[np.float32]] = {}

    def once(texts: Sequence[str]) -> NDArray[np.float32]:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            known.update(zip(new, embed(new), strict=True))
        return np.stack([known[text] for text in texts])

    return once


class Looks(NamedTuple):
    """Snapshots of a run with their embeddings."""

    steps: NDArray[np.int64]
    texts: tuple[tuple[str, ...], ...]
    vectors: NDArray[np.float32]
    every: int


def _looks(run: Run, embedder: "Embedder") -> "Looks | str":
    from glauber.runs.snapshots import snapshots

    try:
        read = snapshots(run, count=200)
    except GlauberError as error:
        return str(error)
    return Looks(read.steps, read.texts, embedder.vectors(read), read.every)


def _traps(run: Run, laws: "Conditionals", embed: Embed) -> "Catalogue | str":
    """By the paper's detector; by Hamming balls where that finds none, or has too few steps."""
    from glauber.metastability.catalogue import hamming_traps, rolling_traps

    try:
        found = rolling_traps(run, laws, embed)
        if found.traps:
            return found
    except GlauberError:  # the run is shorter than the window
        pass
    try:
        return hamming_traps(run, laws, shortest=min(150, max(20, run.steps // 10)))
    except GlauberError as error:
        return str(error)


def _trap_sections(found: "Catalogue | str") -> Iterator[Section]:
    heading = "Where the chains got stuck"
    if isinstance(found, str):
        yield Section("traps", heading, found)
        return
    from glauber.figures.metastability import plot_gaps_against_duration, plot_trap_timeline

    told = found.summary()
    held = (
        "A trap is a stretch in which the meaning stood still"
        if found.detector == "rolling"
        else "A trap is a stretch in which the text stayed within one token of one state"
    )
    if not found.traps:
        shortest = f"{found.settings['shortest']:,.0f}"
        yield Section("traps", heading, f"{held}. None lasted for {shortest} steps or more.")
        return
    note = f"{held} ({found.how}). "
    note += f"{told.n_traps} were found, {told.n_perfect} of them perfect: every token is "
    note += "the model's first choice there. They take up "
    note += f"{told.share:.0%} of all steps. {found.distance}"
    if told.n_traps > SHOWN:
        note += f" The {SHOWN} longest are listed."
    drawn = [plot_trap_timeline, plot_gaps_against_duration][: 1 + (len(found.traps) > 3)]
    cards = "\n".join(map(_card, found.by_duration[:SHOWN]))
    figures = tuple(draw(found) for draw in drawn)
    yield Section("traps", heading, note, figures, f'<ul class="cards">{cards}</ul>')


def _card(trap: "Trap") -> str:
    when, text, *facts = trap.lines()
    figures = escape("; ".join((when, *facts)))
    return (
        f'<li><span dir="auto">{escape(text)}</span><br><span class="figures">{figures}</span></li>'
    )


def _ways(run: Run, looks: "Looks | str", traps: "Catalogue | str") -> Iterator[Section]:
    heading = "Where the texts went"
    if isinstance(looks, str):
        yield Section("way", heading, looks)
        return
    from glauber.figures.trajectory import plot_trajectory
    from glauber.landscape.trajectory import trajectory_in_plane

    stuck = () if isinstance(traps, str) else traps.traps
    stays = [(t.episode.chain, t.episode.first, t.episode.last) for t in stuck]
    # The chain with the most traps has most to show; of equals, the first.
    chain = max(range(run.n_chains), key=lambda c: sum(stay[0] == c for stay in stays))
    plane = trajectory_in_plane(looks.vectors, looks.steps, looks.texts)
    yield Section("way", heading, "", (plot_trajectory(plane, chain=chain, traps=stays),))


def _about(run: Run, embedder: "Embedder", embed: Embed) -> Iterator[Section]:
    from glauber.figures.landscape import plot_topic_river
    from glauber.landscape.scorers import similarity_scorer, topic_scores
    from glauber.runs.snapshots import snapshots

    heading = "Topics"
    try:
        scores = topic_scores(snapshots(run), similarity_scorer(replace(embedder, embed=embed)))
    except GlauberError as error:
        yield Section("about", heading, str(error))
        return
    note = "Scores from the similarity to descriptions of the labels; an estimate."
    yield Section("about", heading, note, (plot_topic_river(scores),))


def _basins(looks: "Looks | str") -> Iterator[Section]:
    from glauber.figures.metastability import plot_basin_network, plot_implied_timescales
    from glauber.metastability.basin_model import basin_model
    from glauber.metastability.clusters import cluster, readable

    heading = "Basins of meaning"
    if isinstance(looks, str):
        yield Section("basins", heading, looks)
        return
    try:
        found = basin_model(cluster(looks.vectors, None, seed=0), every=looks.every)
    except GlauberError as error:
        yield Section("basins", heading, str(error))
        return
    words = readable(looks.texts, looks.vectors, found.basin_of)
    cards = "\n".join(
        f'<li><strong>basin {number}</strong> <span class="figures">{escape(", ".join(one.words))}'
        f'</span><br><span dir="auto">{escape(one.texts[0])}</span></li>'
        for number, one in enumerate(words)
        if one.texts
    )
    figures = (
        plot_basin_network(found, words),
        plot_implied_timescales(found.timescales, lag=found.model.lag_steps),
    )
    note = " ".join(found.notes)
    yield Section("basins", heading, note, figures, f'<ul class="cards">{cards}</ul>')
