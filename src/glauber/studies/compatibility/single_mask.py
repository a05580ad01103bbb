"""Ratios of tokens by a single mask, compared with those of the chain, where both are known.

Under a joint distribution mu, pi_i(a | x_-i) / pi_i(b | x_-i) = mu(a, x_-i) / mu(b, x_-i): hiding
one site tells how often the chain shows a and b there (paper A, Eq. 4.1). Without a joint
distribution the two may differ.

Here all sites of a text but a few are frozen, and a free site may take a few tokens. What is left
is small enough to be enumerated, so that the chain's stationary ratios are exact, and chains that
are run as well show the same ratios as frequencies. It is the distribution of that small chain: the
full chain, whose other sites move too, may weigh the same fillings otherwise.

The same enumeration says how far the stationary distribution is from exp(pseudo-log-likelihood) and
from exp(best potential), in size and in order, next to how incompatible the conditionals are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.exact import Space, conditional, redraw_probabilities, stationary
from glauber.exact.transition import block_matrix
from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import (
    LengthOrWhole,
    ModelOrName,
    Seed,
    Temperature,
    Texts,
    Where,
)
from glauber.foundation.progress import say, track
from glauber.foundation.statistics import Estimate, clustered_mean, jackknife, rank_correlation
from glauber.foundation.study import Result, counted, reported, study
from glauber.models.base import Conditionals, Model
from glauber.models.load import load
from glauber.models.table import choose
from glauber.studies.compatibility.potential import DIGITS, SizeMatch, decompose, size_match
from glauber.studies.compatibility.rectangles import number_of_proposals
from glauber.texts.starts import read_sites, spell_sites, starts

Floats = NDArray[np.float64]
ROUNDING = 1e-9  # nats: what float64 adds to a log-ratio, with room to spare
SCORES = {"pll": "pseudo-log-likelihood", "potential": "best potential"}
LARGEST = 2**14  # fillings whose stationary distribution takes seconds


@study
def single_mask(
    model: ModelOrName = "bundled:english",
    texts: Texts = None,
    *,
    count: Annotated[int, "How many texts.", Whole(1, 10**6)] = 20,
    length: Annotated[LengthOrWhole, Whole(2)] = 20,
    sites: Annotated[
        int, "Free sites of each text, drawn at random; the others are frozen.", Whole(2, 12)
    ] = 2,
    at: Annotated[Sequence[int] | str, "The free sites themselves, such as 3,7."] = "",
    top: Annotated[int, "Tokens of a free site: the most probable ones and its own.", Whole(2)] = 8,
    temperature: Temperature = 1.0,
    chains: Annotated[
        int, "Chains of each text whose frequencies are counted; 0 for none.", Whole(0, 10**4)
    ] = 16,
    steps: Annotated[
        int, "Steps of each of these chains; the first tenth is dropped.", Whole(10, 10**8)
    ] = 2000,
    seed: Seed = 0,
    **where: Unpack[Where],
) -> "SingleMask":
    """Compare single-mask ratios with the ratios of the chain's stationary distribution.

    Paper A, Eq. 4.1. In each text a few sites are free and the rest is frozen; a free site may take
    its own token and the model's most probable ones there. The model is evaluated in float64 at
    every filling, which makes the stationary distribution of this small chain exact. Where the
    model has a joint distribution, all differences vanish.
    """
    listed = read_sites(at)
    if len(listed) == 1:
        raise GlauberError("one free site has one context only: name two or more, such as 3,7.")
    n_sites = len(listed) or sites
    _check_size(top if top <= LARGEST else 2, n_sites)
    loaded_model = load(model, exact=True, **where)
    least = max([n_sites, *(site + 1 for site in listed)])
    tokens, free = starts(loaded_model, texts, length=length, least=least)
    top = min(top, number_of_proposals(loaded_model))
    _check_size(top, n_sites)
    count = min(count, len(tokens)) if listed else count
    precise = loaded_model.to(dtype="float64")
    conditionals = precise.conditionals()
    say(f"{count:,} texts: {count * n_sites * top ** (n_sites - 1):,} rows in float64")
    windows = []
    with track("texts", count) as advance:
        for text, chosen in _choose_sites(free, listed, count=count, n_sites=n_sites, seed=seed):
            few = _few_sites(loaded_model, conditionals, tokens[text], free[text], chosen, top)
            windows.append((text, chosen, few, exact_chain(few, n_sites, temperature)))
            advance()
    chains_of = [exact for *_, exact in windows]
    shares = frequencies(chains_of, chains=chains, steps=steps, seed=seed) if chains else None
    comparisons = [
        compare(loaded_model, *window, None if shares is None else shares[number])
        for number, window in enumerate(windows)
    ]
    return SingleMask(
        model=loaded_model.name,
        dtype=str(precise.dtype),
        n_sites=n_sites,
        top=top,
        n_chains=chains,
        n_steps=steps,
        texts=comparisons,
    )


@dataclass(frozen=True)
class Ratio:
    """One site, one context, two tokens: their log-ratio by the single mask and of the chain."""

    site: int  # for people
    tokens: tuple[str, str]
    context: str  # the text with the first token
    share: float  # of the chain's time in this context with either token
    single: float  # log pi_i(a) - log pi_i(b)
    stationary: float  # log mu(a, context) - log mu(b, context)
    seen: Estimate | None  # the same from the frequencies of the chains


@dataclass(frozen=True, eq=False)
class SingleMaskComparison:
    """One text: how far its single-mask ratios are from the chain's."""

    text: int  # its number, from 0
    sites: tuple[int, ...]  # for people
    difference: (
        float  # mean |difference of log-ratios| over pairs of tokens, as the chain meets them
    )
    largest: float  # over all contexts and pairs
    total_variation: float  # mean over contexts, as the chain meets them
    reversed: float  # share of the chain's time in contexts whose most probable token differs
    ratio: Ratio  # of the context and the pair that the chain is at most often
    unexplained: float  # nats by which the edges differ from the best potential (root mean square)
    pll: SizeMatch  # exp(pseudo-log-likelihood) against the stationary distribution
    potential: SizeMatch  # exp(best potential) against it


