"""Products in float32 on a CPU whose weights are laid out once, and not at every call.

A matrix product first rearranges its weights so that they are read in a line. For a single text
that costs as much as the arithmetic; oneDNN takes weights that were rearranged before. Costs the
room of the weights a second time.
"""

from typing import Any

import torch
from torch import Tensor

from glauber.conditionals.forward.description import Affine, Description, Head

ROOM = 2**31  # bytes of weights that are kept a second time, at most
PRODUCTS = ("queries_keys_values", "attended", "between", "out")


class LaidOut:
    """x -> W x + b, as an `Affine`."""

    def __init__(self, affine: Affine) -> None:
        self.weight, self.bias = affine
        self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.contiguous(), None)
        self._rows: dict[tuple[int, int], LaidOut] = {}

    def rows(self, begin: int, end: int) -> "LaidOut":
        """The outputs begin to end."""
        if (begin, end) not in self._rows:
            part = Affine(self.weight, self.bias).rows(begin, end)
            self._rows[begin, end] = LaidOut(part)
        return self._rows[begin, end]

    def __call__(self, states: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        found: Tensor = torch.ops.mkldnn._linear_pointwise(
            states, self.packed, self.bias, "none", [], ""
        )
        return found


def lay_out(described: Description) -> Description:
    """The same with its products laid out, a shared layer once; as it is where that cannot be."""
    first = described.layers[0].attended.weight
    if first.device.type != "cpu" or first.dtype != torch.float32 or _room(described) > ROOM:
        return described
    made: dict[int, Any] = {}
    try:
        with torch.no_grad():
            for layer in described.layers:
                for name in PRODUCTS:
                    part = getattr(layer, name)
                    if id(part.weight) not in made:
                        made[id(part.weight)] = LaidOut(part)
    except (AttributeError, RuntimeError):  # a build of torch without oneDNN
        return described
    layers = [
        layer._replace(**{name: made[id(getattr(layer, name).weight)] for name in PRODUCTS})
        for layer in described.layers
    ]
    return described._replace(layers=layers)


def lay_out_head(head: Head) -> Head:
    """The same with the product that forms the scores laid out; as it is where that cannot be."""
    weight = head.scores.weight
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or weight.nbytes > ROOM:
        return head
    try:
        scores: Any = LaidOut(head.scores)
    except (AttributeError, RuntimeError):  # a build of torch without oneDNN
        return head
    return head._replace(scores=scores)


def _room(described: Description) -> int:
    """Bytes of all weights of the layers, shared ones counted once."""
    weights = {
        id(weight): weight.nbytes
        for layer in described.layers
        for weight in (getattr(layer, name).weight for name in PRODUCTS)
    }
    return sum(weights.values())
