"""Paper A by temperature: figure 2, how long the start is remembered; appendix C.3, the regimes.

The introduction says of figure 2 that the time to forget the initial state undergoes a
temperature-dependent transition, appendix C.3 that it shows the slow regime, in which the distance
from the start grows far more slowly. The figure itself is not in the text that we have. Both are
made: coalescence times of coupled chains, and the distance, over temperature.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from glauber.papers.claims import Claim, Quantity, Region, above, below
from glauber.papers.mixing import TAKES, Conditions, diagram, differs
from glauber.papers.paper import Reproduction
from glauber.papers.semantic_drift import EMBEDDER, embedder_of
from glauber.papers.settings import Chains, Piece, Scale, Settings, embeddings
from glauber.statistics import mean_over_chains

if TYPE_CHECKING:
    from glauber.metastability.regimes import Regime
    from glauber.mixing.phase import Phase
    from glauber.mixing.semantic_drift import Distances
    from glauber.runs.embedding import Embedder
    from glauber.runs.run import Run

COLD, HOT = 0.1, 2.0  # compared in figure 2
TEMPERATURES = (COLD, 0.3, 0.5, 0.7, 1.0, 1.5, HOT, 3.0)  # of figure 2
LENGTH = 12  # of figure 2
REGIMES = {
    0.01: "barely moves",
    0.1: "barely moves",
    1.0: "wanders among basins",
    10.0: "noise",
    100.0: "noise",
}
UNIFORM = 0.9  # of the largest entropy: nearly uniform
CLOSE = 0.2  # a distance from the start that is called close


@dataclass(frozen=True)
class Forgetting(Conditions):
    """The pairs of figure 2, and the chains beside them."""

    embedder: str | None = None  # none: the one in the package
    every: int = 20  # steps between two snapshots


FORGETTING: dict[Scale, Forgetting] = {
    "small": Forgetting("bundled:english", 12, 240, (LENGTH,), TEMPERATURES, thresholds=0),
    "paper": Forgetting(
        "bert-base-uncased", 100, 5000, (LENGTH,), TEMPERATURES, thresholds=0, every=200,
        embedder=EMBEDDER,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """One scale's chains at each of the five temperatures."""

    model: str
    length: int
    chains: int
    steps: int
    embedder: str | None = None
    texts: tuple[str, ...] | None = None


REGIME_SIZES: dict[Scale, Sizes] = {
    "small": Sizes("bundled:english", 12, 6, 600),
    "paper": Sizes("bert-base-uncased", 20, 30, 10_000, EMBEDDER),
}


def figure2(settings: Settings) -> Reproduction:
    """How long the start is remembered at each temperature: by couplings, and by distance."""
    from glauber.figures.mixing import plot_drift_by_temperature, plot_forgetting

    found = settings.over(FORGETTING[settings.scale])
    curves, embedder = _curves(settings, found)
    forgotten, name = diagram(settings, found), embedder.name
    rows = [_forget_row(settings, found, forgotten, t, curves[t], name) for t in found.temperatures]
    how = (
        f"{found.chains} pairs of chains under the maximal coupling, and {found.chains} chains, of "
        f"{found.steps:,} steps each, of {LENGTH} tokens; the chains have the same starts and seed "
        f"at every temperature. {embedder.description}"
    )
    ours = (
        "that figure 2 shows the time to forget is our reading of the introduction; the distance "
        "beside it is that of appendix C.3",
        f"{LENGTH} tokens and these temperatures",
    )
    pictures = {
        "forgetting": plot_forgetting(forgotten),
        "distance": plot_drift_by_temperature(curves),
    }
    return Reproduction.of(
        settings, how, rows, claims=_figure2_claims(found, forgotten, curves), pictures=pictures,
        model=found.model, differs=differs(settings), ours=ours,
    )  # fmt: skip


def figure2_chains(settings: Settings) -> list[Chains]:
    """A run for each temperature, from the same starts."""
    found = settings.over(FORGETTING[settings.scale])
    return [
        Chains(
            found.model, found.texts, steps=found.steps, chains=found.chains, length=LENGTH,
            temperature=temperature, seed=settings.seed,
        )
        for temperature in found.temperatures
    ]  # fmt: skip