@dataclass(frozen=True, eq=False)
class SingleMask(Result):
    """Single-mask ratios and the chain's, text by text."""

    model: str
    dtype: str  # that it was evaluated in
    n_sites: int  # free in each text
    top: int
    n_chains: int  # of each text
    n_steps: int  # of each chain
    texts: list[SingleMaskComparison]

    FIGURES = {"ratios": ("glauber.interfaces.plots.compatibility:plot_ratios", "_ratios")}

    @reported
    def kind(self) -> str:
        """What the numbers of one text are."""
        if self.dtype == "float64":
            return "exact for the chain on these sites and tokens, in float64"
        return f"estimate: the model computes in {self.dtype}"

    def _mean(self, name: str, most: float) -> Estimate:
        """The mean over texts; sites drawn in one text count together."""
        values = [getattr(text, name) for text in self.texts]
        numbers = [text.text for text in self.texts]
        return clustered_mean(values, numbers, bounds=(0.0, most), student=True)

    @reported
    def difference(self) -> Estimate:
        """Mean |difference of log-ratios| in nats."""
        return self._mean("difference", np.inf)

    @reported
    def total_variation(self) -> Estimate:
        """Of the two conditionals."""
        return self._mean("total_variation", 1.0)

    @reported
    def reversed(self) -> Estimate:
        """Share of the chain's time where the single mask has another most probable token."""
        return self._mean("reversed", 1.0)

    @reported
    def sizes(self) -> dict[str, dict[str, Estimate]]:
        """Means over texts of how the two scores match the stationary distribution."""
        numbers = [text.text for text in self.texts]
        bounds = {
            "total_variation": (0.0, 1.0),
            "divergence": (0.0, np.inf),
            "slope": (-np.inf, np.inf),
            "rank": (-1.0, 1.0),
        }

        def mean(score: str, measure: str) -> Estimate:
            values = [getattr(getattr(text, score), measure) for text in self.texts]
            known = [np.nan if value is None else value for value in values]
            return clustered_mean(known, numbers, bounds=bounds[measure], student=True)

        return {name: {m: mean(name, m) for m in SizeMatch._fields} for name in SCORES}

    @reported
    def by_incompatibility(self) -> dict[str, Estimate]:
        """Rank correlation over texts of the total variation with the unexplained part.

        What is equal up to rounding counts as tied.
        """
        unexplained = np.round([text.unexplained for text in self.texts], DIGITS)
        numbers = np.array([text.text for text in self.texts])
        return {
            name: rank_correlation(
                unexplained,
                np.round([getattr(text, name).total_variation for text in self.texts], DIGITS),
                chain=numbers,
            )
            for name in SCORES
        }

    @reported
    def largest(self) -> float:
        """The largest difference of a log-ratio, in nats."""
        return max(text.largest for text in self.texts)

    @reported
    def differing(self) -> int:
        """Texts with a ratio that differs by more than rounding."""
        return sum(text.largest > ROUNDING for text in self.texts)

    @reported
    def covered(self) -> tuple[int, int]:
        """Ratios seen in the chains whose interval contains the exact one, and all seen."""
        seen = [(ratio, ratio.seen) for ratio in self._ratios]
        known = [(r.stationary, s.interval) for r, s in seen if s is not None and s.interval]
        return sum(low <= exact <= high for exact, (low, high) in known), len(known)

    @property
    def _ratios(self) -> list[Ratio]:
        return [text.ratio for text in self.texts]

    def lines(self) -> Iterable[str]:
        n_texts = counted(len(self.texts), "text")
        yield (
            f"log-ratios of two tokens at a site, single mask less chain, in {n_texts} "
            f"with {self.n_sites} free sites of {self.top} tokens (the rest frozen)"
        )
        difference = _text(self.difference)
        yield f"mean |difference| {difference} nats; under a joint distribution 0"
        yield f"largest {self.largest:.3f} nats, {self.kind}"
        yield f"{self.differing} of {n_texts} differ by more than rounding: " + (
            "no joint distribution"
            if self.differing
            else "nothing speaks against a joint distribution"
        )
        yield f"total variation of the two conditionals {_text(self.total_variation)}"
        yield (
            "share of the chain's time where the single mask has another most probable token "
            + _text(self.reversed)
        )
        for name, match in self.sizes.items():
            parts = (
                f"{measure.replace('_', ' ')} {_text(each)}" for measure, each in match.items()
            )
            yield f"exp({SCORES[name]}) against the stationary distribution: {', '.join(parts)}"
            yield (
                "  rank correlation over texts of its total variation with the incompatibility "
                + self.by_incompatibility[name].text()
            )
        n_covered, n_known = self.covered
        if n_known:
            yield (
                f"frequencies of {counted(self.n_chains, 'chain')} of {self.n_steps:,} steps: "
                f"{n_covered} of {n_known} 95% intervals contain the exact ratio"
            )
        ratio = max(self._ratios, key=lambda ratio: abs(ratio.single - ratio.stationary))
        yield ""
        yield f"{ratio.tokens[0]} against {ratio.tokens[1]} in: {ratio.context}"
        yield (
            f"  log-ratio by a single mask {ratio.single:+.3f}, of the chain "
            f"{ratio.stationary:+.3f}"
            + ("" if ratio.seen is None else f", counted {ratio.seen.text()}")
        )

    def table(self) -> Iterable[dict[str, object]]:
        """One row per text."""
        for text in self.texts:
            ratio = text.ratio
            yield {
                "text": text.text,
                "sites": spell_sites(text.sites),
                "difference": text.difference,
                "largest": text.largest,
                "total_variation": text.total_variation,
                "reversed": text.reversed,
                "unexplained": text.unexplained,
                "pll": text.pll._asdict(),
                "potential": text.potential._asdict(),
                "token": ratio.tokens[0],
                "other": ratio.tokens[1],
                "single_mask": ratio.single,
                "stationary": ratio.stationary,
                "counted": Estimate(np.nan, None) if ratio.seen is None else ratio.seen,
            }


