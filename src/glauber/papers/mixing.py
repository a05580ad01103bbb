"""Paper A on couplings, influence and regimes: where chains forget, and how they move.

Of the coupling figure and of the influence of a sentence the text that we have has lost every
number.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glauber.papers.claims import LOWER, Claim, Quantity, Region, above, below
from glauber.papers.paper import Reproduction
from glauber.papers.settings import Piece, Scale, Settings
from glauber.statistics import mean_over_chains

if TYPE_CHECKING:
    from glauber.mixing.phase import Phase

TAKES = ("model", "texts", "chains", "steps", "device")
SENTENCE = "the old bridge over the river was closed because the water had risen too"
SENTENCE_LENGTH = 14  # tokens of the paper's sentence
SOURCE = "paper A, section 6.1"
SMALLEST = 0.1  # exponent that the power is worked out for
MAGNITUDE = Region(10**0.5, 10**1.5)  # "roughly an order of magnitude"
SAME = 0.25  # exponent of the width up to which it does not sharpen
PASSAGES = "bundled passages in place of MS MARCO"


@dataclass(frozen=True)
class Conditions:
    """One scale's coupled pairs: chains is the number of pairs of a cell."""

    model: str
    chains: int
    steps: int
    lengths: tuple[int, ...]
    temperatures: tuple[float, ...]
    thresholds: int  # texts whose contraction threshold is measured
    texts: tuple[str, ...] | None = None
    threshold_lengths: tuple[int, ...] | None = None  # theirs; none: all of the lengths


PHASES: dict[Scale, Conditions] = {
    "small": Conditions(
        "bundled:english", 12, 400, (6, 10, 16), (0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5),
        thresholds=3,
    ),
    "paper": Conditions(
        "bert-base-uncased", 100, 5000, (5, 10, 20, 40),
        (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0), thresholds=8,
        threshold_lengths=(10,),  # the nearest to the paper's sentence
    ),
}  # fmt: skip
SAMPLES: dict[Scale, dict[str, Any]] = {
    "small": {"model": "bundled:english", "temperature": 1.0, "samples": 4},
    "paper": {"model": "bert-base-uncased", "temperature": 1.0, "samples": 32},
}


def coupling_figure(settings: Settings) -> Reproduction:
    """The share met and the crossover of each length, at equal steps and at equal sweeps."""
    found = settings.over(PHASES[settings.scale])
    seen = diagram(settings, found)
    rows = [
        {
            "tokens": one.length,
            "budget": f"equal {at.equal}, {at.budget:,.4g}",
            "crossover temperature": one.temperature,
            "interval": list(one.interval),
            "width in log temperature": one.width,
            "crossover is": one.kind,
            "met": ", ".join(
                f"{sum(at.truncate(cell).met)}/{len(cell.met)} at {cell.temperature:g}"
                for cell in seen.cells
                if cell.length == one.length
            ),
            "published": "the boundary moves to higher temperatures as the length grows",
        }
        for at in (seen.at_steps, seen.at_sweeps)
        for one in at.crossovers
    ]
    rows += [
        {
            "tokens": one.length,
            "contraction threshold": one.threshold,
            "over the crossover": one.ratio,
            "interval": list(one.interval),
            "kind": one.kind,
            "published": "roughly an order of magnitude",
        }
        for one in seen.ratios
    ]
    how = (
        f"{found.chains} pairs of {PASSAGES.split(' in ')[0]} a cell, the same site at each step, "
        f"redraws from the maximal coupling, at most {found.steps:,} steps; the same pairs are "
        "counted within equal steps and within equal sweeps (steps for each token)"
    )
    return Reproduction.of(
        settings, how, rows, claims=_coupling_claims(found, seen), pictures=seen.figures(),
        model=found.model, differs=differs(settings),
        ours=("lengths, temperatures and steps: the paper's are lost in our text",),
    )  # fmt: skip


def influence_of_a_sentence(settings: Settings) -> Reproduction:
    """alpha and the threshold temperature of appendix A.1, and the heat map."""
    from glauber.mixing.influence import influence

    chosen = settings.over(SAMPLES[settings.scale])
    text = settings.texts[0] if settings.texts else SENTENCE
    found = influence(**chosen, text=text, chains=8, seed=settings.seed, device=settings.device)
    (average,) = found.averages
    met = mean_over_chains(average.per_chain)
    row = {
        "model": chosen["model"],
        "temperature": chosen["temperature"],
        "alpha": found.alpha,
        "alpha is": found.matrix.kind,
        "threshold temperature": found.threshold,
        "threshold is": found.matrix.threshold_kind,
        "influence met on average": met.value,
        "interval": list(met.interval or ()),
        "published": None,
    }
    how = (
        "suprema over sampled contexts and replacement tokens of one sentence of "
        f"{len(found.tokens)} tokens, and the influence that 8 chains from it met on average"
    )
    return Reproduction.of(
        settings, how, [row], claims=_influence_claims(found.alpha, average.per_chain, chosen),
        pictures={"heat": found.figure()}, model=chosen["model"], differs=differs(settings),
        ours=(f"the sentence and temperature {chosen['temperature']:g}: the paper's are lost",),
    )  # fmt: skip


