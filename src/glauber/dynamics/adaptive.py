"""Scans whose site depends on the state, and redraws that keep the joint distribution.

The site of a step is drawn from chances that depend on the state x,

    p_K(i | x) = w_i(x) ** sharpness / sum over free j of w_j(x) ** sharpness,

where w_i says how unsure the model is of site i, at the chain's temperature:

    confidence   1 - pi_i(x_i | x_-i): how unlikely the present token is
    entropy      of pi_i(. | x_-i) in nats, whatever token is there now

Where every weight is zero the choice is uniform. Then site i gets a token v; x' is x with it:

    naive         v ~ pi_i(. | x_-i), as if the site had been chosen blindly. Being chosen tells
                  something about the token (paper B, Lemma 3): the joint distribution is not kept.
    adaptive      the same v is only proposed: accepted with chance min(1, p_K(i | x') / p_K(i | x))
    conditioned   v ~ p(x_i | x_-i, K = {i}), proportional to pi_i(v | x_-i) p_K(i | x'): the
                  dynamics of paper B, Definition 8

If the conditionals belong to a joint distribution p, the last two keep it, and are reversible. Let
x and x' differ in site i only. Then p(x) pi_i(x'_i | x_-i) = p(x_-i) pi_i(x_i | x_-i) pi_i(x'_i |
x_-i), the same with x and x' exchanged. The flow from x to x' is this number times

    p_K(i | x) min(1, p_K(i | x') / p_K(i | x)) = min(p_K(i | x), p_K(i | x'))    adaptive
    p_K(i | x) p_K(i | x') / sum over v of pi_i(v | x_-i) p_K(i | x^v)            conditioned

and both are symmetric too. It holds for any weights that are a function of the state, so rounding
in them does no harm. Keeping the distribution says nothing about speed: by confidence, a proposal
that removes the doubt for which its site was chosen is often rejected, the more so in the cold.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from glauber.dynamics.draws import by_parts
from glauber.dynamics.kernel import State, row_keys
from glauber.foundation.errors import GlauberError
from glauber.models.base import Conditionals, log_probs
from glauber.models.batching import rows_at_once
from glauber.texts.constraints import proposable

Redraw = Literal["naive", "adaptive", "conditioned"]
Measure = Literal["confidence", "entropy"]

REMEMBERED = 2**26  # bytes of chances that are kept
MOST_TOKENS = 64  # that a conditioned redraw weighs: each costs a pass for every free site


class Adaptive(NamedTuple):
    """How the state decides about the site, and how the site is redrawn."""

    redraw: Redraw
    measure: Measure
    sharpness: float = 1.0

    @property
    def name(self) -> str:
        shown = "" if self.sharpness == 1 else f":{self.sharpness:g}"
        return f"{self.redraw}:{self.measure}{shown}"

    def rows(self, n_free: int, n_tokens: int) -> int:
        """Rows that the model is asked for in one step, at most."""
        others = n_tokens - 1 if self.redraw == "conditioned" else 1
        return 1 + n_free * others


def adaptive_named(redraw: Redraw, spelled: str) -> Adaptive:
    """Of confidence, entropy:2 and the like; ValueError for anything else."""
    measure, _, number = spelled.partition(":")
    sharpness = float(number or 1)
    if measure not in MEASURES or not sharpness >= 0:
        raise ValueError(spelled)
    if redraw != "naive" and sharpness == float("inf"):
        raise GlauberError(
            f"the scan is {redraw}:{spelled}, but an infinite sharpness leaves sites that are "
            "never chosen, so no chain could reach its distribution: give a number."
        )
    return Adaptive(redraw, measure, sharpness)  # type: ignore[arg-type]


def check_tokens(adaptive: Adaptive | None, conditionals: Conditionals) -> None:
    """Refuses a conditioned redraw over more tokens than can be weighed."""
    if adaptive is None or adaptive.redraw != "conditioned":
        return
    if n_proposable(conditionals) > MOST_TOKENS:
        raise GlauberError(
            f"the scan {adaptive.name} weighs every token at every free site, which is done for at "
            f"most {MOST_TOKENS} tokens, but {n_proposable(conditionals):,} can be drawn here: "
            f"{adaptive._replace(redraw='adaptive').name} keeps the same distribution by a "
            "Metropolis step."
        )


def n_proposable(conditionals: Conditionals) -> int:
    """How many tokens can be drawn, at most."""
    return int(proposable(conditionals).sum())


class Chances:
    """log p_K(i | x) of states; the model is evaluated once for each state.

    What is kept is a function of the state alone, so that it changes the speed and nothing else.
    """

    def __init__(self, conditionals: Conditionals, adaptive: Adaptive) -> None:
        self.conditionals, self.adaptive = conditionals, adaptive
        self._cache: dict[bytes, Tensor] = {}

    def __call__(self, state: State) -> Tensor:
        """(chains, length) float64; -inf where a site is not free."""
        keys = row_keys(state)
        known = {key: self._cache[key] for key in keys if key in self._cache}
        new = {key: row for row, key in enumerate(keys) if key not in known}
        if new:
            rows = torch.tensor(list(new.values()), device=state.tokens.device)
            known |= zip(new, self._ask(state.rows(rows)).cpu(), strict=True)
            self._keep({key: known[key] for key in new})
        return torch.stack([known[key] for key in keys]).to(state.tokens.device)

    def _ask(self, state: State) -> Tensor:
        weights = log_weights(self.conditionals, state, self.adaptive.measure)
        return log_chances(weights, state.free, self.adaptive.sharpness)

    def _keep(self, rows: dict[bytes, Tensor]) -> None:
        length = len(next(iter(rows.values())))
        room = REMEMBERED // (14 * length + 300)  # a key, a row, and what Python adds
        if len(self._cache) + len(rows) > room:
            self._cache.clear()
        if len(rows) <= room:
            self._cache |= rows


def log_weights(conditionals: Conditionals, state: State, measure: Measure) -> Tensor:
    """log w_i(x) (chains, length) float64, -inf at sites that are not free.

    All sites of all chains are rows of one batch, split by memory only.
    """
    chain, site = state.free.nonzero(as_tuple=True)
    weights = torch.full(state.free.shape, -torch.inf, dtype=torch.float64, device=chain.device)
    size = rows_at_once(3 * 8 * conditionals.vocab_size, chain.device)
    for part in torch.arange(len(chain), device=chain.device).split(size):
        tokens, sites = state.tokens[chain[part]], site[part][:, None]
        scores = conditionals.scores(tokens, sites)[:, 0]
        temperature, present = state.temperature[chain[part]], tokens.gather(1, sites)
        weights[chain[part], site[part]] = _log_weight(scores, temperature, present, measure)
    return weights


def _log_weight(scores: Tensor, temperature: Tensor, present: Tensor, measure: Measure) -> Tensor:
    """log w (rows,) of scores (rows, vocab), the tokens held (rows, 1)."""

    def some(part: tuple[Tensor, ...]) -> tuple[Tensor]:
        scores, temperature, present = part
        log_probs = torch.log_softmax(scores.double() / temperature[:, None], dim=-1)
        return (MEASURES[measure](log_probs, present),)

    return by_parts(some, (scores, temperature, present), vocab_size=scores.shape[1])[0]


def _confidence(log_probs: Tensor, present: Tensor) -> Tensor:
    """log of the other tokens' mass: 1 - p would round small ones away."""
    return log_probs.scatter(1, present, -torch.inf).logsumexp(dim=1)


