"""What do designs look like? Letters by position, scores, distances, and the chains behind them."""

from itertools import groupby
from typing import Any

import numpy as np
import plotly.graph_objects as go

from glauber.figures.style import FAINT, QUIET, SHARES, STRONG, THIN, empty_figure
from glauber.proteins.design import Design, ParentDesigns

# Chemistry of side chains; Okabe and Ito's colours, told apart in every common colour blindness.
CLASSES = {
    "hydrophobic": ("AVLIMC", "#e69f00"),
    "aromatic": ("FWY", "#cc79a7"),
    "polar": ("STNQ", "#009e73"),
    "positive": ("KRH", "#56b4e9"),
    "negative": ("DE", "#d55e00"),
    "glycine, proline": ("GP", "#9aa1ab"),
    "other": ("", "#9aa1ab"),
}
READABLE = 0.035  # share below which a letter has no room in its bar
CROWDED = 10  # positions above which their names are small
LONG = 45  # positions that a logo can show side by side


def design_figures(family: ParentDesigns, *, named: bool = False) -> "dict[str, go.Figure]":
    """The pictures of one parent's designs, the most telling first; named by it if asked for."""
    of = f" of {family.short}" if named else ""
    found = {
        "score": plot_scores(family, of),
        "logo": plot_logo(family, of),
        "frequencies": plot_frequencies(family, of),
        "diversity": plot_distances(family, of),
        "forgetting": plot_forgetting(family, of),
        "moves": plot_moves(family, of),
    }
    return found


def _class_of(letter: str) -> str:
    return next((name for name, (letters, _) in CLASSES.items() if letter in letters), "other")


def _shown(family: ParentDesigns) -> list[int]:
    """Places of the positions that a logo shows: all, or the most changed of many."""
    n = len(family.positions)
    if n <= LONG:
        return list(range(n))
    own = [family.alphabet.index(family.parent[position - 1]) for position in family.positions]
    changed = 1 - family.shares[np.arange(n), own]
    return sorted((-changed).argsort(kind="stable")[:LONG].tolist())


def _labels(family: ParentDesigns, places: list[int]) -> list[str]:
    """The parent's letter and the position, one under the other."""
    positions = [family.positions[place] for place in places]
    return [f"<b>{family.parent[one - 1]}</b><br>{one}" for one in positions]


def _across(figure: go.Figure, family: ParentDesigns, places: list[int]) -> None:
    figure.update_xaxes(
        tickmode="array", tickvals=list(range(len(places))), ticktext=_labels(family, places),
        tickangle=0, range=[-0.6, len(places) - 0.4], rangemode="normal",
        title=dict(text="parent's residue and position", standoff=10), automargin=True,
        tickfont_size=10 if len(places) > CROWDED else 13,
    )  # fmt: skip
    figure.update_layout(margin_b=76)


def _stacks(family: ParentDesigns, places: list[int]) -> list[dict[str, Any]]:
    """One bar per position and letter: the most frequent on top."""
    bars = []
    for x, place in enumerate(places):
        base = 0.0
        row = family.shares[place]
        for number in row.argsort(kind="stable"):
            share = float(row[number])
            if share > 0:
                letter = family.alphabet[number]
                own = family.parent[family.positions[place] - 1]
                bars.append(dict(x=x, base=base, share=share, letter=letter, own=letter == own))
                base += share
    return bars


