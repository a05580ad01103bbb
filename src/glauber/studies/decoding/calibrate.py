"""How many hidden tokens a pass may fill, so that it costs no more than a stated error.

The cost of a pass is KL(in turn || at once), where in turn each site is drawn given those before it
in the order of the pass: E sum_t KL(p_t given the past || p_t before the pass), as in
`parallel_cost`. Every count fills a head of its order, so one sequential fill of the order gives
the cost of every head, and the cost only grows as the rule gets bolder. So a ladder of counts is
climbed from careful to bold, on texts with random sites hidden, as far as the promise holds:
    at least 95% of the passes on texts like these cost at most the error, in nats of KL.
Texts are independent, passes of one text are not: the loss of a text is the share of its passes
that cost more, and the hypothesis "the mean loss is above 5%" is rejected by betting against it,
text by text (Waudby-Smith and Ramdas, 2023): for any number of texts, with 95% confidence. Where
several rules are calibrated on the same texts, the confidence is that all their promises are right
(Bonferroni), so it also holds for the one that is chosen afterwards.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.dynamics.candidates import Candidates, candidates, log_probs_at, ranks
from glauber.dynamics.draws import Truncation, first_above
from glauber.dynamics.kernel import start
from glauber.dynamics.noise import random_bits, uniform
from glauber.dynamics.schedules import count_named
from glauber.dynamics.unmasking import Unmasking, unmask
from glauber.foundation.checks import Positive, Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import parse_json
from glauber.foundation.parameters import (
    LengthOrWhole,
    ModelOrName,
    Seed,
    Temperature,
    Texts,
    WhereAndDtype,
)
from glauber.foundation.progress import Advance, say, track
from glauber.foundation.statistics import (
    Estimate,
    Floats,
    clustered_mean,
    clustered_proportion,
    mean_over_chains,
    proportion,
    ratio_over_chains,
)
from glauber.foundation.study import Result, counted, internal, reported, study
from glauber.foundation.tables import table
from glauber.models.base import Conditionals, Model, check_temperature, mask_token_of
from glauber.models.batching import in_parts
from glauber.sampling.generate import open_masked
from glauber.studies.decoding.parallel_cost import divergences
from glauber.texts.read import Texts as StartingTexts
from glauber.texts.read import read_texts
from glauber.texts.starts import starts

NATS = 0.05  # that a pass may cost, by default
SHARE = 0.95  # of the passes that a promise is about
CONFIDENCE = 0.95
MIN_TEXTS = 20  # with fewer even a calibration without any loss promises less than 95%
LENGTH = 24  # tokens of the texts
HELD_OUT = 3  # one text of so many is held out
MIN_CONFIDENCE = 0.5  # in all rules together, below which that of each is stated
CHECKED_PASSES = 64  # between two tests of the promise, and between two signs of progress
MULTIPLES = (1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8)  # of each power of ten in a ladder
ALWAYS_WITHIN = Estimate(1.0, (1.0, 1.0), "exact")  # a site alone costs nothing
PLOTS = "glauber.interfaces.plots.generation"


@study
def calibrate(
    model: ModelOrName = "bundled:english",
    texts: Texts = None,
    *,
    error: Annotated[float, "What a pass may cost, in nats of KL.", Positive] = NATS,
    length: LengthOrWhole = LENGTH,
    passes: Annotated[
        int, "Passes tried on each text, with random tokens hidden.", Whole(1, 1000)
    ] = 4,
    samples: Annotated[
        int, "Sequential fills from which the cost of a pass is estimated.", Whole(2, 10**5)
    ] = 32,
    written: Annotated[
        int, "Texts written with each rule, to count its passes.", Whole(3, 10**4)
    ] = 6,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
    **where: Unpack[WhereAndDtype],
) -> "Calibration":
    """Find how many hidden tokens a pass may fill, and check it on held-out texts.

    For each rule (entropy bound, confidence threshold, a fixed number) the boldest number such that
    at least 95% of the passes on texts like these cost at most the error: KL from filling the same
    tokens one after the other to filling them at once (paper B: why parallel decoding loses
    dependencies). Two thirds of the texts calibrate, the others check. The confidence is that of
    all rules together, so it holds for the fastest one too.
    """
    check_temperature(temperature)
    corpus = None if texts is None else read_texts(texts)
    least = -(-MIN_TEXTS * HELD_OUT // (HELD_OUT - 1))
    if corpus is not None:
        _check_texts(len(corpus), least)
    loaded = open_masked(model, exact=True, **where)
    tokens, free = starts(loaded, corpus, length=length, least=2)
    _check_texts(len(tokens), least)
    order = np.random.default_rng(seed).permutation(len(tokens))
    cut = len(tokens) - len(tokens) // HELD_OUT
    say(
        f"{cut} texts to calibrate and {len(tokens) - cut} to check, {passes} passes each: "
        f"{len(tokens) * passes:,} rows through the model, and those of the fills in turn"
    )
    measurement = _Measurement(loaded, tokens, free, passes, samples, float(temperature), seed)
    with track("passes evaluated", (1 + len(RULES)) * len(tokens) * passes) as advance:
        rules = measurement.rules(order[:cut], order[cut:], error, written, advance)
    return Calibration(
        model=loaded.name,
        fingerprint=loaded.fingerprint,
        error=error,
        temperature=float(temperature),
        samples=samples,
        length=int(free.sum(dim=1).max()),
        n_texts=cut,
        n_held_out=len(tokens) - cut,
        rules=rules,
    )


# ---- rules and their ladders


@dataclass(frozen=True)
class Rule:
    """Which sites a pass fills: an order, and a kind of count whose number is calibrated."""

    order: str
    kind: str  # entropy-bound, threshold or number

    @property
    def name(self) -> str:
        return f"{self.kind} by {self.order}"

    def ladder(self, sites: int, vocab_size: int) -> list[str]:
        """Counts from careful to bold: from one at a time to all of so many sites at once."""
        if self.kind == "number":
            return [str(k) for k in range(1, sites + 1)]
        grid = [m * 10.0**e for e in range(-4, 5) for m in MULTIPLES]
        if self.kind == "threshold":
            lower = [1 - r for r in grid if r < 0.99] + [0.1, 0.05, 0.02, 0.01, 0.5 / vocab_size]
            falling = sorted({1.0, *lower}, reverse=True)
            return [f"threshold:{t:.6g}" for t in falling]
        most = sites * math.log(vocab_size)
        return [f"entropy-bound:{g:.6g}" for g in (0.0, *(g for g in grid if g < most), most + 1)]


RULES = (
    Rule("entropy", "entropy-bound"),
    Rule("confidence", "threshold"),
    Rule("confidence", "number"),
    Rule("random", "number"),
)


# ---- the promise


def risk_is_controlled(losses: Floats, *, rules: int = 1) -> bool:
    """Whether the losses (texts,) show that the mean loss is at most 5%, as one of so many rules.

    One begins with a stake of 1 and bets on every text that its loss is below 5%. If the mean loss
    is above, the stake is a supermartingale, which exceeds 20 k with a chance of at most 1 / 20 k:
    of k rules some promise is wrong with a chance of at most 1/20. Few texts cannot win so much:
    then none may lose anything.
    """
    stakes = betting_martingale(losses, 1 - SHARE, rules)
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
    without_loss = float(betting_martingale(np.zeros(texts), 1 - SHARE, rules)[-1])
    return min(rules / (1 - CONFIDENCE), without_loss)


def betting_martingale(losses: Floats, level: float, rules: int) -> Floats:
    """The stake after each text (texts,); a bet depends on the texts before it alone."""
    n = len(losses)
    number = np.arange(1, n + 1)
    mean = (0.5 + np.cumsum(losses) - losses) / number
    squares = (losses - mean) ** 2
    variance = (0.25 + np.cumsum(squares) - squares) / number
    bet = np.minimum(1.0, np.sqrt(2 * math.log(rules / (1 - CONFIDENCE)) / (n * variance)))
    return np.asarray(np.cumprod(1 - bet * (losses - level)))


# ---- what passes cost


def hidden_at_random(free: Tensor, passes: int, seed: int) -> tuple[Tensor, Tensor]:
    """For each text so many sets of hidden sites (texts * passes, length); and the texts' numbers.

    The number hidden is uniform from two to all free sites: any moment of a generation.
    """
    sets = []
    for text, row in enumerate(free.cpu().numpy()):
        random, sites = np.random.default_rng([seed, text]), row.nonzero()[0]
        for _ in range(passes):
            count = int(random.integers(2, len(sites) + 1))
            sets.append(np.isin(np.arange(len(row)), random.permutation(sites)[:count]))
    return torch.from_numpy(np.stack(sets)), torch.arange(len(free)).repeat_interleave(passes)


@dataclass(frozen=True, eq=False)
class MaskedStates:
    """States before a pass: tokens, hidden (passes, length), and what a model says there.

    text (passes,) is the number of the text, or the chain, that each belongs to.
    """

    conditionals: Conditionals
    tokens: Tensor
    hidden: Tensor
    text: Tensor
    candidates: Candidates
    temperature: float
    seed: int

    @classmethod
    def of(
        cls,
        conditionals: Conditionals,
        tokens: Tensor,
        hidden: Tensor,
        text: Tensor,
        *,
        temperature: float = 1.0,
        seed: int = 0,
        advance: Advance | None = None,
    ) -> "MaskedStates":
        """One row through the model for each."""
        batches = []
        for rows in torch.arange(len(tokens), device=tokens.device).split(CHECKED_PASSES):
            state = start(tokens[rows], hidden[rows], temperature=temperature, device=tokens.device)
            bits = torch.zeros_like(tokens[rows])  # the tokens drawn are not used
            batches.append(
                candidates(
                    conditionals,
                    state,
                    hidden[rows],
                    wanted=hidden[rows],
                    bits=bits,
                    truncation=Truncation(),
                )
            )
            if advance is not None:
                advance(len(rows))
        every = Candidates(*(torch.cat(columns) for columns in zip(*batches, strict=True)))
        return cls(conditionals, tokens, hidden, text, every, temperature, seed)


class SequentialFill:
    """The passes of an order from some states, filled one site after the other.

    `fill_to` fills the first sites of every order in turn, many samples of it; cost (passes,
    samples) is the sum of KL(p given the past || p at once) over the sites filled so far. The draws
    of a site are stratified over samples, so their mean has less noise than that of independent
    ones.
    """

    def __init__(self, states: MaskedStates, order: str, samples: int) -> None:
        tokens, hidden = states.tokens, states.hidden
        self.states, self.hidden, self.samples = states, hidden, samples
        self._seed = torch.as_tensor(states.seed, device=tokens.device)
        self._row = torch.arange(len(tokens), device=tokens.device)
        site = torch.arange(tokens.shape[1], device=tokens.device)
        bits, _ = random_bits(self._seed, self._row[:, None], site * 0, site)
        self.place = ranks(order, states.candidates, hidden, bits)
        self.sites = self.place.argsort(dim=1)  # in the order; after the hidden ones: any
        self.done = torch.zeros_like(self._row)
        self.cost = torch.zeros(len(tokens), samples, dtype=torch.float64, device=tokens.device)
        self._filled = tokens.masked_fill(hidden, 0)[:, None].repeat(1, samples, 1)

    def sizes(self, count: str) -> Tensor:
        """How many sites (passes,) a count fills."""
        chosen = count_named(count).chosen(self.states.candidates, self.hidden, self.place)
        return chosen.sum(dim=1)

    def bound(self) -> Tensor:
        """Sum less largest (passes,) of the entropies of the sites filled so far, in nats."""
        within = self.hidden & (self.place < self.done[:, None])
        entropy = self.states.candidates.entropy * within
        return entropy.sum(dim=1) - entropy.amax(dim=1)

    def fill_to(self, sizes: Tensor, advance: Advance | None = None) -> None:
        """Fills each order up to so many sites (passes,); those further on stay as they are.

        One site alone costs nothing and is not filled.
        """
        sizes = torch.where(sizes > 1, sizes, 0)
        while bool((self.done < sizes).any()):
            rows = (self.done < sizes).nonzero()[:, 0]
            for part in in_parts(rows, 3 * self.samples * self.states.conditionals.vocab_size):
                self._fill_next(part)
                if advance is not None:
                    advance(len(part))

    def _fill_next(self, rows: Tensor) -> None:
        """Fills the next site of some passes (n,) in all their samples."""
        n, done = len(rows), self.done[rows]
        site = self.sites[rows, done]
        filled = self._filled[rows]  # (n, samples, length)
        hidden = self.hidden[rows] & (self.place[rows] >= done[:, None])
        # Several samples with the same tokens are one row through the model.
        number = torch.arange(n, device=rows.device).repeat_interleave(self.samples)[:, None]
        keys = torch.cat([number, filled.flatten(0, 1)], dim=1)
        distinct, which = keys.unique(dim=0, return_inverse=True)
        whose = distinct[:, 0]
        in_turn = self._log_probs(distinct[:, 1:], hidden[whose], site[whose])
        if bool((done > 0).any()):
            before = filled[:, 0].masked_fill(self.hidden[rows], 0)
            at_once = self._log_probs(before, self.hidden[rows], site)
            self.cost[rows] += divergences(in_turn, at_once[whose])[which].view(n, self.samples)
        # One number (n, samples) in each of `samples` equal strata, in random order.
        sample = torch.arange(self.samples, device=rows.device)
        chain = self._row[rows][:, None]
        order, inside = random_bits(self._seed, chain, done[:, None] + 1, sample)
        uniforms = (order.argsort(dim=1) + uniform(inside)) / self.samples
        drawn = first_above(in_turn[which].exp(), uniforms.flatten().to(in_turn.device))[:, None]
        column = site.repeat_interleave(self.samples)[:, None]
        self._filled[rows] = filled.flatten(0, 1).scatter(1, column, drawn).view_as(filled)
        self.done[rows] += 1

    def _log_probs(self, tokens: Tensor, hidden: Tensor, site: Tensor) -> Tensor:
        states = self.states
        return log_probs_at(
            states.conditionals, tokens, hidden, site, temperature=states.temperature
        )


@dataclass(frozen=True, eq=False)
class PassCosts:
    """What passes of a rule cost: (passes,) each."""

    text: NDArray[np.int64]  # the text, or the chain, of each
    sizes: NDArray[np.int64]  # sites filled
    cost: Floats  # estimated, in nats
    noise: Floats  # standard error of it, at most
    bound: Floats  # sum less largest of the entropies, in nats

    def share_within(self, error: float, *, least: int = 1) -> Estimate:
        """The share within the error, of the passes that fill at least so many sites."""
        chosen = self.sizes >= least
        if least == 1 and (self.sizes == 1).all():
            return ALWAYS_WITHIN
        n = int(self.text.max()) + 1
        within = np.bincount(self.text[chosen], self.cost[chosen] <= error, minlength=n)
        totals = np.bincount(self.text[chosen], minlength=n)
        return clustered_proportion(within, totals, comparisons=len(RULES))

    def texts_kept(self, error: float) -> Estimate:
        """The share of texts of which every pass is within the error."""
        lost = np.bincount(self.text, self.cost > error)
        if (self.sizes == 1).all():
            return ALWAYS_WITHIN
        return proportion(int((lost == 0).sum()), len(lost), comparisons=len(RULES))

    @property
    def cost_to_bound(self) -> Estimate:
        """Cost over bound, sums over the passes of a text."""
        cost, bound = np.bincount(self.text, self.cost), np.bincount(self.text, self.bound)
        if not bound.any():
            return Estimate(np.nan, None, reason="no pass fills two sites")
        return ratio_over_chains(cost, bound, bounds=(0.0, np.inf))


def pass_costs(
    states: MaskedStates, how: Unmasking, samples: int, advance: Advance | None = None
) -> PassCosts:
    """What the passes of a rule from these states cost."""
    fill = SequentialFill(states, how.order, samples)
    sizes = fill.sizes(str(how.count))
    fill.fill_to(sizes, advance)
    cost, noise = fill.cost.mean(dim=1), fill.cost.std(dim=1) / samples**0.5
    columns = (states.text, sizes, cost, noise, fill.bound())
    return PassCosts(*(column.cpu().numpy() for column in columns))


@dataclass(frozen=True)
class CalibrationStep:
    """What a count did on the calibration texts: an estimate each."""

    count: str
    tokens: float  # filled by a pass, mean
    kept: float  # share of the passes within the error
    cost: float  # that 95% of the passes do not exceed, in nats
    bound: float  # the same of the entropy bound


def raise_until_violated(
    fill: SequentialFill,
    ladder: list[str],
    error: float,
    advance: Advance | None = None,
    *,
    rules: int = 1,
) -> Iterator[CalibrationStep]:
    """The steps of a ladder up to the last one that keeps the promise, as one of so many rules.

    The first step is one at a time, which costs nothing. A pass that has cost too much is not
    followed further: bolder counts cost no less. A step that has lost already is left early.
    """
    text = fill.states.text.cpu().numpy()
    lost = np.zeros(len(text), dtype=bool)
    yield CalibrationStep(ladder[0], 1.0, 1.0, 0.0, 0.0)
    for count in ladder[1:]:
        sizes = fill.sizes(count)
        unfilled = ((fill.done < sizes) & (sizes > 1)).nonzero()[:, 0]
        for part in unfilled.split(CHECKED_PASSES):
            part = part[~torch.from_numpy(lost).to(part.device)[part]]
            wanted = torch.zeros_like(sizes)
            wanted[part] = sizes[part]
            fill.fill_to(wanted, advance)
            lost |= (fill.cost.mean(dim=1) > error).cpu().numpy()
            losses = np.asarray(np.bincount(text, weights=lost) / np.bincount(text))
            if not risk_is_controlled(losses, rules=rules):
                return
        yield CalibrationStep(
            count,
            float(sizes.double().mean()),
            1 - float(lost.mean()),
            float(fill.cost.mean(dim=1).quantile(SHARE)),
            float(fill.bound().quantile(SHARE)),
        )


@dataclass(frozen=True, eq=False)
class _Measurement:
    """What every rule is measured on."""

    model: Model
    tokens: Tensor
    free: Tensor
    passes: int
    samples: int
    temperature: float
    seed: int

    def rules(
        self,
        calibration: NDArray[np.int64],
        held_out: NDArray[np.int64],
        error: float,
        written: int,
        advance: Advance,
    ) -> "list[CalibratedRule]":
        """Each rule, calibrated on some texts and checked on the others."""
        states = self.masked_states(calibration, 0, advance)
        others = self.masked_states(held_out, 1, advance)
        rules = []
        for rule in RULES:
            steps = self.calibrate(rule, states, error, advance, rules=len(RULES))
            how = Unmasking(order=rule.order, count=steps[-1].count)
            checked = pass_costs(others, how, self.samples, advance)
            generation = self._generation_states(held_out[:written], how)
            writing = pass_costs(generation, how, self.samples, advance)
            rules.append(CalibratedRule.of(rule, steps, checked, writing, error))
        return rules

    def calibrate(
        self, rule: Rule, states: MaskedStates, error: float, advance: Advance, *, rules: int
    ) -> list[CalibrationStep]:
        """The ladder of a rule as far as it keeps the promise, as one of so many rules."""
        fill = SequentialFill(states, rule.order, self.samples)
        ladder = rule.ladder(int(self.free.sum(dim=1).max()), states.conditionals.vocab_size)
        return list(raise_until_violated(fill, ladder, error, advance, rules=rules))

    def masked_states(self, texts: NDArray[np.int64], part: int, advance: Advance) -> MaskedStates:
        """The passes of some texts, with random sites hidden."""
        chosen, device = torch.from_numpy(texts), self.model.state_device
        hidden, text = hidden_at_random(self.free[chosen], self.passes, 2 * self.seed + part)
        return MaskedStates.of(
            self.model.conditionals(),
            self.tokens[chosen][text].to(device),
            hidden.to(device),
            text.to(device),
            temperature=self.temperature,
            seed=(self.seed + part) % 2**63,
            advance=advance,
        )

    def _generation_states(self, texts: NDArray[np.int64], how: Unmasking) -> MaskedStates:
        """Every pass of a few texts that are written from nothing, as long as these."""
        mask, chosen = mask_token_of(self.model), torch.from_numpy(texts)
        conditionals, free = self.model.conditionals(), self.free[chosen]
        state = start(
            self.tokens[chosen].masked_fill(free, mask),
            free,
            temperature=self.temperature,
            device=self.model.state_device,
        )
        passes = unmask(conditionals, state, how, hidden_token=mask, seed=self.seed)
        before = [state, *(after for after, _ in passes)][:-1]
        tokens, free, chain = (
            torch.cat([getattr(state, name) for state in before])
            for name in ("tokens", "free", "chain")
        )
        hidden = free & (tokens == mask)
        unfilled = hidden.any(dim=1)
        return MaskedStates.of(
            conditionals,
            tokens[unfilled],
            hidden[unfilled],
            chain[unfilled],
            temperature=self.temperature,
            seed=(self.seed + 2) % 2**63,
        )


# ---- the result


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibratedRule:
    """A rule with its number, and what it did on held-out texts and in texts that it wrote."""

    rule: str
    order: str
    count: str
    tokens_a_pass: Estimate
    passes: Estimate  # of a text that was written
    kept: Estimate
    kept_of_several: Estimate  # of the passes that fill two or more
    texts_kept: Estimate
    kept_writing: Estimate
    cost_to_bound: Estimate
    steps: list[CalibrationStep] = internal()  # up to this count, on the calibration texts
    held_out: PassCosts = internal()
    writing: PassCosts = internal()  # from all tokens hidden to none, a chain for each text

    @classmethod
    def of(
        cls,
        rule: Rule,
        steps: list[CalibrationStep],
        held_out: PassCosts,
        writing: PassCosts,
        error: float,
    ) -> "CalibratedRule":
        passes = np.bincount(writing.text)
        most = float(np.bincount(writing.text, writing.sizes).max())
        return cls(
            rule=rule.name,
            order=rule.order,
            count=steps[-1].count,
            tokens_a_pass=clustered_mean(held_out.sizes, held_out.text, bounds=(1.0, np.inf)),
            passes=mean_over_chains(passes, bounds=(1.0, most), student=True),
            kept=held_out.share_within(error),
            kept_of_several=held_out.share_within(error, least=2),
            texts_kept=held_out.texts_kept(error),
            kept_writing=writing.share_within(error),
            cost_to_bound=held_out.cost_to_bound,
            steps=steps,
            held_out=held_out,
            writing=writing,
        )

    @reported
    def ladder(self) -> list[CalibrationStep]:
        """The steps that fill more than one token a pass."""
        return [step for step in self.steps if step.tokens > 1]


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration(Result):
    """How bold each rule may be for an error, and how often it was kept."""

    model: str
    fingerprint: str  # of the model
    error: float
    share: float = SHARE  # Share of the passes for which the bound holds
    temperature: float
    samples: int
    length: int
    n_texts: int = internal()  # that calibrated
    n_held_out: int = internal()  # texts that checked
    rules: list[CalibratedRule]

    FIGURES = {
        "cost": (f"{PLOTS}:plot_calibration", "first_ladder", "error"),
        "tokens": (f"{PLOTS}:plot_tokens_a_pass", "names", "tokens_a_pass"),
    }

    @reported
    def texts(self) -> dict[str, int]:
        """Numbers of texts for calibration and for the held-out check."""
        return {"calibration": self.n_texts, "held_out": self.n_held_out}

    @reported
    def fastest(self) -> dict[str, str]:
        """Order and count of the rule that fills most tokens a pass."""
        return {"order": self.fastest_rule.order, "count": self.fastest_rule.count}

    @reported
    def confidence(self) -> float:
        """That the promises of all rules are right, and so that of the fastest one."""
        return confidence_of(self.n_texts, rules=len(self.rules))

    @reported
    def confidence_of_each(self) -> float:
        """Confidence of each rule by itself."""
        return confidence_of_each(self.n_texts, rules=len(self.rules))

    @reported
    def noise(self) -> float | None:
        """Standard error of the measured costs near the error, root mean square, in nats."""
        measurements = [rule.held_out for rule in self.rules]
        cost, noise = (
            np.concatenate(part)
            for part in zip(*((p.cost, p.noise) for p in measurements), strict=True)
        )
        near = noise[abs(np.log(cost + 1e-300) - np.log(self.error)) < 0.7]
        return float(np.sqrt((near**2).mean())) if len(near) else None

    @property
    def fastest_rule(self) -> CalibratedRule:
        """The calibrated rule that fills most tokens a pass."""
        return max(self.rules, key=lambda rule: rule.tokens_a_pass.value)

    @property
    def unmasking(self) -> Unmasking:
        """The rule that fills most tokens a pass."""
        return Unmasking(order=self.fastest_rule.order, count=self.fastest_rule.count)

    @property
    def first_ladder(self) -> list[CalibrationStep]:
        """The steps of the entropy bound."""
        return self.rules[0].steps

    @property
    def names(self) -> list[str]:
        """Names of the calibrated rules."""
        return [rule.rule for rule in self.rules]

    @property
    def tokens_a_pass(self) -> list[Estimate]:
        """Tokens per pass of each rule, on held-out passes."""
        return [rule.tokens_a_pass for rule in self.rules]

    def lines(self) -> Iterable[str]:
        texts, n_rules = counted(self.n_texts, "text"), len(self.rules)
        if self.confidence >= MIN_CONFIDENCE:
            stated = (
                f"{self.confidence:.0%} confidence from {texts} for all {n_rules} rules together"
            )
        else:
            stated = (
                f"{self.confidence_of_each:.0%} confidence from {texts} for a rule that is named "
                f"beforehand (too few texts for the fastest of {n_rules})"
            )
        yield (
            f"promised, with {stated}: at least {SHARE:.0%} of the passes on texts like these cost "
            f"at most {self.error:g} nats"
        )
        yield (
            f"checked on {counted(self.n_held_out, 'other text')} (estimates, 95% intervals of "
            "`kept` that hold together):"
        )
        yield from table(
            [
                {
                    "rule": rule.rule,
                    "count": rule.count,
                    "tokens a pass": f"{rule.tokens_a_pass.value:.2f}",
                    f"passes of {self.length}": f"{rule.passes.value:.1f}",
                    "kept": _percentage(rule.kept),
                    "texts kept": f"{rule.texts_kept.value:.1%}",
                    "kept in writing": f"{rule.kept_writing.value:.1%}",
                }
                for rule in self.rules
            ]
        )
        fastest = self.fastest_rule
        if np.isfinite(fastest.kept_of_several.value):
            yield (
                f"{fastest.rule}, of passes that fill two or more: kept "
                f"{_percentage(fastest.kept_of_several)}; cost over entropy bound "
                f"{fastest.cost_to_bound.text()}"
            )
        if self.noise is not None:
            yield (
                f"a cost is the mean of {self.samples} fills in turn; near the error its standard "
                f"error is at most {self.noise:.2g} nats"
            )

    def table(self) -> Iterable[dict[str, object]]:
        """One row for each rule and count that was tried on the calibration texts."""
        return [{"rule": rule.rule, **vars(step)} for rule in self.rules for step in rule.steps]


def _percentage(share: Estimate) -> str:
    if share.kind == "exact":
        return f"{share.value:.0%} (exact)"
    ends = share.interval and f" ({share.interval[0]:.1%} to {share.interval[1]:.1%})"
    return f"{share.value:.1%}{ends or ''}"


# ---- calibrations inside `generate`


def calibrate_rule(
    model: Model,
    error: float,
    *,
    texts: StartingTexts = None,
    rule: Rule = RULES[0],
    length: int | None = LENGTH,
    temperature: float = 1.0,
    passes: int = 2,
    samples: int = 16,
) -> Unmasking:
    """How to fill so that at least 95% of the passes cost at most error nats, found quickly.

    On the bundled passages or other texts, cut to a length; nothing is held out to check it: the
    study `calibrate` does that.
    """
    tokens, free = starts(model, texts, length=length, least=2)
    _check_texts(len(tokens), MIN_TEXTS)
    say(f"calibrating on {len(tokens)} texts how many tokens a pass may fill for {error:g} nats")
    measurement = _Measurement(model, tokens, free, passes, samples, temperature, seed=0)
    with track("passes evaluated", 3 * len(tokens) * passes) as advance:
        states = measurement.masked_states(np.arange(len(tokens)), 0, advance)
        steps = measurement.calibrate(rule, states, error, advance, rules=1)
    return Unmasking(order=rule.order, count=steps[-1].count)


def read_calibration(
    path: str | Path, *, error: float | None, temperature: float, fingerprint: str | None = None
) -> Unmasking:
    """The fastest rule of a calibration that was stored with `calibrate --out FILE.json`."""
    try:
        record = parse_json(Path(path).read_text(encoding="utf-8"))
        how = Unmasking(order=record["fastest"]["order"], count=record["fastest"]["count"])
        stored = {name: float(record[name]) for name in ("error", "temperature")}
        weights = record["fingerprint"]
    except OSError as problem:
        raise GlauberError(f"{path} cannot be read: {problem.strerror}.") from problem
    except (ValueError, KeyError, TypeError) as problem:
        raise GlauberError(f"{path} is no calibration that was stored as JSON.") from problem
    how.check()
    if error is not None and stored["error"] != error:
        raise GlauberError(f"{path} was calibrated for {stored['error']:g} nats, not {error:g}.")
    if stored["temperature"] != temperature:
        raise GlauberError(
            f"{path} was calibrated at temperature {stored['temperature']:g}, not {temperature:g}."
        )
    if fingerprint is not None and weights != fingerprint:
        raise GlauberError(f"{path} was calibrated with other weights than this model has.")
    return how


def within_error(
    model: Model | None,
    how: Unmasking,
    *,
    error: float | None,
    calibration: str | Path | None,
    temperature: float,
) -> Unmasking:
    """The unmasking with order and count from a stored calibration, or from one made now.

    Without a model it only refuses what no calibration is for.
    """
    if error is None and calibration is None:
        return how
    if temperature == 0:
        raise GlauberError("at temperature 0 nothing is drawn, so an error in nats says nothing.")
    corrected = {name: getattr(how, name) for name in ("correct", "between", "correct_block")}
    if how != Unmasking(**corrected):
        raise GlauberError(
            "an error finds order and count itself, for whole distributions: leave out order, "
            "count, passes, block, remask, top_k and top_p."
        )
    if calibration is not None:
        fingerprint = None if model is None else model.fingerprint
        rule = read_calibration(
            calibration, error=error, temperature=temperature, fingerprint=fingerprint
        )
    elif model is not None and error is not None:
        rule = calibrate_rule(model, error, temperature=temperature)
    else:
        return how
    return replace(how, order=rule.order, count=rule.count)


def _check_texts(n_texts: int, least: int) -> None:
    """Refuses so few texts that nothing can be promised."""
    if n_texts < least:
        raise GlauberError(
            f"there are {n_texts} texts, but a promise that {SHARE:.0%} of the passes keep the "
            f"error takes at least {least} of them."
        )
