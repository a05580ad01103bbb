"""Which hidden sites are filled next, how many, and which are hidden again? The rules, one by one.

Free sites are numbered 0, 1, … in text order ("slots"). A rule gives all that can happen in a pass,
each with its probability, so that `unmasking` can follow every path.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import acos, cos, exp, factorial, floor, log, pi, prod
from typing import NamedTuple, TypeAlias

import numpy as np

from glauber.errors import GlauberError
from glauber.exact.space import Floats

SLACK = 1e-12  # of comparisons that are equalities on paper
LOOP_FILLED = 0.9  # the share of filled sites at which ReMDM's loop stays
ORDERS = ("random", "left-to-right", "confidence", "margin", "entropy", "drawn")
COUNTS = ("linear", "cosine", "threshold", "entropy-bound")
REMASKS = ("none", "cap", "rescale", "conf", "loop", "planned")

Tokens: TypeAlias = dict[int, int]  # slot -> token


@dataclass(frozen=True)
class Procedure:
    """How hidden sites are filled.

    order    random, left-to-right, confidence, margin, entropy or drawn
    count    "2" a pass, linear or cosine over `passes`, threshold:0.9, entropy-bound:0.1
    block    so many free sites at a time, from left to right
    remask   none, cap:0.1, rescale:0.5, conf, loop:0.02,0.55,0.05 (ReMDM), planned:1 (P2)
    correct  sweeps of redraws at the end, or between passes too, in groups of correct_block sites
    """

    order: str = "confidence"
    count: str = "linear"
    passes: int | None = None
    block: int | None = None
    remask: str = "none"
    temperature: float = 1.0  # of every draw
    top_k: int | None = None  # draw among the k most probable
    top_p: float | None = None  # draw among the most probable, up to this mass
    correct: int = 0
    correct_block: int | None = None
    between: bool = False

    def __post_init__(self) -> None:
        name, count = parse(self.remask)[0], parse(self.count)[0]
        if self.order not in ORDERS:
            raise GlauberError(f'the order is "{self.order}", but it must be one of {ORDERS}.')
        if count not in COUNTS and not (count.isdigit() and int(count) > 0):
            raise GlauberError(
                f'the count is "{self.count}", but it must be a number of sites or one of {COUNTS}.'
            )
        if name not in REMASKS:
            raise GlauberError(f'there is no way to hide again called "{self.remask}".')
        if name != "none" and self.count not in ("linear", "cosine"):
            raise GlauberError("hiding again needs a plan: the count must be linear or cosine.")


def parse(rule: str) -> tuple[str, list[float]]:
    """The name and the numbers of a rule such as "loop:0.02,0.55,0.05"."""
    name, _, numbers = rule.partition(":")
    return name, [float(number) for number in numbers.split(",") if number]


# What stands at one site


class SiteLaw(NamedTuple):
    """At one hidden site: the law that a token is drawn from, and the one that choices look at."""

    drawn: tuple[float, ...]
    read: tuple[float, ...]


Laws: TypeAlias = Mapping[int, SiteLaw]  # slot -> law


def site_law(scores: Floats, how: Procedure) -> SiteLaw:
    """At temperature 0 the likeliest token (the lowest of equals), chosen by the softmax at 1."""
    if how.temperature == 0:
        surest = np.zeros(len(scores))
        surest[np.argmax(scores)] = 1.0
        return SiteLaw(tuple(surest.tolist()), tuple(softmax(scores).tolist()))
    law = tuple(truncated(softmax(scores / how.temperature), how).tolist())
    return SiteLaw(law, law)


def softmax(scores: Floats) -> Floats:
    weights = np.exp(scores - scores.max())
    return np.asarray(weights / weights.sum())


def truncated(law: Floats, how: Procedure) -> Floats:
    """The law given that the token is among the top k, and then in the smallest head of mass p."""
    falling = np.argsort(-law, kind="stable")  # of equals the lower token comes first
    if how.top_k is not None:
        law[falling[how.top_k :]] = 0.0
        law = law / law.sum()
    if how.top_p is not None:
        reaches = law[falling].cumsum() >= how.top_p - SLACK
        law[falling[1 + int(reaches.argmax()) :]] = 0.0
        law = law / law.sum()
    return law


def draws(laws: Laws, slots: Sequence[int]) -> Iterator[tuple[Tokens, float]]:
    """All ways to draw a token at each of these slots independently, with their probabilities."""
    possible = [[(v, p) for v, p in enumerate(laws[slot].drawn) if p > 0] for slot in slots]
    for drawn in product(*possible):
        tokens = {slot: token for slot, (token, _) in zip(slots, drawn, strict=True)}
        yield tokens, prod(p for _, p in drawn)


# Which slots are filled


def fills(
    laws: Laws, hidden: Sequence[int], how: Procedure, number: int | None
) -> Iterator[tuple[Tokens, float]]:
    """What a pass fills at the hidden slots; `number` of them where a plan says how many."""
    if how.order == "drawn":
        for tokens, probability in draws(laws, hidden):
            keys = {slot: laws[slot].read[tokens[slot]] for slot in hidden}
            chosen = first(ranked(keys), laws, how.count, number)
            yield {slot: tokens[slot] for slot in chosen}, probability
        return
    for ranking, chance in rankings(laws, hidden, how.order):
        for tokens, probability in draws(laws, first(ranking, laws, how.count, number)):
            yield tokens, chance * probability


def rankings(
    laws: Laws, hidden: Sequence[int], order: str
) -> Iterable[tuple[Sequence[int], float]]:
    """The ranking of the hidden slots, or all of them with equal chances."""
    if order == "random":
        return [(ranking, 1 / factorial(len(hidden))) for ranking in permutations(hidden)]
    if order == "left-to-right":
        return [(hidden, 1.0)]
    return [(ranked({slot: sureness(laws[slot].read, order) for slot in hidden}), 1.0)]


def ranked(keys: Mapping[int, float]) -> list[int]:
    """Slots by falling key, of equals the lower slot first."""
    return sorted(keys, key=lambda slot: (-keys[slot], slot))


def sureness(law: Sequence[float], order: str) -> float:
    """The largest probability, its distance to the second, or minus the entropy."""
    second, largest = sorted(law)[-2:]
    return {"confidence": largest, "margin": largest - second, "entropy": -entropy(law)}[order]


def entropy(law: Sequence[float]) -> float:
    """In nats."""
    return -sum(p * log(p) for p in law if p > 0)


def first(ranking: Sequence[int], laws: Laws, count: str, number: int | None) -> Sequence[int]:
    """Those slots of a ranking that are filled in this pass."""
    if number is not None:
        return ranking[:number]
    name, numbers = parse(count)
    if name == "threshold":
        sure = [slot for slot in ranking[1:] if max(laws[slot].read) >= numbers[0]]
        return [*ranking[:1], *sure]
    if name == "entropy-bound":
        entropies = [entropy(laws[slot].read) for slot in ranking]
        heads = [entropies[:m] for m in range(1, len(ranking) + 1)]
        # What a head costs never falls as it grows, so those within the bound come first.
        return ranking[: max(1, sum(sum(h) - max(h) <= numbers[0] + SLACK for h in heads))]
    return ranking[: int(name)]


# How many are planned to be hidden, and which are hidden again


def hidden_plan(n: int, how: Procedure) -> list[int]:
    """How many of n slots are planned to be hidden after passes 0, 1, …, T."""
    passes = how.passes or n
    name, numbers = parse(how.remask)
    if name == "loop":
        shares = [loop_share(j / passes, how.count, *numbers[1:]) for j in range(1, passes)]
        return [n, *(floor(n * share + 1e-9) for share in shares), 0]
    if how.count == "cosine":
        return [floor(n * hidden_share(j / passes, "cosine") + 1e-9) for j in range(passes + 1)]
    if passes > n:  # the first slot in the first pass, the last one in the last, evenly between
        return [n, *(n - 1 - (j - 1) * (n - 1) // (passes - 1) for j in range(1, passes + 1))]
    each, one_more = divmod(n, passes)
    return [n - j * each - min(j, one_more) for j in range(passes + 1)]


def hidden_share(u: float, count: str) -> float:
    """The share that is hidden when a share u of the passes is over."""
    return cos(pi * u / 2) if count == "cosine" else 1 - u


def loop_share(u: float, count: str, on: float, off: float) -> float:
    """The schedule runs to its share 1 - LOOP_FILLED at time `on`, waits until `off`, and goes on.

    Time is 1 - u, from 1 down to 0; the schedule's own clock runs faster before and slower after.
    """
    waits = 2 / pi * acos(1 - LOOP_FILLED) if count == "cosine" else LOOP_FILLED
    if 1 - u > on - 1e-9:
        return hidden_share(waits * u / (1 - on), count)
    if 1 - u > off - 1e-9:
        return 1 - LOOP_FILLED
    return hidden_share(1 - (1 - waits) * (1 - u) / off, count)


def hiding_chances(
    placed: Sequence[float], j: int, plan: Sequence[int], how: Procedure
) -> list[float]:
    """The chance of each filled slot to be hidden again in pass j = 1, …, T.

    placed holds, for each filled slot, the probability that its token had when it was placed.

    With a_j = 1 - plan[j] / n the share that is planned to be filled, the most that any rule may
    hide again is (1 - a_j) / a_{j-1}: more could not be filled in time.
    """
    name, numbers = parse(how.remask)
    n, passes = plan[0], len(plan) - 1
    if name == "none" or j >= passes or plan[j - 1] == n:
        return [0.0] * len(placed)
    most = min(1.0, plan[j] / (n - plan[j - 1]))
    if name == "cap":
        return [min(numbers[0], most)] * len(placed)
    if name == "rescale":
        return [numbers[0] * most] * len(placed)
    if name == "conf":
        weights = [exp(-p) for p in placed]
        return [most * weight / sum(weights) for weight in weights]
    eta, on, off = numbers
    looping = off - 1e-9 < 1 - j / passes < on - 1e-9
    return [min(eta, (1 - LOOP_FILLED) / LOOP_FILLED) if looping else 0.0] * len(placed)


def subsets(slots: Sequence[int], chances: Sequence[float]) -> Iterator[tuple[list[int], float]]:
    """All sets that hold each slot with its chance, independently."""
    for inside in product((False, True), repeat=len(slots)):
        probability = prod(c if i else 1 - c for i, c in zip(inside, chances, strict=True))
        if probability > 0:
            yield [slot for slot, i in zip(slots, inside, strict=True) if i], probability
