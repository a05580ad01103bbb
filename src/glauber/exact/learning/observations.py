"""What has been seen? A weight for each pair of a mask and a state.

Population, data with one random mask per sample, and data with all masks averaged are three such
weights (…, masks, size), each summing to 1; every loss is a sum over them.
"""

from dataclasses import dataclass

import numpy as np

from glauber.errors import GlauberError
from glauber.exact.laws import Floats
from glauber.exact.learning.masks import Masks


@dataclass(frozen=True)
class Drawing:
    """How samples meet masks: each with `per_sample` random masks, or with all of them (None)."""

    per_sample: int | None = 1

    def __post_init__(self) -> None:
        if self.per_sample is not None and self.per_sample < 1:
            raise GlauberError(
                f"a sample has {self.per_sample} masks, but it must have at least one."
            )


def all_masks(weights: Floats, masks: Masks) -> Floats:
    """Pairs (…, masks, size) of a law or of counts (…, size), averaged over all masks.

    Of the true law it is the population.
    """
    shares = weights / weights.sum(axis=-1, keepdims=True)
    return np.asarray(shares[..., None, :] * masks.per_state)


def random_masks(
    counts: Floats, masks: Masks, generator: np.random.Generator, per_sample: int = 1
) -> Floats:
    """Pairs (…, masks, size) of counts (…, size), each sample with its own random masks."""
    chances = masks.per_state.T  # (size, masks)
    drawn = generator.multinomial(counts.astype(np.int64) * per_sample, chances)
    pairs = np.moveaxis(drawn.astype(np.float64), -1, -2)
    return np.asarray(pairs / pairs.sum(axis=(-2, -1), keepdims=True))


def observed(
    counts: Floats, masks: Masks, drawing: Drawing, generator: np.random.Generator
) -> Floats:
    """Pairs (…, masks, size) of counts (…, size), in the given way."""
    if drawing.per_sample is None:
        return all_masks(counts, masks)
    return random_masks(counts, masks, generator, drawing.per_sample)


def draw_counts(
    law: Floats, n_samples: int, repetitions: int, generator: np.random.Generator
) -> Floats:
    """Counts (repetitions, size) of n_samples independent draws from a law (size,)."""
    if n_samples < 1 or repetitions < 1:
        raise GlauberError(
            f"{n_samples} samples and {repetitions} repetitions were asked for, "
            "but at least one of each is needed."
        )
    return generator.multinomial(n_samples, law, size=repetitions).astype(np.float64)
