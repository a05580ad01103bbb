"""`Conditionals`: what a rule says about hidden sites, given the visible ones.

An Ising model, BERT, a protein model and a translator are four such rules. Everything else in the
package is a function of this one object.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError

if TYPE_CHECKING:
    from glauber.models.vocabulary import Vocabulary

COLDEST = 1e-300  # scores up to 1e8 divided by it are still finite
PAD = -1  # fills `tokens` beyond the end of a row, and `sites` where a row hides fewer than k


@runtime_checkable
class Conditionals(Protocol):
    """Scores of every token at hidden sites, given the visible tokens."""

    @property
    def vocab_size(self) -> int:
        """Tokens that a site may hold."""

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Unnormalised log-probabilities (rows, k, vocab), in the model's dtype.

        tokens (rows, length) int64, filled with PAD after shorter rows; sites (rows, k) int64.
        The k sites of a row are hidden together, and what stands in `tokens` there does not
        matter. With candidates (rows, k, c) the answer is (rows, k, c), for those tokens only.
        """
        ...


class Reader(Protocol):
    """What reads texts of some lengths as tokens: the part of a model that starts depend on."""

    @property
    def name(self) -> str:
        """As the user wrote it."""

    @property
    def vocabulary(self) -> "Vocabulary":
        """Texts to tokens and back."""

    @property
    def longest(self) -> int:
        """Tokens of the longest text, with its special ones."""

    @property
    def length(self) -> int | None:
        """Tokens of every text, for models of texts of one length."""

    @property
    def texts(self) -> Sequence[str]:
        """Where chains start by default, instead of the bundled passages."""


class Model(Conditionals, Reader, Protocol):
    """Conditionals with a name, a vocabulary and a device: what `load` returns to every study."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 over weights and vocabulary: equal exactly when the conditionals are."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""

    @property
    def state_device(self) -> torch.device:
        """Where chains live: draws need float64."""

    @property
    def dtype(self) -> str:
        """The precision, such as float32, or int8."""

    @property
    def hidden_token(self) -> int | None:
        """The mask token; None where there is none. See `mask_token_of`."""

    @property
    def whole_vocabulary(self) -> bool:
        """Whether one pass scores every token at a hidden site."""

    @property
    def is_own(self) -> bool:
        """Whether it is an object of the user's own, which no name loads again."""

    def to(self, *, device: str | None = None, dtype: str | None = None) -> "Model":
        """The same model on another device or in another precision."""
        ...

    def conditionals(
        self, *, standard_only: bool = True, forbid: Iterable[str] = ()
    ) -> Conditionals:
        """What a chain should draw from: the tokens that may be proposed."""
        ...

    def proposals(self) -> Conditionals:
        """What ranks the whole vocabulary at a site in one pass."""
        ...


@dataclass(frozen=True)
class Tempered:
    """The conditionals pi^(1/temperature), renormalised: scores divided by the temperature."""

    base: Conditionals
    temperature: float

    def __post_init__(self) -> None:
        check_temperature(self.temperature)

    @property
    def vocab_size(self) -> int:
        return self.base.vocab_size

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        return self.base.scores(tokens, sites, candidates) / self.temperature


@dataclass(frozen=True)
class Restricted:
    """The conditionals given that the token is an allowed one; allowed is (vocab,) bool."""

    base: Conditionals
    allowed: Tensor

    def __post_init__(self) -> None:
        if self.allowed.shape != (self.base.vocab_size,):
            raise GlauberError(
                f"the list of allowed tokens has {tuple(self.allowed.shape)} entries, "
                f"but the vocabulary has {self.base.vocab_size}."
            )
        if not bool(self.allowed.any()):
            raise GlauberError("no token is allowed, so nothing could ever be drawn.")

    @property
    def vocab_size(self) -> int:
        return self.base.vocab_size

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        if candidates is None and not getattr(self.base, "whole_vocabulary", True):
            # Each token costs a pass: only the allowed ones are scored.
            allowed = self.allowed.nonzero()[:, 0].to(tokens.device).expand(*sites.shape, -1)
            scores = self.base.scores(tokens, sites, allowed.contiguous())
            forbidden = scores.new_full((*sites.shape, self.vocab_size), -torch.inf)
            return forbidden.scatter(-1, allowed, scores)
        scores = self.base.scores(tokens, sites, candidates)
        allowed = self.allowed.to(scores.device)
        forbidden = ~allowed if candidates is None else ~allowed[candidates]
        return scores.masked_fill(forbidden, -torch.inf)


@dataclass(frozen=True)
class Clamped:
    """The conditionals of the free sites alone, the others held at fixed tokens.

    template (length,) holds the fixed tokens, and PAD at each free site. The rows given to
    `scores` have one entry per free site, so a frozen chain can be enumerated by itself.
    """

    base: Conditionals
    template: Tensor

    @property
    def vocab_size(self) -> int:
        return self.base.vocab_size

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        free = (self.template == PAD).nonzero()[:, 0]
        rows = self.template.repeat(len(tokens), 1)
        rows[:, free] = tokens
        inside = torch.where(sites == PAD, PAD, free[sites])
        return self.base.scores(rows, inside, candidates)


def log_probs(
    conditionals: Conditionals,
    tokens: Tensor,
    sites: Tensor,
    candidates: Tensor | None = None,
    *,
    temperature: float | Tensor = 1.0,
) -> Tensor:
    """Normalised conditionals (rows, k, vocab or candidates) in float64.

    temperature is one number or one per row.
    """
    scores = conditionals.scores(tokens, sites, candidates).double()
    per_row = torch.as_tensor(temperature, dtype=torch.float64, device=scores.device)
    return torch.log_softmax(scores / per_row.reshape(-1, 1, 1), dim=-1)


def scores_alone(conditionals: Conditionals, tokens: Tensor, sites: Tensor) -> Tensor:
    """Scores (rows, k, vocab) float64 of sites (k,), each hidden alone in tokens (rows, length)."""
    rows, k = len(tokens), len(sites)
    each = sites.repeat(rows)[:, None]
    scores = conditionals.scores(tokens.repeat_interleave(k, dim=0), each)
    return scores.double().view(rows, k, -1)


def mask_token_of(model: Model) -> int:
    """The token that the model has at hidden sites; a model without one is refused."""
    if model.hidden_token is None:
        raise no_mask_token(model.name)
    return model.hidden_token


def no_mask_token(name: str) -> GlauberError:
    return GlauberError(
        f"{name} is autoregressive and has no mask, so it cannot fill hidden tokens: take a masked "
        "model."
    )


def check_temperature(temperature: float) -> None:
    """Refuses what is not a positive finite number that scores can be divided by."""
    if not (COLDEST <= temperature < float("inf")):
        raise GlauberError(
            f"the temperature is {temperature}, but it must be a positive finite number"
            + (f", at least {COLDEST:g}." if 0 < temperature < COLDEST else ".")
        )


def hide(tokens: Tensor, sites: Tensor, hidden_token: int) -> Tensor:
    """tokens with hidden_token at the given sites (PAD entries of sites hide nothing)."""
    # One spare column takes the PAD entries of sites.
    wide = torch.cat([tokens, tokens[:, :1]], dim=1)
    return wide.scatter(1, torch.where(sites == PAD, tokens.shape[1], sites), hidden_token)[:, :-1]
