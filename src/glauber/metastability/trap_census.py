"""What is there to say of each trap?

A trap's representative is the state in which the chain spent most steps of the episode. It holds
what the theorem speaks of: its gaps, whether it is perfect, the bound on its escape and, beside it,
its exact holding time. The escape that happened is read from the run's events.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from glauber.conditionals.base import Conditionals
from glauber.conditionals.starts import people_of
from glauber.dynamics.scans import scan_named
from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.metastability.episodes import (
    Episode,
    Ints,
    Sojourns,
    Stay,
    by_time,
    stay_beyond_choice,
)
from glauber.metastability.margins import Margins, format_log, log_to_json, margins_of
from glauber.progress import say, track
from glauber.result import plain
from glauber.runs.run import Run
from glauber.runs.spec import Spec, refuse_ties
from glauber.sampling.reopened import of_chain

Key = tuple[bytes, bytes, float]  # a state, its free sites and its temperature


@dataclass(frozen=True)
class Escape:
    """The step that left a representative for the last time in its episode. Exact, as recorded."""

    step: int
    site: int  # in the row of tokens
    old: int  # the token that was there
    new: int  # the token that was drawn
    probability: float  # of the new token, given that the site was redrawn
    kind: str = "exact"


@dataclass(frozen=True)
class LeftOut:
    """An episode that is long enough for a trap, but has no state with gaps."""

    episode: Episode
    reason: str

    def line(self) -> str:
        """The episode in one sentence."""
        least = "" if self.episode.ended else "at least "
        return (
            f"not counted: chain {self.episode.chain}, from step {self.episode.first:,}, {least}"
            f"{self.episode.duration:,} steps: {self.reason}"
        )


@dataclass(frozen=True, eq=False)
class Trap:
    """An episode, its representative state and how firmly that holds itself."""

    episode: Episode
    tokens: Ints  # (length,): the representative; of equally long ones, the first
    text: str
    share: float  # of the episode's steps that were spent in the representative
    seen: Stay  # in the representative, corrected for its choice
    margins: Margins  # of the representative, at the chain's temperature
    escape: Escape | None  # none if the run ended first
    spelled: dict[int, str]  # the tokens named below, as the vocabulary spells them
    numbers: Sequence[int]  # (length,): sites for people, without special tokens and prefix

    @property
    def duration(self) -> int:
        return self.episode.duration

    @property
    def perfect(self) -> bool:
        """Whether each token of the representative is the likeliest at its site."""
        return self.margins.perfect

    @property
    def mean_gap(self) -> float:
        return self.margins.mean_gap

    @property
    def min_gap(self) -> float:
        return self.margins.margin

    @property
    def weakest(self) -> int:
        """The site with the smallest gap, in the row of tokens."""
        return self.margins.sites[int(self.margins.gaps.argmin())]

    @property
    def promise(self) -> str:
        """What the theorem's bound says of the mean holding time."""
        log = self.margins.log_escape_bound
        if log is None:
            return "no bound: not a perfect trap"
        if self.margins.vacuous:
            return "the theorem's bound is vacuous"
        return f"theorem: at least {format_log(-log)}"

    def row(self) -> dict[str, Any]:
        """The trap as one row of a table."""
        return {
            "chain": self.episode.chain,
            "text": self.text,
            "first": self.episode.first,
            "last": self.episode.last,
            "duration": self.duration,
            "duration_kind": self.episode.kind,
            "temperature": self.margins.temperature,
            "share_in_text": self.share,
            "perfect": self.perfect,
            "mean_gap": self.mean_gap,
            "min_gap": self.min_gap,
            "not_likeliest": int((self.margins.gaps <= 0).sum()),
            "escape_bound": self.margins.escape_bound,
            "bound_says": self.promise,
            "holding_time": self.margins.holding_time,
            "observed_holding_time": self.seen.mean,
            "observed_steps": self.seen.steps,
            "observed_departures": self.seen.departures,
            "weakest_site": self.numbers[self.weakest],
            "weakest_token": self.spelled[int(self.tokens[self.weakest])],
        }

    def to_dict(self) -> Record:
        """The trap as JSON holds it, each figure with its kind."""
        row, escape = self.row(), self.escape
        kind = self.margins.kind
        kinds = {
            "duration": row.pop("duration_kind"),
            "mean_gap": kind,
            "min_gap": kind,
            "observed_holding_time": "estimate",
        }
        held = plain(log_to_json(-self.margins.log_escape_rate, kind))
        bound = plain(log_to_json(self.margins.log_escape_bound, self.margins.bound_kind))
        weakest = {"site": row.pop("weakest_site"), "token": row.pop("weakest_token")}
        figures = {k: {"value": v, "kind": kinds[k]} if k in kinds else v for k, v in row.items()}
        left = None if escape is None else {
            "step": escape.step, "site": self.numbers[escape.site],
            "old": self.spelled[escape.old], "new": self.spelled[escape.new],
            "probability": escape.probability, "kind": escape.kind,
        }  # fmt: skip
        logged = {"escape_bound": bound, "holding_time": held}
        return figures | logged | {"weakest": weakest, "escape": left}

    def lines(self) -> list[str]:
        """The trap for a person: when, its text, its gaps, how long it holds, how it was left."""
        kind = "perfect" if self.perfect else "approximate"
        least = "" if self.episode.ended else "at least "
        exact = self.margins.kind
        weak = self.spelled[int(self.tokens[self.weakest])]
        return [
            f"chain {self.episode.chain}, from step {self.episode.first:,}: {least}"
            f"{self.duration:,} steps, {kind}",
            self.text,
            f"gaps: mean {self.mean_gap:.2f}, min {self.min_gap:.2f} at {weak!r}, site "
            f"{self.numbers[self.weakest]} ({exact})",
            f"this text ({self.share:.0%} of the steps) holds {self._held()} ({exact}; "
            f"{self.promise}; {self._seen()})",
            self._escape_line(),
        ]

    def _held(self) -> str:
        log = -self.margins.log_escape_rate
        if not np.isfinite(log):
            return "for ever"
        held = self.margins.holding_time
        return f"{held:,.1f} steps" if held < 1e6 else f"{format_log(log)} steps"

    def _seen(self) -> str:
        steps, departures = self.seen.steps, self.seen.departures
        if self.seen.mean is None:
            return f"seen {steps:,} steps, not left" if steps else "seen: no step beyond its choice"
        times = "once" if departures == 1 else f"{departures} times"
        return f"seen {self.seen.mean:,.1f}: {steps:,} steps beyond its choice, left {times}"

    def _escape_line(self) -> str:
        escape = self.escape
        if escape is None:
            return "it was still there when the run ended"
        number = self.numbers[escape.site]
        where = "the weakest site" if escape.site == self.weakest else f"site {number}"
        return (
            f"left at step {escape.step:,}: {self.spelled[escape.old]!r} became "
            f"{self.spelled[escape.new]!r} (probability {escape.probability:.2g}) at {where}"
        )


