"""A small value that says how an encoder is built, for every masked LM of the field.

The encoders differ in a few choices: whether a norm comes before or after a block, how places
enter (added to the embeddings, as rotations, as relative terms of attention), whether the
feed-forward has a gate, how far a layer looks. `families` reads them from a checkpoint; the
passes for CPU (`encoder`) and CUDA (`encoder_cuda`) compute whatever is described here.

d is the width, f that of the feed-forward, s the size of a head: d = heads * s.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor


class Affine(NamedTuple):
    """x -> W x + b."""

    weight: Tensor  # (out, in)
    bias: Tensor | None  # (out,)

    def __call__(self, states: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        return F.linear(states, self.weight, self.bias)

    def rows(self, begin: int, end: int) -> "Affine":
        """The outputs begin to end."""
        return Affine(self.weight[begin:end], None if self.bias is None else self.bias[begin:end])


class Norm(NamedTuple):
    """Layer norm; where nothing is centred the root-mean-square norm, formed in float32 always."""

    weight: Tensor | None  # (d,)
    bias: Tensor | None  # (d,)
    eps: float
    centred: bool = True
    single: bool = False  # formed in float32 in every precision, as DeBERTa's is


class Rotary(NamedTuple):
    """Queries and keys are turned by an angle that grows with the place.

    A head's first half a and second half b become (a cos - b sin, b cos + a sin). Tables of
    float32 in a model of float64 say that queries and keys are rounded to float32 before.
    """

    cos: Tensor  # (places, s / 2)
    sin: Tensor  # (places, s / 2)


class Relative(NamedTuple):
    """Terms of the logits that depend on the distance i - j of query i and key j.

    logits[i, j] += q_i . keys[at] + k_j . queries[at] + bias[at], at = rows[i - j + places - 1].
    The terms are there already scaled: only q . k is multiplied by the layer's scale.
    """

    rows: Tensor  # (2 places - 1,) int64: the row of each distance, from -(places - 1) on
    keys: Tensor | None = None  # (heads, distinct rows, s): DeBERTa, content to position
    queries: Tensor | None = None  # (heads, distinct rows, s): DeBERTa, position to content
    bias: Tensor | None = None  # (heads, distinct rows): MPNet

    @property
    def places(self) -> int:
        """The longest text."""
        return (len(self.rows) + 1) // 2


class Layer(NamedTuple):
    """One layer: attention, then feed-forward, each added to what entered it."""

    queries_keys_values: Affine  # (3 d, d)
    attended: Affine  # (d, d)
    between: Affine  # (f, d); with a gate (2 f, d): what the activation takes, then the gate
    out: Affine  # (d, f)
    activation: str  # as transformers spells it
    scale: float  # of q . k
    gated: bool = False
    norm_before: Norm | None = None  # of what enters attention
    norm_attended: Norm | None = None  # of the sum after attention
    norm_between: Norm | None = None  # of what enters the feed-forward
    norm_out: Norm | None = None  # of the sum after the feed-forward
    norm_queries: Norm | None = None  # over all heads together
    norm_keys: Norm | None = None
    rotary: Rotary | None = None
    relative: Relative | None = None
    window: int | None = None  # the farthest place that is looked at, to either side

    @property
    def device(self) -> torch.device:
        return self.attended.weight.device


class Embedding(NamedTuple):
    """What enters the first layer: words and places, a norm and a projection where they exist."""

    words: Tensor  # (vocab, e)
    places: Tensor | None = None  # (places, e), with what is added at every place
    norm: Norm | None = None  # before the projection
    project: Affine | None = None  # (d, e)
    norm_projected: Norm | None = None
    # ESM-2: hidden tokens enter as zeros, and the others are multiplied by `kept` / (1 - share
    # hidden), since a share of 1 - `kept` was hidden in training.
    hidden_token: int | None = None
    kept: float = 1.0


class Head(NamedTuple):
    """Scores of a hidden state: a product, an activation and a norm where there are, then words."""

    scores: Affine  # (vocab, e)
    transform: Affine | None = None  # (e, d)
    activation: str = ""  # of what the transform gives
    norm: Norm | None = None
    bias: Tensor | None = None  # (vocab,): added to the rounded product, as ESM does


class Description(NamedTuple):
    """A whole masked LM."""

    embedding: Embedding
    layers: list[Layer]  # a layer that is shared stands there several times
    heads: int
    norm: Norm | None  # after the last layer
    head: Head
    places: int  # the longest text

    @property
    def width(self) -> int:
        return self.layers[0].attended.weight.shape[0]


def tensors_of(part: object) -> Iterator[Tensor]:
    """The tensors of a description or of a part of it; a shared one as often as it is there."""
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, tuple | list):
        for inner in part:
            yield from tensors_of(inner)


Part = TypeVar("Part")


def move_to(
    part: Part,
    device: torch.device,
    precision: torch.dtype,
    *,
    copies: dict[int, tuple[object, object]] | None = None,
) -> Part:
    """A description or a part of it there in that precision; what is shared stays shared.

    Angles keep at least float32: half the bits would turn far tokens by wrong angles.
    """
    copies = {} if copies is None else copies
    if id(part) in copies:
        return cast(Part, copies[id(part)][1])
    copy: object
    if isinstance(part, Tensor):
        copy = part.to(device, precision if part.is_floating_point() else part.dtype)
    elif isinstance(part, tuple | list):
        if isinstance(part, Rotary):
            precision = torch.promote_types(precision, torch.float32)
        inner = [move_to(value, device, precision, copies=copies) for value in part]
        copy = inner if isinstance(part, list) else type(part)(*inner)
    else:
        return part
    copies[id(part)] = part, copy  # with the part, so that its id is not reused
    return cast(Part, copy)
