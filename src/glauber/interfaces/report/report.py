"""Self-contained HTML report of a run: a player, traps, paths, topics, basins, and the texts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from glauber.dynamics.scans import scan_named
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import RunDevice, RunModel, Trust
from glauber.foundation.progress import check_count, say
from glauber.foundation.study import Result, counted, study
from glauber.interfaces.plots.landscape import plot_topic_river, plot_trajectory
from glauber.interfaces.plots.metastability import (
    plot_basins,
    plot_gaps_against_duration,
    plot_implied_timescales,
    plot_trap_timeline,
)
from glauber.interfaces.plots.runs import plot_survival, run_figures
from glauber.interfaces.report import bundle
from glauber.interfaces.report.page import check_place, page, write_text
from glauber.interfaces.report.watch import (
    Answer,
    WatchData,
    basin_bands,
    first_seen,
    found_bands,
    no_bands,
    topic_bands,
    trap_bands,
    watch_data,
)
from glauber.models.base import Conditionals
from glauber.models.weights import check_device
from glauber.runs.embedding import Choice, Embed, Embedder, Vectors, by_tokens, choose_embedder
from glauber.runs.run import Run
from glauber.runs.snapshots import Snapshots, snapshots
from glauber.runs.spec import Spec, signature
from glauber.runs.timeline import moments, timeline
from glauber.sampling.reopened import COARSE, drawn_from
from glauber.studies.landscape.recurrence import seeds_of
from glauber.studies.landscape.scorers import scorer_for, topic_scores
from glauber.studies.landscape.trajectory import trajectory_in_plane
from glauber.studies.metastability.basins import basins
from glauber.studies.metastability.traps import Trap, TrapList, check_kernel, default_traps
from glauber.texts.constraints import Constraints

if TYPE_CHECKING:
    import pandas


MOST = 50  # chains whose texts are shown
ROWS = 25  # moments of a chain's timeline
SNAPSHOTS = 200  # of a chain, about, for its path and its basins
CLICKS = {
    "traps": "A click on a trap shows its text above.",
    "trajectory": "A click on a point shows its text above.",
}
KINDS = {"traps": "traps", "basins": "basins", "topics": "about"}  # of bands, and their sections


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
    model: RunModel = None,
    device: RunDevice = None,
    trust_remote_code: Trust = False,
) -> "Report":
    """Write one page about a run: traps, topics, basins, pictures, texts; it needs no network.

    A part that cannot be made (the run is too short, the model is gone, a package is missing, the
    texts are not English) says why in its place. Traps of a run that was drawn in int8 or
    bfloat16 are evaluated again in float32.
    """
    source = Run.of(run)
    path = Path(out)
    check_place(path)
    check_device(device)
    check_count("number of traps", listed, least=0)
    if chain is not None:
        source.check_chain(chain)
    sections = tuple(sections_of(source, embedder, chain, listed, model, device, trust_remote_code))
    say("writing the page")
    result = Report(
        run=source,
        page=path,
        summary=summary(source),
        pictures=dict(run_figures(source)) if source.steps else {},
        sections=sections,
        signature=signature(source.spec),
    )
    write_text(path, result.html(chain))
    return result


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


@dataclass(frozen=True, eq=False)
class Report(Result):
    """The page of a run, and what stands on it."""

    run: Run
    page: Path
    summary: str  # in a few sentences
    pictures: dict[str, go.Figure]  # by name
    sections: tuple[Section, ...]
    signature: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": self.run.name,
            "page": str(self.page),
            "summary": self.summary,
            "sections": [
                {
                    "name": section.name,
                    "heading": section.heading,
                    "notes": list(section.notes),
                    "cards": [{"text": c.text, "lines": list(c.lines)} for c in section.cards],
                }
                for section in self.sections
            ],
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        yield self.summary
        for section in self.sections:
            yield f"{section.heading}: {' '.join(section.notes[:2]) or 'see the page.'}"
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
                "changed": share_changed(self.run),
                "left_of_the_start": survivors(self.run),
            }
        )

    def figures(self) -> dict[str, go.Figure]:
        charts = dict(self.pictures)
        for section in self.sections:
            charts |= {f"{section.name}-{name}": figure for name, figure in section.figures.items()}
        return charts or {"start": plot_survival(np.ones((1, 1)))}

    def html(self, chain: int | None = None) -> str:
        """The page, with the run to be watched; that chain is shown first."""
        return page(
            "report.html",
            title=title(self.run.spec),
            summary=self.summary,
            watch=self._watch_data(chain) if self.run.steps else None,
            clicks=CLICKS,
            player=bundle.inline("watch.js"),
            player_css=bundle.css(),
            sections=self.sections,
            n_chains=self.run.n_chains,
            chains=list(_chains(self.run)),
            signature=self.signature,
        )

    def _watch_data(self, chain: int | None) -> WatchData:
        sections = {section.name: section for section in self.sections}
        bands = {}
        for kind, name in KINDS.items():
            part = sections.get(name)
            why = " ".join(part.notes[:1]) if part else ""
            bands[kind] = part.bands if part and part.bands else no_bands(why)
        if chain is None:
            chain = most_stuck(band["chain"] for band in bands["traps"]["bands"])
        return watch_data(self.run, bands, chain=chain, notes=tuple(_captions(self.run.spec)))


def _captions(spec: Spec) -> Iterable[str]:
    """How the curves are to be read."""
    yield "A site is left of the start when it holds its first token, also one that came back."
    yield "Steps that changed nothing drew the token that stood there already."
    yield "Entropy 0: the model was sure of the token; 2.3: as open as ten equally likely tokens."
    if spec.dtype in COARSE:
        yield f"The entropy is as it was recorded, in {spec.dtype}: an estimate of the model's own."


def _chains(run: Run) -> Iterable[dict[str, Any]]:
    """What the page shows of each of the first chains."""
    topics = seeds_of(run)
    first, last = run.tokens(0), run.tokens()
    steps = moments(run, ROWS)
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
        yield {"space": space, "text": bare, "changed": piece.changed, "frozen": piece.frozen}


def title(spec: Spec) -> str:
    """The heading of a run's page."""
    return f"Glauber dynamics of {Path(spec.model).name}"


