"""The exact distribution of the fillings that an unmasking gives, by following every path.

A state says what the free sites contain (HIDDEN, or a token), and a pass turns one state into many,
each with its probability. Nothing is drawn. In one pass

    the model is evaluated once, with the hidden sites hidden; each gets a candidate from its
    distribution,
    the hidden sites are ranked (the order), and the first of them are filled (the count),
    some that were filled before are hidden again (remask).

Free sites are numbered 0, 1, … in text order ("slots"). A candidate that is not taken is forgotten,
so candidates are enumerated at the chosen slots alone, unless the choice depends on them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from math import acos, cos, exp, factorial, floor, inf, log, pi, prod
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from glauber.exact.space import Floats, Space, softmax
from glauber.foundation.errors import GlauberError
from glauber.models.base import Conditionals

__all__ = ["Procedure", "correction_matrix", "exact_law", "exact_passes"]

HIDDEN = -1
SLACK = 1e-12  # of comparisons that are equalities on paper
LOOP_FILLED = 0.9  # the share of filled sites at which ReMDM's loop stays
ORDERS = ("random", "left-to-right", "confidence", "margin", "entropy", "drawn")
COUNTS = ("linear", "cosine", "threshold", "entropy-bound")
REMASKS = ("none", "cap", "rescale", "conf", "loop", "planned")


State: TypeAlias = tuple[int, ...]  # the token of each slot, or HIDDEN
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


def exact_law(conditionals: Conditionals, tokens: Tensor, free: Tensor, how: Procedure) -> Floats:
    """The distribution (vocab ** slots,) of the filling, float64, the first free site slowest.

    tokens (length,) are the fixed tokens; free (length,) bool says which sites are filled.
    """
    evaluate = cached_conditionals(conditionals, tokens, free, how)
    nodes = unmask_nodes(evaluate, int(free.sum()), how)
    if not how.between:
        nodes = sweep_nodes(evaluate, nodes, how)
    return fillings_distribution(nodes, Space(conditionals.vocab_size, int(free.sum())))


def exact_passes(
    conditionals: Conditionals, tokens: Tensor, free: Tensor, how: Procedure
) -> Floats:
    """The distribution (most passes + 1,) of the number of passes until nothing is hidden."""
    nodes = unmask_nodes(cached_conditionals(conditionals, tokens, free, how), int(free.sum()), how)
    result = np.zeros(1 + max(node.passes for node in nodes))
    for node, probability in nodes.items():
        result[node.passes] += probability
    return result


def correction_matrix(
    conditionals: Conditionals, tokens: Tensor, free: Tensor, how: Procedure
) -> Floats:
    """The matrix (fillings, fillings) of one sweep of redraws in a uniformly random order."""
    evaluate = cached_conditionals(conditionals, tokens, free, how)
    space = Space(conditionals.vocab_size, int(free.sum()))
    starts = [Node(tuple(state), ()) for state in space.states().tolist()]
    return np.stack(
        [fillings_distribution(merge_paths(sweep(evaluate, s, how)), space) for s in starts]
    )


# Paths


class SiteDistribution(NamedTuple):
    """At one hidden site: what a token is drawn from, and what the choice of sites depends on."""

    drawn: tuple[float, ...]
    read: tuple[float, ...]


Distributions: TypeAlias = Mapping[int, SiteDistribution]  # slot -> distribution


class Node(NamedTuple):
    """Where a path is: its tokens, how probable each was when it was placed, passes so far."""

    state: State
    placed: tuple[float, ...]  # (slots,), or empty where no rule needs it
    passes: int = 0


Evaluate: TypeAlias = Callable[[State], Distributions]
Nodes: TypeAlias = dict[Node, float]  # a distribution over the nodes


def cached_conditionals(
    conditionals: Conditionals, tokens: Tensor, free: Tensor, how: Procedure
) -> Evaluate:
    """A function that gives the distributions at the hidden slots of a state, and caches them."""
    sites = free.nonzero()[:, 0]
    if not len(sites):
        raise GlauberError("no site is free, so there is nothing to fill.")

    @cache
    def evaluate(state: State) -> Distributions:
        slots = [slot for slot, token in enumerate(state) if token == HIDDEN]
        if not slots:
            return {}
        row = tokens.clone()
        row[sites] = torch.tensor(state).clamp(min=0)
        scores = conditionals.scores(row[None], sites[slots][None])[0].double().numpy()
        return {
            slot: site_distribution(of_site, how)
            for slot, of_site in zip(slots, scores, strict=True)
        }

    return evaluate


# Passes


def unmask_nodes(evaluate: Evaluate, n: int, how: Procedure) -> Nodes:
    """The distribution over the nodes after the last pass, from n hidden slots."""
    needs_placed = parse(how.remask)[0] in ("conf", "planned")
    nodes = {Node((HIDDEN,) * n, (0.0,) * n if needs_placed else ()): 1.0}
    for start in range(0, n, how.block or n):
        slots = range(n)[start : start + (how.block or n)]
        plan = hidden_plan(len(slots), how)
        last = len(slots) if how.remask == "none" else len(plan) - 1
        for j in range(1, last + 1):
            nodes = merge_paths(
                (after, probability * chance)
                for node, probability in nodes.items()
                for after, chance in pass_outcomes(evaluate, node, slots, j, plan, how)
            )
    return nodes


def merge_paths(arrivals: Iterable[tuple[Node, float]]) -> Nodes:
    """The distribution over nodes, where paths that meet are added up."""
    nodes: Nodes = {}
    for node, probability in arrivals:
        nodes[node] = nodes.get(node, 0.0) + probability
    return nodes


def pass_outcomes(
    evaluate: Evaluate,
    node: Node,
    slots: Sequence[int],
    j: int,
    plan: Sequence[int],
    how: Procedure,
) -> Iterator[tuple[Node, float]]:
    """What pass j of these slots makes of a node, with the sweeps that follow every pass."""
    if how.remask == "none" and not hidden_among(node, slots):
        yield node, 1.0  # it waits for the others
        return
    step = planned_pass if parse(how.remask)[0] == "planned" else one_pass
    after = merge_paths(step(evaluate, node, slots, j, plan, how))
    yield from (sweep_nodes(evaluate, after, how) if how.between else after).items()


def one_pass(
    evaluate: Evaluate,
    node: Node,
    slots: Sequence[int],
    j: int,
    plan: Sequence[int],
    how: Procedure,
) -> Iterator[tuple[Node, float]]:
    """Some filled slots are hidden again, and as many hidden ones are filled as the rule says.

    With a plan, so many are filled that it is met in spite of those hidden again.
    """
    distributions, hidden = evaluate(node.state), hidden_among(node, slots)
    filled = [slot for slot in slots if slot not in hidden]
    placed = [node.placed[slot] if node.placed else 0.0 for slot in filled]
    for rehidden, chance in subsets(filled, hiding_chances(placed, j, plan, how)):
        number = None
        if how.count in ("linear", "cosine"):
            least = 1 if how.remask == "none" else 0
            number = max(least, len(hidden) + len(rehidden) - plan[min(j, len(plan) - 1)])
        for tokens, probability in fills(distributions, hidden, how, number):
            yield next_node(node, tokens, rehidden, distributions), chance * probability


def planned_pass(
    evaluate: Evaluate,
    node: Node,
    slots: Sequence[int],
    j: int,
    plan: Sequence[int],
    how: Procedure,
) -> Iterator[tuple[Node, float]]:
    """The slots of the largest values stay filled, as many as the plan says: P2.

    A hidden slot has the log-probability of its candidate, a filled one eta times that which its
    token had when it was placed; at eta = 0 filled ones are never hidden again.
    """
    distributions, hidden = evaluate(node.state), hidden_among(node, slots)
    (eta,) = parse(how.remask)[1]
    values = {s: eta * log(node.placed[s]) if eta else inf for s in slots if s not in hidden}
    for tokens, probability in draws(distributions, hidden):
        values |= {slot: log(distributions[slot].read[token]) for slot, token in tokens.items()}
        best = rank_slots(values)[: len(slots) - plan[j]]
        accepted = {slot: token for slot, token in tokens.items() if slot in best}
        rehidden = [slot for slot in slots if slot not in hidden and slot not in best]
        yield next_node(node, accepted, rehidden, distributions), probability


def hidden_among(node: Node, slots: Sequence[int]) -> list[int]:
    return [slot for slot in slots if node.state[slot] == HIDDEN]


def next_node(
    node: Node, tokens: Tokens, rehidden: Sequence[int], distributions: Distributions
) -> Node:
    """The node one pass later, with new tokens at some slots and others hidden again."""
    state, placed = list(node.state), list(node.placed)
    for slot in rehidden:
        state[slot] = HIDDEN
    for slot, token in tokens.items():
        state[slot] = token
    if placed:
        for slot in rehidden:
            placed[slot] = 0.0
        for slot, token in tokens.items():
            placed[slot] = distributions[slot].read[token]
    return Node(tuple(state), tuple(placed), node.passes + 1)


# Sweeps of redraws


def sweep_nodes(evaluate: Evaluate, nodes: Nodes, how: Procedure) -> Nodes:
    """The distribution over the nodes after the sweeps."""
    for _ in range(how.correct):
        nodes = merge_paths(
            (after, probability * chance)
            for node, probability in nodes.items()
            for after, chance in sweep(evaluate, node, how)
        )
    return nodes


def sweep(evaluate: Evaluate, node: Node, how: Procedure) -> Iterator[tuple[Node, float]]:
    """Every filled slot is redrawn once: in a random order, one group after the other.

    The slots of a group are hidden together, with those that are hidden anyway, and redrawn
    independently.
    """
    filled = [slot for slot, token in enumerate(node.state) if token != HIDDEN]
    orders, size = list(permutations(filled)), how.correct_block or 1
    for order in orders:
        nodes = {node: 1 / len(orders)}
        for start in range(0, len(order), size):
            group = order[start : start + size]
            nodes = merge_paths(
                (after, probability * chance)
                for now, probability in nodes.items()
                for after, chance in redrawn(evaluate, now, group)
            )
        yield from nodes.items()


def redrawn(evaluate: Evaluate, node: Node, group: Sequence[int]) -> Iterator[tuple[Node, float]]:
    distributions = evaluate(
        tuple(HIDDEN if s in group else token for s, token in enumerate(node.state))
    )
    for tokens, probability in draws(distributions, group):
        yield next_node(node, tokens, (), distributions)._replace(passes=node.passes), probability


def fillings_distribution(nodes: Nodes, space: Space) -> Floats:
    """The distribution (fillings,) of the tokens, with nothing hidden."""
    numbers = space.index(torch.tensor([node.state for node in nodes])).numpy()
    result = np.zeros(space.size)
    np.add.at(result, numbers, list(nodes.values()))
    return result


# Rules: what may happen at one site, and which sites are filled or hidden again


def site_distribution(scores: Floats, how: Procedure) -> SiteDistribution:
    """At temperature 0 the likeliest token (the lowest of equals), chosen by the softmax at 1."""
    if how.temperature == 0:
        surest = np.zeros(len(scores))
        surest[np.argmax(scores)] = 1.0
        return SiteDistribution(tuple(surest.tolist()), tuple(softmax(scores).tolist()))
    tempered = tuple(truncate(softmax(scores / how.temperature), how).tolist())
    return SiteDistribution(tempered, tempered)


def truncate(probabilities: Floats, how: Procedure) -> Floats:
    """The distribution cut to the top k tokens, and then to the smallest head of mass p."""
    falling = np.argsort(-probabilities, kind="stable")  # of equals the lower token comes first
    if how.top_k is not None:
        probabilities[falling[how.top_k :]] = 0.0
        probabilities = probabilities / probabilities.sum()
    if how.top_p is not None:
        reaches = probabilities[falling].cumsum() >= how.top_p - SLACK
        probabilities[falling[1 + int(reaches.argmax()) :]] = 0.0
        probabilities = probabilities / probabilities.sum()
    return probabilities


def draws(distributions: Distributions, slots: Sequence[int]) -> Iterator[tuple[Tokens, float]]:
    """All ways to draw a token at each of these slots independently, with their probabilities."""
    possible = [
        [(v, p) for v, p in enumerate(distributions[slot].drawn) if p > 0] for slot in slots
    ]
    for drawn in product(*possible):
        tokens = {slot: token for slot, (token, _) in zip(slots, drawn, strict=True)}
        yield tokens, prod(p for _, p in drawn)


# Which slots are filled


def fills(
    distributions: Distributions, hidden: Sequence[int], how: Procedure, number: int | None
) -> Iterator[tuple[Tokens, float]]:
    """What a pass fills at the hidden slots; `number` of them where a plan says how many."""
    if how.order == "drawn":
        for tokens, probability in draws(distributions, hidden):
            keys = {slot: distributions[slot].read[tokens[slot]] for slot in hidden}
            chosen = first(rank_slots(keys), distributions, how.count, number)
            yield {slot: tokens[slot] for slot in chosen}, probability
        return
    for ranking, chance in rankings(distributions, hidden, how.order):
        for tokens, probability in draws(
            distributions, first(ranking, distributions, how.count, number)
        ):
            yield tokens, chance * probability


def rankings(
    distributions: Distributions, hidden: Sequence[int], order: str
) -> Iterable[tuple[Sequence[int], float]]:
    """The ranking of the hidden slots, or all of them with equal chances."""
    if order == "random":
        return [(ranking, 1 / factorial(len(hidden))) for ranking in permutations(hidden)]
    if order == "left-to-right":
        return [(hidden, 1.0)]
    return [(rank_slots({slot: sureness(distributions[slot].read, order) for slot in hidden}), 1.0)]


def rank_slots(keys: Mapping[int, float]) -> list[int]:
    """Slots by falling key, of equals the lower slot first."""
    return sorted(keys, key=lambda slot: (-keys[slot], slot))


def sureness(probabilities: Sequence[float], order: str) -> float:
    """The largest probability, its distance to the second, or minus the entropy."""
    second, largest = sorted(probabilities)[-2:]
    return {"confidence": largest, "margin": largest - second, "entropy": -entropy(probabilities)}[
        order
    ]


def entropy(probabilities: Sequence[float]) -> float:
    """In nats."""
    return -sum(p * log(p) for p in probabilities if p > 0)


def first(
    ranking: Sequence[int], distributions: Distributions, count: str, number: int | None
) -> Sequence[int]:
    """Those slots of a ranking that are filled in this pass."""
    if number is not None:
        return ranking[:number]
    name, numbers = parse(count)
    if name == "threshold":
        sure = [slot for slot in ranking[1:] if max(distributions[slot].read) >= numbers[0]]
        return [*ranking[:1], *sure]
    if name == "entropy-bound":
        entropies = [entropy(distributions[slot].read) for slot in ranking]
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

    placed is, for each filled slot, the probability that its token had when it was placed.

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
    """All sets that contain each slot with its chance, independently."""
    for inside in product((False, True), repeat=len(slots)):
        probability = prod(c if i else 1 - c for i, c in zip(inside, chances, strict=True))
        if probability > 0:
            yield [slot for slot, i in zip(slots, inside, strict=True) if i], probability
