"""What does a frozen prefix pull the text towards?

Many chains with each prefix, and as many without one, from the same starts and with the same
noise. Only what the chain may redraw is read: the name in the prefix is a topic by itself. A pull
is the score of a chain with the prefix less that of its partner without, over the later looks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glauber.conditionals.masked_lm import MaskedLM
from glauber.errors import GlauberError
from glauber.landscape.topics import Floats, Scorer, looks_apart, texts_of, topic_scores
from glauber.landscape.words import WordPull, distinctive_words
from glauber.runs.export import trajectory
from glauber.runs.run import Run
from glauber.sampling.sample import sample
from glauber.statistics import Mean, mean_over_chains

PREFIXES = (
    "Albert Einstein said that",
    "Elvis Presley said that",
    "LeBron James said that",
    "Donald Trump said that",
    "The little kid said that",
)
NONE = ""  # the chain without a prefix


@dataclass(frozen=True)
class Pull:
    """What one prefix does, against the chains without one."""

    prefix: str
    topics: dict[str, Mean]  # mean score of each label
    pull: dict[str, Mean]  # the same less the partner's, with a paired interval
    words: list[WordPull]  # the most distinctive first
    examples: list[str]  # last texts of a few chains

    @property
    def towards(self) -> list[str]:
        """Labels whose interval lies above zero, the strongest pull first."""
        sure = [
            label for label, mean in self.pull.items() if mean.interval and mean.interval[0] > 0
        ]
        return sorted(sure, key=lambda label: -self.pull[label].value)


@dataclass(frozen=True)
class PrefixStudy:
    """The pulls of several prefixes, and the chains without one."""

    labels: tuple[str, ...]
    plain: dict[str, Mean]  # mean score of each label without a prefix
    pulls: list[Pull]
    scorer: str
    n_chains: int
    n_looks: int  # of each chain, behind the burn-in
    kind: str = "estimate"


def prefix_runs(
    model: str | MaskedLM,
    prefixes: Sequence[str] = PREFIXES,
    *,
    texts: Sequence[str] | None = None,
    starting: Callable[[str], None] | None = None,
    **options: Any,
) -> Iterator[tuple[str, Run]]:
    """(prefix, run) for the chains without a prefix and with each; options are those of `sample`.

    The same seed everywhere: a chain and its partner have their starts and their noise in common.
    """
    _check(prefixes)
    loaded = MaskedLM.load(model) if isinstance(model, str) else model
    for prefix in (NONE, *prefixes):
        if starting is not None:
            starting(prefix)
        yield prefix, sample(loaded, texts, prefix=prefix, **options)


def prefix_study(
    runs: Mapping[str, Run], scorer: Scorer, *, every: int | None = None, words: int = 12
) -> PrefixStudy:
    """The pulls of stored runs by prefix, the one without under ""; half of each is burn-in."""
    _check_runs(runs)
    plain = runs[NONE]
    before = _late_scores(plain, scorer, every)
    baseline = _late_texts(plain, every)
    pulls = []
    for prefix, run in runs.items():
        if prefix == NONE:
            continue
        scores = _late_scores(run, scorer, every)
        found = distinctive_words(_late_texts(run, every), baseline)
        pulls.append(
            Pull(
                prefix=prefix,
                topics=_means(scores, scorer.labels),
                pull=_means(scores - before, scorer.labels),
                words=[one for one in found if one.log_odds > 0][:words],
                examples=[run.vocabulary.decode(row) for row in run.tokens()[:3]],
            )
        )
    looks = len(baseline[0])
    means = _means(before, scorer.labels)
    return PrefixStudy(scorer.labels, means, pulls, scorer.name, plain.n_chains, looks)


def _means(values: Floats, labels: Sequence[str]) -> dict[str, Mean]:
    """The mean over chains of values (chains, labels)."""
    return {label: mean_over_chains(values[:, place]) for place, label in enumerate(labels)}


def _late_scores(run: Run, scorer: Scorer, every: int | None) -> Floats:
    """Each chain's mean scores (chains, labels) over the second half of the looks."""
    found = topic_scores(run, scorer, every=every, free_only=True)
    return np.asarray(found.values[:, found.steps > run.steps // 2].mean(axis=1))


def _late_texts(run: Run, every: int | None) -> list[list[str]]:
    """The redrawn part of each chain's text at the looks of the second half."""
    looks = [
        texts_of(run, tokens, free_only=True)
        for step, tokens in trajectory(run, looks_apart(run, every))
        if step > run.steps // 2
    ]
    return [list(chain) for chain in zip(*looks, strict=True)]


def _check(prefixes: Sequence[str]) -> None:
    if not prefixes or not all(prefix.strip() for prefix in prefixes):
        raise GlauberError("a prefix is empty: the chains without one are run in any case.")
    if len(set(prefixes)) < len(prefixes):
        raise GlauberError("a prefix is given twice.")


def _check_runs(runs: Mapping[str, Run]) -> None:
    if NONE not in runs or len(runs) < 2:
        raise GlauberError("a study of prefixes needs the run without one and one with.")
    counts = {run.n_chains for run in runs.values()}
    if len(counts) > 1:
        raise GlauberError("the runs have unequal numbers of chains, so they have no partners.")
    if counts == {1}:
        raise GlauberError("there is one chain only, but a study of prefixes needs several.")
