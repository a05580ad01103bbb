"""Charts of mutants and designs: scores by position and by order, letters, distances, chains."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glauber.interfaces.plots.chart import (
    AMBER,
    BLUE,
    COLOURS,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    QUIET,
    SHARE,
    THIN,
    WHITE,
    Chart,
    ends,
)

if TYPE_CHECKING:
    from glauber.studies.proteins.design import Design, ParentDesigns
    from glauber.studies.proteins.variants import Variant

ROW = 20  # pixels of a row of letters
MOST_NAMED = 60  # variants that are drawn by name
MARKS = {
    "wild_type_fill": "diamond-open",
    "mutant_fill": "square-open",
    "all_hidden": "x-thin-open",
    "pll": "triangle-up-open",
}
# Chemistry of side chains.
CLASSES = {
    "hydrophobic": ("AVLIMC", AMBER),
    "aromatic": ("FWY", COLOURS[3]),
    "polar": ("STNQ", GREEN),
    "positive": ("KRH", COLOURS[5]),
    "negative": ("DE", ORANGE),
    "glycine, proline": ("GP", "#9aa1ab"),
    "other": ("", "#9aa1ab"),
}
READABLE = 0.035  # share below which a letter has no room in its bar
CROWDED = 10  # positions above which their names are small
MOST_POSITIONS = 45  # that a logo can show side by side
NATS = dict(title="nats")


def plot_singles(
    positions: Sequence[int], wild_type: Sequence[str], letters: Sequence[str], scores: NDArray[Any]
) -> Chart:
    """The log-ratio of every letter (positions, letters) to the parent's, a column a position."""
    low, high = max(1.0, float(np.quantile(-scores, 0.98))), max(1.0, float(scores.max()))
    labels = [f"{own}{position}" for own, position in zip(wild_type, positions, strict=True)]
    columns, every = list(range(len(labels))), max(1, len(labels) // 24)
    chart = Chart(
        "Single mutants",
        "log-ratio to the parent's letter in nats, its site hidden; a dot marks the parent's own",
        x=dict(
            title="position, counted from 1",
            range=[-0.5, len(columns) - 0.5],
            tickangle=-60,
            tickvals=columns[::every],
            ticktext=labels[::every],
        ),
        y=_letters(letters),
        height=170 + ROW * len(letters),
    )
    chart.cells(
        scores.T,
        "%{customdata}: %{z:+.2f} nats",
        zmin=-low,
        zmax=high,
        bar="nats",
        gap=0,
        colors=((0, ORANGE), (low / (low + high), WHITE), (1, BLUE)),
        data=[[f"{own}{new}" for own in labels] for new in letters],
    )
    own = [(at, letters.index(letter)) for at, letter in enumerate(wild_type) if letter in letters]
    chart.dots([at for at, _ in own], [row for _, row in own], color=INK, size=4)
    return chart


def _letters(letters: Sequence[str]) -> dict[str, Any]:
    """An axis with a letter in each row, the first on top."""
    n = len(letters)
    ticks = dict(tickvals=list(range(n)), ticktext=letters)
    return ticks | dict(range=[n - 0.5, -0.5], showgrid=False)


def plot_order_scores(variants: "Sequence[Variant]") -> Chart:
    """Each variant by its mean over orders, one standard deviation and the range over orders."""
    shown = variants[:MOST_NAMED]
    more = "" if len(shown) == len(variants) else f"; the best {MOST_NAMED} of {len(variants):,}"
    names = [
        variant.name if len(variant.name) < 40 else variant.name[:37] + "…" for variant in shown
    ]
    chart = Chart(
        "Variants, with the error of their order",
        f"log-ratio to the parent in nats; thick: one sd over orders, thin: their range{more}",
        x=NATS | dict(tickformat="~g", showgrid=True, gridcolor=FAINT),
        y=_letters(names),
        height=220 + 22 * len(shown),
        legend="below",
    )
    rows, means = list(range(len(shown))), [variant.mean_over_orders.value for variant in shown]
    thick = dict(
        type="data", array=[variant.order_sd.value for variant in shown], thickness=4, width=0
    )
    chart.dots(means, rows, "one sd over orders", color=BLUE, size=1, error_x=thick)
    spread = ends(
        means,
        [variant.lowest_order for variant in shown],
        [variant.highest_order for variant in shown],
    )
    chart.dots(
        means,
        rows,
        "mean over orders, range",
        "%{text}: mean %{x:+.2f}",
        text=names,
        color=WHITE,
        size=8,
        line=dict(color=BLUE, width=2),
        error_x=spread | dict(color=QUIET, width=0),
    )
    for name, symbol in MARKS.items():
        if name in shown[0].scores:
            chart.dots(
                [variant.scores[name] for variant in shown],
                rows,
                name.replace("_", " "),
                "%{text}: %{x:+.2f}",
                text=names,
                color=INK,
                size=8,
                symbol=symbol,
            )
    return chart


def plot_order_spread(variants: "Sequence[Variant]") -> Chart:
    """The standard deviation over orders against the number of changes, a dot a variant."""
    several = [variant for variant in variants if variant.changes > 1]
    changes = np.array([variant.changes for variant in several])
    spread = np.zeros(len(several))
    for count in np.unique(changes):
        here = np.nonzero(changes == count)[0]
        spread[here] = np.linspace(-0.3, 0.3, len(here)) if len(here) > 1 else 0.0
    counts = sorted({int(count) for count in changes})
    chart = Chart(
        "Spread of the score over orders",
        "standard deviation in nats; 0 for every variant if there is a joint distribution",
        x=dict(title="changed letters", tickvals=counts, range=[counts[0] - 0.6, counts[-1] + 0.6]),
        y=NATS | dict(rangemode="tozero"),
    )
    chart.dots(
        changes + spread,
        [variant.order_sd.value for variant in several],
        "",
        "%{text}: sd %{y:.2f}",
        text=[variant.name for variant in several],
        color=BLUE,
        opacity=0.7,
    )
    return chart


def plot_conventions(variants: "Sequence[Variant]", labels: dict[str, str]) -> Chart:
    """Each convention against the mean over orders, with one standard deviation over orders."""
    chart = Chart(
        "Conventions and the mean over orders",
        "log-ratio to the parent in nats; bars: one standard deviation over orders",
        x=dict(title="mean over orders", tickformat="~g"),
        y=dict(title="by the convention"),
        height=420,
        legend="below",
    )
    means, names = (
        [variant.mean_over_orders.value for variant in variants],
        [variant.name for variant in variants],
    )
    diagonal = [min(means), max(means)]
    chart.line(diagonal, diagonal, "equal", color=QUIET, width=2, dash="dot")
    spread = dict(
        type="data", array=[variant.order_sd.value for variant in variants], color=FAINT, width=0
    )
    for name, color in zip(variants[0].scores, COLOURS, strict=False):
        chart.dots(
            means,
            [variant.scores[name] for variant in variants],
            labels[name],
            "%{text}: %{y:+.2f} against %{x:+.2f}",
            text=names,
            color=color,
            opacity=0.75,
            error_x=spread,
        )
    return chart


def design_figures(family: "ParentDesigns", *, with_name: bool = False) -> dict[str, Chart]:
    """The charts of one parent's designs, the most telling first, with its name if wanted."""
    of = f" of {family.short}" if with_name else ""
    return {
        "score": plot_scores(family, of),
        "logo": plot_logo(family, of),
        "frequencies": plot_frequencies(family, of),
        "diversity": plot_distances(family, of),
        "forgetting": plot_forgetting(family, of),
        "moves": plot_moves(family, of),
    }


def _positions(family: "ParentDesigns", places: list[int]) -> dict[str, Any]:
    """An axis with the parent's letter and the position below it."""
    numbers = [family.positions[column] for column in places]
    labels = [f"{family.parent[number - 1]}\n{number}" for number in numbers]
    return dict(
        title="parent's residue and position",
        tickvals=list(range(len(places))),
        ticktext=labels,
        tickangle=0,
        range=[-0.6, len(places) - 0.4],
        tickfont_size=10 if len(places) > CROWDED else 13,
    )


class _Letter(NamedTuple):
    """The share of one letter at one position, and where its part of the column begins."""

    column: int
    base: float
    share: float
    letter: str
    is_parents: bool

    @property
    def chemistry(self) -> str:
        return next((name for name, (of, _) in CLASSES.items() if self.letter in of), "other")


def _stacks(family: "ParentDesigns", places: list[int]) -> list[_Letter]:
    """The letters of each position, the most frequent on top."""
    letters = []
    for x, column in enumerate(places):
        base, row = 0.0, family.shares[column]
        parent = family.parent[family.positions[column] - 1]
        for number in row.argsort(kind="stable"):
            share, letter = float(row[number]), family.alphabet[number]
            if share > 0:
                letters.append(_Letter(x, base, share, letter, letter == parent))
                base += share
    return letters


def plot_logo(family: "ParentDesigns", of: str = "") -> Chart:
    """The letters at each free position, stacked by their share of the designs."""
    n, more = len(family.positions), ""
    places = list(range(n))
    if n > MOST_POSITIONS:
        parents = [family.alphabet.index(family.parent[at - 1]) for at in family.positions]
        changed = 1 - family.shares[np.arange(n), parents]
        places = sorted((-changed).argsort(kind="stable")[:MOST_POSITIONS].tolist())
        more = f"; the {MOST_POSITIONS} that change most"
    chart = Chart(
        f"Residues of the designs{of}",
        f"share of {len(family.designs):,} designs, stacked; pale: the parent's own{more}",
        x=_positions(family, places),
        y=dict(range=[0, 1.0], tickformat=".0%", showgrid=False),
        height=480,
        legend="below",
        barmode="overlay",
        bargap=0,
    )
    letters = sorted(_stacks(family, places), key=lambda letter: letter.chemistry)
    for name, group in groupby(letters, key=lambda letter: letter.chemistry):
        rows = list(group)
        # Letters as large as their bars, within what is readable.
        sizes = [int(min(34, max(9, 200 * letter.share))) for letter in rows]
        chart.columns(
            [letter.column for letter in rows],
            [letter.share for letter in rows],
            name,
            "%{customdata}",
            text=[letter.letter if letter.share >= READABLE else "" for letter in rows],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            constraintext="none",
            insidetextfont=dict(color=INK, size=sizes),
            color=CLASSES[name][1],
            marker=dict(
                opacity=[0.4 if letter.is_parents else 1.0 for letter in rows],
                line=dict(color=WHITE, width=1),
            ),
            width=0.92,
            base=[letter.base for letter in rows],
            customdata=[f"{letter.letter} {letter.share:.1%}" for letter in rows],
        )
    return chart


def plot_frequencies(family: "ParentDesigns", of: str = "") -> Chart:
    """The share of each residue at each position; the parent's own are framed."""
    places, shares = list(range(len(family.positions))), family.shares.T
    x = _positions(family, places)
    if len(places) > MOST_POSITIONS:
        x = dict(title="position", tickformat=",d", range=x["range"])
    chart = Chart(
        f"Share of each residue by position{of}",
        "among the designs (exact); framed: the parent's own residue",
        x=x,
        y=_letters(family.alphabet),
        height=200 + ROW * len(family.alphabet),
    )
    chart.cells(
        np.where(shares > 0, shares, np.nan),
        "%{customdata}: %{z:.1%}",
        x=places,
        y=list(range(len(family.alphabet))),
        colors=((0, FAINT), (1, BLUE)),
        bar="",
        format=".0%",
        data=[[f"{letter} at {at}" for at in family.positions] for letter in family.alphabet],
    )
    for column, position in enumerate(family.positions):
        row = family.alphabet.index(family.parent[position - 1])
        chart.region(x=(column - 0.5, column + 0.5), y=(row - 0.5, row + 0.5), frame=QUIET)
    return chart


def plot_scores(family: "ParentDesigns", of: str = "") -> Chart:
    """The score of each design against its distance to the parent, with its spread over orders."""
    chart = Chart(
        f"Scores of the designs{of}",
        "log-ratio to the parent in nats, mean over orders; bars: standard deviation over orders",
        x=dict(title="mutations", tickformat=",d", dtick=1),
        y=NATS,
        height=400,
    )
    designs = sorted(family.designs, key=lambda design: (design.changes, design.rank))
    spread = [design.order_sd.value for design in designs]
    chart.dots(
        _side_by_side(designs),
        [design.mean_over_orders.value for design in designs],
        "",
        "%{customdata}\n%{y:.2f} nats",
        color=BLUE,
        size=6,
        error=dict(type="data", array=np.nan_to_num(spread, posinf=0.0), color=THIN, width=0),
        trace=dict(customdata=[f"{design.name}\n{design.mutations}" for design in designs]),
    )
    chart.rule(y=0, dash="dot", width=1)
    return chart


def _side_by_side(designs: "list[Design]") -> list[float]:
    """Distances, with designs of the same distance spread by rank so that none hides another."""
    places: list[float] = []
    for distance, group in groupby(designs, key=lambda design: design.changes):
        n = len(list(group))
        places += [distance + (0.7 * (i + 0.5) / n - 0.35 if n > 1 else 0.0) for i in range(n)]
    return places


def plot_distances(family: "ParentDesigns", of: str = "") -> Chart:
    """How many pairs of designs differ at how many positions."""
    mean = family.mean_distance
    chart = Chart(
        f"Distances between the designs{of}",
        "pairs of designs by the positions at which they differ (exact)"
        + ("" if mean is None else f"; mean {mean:.1f}"),
        x=dict(title="positions that differ", tickformat=",d", dtick=1),
        y=dict(title="pairs", tickformat=",d"),
    )
    last = max((i for i, n in enumerate(family.pairs_by_distance) if n), default=1)
    chart.columns(
        list(range(1, last + 1)),
        family.pairs_by_distance[1 : last + 1],
        "",
        "%{y:,} pairs differ at %{x} positions",
        color=BLUE,
        width=0.8,
    )
    return chart


def plot_forgetting(family: "ParentDesigns", of: str = "") -> Chart:
    """The share of the free positions that hold the parent's residue, along the chains."""
    walk = family.history
    forgotten = walk.steps_until_parent_forgotten
    after = "" if forgotten is None else f"; forgotten after about {forgotten:,} steps"
    chart = Chart(
        f"Share of the parent{of} that is kept",
        f"share of the free positions, each chain and their mean{after} (an estimate)",
        y=SHARE,
    )
    steps = np.arange(walk.kept.shape[1]) * walk.steps_between_looks
    for chain, shares in enumerate(walk.kept):
        hover = f"chain {chain}, step %{{x:,}}: %{{y:.0%}}"
        chart.line(steps, shares, "", hover, color=THIN, width=1)
    chart.line(steps, walk.kept.mean(axis=0), "", "mean, step %{x:,}: %{y:.0%}", color=BLUE)
    least = 1 - family.max_mutations / len(family.positions)
    if least > 0:
        chart.rule(y=least, dash="dot", width=1, note="all mutations used")
    return chart


def plot_moves(family: "ParentDesigns", of: str = "") -> Chart:
    """The share of steps of each chain that changed a residue, and the designs it met first."""
    walk = family.history
    met = np.bincount(
        [design.chain for design in family.designs], minlength=len(walk.changed_by_chain)
    )
    chart = Chart(
        f"Chains that are trapped{of}",
        f"share of each chain's steps that changed a residue; {walk.trapped_chains} of "
        f"{len(met)} chains changed none in the second half",
        x=dict(title="chain", tickformat=",d"),
        y=dict(tickformat=".0%", rangemode="tozero"),
    )
    chart.columns(
        list(range(len(met))),
        walk.changed_by_chain,
        "",
        "chain %{x}: %{y:.1%} of steps\n%{customdata} designs",
        color=BLUE,
        width=0.8,
        customdata=met,
    )
    return chart
