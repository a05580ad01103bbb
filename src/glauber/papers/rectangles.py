"""Paper A, section 4: table 1, figures 5 and 6 read one study of rectangles; Eq. 4.1 its own.

The control of table 1 is GPT-2, as in the paper, or the model itself read from left to right where
nothing is asked of the hub. It closes by construction: its row checks the arithmetic alone.
"""

import json
from typing import Any

import numpy as np

from glauber.papers.claims import EXACT, Claim, Quantity, above, at_most, near
from glauber.papers.paper import Reproduction
from glauber.papers.settings import Piece, Scale, Settings, weights
from glauber.statistics import clustered_mean, proportion, rank_correlation

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
ABOVE = "share of passages whose rectangles all lie above the noise floor"
CONTROL = "gpt2"  # of the paper
CLOSES = 1e-6  # nats: what arithmetic may leave of a sum that cancels
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
    closing = _control(settings, names[0])
    rows.append(_control_row(closing))
    claims.append(_control_claim(closing))
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
        arrays = {
            "delta": found.delta,
            "passages": found.rectangles.passages,
            "influence": found.influence,
        }
        summary = {"certified": int(found.certified.value), "count": found.count}
        return {"summary": summary, **arrays, "certified": found.rectangles.certified}

    key = {"model": weights(name), "texts": settings.texts, "seed": settings.seed}
    part: dict[str, Any] = settings.part("rectangles", key, make)
    return part


def _mean(name: str, found: dict[str, Any]) -> Quantity:
    mean = clustered_mean(found["delta"], found["passages"], bounds=(0.0, np.inf))
    return Quantity.of(name, mean, unit="passages", bounds=(0.0, np.inf))


def _rank(name: str, found: dict[str, Any]) -> Quantity:
    if found["influence"] is None:
        return Quantity(name, None, reason="an autoregressive model has no influence here")
    ranked = rank_correlation(found["influence"], found["delta"], chain=found["passages"])
    return Quantity.of(name, ranked, unit="passages", bounds=(-1.0, 1.0))


def _certified(name: str, found: dict[str, Any]) -> Quantity:
    """Passages all of whose rectangles are certified: they count once, however many they have."""
    short = {
        one for one, sure in zip(found["passages"], found["certified"], strict=True) if not sure
    }
    n = len(set(found["passages"]))
    return Quantity.of(name, proportion(n - len(short), n), unit="passages", bounds=(0.0, 1.0))


def _row(name: str, found: dict[str, Any]) -> dict[str, Any]:
    mean, summary = _mean("mean Delta", found), found["summary"]
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


def _control(settings: Settings, name: str) -> dict[str, Any]:
    """A few rectangles of a model that has a joint law."""
    from glauber.compatibility.rectangles import CONTROL_COUNT, LEFT_TO_RIGHT, rectangles

    asked = settings.scale == "paper" and settings.model is None
    control = CONTROL if asked else LEFT_TO_RIGHT

    def make() -> dict[str, Any]:
        found = rectangles(
            name, settings.texts, count=CONTROL_COUNT, length=LENGTH, seed=settings.seed,
            control=control, device=settings.device,
        ).control  # fmt: skip
        assert found is not None
        return vars(found)

    key = {"model": weights(name), "texts": settings.texts, "seed": settings.seed}
    part: dict[str, Any] = settings.part("control", key | {"control": control}, make)
    return part


def _control_row(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": f"control: {found['model']}",
        "mean": found["mean"],
        "kind": "exact up to rounding",
        "certified": found["certified"],
        "count": found["count"],
        "published": 0.0,
    }


def _control_claim(found: dict[str, Any]) -> Claim:
    return Claim(
        "the rectangles of an autoregressive model, which has a joint law, close",
        "paper A, table 1", "GPT-2: 0.000",
        Quantity(f"largest Delta of {found['model']}", found["largest"], kind=EXACT),
        at_most(CLOSES), ours=(found["checks"], f"up to {CLOSES:g} nats counts as closed"),
    )  # fmt: skip


