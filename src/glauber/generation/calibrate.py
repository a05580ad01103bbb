"""How many hidden tokens may a pass fill, so that it costs no more than a stated error?"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import Model, check_temperature, mask_token_of
from glauber.conditionals.starts import starts
from glauber.conditionals.texts import read_texts
from glauber.dynamics.kernel import start
from glauber.dynamics.unmasking import Unmasking, unmask
from glauber.generation.calibration import (
    LEAST,
    LENGTH,
    NATS,
    RULES,
    SHARE,
    Rule,
    Rung,
    check_nats,
    check_texts,
    climb,
    confidence_of,
    confidence_of_each,
)
from glauber.generation.pass_costs import Passes, Probe, Situations, costs, hidden_at_random
from glauber.generation.writing import open_masked
from glauber.json_text import Record
from glauber.parameters import (
    Device,
    Dtype,
    LengthOrWhole,
    ModelOrName,
    Seed,
    Temperature,
    Texts,
    Trust,
)
from glauber.progress import Advance, check_count, check_seed, say, track
from glauber.result import Result, counted, model_parts, plain, signature, study
from glauber.statistics import (
    Estimate,
    mean_over_chains,
)
from glauber.tables import table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

HELD_OUT = 3  # one text of so many is held out
WORTH_STATING = 0.5  # confidence in all rules together, below which that of each is stated


@study
def calibrate(
    model: ModelOrName = "bundled:english",
    texts: Texts = None,
    *,
    error: Annotated[float, "What a pass may cost, in nats of KL."] = NATS,
    length: LengthOrWhole = LENGTH,
    passes: Annotated[int, "Passes tried on each text, with random tokens hidden."] = 4,
    samples: Annotated[int, "Sequential fills from which the cost of a pass is estimated."] = 32,
    written: Annotated[int, "Texts written with each rule, to count its passes."] = 6,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
) -> "Calibration":
    """Find how many hidden tokens a pass may fill, and check it on held-out texts.

    For each rule (entropy bound, confidence threshold, a fixed number) the boldest number such that
    at least 95% of the passes on texts like these cost at most the error: KL from filling the same
    tokens one after the other to filling them at once (paper B: why parallel decoding loses
    dependencies). Two thirds of the texts calibrate, the others check. The confidence is that of
    all rules together, so it holds for the fastest one too.
    """
    check_nats(error)
    _check(passes, samples, written, temperature, seed)
    given = None if texts is None else read_texts(texts)
    least = -(-LEAST * HELD_OUT // (HELD_OUT - 1))
    if given is not None:
        check_texts(len(given), least)
    opened = open_masked(
        model, device=device, dtype=dtype, trust_remote_code=trust_remote_code, exact=True
    )
    tokens, free = starts(opened, given, length=length, least=2)
    check_texts(len(tokens), least)
    order = np.random.default_rng(seed).permutation(len(tokens))
    cut = len(tokens) - len(tokens) // HELD_OUT
    say(
        f"{cut} texts to calibrate and {len(tokens) - cut} to check, {passes} passes each: "
        f"{len(tokens) * passes:,} rows through the model, and those of the fills in turn"
    )
    work = _Work(opened, tokens, free, passes, samples, written, float(temperature), seed)
    with track("passes asked", (1 + len(RULES)) * len(tokens) * passes) as advance:
        found = work.rules(order[:cut], order[cut:], error, advance)
    made = signature(
        **model_parts(opened), error=error, texts=len(tokens), length=length, passes=passes,
        samples=samples, written=written, temperature=float(temperature), seed=seed,
    )  # fmt: skip
    longest = int(free.sum(dim=1).max())
    return Calibration(
        found, error, cut, len(tokens) - cut, longest, samples, float(temperature), opened.name,
        opened.fingerprint, made,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A rule with its number, and what it did on held-out texts and in texts that it wrote."""

    rule: Rule
    count: str
    rungs: list[Rung]  # up to this count, on the calibration texts
    held_out: Passes
    writing: Passes  # from all tokens hidden to none, a chain for each text

    @property
    def unmasking(self) -> Unmasking:
        return Unmasking(order=self.rule.order, count=self.count)

    @cached_property
    def passes(self) -> Estimate:
        """Passes of a text that was written."""
        most = float(np.bincount(self.writing.text, self.writing.sizes).max())
        return mean_over_chains(np.bincount(self.writing.text), bounds=(1.0, most), student=True)

    def row(self, error: float) -> Record:
        return {
            "rule": self.rule.name,
            "count": self.count,
            "tokens_a_pass": self.held_out.tokens,
            "passes": self.passes,
            "kept": self.held_out.kept(error, comparisons=len(RULES)),
            "kept_of_several": self.held_out.kept(error, least=2, comparisons=len(RULES)),
            "texts_kept": self.held_out.texts_kept(error, comparisons=len(RULES)),
            "kept_writing": self.writing.kept(error, comparisons=len(RULES)),
            "cost_to_bound": self.held_out.cost_to_bound,
        }