def _curves(settings: Settings, found: Forgetting) -> "tuple[dict[float, Distances], Embedder]":
    """The distances over time at each temperature, and what embeds the texts."""
    from glauber.mixing.semantic_drift import distances

    runs = [settings.run(chains) for chains in figure2_chains(settings)]
    embedder = embedder_of(runs[-1], found.embedder)
    every = min(found.every, found.steps)
    curves = {
        t: distances(run, embedder, every=every)
        for t, run in zip(found.temperatures, runs, strict=True)
    }
    return curves, embedder


def _forget_row(
    settings: Settings, found: Forgetting, seen: "Phase", temperature: float, curve: "Distances",
    embedder: str,
) -> dict[str, Any]:  # fmt: skip
    cell = seen.cell(temperature, LENGTH)
    assert cell is not None
    median, end = (
        cell.median,
        mean_over_chains(curve.values[:, -1], bounds=(0.0, 2.0), student=True),
    )
    return {
        "temperature": temperature,
        "pairs that met": f"{sum(cell.met)} of {len(cell.met)}",
        "median step to forget": median.value,
        "interval of it": list(median.interval),
        "distance at the end": end.value,
        "interval": list(end.interval or ()),
        "kind": end.kind,
        "embedder": embedder,
        "published": "a transition with temperature; slower at low ones; no number in our text",
    }


def _figure2_claims(
    found: Forgetting, seen: "Phase", curves: "dict[float, Distances]"
) -> list[Claim]:
    (at,) = seen.crossovers
    cold, hot = (curves[t].values[:, -1] for t in (COLD, HOT))
    slower = mean_over_chains(cold - hot / 2)
    ends = min(found.temperatures), max(found.temperatures)
    return [
        Claim(
            "the time to forget the initial state undergoes a temperature-dependent transition",
            "paper A, introduction (figure 2)", "a transition; its temperature is lost in our text",
            Quantity(
                f"temperature at which half of the pairs of {LENGTH} tokens meet",
                at.temperature, at.interval, n=found.chains, unit="pairs a temperature",
            ),
            Region(*ends), effect=float(np.sqrt(ends[0] * ends[1])),
            ours=("a transition: half of the pairs meet at a temperature within those run",),
        ),
        Claim(
            "at low temperatures the distance from the start grows far more slowly than at high "
            "ones", "paper A, appendix C.3", "far more slowly",
            Quantity(
                f"distance at temperature {COLD:g} less half of that at {HOT:g}, from equal starts",
                slower.value, slower.interval, n=len(cold),
            ),
            below(0.0), effect=-0.1,
            ours=("far: less than half; power for a tenth below that",),
        ),
    ]  # fmt: skip


def regimes(settings: Settings) -> Reproduction:
    """How chains move at each temperature, with the text that one of them ended in."""
    from glauber.figures.metastability import plot_regimes
    from glauber.metastability.regimes import regime

    found = settings.over(REGIME_SIZES[settings.scale])
    runs = dict(zip(REGIMES, map(settings.run, regime_chains(settings)), strict=True))
    embedder = embedder_of(runs[1.0], found.embedder)
    stride = min(50, found.steps)
    seen = [regime(run, embedder, stride=stride) for run in runs.values()]
    far = {t: _distance(run, embedder, stride) for t, run in runs.items()}
    rows = [
        _regime_row(one, far[t], runs[t].text(), published)
        for one, (t, published) in zip(seen, REGIMES.items(), strict=True)
    ]
    how = (
        f"{found.chains} chains of {found.steps:,} steps cut to {found.length} tokens; the same "
        f"starts and seed at every temperature; over the second half. {embedder.description}"
    )
    return Reproduction.of(
        settings, how, rows, claims=_regime_claims(runs, far, _n_tokens(runs[1.0], found.model)),
        pictures={"shares": plot_regimes(seen)}, model=found.model, differs=differs(settings),
        ours=("the distances that the paper gives are lost in our text",),
    )  # fmt: skip


def regime_chains(settings: Settings) -> list[Chains]:
    """A run for each temperature, from the same starts."""
    found = settings.over(REGIME_SIZES[settings.scale])
    return [
        Chains(
            found.model, found.texts, steps=found.steps, chains=found.chains, length=found.length,
            temperature=temperature, seed=settings.seed,
        )
        for temperature in REGIMES
    ]  # fmt: skip