def census(
    run: Run,
    conditionals: Conditionals,
    episodes: Sequence[Episode],
    paths: Sequence[Sojourns],
    *,
    shortest: int = 1,
    window: int = 0,
    device: torch.device | str = "cpu",
    known: dict[Key, Margins | None] | None = None,
) -> tuple[list[Trap], list[LeftOut]]:
    """The traps behind the episodes of a run whose chains' paths are given, and those without one.

    conditionals are those that the run drew from. A start may hold a token that is never drawn. A
    state with such a token has no gaps, so the representative is the longest-held state without
    one; an episode without such a state is left out, and said. The holding time is that of a random
    scan of single sites, so other runs are refused. shortest and window are what the detector asked
    of an episode: so many steps, and so many behind it. known keeps what the model has said of a
    state, for texts that come back and for another detector.
    """
    check_kernel(run.spec)
    rows = sum(int(run.free[episode.chain].sum()) for episode in episodes)
    if episodes:
        say(f"{len(episodes):,} traps: at most {rows:,} rows through the model")
    found: list[Trap | LeftOut] = []
    known = {} if known is None else known
    log_probs = run.read("log_prob_new") if episodes else np.empty(0)
    numbers = people_of(run.vocabulary, range(run.free.shape[1]), prefix=run.spec.prefix)
    with track("traps", len(episodes)) as advance:
        for episode in episodes:
            path, drawn = paths[episode.chain], log_probs[episode.chain, :, 0]
            asked = shortest, window
            found.append(
                _trap(run, conditionals, episode, path, drawn, asked, numbers, device, known)
            )
            advance()
    traps = [one for one in found if isinstance(one, Trap)]
    return traps, [one for one in found if isinstance(one, LeftOut)]


