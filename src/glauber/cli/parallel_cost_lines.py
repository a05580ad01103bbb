"""What `glauber parallel-cost` says on the screen."""

from typing import Any

NAMED = 10  # pairs told
NOISE = 1e-4  # of a total variation from scores in float32


def lines(told: dict[str, Any]) -> list[str]:
    """The report line by line, each figure with its kind."""
    plan, error = told["plan"], told["plan"]["error"]
    rest = max(told["pairs"]["rest"])
    found = [
        f"hidden: {', '.join(told['hidden'])}",
        f"not together, at a cost above {error:g} (total variation, mean of both orders, lower "
        f"bound; at most {rest:.2g} is missing):",
        *(
            f"  {one['cost']:.3f}  {one['sites'][0]} | {one['sites'][1]}"
            for one in told["not_together"][:NAMED]
        ),
    ]
    more = len(told["not_together"]) - NAMED
    found += [f"  and {more} more"] if more > 0 else []
    found += [] if told["not_together"] else ["  no pair"]
    found.append(_order(told["order_gap"]))
    found.append("cost of k random hidden tokens at once (estimates):")
    found += [f"  k = {one['k']:>2}: {_words(one)}" for one in told["by_count"][1:]]
    found.append(f"plan: {plan['passes']} passes instead of {len(told['hidden'])} (estimates):")
    found += [f"  {', '.join(one['sites'])}: {_words(one)}" for one in plan["groups"]]
    found.append(f"  the whole plan: {_words(plan['whole'])}")
    return found


def _order(gap: dict[str, Any]) -> str:
    """How much the order matters, and what that proves."""
    if gap["at_least"] > NOISE:
        return (
            f"the two orders of a pair differ by at least {gap['at_least']:.3f}: these "
            "conditionals belong to no joint law, so costs are means over orders"
        )
    return (
        f"the two orders of a pair differ by {gap['value']:.3f} over the tokens tried "
        f"({gap['kind']}); costs are means over orders"
    )


def _words(one: dict[str, Any]) -> str:
    far, spent = one["total_variation"], one["divergence"]
    return (
        f"total variation {far['value']:.3f} +- {far['standard_error']:.3f}, "
        f"KL {spent['value']:.3f} +- {spent['standard_error']:.3f}"
    )
