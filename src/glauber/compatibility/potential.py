"""Which texts of a run does the model hold for likely, and how much of that can no law explain?"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from numpy.typing import NDArray

from glauber.compatibility.entropy_production import check_burn_in
from glauber.compatibility.hodge import Ranking, rank_correlation, ranking, with_neighbours
from glauber.conditionals.base import check_temperature
from glauber.conditionals.weights import check_device
from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.parameters import Trust
from glauber.progress import check_count, check_memory, say
from glauber.result import Result, counted, plain, signed, study
from glauber.runs.export import trajectory
from glauber.runs.run import Run
from glauber.runs.spec import refuse_ties
from glauber.sampling.reopened import COARSE, drawn_from
from glauber.statistics import Estimate, jackknife

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

Floats = NDArray[np.float64]
COPIES = 8  # of all states, held at once while their edges are found
PAIRS = {
    "pll_visits": "pseudo-log-likelihood and visits",
    "potential_visits": "potential and visits",
    "potential_pll": "potential and pseudo-log-likelihood",
}


@study
def potential(
    run: Annotated[Run | str | Path, "Folder of a run."],
    *,
    states: Annotated[int, "How many of the most visited states."] = 100,
    neighbours: Annotated[
        int, "Most probable tokens of each site to add as neighbours (0: none)."
    ] = 2,
    burn_in: Annotated[int | None, "Steps not counted (default: half)."] = None,
    temperature: Annotated[
        float | None, "Of a run with several, the chains at this one (default: the coldest)."
    ] = None,
    show: Annotated[int, "How many texts to print."] = 5,
    device: Annotated[str | None, "Another device than the run's."] = None,
    trust_remote_code: Trust = False,
) -> "PotentialStudy":
    """Rank a run's texts by potential, pseudo-log-likelihood and number of visits.

    The flow log pi_i(b) - log pi_i(a) over the edges between the visited states, and their likely
    neighbours, is split into the gradient of a potential and a rest that no joint law can explain
    (Hodge decomposition by least squares). Texts compare best where chains come back to them: cold
    runs, or few free sites. Of a run drawn in int8 or bfloat16 the conditionals are
    evaluated in float32.
    """
    check_count("number of states", states, least=2, most=10**6)
    check_count("number of neighbours", neighbours, least=0)
    check_count("number of texts to print", show, least=0)
    check_device(device)
    if temperature is not None:
        check_temperature(temperature)
    opened = Run.of(run)
    refuse_ties(opened.spec, "a potential")
    if opened.spec.budget is not None:
        raise GlauberError(
            "a potential compares all states by one rule, but within max-changes each chain has "
            "a rule of its own."
        )
    if opened.steps == 0:
        raise GlauberError(f"the run {opened.name} has no steps yet, so it visited nothing.")
    chains, at = _chains_at(opened, temperature)
    seen = visits(opened, burn_in=burn_in, most=states, chains=chains)
    _check_size(seen, neighbours)
    drawn = drawn_from(opened, device=device, trust_remote_code=trust_remote_code)
    conditionals = drawn.conditionals
    beside = None
    if neighbours:
        beside = with_neighbours(conditionals, seen.states, seen.free, top=neighbours)
    found = ranking(
        conditionals, seen.states, seen.counts, free=seen.free, beside=beside, temperature=at,
        kind="estimate",
    )  # fmt: skip
    order = np.argsort(-found.potential, kind="stable")
    return PotentialStudy(
        run=opened.name,
        seen=seen,
        found=found,
        texts=[opened.vocabulary.decode(found.states[i].tolist()) for i in order],
        potential=found.potential[order],
        pll=found.pll[order],
        steps=found.law[order].astype(np.int64),
        by_chain=seen.by_chain[:, seen.places(found.states)[order]],
        temperature=at,
        n_chains=len(chains),
        chains_of_run=opened.n_chains,
        dtype=opened.spec.dtype,
        show=show,
        signature=signed(
            opened.signature, states=states, neighbours=neighbours, burn_in=burn_in, at=at
        ),
    )


@dataclass(frozen=True, eq=False)
class PotentialStudy(Result):
    """The visited texts of a run in order of falling potential, and the share no law explains."""

    run: str
    seen: "Visits"
    found: Ranking
    texts: list[str]
    potential: Floats  # (texts,) in nats, up to a constant
    pll: Floats  # (texts,) in nats
    steps: NDArray[np.int64]  # (texts,) that chains spent there
    by_chain: NDArray[np.int64]  # (chains, texts) the same for each chain
    temperature: float
    n_chains: int  # at that temperature
    chains_of_run: int  # of all temperatures
    dtype: str  # that the run was drawn in
    show: int
    signature: str

    @property
    def share(self) -> float:
        """Share of the flow's squared norm that no joint law can explain, in [0, 1]."""
        return self.found.split.share

    @property
    def kind(self) -> str:
        """What the share is."""
        if self.dtype in COARSE:
            return f"for these states and edges, in float32; the run was drawn in {self.dtype}"
        return "exact for these states and edges"

    @property
    def correlations(self) -> dict[str, float | None]:
        """Spearman's, or None where one of the two lists has no order."""
        lists = {"potential": self.potential, "pll": self.pll, "visits": np.log(self.steps)}
        return {name: _correlation(*(lists[one] for one in name.split("_"))) for name in PAIRS}

    @property
    def measured(self) -> dict[str, Estimate | None]:
        """The same with intervals from leaving out each chain, and what only it visited, once."""
        found = self.correlations

        def figure(pair: str, weights: Floats) -> Floats:
            steps = weights @ self.by_chain
            lists = {"potential": self.potential, "pll": self.pll, "visits": steps}
            value = _correlation(*(lists[one][steps > 0] for one in pair.split("_")))
            return np.array(np.nan if value is None else value)

        return {
            pair: None
            if value is None
            else jackknife(partial(figure, pair), self.n_chains, scale="atanh").item()
            for pair, value in found.items()
        }

    def to_dict(self) -> Record:
        split, seen = self.found.split, self.seen
        return {
            "run": self.run,
            "share": {"value": self.share, "kind": self.kind},
            "states": len(split.states),
            "edges": split.n_edges,
            "checks": split.n_checks,
            "visited": {
                "different": seen.n_visited,
                "steps": seen.n_steps,
                "burn_in": seen.burn_in,
                "chains": self.n_chains,
            },
            "ranked": len(self.texts),
            "correlations": {"kind": self.found.kind} | plain(self.correlations),
            "correlation_intervals": plain(
                {pair: one and one.interval for pair, one in self.measured.items()}
            ),
            "temperature": self.temperature,
            "texts": plain(self.frame().to_dict("records")),
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        split = self.found.split
        yield (
            f"{self.share:.2%} of the flow over {split.n_edges:,} edges between "
            f"{len(split.states):,} states is explained by no joint law ({self.kind}; "
            f"{split.n_checks:,} independent closed walks test it)"
        )
        if self.n_chains < self.chains_of_run:
            yield (
                f"the run has several temperatures: here are its "
                f"{counted(self.n_chains, 'chain')} at {self.temperature:g}"
            )
        yield f"rank correlations over {len(self.texts)} visited states (estimates):"
        measured = self.measured
        for key, name in PAIRS.items():
            one = measured[key]
            yield f"  {name:>36}  " + ("no order to compare" if one is None else one.text())
        if self.show:
            yield "  potential     PLL  steps  text"
        for row in list(zip(self.potential, self.pll, self.steps, self.texts, strict=True))[
            : self.show
        ]:
            yield f"  {row[0]:9.3f} {row[1]:7.2f} {row[2]:6,}  {row[3]}"

    def frame(self) -> "pandas.DataFrame":
        """One row per ranked text."""
        import pandas

        columns = {"text": self.texts, "potential": self.potential, "pll": self.pll}
        return pandas.DataFrame(columns | {"steps": self.steps})

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.compatibility import plot_potential

        return {"visits": plot_potential(self.potential, self.pll, self.steps, self.texts)}


def _chains_at(run: Run, temperature: float | None) -> tuple[NDArray[np.int64], float]:
    """The chains at that temperature (default: the coldest of the run), and the temperature."""
    there = run.temperatures
    at = float(there.min()) if temperature is None else temperature
    chains = np.flatnonzero(there == at)
    if len(chains) == 0:
        known = ", ".join(f"{one:g}" for one in np.unique(there))
        raise GlauberError(f"no chain has the temperature {at:g}: the run has {known}.")
    return chains, at


def _check_size(seen: "Visits", neighbours: int) -> None:
    """Says what it will cost, and refuses what does not fit the memory."""
    sites, length = int(seen.free.sum()), seen.states.shape[1]
    rows = len(seen.states) + sites * neighbours
    check_memory(8 * COPIES * rows * length, f"{rows:,} states of {length} tokens")
    asked = sites * (2 + neighbours) if neighbours else sites
    say(f"{len(seen.states)} states, about {asked:,} evaluations of the model")


def _correlation(left: Floats, right: Floats) -> float | None:
    try:
        return rank_correlation(left, right)
    except GlauberError:  # such as all states visited once
        return None


@dataclass(frozen=True, eq=False)
class Visits:
    """States in order of how long chains stayed in them, each once."""

    states: torch.Tensor  # (states, length) int64
    free: torch.Tensor  # (states, length) bool: the sites that were redrawn
    counts: NDArray[np.int64]  # (states,) steps spent there, all chains together
    by_chain: NDArray[np.int64]  # (chains, states) the same for each chain
    n_visited: int  # different states in all, of which these are the most visited
    n_steps: int  # counted in all
    burn_in: int

    def places(self, states: torch.Tensor) -> NDArray[np.int64]:
        """Where these states, which are some of them, stand in the list."""
        known = {row.tobytes(): place for place, row in enumerate(self.states.numpy())}
        return np.array([known[row.tobytes()] for row in states.cpu().numpy()], np.int64)


def visits(
    run: Run,
    *,
    burn_in: int | None = None,
    most: int = 100,
    chains: NDArray[np.int64] | None = None,
) -> Visits:
    """The `most` states in which the chains spent most steps behind the burn-in (default: half).

    Chains that differ in their frozen tokens never share a state; neither do chains whose free
    sites differ, even where their tokens agree. Without `chains` all of them count.
    """
    burn_in = check_burn_in(burn_in, run.steps)
    if most < 2:
        raise GlauberError(f"{most} states were asked for, but a ranking needs at least 2.")
    chains = np.arange(run.n_chains) if chains is None else chains
    frees = [row.tobytes() for row in run.free[chains]]
    each: list[Counter[tuple[bytes, bytes]]] = [Counter() for _ in chains]
    for step, tokens in trajectory(run):
        if step > burn_in:
            for own, row, free in zip(each, tokens[chains], frees, strict=True):
                own[row.tobytes(), free] += 1
    seen = sum(each, Counter[tuple[bytes, bytes]]())
    chosen = sorted(seen, key=lambda state: (-seen[state], state))[:most]
    return Visits(
        states=torch.from_numpy(np.stack([np.frombuffer(x, np.int64) for x, _ in chosen])),
        free=torch.from_numpy(np.stack([np.frombuffer(f, np.bool_) for _, f in chosen])),
        counts=np.array([seen[state] for state in chosen]),
        by_chain=np.array([[own[state] for state in chosen] for own in each]),
        n_visited=len(seen),
        n_steps=(run.steps - burn_in) * len(chains),
        burn_in=burn_in,
    )
