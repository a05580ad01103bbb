"""The config and the tensors of a masked LM, from a folder or of a module of transformers.

A folder of an architecture that `forward.families` describes is read without transformers; its
module is made when somebody asks for it.
"""

import warnings
from collections.abc import Callable
from copy import deepcopy
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch

from glauber.conditionals.forward.checkpoint import (
    KEYS,
    Config,
    Reader,
    Safetensors,
    Tensors,
    Unknown,
)
from glauber.conditionals.forward.description import Description, Head
from glauber.conditionals.forward.families import ENCODERS, describe, family_of, head_of
from glauber.conditionals.shelf import is_folder, place_of
from glauber.conditionals.tokenizer import open_tokenizer
from glauber.conditionals.weights import (
    DEBERTA_HEAD,
    check_folder,
    check_tokenizer,
    check_weights,
    from_pretrained,
    in_precision,
)
from glauber.errors import GlauberWarning
from glauber.json_text import parse_json

# Tensors of other heads and of older versions, which transformers' masked LMs do not have either.
OTHER = (".pooler.", "cls.seq_relationship.", ".position_ids")
# Whose defaults depend on the architecture where config.json leaves them out.
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
ROTATION = "esm.rotary_embeddings.inv_freq"  # which transformers counts among the weights


class EncoderWeights:
    """A config and tensors by name, all in one precision and on one device.

    tensors are those of a module's state dict, tied ones under each of their names.
    """

    def __init__(
        self,
        config: Config,
        tensors: Tensors,
        *,
        make_module: Callable[[], Any],
        buffers: Tensors | None = None,
    ) -> None:
        self.config, self.tensors, self.buffers = config, tensors, buffers
        self._make_module = make_module
        self.first = next(value for value in tensors.values() if value.is_floating_point())

    @classmethod
    def of_module(cls, module: Any) -> Self:
        """The weights of a module, which are not copied."""
        return cls(
            module.config.to_dict(),
            module.state_dict(),
            make_module=lambda: module,
            buffers=dict(module.named_buffers()),
        )

    @classmethod
    def read(cls, folder: Path, make_module: Callable[[], Any]) -> Self | None:
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
        stored = {
            name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
                "LayerNorm.beta", "LayerNorm.bias"
            ): values
            for name, values in Safetensors(folder).items()
            if not any(part in name for part in OTHER)
        }
        rotations = [name for name in stored if name.endswith("rotary_embeddings.inv_freq")]
        for name in rotations:  # older files have the same one in each layer
            stored[ROTATION] = stored.pop(name)
        if not rotations and config.get("position_embedding_type") == "rotary":
            return None
        dtypes = {values.dtype for values in stored.values() if values.is_floating_point()}
        dtype = getattr(torch, str(config.get("dtype") or config.get("torch_dtype")), None)
        if dtype is None and len(dtypes) == 1:
            dtype = dtypes.pop()
        if not isinstance(dtype, torch.dtype):
            return None
        cpu = torch.device("cpu")
        try:
            complete = Reader(family_of(config), config, stored, [cpu], dtype).complete()
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
    def module(self) -> Any:
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
        moved: dict[int, torch.Tensor] = {}
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


def open_encoder(name: str, trust_remote_code: bool) -> tuple[EncoderWeights, Any]:
    """The weights and the tokenizer of that name, without transformers where that can be."""
    place = place_of(name)
    if is_folder(place):
        opened = _open_folder(Path(place), name, trust_remote_code)
        if opened is not None:
            return opened
    module, tokenizer = from_pretrained(name, trust_remote_code)
    check_weights(module, name)
    return EncoderWeights.of_module(module), tokenizer


def _open_folder(
    folder: Path, name: str, trust_remote_code: bool
) -> tuple[EncoderWeights, Any] | None:
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
