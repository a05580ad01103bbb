"""Paper A, table 2: does the number of '!' grow at the boundary of its basin?

The text of the paper that we have lost the table's two temperatures and its k, so these are ours,
and the published figures, which stand beside them, are not to be matched.
"""

from typing import Any

from glauber.metastability.traps import PUBLISHED
from glauber.papers.claims import UPPER, Claim, Quantity, above, at_least
from glauber.papers.paper import Reproduction
from glauber.papers.settings import Piece, Scale, Settings, weights
from glauber.statistics import proportion

MODELS: dict[Scale, str] = {"small": "bundled:english", "paper": "bert-base-uncased"}
TEMPERATURES = (0.5, 1.0)  # of table 2
BOUNDARY = ((0.042, 0.080), (0.024, 0.066))  # min and median, 200 of 200 positive
LENGTH, COUNT, LEVELS, SAMPLES = 20, 14, 2, 200
DRIFT = (
    f"{SAMPLES} states of {LENGTH} tokens with exactly k = {COUNT} to {COUNT + LEVELS} "
    "copies of '!' at random places, the others from passages; the temperatures and k are ours, "
    "because the paper's are lost, so the published figures are not to be matched"
)
OURS_DRIFT = (
    f"temperatures {TEMPERATURES[0]:g} and {TEMPERATURES[1]:g}: the paper's are lost",
    f"k = {COUNT} of {LENGTH} tokens: the paper's is lost",
)
NEARLY_ALL = 0.95  # share of the states that counts as all of them


def table_2(settings: Settings) -> Reproduction:
    """Boundary statistic and certificate at two temperatures."""
    model = settings.model or MODELS[settings.scale]
    found = [_drift(settings, model, temperature) for temperature in TEMPERATURES]
    rows = [_drift_row(one, own, model) for one, own in zip(found, BOUNDARY, strict=True)]
    claims = [
        claim
        for one, own in zip(found, BOUNDARY, strict=True)
        for claim in _drift_claims(one, own)
    ]  # fmt: skip
    texts = "the bundled passages" if settings.texts is None else "texts of your own"
    differs = [f"the other sites from {texts}"]
    if model != PUBLISHED["model"]:
        differs.append(f"{model} in place of BERT-base")
    return Reproduction.of(
        settings, DRIFT, rows, claims=claims, model=model, differs=differs, ours=OURS_DRIFT
    )


def _drift(settings: Settings, model: str, temperature: float) -> dict[str, Any]:
    from glauber.metastability.drift import drift

    def make() -> dict[str, Any]:
        return drift(
            model, settings.texts, token="!", count=COUNT, levels=LEVELS, samples=SAMPLES,
            length=LENGTH, temperature=temperature, seed=settings.seed, device=settings.device,
        ).to_dict()  # fmt: skip

    key = {
        "model": weights(model), "texts": settings.texts, "temperature": temperature,
        "seed": settings.seed, "sizes": [COUNT, LEVELS, SAMPLES, LENGTH],
    }  # fmt: skip
    part: dict[str, Any] = settings.part("drift", key, make)
    return part


def _drift_row(found: dict[str, Any], published: tuple[float, float], model: str) -> dict[str, Any]:
    edge = found["levels"][0]
    return {
        "model": model,
        "temperature, ours": found["temperature"],
        "min": edge["smallest"],
        "median": edge["median"],
        "positive": f"{edge['positive']} of {found['samples']}",
        "published min, median at a temperature that is lost": list(published),
        "published positive": "200 of 200",
        "chance to descend": found["descent"],
        "kind": found["kind"],
    }


def _drift_claims(found: dict[str, Any], published: tuple[float, float]) -> list[Claim]:
    """That the boundary drifts inwards; and what a certificate needs: every level does."""
    edge, at = found["levels"][0], f"temperature {found['temperature']:g}"
    positive = proportion(edge["positive"], found["samples"])
    lowest = min(level["smallest"] for level in found["levels"])
    own = (*OURS_DRIFT, f"at least {NEARLY_ALL:.0%} of the states counts as all")
    source = "paper A, section 5.4 and table 2"
    return [
        Claim(
            f"all 200 sampled boundary states of the '!' basin have a positive drift ({at})",
            source, f"200 of 200 (min {published[0]}, median {published[1]})",
            Quantity.of(f"share of boundary states with a positive drift at {at}", positive,
                        unit="states", bounds=(0.0, 1.0)),
            at_least(NEARLY_ALL), effect=1.0, ours=own,
        ),
        Claim(
            f"positive drift at the boundary certifies slow mixing of the '!' basin ({at})",
            source, "certified from 200 states of the boundary",
            Quantity(f"smallest drift at any state of k to k + {LEVELS} at {at}", lowest,
                     kind=UPPER, n=found["samples"] * len(found["levels"]), unit="states"),
            above(0.0),
            ours=(*OURS_DRIFT, "a certificate needs a positive drift at every state of each level, "
                  "and samples bound the smallest only from above"),
        ),
    ]  # fmt: skip


PIECES = {
    "A-table2": Piece(
        "drift of the copies of '!' at the boundary of its basin",
        table_2,
        takes=("model", "texts", "device"),
        seconds=160,
    ),
}
