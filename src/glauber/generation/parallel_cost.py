"""How many hidden tokens of a text can be filled at once, and which must not be together?"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from torch import Tensor

from glauber.conditionals.base import Conditionals, check_temperature
from glauber.conditionals.load import load
from glauber.conditionals.starts import read_sites, starts
from glauber.errors import GlauberError
from glauber.generation.calibrate import Calibration
from glauber.generation.calibrate import calibrate as calibration
from glauber.generation.calibration import NATS
from glauber.generation.filling import (
    HALVINGS,
    FillCost,
    FillingPlan,
    check_error,
    cost_by_count,
    filling_plan,
)
from glauber.generation.pair_costs import PairCosts, pair_costs
from glauber.json_text import Record
from glauber.parameters import Device, Dtype, Freeze, ModelOrName, Seed, Temperature, Trust, Unknown
from glauber.progress import check_count, check_memory, check_seed, say, track
from glauber.result import Result, model_parts, needed, plain, signature, study

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

ERROR = 0.1  # total variation
NAMED = 10  # pairs that are written out
NOISE = 1e-4  # of a total variation from scores in float32


@study
def parallel_cost(
    model: ModelOrName = "bundled:english",
    text: Annotated[str | None, "The sentence."] = None,
    *,
    sites: Annotated[
        str | Sequence[int], "Hidden tokens, such as 2,5,9-12: from 0, without special ones."
    ] = "",
    hide: Annotated[float, "Share of tokens hidden, if no sites are named."] = 0.4,
    freeze: Freeze = (),
    error: Annotated[
        float | None,
        "Total variation that a group may cost (0.1); with --calibrate, nats a pass (0.05).",
    ] = None,
    calibrate: Annotated[
        bool, "Find how many tokens a pass may fill in any text: the study calibrate."
    ] = False,
    top: Annotated[int, "Likeliest tokens tried at the first of two sites."] = 32,
    samples: Annotated[int, "Sequential fills for groups above two."] = 64,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
    unknown: Unknown = "error",
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
) -> "ParallelCost | Calibration":
    """Measure what filling hidden tokens at once costs, and plan which to fill together.

    The cost is the distance between the law of one pass, in which each hidden token is drawn by
    itself, and the law of filling them one after the other (paper B: why parallel decoding loses
    dependencies). Of pairs it is bounded, of larger groups estimated from sequential fills; the
    conditionals of a masked LM agree on no joint law, so costs are means over orders. With
    calibrate, a number for all texts instead: what the study `calibrate` finds on the bundled
    passages.
    """
    if calibrate:
        return _calibrated(
            model, text, error, temperature=temperature, seed=seed, device=device, dtype=dtype,
            trust_remote_code=trust_remote_code,
        )  # fmt: skip
    text, error = needed("text", text), ERROR if error is None else error
    _check(hide, error, top, samples, temperature, seed)
    named, held = read_sites(sites), read_sites(freeze)
    opened = load(
        model, device=device, dtype=dtype, trust_remote_code=trust_remote_code, exact=True
    )
    tokens, free = (
        part[0].to(opened.state_device) for part in starts(opened, [text], unknown=unknown)
    )
    places = free.nonzero()[:, 0]
    hidden = places[_hidden(len(places), named, held, hide, seed).to(places.device)]
    n = len(hidden)
    check_memory(64.0 * samples * n, f"{samples:,} fills of {n} tokens")
    say(
        f"{n} hidden tokens: {n * top:,} rows through the model for pairs, {samples * n:,} for "
        f"larger groups, at most {(HALVINGS + 1) * samples * n:,} for the plan"
    )
    conditionals = opened.conditionals()
    drawing: dict[str, Any] = {"samples": samples, "temperature": temperature, "seed": seed}
    with track("rows", n * top + (HALVINGS + 2) * samples * n) as advance:
        pairs = pair_costs(
            conditionals, tokens, hidden, top=top, temperature=temperature, advance=advance
        )
        counts = cost_by_count(conditionals, tokens, hidden, **drawing, advance=advance)
        plan = filling_plan(conditionals, tokens, pairs, error=error, **drawing, advance=advance)
    numbers = {int(place): number for number, place in enumerate(places.tolist())}
    spelled = {site: opened.vocabulary.spell(int(tokens[site])) for site in hidden.tolist()}
    made = signature(
        **model_parts(opened), tokens=len(places), hidden=n, top=top, samples=samples, error=error,
        temperature=float(temperature), seed=seed,
    )  # fmt: skip
    return ParallelCost(
        pairs, counts, plan, {site: numbers[site] for site in spelled}, spelled, opened.name,
        temperature, samples, seed, made,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class ParallelCost(Result):
    """What filling the hidden tokens of a text at once costs: pairs, groups of k, and a plan."""

    pairs: PairCosts
    counts: list[FillCost]  # of k = 1, 2, … random hidden tokens
    plan: FillingPlan
    numbers: dict[int, int]  # column of each hidden token -> its number for people
    spelled: dict[int, str]  # column of each hidden token -> its spelling
    model: str
    temperature: float
    samples: int
    seed: int
    signature: str

    def name(self, site: int) -> str:
        """A hidden token by its number and spelling."""
        return f"{self.numbers[site]} {self.spelled[site]}"

    @property
    def hidden(self) -> list[str]:
        """The hidden tokens by number and spelling."""
        return [self.name(site) for site in self.pairs.sites]

    @property
    def kind(self) -> str:
        """Of the costs of pairs."""
        return "exact" if not self.pairs.rest.any() else "lower bound"

    def to_dict(self) -> Record:
        pairs, plan = self.pairs, self.plan
        return {
            "hidden": self.hidden,
            "sites": [self.numbers[site] for site in pairs.sites],
            "pairs": {
                "total_variation": self._bounds(pairs.total_variation, pairs.at_most),
                "divergence": self._bounds(pairs.divergence, pairs.divergence_at_most),
                "rest": plain(pairs.rest),
                "top": pairs.top,
                "rows": "the site filled first; columns: the second",
            },
            "order_gap": self._order_gap(),
            "not_together": self.not_together(),
            "by_count": [_cost(one) | {"k": k} for k, one in enumerate(self.counts, start=1)],
            "by_distance": [
                {"distance": far, "mean": mean, "pairs": n, "kind": self.kind}
                for far, (mean, n) in pairs.by_distance().items()
            ],
            "plan": {
                "error": plan.error,
                "passes": plan.passes,
                "whole": _cost(plan.whole),
                "groups": [
                    {"sites": [self.name(site) for site in group]} | _cost(cost)
                    for group, cost in zip(plan.groups, plan.costs, strict=True)
                ],
            },
            "model": self.model,
            "temperature": self.temperature,
            "samples": self.samples,
            "seed": self.seed,
            "signature": self.signature,
        }

    def not_together(self) -> list[dict[str, Any]]:
        """The pairs that cost more than the error for certain, worst first."""
        mean, n = self.pairs.mean, len(self.hidden)
        found = [(float(mean[a, b]), a, b) for a in range(n) for b in range(a + 1, n)]
        return [
            {
                "sites": [self.hidden[a], self.hidden[b]],
                "cost": cost,
                "kind": "lower bound",
                "at_most": float(self.pairs.mean_at_most[a, b]),
            }
            for cost, a, b in sorted(found, reverse=True)
            if cost > self.plan.error
        ]

    def lines(self) -> Iterable[str]:
        yield f"hidden: {', '.join(self.hidden)}"
        yield (
            f"not together, at a cost above {self.plan.error:g} (total variation, mean of both "
            f"orders, lower bound; at most {max(self.pairs.rest):.2g} is missing):"
        )
        apart = self.not_together()
        for one in apart[:NAMED]:
            yield f"  {one['cost']:.3f}  {one['sites'][0]} | {one['sites'][1]}"
        if len(apart) > NAMED:
            yield f"  and {len(apart) - NAMED} more"
        if not apart:
            yield "  no pair"
        yield self._order_line()
        yield "cost of k random hidden tokens at once (estimates):"
        for k, cost in enumerate(self.counts[1:], start=2):
            yield f"  k = {k:>2}: {_cost_line(cost)}"
        yield f"plan: {self.plan.passes} passes instead of {len(self.hidden)} (estimates):"
        for group, cost in zip(self.plan.groups, self.plan.costs, strict=True):
            yield f"  {', '.join(self.name(site) for site in group)}: {_cost_line(cost)}"
        yield f"  the whole plan: {_cost_line(self.plan.whole)}"

    def frame(self) -> "pandas.DataFrame":
        """One row for each ordered pair of hidden tokens."""
        import pandas

        pairs = self.pairs
        n = len(pairs.sites)
        rows = [
            {
                "first": self.numbers[pairs.sites[a]],
                "second": self.numbers[pairs.sites[b]],
                "first_token": self.spelled[pairs.sites[a]],
                "second_token": self.spelled[pairs.sites[b]],
                "total_variation": pairs.total_variation[a, b],
                "total_variation_at_most": pairs.at_most[a, b],
                "divergence": pairs.divergence[a, b],
                "divergence_at_most": pairs.divergence_at_most[a, b],
            }
            for a in range(n)
            for b in range(n)
            if a != b
        ]
        return pandas.DataFrame(rows)

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.generation import plot_cost_by_count, plot_cost_by_distance, plot_pairs

        return {
            "pairs": plot_pairs(self.pairs, self.hidden, self.plan.error),
            "by-count": plot_cost_by_count(self.counts),
            "by-distance": plot_cost_by_distance(self.pairs),
        }

    def _bounds(self, value: Any, upper: Any) -> Record:
        return {"value": plain(value), "kind": self.kind, "upper_bound": plain(upper)}

    def _order_gap(self) -> dict[str, Any]:
        kind = "estimate" if self.pairs.rest.any() else self.kind
        at_least = self.pairs.order_gap_at_least
        return {"value": self.pairs.order_gap, "kind": kind, "at_least": at_least}

    def _order_line(self) -> str:
        """How much the order matters, and what that proves."""
        gap = self._order_gap()
        if gap["at_least"] > NOISE:
            return (
                f"the two orders of a pair differ by at least {gap['at_least']:.3f}: these "
                "conditionals belong to no joint law, so costs are means over orders"
            )
        return (
            f"the two orders of a pair differ by {gap['value']:.3f} over the tokens tried "
            f"({gap['kind']}); costs are means over orders"
        )


def _calibrated(
    model: str | Conditionals, text: str | None, error: float | None, **others: Any
) -> Calibration:
    """The calibration on the bundled passages."""
    if text is not None:
        raise GlauberError(
            "a calibration is about many texts: leave the text out, or give a file of texts to "
            "`glauber calibrate --from FILE`."
        )
    return calibration(model, error=NATS if error is None else error, **others)


def _check(
    hide: float, error: float, top: int, samples: int, temperature: float, seed: int
) -> None:
    check_temperature(temperature)
    check_seed(seed)
    check_error(error)
    check_count("number of tokens tried", top)
    check_count("number of samples", samples, least=2)
    if not isinstance(hide, int | float) or not 0 < hide <= 1:
        raise GlauberError(f"the share to hide is {hide}, but it must lie between 0 and 1.")


def _hidden(n: int, named: list[int], held: list[int], share: float, seed: int) -> Tensor:
    """The numbers of the hidden tokens of n: the named ones, or a random share of those not held.

    All of them are for people: from 0, without special tokens.
    """
    for site in (*named, *held):
        if site >= n:
            raise GlauberError(f"a site lies outside the text: its tokens are 0 to {n - 1}.")
    both = sorted({*named} & {*held})
    if both:
        raise GlauberError(f"token {both[0]} cannot be hidden and frozen at once.")
    if named:
        return torch.tensor(named)
    drawn = np.random.default_rng(seed).permutation(n).tolist()
    open_ones = [site for site in drawn if site not in {*held}]
    count = min(max(2, round(share * n)), len(open_ones))
    return torch.tensor(sorted(open_ones[:count]), dtype=torch.long)


def _cost(one: FillCost) -> Record:
    return {
        "total_variation": plain(asdict(one.total_variation)),
        "divergence": plain(asdict(one.divergence)),
    }


def _cost_line(one: FillCost) -> str:
    return f"total variation {one.total_variation.text()}, KL {one.divergence.text()}"
