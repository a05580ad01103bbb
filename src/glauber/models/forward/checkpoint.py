"""A `Description` from the tensors of a checkpoint and its config, by a table of their names.

The tensors come from the state dict of a transformers module or from safetensors; no module is
needed. `families` has the table. What a description cannot say is refused with `Unknown`: an option
of the config, a tensor that is missing, and also one that nobody reads.

No weight is copied except where several become one product or a factor is multiplied in.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import parse_json
from glauber.models.forward.description import (
    Affine,
    Description,
    Embedding,
    Head,
    Layer,
    Norm,
    Rotary,
)
from glauber.models.forward.encoder import FORMULAS, activation

Config = Mapping[str, Any]
Tensors = Mapping[str, Tensor]
# Rotations whose angles do not depend on the length of the text.
FIXED_ANGLES = ("default", "linear", "yarn", "llama3")
KEYS = {
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "shared": "num_key_value_heads",
    "depth": "num_hidden_layers",
    "between": "intermediate_size",
    "longest": "max_position_embeddings",
    "vocab": "vocab_size",
    "eps": "layer_norm_eps",
    "activation": "hidden_act",
}
NONE: Config = MappingProxyType({})
MISFIT = "config.json has other sizes than the weights"


class Unknown(Exception):
    """The checkpoint is built in a way that no description says."""


class LayerNames(NamedTuple):
    """The tensors of one layer; a name that ends in ? may be missing."""

    queries_keys_values: tuple[str, ...]  # three products, or one that is all of them
    attended: str
    between: tuple[str, ...]  # one product, or what the activation takes and the gate
    out: str
    norm_before: str = ""
    norm_attended: str = ""
    norm_between: str = ""
    norm_out: str = ""
    norm_queries: str = ""
    norm_keys: str = ""


class HeadNames(NamedTuple):
    """The tensors that turn a hidden state into scores."""

    scores: str  # the product with the vocabulary
    bias: str = ""  # its bias, where that is stored under another name
    tied_bias: bool = True  # whether the product has one of its own, which is the same
    transform: str = ""
    activation: str = ""  # a key of the config, or the name of an activation
    norm: str = ""


class Angles(NamedTuple):
    """A rotation of queries and keys by the place."""

    theta: float | None = None  # where the config names none
    buffer: str = "{}inv_freq"  # frequencies in a state dict; {}: the kind of rotation
    kinds: Mapping[str, str] = NONE  # several rotations: how older configs call the theta of each
    rounds: bool = False  # whether transformers rounds queries and keys to float32 first
    wide: bool = False  # whether the tables keep float32 in half precision


class Family(NamedTuple):
    """An architecture: the names of its tensors, and which options of its config are known."""

    words: str
    layers: "str | Callable[[WeightReader], list[str]]"  # the prefix of layer {}, or all in order
    layer: LayerNames
    head: HeadNames
    places: str = ""
    types: tuple[str, ...] = ()  # tables whose first row is added everywhere
    norm_words: str = ""
    project: str = ""  # where words are narrower than the layers
    norm_last: bool = False  # whether that norm follows the projection
    norm: str = ""  # after the last layer
    keys: Mapping[str, str] = NONE  # of the config, where they are not those of `KEYS`
    fixed: Config = NONE  # values that no config changes
    defaults: Config = NONE  # of keys that a config may leave out
    known: Mapping[str, Sequence[object]] = NONE  # values of options that can be described
    prepare: Callable[[Config], Config] = dict  # a config with values that it leaves out
    angles: Angles | None = None
    rms: bool = False  # norms of the root mean square
    single: bool = False  # norms formed in float32
    gated: bool = False  # one product is what the activation takes and the gate
    after_padding: bool = False  # places are counted from the padding token's number plus one
    adapt: "Callable[[WeightReader, Layer], Layer]" = lambda reader, layer: layer
    finish: "Callable[[WeightReader, Description], Description]" = lambda reader, described: (
        described
    )
    unused: tuple[str, ...] = ()  # parts of names: tensors of the module that no score depends on
    strict: bool = True  # refuses other tensors that nobody reads
    cuda: bool = True  # whether our pass on CUDA computes it


class WeightReader:
    """Reads one checkpoint; `at` is the same reader for the tensors of a part of it."""

    prefix = ""  # what the names of the part begin with

    def __init__(
        self,
        family: Family,
        config: Config,
        tensors: Tensors,
        devices: Sequence[torch.device],
        dtype: torch.dtype,
        buffers: Tensors | None = None,
    ) -> None:
        """buffers: of a module, which are not in its state dict."""
        self.family, self.devices, self.dtype = family, devices, dtype
        self.device = devices[0]  # of the tensors that are read
        self.tensors, self.buffers = tensors, buffers or {}
        self.config = family.prepare({**family.defaults, **config, **family.fixed})
        self.names_read: set[str] = set()
        self.shared: dict[object, Any] = {}  # what layers have in common
        self.tied = self._tied_names()

    def at(self, prefix: str, device: torch.device | None = None) -> "WeightReader":
        """The same for tensors whose names begin with a prefix, put on a device."""
        part = copy(self)
        part.prefix, part.device = prefix, device or self.device
        return part

    @property
    def name(self) -> str:
        return str(self.config.get("model_type"))

    def key(self, size: str) -> str:
        """How the config calls it."""
        return self.family.keys.get(size, KEYS[size])

    def size(self, size: str) -> int:
        key = self.key(size)
        value = self.config.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise Unknown(
                f"the config.json of this {self.name} checkpoint is broken: {key} is {value!r}, "
                "not a size."
            )
        return value

    def option(self, key: str) -> Any:
        """A value that the config must have."""
        if key not in self.config:
            raise Unknown(f"the config.json of this {self.name} checkpoint has no {key}.")
        return self.config[key]

    def _tied_names(self) -> dict[str, str]:
        """Tensors that are others of the checkpoint: the name of each and of the other one."""
        head, embedding = self.family.head, self.family.words
        if self.config.get("tie_word_embeddings", True) is False:
            return {}
        tied = {f"{head.scores}.weight": embedding}
        if head.bias and head.tied_bias:
            tied[f"{head.scores}.bias"] = head.bias
        return {name: other for name, other in tied.items() if name != other}

    def complete(self) -> dict[str, Tensor]:
        """All tensors that the module has, those that are tied under both names."""
        tied = {name: self.tensors[other] for name, other in self.tied.items()}
        return {**tied, **self.tensors}

    def __contains__(self, name: str) -> bool:
        name = self.prefix + name
        return name in self.tensors or self.tied.get(name) in self.tensors

    def raw(self, name: str) -> Tensor:
        """A tensor as the checkpoint has it."""
        if name not in self:
            raise Unknown(f"this {self.name} checkpoint lacks {self.prefix + name}.")
        name = self.prefix + name
        self.names_read.add(name)
        return self.tensors[name if name in self.tensors else self.tied[name]]

    def put(self, values: Tensor) -> Tensor:
        return values.to(self.device, self.dtype)

    def __call__(self, name: str) -> Tensor:
        return self.put(self.raw(name))

    def optional(self, name: str) -> Tensor | None:
        """None where the name is empty, or ends in ? and is missing."""
        known = name.removesuffix("?")
        return None if not known or (known != name and known not in self) else self(known)

    def affine(self, name: str) -> Affine:
        """A product, with a bias where the checkpoint has one."""
        return Affine(self(f"{name}.weight"), self.optional(f"{name}.bias?"))

    def norm(self, name: str, *, plain: bool = False) -> Norm | None:
        """None where the name is empty, or ends in ? and is missing.

        plain: a layer norm, whatever the layers have.
        """
        family, known = self.family, name.removesuffix("?")
        if not known or (known != name and f"{known}.weight" not in self):
            return None
        if family.rms and not plain:
            return Norm(self.optional(f"{known}.weight?"), None, self.eps, centred=False)
        weight, bias = self(f"{known}.weight"), self.optional(f"{known}.bias?")
        return Norm(weight, bias, self.eps, single=family.single and not plain)

    @property
    def eps(self) -> float:
        return float(self.option(self.key("eps")))

    @property
    def head_size(self) -> int:
        width, heads = self.size("width"), self.size("heads")
        if width % heads or (self.family.angles is not None and width // heads % 2):
            raise Unknown(f"{heads} heads do not share a width of {width} evenly.")
        if self.config.get("head_dim") not in (None, width // heads):
            raise Unknown(f"the heads of this {self.name} checkpoint are not a part of its width.")
        return width // heads

    @property
    def first(self) -> int:
        """The row of the first place in the table of places."""
        return int(self.option("pad_token_id")) + 1 if self.family.after_padding else 0

    def description(self) -> Description:
        """How the checkpoint is built."""
        family = self.family
        for key, values in family.known.items():
            if self.config.get(key, values[0]) not in values:
                raise Unknown(
                    f"this {self.name} checkpoint has {key} {self.config[key]!r} in its "
                    "config.json, which is not one that we can read."
                )
        if callable(family.layers):
            prefixes = family.layers(self)
        else:
            prefixes = [family.layers.format(number) for number in range(self.size("depth"))]
        devices = spread(len(prefixes), self.devices)
        layers: dict[str, Layer] = {}
        with torch.no_grad():
            embedding, longest = self.at("", devices[0]).embedding()
            for prefix, device in zip(prefixes, devices, strict=True):
                if prefix not in layers:
                    layers[prefix] = self.at(prefix, device).layer()
            last = self.at("", devices[-1])
            described = Description(
                embedding,
                [layers[prefix] for prefix in prefixes],
                self.size("heads"),
                last.norm(family.norm),
                last.head(),
                longest,
            )
            described = family.finish(self, described)
        self.check(described)
        return described

    def embedding(self) -> tuple[Embedding, int]:
        """What enters the first layer, and the longest text."""
        family, added = self.family, self.optional(self.family.places)
        longest = self.size("longest") - self.first
        if added is not None:
            added = added[self.first :]
            longest = len(added)
        for values in map(self.optional, family.types):
            if values is not None and added is None:
                added = values[0].expand(longest, -1).contiguous()
            elif values is not None and added is not None:
                added = added + values[0]
        project = None
        if family.project and f"{family.project}.weight" in self:
            project = self.affine(family.project)
        norm = self.norm(family.norm_words)
        embedding = Embedding(self(family.words), added, norm, project)
        if family.norm_last and project is not None:
            embedding = embedding._replace(norm=None, norm_projected=norm)
        return embedding, longest

    def layer(self) -> Layer:
        """The layer that the prefix names."""
        names, angles = self.family.layer, self.family.angles
        together = [self.affine(name) for name in names.queries_keys_values]
        between = [self.affine(name) for name in names.between]
        layer = Layer(
            self.queries_keys_values(*together) if len(together) == 3 else together[0],
            self.affine(names.attended),
            between[0] if len(between) == 1 else stack(*between),
            self.affine(names.out),
            self.activation(self.key("activation")),
            scale=float(self.head_size**-0.5),
            gated=self.family.gated or len(between) == 2,
            rotary=self.rotary() if angles is not None and not angles.kinds else None,
            norm_before=self.norm(names.norm_before),
            norm_attended=self.norm(names.norm_attended),
            norm_between=self.norm(names.norm_between),
            norm_out=self.norm(names.norm_out),
            norm_queries=self.norm(names.norm_queries),
            norm_keys=self.norm(names.norm_keys),
        )
        return self.family.adapt(self, layer)

    def queries_keys_values(self, queries: Affine, keys: Affine, values: Affine) -> Affine:
        """One product; keys and values that several heads share are there once for each."""
        heads = self.size("heads")
        size, shared = self.head_size, int(self.config.get(self.key("shared")) or heads)
        if heads % shared:
            raise Unknown(f"{heads} heads do not share {shared} keys evenly.")
        if shared < heads:
            keys, values = (for_every_head(p, size, heads // shared) for p in (keys, values))
        return stack(queries, keys, values)

    def head(self) -> Head:
        """Where a hidden state becomes scores."""
        names = self.family.head
        weight = self(f"{names.scores}.weight")
        bias = self.optional(f"{names.scores}.bias?")
        if names.bias:
            tied = self.optional(f"{names.bias}?")
            bias = tied if bias is None else bias
        head = Head(Affine(weight, bias))
        if names.bias and not names.tied_bias:
            head = Head(Affine(weight, None), bias=bias)
        if not names.transform:
            return head
        return head._replace(
            transform=self.affine(names.transform),
            activation=self.activation(names.activation),
            norm=self.norm(names.norm, plain=True),
        )

    def activation(self, key: str) -> str:
        """The name of an activation, by a key of the config or by itself."""
        name = self.config.get(key, key)
        try:
            name in FORMULAS or activation(name)
        except (KeyError, TypeError) as error:  # a config may hold a function instead
            raise Unknown(f"there is no activation {name!r}.") from error
        return str(name)

    def rotary(self, kind: str = "") -> Rotary:
        """The rotation at every place; kind names one of several."""
        angles, key = self.family.angles, ("rotary", kind, self.device)
        assert angles is not None
        if key not in self.shared:
            self.shared[key] = self._rotary(angles, kind)
        rotary: Rotary = self.shared[key]
        return rotary

    def _rotary(self, angles: Angles, kind: str) -> Rotary:
        frequencies, factor = self._frequencies(angles, kind)
        name = angles.buffer.format(f"{kind}_" if kind else "")
        if name in self.buffers:  # as the module has them, maybe rounded
            frequencies = self.buffers[name].float()
        places = torch.arange(self.size("longest") - self.first, device=self.device).float()
        turns = places[:, None] * frequencies.to(self.device)
        cos, sin = turns.cos() * factor, turns.sin() * factor
        wide = torch.promote_types(self.dtype, torch.float32) if angles.wide else self.dtype
        if angles.rounds and wide == torch.float64:
            wide = torch.float32
        return Rotary(cos.to(wide), sin.to(wide))

    def _frequencies(self, angles: Angles, kind: str) -> tuple[Tensor, float]:
        """Angles per place (s / 2,) float32, and a factor of cosines and sines."""
        rope = self.config.get("rope_parameters") or self.config.get("rope_scaling") or {}
        rope = rope.get(kind, {}) if kind else rope
        how = rope.get("rope_type") or rope.get("type") or "default"
        if how not in FIXED_ANGLES:
            raise Unknown(f"the angles of this {self.name} checkpoint depend on the text.")
        if how in ("yarn", "llama3"):
            from transformers import AutoConfig
            from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

            frequencies, factor = ROPE_INIT_FUNCTIONS[how](AutoConfig.for_model(**self.config))
            return frequencies, float(factor)
        older = self.config.get(angles.kinds.get(kind, "rope_theta"))
        theta = rope.get("rope_theta") or older or angles.theta
        if theta is None:
            raise Unknown(f"the config.json of this {self.name} checkpoint has no rope_theta.")
        size = self.head_size
        frequencies = 1.0 / (theta ** (torch.arange(0, size, 2).float() / size))
        return frequencies / rope["factor"] if how == "linear" else frequencies, 1.0

    def check(self, described: Description) -> None:
        """Refuses sizes that do not fit together, and tensors that nobody has read."""
        between = self.size("between") if self.config.get(self.key("between")) else None
        for values, shape in _shapes(described, self.size("width"), self.size("vocab"), between):
            if values is not None and tuple(values.shape) != shape:
                raise Unknown(MISFIT)
        if not self.family.strict:
            return
        for name, other in self.tied.items():
            first, second = self.tensors.get(name), self.tensors.get(other)
            if first is None or second is None or first is second:
                continue
            if not torch.equal(first, second):
                raise Unknown(f"{name} is not {other}, although the config says that it is.")
        for name in sorted(set(self.tensors) - self.names_read - set(self.tied.values())):
            if not any(part in name for part in self.family.unused):
                raise Unknown(f"{name} of this {self.name} checkpoint is not described.")


def _shapes(
    described: Description, width: int, vocab: int, between: int | None
) -> Iterator[tuple[Tensor | None, tuple[int, ...]]]:
    """Tensors and the shapes that they must have."""
    table = described.embedding.words
    entering = table.shape[1]
    yield table, (vocab, entering)
    if described.embedding.project is None:
        yield table, (vocab, width)
    else:
        yield described.embedding.project.weight, (width, entering)
    for layer in {id(layer): layer for layer in described.layers}.values():
        inner = between or layer.out.weight.shape[1]
        for part, out, into in (
            (layer.queries_keys_values, 3 * width, width),
            (layer.attended, width, width),
            (layer.between, (1 + layer.gated) * inner, width),
            (layer.out, width, inner),
        ):
            yield part.weight, (out, into)
            yield part.bias, (out,)
        for norm in layer:
            if isinstance(norm, Norm):
                yield norm.weight, (width,)
                yield norm.bias, (width,)
    head = described.head
    narrow = width if head.transform is None else len(head.transform.weight)
    yield head.scores.weight, (vocab, narrow)
    yield head.scores.bias, (vocab,)
    yield head.bias, (vocab,)


# ---- parts


def stack(*products: Affine) -> Affine:
    """Several linear maps of one input as one; a bias that one of them lacks is 0."""
    weight = torch.cat([product.weight for product in products]).contiguous()
    if all(product.bias is None for product in products):
        return Affine(weight, None)
    biases = [
        part.weight.new_zeros(len(part.weight)) if part.bias is None else part.bias
        for part in products
    ]
    return Affine(weight, torch.cat(biases))


def divide(part: Affine, by: float) -> Affine:
    return Affine(part.weight / by, None if part.bias is None else part.bias / by)


def for_every_head(part: Affine, size: int, times: int) -> Affine:
    """Keys or values that several heads share, once for each: heads of a size, repeated."""
    weight = part.weight.unflatten(0, (-1, size)).repeat_interleave(times, 0).flatten(0, 1)
    if part.bias is None:
        return Affine(weight, None)
    return Affine(weight, part.bias.unflatten(0, (-1, size)).repeat_interleave(times, 0).flatten())


def distances(places: int, device: torch.device) -> Tensor:
    """i - j from the smallest to the largest one: (2 places - 1,)."""
    return torch.arange(1 - places, places, device=device)


def spread(n_layers: int, devices: Sequence[torch.device]) -> list[torch.device]:
    """The device of each layer: as many on each, in order."""
    return [devices[at * len(devices) // n_layers] for at in range(n_layers)]


class Safetensors(Mapping[str, Tensor]):
    """The tensors of a folder's safetensors, read one by one as they are stored."""

    def __init__(self, folder: Path) -> None:
        from safetensors import safe_open

        self.folder = folder
        index, files = folder / "model.safetensors.index.json", sorted(folder.glob("*.safetensors"))
        if not files:
            raise GlauberError(f"{folder} holds no safetensors, and no other weights are read.")
        if index.is_file():
            listed = parse_json(index.read_text(encoding="utf-8"))["weight_map"].values()
            files = [folder / name for name in sorted(set(listed))]
        handles = [safe_open(file, framework="pt") for file in files]
        self._file = {key: file for file in handles for key in file.keys()}  # noqa: SIM118

    def __getitem__(self, key: str) -> Tensor:
        values: Tensor = self._file[key].get_tensor(key)
        if values.is_floating_point() and not _are_finite(values):
            raise GlauberError(f"{self.folder} has weights that are not finite numbers, in {key}.")
        return values

    def __iter__(self) -> Iterator[str]:
        return iter(self._file)

    def __len__(self) -> int:
        return len(self._file)

    def __contains__(self, key: object) -> bool:
        return key in self._file


def _are_finite(values: Tensor) -> bool:
    """A sum tells at once, except where it is too large itself."""
    total = values.sum(dtype=torch.promote_types(values.dtype, torch.float32))
    return bool(total.isfinite()) or bool(values.isfinite().all())


def hash_of(tensors: Tensors) -> "hashlib._Hash":
    """SHA-256 over the names, types, shapes and values of tensors, in order of their names."""
    digest = hashlib.sha256()
    for key in sorted(tensors):
        values = tensors[key]
        digest.update(f"{key} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(bytes_of(values))
    return digest


def bytes_of(values: Tensor) -> memoryview:
    """The numbers of a tensor as they lie in memory."""
    return values.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data
