"""What was written, how sure was the model of it, and in which order was it filled?"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from glauber.conditionals.base import PAD
from glauber.conditionals.texts import Row
from glauber.conditionals.vocabulary import Text
from glauber.dynamics.unmasking import Unmasking
from glauber.generation.fill_scores import FillScores, fill_scores
from glauber.generation.writing import Written
from glauber.json_text import Record
from glauber.result import Result, counted, plain
from glauber.runs.run import Run
from glauber.sampling.plan import Plan

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

SHOWN = 20  # texts written out for a person
SCORE = (
    "the log-probability of the fill from left to right given the context, plus that of the "
    "blanks' lengths given the context (lengths equally likely beforehand), temperature 1"
)
KINDS = {
    "score": "estimate",
    "fill_log_prob": "exact for this order only; not the likelihood of the text",
    "length_log_prob": "estimate; 0 where one combination of lengths is tried",
}


@dataclass(frozen=True, eq=False)
class Blanks:
    """Which text each row fills, and with how many tokens in each of its blanks."""

    text: tuple[Row, ...]  # as it was given
    lengths: tuple[tuple[int, ...], ...]  # tokens of each blank


@dataclass(frozen=True, eq=False)
class Generation(Result):
    """Texts that were filled, one for each chain."""

    texts: list[str]
    written: Written
    spelling: Text
    model: str
    temperature: float
    seed: int
    signature: str
    without_path: str = ""  # why the path has no log-probability; empty where it has one
    blanks: Blanks | None = None  # of texts that were filled in
    scores: FillScores | None = None  # of texts that were filled in

    @cached_property
    def log_probs(self) -> NDArray[np.float64]:
        """The log-probability of each text along the path that was taken, (texts,).

        NaN with correction, with remasking and with the order `drawn`, where the tokens that were
        placed are not all that was drawn.
        """
        if self.without_path:
            return np.full(len(self.texts), np.nan)
        return self.written.log_probs

    @cached_property
    def tokens(self) -> NDArray[np.int64]:
        """How many tokens of each text were filled, (texts,)."""
        return np.asarray(self.written.begin.sum(axis=1))

    @property
    def passes(self) -> NDArray[np.int64]:
        """Passes of each text, (texts,)."""
        return self.written.passes

    @cached_property
    def revised(self) -> NDArray[np.int64]:
        """How often a placed token was hidden again, or redrawn to another one, (texts,)."""
        return self.written.revised

    @property
    def run(self) -> Run | None:
        """The stored run, where a folder was given."""
        return self.written.run

    @cached_property
    def ranking(self) -> list[int]:
        """Rows of fills by given text, then by falling score; of other texts, as they come."""
        if self.blanks is None or self.scores is None:
            return list(range(len(self.texts)))
        numbers = np.array([row.number for row in self.blanks.text])
        return [int(i) for i in np.lexsort((-self.scores.total, numbers))]

    def rows(self) -> list[dict[str, Any]]:
        """One row per text; of texts with blanks, the best fill of each first."""
        if self.blanks is None:
            return [self._row(chain) for chain in range(len(self.texts))]
        rows: list[dict[str, Any]] = []
        for chain in self.ranking:
            row = self.blanks.text[chain]
            rank = rows[-1]["rank"] + 1 if rows and rows[-1]["number"] == row.number else 1
            given = {"number": row.number, "id": row.id, "input": row.text, "rank": rank}
            blanks = {"blanks": ",".join(map(str, self.blanks.lengths[chain]))}
            rows.append(given | blanks | self._scores(chain) | self._row(chain))
        return rows

    def _scores(self, chain: int) -> dict[str, float]:
        if self.scores is None:
            return {}
        return {
            "score": float(self.scores.total[chain]),
            "fill_log_prob": float(self.scores.fill[chain]),
            "length_log_prob": float(self.scores.length[chain]),
        }

    def _row(self, chain: int) -> Record:
        total, tokens = float(self.log_probs[chain]), int(self.tokens[chain])
        return {
            "chain": chain,
            "text": self.texts[chain],
            "tokens": tokens,
            "log_prob": total,
            "log_prob_per_token": total / tokens,
            "passes": int(self.passes[chain]),
            "revised": int(self.revised[chain]),
        }

    def to_dict(self) -> Record:
        return {
            "texts": plain(self.rows()),
            "log_prob": self._path_kind,
            **({} if self.scores is None else {"score": SCORE, "kinds": KINDS}),
            "temperature": float(self.temperature),
            "seed": self.seed,
            "run": None if self.run is None else str(self.run.folder),
            "signature": self.signature,
        }

    @property
    def _path_kind(self) -> str:
        none = f"none, because {self.without_path}"
        return none if self.without_path else "of the path taken, exact"

    def lines(self) -> Iterable[str]:
        rows = self.rows()
        for row in rows[:SHOWN]:
            yield self._line(row)
        if len(rows) > SHOWN:
            yield f"… and {counted(len(rows) - SHOWN, 'more text')}"
        yield ""
        yield (
            f"{counted(len(rows), 'text')}; tokens filled in each: {_range(self.tokens)}, "
            f"passes: {_range(self.passes)}, tokens revised: {int(self.revised.sum()):,}"
        )
        if self.scores is not None:
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

    def _line(self, row: dict[str, Any]) -> str:
        if self.blanks is None:
            return str(row["text"])
        given = f"{row['number']:>4}." if len({*self.blanks.text}) > 1 else ""
        lengths = f"  {row['blanks']:>7}" if len({*self.blanks.lengths}) > 1 else ""
        return f"{given}{row['rank']:>3}  {row['score']:7.2f}{lengths}  {row['text']}"

    def frame(self) -> "pandas.DataFrame":
        """One row per text."""
        import pandas

        return pandas.DataFrame(self.rows())

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.generation import plot_filling

        best = self.ranking[0] if self.blanks else 0
        return {"order": plot_filling(*self.filling(best), self.texts[best])}

    def filling(
        self, chain: int
    ) -> tuple[NDArray[np.float64], list[list[str]], list[str], list[str]]:
        """The path of one chain: probabilities (moments, sites), tokens, moments, sites.

        A moment is a pass, or a sweep of correction behind it; a site is one that was hidden.
        """
        trace, hidden = self.written.trace, self.written.begin[chain].nonzero()[0]
        own = trace.chain == chain
        moments = sorted({*zip(trace.step[own].tolist(), trace.part[own].tolist(), strict=True)})
        row, column = (
            {m: i for i, m in enumerate(moments)},
            {int(s): i for i, s in enumerate(hidden)},
        )
        probs = np.full((len(moments), len(hidden)), np.nan)
        tokens = [[""] * len(hidden) for _ in moments]
        for event in own.nonzero()[0]:
            at = row[int(trace.step[event]), int(trace.part[event])], column[int(trace.site[event])]
            probs[at] = np.exp(trace.log_prob[event])
            token = int(trace.token[event])
            if token == self.written.hidden_token:
                probs[at], tokens[at[0]][at[1]] = 0.0, "-"
            else:
                tokens[at[0]][at[1]] = self.spelling.parts([token])[0].strip()
        names = [
            f"{step + 1}" if part == 0 else f"{step + 1}, sweep {part}" for step, part in moments
        ]
        first = len(self.spelling.around[0])
        return probs, tokens, names, [str(int(site) - first) for site in hidden]


def generation(
    planned: Plan, written: Written, made: str, blanks: Blanks | None = None
) -> Generation:
    """The texts of a plan; fills of blanks are scored anew."""
    model, how, temperature = planned.model, planned.unmasking, planned.spec.temperatures[0]
    vocabulary = model.vocabulary
    assert how is not None
    scores = None
    if blanks is not None:
        tokens = torch.from_numpy(written.tokens).to(model.state_device)
        hidden = torch.from_numpy(written.begin).to(model.state_device)
        proposable = vocabulary.proposable().to(model.state_device)
        known = (tokens >= 0) & (tokens < len(proposable))
        scored = known & ~hidden & proposable[torch.where(known, tokens, 0)]
        numbers = [row.number for row in blanks.text]
        groups = list(zip(numbers, blanks.lengths, strict=True))
        scores = fill_scores(model.conditionals(), tokens, hidden, scored=scored, groups=groups)
    return Generation(
        texts=[vocabulary.decode(t for t in row if t != PAD) for row in written.tokens.tolist()],
        written=written,
        spelling=vocabulary.text,
        model=model.name,
        temperature=temperature,
        seed=planned.spec.seed,
        signature=made,
        without_path=how.without_path(temperature),
        blanks=blanks,
        scores=scores,
    )


def spoken(how: Unmasking) -> Record:
    """What a signature says of an unmasking: the parts that do something."""
    return {name: value for name, value in asdict(how).items() if value and value != "none"}


def _range(numbers: NDArray[np.int64]) -> str:
    least, most = int(numbers.min()), int(numbers.max())
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
