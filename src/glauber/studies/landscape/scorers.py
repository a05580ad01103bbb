"""Scores of labels for texts, by similarity to descriptions, by entailment or by a classifier.

A scorer spreads one unit of belief over a list of labels: its scores say which of them a text is
about, supposing that it is about one of them. They do not say whether it is about any.

By similarity, a label is the mean direction of the embeddings of its descriptions. The scores are
the softmax of the cosines to the labels over a temperature, the one of highest likelihood on
labelled sentences (`studies/landscape/labels.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from scipy.stats import spearmanr

from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import track
from glauber.foundation.statistics import Estimate, clopper_pearson, mean_over_chains
from glauber.runs.embedding import (
    Choice,
    Embedder,
    as_embedder,
    check_embedder,
    choose_embedder,
    not_english,
)
from glauber.runs.snapshots import Snapshots
from glauber.studies.landscape.entailment import (
    ABOUT,
    FEELING,
    class_names,
    class_scores,
    entailment_scores,
)
from glauber.studies.landscape.labels import (
    DESCRIPTIONS,
    SENTIMENTS,
    TOPICS,
    Labelled,
    calibration_passages,
    held_out_passages,
    sentences,
)

Floats = NDArray[np.float64]
SIMILARITY = "similarity"
NO_TOPICS = "leave topics out by giving tokens as the embedder"
BLOCK = 512  # texts scored between two reports of progress
SHARPEST, SOFTEST = 1e-3, 10.0  # temperatures searched
BUNDLED = {"topics": tuple(TOPICS), "sentiments": tuple(SENTIMENTS)}


@dataclass(frozen=True)
class Scorer:
    """A named map from texts to scores over labels."""

    name: str
    labels: tuple[str, ...]
    score: Callable[[Sequence[str]], Floats]  # n texts -> (n, labels), rows that sum to one

    @property
    def baseline(self) -> float:
        """The score of each label for a scorer that knows nothing."""
        return 1 / len(self.labels)


@dataclass(frozen=True, eq=False)
class TopicScores:
    """The scores of each chain's text at each snapshot."""

    steps: NDArray[np.int64]  # (snapshots,): 0, every, 2 every, …
    values: Floats  # (chains, snapshots, labels), the last axis sums to one
    labels: tuple[str, ...]
    scorer: str
    every: int

    @property
    def baseline(self) -> float:
        return 1 / len(self.labels)

    def of(self, label: str) -> Floats:
        """The scores (chains, snapshots) of one label."""
        return np.asarray(self.values[:, :, place_of(label, self.labels)])


def topic_scores(sample: Snapshots, scorer: Scorer) -> TopicScores:
    """The scores along the snapshots of a run, each different text scored once."""
    once = {text: i for i, text in enumerate(dict.fromkeys(t for row in sample.texts for t in row))}
    texts, batches = list(once), []
    with track("texts scored", len(texts)) as advance:
        for first in range(0, len(texts), BLOCK):
            batches.append(np.asarray(scorer.score(texts[first : first + BLOCK]), np.float64))
            advance(len(batches[-1]))
    scores = np.concatenate(batches)
    values = np.stack([scores[[once[text] for text in row]] for row in sample.texts])
    return TopicScores(sample.steps, values, scorer.labels, scorer.name, sample.every)


def read_labels(labels: str | Sequence[str]) -> tuple[str, ...]:
    """Labels from a list, from a text with commas, or `topics` and `sentiments`."""
    if isinstance(labels, str):
        labels = BUNDLED.get(labels) or labels.split(",")
    return check_labels(labels)


