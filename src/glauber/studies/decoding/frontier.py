"""What fewer passes cost in quality, and whether correction pays for its passes.

A masked model writes in few passes or in many. Fewer are faster and, because tokens filled at once
do not see each other, worse (paper B). Every schedule is measured at every number of passes, with
and without sweeps of correction, and corrected texts are compared with uncorrected ones of the
same cost: a pass is one row through the model, whether it fills or revises.

Likelihood    nats a character, and a token, under an autoregressive LM that reads the text with a
              tokenizer of its own. Low is not good by itself: "the the the" is likely.
Entropy       of the frequencies of tokens within a text, in nats; at most log(length).
distinct-n    different n-grams over all n-grams of the set (Li et al. 2016).
self-BLEU     mean BLEU of each text with all others as references (Zhu et al. 2018), 0 to 100.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.dynamics.candidates import ORDERS
from glauber.dynamics.kernel import start
from glauber.dynamics.schedules import COUNTS, REMASKS, count_named
from glauber.dynamics.unmasking import Unmasking, unmask
from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import ModelOrName, Seed, Temperature, Texts, WhereAndDtype
from glauber.foundation.progress import Advance, check_memory, say, track
from glauber.foundation.statistics import MIN_CHAINS, Estimate, Floats, mean_over_chains
from glauber.foundation.statistics.means import (
    JACKKNIFE,
    interval_of_mean,
    pseudo_values,
    tail_probability,
)
from glauber.foundation.study import Result, internal, reported, study
from glauber.foundation.tables import table
from glauber.models.base import (
    PAD,
    Conditionals,
    Model,
    check_temperature,
    mask_token_of,
)
from glauber.models.causal_lm import CausalLM
from glauber.models.load import load
from glauber.models.shelf import is_folder
from glauber.models.weights import kind_of
from glauber.sampling.generate import check_passes, open_masked
from glauber.texts.read import Texts as HumanTexts
from glauber.texts.starts import check_length, reads_english, starts

MAX_PRINTED = 2  # texts of each schedule
MAX_ORDER = 4  # of the n-grams of BLEU
PLOTS = "glauber.interfaces.plots.generation"


@study
def frontier(
    model: ModelOrName = "bundled:english",
    texts: Texts = None,
    *,
    passes: Annotated[
        Sequence[int] | None,
        "Passes that fill a text (default: 1, 2, 4, … up to its length).",
        Whole(),
    ] = None,
    orders: Annotated[str | Sequence[str], f"Of {', '.join(ORDERS)}."] = ("confidence", "random"),
    counts: Annotated[str | Sequence[str], f"Of {COUNTS}."] = ("linear",),
    remask: Annotated[str | Sequence[str], f"Of {REMASKS}."] = ("none",),
    correct: Annotated[Sequence[int], "Sweeps of correction at the end.", Whole(0)] = (0, 1),
    correct_block: Annotated[
        int | None,
        "Tokens redrawn at once in a sweep (default: as many as a pass fills).",
        Whole(),
    ] = None,
    length: Annotated[int, "Tokens of each text.", Whole()] = 32,
    chains: Annotated[int, "Texts of each schedule.", Whole(2)] = 32,
    judge: Annotated[
        str | Conditionals | None,
        "An autoregressive LM (folder, name or GGUF file) that scores how likely the texts are.",
    ] = None,
    temperature: Temperature = 1.0,
    top_k: Annotated[int | None, "Draw among this many most probable tokens only."] = None,
    top_p: Annotated[
        float | None, "Draw among the most probable tokens with this mass only."
    ] = None,
    seed: Seed = 0,
    **where: Unpack[WhereAndDtype],
) -> "Frontier":
    """Measure texts written in few and in many passes: likelihood, diversity and cost.

    Texts are written from nothing. Likelihood is that under the judge, without which there is
    none; diversity is the entropy of a text's tokens, distinct n-grams and self-BLEU. With the same
    seed, texts of the same number share their noise, so differences are paired. texts (the bundled
    passages, for English models) are measured next to them, cut to the same length.
    """
    check_temperature(temperature)
    numbers = powers_of_two(length) if passes is None else list(passes)
    plans = [
        Unmasking(
            order,
            count,
            number,
            remask=remasking,
            top_k=top_k,
            top_p=top_p,
            correct=sweeps,
            correct_block=_block(count, number, correct_block, length) if sweeps else None,
        )
        for order in _names("order", orders, ",")
        for count in _names("count", counts, ",")
        for remasking in _names("remasking", remask, r",(?![\d.])")
        for number in (numbers if count_named(count).has_plan else [None])
        for sweeps in correct
    ]
    for how in plans:
        how.check()
        check_passes(how, length)
    check_memory(64.0 * chains * length * len(plans), f"{len(plans) * chains:,} texts")
    loaded = open_masked(model, **where)
    hidden = loaded.vocabulary.rows([[mask_token_of(loaded)] * length] * chains)
    check_length(loaded, hidden[0])
    human = human_texts(loaded, texts, chains, length)
    reference = None if judge is None else open_reference_lm(judge, where)
    cost = chains * sum(rows_of(how, length) for how in plans)
    say(f"{len(plans)} schedules, about {cost:,} rows through the model")
    with track("rows", cost) as advance:
        schedules = [
            write_schedule(loaded, how, hidden, temperature, seed, advance) for how in plans
        ]
    schedules += [] if human is None else [human]
    if reference is not None:
        say(f"{len(schedules) * chains:,} texts through the judge")
        with track("schedules scored", len(schedules)) as advance:
            for number, schedule in enumerate(schedules):
                advance()
                likelihood = reference_likelihood(reference, schedule.texts)
                schedules[number] = replace(schedule, likelihood=likelihood)
    return Frontier(
        model=loaded.name,
        judge=None if reference is None else reference.name,
        length=length,
        temperature=float(temperature),
        schedules=schedules,
    )


def _names(name: str, listed: str | Sequence[str], comma: str) -> list[str]:
    """The names of a list; in a string they have commas between them."""
    pieces = re.split(comma, listed) if isinstance(listed, str) else map(str, listed)
    names = [part.strip() for part in pieces if part.strip()]
    if not names:
        raise GlauberError(f"no {name} is named, so nothing can be written.")
    return names


def powers_of_two(n: int) -> list[int]:
    """1, 2, 4, … and n itself."""
    return [2**power for power in range(32) if 2**power < n] + [n]


def _block(count: str, passes: int | None, block: int | None, length: int) -> int:
    """How many tokens a sweep redraws at once: by default as many as a pass fills."""
    if block is not None:
        return block
    kind = count_named(count)
    if kind.has_plan:
        return math.ceil(length / (passes or length))
    return int(kind.value) if kind.kind == "number" else 1


def rows_of(how: Unmasking, length: int) -> int:
    """Rows that a text of so many tokens takes: its passes, and one for each group of a sweep.

    Exact for plans and numbers, and at most that for counts that look at the text.
    """
    fixed = how.count_rule.kind == "number"
    filling = math.ceil(length / how.count_rule.value) if fixed else how.passes or length
    return filling + how.correct * math.ceil(length / (how.correct_block or 1))


# ---- texts of a schedule


@dataclass(frozen=True, eq=False)
class CountingModel:
    """The same conditionals; every row that they are asked for is counted."""

    base: Conditionals
    advance: Advance
    calls: list[int]  # rows of each

    @property
    def vocab_size(self) -> int:
        return self.base.vocab_size

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        self.calls.append(len(tokens))
        self.advance(len(tokens))
        return self.base.scores(tokens, sites, candidates)


@dataclass(frozen=True, eq=False, kw_only=True)
class ScheduleResult:
    """Texts written in one way, or (how is None) human texts."""

    how: Unmasking | None = internal()
    n_rows: int  # through the model, for all texts together: counted, not planned
    texts: list[str]
    tokens: list[tuple[int, ...]] = internal()  # of each text
    likelihood: "ReferenceLikelihood | None" = internal(default=None)

    @reported
    def schedule(self) -> str:
        """How it was filled, without the number of passes and the correction."""
        if self.how is None:
            return "human texts"
        schedule_names = [self.how.order, str(self.how.count), self.how.remask]
        return " ".join(part for part in schedule_names if part != "none")

    @reported
    def passes(self) -> int | None:
        return None if self.how is None else self.how.passes

    @reported
    def sweeps(self) -> int:
        return 0 if self.how is None else self.how.correct

    @reported
    def block(self) -> int | None:
        return self.how.correct_block if self.how and self.how.correct else None

    @reported
    def cost(self) -> float:
        """Passes of a text: each is one row of it through the model. Exact."""
        return self.n_rows / len(self.texts)

    @property
    def correction(self) -> str:
        """The correction in words, empty if there is none."""
        return f"{self.sweeps} by {self.block or 1}" if self.sweeps else ""

    @cached_property
    def entropies(self) -> Floats:
        return np.array([token_entropy(row) for row in self.tokens])

    @cached_property
    def figures(self) -> dict[str, Estimate]:
        """Every measure with its interval over texts; nats only where there is a judge."""
        likelihood, most = self.likelihood, float(np.log(len(self.tokens[0])))
        nats = {}
        if likelihood is not None:
            nats["nats_a_character"] = mean_over_chains(likelihood.nats_a_character)
            nats["nats_a_token"] = mean_over_chains(likelihood.nats / likelihood.n_tokens)
        return nats | {
            "entropy": mean_over_chains(self.entropies, bounds=(0.0, most), student=True),
            **{f"distinct_{n}": distinct(self.tokens, n) for n in (1, 2, 3)},
            "self_bleu": self_bleu(self.tokens),
        }

    @reported
    def measures(self) -> dict[str, Estimate]:
        return self.figures

    @property
    def label(self) -> dict[str, object]:
        """What identifies it in a table."""
        return {
            "schedule": self.schedule,
            "passes": self.passes,
            "sweeps": self.sweeps,
            "block": self.block,
            "cost": None if self.how is None else self.cost,
        }

    def rows(self) -> list[dict[str, object]]:
        """A row for each text."""
        likelihood = self.likelihood
        return [
            self.label
            | {
                "text": text,
                "nats": None if likelihood is None else likelihood.nats[number],
                "judge_tokens": None if likelihood is None else likelihood.n_tokens[number],
                "characters": len(text),
                "entropy": self.entropies[number],
            }
            for number, text in enumerate(self.texts)
        ]


def write_schedule(
    model: Model,
    how: Unmasking,
    hidden: tuple[Tensor, Tensor],
    temperature: float,
    seed: int,
    advance: Advance,
) -> ScheduleResult:
    """The texts of one schedule, with the rows that they took."""
    counting = CountingModel(model.conditionals(), advance, [])
    state = start(*hidden, temperature=temperature, device=model.state_device)
    for after, _ in unmask(counting, state, how, hidden_token=mask_token_of(model), seed=seed):
        state = after
    return _schedule_result(model, how, sum(counting.calls), state.tokens.cpu(), hidden[1])


def human_texts(model: Model, texts: HumanTexts, chains: int, length: int) -> ScheduleResult | None:
    """Human texts, cut to the length: at most as many as are written."""
    if texts is None and not reads_english(model.vocabulary):
        return None
    tokens, free = starts(model, texts, length=length)
    return _schedule_result(model, None, 0, tokens[:chains], free[:chains])


def _schedule_result(
    model: Model, how: Unmasking | None, n_rows: int, tokens: Tensor, free: Tensor
) -> ScheduleResult:
    rows = [tuple(row[sites].tolist()) for row, sites in zip(tokens, free, strict=True)]
    texts = [model.vocabulary.text.decode(row) for row in rows]
    return ScheduleResult(how=how, n_rows=n_rows, tokens=rows, texts=texts)


# ---- measures of a set of texts

Rows = Sequence[Sequence[int]]  # the tokens of each text


class ReferenceLikelihood(NamedTuple):
    """The likelihood of texts under a judge, (texts,) each."""

    nats: Floats  # -log p of the whole text
    n_tokens: NDArray[np.int64]  # in the judge's own tokens, those that it scores
    n_characters: NDArray[np.int64]

    @property
    def nats_a_character(self) -> Floats:
        return self.nats / self.n_characters


def open_reference_lm(judge: str | Conditionals, where: WhereAndDtype) -> CausalLM:
    """The autoregressive LM of that name, folder or GGUF file; a masked one is refused."""
    name = judge if isinstance(judge, str) else ""
    local = name.startswith("bundled:") or is_folder(name)
    loaded = None
    if not (name and local and kind_of(name) == "masked"):
        loaded = load(
            judge,
            device=where.get("device", "auto"),
            trust_remote_code=where.get("trust_remote_code", False),
        )
    if not isinstance(loaded, CausalLM):
        raise GlauberError(
            f"{name or getattr(judge, 'name', type(judge).__name__)} is no judge: a text has a "
            "likelihood under an autoregressive LM, such as the GGUF file that recipes/smollm2.py "
            "makes."
        )
    return loaded


def reference_likelihood(judge: CausalLM, texts: Sequence[str]) -> ReferenceLikelihood:
    """The likelihood of each text, read again from its characters."""
    rows = [judge.vocabulary.pieces(text) for text in texts]
    unscored = judge.opening is None  # nothing comes before the first token
    scored = np.array([len(row) - unscored for row in rows])
    if scored.min() < 1:
        raise GlauberError("a text has no token that the judge could score.")
    tokens = torch.full((len(rows), max(map(len, rows))), PAD)
    for number, row in enumerate(rows):
        tokens[number, : len(row)] = torch.tensor(row)
    nats = -judge.log_joint(tokens.to(judge.state_device), alone=False).cpu().numpy()
    return ReferenceLikelihood(nats, scored, np.array([len(text) for text in texts]))


def token_entropy(row: Sequence[int]) -> float:
    """Entropy of the frequencies of a text's tokens, in nats."""
    share = np.array([*Counter(row).values()]) / len(row)
    return float(-(share * np.log(share)).sum() + 0.0)


