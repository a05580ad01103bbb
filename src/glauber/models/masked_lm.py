"""Masked LMs: any `AutoModelForMaskedLM`, by hub name, local folder or `bundled:NAME`.

The head is applied at the hidden sites only; rows are batched so that on a CPU a row's scores never
depend on other rows. A folder of an architecture that `forward.families` describes is read without
transformers; its module is made when somebody asks for it.
"""

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.foundation.json_text import parse_json
from glauber.models.base import PAD
from glauber.models.base_model import OnePass
from glauber.models.batching import ACTIVATIONS, ExactRows, Forward, PaddedRows, probes_for
from glauber.models.forward import guard
from glauber.models.forward.checkpoint import (
    KEYS,
    Config,
    Safetensors,
    Tensors,
    Unknown,
    WeightReader,
)
from glauber.models.forward.description import Description, Head
from glauber.models.forward.encoder import Encoder, lay_out, lay_out_head, scores_of
from glauber.models.forward.families import ENCODERS, describe, family_of, head_of
from glauber.models.forward.guard import Record
from glauber.models.forward.packed import PackedRows
from glauber.models.shelf import is_folder, place_of
from glauber.models.vocabulary import Vocabulary, open_tokenizer
from glauber.models.weights import (
    DEBERTA_HEAD,
    check_folder,
    check_tokenizer,
    check_weights,
    choose_device,
    choose_dtype,
    copy_of,
    fingerprint_of,
    from_pretrained,
    in_precision,
    longest_text,
    name_of,
)

if TYPE_CHECKING:
    from glauber.models.weights import PreTrainedModel, PreTrainedTokenizerBase

# Shapes whose calls change the model (BigBird's attention after a short text, Reformer's number of
# buckets) or draw from torch's global generator (the hashes of Reformer and YOSO).
CHANGING = {"big_bird", "reformer", "yoso"}
# Tensors of other heads and of older versions, which transformers' masked LMs do not have either.
OTHER = (".pooler.", "cls.seq_relationship.", ".position_ids")
# Whose defaults depend on the architecture where config.json leaves them out.
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
ROTATION = "esm.rotary_embeddings.inv_freq"  # which transformers counts among the weights
_one_call = threading.Lock()


