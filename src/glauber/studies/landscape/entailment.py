"""Does the text entail "This text is about politics."? Zero-shot scores of any NLI model.

The entailment logits of all labels go through one softmax, as the paper's classifier does.
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
PAIRS = 32  # of text and label in one call


def entailment_scores(
    name: str, labels: Sequence[str], *, device: str = "auto", hypothesis: str = ABOUT
) -> Callable[[Sequence[str]], Floats]:
    """A map from texts to scores (texts, labels), by a model that was trained on entailment."""
    if "{}" not in hypothesis:
        raise GlauberError(f"the hypothesis {hypothesis!r} has no {{}} to put a label into.")
    tokenizer, model = _load(name, str(choose_device(device)))
    column = _entailment(name, model.config.label2id)

    def score(texts: Sequence[str]) -> Floats:
        once = list(dict.fromkeys(texts))
        pairs = [(text, hypothesis.format(label)) for text in once for label in labels]
        logits = np.concatenate([_logits(tokenizer, model, part) for part in _parts(pairs)])
        scores = softmax(logits[:, column].reshape(len(once), len(labels)), axis=1)
        score_of = dict(zip(once, scores, strict=True))
        return np.stack([score_of[text] for text in texts])

    return score


def _parts(pairs: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    for first in range(0, len(pairs), PAIRS):
        yield pairs[first : first + PAIRS]


@torch.inference_mode()
def _logits(tokenizer: Any, model: Any, pairs: list[tuple[str, str]]) -> Floats:
    """The logits (pairs, classes) of text and hypothesis; a long text is cut, never the latter."""
    texts, hypotheses = zip(*pairs, strict=True)
    batch = tokenizer(
        list(texts), list(hypotheses), return_tensors="pt", padding=True, truncation="only_first"
    )
    return np.asarray(model(**batch.to(model.device)).logits.double().cpu())


def _entailment(name: str, classes: dict[str, int]) -> int:
    """The class that means entailment."""
    numbers = [number for word, number in classes.items() if word.lower().startswith("entail")]
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
            f"the entailment model {name} was found neither as a folder nor on the hub; give the "
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
        raise GlauberError(f"the entailment model {name} cannot be loaded ({first}).") from error
    return tokenizer, model.to(device).eval()
