"""How errors of the conditionals grow in the stationary distribution of the chain.

P' redraws a random site by conditionals with errors. Its stationary distribution p' has
    p - p' = p (P - P') (I - P')^#,    TV(p, p') <= tau * TV(p P, p P') <= tau * e,
with # the group inverse, tau half the largest L1 distance of two of its rows (Seneta 1991), and e
the mean total variation of the conditionals at a random site, under p. So the amplification
TV(p, p') / e is at most tau. Two kinds of errors with log odds of the same standard deviation:
    free    independent ones of each conditional: as a rule no joint distribution has them
    joint   of the log weights of a joint distribution, so that the conditionals stay compatible
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from glauber.exact.models import Ising
from glauber.exact.space import Floats, Space
from glauber.exact.stationary import stationary, total_variation
from glauber.foundation.checks import Real, Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import Seed
from glauber.foundation.progress import say, track
from glauber.foundation.statistics import MIN_CHAINS, Estimate, mean_over_chains
from glauber.foundation.study import Result, internal, study
from glauber.studies.ising.model import Clique, Field, Model, Sites, Strength, model_of, not_empty

if TYPE_CHECKING:
    import plotly.graph_objects as go

COUPLINGS = (0.0, 0.1, 0.2, 0.3, 0.5)
SLOWEST = 1e10  # amplification that the inverse of a matrix in floats can tell to six digits
LARGEST = 9  # sites; every chain is a dense matrix that is inverted


@study
def amplification(
    model: Model = None,
    *,
    couplings: Annotated[
        Sequence[float], "Couplings J; each pair counts twice.", not_empty, Strength
    ] = COUPLINGS,
    error: Annotated[float, "Standard deviation of the errors of log odds.", Real(1e-6, 10)] = 0.1,
    repetitions: Annotated[int, "Independent errors at each coupling.", Whole(MIN_CHAINS)] = 20,
    sites: Sites = 4,
    clique: Clique = None,
    field: Field = 0.0,
    seed: Seed = 0,
) -> "Amplifications":
    """Distance of the stationary distribution against the error of the conditionals.

    Random errors of the single-site conditionals of an Ising model, with and without a joint
    distribution: total variation between p and the distribution that Gibbs sampling ends in, over
    the mean error of a conditional (paper B: inconsistent conditionals may amplify errors). With a
    model of one's own, J multiplies its couplings.
    """
    base = model_of(model, sites=sites, clique=clique, coupling=1.0, field=field)
    if base.n_sites > LARGEST:
        raise GlauberError(f"there are {base.n_sites} sites, but at most {LARGEST} are computed.")
    say(f"{2 * repetitions * len(couplings)} chains over {base.space.size:,} states")
    rows = []
    with track("couplings", len(couplings)) as advance:
        for coupling in couplings:
            strong = Ising(base.fields, base.couplings * coupling)
            rows += [
                _row(strong, coupling, kind, error, repetitions, seed) for kind in ("free", "joint")
            ]
            advance()
    return Amplifications(base.n_sites, error, repetitions, tuple(rows))


@dataclass(frozen=True)
class Amplified:
    """One coupling and kind of errors: means over repetitions, with their intervals."""

    coupling: float
    errors: Literal["free", "joint"]
    conditional_error: Estimate  # e, the mean total variation of a conditional
    distance: Estimate  # TV between p and the stationary distribution
    amplification: Estimate  # distance over error
    bound: Estimate  # tau, which no amplification of the same chain exceeds
    ratios: tuple[float, ...] = internal()  # amplification of each repetition


def _row(
    model: Ising,
    coupling: float,
    kind: Literal["free", "joint"],
    error: float,
    repetitions: int,
    seed: int,
) -> Amplified:
    p, generator = model.probabilities, np.random.default_rng(seed)
    exact = log_odds(model.log_weights, model.space)
    measured = []
    for _ in range(repetitions):
        if kind == "free":
            noise = _by_context(generator.normal(size=exact.shape) * error, model.space)
        else:  # differences of two independent normals
            weights = generator.normal(size=model.space.size) * error / np.sqrt(2)
            noise = log_odds(weights, model.space)
        measured.append(measure_amplification(p, exact, exact + noise, model.space))
    columns = np.array(measured).T
    errors, distances, ratios, bounds = (
        mean_over_chains(column, bounds=(0.0, np.inf)) for column in columns
    )
    each = tuple(columns[2].tolist())
    return Amplified(coupling, kind, errors, distances, ratios, bounds, each)


def log_odds(log_weights: Floats, space: Space) -> Floats:
    """log of p(1 | rest) / p(0 | rest) (sites, size) at every state, for two tokens."""
    cube = log_weights.reshape((2,) * space.length)
    sides = (np.diff(cube, axis=site) for site in range(space.length))
    return np.stack([np.broadcast_to(side, cube.shape).ravel() for side in sides])


def _by_context(noise: Floats, space: Space) -> Floats:
    """noise (sites, size) with that of token 0 for both tokens of the site."""
    return np.stack([row[space.contexts((site,))] for site, row in enumerate(noise)])


def measure_amplification(
    p: Floats, exact: Floats, wrong: Floats, space: Space
) -> tuple[float, float, float, float]:
    """e, TV(p, p'), their ratio and tau, for log odds (sites, size) with errors."""
    chances = 1 / (1 + np.exp(-wrong))
    matrix = np.zeros((space.size, space.size))
    strides = space.strides.numpy()
    for site, chance in enumerate(chances):
        contexts = space.contexts((site,))
        matrix[np.arange(space.size), contexts] += (1 - chance) / space.length
        matrix[np.arange(space.size), contexts + strides[site]] += chance / space.length
    limit = stationary(matrix)
    mean_error = float((np.abs(chances - 1 / (1 + np.exp(-exact))) @ p).mean())
    distance = total_variation(p, limit)
    # (I - P' + 1 p')^-1 differs from the group inverse by 1 p', which no difference of rows sees.
    inverse = np.linalg.inv(np.eye(space.size) - matrix + limit)
    tau = max(float(np.abs(inverse - row).sum(axis=1).max()) for row in inverse) / 2
    if not tau < SLOWEST:
        raise GlauberError(
            f"errors could be amplified {tau:.1g} times: such a chain mixes too slowly for the "
            "precision of floats; take weaker couplings."
        )
    return mean_error, distance, distance / mean_error, tau


@dataclass(frozen=True, eq=False)
class Amplifications(Result):
    """Error of the conditionals and of the stationary distribution, by coupling."""

    sites: int
    error: float  # standard deviation of the errors of log odds
    repetitions: int
    rows: tuple[Amplified, ...]

    def lines(self) -> Iterable[str]:
        heads = ("J", "errors", "conditional", "distance", "ratio", "at most")
        yield "".join(f"{head:>12}" for head in heads)
        for row in self.rows:
            values = (row.conditional_error, row.distance, row.amplification, row.bound)
            yield f"{row.coupling:>12g}{row.errors:>12}" + "".join(
                f"{value.value:>12.4g}" for value in values
            )
        yield f"means over {self.repetitions} random errors; each chain is exact"
        yield "conditional: mean total variation of a conditional; distance: of the stationary"
        yield "distribution from p; at most: the bound on the ratio by the group inverse"
        yield "free: independent errors, no joint distribution; joint: errors of a joint one"

    def table(self) -> tuple[Amplified, ...]:
        """One row per coupling and kind of errors."""
        return self.rows

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.ising import plot_amplification

        return {"amplification": plot_amplification(self.rows)}