def _entropy(log_probs: Tensor, present: Tensor) -> Tensor:
    return torch.special.entr(log_probs.exp()).sum(dim=1).log()


MEASURES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "confidence": _confidence,
    "entropy": _entropy,
}


def log_chances(weights: Tensor, free: Tensor, sharpness: float) -> Tensor:
    """log p_K(i | x) (chains, length) of log weights; infinite sharpness takes the largest."""
    alike = torch.where(free, 0.0, -torch.inf).double()
    if sharpness == float("inf"):
        first = torch.zeros_like(free).scatter(1, weights.argmax(dim=1, keepdim=True), True)
        powers = torch.where(first, 0.0, -torch.inf).double()
    elif sharpness == 0:
        powers = alike
    else:
        powers = sharpness * weights
    none = weights.amax(dim=1, keepdim=True) == -torch.inf
    return torch.log_softmax(torch.where(none, alike, powers), dim=1)


def pick(chances: Tensor, u: Tensor) -> Tensor:
    """Sites (chains, 1) by inverse CDF over log chances (chains, length), u (chains,) uniform."""
    total = chances.exp().cumsum(dim=1)
    mass = total[:, -1:]
    # Rounding may lift the point to the whole: then it is the last site that has a chance.
    return ((total > u[:, None] * mass) | (total == mass)).int().argmax(dim=1, keepdim=True)


def conditioned_scores(
    conditionals: Conditionals, chances: Chances, state: State, sites: Tensor
) -> Tensor:
    """log pi_i(v | x_-i) + log p_K(i | x with v) (chains, vocab) of the chosen sites (chains, 1).

    Where no token could have led to the choice, which only a start outside the support does, the
    conditional itself.
    """
    conditional = log_probs(conditionals, state.tokens, sites, temperature=state.temperature)[:, 0]
    chain, token = (conditional > -torch.inf).nonzero(as_tuple=True)
    wide = state.rows(chain)
    tokens = wide.tokens.scatter(1, sites[chain], token[:, None])
    chance = chances(wide._replace(tokens=tokens)).gather(1, sites[chain])[:, 0]
    scores = conditional.clone()
    scores[chain, token] += chance
    dead = scores.amax(dim=1, keepdim=True) == -torch.inf
    return torch.where(dead, conditional, scores)
