"""What stood in each chain at each look, in words and as a point in the space of meanings?"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.runs.export import trajectory
from glauber.runs.run import Run

Vectors = NDArray[np.float32]
Embed = Callable[[Sequence[str]], Vectors]  # n texts -> (n, d) unit vectors
Listener = Callable[[int, int], None]  # looks done, looks in all
TEXTS = 512  # texts embedded in one call, about
LOOKS = 200  # of a chain, about, where nothing else is said


@dataclass(frozen=True, eq=False)
class Looks:
    """The texts of a run at every so many steps, and their embeddings."""

    steps: NDArray[np.int64]  # (looks,): 0, every, 2 every, …
    texts: tuple[tuple[str, ...], ...]  # chains, each of looks
    vectors: Vectors  # (chains, looks, d), each of norm 1
    every: int

    @property
    def n_chains(self) -> int:
        return len(self.texts)


def usual_stride(run: Run) -> int:
    """Steps between looks that give a chain about 200 of them."""
    return max(1, run.steps // LOOKS)


def read_looks(
    run: Run, embed: Embed, *, every: int | None = None, listener: Listener | None = None
) -> Looks:
    """The looks at a stored run, one every so many steps (default: about 200 a chain)."""
    every = usual_stride(run) if every is None else every
    check_looks(run, every)
    total = 1 + run.steps // every
    steps: list[int] = []
    columns: list[list[str]] = []
    blocks: list[Vectors] = []
    for block in _blocks(run, every):
        steps += [step for step, _ in block]
        columns += [[run.vocabulary.decode(row) for row in tokens] for _, tokens in block]
        texts = [text for column in columns[-len(block) :] for text in column]
        blocks.append(np.asarray(embed(texts)).reshape(len(block), run.n_chains, -1))
        if listener is not None:
            listener(len(steps), total)
    vectors = np.concatenate(blocks).swapaxes(0, 1)
    return Looks(np.array(steps), tuple(zip(*columns, strict=True)), vectors, every)


def _blocks(run: Run, every: int) -> Iterator[list[tuple[int, NDArray[np.int64]]]]:
    """Successive looks (step, tokens (chains, length)), about TEXTS texts together."""
    looks = trajectory(run, every)
    while block := list(islice(looks, max(1, TEXTS // run.n_chains))):
        yield block


def check_looks(run: Run, every: int) -> None:
    """Refuses an empty run, and looks that the run is too short for."""
    if run.steps == 0:
        raise GlauberError(f"the run {run.folder} has no steps yet, so there is nothing to see.")
    if every < 1:
        raise GlauberError(f"every is {every}, but it must be at least 1.")
    if run.steps < every:
        raise GlauberError(
            f"the run {run.folder} has {run.steps} steps, but the looks are {every} steps apart: "
            "make it longer, or look more often."
        )