def plot_logo(family: ParentDesigns, of: str = "") -> go.Figure:
    """The letters at each free position, stacked by their share of the designs."""
    places = _shown(family)
    most = f"; the {LONG} that change most" if len(places) < len(family.positions) else ""
    figure = empty_figure(
        f"Which residues the designs{of} have",
        f"share of {len(family.designs):,} designs, stacked; pale: the parent's own{most}",
    )
    bars = sorted(_stacks(family, places), key=lambda bar: _class_of(bar["letter"]))
    for name, group in groupby(bars, key=lambda bar: _class_of(bar["letter"])):
        listed = list(group)
        figure.add_bar(
            x=[bar["x"] for bar in listed],
            y=[bar["share"] for bar in listed],
            base=[bar["base"] for bar in listed],
            text=[bar["letter"] if bar["share"] >= READABLE else "" for bar in listed],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            constraintext="none",
            insidetextfont=dict(color="#1f2328", size=_sizes(listed)),
            marker=dict(
                color=CLASSES[name][1],
                opacity=[0.4 if bar["own"] else 1.0 for bar in listed],
                line=dict(color="white", width=1),
            ),
            width=0.92,
            name=name,
            customdata=[f"{bar['letter']} {bar['share']:.1%}" for bar in listed],
            hovertemplate="%{customdata}<extra></extra>",
        )
    figure.update_layout(barmode="overlay", height=520, bargap=0)
    _across(figure, family, places)
    below = dict(yref="container", y=0.01, yanchor="bottom")  # it has several rows on a phone
    figure.update_layout(legend=below, margin_b=140, title_y=0.97)
    figure.update_yaxes(range=[0, 1.0], tickformat=".0%", showgrid=False)
    return figure


def _sizes(bars: list[dict[str, Any]]) -> list[int]:
    """Letters as large as their bars, within what is readable."""
    return [int(min(34, max(9, 200 * bar["share"]))) for bar in bars]


def plot_frequencies(family: ParentDesigns, of: str = "") -> go.Figure:
    """The share of each residue at each position; the parent's own are framed."""
    places = list(range(len(family.positions)))
    figure = empty_figure(
        f"Share of each residue by position{of}",
        "among the designs (exact); framed: the parent's own residue",
    )
    shares = family.shares.T
    figure.add_heatmap(
        z=np.where(shares > 0, shares, np.nan), zmin=0, zmax=1,
        x=places, y=list(range(len(family.alphabet))),
        colorscale=[[0, FAINT], [1, STRONG]], xgap=1, ygap=1, hoverongaps=False,
        customdata=[
            [f"{letter} at {position}" for position in family.positions]
            for letter in family.alphabet
        ],
        hovertemplate="%{customdata}: %{z:.1%}<extra></extra>",
        colorbar=dict(thickness=12, tickformat=".0%", outlinecolor=FAINT),
    )  # fmt: skip
    for x, position in enumerate(family.positions):
        y = family.alphabet.index(family.parent[position - 1])
        figure.add_shape(
            type="rect", x0=x - 0.5, x1=x + 0.5, y0=y - 0.5, y1=y + 0.5,
            line=dict(color=QUIET, width=1.5),
        )  # fmt: skip
    height = 200 + 20 * len(family.alphabet)
    figure.update_layout(height=height, title_y=1 - 12 / height)
    _across(figure, family, places)
    if len(places) > LONG:
        figure.update_xaxes(tickmode="auto", ticktext=None, title_text="position")
    figure.update_yaxes(
        tickmode="array", tickvals=list(range(len(family.alphabet))), ticktext=family.alphabet,
        range=[len(family.alphabet) - 0.5, -0.5], rangemode="normal", showgrid=False,
    )  # fmt: skip
    return figure


def plot_scores(family: ParentDesigns, of: str = "") -> go.Figure:
    """The score of each design against its distance to the parent, with its spread over orders."""
    figure = empty_figure(
        f"Scores of the designs{of}",
        "log-ratio to the parent in nats, mean over orders; bars: standard deviation over orders",
    )
    designs = sorted(family.designs, key=lambda one: (one.changes, one.rank))
    figure.add_scatter(
        x=_side_by_side(designs),
        y=[one.mean_over_orders.value for one in designs],
        mode="markers",
        marker=dict(color=STRONG, size=6),
        error_y=dict(
            type="data", array=[_finite(one.order_sd.value) for one in designs], color=THIN,
            thickness=1, width=0,
        ),
        customdata=[f"{one.name}<br>{one.mutations}" for one in designs],
        hovertemplate="%{customdata}<br>%{y:.2f} nats<extra></extra>",
    )  # fmt: skip
    figure.add_hline(y=0, line=dict(color=QUIET, width=1, dash="dot"))
    figure.update_xaxes(title_text="mutations", dtick=1, rangemode="normal")
    figure.update_yaxes(title_text="nats", rangemode="normal")
    figure.update_layout(height=400, showlegend=False, margin_l=66)
    return figure


