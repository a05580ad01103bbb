"""How does `glauber couple` read on a terminal?"""

from typing import Any


def lines(told: dict[str, Any]) -> list[str]:
    """The report for the terminal."""
    met = told["met"]
    low, high = met["interval"]
    rows = [
        f"{number:>5}  {one['distance']:>8}  {one['time']:>7,}  "
        + ("met" if one["met"] else "not met (censored)")
        for number, one in enumerate(told["pairs"], 1)
    ]
    distance = told["distance"]
    return [
        f"{told['how']} coupling on {told['model']} at temperature {told['temperature']:g}, "
        f"{' or '.join(map(str, told['lengths']))} free tokens, at most {told['steps']:,} steps",
        " pair  distance     step",
        *rows,
        f"met: {met['count']} of {met['of']} (estimate; at 95% between {low:.0%} and {high:.0%})",
        f"mean distance: {distance['value'][0]:.2f} at the start, {distance['value'][-1]:.2f} at "
        f"step {distance['steps'][-1]:,} (estimate)",
        *_contraction_lines(told),
        *_variation_lines(told),
    ]


def _contraction_lines(told: dict[str, Any]) -> list[str]:
    bound = told["contraction"]
    if bound is None:
        return []
    head = f"contraction with alpha {bound['alpha']['value']:.4g} ({bound['alpha']['kind']})"
    if bound["value"] is None:
        return [f"{head} says {bound['says']}"]
    return [
        f"{head}: at most {bound['value'][-1]:.3g} at step {told['distance']['steps'][-1]:,} "
        f"({bound['kind']})"
    ]


def _variation_lines(told: dict[str, Any]) -> list[str]:
    found = told["total_variation"]
    if found is None:
        return []
    time = found["mixing_time"]
    when = f"at most {time['epsilon']:g} from step {time['value']:,} on"
    if not all(found["met"]):
        when = f"above {time['epsilon']:g} up to step {time['value']:,} at least"
    elif time["high"] is not None:
        when += f", at 95% from step {time['high']:,} on"
    return [
        f"bound on total variation from {found['start']}, by couplings of lag {found['lag']}: "
        f"{when} ({found['kind']})"
    ]
