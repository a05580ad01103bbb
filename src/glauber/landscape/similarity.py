"""Which label's descriptions is a text nearest to? The default scorer, which needs no download.

A label is the mean direction of the embeddings of its descriptions. The scores are the softmax of
the cosines to the labels over a temperature, which is the one of highest likelihood on labelled
sentences (`landscape/labelled.py`). A bias for each label was tried and did not help on others.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from glauber.errors import GlauberError
from glauber.landscape.descriptions import DESCRIPTIONS, TOPICS
from glauber.landscape.labelled import Labelled, calibration_passages, sentences
from glauber.landscape.topics import Floats, Scorer, check_labels
from glauber.runs.embedding import Embedder

SHARPEST, SOFTEST = 1e-3, 10.0  # temperatures searched


def similarity_scorer(embedder: Embedder, labels: Sequence[str] = tuple(TOPICS)) -> Scorer:
    """A scorer by similarity to descriptions, with a calibrated temperature.

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
    temperature = calibrated(cosines, truth)
    near = _cosines(embedder, labels)

    def score(texts: Sequence[str]) -> Floats:
        return np.asarray(softmax(near(texts) / temperature, axis=1))

    return Scorer(f"similarity, {embedder.name}, temperature {temperature:.4f}", labels, score)


def calibrated(cosines: Floats, truth: Floats) -> float:
    """The temperature of highest likelihood for cosines (texts, labels) and true places (texts,).

    Labels that no temperature can tell apart would drive it to an end of the range searched.
    """
    rows = np.arange(len(truth))

    def loss(log_temperature: float) -> float:
        scores = log_softmax(cosines / np.exp(log_temperature), axis=1)
        return float(-scores[rows, truth].mean())

    found = minimize_scalar(loss, bounds=(np.log(SHARPEST), np.log(SOFTEST)), method="bounded")
    return float(np.exp(found.x))


def _cosines(embedder: Embedder, labels: Sequence[str]) -> Callable[[Sequence[str]], Floats]:
    """The map from texts to cosines (texts, labels) to the mean directions of the labels."""
    phrases = [DESCRIPTIONS.get(label, (label,)) for label in labels]
    vectors = np.asarray(embedder.embed([one for each in phrases for one in each]), np.float64)
    parts = np.split(vectors, np.cumsum([len(each) for each in phrases])[:-1])
    means = np.stack([part.mean(axis=0) for part in parts])
    norms = np.linalg.norm(means, axis=1, keepdims=True)
    if norms.min() == 0:
        raise GlauberError("the descriptions of a label point in opposite directions.")
    directions = means / norms

    def near(texts: Sequence[str]) -> Floats:
        # A chain may empty a text of all words that can be read; a full stop stands for it then.
        filled = [text if text.strip() else "." for text in texts]
        return np.asarray(np.asarray(embedder.embed(filled), np.float64) @ directions.T)

    return near
