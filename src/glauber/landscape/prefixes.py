"""What does a frozen prefix pull the text towards, against another one or against none?

Chains behind each prefix, from the same starts and with the same noise: chain by chain, a pair of
prefixes differs in nothing else. Only what the chain may redraw is read, since the name in a prefix
is a topic by itself. The later half of each run is counted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from glauber.conditionals.base import Model, check_temperature
from glauber.conditionals.load import load
from glauber.conditionals.starts import starts
from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.landscape.prefix_contrast import (
    Contrast,
    chances_of,
    contrast_of,
    excludes_zero,
    scores_of,
    token_of,
)
from glauber.landscape.scorers import NO_TOPICS, SIMILARITY, Scorer, check_scorer, read_labels
from glauber.landscape.topics import Embeds, Labels
from glauber.parameters import Device, Length, ModelOrName, Seed, Temperature, Texts, Trust
from glauber.progress import check_count, check_seed, say, track
from glauber.result import Result, counted, one_of, plain, study
from glauber.runs.run import Run
from glauber.runs.snapshots import snapshots
from glauber.runs.spec import signature
from glauber.sampling.sample import resume, sample
from glauber.statistics import CONFIDENCE, Estimate

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

PREFIXES = (
    "Albert Einstein said that",
    "Elvis Presley said that",
    "LeBron James said that",
    "Donald Trump said that",
    "The little kid said that",
)
NONE = ""  # the chains without a prefix
AGAINST = ("none", "each-other")


@study
def prefixes(
    model: ModelOrName = "bundled:english",
    texts: Texts = None,
    *,
    prefixes: Annotated[
        Sequence[str], "Texts put before each start and never redrawn (default: the paper's five)."
    ] = PREFIXES,
    against: Annotated[
        str | None,
        "none, or each-other: every pair of prefixes (default: each-other for two prefixes).",
    ] = None,
    chains: Annotated[int, "Chains behind each prefix."] = 16,
    length: Length = 16,
    steps: Annotated[int, "Steps of each chain; the later half is counted."] = 200,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
    every: Annotated[int, "Steps between snapshots."] = 16,
    labels: Labels = "topics",
    scorer: Annotated[str | Scorer, "similarity, or an entailment model by name."] = SIMILARITY,
    embedder: Embeds = None,
    words: Annotated[
        str | Sequence[str], "Words, with commas, whose probability at a site is asked for."
    ] = (),
    site: Annotated[int, "The site of these words, counted from 0 behind the prefix."] = 0,
    listed: Annotated[int, "Distinctive words to list in each direction."] = 12,
    folder: Annotated[
        Path | str | None, "Keep a run per prefix here; resumed if it exists."
    ] = None,
    device: Device = "auto",
    trust_remote_code: Trust = False,
) -> "PrefixStudy":
    """Contrast prefixes with each other, or with none, by topics, words and probabilities.

    Paper A, appendix C.4. Chains with the same start and noise are pairs; the mean difference of
    their scores has a t interval over chains, Bonferroni-corrected for the number of labels and
    contrasts, cut at -1 and 1. Words are listed in both directions by log-odds with a prior. The
    probability of `words` at `site` is the model's own, at the chain's temperature, given the rest
    of each visited text. Where no embedding reads the texts, topics are left out.
    """
    asked = _check(prefixes, against, chains, steps, every)
    check_seed(seed)
    check_temperature(temperature)
    check_count("number of words", listed, least=0, most=10**6)
    if length is not None:
        check_count("length", length)
    asked_for = words.split(",") if isinstance(words, str) else words
    wanted = tuple(word.strip() for word in asked_for if word.strip())
    labels = read_labels(labels)
    pairs = _pairs(asked, against)
    check_scorer(scorer, embedder, otherwise=NO_TOPICS)
    opened = load(model, device=device, trust_remote_code=trust_remote_code)
    tokens = [token_of(opened, word) for word in wanted]
    groups = [NONE, *asked] if any(NONE in pair for pair in pairs) else list(asked)
    for prefix in groups:  # a prefix that does not fit is refused before the first chain
        _, free = starts(opened, texts, chains=chains, length=length, prefix=prefix)
        check_count("site of the words", site, least=0, most=int(free.sum(dim=1).min()) - 1)
    how = dict(steps=steps, temperature=temperature, seed=seed, chains=chains, length=length)
    runs = _runs(opened, texts, groups, folder, how)
    read = {
        prefix: snapshots(run, every=every, free_only=True).after(steps // 2)
        for prefix, run in runs.items()
    }
    scores, by, note = scores_of(read, scorer, labels, embedder, device)
    chances = {
        prefix: chances_of(opened, found, site, tokens, temperature)
        for prefix, found in read.items()
    }
    count = max(1, len(pairs) * ((len(by.labels) if by else 0) + len(wanted)))
    contrasts = [
        contrast_of(pair, read, scores, chances, wanted, count=count, listed=listed, by=by)
        for pair in pairs
    ]
    first = runs[groups[0]]
    return PrefixStudy(
        contrasts=contrasts,
        labels=by.labels if by else (),
        scorer=by.name if by else None,
        note=note,
        words=wanted,
        site=site,
        n_chains=chains,
        n_snapshots=len(read[groups[0]]),
        n_intervals=count,
        signature=f"{signature(first.spec)}|prefixes:{len(asked)}",
    )


@dataclass(frozen=True, eq=False)
class PrefixStudy(Result):
    """Contrasts of prefixes, paired by chain."""

    contrasts: list[Contrast]
    labels: tuple[str, ...]  # none where no embedding reads the texts
    scorer: str | None
    note: str  # why topics are left out, or empty
    words: tuple[str, ...]  # whose probability at the site was asked for
    site: int
    n_chains: int  # of each prefix
    n_snapshots: int  # of each chain, behind the burn-in
    n_intervals: int  # that hold together
    signature: str
    kind: str = "estimate"  # of every number

    @property
    def correction(self) -> str:
        """What the intervals of topics and probabilities say together."""
        return (
            f"{CONFIDENCE:.0%} t intervals over {self.n_chains} pairs of chains, which hold "
            f"together for {self.n_intervals} figures (Bonferroni)"
        )

    def to_dict(self) -> Record:
        rows = [
            {
                "first": one.first,
                "second": one.second,
                "topics": _triples(one.topics),
                "differing_topics": one.differing(),
                "probabilities": _triples(one.probabilities),
                "words": {"first": plain(one.more), "second": plain(one.less)},
                "texts": plain(one.texts),
            }
            for one in self.contrasts
        ]
        own = ("labels", "scorer", "note", "words", "site", "n_chains", "n_snapshots", "signature")
        found = {name: plain(getattr(self, name)) for name in own}
        return {"contrasts": rows} | found | {"intervals": self.correction, "kind": self.kind}

    def lines(self) -> Iterable[str]:
        yield f"differences are estimates with {self.correction}; the prefix itself is not read"
        if self.note:
            yield self.note
        for one in self.contrasts:
            yield from one.lines()

    def frame(self) -> "pandas.DataFrame":
        """One row for each contrast and label, distinctive word or asked-for word."""
        import pandas

        rows = []
        for one in self.contrasts:
            for kind, found in (("topic", one.topics), ("probability", one.probabilities)):
                for name, (mine, other, apart) in found.items():
                    low, high = apart.interval or (np.nan, np.nan)
                    rows.append([*one.names, kind, name, mine.value, other.value, apart.value])
                    rows[-1] += [low, high, excludes_zero(apart)]
            for word in (*one.more, *one.less):
                low, high = word.interval or (np.nan, np.nan)
                rows.append([*one.names, "log-odds", word.word, *word.counts, word.log_odds])
                rows[-1] += [low, high, word.sure]
        columns = ["first", "second", "figure", "name", "of_first", "of_second", "difference"]
        return pandas.DataFrame(rows, columns=[*columns, "low", "high", "sure"])

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.landscape import plot_prefix_topics, plot_prefix_words

        found = {}
        for number, one in enumerate(self.contrasts, 1):
            behind = f"-{number}" if number > 1 else ""
            if one.topics or one.probabilities:
                found[f"topics{behind}"] = plot_prefix_topics(one, self.correction)
            found[f"words{behind}"] = plot_prefix_words(one)
        return found


def _triples(found: dict[str, tuple[Estimate, Estimate, Estimate]]) -> Record:
    names = ("first", "second", "difference")
    return {
        key: {name: plain(mean) for name, mean in zip(names, means, strict=True)}
        for key, means in found.items()
    }


def _check(
    prefixes: Sequence[str], against: str | None, chains: int, steps: int, every: int
) -> tuple[str, ...]:
    """The prefixes without blanks around them, if all numbers make sense."""
    asked = [prefixes] if isinstance(prefixes, str) else list(prefixes)
    if not asked or not all(isinstance(one, str) and one.strip() for one in asked):
        raise GlauberError("a prefix is empty: chains without one are asked for by against='none'.")
    found = tuple(one.strip() for one in asked)
    if len(set(found)) < len(found):
        raise GlauberError("a prefix is given twice.")
    if against is not None:
        one_of("against", against, AGAINST)
    if against == "each-other" and len(found) < 2:
        raise GlauberError("there is one prefix only, but they are to be compared with each other.")
    if chains == 1:
        raise GlauberError("there is one chain only, but a study of prefixes needs several.")
    check_count("number of chains", chains, least=2, most=10**6)
    check_count("number of steps", steps, least=2)
    check_count("number of steps between snapshots", every, most=max(1, steps - steps // 2))
    return found


def _pairs(asked: Sequence[str], against: str | None) -> list[tuple[str, str]]:
    if against is None:
        against = "each-other" if len(asked) == 2 else "none"
    return list(combinations(asked, 2)) if against != "none" else [(one, NONE) for one in asked]


def _folder(number: int, prefix: str) -> str:
    """A folder's name that no other prefix has."""
    letters = "".join(one if one.isalnum() else "-" for one in prefix.lower())
    return f"{number}-{letters[:40].strip('-') or 'prefix'}" if prefix else "none"


