"""Is a scorer worth trusting? Its answers on labelled texts that it was not calibrated on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glauber.errors import GlauberError
from glauber.landscape.labelled import Labelled, held_out_passages, sentences
from glauber.landscape.topics import Scorer, place_of
from glauber.statistics import Mean, mean_over_chains, share_interval


@dataclass(frozen=True)
class Judgement:
    """Accuracy and log-loss beside those of chance."""

    n_texts: int
    accuracy: float
    interval: tuple[float, float]  # of Clopper and Pearson, 95%
    log_loss: Mean  # mean of -log score of the true label, in nats
    chance: float  # accuracy of guessing, 1 / labels
    chance_log_loss: float  # log of the number of labels
    recall: dict[str, float]  # share found, by label
    kind: str = "estimate"


def judge(scorer: Scorer, texts: Sequence[Labelled] | None = None) -> Judgement:
    """A scorer's figures on labelled texts (default: first sentences of held-out passages)."""
    texts = held_out_sentences(scorer.labels) if texts is None else list(texts)
    if not texts:
        raise GlauberError("no labelled text has one of the scorer's labels, so none can judge it.")
    truth = np.array([place_of(each.label, scorer.labels) for each in texts])
    scores = scorer.score([each.text for each in texts])
    right = scores.argmax(axis=1) == truth
    losses = -np.log(scores[np.arange(len(truth)), truth].clip(min=1e-300))
    recall = {
        label: float(right[truth == number].mean())
        for number, label in enumerate(scorer.labels)
        if (truth == number).any()
    }
    return Judgement(
        n_texts=len(texts),
        accuracy=float(right.mean()),
        interval=share_interval(int(right.sum()), len(right)),
        log_loss=mean_over_chains(losses),
        chance=scorer.baseline,
        chance_log_loss=float(np.log(len(scorer.labels))),
        recall=recall,
    )


def held_out_sentences(labels: Sequence[str]) -> list[Labelled]:
    """The first sentence of each held-out passage with one of the labels."""
    return [
        Labelled(label, sentences(passage)[0])
        for label, passage in held_out_passages()
        if label in labels
    ]
