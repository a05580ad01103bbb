"""What happened in a run? One page that asks nothing of any network."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.figures.landscape import plot_topic_river
from glauber.figures.metastability import (
    plot_basin_network,
    plot_gaps_against_duration,
    plot_implied_timescales,
    plot_trap_timeline,
)
from glauber.figures.page import check_place, page, write_text
from glauber.figures.runs import plot_changed, plot_entropy, plot_survival
from glauber.figures.trajectory import plot_trajectory
from glauber.landscape.recurrence import seeds_of
from glauber.landscape.scorers import scorer_for, topic_scores
from glauber.landscape.trajectory import trajectory_in_plane
from glauber.metastability.basins import basins
from glauber.metastability.catalogue import Catalogue, hamming_traps, rolling_traps
from glauber.metastability.trap_census import check_kernel
from glauber.metastability.traps import conditionals_of
from glauber.parameters import Trust
from glauber.progress import check_count, say
from glauber.result import Result, study
from glauber.runs.embedding import Choice, Embed, Embedder, Vectors, by_tokens, choose_embedder
from glauber.runs.export import survival
from glauber.runs.run import Run
from glauber.runs.snapshots import Snapshots, snapshots
from glauber.runs.spec import Spec, signature
from glauber.runs.timeline import looks_at, timeline

if TYPE_CHECKING:
    import pandas

MOST = 50  # chains whose texts are shown
ROWS = 25  # moments of a chain's timeline
MOMENTS = 500  # of the survival curve, about
SNAPSHOTS = 200  # of a chain, about, for its path and its basins
SHORTEST = 150  # steps of the paper's traps
CAPTIONS = {
    "survival": "A site counts when it holds its first token, also one that has come back.",
    "changed": "The other steps drew the token that stood there already.",
    "entropy": "0: the model was sure of the token. 2.3: as open as ten equally likely tokens.",
}


@study
def report(
    run: Annotated[Run | str | Path, "A run, or its folder."],
    *,
    out: Annotated[str | Path, "HTML file of the page."] = "report.html",
    chain: Annotated[
        int | None, "Chain whose path is shown first (default: the one with the most traps)."
    ] = None,
    listed: Annotated[int, "How many traps to write out."] = 12,
    embedder: Annotated[
        Choice, "A sentence-transformers model, or tokens (default: the one in the package)."
    ] = None,
    device: Annotated[str | None, "Another device than the run's."] = None,
    trust_remote_code: Trust = False,
) -> "Report":
    """Write one page about a run: traps, topics, basins, pictures, texts; it needs no network.

    A part that cannot be made (the run is too short, the model is gone, a package is missing, the
    texts are not English) says why in its place. Traps of a run that was drawn in int8 are
    evaluated again in float32.
    """
    opened = Run.of(run)
    place = Path(out)
    check_place(place)
    check_count("number of traps", listed, least=0)
    if chain is not None:
        opened.check_chain(chain)
    parts = _sections(opened, embedder, chain, listed, device, trust_remote_code)
    pictures = dict(_pictures(opened)) if opened.steps else {}
    say("writing the page")
    made = Report(
        run=opened,
        page=place,
        summary=summary(opened),
        pictures={name: figure for name, (figure, _) in pictures.items()},
        sections=tuple(parts),
        signature=signature(opened.spec),
    )
    write_text(place, made.html(pictures))
    return made


@dataclass(frozen=True)
class Card:
    """A text with what is known about it."""

    text: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """A part of the page beyond what every run has."""

    name: str  # for the link to it
    heading: str
    notes: tuple[str, ...] = ()  # sentences
    figures: dict[str, go.Figure] = field(default_factory=dict)
    cards: tuple[Card, ...] = ()


@dataclass(frozen=True, eq=False)
class Report(Result):
    """The page of a run, and what stands on it."""

    run: Run
    page: Path
    summary: str
    pictures: dict[str, go.Figure]
    sections: tuple[Section, ...]
    signature: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": str(self.run.folder),
            "page": str(self.page),
            "summary": self.summary,
            "sections": [
                {
                    "name": one.name,
                    "heading": one.heading,
                    "notes": list(one.notes),
                    "cards": [{"text": c.text, "lines": list(c.lines)} for c in one.cards],
                }
                for one in self.sections
            ],
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        yield self.summary
        for one in self.sections:
            yield f"{one.heading}: {' '.join(one.notes[:2]) or 'see the page.'}"
        yield f"the page is {self.page}"

    def frame(self) -> "pandas.DataFrame":
        """One row per chain."""
        import pandas

        n = self.run.n_chains
        return pandas.DataFrame(
            {
                "chain": range(n),
                "began": [self.run.text(chain, 0) for chain in range(n)],
                "ended": [self.run.text(chain) for chain in range(n)],
                "changed": _changed(self.run),
                "left_of_the_start": survivors(self.run),
            }
        )

    def figures(self) -> dict[str, go.Figure]:
        found = dict(self.pictures)
        for one in self.sections:
            found |= {f"{one.name}-{name}": figure for name, figure in one.figures.items()}
        return found or {"start": plot_survival(np.ones((1, 1)))}

    def html(self, pictures: dict[str, tuple[go.Figure, str]]) -> str:
        """The page."""
        return page(
            "report.html",
            title=title(self.run.spec),
            summary=self.summary,
            pictures=pictures,
            sections=self.sections,
            n_chains=self.run.n_chains,
            chains=list(_chains(self.run)),
            signature=self.signature,
        )


def _sections(
    run: Run,
    embedder: Choice,
    chain: int | None,
    listed: int,
    device: str | None,
    trust_remote_code: bool,
) -> Iterable[Section]:
    """Traps, paths, topics and basins, each of them or why it is not there."""
    say("reading and embedding the texts")
    read, chosen, missing = _read(run, embedder, device, trust_remote_code)
    say("looking for traps")
    found, notes = _traps(run, chosen, device, trust_remote_code)
    yield _trap_section(found, notes, listed)
    if isinstance(read, str):
        yield Section("way", "Where the texts went", (read,))
        yield Section("about", "Topics", (read,))
        yield Section("basins", "Basins", (read,))
        return
    yield _way(read, chosen, found, chain)
    say("scoring topics and finding basins")
    yield Section("about", "Topics", (missing,)) if missing else _about(read, chosen, device)
    yield _basins(run, chosen, read.every)


def _read(
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
    run: Run, chosen: Embedder, device: str | None, trust_remote_code: bool
) -> tuple[Catalogue | None, list[str]]:
    """By the paper's detector; by Hamming balls where that finds none, or has too few steps."""
    try:
        check_kernel(run.spec)
        if run.steps == 0:
            raise GlauberError("The run has no steps yet, so no chain got stuck.")
        laws, place, notes = conditionals_of(run, device, trust_remote_code)
    except GlauberError as error:
        return None, [f"Traps were not looked for: {error}"]
    try:
        found = rolling_traps(run, laws, chosen, shortest=SHORTEST, device=place)
        if found.traps:
            return found, notes
    except GlauberError:  # the run is shorter than the window
        pass
    shortest = min(SHORTEST, max(20, run.steps // 10))
    try:
        return hamming_traps(run, laws, shortest=shortest, device=place), notes
    except GlauberError as error:
        return None, [f"Traps were not looked for: {error}"]


def _trap_section(found: Catalogue | None, notes: Sequence[str], listed: int) -> Section:
    heading = "Where the chains got stuck"
    if found is None:
        return Section("traps", heading, tuple(notes))
    told = [_what_a_trap_is(found), *notes]
    if not found.traps:
        return Section("traps", heading, (*told, found.none_found()))
    counted = found.summary()
    few = min(listed, counted.n_traps)
    told.append(
        f"{counted.n_traps} were found, {counted.n_perfect} of them perfect: every token is the "
        f"model's first choice there. They take up {counted.share:.0%} of all steps. "
        + (f"The {few} longest are" if few < counted.n_traps else "All are")
        + f" written out below ({few} of {counted.n_traps})."
    )
    figures = {"timeline": plot_trap_timeline(found)}
    if len(found.traps) > 3:
        figures["gaps"] = plot_gaps_against_duration(found)
    cards = (trap.lines() for trap in found.by_duration[:listed])
    return Section(
        "traps",
        heading,
        tuple(told),
        figures,
        tuple(Card(text, (when, *rest)) for when, text, *rest in cards),
    )


def _what_a_trap_is(found: Catalogue) -> str:
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


def _way(read: Snapshots, chosen: Embedder, found: Catalogue | None, chain: int | None) -> Section:
    heading = "Where the texts went"
    stuck = () if found is None else found.traps
    stays = [(t.episode.chain, t.episode.first, t.episode.last) for t in stuck]
    if chain is None:  # the chain with the most traps has most to show; of equals, the first
        chain = max(range(read.n_chains), key=lambda c: sum(stay[0] == c for stay in stays))
    what = "its embeddings" if chosen.reads_meaning else "its tokens"
    try:
        plane = trajectory_in_plane(chosen.vectors(read), read.steps, read.texts, what=what)
    except GlauberError as error:
        return Section("way", heading, (str(error),))
    drawn = plot_trajectory(plane, chain=chain, traps=stays, choose=True)
    return Section("way", heading, (chosen.description,), {"trajectory": drawn})


def _about(read: Snapshots, chosen: Embedder, device: str | None) -> Section:
    try:
        scores = topic_scores(read, scorer_for(read, embedder=chosen, device=device or "auto"))
    except GlauberError as error:
        return Section("about", "Topics", (f"Topics are left out: {error}",))
    note = "Scores from the similarity to descriptions of the labels; an estimate."
    return Section("about", "Topics", (note,), {"river": plot_topic_river(scores)})


def _basins(run: Run, chosen: Embedder, every: int) -> Section:
    heading = "Basins of meaning" if chosen.reads_meaning else "Basins"
    try:
        found = basins(run, embedder=chosen, every=every)
    except GlauberError as error:
        return Section("basins", heading, (str(error),))
    figures = {
        "network": plot_basin_network(found, found.readable),
        "timescales": plot_implied_timescales(found.timescales, lag=found.model.lag_steps),
    }
    cards = tuple(
        Card(own.texts[0], (f"basin {number}: {', '.join(own.words)}",))
        for number, own in enumerate(found.readable)
        if own.texts
    )
    return Section("basins", heading, tuple(map(_sentence, found.notes)), figures, cards)


def _sentence(note: str) -> str:
    return note if note.endswith((".", "!", "?")) else note + "."


def _pictures(run: Run) -> Iterable[tuple[str, tuple[go.Figure, str]]]:
    every = max(1, run.steps // MOMENTS)
    entropy = run.read("entropy").mean(axis=2, where=run.read("site") >= 0)
    drawn: dict[str, Callable[[], go.Figure]] = {
        "survival": lambda: plot_survival(survival(run, every), every=every),
        "changed": lambda: plot_changed(np.asarray(run.read("changed").any(axis=2))),
        "entropy": lambda: plot_entropy(entropy),
    }
    for name, draw in drawn.items():
        coarse = name == "entropy" and run.spec.dtype == "int8"
        more = " As it was recorded, in int8: an estimate of the model's own." if coarse else ""
        yield name, (draw(), CAPTIONS[name] + more)


def _chains(run: Run) -> Iterable[dict[str, Any]]:
    """What the page shows of each of the first chains."""
    topics = seeds_of(run)
    first, last = run.tokens(0), run.tokens()
    steps = looks_at(run, ROWS)
    for chain in range(min(run.n_chains, MOST)):
        yield {
            "number": chain,
            "topic": topics[chain] if topics else "",
            "began": run.vocabulary.decode(first[chain]),
            "ended": run.vocabulary.decode(last[chain]),
            "rows": [
                {"step": row.step, "pieces": list(_pieces(row.pieces))}
                for row in timeline(run, chain, steps)
            ],
        }


def _pieces(pieces: Sequence[Any]) -> Iterable[dict[str, Any]]:
    """Each token with its space outside of what is marked; none before the first."""
    for number, piece in enumerate(pieces):
        bare = piece.text.lstrip(" ")
        space = piece.text[: len(piece.text) - len(bare)] if number else ""
        yield {
            "space": space,
            "text": bare,
            "changed": piece.changed,
            "frozen": piece.frozen,
        }


def title(spec: Spec) -> str:
    """The heading of a run's page."""
    return f"Glauber dynamics of {Path(spec.model).name}"


def summary(run: Run) -> str:
    """A few sentences: what was run, how much it moved, what is left of the start."""
    return " ".join([_what(run), *_held(run.spec), *(_moved(run) if run.steps else ())])


def _what(run: Run) -> str:
    spec = run.spec
    chains = "1 chain" if run.n_chains == 1 else f"{run.n_chains:,} chains"
    steps = f"{run.steps:,} steps" if run.finished else f"{run.steps:,} of {spec.steps:,} steps"
    each = " each" if run.n_chains > 1 else ""
    how = (
        "takes what the model finds likeliest"
        if spec.fill == "greedy"
        else "draws from what the model expects"
    )
    return (
        f"{chains} of the masked language model {spec.model} made {steps}{each} "
        f"at {_temperature(spec.temperature)}. A step hides {_sites(spec.scan)} and {how} "
        "there, given the rest of the text."
    )


def _temperature(temperature: Any) -> str:
    low, high = float(np.min(temperature)), float(np.max(temperature))
    return f"temperature {low:g}" if low == high else f"temperatures {low:g} to {high:g}"


def _sites(scan: str) -> str:
    kind, _, number = scan.partition(":")
    known = {
        "uniform": "one token, picked at random,",
        "sweep": "one token, each in turn,",
        "block": f"{number} tokens, picked at random,",
        "everywhere": "every token",
        "least-confident": "one token, picked from those that the model doubts,",
    }
    return known.get(kind, f"tokens (scan {scan})")


def _held(spec: Spec) -> list[str]:
    """A sentence on what is never redrawn, if there is such a thing."""
    held = [f"the prefix “{spec.prefix}”"] if spec.prefix else []
    if spec.frozen:
        sites = "the site" if len(spec.frozen) == 1 else "the sites"
        held.append(f"{sites} {ranges(spec.frozen)} (counted from 0, without special tokens)")
    return [f"Never redrawn: {' and '.join(held)}."] if held else []


def ranges(sites: Iterable[int]) -> str:
    """Sites as people write them: 0-95, 109."""
    ordered = enumerate(sorted(set(sites)))
    parts = []
    for _, group in groupby(ordered, lambda pair: pair[1] - pair[0]):
        row = [site for _, site in group]
        parts.append(str(row[0]) if len(row) == 1 else f"{row[0]}-{row[-1]}")
    return ", ".join(parts)


def _moved(run: Run) -> list[str]:
    left = survivors(run)
    these = "the other starting tokens" if _held(run.spec) else "the starting tokens"
    spread = f" ({left.min():.0%} to {left.max():.0%} by chain)" if run.n_chains > 1 else ""
    return [
        f"{_changed(run).mean():.0%} of the steps changed a token.",
        f"At the end {left.mean():.0%} of {these} stood in their place{spread}.",
    ]


def _changed(run: Run) -> NDArray[np.float64]:
    """Share of each chain's steps that changed a token, (chains,); 0 without steps."""
    if run.steps == 0:
        return np.zeros(run.n_chains)
    return np.asarray(run.read("changed").any(axis=2).mean(axis=1))


def survivors(run: Run) -> NDArray[np.float64]:
    """Share of each chain's free sites that hold their starting token now, (chains,)."""
    same = (run.tokens() == run.tokens(0)) & run.free
    return np.asarray(same.sum(axis=1) / run.free.sum(axis=1))
