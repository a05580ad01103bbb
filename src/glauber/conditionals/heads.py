"""Where does a masked LM turn a hidden state into scores, and how is that done at few sites?

Every masked-LM head of the field works on each position alone, so it can be applied to the hidden
sites and nowhere else: the scores are then (rows, k, vocab) instead of (rows, length, vocab).
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

Head = Callable[[Any, Tensor], Tensor]


def _deberta(model: Any, states: Tensor) -> Tensor:
    if model.legacy:
        return model.cls(states)
    return model.lm_predictions(states, model.deberta.embeddings.word_embeddings)


def _distilbert(model: Any, states: Tensor) -> Tensor:
    states = model.activation(model.vocab_transform(states))
    return model.vocab_projector(model.vocab_layer_norm(states))


def _electra(model: Any, states: Tensor) -> Tensor:
    return model.generator_lm_head(model.generator_predictions(states))


HEADS: dict[str, Head] = {
    "bert": lambda model, states: model.cls(states),
    "roberta": lambda model, states: model.lm_head(states),
    "xlm-roberta": lambda model, states: model.lm_head(states),
    "distilbert": _distilbert,
    "albert": lambda model, states: model.predictions(states),
    "electra": _electra,
    "deberta-v2": _deberta,
    "mpnet": lambda model, states: model.lm_head(states),
    "modernbert": lambda model, states: model.decoder(model.head(states)),
    "esm": lambda model, states: model.lm_head(states),
}
