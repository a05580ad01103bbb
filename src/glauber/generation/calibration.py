"""How bold may a rule be that fills several hidden sites in one pass?

A pass that fills m sites at once costs KL(in turn || at once), where in turn each site is drawn
given those before it in the order of the pass (as in `filling`). Every rule here fills a head of
its order, so the cost of a pass only grows as the rule gets bolder, and one sequential fill of the
order tells the cost of every head. A ladder of counts is climbed from careful to bold on texts with
random sites hidden, as far as the promise holds:
    at least `share` of the passes on texts like these cost at most `error` nats each.
Texts are independent, passes of one text are not: the loss of a text is the share of its passes
that cost more, and the hypothesis "the mean loss is above 1 - share" is rejected by betting against
it, text by text (Waudby-Smith and Ramdas, 2023): finite-sample, at a confidence of 95%.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.conditionals.batching import in_parts
from glauber.conditionals.starts import starts
from glauber.conditionals.texts import Texts
from glauber.conditionals.truncated import Truncation
from glauber.dynamics.kernel import start
from glauber.dynamics.noise import random_bits, uniform
from glauber.errors import GlauberError
from glauber.generation.candidates import Candidates, candidates, questions
from glauber.generation.counts import count_named
from glauber.generation.filling import drawn_by
from glauber.generation.orders import ranks
from glauber.generation.pair_costs import Floats, divergences
from glauber.generation.unmasking import Unmasking
from glauber.progress import Advance, say, track

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


def hidden_at_random(free: Tensor, passes: int, seed: int) -> tuple[Tensor, Tensor]:
    """For each text so many sets of hidden sites (texts * passes, length); and the texts' numbers.

    The number hidden is uniform from two to all free sites: where a generation stands on its way.
    """
    sets = []
    for text, row in enumerate(free.cpu().numpy()):
        random, there = np.random.default_rng([seed, text]), row.nonzero()[0]
        for _ in range(passes):
            count = int(random.integers(2, len(there) + 1))
            sets.append(np.isin(np.arange(len(row)), random.permutation(there)[:count]))
    return torch.from_numpy(np.stack(sets)), torch.arange(len(free)).repeat_interleave(passes)


@dataclass(frozen=True, eq=False)
class Situations:
    """States of which a pass is asked: tokens, hidden (passes, length), and what a model says.

    text (passes,) is the number of the text, or the chain, that each belongs to.
    """

    conditionals: Conditionals
    tokens: Tensor
    hidden: Tensor
    text: Tensor
    found: Candidates
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
    ) -> "Situations":
        """One row through the model for each."""
        state = start(tokens, hidden, temperature=temperature, device=tokens.device)
        nothing = torch.zeros_like(tokens)  # candidates are not used
        found = candidates(
            conditionals, state, hidden, wanted=hidden, bits=nothing, truncation=Truncation()
        )
        return cls(conditionals, tokens, hidden, text, found, temperature, seed)


class Probe:
    """The passes of an order from some situations, filled one site after the other.

    `walk` fills the first sites of every order in turn, many samples of it; cost (passes, samples)
    is the sum of KL(law given the past || law at once) over the sites filled so far. The draws of
    a site are stratified over samples, so their mean has less noise than that of independent ones.
    """

    def __init__(self, at: Situations, order: str, samples: int) -> None:
        tokens, hidden = at.tokens, at.hidden
        self.at, self.hidden, self.samples = at, hidden, samples
        self._seed = torch.as_tensor(at.seed, device=tokens.device)
        self._row = torch.arange(len(tokens), device=tokens.device)
        site = torch.arange(tokens.shape[1], device=tokens.device)
        by, _ = random_bits(self._seed, self._row[:, None], site * 0, site)
        self.place = ranks(order, at.found, hidden, by)
        self.sites = self.place.argsort(dim=1)  # in the order; behind the hidden ones: any
        self.done = torch.zeros_like(self._row)
        self.cost = torch.zeros(len(tokens), samples, dtype=torch.float64, device=tokens.device)
        self._filled = tokens.masked_fill(hidden, 0)[:, None].repeat(1, samples, 1)

    def sizes(self, count: str) -> Tensor:
        """How many sites (passes,) a count fills."""
        return count_named(count).chosen(self.at.found, self.hidden, self.place).sum(dim=1)

    def bound(self) -> Tensor:
        """Sum less largest (passes,) of the entropies of the sites filled so far, in nats."""
        within = self.hidden & (self.place < self.done[:, None])
        entropy = self.at.found.entropy_read * within
        return entropy.sum(dim=1) - entropy.amax(dim=1)

    def walk(self, sizes: Tensor, advance: Advance | None = None) -> None:
        """Fills each order up to so many sites (passes,); those further on stay where they are.

        One site alone costs nothing and is not asked for.
        """
        sizes = torch.where(sizes > 1, sizes, 0)
        while bool((self.done < sizes).any()):
            rows = (self.done < sizes).nonzero()[:, 0]
            for part in in_parts(rows, 3 * self.samples * self.at.conditionals.vocab_size):
                self._step(part)
                if advance is not None:
                    advance(len(part))

    def _step(self, rows: Tensor) -> None:
        """Fills the next site of some passes (n,) in all their samples."""
        n, done = len(rows), self.done[rows]
        site = self.sites[rows, done]
        filled = self._filled[rows]  # (n, samples, length)
        still = self.hidden[rows] & (self.place[rows] >= done[:, None])
        # The same tokens in several samples are one question.
        keyed = torch.cat([self._same(n), filled.flatten(0, 1)], dim=1)
        asked, which = keyed.unique(dim=0, return_inverse=True)
        whose = asked[:, 0]
        own = self._law(asked[:, 1:], still[whose], site[whose])
        if bool((done > 0).any()):
            before = filled[:, 0].masked_fill(self.hidden[rows], 0)
            at_once = self._law(before, self.hidden[rows], site)
            self.cost[rows] += divergences(own, at_once[whose])[which].view(n, self.samples)
        drawn = drawn_by(own[which], self._uniforms(rows, done).flatten())
        where = site.repeat_interleave(self.samples)[:, None]
        self._filled[rows] = filled.flatten(0, 1).scatter(1, where, drawn).view_as(filled)
        self.done[rows] += 1

    def _same(self, n: int) -> Tensor:
        return torch.arange(n, device=self.done.device).repeat_interleave(self.samples)[:, None]

    def _uniforms(self, rows: Tensor, done: Tensor) -> Tensor:
        """One number (n, samples) in each of `samples` equal strata, in random order."""
        sample = torch.arange(self.samples, device=rows.device)
        chain, step = self._row[rows][:, None], done[:, None] + 1
        order, inside = random_bits(self._seed, chain, step, sample)
        return (order.argsort(dim=1) + uniform(inside)) / self.samples

    def _law(self, tokens: Tensor, hidden: Tensor, site: Tensor) -> Tensor:
        """log_probs (rows, vocab) float64 at one site of each row, with all of hidden hidden."""
        law = torch.empty(
            len(tokens), self.at.conditionals.vocab_size, dtype=torch.float64, device=tokens.device
        )
        for rows, sites in questions(self.at.conditionals, hidden):
            scores = self.at.conditionals.scores(tokens[rows], sites)
            slot = (sites == site[rows, None]).int().argmax(dim=1)
            own = scores[torch.arange(len(rows), device=rows.device), slot].double()
            law[rows] = torch.log_softmax(own / self.at.temperature, dim=-1)
        return law


def promised(losses: Floats, *, share: float = SHARE, confidence: float = CONFIDENCE) -> bool:
    """Whether the losses (texts,) show that the mean loss is at most 1 - share.

    One begins with a stake of 1 and bets on every text that its loss is below 1 - share. If the
    mean loss is above, the stake is a supermartingale, and exceeds 1 / (1 - confidence) with at
    most that chance. Few texts cannot win so much: then none may lose anything.
    """
    level, n = 1 - share, len(losses)
    before = np.concatenate([[0.0], np.cumsum(losses)[:-1]])
    mean = (0.5 + before) / np.arange(1, n + 1)
    spread = np.concatenate([[0.0], np.cumsum((losses - mean) ** 2)[:-1]])
    variance = (0.25 + spread) / np.arange(1, n + 1)
    bet = np.minimum(1.0, np.sqrt(2 * math.log(1 / (1 - confidence)) / (n * variance)))
    stake = np.cumprod(1 - bet * (losses - level))
    return bool(stake.max() >= min(1 / (1 - confidence), float(np.prod(1 + bet * level)) - 1e-9))


@dataclass(frozen=True)
class Rung:
    """What a count did on the calibration texts: an estimate each."""

    count: str
    tokens: float  # filled a pass, mean
    kept: float  # share of the passes within the error
    cost: float  # that 95% of the passes do not exceed, in nats
    bound: float  # the same of the entropy bound


def climb(
    probe: Probe, ladder: list[str], error: float, advance: Advance | None = None
) -> Iterator[Rung]:
    """The rungs of a ladder up to the last one that keeps the promise.

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
            if not promised(_by_text(broken, whose)):
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
    model: Any,
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
    at = Situations.of(
        law, tokens[text].to(device), hidden.to(device), text.to(device),
        temperature=temperature, seed=seed,
    )  # fmt: skip
    ladder = rule.ladder(int(free.sum(dim=1).max()), law.vocab_size)
    with track("sites filled in turn", int(hidden.sum())) as advance:
        *_, last = climb(Probe(at, rule.order, samples), ladder, error, advance)
    return Unmasking(order=rule.order, count=last.count)


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