def _trap(
    run: Run,
    conditionals: Conditionals,
    episode: Episode,
    path: Sojourns,
    log_probs: Any,
    asked: tuple[int, int],
    numbers: Sequence[int],
    device: torch.device | str,
    known: dict[Key, Margins | None],
) -> Trap | LeftOut:
    touched, counts = path.between(episode.first, episode.last)
    for tokens, steps in by_time(path.states[touched], counts):
        held = _margins(run, conditionals, episode.chain, tokens, device, known)
        if held is None:
            continue
        same = touched[(path.states[touched] == tokens).all(axis=1)]
        escape = _escape(path, int(same[-1]), log_probs)
        weak = int(tokens[held.sites[int(held.gaps.argmin())]])
        named = {weak} if escape is None else {weak, escape.old, escape.new}
        return Trap(
            episode=episode,
            tokens=tokens,
            text=run.vocabulary.decode(tokens),
            share=float(steps / episode.duration),
            seen=stay_beyond_choice(path, episode, tokens, *asked),
            margins=held,
            escape=escape,
            spelled={token: run.vocabulary.spell(token) for token in named},
            numbers=numbers,
        )
    return LeftOut(episode, "every state of it holds a token of the start that is never drawn.")


def _margins(
    run: Run,
    conditionals: Conditionals,
    chain: int,
    tokens: Ints,
    device: torch.device | str,
    known: dict[Key, Margins | None],
) -> Margins | None:
    """The margins of a state of a chain; none if it holds a token that is never drawn."""
    free, temperature = run.free[chain], float(run.temperatures[chain])
    key = tokens.tobytes() + _start(run, chain), free.tobytes(), temperature
    if key in known:
        return known[key]
    try:
        state, where = (torch.from_numpy(part).to(device) for part in (tokens, free))
        own = of_chain(conditionals, run, chain)
        known[key] = margins_of(own, state, where, temperature=temperature)
    except GlauberError:
        # Only a token of the start can be one that is never drawn.
        if not (tokens == run.tokens(0)[chain])[free].any():
            raise
        known[key] = None
    return known[key]


def _start(run: Run, chain: int) -> bytes:
    """A chain's start, where its conditionals depend on it."""
    return b"" if run.spec.budget is None else run.tokens(0)[chain].tobytes()


def _escape(path: Sojourns, which: int, log_probs: Any) -> Escape | None:
    """What ended that sojourn; log_probs (steps,) are those of the chain's drawn tokens."""
    if which == len(path.first) - 1:
        return None
    before, after = path.states[which : which + 2]
    site = int((before != after).argmax())  # one site a step
    step = int(path.first[which + 1])
    probability = float(np.exp(np.float64(log_probs[step - 1])))
    return Escape(step, site, int(before[site]), int(after[site]), probability)


def check_kernel(spec: Spec) -> None:
    """Refuses runs whose steps are not draws at one random site."""
    refuse_ties(spec, "a trap's holding time")
    if spec.fill == "greedy" or not scan_named(spec.scan).is_random_scan:
        raise GlauberError(
            "a trap's holding time is known for tokens drawn at one random site a step, but this "
            f"run's scan is {spec.scan} and its fill {spec.fill}."
        )
