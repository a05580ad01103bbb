"""Diffusion LMs of the hub as conditionals: LLaDA, Dream, MDLM and their kin.

Their folders come with code, which is never run: config.json says how the model is built, the
safetensors hold its weights, and our own forward pass computes it with full attention
(`forward.families`). To studies it is a masked LM. An ordinary masked LM that was trained to
write (BERT-Chat) is a `MaskedLM` already.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import parse_json
from glauber.models.base import PAD
from glauber.models.base_model import OnePass
from glauber.models.batching import ACTIVATIONS
from glauber.models.forward.checkpoint import (
    Config,
    Safetensors,
    Unknown,
    bytes_of,
    hash_of,
)
from glauber.models.forward.description import Description, move_to, tensors_of
from glauber.models.forward.encoder import Encoder, scores_of
from glauber.models.forward.encoder_int8 import EncoderInt8
from glauber.models.forward.families import (
    DIFFUSION,
    NO_MASK,
    SHIFTED,
    describe,
    shape_of,
)
from glauber.models.forward.packed import PackedRows
from glauber.models.masked_lm import give_mask, no_mask
from glauber.models.shelf import is_folder
from glauber.models.vocabulary import Vocabulary
from glauber.models.weights import check_folder, choose_devices, choose_dtype, reachable

if TYPE_CHECKING:
    from glauber.models.weights import PreTrainedTokenizerBase

FILES = ["*.json", "*.safetensors", "*.txt"]  # of the hub: no code
ENDS = ("<|endoftext|>", "<|eot_id|>", "<|im_end|>")  # where answers of chat models stop
GPT2 = "openai-community/gpt2"  # the tokenizer of the MDLM on OpenWebText, which brings none


class DiffusionLM(OnePass):
    """A diffusion LM as conditionals: scores at hidden sites, (rows, k, vocab).

    `ends` are the tokens at which a text stops, and `encoder` is the forward pass.
    """

    def __init__(
        self,
        described: Description,
        tokenizer: "PreTrainedTokenizerBase",
        *,
        hidden_token: int,
        shifted: bool = False,
        shape: str = "diffusion",
        name: str = "unnamed",
        ends: Sequence[int] = (),
        fingerprint: str | Callable[[], str] = "",
        budget: int = ACTIVATIONS,
        int8: bool = False,
    ) -> None:
        """shifted: the scores of site i are read at i - 1, as Dream's are; site 0 at 0."""
        self.name, self.shape, self.shifted, self.int8 = name, shape, shifted, int8
        self.described, self.hidden_token = described, hidden_token
        self.vocab_size = len(described.embedding.words)
        self.ends = [end for end in ends if end != hidden_token and end < self.vocab_size]
        self.vocabulary = Vocabulary(tokenizer, self.vocab_size, ends=self.ends)
        self.longest = min(described.places, int(tokenizer.model_max_length))
        if callable(fingerprint) or not fingerprint:
            fingerprint = partial(self._hash, fingerprint or self._of_tensors)
        self._fingerprint = fingerprint
        self._weight = described.embedding.words
        self._head = partial(scores_of, described.head)
        self._check_int8()
        self.encoder = EncoderInt8(described) if int8 else Encoder(described)
        self._batched = self._batches(described, budget)
        if self.device.type != "cuda" and not shifted and not int8:
            self.packed = PackedRows(self.encoder, self._read, hidden_token)

    @classmethod
    def load(
        cls,
        name: str,
        *,
        device: str = "auto",
        dtype: str = "float32",
        mask_token: str | int | None = None,
        shift: bool | None = None,
        budget: int = ACTIVATIONS,
    ) -> "DiffusionLM":
        """The model of a local folder or of a name on the hub; no code of it is run.

        device      cuda:split spreads the layers over all GPUs, for a model that one cannot hold
        mask_token  by its spelling or its number, where the config names none
        shift       whether scores are read one place to the left; the config knows it, and
                    another answer is refused
        """
        places, precision = choose_devices(device), choose_dtype(dtype)
        folder = _folder(name)
        config = _config(folder, name)
        shifted = shape_of(config) in SHIFTED
        _check_shift(shifted, shift, config, name)
        tokenizer = _tokenizer(folder, config, name)
        hidden_token = _mask(tokenizer, config, mask_token, name)
        weights = Safetensors(folder)
        try:
            described = describe(config, weights, places, precision)
        except Unknown as error:
            raise GlauberError(f"{name} cannot be read: {error}") from error
        return cls(
            described,
            tokenizer,
            hidden_token=hidden_token,
            shifted=shifted,
            shape=str(config["model_type"]),
            name=name,
            ends=_ends(config, tokenizer),
            fingerprint=lambda: hash_of(weights).hexdigest(),
            budget=budget,
            int8=dtype == "int8",
        )

    def _hash(self, of_weights: Callable[[], str]) -> str:
        """SHA-256 over weights, vocabulary and how the two are read."""
        digest = hashlib.sha256(of_weights().encode())
        digest.update(f"{self.hidden_token} {self.shifted}".encode())
        digest.update(repr(sorted(self.vocabulary.tokenizer.get_vocab().items())).encode())
        return digest.hexdigest()

    def _of_tensors(self) -> str:
        digest = hashlib.sha256()
        for value in tensors_of(self.described):
            digest.update(bytes_of(value))
        return digest.hexdigest()

    def _copy(self, device: torch.device, dtype: str | None) -> "DiffusionLM":
        precision = self._weight.dtype if dtype is None else choose_dtype(dtype)
        return DiffusionLM(
            move_to(self.described, device, precision),
            self.vocabulary.tokenizer,
            hidden_token=self.hidden_token,
            shifted=self.shifted,
            shape=self.shape,
            name=self.name,
            ends=self.ends,
            fingerprint=self.fingerprint,
            int8=(dtype or self.dtype) == "int8",
        )

    @property
    def parameters(self) -> int:
        """Numbers of the description: shared keys count once for each head that reads them."""
        described = self.described._replace(
            layers=[layer._replace(rotary=None) for layer in self.described.layers]
        )
        return sum({id(values): values.numel() for values in tensors_of(described)}.values())

    def _scores_at(self, tokens: Tensor, sites: Tensor) -> Tensor:
        if self.shifted:
            sites = torch.where(sites == PAD, PAD, (sites - 1).clamp(min=0))
        return super()._scores_at(tokens, sites)


