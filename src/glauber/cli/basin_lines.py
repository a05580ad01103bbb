"""Basins as lines for the terminal."""

from typing import Any


def basin_lines(told: dict[str, Any]) -> list[str]:
    """The figures for the terminal, each with its standard error."""
    lines = [
        f"{told['states']} connected states, lag {told['lag']:,} steps (all figures estimates)"
    ]
    for basin in told["basins"]:
        lines += [
            f"basin {basin['basin']}: {_one(basin['share'], '.2f')} of the stationary law, "
            f"{_one(basin['staying'], '.2f')} to be in it one lag later, seen in "
            f"{basin['n_chains']} of {told['chains']} chains",
            f"    words  {', '.join(basin['words'])}",
            *(f"    text   {text}" for text in basin["texts"]),
        ]
    slow = told["timescales"]
    shown = range(min(len(slow["value"]), max(2, len(told["basins"]) - 1)))
    lines.append(f"timescales {', '.join(_one(slow, ',.0f', k) for k in shown)} steps")
    lines.append("mean first-passage times in steps, from the row to the column")
    times = told["passage_times"]
    for a in range(len(times["value"])):
        row = [_one(times, ",.0f", a, b) if a != b else "-" for b in range(len(times["value"]))]
        lines.append(f"    {a}  " + "  ".join(f"{cell:>16}" for cell in row))
    return [*lines, *told["notes"], told["signature"]]


def _one(found: dict[str, Any], style: str, *place: int) -> str:
    """One figure of an estimate with its standard error, if it has one."""
    value, error = found["value"], found["standard_error"]
    for index in place:
        value, error = value[index], None if error is None else error[index]
    if value is None:
        return "unknown"
    return f"{value:{style}}" + ("" if error is None else f" +- {error:{style}}")