class EncoderWeights:
    """A config and tensors by name, all in one precision and on one device.

    tensors are those of a module's state dict, tied ones under each of their names.
    """

    def __init__(
        self,
        config: Config,
        tensors: Tensors,
        *,
        make_module: Callable[[], "PreTrainedModel"],
        buffers: Tensors | None = None,
    ) -> None:
        self.config, self.tensors, self.buffers = config, tensors, buffers
        self._make_module = make_module
        self.first = next(value for value in tensors.values() if value.is_floating_point())

    @classmethod
    def of_module(cls, module: "PreTrainedModel") -> Self:
        """The weights of a module, which are not copied."""
        return cls(
            module.config.to_dict(),
            module.state_dict(),
            make_module=lambda: module,
            buffers=dict(module.named_buffers()),
        )

    @classmethod
    def read(cls, folder: Path, make_module: Callable[[], "PreTrainedModel"]) -> Self | None:
        """Those of a folder, in the precision of its config; None where transformers must read it.

        Folders with code of their own, with weights in another format and of architectures that
        are not described are for transformers.
        """
        check_folder(folder)
        config = parse_json((folder / "config.json").read_text(encoding="utf-8"))
        described = str(config.get("model_type")) in ENCODERS and "auto_map" not in config
        if not described or not any(folder.glob("model*.safetensors")):
            return None
        if any(token not in config for token in TOKENS):
            return None
        tensors = _read_tensors(folder)
        if ROTATION not in tensors and config.get("position_embedding_type") == "rotary":
            return None
        dtypes = {values.dtype for values in tensors.values() if values.is_floating_point()}
        dtype = getattr(torch, str(config.get("dtype") or config.get("torch_dtype")), None)
        if dtype is None and len(dtypes) == 1:
            dtype = dtypes.pop()
        if not isinstance(dtype, torch.dtype):
            return None
        cpu = torch.device("cpu")
        try:
            complete = WeightReader(family_of(config), config, tensors, [cpu], dtype).complete()
        except (Unknown, KeyError):  # what others are tied to is not there
            return None
        return cls(config, complete, make_module=make_module).to(cpu, dtype)

    @property
    def device(self) -> torch.device:
        return self.first.device

    @property
    def dtype(self) -> torch.dtype:
        return self.first.dtype

    @property
    def shape(self) -> str:
        """The architecture."""
        return str(self.config["model_type"])

    @cached_property
    def module(self) -> "PreTrainedModel":
        """transformers' module with these weights."""
        module = self._make_module()
        if self.buffers is None:
            module = in_precision(module, self.device, self.dtype)
            module.load_state_dict(self.tensors, strict=False, assign=True)
        return module.eval().requires_grad_(False)

    def describe(self) -> Description | None:
        """How the model is built; None where no description says."""
        try:
            return describe(self.config, self.tensors, [self.device], self.dtype, self.buffers)
        except Unknown:
            return None

    def head(self) -> Head | None:
        """The head alone: the layers may be built in a way that no description says."""
        return head_of(self.config, self.tensors, self.device, self.dtype)

    def to(self, device: torch.device, dtype: torch.dtype, *, keep: bool = True) -> Self:
        """The same weights there in that precision; without keep, a module is moved itself."""
        if self.buffers is not None:
            module = deepcopy(self.module) if keep else self.module
            return self.of_module(in_precision(module, device, dtype))
        moved: dict[int, Tensor] = {}
        for values in self.tensors.values():
            if id(values) not in moved:
                target = dtype if values.is_floating_point() else values.dtype
                moved[id(values)] = values.to(device, target)
        tensors = {name: moved[id(values)] for name, values in self.tensors.items()}
        return type(self)(self.config, tensors, make_module=self._make_module)

    def size(self, name: str) -> int:
        """A size that the config names: depth, width, ..."""
        return int(self.config[family_of(self.config).keys.get(name, KEYS[name])])

    @property
    def parameters(self) -> int:
        """Numbers of the weights, tied ones once."""
        distinct = {
            values.data_ptr(): values.numel()
            for name, values in self.tensors.items()
            if not name.endswith("inv_freq")
        }
        return sum(distinct.values())


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder, under the names that transformers has for them."""
    tensors = {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
            "LayerNorm.beta", "LayerNorm.bias"
        ): values
        for name, values in Safetensors(folder).items()
        if not any(part in name for part in OTHER)
    }
    for name in [name for name in tensors if name.endswith("rotary_embeddings.inv_freq")]:
        tensors[ROTATION] = tensors.pop(name)  # older files have the same one in each layer
    return tensors


def open_encoder(
    name: str, trust_remote_code: bool
) -> "tuple[EncoderWeights, PreTrainedTokenizerBase]":
    """The weights and the tokenizer of that name, without transformers where that can be."""
    folder = place_of(name)
    if is_folder(folder):
        plain = _open_folder(Path(folder), name, trust_remote_code)
        if plain is not None:
            return plain
    module, tokenizer = from_pretrained(name, trust_remote_code)
    check_weights(module, name)
    return EncoderWeights.of_module(module), tokenizer


def _open_folder(
    folder: Path, name: str, trust_remote_code: bool
) -> "tuple[EncoderWeights, PreTrainedTokenizerBase] | None":
    """None where transformers must read the folder, or can say what is wrong with it."""
    weights = EncoderWeights.read(folder, lambda: from_pretrained(name, trust_remote_code)[0])
    if weights is None or weights.describe() is None:
        return None
    try:
        tokenizer = open_tokenizer(folder)
    except Exception:  # what a broken file raises depends on where it is broken
        return None
    check_tokenizer(tokenizer, int(weights.config["vocab_size"]), name)
    if weights.config.get("legacy", True) is False:
        warnings.warn(f"{name}: {DEBERTA_HEAD}", GlauberWarning, stacklevel=4)
    return weights, tokenizer


class MaskedLM(OnePass):
    """A masked LM as conditionals: scores at hidden sites, (rows, k, vocab)."""

    def __init__(
        self,
        model: "PreTrainedModel | EncoderWeights",
        tokenizer: "PreTrainedTokenizerBase",
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
            raise no_mask(name or name_of(weights.module))
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
        if self.encoder is not None and self.device.type == "cpu" and not int8:
            self.packed = PackedRows(self.encoder, self._read, self.hidden_token)

    @property
    def model(self) -> "PreTrainedModel":
        """transformers' module, which is made when it is first asked for."""
        return self.weights.module

    def _encoder(self, head: Head | None) -> Encoder | None:
        """Our own forward pass, where it is described and says what transformers says."""
        described = self.weights.describe()
        self._check_int8()
        if described is None and self.int8:
            raise GlauberError(
                f"int8 is not there for {self.name}: its shape, {self.weights.shape}, is not one "
                "that we know."
            )
        if described is None or head is None:
            return None
        encoder = Encoder(described if self.int8 else lay_out(described))
        compared_before = self._record is not None and self._record.exists()
        apart = 0.0 if compared_before else self._compare(encoder)
        if apart <= guard.tolerance(described, self.weights.dtype):
            self._head = partial(scores_of, lay_out_head(head))
            if not self.int8:
                return encoder
            from glauber.models.forward.encoder_int8 import EncoderInt8

            return EncoderInt8(described)
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

    def _compare(self, encoder: Encoder) -> float:
        """How far our pass is from transformers', in spreads of the scores."""
        described = encoder.described
        apart = self._difference(partial(self._ours, encoder), guard.lengths_to_try(described))
        if self._record is not None:
            agrees = apart <= guard.tolerance(described, self.weights.dtype)
            self._record.write(apart) if agrees else self._record.remove()
        return apart

    def _difference(self, scores: guard.Scores, lengths: list[int]) -> float:
        return guard.difference(
            scores,
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
        return self._compare(Encoder(described)), guard.tolerance(described, self.weights.dtype)

    def _batching(self, budget: int) -> Forward:
        if self.encoder is not None:
            return self._batches(self.encoder.described, budget)
        if self.device.type != "cuda":
            probes = 0 if self.weights.shape in CHANGING else probes_for(self.model)
            return ExactRows(self._forward, self.vocab_size, probes)
        itemsize, vocab = self._weight.dtype.itemsize, self.vocab_size
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
        target, precision = choose_device(device), choose_dtype(dtype)
        weights, tokenizer = open_encoder(name, trust_remote_code)
        if mask_token is not None:
            give_mask(tokenizer, mask_token, name)
        fingerprint = fingerprint_of(weights.tensors, tokenizer)
        return cls(
            weights.to(target, precision, keep=False),
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

    def _scores_at(self, tokens: Tensor, sites: Tensor) -> Tensor:
        if self.encoder is None:
            return self._theirs(tokens, sites)
        return self._ours(self.encoder, tokens, sites)

    def _theirs(self, tokens: Tensor, sites: Tensor) -> Tensor:
        """By transformers', with the head at the hidden sites only where it is known."""
        if self._head is None:
            return self._logits(tokens, sites)
        home, tokens, sites = tokens.device, tokens.to(self.device), sites.to(self.device)
        with self._fresh_model() as model:
            states = model.base_model(**self._inputs(tokens))[0]
        return self._read(_take(states, sites)).to(home)

    def _logits(self, tokens: Tensor, sites: Tensor) -> Tensor:
        """By transformers' alone, which forms the scores of every position."""
        home, tokens, sites = tokens.device, tokens.to(self.device), sites.to(self.device)
        with self._fresh_model() as model:
            return _take(model(**self._inputs(tokens)).logits, sites).to(home)

    @contextmanager
    def _fresh_model(self) -> "Iterator[PreTrainedModel]":
        """The model as it was loaded, so that an answer does not depend on earlier calls.

        A model that changes in a call is called as a copy that shares its weights, one call at a
        time and with the same random numbers.
        """
        if self.weights.shape not in CHANGING:
            yield self.model
            return
        devices = [self.device] if self.device.type == "cuda" else []
        with _one_call, torch.random.fork_rng(devices):
            torch.manual_seed(0)
            yield copy_of(self.model)

    def _inputs(self, tokens: Tensor) -> dict[str, Tensor]:
        is_text = tokens != PAD
        inputs = {"input_ids": tokens.masked_fill(~is_text, self.pad_token)}
        if tokens.is_cuda:  # elsewhere, the rows of a call have one length
            inputs["attention_mask"] = is_text.long()
        return inputs


def _take(states: Tensor, sites: Tensor) -> Tensor:
    """states (rows, length, d) at sites (rows, k) -> (rows, k, d)."""
    rows = torch.arange(len(states), device=states.device)[:, None]
    return states[rows, sites.clamp(min=0)]


def no_mask(name: str) -> GlauberError:
    """The refusal of a model whose mask token nobody names."""
    return GlauberError(
        f"the tokenizer of {name} has no mask token: say which it is by "
        f"{name}?mask_token=TOKEN, with its spelling or its number."
    )


def give_mask(tokenizer: "PreTrainedTokenizerBase", token: str | int, name: str) -> int:
    """The token of that spelling or number becomes the tokenizer's mask token."""
    vocabulary: Mapping[str, int] = tokenizer.get_vocab()
    number = token if isinstance(token, int) else vocabulary.get(token)
    if number is None and str(token).isdecimal():
        number = int(token)
    if number is None or number < 0:
        raise GlauberError(f"{token!r} is no token of {name}, so it cannot be its mask token.")
    if tokenizer.mask_token_id != number:
        spelling = next((word for word, known in vocabulary.items() if known == number), None)
        if spelling is None and number == len(tokenizer):  # a row that the tokenizer does not name
            names = ("[MASK]", "<|mask|>", "[HIDDEN]")
            spelling = next(word for word in names if word not in vocabulary)
        if spelling is not None:
            tokenizer.add_special_tokens({"mask_token": spelling})
    return int(number)
