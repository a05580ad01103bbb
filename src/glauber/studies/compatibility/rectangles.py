"""The rectangle test: how far a model's conditionals are from any joint distribution.

Change token a to a' at site i, and b to b' at site j. Under a joint distribution the log-ratios
around this rectangle cancel, because each is a difference of the same log joint (paper A,
Proposition 4):

    Delta = | l_i(a->a'|b) + l_j(b->b'|a') - l_j(b->b'|a) - l_i(a->a'|b') | = 0.

So one rectangle with Delta > 0 rules out every joint distribution, up to rounding: each rectangle
is evaluated in float64 too, and only a Delta above the largest difference of the two counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import LengthOrWhole, ModelOrName, Seed, Texts, Where
from glauber.foundation.progress import Advance, check_memory, say, track
from glauber.foundation.statistics import MIN_CHAINS, Estimate, clustered_mean, rank_correlation
from glauber.foundation.study import Result, internal, reported, study
from glauber.models.base import Conditionals, Model
from glauber.models.batching import in_parts
from glauber.models.causal_lm import LeftToRight
from glauber.models.load import count_parameters, kind_of_model, load
from glauber.models.vocabulary import Vocabulary
from glauber.texts.read import Texts as StartingTexts
from glauber.texts.starts import starts

TOP = 50  # most probable tokens that a replacement is drawn from, in the paper
ROUNDS = 64  # of drawing again where the current token has probability 0
BYTES = 2000  # of memory that a rectangle takes, about: corners, scores and draws
CONTROL_COUNT = 10  # rectangles of a control, which costs one pass for every token of a text
LEFT_TO_RIGHT = "left-to-right"
PLOTS = "glauber.interfaces.plots.compatibility"
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
HIDDEN = [0, 1, 1, 0]  # the site that each of the four evaluations hides: i, j, j, i
CORNER = [0, 1, 0, 2]  # and the corner that it sees: a b, a' b, a b, a b'


@study
def rectangles(
    model: ModelOrName = "bundled:english",
    texts: Texts = None,
    *,
    count: Annotated[int, "Number of random rectangles.", Whole(1, 10**8)] = 300,
    length: Annotated[LengthOrWhole, Whole(2)] = 20,
    top: Annotated[int, "Replacements are among this many most probable tokens.", Whole(2)] = TOP,
    seed: Seed = 0,
    strongest: Annotated[int, "Number of certificates to print.", Whole(0)] = 3,
    control: Annotated[
        str | Conditionals | None,
        "Also test an autoregressive LM by name or folder, or left-to-right: this model read so.",
    ] = None,
    control_count: Annotated[
        int, "Rectangles of the control, no more than count.", Whole(1, 10**8)
    ] = CONTROL_COUNT,
    **where: Unpack[Where],
) -> "RectangleTest":
    """Measure how far a model's conditionals are from any joint distribution.

    The protocol of paper A (section 4, table 1): random passages, random pairs of their free sites,
    and at each site a replacement from the model's most probable tokens there. A vocabulary with
    fewer than `top` tokens is used whole. An autoregressive model has no influence: only the tokens
    of the rectangle are scored. A control has a joint distribution, so its rectangles close by
    construction; it checks the arithmetic of four edges that are computed separately.
    """
    check_memory(BYTES * count, f"{count:,} rectangles")
    loaded_model = load(model, exact=True, **where)
    say(f"{count:,} rectangles: {6 * count:,} rows through the model, {4 * count:,} in float64")
    measured = measure(loaded_model, texts, length=length, count=count, top=top, seed=seed)
    order = np.argsort(-measured.delta, kind="stable")
    certified = [int(number) for number in order if measured.certified[number]]
    return RectangleTest(
        model=loaded_model.name,
        kind=kind_of_model(loaded_model),
        parameters=count_parameters(loaded_model),
        top=min(top, number_of_proposals(loaded_model)),
        top_requested=top,
        certificates=[
            certificate(measured, number, loaded_model.vocabulary)
            for number in certified[:strongest]
        ],
        control=None
        if control is None
        else _control(
            control, loaded_model, texts, length, min(count, control_count), top, seed, where
        ),
        rectangles=measured,
    )


@dataclass(frozen=True, eq=False)
class Rectangles:
    """Rectangles, and the scores of the new and the old token along each of their four edges."""

    tokens: Tensor  # (count, length) with a and b, PAD after shorter texts
    sites: Tensor  # (count, 2): i and j
    values: Tensor  # (count, 2): the replacements a' and b'
    passages: Tensor  # (count,) the passage that each came from
    scores: Tensor  # (count, 4, 2) float64: i given b, j given a', j given a, i given b'
    precise: Tensor  # (count, 4, 2) the same, computed in float64
    variation: Tensor | None  # (count, 2) total variation at i by b -> b', and at j by a -> a'

    @property
    def delta(self) -> NDArray[np.float64]:
        """(count,), in nats at temperature 1; at another one it is divided by the temperature."""
        return delta_of(self.scores)

    @property
    def influence(self) -> NDArray[np.float64] | None:
        """Mean of the two total variations, (count,)."""
        return None if self.variation is None else np.asarray(self.variation.mean(dim=1).cpu())

    @property
    def noise_floor(self) -> float:
        """Largest |Delta - Delta in float64| here, plus float64's own rounding: measured only."""
        rounding = 4 * torch.finfo(torch.float64).eps * self.precise.abs().sum(dim=(1, 2))
        return float(np.abs(self.delta - delta_of(self.precise)).max() + float(rounding.max()))

    @property
    def certified(self) -> NDArray[np.bool_]:
        """(count,): above the floor in both dtypes, as rounding alone can lift one of them."""
        return np.asarray(np.minimum(self.delta, delta_of(self.precise)) > self.noise_floor)

    @property
    def groups(self) -> NDArray[np.int64]:
        """What makes rectangles dependent: passages; of one or two passages, nothing."""
        passages = np.asarray(self.passages.cpu())
        return passages if len(np.unique(passages)) >= MIN_CHAINS else np.arange(len(passages))


