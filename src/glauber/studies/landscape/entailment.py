"""Scores of labels by a text classifier: zero-shot by entailment, or its own classes.

Zero-shot asks whether the text entails "This text is about politics."; the entailment logits of all
labels go through one softmax, as the paper's classifier does. Any other classifier, such as one of
sentiment, scores its classes by one softmax over their logits.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from glauber.foundation.errors import GlauberError
from glauber.models.shelf import is_folder
from glauber.models.weights import choose_device, reachable

Floats = NDArray[np.float64]
ABOUT = "This text is about {}."
FEELING = "The sentiment of this text is {}."
EXAMPLE = "This example is {}."  # of the zero-shot pipeline of transformers
PAIRS = 32  # of text and label, or texts, in one call


def entailment_scores(
    name: str, labels: Sequence[str], *, device: str = "auto", hypothesis: str = ABOUT
) -> Callable[[Sequence[str]], Floats]:
    """A map from texts to scores (texts, labels), by a model that was trained on entailment."""
    if "{}" not in hypothesis:
        raise GlauberError(f"the hypothesis {hypothesis!r} has no {{}} to put a label into.")
    tokenizer, model = _load(name, str(choose_device(device)))
    column = _entailment(name, model.config.label2id)

    def score(once: Sequence[str]) -> Floats:
        pairs = [(text, hypothesis.replace("{}", label)) for text in once for label in labels]
        logits = np.concatenate([_logits(tokenizer, model, part) for part in _parts(pairs)])
        return np.asarray(softmax(logits[:, column].reshape(len(once), len(labels)), axis=1))

    return _each_once(score)


def class_scores(
    name: str, labels: Sequence[str], *, device: str = "auto"
) -> Callable[[Sequence[str]], Floats]:
    """A map from texts to scores (texts, labels), by a classifier that has the labels as classes.

    Of some of its classes only, the softmax is over those.
    """
    tokenizer, model = _load(name, str(choose_device(device)))
    numbers = [_spellings(model.config.label2id).index(label) for label in labels]

    def score(once: Sequence[str]) -> Floats:
        logits = np.concatenate([_logits(tokenizer, model, part) for part in _parts(list(once))])
        return np.asarray(softmax(logits[:, numbers], axis=1))

    return _each_once(score)


def class_names(name: str) -> tuple[str, ...] | None:
    """The classes of a classifier in lower case; None of an entailment model, and of no model."""
    from transformers import AutoConfig

    if not reachable(name):
        return None
    try:
        config = AutoConfig.from_pretrained(
            name, local_files_only=is_folder(name), trust_remote_code=False
        )
    except Exception:  # reported when the model is loaded
        return None
    if not config.label2id or _entailment_classes(config.label2id):
        return None
    if config.problem_type == "multi_label_classification":
        raise GlauberError(
            f"the classes of {name} do not exclude each other (multi-label), but the scores of a "
            "text must sum to one."
        )
    return tuple(_spellings(config.label2id))


def _spellings(classes: dict[str, int]) -> list[str]:
    """The classes in the order of their numbers, as labels are written."""
    return [word.strip().lower() for word in sorted(classes, key=lambda word: classes[word])]


def _each_once(score: Callable[[Sequence[str]], Floats]) -> Callable[[Sequence[str]], Floats]:
    """The same map, which scores each different text once."""

    def scores(texts: Sequence[str]) -> Floats:
        once = list(dict.fromkeys(texts))
        score_of = dict(zip(once, score(once), strict=True))
        return np.stack([score_of[text] for text in texts])

    return scores


def _parts(inputs: list[Any]) -> Iterator[list[Any]]:
    for first in range(0, len(inputs), PAIRS):
        yield inputs[first : first + PAIRS]


@torch.inference_mode()
def _logits(tokenizer: Any, model: Any, inputs: list[Any]) -> Floats:
    """The logits (inputs, classes) of texts, or of pairs of text and hypothesis.

    A long text is cut, never its hypothesis.
    """
    columns = [inputs] if isinstance(inputs[0], str) else list(map(list, zip(*inputs, strict=True)))
    batch = tokenizer(*columns, return_tensors="pt", padding=True, truncation="only_first")
    return np.asarray(model(**batch.to(model.device)).logits.double().cpu())


def _entailment_classes(classes: dict[str, int]) -> list[int]:
    return [number for word, number in classes.items() if word.lower().startswith("entail")]


def _entailment(name: str, classes: dict[str, int]) -> int:
    """The class that means entailment."""
    numbers = _entailment_classes(classes)
    if len(numbers) != 1:
        raise GlauberError(
            f"{name} is not an entailment model: its classes are {', '.join(sorted(classes))}."
        )
    return numbers[0]


def _load(name: str, device: str) -> tuple[Any, Any]:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils import logging

    if not reachable(name):
        raise GlauberError(
            f"the classifier {name} was found neither as a folder nor on the hub; give the "
            "path of its folder, or take the scorer similarity, which comes with the package."
        )
    logging.disable_progress_bar()
    local = is_folder(name)
    try:
        how = {"local_files_only": local, "trust_remote_code": False}
        tokenizer = AutoTokenizer.from_pretrained(name, **how)
        model = AutoModelForSequenceClassification.from_pretrained(name, **how)
    except Exception as error:  # each kind of model fails in its own way
        first = (str(error).strip() or repr(error)).splitlines()[0].rstrip(".")
        raise GlauberError(f"the classifier {name} cannot be loaded ({first}).") from error
    return tokenizer, model.to(device).eval()