def distinct(rows: Rows, n: int) -> Estimate:
    """Different n-grams over all n-grams of the texts; falls with the number of texts."""
    texts = [Counter(_grams(row, n)) for row in rows]
    sizes = np.array([text.total() for text in texts])
    if not sizes.sum():
        return Estimate(float("nan"), None, reason="the texts are shorter than that")
    every = sum(texts, Counter())
    only_there = np.array([sum(every[gram] == c for gram, c in text.items()) for text in texts])
    others = np.maximum(sizes.sum() - sizes, 1)
    value = len(every) / int(sizes.sum())
    return _of_set(value, (len(every) - only_there) / others, (0.0, 1.0))


def self_bleu(rows: Rows) -> Estimate:
    """Mean BLEU of each text with the others as references: high where texts repeat each other.

    On the tokens as they are, up to 4-grams, orders without a match smoothed as sacrebleu does
    (exp). All texts have one length, so nothing is brief.
    """
    n_texts, order = len(rows), min(MAX_ORDER, len(rows[0]))
    totals = np.array([len(rows[0]) - n for n in range(order)])
    owner, own, elsewhere = _shared_grams(rows, order)

    def mean_bleu(chosen: NDArray[np.bool_]) -> float:
        clipped = np.minimum(own, (elsewhere * chosen).max(axis=1))
        matched = np.bincount(owner, weights=clipped, minlength=n_texts * order).astype(float)
        return float(_bleu(matched.reshape(-1, order)[chosen], totals).mean())

    without = np.zeros(n_texts)  # each text; too few of them are left for an interval
    if n_texts >= MIN_CHAINS:
        without = np.array([mean_bleu(np.arange(n_texts) != text) for text in range(n_texts)])
    return _of_set(mean_bleu(np.ones(n_texts, dtype=bool)), without, (0.0, 100.0))


