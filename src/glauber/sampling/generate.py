"""Texts that a masked model writes from nothing, or between a prefix and a suffix.

A generation is a run whose steps are passes: planned, begun, advanced and resumed as any other.
What was done to which site is a `FillingLog`, from which all figures of the texts are read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.dynamics.candidates import ORDERS
from glauber.dynamics.noise import random_bits, uniform
from glauber.dynamics.schedules import COUNTS, REMASKS
from glauber.dynamics.unmasking import Unmasking, most_passes
from glauber.foundation.checks import Real, Whole
from glauber.foundation.disk import RUN_HEADER, check_new, check_space
from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import Record
from glauber.foundation.parameters import MaskToken, ModelOrName, Seed, WhereAndDtype
from glauber.foundation.progress import check_count, check_memory, say, track
from glauber.foundation.study import Default, Result, counted, internal, reported, study
from glauber.models.base import (
    PAD,
    Conditionals,
    Model,
    check_temperature,
    mask_token_of,
    no_mask_token,
)
from glauber.models.load import load
from glauber.models.vocabulary import Text
from glauber.models.weights import check_device, choose_dtype, kind_of
from glauber.runs.log import Log, MemoryLog, Segment
from glauber.runs.run import Run
from glauber.runs.spec import Spec, versions
from glauber.sampling.advance import Session, advance_chains, stopped_by_interrupt
from glauber.sampling.plan import Plan
from glauber.sampling.sample import log_of
from glauber.texts.read import Row
from glauber.texts.starts import check_length

if TYPE_CHECKING:
    import plotly.graph_objects as go

LENGTH_SLOT = 2**30  # its noise draws a chain's length: no site and no sweep has that slot
MAX_PASSES = 10**5
MAX_PRINTED = 20  # texts
SCORE = (
    "the log-probability of the fill from left to right given the context, plus that of the "
    "blanks' lengths given the context (lengths equally likely beforehand), temperature 1"
)
KINDS = {
    "score": "estimate",
    "fill_log_prob": "exact for this order only; not the likelihood of the text",
    "length_log_prob": "estimate; 0 where one combination of lengths is tried",
}
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def check_fill_temperature(name: str, value: float) -> None:
    """Refuses what is no temperature; an unmasking can have the temperature 0."""
    Real(0.0)(name, value)
    if value > 0:
        check_temperature(value)


FillTemperature = Annotated[
    float,
    "0 takes the most probable token, 1 samples from the model as it is.",
    check_fill_temperature,
]


class FillOptions(WhereAndDtype, total=False):
    """How hidden tokens are filled, where the model runs, and where the run is stored."""

    order: Annotated[
        str, f"Which hidden token is filled first: {', '.join(ORDERS)}.", Default("confidence")
    ]
    count: Annotated[str | int, f"How many a pass fills: {COUNTS}.", Default("linear")]
    passes: Annotated[
        int | None,
        "Passes of linear and cosine (default: one token a pass).",
        Whole(1, MAX_PASSES),
        Default(None),
    ]
    block: Annotated[
        int | None, "Fill in blocks of so many tokens, from left to right.", Default(None)
    ]
    remask: Annotated[str, f"Which placed tokens are hidden again: {REMASKS}.", Default("none")]
    top_k: Annotated[int | None, "Draw among this many most probable tokens only.", Default(None)]
    top_p: Annotated[
        float | None, "Draw among the most probable tokens with this mass only.", Default(None)
    ]
    correct: Annotated[
        int, "Sweeps of Glauber redraws that revise the text at its end.", Default(0)
    ]
    correct_block: Annotated[
        int | None, "Tokens redrawn at once in a sweep (default: 1).", Default(None)
    ]
    correct_between: Annotated[
        bool, "Sweep after every pass, not only after the last one.", Default(False)
    ]
    batch_size: Annotated[
        int | None,
        "Texts filled together (default: all); changes nothing else.",
        Whole(1, 10**12),
        Default(None),
    ]
    out: Annotated[
        str | Path | None,
        "Folder of the run; one that was begun by this call is resumed.",
        Default(None),
    ]
    mask_token: Annotated[MaskToken, Default(None)]


@study
def generate(
    model: ModelOrName = "bundled:english",
    *,
    length: Annotated[int | str, "Tokens to write, or a range such as 12-30."] = 24,
    prefix: Annotated[str, "Text that comes before and is never changed."] = "",
    suffix: Annotated[str, "Text that comes after and is never changed."] = "",
    chains: Annotated[int, "Number of texts.", Whole()] = 8,
    error: Annotated[
        float | None,
        "Nats of KL that a pass may cost: order and count are then calibrated.",
        Real(0.0, above=True),
    ] = None,
    calibration: Annotated[
        str | Path | None, "A stored calibration: glauber calibrate --out FILE.json."
    ] = None,
    temperature: FillTemperature = 1.0,
    seed: Seed = 0,
    **options: Unpack[FillOptions],
) -> "Generation":
    """Write texts with a masked model: hide everything, then fill it pass by pass.

    By default one token a pass, where the model is surest first: the slowest way, and the best at
    temperature 1. Below, a random order repeats itself less. The same seed gives the same texts for
    any batch size and after any restart. The log-probability of a text is that of its path: the
    sum over its tokens, each in the distribution that it was drawn from (at temperature 0, the
    model's own). With correction, remasking or the order drawn, a path has none.
    With an error, at least 95% of the passes on texts like the bundled passages cost at most that
    many nats (see `calibrate`).
    """
    from glauber.studies.decoding.calibrate import within_error

    how = read_unmasking(options)
    calibrated = partial(
        within_error, error=error, calibration=calibration, temperature=float(temperature)
    )
    calibrated(None, how)
    shortest, longest = read_lengths(length)
    check_passes(how, shortest)
    out = check_out(options.get("out"))
    loaded = open_masked(model, **model_options(options))
    how = calibrated(loaded, how)
    lengths = draw_lengths(shortest, longest, chains, seed)
    if temperature == 0 and how.order != "random" and len(set(lengths)) < chains:
        say("at temperature 0 nothing is drawn: texts of one length are the same")
    planned = plan_generation(
        loaded,
        how,
        _hidden_rows(loaded, prefix, suffix, lengths),
        temperature=temperature,
        seed=seed,
        prefix=prefix,
        trust_remote_code=options.get("trust_remote_code", False),
        lengths=f"{shortest}-{longest}" if shortest < longest else str(shortest),
    )
    return generation(planned, write(planned, out=out, batch_size=options.get("batch_size")))


# ---- what is read and checked before any work


def read_unmasking(options: FillOptions) -> Unmasking:
    """How the options fill; refuses what does not go together."""
    names = {**{name: name for name in UNMASKING}, "between": "correct_between"}
    chosen: Any = {part: options[name] for part, name in names.items() if name in options}  # type: ignore[literal-required]
    how = Unmasking(**chosen)
    how.check()
    if "device" in options:
        check_device(options["device"])
    if how.passes is not None and not how.count_rule.has_plan:
        raise GlauberError(
            f"the count {how.count} has no number of passes: leave it out, or take linear or "
            "cosine."
        )
    if how.count_rule.kind == "number":
        check_count("number of tokens a pass", int(how.count_rule.value))
    if not how.correct and (how.between or how.correct_block is not None):
        raise GlauberError("there is nothing to correct: say by how many sweeps (correct).")
    return how


UNMASKING = tuple(name for name in asdict(Unmasking()) if name != "between")


def model_options(options: FillOptions) -> dict[str, Any]:
    """The options that open a model."""
    names = (*WhereAndDtype.__annotations__, "device", "trust_remote_code", "mask_token")
    return {name: value for name, value in options.items() if name in names}


def open_masked(model: str | Conditionals, *, dtype: str = "float32", **options: Any) -> Model:
    """The model, which must have a token for what is hidden."""
    choose_dtype(dtype)
    if isinstance(model, str) and (model.endswith(".gguf") or kind_of(model) == "causal"):
        raise no_mask_token(model)
    loaded = load(model, dtype=dtype, **options)
    mask_token_of(loaded)  # refuses models without one
    return loaded


def check_passes(how: Unmasking, fewest: int) -> None:
    """Refuses more passes than there are tokens to fill, of which no plan could fill one each."""
    tokens = fewest if how.block is None else min(how.block, fewest)
    if how.passes is not None and how.passes > tokens and how.remask_rule.kind == "none":
        block = "" if how.block is None else " of a block"
        raise GlauberError(
            f"{how.passes} passes are more than the {counted(tokens, 'hidden token')}{block}: each "
            "pass fills at least one, unless some are hidden again."
        )


def check_out(out: str | Path | None) -> Path | None:
    """The folder of a generation, which must be new or contain one."""
    if out is None:
        return None
    folder = Path(str(out))
    if not (folder / RUN_HEADER).is_file():
        check_new(folder)
    elif Run(folder).spec.unmasking is None:
        raise GlauberError(f"{folder} is a run of chains: choose another folder.")
    return folder


def read_lengths(length: int | str) -> tuple[int, int]:
    """The fewest and the most tokens, from 24 or 12-30."""
    ends = str(length).split("-")
    if isinstance(length, bool) or len(ends) > 2 or not all(e.strip().isdecimal() for e in ends):
        raise GlauberError(f"the length is {length!r}, but it must be a number or such as 12-30.")
    shortest, longest = int(ends[0]), int(ends[-1])
    check_count("length", shortest)
    check_count("length", longest)
    if longest < shortest:
        raise GlauberError(f"the length is {length}, but a range goes from the shorter one up.")
    return shortest, longest


def draw_lengths(shortest: int, longest: int, chains: int, seed: int) -> list[int]:
    """A length for each chain, drawn evenly by the chain's own noise."""
    bits, _ = random_bits(
        torch.tensor(seed), torch.arange(chains), torch.tensor(0), torch.tensor(LENGTH_SLOT)
    )
    return (shortest + (uniform(bits) * (longest - shortest + 1)).long()).tolist()


def _hidden_rows(model: Model, prefix: str, suffix: str, lengths: list[int]) -> Tensor:
    """Tokens (chains, longest) with so many hidden ones between prefix and suffix."""
    vocabulary = model.vocabulary
    for name, text in (("prefix", prefix), ("suffix", suffix)):
        if not isinstance(text, str):
            raise GlauberError(f"the {name} is {text!r}, but it must be one text.")
        vocabulary.check(text, f"the {name}")
    before, after = vocabulary.pieces(prefix), vocabulary.pieces(suffix)
    check_memory(32.0 * len(lengths) * max(lengths), counted(len(lengths), "text"))
    return rows_of(model, [[*before, *[mask_token_of(model)] * n, *after] for n in lengths])


def rows_of(model: Model, pieces: Iterable[list[int]]) -> Tensor:
    """Tokens (rows, longest) with the special ones around, refused where they are too long."""
    opening, closing = model.vocabulary.text.boundary_tokens
    rows = [torch.tensor([*opening, *row, *closing]) for row in pieces]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    check_length(model, tokens)
    return tokens


# ---- filling


class FillingLog(NamedTuple):
    """What was done to which site, one entry an event, in the order of passes."""

    chain: Integers
    step: Integers  # the pass, from 0
    part: Integers  # 0: of the pass itself; 1, 2, …: of a sweep after it
    site: Integers  # by position
    token: Integers  # placed, or the hidden token
    changed: NDArray[np.bool_]
    log_prob: Floats  # of the token when it was placed, in the distribution that was read

    @classmethod
    def of(cls, segment: Segment, length: int) -> "FillingLog":
        """The events (chains, steps, slots) of some passes."""
        events = segment.arrays
        step, chain, slot = np.nonzero(events["site"].transpose(1, 0, 2) >= 0)
        at = (chain, step, slot)
        return cls(
            chain,
            step + segment.first,
            slot // length,
            events["site"][at].astype(np.int64),
            events["token"][at].astype(np.int64),
            events["changed"][at],
            events["log_prob_new"][at].astype(np.float64),
        )

    @classmethod
    def of_log(cls, log: Log) -> "FillingLog":
        """The events of a generation."""
        length = log.free.shape[1]
        logs = [cls.of(segment, length) for segment in log.segments()]
        return cls(*(np.concatenate(column) for column in zip(*logs, strict=True)))


@dataclass(frozen=True, eq=False)
class GeneratedTexts:
    """Texts that were filled to the end."""

    tokens: Integers  # (chains, length)
    begin: NDArray[np.bool_]  # (chains, length): what was hidden
    passes: Integers  # (chains,)
    trace: FillingLog
    hidden_token: int
    run: Run | None = None

    @cached_property
    def log_probs(self) -> Floats:
        """Of each text (chains,): the sum over its tokens, each when it was last placed.

        That is the log-probability of the path only where each is placed once.
        """
        placed = np.zeros(self.tokens.shape)
        placed[self.trace.chain, self.trace.site] = self.trace.log_prob  # the last one counts
        return np.asarray((placed * self.begin).sum(axis=1))

    @cached_property
    def n_revised(self) -> Integers:
        """How often (chains,) a placed token was hidden again, or redrawn to another one."""
        trace = self.trace
        remasked = trace.token == self.hidden_token
        redrawn = (trace.part > 0) & trace.changed
        return np.bincount(trace.chain[remasked | redrawn], minlength=len(self.tokens))


def plan_generation(
    model: Model,
    how: Unmasking,
    tokens: Tensor,
    *,
    temperature: float,
    seed: int,
    prefix: str = "",
    frozen: Sequence[int] = (),
    trust_remote_code: bool = False,
    lengths: str = "",
) -> Plan:
    """The plan that fills the hidden sites of tokens (chains, length), PAD after shorter texts.

    frozen are the sites before the first hidden one, as people count them; lengths is the number or
    the range of tokens that was requested.
    """
    hidden = tokens == mask_token_of(model)
    spec = Spec(
        model=model.name,
        fingerprint=model.fingerprint,
        device=model.device.type,
        dtype=model.dtype,
        seed=seed,
        steps=int(most_passes(how, hidden).max()),
        chains=len(tokens),
        temperature=float(temperature),
        scan="unmasking",
        within="product",
        prefix=prefix,
        frozen=list(frozen),
        trust_remote_code=trust_remote_code,
        versions=versions(),
        standard_only=True,
        unmasking=asdict(how) | ({"length": lengths} if lengths else {}),
        own=model.is_own,
    )
    return Plan(model, spec, tokens, hidden)


def write(
    planned: Plan, *, out: Path | None = None, batch_size: int | None = None
) -> GeneratedTexts:
    """Fill the hidden sites of every chain to the end; stored and resumed where out is given."""
    how, hidden = planned.unmasking, planned.free
    assert how is not None
    n_chains, length = hidden.shape
    check_memory(200.0 * n_chains * length, f"{counted(n_chains, 'text')} of {length} tokens")
    sweeps = f" and {counted(how.correct, 'sweep')} of correction" if how.correct else ""
    say(f"{counted(n_chains, 'text')}, passes at most: {planned.spec.steps:,}{sweeps}")
    if out is not None and not (out / RUN_HEADER).is_file():
        check_space(out, planned.size)
    with log_of(planned, out) as log:
        if log.steps < log.spec.steps:
            _advance(planned, log, batch_size)
        trace, tokens = FillingLog.of_log(log), log.tokens().astype(np.int64)
    if how.count_rule.has_plan:
        passes = most_passes(how, hidden).numpy().astype(np.int64)
    else:  # each pass fills a site of a chain that has not ended
        passes = np.zeros(n_chains, np.int64)
        np.maximum.at(passes, trace.chain, trace.step + 1)
    run = None if log.folder is None else Run(log.folder)
    return GeneratedTexts(tokens, hidden.numpy(), passes, trace, mask_token_of(planned.model), run)


def _advance(planned: Plan, log: Log, batch_size: int | None) -> None:
    """Make the missing passes; an interrupt commits those that are made."""
    with track("passes", planned.spec.steps) as bar:
        session = Session(lambda now: bar(to=now.step))
        with stopped_by_interrupt(session):
            advance_chains(planned, log, batch_size=batch_size, session=session)
        bar(to=planned.spec.steps)
    if session.stopping:
        resume = "" if isinstance(log, MemoryLog) else "; the same call resumes it"
        raise KeyboardInterrupt(f"stopped after {counted(log.steps, 'pass')}{resume}")
    log.describe(replace(log.spec, steps=log.steps))  # texts may be full before the last pass


# ---- the result


@dataclass(frozen=True, eq=False)
class FillScores:
    """Scores of filled blanks in nats, (rows,) each."""

    fill: Floats  # log p(f | c, k): exact for the order from left to right, up to rounding
    length: Floats  # log p(k | c) among the lengths tried: an estimate; 0 where one was tried

    @property
    def total(self) -> Floats:
        """log p(k, f | c): what fills of one text are ranked by."""
        return self.fill + self.length


@dataclass(frozen=True, eq=False)
class Blanks:
    """Which text each row fills, with how many tokens in each of its blanks, and how likely."""

    text: tuple[Row, ...]  # as its source spells it
    lengths: tuple[tuple[int, ...], ...]  # tokens of each blank
    scores: FillScores

    @cached_property
    def ranking(self) -> list[int]:
        """Rows by text, then by falling score."""
        numbers = np.array([row.number for row in self.text])
        return [int(i) for i in np.lexsort((-self.scores.total, numbers))]


@dataclass(frozen=True, eq=False, kw_only=True)
class Generation(Result):
    """Texts that were filled, one for each chain."""

    model: str
    temperature: float
    seed: int
    texts: list[str]
    written: GeneratedTexts = internal()
    spelling: Text = internal()
    without_path: str = internal(default="")  # why the path has no log-probability
    blanks: Blanks | None = internal(default=None)  # of texts that were filled in

    @cached_property
    def log_probs(self) -> Floats:
        """The log-probability of each text along the path that was taken, (texts,).

        NaN with correction, with remasking and with the order `drawn`, where the tokens that were
        placed are not all that was drawn.
        """
        if self.without_path:
            return np.full(len(self.texts), np.nan)
        return self.written.log_probs

    @cached_property
    def tokens(self) -> Integers:
        """How many tokens of each text were filled, (texts,)."""
        return np.asarray(self.written.begin.sum(axis=1))

    @property
    def passes(self) -> Integers:
        """Passes of each text, (texts,)."""
        return self.written.passes

    @property
    def n_revised(self) -> Integers:
        """How often a placed token was hidden again, or redrawn to another one, (texts,)."""
        return self.written.n_revised

    @property
    def run(self) -> Run | None:
        """The stored run, where a folder was given."""
        return self.written.run

    @property
    def ranking(self) -> list[int]:
        """Rows of fills by text, then by falling score; of other texts, as they come."""
        return list(range(len(self.texts))) if self.blanks is None else self.blanks.ranking

    @reported
    def log_prob(self) -> str:
        """What the log-probabilities are of."""
        none = f"none, because {self.without_path}"
        return none if self.without_path else "of the path taken, exact"

    @reported
    def score(self) -> str | None:
        """What the scores are of."""
        return None if self.blanks is None else SCORE

    @reported
    def kinds(self) -> dict[str, str] | None:
        """What each number is: exact, a bound or an estimate."""
        return None if self.blanks is None else KINDS

    @reported
    def run_folder(self) -> str | None:
        """The folder of the run, if it is stored."""
        return None if self.run is None else str(self.run.folder)

    @reported
    def rows(self) -> list[Record]:
        """One row per text; of texts with blanks, the best fill of each first."""
        rows: list[Record] = []
        rank = 0
        for chain in self.ranking:
            row: Record = {}
            if self.blanks is not None:
                text, scores = self.blanks.text[chain], self.blanks.scores
                same = bool(rows) and rows[-1]["number"] == text.number
                rank = rank + 1 if same else 1
                row = {
                    "number": text.number,
                    "id": text.id,
                    "input": text.text,
                    "rank": rank,
                    "blanks": ",".join(map(str, self.blanks.lengths[chain])),
                    "score": float(scores.total[chain]),
                    "fill_log_prob": float(scores.fill[chain]),
                    "length_log_prob": float(scores.length[chain]),
                }
            total, tokens = float(self.log_probs[chain]), int(self.tokens[chain])
            row |= {
                "chain": chain,
                "text": self.texts[chain],
                "tokens": tokens,
                "log_prob": total,
                "log_prob_per_token": total / tokens,
                "passes": int(self.passes[chain]),
                "revised": int(self.n_revised[chain]),
            }
            rows.append(row)
        return rows

    def table(self) -> Iterable[Record]:
        """One row per text."""
        return self.rows

    def lines(self) -> Iterable[str]:
        rows = self.rows
        for row in rows[:MAX_PRINTED]:
            yield self._line(row)
        if len(rows) > MAX_PRINTED:
            yield f"… and {counted(len(rows) - MAX_PRINTED, 'more text')}"
        yield ""
        yield (
            f"{counted(len(rows), 'text')}; tokens filled in each: {_range(self.tokens)}, "
            f"passes: {_range(self.passes)}, tokens revised: {int(self.n_revised.sum()):,}"
        )
        if self.blanks is not None:
            yield f"ranked by {SCORE}"
        if self.without_path:
            yield f"log-probability of the path: none, because {self.without_path}"
        else:
            mean = float(self.log_probs.sum() / self.tokens.sum())
            yield (
                f"log-probability a token along the paths taken: {mean:.2f} (exact, of these texts)"
            )
        if self.run is not None:
            yield f"run: {self.run.folder}"

    def _line(self, row: Record) -> str:
        if self.blanks is None:
            return str(row["text"])
        number = f"{row['number']:>4}." if len({*self.blanks.text}) > 1 else ""
        lengths = f"  {row['blanks']:>7}" if len({*self.blanks.lengths}) > 1 else ""
        return f"{number}{row['rank']:>3}  {row['score']:7.2f}{lengths}  {row['text']}"

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.generation import plot_filling

        best = self.ranking[0]
        return {"order": plot_filling(*self.filling(best), self.texts[best])}

    def filling(self, chain: int) -> tuple[Floats, list[list[str]], list[str], list[str]]:
        """The path of one chain: probabilities (moments, sites), tokens, moments, sites.

        A moment is a pass, or a sweep of correction after it; a site is one that was hidden.
        """
        trace, hidden = self.written.trace, self.written.begin[chain].nonzero()[0].tolist()
        events = (trace.chain == chain).nonzero()[0].tolist()
        moments = sorted({(int(trace.step[event]), int(trace.part[event])) for event in events})
        probs = np.full((len(moments), len(hidden)), np.nan)
        tokens = [[""] * len(hidden) for _ in moments]
        for event in events:
            row = moments.index((int(trace.step[event]), int(trace.part[event])))
            column = hidden.index(int(trace.site[event]))
            token = int(trace.token[event])
            if token == self.written.hidden_token:
                probs[row, column], tokens[row][column] = 0.0, "-"
            else:
                probs[row, column] = np.exp(trace.log_prob[event])
                tokens[row][column] = self.spelling.parts([token])[0].strip()
        names = [
            f"{step + 1}" if part == 0 else f"{step + 1}, sweep {part}" for step, part in moments
        ]
        first = len(self.spelling.boundary_tokens[0])
        return probs, tokens, names, [str(site - first) for site in hidden]


def generation(planned: Plan, written: GeneratedTexts, blanks: Blanks | None = None) -> Generation:
    """The texts of a plan as a result."""
    temperature, how = planned.spec.temperatures[0], planned.unmasking
    assert how is not None
    vocabulary = planned.model.vocabulary
    return Generation(
        model=planned.model.name,
        temperature=temperature,
        seed=planned.spec.seed,
        texts=[vocabulary.decode(t for t in row if t != PAD) for row in written.tokens.tolist()],
        written=written,
        spelling=vocabulary.text,
        without_path=how.without_path(temperature),
        blanks=blanks,
    )


def _range(numbers: Integers) -> str:
    least, most = int(numbers.min()), int(numbers.max())
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
