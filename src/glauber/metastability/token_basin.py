"""Does a text full of one token hold on to it? The drift at sampled states of each level."""

from collections.abc import Iterable

from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.metastability.copies import settle, with_copies
from glauber.metastability.drift import DriftCertificate, LevelDrift, certify, drift


def drift_study(
    conditionals: Conditionals,
    texts: Tensor,
    free: Tensor,
    *,
    token: int,
    counts: Iterable[int],
    samples: int = 200,
    temperature: float = 1.0,
    n_steps: int = 0,
    seed: int = 0,
) -> DriftCertificate:
    """Drift at states with k copies of a token at random places, for each k of counts.

    The other sites come from texts (rows, length), moved by n_steps of the chain; free is
    (length,).
    """

    def level(count: int) -> LevelDrift:
        states = with_copies(
            texts, free, token=token, count=count, samples=samples, seed=seed + count
        )
        states = settle(
            conditionals,
            states,
            free,
            token=token,
            n_steps=n_steps,
            temperature=temperature,
            seed=seed,
        )
        found = drift(conditionals, states, free, token=token, temperature=temperature)
        return LevelDrift(count, found)

    return certify([level(count) for count in counts], exhaustive=False)
