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
import torch

from glauber.conditionals.base import log_probs
from glauber.conditionals.batching import rows_at_once
from glauber.conditionals.load import Model as Opened
from glauber.conditionals.load import load, starts
from glauber.errors import GlauberError
from glauber.landscape.scorers import (
    SIMILARITY,
    Floats,
    Scorer,
    read_labels,
    scorer_for,
    topic_scores,
)
from glauber.landscape.topics import Embeds, Labels
from glauber.parameters import Device, Length, Model, Seed, Temperature, Texts, Trust
from glauber.progress import check_count, check_seed, say, track
from glauber.result import Result, one_of, plain, study
from glauber.runs.run import Run
from glauber.runs.snapshots import Snapshots, snapshots
from glauber.runs.spec import signature
from glauber.runs.words import WordContrast, distinctive_words
from glauber.sampling.sample import resume, sample
from glauber.statistics import LEVEL, Mean, mean_over_chains

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
EXAMPLES = 3  # texts shown of each prefix


@study
def prefixes(
    model: Model = "bundled:english",
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
    asked_for = words.split(",") if isinstance(words, str) else words
    wanted = tuple(word.strip() for word in asked_for if word.strip())
    labels = read_labels(labels)
    pairs = _pairs(asked, against)
    opened = load(model, device=device, trust_remote_code=trust_remote_code)
    tokens = [_token(opened, word) for word in wanted]
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
    scores, by, note = _scores(read, scorer, labels, embedder, device)
    chances = {
        prefix: _chances(opened, found, site, tokens, temperature) for prefix, found in read.items()
    }
    count = max(1, len(pairs) * ((len(by.labels) if by else 0) + len(wanted)))
    contrasts = [
        _contrast(pair, read, scores, chances, wanted, count=count, listed=listed, by=by)
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


@dataclass(frozen=True)
class Contrast:
    """One prefix against another, or against none; a difference is the first less the second."""

    first: str
    second: str  # empty: no prefix
    topics: dict[str, tuple[Mean, Mean, Mean]]  # label -> scores of both, and their difference
    probabilities: dict[str, tuple[Mean, Mean, Mean]]  # of each word asked for, likewise
    more: list[WordContrast]  # words of the first, the surest first
    less: list[WordContrast]  # words of the second
    texts: tuple[list[str], list[str]]  # last texts of a few chains, pair by pair

    @property
    def names(self) -> tuple[str, str]:
        return self.first, self.second or "no prefix"

    def differing(self, kind: str = "topics") -> list[str]:
        """Labels (or words) whose interval excludes zero, the largest difference first."""
        found = self.topics if kind == "topics" else self.probabilities
        sure = [one for one, (_, _, mean) in found.items() if excludes_zero(mean)]
        return sorted(sure, key=lambda one: -abs(found[one][2].value))

    def lines(self) -> Iterable[str]:
        first, second = self.names
        yield f"\n{first}  against  {second}"
        if self.topics:
            named = [_difference(label, self.topics[label][2]) for label in self.differing()]
            yield "  topics  " + ("; ".join(named) or "no difference can be told from zero")
        yield f"  words of {first}: {_words(self.more)}"
        yield f"  words of {second}: {_words(self.less)}"
        for word, (mine, other, apart) in self.probabilities.items():
            less = _difference("", apart, 4)
            yield f"  P({word})  {mine.value:.4f} and {other.value:.4f}, {less}"
        for pair in zip(*self.texts, strict=True):
            yield f"  texts  {pair[0]}\n         {pair[1]}"


@dataclass(frozen=True, eq=False)
class PrefixStudy(Result):
    """Contrasts of prefixes, paired by chain."""

    contrasts: list[Contrast]
    labels: tuple[str, ...]  # none where no embedding reads the texts
    scorer: str | None
    note: str  # why topics are left out, or empty
    words: tuple[str, ...]  # whose probability at the site was asked for
    site: int
    n_chains: int
    n_snapshots: int  # of each chain, behind the burn-in
    n_intervals: int  # that hold together
    signature: str
    kind: str = "estimate"

    @property
    def correction(self) -> str:
        """What the intervals of topics and probabilities say together."""
        return (
            f"{LEVEL:.0%} t intervals over {self.n_chains} pairs of chains, which hold together "
            f"for {self.n_intervals} figures (Bonferroni)"
        )

    def to_dict(self) -> dict[str, Any]:
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
                reach = 1.96 * word.standard_error
                rows.append([*one.names, "log-odds", word.word, *word.counts, word.log_odds])
                rows[-1] += [word.log_odds - reach, word.log_odds + reach, word.sure]
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


def excludes_zero(mean: Mean) -> bool:
    """Whether a difference can be told from none."""
    return mean.interval is not None and not mean.interval[0] <= 0 <= mean.interval[1]


def _difference(name: str, mean: Mean, digits: int = 3) -> str:
    low, high = mean.interval or (np.nan, np.nan)
    value, low, high = (round(one, digits) + 0.0 for one in (mean.value, low, high))  # no -0.000
    return f"{name} {value:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})".strip()


def _words(found: list[WordContrast]) -> str:
    parts = [
        f"{one.word} {abs(one.log_odds):.1f} +- {one.standard_error:.1f}"
        + ("" if one.sure else " (?)")
        for one in found
    ]
    return ", ".join(parts) or "none"


def _triples(found: dict[str, tuple[Mean, Mean, Mean]]) -> dict[str, Any]:
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
    opened: Opened, texts: Any, groups: list[str], folder: Path | str | None, how: dict[str, Any]
) -> dict[str, Run]:
    """A run behind each prefix, all with one seed."""
    say(f"{len(groups)} runs of {how['chains']:,} chains and {how['steps']:,} steps")
    runs = {}
    with track("prefixes", len(groups)) as advance:
        for number, prefix in enumerate(groups):
            place = None if folder is None else Path(folder) / _folder(number, prefix)
            runs[prefix] = _run(opened, texts, prefix, place, how)
            advance(note=prefix)
    return runs


def _run(opened: Opened, texts: Any, prefix: str, place: Path | None, how: dict[str, Any]) -> Run:
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


def _scores(
    read: dict[str, Snapshots],
    scorer: str | Scorer,
    labels: Sequence[str],
    embedder: Any,
    device: str,
) -> tuple[dict[str, Floats], Scorer | None, str]:
    """Each chain's mean scores (chains, labels) by prefix, the scorer, or why there are none."""
    try:
        by = scorer_for(next(iter(read.values())), scorer, labels, embedder=embedder, device=device)
    except GlauberError as error:
        if scorer != SIMILARITY or embedder is not None:
            raise
        return {}, None, f"Topics are left out: {error}"
    found = {
        prefix: np.asarray(topic_scores(one, by).values.mean(axis=1))
        for prefix, one in read.items()
    }
    return found, by, ""


def _token(opened: Opened, word: str) -> int:
    """The token of a word; refuses words that the model writes in several."""
    for text in (f" {word}", word):
        tokens, free = opened.vocabulary.encode([text])
        if int(free.sum()) == 1:
            return int(tokens[free][0])
    pieces = [opened.vocabulary.spell(int(one)) for one in tokens[free]]
    raise GlauberError(
        f"{word!r} is {len(pieces)} tokens of {opened.name} ({', '.join(pieces)}): only the "
        "probability of a single token can be asked for."
    )


def _chances(
    opened: Opened, found: Snapshots, site: int, tokens: list[int], temperature: float
) -> Floats:
    """The mean probability (chains, words) of each token at the site over a chain's snapshots."""
    free = torch.as_tensor(found.run.free)
    place = (free.cumsum(dim=1) == site + 1).int().argmax(dim=1)  # (chains,)
    if not tokens:
        return np.zeros((found.n_chains, 0))
    rows = torch.as_tensor(found.tokens.astype(np.int64)).flatten(0, 1).to(opened.state_device)
    sites = place.repeat_interleave(len(found))[:, None].to(opened.state_device)
    law, parts = opened.conditionals(), []
    size = rows_at_once(16 * law.vocab_size, opened.state_device)
    for part, at in zip(rows.split(size), sites.split(size), strict=True):
        chances = log_probs(law, part, at, temperature=temperature)[:, 0].exp()
        parts.append(chances[:, tokens].double().cpu().numpy())
    stacked = np.concatenate(parts).reshape(found.n_chains, len(found), len(tokens))
    return np.asarray(stacked.mean(axis=1))


def _contrast(
    pair: tuple[str, str],
    read: dict[str, Snapshots],
    scores: dict[str, Floats],
    chances: dict[str, Floats],
    words: Sequence[str],
    *,
    count: int,
    listed: int,
    by: Scorer | None,
) -> Contrast:
    one, other = (read[name] for name in pair)
    found = distinctive_words(_spelled(one, by), _spelled(other, by))
    last = [
        [snap.run.vocabulary.decode(row) for row in snap.tokens[:EXAMPLES, -1]]
        for snap in (one, other)
    ]
    return Contrast(
        *pair,
        topics=_means(scores, pair, by.labels, count) if by else {},
        probabilities=_means(chances, pair, words, count),
        more=[word for word in found if word.log_odds > 0][:listed],
        less=sorted((w for w in found if w.log_odds < 0), key=lambda w: (w.z, w.word))[:listed],
        texts=(last[0], last[1]),
    )


def _spelled(found: Snapshots, by: Scorer | None) -> Sequence[Sequence[str]]:
    """The texts of each chain; tokens with blanks between them where they are not English."""
    if by is not None:
        return found.texts
    spell = found.run.vocabulary.spell
    return [
        [" ".join(spell(int(token)) for token in row[free]) for row in chain]
        for chain, free in zip(found.tokens, found.run.free, strict=True)
    ]


def _means(
    values: dict[str, Floats], pair: tuple[str, str], names: Sequence[str], count: int
) -> dict[str, tuple[Mean, Mean, Mean]]:
    """Means over chains of both, in 0 to 1, and of their difference, in -1 to 1."""
    level = 1 - (1 - LEVEL) / max(1, count)
    one, other = (values[name] for name in pair)

    def mean(column: Floats, least: float) -> Mean:
        return mean_over_chains(column, bounds=(least, 1), level=level)

    return {
        name: (mean(one[:, k], 0), mean(other[:, k], 0), mean(one[:, k] - other[:, k], -1))
        for k, name in enumerate(names)
    }
