"""What differs between models that get the same starts, seed and budget?

Lengths are counted in each model's own tokens, so texts are the same up to where they are cut.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from glauber.compatibility.entropy_production import EntropyProduction, entropy_production
from glauber.compatibility.rectangle_test import TOP
from glauber.compatibility.rectangles import rectangles as rectangle_study
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.starts import passages
from glauber.errors import GlauberError
from glauber.landscape.topics import Scorer, TopicScores, score_mean, topic_scores
from glauber.runs.run import Run
from glauber.runs.signature import signature
from glauber.sampling.sample import sample
from glauber.statistics import Mean, mean_over_chains

Traps = Callable[[MaskedLM, Run], dict[str, Any]]  # what one run's traps are, in figures


@dataclass(frozen=True, eq=False)
class ModelRow:
    """One model's figures, each with its error."""

    model: str
    rectangles: dict[str, Any]  # mean Delta, its interval, noise floor, share certified
    entropy_production: EntropyProduction
    changed: Mean  # share of a chain's steps that changed a token
    topics: TopicScores
    topics_start: dict[str, Mean]  # mean score of each label, over chains
    topics_end: dict[str, Mean]
    traps: dict[str, Any] | None  # none where nobody looked for them
    texts: list[str]  # where a few chains ended
    signature: str
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """The models side by side."""

    rows: list[ModelRow]
    n_chains: int
    n_steps: int
    kind: str = "estimate"


def compare_models(
    names: Sequence[str],
    scorer: Scorer,
    *,
    texts: Sequence[str] | None = None,
    chains: int = 20,
    length: int = 20,
    steps: int = 200,
    temperature: float = 1.0,
    seed: int = 0,
    rectangles: int = 100,
    top: int = TOP,
    every: int | None = None,
    device: str = "auto",
    traps: Traps | None = None,
    starting: Callable[[str], None] | None = None,
) -> Comparison:
    """Rectangles, entropy production, moves and topics of each model; `traps` fills its column."""
    _check(names, chains)
    rows = []
    for name in names:
        if starting is not None:
            starting(name)
        begun = time.perf_counter()
        model = MaskedLM.load(name, device=device)
        run = sample(
            model, texts, steps=steps, temperature=temperature, seed=seed, chains=chains,
            length=length,
        )  # fmt: skip
        begun_at = [text for _, text in passages()] if texts is None else texts
        found = rectangle_study(
            model, begun_at[:chains], count=rectangles, length=length, top=top, seed=seed
        )
        scores = topic_scores(run, scorer, every=every)
        rows.append(
            ModelRow(
                model=name,
                rectangles=found.summary(),
                entropy_production=entropy_production(run),
                changed=mean_over_chains(
                    run.read("changed").any(axis=2).mean(axis=1), bounds=(0.0, 1.0)
                ),
                topics=scores,
                topics_start=_means(scores, 0),
                topics_end=_means(scores, -1),
                traps=None if traps is None else traps(model, run),
                texts=[run.text(chain) for chain in range(min(3, chains))],
                signature=signature(run.spec),
                seconds=time.perf_counter() - begun,
            )
        )
    return Comparison(rows, chains, steps)


def _means(scores: TopicScores, look: int) -> dict[str, Mean]:
    return {label: score_mean(scores.of(label)[:, look]) for label in scores.labels}


def _check(names: Sequence[str], chains: int) -> None:
    if len(names) < 2 or len(set(names)) < len(names):
        raise GlauberError("a comparison needs at least two models, each of them named once.")
    if chains < 2:
        raise GlauberError("there is one chain only, but a comparison needs several.")
