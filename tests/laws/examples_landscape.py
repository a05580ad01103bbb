"""Small calls of the studies about what the texts are about."""

import numpy as np

import glauber
from glauber.studies.landscape.scorers import Scorer

LABELS = ("the", "a", "other")


def shares(texts):
    """How much of a text each word is."""
    split = [text.split() for text in texts]
    counts = np.array([[w.count("the"), w.count("a"), 1 + len(w)] for w in split], float)
    return counts / counts.sum(axis=1, keepdims=True)


SCORER = Scorer("shares", LABELS, shares)
EXAMPLES = {
    "topics": lambda at: glauber.topics(at.run, scorer=SCORER, every=10),
    "persistence": lambda at: glauber.persistence(
        at.run, of="topics", scorer=SCORER, every=10
    ),
    "prefixes": lambda at: glauber.prefixes(
        at.model, at.texts, prefixes=["the red cat", "we will be"], words=["cat"], chains=3,
        length=4, steps=8, every=2, scorer=SCORER,
    ),
    "compare": lambda at: glauber.compare(
        [at.model, at.model], at.texts, chains=4, length=5, steps=20, rectangles=4, top=5,
        scorer=SCORER, every=5, shortest=5,
    ),
    "report": lambda at: glauber.report(
        at.run, out=at.folder / "report.html", embedder="tokens", listed=2
    ),
}  # fmt: skip