def _text(mean: Estimate) -> str:
    """A mean over texts; of one text it is that text's own."""
    if mean.n_chains == 1:
        return f"{mean.value:.3f} (of this text)"
    few = f"{mean.value:.3f} (no interval from {mean.n_chains} texts)"
    return mean.text() if mean.interval else few


def _choose_sites(
    free: Tensor, listed: list[int], *, count: int, n_sites: int, seed: int
) -> Iterable[tuple[int, list[int]]]:
    """(text, sites for people) of each comparison: texts in turn, sites random or as listed."""
    generator = np.random.Generator(np.random.Philox(seed))
    for number in range(count):
        text = number % len(free)
        n_free = int(free[text].sum())
        if n_free < max([n_sites, *(site + 1 for site in listed)]):
            raise GlauberError(f"text {text + 1} has sites 0 to {n_free - 1} only.")
        chosen = generator.choice(n_free, n_sites, replace=False).tolist()
        yield text, listed or sorted(chosen)


def _few_sites(
    model: Model, precise: Conditionals, row: Tensor, free: Tensor, sites: list[int], top: int
) -> "TokensOfSites":
    """The sites with their own tokens and the most probable ones, the rest of the row frozen."""
    columns = free.nonzero()[:, 0][sites]
    rows = row.repeat(len(sites), 1)
    scores = model.proposals().scores(rows, columns[:, None])[:, 0].double()
    own = torch.arange(scores.shape[1]) == row[columns].cpu()[:, None]
    scores = torch.where(own & torch.isfinite(scores), torch.inf, scores.cpu())
    choices = scores.sort(dim=1, descending=True, stable=True).indices[:, :top]
    return TokensOfSites(precise, row, columns, choices)