@dataclass(frozen=True, eq=False)
class Calibration(Result):
    """How bold each rule may be for an error, and how often it was kept."""

    rules: list[Calibrated]
    error: float
    texts: int  # that calibrated
    held_out: int  # texts that checked
    length: int
    samples: int
    temperature: float
    model: str
    fingerprint: str  # of the model
    signature: str

    @property
    def unmasking(self) -> Unmasking:
        """The rule that fills most tokens a pass."""
        return self.fastest.unmasking

    @property
    def fastest(self) -> Calibrated:
        """The calibrated rule that fills most tokens a pass."""
        return max(self.rules, key=lambda one: one.held_out.tokens.value)

    @property
    def confidence(self) -> float:
        """That the promises of all rules are right, and so that of the fastest one."""
        return confidence_of(self.texts, rules=len(self.rules))

    @property
    def noise(self) -> float | None:
        """Standard error of the measured costs near the error, root mean square, in nats."""
        near = [
            one.held_out.noise[abs(np.log(one.held_out.cost + 1e-300) - np.log(self.error)) < 0.7]
            for one in self.rules
        ]
        every = np.concatenate(near)
        return float(np.sqrt((every**2).mean())) if len(every) else None

    def to_dict(self) -> Record:
        rows = [
            one.row(self.error)
            | {"order": one.rule.order, "ladder": [r for r in one.rungs if r.tokens > 1]}
            for one in self.rules
        ]
        return {
            "error": self.error,
            "share": SHARE,
            "confidence": self.confidence,
            "confidence_of_each": confidence_of_each(self.texts, rules=len(self.rules)),
            "rules": plain(rows),
            "fastest": {"order": self.unmasking.order, "count": self.unmasking.count},
            "texts": {"calibration": self.texts, "held_out": self.held_out},
            "length": self.length,
            "noise": self.noise,
            "samples": self.samples,
            "temperature": self.temperature,
            "model": self.model,
            "fingerprint": self.fingerprint,
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        yield (
            f"promised, with {self._stated_confidence()}: at least {SHARE:.0%} of the passes on "
            f"texts like these cost at most {self.error:g} nats"
        )
        yield (
            f"checked on {counted(self.held_out, 'other text')} (estimates, 95% intervals of "
            f"`kept` that hold together):"
        )
        yield from table([_shown(one.row(self.error), self.length) for one in self.rules])
        several = self.fastest.held_out.kept(self.error, least=2, comparisons=len(RULES))
        if np.isfinite(several.value):
            yield (
                f"{self.fastest.rule.name}, of passes that fill two or more: kept "
                f"{_share(several)}; cost over entropy bound "
                f"{self.fastest.held_out.cost_to_bound.text()}"
            )
        if self.noise is not None:
            yield (
                f"a cost is the mean of {self.samples} fills in turn; near the error its standard "
                f"error is at most {self.noise:.2g} nats"
            )

    def _stated_confidence(self) -> str:
        many, n_rules = counted(self.texts, "text"), len(self.rules)
        if self.confidence >= WORTH_STATING:
            return f"{self.confidence:.0%} confidence from {many} for all {n_rules} rules together"
        each = confidence_of_each(self.texts, rules=n_rules)
        return (
            f"{each:.0%} confidence from {many} for a rule that is named beforehand (too few texts "
            f"for the fastest of {n_rules})"
        )

    def frame(self) -> "pandas.DataFrame":
        """One row for each rule and count that was tried on the calibration texts."""
        import pandas

        return pandas.DataFrame(
            [{"rule": one.rule.name, **vars(rung)} for one in self.rules for rung in one.rungs]
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.generation import plot_calibration, plot_tokens_a_pass

        return {
            "cost": plot_calibration(self.rules[0].rungs, self.error),
            "tokens": plot_tokens_a_pass(
                [one.rule.name for one in self.rules], [one.held_out.tokens for one in self.rules]
            ),
        }


@dataclass(frozen=True, eq=False)
class _Work:
    """What every rule is measured on."""

    model: Model
    tokens: Tensor
    free: Tensor
    passes: int
    samples: int
    written: int
    temperature: float
    seed: int

    def rules(
        self, ours: NDArray[np.int64], others: NDArray[np.int64], error: float, advance: Advance
    ) -> list[Calibrated]:
        """Each rule, calibrated on our texts and checked on the others."""
        law = self.model.conditionals()
        first = self._situations(law, ours, 0, advance)
        second = self._situations(law, others, 1, advance)
        found = []
        for rule in RULES:
            probe = Probe(first, rule.order, self.samples)
            ladder = rule.ladder(int(self.free.sum(dim=1).max()), law.vocab_size)
            rungs = list(climb(probe, ladder, error, advance, rules=len(RULES)))
            how = Unmasking(order=rule.order, count=rungs[-1].count)
            held_out = costs(second, how, self.samples, advance)
            writing = costs(self._along(law, others, how), how, self.samples, advance)
            found.append(Calibrated(rule, rungs[-1].count, rungs, held_out, writing))
        return found

    def _situations(
        self, law: Any, which: NDArray[np.int64], part: int, advance: Advance
    ) -> Situations:
        """The passes of some texts, with random sites hidden."""
        chosen = torch.from_numpy(which)
        hidden, text = hidden_at_random(self.free[chosen], self.passes, 2 * self.seed + part)
        tokens, device = self.tokens[chosen][text], self.model.state_device
        return Situations.of(
            law, tokens.to(device), hidden.to(device), text.to(device),
            temperature=self.temperature, seed=(self.seed + part) % 2**63, advance=advance,
        )  # fmt: skip

    def _along(self, law: Any, which: NDArray[np.int64], how: Unmasking) -> Situations:
        """Every pass of a few texts that are written from nothing, as long as the held-out ones."""
        mask, device = mask_token_of(self.model), self.model.state_device
        chosen = torch.from_numpy(which[: self.written])
        tokens = self.tokens[chosen].masked_fill(self.free[chosen], mask)
        state = start(tokens, self.free[chosen], temperature=self.temperature, device=device)
        after = [one for one, _ in unmask(law, state, how, hidden_token=mask, seed=self.seed)]
        before = [state, *after[:-1]]
        rows, free = (torch.cat([getattr(s, name) for s in before]) for name in ("tokens", "free"))
        hidden, chain = free & (rows == mask), torch.cat([s.chain for s in before])
        going = hidden.any(dim=1)
        return Situations.of(
            law, rows[going], hidden[going], chain[going], temperature=self.temperature,
            seed=(self.seed + 2) % 2**63,
        )  # fmt: skip


def _check(passes: int, samples: int, written: int, temperature: float, seed: int) -> None:
    check_count("number of passes tried on a text", passes, most=1000)
    check_count("number of samples", samples, least=2, most=10**5)
    check_count("number of texts written", written, least=3, most=10**4)
    check_temperature(temperature)
    check_seed(seed)


def _shown(row: dict[str, Any], length: int) -> Record:
    """A row for a person."""
    return {
        "rule": row["rule"],
        "count": row["count"],
        "tokens a pass": f"{row['tokens_a_pass'].value:.2f}",
        f"passes of {length}": f"{row['passes'].value:.1f}",
        "kept": _share(row["kept"]),
        "texts kept": f"{row['texts_kept'].value:.1%}",
        "kept in writing": f"{row['kept_writing'].value:.1%}",
    }


def _share(one: Estimate) -> str:
    if one.kind == "exact":
        return f"{one.value:.0%} (exact)"
    ends = "" if one.interval is None else f" ({one.interval[0]:.1%} to {one.interval[1]:.1%})"
    return f"{one.value:.1%}{ends}"
