"""What does a transformers masked LM say about hidden sites?

Any `AutoModelForMaskedLM`, by hub name, local folder or `bundled:NAME`. The head is applied at the
hidden sites only; rows are batched so that on a CPU a row's scores never depend on other rows.
"""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glauber.conditionals.base import PAD
from glauber.conditionals.base_model import OnePass
from glauber.conditionals.batching import ACTIVATIONS, ExactRows, PaddedRows, probes_for, row_bytes
from glauber.conditionals.forward import guard
from glauber.conditionals.forward.encoder import Encoder
from glauber.conditionals.forward.encoder_int8 import EncoderInt8
from glauber.conditionals.forward.laid_out import lay_out, with_head_laid_out
from glauber.conditionals.forward.packed import PackedRows
from glauber.conditionals.forward.read import HEADS, describe
from glauber.conditionals.vocabulary import Vocabulary
from glauber.conditionals.weights import (
    check_weights,
    choose_device,
    choose_dtype,
    fingerprint_of,
    from_pretrained,
    in_precision,
    longest_text,
    name_of,
)
from glauber.errors import GlauberError, GlauberWarning

# Shapes whose calls change the model (BigBird's attention after a short text, Reformer's number of
# buckets) or draw from torch's global generator (the hashes of Reformer and YOSO).
CHANGING = {"big_bird", "reformer", "yoso"}
_one_call = threading.Lock()


