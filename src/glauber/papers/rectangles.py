"""Paper A on rectangles: table 1, figures 5 and 6. All three read one study of each model."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from glauber.papers.claims import Claim, Quantity, above, near
from glauber.papers.paper import Reproduction
from glauber.papers.settings import Piece, Scale, Settings, weights
from glauber.statistics import Estimate, over_chains

COUNT, LENGTH = 300, 20
# Mean Delta, paper A, table 1.
PUBLISHED = {
    "bert-base-uncased": 0.644,
    "bert-large-uncased": 0.798,
    "roberta-base": 0.705,
    "roberta-large": 0.735,
    "answerdotai/ModernBERT-base": 0.753,
}
MODELS: dict[Scale, tuple[str, ...]] = {"small": ("bundled:english",), "paper": tuple(PUBLISHED)}
ONE: dict[Scale, dict[str, str]] = {  # of the two figures
    "small": {"model": "bundled:english"},
    "paper": {"model": "bert-base-uncased"},
}
MARGIN = 0.1  # of a mean Delta that counts as the published one
HOW = (
    f"{COUNT} random rectangles of {LENGTH}-token passages, replacements from the model's own top "
    "50; intervals over passages"
)
TAKES = ("model", "texts", "device")


def table_1(settings: Settings) -> Reproduction:
    """Mean rectangle incompatibility: the bundled model, or the paper's five masked LMs."""
    names = [settings.model] if settings.model else MODELS[settings.scale]
    found = {name: measured(name, settings) for name in names}
    rows = [_row(name, one) for name, one in found.items()]
    claims = [claim for name, one in found.items() for claim in _claims(name, one)]
    return Reproduction.of(
        settings, HOW, rows, claims=claims, model=", ".join(names), differs=_differs(settings)
    )


def measured(name: str, settings: Settings) -> dict[str, Any]:
    """Rectangles in float32 with the noise floor against float64, as a part that pieces share."""
    from glauber.compatibility.rectangles import rectangles

    def make() -> dict[str, Any]:
        found = rectangles(
            name, settings.texts, count=COUNT, length=LENGTH, seed=settings.seed,
            device=settings.device,
        )  # fmt: skip
        arrays = {"delta": found.delta, "passages": found.passages, "influence": found.influence}
        return {"summary": found.summary(), **arrays, "certified": found.certified}

    key = {"model": weights(name), "texts": settings.texts, "seed": settings.seed}
    part: dict[str, Any] = settings.part("rectangles", key, make)
    return part


def estimated(found: dict[str, Any]) -> Estimate:
    """Mean Delta, certified share and rank correlation with the influence, over passages."""
    from scipy.stats import spearmanr

    delta, certified = np.array(found["delta"]), np.array(found["certified"])
    influence = None if found["influence"] is None else np.array(found["influence"])
    _, passage = np.unique(found["passages"], return_inverse=True)

    def figures(counts: NDArray[np.float64]) -> NDArray[np.float64]:
        chosen = np.repeat(np.arange(len(delta)), counts[passage].astype(int))
        rank = np.nan if influence is None else spearmanr(influence[chosen], delta[chosen])[0]
        return np.array([delta[chosen].mean(), certified[chosen].mean(), rank])

    return over_chains(figures, int(passage.max()) + 1)


def _quantity(found: dict[str, Any], name: str, place: int) -> Quantity:
    """One of the three figures, with the interval over passages."""
    all_three = estimated(found)
    value = float(all_three.value[place])
    interval = None
    if all_three.low is not None and all_three.high is not None:
        interval = float(all_three.low[place]), float(all_three.high[place])
    return Quantity(name, value, interval, n=len(set(found["passages"])), unit="passages")


def _row(name: str, found: dict[str, Any]) -> dict[str, Any]:
    mean, summary = _quantity(found, "mean Delta", 0), found["summary"]
    return {
        "model": name,
        "mean": mean.value,
        "interval": mean.interval,
        "kind": mean.kind,
        "certified": summary["certified"],
        "count": summary["count"],
        "published": PUBLISHED.get(name),
        "published, BERT-base": PUBLISHED["bert-base-uncased"],
    }


def _claims(name: str, found: dict[str, Any]) -> list[Claim]:
    """That no joint law fits; and the published number, where the model is the paper's."""
    mean, floor = _quantity(found, f"mean Delta of {name}", 0), found["summary"]["noise_floor"]
    claims = [
        Claim(
            "the conditionals of masked language models are incompatible with any joint law",
            "paper A, table 1", "mean Delta from 0.644 to 0.798 over five models", mean,
            above(floor), effect=min(PUBLISHED.values()),
        )
    ]  # fmt: skip
    if (published := PUBLISHED.get(name)) is not None:
        own = f"within {MARGIN:g} counts as the same: the paper gives no error"
        claims.append(
            Claim(
                f"the mean Delta of {name} is {published}", "paper A, table 1", published, mean,
                near(published, MARGIN), ours=(own,),
            )
        )  # fmt: skip
    return claims


def _differs(settings: Settings) -> list[str]:
    texts = "texts of one's own" if settings.texts else "the bundled passages"
    differs = [f"{texts} in place of MS MARCO"]
    if settings.scale == "small" or settings.model:
        differs.append("another model than the paper's")
    return differs


def figure_5(settings: Settings) -> Reproduction:
    """The incompatibility is broad, the rule and not the exception: the histogram of Delta."""
    from glauber.figures.compatibility import plot_deltas

    name = settings.over(ONE[settings.scale])["model"]
    found = measured(name, settings)
    summary, share = found["summary"], _quantity(found, "share above the noise floor", 1)
    row = {"model": name, "median": summary["median"], **summary["quantiles"], "kind": "estimate"}
    row |= {"share above the noise floor": share.value, "published": "broad"}
    claim = Claim(
        "incompatibility is the rule and not the exception", "paper A, figure 5", "broad", share,
        above(0.5), ours=("the rule: more than half of the rectangles",),
    )  # fmt: skip
    pictures = {"histogram": plot_deltas(np.array(found["delta"]), summary["noise_floor"])}
    return Reproduction.of(
        settings, HOW, [row], claims=[claim], pictures=pictures, model=name,
        differs=_differs(settings),
    )  # fmt: skip


def figure_6(settings: Settings) -> Reproduction:
    """The incompatibility grows with the influence between the two sites."""
    from glauber.figures.compatibility import plot_delta_against_influence

    name = settings.over(ONE[settings.scale])["model"]
    found = measured(name, settings)
    rank = _quantity(found, "rank correlation of Delta and influence", 2)
    row = {"model": name, "rank correlation": rank.value, "interval": rank.interval}
    row |= {"kind": rank.kind, "published": "it grows"}
    claim = Claim(
        "Delta grows with the influence between the two sites", "paper A, figure 6", "it grows",
        rank, above(0.0), effect=0.3, ours=("power for a rank correlation of 0.3",),
    )  # fmt: skip
    drawn = plot_delta_against_influence(np.array(found["influence"]), np.array(found["delta"]))
    return Reproduction.of(
        settings, HOW, [row], claims=[claim], pictures={"influence": drawn}, model=name,
        differs=_differs(settings),
    )  # fmt: skip


PIECES = {
    "A-table1": Piece("mean rectangle incompatibility by model", table_1, TAKES),
    "A-fig5": Piece("distribution of the rectangle incompatibility", figure_5, TAKES),
    "A-fig6": Piece("rectangle incompatibility against influence", figure_6, TAKES),
}
