"""How bold may a rule be that fills several hidden sites in one pass?

The cost of a pass (`pass_costs`) only grows as its rule gets bolder. So a ladder of counts is
climbed from careful to bold, on texts with random sites hidden, as far as the promise holds:
    at least 95% of the passes on texts like these cost at most the error, in nats of KL.
Texts are independent, passes of one text are not: the loss of a text is the share of its passes
that cost more, and the hypothesis "the mean loss is above 5%" is rejected by betting against it,
text by text (Waudby-Smith and Ramdas, 2023): for any number of texts, with 95% confidence. Where
several rules are calibrated on the same texts, the confidence is that all their promises are right
(Bonferroni), so it also holds for the one that is chosen afterwards.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from glauber.conditionals.base import Model
from glauber.conditionals.starts import starts
from glauber.conditionals.texts import Texts
from glauber.dynamics.unmasking import Unmasking
from glauber.errors import GlauberError
from glauber.generation.pair_costs import Floats
from glauber.generation.pass_costs import Probe, Situations, hidden_at_random
from glauber.json_text import parse_json
from glauber.progress import Advance, say, track

NATS = 0.05  # that a pass may cost, unless said
SHARE = 0.95  # of the passes that a promise is about
CONFIDENCE = 0.95
LEAST = 20  # texts: with fewer even a calibration without any loss promises less than 95%
LENGTH = 24  # tokens of the texts
TOGETHER = 64  # passes between two looks at the promise
RUNGS = (1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8)  # of a ladder in each power of ten


@dataclass(frozen=True)
class Rule:
    """Which sites a pass fills: an order, and a kind of count whose number is to be found."""

    order: str
    kind: str  # entropy-bound, threshold or number

    @property
    def name(self) -> str:
        return f"{self.kind} by {self.order}"

    def ladder(self, sites: int, vocab_size: int) -> list[str]:
        """Counts from careful to bold: from one at a time to all of so many sites at once."""
        if self.kind == "number":
            return [str(k) for k in range(1, sites + 1)]
        tens = [m * 10.0**e for e in range(-4, 5) for m in RUNGS]
        if self.kind == "threshold":
            lower = [1 - r for r in tens if r < 0.99] + [0.1, 0.05, 0.02, 0.01, 0.5 / vocab_size]
            falling = sorted({1.0, *lower}, reverse=True)
            return [f"threshold:{t:.6g}" for t in falling]
        most = sites * math.log(vocab_size)
        return [f"entropy-bound:{g:.6g}" for g in (0.0, *(g for g in tens if g < most), most + 1)]


RULES = (
    Rule("entropy", "entropy-bound"),
    Rule("confidence", "threshold"),
    Rule("confidence", "number"),
    Rule("random", "number"),
)


def promised(losses: Floats, *, rules: int = 1) -> bool:
    """Whether the losses (texts,) show that the mean loss is at most 5%, as one of so many rules.

    One begins with a stake of 1 and bets on every text that its loss is below 5%. If the mean loss
    is above, the stake is a supermartingale, which exceeds 20 k with a chance of at most 1 / 20 k:
    of k rules some promise is wrong with a chance of at most 1/20. Few texts cannot win so much:
    then none may lose anything.
    """
    stakes = _stakes(losses, 1 - SHARE, rules)
    return bool(stakes.max() >= _stake_needed(len(losses), rules) * (1 - 1e-9))


def confidence_of(texts: int, *, rules: int = 1) -> float:
    """The confidence that the promises of all rules from so many texts are right together.

    95%, or what the texts reach without a loss; 0 if they are too few for so many rules.
    """
    return max(0.0, 1 - rules / _stake_needed(texts, rules))


def confidence_of_each(texts: int, *, rules: int) -> float:
    """The confidence that the promise of one of the rules is right, if it is named beforehand."""
    return 1 - 1 / _stake_needed(texts, rules)


def _stake_needed(texts: int, rules: int) -> float:
    without_loss = float(_stakes(np.zeros(texts), 1 - SHARE, rules)[-1])
    return min(rules / (1 - CONFIDENCE), without_loss)


def _stakes(losses: Floats, level: float, rules: int) -> Floats:
    """The stake after each text (texts,); a bet depends on the texts before it alone."""
    n = len(losses)
    number = np.arange(1, n + 1)
    mean = (0.5 + np.cumsum(losses) - losses) / number
    squares = (losses - mean) ** 2
    variance = (0.25 + np.cumsum(squares) - squares) / number
    bet = np.minimum(1.0, np.sqrt(2 * math.log(rules / (1 - CONFIDENCE)) / (n * variance)))
    return np.asarray(np.cumprod(1 - bet * (losses - level)))


@dataclass(frozen=True)
class Rung:
    """What a count did on the calibration texts: an estimate each."""

    count: str
    tokens: float  # filled a pass, mean
    kept: float  # share of the passes within the error
    cost: float  # that 95% of the passes do not exceed, in nats
    bound: float  # the same of the entropy bound


def climb(
    probe: Probe,
    ladder: list[str],
    error: float,
    advance: Advance | None = None,
    *,
    rules: int = 1,
) -> Iterator[Rung]:
    """The rungs of a ladder up to the last one that keeps the promise, as one of so many rules.

    The first rung is one at a time, which costs nothing. A pass that has cost too much is not
    followed further: bolder counts cost no less. A rung that has lost already is left early.
    """
    whose = probe.at.text.cpu().numpy()
    broken = np.zeros(len(whose), dtype=bool)
    yield Rung(ladder[0], 1.0, 1.0, 0.0, 0.0)
    for count in ladder[1:]:
        sizes = probe.sizes(count)
        for part in ((probe.done < sizes) & (sizes > 1)).nonzero()[:, 0].split(TOGETHER):
            part = part[~torch.from_numpy(broken).to(part.device)[part]]
            wanted = torch.zeros_like(sizes)
            wanted[part] = sizes[part]
            probe.walk(wanted, advance)
            broken |= (probe.cost.mean(dim=1) > error).cpu().numpy()
            if not promised(_by_text(broken, whose), rules=rules):
                return
        yield Rung(
            count,
            float(sizes.double().mean()),
            1 - float(broken.mean()),
            float(probe.cost.mean(dim=1).quantile(SHARE)),
            float(probe.bound().quantile(SHARE)),
        )


def _by_text(broken: NDArray[np.bool_], whose: NDArray[np.int64]) -> Floats:
    """The share of the passes of each text (texts,)."""
    return np.asarray(np.bincount(whose, weights=broken) / np.bincount(whose))


def calibrated(
    model: Model,
    error: float,
    *,
    texts: Texts = None,
    rule: Rule = RULES[0],
    length: int | None = LENGTH,
    temperature: float = 1.0,
    passes: int = 2,
    samples: int = 16,
    seed: int = 0,
) -> Unmasking:
    """How to fill so that at least 95% of the passes cost at most error nats, found quickly.

    On the bundled passages or texts of one's own, cut to a length; nothing is held out to check
    it: the study `calibrate` does that.
    """
    check_nats(error)
    tokens, free = starts(model, texts, length=length, least=2)
    check_texts(len(tokens), LEAST)
    say(f"calibrating on {len(tokens)} texts how many tokens a pass may fill for {error:g} nats")
    hidden, text = hidden_at_random(free, passes, seed)
    device, law = model.state_device, model.conditionals()
    ladder = rule.ladder(int(free.sum(dim=1).max()), law.vocab_size)
    with track("passes asked", 3 * len(text)) as advance:
        at = Situations.of(
            law, tokens[text].to(device), hidden.to(device), text.to(device),
            temperature=temperature, seed=seed, advance=advance,
        )  # fmt: skip
        *_, last = climb(Probe(at, rule.order, samples), ladder, error, advance)
    return Unmasking(order=rule.order, count=last.count)


def read_calibration(
    path: str | Path, *, error: float | None, temperature: float, fingerprint: str | None = None
) -> Unmasking:
    """The fastest rule of a calibration that was stored with `calibrate --out FILE.json`."""
    try:
        found = parse_json(Path(path).read_text(encoding="utf-8"))
        how = Unmasking(order=found["fastest"]["order"], count=found["fastest"]["count"])
        kept = {name: float(found[name]) for name in ("error", "temperature")}
        made = found["fingerprint"]
    except OSError as problem:
        raise GlauberError(f"{path} cannot be read: {problem.strerror}.") from problem
    except (ValueError, KeyError, TypeError) as problem:
        raise GlauberError(f"{path} is no calibration that was stored as JSON.") from problem
    how.check()
    if error is not None and kept["error"] != error:
        raise GlauberError(f"{path} was calibrated for {kept['error']:g} nats, not {error:g}.")
    if kept["temperature"] != temperature:
        raise GlauberError(
            f"{path} was calibrated at temperature {kept['temperature']:g}, not {temperature:g}."
        )
    if fingerprint is not None and made != fingerprint:
        raise GlauberError(f"{path} was calibrated with other weights than this model has.")
    return how


def within_error(
    model: Model,
    how: Unmasking,
    *,
    error: float | None,
    stored: str | Path | None,
    temperature: float,
) -> Unmasking:
    """The unmasking with order and count from a stored calibration, or from one made now."""
    if stored is not None:
        found = read_calibration(
            stored, error=error, temperature=temperature, fingerprint=model.fingerprint
        )
    elif error is not None:
        found = calibrated(model, error, temperature=temperature)
    else:
        return how
    return replace(how, order=found.order, count=found.count)


def check_within_error(
    how: Unmasking, *, error: float | None, stored: str | Path | None, temperature: float
) -> None:
    """Refuses, before a model is loaded, what no calibration is for."""
    if error is None and stored is None:
        return
    if error is not None:
        check_nats(error)
    if temperature == 0:
        raise GlauberError("at temperature 0 nothing is drawn, so an error in nats says nothing.")
    corrected = ("correct", "between", "correct_block")
    if how != Unmasking(**{name: getattr(how, name) for name in corrected}):
        raise GlauberError(
            "an error finds order and count itself, for whole laws: leave out order, count, "
            "passes, block, remask, top_k and top_p."
        )
    if stored is not None:
        read_calibration(stored, error=error, temperature=temperature)


def check_nats(error: float) -> None:
    """Refuses what is no cost to be kept."""
    if not isinstance(error, int | float) or not 0 < error < math.inf:
        raise GlauberError(f"the error is {error} nats a pass, but it must be a number above 0.")


def check_texts(there: int, least: int) -> None:
    """Refuses so few texts that nothing can be promised."""
    if there < least:
        raise GlauberError(
            f"there are {there} texts, but a promise that {SHARE:.0%} of the passes keep the error "
            f"takes at least {least} of them."
        )