class MaskedLM(OnePass):
    """A masked LM as conditionals: scores at hidden sites, (rows, k, vocab)."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str = "",
        fingerprint: str = "",
        budget: int = ACTIVATIONS,
        int8: bool = False,
    ) -> None:
        if tokenizer.mask_token_id is None:
            raise GlauberError(no_mask(name or name_of(model)))
        self.model = model.eval().requires_grad_(False)  # of transformers
        self.name = name or name_of(model)
        self._fingerprint = fingerprint or partial(fingerprint_of, model, tokenizer)
        self._weight = next(w for w in model.parameters() if w.is_floating_point())
        self.vocab_size = int(model.config.vocab_size)
        self.vocabulary = Vocabulary(tokenizer, self.vocab_size, config=model.config)
        self.hidden_token = int(tokenizer.mask_token_id)
        self.pad_token = int(tokenizer.pad_token_id or 0)  # fills shorter rows
        self.longest = longest_text(model, tokenizer, self.name)
        self.int8 = int8  # whether the weights are rounded to bytes
        head = HEADS.get(model.config.model_type)
        self._head = None if head is None else head(self.model)
        self.encoder = self._encoder()  # our own forward pass, or None
        if self.encoder is not None and head is not None:
            self._head = head(with_head_laid_out(self.model))
        if self._head is None:
            warnings.warn(
                f"{model.config.model_type} is not a shape that we know: the scores of every "
                "position are formed, which costs memory and time.",
                stacklevel=2,
            )
        self._batched = self._batching(budget)
        self.packed = None
        if self.encoder is not None and self.device.type == "cpu" and not int8:
            self.packed = PackedRows(self.encoder, self._read, self.hidden_token)

    def _encoder(self) -> Encoder | None:
        """Our own forward pass, where it is described and says what transformers says."""
        described = describe(self.model)
        if self.int8 and self.device.type != "cpu":
            raise GlauberError(f"int8 is there on a CPU only, and the device is {self.device}.")
        if described is None and self.int8:
            raise GlauberError(
                f"int8 is not there for {self.name}: its shape, "
                f"{self.model.config.model_type}, is not one that we know."
            )
        if described is None:
            return None
        encoder = Encoder(described if self.int8 else lay_out(described))
        apart = guard.difference(
            lambda *asked: self._ours(encoder, *asked),
            self._theirs,
            usual=self.vocabulary.proposable().nonzero()[:, 0],
            hidden_token=self.hidden_token,
            lengths=guard.lengths_to_try(described),
        )
        if apart <= guard.tolerance(described, self.model.dtype):
            return EncoderInt8(described) if self.int8 else encoder
        if self.int8:
            raise GlauberError(
                f"int8 is not there for {self.name}: our forward pass, which it rounds, differs "
                f"from transformers' by {apart:.1g} of the scores' spread."
            )
        how = f"differs from transformers' by {apart:.1g} of the scores' spread"
        warnings.warn(
            f"our forward pass {'fails' if apart == float('inf') else how} on {self.name}, so "
            "transformers' is used, which is slower.",
            GlauberWarning,
            stacklevel=3,
        )
        return None

    def _batching(self, budget: int) -> ExactRows | PaddedRows:
        if self.device.type != "cuda":
            probes = 1
            if self.encoder is None:
                changing = self.model.config.model_type in CHANGING
                probes = 0 if changing else probes_for(self.model)
            return ExactRows(self._forward, self.vocab_size, probes)
        itemsize, vocab = self.model.dtype.itemsize, self.vocab_size
        if self.encoder is not None:
            described = self.encoder.described
            return PaddedRows(
                self._forward, lambda n, k: row_bytes(described, n, k, itemsize), budget
            )
        token = 24 * int(self.model.config.hidden_size) * itemsize
        if self._head is None:  # the scores of every position
            token += 2 * vocab * itemsize
        return PaddedRows(
            self._forward, lambda n, k: token * n + k * vocab * (itemsize + 8), budget
        )

    @classmethod
    def load(
        cls,
        name: str,
        *,
        device: str = "auto",
        dtype: str = "float32",
        trust_remote_code: bool = False,
        mask_token: str | int | None = None,
        budget: int = ACTIVATIONS,
    ) -> "MaskedLM":
        """The model of that name: `bundled:NAME`, a local folder, or a name on the hub.

        mask_token is for a tokenizer that names none: its spelling or its number.
        """
        place, precision = choose_device(device), choose_dtype(dtype)
        model, tokenizer = from_pretrained(name, trust_remote_code)
        if mask_token is not None:
            give_mask(tokenizer, mask_token, name)
        check_weights(model, name)
        fingerprint = fingerprint_of(model, tokenizer)
        model = in_precision(model, place, precision)
        return cls(
            model,
            tokenizer,
            name=name,
            fingerprint=fingerprint,
            budget=budget,
            int8=dtype == "int8",
        )

    def _copy(self, device: torch.device, dtype: str | None) -> "MaskedLM":
        model = deepcopy(self.model).to(device)
        return MaskedLM(
            model if dtype is None else model.to(choose_dtype(dtype)),
            self.vocabulary.tokenizer,
            name=self.name,
            fingerprint=self.fingerprint,
            int8=(dtype or self.dtype) == "int8",
        )

    def _forward(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None) -> Tensor:
        """One call of the model: tokens (rows, length), sites (rows, k), already hidden."""
        ask = self._theirs if self.encoder is None else partial(self._ours, self.encoder)
        scores = ask(tokens, sites)
        return scores if candidates is None else scores.gather(-1, candidates)

    def _theirs(self, tokens: Tensor, sites: Tensor) -> Tensor:
        """By transformers', with the head at the hidden sites only where it is known."""
        home, tokens, sites = tokens.device, tokens.to(self.device), sites.to(self.device)
        with self._unchanged() as model:
            if self._head is None:
                return _take(model(**self._inputs(tokens)).logits, sites).to(home)
            states = model.base_model(**self._inputs(tokens))[0]
        return self._read(_take(states, sites)).to(home)

    @contextmanager
    def _unchanged(self) -> Iterator[Any]:
        """The model as it was loaded, so that an answer does not depend on earlier calls.

        A model that changes in a call is called as a copy that shares its weights, one call at a
        time and with the same random numbers.
        """
        if self.model.config.model_type not in CHANGING:
            yield self.model
            return
        shared = [*self.model.parameters(), *self.model.buffers()]
        devices = [self.device] if self.device.type == "cuda" else []
        with _one_call, torch.random.fork_rng(devices):
            torch.manual_seed(0)
            yield deepcopy(self.model, {id(one): one for one in shared})

    def _inputs(self, tokens: Tensor) -> dict[str, Tensor]:
        there = tokens != PAD
        inputs = {"input_ids": tokens.masked_fill(~there, self.pad_token)}
        if tokens.is_cuda:  # elsewhere, the rows of a call have one length
            inputs["attention_mask"] = there.long()
        return inputs


def _take(states: Tensor, sites: Tensor) -> Tensor:
    """states (rows, length, d) at sites (rows, k) -> (rows, k, d)."""
    rows = torch.arange(len(states), device=states.device)[:, None]
    return states[rows, sites.clamp(min=0)]


def no_mask(name: str) -> str:
    """One sentence on a model whose mask token nobody names."""
    return (
        f"the tokenizer of {name} has no mask token: say which it is by "
        f"{name}?mask_token=TOKEN, with its spelling or its number."
    )


def give_mask(tokenizer: Any, given: str | int, name: str) -> int:
    """The token of that spelling or number becomes the tokenizer's mask token."""
    known = tokenizer.get_vocab()
    number = given if isinstance(given, int) else known.get(given)
    if number is None and str(given).isdecimal():
        number = int(given)
    if number is None or number < 0:
        raise GlauberError(f"{given!r} is no token of {name}, so it cannot be its mask token.")
    if tokenizer.mask_token_id != number:
        spelled = next((word for word, token in known.items() if token == number), None)
        if spelled is None and number == len(tokenizer):  # a row that the tokenizer does not name
            spelled = next(word for word in ("[MASK]", "<|mask|>", "[HIDDEN]") if word not in known)
        if spelled is not None:
            tokenizer.add_special_tokens({"mask_token": spelled})
    return int(number)
