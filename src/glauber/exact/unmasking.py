"""Which fillings of a text's hidden sites does an unmasking give, and how likely is each?

Every path is followed: a state says what the free sites hold (HIDDEN, or a token), and a pass turns
one state into many, each with its probability. Nothing is drawn. In one pass

    the model is asked once, with the hidden sites hidden; each gets a candidate from its law,
    the hidden sites are ranked (the order), and the first of them are filled (the count),
    some that were filled before are hidden again (remask).

Free sites are numbered 0, 1, … in text order ("slots"). A candidate that is not taken is forgotten,
so candidates are enumerated at the chosen slots alone, unless the choice looks at them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import permutations
from math import inf, log
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.errors import GlauberError
from glauber.exact.schedules import (
    Laws,
    Procedure,
    Tokens,
    draws,
    fills,
    hidden_plan,
    hiding_chances,
    parse,
    ranked,
    site_law,
    subsets,
)
from glauber.exact.space import Floats, Space

HIDDEN = -1

State: TypeAlias = tuple[int, ...]  # the token of each slot, or HIDDEN


class Node(NamedTuple):
    """Where a path is: what stands there, how likely each token was when placed, passes so far."""

    state: State
    placed: tuple[float, ...]  # (slots,), or empty where nothing looks at it
    passes: int = 0


Ask: TypeAlias = Callable[[State], Laws]
Nodes: TypeAlias = dict[Node, float]  # a law over the nodes


def exact_law(conditionals: Conditionals, tokens: Tensor, free: Tensor, how: Procedure) -> Floats:
    """The law (vocab ** slots,) of the filling, float64, the first free site slowest.

    tokens (length,) holds the fixed tokens; free (length,) bool says which sites are filled.
    """
    ask = asker(conditionals, tokens, free, how)
    nodes = unmasked(ask, int(free.sum()), how)
    if not how.between:
        nodes = corrected(ask, nodes, how)
    return law_of_fillings(nodes, Space(conditionals.vocab_size, int(free.sum())))


def exact_passes(
    conditionals: Conditionals, tokens: Tensor, free: Tensor, how: Procedure
) -> Floats:
    """The law (most passes + 1,) of the number of passes until nothing is hidden."""
    nodes = unmasked(asker(conditionals, tokens, free, how), int(free.sum()), how)
    law = np.zeros(1 + max(node.passes for node in nodes))
    for node, probability in nodes.items():
        law[node.passes] += probability
    return law


def correction_matrix(
    conditionals: Conditionals, tokens: Tensor, free: Tensor, how: Procedure
) -> Floats:
    """The matrix (fillings, fillings) of one sweep of redraws in a uniformly random order."""
    ask = asker(conditionals, tokens, free, how)
    space = Space(conditionals.vocab_size, int(free.sum()))
    starts = [Node(tuple(state), ()) for state in space.states().tolist()]
    return np.stack([law_of_fillings(moved(sweep(ask, s, how)), space) for s in starts])


# What the model says


def asker(conditionals: Conditionals, tokens: Tensor, free: Tensor, how: Procedure) -> Ask:
    """A function that gives the laws at the hidden slots of a state, and remembers them."""
    sites = free.nonzero()[:, 0]
    if not len(sites):
        raise GlauberError("no site is free, so there is nothing to fill.")

    @cache
    def ask(state: State) -> Laws:
        slots = [slot for slot, token in enumerate(state) if token == HIDDEN]
        if not slots:
            return {}
        row = tokens.clone()
        row[sites] = torch.tensor(state).clamp(min=0)
        scores = conditionals.scores(row[None], sites[slots][None])[0].double().numpy()
        return {slot: site_law(of_site, how) for slot, of_site in zip(slots, scores, strict=True)}

    return ask


# Passes


def unmasked(ask: Ask, n: int, how: Procedure) -> Nodes:
    """The law over the nodes after the last pass, from n hidden slots."""
    keeps = parse(how.remask)[0] in ("conf", "planned")
    nodes = {Node((HIDDEN,) * n, (0.0,) * n if keeps else ()): 1.0}
    for begin in range(0, n, how.block or n):
        slots = range(n)[begin : begin + (how.block or n)]
        plan = hidden_plan(len(slots), how)
        last = len(slots) if how.remask == "none" else len(plan) - 1
        for j in range(1, last + 1):
            nodes = moved(
                (after, probability * chance)
                for node, probability in nodes.items()
                for after, chance in whole_pass(ask, node, slots, j, plan, how)
            )
    return nodes


def moved(arrivals: Iterable[tuple[Node, float]]) -> Nodes:
    """The law over nodes, where paths that meet are added up."""
    nodes: Nodes = {}
    for node, probability in arrivals:
        nodes[node] = nodes.get(node, 0.0) + probability
    return nodes


def whole_pass(
    ask: Ask, node: Node, slots: Sequence[int], j: int, plan: Sequence[int], how: Procedure
) -> Iterator[tuple[Node, float]]:
    """What pass j of these slots makes of a node, with the sweeps that follow every pass."""
    if how.remask == "none" and not hidden_among(node, slots):
        yield node, 1.0  # it waits for the others
        return
    step = planned_pass if parse(how.remask)[0] == "planned" else one_pass
    after = moved(step(ask, node, slots, j, plan, how))
    yield from (corrected(ask, after, how) if how.between else after).items()


def one_pass(
    ask: Ask, node: Node, slots: Sequence[int], j: int, plan: Sequence[int], how: Procedure
) -> Iterator[tuple[Node, float]]:
    """Some filled slots are hidden again, and as many hidden ones are filled as the rule says.

    With a plan, so many are filled that it is kept in spite of those hidden again.
    """
    laws, hidden = ask(node.state), hidden_among(node, slots)
    filled = [slot for slot in slots if slot not in hidden]
    placed = [node.placed[slot] if node.placed else 0.0 for slot in filled]
    for again, chance in subsets(filled, hiding_chances(placed, j, plan, how)):
        number = None
        if how.count in ("linear", "cosine"):
            least = 1 if how.remask == "none" else 0
            number = max(least, len(hidden) + len(again) - plan[min(j, len(plan) - 1)])
        for tokens, probability in fills(laws, hidden, how, number):
            yield changed(node, tokens, again, laws), chance * probability


def planned_pass(
    ask: Ask, node: Node, slots: Sequence[int], j: int, plan: Sequence[int], how: Procedure
) -> Iterator[tuple[Node, float]]:
    """The slots of the largest values are held, as many as the plan says: P2.

    A hidden slot has the log-probability of its candidate, a filled one eta times that which its
    token had when it was placed; at eta = 0 filled ones are never hidden again.
    """
    laws, hidden = ask(node.state), hidden_among(node, slots)
    (eta,) = parse(how.remask)[1]
    values = {s: eta * log(node.placed[s]) if eta else inf for s in slots if s not in hidden}
    for tokens, probability in draws(laws, hidden):
        values |= {slot: log(laws[slot].read[token]) for slot, token in tokens.items()}
        held = ranked(values)[: len(slots) - plan[j]]
        taken = {slot: token for slot, token in tokens.items() if slot in held}
        again = [slot for slot in slots if slot not in hidden and slot not in held]
        yield changed(node, taken, again, laws), probability


def hidden_among(node: Node, slots: Sequence[int]) -> list[int]:
    return [slot for slot in slots if node.state[slot] == HIDDEN]


def changed(node: Node, tokens: Tokens, again: Sequence[int], laws: Laws) -> Node:
    """The node one pass later, with new tokens at some slots and others hidden again."""
    state, placed = list(node.state), list(node.placed)
    for slot in again:
        state[slot] = HIDDEN
    for slot, token in tokens.items():
        state[slot] = token
    if placed:
        for slot in again:
            placed[slot] = 0.0
        for slot, token in tokens.items():
            placed[slot] = laws[slot].read[token]
    return Node(tuple(state), tuple(placed), node.passes + 1)


# Sweeps of redraws


def corrected(ask: Ask, nodes: Nodes, how: Procedure) -> Nodes:
    """The law over the nodes after the sweeps."""
    for _ in range(how.correct):
        nodes = moved(
            (after, probability * chance)
            for node, probability in nodes.items()
            for after, chance in sweep(ask, node, how)
        )
    return nodes


def sweep(ask: Ask, node: Node, how: Procedure) -> Iterator[tuple[Node, float]]:
    """Every filled slot is redrawn once: in a random order, one group after the other.

    The slots of a group are hidden together, with those that are hidden anyway, and redrawn
    independently.
    """
    filled = [slot for slot, token in enumerate(node.state) if token != HIDDEN]
    orders, size = list(permutations(filled)), how.correct_block or 1
    for order in orders:
        nodes = {node: 1 / len(orders)}
        for begin in range(0, len(order), size):
            group = order[begin : begin + size]
            nodes = moved(
                (after, probability * chance)
                for now, probability in nodes.items()
                for after, chance in redrawn(ask, now, group)
            )
        yield from nodes.items()


def redrawn(ask: Ask, node: Node, group: Sequence[int]) -> Iterator[tuple[Node, float]]:
    laws = ask(tuple(HIDDEN if s in group else token for s, token in enumerate(node.state)))
    for tokens, probability in draws(laws, group):
        yield changed(node, tokens, (), laws)._replace(passes=node.passes), probability


def law_of_fillings(nodes: Nodes, space: Space) -> Floats:
    """The law (fillings,) of what stands there, with nothing hidden."""
    numbers = space.index(torch.tensor([node.state for node in nodes])).numpy()
    law = np.zeros(space.size)
    np.add.at(law, numbers, list(nodes.values()))
    return law
