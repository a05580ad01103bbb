"""In which contexts is the influence of one site on another measured?

The supremum behind an influence runs over every context and every change of one token. Small
laws can be listed in full; for a text on a real model some contexts are sampled, and what is
measured on them is a lower bound on the supremum.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from glauber.conditionals.base import Conditionals, scores_alone
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.errors import GlauberError
from glauber.progress import check_count, check_memory, track


@dataclass(frozen=True, eq=False)
class Contexts:
    """States, and the tokens tried in place of the one at each of their n free sites."""

    tokens: Tensor  # (rows, length) int64
    sites: Tensor  # (n,) int64: the free sites
    values: Tensor  # (rows, n, m) int64: replacements
    kind: Literal["exact", "lower bound"]  # of a supremum over them


def every_context(conditionals: Conditionals, length: int) -> Contexts:
    """All states of `length` free sites, and every token at each: suprema over them are exact."""
    size = conditionals.vocab_size
    if length < 2:
        raise GlauberError("a text of one site has no other site that could influence it.")
    states = torch.cartesian_prod(*[torch.arange(size)] * length)
    values = torch.arange(size).expand(len(states), length, size)
    return Contexts(states, torch.arange(length), values, "exact")


def sampled_contexts(
    conditionals: Conditionals,
    tokens: Tensor,
    free: Tensor,
    *,
    n_contexts: int,
    n_values: int = 4,
    temperature: float = 1.0,
    n_sweeps: int = 5,
    seed: int = 0,
) -> Contexts:
    """The text itself and states of chains that started from it, with replacements at each site.

    tokens and free (length,). There are n_contexts - 1 independent chains of n_sweeps * n steps.
    Every second replacement is uniform over the tokens that the rule allows there; the others
    (the first among them) are drawn from the conditional at the temperature.
    """
    sites = free_sites(free)
    check_count("samples", n_contexts)
    check_count("replacements", n_values)
    _check_size(n_contexts, len(sites), n_values, conditionals.vocab_size)
    visited = chain_states(
        conditionals, tokens, free, n_chains=n_contexts - 1, n_steps=n_sweeps * len(sites),
        temperature=temperature, seed=seed,
    )  # fmt: skip
    states = torch.cat([tokens[None], visited])
    generator = torch.Generator().manual_seed(seed)
    drawn = replacements(
        conditionals, states, sites, n_values=(n_values + 1) // 2, temperature=temperature,
        generator=generator,
    )  # fmt: skip
    # An infinite temperature would be uniform; at 1e9 the scores no longer matter.
    even = replacements(
        conditionals, states, sites, n_values=n_values // 2, temperature=1e9, generator=generator
    )
    return Contexts(states, sites, torch.cat([drawn, even], dim=2), "lower bound")


def chain_states(
    conditionals: Conditionals,
    tokens: Tensor,
    free: Tensor,
    *,
    n_chains: int,
    n_steps: int,
    temperature: float,
    seed: int,
) -> Tensor:
    """Where independent chains are n_steps after the text: (n_chains, length)."""
    if n_chains == 0:
        return tokens[None][:0]
    state = start(
        tokens.repeat(n_chains, 1), free.repeat(n_chains, 1), temperature=temperature,
        device=tokens.device,
    )  # fmt: skip
    with track("chain steps", n_steps) as advance:
        for after, _ in run(glauber(conditionals), state, n_steps, seed=seed):
            state = after
            advance()
    return state.tokens


def replacements(
    conditionals: Conditionals,
    states: Tensor,
    sites: Tensor,
    *,
    n_values: int,
    temperature: float,
    generator: torch.Generator,
) -> Tensor:
    """Tokens (rows, n, n_values) other than the present one, from the conditional of each site.

    Drawn without repeats (the largest of log-probability plus Gumbel noise). Where the rule allows
    fewer other tokens than n_values, the first is repeated.
    """
    drawn = [
        _other_tokens(scores_alone(conditionals, row[None], sites)[0], row[sites], n_values,
                      temperature, generator)
        for row in states
    ]  # fmt: skip
    return torch.stack(drawn)


def _other_tokens(
    scores: Tensor, present: Tensor, n_values: int, temperature: float, generator: torch.Generator
) -> Tensor:
    scores = scores.scatter(1, present[:, None], -torch.inf)
    scores = scores - scores.amax(dim=1, keepdim=True).clamp(min=-1e300)  # no overflow when cold
    uniform = torch.rand(scores.shape, generator=generator, dtype=torch.float64)
    keys = scores / temperature - (-uniform.log()).log().to(scores.device)
    best = keys.topk(min(n_values, keys.shape[1]), dim=1)
    first = best.indices[:, :1]
    if bool((best.values[:, :1] == -torch.inf).any()):
        raise GlauberError("at some site only one token is possible, so there is nothing to swap.")
    return torch.where(best.values == -torch.inf, first, best.indices)


def free_sites(free: Tensor) -> Tensor:
    """The numbers (n,) of the free sites; at least two, or nothing can influence anything."""
    sites = free.nonzero()[:, 0]
    if len(sites) < 2:
        raise GlauberError(
            f"the text has {len(sites)} free token, but influence needs two: give a longer one."
        )
    return sites


def _check_size(n_contexts: int, n_sites: int, n_values: int, vocab: int) -> None:
    """Refuses what would not fit: all contexts at once, and the scores of a single one."""
    kept = n_contexts * (n_sites * n_values + 2 * vocab) * 8
    of_one = 3 * n_sites * (1 + min(n_values, vocab)) * vocab * 8
    check_memory(kept + of_one, f"{n_contexts:,} contexts with {n_values:,} replacements a site")
