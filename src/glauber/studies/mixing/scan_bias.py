"""How a scan whose site the state chooses changes the stationary distribution and the speed.

A real model has no joint distribution to compare with, and too many states. So a few of its sites,
each with a few tokens, are taken by themselves, the rest of the text fixed, and every scan's chain
over them is computed in full: stationary distribution, spectral gap, variance of its averages, rows
through the model.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Unpack

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from glauber.exact.conditionals import FewSites, current_probabilities, tabulate, top_tokens
from glauber.exact.space import Floats, Space, marginal
from glauber.exact.spectrum import deflate, largest_modulus
from glauber.exact.stationary import entropy_production, stationary, total_variation
from glauber.exact.transition import (
    Measure,
    Redraw,
    adaptive_matrix,
    site_choice,
    transition_matrix,
)
from glauber.foundation.checks import Positive, Real, Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import ModelOrName, Temperature, Unknown, Where
from glauber.foundation.progress import Advance, track
from glauber.foundation.study import Result, internal, needed, plain, reported, study
from glauber.models.base import Model
from glauber.models.load import load
from glauber.texts.starts import read_sites, spell_sites, starts

if TYPE_CHECKING:
    import plotly.graph_objects as go

LARGEST = 1024  # states whose chains are computed
SITES = 3  # that are free by default
REVERSIBLE = 1e-9  # nats per step: what rounding leaves of a chain with a joint distribution
SCANS: tuple[tuple[Redraw, Measure], ...] = (
    ("naive", "confidence"),
    ("naive", "entropy"),
    ("adaptive", "confidence"),
    ("adaptive", "entropy"),
    ("conditioned", "confidence"),
    ("conditioned", "entropy"),
)


@study
def scan_bias(
    model: ModelOrName = "bundled:english",
    text: Annotated[
        str | None,
        "The text around the free sites; not needed for a distribution over a few sites.",
    ] = None,
    *,
    sites: Annotated[
        Sequence[int] | str,
        "Free sites, such as 2,4,5: from 0, without special tokens (default: three in the middle).",
    ] = "",
    tokens: Annotated[
        int, "Tokens of each free site: its own and the likeliest others.", Whole(2, LARGEST)
    ] = 8,
    temperature: Annotated[Temperature, Positive] = 1.0,
    sharpness: Annotated[float, "Power of the uncertainties that choose the site.", Real(0)] = 1.0,
    unknown: Unknown = "error",
    **where: Unpack[Where],
) -> "ScanBias":
    """Compare scans whose site the state chooses with the uniform one, exactly, on a few sites.

    The stationary distribution of each scan is compared with that of the uniform one, which is the
    joint distribution where there is one: `naive` ends elsewhere, `adaptive` and `conditioned`
    (paper B, Definition 8) preserve a joint distribution. The draws are those that independent
    sampling would need for single-site frequencies as good; rows are forward passes, the present
    state's weights cached. The model is evaluated in float64.
    """
    requested = read_sites(sites)
    _check_states(tokens, len(requested) or 1)
    loaded = load(model, dtype="float64", exact=True, **where)
    row, columns, numbers = _free_sites(loaded, text, requested, unknown)
    candidates = top_tokens(loaded.conditionals(), row, columns, tokens)
    _check_states(candidates.shape[1], len(columns))
    few = tabulate(loaded.conditionals(), row, columns, candidates)
    with track("scans", 1 + len(SCANS)) as advance:
        rows = compare_scans(few, float(temperature), float(sharpness), advance)
    uniform = transition_matrix(few, few.space, temperature=temperature)
    return ScanBias(
        model=loaded.name,
        sites=numbers,
        tokens=[[loaded.vocabulary.spell(int(token)) for token in line] for line in candidates],
        temperature=float(temperature),
        sharpness=float(sharpness),
        dtype=loaded.dtype,
        scans=rows,
        production=entropy_production(uniform),
    )


@dataclass(frozen=True, eq=False)
class ScanRow:
    """One scan's chain; every number is exact, up to the rounding of the model's dtype."""

    name: str
    distance: float  # total variation from the uniform scan's distribution
    marginal: float  # the largest one of a single site
    gap: float  # 1 - the second largest modulus of an eigenvalue
    draws: float  # independent draws that a step is worth, for single-site frequencies
    rows: float  # forward passes of a step, on average
    acceptance: float | None  # of proposals to change a token
    worth: float  # draws per row, compared with the uniform scan's
    distribution: Floats = internal()  # (states,) stationary


@dataclass(frozen=True, eq=False)
class ScanBias(Result):
    """The uniform scan first, then those whose site the state chooses."""

    model: str
    sites: list[int]
    tokens: list[list[str]]
    temperature: float
    sharpness: float
    dtype: str  # of the model's scores
    scans: tuple[ScanRow, ...] = internal()
    production: float = internal()  # nats per step of the uniform scan: 0 with a joint distribution

    @property
    def kind(self) -> str:
        """What the numbers are: exact from scores in float64, else estimates by rounded scores."""
        return "exact" if self.dtype == "float64" else "estimate"

    @reported
    def states(self) -> int:
        """Number of fillings of the free sites."""
        return len(self.scans[0].distribution)

    @reported
    def joint(self) -> bool:
        """Whether the conditionals of these sites have a joint distribution, up to rounding."""
        return self.production < REVERSIBLE

    @reported
    def entropy_production(self) -> dict[str, object]:
        """Of the uniform scan, in nats per step; 0 with a joint distribution."""
        return {"value": self.production, "kind": self.kind}

    def to_dict(self) -> dict[str, object]:
        rows = self.frame().to_dict("records")
        return super().to_dict() | {"scans": {"kind": self.kind, "rows": plain(rows)}}

    def lines(self) -> Iterable[str]:
        kind = "all exact" if self.kind == "exact" else f"estimates from scores in {self.dtype}"
        yield (
            f"{self.model}: sites {spell_sites(self.sites)}, {len(self.tokens[0])} tokens each, "
            f"{self.states:,} states, temperature {self.temperature:g}; {kind}"
        )
        yield (
            "these conditionals have a joint distribution, and the uniform scan preserves it"
            if self.joint
            else "these conditionals have no joint distribution (entropy production "
            f"{self.production:.2g} nats per step): distances are from the uniform scan's"
        )
        yield f"{'scan':<22}{'distance':>10}{'marginal':>10}{'gap':>9}{'draws':>9}{'rows':>7}" + (
            f"{'accepted':>10}{'worth':>8}"
        )
        for scan in self.scans:
            accepted = "" if scan.acceptance is None else f"{scan.acceptance:.1%}"
            yield (
                f"{scan.name:<22}{_spell(scan.distance):>10}{_spell(scan.marginal):>10}"
                f"{scan.gap:>9.3g}{scan.draws:>9.3g}{scan.rows:>7.2f}{accepted:>10}"
                f"{scan.worth:>8.2f}"
            )
        yield (
            "distance: total variation; draws: what a step is worth in independent draws of single "
            "sites; worth: draws per row of the model, compared with uniform"
        )
        yield f"rows grow with the free sites: here {len(self.sites)}, in a run all of a text"

    def table(self) -> tuple[ScanRow, ...]:
        """One row per scan."""
        return self.scans

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.chart import BLUE, Chart

        names = [scan.name for scan in self.scans]
        far = Chart(
            "Where each scan ends", "total variation from the distribution of the uniform scan"
        )
        worth = Chart("What a row is worth", "draws per forward pass, against uniform")
        values = ([scan.distance for scan in self.scans], [scan.worth for scan in self.scans])
        for drawn, heights in zip((far, worth), values, strict=True):
            drawn.add_bar(x=names, y=heights, marker_color=BLUE, hovertemplate="%{x}: %{y:.4g}")
            drawn.update_xaxes(title_text="", type="category", tickformat=None, nticks=len(names))
        return {"bias": far, "worth": worth}


def _spell(value: float) -> str:
    return "0" if value < 1e-12 else f"{value:.4f}" if value >= 1e-4 else f"{value:.0e}"


def _free_sites(
    loaded: Model, text: str | None, requested: list[int], unknown: str
) -> tuple[Tensor, list[int], list[int]]:
    """The text's tokens (length,), the columns of its free sites, and their numbers for people."""
    if text is None and loaded.length is not None:
        row, columns = torch.zeros(loaded.length, dtype=torch.int64), list(range(loaded.length))
        chosen = requested or columns
    else:
        rows, free = starts(loaded, [needed("text", text)], unknown=unknown)
        row, columns = rows[0], free[0].nonzero()[:, 0].tolist()
        middle = max(0, len(columns) // 2 - SITES // 2)
        chosen = requested or list(range(len(columns)))[middle : middle + SITES]
    if chosen[-1] >= len(columns):
        raise GlauberError(
            f"there is no site {chosen[-1]}: the text has sites 0 to {len(columns) - 1}."
        )
    return row.to(loaded.state_device), [columns[site] for site in chosen], chosen


def _check_states(tokens: int, n_sites: int) -> None:
    if tokens**n_sites > LARGEST:
        raise GlauberError(
            f"{n_sites} sites with {tokens} tokens each make more than {LARGEST:,} states, which "
            "is the most that is computed here: take fewer."
        )


def compare_scans(
    few: FewSites, temperature: float, sharpness: float, advance: Advance | None = None
) -> tuple[ScanRow, ...]:
    """The uniform scan and every scan whose site the state chooses."""
    n, m = few.space.length, few.space.vocab_size
    uniform = transition_matrix(few, few.space, temperature=temperature)
    reference = stationary(uniform)
    rows = [_scan_row("uniform", uniform, few.space, reference, 1.0, None)]
    redraws = [
        current_probabilities(few, few.space, (i,), temperature=temperature)[:, 0] for i in range(n)
    ]
    for redraw, measure in SCANS:
        if advance is not None:
            advance()
        matrix = adaptive_matrix(
            few,
            few.space,
            redraw=redraw,
            measure=measure,
            sharpness=sharpness,
            temperature=temperature,
        )
        choice = site_choice(
            few, few.space, measure=measure, sharpness=sharpness, temperature=temperature
        )
        mu = stationary(matrix)
        moves = float(mu @ (1 - matrix.diagonal()))
        proposes = float(mu @ (choice * (1 - np.stack(redraws, axis=1))).sum(axis=1))
        passes = {"naive": moves, "adaptive": proposes, "conditioned": m - 1.0}[redraw]
        acceptance = moves / proposes if redraw == "adaptive" else None
        name = f"{redraw}:{measure}"
        rows.append(_scan_row(name, matrix, few.space, reference, 1 + n * passes, acceptance))
    if advance is not None:
        advance()
    per_row = rows[0].draws / rows[0].rows
    return tuple(replace(row, worth=(row.draws / row.rows) / per_row) for row in rows)


def _scan_row(
    name: str,
    matrix: csr_array,
    space: Space,
    reference: Floats,
    rows: float,
    acceptance: float | None,
) -> ScanRow:
    mu = stationary(matrix)
    distances = [
        total_variation(marginal(mu, space, (i,)), marginal(reference, space, (i,)))
        for i in range(space.length)
    ]
    return ScanRow(
        name=name,
        worth=1.0,
        distribution=mu,
        distance=total_variation(mu, reference),
        marginal=max(distances),
        gap=1 - largest_modulus(deflate(matrix, mu))[0],
        draws=draws_per_step(matrix, mu, space),
        rows=rows,
        acceptance=acceptance,
    )


def draws_per_step(matrix: csr_array, mu: Floats, space: Space) -> float:
    """Effective draws per step for the frequencies of all tokens at all sites together.

    The sum over these functions f of Var(f), over the sum of the asymptotic variances
    2 <f, g> - Var(f) of their averages, where (I - P) g = f - mean of f (Poisson's equation).
    """
    indicators = np.eye(space.vocab_size)[space.states().numpy()].reshape(space.size, -1)
    centred = indicators - mu @ indicators
    solved = np.linalg.solve(np.eye(space.size) - matrix.toarray() + mu[None, :], centred)
    variance = (mu[:, None] * centred**2).sum()
    return float(variance / (2 * (mu[:, None] * centred * solved).sum() - variance))