def _distance(run: "Run", embedder: Any, stride: int) -> Any:
    """Each chain's mean distance from its start over the second half, (chains,)."""
    from glauber.mixing.semantic_drift import distances

    values = distances(run, embedder, every=stride).values
    return values[:, values.shape[1] // 2 :].mean(axis=1)


def _regime_claims(runs: "dict[float, Run]", far: dict[float, Any], n_tokens: int) -> list[Claim]:
    source = "paper A, appendix C.3"
    claims = [one for t in (0.01, 0.1) for one in _close_claims(t, far, source)]
    more = mean_over_chains(far[1.0] - far[0.1])
    claims.append(
        Claim(
            "at temperature 1 chains wander among basins", "paper A, section 6.2",
            "they lose their initial identity",
            Quantity(
                "distance from the start at temperature 1 less that at 0.1, from equal starts",
                more.value, more.interval, n=len(far[1.0]),
            ),
            above(0.0), effect=0.1, ours=("power for a difference of 0.1",),
        )
    )  # fmt: skip
    for t in (10.0, 100.0):
        # A mean over many draws at a high temperature: no chain is far from the others.
        entropies = _entropy_share(runs[t], n_tokens)
        share = mean_over_chains(entropies, bounds=(0.0, 1.0), student=True)
        claims.append(
            Claim(
                f"at temperature {t:g} token selection becomes nearly uniform", source, "nonsense",
                Quantity(
                    "entropy of the draws over that of uniform ones", share.value, share.interval,
                    n=runs[t].n_chains,
                ),
                above(UNIFORM), effect=(1 + UNIFORM) / 2,
                ours=(f"nearly: above {UNIFORM:g}",),
            )
        )  # fmt: skip
    return claims


def _close_claims(t: float, far: dict[float, Any], source: str) -> list[Claim]:
    """The paper's number for close is lost, so two readings of it stand beside each other."""
    sentence = f"at temperature {t:g} chains stay close to where they began"
    published = "a cosine distance that is lost in our text"
    itself = mean_over_chains(far[t], bounds=(0.0, 2.0), student=True)
    less = mean_over_chains(far[t] - far[10.0] / 2)
    return [
        Claim(
            sentence, source, published,
            Quantity.of("distance from the start", itself, bounds=(0.0, 2.0)),
            below(CLOSE), effect=CLOSE / 2,
            ours=(f"close: a distance below {CLOSE:g}; power for half of it",),
        ),
        Claim(
            f"{sentence}, set against noise", source, published,
            Quantity.of("distance from the start less half of that of noise (at 10)", less),
            below(0.0), effect=-0.25,
            ours=("close: less than half as far as noise; power for a quarter less",),
        ),
    ]  # fmt: skip


def _entropy_share(run: "Run", n_tokens: int) -> Any:
    """Each chain's mean entropy over the second half, over that of n_tokens alike, (chains,)."""
    entropy, site = (run.read(name, run.steps // 2) for name in ("entropy", "site"))
    return np.nanmean(np.where(site >= 0, entropy, np.nan), axis=(1, 2)) / np.log(n_tokens)


def _n_tokens(run: "Run", model: str) -> int:
    """How many tokens may be drawn at the first free site of the first chain."""
    from glauber.conditionals.load import load

    opened = load(model)
    tokens = torch.from_numpy(run.tokens(0)[:1]).to(opened.state_device)
    site = torch.from_numpy(run.free[:1].argmax(axis=1, keepdims=True)).to(opened.state_device)
    return int(torch.isfinite(opened.conditionals().scores(tokens, site)).sum())


def _regime_row(found: "Regime", far: Any, text: str, published: str) -> dict[str, Any]:
    mean = mean_over_chains(far, bounds=(0.0, 2.0), student=True)
    return {
        "temperature": found.temperature,
        "distance from the start": mean.value,
        "interval": list(mean.interval or ()),
        "steps that change a token": found.changed,
        "start tokens kept": found.kept,
        "entropy, nats": found.entropy,
        "log-probability of draws": found.log_prob,
        "distance per 50 steps": found.pace,
        "steps within a trap": found.stuck,
        "kind": found.kind,
        "chain 0 ends in": text,
        "published": published,
    }


PIECES = {
    "A-fig2": Piece(
        "time to forget the start, and distance from it, by temperature",
        figure2, (*TAKES, "embedder"), needs=figure2_chains, seconds=300,
        extras=embeddings,
    ),
    "A-regimes": Piece(
        "how chains move at temperatures from 0.01 to 100",
        regimes, (*TAKES, "embedder"), needs=regime_chains, extras=embeddings,
    ),
}  # fmt: skip