def summary(run: Run) -> str:
    """A few sentences: what was run, how much it moved, what is left of the start."""
    sentences = [_what(run), *_held(run.spec), *_kept_to(run.spec)]
    return " ".join([*sentences, *(_movement(run) if run.steps else ())])


def _what(run: Run) -> str:
    spec = run.spec
    chains = counted(run.n_chains, "chain")
    steps = f"{run.steps:,} steps" if run.finished else f"{run.steps:,} of {spec.steps:,} steps"
    each = " each" if run.n_chains > 1 else ""
    how = (
        "takes what the model finds likeliest"
        if spec.fill == "greedy"
        else "draws from what the model expects"
    )
    return (
        f"{chains} of the masked language model {spec.model} made {steps}{each} "
        f"at {_temperature(spec.temperature)}. A step hides {scan_named(spec.scan).words} "
        f"and {how} there, given the rest of the text."
    )


def _temperature(temperature: Any) -> str:
    low, high = float(np.min(temperature)), float(np.max(temperature))
    return f"temperature {low:g}" if low == high else f"temperatures {low:g} to {high:g}"


def _held(spec: Spec) -> list[str]:
    """A sentence on what is never redrawn, if there is such a thing."""
    fixed = [f"the prefix “{spec.prefix}”"] if spec.prefix else []
    if spec.frozen:
        sites = "the site" if len(spec.frozen) == 1 else "the sites"
        fixed.append(f"{sites} {ranges(spec.frozen)} (counted from 0, without special tokens)")
    return [f"Never redrawn: {' and '.join(fixed)}."] if fixed else []


def _kept_to(spec: Spec) -> list[str]:
    """A sentence on the constraints that every chain kept to, if there are any."""
    constraints = Constraints.from_dict(spec.constraints)
    kinds = [
        (constraints.allowed, "only certain tokens at the sites {}"),
        (constraints.bias, "a bias at the sites {}"),
        (
            [site for group in constraints.tied for site in group],
            "one token for each tied group of {}",
        ),
    ]
    descriptions = [description.format(ranges(sites)) for sites, description in kinds if sites]
    if constraints.budget is not None:
        descriptions.append(f"at most {counted(constraints.budget, 'change')} from each start")
    return [f"Kept to: {'; '.join(descriptions)}."] if descriptions else []


def ranges(sites: Iterable[int]) -> str:
    """Sites as people write them: 0-95, 109."""
    ordered = enumerate(sorted(set(sites)))
    pieces = []
    for _, group in groupby(ordered, lambda pair: pair[1] - pair[0]):
        row = [site for _, site in group]
        pieces.append(str(row[0]) if len(row) == 1 else f"{row[0]}-{row[-1]}")
    return ", ".join(pieces)


def _movement(run: Run) -> list[str]:
    left = survivors(run)
    these = "the other starting tokens" if _held(run.spec) else "the starting tokens"
    spread = f" ({left.min():.0%} to {left.max():.0%} by chain)" if run.n_chains > 1 else ""
    return [
        f"{share_changed(run).mean():.0%} of the steps changed a token.",
        f"At the end {left.mean():.0%} of {these} stood in their place{spread}.",
    ]