def check_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels without spaces around them; refuses fewer than two, empty ones and repeats."""
    names = tuple(label.strip() for label in labels)
    if len(names) < 2:
        raise GlauberError("a list of labels needs at least two, or every score would be one.")
    if not all(names) or len(set(names)) < len(names):
        raise GlauberError(f"a label is empty or given twice in {', '.join(names)}.")
    return names


def place_of(label: str, labels: Sequence[str]) -> int:
    """Where a label stands in the list."""
    if label not in labels:
        raise GlauberError(f"{label} is not among the labels: {', '.join(labels)}.")
    return list(labels).index(label)


def labels_of(scorer: str | Scorer, labels: Sequence[str]) -> tuple[str, ...]:
    """The labels that a scorer has scores of: of an object and of a classifier they are its own.

    A classifier has its classes, or those of them that are listed.
    """
    if isinstance(scorer, Scorer):
        return scorer.labels
    classes = None if scorer == SIMILARITY else class_names(scorer)
    if classes is None:
        return check_labels(labels)
    if tuple(labels) == tuple(TOPICS):
        return check_labels(classes)
    for label in labels:
        if label not in classes:
            raise GlauberError(
                f"{scorer} is not an entailment model: its classes are {', '.join(classes)}, and "
                f"{label} is none of them."
            )
    return check_labels(labels)


def scorer_for(
    sample: Snapshots,
    scorer: str | Scorer = SIMILARITY,
    labels: Sequence[str] = tuple(TOPICS),
    *,
    embedder: Choice = None,
    hypothesis: str | None = None,
    device: str = "auto",
) -> Scorer:
    """The scorer of that name for these texts; refused where its embedding cannot read them.

    A scorer that is given as an object, or a classifier by name, is taken as it is.
    """
    if scorer != SIMILARITY:
        return load_scorer(scorer, labels, hypothesis=hypothesis, device=device)
    chosen = choose_embedder(sample, embedder, device=device)
    if not chosen.reads_meaning:
        raise GlauberError(_unread(chosen.why))
    return similarity_scorer(chosen, labels)


def check_hypothesis(hypothesis: str | None, scorers: Sequence[str | Scorer]) -> None:
    """Refuses a hypothesis that no scorer reads."""
    if hypothesis is not None and all(
        isinstance(scorer, Scorer) or scorer == SIMILARITY for scorer in scorers
    ):
        raise GlauberError("a hypothesis is for an entailment model: give its name as the scorer.")


def check_scorer(scorer: str | Scorer, embedder: Choice, *, otherwise: str) -> None:
    """Says what scoring texts lacks, before anything is loaded or computed for it."""
    if isinstance(scorer, str) and scorer == SIMILARITY:
        check_embedder(embedder, otherwise=otherwise)


def refuse_other_languages(sample: Snapshots) -> None:
    """Refuses texts that the default embedding surely does not read, before it is loaded."""
    if why := not_english(sample):
        raise GlauberError(_unread(why))


def _unread(why: str) -> str:
    because = f" ({why})" if why else ""
    return (
        f"topics are read by a sentence embedding, and there is none for these texts{because}: "
        "give a scorer or an embedder that reads them."
    )


def load_scorer(
    scorer: str | Scorer = SIMILARITY,
    labels: Sequence[str] = tuple(TOPICS),
    *,
    embedder: Choice = None,
    hypothesis: str | None = None,
    device: str = "auto",
) -> Scorer:
    """`similarity` (with an embedding model of choice), or a classifier by name or folder.

    An entailment model is asked for labels by its hypothesis; labels that are all sentiments are by
    default asked for as sentiments. Any other classifier scores its own classes.
    """
    if isinstance(scorer, Scorer):
        return scorer
    labels = check_labels(labels)
    if scorer == SIMILARITY:
        return similarity_scorer(as_embedder(embedder, device), labels)
    if class_names(scorer) is not None:
        if hypothesis is not None:
            raise GlauberError(f"{scorer} is not an entailment model: it takes no hypothesis.")
        labels = labels_of(scorer, labels)
        return Scorer(f"classes, {scorer}", labels, class_scores(scorer, labels, device=device))
    hypothesis = hypothesis or (FEELING if set(labels) <= set(SENTIMENTS) else ABOUT)
    score = entailment_scores(scorer, labels, device=device, hypothesis=hypothesis)
    asked = hypothesis.replace("{}", "LABEL")
    return Scorer(f'entailment, {scorer}, "{asked}"', labels, score)


def similarity_scorer(embedder: Embedder, labels: Sequence[str] = tuple(TOPICS)) -> Scorer:
    """A scorer by similarity to descriptions, with a fitted temperature.

    A label without a bundled description stands for itself. Such labels have no labelled texts
    either, so the temperature comes from the bundled ones in the list, or from all topics where
    the list has fewer than two of those.
    """
    labels = check_labels(labels)
    known = [label for label in labels if label in DESCRIPTIONS]
    family = known if len(known) > 1 else list(TOPICS)
    texts = [
        Labelled(label, sentence)
        for label, passage in calibration_passages()
        if label in family
        for sentence in sentences(passage)
    ]
    truth = np.array([family.index(each.label) for each in texts])
    cosines = _cosines(embedder, family)([each.text for each in texts])
    temperature = fit_temperature(cosines, truth)
    near = _cosines(embedder, labels)

    def score(texts: Sequence[str]) -> Floats:
        return np.asarray(softmax(near(texts) / temperature, axis=1))

    return Scorer(f"similarity, {embedder.name}, temperature {temperature:.4f}", labels, score)


def fit_temperature(cosines: Floats, truth: Floats) -> float:
    """The temperature of highest likelihood for cosines (texts, labels) and true places (texts,).

    Labels that no temperature can tell apart would drive it to an end of the range searched.
    """
    rows = np.arange(len(truth))

    def loss(log_temperature: float) -> float:
        scores = log_softmax(cosines / np.exp(log_temperature), axis=1)
        return float(-scores[rows, truth].mean())

    optimum = minimize_scalar(loss, bounds=(np.log(SHARPEST), np.log(SOFTEST)), method="bounded")
    return float(np.exp(optimum.x))


def _cosines(embedder: Embedder, labels: Sequence[str]) -> Callable[[Sequence[str]], Floats]:
    """The map from texts to cosines (texts, labels) to the mean directions of the labels."""
    phrases = [DESCRIPTIONS.get(label, (label,)) for label in labels]
    vectors = np.asarray(
        embedder.embed([phrase for listed in phrases for phrase in listed]), np.float64
    )
    groups = np.split(vectors, np.cumsum([len(each) for each in phrases])[:-1])
    means = np.stack([part.mean(axis=0) for part in groups])
    norms = np.linalg.norm(means, axis=1, keepdims=True)
    if norms.min() == 0:
        raise GlauberError("the descriptions of a label point in opposite directions.")
    directions = means / norms

    def near(texts: Sequence[str]) -> Floats:
        # A chain may empty a text of all words that can be read; a full stop stands for it then.
        filled = [text if text.strip() else "." for text in texts]
        return np.asarray(np.asarray(embedder.embed(filled), np.float64) @ directions.T)

    return near


@dataclass(frozen=True)
class ScorerAccuracy:
    """Accuracy and log-loss of a scorer on labelled texts, next to those of chance."""

    scorer: str
    n_texts: int
    accuracy: float
    interval: tuple[float, float]  # of Clopper and Pearson, 95%
    log_loss: Estimate  # mean of -log score of the true label, in nats
    chance: float  # accuracy of guessing, 1 / labels
    chance_log_loss: float  # log of the number of labels
    recall: dict[str, float]  # share found, by label
    above_elsewhere: dict[str, float]  # share of texts about something else that score above 1/n
    kind: str = "estimate"

    def line(self) -> str:
        low, high = self.interval
        return (
            f"on {self.n_texts} labelled sentences that were not used to fit it: accuracy "
            f"{self.accuracy:.3f} (estimate, 95% interval {low:.3f} to {high:.3f}; chance "
            f"{self.chance:.3f}), log-loss {self.log_loss.value:.3f} (chance "
            f"{self.chance_log_loss:.3f}); a sentence about something else scores above the "
            f"baseline of a label in {np.mean(list(self.above_elsewhere.values())):.1%} of cases"
        )


def evaluate_scorer(scorer: Scorer, texts: Sequence[Labelled] | None = None) -> ScorerAccuracy:
    """Accuracy of a scorer on labelled texts (default: first sentences of held-out passages)."""
    texts = held_out_sentences(scorer.labels) if texts is None else list(texts)
    if not texts:
        raise GlauberError(
            "no labelled text has one of the scorer's labels, so it cannot be evaluated."
        )
    truth = np.array([place_of(each.label, scorer.labels) for each in texts])
    scores = scorer.score([each.text for each in texts])
    right = scores.argmax(axis=1) == truth
    losses = -np.log(scores[np.arange(len(truth)), truth].clip(min=1e-300))
    recall = {
        label: float(right[truth == number].mean())
        for number, label in enumerate(scorer.labels)
        if (truth == number).any()
    }
    return ScorerAccuracy(
        scorer=scorer.name,
        n_texts=len(texts),
        accuracy=float(right.mean()),
        interval=clopper_pearson(int(right.sum()), len(right)),
        log_loss=mean_over_chains(losses),
        chance=scorer.baseline,
        chance_log_loss=float(np.log(len(scorer.labels))),
        recall=recall,
        above_elsewhere={
            label: float((scores[truth != number, number] > scorer.baseline).mean())
            for number, label in enumerate(scorer.labels)
            if (truth != number).any()
        },
    )


def held_out_sentences(labels: Sequence[str]) -> list[Labelled]:
    """The first sentence of each held-out passage with one of the labels."""
    return [
        Labelled(label, sentences(passage)[0])
        for label, passage in held_out_passages()
        if label in labels
    ]


@dataclass(frozen=True)
class Agreement:
    """Two scorers on the same texts."""

    scorers: tuple[str, str]
    same_label: float  # share of texts with the same highest label
    rank_correlation: float | None  # Spearman's, of the tracked scores; none where one is constant
    kind: str = "estimate"


def agreement(first: TopicScores, second: TopicScores, track: str) -> Agreement:
    """How far two scorers say the same of a run."""
    if first.labels != second.labels or not np.array_equal(first.steps, second.steps):
        raise GlauberError("two scorers can be compared on the same labels and snapshots only.")
    same = first.values.argmax(axis=2) == second.values.argmax(axis=2)
    first_scores, second_scores = first.of(track).ravel(), second.of(track).ravel()
    constant = np.ptp(first_scores) == 0 or np.ptp(second_scores) == 0
    rank = None if constant else float(spearmanr(first_scores, second_scores).statistic)
    return Agreement((first.scorer, second.scorer), float(same.mean()), rank)