def _check_size(top: int, n_sites: int) -> None:
    if top**n_sites > LARGEST:
        raise GlauberError(
            f"{top} tokens at {n_sites} sites make {top**n_sites:,} fillings, more than the "
            f"{LARGEST:,} that are enumerated: take fewer of either."
        )


def compare(
    model: Model,
    text: int,
    sites: list[int],
    few: "TokensOfSites",
    exact: "ExactChain",
    shares: Floats | None,
) -> SingleMaskComparison:
    """The numbers of one text; shares (chains, fillings) are those of the chains' time."""
    contexts = [exact.by_context(site) for site in range(len(sites))]
    weight = np.concatenate([context.weight for context in contexts]) / len(sites)
    single = np.concatenate([context.single for context in contexts])
    chain = np.concatenate([context.chain for context in contexts])
    apart = np.abs((d := single - chain)[:, :, None] - d[:, None, :])  # (contexts, m, m)
    met = weight[:, None, None] * np.exp(chain[:, :, None] + chain[:, None, :])
    met[:, np.arange(few.vocab_size), np.arange(few.vocab_size)] = 0.0
    states = exact.space.states()
    rows = np.arange(exact.space.size)
    log_probs = [np.log(exact.single[i, rows, states[:, i]]) for i in range(len(sites))]
    split = decompose(Enumerated(exact), states)
    return SingleMaskComparison(
        text=text,
        sites=tuple(sites),
        difference=float((met * apart).sum() / met.sum()),
        largest=float(apart.max()),
        total_variation=float(weight @ np.abs(np.exp(single) - np.exp(chain)).sum(axis=1) / 2),
        reversed=float(weight @ (single.argmax(axis=1) != chain.argmax(axis=1))),
        ratio=_ratio(model, sites, few, contexts, met, shares),
        unexplained=split.unexplained,
        pll=size_match(np.sum(log_probs, axis=0), exact.mu),
        potential=size_match(split.values, exact.mu),
    )


