"""Paper B's question on language: what do the masks of training do to a masked LM?

The theorems speak of laws that the model class holds and of minimisers of the loss. Here small
networks differ in their training masks alone (`recipes/mask_rates.py`): each seed has the same
first weights and the same rows in the same order for every kind of mask. They were trained and
measured once on a GPU; their figures are in the package, and this piece reads them.
"""

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from glauber.conditionals.weights import PACKAGE
from glauber.json_text import parse_json
from glauber.papers.claims import Claim, Quantity, below
from glauber.papers.paper import Reproduction
from glauber.papers.settings import Piece, Settings
from glauber.statistics import Estimate, mean_over_chains

if TYPE_CHECKING:
    import plotly.graph_objects as go

LADDER = ("one token", "15%", "30%", "50%", "80%")  # from smaller masks to larger ones
USUAL = "30%"  # the others are compared with it
SHARES = {"1 token": "1 token", "0.15": "15%", "0.3": "30%", "0.5": "50%", "0.8": "80%"}
SWEEPS = ("1.5", "2")  # temperatures at which every pair met


def masks_on_language(settings: Settings) -> Reproduction:
    """Quality, incompatibility and speed of mixing by the masks of training."""
    found = _record()["models"]
    kinds = list(dict.fromkeys(one["masks"] for one in found))
    by = {kind: [one for one in found if one["masks"] == kind] for kind in kinds}
    rows = [_row(kind, by) for kind in kinds]
    return Reproduction.of(
        settings,
        _how(),
        rows,
        claims=_claims(by),
        pictures={"nll": _figure(by)},
        model="31 masked LMs of 4 layers of 256, trained for this",
        differs=[
            "text and a network in place of a law that the model class holds; trained for 1,600 "
            "steps, far from the least loss, so speed of learning counts as well"
        ],
        ours=["the shares of the masks, sizes and training", "30% as what others are set beside"],
    )


@lru_cache(maxsize=1)
def _record() -> dict[str, Any]:
    path = PACKAGE / "data" / "mask-rates.json"
    record: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
    return record


def _how() -> str:
    how = _record()["how"]
    return (
        f"masked LMs of {how['layers']} layers of {how['width']} and {how['vocabulary']:,} tokens, "
        f"{how['steps']:,} steps of {how['rows']} rows of {how['length']}, the same rows and first "
        "weights for every kind of mask; nll in nats on held-out text; rectangles of 20 tokens; "
        f"coupled chains of {how['tokens_of_a_chain']} tokens; means over training seeds"
    )


def _row(kind: str, by: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    models = by[kind]
    row: dict[str, Any] = {"masks of training": kind, "seeds": len(models)}
    for share, shown in SHARES.items():
        row[f"nll, {shown} hidden"] = float(np.mean([one["nll"][share] for one in models]))
    row["nll of half a row, token by token"] = _shown(_mean([one["filled"] for one in models]))
    if kind != USUAL:
        row[f"less that of {USUAL}"] = _shown(_less(by, kind, USUAL, comparisons=len(by) - 1))
    row["mean Delta"] = _shown(_mean([one["delta"] for one in models], bounds=(0.0, np.inf)))
    for temperature in SWEEPS:
        medians = [_median_sweeps(one, temperature) for one in models]
        row[f"median sweeps to meet, temperature {temperature}"] = _shown(
            _mean(medians, bounds=(0.0, np.inf))
        )
    return row | {"met at temperature 1": _met(models), "kind": "estimate"}


def _claims(by: dict[str, list[dict[str, Any]]]) -> list[Claim]:
    """Each step up the ladder of shares: is the larger mask better?"""
    return [
        Claim(
            f"larger masks estimate better: {larger} of a row beside {smaller}",
            "paper B, Theorem 1",
            "never worse, at equal data",
            Quantity.of(
                f"nll of half a row filled token by token, {larger} less {smaller}",
                _less(by, larger, smaller),
                unit="training seeds",
            ),
            below(0.0),
            effect=-0.1,
        )
        for smaller, larger in pairwise(LADDER)
    ]


def _less(
    by: dict[str, list[dict[str, Any]]], kind: str, other: str, *, comparisons: int = 1
) -> Estimate:
    """The difference in nll over seeds that both have, which share rows and first weights."""
    beside = {one["seed"]: one["filled"] for one in by[other]}
    apart = [one["filled"] - beside[one["seed"]] for one in by[kind] if one["seed"] in beside]
    return mean_over_chains(apart, comparisons=comparisons)


def _mean(values: list[float], bounds: tuple[float, float] | None = None) -> Estimate:
    return mean_over_chains(values, bounds=bounds)


def _shown(found: Estimate) -> list[float]:
    """The mean and the ends of its interval, where it has one."""
    return [found.value, *(found.interval or ())]


def _median_sweeps(model: dict[str, Any], temperature: str) -> float:
    """Of pairs that all met, so that nothing is censored."""
    return float(np.median(model["meeting_steps"][temperature])) / 16


def _met(models: list[dict[str, Any]]) -> str:
    times = [time for one in models for time in one["meeting_steps"]["1"]]
    return f"{sum(time is not None for time in times)} of {len(times)} pairs"


def _figure(by: dict[str, list[dict[str, Any]]]) -> "go.Figure":
    from glauber.figures.generation import plot_mask_rates

    means = {
        kind: [float(np.mean([one["nll"][share] for one in models])) for share in SHARES]
        for kind, models in by.items()
    }
    return plot_mask_rates(list(SHARES.values()), means)


PIECES = {
    "B-masks": Piece(
        "masked LMs by the masks of their training: quality, rectangles, coupled chains",
        masks_on_language,
        seconds=2,
    ),
}
