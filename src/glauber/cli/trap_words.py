"""A catalogue of traps as JSON, and as lines for the terminal."""

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glauber.conditionals.vocabulary import Text
    from glauber.metastability.census import Trap
    from glauber.metastability.traps import Catalogue, RankCorrelation


def plain(found: "Catalogue", words: "Text") -> dict[str, Any]:
    """The catalogue as JSON holds it, each figure with its kind."""
    from glauber.metastability.traps import PUBLISHED

    return {
        "detector": found.detector,
        "settings": found.settings,
        "chains": found.n_chains,
        "steps": found.n_steps,
        "temperature": found.temperature,
        "summary": asdict(found.summary()),
        "published": PUBLISHED,
        "traps": [plain_trap(trap, words) for trap in found.traps],
        "families": {"reach": found.reach, "members": found.families},
    }


def plain_trap(trap: "Trap", words: "Text") -> dict[str, Any]:
    """One trap as JSON holds it."""
    held, bound, escape = trap.margins.holding_time, trap.margins.escape_bound, trap.escape
    return {
        "chain": trap.stretch.chain,
        "text": trap.text,
        "first": trap.stretch.first,
        "last": trap.stretch.last,
        "duration": {"value": trap.duration, "kind": trap.stretch.kind},
        "share_in_text": trap.share,
        "perfect": trap.perfect,
        "mean_gap": {"value": trap.mean_gap, "kind": "exact"},
        "min_gap": {"value": trap.min_gap, "kind": "exact"},
        "not_likeliest": int((trap.margins.gaps <= 0).sum()),
        "escape_bound": {"value": bound, "kind": "upper bound"},
        "holding_time": {"value": held if math.isfinite(held) else None, "kind": "exact"},
        "observed_holding_time": {"value": trap.observed, "kind": "estimate"},
        "weakest": {
            "site": trap.weakest,
            "token": words.spell(int(trap.tokens[trap.weakest])),
        },
        "escape": None
        if escape is None
        else asdict(escape) | {"old": words.spell(escape.old), "new": words.spell(escape.new)},
    }


def lines(found: "Catalogue", words: "Text", show: int) -> list[str]:
    """The catalogue for a person: the longest traps, families, and the summary."""
    order = sorted(range(len(found.traps)), key=lambda i: -found.traps[i].duration)
    said = [_head(found)]
    for number in order[:show]:
        said += _trap_lines(found.traps[number], words)
    if len(order) > show:
        said += [f"  … and {len(order) - show} shorter ones"]
    return [*said, *_family_lines(found), *_summary_lines(found)]


def _head(found: "Catalogue") -> str:
    how = ", ".join(f"{name} {value:g}" for name, value in found.settings.items())
    return (
        f"{found.detector} detector ({how}): {len(found.traps)} traps in {found.n_chains} chains "
        f"of {found.n_steps:,} steps at temperature {found.temperature:g}"
    )


def _trap_lines(trap: "Trap", words: "Text") -> list[str]:
    kind = "perfect" if trap.perfect else "approximate"
    least = "" if trap.stretch.ended else "at least "
    bound = trap.margins.escape_bound
    theorem = "no bound" if bound is None else f"theorem: at least {1 / max(bound, 1e-300):,.3g}"
    seen = "none ended" if trap.observed is None else f"seen {trap.observed:,.1f}"
    weak = words.spell(int(trap.tokens[trap.weakest]))
    return [
        f"  chain {trap.stretch.chain}, from step {trap.stretch.first:,}: {least}"
        f"{trap.duration:,} steps, {kind}",
        f"    {trap.text}",
        f"    gaps: mean {trap.mean_gap:.2f}, min {trap.min_gap:.2f} at {weak!r} (exact)",
        f"    this text ({trap.share:.0%} of the steps) holds {trap.margins.holding_time:,.1f} "
        f"steps (exact; {theorem}; {seen})",
        f"    {_escape_line(trap, words)}",
    ]


def _escape_line(trap: "Trap", words: "Text") -> str:
    escape = trap.escape
    if escape is None:
        return "it was still there when the run ended"
    where = "the weakest site" if escape.site == trap.weakest else f"site {escape.site}"
    return (
        f"left at step {escape.step:,}: {words.spell(escape.old)!r} became "
        f"{words.spell(escape.new)!r} (probability {escape.probability:.2g}) at {where}"
    )


def _family_lines(found: "Catalogue") -> list[str]:
    said = []
    for members in found.families:
        if len(members) > 1:
            longest = max(members, key=lambda i: found.traps[i].duration)
            chains = len({found.traps[i].stretch.chain for i in members})
            said.append(
                f"  {len(members)} traps of {chains} chain{'s' * (chains > 1)} within "
                f"{found.reach} edits of a neighbour: {found.traps[longest].text}"
            )
    return ["families", *said] if said else []


def _summary_lines(found: "Catalogue") -> list[str]:
    told = found.summary()
    if told.n_traps == 0:
        return ["no trap: the chains moved on. A colder or a longer run may show some."]
    unfinished = f"; {told.n_unfinished} not ended" if told.n_unfinished else ""
    lines = [
        f"{told.n_traps} traps, {told.n_perfect} perfect, mean duration "
        f"{told.mean_duration:,.0f} steps, {told.shortest:,} to {told.longest:,} (an estimate"
        f"{unfinished}); {told.share:.0%} of all steps",
        f"rank correlation of duration with the mean gap {_correlation(told.by_mean_gap)}, with "
        f"the min gap {_correlation(told.by_min_gap)}",
    ]
    return [
        *lines,
        "published: 17 traps, 4 perfect, mean duration 671, 150 to 4,950; the mean gap predicts "
        "better",
    ]


def _correlation(found: "RankCorrelation | None") -> str:
    if found is None:
        return "unknown (too few traps)"
    return f"{found.value:.2f} (estimate, p = {found.p_value:.2g})"
