"""What happened in a run, at a first look? One HTML file that asks nothing of any network."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from glauber.errors import GlauberError
from glauber.explorer.skeleton import PAGE, STYLE
from glauber.explorer.words import summary, title
from glauber.figures.runs import plot_changed, plot_entropy, plot_survival
from glauber.plots.timeline import timeline_table
from glauber.runs.export import survival
from glauber.runs.run import Run
from glauber.runs.signature import signature
from glauber.runs.timeline import looks_at, timeline

MOST = 50  # chains whose texts are shown
LOOKS = 25  # moments of a chain's timeline
MOMENTS = 500  # of the survival curve, about
CAPTIONS = {
    "survival": "A site counts when it holds its first token, also one that has come back.",
    "changed": "The other steps drew the token that stood there already.",
    "entropy": "0: the model was sure of the token. 2.3: as open as ten equally likely tokens.",
}


@dataclass(frozen=True)
class Section:
    """A part of the page beyond what every run has: words, pictures, ready HTML."""

    name: str  # for the link to it
    heading: str
    note: str = ""
    figures: tuple[go.Figure, ...] = ()
    body: str = ""  # HTML, already escaped

    def html(self) -> str:
        drawn = "".join(
            f'<figure class="wide">{_drawn(figure, f"{self.name}-{number}")}</figure>'
            for number, figure in enumerate(self.figures)
        )
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        return (
            f'<section aria-labelledby="{self.name}">\n<h2 id="{self.name}">'
            f"{escape(self.heading)}</h2>\n{note}{drawn}{self.body}\n</section>"
        )


def write_page(
    run: Run, out: Path, *, topics: Sequence[str] = (), sections: Sequence[Section] = ()
) -> None:
    """Writes a run's page in one stroke, over an older one; topics names each chain's subject."""
    if topics and len(topics) != run.n_chains:
        raise GlauberError(f"there are {len(topics)} topics for {run.n_chains} chains.")
    text = page(run, topics, sections)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _write(text, out)
    except OSError as error:
        raise GlauberError(f"{out} cannot be written: {error.strerror or error}.") from error


def _write(text: str, out: Path) -> None:
    """Writes a file in one stroke: a reader sees the old one or the new one."""
    partial = out.with_name(out.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)


def page(run: Run, topics: Sequence[str] = (), sections: Sequence[Section] = ()) -> str:
    """The HTML of a run's page."""
    few = f'<p class="note">The first {MOST} of {run.n_chains:,} chains.</p>'
    return PAGE.substitute(
        title=escape(title(run.spec)),
        style=STYLE,
        plotly=get_plotlyjs(),
        summary=escape(summary(run)),
        pictures="\n".join(_pictures(run)) if run.steps else "",
        sections="\n".join(section.html() for section in sections),
        shown=few if run.n_chains > MOST else "",
        ends=_ends(run, topics),
        timelines="\n".join(_timelines(run, topics)),
        signature=escape(signature(run.spec)).replace("|", "|<wbr>"),
    )


def _pictures(run: Run) -> Iterator[str]:
    every = max(1, run.steps // MOMENTS)
    entropy = run.read("entropy").mean(axis=2, where=run.read("site") >= 0)
    yield _picture("survival", plot_survival(survival(run, every), every=every))
    yield _picture("changed", plot_changed(np.asarray(run.read("changed").any(axis=2))))
    yield _picture("entropy", plot_entropy(entropy))


def _picture(name: str, figure: go.Figure) -> str:
    caption = escape(CAPTIONS[name])
    return f"<figure>{_drawn(figure, name)}<figcaption>{caption}</figcaption></figure>"


def _drawn(figure: go.Figure, name: str) -> str:
    """The HTML of a figure that draws itself in the place of that name."""
    drawn: str = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=name,
        config={"responsive": True, "displayModeBar": False},
    )
    return drawn


def _ends(run: Run, topics: Sequence[str]) -> str:
    """A table with the first and the last text of each chain."""
    first, last = run.tokens(0), run.tokens()
    rows = []
    for chain in range(min(run.n_chains, MOST)):
        texts = (run.vocabulary.decode(tokens[chain]) for tokens in (first, last))
        cells = "".join(f'<td dir="auto">{escape(text)}</td>' for text in texts)
        rows.append(f'<tr><th scope="row">{_name(chain, topics)}</th>{cells}</tr>')
    head = "".join(f'<th scope="col">{name}</th>' for name in ("chain", "began", "ended"))
    body = "\n".join(rows)
    return (
        f'<table class="ends">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>'
    )


def _timelines(run: Run, topics: Sequence[str]) -> Iterator[str]:
    """Each chain's text over time, folded away but for the first."""
    steps = looks_at(run, LOOKS)
    for chain in range(min(run.n_chains, MOST)):
        table = timeline_table(timeline(run, chain, steps))
        state = " open" if chain == 0 else ""
        yield f"<details{state}><summary>{_name(chain, topics)}</summary>\n{table}\n</details>"


def _name(chain: int, topics: Sequence[str]) -> str:
    topic = f' <span class="topic">{escape(topics[chain])}</span>' if topics else ""
    return f"chain {chain}{topic}"
