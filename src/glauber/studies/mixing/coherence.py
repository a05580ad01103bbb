"""How coherent a run's texts are over time: their pseudo-log-likelihood per token.

The score of a state is the mean over its free sites of log pi_i(x_i | the others), in nats at
temperature 1. It is a declared stand-in: a text that the model finds likely token by token need not
make sense to a reader, and a repeated token scores high. With a judge, another model scores the
texts instead. A state counts as coherent if its score is at least a level, which is by default the
tenth percentile of the starts: nine starts in ten are coherent by definition.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.foundation.checks import Real, Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import RunDevice, RunModel, Trust
from glauber.foundation.progress import Advance, say, track
from glauber.foundation.statistics import Estimate, MedianTime, mean_over_chains, median_time
from glauber.foundation.study import Result, internal, reported, study
from glauber.models.base import Conditionals, log_probs
from glauber.models.batching import in_parts
from glauber.models.load import load
from glauber.models.weights import check_device
from glauber.runs.run import Run
from glauber.runs.snapshots import snapshots
from glauber.sampling.reopened import drawn_from
from glauber.texts.starts import starts

Floats = NDArray[np.float64]
QUANTILE = 0.1  # of the starts, where the level lies by default
NEGATIVE = (-np.inf, 0.0)  # bounds of a score


@study
def coherence(
    run: Annotated[Run | str | Path, "A run, or its folder."],
    *,
    every: Annotated[int, "One snapshot every so many steps.", Whole()] = 50,
    level: Annotated[
        float | None,
        "Score from which a text counts as coherent (default: the tenth percentile of the starts).",
        Real(high=0.0),
    ] = None,
    judge: Annotated[
        str | Conditionals | None, "Another model that scores the texts (default: the run's own)."
    ] = None,
    model: RunModel = None,
    device: RunDevice = None,
    trust_remote_code: Trust = False,
) -> "Coherence":
    """Follow how coherent a run's texts are: pseudo-log-likelihood per token over time.

    Paper A conjectures that chains leave coherent texts soon and are mostly in incoherent ones
    (section 7), and names no score. Here it is the mean over the free tokens of the log-probability
    of each one given the others, at temperature 1, by the run's model or a judge. Reported: the
    score over time, the share of the later half of the snapshots below the level, and the median
    time until a chain is first below it (Kaplan and Meier).
    """
    opened = Run.of(run)
    check_device(device)
    texts = snapshots(opened, every=every)
    if judge is None:
        drawn = drawn_from(opened, model=model, device=device, trust_remote_code=trust_remote_code)
        conditionals, where = drawn.conditionals, drawn.device
        tokens = torch.from_numpy(texts.tokens.astype(np.int64)).flatten(0, 1)
        free = torch.from_numpy(opened.free.repeat(len(texts), axis=0))
    else:
        judging = load(
            judge, exact=True, device=device or "auto", trust_remote_code=trust_remote_code
        )
        every_text = [text for chain in texts.texts for text in chain]
        tokens, free = starts(judging, every_text, unknown="token")
        if len(tokens) < len(every_text):
            raise GlauberError(
                f"{judging.name} cannot read {len(every_text) - len(tokens):,} of the "
                f"{len(every_text):,} texts, so it cannot judge this run."
            )
        conditionals, where = judging, judging.state_device
    say(f"{len(tokens):,} texts of {texts.n_chains:,} chains, equal ones scored once")
    with track("tokens", int(free.sum())) as advance:
        scores = mean_log_prob(conditionals, tokens.to(where), free.to(where), advance=advance)
    if not np.isfinite(scores).all():
        raise GlauberError("some text has no token that the model can draw, so it has no score.")
    values = scores.reshape(texts.n_chains, len(texts))
    return Coherence(
        run=opened.name,
        judge=opened.spec.model if judge is None else judging.name,
        temperatures=opened.temperatures,
        steps=texts.steps,
        values=values,
        level=float(np.quantile(values[:, 0], QUANTILE)) if level is None else level,
        level_given=level is not None,
        start_text=np.unique(texts.tokens[:, 0], axis=0, return_inverse=True)[1].ravel(),
    )


def mean_log_prob(
    conditionals: Conditionals,
    tokens: Tensor,
    free: Tensor,
    *,
    advance: Advance = lambda *_, **__: None,
) -> Floats:
    """The pseudo-log-likelihood per token (rows,) of the free tokens, equal rows scored once.

    Tokens that cannot be drawn, such as unknown ones at the start, do not count; NaN without any.
    """
    rows = torch.cat([tokens, free.to(tokens.dtype)], dim=1)
    rows, inverse = rows.unique(dim=0, return_inverse=True)
    states, is_free = rows.split(tokens.shape[1], dim=1)
    numbers, sites = is_free.nonzero(as_tuple=True)
    sums, counts = torch.zeros(2, len(states), dtype=torch.float64)
    for part in in_parts(torch.arange(len(numbers)), conditionals.vocab_size):
        row, site = numbers[part.to(numbers.device)], sites[part.to(sites.device), None]
        every = log_probs(conditionals, states[row], site)[:, 0]
        present = states[row].gather(1, site).to(every.device)
        own = every.gather(1, present)[:, 0].cpu()
        sums.index_add_(0, row.cpu(), own.masked_fill(own.isinf(), 0.0))
        counts.index_add_(0, row.cpu(), own.isfinite().double())
        advance(len(part))
    return np.asarray((sums / counts)[inverse.cpu()].numpy())


@dataclass(frozen=True, eq=False)
class Coherence(Result):
    """The pseudo-log-likelihood per token of a run's texts over time."""

    run: str
    judge: str  # the model that scored them
    temperatures: Floats  # (chains,)
    steps: NDArray[np.int64]  # (snapshots,)
    level: float  # from which a text counts as coherent
    level_given: bool  # False: the tenth percentile of the starts
    values: Floats = internal()  # (chains, snapshots), in nats a token
    start_text: NDArray[np.intp] = internal()  # (chains,): equal for chains that began alike

    FIGURES = {"coherence": "glauber.interfaces.plots.mixing:plot_coherence"}

    @property
    def late(self) -> Floats:
        """The scores of the later half of the snapshots (chains, snapshots)."""
        return self.values[:, self.values.shape[1] // 2 :]

    @property
    def mostly_incoherent(self) -> NDArray[np.bool_]:
        """Whether a chain is below the level in more than half of the later snapshots (chains,)."""
        return np.asarray((self.late < self.level).mean(axis=1) > 0.5)

    @reported
    def at_start(self) -> Estimate:
        """The mean score of the different starts: chains that began alike count once."""
        _, first = np.unique(self.start_text, return_index=True)
        return mean_over_chains(self.values[first, 0], bounds=NEGATIVE)

    @reported
    def later(self) -> Estimate:
        """The mean score over the later half."""
        return mean_over_chains(self.late.mean(axis=1), bounds=NEGATIVE)

    @reported
    def change(self) -> Estimate:
        """The mean score over the later half less that of the start, chain by chain."""
        return mean_over_chains(self.late.mean(axis=1) - self.values[:, 0])

    @reported
    def incoherent(self) -> Estimate:
        """The share of the later half of the snapshots that is below the level."""
        return mean_over_chains((self.late < self.level).mean(axis=1), bounds=(0.0, 1.0))

    @reported
    def first_incoherent(self) -> MedianTime:
        """The median step of the first snapshot below the level, of chains that began above it."""
        above = self.values[:, 0] >= self.level
        below = self.values[above] < self.level
        left = below.any(axis=1)
        return median_time(np.where(left, self.steps[below.argmax(axis=1)], self.steps[-1]), left)

    def lines(self) -> Iterable[str]:
        yield f"pseudo-log-likelihood per token by {self.judge}, in nats at temperature 1"
        yield f"at the start {self.at_start.text()}; later half {self.later.text()} (estimates)"
        which = "" if self.level_given else ", the tenth percentile of the starts"
        yield f"a text counts as coherent from {self.level:.3g} on{which}"
        yield f"share of the later half below it: {self.incoherent.text()} (estimate)"
        median = self.first_incoherent.value
        time = "lies beyond the run" if median is None else f"{median:,.0f} steps (estimate)"
        yield f"median time until a chain is first below it: {time}"

    def table(self) -> dict[str, object]:
        """One row per chain and snapshot."""
        n_chains, n = self.values.shape
        return {
            "chain": np.repeat(np.arange(n_chains), n),
            "temperature": np.repeat(self.temperatures, n),
            "step": np.tile(self.steps, n_chains),
            "score": self.values.ravel(),
        }
