"""Which token of a text sways which, and what does that promise for the speed of mixing?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from glauber.conditionals.base import check_temperature
from glauber.conditionals.load import load
from glauber.conditionals.starts import starts
from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.mixing.contexts import sampled_contexts
from glauber.mixing.influence_matrix import (
    AveragedInfluence,
    InfluenceMatrix,
    averaged_influence,
    check_epsilon,
    measure_influence,
)
from glauber.parameters import Device, Dtype, ModelOrName, Seed, Temperature, Trust, Unknown
from glauber.progress import check_count, check_seed, say
from glauber.result import Result, model_parts, needed, plain, signature, study
from glauber.statistics import mean_over_chains

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

MOST_SWEEPS = 10**6


@study
def influence(
    model: ModelOrName = "bundled:english",
    text: Annotated[str | None, "The sentence."] = None,
    *,
    temperature: Temperature = 1.0,
    samples: Annotated[int, "Contexts: the text, and states of chains from it."] = 4,
    replacements: Annotated[int, "Tokens tried at each site."] = 4,
    against: Annotated[
        Sequence[float] | None, "Temperatures of the averaged influence, such as 0.5,1,2."
    ] = None,
    chains: Annotated[int, "Chains of the averaged influence."] = 8,
    sweeps: Annotated[int, "Steps of a chain, in multiples of the length."] = 5,
    epsilon: Annotated[float, "epsilon of the mixing time t_mix(epsilon)."] = 0.25,
    seed: Seed = 0,
    unknown: Unknown = "error",
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
) -> "Influence":
    """Measure the influence between the tokens of a text, and what it implies for mixing.

    c_ij is the largest total variation at site i when the token at site j changes, alpha the
    largest sum of a column, and below alpha = 1 the chain mixes within n / (1 - alpha) log(n /
    epsilon) steps (paper A, theorem 2 and appendix A.1). The suprema run over sampled contexts, so
    they are lower bounds; the temperature above which the bound tanh(delta / 4T) contracts, and
    the mixing time, are estimates. Beside them stands the influence that a chain meets on average.
    """
    text = needed("text", text)
    temperatures = [temperature] if against is None else list(against)
    for one in (temperature, *temperatures):
        check_temperature(one)
    check_count("samples", samples)
    check_count("replacements", replacements)
    check_count("chains", chains)
    check_count("sweeps", sweeps, least=0, most=MOST_SWEEPS)
    check_epsilon(epsilon)
    check_seed(seed)
    opened = load(
        model, device=device, dtype=dtype, trust_remote_code=trust_remote_code, exact=True
    )
    conditionals = opened.conditionals()
    tokens, free = (
        part[0].to(opened.state_device) for part in starts(opened, [text], unknown=unknown)
    )
    n = int(free.sum())
    _say_cost(n, samples, replacements, chains * len(temperatures), sweeps)
    contexts = sampled_contexts(
        conditionals, tokens, free, n_contexts=samples, n_values=replacements,
        temperature=temperature, n_sweeps=sweeps, seed=seed,
    )  # fmt: skip
    found = measure_influence(conditionals, contexts, temperature=temperature)
    averages = [
        averaged_influence(
            conditionals, tokens, free, temperature=one, n_chains=chains, n_sweeps=sweeps, seed=seed
        )
        for one in temperatures
    ]
    made = signature(
        **model_parts(opened), temperature=temperature, samples=samples, replacements=replacements,
        sweeps=sweeps, chains=chains, seed=seed,
    )  # fmt: skip
    return Influence(
        matrix=found,
        averages=averages,
        tokens=[opened.vocabulary.spell(int(tokens[site])) for site in found.sites],
        contexts=dict(n_contexts=samples, n_values=replacements, n_sweeps=sweeps, seed=seed),
        epsilon=epsilon,
        name=opened.name,
        signature=made,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Influence(Result):
    """The influence of each token of a text on each other one, and what follows from it."""

    matrix: InfluenceMatrix
    averages: list[AveragedInfluence]  # one for each temperature that was asked for
    tokens: list[str]  # (n,) as the vocabulary spells them
    contexts: dict[str, int]  # how many, and how they were made
    epsilon: float
    name: str  # of the model
    signature: str

    @property
    def total_variation(self) -> NDArray[np.float64]:
        """c_ij (n, n): the influence of site j on site i, lower bounds."""
        return self.matrix.total_variation

    @property
    def alpha(self) -> float:
        """The largest column sum of c, a lower bound; below 1 the chain contracts."""
        return self.matrix.alpha

    @property
    def threshold(self) -> float:
        """An estimate of the temperature above which the chain contracts."""
        return self.matrix.threshold

    @property
    def mixing_time(self) -> int | None:
        """An estimate of a bound on t_mix(epsilon); None where alpha is not below 1."""
        return self.matrix.mixing_time(self.epsilon)

    def to_dict(self) -> Record:
        found = self.matrix
        return {
            "model": self.name,
            "temperature": found.temperature,
            "tokens": self.tokens,
            "influence": _valued(found.total_variation, found.kind),
            "oscillation": _valued(found.oscillation, found.kind),
            "column_sums": _valued(found.column_sums, found.kind),
            "alpha": _valued(found.alpha, found.kind),
            "threshold": _valued(found.threshold, found.threshold_kind),
            "mixing_time": _valued(self.mixing_time, "estimate") | {"epsilon": self.epsilon},
            "averaged": [
                _valued(one.mean, "estimate")
                | {"temperature": one.temperature, "standard_error": plain(one.standard_error)}
                | {"interval": plain(mean_over_chains(one.per_chain).interval)}
                for one in self.averages
            ],
            "contexts": self.contexts
            | {"from": "the text and states of chains that started from it"},
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        found, seen = self.matrix, self.contexts
        width = max(len(token) for token in self.tokens)
        yield (
            f"influence that each token exerts on all others, at temperature "
            f"{found.temperature:g} ({found.kind}s, from {seen['n_contexts']} contexts and "
            f"{seen['n_values']} replacements a site)"
        )
        for site, token in enumerate(self.tokens):
            yield f"{site:>4}  {token:>{width}}  {found.column_sums[site]:6.3f}"
        yield f"alpha, the largest of these: {found.alpha:.4g} ({found.kind})"
        yield (
            f"contraction threshold temperature, from tanh(delta / (4 T)): {found.threshold:.4g} "
            f"({found.threshold_kind})"
        )
        yield self._mixing_line()
        for one in self.averages:
            yield (
                f"influence met on average along a chain at temperature {one.temperature:g}: "
                f"{mean_over_chains(one.per_chain).text()} (estimate)"
            )

    def _mixing_line(self) -> str:
        name = f"t_mix({self.epsilon:g})"
        if self.mixing_time is None:
            return f"{name}: alpha is not below 1, so the theorem promises nothing"
        return f"{name}: {self.mixing_time:,} steps (estimate)"

    def frame(self) -> "pandas.DataFrame":
        """One row per ordered pair of sites, counted from 0 without special tokens."""
        import pandas

        n = len(self.tokens)
        onto, by = (axis[~np.eye(n, dtype=bool)] for axis in np.indices((n, n)))
        return pandas.DataFrame(
            {
                "site": by,
                "token": [self.tokens[j] for j in by],
                "on_site": onto,
                "on_token": [self.tokens[i] for i in onto],
                "influence": self.matrix.total_variation[onto, by],
                "oscillation": self.matrix.oscillation[onto, by],
            }
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.mixing import plot_averaged_influence, plot_influence

        found = {"influence": plot_influence(self.matrix, self.tokens)}
        if len(self.averages) > 1:
            found["averaged"] = plot_averaged_influence(self.averages)
        return found


def _valued(value: Any, kind: str) -> Record:
    return {"value": plain(value), "kind": kind}


def _say_cost(n: int, samples: int, replacements: int, chains: int, sweeps: int) -> None:
    if n < 2:
        raise GlauberError(
            f"the text has {n} free token, but influence needs two: give a longer one."
        )
    suprema = samples * n * (1 + replacements * (n - 1))
    averages = chains * n * (1 + n - 1 + sweeps)
    say(f"{suprema + averages + samples * n * (1 + sweeps):,} rows of {n} tokens go through it")