def diagram(settings: Settings, found: Conditions) -> "Phase":
    """The phase diagram of these conditions, from the folder or made there."""
    from glauber.mixing.phase import phase

    asked: dict[str, Any] = {
        "model": found.model,
        "texts": None if found.texts is None else list(found.texts),
        "lengths": list(found.lengths),
        "temperatures": list(found.temperatures),
        "pairs": found.chains,
        "steps": found.steps,
        "seed": settings.seed,
    }
    return phase(
        **asked,
        device=settings.device,
        thresholds=found.thresholds,
        threshold_lengths=found.threshold_lengths,
        out=settings.place("phase", asked),
    )


def differs(settings: Settings) -> list[str]:
    """What is not as in the paper in every piece on mixing."""
    found = ["texts of one's own in place of MS MARCO" if settings.texts else PASSAGES]
    if settings.scale == "small" or settings.model:
        found.append("another model than the paper's BERT-base")
    return found


def _coupling_claims(found: Conditions, seen: "Phase") -> list[Claim]:
    cells = f"pairs in each of {len(seen.cells)} cells"
    rises = "the boundary shifts to higher temperatures as texts grow"
    claims = []
    for at, more in ((seen.at_steps, ""), (seen.at_sweeps, " (in sweeps: our control)")):
        exponent = None if at.scaling is None else at.scaling.rise
        ends = None if at.scaling is None else at.scaling.rise_interval
        ours = Quantity(
            f"exponent of the crossover temperature in n at equal {at.equal}", exponent, ends,
            n=found.chains, unit=cells,
        )  # fmt: skip
        note = f"power for an exponent of {SMALLEST:g}"
        claims.append(
            Claim(
                rises + more, SOURCE, "it shifts", ours, above(0.0), effect=SMALLEST, ours=(note,)
            )
        )
    sharp = seen.at_steps.scaling
    width = Quantity(
        "exponent by which the width in log temperature shrinks with n",
        None if sharp is None else sharp.sharpening,
        None if sharp is None else sharp.sharpening_interval, n=found.chains, unit=cells,
    )  # fmt: skip
    claims.append(
        Claim(
            "the crossover does not sharpen as texts grow", "paper A, section 7",
            "does not seem to sharpen", width, below(SAME), effect=0.0,
            ours=(f"an exponent below {SAME:g} counts as not sharpening",),
        )
    )  # fmt: skip
    return [*claims, _ratio_claim(seen)] if seen.ratios else claims


def _ratio_claim(seen: "Phase") -> Claim:
    """At the length nearest to that of the paper's sentence."""
    one = min(seen.ratios, key=lambda each: abs(np.log(each.length / SENTENCE_LENGTH)))
    ours = Quantity(
        f"contraction threshold over crossover temperature at {one.length} tokens", one.ratio,
        one.interval, n=len(one.thresholds), unit="texts",
    )  # fmt: skip
    return Claim(
        "the contraction condition needs a temperature an order of magnitude above the empirical "
        "boundary of fast mixing", "paper A, section 5.2 and appendix A.1",
        "roughly an order of magnitude", ours, MAGNITUDE, effect=10.0,
        ours=(
            "from 3.2 to 32 times counts as an order of magnitude",
            "the threshold rests on 4 contexts and 4 replacements a site: more would raise it",
        ),
    )  # fmt: skip


def _influence_claims(alpha: float, met: Any, chosen: dict[str, Any]) -> list[Claim]:
    typical = mean_over_chains(met - alpha / 2)
    return [
        Claim(
            "the contraction theorem does not apply at natural temperatures",
            "paper A, section 5.2", "alpha is above 1; its value is lost in our text",
            Quantity(f"alpha at temperature {chosen['temperature']:g}", alpha, kind=LOWER),
            above(1.0),
        ),
        Claim(
            "along a chain the typical influence is much smaller than the worst",
            "paper A, section 7 (a conjecture)", "much smaller",
            Quantity(
                "influence met on average less half of alpha", typical.value, typical.interval,
                n=len(met),
            ),
            below(0.0), effect=-0.25 * alpha,
            ours=("much smaller: less than half; power for a quarter of alpha",),
        ),
    ]  # fmt: skip


PIECES = {
    "A-fig-coupling": Piece(
        "where in temperature and length two chains meet", coupling_figure, TAKES, seconds=800,
    ),
    "A-influence": Piece(
        "influence, alpha and the contraction threshold of one sentence",
        influence_of_a_sentence, ("model", "texts", "temperature", "device"), seconds=35,
    ),
}  # fmt: skip
