"""What does it do to the law, and to the speed, that the state chooses the site?

A real model has no joint law to compare with, and too many states. So a few of its sites, each
with a few tokens, are taken by themselves, the rest of the text held, and every scan's chain over
them is worked out in full: stationary law, spectral gap, variance of its averages, rows asked for.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from glauber.conditionals.base import Model, check_temperature
from glauber.conditionals.load import load
from glauber.conditionals.starts import read_sites, spell_sites, starts
from glauber.errors import GlauberError
from glauber.exact.conditionals import Few, candidates, current_probabilities, tabulated
from glauber.exact.scans import Measure, Redraw, adaptive_matrix, site_choice
from glauber.exact.space import Floats, Space, marginal
from glauber.exact.spectrum import largest_modulus, remainder
from glauber.exact.stationary import entropy_production, stationary, total_variation
from glauber.exact.transition import transition_matrix
from glauber.json_text import Record
from glauber.parameters import Device, ModelOrName, Temperature, Trust, Unknown
from glauber.progress import check_count, track
from glauber.result import Result, model_parts, needed, plain, signature, study

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

STATES = 1024  # that are worked out
SITES = 3  # that are free if none are named
REVERSIBLE = 1e-9  # nats per step: what rounding leaves of a chain that has a joint law
SCANS: tuple[tuple[Redraw, Measure], ...] = tuple(
    (redraw, measure)
    for redraw in ("naive", "adaptive", "conditioned")
    for measure in ("confidence", "entropy")
)


@study
def scan_bias(
    model: ModelOrName = "bundled:english",
    text: Annotated[
        str | None, "The text around the free sites; not needed for a law over a few sites."
    ] = None,
    *,
    sites: Annotated[
        Sequence[int] | str,
        "Free sites, such as 2,4,5: from 0, without special tokens (default: three in the middle).",
    ] = "",
    tokens: Annotated[int, "Tokens of each free site: its own and the likeliest others."] = 8,
    temperature: Temperature = 1.0,
    sharpness: Annotated[float, "Power of the uncertainties that choose the site."] = 1.0,
    unknown: Unknown = "error",
    device: Device = "auto",
    trust_remote_code: Trust = False,
) -> "ScanBias":
    """Compare scans whose site the state chooses with the uniform one, exactly, on a few sites.

    The stationary law of each scan is set against that of the uniform one, which is the joint law
    where there is one: `naive` ends elsewhere, `adaptive` and `conditioned` (paper B, Definition 8)
    keep a joint law. The draws are those that independent sampling would need for single-site
    frequencies as good; rows are forward passes, the present state's weights remembered. The model
    is evaluated in float64.
    """
    check_count("number of tokens", tokens, least=2, most=STATES)
    check_temperature(temperature)
    if not 0 <= sharpness < np.inf:
        raise GlauberError(f"the sharpness is {sharpness}, but it must be a number from 0 on.")
    named = read_sites(sites)
    _check_states(tokens, len(named) or 1)
    opened = load(
        model, device=device, dtype="float64", trust_remote_code=trust_remote_code, exact=True
    )
    row, columns, numbers = _begin(opened, text, named, unknown)
    offered = candidates(opened.conditionals(), row, columns, tokens)
    _check_states(offered.shape[1], len(columns))
    few = tabulated(opened.conditionals(), row, columns, offered)
    with track("scans", 1 + len(SCANS)) as advance:
        found = compared(few, temperature=temperature, sharpness=sharpness, advance=advance)
    spelled = [[opened.vocabulary.spell(int(token)) for token in line] for line in offered]
    made = signature(
        **model_parts(opened), sites=spell_sites(numbers), tokens=offered.shape[1],
        temperature=float(temperature), sharpness=float(sharpness),
    )  # fmt: skip
    return ScanBias(
        scans=found,
        production=entropy_production(transition_matrix(few, few.space, temperature=temperature)),
        sites=numbers,
        tokens=spelled,
        model=opened.name,
        temperature=float(temperature),
        sharpness=float(sharpness),
        dtype=opened.dtype,
        signature=made,
    )


@dataclass(frozen=True, eq=False)
class Scanned:
    """One scan's chain; every number is exact, up to the rounding of the model's dtype."""

    name: str
    law: Floats  # (states,) stationary
    distance: float  # total variation from the uniform scan's law
    marginal: float  # the largest one of a single site
    gap: float  # 1 - the second largest modulus of an eigenvalue
    draws: float  # independent draws that a step is worth, for single-site frequencies
    rows: float  # forward passes of a step, on average
    acceptance: float | None  # of proposals to change a token


@dataclass(frozen=True, eq=False)
class ScanBias(Result):
    """The uniform scan first, then those whose site the state chooses."""

    scans: tuple[Scanned, ...]
    production: float  # nats per step of the uniform scan: 0 where there is a joint law
    sites: list[int]
    tokens: list[list[str]]
    model: str
    temperature: float
    sharpness: float
    dtype: str  # of the model's scores
    signature: str

    @property
    def kind(self) -> str:
        """What the numbers are: exact from scores in float64, else estimates by rounded scores."""
        return "exact" if self.dtype == "float64" else "estimate"

    @property
    def has_joint(self) -> bool:
        """Whether the conditionals of these sites belong to one law, up to rounding."""
        return self.production < REVERSIBLE

    def worth(self, scan: Scanned) -> float:
        """Draws per row, against the uniform scan's."""
        uniform = self.scans[0]
        return (scan.draws / scan.rows) / (uniform.draws / uniform.rows)

    def to_dict(self) -> Record:
        record = {
            "model": self.model, "sites": self.sites, "tokens": self.tokens,
            "states": len(self.scans[0].law), "temperature": self.temperature,
            "dtype": self.dtype, "sharpness": self.sharpness, "joint": self.has_joint,
            "entropy_production": {"value": self.production, "kind": self.kind},
            "scans": {"kind": self.kind, "rows": self._rows()},
            "signature": self.signature,
        }  # fmt: skip
        return dict(plain(record))

    def lines(self) -> Iterable[str]:
        n, states = len(self.sites), len(self.scans[0].law)
        kind = "all exact" if self.kind == "exact" else f"estimates from scores in {self.dtype}"
        yield (
            f"{self.model}: sites {spell_sites(self.sites)}, {len(self.tokens[0])} tokens each, "
            f"{states:,} states, temperature {self.temperature:g}; {kind}"
        )
        yield (
            "these conditionals have a joint law, and the uniform scan keeps it"
            if self.has_joint
            else "these conditionals have no joint law (entropy production "
            f"{self.production:.2g} nats per step): distances are from the uniform scan's law"
        )
        yield f"{'scan':<22}{'distance':>10}{'marginal':>10}{'gap':>9}{'draws':>9}{'rows':>7}" + (
            f"{'accepted':>10}{'worth':>8}"
        )
        for one in self.scans:
            accepted = "" if one.acceptance is None else f"{one.acceptance:.1%}"
            yield (
                f"{one.name:<22}{_small(one.distance):>10}{_small(one.marginal):>10}"
                f"{one.gap:>9.3g}{one.draws:>9.3g}{one.rows:>7.2f}{accepted:>10}"
                f"{self.worth(one):>8.2f}"
            )
        yield (
            "distance: total variation; draws: what a step is worth in independent draws of single "
            "sites; worth: draws per row of the model, against uniform"
        )
        yield f"rows grow with the free sites: here {n}, in a run all of a text"

    def frame(self) -> "pandas.DataFrame":
        """One row per scan."""
        import pandas

        return pandas.DataFrame(self._rows())

    def _rows(self) -> list[Record]:
        names = ("name", "distance", "marginal", "gap", "draws", "rows", "acceptance")
        return [
            {name: getattr(one, name) for name in names} | {"worth": self.worth(one)}
            for one in self.scans
        ]

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.chart import BLUE, Chart

        names = [one.name for one in self.scans]
        far = Chart("Where each scan ends", "total variation from the uniform scan's law")
        worth = Chart("What a row is worth", "draws per forward pass, against uniform")
        values = ([one.distance for one in self.scans], [self.worth(one) for one in self.scans])
        for drawn, heights in zip((far, worth), values, strict=True):
            drawn.add_bar(x=names, y=heights, marker_color=BLUE, hovertemplate="%{x}: %{y:.4g}")
            drawn.update_xaxes(title_text="", type="category", tickformat=None, nticks=len(names))
        return {"bias": far, "worth": worth}


