"""glauber parallel-cost: how many hidden tokens of a text can be filled at once?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options
from glauber.cli.numbers import numbers

if TYPE_CHECKING:
    from torch import Tensor

    from glauber.generation.filling import FillCost, FillingPlan
    from glauber.generation.pair_costs import PairCosts


def parallel_cost(
    text: Annotated[str, typer.Argument(help="The sentence.")],
    model: options.Model = "bundled:english",
    sites: Annotated[str, typer.Option(help="Hidden tokens, counted from 0, such as 2,5,9.")] = "",
    hide: Annotated[
        float, typer.Option(help="Share of tokens hidden, if no sites are named.")
    ] = 0.4,
    error: Annotated[
        float, typer.Option(help="Total variation that a group filled at once may cost.")
    ] = 0.1,
    top: Annotated[
        int, typer.Option(help="Likeliest tokens tried at the first of two sites.")
    ] = 32,
    samples: Annotated[int, typer.Option(help="Sequential fills for groups above two.")] = 64,
    temperature: options.Temperature = 1.0,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    out: Annotated[Path | None, typer.Option(help="HTML file of the pictures.")] = None,
    json: options.Json = False,
) -> None:
    """Measure what filling hidden tokens at once costs, and plan which to fill together."""
    from glauber.cli.parallel_cost_lines import lines
    from glauber.cli.reading import open_model, read_text
    from glauber.cli.screen import answer
    from glauber.generation.filling import cost_by_count, filling_plan
    from glauber.generation.pair_costs import pair_costs

    named = [int(site) for site in numbers(sites, "sites", whole=True)]
    opened, laws = open_model(model, device, dtype)
    tokens, free = read_text(opened, text)
    hidden = _hidden(free, named, hide, seed)
    pairs = pair_costs(laws, tokens, hidden, top=top, temperature=temperature)
    drawing: dict[str, Any] = {"samples": samples, "temperature": temperature, "seed": seed}
    counts = cost_by_count(laws, tokens, hidden, **drawing)
    plan = filling_plan(laws, tokens, pairs, error=error, **drawing)
    text_of = opened.vocabulary.text
    names = {
        site: f"{int(free[:site].sum())} {text_of.spell(int(tokens[site]))}"
        for site in hidden.tolist()
    }
    if out is not None:
        _draw(pairs, counts, plan, names, out)
    told = _plain(pairs, counts, plan, names) | {
        "model": opened.name, "temperature": temperature, "samples": samples, "seed": seed,
    }  # fmt: skip
    answer(told, lines(told), json=json, picture=out)


def _hidden(free: "Tensor", named: list[int], share: float, seed: int) -> "Tensor":
    """The sites (n,) in the row of tokens: the named ones, or a random share of the free ones."""
    import numpy as np
    import torch

    from glauber.errors import GlauberError

    places = free.nonzero()[:, 0]
    n = len(places)
    if not named:
        if not 0 < share <= 1:
            raise GlauberError(f"the share to hide is {share}, but it must lie between 0 and 1.")
        count = min(max(2, round(share * n)), n)
        named = np.random.default_rng(seed).permutation(n)[:count].tolist()
    if min(named) < 0 or max(named) >= n:
        raise GlauberError(f"a site lies outside the text: its tokens are 0 to {n - 1}.")
    return places[torch.tensor(sorted(set(named)), device=places.device)]


def _plain(
    pairs: "PairCosts", counts: "list[FillCost]", plan: "FillingPlan", names: dict[int, str]
) -> dict[str, Any]:
    kind = "exact" if not pairs.rest.any() else "lower bound"
    words = [names[site] for site in pairs.sites]
    return {
        "hidden": words,
        "pairs": {
            "total_variation": {
                "value": pairs.total_variation.tolist(), "kind": kind,
                "upper_bound": pairs.at_most.tolist(),
            },
            "divergence": {
                "value": pairs.divergence.tolist(), "kind": kind,
                "upper_bound": pairs.divergence_at_most.tolist(),
            },
            "rest": pairs.rest.tolist(), "top": pairs.top,
            "rows": "the site filled first; columns: the second",
        },
        "order_gap": {
            "value": pairs.order_gap, "kind": "estimate" if pairs.rest.any() else kind,
            "at_least": pairs.order_gap_at_least,
        },
        "not_together": _not_together(pairs, words, plan.error),
        "by_count": [_cost(one) | {"k": k} for k, one in enumerate(counts, start=1)],
        "by_distance": [
            {"distance": far, "mean": mean, "pairs": n, "kind": kind}
            for far, (mean, n) in pairs.by_distance().items()
        ],
        "plan": {
            "error": plan.error, "passes": plan.passes, "whole": _cost(plan.whole),
            "groups": [
                {"sites": [names[site] for site in group]} | _cost(cost)
                for group, cost in zip(plan.groups, plan.costs, strict=True)
            ],
        },
    }  # fmt: skip


def _not_together(pairs: "PairCosts", words: list[str], error: float) -> list[dict[str, Any]]:
    """The pairs that cost more than the error for certain, worst first."""
    mean, n = pairs.mean, len(words)
    found = [(float(mean[a, b]), a, b) for a in range(n) for b in range(a + 1, n)]
    return [
        {
            "sites": [words[a], words[b]], "cost": cost, "kind": "lower bound",
            "at_most": float(pairs.mean_at_most[a, b]),
        }
        for cost, a, b in sorted(found, reverse=True)
        if cost > error
    ]  # fmt: skip


def _cost(one: "FillCost") -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "total_variation": asdict(one.total_variation),
        "divergence": asdict(one.divergence),
    }


def _draw(
    pairs: "PairCosts",
    counts: "list[FillCost]",
    plan: "FillingPlan",
    names: dict[int, str],
    out: Path,
) -> None:
    from glauber.figures.generation import plot_cost_by_count, plot_cost_by_distance, plot_pairs
    from glauber.figures.page import write_picture

    words = [names[site] for site in pairs.sites]
    write_picture(
        plot_pairs(pairs, words, plan.error),
        plot_cost_by_count(counts),
        plot_cost_by_distance(pairs),
        path=out,
    )
