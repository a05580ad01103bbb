"""Does a single mask read off what the chain does? Ratios of both, where the chain is known.

Under a joint law mu, pi_i(a | x_-i) / pi_i(b | x_-i) = mu(a, x_-i) / mu(b, x_-i): hiding one site
tells how often the chain shows a and b there (paper A, Eq. 4.1). Without a joint law the two may
differ. Here all sites of a text but a few are held, so that the chain's stationary ratios are
exact (`few_sites.py`), and chains that are run beside it show the same ratios as frequencies.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from torch import Tensor

from glauber.compatibility.few_sites import (
    LARGEST,
    FewSites,
    enumerate_chain,
    frequencies,
)
from glauber.compatibility.ratios import Probe, probe_of
from glauber.compatibility.rectangles import number_of_proposals
from glauber.conditionals.base import Conditionals, Model, check_temperature
from glauber.conditionals.load import load
from glauber.conditionals.starts import read_sites, spell_sites, starts
from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.parameters import Device, LengthOrWhole, ModelOrName, Seed, Temperature, Texts, Trust
from glauber.progress import check_count, check_seed, say, track
from glauber.result import Result, counted, model_parts, plain, signature, study
from glauber.statistics import Estimate, clustered_mean

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

ROUNDING = 1e-9  # nats: what float64 adds to a log-ratio, with room to spare


@study
def single_mask(
    model: ModelOrName = "bundled:english",
    texts: Texts = None,
    *,
    count: Annotated[int, "How many texts."] = 20,
    length: LengthOrWhole = 20,
    sites: Annotated[int, "Free sites of each text, drawn at random; the others are held."] = 2,
    at: Annotated[Sequence[int] | str, "The free sites themselves, such as 3,7."] = "",
    top: Annotated[int, "Tokens of a free site: the model's first choices and its own."] = 8,
    temperature: Temperature = 1.0,
    chains: Annotated[int, "Chains of each text whose frequencies are counted; 0 for none."] = 16,
    steps: Annotated[int, "Steps of each of these chains; the first tenth is dropped."] = 2000,
    seed: Seed = 0,
    device: Device = "auto",
    trust_remote_code: Trust = False,
) -> "SingleMask":
    """Compare single-mask ratios with the ratios of the chain's stationary distribution.

    Paper A, Eq. 4.1. In each text a few sites are free and the rest is held; a free site may take
    its own token and the model's first choices there. The model is evaluated in float64 at every
    filling, which makes the stationary distribution of this small chain exact. Where the model has
    a joint law, all differences vanish.
    """
    listed = _check(count, sites, at, top, chains, steps, length)
    check_temperature(temperature)
    check_seed(seed)
    opened = load(model, device=device, trust_remote_code=trust_remote_code, exact=True)
    n_sites = len(listed) or sites
    least = max([n_sites, *(site + 1 for site in listed)])
    tokens, free = starts(opened, texts, length=length, least=least)
    top = min(top, number_of_proposals(opened))
    _check_size(top, n_sites)
    count = min(count, len(tokens)) if listed else count
    precise = opened.to(dtype="float64")
    asked = precise.conditionals()
    say(f"{count:,} texts: {count * n_sites * top ** (n_sites - 1):,} rows in float64")
    few, found = [], []
    with track("texts", count) as advance:
        for places in _places(free, listed, count=count, n_sites=n_sites, seed=seed):
            text, chosen = places
            window = _window(opened, asked, tokens[text], free[text], chosen, top)
            few.append((places, window))
            found.append(enumerate_chain(window, n_sites, temperature))
            advance()
    counted = frequencies(found, chains=chains, steps=steps, seed=seed) if chains else None
    probes = [
        probe_of(opened, *one, law, None if counted is None else counted[number])
        for number, (one, law) in enumerate(zip(few, found, strict=True))
    ]
    return SingleMask(
        probes=probes,
        name=opened.name,
        n_sites=n_sites,
        top=top,
        n_chains=chains,
        n_steps=steps,
        dtype=str(precise.dtype),
        signature=signature(
            **model_parts(opened), texts=count, length=length or "whole",
            sites=spell_sites(listed) if listed else n_sites, tokens=top,
            temperature=temperature, chains=chains, steps=steps, seed=seed,
        ),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class SingleMask(Result):
    """Single-mask ratios beside the chain's, text by text."""

    probes: list[Probe]
    name: str  # of the model
    n_sites: int  # free in each text
    top: int
    n_chains: int  # of each text
    n_steps: int  # of each chain
    dtype: str  # of the model
    signature: str

    @property
    def kind(self) -> str:
        """What the figures of one text are."""
        if self.dtype == "float64":
            return "exact for the chain on these sites and tokens, in float64"
        return f"estimate: the model computes in {self.dtype}"

    def over_texts(self, figure: str) -> Estimate:
        """The mean of a probe's figure over texts; sites drawn in one text count together."""
        values, texts = zip(*((getattr(one, figure), one.text) for one in self.probes), strict=True)
        most = 1.0 if figure in ("total_variation", "reversed") else np.inf
        return clustered_mean(values, texts, bounds=(0.0, most), student=True)

    @property
    def differing(self) -> int:
        """Texts with a ratio that differs by more than rounding."""
        return sum(one.largest > ROUNDING for one in self.probes)

    @property
    def covered(self) -> tuple[int, int]:
        """Ratios seen in the chains whose interval holds the exact one, and how many there are."""
        seen = [(one.ratio, one.ratio.seen) for one in self.probes]
        known = [(r.stationary, s.interval) for r, s in seen if s is not None and s.interval]
        return sum(low <= exact <= high for exact, (low, high) in known), len(known)

    def to_dict(self) -> Record:
        names = ("difference", "total_variation", "reversed")
        return {
            "model": self.name,
            **{name: plain(self.over_texts(name)) for name in names},
            "largest": max(one.largest for one in self.probes),
            "texts_that_differ": self.differing,
            "texts": [plain(one) for one in self.probes],
            "intervals_that_hold_the_exact_ratio": list(self.covered),
            "kind": self.kind,
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        many = counted(len(self.probes), "text")
        yield (
            f"log-ratios of two tokens at a site, single mask less chain, in {many} "
            f"with {self.n_sites} free sites of {self.top} tokens (the rest held)"
        )
        yield f"mean |difference| {self._said('difference')} nats; under a joint law 0"
        yield f"largest {max(one.largest for one in self.probes):.3f} nats, {self.kind}"
        yield (
            f"{self.differing} of {many} differ by more than rounding: "
            + ("no joint law" if self.differing else "nothing speaks against a joint law")
        )
        yield f"total variation of the two conditionals {self._said('total_variation')}"
        yield (
            "share of the chain's time where the single mask names another first choice "
            + self._said("reversed")
        )
        held, known = self.covered
        if known:
            yield (
                f"frequencies of {counted(self.n_chains, 'chain')} of {self.n_steps:,} steps: "
                f"{held} of {known} 95% intervals hold the exact ratio"
            )
        one = max(self.probes, key=lambda one: abs(one.ratio.single - one.ratio.stationary)).ratio
        yield ""
        yield f"{one.tokens[0]} against {one.tokens[1]} in: {one.context}"
        yield (
            f"  log-ratio by a single mask {one.single:+.3f}, of the chain {one.stationary:+.3f}"
            + ("" if one.seen is None else f", counted {one.seen.text()}")
        )

    def _said(self, figure: str) -> str:
        """A figure over texts; of one text it is that text's own."""
        mean = self.over_texts(figure)
        if mean.n_chains == 1:
            return f"{mean.value:.3f} (of this text)"
        few = f"{mean.value:.3f} (no interval from {mean.n_chains} texts)"
        return mean.text() if mean.interval else few

    def frame(self) -> "pandas.DataFrame":
        """One row per text."""
        import pandas

        rows = []
        for one in self.probes:
            low, high = (one.ratio.seen and one.ratio.seen.interval) or (np.nan, np.nan)
            rows.append(
                {
                    "text": one.text,
                    "sites": spell_sites(one.sites),
                    "difference": one.difference,
                    "largest": one.largest,
                    "total_variation": one.total_variation,
                    "reversed": one.reversed,
                    "token": one.ratio.tokens[0],
                    "other": one.ratio.tokens[1],
                    "single_mask": one.ratio.single,
                    "stationary": one.ratio.stationary,
                    "counted": np.nan if one.ratio.seen is None else one.ratio.seen.value,
                    "counted_low": low,
                    "counted_high": high,
                }
            )
        return pandas.DataFrame(rows)

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.compatibility import plot_ratios

        return {"ratios": plot_ratios([one.ratio for one in self.probes])}


def _places(
    free: Tensor, listed: list[int], *, count: int, n_sites: int, seed: int
) -> Iterable[tuple[int, list[int]]]:
    """(text, sites for people) of each probe: the texts in turn, sites at random or as listed."""
    generator = np.random.Generator(np.random.Philox(seed))
    for number in range(count):
        text = number % len(free)
        there = int(free[text].sum())
        if there < max([n_sites, *(site + 1 for site in listed)]):
            raise GlauberError(f"text {text + 1} has sites 0 to {there - 1} only.")
        drawn = generator.choice(there, n_sites, replace=False).tolist()
        yield text, listed or sorted(drawn)


def _window(
    opened: Model, precise: Conditionals, row: Tensor, free: Tensor, sites: list[int], top: int
) -> FewSites:
    """The sites with their own tokens and the model's first choices, the rest of the row held."""
    columns = free.nonzero()[:, 0][sites]
    rows = row.repeat(len(sites), 1)
    scores = opened.proposals().scores(rows, columns[:, None])[:, 0].double()
    own = torch.arange(scores.shape[1]) == row[columns].cpu()[:, None]
    scores = torch.where(own & torch.isfinite(scores), torch.inf, scores.cpu())
    choices = scores.sort(dim=1, descending=True, stable=True).indices[:, :top]
    return FewSites(precise, row, columns, choices)


def _check(
    count: int, sites: int, at: Sequence[int] | str, top: int, chains: int, steps: int,
    length: int | None,
) -> list[int]:  # fmt: skip
    """The sites that were named, if all numbers make sense."""
    check_count("number of texts", count, most=10**6)
    check_count("number of free sites", sites, least=2, most=12)
    check_count("number of tokens", top, least=2)
    check_count("number of chains", chains, least=0, most=10**4)
    check_count("number of steps", steps, least=10, most=10**8)
    if length is not None:
        check_count("length", length, least=2)
    listed = read_sites(at)
    if len(listed) == 1:
        raise GlauberError("one free site has one context only: name two or more, such as 3,7.")
    _check_size(top if top <= LARGEST else 2, len(listed) or sites)
    return listed


def _check_size(top: int, n_sites: int) -> None:
    if top**n_sites > LARGEST:
        raise GlauberError(
            f"{top} tokens at {n_sites} sites make {top**n_sites:,} fillings, more than the "
            f"{LARGEST:,} that are enumerated: take fewer of either."
        )