def _claims(name: str, found: dict[str, Any]) -> list[Claim]:
    """That no joint law fits; and the published number, where the model is the paper's."""
    mean, floor = _mean(f"mean Delta of {name}", found), found["summary"]["noise_floor"]
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
    summary, sure = found["summary"], _certified(ABOVE, found)
    row = {"model": name, "median": summary["median"], **summary["quantiles"], "kind": "estimate"}
    row |= {"share above the noise floor": summary["share_certified"], "published": "broad"}
    claim = Claim(
        "incompatibility is the rule and not the exception", "paper A, figure 5", "broad", sure,
        above(0.5), ours=("the rule: all rectangles of more than half of the passages",),
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
    rank = _rank("rank correlation of Delta and influence", found)
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


PROBES: dict[Scale, dict[str, Any]] = {  # of Eq. 4.1
    "small": {
        "model": "bundled:english",
        "count": 16,
        "temperature": 1.0,
        "chains": 8,
        "steps": 800,
    },
    "paper": {
        "model": "bert-base-uncased",
        "count": 100,
        "temperature": 1.0,
        "chains": 16,
        "steps": 4000,
    },
}
FREE = ((2, 8), (3, 4))  # free sites, and tokens of each


def equation_4_1(settings: Settings) -> Reproduction:
    """Single-mask ratios against the stationary ratios of the chain on a few free sites."""
    from plotly.graph_objects import Figure

    sizes = settings.over(PROBES[settings.scale])
    parts = [_probed(settings, sizes, *free) for free in FREE]
    rows = [_probe_row(sizes, part, *free) for part, free in zip(parts, FREE, strict=True)]
    how = (
        f"{sizes['count']} texts of {LENGTH} tokens; a few random sites are free and take the "
        "model's first choices there, the rest is held; the chain on them is enumerated in "
        f"float64, and {sizes['chains']} chains of {sizes['steps']:,} steps are counted beside it; "
        "intervals over texts"
    )
    drawn = [Figure(part["picture"]) for part in parts]
    pictures = {f"{k}-sites": one for one, (k, _) in zip(drawn, FREE, strict=True)}
    held = "the chain is that of the held text: the full chain moves the other sites too"
    return Reproduction.of(
        settings, how, rows, claims=[_probe_claim(*one) for one in zip(parts, FREE, strict=True)],
        pictures=pictures,
        model=sizes["model"], differs=_differs(settings),
        ours=("the paper states the equation and measures nothing", held),
    )  # fmt: skip


def _probed(settings: Settings, sizes: dict[str, Any], sites: int, top: int) -> dict[str, Any]:
    from glauber.compatibility.single_mask import single_mask

    def make() -> dict[str, Any]:
        found = single_mask(
            **sizes, texts=settings.texts, length=LENGTH, sites=sites, top=top,
            seed=settings.seed, device=settings.device,
        )  # fmt: skip
        return found.to_dict() | {"picture": json.loads(found.figure().to_json() or "{}")}

    key = sizes | {"model": weights(sizes["model"]), "texts": settings.texts}
    part: dict[str, Any] = settings.part(
        "single-mask", key | {"sites": sites, "top": top, "seed": settings.seed}, make
    )
    return part


def _probe_row(sizes: dict[str, Any], part: dict[str, Any], sites: int, top: int) -> dict[str, Any]:
    names = {
        "difference": "mean |difference of log-ratios|",
        "total_variation": "total variation",
        "reversed": "share of time with another first choice",
    }
    held, known = part["covered"]
    return {
        "model": sizes["model"],
        "free sites": sites,
        "tokens of each": top,
        **{said: [part[n]["value"], *(part[n]["interval"] or ())] for n, said in names.items()},
        "largest |difference|": part["largest"],
        "texts that differ by more than rounding": part["differing"],
        "intervals of frequencies that hold the exact ratio": f"{held} of {known}",
        "kind": "estimate over texts",
    }


def _probe_claim(part: dict[str, Any], free: tuple[int, int]) -> Claim:
    from glauber.compatibility.single_mask import ROUNDING

    mean = part["difference"]
    interval = None if mean["interval"] is None else (mean["interval"][0], mean["interval"][1])
    return Claim(
        "without compatibility, single-mask probing differs from iterative generation: "
        f"{free[0]} free sites",
        "paper A, Eq. 4.1", "it may differ; no number",
        Quantity(
            "mean |difference of log-ratios|", mean["value"], interval,
            mean["n_chains"], "texts", bounds=(0.0, np.inf), reason=mean["reason"],
            standard_error=mean["standard_error"],
        ),
        above(ROUNDING), effect=0.05,
        ours=("a mean difference of 0.05 nats as the smallest that matters",),
    )  # fmt: skip


PIECES = {
    "A-table1": Piece("mean rectangle incompatibility by model", table_1, TAKES, seconds=65),
    "A-fig5": Piece("distribution of the rectangle incompatibility", figure_5, TAKES, seconds=25),
    "A-fig6": Piece("rectangle incompatibility against influence", figure_6, TAKES, seconds=25),
    "A-eq4.1": Piece(
        "single-mask ratios against the chain's stationary ones", equation_4_1,
        (*TAKES, "temperature", "chains", "steps"), seconds=45,
    ),
}  # fmt: skip
