"""Do the paper's theorems hold, on two hundred random models, where they say something?

Contraction at high temperature, conductance and escape at low temperature. Every quantity on the
other side of a bound is exact: the pair chain, the laws from every start, the exit times.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from glauber.exact import (
    Space,
    conductance,
    exact_influence,
    mixing_time,
    stationary,
    transition_matrix,
)
from glauber.exact.stationary import closed_class
from glauber.foundation.errors import GlauberError
from glauber.models.table import Joint, Table

COUNT, NEEDED = 200, 50
SHAPES = [(2, 3), (3, 2), (2, 4), (3, 3)]
SLACK = 1e-10


def test_every_chain_is_irreducible_and_aperiodic():
    """Proposition 1: one closed class with every state, and a loop on each of them."""
    for m in models():
        count, _ = connected_components(m.matrix > 0, directed=True, connection="strong")
        assert count == 1 and len(closed_class(csr_array(m.matrix))) == m.space.size
        assert (np.diag(m.matrix) > 0).all()
        # Its proof: any state becomes any other in as many steps as there are sites.
        assert (np.linalg.matrix_power(m.matrix, m.space.length) > 0).all()
        assert (m.law > 0).all()


def test_a_forbidden_token_breaks_the_assumption():
    """Copying the other site: the two constant texts are never left, so there are two classes."""
    entries = torch.full((2, 3, 3, 2), -torch.inf, dtype=torch.float64)
    for token in range(3):
        entries[0, :, token, min(token, 1)] = entries[1, token, :, min(token, 1)] = 0.0
    matrix = transition_matrix(Table(entries), Space(2, 2)).toarray()
    count, _ = connected_components(matrix > 0, directed=True, connection="strong")
    assert count == 4 and np.diag(matrix).tolist() == [1, 0, 0, 1]
    with pytest.raises(GlauberError, match="2 sets of states"):
        stationary(matrix)


class Model(NamedTuple):
    space: Space
    conditionals: Joint | Table
    temperature: float
    matrix: np.ndarray  # (size, size)
    law: np.ndarray  # (size,)
    scores: np.ndarray  # (size, length, vocab)
    probabilities: np.ndarray  # the same, at the temperature


@cache
def models():
    """Joints and tables of four shapes in turn, a third of them hot and the others cold."""
    rng, made = np.random.default_rng(0), []
    for number in range(COUNT):
        vocab, length = SHAPES[number % len(SHAPES)]
        kind = (Joint, Table)[number // len(SHAPES) % 2]
        conditionals, space = kind.random(vocab, length, seed=number), Space(vocab, length)
        if number % 3 == 0:
            temperature = rng.uniform(1.0, 6.0)
        else:
            temperature = max(freezing(conditionals, space) / rng.uniform(1.5, 4.0), 0.1)
        made.append(model(conditionals, space, float(temperature)))
    return made


def freezing(conditionals, space):
    """The temperature at which the second deepest trap begins to hold, by the bound on t_mix.

    One of two traps has at most half the mass. Without two of them some temperature will do.
    """
    plain = Model(space, conditionals, 1.0, None, None, *scored(conditionals, space, 1.0))
    alone = [margin(plain, np.arange(space.size) == x) for x in range(space.size)]
    depths = sorted(depth for depth in alone if depth is not None)
    return depths[-2] / np.log(4 * (space.vocab_size - 1)) if len(depths) > 1 else 0.5


def model(conditionals, space, temperature):
    matrix = transition_matrix(conditionals, space, temperature=temperature).toarray()
    both = scored(conditionals, space, temperature)
    return Model(space, conditionals, temperature, matrix, stationary(matrix), *both)


def scored(conditionals, space, temperature):
    """Scores (size, length, vocab) and their softmax at the temperature."""
    states = space.states()
    columns = [
        conditionals.scores(states, torch.full((space.size, 1), site))[:, 0].numpy()
        for site in range(space.length)
    ]
    scores = np.stack(columns, axis=1)
    weights = np.exp(scores / temperature)
    return scores, weights / weights.sum(axis=2, keepdims=True)


def pair_chain(m):
    """The kernel (size**2, size**2) of two chains: the same site, the maximal coupling there."""
    size, length, strides = m.space.size, m.space.length, m.space.strides.numpy()
    states = m.space.states().numpy()
    kernel = np.zeros((size * size, size * size))
    for x, y, site in np.ndindex(size, size, length):
        p, q = m.probabilities[x, site], m.probabilities[y, site]
        same = np.minimum(p, q)
        left = 1 - same.sum()
        coupling = np.diag(same)
        if left > 1e-15:
            coupling = coupling + np.outer(p - same, q - same) / left
        to_x = x + (np.arange(len(p)) - states[x, site]) * strides[site]
        to_y = y + (np.arange(len(p)) - states[y, site]) * strides[site]
        targets = to_x[:, None] * size + to_y[None, :]
        kernel[x * size + y, targets.ravel()] += coupling.ravel() / length
    return kernel


def hamming(m):
    states = m.space.states().numpy()
    return (states[:, None] != states[None]).sum(axis=2).astype(float)


def one_step_hamming(m):
    """E d_H (size, size) after one coupled step: the redrawn site differs with probability TV."""
    states, n = m.space.states().numpy(), m.space.length
    differ = states[:, None] != states[None]
    shift = 0.5 * np.abs(m.probabilities[:, None] - m.probabilities[None]).sum(axis=3)
    return hamming(m) + (shift - differ).sum(axis=2) / n


def test_contraction_at_high_temperature():
    useful = 0
    for m in models():
        found = exact_influence(m.conditionals, m.space, temperature=m.temperature)
        n, alpha = m.space.length, found.alpha
        factor = 1 - (1 - alpha) / n
        # The coupling contracts by this factor at every pair; alpha >= 1 is covered, vacuously.
        assert (one_step_hamming(m) <= factor * hamming(m) + SLACK).all()
        for epsilon in (0.25, 0.01):
            bound = found.mixing_bound(epsilon)
            if bound is not None:
                assert mixing_time(m.matrix, epsilon=epsilon, distribution=m.law).steps <= bound
        for time in (1, 2, 4, 8, 16):  # TV between any two starts is at most E d_H
            powers = np.linalg.matrix_power(m.matrix, time)
            apart = 0.5 * np.abs(powers[:, None] - powers[None]).sum(axis=2)
            assert (apart <= factor**time * hamming(m) + SLACK).all()
        useful += alpha < 1
    assert NEEDED <= useful < COUNT


def test_the_pair_chain_contracts_step_by_step():
    # The whole coupling, kernel and all, on the models of eight states.
    useful = 0
    for m in models():
        if m.space.size != 8:
            continue
        kernel, distance = pair_chain(m), hamming(m).ravel()
        left = kernel.reshape(8, 8, 8, 8).sum(axis=3)
        np.testing.assert_allclose(left, m.matrix[:, None].repeat(8, axis=1), rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            kernel @ distance, one_step_hamming(m).ravel(), rtol=0, atol=1e-12
        )
        alpha = exact_influence(m.conditionals, m.space, temperature=m.temperature).alpha
        expected = distance
        for time in range(1, 30):
            expected = kernel @ expected
            assert (expected <= (1 - (1 - alpha) / 3) ** time * distance + SLACK).all()
        useful += alpha < 1
    assert useful >= 10


def margin(m, inside):
    """The margin of the set inside (size,), by its definition; None if it has none."""
    states, strides = m.space.states().numpy(), m.space.strides.numpy()
    smallest = np.inf
    for x in np.flatnonzero(inside):
        for site in range(m.space.length):
            tokens = np.arange(m.space.vocab_size)
            goes_out = ~inside[x + (tokens - states[x, site]) * strides[site]]
            if not goes_out.any():
                continue
            scores = m.scores[x, site]
            gap = scores[states[x, site]] - scores
            if gap.min() < 0:  # x_i is not the argmax
                return None
            smallest = min(smallest, gap[goes_out].min())
    return smallest if 0 < smallest < np.inf else None


@cache
def all_basins():
    """The basins of every model."""
    return [(m, list(basins(m))) for m in models()]


def basins(m):
    """Every state, every set of one token at one site, and balls, where the margin is positive."""
    states, near = m.space.states().numpy(), hamming(m) <= 1
    sets = [np.arange(m.space.size) == x for x in range(m.space.size)]
    sets += [near[x] for x in range(m.space.size)]
    sets += [states[:, i] == v for i in range(m.space.length) for v in range(m.space.vocab_size)]
    for inside in sets:
        depth = margin(m, inside)
        if depth is not None:
            yield inside, depth


def exit_times(m, inside):
    """The mean number of steps (states inside,) until the chain first stands outside."""
    moves = m.matrix - np.diag(np.diag(m.matrix))
    leaves = np.diag(moves.sum(axis=1))  # not 1 - P(x, x), which a sticky state rounds to 0
    return np.linalg.solve((leaves - moves)[np.ix_(inside, inside)], np.ones(inside.sum()))


def test_slow_mixing_at_low_temperature():
    useful_conductance = useful_mixing = 0
    for m, found in all_basins():
        conducts = mixes = False
        slowest = mixing_time(m.matrix, distribution=m.law).steps
        for inside, depth in found:
            bound = (m.space.vocab_size - 1) * np.exp(-depth / m.temperature)
            assert conductance(m.matrix, inside, distribution=m.law) <= bound + SLACK
            conducts |= bound < 1
            if m.law[inside].sum() <= 0.5:
                assert slowest >= 1 / (4 * bound) - SLACK
                mixes |= 1 / (4 * bound) > 1
        useful_conductance += conducts
        useful_mixing += mixes
    assert useful_conductance >= NEEDED and useful_mixing >= NEEDED


def test_escape_from_a_basin():
    useful = 0
    for m, found in all_basins():
        escapes = False
        for inside, depth in found:
            bound = (m.space.vocab_size - 1) * np.exp(-depth / m.temperature)
            assert m.matrix[np.ix_(inside, ~inside)].sum(axis=1).max() <= bound + SLACK
            assert (exit_times(m, inside) * bound >= 1 - 1e-9).all()
            escapes |= bound < 1
        useful += escapes
    assert useful >= NEEDED


def test_a_single_state_is_held_for_its_exact_time():
    for m in models():
        states = m.space.states().numpy()
        now = np.take_along_axis(m.probabilities, states[:, :, None], axis=2)[:, :, 0]
        rate = (1 - now).sum(axis=1) / m.space.length
        np.testing.assert_allclose(1 - np.diag(m.matrix), rate, rtol=0, atol=1e-12)