class Certificate(NamedTuple):
    """A rectangle as sentences: its corners, and the log-ratio by each of the two ways."""

    delta: float
    sites: tuple[int, int]
    changes: tuple[tuple[str, str], tuple[str, str]]  # (a, a') and (b, b')
    corners: tuple[str, ...]  # a b; a' b; a b'; a' b'
    one_way: float  # log-ratio of the last corner to the first by way of a' b
    other_way: float  # by way of a b'; equal under a joint distribution

    def lines(self) -> Iterable[str]:
        (a, new_a), (b, new_b) = self.changes
        yield ""
        yield f"Delta {self.delta:.3f}: {a} -> {new_a} and {b} -> {new_b}"
        names = ("original", f"with {new_a}", f"with {new_b}", "with both")
        for name, text in zip(names, self.corners, strict=True):
            yield f"  {name:>24}  {text}"
        yield (
            f"  log-ratio of the last to the first: {self.one_way:+.3f} by way of {new_a}, "
            f"{self.other_way:+.3f} by way of {new_b}"
        )


@dataclass(frozen=True)
class Control:
    """Rectangles of a model with a joint distribution: they close if the arithmetic is right."""

    model: str
    kind: str
    parameters: int | None
    count: int
    mean: float
    largest: float
    largest_in_float64: float
    largest_edge: float  # |log-ratio| that has to cancel
    certified: int


