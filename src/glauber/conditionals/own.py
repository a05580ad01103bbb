"""How does a rule of one's own become a model that every study can ask?

A class with `vocab_size` and `scores` is enough. It may also have a `name`, a `fingerprint`, a
fixed `length`, and a `vocabulary`: a list of the tokens' spellings, or an object with encode,
decode and spell. Without one the tokens are spelled by their numbers.
"""

import hashlib
import inspect
import re
import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from glauber.conditionals.base import Conditionals, Restricted
from glauber.conditionals.vocabulary import Vocabulary
from glauber.errors import GlauberError, GlauberWarning

HIDDEN, UNKNOWN = "[MASK]", "[UNK]"  # what stands at a hidden site, and for what has no token
PROBE_LENGTH = 4  # tokens of the rows that tell one rule from another, where it has no length
INTERFACE = (
    "name", "fingerprint", "vocabulary", "device", "dtype", "state_device", "longest",
    "conditionals", "in_float64", "proposals", "whole_vocabulary",
)  # fmt: skip


def is_model(given: Any) -> bool:
    """Whether an object has all that studies ask of a model."""
    return all(name in vars(given) or hasattr(type(given), name) for name in INTERFACE)


class Own:
    """A rule of one's own with all that studies ask of a model."""

    def __init__(self, rule: Conditionals) -> None:
        self.rule = rule
        self.vocab_size = int(rule.vocab_size)
        if self.vocab_size < 2:
            raise GlauberError(f"the model has {self.vocab_size} tokens, but a law needs two.")
        self.name = str(getattr(rule, "name", "") or type(rule).__name__)
        self.vocabulary: Any = vocabulary_of(getattr(rule, "vocabulary", None), self.vocab_size)
        fixed = getattr(rule, "length", None)
        self.length = int(fixed) if isinstance(fixed, int) else None
        self.longest = self.length or int(getattr(rule, "longest", 2**30))
        self.whole_vocabulary = bool(getattr(rule, "whole_vocabulary", True))
        # What stands at a hidden site of a chain: by default no token of the vocabulary.
        self.hidden_token = int(getattr(rule, "hidden_token", self.vocab_size))
        self._takes_candidates = len(inspect.signature(rule.scores).parameters) > 2

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        """The rule's own scores (rows, k, vocab or candidates).

        Where a row has fewer hidden sites than the others, generation fills up with PAD: a rule
        need not know that, and is asked for one of the row's sites again.
        """
        if sites.shape[1] > 1:
            last = sites.amax(dim=1, keepdim=True).clamp(min=0)
            sites = torch.where(sites >= 0, sites, last)
        if self._takes_candidates:
            return self.rule.scores(tokens, sites, candidates)
        scores = self.rule.scores(tokens, sites)
        return scores if candidates is None else scores.gather(-1, candidates)

    def conditionals(self, *, standard_only: bool = True, forbid: Any = ()) -> Conditionals:
        """What a chain should draw from: the rule itself, or without the forbidden tokens."""
        allowed = self.vocabulary.proposable(standard_only=standard_only, forbid=forbid)
        return self if bool(allowed.all()) else Restricted(self, allowed.to(self.state_device))

    def proposals(self) -> Conditionals:
        """What ranks the whole vocabulary at a site: the conditionals themselves."""
        return self.conditionals()

    def in_float64(self) -> "Own":
        """Itself: a rule computes as it does; a note says so where that is not float64."""
        if self.dtype != "float64":
            warnings.warn(
                f"{self.name} computes in {self.dtype}: no float64 stands behind what it says.",
                GlauberWarning,
                stacklevel=2,
            )
        return self

    def on(self, device: str) -> "Own":
        """Refused: only its author knows how to move it."""
        raise GlauberError(f"{self.name} is on {self.device} and cannot be moved to {device}.")

    @property
    def device(self) -> torch.device:
        return torch.device(getattr(self.rule, "device", "cpu"))

    @property
    def state_device(self) -> torch.device:
        """Where chains live: with the rule on CUDA, else on the CPU."""
        return self.device if self.device.type == "cuda" else torch.device("cpu")

    @cached_property
    def dtype(self) -> str:
        return str(self._probed.dtype).removeprefix("torch.")

    @cached_property
    def fingerprint(self) -> str:
        """The rule's own, or SHA-256 over its scores at fixed rows and its spellings."""
        given = getattr(self.rule, "fingerprint", "")
        if given:
            return str(given)
        digest = hashlib.sha256(f"{self.name} {self.vocab_size}".encode())
        digest.update(self._probed.detach().double().cpu().contiguous().numpy().tobytes())
        digest.update(repr([self.vocabulary.spell(t) for t in range(self.vocab_size)]).encode())
        return digest.hexdigest()

    @cached_property
    def _probed(self) -> Tensor:
        """The scores of a few fixed rows, each with one site hidden."""
        length = self.length or min(PROBE_LENGTH, self.longest)
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


def vocabulary_of(given: Any, size: int) -> Any:
    """The vocabulary of a list of spellings, or of the tokens' numbers; objects as they are."""
    if given is None:
        given = [str(token) for token in range(size)]
    if hasattr(given, "decode") and hasattr(given, "rows"):
        return given
    if hasattr(given, "encode") and hasattr(given, "spell"):
        given = [given.spell(token) for token in range(size)]
    if not isinstance(given, Sequence) or (isinstance(given, str) and len(given) != size):
        raise GlauberError("a vocabulary is a list with the spelling of each token.")
    return symbols([str(symbol) for symbol in given], size)


def symbols(spellings: list[str], size: int) -> Vocabulary:
    """A vocabulary of these symbols: single characters are joined, longer ones have blanks.

    A text is cut at blanks and then into the longest symbols that match, from left to right.
    """
    _check_symbols(spellings, size)
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    known = {symbol: token for token, symbol in enumerate([*spellings, HIDDEN, UNKNOWN])}
    backend = Tokenizer(models.WordLevel(known, unk_token=UNKNOWN))
    if all(len(symbol) == 1 for symbol in spellings):
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        backend.decoder = decoders.Fuse()
    else:
        longest_first = sorted(spellings, key=len, reverse=True)
        pieces = "|".join(re.escape(symbol) for symbol in longest_first)
        cuts = [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Split(Regex(pieces), "isolated"),
        ]
        backend.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token=UNKNOWN, mask_token=HIDDEN
    )
    return Vocabulary(tokenizer, size)


def _check_symbols(spellings: list[str], size: int) -> None:
    if len(spellings) != size:
        raise GlauberError(f"the vocabulary has {len(spellings)} spellings for {size} tokens.")
    if len({*spellings, HIDDEN, UNKNOWN}) < size + 2 or "" in spellings:
        raise GlauberError("a spelling of the vocabulary is empty, reserved or there twice.")
    single = all(len(symbol) == 1 for symbol in spellings)
    spaced = next((s for s in spellings if s != "".join(s.split())), None)
    if spaced is not None and not single:
        raise GlauberError(f"the spelling {spaced!r} has a blank in it, where tokens are cut.")
