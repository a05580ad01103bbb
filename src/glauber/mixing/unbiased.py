"""What is the stationary mean of a statistic of the text, without the bias of the start?

From an L-lag coupling that meets at tau (Jacob, O'Leary and Atchade 2020; with a lag, Biswas,
Jacob and Vanetti 2019),

    H = 1/(m-k+1) * [ sum over t = k..m of h(X_t)
                      + sum over t >= k+L, t < tau of c_t (h(X_t) - h(Y_{t-L})) ]

has the stationary mean of h as its expectation, whatever k and m. Here c_t is the number of
j >= 1 with k <= t - j L <= m.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import Conditionals, Model, check_temperature
from glauber.conditionals.load import load
from glauber.conditionals.starts import starts
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.errors import GlauberError
from glauber.mixing.coalescence import pairs_at_once
from glauber.mixing.pairs import JointDraw, Pairs, begin, joint_draw_named, step_together
from glauber.parameters import Device, Dtype, Freeze, ModelOrName, Seed, Temperature, Trust, Unknown
from glauber.progress import Advance, check_count, check_memory, check_seed, say, track
from glauber.result import Result, model_parts, needed, plain, study
from glauber.result import signature as signed
from glauber.statistics import Mean, mean_over_chains

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

TokenStatistic = Callable[[Tensor], Tensor]  # tokens (rows, length) -> (rows,) or (rows, d)
STEPS = 10**12  # more than anybody waits for
BUILT_IN = "distinct, characters or token:NAME"


@study
def unbiased(
    model: ModelOrName = "bundled:english",
    text: Annotated[str | None, "The text that the chains start from."] = None,
    *,
    statistic: Annotated[
        str | Callable[[str], float],
        "distinct, characters or token:NAME; in Python also a function of a text.",
    ] = "distinct",
    pairs: Annotated[int, "Pairs of chains."] = 16,
    temperature: Temperature = 1.0,
    steps: Annotated[int, "Steps within which a pair may meet."] = 2000,
    first: Annotated[int, "First step of the average."] = 100,
    last: Annotated[int, "Last step of the average."] = 200,
    lag: Annotated[int, "Lag: steps by which one chain is ahead of the other."] = 10,
    coupling: Annotated[str, "maximal, inverse-cdf or gumbel-max."] = "maximal",
    freeze: Freeze = (),
    seed: Seed = 0,
    unknown: Unknown = "error",
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
) -> "Unbiased":
    """Estimate the stationary mean of a statistic of the text, without bias from the start.

    From pairs of chains that meet: the average over some steps of one chain, corrected by what the
    two of a pair differ by until they meet, has the stationary mean as its expectation (Jacob,
    O'Leary and Atchade 2020). Pairs that do not meet within the steps bias it, and that is said.
    distinct is the share of different tokens among the free sites, characters the length of the
    text, token:NAME the share of free sites with that token.
    """
    text = needed("text", text)
    check_window(first, last, lag, steps)
    check_count("number of pairs", pairs)
    check_temperature(temperature)
    check_seed(seed)
    joint_draw_named(coupling)
    opened = load(
        model, device=device, dtype=dtype, trust_remote_code=trust_remote_code, exact=True
    )
    tokens, free = (
        part.to(opened.state_device)
        for part in starts(opened, [text], freeze=freeze, unknown=unknown)
    )
    check_memory(pairs * tokens.shape[1] * 40, f"{pairs:,} pairs of chains")
    name = statistic if isinstance(statistic, str) else getattr(statistic, "__name__", "function")
    asked = _token_statistic(opened, statistic, free[0])
    rows = tokens.repeat(pairs, 1)
    say(f"{pairs:,} pairs of {last:,} to {max(last, lag + steps):,} steps")
    found = estimate(
        opened.conditionals(), rows, rows, statistic=asked, free=free.repeat(pairs, 1),
        temperature=temperature, seed=seed, steps=steps, k=first, m=last, lag=lag,
        coupling=coupling,
    )  # fmt: skip
    made = signed(
        **model_parts(opened), statistic=name, pairs=pairs, temperature=temperature, steps=steps,
        first=first, last=last, lag=lag, coupling=coupling, seed=seed,
    )  # fmt: skip
    return Unbiased(**vars(found), statistic=name, name=opened.name, text=text, signature=made)


@dataclass(frozen=True, eq=False)
class Estimates:
    """Independent estimates of a stationary mean, one a pair."""

    values: NDArray[np.float64]  # (pairs, d)
    times: NDArray[np.int64]  # (pairs,): tau; lag + steps where the pair is censored
    met: NDArray[np.bool_]  # (pairs,)

    @property
    def mean(self) -> NDArray[np.float64]:
        """The estimate (d,)."""
        return np.asarray(self.values.mean(axis=0))

    @property
    def standard_error(self) -> NDArray[np.float64]:
        """Of the mean (d,), from the spread between pairs; nan for a single one."""
        n = len(self.values)
        if n < 2:
            return np.full(self.values.shape[1], np.nan)
        return np.asarray(self.values.std(axis=0, ddof=1) / np.sqrt(n))

    @property
    def kind(self) -> str:
        """An unbiased estimate, unless pairs were cut off before they met."""
        censored = int((~self.met).sum())
        if censored == 0:
            return "unbiased estimate"
        return (
            f"biased estimate: {censored} of {len(self.met)} pairs did not meet within the "
            "steps, and what they would still have added is missing"
        )


@dataclass(frozen=True, eq=False)
class Unbiased(Estimates, Result):
    """The stationary mean of a number of the text, from pairs of chains that met."""

    statistic: str
    name: str  # of the model
    text: str
    signature: str

    @property
    def estimated(self) -> Mean:
        """The mean over pairs, with the interval that so many pairs allow."""
        return mean_over_chains(self.values[:, 0])

    def to_dict(self) -> dict[str, Any]:
        found = self.estimated
        record = {
            "model": self.name,
            "text": self.text,
            "statistic": self.statistic,
            "mean": {
                "value": found.value, "standard_error": float(self.standard_error[0]),
                "interval": found.interval, "reason": found.reason or None, "kind": self.kind,
            },
            "pairs": self.frame().to_dict(orient="records"),
            "met": int(self.met.sum()),
            "signature": self.signature,
        }  # fmt: skip
        return dict(plain(record))

    def lines(self) -> Iterable[str]:
        n_met = int(self.met.sum())
        yield f"stationary mean of {self.statistic}: {self.estimated.spoken(4)}, {self.kind}"
        yield (
            f"{n_met} of {len(self.met)} pairs met, after {int(np.median(self.times)):,} steps in "
            f"the median and {int(self.times.max()):,} at most"
        )

    def frame(self) -> "pandas.DataFrame":
        """One row per pair."""
        import pandas

        return pandas.DataFrame(
            {"estimate": self.values[:, 0], "time": self.times, "met": self.met}
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.mixing import plot_estimates

        return {"estimates": plot_estimates(self.values[:, 0], self.statistic)}


def estimate(
    conditionals: Conditionals,
    left: Tensor,
    right: Tensor,
    *,
    statistic: TokenStatistic,
    free: Tensor,
    temperature: float | Tensor,
    seed: int | Tensor,
    steps: int,
    k: int,
    m: int,
    lag: int = 1,
    coupling: str = "maximal",
) -> Estimates:
    """Estimates of the stationary mean; left holds X_0 and right Y_0, as in lagged.

    k and m are the first and last step of the plain average. A large k makes the correction rare,
    a large m averages more. The steps are those made together.
    """
    check_window(k, m, lag, steps)
    joint = joint_draw_named(coupling)
    pairs = begin(left, right, free, temperature=temperature, seed=seed)
    size = pairs_at_once(conditionals, left.device)
    last = max(m, lag + steps)
    parts = []
    with track("steps of pairs", len(left) * last) as advance:
        for rows in torch.arange(len(left), device=left.device).split(size):
            part = pairs.rows(rows)
            tally = _Tally(statistic, len(rows), k, m, lag)
            advanced = _alone(conditionals, joint, part, tally, advance)
            parts.append(_until_met(conditionals, joint, advanced, tally, last, advance))
    return Estimates(*(np.concatenate(column) for column in zip(*parts, strict=True)))


class _Tally:
    """The sum H of each pair, added up while the chains move."""

    def __init__(self, statistic: TokenStatistic, n_pairs: int, k: int, m: int, lag: int) -> None:
        self.statistic, self.n_pairs = statistic, n_pairs
        self.k, self.m, self.lag = k, m, lag
        self.sums: Tensor | None = None  # (pairs, d)

    def add(self, rows: Tensor, left: Tensor, right: Tensor | None, time: int) -> None:
        """Counts X_t = left, and h(X_t) - h(Y_{t-L}) with its weight where right is Y_{t-L}."""
        plain = float(self.k <= time <= self.m)
        weight = self.weight(time) if right is not None else 0
        if not plain and not weight:
            return
        value = self._ask(left)
        change = plain * value
        if right is not None and weight:
            change = change + weight * (value - self._ask(right))
        if self.sums is None:
            self.sums = value.new_zeros(self.n_pairs, value.shape[1])
        self.sums[rows] += change

    def weight(self, time: int) -> int:
        """The number of j >= 1 with k <= time - j * lag <= m."""
        first = max(1, -((self.m - time) // self.lag))
        return max(0, (time - self.k) // self.lag - first + 1)

    def _ask(self, tokens: Tensor) -> Tensor:
        return self.statistic(tokens).double().reshape(len(tokens), -1)

    def values(self) -> NDArray[np.float64]:
        """H (pairs, d)."""
        assert self.sums is not None  # step m is always counted
        return np.asarray((self.sums / (self.m - self.k + 1)).cpu().numpy())


def _alone(
    conditionals: Conditionals, joint: JointDraw, pairs: Pairs, tally: _Tally, advance: Advance
) -> Pairs:
    """The pairs with X a lag ahead of Y; counts X at steps 0 to lag - 1."""
    everyone = torch.arange(len(pairs.step), device=pairs.step.device)
    state = start(
        pairs.left, pairs.free, temperature=pairs.temperature, chain=pairs.pair,
        device=pairs.left.device,
    )  # fmt: skip
    kernel = glauber(conditionals, fill=joint.alone)
    for time, (after, _) in enumerate(run(kernel, state, tally.lag, seed=pairs.seed)):
        tally.add(everyone, state.tokens, None, time)
        state = after
        advance(len(everyone))
    return pairs._replace(left=state.tokens, step=state.step)


def _until_met(
    conditionals: Conditionals, joint: JointDraw, pairs: Pairs, tally: _Tally, last: int,
    advance: Advance,
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:  # fmt: skip
    """Values, meeting times and whether they met, of pairs that go on to m and until they meet."""
    rows = torch.arange(len(pairs.step), device=pairs.step.device)
    times = torch.full_like(rows, last)
    met = torch.zeros_like(rows, dtype=torch.bool)
    time = tally.lag
    while len(rows):
        together = pairs.distance == 0
        times[rows[together & ~met[rows]]] = time
        met[rows[together]] = True
        tally.add(rows, pairs.left, pairs.right, time)
        go_on = (~together | (time < tally.m)) & (time < last)
        advance((last - time) * (len(rows) - int(go_on.sum())))
        rows, pairs = rows[go_on], pairs.rows(go_on)
        advance(len(rows))
        if len(rows):
            pairs = step_together(conditionals, joint, pairs)
        time += 1
    return tally.values(), times.cpu().numpy(), met.cpu().numpy()


def check_window(k: int, m: int, lag: int, steps: int) -> None:
    """Refuses steps that cannot be counted."""
    check_count("lag", lag)  # all of these steps are made, met or not
    check_count("number of steps", steps, most=STEPS)
    check_count("first step", k, least=0)
    check_count("last step", m, least=0)
    if k > m:
        raise GlauberError(f"k is {k} and m is {m}, but 0 <= k <= m is needed.")


def _token_statistic(
    model: Model, statistic: str | Callable[[str], float], free: Tensor
) -> TokenStatistic:
    """A statistic of tokens (rows, length) from its name, or from a function of a text."""
    if not isinstance(statistic, str):
        return lambda tokens: _of_texts(model, statistic, tokens)
    if statistic == "distinct":
        n = int(free.sum())
        return lambda tokens: (
            (tokens[:, free].sort(dim=1).values.diff(dim=1) != 0).sum(1).add(1) / n
        )
    if statistic == "characters":
        return lambda tokens: _of_texts(model, len, tokens)
    head, _, name = statistic.partition(":")
    if head != "token" or not name:
        raise GlauberError(f"the statistic is {statistic}, but it must be one of {BUILT_IN}.")
    token = _token(model, name)
    return lambda tokens: (tokens[:, free] == token).double().mean(dim=1)


def _of_texts(model: Model, statistic: Callable[[str], float], tokens: Tensor) -> Tensor:
    texts = [model.vocabulary.decode(row[row >= 0].tolist()) for row in tokens]
    return torch.tensor([float(statistic(text)) for text in texts], dtype=torch.float64)


def _token(model: Model, name: str) -> int:
    """The token that is spelled so."""
    found = [token for token in range(model.vocab_size) if model.vocabulary.spell(token) == name]
    if not found:
        raise GlauberError(f"{name!r} is not a token of the vocabulary of {model.name}.")
    return found[0]
