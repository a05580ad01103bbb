"""Paper A, appendix A.1: influence, alpha and the contraction threshold of one sentence.

The estimated values are missing from the text of the paper that we have.
"""

from glauber.conditionals.base import Restricted
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.starts import starts
from glauber.mixing.contexts import sampled_contexts
from glauber.mixing.influence import influence
from glauber.papers.reproduction import Reproduction, Scale
from glauber.plots.influence import plot_influence

SENTENCE = "the old bridge over the river was closed because the water had risen too"
HOW = "suprema over sampled contexts and replacement tokens of one sentence of about 14 tokens"


def make(scale: Scale, *, seed: int) -> Reproduction:
    """alpha and the threshold temperature, and the heat map."""
    name = "bundled:english" if scale == "small" else "bert-base-uncased"
    model = MaskedLM.load(name)
    laws = Restricted(model, model.vocabulary.proposable())
    tokens, free = starts(model, [SENTENCE])
    contexts = sampled_contexts(
        laws, tokens[0], free[0], n_contexts=4 if scale == "small" else 32, n_values=4, seed=seed
    )
    found = influence(laws, contexts)
    words = [model.vocabulary.text.spell(int(tokens[0, site])) for site in found.sites]
    row = {
        "model": name,
        "alpha": found.alpha,
        "alpha is": found.kind,
        "threshold temperature": found.threshold,
        "threshold is": found.threshold_kind,
        "published": None,
    }
    return Reproduction(
        "A-influence", scale, HOW, [row], seed, {"heat": plot_influence(found, words)}
    )