def _finite(value: float) -> float:
    return value if np.isfinite(value) else 0.0


def _side_by_side(designs: list[Design]) -> list[float]:
    """Distances, with designs of the same distance spread by rank so that none hides another."""
    found: list[float] = []
    for distance, group in groupby(designs, key=lambda one: one.changes):
        n = len(list(group))
        found += [distance + (0.7 * (i + 0.5) / n - 0.35 if n > 1 else 0.0) for i in range(n)]
    return found


def plot_distances(family: ParentDesigns, of: str = "") -> go.Figure:
    """How many pairs of designs differ at how many positions."""
    mean = family.mean_distance
    figure = empty_figure(
        f"How far the designs{of} are from each other",
        "pairs of designs by the positions at which they differ (exact)"
        + ("" if mean is None else f"; mean {mean:.1f}"),
    )
    last = max((i for i, n in enumerate(family.pairs_by_distance) if n), default=1)
    figure.add_bar(
        x=list(range(1, last + 1)), y=family.pairs_by_distance[1 : last + 1], marker_color=STRONG,
        hovertemplate="%{y:,} pairs differ at %{x} positions<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title_text="positions that differ", dtick=1, rangemode="normal")
    figure.update_yaxes(title_text="pairs")
    figure.update_layout(margin_l=66)
    return figure


def plot_forgetting(family: ParentDesigns, of: str = "") -> go.Figure:
    """The share of the free positions that hold the parent's residue, along the chains."""
    walk = family.history
    least = 1 - family.max_mutations / len(family.positions)
    after = (
        ""
        if walk.steps_until_parent_forgotten is None
        else f"; forgotten after about {walk.steps_until_parent_forgotten:,} steps"
    )
    figure = empty_figure(
        f"How much of the parent{of} is kept",
        f"share of the free positions, each chain and their mean{after} (an estimate)",
    )
    steps = np.arange(walk.kept.shape[1]) * walk.steps_between_looks
    for chain, kept in enumerate(walk.kept):
        figure.add_scatter(
            x=steps, y=kept, mode="lines", line=dict(color=THIN, width=1), showlegend=False,
            hovertemplate=f"chain {chain}, step %{{x:,}}: %{{y:.0%}}<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=steps, y=walk.kept.mean(axis=0), mode="lines", line=dict(color=STRONG, width=2.5),
        name="mean", hovertemplate="mean, step %{x:,}: %{y:.0%}<extra></extra>", showlegend=False,
    )  # fmt: skip
    if least > 0:
        figure.add_hline(
            y=least, line=dict(color=QUIET, width=1, dash="dot"),
            annotation=dict(text="all mutations used", font_color=QUIET, yanchor="top"),
        )  # fmt: skip
    figure.update_yaxes(range=SHARES, tickformat=".0%")
    return figure


def plot_moves(family: ParentDesigns, of: str = "") -> go.Figure:
    """The share of steps of each chain that changed a residue, and the designs it met first."""
    walk = family.history
    met = np.bincount([one.chain for one in family.designs], minlength=len(walk.changed_by_chain))
    figure = empty_figure(
        f"What is trapped{of}",
        f"share of each chain's steps that changed a residue; {walk.trapped_chains} of {len(met)} "
        "chains changed none in the second half",
    )
    figure.add_bar(
        x=list(range(len(met))), y=walk.changed_by_chain, marker_color=STRONG, customdata=met,
        hovertemplate="chain %{x}: %{y:.1%} of steps<br>%{customdata} designs<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title_text="chain", rangemode="normal")
    figure.update_yaxes(tickformat=".0%")
    return figure
