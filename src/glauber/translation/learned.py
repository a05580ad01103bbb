"""What does a metric that was itself learnt say about translations?

COMET and BLEURT are models with weights of their own, gigabytes that this package does not carry.
Both are used where they are at hand; where they are not, the error says what is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from glauber.errors import GlauberError
from glauber.translation.data import Judged

METRICS = ("comet", "bleurt")
COMET = "Unbabel/wmt22-comet-da"  # what COMET loads where no checkpoint is named


@dataclass(frozen=True)
class Learned:
    """The mean score of a learned metric, on its own scale."""

    metric: str
    weights: str
    score: float
    n_sentences: int
    kind: str = "estimate"


def learned_score(
    outputs: Sequence[str],
    judged: Sequence[Judged],
    *,
    metric: str = "comet",
    weights: str | None = None,
) -> Learned:
    """The metric's mean over the sentences, each against its first reference.

    `weights`: a checkpoint file or a name on the hub (COMET), a checkpoint folder (BLEURT).
    """
    if metric not in METRICS:
        raise GlauberError(f"the learned metric must be one of {', '.join(METRICS)}.")
    scored = _comet if metric == "comet" else _bleurt
    name, scores = scored(outputs, judged, weights)
    return Learned(metric, name, sum(scores) / len(scores), len(scores))


def _comet(
    outputs: Sequence[str], judged: Sequence[Judged], weights: str | None
) -> tuple[str, list[float]]:
    try:
        from comet import download_model, load_from_checkpoint
    except ImportError as missing:
        raise GlauberError(
            "COMET is not at hand: pip install unbabel-comet, and let it load its weights."
        ) from missing
    name = weights or COMET
    try:
        path = name if name.endswith(".ckpt") else download_model(name)
        model = load_from_checkpoint(path)
    except (OSError, KeyError, ValueError) as problem:
        raise GlauberError(f"the weights {name} of COMET are not at hand.") from problem
    rows = [
        {"src": one.source, "mt": output, "ref": one.references[0]}
        for output, one in zip(outputs, judged, strict=True)
    ]
    return name, [float(score) for score in model.predict(rows, gpus=0).scores]


def _bleurt(
    outputs: Sequence[str], judged: Sequence[Judged], weights: str | None
) -> tuple[str, list[float]]:
    try:
        from bleurt.score import BleurtScorer
    except ImportError as missing:
        raise GlauberError(
            "BLEURT is not at hand: install bleurt of google-research and name a checkpoint folder."
        ) from missing
    if weights is None:
        raise GlauberError("BLEURT needs the folder of a checkpoint, such as BLEURT-20.")
    references = [one.references[0] for one in judged]
    scores = BleurtScorer(weights).score(references=references, candidates=list(outputs))
    return weights, [float(score) for score in scores]
