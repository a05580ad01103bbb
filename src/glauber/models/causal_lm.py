"""Autoregressive LMs as conditionals, which are compatible: a control for masked ones.

Any causal LM of transformers (`CausalLM`), or a masked one read from left to right (`LeftToRight`).

Its joint distribution is log p(x) = sum_t log p(x_t | x_<t). At one hidden site the conditional of
token v is proportional to p(x with v there), so the edge log-ratios are differences of one joint
and every rectangle closes. Each candidate token costs a pass over the text: a site's conditional
over a vocabulary of V tokens costs V rows, where a masked LM needs one.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError
from glauber.foundation.threads import side_by_side
from glauber.models.base import PAD, Conditionals, Restricted, hide, log_probs
from glauber.models.base_model import BaseModel
from glauber.models.batching import ExactRows, lengths_of, probes_for, rows_at_once
from glauber.models.vocabulary import Vocabulary
from glauber.models.weights import (
    check_weights,
    choose_device,
    choose_dtype,
    fingerprint_of,
    from_pretrained,
    in_precision,
    longest_text,
    name_of,
)

if TYPE_CHECKING:
    from glauber.models.weights import PreTrainedModel, PreTrainedTokenizerBase

UNSCORED = -1.0  # marks sites that have no score


class CausalLM(BaseModel):
    """Scores of candidate tokens at one hidden site: log p of the whole text with each."""

    whole_vocabulary = False  # a pass scores one token at a hidden site
    dtypes: Sequence[str] = ("float32", "bfloat16", "float64")

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        *,
        name: str = "",
        fingerprint: str = "",
    ) -> None:
        self.model = model.eval().requires_grad_(False)  # of transformers
        self.name = name or name_of(model)  # as it was asked for
        self.vocab_size = int(model.config.vocab_size)  # tokens, special ones too
        self.vocabulary = Vocabulary(tokenizer, self.vocab_size, config=model.config)
        first = tokenizer.bos_token_id
        # Without a token that opens a text, the first one is not scored: p(x_1) is then a
        # constant, which is a joint distribution too as long as site 0 is never hidden.
        self.opening = None if first is None else int(first)  # the token before a text
        special = int(self.opening is not None)
        self.longest = longest_text(model, tokenizer, self.name) - special
        self._fingerprint = fingerprint or partial(fingerprint_of, model.state_dict(), tokenizer)
        self._weight = next(w for w in model.parameters() if w.is_floating_point())
        self._exact = ExactRows(
            lambda tokens, sites, _: self._rows(tokens), self.vocab_size, probes_for(model)
        )

    @classmethod
    def load(
        cls,
        name: str,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        trust_remote_code: bool = False,
        gguf_file: str | None = None,
    ) -> "CausalLM":
        """An autoregressive model by hub name or local folder, or by a GGUF file in it."""
        target, precision = choose_device(device), choose_dtype(dtype)
        if dtype == "int8":
            raise GlauberError("int8 is there for masked LMs only: use float32 for this model.")
        model, tokenizer = from_pretrained(
            name, trust_remote_code, kind="causal", gguf_file=gguf_file
        )
        check_weights(model, name)
        fingerprint = fingerprint_of(model.state_dict(), tokenizer)
        model = in_precision(model, target, precision)
        return cls(model, tokenizer, name=name, fingerprint=fingerprint)

    def check_causal(self) -> None:
        """Refuses a model in which a later token changes the scores of earlier ones."""
        first, second = self.vocabulary.text.normal[:2]
        tokens = torch.tensor([[first, second, first, first], [first, second, first, second]])
        with torch.no_grad():
            scores = self.model(input_ids=tokens.to(self.device)).logits[:, :-1].double()
        if (scores[0] - scores[1]).abs().max() > 1e-2 * scores.std():
            raise GlauberError(
                f"{self.name} was loaded as an autoregressive LM, but a later token changes its "
                f"scores of earlier ones: load it as {self.name}?kind=masked."
            )

    def proposals(self) -> Conditionals:
        """What ranks the whole vocabulary at a site in one pass, from the text before it alone."""
        return Restricted(NextToken(self), self.vocabulary.proposable().to(self.state_device))

    def _copy(self, device: torch.device, dtype: str | None) -> "CausalLM":
        model = deepcopy(self.model).to(device)
        return CausalLM(
            model if dtype is None else model.to(choose_dtype(dtype)),
            self.vocabulary.tokenizer,
            name=self.name,
            fingerprint=self.fingerprint,
        )

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        """log p of the whole text with each candidate (rows, 1, c) at the sites (rows, 1), float64.

        Without candidates every token of the vocabulary is tried: one pass over the text each.
        """
        check_one_site(sites)
        if self.opening is None and bool((sites == 0).any()):
            raise GlauberError(f"{self.name} has no opening token, so site 0 cannot be hidden.")
        candidates = _all_tokens(self.vocab_size, tokens) if candidates is None else candidates
        scores = []
        for row, site, chosen in zip(tokens, sites[:, 0].tolist(), candidates, strict=True):
            texts = row.repeat(chosen.shape[-1], 1)
            texts[:, site] = chosen[0]
            scores.append(self.log_joint(texts)[None])
        return torch.stack(scores)

    def log_joint(self, tokens: Tensor, *, alone: bool = True) -> Tensor:
        """log p of each row of tokens (rows, length), PAD after shorter rows: (rows,) float64.

        On a CPU a row's answer does not depend on the other rows, unless alone is False: then
        rows of different lengths share a call, which is faster and differs by rounding.
        """
        with torch.no_grad():
            if self.device.type == "cuda" or not alone:
                size = rows_at_once(8 * tokens.shape[1] * self.vocab_size, self.device)
                return torch.cat([self._rows(rows)[:, 0, 0] for rows in tokens.split(size)])
            dummy = torch.zeros(len(tokens), 1, dtype=torch.int64)
            return self._exact(tokens, dummy, dummy[..., None])[:, 0, 0]

    def token_log_probs(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """log p(x_t | x_<t) (rows, length) float64, and whether no token is likelier there, bool.

        Not a number where nothing is said: at PAD, and at the token that opens a text. On a CPU
        each row has a call of its own, so that its answer does not depend on the others.
        """
        alone = self.device.type == "cpu"
        size = 1 if alone else rows_at_once(8 * tokens.shape[1] * self.vocab_size, self.device)
        scores = tokens.new_zeros((*tokens.shape, 2), dtype=torch.float64)
        scores[..., 1] = UNSCORED
        calls = [part[:, : int(lengths_of(part).max())] for part in tokens.split(size)]
        score = self._score_tokens
        with torch.no_grad():
            answers = side_by_side(score, calls) if alone else map(score, calls)
            for part, answer in zip(scores.split(size), answers, strict=True):
                part[:, : answer.shape[1]] = answer
        known = scores[..., 1] != UNSCORED
        return scores[..., 0].masked_fill(~known, torch.nan), scores[..., 1] == 1

    def _rows(self, tokens: Tensor) -> Tensor:
        """log p (rows, 1, 1) of rows of tokens in one call of the model."""
        return self._score_tokens(tokens)[..., 0].sum(dim=1)[:, None, None]

    def _score_tokens(self, tokens: Tensor) -> Tensor:
        """log p(x_t | x_<t), and 1 where no token is likelier, else 0: (rows, length, 2) float64.

        In one call of the model; 0 and UNSCORED at PAD and at the token that opens a text.
        """
        inputs, scored = tokens.clamp(min=0), tokens != PAD
        first = inputs[:, :1]
        if self.opening is not None:
            first = torch.full_like(first, self.opening)
        # The tokenizer may have put the opening token there already: it is not written twice, and
        # each place then scores the next token. PAD comes after the text, where causal attention
        # never looks.
        has_opening = inputs[:, :1] == first
        targets = torch.where(has_opening, inputs.roll(-1, dims=1), inputs)
        inputs = torch.where(has_opening, inputs, torch.cat([first, inputs[:, :-1]], dim=1))
        logits = self.model(input_ids=inputs.to(self.device)).logits.to(tokens.device)
        log_probs = torch.log_softmax(logits.double(), dim=-1)
        each = log_probs.gather(-1, targets[..., None])
        is_likeliest = (each >= log_probs.amax(dim=-1, keepdim=True)).double()
        scores = torch.cat([each, is_likeliest], dim=-1)
        scores = torch.where(has_opening[..., None], scores.roll(1, dims=1), scores)
        scored[:, :1] &= ~has_opening
        nothing = torch.tensor([0.0, UNSCORED], dtype=torch.float64, device=tokens.device)
        return torch.where(scored[..., None], scores, nothing)


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
        """Scores (rows, 1, vocab or candidates) of the token that follows the text before it."""
        check_one_site(sites)
        opening = self.control.opening
        if opening is None:
            raise GlauberError(f"{self.control.name} has no opening token, so site 0 has no law.")
        inputs = torch.cat([torch.full_like(tokens[:, :1], opening), tokens.clamp(min=0)], dim=1)
        size = rows_at_once(8 * inputs.shape[1] * self.vocab_size, self.control.device)
        home, answers = self.control.device, []
        with torch.no_grad():
            for rows, at in zip(inputs.split(size), sites.split(size), strict=True):
                logits: Tensor = self.control.model(input_ids=rows.to(home)).logits
                # The opening token comes before site 0, so position t scores site t.
                answers.append(logits[torch.arange(len(rows), device=home)[:, None], at.to(home)])
        scores = torch.cat(answers).to(tokens.device)
        return scores if candidates is None else scores.gather(-1, candidates)


@dataclass(frozen=True)
class LeftToRight:
    """The joint distribution that masked conditionals make when they are read from left to right.

    log p(x) = sum over sites t of log pi_t(x_t | the tokens before it), with t and all later sites
    hidden. Tokens that are never proposed (special ones) are part of no sum and stay visible. The
    conditionals that it has at one site are those of this joint distribution, whatever those of the
    model are: an autoregressive control of the same weights.
    """

    base: Conditionals
    whole_vocabulary = False  # each token at a hidden site costs a pass for every site after it

    @property
    def vocab_size(self) -> int:
        return self.base.vocab_size

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        """log p of the text from the site on, with each candidate there: (rows, 1, c) float64.

        What stands before the site is the same for all candidates.
        """
        check_one_site(sites)
        candidates = _all_tokens(self.vocab_size, tokens) if candidates is None else candidates
        count = candidates.shape[-1]
        texts, first = tokens.repeat_interleave(count, dim=0), sites.repeat_interleave(count, dim=0)
        texts = texts.scatter(1, first, candidates.reshape(-1, 1))
        return self._from_site_on(texts, first).view(len(tokens), 1, count)

    def _from_site_on(self, texts: Tensor, first: Tensor) -> Tensor:
        """The sum (rows,) over the sites from `first` (rows, 1) to the end of texts."""
        columns = torch.arange(texts.shape[1], device=texts.device)
        allowed = getattr(self.base, "allowed", torch.ones(self.vocab_size, dtype=torch.bool))
        drawn = (texts != PAD) & allowed.to(texts.device)[texts.clamp(min=0)]
        total = torch.zeros(len(texts), dtype=torch.float64, device=texts.device)
        for site in columns.tolist():
            rows = (drawn[:, site] & (first[:, 0] <= site)).nonzero()[:, 0]
            size = rows_at_once(8 * (len(columns) - site) * self.vocab_size, texts.device)
            for part in rows.split(size) if len(rows) else ():
                hidden = torch.where(drawn[part, site:], columns[site:], PAD)
                log_probs = self._first_log_probs(texts[part], hidden)
                total[part] += log_probs.gather(1, texts[part, site, None])[:, 0]
        return total

    def _first_log_probs(self, texts: Tensor, hidden: Tensor) -> Tensor:
        """Log-probabilities (rows, vocab) at the first of the hidden sites (rows, k)."""
        mask = getattr(getattr(self.base, "base", None), "hidden_token", None)
        if mask is not None:  # written into the text, so that no other site is scored
            texts, hidden = hide(texts, hidden, mask), hidden[:, :1]
        return log_probs(self.base, texts, hidden)[:, 0]


def check_one_site(sites: Tensor) -> None:
    """Refuses sites (rows, k) of which several are hidden together."""
    if sites.shape[1] != 1:
        raise GlauberError("an autoregressive model answers for one hidden site at a time.")


def _all_tokens(vocab_size: int, tokens: Tensor) -> Tensor:
    """The whole vocabulary as candidates (rows, 1, vocab)."""
    return torch.arange(vocab_size, device=tokens.device).expand(len(tokens), 1, -1)
