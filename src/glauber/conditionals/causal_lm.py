"""What would an autoregressive LM say about a hidden site? The compatible control.

Its joint law is log p(x) = sum_t log p(x_t | x_<t). At one hidden site the conditional of token v
is proportional to p(x with v there), so the edge log-ratios are differences of one joint and every
rectangle closes. Each candidate token costs a pass over the text, so candidates must be given.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glauber.conditionals.base import PAD
from glauber.conditionals.batching import rows_at_once
from glauber.conditionals.vocabulary import Vocabulary
from glauber.errors import GlauberError


class CausalLM:
    """Scores of candidate tokens at one hidden site: log p of the whole text with each."""

    def __init__(self, model: Any, tokenizer: Any, *, name: str = "") -> None:
        self.model = model.eval().requires_grad_(False)
        self.name = name
        self.vocab_size = int(model.config.vocab_size)
        self.vocabulary = Vocabulary(tokenizer, self.vocab_size)
        first = tokenizer.bos_token_id
        # Without a token that opens a text, the first one is not scored: p(x_1) is then a
        # constant, which is a joint law too as long as site 0 is never hidden.
        self.opening = None if first is None else int(first)

    @classmethod
    def load(
        cls, name: str, *, device: str = "cpu", dtype: str = "float32", **how: Any
    ) -> "CausalLM":
        """An autoregressive model by hub name or local folder; `how` goes to from_pretrained."""
        from transformers import AutoModelForCausalLM, AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(name, **how)
            model = AutoModelForCausalLM.from_pretrained(name, dtype=getattr(torch, dtype), **how)
        except (OSError, ValueError, KeyError) as error:
            raise GlauberError(f"{name} is no autoregressive LM that can be loaded.") from error
        return cls(model.to(device), tokenizer, name=name)

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        if candidates is None:
            raise GlauberError("an autoregressive model needs candidate tokens: one pass each.")
        if sites.shape[1] != 1:
            raise GlauberError("an autoregressive model answers for one hidden site at a time.")
        if self.opening is None and bool((sites == 0).any()):
            raise GlauberError(f"{self.name} has no opening token, so site 0 cannot be hidden.")
        count = candidates.shape[-1]
        filled = tokens.repeat_interleave(count, dim=0)
        filled = filled.scatter(1, sites.repeat_interleave(count, dim=0), candidates.reshape(-1, 1))
        return self.log_joint(filled).view(len(tokens), 1, count)

    def log_joint(self, tokens: Tensor) -> Tensor:
        """log p of each row of tokens (rows, length), PAD behind shorter rows: (rows,)."""
        size = rows_at_once(8 * tokens.shape[1] * self.vocab_size, self.model.device)
        with torch.no_grad():
            return torch.cat([self._log_joint(rows) for rows in tokens.split(size)])

    def _log_joint(self, tokens: Tensor) -> Tensor:
        there = tokens != PAD
        home = self.model.device
        inputs = tokens.clamp(min=0)
        if self.opening is not None:
            inputs = torch.cat([torch.full_like(inputs[:, :1], self.opening), inputs], dim=1)
            said, counted = inputs[:, 1:], there
        else:
            said, counted = inputs[:, 1:], there[:, 1:]
        # PAD stands behind the text, where causal attention never looks.
        logits = self.model(input_ids=inputs.to(home)).logits[:, :-1].to(tokens.device)
        laws = torch.log_softmax(logits.double(), dim=-1)
        each = laws.gather(-1, said[..., None])[..., 0]
        return torch.where(counted, each, 0.0).sum(dim=1)


@dataclass(frozen=True)
class NextToken:
    """What an autoregressive LM says about one hidden site from the text before it alone.

    Not its conditional there, but one pass instead of one per token: good enough to propose
    tokens that the control's conditionals are then compared at.
    """

    control: CausalLM

    @property
    def vocab_size(self) -> int:
        return self.control.vocab_size

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        if sites.shape[1] != 1:
            raise GlauberError("an autoregressive model answers for one hidden site at a time.")
        opening = self.control.opening
        if opening is None:
            raise GlauberError(f"{self.control.name} has no opening token, so site 0 has no law.")
        inputs = torch.cat([torch.full_like(tokens[:, :1], opening), tokens.clamp(min=0)], dim=1)
        size = rows_at_once(8 * inputs.shape[1] * self.vocab_size, self.control.model.device)
        with torch.no_grad():
            # The opening token stands before site 0, so position t holds the law of site t.
            laws = torch.cat(
                [self._at(*p) for p in zip(inputs.split(size), sites.split(size), strict=True)]
            )
        laws = laws.to(tokens.device)
        return laws if candidates is None else laws.gather(-1, candidates)

    def _at(self, inputs: Tensor, sites: Tensor) -> Tensor:
        """Logits (rows, 1, vocab) at the sites (rows, 1) of inputs (rows, 1 + length)."""
        home = self.control.model.device
        logits: Tensor = self.control.model(input_ids=inputs.to(home)).logits
        rows = torch.arange(len(inputs), device=home)[:, None]
        return logits[rows, sites.to(home)]
