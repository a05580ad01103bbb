"""Prefixes: what a frozen beginning changes in the text, against another one or none.

The chains of all prefixes have the same starts and the same noise: chain by chain, a pair of
prefixes differs in nothing else. Only what the chain may redraw is read, since the name in a prefix
is a topic by itself. The later half of each run is counted.

How a prefix moves the chain is compared too: the distance from the start over the earlier half, the
entropy of the redraws and the share of different texts over the later half. With a label to track,
the first step at which the text is about it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from glauber.foundation import progress
from glauber.foundation.checks import OneOf, Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import Length, ModelOrName, Seed, Temperature, Texts, Where
from glauber.foundation.progress import say
from glauber.foundation.statistics import (
    CONFIDENCE,
    Estimate,
    MedianTime,
    mean_over_chains,
    median_time,
)
from glauber.foundation.study import Result, counted, internal, reported, study
from glauber.models.base import Model, log_probs
from glauber.models.batching import rows_at_once
from glauber.models.load import load
from glauber.runs.distinctive_words import WordContrast, distinctive_words, tokens_of, words_of
from glauber.runs.embedding import TOKENS, Embedder, by_tokens, choose_embedder
from glauber.runs.run import Run
from glauber.runs.snapshots import Snapshots, snapshots
from glauber.sampling.sample import resume, sample
from glauber.studies.landscape.scorers import (
    NO_TOPICS,
    SIMILARITY,
    Floats,
    Scorer,
    TopicScores,
    check_hypothesis,
    check_scorer,
    labels_of,
    place_of,
    read_labels,
    scorer_for,
    topic_scores,
)
from glauber.studies.landscape.topics import Embeds, Hypothesis, Labels, NamedScorer
from glauber.texts.starts import starts

if TYPE_CHECKING:
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
MOTION = {
    "distance": "distance from the start, earlier half",
    "entropy": "entropy of a redraw in nats, later half",
    "distinct": "share of different texts, later half",
}


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
        OneOf(AGAINST),
    ] = None,
    chains: Annotated[int, "Number of chains with each prefix.", Whole(2, 10**6)] = 16,
    length: Annotated[Length, Whole()] = 16,
    steps: Annotated[int, "Steps of each chain; the later half is counted.", Whole(2)] = 200,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
    every: Annotated[int, "Steps between snapshots.", Whole()] = 16,
    labels: Labels = "topics",
    scorer: NamedScorer = SIMILARITY,
    hypothesis: Hypothesis = None,
    embedder: Embeds = None,
    track: Annotated[
        str | None, "Label whose first step above its baseline is reported (default: none)."
    ] = None,
    words: Annotated[
        str | Sequence[str], "Words, with commas, whose probability at a site is measured."
    ] = (),
    site: Annotated[int, "Site of these words, counted from 0 after the prefix.", Whole(0)] = 0,
    listed: Annotated[int, "Distinctive words to list in each direction.", Whole(0, 10**6)] = 12,
    folder: Annotated[
        Path | str | None, "Keep a run per prefix here; resumed if it exists."
    ] = None,
    **where: Unpack[Where],
) -> "PrefixStudy":
    """Contrast prefixes with each other, or with none, by topics, words and probabilities.

    Paper A, appendix C.4. Chains with the same start and noise are pairs; the mean difference of
    their scores has a t interval over chains, Bonferroni-corrected for the number of labels and
    contrasts, cut at -1 and 1. Words are listed in both directions by log-odds with a prior. The
    probability of `words` at `site` is the model's own, at the chain's temperature, given the rest
    of each visited text. Where no embedding reads the texts, topics are left out. Distances from
    the start are those of the embedding that reads the topics, else of the tokens.
    """
    names = _names(prefixes, against)
    Whole(1, max(1, steps - steps // 2))("every", every)
    listed_words = words.split(",") if isinstance(words, str) else words
    words = tuple(word.strip() for word in listed_words if word.strip())
    topic_labels = read_labels(labels)
    check_scorer(scorer, embedder, otherwise=NO_TOPICS)
    check_hypothesis(hypothesis, [scorer])
    if track is not None:
        place_of(track, labels_of(scorer, topic_labels))
    loaded_model = load(model, **where)
    tokens = [single_token(loaded_model, word) for word in words]
    pairs = _pairs(names, against)
    groups = [NONE, *names] if any(NONE in pair for pair in pairs) else names
    for prefix in groups:  # a prefix that does not fit is refused before the first chain
        _, free = starts(loaded_model, texts, chains=chains, length=length, prefix=prefix)
        Whole(0, int(free.sum(dim=1).min()) - 1)("site", site)
    sampling = dict(steps=steps, temperature=temperature, seed=seed, chains=chains, length=length)
    say(f"{len(groups)} runs of {counted(chains, 'chain')} and {steps:,} steps")
    whole: dict[str, Snapshots] = {}
    with progress.track("prefixes", len(groups)) as advance:
        for number, prefix in enumerate(groups):
            run_folder = None if folder is None else Path(folder) / _folder(number, prefix)
            run = _run(loaded_model, texts, prefix, run_folder, sampling)
            whole[prefix] = snapshots(run, every=every, free_only=True)
            advance(note=prefix)
    samples = {prefix: sample.after(steps // 2) for prefix, sample in whole.items()}
    by, note = _scorer(samples[groups[0]], scorer, topic_labels, embedder, hypothesis, where)
    scores, first_steps = {}, {}
    for prefix in groups:
        if by is None:
            break
        if track is None:
            scores[prefix] = np.asarray(topic_scores(samples[prefix], by).values.mean(axis=1))
            continue
        scored = topic_scores(whole[prefix], by)
        scores[prefix] = np.asarray(scored.values[:, scored.steps > steps // 2].mean(axis=1))
        first_steps[prefix] = _first_steps(scored, track)
    by_meaning = by is not None and (scorer == SIMILARITY or embedder is not None)
    distance = choose_embedder(whole[groups[0]], embedder) if by_meaning else by_tokens()
    motion = {prefix: _motion(sample, distance) for prefix, sample in whole.items()}
    probabilities = {
        prefix: mean_probabilities(loaded_model, sample, site, tokens, temperature)
        for prefix, sample in samples.items()
    }
    n_intervals = max(1, len(pairs) * ((len(by.labels) if by else 0) + len(words)))
    contrasts = []
    for first, second in pairs:
        more, less = _distinctive(samples[first], samples[second], listed, by)
        contrasts.append(
            Contrast(
                first,
                second,
                topics=_paired_means(scores, (first, second), by.labels, n_intervals) if by else {},
                probabilities=_paired_means(probabilities, (first, second), words, n_intervals),
                motion=_motion_means(motion[first], motion[second], len(pairs) * len(MOTION)),
                more=more,
                less=less,
                texts=(_last_texts(samples[first]), _last_texts(samples[second])),
                called="letters" if loaded_model.vocabulary.text.letters else "words",
            )
        )
    return PrefixStudy(
        contrasts=contrasts,
        labels=by.labels if by else (),
        scorer=by.name if by else None,
        note=note,
        words=words,
        site=site,
        n_chains=chains,
        n_snapshots=len(samples[groups[0]]),
        n_intervals=n_intervals,
        distance=distance.description,
        track=track if by else None,
        first_visits=[
            FirstVisitTime(prefix or "no prefix", median_time(*_first_times(times, steps)))
            for prefix, times in first_steps.items()
        ],
        motion_by_chain=motion,
        first_steps=first_steps,
    )


class FirstVisitTime(NamedTuple):
    """When chains after a prefix first had a text about the tracked label."""

    prefix: str
    median: MedianTime  # in steps, to within a gap between snapshots


class PairedMeans(NamedTuple):
    """Means over chains with the first prefix, with the second, and of their difference."""

    first: Estimate
    second: Estimate
    difference: Estimate


@dataclass(frozen=True)
class Contrast:
    """One prefix against another, or against none; a difference is the first less the second."""

    first: str
    second: str  # empty: no prefix
    topics: dict[str, PairedMeans]  # mean score of each label
    probabilities: dict[str, PairedMeans]  # of each word at the site
    motion: dict[str, PairedMeans]  # how far, how freely and how variously the chain moves
    more: list[WordContrast]  # words of the first, by significance
    less: list[WordContrast]  # words of the second
    texts: tuple[list[str], list[str]]  # last texts of a few chains, pair by pair
    called: str = "words"  # letters, of a vocabulary of single ones

    @property
    def names(self) -> tuple[str, str]:
        return self.first, self.second or "no prefix"

    @reported
    def differing_topics(self) -> list[str]:
        """Labels whose interval excludes zero, the largest difference first."""
        differences = {label: means.difference for label, means in self.topics.items()}
        sure = [label for label, difference in differences.items() if difference.excludes(0.0)]
        return sorted(sure, key=lambda label: -abs(differences[label].value))

    def lines(self) -> Iterable[str]:
        first, second = self.names
        yield ""
        yield f"{first}  against  {second}"
        if self.topics:
            differences = [
                _difference_text(label, self.topics[label].difference)
                for label in self.differing_topics
            ]
            yield "  topics  " + ("; ".join(differences) or self._no_topic())
        yield f"  {self.called} of {first}: {_words(self.more)}"
        yield f"  {self.called} of {second}: {_words(self.less)}"
        for name, (own, other, difference) in self.motion.items():
            less = _difference_text("", difference)
            yield f"  {MOTION[name]}: {own.value:.3f} and {other.value:.3f}, {less}"
        for word, (own, other, difference) in self.probabilities.items():
            less = _difference_text("", difference, 4)
            yield f"  P({word})  {own.value:.4f} and {other.value:.4f}, {less}"
        for pair in zip(*self.texts, strict=True):
            yield f"  texts  {pair[0]}"
            yield f"         {pair[1]}"

    def _no_topic(self) -> str:
        """Why no topic is named."""
        differences = [means.difference for means in self.topics.values()]
        reasons = {difference.reason for difference in differences}
        if len(reasons) == 1 and all(mean.interval is None for mean in differences):
            return f"no interval: {reasons.pop()}"
        return "no difference is significant"


def _difference_text(name: str, mean: Estimate, digits: int = 3) -> str:
    if mean.interval is None:
        return f"{name} {round(mean.value, digits) + 0.0:+.{digits}f} ({mean.reason})".strip()
    value, low, high = (
        round(number, digits) + 0.0 for number in (mean.value, *mean.interval)
    )  # no -0
    return f"{name} {value:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})".strip()


def _words(contrasts: list[WordContrast]) -> str:
    """Significant words first, then the others."""
    significant = _odds([word for word in contrasts if word.sure]) or "none is significant"
    others = _odds([word for word in contrasts if not word.sure])
    return significant + (f"; within chance: {others}" if others else "")


def _odds(contrasts: list[WordContrast]) -> str:
    return ", ".join(f"{w.word} {abs(w.log_odds):.1f} +- {w.standard_error:.1f}" for w in contrasts)


@dataclass(frozen=True, eq=False)
class PrefixStudy(Result):
    """Contrasts of prefixes, paired by chain; every number is an estimate."""

    contrasts: list[Contrast]
    labels: tuple[str, ...]  # none where no embedding reads the texts
    scorer: str | None
    note: str  # why topics are left out, or empty
    words: tuple[str, ...]  # whose probability at the site is measured
    site: int
    n_chains: int  # of each prefix
    n_snapshots: int  # of each chain, after the burn-in
    n_intervals: int  # that hold together; the intervals of motion hold together by themselves
    distance: str  # what the distance from the start is
    track: str | None  # the label of `first_visits`
    first_visits: list[FirstVisitTime]
    motion_by_chain: dict[str, Floats] = internal(default=None)  # by prefix (chains, 3)
    first_steps: dict[str, Floats] = internal(default=None)  # (chains,), inf where never

    @reported
    def correction(self) -> str:
        """What the intervals of topics and probabilities say together."""
        return (
            f"{CONFIDENCE:.0%} t intervals over {self.n_chains} pairs of chains, which hold "
            f"together for {self.n_intervals} figures (Bonferroni)"
        )

    def lines(self) -> Iterable[str]:
        yield f"differences are estimates with {self.correction}; the prefix itself is not read"
        if self.note:
            yield self.note
        yield self.distance
        for prefix, median in self.first_visits:
            first = "not in half of the chains" if median.value is None else f"{median.value:,.0f}"
            yield f"first snapshot about {self.track} after {prefix}: {first} (median step)"
        for contrast in self.contrasts:
            yield from contrast.lines()

    def table(self) -> Iterable[dict[str, object]]:
        """One row for each contrast and label, distinctive word or measured word."""
        for contrast in self.contrasts:
            for figure, means in (
                ("topic", contrast.topics),
                ("probability", contrast.probabilities),
                ("motion", contrast.motion),
            ):
                for name, (own, other, difference) in means.items():
                    numbers = own.value, other.value, difference.value
                    sure = difference.excludes(0.0)
                    yield _row(contrast, figure, name, numbers, difference.interval, sure)
            for word in (*contrast.more, *contrast.less):
                odds = word.counts[0], word.counts[1], word.log_odds
                yield _row(contrast, "log-odds", word.word, odds, word.interval, word.sure)

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.landscape import plot_prefix_topics, plot_prefix_words

        figures = {}
        for number, contrast in enumerate(self.contrasts, 1):
            suffix = f"-{number}" if number > 1 else ""
            if contrast.topics or contrast.probabilities:
                figures[f"topics{suffix}"] = plot_prefix_topics(contrast, self.correction)
            figures[f"words{suffix}"] = plot_prefix_words(contrast)
        return figures


def _row(
    contrast: Contrast,
    figure: str,
    name: str,
    numbers: tuple[float, float, float],
    interval: tuple[float, float] | None,
    sure: bool,
) -> dict[str, object]:
    columns = ("first", "second", "figure", "name", "of_first", "of_second", "difference")
    values = dict(zip(columns, (*contrast.names, figure, name, *numbers), strict=True))
    low, high = interval or (np.nan, np.nan)
    return values | {"low": low, "high": high, "sure": sure}


def _names(prefixes: Sequence[str], against: str | None) -> list[str]:
    """The prefixes without blanks around them."""
    names = [prefixes] if isinstance(prefixes, str) else list(prefixes)
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise GlauberError("a prefix is empty: use against='none' for chains without one.")
    names = [name.strip() for name in names]
    if len(set(names)) < len(names):
        raise GlauberError("a prefix is given twice.")
    if against == "each-other" and len(names) < 2:
        raise GlauberError("there is one prefix only, so it cannot be compared with another one.")
    return names


def _pairs(names: Sequence[str], against: str | None) -> list[tuple[str, str]]:
    """Prefixes to contrast: every pair, or each with no prefix; two are compared by default."""
    if against is None:
        against = "each-other" if len(names) == 2 else "none"
    return list(combinations(names, 2)) if against != "none" else [(name, NONE) for name in names]


def _folder(number: int, prefix: str) -> str:
    """A folder's name that no other prefix has."""
    letters = "".join(c if c.isalnum() else "-" for c in prefix.lower())
    return f"{number}-{letters[:40].strip('-') or 'prefix'}" if prefix else "none"


