"""What models have in common: device, precision, copies, what chains draw from.

`BaseModel` is the base of every model; `OnePass` that of models which score every token at hidden
sites in one pass.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from math import gcd
from typing import Self

import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError
from glauber.models.base import Conditionals, Restricted, hide
from glauber.models.batching import ExactRows, Forward, PaddedRows, row_bytes
from glauber.models.forward.description import Description
from glauber.models.forward.encoder import FEWEST_ROWS, VECTOR, Encoder
from glauber.models.forward.packed import PackedRows
from glauber.models.vocabulary import Vocabulary
from glauber.models.weights import DTYPES, choose_device


class BaseModel:
    """The part of `Model` that does not depend on how scores are computed."""

    name: str  # as the user wrote it
    vocab_size: int  # tokens, special ones too
    vocabulary: Vocabulary  # texts to tokens and back
    longest: int  # tokens of a text
    length: int | None = None  # of every text, for models of texts of one length
    hidden_token: int | None = None  # the mask token
    whole_vocabulary: bool = True  # whether one pass scores every token at a hidden site
    is_own: bool = False  # whether it is an object of the user's own, which no name loads again
    texts: Sequence[str] = ()  # where chains start by default, instead of the bundled passages
    int8: bool = False  # whether the products of the encoder are computed in 8-bit integers
    dtypes: Sequence[str] = tuple(DTYPES)  # in which it can compute
    _weight: Tensor  # of the first layer: its device and precision are those of the model
    _fingerprint: str | Callable[[], str]

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Unnormalised log-probabilities at hidden sites: see `Conditionals`."""
        raise NotImplementedError

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over weights and vocabulary: equal exactly when the conditionals are."""
        return self._fingerprint() if callable(self._fingerprint) else self._fingerprint

    @property
    def device(self) -> torch.device:
        """Where the weights are; those of the first layer, where they are spread."""
        return self._weight.device

    @property
    def dtype(self) -> str:
        """The precision of the weights, such as float32, or int8."""
        return "int8" if self.int8 else str(self._weight.dtype).removeprefix("torch.")

    @property
    def state_device(self) -> torch.device:
        """Where chains live: with the model on CUDA, else on the CPU (draws need float64)."""
        return self.device if self.device.type == "cuda" else torch.device("cpu")

    def conditionals(
        self, *, standard_only: bool = True, forbid: Iterable[str] = ()
    ) -> Conditionals:
        """What a chain should draw from: the tokens that may be proposed.

        Neither special nor unused ones, of proteins only the twenty standard residues (all letters
        with standard_only=False), and none of those that `forbid` names by their spelling.
        """
        allowed = self.vocabulary.proposable(standard_only=standard_only, forbid=forbid)
        return Restricted(self, allowed.to(self.state_device))

    def proposals(self) -> Conditionals:
        """What ranks the whole vocabulary at a site: the conditionals themselves."""
        return self.conditionals()

    def to(self, *, device: str | None = None, dtype: str | None = None) -> Self:
        """The same weights on another device or in another precision.

        Apple's GPUs have no float64: a model in float64 is then on the CPU.
        """
        if dtype is not None and dtype not in self.dtypes:
            raise GlauberError(
                f"{self.name} computes in {' or '.join(self.dtypes)}, not in {dtype}."
            )
        target = self.device if device is None else choose_device(device)
        if dtype == "float64" and target.type == "mps":
            target = torch.device("cpu")
        same = dtype in (None, self.dtype) and self._is_on(target)
        return self if same else self._copy(target, dtype)

    def _is_on(self, device: torch.device) -> bool:
        return device.type == self.device.type and device.index in (None, self.device.index)

    def _copy(self, device: torch.device, dtype: str | None) -> Self:
        """A copy there, in that precision or its own."""
        raise NotImplementedError


class OnePass(BaseModel):
    """A model that scores every token at hidden sites in one pass, with its mask token there."""

    hidden_token: int
    encoder: Encoder | None = None  # our own forward pass
    packed: PackedRows | None = None  # the fastest way to score many rows with one site each
    _head: Callable[[Tensor], Tensor] | None  # states (rows, d) -> scores (rows, vocab)
    _batched: Forward

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Unnormalised log-probabilities (rows, k, vocab) at hidden sites, in the model's dtype.

        tokens (rows, length) int64, PAD (-1) after shorter rows; sites (rows, k) int64, PAD where
        a row hides fewer. The sites of a row are hidden together, and what stands there does not
        matter. With candidates (rows, k, c) the answer is (rows, k, c), for those tokens only.
        On a CPU a row's scores do not depend on the other rows.
        """
        with torch.no_grad():
            return self._batched(hide(tokens, sites, self.hidden_token), sites, candidates)

    def _batches(self, described: Description, budget: int, probes: int = 1) -> Forward:
        """How the calls of a described model are made on its device."""
        if self.device.type != "cuda":
            return ExactRows(self._forward, self.vocab_size, probes)
        size = partial(row_bytes, described, itemsize=self._weight.dtype.itemsize)
        return PaddedRows(self._forward, size, budget)

    def _check_int8(self) -> None:
        if self.int8 and self.device.type != "cpu":
            raise GlauberError(f"int8 is there on a CPU only, and the device is {self.device}.")

    def _forward(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None) -> Tensor:
        """One call of the model: tokens (rows, length), sites (rows, k), already hidden."""
        scores = self._scores_at(tokens, sites)
        return scores if candidates is None else scores.gather(-1, candidates)

    def _scores_at(self, tokens: Tensor, sites: Tensor) -> Tensor:
        """Scores (rows, k, vocab) of one call."""
        assert self.encoder is not None
        return self._ours(self.encoder, tokens, sites)

    def _ours(self, encoder: Encoder, tokens: Tensor, sites: Tensor) -> Tensor:
        """By our forward pass."""
        states = encoder(tokens.to(self.device), sites.to(self.device))
        return self._read(states).to(tokens.device)

    def _read(self, states: Tensor) -> Tensor:
        """The head on states (rows, k, d), in a product of at least FEWEST_ROWS rows.

        The numbers of the product are a multiple of VECTOR, so that none is rounded differently.
        """
        assert self._head is not None
        rows, k, width = states.shape
        flat = states.reshape(rows * k, width)
        step = VECTOR // gcd(VECTOR, width)
        filled = -(-max(rows * k, FEWEST_ROWS) // step) * step
        if filled > rows * k and not states.is_cuda:
            flat = torch.nn.functional.pad(flat, (0, 0, 0, filled - rows * k))
        scores: Tensor = self._head(flat)[: rows * k]
        return scores.view(rows, k, -1)
