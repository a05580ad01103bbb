"""A rule of one's own as a model that every study can use.

A class with `vocab_size` and `scores` is enough. It may also have a `name`, a `fingerprint`, a
fixed `length`, and a `vocabulary`: a list of the tokens' spellings, or an object with encode,
decode and spell. Without one the tokens are spelled by their numbers.
"""

import hashlib
import inspect
import re
import warnings
from collections.abc import Iterable, Sequence
from functools import cached_property
from numbers import Integral
from typing import cast

import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.models.base import PAD, Conditionals, Restricted
from glauber.models.base_model import BaseModel
from glauber.models.vocabulary import Vocabulary
from glauber.models.weights import choose_device

HIDDEN, UNKNOWN = "[MASK]", "[UNK]"  # what stands at a hidden site, and for what has no token
# Lengths of the rows that tell one rule from another, where it names none: the first that works.
PROBE_LENGTHS = (4, 1, 2, 3, *range(5, 65))


class Own(BaseModel):
    """A rule of one's own with all that studies ask of a model."""

    is_own = True

    def __init__(self, rule: Conditionals) -> None:
        self.rule = rule
        self.vocab_size = int(rule.vocab_size)
        if self.vocab_size < 2:
            raise GlauberError(f"the model has {self.vocab_size} tokens, but a law needs two.")
        self.name = str(getattr(rule, "name", "") or type(rule).__name__)
        self.vocabulary = vocabulary_of(getattr(rule, "vocabulary", None), self.vocab_size)
        fixed = getattr(rule, "length", None)
        self.length = int(fixed) if isinstance(fixed, Integral) else None
        self.longest = self.length or int(getattr(rule, "longest", 2**30))
        self.whole_vocabulary = bool(getattr(rule, "whole_vocabulary", True))
        # What stands at a hidden site of a chain: by default no token of the vocabulary.
        self.hidden_token = int(getattr(rule, "hidden_token", self.vocab_size))
        self._fingerprint = self._hash
        self._takes_candidates = len(inspect.signature(rule.scores).parameters) > 2

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        """The rule's own scores (rows, k, vocab or candidates); 0 where a site is PAD.

        Rows with fewer hidden sites than others have PAD in `sites`. A rule never sees it: it is
        asked separately for the rows of each number of hidden sites.
        """
        is_hidden = sites != PAD
        if bool(is_hidden.all()):
            return self._ask(tokens, sites, candidates)
        counts = is_hidden.sum(dim=1)
        slots = is_hidden.to(torch.int8).argsort(dim=1, descending=True, stable=True)
        width = self.vocab_size if candidates is None else candidates.shape[-1]
        answers = None
        for count in counts[counts > 0].unique().tolist():
            rows = (counts == count).nonzero()
            chosen = slots[rows[:, 0], :count]  # of each row, where its hidden sites are in `sites`
            wanted = None if candidates is None else candidates[rows, chosen]
            part = self._ask(tokens[rows[:, 0]], sites[rows, chosen], wanted)
            if answers is None:
                answers = part.new_zeros(*sites.shape, width)
            answers[rows, chosen] = part
        return torch.zeros(*sites.shape, width, device=sites.device) if answers is None else answers

    def _ask(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None) -> Tensor:
        """One call of the rule, with as many hidden sites in every row."""
        if self._takes_candidates:
            return self.rule.scores(tokens, sites, candidates)
        scores = self.rule.scores(tokens, sites)
        return scores if candidates is None else scores.gather(-1, candidates)

    def conditionals(
        self, *, standard_only: bool = True, forbid: Iterable[str] = ()
    ) -> Conditionals:
        """What a chain should draw from: the rule itself, or without the forbidden tokens."""
        allowed = self.vocabulary.proposable(standard_only=standard_only, forbid=forbid)
        return self if bool(allowed.all()) else Restricted(self, allowed.to(self.state_device))

    def to(self, *, device: str | None = None, dtype: str | None = None) -> "Own":
        """Itself: a rule computes where and as it does.

        Another device is refused; a warning is given where float64 is wanted and it is not.
        """
        if device is not None and not self._is_on(choose_device(device)):
            raise GlauberError(f"{self.name} is on {self.device} and cannot be moved to {device}.")
        if dtype == "float64" != self.dtype:
            warnings.warn(
                f"{self.name} computes in {self.dtype}: no float64 stands behind what it says.",
                GlauberWarning,
                stacklevel=2,
            )
        elif dtype not in (None, self.dtype):
            raise GlauberError(f"{self.name} computes in {self.dtype}, not in {dtype}.")
        return self

    @property
    def device(self) -> torch.device:
        return torch.device(getattr(self.rule, "device", "cpu"))

    @cached_property
    def dtype(self) -> str:
        return str(self._probe_scores.dtype).removeprefix("torch.")

    def _hash(self) -> str:
        """The rule's own fingerprint, or SHA-256 over scores at fixed rows and its spellings."""
        fingerprint = getattr(self.rule, "fingerprint", "")
        if fingerprint:
            return str(fingerprint)
        digest = hashlib.sha256(f"{self.name} {self.vocab_size}".encode())
        digest.update(self._probe_scores.detach().double().cpu().contiguous().numpy().tobytes())
        digest.update(repr([self.vocabulary.spell(t) for t in range(self.vocab_size)]).encode())
        return digest.hexdigest()

    @cached_property
    def _probe_scores(self) -> Tensor:
        """The scores of a few fixed rows, each with one site hidden.

        A rule for texts of one length need not say so: the lengths 4, 1, 2, 3, 5, …, 64 are tried
        in this order until it answers.
        """
        if self.length is not None:
            return self._probe(self.length)
        first_error: Exception | None = None
        for length in PROBE_LENGTHS:
            if length > self.longest:
                continue
            try:
                return self._probe(length)
            except Exception as error:
                first_error = first_error or error
        if isinstance(first_error, GlauberError):
            raise first_error
        raise GlauberError(
            f"{self.name} cannot score texts of 1 to {min(64, self.longest)} tokens "
            f"({type(first_error).__name__}: {first_error}); if it is made for texts of one "
            "length, give it that number as the attribute `length`."
        ) from first_error

    def _probe(self, length: int) -> Tensor:
        spread = torch.arange(4 * length).view(4, length) * 2654435761 // 65536
        tokens = (spread % self.vocab_size).to(self.state_device)
        sites = (torch.arange(4)[:, None] % length).to(self.state_device)
        scores = self.scores(tokens, sites)
        if not isinstance(scores, Tensor) or scores.shape != (4, 1, self.vocab_size):
            shape = tuple(getattr(scores, "shape", ()))
            raise GlauberError(
                f"the scores of {self.name} have shape {shape}, but for 4 rows with one hidden "
                f"site each they must have shape {(4, 1, self.vocab_size)}."
            )
        return scores