def _run(
    model: Model, texts: Texts, prefix: str, run_folder: Path | None, sampling: dict[str, Any]
) -> Run:
    """The chains after one prefix; a run that exists already is resumed if it is the same."""
    if run_folder is None or not run_folder.exists():
        return sample(model, texts, prefix=prefix, out=run_folder, **sampling)
    spec = Run(run_folder).spec
    expected = {name: value for name, value in sampling.items() if name != "length"}
    expected |= {"prefix": prefix, "fingerprint": model.fingerprint}
    for name, value in expected.items():
        if getattr(spec, name) != value:
            raise GlauberError(
                f"the run {run_folder} has the {name} {getattr(spec, name)}, not {value}: give "
                "another folder, or the same settings."
            )
    return resume(run_folder)


def _scorer(
    sample: Snapshots,
    scorer: str | Scorer,
    labels: Sequence[str],
    embedder: Embeds,
    hypothesis: str | None,
    where: Where,
) -> tuple[Scorer | None, str]:
    """The scorer for these texts, or why there is none."""
    device = where.get("device", "auto")
    try:
        by = scorer_for(
            sample, scorer, labels, embedder=embedder, hypothesis=hypothesis, device=device
        )
    except GlauberError as error:
        if scorer != SIMILARITY or embedder not in (None, TOKENS):
            raise
        return None, f"Topics are left out: {error}"
    return by, ""