def _grams(row: Sequence[int], n: int) -> list[tuple[int, ...]]:
    return [tuple(row[i : i + n]) for i in range(len(row) - n + 1)]


def _shared_grams(rows: Rows, order: int) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Each n-gram of each text: whose (text * order + n - 1), how often there, how often in all."""
    counts = [[Counter(_grams(row, n + 1)) for row in rows] for n in range(order)]
    grams = [
        (text, n, gram)
        for text in range(len(rows))
        for n in range(order)
        for gram in counts[n][text]
    ]
    elsewhere = np.array([[row[gram] for row in counts[n]] for _, n, gram in grams], float)
    text, n = np.array([(text, n) for text, n, _ in grams]).T
    own = elsewhere[np.arange(len(grams)), text]
    elsewhere[np.arange(len(grams)), text] = 0.0
    return text * order + n, own, elsewhere


def _bleu(matched: Floats, totals: NDArray[np.int64]) -> Floats:
    """The geometric mean of the precisions (texts, orders); the j-th zero counts as 1 / 2^j."""
    zeros = np.cumsum(matched == 0, axis=1)
    precision = np.where(matched == 0, 0.5**zeros, matched) / totals
    bleu = 100 * np.exp(np.log(precision).mean(axis=1))
    return np.where(matched.any(axis=1), bleu, 0.0)


def _of_set(value: float, without: Floats, bounds: tuple[float, float]) -> Estimate:
    """A figure of so many texts together; its spread is what leaving out each text shows.

    Such figures change with the number of texts, so the interval is put around the figure of
    this number and not around the limit of many.
    """
    by_text = pseudo_values(value, without)
    by_text = by_text - by_text.mean() + value
    return interval_of_mean(value, by_text, tail_probability(), bounds, method=JACKKNIFE)


# ---- the result


@dataclass(frozen=True, eq=False)
class CorrectionGain:
    """A corrected schedule less an uncorrected one of the same kind, text by text."""

    corrected: ScheduleResult = internal()
    uncorrected: ScheduleResult = internal()

    @reported
    def corrected_by(self) -> dict[str, object]:
        return self.corrected.label

    @reported
    def compared_with(self) -> dict[str, object]:
        return self.uncorrected.label

    @reported
    def equal_cost(self) -> bool:
        """Whether both cost the same number of passes."""
        return self.corrected.cost == self.uncorrected.cost

    @reported
    def nats_a_character(self) -> Estimate | None:
        corrected, uncorrected = self.corrected.likelihood, self.uncorrected.likelihood
        if corrected is None or uncorrected is None:
            return None
        return mean_over_chains(corrected.nats_a_character - uncorrected.nats_a_character)

    @reported
    def entropy(self) -> Estimate:
        return mean_over_chains(self.corrected.entropies - self.uncorrected.entropies)

    def line(self) -> str:
        corrected, uncorrected, nats = self.corrected, self.uncorrected, self.nats_a_character
        differences = [] if nats is None else [f"nats a character {nats.text()}"]
        differences.append(f"entropy {self.entropy.text()}")
        return (
            f"  {corrected.schedule}: {corrected.passes or 'its'} passes and "
            f"{corrected.correction} (cost {corrected.cost:g}) less "
            f"{uncorrected.passes or 'its'} passes (cost {uncorrected.cost:g}): "
            + ", ".join(differences)
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Frontier(Result):
    """Quality, diversity and cost of each schedule."""

    model: str
    judge: str | None
    length: int
    temperature: float
    schedules: list[ScheduleResult]

    FIGURES = {
        "frontier": f"{PLOTS}:plot_frontier",
        "diversity": f"{PLOTS}:plot_quality_diversity",
    }

    @reported
    def at_equal_cost(self) -> list[CorrectionGain]:
        """Each corrected schedule and the dearest uncorrected one that costs no more."""
        gains = []
        for schedule in self.schedules:
            others = [
                other
                for other in self.schedules
                if schedule.sweeps
                and other.schedule == schedule.schedule
                and not other.sweeps
                and other.cost <= schedule.cost
            ]
            if others:
                dearest = max(others, key=lambda other: other.cost)
                gains.append(CorrectionGain(schedule, dearest))
        return gains

    @reported
    def against_its_own_start(self) -> list[CorrectionGain]:
        """Each corrected schedule and itself without correction, which costs less."""
        by_plan = {schedule.how: schedule for schedule in self.schedules}
        gains = []
        for schedule in self.schedules:
            if schedule.how is not None and schedule.sweeps:
                before = replace(schedule.how, correct=0, correct_block=None)
                if before in by_plan:
                    gains.append(CorrectionGain(schedule, by_plan[before]))
        return gains

    def lines(self) -> Iterable[str]:
        yield (
            f"texts of {self.length} tokens, {len(self.schedules[0].texts)} of each schedule; "
            "costs are exact, all else estimates (intervals in the JSON)"
        )
        if self.judge is None:
            yield "no judge was given, so nothing is said about how likely the texts are"
        else:
            yield f"judge: {self.judge}"
        yield from table(
            [
                {
                    "schedule": schedule.schedule,
                    "passes": schedule.passes,
                    "corrected": schedule.correction or None,
                    "cost": schedule.cost,
                    **{name: figure.value for name, figure in schedule.figures.items()},
                }
                for schedule in self.schedules
            ]
        )
        for title, gains in (
            (
                "corrected less uncorrected, at a cost that is no higher, text by text:",
                self.at_equal_cost,
            ),
            ("corrected less the same texts before:", self.against_its_own_start),
        ):
            yield title
            yield from [gain.line() for gain in gains] or ["  nothing was corrected"]
        for schedule in self.schedules:
            ending = ", corrected" if schedule.sweeps else ""
            yield f"{schedule.schedule}, cost {schedule.cost:g}{ending}:"
            yield from (f"  {text}" for text in schedule.texts[:MAX_PRINTED])

    def table(self) -> Iterable[dict[str, object]]:
        """One row for each text."""
        return [row for schedule in self.schedules for row in schedule.rows()]