@dataclass(frozen=True, eq=False)
class RectangleTest(Result):
    """Random rectangles of one model, and those that rule out a joint distribution."""

    model: str
    kind: str  # masked, causal, diffusion or custom
    parameters: int | None  # number of weights
    top: int  # most probable tokens that replacements came from
    top_requested: int  # larger where the vocabulary has fewer
    certificates: list[Certificate]
    control: Control | None
    rectangles: Rectangles = internal()

    FIGURES = {
        "histogram": (f"{PLOTS}:plot_deltas", "delta", "rectangles.noise_floor"),
        "influence": (f"{PLOTS}:plot_delta_against_influence", "influence", "delta"),
    }

    @property
    def delta(self) -> NDArray[np.float64]:
        """Delta of each rectangle, in nats."""
        return self.rectangles.delta

    @property
    def influence(self) -> NDArray[np.float64] | None:
        """The influence between the two sites of each; None of an autoregressive model."""
        return self.rectangles.influence

    @reported
    def count(self) -> int:
        """Number of rectangles."""
        return len(self.delta)

    @reported
    def mean(self) -> Estimate:
        """Mean Delta; rectangles of one passage depend on each other."""
        return clustered_mean(self.delta, self.rectangles.groups, bounds=(0.0, np.inf))

    @reported
    def population(self) -> str:
        """What the intervals are about."""
        n = len(torch.unique(self.rectangles.passages))
        if n >= MIN_CHAINS:
            return f"passages like these {n}"
        return f"rectangles of {'this passage' if n == 1 else 'these two passages'}"

    @reported
    def quantiles(self) -> dict[str, float]:
        """Quantiles of Delta."""
        return {f"{q:g}": float(np.quantile(self.delta, q)) for q in QUANTILES}

    @reported
    def noise_floor(self) -> Estimate:
        """The largest difference to float64."""
        return Estimate(self.rectangles.noise_floor, None, reason="the largest of these rectangles")

    @reported
    def certified(self) -> Estimate:
        """Number of rectangles that rule out every joint distribution."""
        return Estimate(float(self.rectangles.certified.sum()), None, "exact")

    @reported
    def influence_correlation(self) -> Estimate | None:
        """Spearman's, of Delta and the influence between the two sites."""
        if self.influence is None:
            return None
        return rank_correlation(self.influence, self.delta, chain=self.rectangles.groups)

    def lines(self) -> Iterable[str]:
        yield f"mean Delta {self.mean.text()}, an estimate for {self.population}"
        yield "quantiles " + ", ".join(f"{q}: {value:.3f}" for q, value in self.quantiles.items())
        n_certified = int(self.certified.value)
        yield (
            f"{n_certified} of {self.count} rectangles lie above the noise floor of "
            f"{self.noise_floor.value:.1e} (the largest difference to float64): "
            + ("no joint distribution has these conditionals" if n_certified else "no certificate")
        )
        if self.top < self.top_requested:
            yield (
                f"replacements come from the {self.top} tokens that the model proposes, fewer than "
                f"the {self.top_requested} requested"
            )
        if self.control is not None:
            yield (
                f"control, {self.control.model}: Delta at most {self.control.largest:.1e} in "
                f"{self.control.count} rectangles with edges up to {self.control.largest_edge:.1f} "
                "nats; a joint distribution closes them by construction, so this checks the "
                "arithmetic only"
            )
        for written in self.certificates:
            yield from written.lines()

    def table(self) -> Mapping[str, object]:
        """One row per rectangle."""
        return {
            "passage": self.rectangles.passages.tolist(),
            "site_i": self.rectangles.sites[:, 0].tolist(),
            "site_j": self.rectangles.sites[:, 1].tolist(),
            "delta": self.delta,
            "influence": np.nan if self.influence is None else self.influence,
            "certified": self.rectangles.certified,
        }


class LeftToRightModel:
    """A model whose conditionals are those of its text read from left to right."""

    whole_vocabulary = False

    def __init__(self, base: Model) -> None:
        self._base = base
        self.name = f"{base.name} read from left to right"

    def __getattr__(self, name: str) -> object:
        return getattr(self._base, name)

    def conditionals(self) -> Conditionals:
        return LeftToRight(self._base.conditionals())

    def to(self, *, dtype: str) -> "LeftToRightModel":
        return LeftToRightModel(self._base.to(dtype=dtype))


def measure(
    model: Model, texts: StartingTexts, *, length: int | None, count: int, top: int, seed: int
) -> Rectangles:
    """`count` random rectangles over texts, in the model's dtype and in float64.

    The model's proposals choose the replacements, as an autoregressive model cannot rank a whole
    vocabulary at a site.
    """
    tokens, free = starts(model, texts, length=length, least=2)
    top = min(top, number_of_proposals(model))
    sample = draw(model.proposals(), tokens, free, count=count, top=top, seed=seed)
    with track("rectangles", 2 * count) as advance:
        scores, variation = evaluate(
            model.conditionals(), *sample[:3], influence=model.whole_vocabulary, advance=advance
        )
        precise, _ = evaluate(
            model.to(dtype="float64").conditionals(), *sample[:3], influence=False, advance=advance
        )
    return Rectangles(*sample, scores, precise, variation)