def _ratio(
    model: Model,
    sites: list[int],
    few: "TokensOfSites",
    contexts: "list[SiteContexts]",
    met: Floats,
    shares: Floats | None,
) -> Ratio:
    """The ratio of the context and the two tokens that the chain is at most often."""
    which, a, b = np.unravel_index(np.triu(met).argmax(), met.shape)
    slot, row = divmod(int(which), len(contexts[0].weight))
    context = contexts[slot]
    if context.chain[row, a] < context.chain[row, b]:
        a, b = b, a
    fillings = context.fillings[row, [a, b]]
    space = Space(few.vocab_size, len(sites))
    filled = few.template.clone()
    filled[few.sites] = few.choices[torch.arange(len(sites)), space.states()[fillings[0]]]
    spell = model.vocabulary.spell
    first, second = (spell(int(few.choices[slot, token])) for token in (a, b))
    return Ratio(
        site=sites[slot],
        tokens=(first, second),
        context=model.vocabulary.decode(filled.tolist()),
        share=float(context.weight[row] * np.exp(context.chain[row, [a, b]]).sum()),
        single=float(context.single[row, a] - context.single[row, b]),
        stationary=float(context.chain[row, a] - context.chain[row, b]),
        seen=None if shares is None else _log_ratio(*shares[:, fillings].T),
    )


def _log_ratio(first: Floats, second: Floats) -> Estimate | None:
    """The log-ratio of the mean shares (chains,) of two fillings; none where one was never seen."""
    if not first.any() or not second.any():
        return None

    def log_ratio(counts: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):  # seen in the chain left out alone
            return np.asarray(np.log(counts @ first) - np.log(counts @ second))

    return jackknife(log_ratio, len(first)).item()


@dataclass(frozen=True, eq=False)
class TokensOfSites:
    """A model's conditionals at k sites of one text, each with m tokens; the others are frozen.

    template  (length,) the text
    sites     (k,) columns of the free sites
    choices   (k, m) the tokens of each site: token number c of site s stands for choices[s, c]
    """

    base: Conditionals
    template: Tensor
    sites: Tensor
    choices: Tensor

    @property
    def vocab_size(self) -> int:
        return self.choices.shape[1]

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        """The model's scores (rows, 1, m) of the tokens of one hidden site; tokens (rows, k)."""
        places = torch.arange(len(self.sites))
        rows = self.template.repeat(len(tokens), 1)
        rows[:, self.sites] = self.choices[places, tokens]
        own = self.choices[sites[:, 0]][:, None, :]
        return choose(self.base.scores(rows, self.sites[sites], own), candidates)


@dataclass(frozen=True, eq=False)
class ExactChain:
    """The chain on a few sites: single-mask conditionals and stationary distribution, in full.

    single  (k, m**k, m) pi_i of each token at site i, given the others of each filling
    mu      (m**k,) the stationary distribution of redrawing a uniformly random site
    """

    space: Space
    single: Floats
    mu: Floats

    def by_context(self, site: int) -> "SiteContexts":
        """The conditionals of one site by the single mask and of the chain, context by context."""
        size, length = self.space.vocab_size, self.space.length
        numbers = np.arange(self.space.size).reshape((size,) * length)
        fillings = np.moveaxis(numbers, site, -1).reshape(-1, size)
        conditionals_of_site = conditional(self.mu, self.space, (site,))
        return SiteContexts(
            fillings=fillings,
            weight=self.mu[fillings].sum(axis=1),
            single=np.log(self.single[site, fillings[:, 0]]),
            chain=np.log(conditionals_of_site[fillings]),
        )


