"""Which rules can be written down in full? Finite laws, for tests and for teaching.

A Joint owns its conditionals: they all come from one law. A Table is any list of conditionals,
and as a rule no joint law fits it, as with a masked language model.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError
from glauber.models.base import PAD, hide


@dataclass(frozen=True, eq=False)
class Joint:
    """The conditionals of one joint law, so compatible ones.

    log_weights (vocab,) * length is the logarithm of the law up to a constant. With several sites
    hidden together, each is answered with the others summed out. A call enumerates all fillings
    of the hidden sites, so it holds rows * vocab**k numbers.
    """

    log_weights: Tensor

    def __post_init__(self) -> None:
        shape = tuple(self.log_weights.shape)
        if not shape or len(set(shape)) > 1 or 0 in shape:
            raise GlauberError(
                f"the log weights have shape {shape}, but a joint law needs one axis per site, "
                "each as long as the vocabulary."
            )
        if not bool(torch.isfinite(self.log_weights).all()):
            raise GlauberError("a log weight is not finite, so some conditional is undefined.")

    @classmethod
    def random(cls, vocab_size: int, length: int, seed: int = 0, strength: float = 1.0) -> Self:
        """A joint law whose log weights are independent normals times strength."""
        return cls(normals((vocab_size,) * length, seed) * strength)

    @property
    def vocab_size(self) -> int:
        """Tokens that a site may hold."""
        return self.log_weights.shape[0]

    @property
    def hidden_token(self) -> int:
        """What stands at a hidden site of a chain: no token of the vocabulary."""
        return self.vocab_size

    @property
    def length(self) -> int:
        """Sites of a sequence."""
        return self.log_weights.dim()

    def probabilities(self) -> Tensor:
        """The law itself (vocab**length,) float64, in lexicographic order, site 0 slowest."""
        return torch.softmax(self.log_weights.double().flatten(), dim=0)

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Conditional log-probabilities (rows, k, vocab or candidates) float64, normalised."""
        check_question(tokens, sites, self.length)
        visible = hide(tokens, sites, 0)
        check_visible(visible, self.vocab_size)
        weights = self._completions(visible, sites)
        slots = [self._marginal(weights, slot) for slot in range(sites.shape[1])]
        return choose(torch.log_softmax(torch.stack(slots, dim=1), dim=-1), candidates)

    def _completions(self, visible: Tensor, sites: Tensor) -> Tensor:
        """Log weights (rows, vocab, …, vocab) of all fillings, one axis per hidden site."""
        strides = lexicographic_strides(self.vocab_size, self.length).to(visible.device)
        index = (visible * strides).sum(1)
        # A PAD entry gets step 0: its axis repeats the same weights, which cancels in the softmax.
        steps = strides[sites.clamp(min=0)] * (sites != PAD)
        values = torch.arange(self.vocab_size, device=visible.device)
        for slot in range(sites.shape[1]):
            moves = steps[:, slot, None] * values
            index = index[..., None] + moves.reshape(-1, *(1,) * slot, self.vocab_size)
        return self.log_weights.double().flatten().to(visible.device)[index]

    def _marginal(self, weights: Tensor, slot: int) -> Tensor:
        """Log weights (rows, vocab) of the tokens of one slot, the other slots summed out."""
        others = self.vocab_size ** (weights.dim() - 2)
        first = weights.movedim(slot + 1, 1)
        return first.reshape(len(weights), self.vocab_size, others).logsumexp(-1)


@dataclass(frozen=True, eq=False)
class Table:
    """Conditionals given entry by entry, which need not agree with each other.

    entries (length, vocab+1, …, vocab+1, vocab): `entries[site][context]` are the scores of the
    tokens at the site. The context has one index per site, which is the token there, or vocab
    for a hidden site; the site itself is always hidden.
    """

    entries: Tensor

    def __post_init__(self) -> None:
        shape = tuple(self.entries.shape)
        if len(shape) < 3 or 0 in shape or shape[1:-1] != (shape[-1] + 1,) * shape[0]:
            raise GlauberError(
                f"the table has shape {shape}, but it must be "
                "(length, vocab+1, …, vocab+1, vocab), with one axis of vocab+1 per site."
            )
        if bool(torch.isnan(self.entries).any()):
            raise GlauberError("a score in the table is not a number.")

    @classmethod
    def random(cls, vocab_size: int, length: int, seed: int = 0, strength: float = 1.0) -> Self:
        """A table of independent normals times strength; at length > 1 no joint law fits it."""
        shape = (length, *(vocab_size + 1,) * length, vocab_size)
        return cls(normals(shape, seed) * strength)

    @property
    def vocab_size(self) -> int:
        """Tokens that a site may hold."""
        return self.entries.shape[-1]

    @property
    def hidden_token(self) -> int:
        """What stands at a hidden site of a chain: no token of the vocabulary."""
        return self.vocab_size

    @property
    def length(self) -> int:
        """Sites of a sequence."""
        return self.entries.shape[0]

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        """The entries (rows, k, vocab or candidates) float64 of the sites in their contexts."""
        check_question(tokens, sites, self.length)
        check_visible(hide(tokens, sites, 0), self.vocab_size)
        strides = lexicographic_strides(self.vocab_size + 1, self.length).to(tokens.device)
        context = (hide(tokens, sites, self.vocab_size) * strides).sum(1)
        entries = self.entries.flatten(1, -2).to(tokens.device)
        return choose(entries[sites.clamp(min=0), context[:, None]].double(), candidates)


def normals(shape: tuple[int, ...], seed: int) -> Tensor:
    """Standard normals of the given shape, float64, that depend on the seed alone."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def lexicographic_strides(base: int, length: int) -> Tensor:
    """The place values (length,) int64 of a number in this base, site 0 the highest."""
    return torch.tensor([base**power for power in reversed(range(length))])


def choose(scores: Tensor, candidates: Tensor | None) -> Tensor:
    """Scores of the candidates (rows, k, c), or those of the whole vocabulary if none are named."""
    return scores if candidates is None else scores.gather(-1, candidates)


def check_question(tokens: Tensor, sites: Tensor, length: int) -> None:
    """Refuses tokens that are not (rows, length), and sites that are not (rows, k) within it."""
    if tokens.dim() != 2 or tokens.shape[1] != length:
        raise GlauberError(
            f"the tokens have shape {tuple(tokens.shape)}, but this law has {length} sites."
        )
    if sites.dim() != 2 or len(sites) != len(tokens) or sites.shape[1] == 0:
        raise GlauberError(
            f"the sites have shape {tuple(sites.shape)}, but they must be (rows, k) "
            f"for the {len(tokens)} rows of tokens, with k at least 1."
        )
    if bool(((sites < PAD) | (sites >= length)).any()):
        raise GlauberError(f"a site lies outside 0 to {length - 1}.")


def check_visible(visible: Tensor, vocab_size: int) -> None:
    """Refuses visible tokens outside the vocabulary, PAD among them: these laws fix the length."""
    if bool(((visible < 0) | (visible >= vocab_size)).any()):
        raise GlauberError(f"a visible token lies outside 0 to {vocab_size - 1}.")