def _runs(
    opened: Model, texts: Texts, groups: list[str], folder: Path | str | None, how: dict[str, Any]
) -> dict[str, Run]:
    """A run behind each prefix, all with one seed."""
    say(f"{len(groups)} runs of {counted(how['chains'], 'chain')} and {how['steps']:,} steps")
    runs = {}
    with track("prefixes", len(groups)) as advance:
        for number, prefix in enumerate(groups):
            place = None if folder is None else Path(folder) / _folder(number, prefix)
            runs[prefix] = _run(opened, texts, prefix, place, how)
            advance(note=prefix)
    return runs


def _run(opened: Model, texts: Texts, prefix: str, place: Path | None, how: dict[str, Any]) -> Run:
    """The chains behind one prefix; a run that is there already is resumed if it is the same."""
    if place is None or not place.exists():
        return sample(opened, texts, prefix=prefix, out=place, **how)
    spec = Run(place).spec
    wanted = {name: value for name, value in how.items() if name != "length"}
    for name, value in (wanted | {"prefix": prefix, "fingerprint": opened.fingerprint}).items():
        if getattr(spec, name) != value:
            raise GlauberError(
                f"the run {place} has the {name} {getattr(spec, name)}, not {value}: give another "
                "folder, or ask for the same."
            )
    return resume(place)