def evaluate(
    conditionals: Conditionals,
    tokens: Tensor,
    sites: Tensor,
    values: Tensor,
    *,
    influence: bool = True,
    advance: Advance | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Scores (count, 4, 2) and variation (count, 2) of rectangles; see `Rectangles` for shapes.

    Four masked evaluations each. Scores are in the conditionals' own dtype, sums over them in
    float64; the normalisation of a conditional cancels in a log-ratio. Without influence only two
    tokens are scored in each evaluation, which an autoregressive model can do.
    """
    batches = []
    for part in in_parts(torch.arange(len(tokens)), 3 * 4 * conditionals.vocab_size):
        batches.append(_edges(conditionals, tokens[part], sites[part], values[part], influence))
        if advance is not None:
            advance(len(part))
    scores = torch.cat([score for score, _ in batches])
    infinite = ~torch.isfinite(scores).all(dim=2).all(dim=1)
    if bool(infinite.any()):
        raise GlauberError(
            f"rectangle {int(infinite.nonzero()[0])} uses a token of probability 0, such as one "
            "outside the allowed vocabulary: its log-ratios are not finite."
        )
    return scores, torch.cat([variation for _, variation in batches]) if influence else None


def _edges(
    conditionals: Conditionals, tokens: Tensor, sites: Tensor, values: Tensor, influence: bool
) -> tuple[Tensor, Tensor]:
    """Scores (count, 4, 2) and variation (count, 2), the latter empty without influence."""
    # The token at a hidden site does not matter, so two evaluations share the corner a b.
    rows = corners(tokens, sites, values)[:, CORNER].flatten(0, 1)
    hidden = sites[:, HIDDEN].reshape(-1, 1)
    new_and_old = torch.stack([values, tokens.gather(1, sites)], dim=2)
    candidates = new_and_old[:, HIDDEN].reshape(-1, 1, 2)
    if not influence:
        scores = conditionals.scores(rows, hidden, candidates).double()
        return scores.view(-1, 4, 2), scores.new_empty(0)
    scores = conditionals.scores(rows, hidden).double()
    probs = torch.softmax(scores, dim=-1).view(len(tokens), 4, -1)
    shift = torch.stack([probs[:, 0] - probs[:, 3], probs[:, 1] - probs[:, 2]], dim=1)
    return scores.gather(-1, candidates).view(-1, 4, 2), shift.abs().sum(dim=-1) / 2


def corners(tokens: Tensor, sites: Tensor, values: Tensor) -> Tensor:
    """The texts (count, 4, length) with a, b; with a', b; with a, b'; with a', b'."""
    at_i = tokens.scatter(1, sites[:, :1], values[:, :1])
    at_j = tokens.scatter(1, sites[:, 1:], values[:, 1:])
    return torch.stack([tokens, at_i, at_j, tokens.scatter(1, sites, values)], dim=1)


def log_ratios(scores: Tensor) -> Tensor:
    """(count, 4): l_i(a->a'|b), l_j(b->b'|a'), l_j(b->b'|a), l_i(a->a'|b')."""
    return scores[..., 0] - scores[..., 1]


def delta_of(scores: Tensor) -> NDArray[np.float64]:
    """Delta (count,) from the scores (count, 4, 2) of the edges."""
    one_way, other_way = log_ratios(scores).split(2, dim=1)
    return np.asarray((one_way.sum(dim=1) - other_way.sum(dim=1)).abs().cpu())


class RectangleSample(NamedTuple):
    """Rectangles to evaluate; shapes as in `Rectangles`."""

    tokens: Tensor
    sites: Tensor
    values: Tensor
    passages: Tensor


def draw(
    conditionals: Conditionals, tokens: Tensor, free: Tensor, *, count: int, top: int, seed: int
) -> RectangleSample:
    """`count` random rectangles over the passages tokens (passages, length) and their free sites.

    Passage, ordered pair of sites and replacements are uniform: a replacement is one of the `top`
    tokens of highest score (ties by id), the current token left out. Where the current token has
    probability 0 (it is outside the allowed vocabulary) the whole rectangle is drawn again. The
    draws are keyed by (seed, round, rectangle): a larger count keeps the first rectangles.
    """
    n_free = free.sum(dim=1)
    if int(n_free.min()) < 2:
        raise GlauberError(
            f"text {int(n_free.argmin()) + 1} has fewer than two tokens that may be redrawn, "
            "but a rectangle needs two sites."
        )
    samples: list[RectangleSample] = []
    numbers: list[Tensor] = []
    missing = torch.arange(count)
    for attempt in range(ROUNDS):
        key = np.array([seed, attempt], dtype=np.uint64)
        generator = np.random.Generator(np.random.Philox(key=key))
        uniforms = torch.from_numpy(generator.random((count, 5)))
        for part in in_parts(missing, 2 * 2 * conditionals.vocab_size):
            sample, possible = _draw_once(conditionals, tokens, free, uniforms[part], top)
            samples.append(RectangleSample(*(column[possible] for column in sample)))
            numbers.append(part[possible])
        missing = missing[~torch.isin(missing, torch.cat(numbers))]
        if len(missing) == 0:
            order = torch.cat(numbers).argsort()
            columns = zip(*samples, strict=True)
            return RectangleSample(*(torch.cat(column)[order] for column in columns))
    raise GlauberError(
        "too few free sites have a token of the allowed vocabulary to draw two of them in a text."
    )


def _draw_once(
    conditionals: Conditionals, tokens: Tensor, free: Tensor, uniforms: Tensor, top: int
) -> tuple[RectangleSample, Tensor]:
    """A rectangle for each row of uniforms (count, 5), and which (count,) are possible."""
    passages = (uniforms[:, 0] * len(tokens)).long()
    rows, n_free = tokens[passages], free[passages].sum(dim=1)
    first = (uniforms[:, 1] * n_free).long()
    second = (uniforms[:, 2] * (n_free - 1)).long()
    pair = torch.stack([first, second + (second >= first)], dim=1)
    sites = (~free[passages]).byte().argsort(dim=1, stable=True).gather(1, pair)
    old = rows.gather(1, sites).reshape(-1)
    scores = conditionals.scores(rows.repeat_interleave(2, dim=0), sites.reshape(-1, 1))[:, 0]
    values = _replacements(scores, old, uniforms[:, 3:].reshape(-1), top)
    possible = torch.isfinite(scores.gather(1, old[:, None])).view(-1, 2).all(dim=1)
    return RectangleSample(rows, sites, values.view(-1, 2), passages), possible


def _replacements(scores: Tensor, old: Tensor, uniform: Tensor, top: int) -> Tensor:
    """One of the `top` tokens of each row of scores (rows, vocab), but not the old one: (rows,)."""
    count = torch.isfinite(scores).sum(dim=1).clamp(max=top)  # a small vocabulary has fewer
    best = scores.sort(dim=1, descending=True, stable=True).indices[:, :top]
    is_old = (best == old[:, None]) & (torch.arange(best.shape[1]) < count[:, None])
    rank = torch.where(is_old.any(dim=1), is_old.byte().argmax(dim=1), count)
    choice = (uniform * (count - is_old.any(dim=1).long())).long()
    choice += choice >= rank
    return best.gather(1, choice[:, None])[:, 0]


def number_of_proposals(model: Model) -> int:
    """Tokens that the model may propose at a site."""
    proposals = model.proposals()
    allowed = getattr(proposals, "allowed", None)
    return int(proposals.vocab_size if allowed is None else allowed.sum())


def certificate(measured: Rectangles, number: int, vocabulary: Vocabulary) -> Certificate:
    """The rectangle of that number as sentences."""
    sites = measured.sites[number]
    old, new = measured.tokens[number, sites].tolist(), measured.values[number].tolist()
    spell = vocabulary.spell
    first, second = ((spell(a), spell(b)) for a, b in zip(old, new, strict=True))
    columns = measured.tokens, measured.sites, measured.values
    rows = corners(*(column[number, None] for column in columns))[0]
    ratios = log_ratios(measured.scores)[number].tolist()
    i, j = sites.tolist()
    return Certificate(
        delta=float(measured.delta[number]),
        sites=(i, j),
        changes=(first, second),
        corners=tuple(vocabulary.decode(row.tolist()) for row in rows),
        one_way=ratios[0] + ratios[1],
        other_way=ratios[2] + ratios[3],
    )


def _control(
    control: str | Conditionals,
    loaded_model: Model,
    texts: StartingTexts,
    length: int | None,
    count: int,
    top: int,
    seed: int,
    where: Where,
) -> Control:
    """Rectangles of another model with a joint distribution, or of this one left to right."""
    if control == LEFT_TO_RIGHT:
        if not loaded_model.whole_vocabulary:
            raise GlauberError(
                f"{loaded_model.name} is autoregressive already and needs no control."
            )
        model: Model = LeftToRightModel(loaded_model)  # type: ignore[assignment]
    else:
        model = load(control, **where)
        if isinstance(control, str) and model.whole_vocabulary:
            raise GlauberError(
                f"{control} is a masked LM, but a control must be autoregressive: give another "
                f"name, or {LEFT_TO_RIGHT}."
            )
    measured = measure(model, texts, length=length, count=count, top=top, seed=seed)
    base = loaded_model if control == LEFT_TO_RIGHT else model
    return Control(
        model=model.name,
        kind=kind_of_model(model),
        parameters=count_parameters(base),
        count=count,
        mean=float(measured.delta.mean()),
        largest=float(measured.delta.max()),
        largest_in_float64=float(delta_of(measured.precise).max()),
        largest_edge=float(log_ratios(measured.scores).abs().max()),
        certified=int(measured.certified.sum()),
    )
