"""How far does a position's own token move the distribution that a refining decoder gives it?

Paper B, remark 6: such a decoder reads its whole draft, so what it predicts at a position is not
trained to be the conditional p(. | all other positions), and its passes are neither the independent
parallel sampler nor Gibbs. A set of conditionals gives 0 in all three numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError
from glauber.foundation.statistics import Estimate, Floats, jackknife
from glauber.translation.data import SubwordVocabulary
from glauber.translation.decoding import Decoding, decode, length_log_probs, likely_lengths
from glauber.translation.model import FIRST_WORD, MASK, Memory, Translator


@dataclass(frozen=True, eq=False)
class OwnToken:
    """What the own token of a position changes in a draft, mean over positions.

    hidden and replaced are total variation distances from the distribution with the draft as it is:
    with MASK in place of the own token, and with the likeliest other token in place of it. changed
    is the share of positions whose most likely token differs once the own token is hidden.
    """

    hidden: Estimate
    replaced: Estimate
    changed: Estimate
    n_positions: int
    n_steps: int
    kind: str = "estimate"


@torch.inference_mode()
def own_token(
    model: Translator, vocabulary: SubwordVocabulary, texts: Sequence[str], *, n_steps: int = 4
) -> OwnToken:
    """The effect of each position's own token in drafts after `n_steps` passes, over sentences.

    The drafts have the most likely length, begin as MASK, and are neither remasked nor cleaned.
    """
    if model.shape.kind != "refine":
        raise GlauberError("only a translator of kind refine reads its own draft.")
    if n_steps < 1 or not texts:
        raise GlauberError("at least 1 step and 1 text are needed.")
    plain = Decoding("refine", n_steps, remask_repeats=False, drop_repeats=False)
    sums = []
    for text in texts:
        tokens = vocabulary.read_source(text, model.shape.max_length)
        source = torch.tensor([tokens], device=model.device)
        memory = model.project(model.encode(source))
        lengths = likely_lengths(length_log_probs(model, memory, source), 1)[:, 0]
        sums.append(_effects(model, decode(model, memory, lengths, plain).tokens[0], memory))
    totals = np.stack(sums)

    def means(weights: Floats) -> Floats:
        hidden, replaced, changed, count = weights @ totals
        return np.array([hidden, replaced, changed]) / count

    found = jackknife(means, len(totals), bounds=(0.0, 1.0))
    return OwnToken(found.item(0), found.item(1), found.item(2), int(totals[:, 3].sum()), n_steps)


def _effects(model: Translator, draft: Tensor, memory: Memory) -> Floats:
    """Sums over the positions of a draft (length,): both distances, changed words, and how many."""
    sites = torch.arange(len(draft), device=draft.device)
    rows = memory.rows(torch.zeros_like(sites))

    def with_token(token: Tensor) -> Tensor:
        """The distribution (length, words) of each site with that token (length,) at it."""
        drafts = draft.repeat(len(draft), 1)
        drafts[sites, sites] = token
        scores = model.denoise(drafts, rows, sites)[:, 0, FIRST_WORD:]
        return scores.double().softmax(-1)

    seen, hidden = with_token(draft), with_token(torch.full_like(draft, MASK))
    others = hidden.scatter(1, (draft - FIRST_WORD).clamp(min=0)[:, None], 0.0)
    replaced = with_token(others.argmax(1) + FIRST_WORD)
    distances = [(seen - other).abs().sum(1).sum() / 2 for other in (hidden, replaced)]
    changed = (seen.argmax(1) != hidden.argmax(1)).sum()
    return np.array([*map(float, distances), float(changed), float(len(draft))])