@dataclass(frozen=True, eq=False)
class Enumerated:
    """The tempered conditionals of an enumerated chain, by the numbers of its tokens."""

    exact: ExactChain

    @property
    def vocab_size(self) -> int:
        return self.exact.space.vocab_size

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Log-probabilities (rows, k, m), each site hidden alone."""
        state = self.exact.space.index(tokens)[:, None]
        scores = torch.as_tensor(self.exact.single).log()[sites, state]
        return choose(scores, candidates)


class SiteContexts(NamedTuple):
    """One site in every context of the others: contexts as rows, its m tokens as columns."""

    fillings: NDArray[np.int64]  # (contexts, m) the number of the whole filling
    weight: Floats  # (contexts,) how often the chain meets the context
    single: Floats  # (contexts, m) log pi_i of each token, the site hidden alone
    chain: Floats  # (contexts, m) log mu of each token given the context


def exact_chain(conditionals: Conditionals, n_sites: int, temperature: float) -> ExactChain:
    """Every filling of the sites, each context evaluated once."""
    space = Space(conditionals.vocab_size, n_sites, limit=LARGEST)
    single = np.stack(
        [
            redraw_probabilities(conditionals, space, (site,), temperature=temperature)[:, 0]
            for site in range(n_sites)
        ]
    )
    if single.min() < np.finfo(np.float64).tiny:
        raise GlauberError(
            f"at temperature {temperature:g} a token's probability is too small for a "
            "number: take a higher temperature or fewer tokens."
        )
    states = space.states().numpy()
    steps = [
        block_matrix(space, (site,), single[site, np.arange(space.size), states[:, site]])
        for site in range(n_sites)
    ]
    mu = stationary(sum(steps[1:], steps[0]) / n_sites)
    return ExactChain(space, single, mu)


@dataclass(frozen=True, eq=False)
class _Windows:
    """Several small chains as one set of conditionals; a row's first token says which."""

    scores_of: Tensor  # (windows, k, states, m)
    space: Space
    vocab_size: int

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        state = (tokens[:, 1:] * self.space.strides).sum(dim=1)
        scores = self.scores_of[tokens[:, :1], sites - 1, state[:, None]]
        wide = scores.new_full((*sites.shape, self.vocab_size), -torch.inf)
        wide[..., : scores.shape[-1]] = scores
        return choose(wide, candidates)


def frequencies(
    windows: list[ExactChain], *, chains: int, steps: int, seed: int, burn_in: float = 0.1
) -> Floats:
    """How often each chain stood at each filling, (windows, chains, m**k), after the burn-in.

    The chains start from uniformly random fillings and redraw one random site a step.
    """
    space = windows[0].space
    table = torch.as_tensor(np.log(np.stack([window.single for window in windows])))
    conditionals = _Windows(table, space, max(space.vocab_size, len(windows)))
    generator = torch.Generator().manual_seed(seed)
    shape = (len(windows) * chains, space.length)
    fillings = torch.randint(space.vocab_size, shape, generator=generator)
    window = torch.arange(len(windows)).repeat_interleave(chains)[:, None]
    tokens = torch.cat([window, fillings], dim=1)
    free = torch.ones_like(tokens, dtype=torch.bool)
    free[:, 0] = False
    counts = torch.zeros(len(tokens), space.size, dtype=torch.int64)
    rows, dropped = torch.arange(len(tokens)), int(steps * burn_in)
    for number, (state, _) in enumerate(
        run(glauber(conditionals), start(tokens, free), steps, seed=seed)
    ):
        if number >= dropped:
            counts[rows, (state.tokens[:, 1:] * space.strides).sum(dim=1)] += 1
    shares = counts.view(len(windows), chains, space.size).double() / max(1, steps - dropped)
    return np.asarray(shares.numpy())