def vocabulary_of(spellings: object, size: int) -> Vocabulary:
    """The vocabulary of a list of spellings, or of the tokens' numbers; objects as they are."""
    if spellings is None:
        spellings = [str(token) for token in range(size)]
    if hasattr(spellings, "decode") and hasattr(spellings, "rows"):
        return cast(Vocabulary, spellings)
    if hasattr(spellings, "encode") and hasattr(spellings, "spell"):
        spellings = [spellings.spell(token) for token in range(size)]
    if not isinstance(spellings, Sequence) or (
        isinstance(spellings, str) and len(spellings) != size
    ):
        raise GlauberError("a vocabulary is a list with the spelling of each token.")
    return symbols([str(symbol) for symbol in spellings], size)


def symbols(spellings: list[str], size: int) -> Vocabulary:
    """A vocabulary of these symbols: single characters are joined, longer ones have blanks.

    A text is cut at blanks and then into the longest symbols that match, from left to right.
    """
    if len(spellings) != size:
        raise GlauberError(f"the vocabulary has {len(spellings)} spellings for {size} tokens.")
    if len({*spellings, HIDDEN, UNKNOWN}) < size + 2 or "" in spellings:
        raise GlauberError("a spelling of the vocabulary is empty, reserved or there twice.")
    single = all(len(symbol) == 1 for symbol in spellings)
    spaced = next((s for s in spellings if s != "".join(s.split())), None)
    if spaced is not None and not single:
        raise GlauberError(f"the spelling {spaced!r} has a blank in it, where tokens are cut.")
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    known = {symbol: token for token, symbol in enumerate([*spellings, HIDDEN, UNKNOWN])}
    backend = Tokenizer(models.WordLevel(known, unk_token=UNKNOWN))
    if single:
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        backend.decoder = decoders.Fuse()
    else:
        pieces = "|".join(map(re.escape, sorted(spellings, key=len, reverse=True)))
        cuts = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(pieces), "isolated")]
        backend.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token=UNKNOWN, mask_token=HIDDEN
    )
    return Vocabulary(tokenizer, size)
