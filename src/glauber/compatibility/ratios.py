"""What do the single mask and the chain say of two tokens in one context, and how far apart?"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from glauber.compatibility.few_sites import Contexts, Enumerated, FewSites
from glauber.conditionals.base import Model
from glauber.exact import Space
from glauber.statistics import Estimate, jackknife

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ratio:
    """One site, one context, two tokens: what the single mask says, and what the chain does."""

    site: int  # for people
    tokens: tuple[str, str]
    context: str  # the text with the first token
    share: float  # of the chain's time in this context with either token
    single: float  # log pi_i(a) - log pi_i(b)
    stationary: float  # log mu(a, context) - log mu(b, context)
    seen: Estimate | None  # the same from the frequencies of the chains


@dataclass(frozen=True, eq=False)
class Probe:
    """One text: how far its single-mask ratios are from the chain's."""

    text: int  # its number, from 0
    sites: tuple[int, ...]  # for people
    difference: (
        float  # mean |log-ratio less log-ratio| over pairs of tokens, as the chain meets them
    )
    largest: float  # over all contexts and pairs
    total_variation: float  # mean over contexts, as the chain meets them
    reversed: float  # share of the chain's time in contexts whose first choice differs
    ratio: Ratio  # of the context and the pair that the chain is at most often


def probe_of(
    opened: Model,
    place: tuple[int, list[int]],
    few: FewSites,
    law: Enumerated,
    counted: Floats | None,
) -> Probe:
    """The figures of one text; counted (chains, fillings) are the chains' shares of time."""
    text, sites = place
    contexts = [law.by_context(site) for site in range(len(sites))]
    weight = np.concatenate([one.weight for one in contexts]) / len(sites)
    single, chain = (
        np.concatenate(part) for part in zip(*(one[2:] for one in contexts), strict=True)
    )
    apart = np.abs((d := single - chain)[:, :, None] - d[:, None, :])  # (contexts, m, m)
    met = weight[:, None, None] * np.exp(chain[:, :, None] + chain[:, None, :])
    met[:, np.arange(few.vocab_size), np.arange(few.vocab_size)] = 0.0
    return Probe(
        text=text,
        sites=tuple(sites),
        difference=float((met * apart).sum() / met.sum()),
        largest=float(apart.max()),
        total_variation=float(weight @ np.abs(np.exp(single) - np.exp(chain)).sum(axis=1) / 2),
        reversed=float(weight @ (single.argmax(axis=1) != chain.argmax(axis=1))),
        ratio=_ratio(opened, sites, few, contexts, met, counted),
    )


def _ratio(
    opened: Model,
    sites: list[int],
    few: FewSites,
    contexts: list[Contexts],
    met: Floats,
    counted: Floats | None,
) -> Ratio:
    """The ratio of the context and the two tokens that the chain is at most often."""
    which, a, b = np.unravel_index(np.triu(met).argmax(), met.shape)
    slot, row = divmod(int(which), len(contexts[0].weight))
    one = contexts[slot]
    if one.chain[row, a] < one.chain[row, b]:
        a, b = b, a
    fillings = one.fillings[row, [a, b]]
    space = Space(few.vocab_size, len(sites))
    whole = few.template.clone()
    whole[few.sites] = few.choices[torch.arange(len(sites)), space.states()[fillings[0]]]
    spell = opened.vocabulary.spell
    first, second = (spell(int(few.choices[slot, token])) for token in (a, b))
    return Ratio(
        site=sites[slot],
        tokens=(first, second),
        context=opened.vocabulary.decode(whole.tolist()),
        share=float(one.weight[row] * np.exp(one.chain[row, [a, b]]).sum()),
        single=float(one.single[row, a] - one.single[row, b]),
        stationary=float(one.chain[row, a] - one.chain[row, b]),
        seen=None if counted is None else _counted(*counted[:, fillings].T),
    )


def _counted(first: Floats, second: Floats) -> Estimate | None:
    """The log-ratio of the mean shares (chains,) of two fillings; none where one was never seen."""
    if not first.any() or not second.any():
        return None

    def log_ratio(counts: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):  # seen in the chain left out alone
            return np.asarray(np.log(counts @ first) - np.log(counts @ second))

    return jackknife(log_ratio, len(first)).item()