def share_changed(run: Run) -> NDArray[np.float64]:
    """Share of each chain's steps that changed a token, (chains,); 0 without steps."""
    if run.steps == 0:
        return np.zeros(run.n_chains)
    return np.asarray(run.read("changed").any(axis=2).mean(axis=1))


def survivors(run: Run) -> NDArray[np.float64]:
    """Share of each chain's free sites that hold their starting token now, (chains,)."""
    same = (run.tokens() == run.tokens(0)) & run.free
    return np.asarray(same.sum(axis=1) / run.free.sum(axis=1))


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
    catalogue, notes = _traps(run, chosen, model, device, trust_remote_code)
    yield _trap_section(run, catalogue, notes, listed)
    if isinstance(read, str):
        yield Section("trajectory", "Where the texts went", (read,))
        yield Section("about", "Topics", (read,))
        yield Section("basins", "Basins", (read,))
        return
    yield _trajectory(read, chosen, catalogue, chain)
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
    return read, replace(chosen, embed=remember(chosen.embed)), ""


def remember(embed: Embed) -> Embed:
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
) -> tuple[TrapList | None, list[str]]:
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
        catalogue = default_traps(run, drawn.conditionals, chosen, device=drawn.device)
        return catalogue, list(drawn.notes)
    except GlauberError as error:
        return None, [f"Traps were not looked for: {error}"]


def _trap_section(
    run: Run, catalogue: TrapList | None, notes: Sequence[str], listed: int
) -> Section:
    heading = "Where the chains got stuck"
    if catalogue is None:
        return Section("traps", heading, tuple(notes))
    paragraphs = [what_a_trap_is(catalogue), *notes]
    if not catalogue.traps:
        none = catalogue.none_found()
        return Section("traps", heading, (*paragraphs, none), bands=found_bands((), note=none))
    few = min(listed, catalogue.n_traps)
    paragraphs.append(
        f"{catalogue.n_traps} {'was' if catalogue.n_traps == 1 else 'were'} found, "
        f"{catalogue.n_perfect} of them perfect: every token is the model's first choice there. "
        f"They take up {catalogue.share:.0%} of all steps. "
        + (f"The {few} longest are" if few < catalogue.n_traps else "All are")
        + f" written out below ({few} of {catalogue.n_traps})."
    )
    figures = {"timeline": plot_trap_timeline(catalogue)}
    if len(catalogue.traps) > 3:
        figures["gaps"] = plot_gaps_against_duration(catalogue)
    cards = tuple(_trap_card(run, trap) for trap in catalogue.by_duration[:listed])
    bands = found_bands(trap_bands(run, catalogue))
    return Section("traps", heading, tuple(paragraphs), figures, cards, bands)


def _trap_card(run: Run, trap: Trap) -> Card:
    when, text, *further = trap.lines()
    return Card(text, (when, *further), (trap.chain, first_seen(run, trap)))


def what_a_trap_is(catalogue: TrapList) -> str:
    settings = catalogue.settings
    if catalogue.detector == "rolling":
        return (
            f"A trap is an episode of at least {settings['shortest']:,.0f} steps in which the text "
            f"drifted by less than {settings['threshold']:g} on average over the next "
            f"{settings['window']:,.0f} steps. {catalogue.distance}"
        )
    return (
        f"A trap is an episode of at least {settings['shortest']:,.0f} steps in which the text "
        f"stayed within {settings['radius']:g} token of one state."
    )


def most_stuck(chains: Iterable[int]) -> int:
    """The chain with the most traps, which has most to show; of equals, the first."""
    return min(Counter(chains).most_common() or [(0, 0)], key=lambda count: (-count[1], count[0]))[
        0
    ]


def _trajectory(
    read: Snapshots, chosen: Embedder, catalogue: TrapList | None, chain: int | None
) -> Section:
    heading = "Where the texts went"
    stuck = () if catalogue is None else catalogue.traps
    intervals = [(trap.chain, trap.first, trap.last) for trap in stuck]
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
        partition = basins(run, embedder=chosen, every=every)
    except GlauberError as error:
        return Section("basins", heading, (f"There are no basins: {error}",))
    figures = {
        "network": plot_basins(partition),
        "timescales": plot_implied_timescales(partition.implied_timescales, partition.lag),
    }
    cards = tuple(
        Card(own.texts[0], (f"basin {own.basin}: {', '.join(own.words)}",))
        for own in partition.basins
        if own.texts
    )
    bands = found_bands(basin_bands(partition), note="Basins are estimates.")
    return Section("basins", heading, tuple(map(_sentence, partition.notes)), figures, cards, bands)


def _sentence(note: str) -> str:
    return note if note.endswith((".", "!", "?")) else note + "."
