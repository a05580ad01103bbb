"""glauber margins: how firmly a text holds itself, and for how long."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options

if TYPE_CHECKING:
    from glauber.metastability.margins import Margins


def margins(
    text: Annotated[str, typer.Argument(help="The text, taken as a state of the chain.")],
    model: options.Model = "bundled:english",
    temperature: options.Temperature = 1.0,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    json: options.Json = False,
) -> None:
    """Print the gap of each token of a text, the bound on its escape and its exact holding time."""
    from glauber.cli.reading import open_model, read_text, spelled
    from glauber.cli.screen import emit, out
    from glauber.metastability.margins import margins_of as measure

    opened, laws = open_model(model, device, dtype)
    tokens, free = read_text(opened, text)
    found = measure(laws, tokens, free, temperature=temperature)
    told = _plain(found, spelled(opened, tokens, found.sites)) | {"model": opened.name}
    if json:
        emit(told)
        return
    for line in _lines(told):
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def _plain(found: "Margins", words: list[str]) -> dict[str, Any]:
    import math

    held = found.holding_time
    return {
        "temperature": found.temperature,
        "tokens": words,
        "gaps": {"value": found.gaps.tolist(), "kind": "exact"},
        "leaving": {"value": found.leaving.tolist(), "kind": "exact"},
        "mean_gap": {"value": float(found.gaps.mean()), "kind": "exact"},
        "smallest_gap": {"value": found.margin, "kind": "exact"},
        "perfect": found.perfect,
        "escape_bound": {"value": found.escape_bound, "kind": "upper bound"},
        "escape_rate": {"value": found.escape_rate, "kind": "exact"},
        "holding_time": {"value": held if math.isfinite(held) else None, "kind": "exact"},
    }


def _lines(told: dict[str, Any]) -> list[str]:
    """The figures for the terminal, each with its kind."""
    width = max(len(word) for word in told["tokens"])
    rows = zip(told["tokens"], told["gaps"]["value"], told["leaving"]["value"], strict=True)
    below = sum(gap <= 0 for gap in told["gaps"]["value"])
    n = len(told["tokens"])
    trap = (
        "a perfect trap: every token is the likeliest at its site"
        if told["perfect"]
        else f"an approximate trap at most: {below} of {n} tokens are not the likeliest"
    )
    held = told["holding_time"]["value"]
    return [
        f"{'token':>{width}}      gap  chance that a redraw changes it (both exact, at "
        f"temperature {told['temperature']:g})",
        *(f"{word:>{width}}  {gap:7.3f}  {leaving:.4g}" for word, gap, leaving in rows),
        f"{trap}; smallest gap {told['smallest_gap']['value']:.4g}, "
        f"mean {told['mean_gap']['value']:.4g} (exact)",
        _bound_line(told["escape_bound"]["value"]),
        f"chance to leave in one step: {told['escape_rate']['value']:.4g} (exact)",
        f"mean holding time: {'beyond all numbers' if held is None else f'{held:,.4g} steps'} "
        "(exact)",
    ]


def _bound_line(bound: float | None) -> str:
    if bound is None:
        return "the theorem's bound on that chance: none, because a gap is not positive"
    vacuous = ", which says nothing" if bound >= 1 else f": held at least {1 / bound:,.4g} steps"
    return f"the theorem's bound on the chance to leave: {bound:.4g} (upper bound{vacuous})"