def _small(value: float) -> str:
    return "0" if value < 1e-12 else f"{value:.4f}" if value >= 1e-4 else f"{value:.0e}"


def _begin(
    opened: Model, text: str | None, named: list[int], unknown: str
) -> tuple[Tensor, list[int], list[int]]:
    """The text's tokens (length,), the columns of its free sites, and their numbers for people."""
    if text is None and opened.length is not None:
        row, places = torch.zeros(opened.length, dtype=torch.int64), list(range(opened.length))
        chosen = named or places
    else:
        begun, free = starts(opened, [needed("text", text)], unknown=unknown)
        row, places = begun[0], free[0].nonzero()[:, 0].tolist()
        middle = max(0, len(places) // 2 - SITES // 2)
        chosen = named or list(range(len(places)))[middle : middle + SITES]
    if chosen[-1] >= len(places):
        raise GlauberError(
            f"there is no site {chosen[-1]}: the text has sites 0 to {len(places) - 1}."
        )
    return row.to(opened.state_device), [places[site] for site in chosen], chosen


def _check_states(tokens: int, n_sites: int) -> None:
    if tokens**n_sites > STATES:
        raise GlauberError(
            f"{n_sites} sites with {tokens} tokens each make more than {STATES:,} states, which is "
            "what can be worked out here: take fewer."
        )


# ---- the chains


def compared(
    few: Few, *, temperature: float, sharpness: float, advance: Any = lambda: None
) -> tuple[Scanned, ...]:
    """The uniform scan and every scan whose site the state chooses."""
    uniform = transition_matrix(few, few.space, temperature=temperature)
    reference = stationary(uniform)
    found = [_scanned("uniform", uniform, few.space, reference, 1.0, None)]
    advance()
    n, m = few.space.length, few.space.vocab_size
    for redraw, measure in SCANS:
        options: dict[str, Any] = {
            "measure": measure, "sharpness": sharpness, "temperature": temperature,
        }  # fmt: skip
        matrix = adaptive_matrix(few, few.space, redraw=redraw, **options)
        moves = float(stationary(matrix) @ (1 - matrix.diagonal()))
        proposes = _proposes(few, matrix, options)
        asked = {"naive": moves, "adaptive": proposes, "conditioned": m - 1.0}[redraw]
        accepted = moves / proposes if redraw == "adaptive" else None
        name = f"{redraw}:{measure}"
        found.append(_scanned(name, matrix, few.space, reference, 1 + n * asked, accepted))
        advance()
    return tuple(found)


def _proposes(few: Few, matrix: csr_array, options: dict[str, Any]) -> float:
    """The chance that a step proposes another token, in the chain's own stationary law."""
    choice = site_choice(few, few.space, **options)
    kept = np.stack(
        [
            current_probabilities(few, few.space, (i,), temperature=options["temperature"])[:, 0]
            for i in range(few.space.length)
        ],
        axis=1,
    )
    return float(stationary(matrix) @ (choice * (1 - kept)).sum(axis=1))


def _scanned(
    name: str,
    matrix: csr_array,
    space: Space,
    reference: Floats,
    rows: float,
    acceptance: float | None,
) -> Scanned:
    law = stationary(matrix)
    apart = [
        total_variation(marginal(law, space, (i,)), marginal(reference, space, (i,)))
        for i in range(space.length)
    ]
    return Scanned(
        name=name,
        law=law,
        distance=total_variation(law, reference),
        marginal=max(apart),
        gap=1 - largest_modulus(remainder(matrix, law))[0],
        draws=draws_per_step(matrix, law, space),
        rows=rows,
        acceptance=acceptance,
    )


def draws_per_step(matrix: csr_array, law: Floats, space: Space) -> float:
    """Effective draws per step for the frequencies of all tokens at all sites together.

    The sum over these functions f of Var(f), over the sum of the asymptotic variances
    2 <f, g> - Var(f) of their averages, where (I - P) g = f - mean of f (Poisson's equation).
    """
    states = space.states().numpy()
    held = np.eye(space.vocab_size)[states].reshape(space.size, -1)  # (states, functions)
    apart = held - law @ held
    whole = np.eye(space.size) - matrix.toarray() + law[None, :]
    solved = np.linalg.solve(whole, apart)
    variance = (law[:, None] * apart**2).sum()
    return float(variance / (2 * (law[:, None] * apart * solved).sum() - variance))
