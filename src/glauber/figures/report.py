"""What happened in a run? One page that asks nothing of any network."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import plotly.graph_objects as go

from glauber.conditionals.base import Conditionals
from glauber.conditionals.weights import check_device
from glauber.figures.page import check_place, page, write_text
from glauber.figures.report_parts import Section, sections_of
from glauber.figures.report_summary import share_changed, summary, survivors, title
from glauber.figures.runs import plot_changed, plot_entropy, plot_survival
from glauber.landscape.recurrence import seeds_of
from glauber.parameters import Trust
from glauber.progress import check_count, say
from glauber.result import Result, study
from glauber.runs.embedding import Choice
from glauber.runs.export import survival
from glauber.runs.run import Run
from glauber.runs.spec import signature
from glauber.runs.timeline import moments, timeline
from glauber.sampling.reopened import COARSE

if TYPE_CHECKING:
    import pandas

MOST = 50  # chains whose texts are shown
ROWS = 25  # moments of a chain's timeline
MOMENTS = 500  # of the survival curve, about
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
    model: Annotated[
        str | Conditionals | None,
        "The model that made the run, if its name does not lead to it.",
    ] = None,
    device: Annotated[str | None, "Another device than the run's."] = None,
    trust_remote_code: Trust = False,
) -> "Report":
    """Write one page about a run: traps, topics, basins, pictures, texts; it needs no network.

    A part that cannot be made (the run is too short, the model is gone, a package is missing, the
    texts are not English) says why in its place. Traps of a run that was drawn in int8 or
    bfloat16 are evaluated again in float32.
    """
    opened = Run.of(run)
    place = Path(out)
    check_place(place)
    check_device(device)
    check_count("number of traps", listed, least=0)
    if chain is not None:
        opened.check_chain(chain)
    parts = tuple(sections_of(opened, embedder, chain, listed, model, device, trust_remote_code))
    pictures = dict(_pictures(opened)) if opened.steps else {}
    say("writing the page")
    made = Report(
        run=opened,
        page=place,
        summary=summary(opened),
        pictures={name: figure for name, (figure, _) in pictures.items()},
        sections=parts,
        signature=signature(opened.spec),
    )
    write_text(place, made.html(pictures))
    return made


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
                "changed": share_changed(self.run),
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


def _pictures(run: Run) -> Iterable[tuple[str, tuple[go.Figure, str]]]:
    every = max(1, run.steps // MOMENTS)
    entropy = run.read("entropy").mean(axis=2, where=run.read("site") >= 0)
    drawn: dict[str, Callable[[], go.Figure]] = {
        "survival": lambda: plot_survival(survival(run, every), every=every),
        "changed": lambda: plot_changed(np.asarray(run.read("changed").any(axis=2))),
        "entropy": lambda: plot_entropy(entropy),
    }
    for name, draw in drawn.items():
        dtype = run.spec.dtype
        coarse = name == "entropy" and dtype in COARSE
        more = f" As it was recorded, in {dtype}: an estimate of the model's own." if coarse else ""
        yield name, (draw(), CAPTIONS[name] + more)


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
        yield {
            "space": space,
            "text": bare,
            "changed": piece.changed,
            "frozen": piece.frozen,
        }
