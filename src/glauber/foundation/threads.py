"""How is work spread over cores without changing a bit of the answer?

A matrix product that is split over threads may sum in another order than the same product on one
thread. So every piece of work computes on one thread, and the pieces run side by side.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_lock = threading.RLock()
_inside = threading.local()
_pools: dict[int, ThreadPoolExecutor] = {}


@contextmanager
def one_thread_each() -> Iterator[int]:
    """Torch computes on one thread inside; gives the number of threads it had before."""
    with _lock:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield before
        finally:
            torch.set_num_threads(before)


def side_by_side(function: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """[function(item) for item in items], on as many threads as torch is allowed.

    Each call computes on one thread without gradients, so the answers do not depend on how many
    threads there are.
    """
    if getattr(_inside, "pool", False):
        return [function(item) for item in items]

    def alone(item: Item) -> Answer:
        _inside.pool = True
        try:
            with torch.no_grad():
                return function(item)
        finally:
            _inside.pool = False

    with one_thread_each() as n_threads:
        if n_threads == 1 or len(items) == 1:
            return [alone(item) for item in items]
        pool = _pools.setdefault(n_threads, ThreadPoolExecutor(n_threads, "glauber"))
        return list(pool.map(alone, items))