def _first_steps(scores: TopicScores, track: str) -> Floats:
    """The first snapshot after the start at which each chain (chains,) is above the baseline."""
    above = scores.of(track)[:, 1:] > scores.baseline
    first = scores.steps[1:][above.argmax(axis=1)].astype(np.float64)
    return np.where(above.any(axis=1), first, np.inf)


def _first_times(times: Floats, steps: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Times (chains,) and which of them were observed; the others are later than the last step."""
    return np.minimum(times, steps), np.isfinite(times)


def _motion(sample: Snapshots, distance: Embedder) -> Floats:
    """The figures of MOTION for each chain, (chains, 3)."""
    half, vectors = sample.run.steps // 2, distance.vectors(sample)
    early = (sample.steps > 0) & (sample.steps <= max(half, sample.every))
    cosines = (vectors[:, :1] * vectors[:, early]).sum(axis=2, dtype=np.float64)
    entropy, site = (sample.run.read(name, half) for name in ("entropy", "site"))
    late = sample.after(half).texts
    return np.stack(
        [
            1 - cosines.mean(axis=1),
            np.nanmean(np.where(site >= 0, entropy, np.nan), axis=(1, 2)),
            [len(set(texts)) / len(texts) for texts in late],
        ],
        axis=1,
    )


def _motion_means(first: Floats, second: Floats, comparisons: int) -> dict[str, PairedMeans]:
    """Means over chains of both (chains, 3) and of their difference, by the names of MOTION."""
    columns = (first, second, first - second)
    return {
        name: PairedMeans(*(mean_over_chains(c[:, k], comparisons=comparisons) for c in columns))
        for k, name in enumerate(MOTION)
    }


def single_token(model: Model, word: str) -> int:
    """The token of a word; refuses words that the model writes in several."""
    spellings = [word] if model.vocabulary.text.letters else [f" {word}", word]
    for text in spellings:
        tokens, free = model.vocabulary.encode([text])
        if int(free.sum()) == 1:
            return int(tokens[free][0])
    pieces = [model.vocabulary.spell(int(token)) for token in tokens[free]]
    raise GlauberError(
        f"{word!r} is {len(pieces)} tokens of {model.name} ({', '.join(pieces)}): only the "
        "probability of a single token can be measured."
    )


def mean_probabilities(
    model: Model, sample: Snapshots, site: int, tokens: list[int], temperature: float
) -> Floats:
    """The mean probability (chains, words) of each token at the site over a chain's snapshots."""
    if not tokens:
        return np.zeros((sample.n_chains, 0))
    free = torch.as_tensor(sample.run.free)
    chain_sites = (free.cumsum(dim=1) == site + 1).int().argmax(dim=1)  # (chains,)
    rows = torch.as_tensor(sample.tokens.astype(np.int64)).flatten(0, 1).to(model.state_device)
    sites = chain_sites.repeat_interleave(len(sample))[:, None].to(model.state_device)
    conditionals, batches = model.conditionals(), []
    size = rows_at_once(16 * conditionals.vocab_size, model.state_device)
    for part, at in zip(rows.split(size), sites.split(size), strict=True):
        probs = log_probs(conditionals, part, at, temperature=temperature)[:, 0].exp()
        batches.append(probs[:, tokens].double().cpu().numpy())
    stacked = np.concatenate(batches).reshape(sample.n_chains, len(sample), len(tokens))
    return np.asarray(stacked.mean(axis=1))


def _last_texts(sample: Snapshots) -> list[str]:
    return [sample.run.vocabulary.decode(row) for row in sample.tokens[:EXAMPLES, -1]]


def _distinctive(
    first: Snapshots, second: Snapshots, listed: int, by: Scorer | None
) -> tuple[list[WordContrast], list[WordContrast]]:
    """Words that the first group uses more, and those that the second one does."""
    letters = bool(first.run.vocabulary.letters)
    counts_of = tokens_of if letters and by is None else words_of
    contrasts = distinctive_words(
        _spellings(first, by), _spellings(second, by), counts_of=counts_of
    )
    less = sorted((word for word in contrasts if word.log_odds < 0), key=lambda w: (w.z, w.word))
    return [word for word in contrasts if word.log_odds > 0][:listed], less[:listed]


def _spellings(sample: Snapshots, by: Scorer | None) -> Sequence[Sequence[str]]:
    """The texts of each chain; tokens with blanks between them where they are not English."""
    if by is not None:
        return sample.texts
    spell = sample.run.vocabulary.spell
    return [
        [" ".join(spell(int(token)) for token in row[free]) for row in chain]
        for chain, free in zip(sample.tokens, sample.run.free, strict=True)
    ]


def _paired_means(
    values: dict[str, Floats], pair: tuple[str, str], names: Sequence[str], comparisons: int
) -> dict[str, PairedMeans]:
    """Means over chains of both, in 0 to 1, and of their difference, in -1 to 1."""
    first, second = (values[name] for name in pair)

    def mean(column: Floats, low: float) -> Estimate:
        return mean_over_chains(column, bounds=(low, 1.0), student=low < 0, comparisons=comparisons)

    return {
        name: PairedMeans(
            mean(first[:, k], 0), mean(second[:, k], 0), mean(first[:, k] - second[:, k], -1)
        )
        for k, name in enumerate(names)
    }
