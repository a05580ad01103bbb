"""What did filling in few passes cost, and what did correction buy back?

Some tokens of a text are hidden and filled in T passes, then revised by sweeps of Glauber redraws.

On a few tokens a site every law is enumerated: how far what was written is from filling one token
at a time in the same order, and from the law that the sweeps lead to. The conditionals of a masked
LM agree on no joint law, so these two differ, and no number of sweeps leads to the first.
On the whole vocabulary chains are drawn: how many tokens a sweep revised, how irreversible its
redraws were, and how many texts sit in a trap, where every hidden token is the likeliest.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from torch import Tensor

from glauber.conditionals.base import (
    Conditionals,
    Model,
    check_temperature,
    mask_token_of,
    scores_alone,
)
from glauber.conditionals.batching import in_parts
from glauber.conditionals.starts import read_sites, starts
from glauber.dynamics.candidates import ORDERS, check_order
from glauber.dynamics.correction import correction as sweep_of
from glauber.dynamics.kernel import State, start
from glauber.dynamics.unmasking import Unmasking, unmask
from glauber.errors import GlauberError
from glauber.generation.corrected_law import Distances, exact_distances
from glauber.generation.filling import NOTHING
from glauber.generation.writing import check_passes, open_masked
from glauber.json_text import Record
from glauber.parameters import Device, Dtype, ModelOrName, Seed, Temperature, Trust, Unknown
from glauber.progress import check_count, check_seed, say, track
from glauber.result import Result, model_parts, needed, plain, signature, study
from glauber.statistics import Estimate, mean_over_chains
from glauber.tables import table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go


@study
def correction(
    model: ModelOrName = "bundled:english",
    text: Annotated[str | None, "The text of which tokens are hidden."] = None,
    *,
    sites: Annotated[
        str | Sequence[int], "Hidden tokens, such as 2,5,9-12: from 0, without special ones."
    ] = "",
    hide: Annotated[int, "Tokens hidden at random, if no sites are named."] = 4,
    passes: Annotated[
        Sequence[int] | None, "Passes that fill them (default: 1, 2, 4, … up to one for each)."
    ] = None,
    order: Annotated[str, f"Which is filled first: {', '.join(ORDERS)}."] = "confidence",
    correct: Annotated[Sequence[int], "Sweeps of correction."] = (0, 1, 2, 4),
    correct_block: Annotated[int | None, "Tokens redrawn at once in a sweep (default: 1)."] = None,
    top: Annotated[int, "Likeliest tokens of each site, for the exact distances."] = 3,
    chains: Annotated[int, "Texts drawn for each number of passes."] = 64,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
    unknown: Unknown = "error",
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
) -> "Correction":
    """Measure what filling hidden tokens in few passes costs, and what correction buys back.

    Distances are exact total variations over the likeliest tokens of each site, from filling one
    token at a time and from the law that the sweeps lead to. Revised tokens, entropy production
    and traps are estimates from texts drawn on the whole vocabulary.
    """
    text = needed("text", text)
    check_order(order)
    check_temperature(temperature)
    check_seed(seed)
    numbers = sorted({*_counts("number of sweeps", correct, least=0)})
    given = None if passes is None else _counts("number of passes", passes)
    block = 1 if correct_block is None else correct_block
    for name, number in (
        ("number of hidden tokens", hide), ("size of a corrected block", block),
        ("number of tokens tried", top), ("number of texts", chains),
    ):  # fmt: skip
        check_count(name, number)
    named = read_sites(sites)
    opened = open_masked(
        model, device=device, dtype=dtype, trust_remote_code=trust_remote_code, exact=True
    )
    tokens, free = (
        part[0].to(opened.state_device) for part in starts(opened, [text], unknown=unknown)
    )
    places = free.nonzero()[:, 0]
    people = _chosen(len(places), named, hide, seed)
    hidden = places[torch.tensor(people, device=places.device)]
    schedules = given or _powers(len(hidden))
    for number in schedules:
        check_passes(Unmasking(order, passes=number), len(hidden))
    conditionals = opened.conditionals()
    exact = exact_distances(
        conditionals, tokens, hidden, order=order, passes=schedules, sweeps=numbers, block=block,
        top=top, temperature=temperature,
    )  # fmt: skip
    cost = chains * sum(number + numbers[-1] * len(hidden) for number in schedules)
    say(f"about {cost:,} rows through the model for {chains * len(schedules):,} texts")
    begun = _hidden(tokens, hidden, mask_token_of(opened), chains, temperature)
    rows = []
    with track("schedules", len(schedules)) as advance:
        for number in schedules:
            how = Unmasking(order, passes=number)
            drawn = _drawn(conditionals, begun, hidden, how, numbers, block, opened, seed)
            rows += [
                Corrected(number, sweeps, number + sweeps * math.ceil(len(hidden) / block),
                          None if exact is None else exact.distances[number, sweeps], *found)
                for sweeps, found in zip(numbers, drawn, strict=True)
            ]  # fmt: skip
            advance()
    spelled = [f"{n} {opened.vocabulary.spell(int(tokens[s]))}" for n, s in zip(people, hidden)]  # noqa: B905
    made = signature(
        **model_parts(opened), tokens=len(places), hidden=len(hidden), order=order, block=block,
        top=top, chains=chains, temperature=float(temperature), seed=seed,
    )  # fmt: skip
    return Correction(rows, exact, opened.name, text, spelled, order, block, made)


def _counts(name: str, given: Sequence[int], *, least: int = 1) -> list[int]:
    for number in given:
        check_count(name, number, least=least)
    if not list(given):
        raise GlauberError(f"no {name} is given, so there is nothing to measure.")
    return list(given)


def _chosen(n: int, named: list[int], hide: int, seed: int) -> list[int]:
    """The numbers of the hidden tokens of n, as people count them."""
    if named and named[-1] >= n:
        raise GlauberError(f"a site lies outside the text: its tokens are 0 to {n - 1}.")
    if hide > n and not named:
        raise GlauberError(f"{hide} tokens cannot be hidden: the text has {n}.")
    return named or sorted(np.random.default_rng(seed).permutation(n)[:hide].tolist())


def _powers(n: int) -> list[int]:
    """1, 2, 4, … and n itself."""
    return [2**power for power in range(32) if 2**power < n] + [n]


# Drawn, on the whole vocabulary

Found = tuple[Estimate, Estimate | None, Estimate]


def _hidden(
    tokens: Tensor, hidden: Tensor, hidden_token: int, chains: int, temperature: float
) -> State:
    """So many chains with these sites hidden."""
    free = torch.zeros_like(tokens, dtype=torch.bool)
    free[hidden] = True
    begun = tokens.masked_fill(free, hidden_token).repeat(chains, 1)
    return start(begun, free.repeat(chains, 1), temperature=temperature, device=tokens.device)


def _drawn(
    conditionals: Conditionals,
    state: State,
    hidden: Tensor,
    how: Unmasking,
    sweeps: Sequence[int],
    block: int,
    model: Model,
    seed: int,
) -> list[Found]:
    """Revised tokens, entropy production of the last sweep and traps, after so many sweeps each."""
    for after, _ in unmask(conditionals, state, how, hidden_token=mask_token_of(model), seed=seed):
        state = after
    kernel = sweep_of(conditionals, block=block, hidden_token=mask_token_of(model))
    seeds, first = torch.as_tensor(seed, device=hidden.device), state.tokens
    state, found = state._replace(step=torch.zeros_like(state.step)), []
    production: Estimate | None = None
    for number in range(max(sweeps) + 1):
        if number:
            state, info = kernel.step(state, kernel.draw(seeds, state))
            if block == 1:
                spent = (-info.entropy - info.log_prob_old)[:, hidden].mean(dim=1)
                production = mean_over_chains(spent.cpu().numpy())
        if number in sweeps:
            revised = (state.tokens != first)[:, hidden].double().mean(dim=1)
            share = (
                mean_over_chains(revised.cpu().numpy(), bounds=(0.0, 1.0)) if number else NOTHING
            )
            found.append((share, production, _traps(conditionals, state, hidden)))
    return found


def _traps(conditionals: Conditionals, state: State, hidden: Tensor) -> Estimate:
    """The share of texts whose every hidden token is the likeliest at its site."""
    held = []
    for rows in in_parts(state.tokens, 2 * len(hidden) * conditionals.vocab_size):
        scores = scores_alone(conditionals, rows, hidden)
        own = scores.gather(2, rows[:, hidden, None])
        others = scores.scatter(2, rows[:, hidden, None], -torch.inf).amax(dim=2)
        held.append((own[:, :, 0] > others).all(dim=1))
    return mean_over_chains(torch.cat(held).double().cpu().numpy(), bounds=(0.0, 1.0))


@dataclass(frozen=True)
class Corrected:
    """What so many passes and sweeps gave."""

    passes: int
    sweeps: int
    cost: int  # rows of a text through the model. Exact
    distances: tuple[float, float] | None  # from one by one, and from the sweeps' limit. Exact
    revised: Estimate  # share of the tokens that the sweeps changed, by the end
    production: Estimate | None  # nats a redraw of the last sweep; of single sites only
    traps: Estimate  # share of texts

    def row(self) -> Record:
        """As a line of a table."""
        one_by_one, limit = self.distances or (None, None)
        return {
            "passes": self.passes,
            "sweeps": self.sweeps,
            "cost": self.cost,
            "TV from one by one": one_by_one,
            "TV from the sweeps' law": limit,
            "revised": self.revised.value,
            "nats a redraw": self.production and self.production.value,
            "in a trap": self.traps.value,
        }


@dataclass(frozen=True, eq=False)
class Correction(Result):
    """What few passes cost on a text with hidden tokens, and what sweeps bought back."""

    rows: list[Corrected]
    exact: Distances | None
    model: str
    text: str
    hidden: list[str]
    order: str
    block: int  # sites that a sweep redraws together
    signature: str

    def to_dict(self) -> Record:
        exact = self.exact
        return {
            "model": self.model,
            "text": self.text,
            "hidden": self.hidden,
            "order": self.order,
            "block": self.block,
            "rows": [_said(row) for row in self.rows],
            "one_by_one_from_limit": _exactly(None if exact is None else exact.apart),
            "production": _exactly(None if exact is None else exact.production),
            "mass": None if exact is None else plain(exact.mass),
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        yield f"hidden: {', '.join(self.hidden)}; filled by {self.order}"
        if self.exact is None:
            yield "no exact distances: too many fillings (fewer hidden tokens, or fewer tried)"
        else:
            yield (
                "distances are exact, over the likeliest tokens of each site (at least "
                f"{self.exact.mass.min():.2f} of its mass); all else but costs are estimates"
            )
            yield (
                f"filling one by one and the sweeps' own law are {self.exact.apart:.3f} apart, and "
                f"the chain produces {self.exact.production:.4f} nats a redraw (both exact; 0 "
                "where one joint law owns the conditionals)"
            )
        yield from table([row.row() for row in self.rows])

    def frame(self) -> "pandas.DataFrame":
        """One row for each number of passes and sweeps."""
        import pandas

        return pandas.DataFrame([row.row() for row in self.rows])

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.frontier import plot_correction

        return {"correction": plot_correction(self)}


def _said(row: Corrected) -> Record:
    """A row as JSON has it."""
    one_by_one, limit = row.distances or (None, None)
    estimates = {"revised": row.revised, "production": row.production, "traps": row.traps}
    return {
        "passes": row.passes,
        "sweeps": row.sweeps,
        "cost": row.cost,
        "from_one_by_one": _exactly(one_by_one),
        "from_limit": _exactly(limit),
        **plain(estimates),
    }


def _exactly(value: float | None) -> dict[str, Any] | None:
    return None if value is None else {"value": value, "kind": "exact"}
