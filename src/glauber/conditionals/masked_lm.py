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
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from glauber.conditionals.base import PAD
from glauber.conditionals.base_model import OnePass
from glauber.conditionals.batching import ACTIVATIONS, ExactRows, PaddedRows, probes_for, row_bytes
from glauber.conditionals.encoder_weights import EncoderWeights, open_encoder
from glauber.conditionals.forward import guard
from glauber.conditionals.forward.description import Head
from glauber.conditionals.forward.encoder import Encoder, scores_of
from glauber.conditionals.forward.encoder_int8 import EncoderInt8
from glauber.conditionals.forward.guard import Record
from glauber.conditionals.forward.laid_out import lay_out, lay_out_head
from glauber.conditionals.forward.packed import PackedRows
from glauber.conditionals.vocabulary import Vocabulary
from glauber.conditionals.weights import (
    choose_device,
    choose_dtype,
    fingerprint_of,
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
        """model is a module of transformers, or the weights of one.

        With a fingerprint, a comparison with transformers that was made before counts.
        """
        weights = model if isinstance(model, EncoderWeights) else EncoderWeights.of_module(model)
        if tokenizer.mask_token_id is None:
            raise GlauberError(no_mask(name or name_of(weights.module)))
        self.weights = weights  # tensors and config, and the module once it is asked for
        self.name = name or name_of(weights.module)
        self._fingerprint = fingerprint or partial(fingerprint_of, weights.tensors, tokenizer)
        self._record = None
        if fingerprint:
            self._record = Record(fingerprint, weights.config, weights.dtype, weights.device)
        self._weight = weights.first
        self.vocab_size = int(weights.config["vocab_size"])
        config = SimpleNamespace(**weights.config)
        self.vocabulary = Vocabulary(tokenizer, self.vocab_size, config=config)
        self.hidden_token = int(tokenizer.mask_token_id)
        self.pad_token = int(tokenizer.pad_token_id or 0)  # fills shorter rows
        self.int8 = int8  # whether the weights are rounded to bytes
        head = weights.head()
        self._head = None if head is None else partial(scores_of, head)
        self.encoder = self._encoder(head)  # our own forward pass, or None
        if self.encoder is not None:
            self.longest = min(self.encoder.described.places, int(tokenizer.model_max_length))
        else:
            self.longest = longest_text(self.model, tokenizer, self.name)
        if self.encoder is None and not self._head_agrees():
            self._head = None
        if self._head is None:
            warnings.warn(
                f"{weights.shape} is not a shape that we know: the scores of every "
                "position are formed, which costs memory and time.",
                stacklevel=2,
            )
        self._batched = self._batching(budget)
        self.packed = None
        if self.encoder is not None and self.device.type == "cpu" and not int8:
            self.packed = PackedRows(self.encoder, self._read, self.hidden_token)

    @property
    def model(self) -> Any:
        """transformers' module, which is made when it is first asked for."""
        return self.weights.module

    def _encoder(self, head: Head | None) -> Encoder | None:
        """Our own forward pass, where it is described and says what transformers says."""
        described = self.weights.describe()
        if self.int8 and self.device.type != "cpu":
            raise GlauberError(f"int8 is there on a CPU only, and the device is {self.device}.")
        if described is None and self.int8:
            raise GlauberError(
                f"int8 is not there for {self.name}: its shape, {self.weights.shape}, is not one "
                "that we know."
            )
        if described is None or head is None:
            return None
        encoder = Encoder(described if self.int8 else lay_out(described))
        apart = self._compare(encoder)
        if apart <= guard.tolerance(described, self.weights.dtype):
            self._head = partial(scores_of, lay_out_head(head))
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
            stacklevel=4,
        )
        return None

    def _compare(self, encoder: Encoder, *, again: bool = False) -> float:
        """How far our pass is from transformers', in spreads of the scores; 0 if that is known."""
        if self._record is not None and self._record.exists() and not again:
            return 0.0
        described = encoder.described
        apart = self._difference(partial(self._ours, encoder), guard.lengths_to_try(described))
        if self._record is not None:
            agrees = apart <= guard.tolerance(described, self.weights.dtype)
            self._record.write(apart) if agrees else self._record.remove()
        return apart

    def _difference(self, ours: guard.Scores, lengths: list[int]) -> float:
        return guard.difference(
            ours,
            self._logits,
            usual=self.vocabulary.proposable().nonzero()[:, 0],
            hidden_token=self.hidden_token,
            lengths=lengths,
        )

    def _head_agrees(self) -> bool:
        """Whether the head at the hidden sites says what transformers says of the whole text."""
        if self._head is None:
            return False
        apart = self._difference(self._theirs, [min(guard.SHORT, self.longest)])
        return apart <= guard.TOLERANCE[self.weights.dtype]

    def verify(self) -> tuple[float, float]:
        """Our pass against transformers' once more: the difference, and what is tolerated.

        Both in spreads of the scores; of an int8 model, the pass that it rounds.
        """
        described = self.weights.describe()
        if self.encoder is None or described is None:
            raise GlauberError(f"{self.name} is computed by transformers itself.")
        tolerated = guard.tolerance(described, self.weights.dtype)
        return self._compare(Encoder(described), again=True), tolerated

    def _batching(self, budget: int) -> ExactRows | PaddedRows:
        if self.device.type != "cuda":
            probes = 1
            if self.encoder is None:
                probes = 0 if self.weights.shape in CHANGING else probes_for(self.model)
            return ExactRows(self._forward, self.vocab_size, probes)
        itemsize, vocab = self._weight.dtype.itemsize, self.vocab_size
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
        weights, tokenizer = open_encoder(name, trust_remote_code)
        if mask_token is not None:
            give_mask(tokenizer, mask_token, name)
        fingerprint = fingerprint_of(weights.tensors, tokenizer)
        return cls(
            weights.to(place, precision, keep=False),
            tokenizer,
            name=name,
            fingerprint=fingerprint,
            budget=budget,
            int8=dtype == "int8",
        )

    def _copy(self, device: torch.device, dtype: str | None) -> "MaskedLM":
        precision = self.weights.dtype if dtype is None else choose_dtype(dtype)
        return MaskedLM(
            self.weights.to(device, precision),
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
        if self._head is None:
            return self._logits(tokens, sites)
        home, tokens, sites = tokens.device, tokens.to(self.device), sites.to(self.device)
        with self._unchanged() as model:
            states = model.base_model(**self._inputs(tokens))[0]
        return self._read(_take(states, sites)).to(home)

    def _logits(self, tokens: Tensor, sites: Tensor) -> Tensor:
        """By transformers' alone, which forms the scores of every position."""
        home, tokens, sites = tokens.device, tokens.to(self.device), sites.to(self.device)
        with self._unchanged() as model:
            return _take(model(**self._inputs(tokens)).logits, sites).to(home)

    @contextmanager
    def _unchanged(self) -> Iterator[Any]:
        """The model as it was loaded, so that an answer does not depend on earlier calls.

        A model that changes in a call is called as a copy that shares its weights, one call at a
        time and with the same random numbers.
        """
        if self.weights.shape not in CHANGING:
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