# ---- what a folder contains


def _folder(name: str) -> Path:
    """The folder of a model; from the hub, without its code."""
    folder = Path(name)
    if not is_folder(name):
        if not reachable(name):
            raise GlauberError(f"the model {name} was found neither as a folder nor on the hub.")
        from huggingface_hub import snapshot_download

        try:
            folder = Path(snapshot_download(name, allow_patterns=FILES))
        except Exception as error:  # each version of the hub's client has its own
            raise GlauberError(f"the files of {name} cannot be read from the hub.") from error
    check_folder(folder)
    return folder


def _config(folder: Path, name: str) -> Config:
    config: Config = parse_json((folder / "config.json").read_text(encoding="utf-8"))
    shape = shape_of(config)
    if shape in NO_MASK:
        raise GlauberError(
            f"{name} is {NO_MASK[shape]}, which replaces tokens by others and has no mask token: "
            "it does not say what it makes of a hidden site."
        )
    if shape not in DIFFUSION:
        known = ", ".join(sorted(DIFFUSION))
        raise GlauberError(
            f"{name} is no diffusion LM that we can read: its model_type is "
            f"{config.get('model_type')!r}, and known ones are {known}."
        )
    return config


def _check_shift(shifted: bool, shift: bool | None, config: Config, name: str) -> None:
    """A shift the wrong way gives scores that look right and are of another site."""
    if shift is not None and shift != shifted:
        here = "one place to the left of it" if shifted else "at the site itself"
        raise GlauberError(
            f"{name} is of type {config['model_type']}, whose scores of a site are read {here}: "
            f"shift={shift} would read those of another site."
        )


def _mask(
    tokenizer: "PreTrainedTokenizerBase", config: Config, token: str | int | None, name: str
) -> int:
    """The mask token: as given, of the config, of the tokenizer, or the row after MDLM's last."""
    if token is None:
        token = config.get("mask_token_id")
    if token is None:
        token = tokenizer.mask_token_id
    size = int(config.get("embedding_size") or config["vocab_size"])
    if token is None and shape_of(config) == "mdlm" and size == len(tokenizer) + 1:
        token = len(tokenizer)
    if token is None:
        raise no_mask(name)
    number = give_mask(tokenizer, token, name)
    if number >= size:
        raise GlauberError(f"the mask token of {name} is {number}, but it has {size} tokens.")
    return number


def _ends(config: Config, tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Tokens at which a text stops: they are part of what such a model writes."""
    listed = config.get("eos_token_id")
    ends = listed if isinstance(listed, list) else [listed, tokenizer.eos_token_id]
    vocabulary = tokenizer.get_vocab()
    ends += [vocabulary[spelling] for spelling in ENDS if spelling in vocabulary]
    return sorted({int(end) for end in ends if end is not None})


def _tokenizer(folder: Path, config: Config, name: str) -> "PreTrainedTokenizerBase":
    """The tokenizer of the folder, by transformers' own classes."""
    import transformers

    source: Path | str = folder
    if (folder / "tokenizer.json").is_file():
        kind = transformers.PreTrainedTokenizerFast
    elif shape_of(config) == "dream" and (folder / "merges.txt").is_file():
        kind = transformers.Qwen2Tokenizer  # as Dream's own cuts texts
    elif shape_of(config) == "mdlm" and config.get("vocab_size") == 50258 and reachable(GPT2):
        kind, source = transformers.AutoTokenizer, GPT2
    else:
        raise GlauberError(
            f"{name} brings no tokenizer: put the tokenizer.json that it was trained with there."
        )
    try:
        return kind.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # what a broken file raises depends on where it is broken
        raise GlauberError(f"the tokenizer in {folder} cannot be read.") from error
