"""What would this machine reach if a step were nothing but its matrix products?

A large square product on every core, in the units of a step: its multiplications per second
divided by those that a step needs.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from glauber.foundation.threads import side_by_side

SIDE = 2048


def work_of(model: Any, length: int = 22) -> float:
    """The multiplications of a step with one hidden site: last layer and head only there."""
    config = model.config
    d, f = config.hidden_size, config.intermediate_size
    whole = length * (4 * d * d + 2 * d * f + 2 * length * d)  # products and attention
    last = 2 * length * d * d + 2 * d * d + 2 * d * f + 2 * length * d
    head = d * d + d * config.vocab_size
    return (config.num_hidden_layers - 1) * whole + last + head


def products(multiply: Callable[[int], object], per_step: float) -> Iterator[int]:
    """Endless products, one on each core. Yields the steps that they would have made."""
    n_threads = torch.get_num_threads()
    while True:
        side_by_side(multiply, list(range(n_threads)))
        yield round(n_threads * SIDE**3 / per_step)


def of_float32() -> Callable[[int], object]:
    left, right = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    return lambda _: left @ right


def of_int8() -> Callable[[int], object]:
    left, right = (torch.randint(-127, 128, (SIDE, SIDE), dtype=torch.int8) for _ in range(2))
    return lambda _: torch._int_mm(left, right)
