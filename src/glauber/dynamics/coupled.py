"""Pairs of chains that share their randomness, and the loop that runs them until they meet.

A pair is two rows of a `State`, left and right in turn, with the same chain number, step,
temperature and free sites, so that both rows receive the same noise. At each step both chains
redraw the same site, each from its own conditional, p and q. A coupling draws the two tokens:

    maximal      the same token with probability 1 - TV(p, q), the most that any coupling allows
    inverse-cdf  both from one uniform number, tokens in order of decreasing score
    gumbel-max   both from the same Gumbel variables

Either chain by itself has the distribution of a single chain. Where the two texts agree at all
other sites the two conditionals are the same: the model is evaluated once and both chains get the
same token. So a pair that has met stays together and moves as a single chain.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.dynamics.draws import TOGETHER, Draw, Drawn, first_beyond, gumbel_max, inverse_cdf
from glauber.dynamics.kernel import Info, Kernel, Noise, State, start
from glauber.dynamics.noise import random_bits
from glauber.dynamics.noise import uniform as as_uniform
from glauber.dynamics.scans import uniform
from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import Advance, check_count
from glauber.foundation.study import one_of
from glauber.foundation.threads import side_by_side
from glauber.models.base import PAD, Conditionals
from glauber.models.batching import rows_at_once

COUPLINGS = ("maximal", "inverse-cdf", "gumbel-max")
MOST_STEPS = 10**12  # more than anybody waits for


def coupled(conditionals: Conditionals, coupling: str = "maximal") -> Kernel:
    """The kernel that redraws one uniformly chosen free site in both chains of each pair."""
    one_of("the coupling", coupling, COUPLINGS)
    scan, fill = uniform(), gumbel_max() if coupling == "gumbel-max" else inverse_cdf()

    def draw(seed: Tensor, state: State) -> Noise:
        """The first slot is that of a single chain; the maximal coupling also uses the second."""
        slots = torch.arange(2, device=state.step.device)
        key = seed.reshape(-1, 1), state.chain[:, None], state.step[:, None], slots[None, :]
        return Noise(*random_bits(*key))

    def step(state: State, noise: Noise) -> tuple[State, Info]:
        sites = scan.choose(conditionals, state, noise.order)  # the same in both rows of a pair
        left, right = sides(state.tokens.scatter(1, sites, PAD))
        differ = (left != right).any(dim=1).repeat_interleave(2)  # the contexts of the two rows
        scores = _scores(conditionals, state.tokens, sites, differ)
        old = state.tokens.gather(1, sites)
        bits = torch.stack([noise.fill[:, 0], noise.order[:, 1], noise.fill[:, 1]], dim=1)
        rows = scores, state.temperature, bits, old[:, 0]

        def draw_alone(scores: Tensor, temperature: Tensor, bits: Tensor, old: Tensor) -> Drawn:
            return fill.draw(scores, temperature, bits[:, 0], old)

        if coupling == "maximal":
            drawn = _draw_by_row([(~differ, draw_alone), (differ, _draw_maximal)], *rows)
        else:
            drawn = draw_alone(*rows)
        new = drawn.tokens[:, None]
        info = Info(
            sites=sites,
            tokens=new,
            changed=new != old,
            log_prob_old=drawn.log_prob_old[:, None],
            log_prob_new=drawn.log_prob_new[:, None],
            entropy=drawn.entropy[:, None],
            accepted=torch.ones_like(new, dtype=torch.bool),
        )
        return state._replace(tokens=state.tokens.scatter(1, sites, new), step=state.step + 1), info

    return Kernel(draw, step)


def sides(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The left and the right rows (pairs, …) of a tensor with two rows a pair."""
    return rows[::2], rows[1::2]


def distance(pairs: State) -> Tensor:
    """The number of sites at which the two texts of each pair differ, (pairs,)."""
    left, right = sides(pairs.tokens)
    return (left != right).sum(dim=1)


def start_pairs(
    left: Tensor,
    right: Tensor,
    free: Tensor,
    *,
    temperature: float | Tensor,
    pair: Tensor | None = None,
    step: int = 0,
) -> State:
    """The state in which pairs begin, two rows a pair; left, right and free (pairs, length).

    pair (pairs,) numbers them for the noise (default: 0, 1, …), temperature is one or one a pair.
    """
    if len(left) == 0:
        raise GlauberError("there is no pair of texts to run.")
    if left.shape != right.shape or bool(((left == PAD) != (right == PAD)).any()):
        raise GlauberError("the two texts of a pair have unequal lengths, so they can never meet.")
    if bool((~free & (left != right)).any()):
        raise GlauberError("the two texts of a pair differ at a site that is never redrawn.")
    numbers = torch.arange(len(left)) if pair is None else pair
    temperatures = torch.as_tensor(temperature, dtype=torch.float64).expand(len(left))
    return start(
        torch.stack([left, right], dim=1).flatten(0, 1),
        free.repeat_interleave(2, dim=0),
        temperature=temperatures.repeat_interleave(2),
        chain=numbers.repeat_interleave(2),
        step=step,
        device=left.device,
    )


class Meeting(NamedTuple):
    """A pair that has met, or that has made all its steps."""

    pair: int  # its place among the pairs
    time: int  # joint steps until the two met, or all of them
    met: bool  # False: the time is censored


# Receives places among the pairs, their joint steps so far (pairs,), and their state.
Observer = Callable[[NDArray[np.int64], NDArray[np.int64], State], None]


def run_until_met(
    kernel: Kernel,
    pairs: State,
    steps: int | Tensor,
    *,
    seed: int | Tensor,
    batch_size: int,
    at_least: int = 0,
    observe: Observer | None = None,
    advance: Advance = lambda *_, **__: None,
) -> Iterator[Meeting]:
    """Each pair as soon as it has met or has made its steps, which are counted from here.

    At most `batch_size` pairs move at a time; where one is finished the next one enters, whatever
    its temperature and length. A pair's answer depends neither on that number nor on other pairs.

    steps     most joint steps, one number or one a pair
    seed      one number or one a pair
    at_least  steps that a pair makes even if it meets before
    observe   is called with all moving pairs before each of their steps and at their end
    advance   counts steps, including those that a pair that met does not need
    """
    n, device = len(pairs.step) // 2, pairs.step.device
    limits = torch.as_tensor(steps).expand(n).cpu().numpy()
    check_count("number of steps", int(limits.min()), most=MOST_STEPS)
    check_count("batch size", batch_size, most=MOST_STEPS)
    seeds = torch.as_tensor(seed, dtype=torch.int64, device=device).expand(n)
    first = sides(pairs.step)[0].cpu().numpy()
    times, met = limits.copy(), np.zeros(n, dtype=np.bool_)
    places, moving, entered = np.arange(0), pairs.rows(slice(0, 0)), 0
    while len(places) or entered < n:
        if len(places) < batch_size and entered < n:
            last = min(n, entered + batch_size - len(places))
            fresh = pairs.rows(slice(2 * entered, 2 * last))
            moving = State(*map(torch.cat, zip(moving, fresh, strict=True)))
            places, entered = np.append(places, np.arange(entered, last)), last
        apart, step = torch.stack([distance(moving), sides(moving.step)[0]]).cpu().numpy()
        elapsed = step - first[places]
        meets = (apart == 0) & ~met[places]
        times[places[meets]], met[places[meets]] = elapsed[meets], True
        if observe is not None:
            observe(places, elapsed, moving)
        over = elapsed >= np.where(met[places], at_least, limits[places])
        for pair_index in places[over].tolist():
            yield Meeting(pair_index, int(times[pair_index]), bool(met[pair_index]))
        if over.any():
            advance(float((limits[places] - elapsed)[over].clip(min=0).sum()))
            stay = torch.from_numpy(~over).to(device)
            places, moving = places[~over], moving.rows(stay.repeat_interleave(2))
        if len(places):
            keys = seeds[torch.from_numpy(places).to(device)].repeat_interleave(2)
            moving, _ = kernel.step(moving, kernel.draw(keys, moving))
            n_finished = entered - len(places)
            advance(len(places), note=f"{n_finished:,} of {n:,} pairs finished")


def pairs_at_once(conditionals: Conditionals, device: torch.device) -> int:
    """How many pairs move together: both sides take scores, probabilities and their coupling."""
    return rows_at_once(2 * 3 * 8 * conditionals.vocab_size, device)


def _scores(conditionals: Conditionals, tokens: Tensor, sites: Tensor, differ: Tensor) -> Tensor:
    """Scores (rows, vocab) at the sites (rows, 1); a pair with one context is evaluated once."""
    evaluated = differ.clone()
    evaluated[::2] = True
    scores = conditionals.scores(tokens[evaluated], sites[evaluated])[:, 0]
    return scores[evaluated.cumsum(dim=0) - 1]  # a right row follows its left one


def _draw_by_row(draws: Sequence[tuple[Tensor, Draw]], *columns: Tensor) -> Drawn:
    """The rows of each mask (rows,) drawn in its own way; parts are the arguments of a draw."""
    old = columns[-1]
    drawn = Drawn(torch.empty_like(old), *torch.empty(3, len(old), device=old.device).double())
    for chosen, draw in draws:
        if bool(chosen.any()):
            for column, values in zip(drawn, draw(*(x[chosen] for x in columns)), strict=True):
                column[chosen] = values
    return drawn


def _draw_maximal(*columns: Tensor) -> Drawn:
    """Draws of pairs of rows by the maximal coupling, on a CPU on every core.

    columns: scores (rows, vocab), temperature (rows,), bits (rows, 3), old tokens (rows,).
    """
    if columns[0].is_cuda:
        return _maximal(columns)
    size = 2 * max(1, TOGETHER // columns[0].shape[1])
    drawn = side_by_side(_maximal, list(zip(*(part.split(size) for part in columns), strict=True)))
    return Drawn(*(torch.cat(column) for column in zip(*drawn, strict=True)))


def _maximal(columns: Sequence[Tensor]) -> Drawn:
    """With probability 1 - TV(p, q) one token from min(p, q), else one from each residual.

    The residuals p - min(p, q) and q - min(p, q) have no token in common, so 1 - TV is all the
    agreement there is.
    """
    scores, temperature, bits, old = columns
    scores = scores.double()
    shifted = scores - scores.amax(dim=-1, keepdim=True)  # so that no quotient overflows
    probs = torch.softmax(shifted / temperature[:, None], dim=-1)
    p, q = sides(probs)
    u, *others = as_uniform(bits[::2]).unbind(dim=1)
    overlap = torch.minimum(p, q)
    mass = overlap.cumsum(dim=1)
    total = mass[:, -1]
    # Rounding may leave the total a hair below u where nothing is left over: then the last token.
    point = torch.minimum(u, total.nextafter(torch.zeros_like(total)))
    tokens = first_beyond(mass, point)[:, None].repeat(1, 2)
    disagreeing = (u >= total).nonzero()[:, 0]
    if len(disagreeing):
        residuals = [(side[disagreeing] - overlap[disagreeing]).cumsum(dim=1) for side in (p, q)]
        points = [x[:, -1] * v[disagreeing] for x, v in zip(residuals, others, strict=True)]
        apart = torch.stack(list(map(first_beyond, residuals, points)), dim=1)
        empty = (residuals[0][:, -1] <= 0) | (residuals[1][:, -1] <= 0)
        tokens[disagreeing] = torch.where(empty[:, None], tokens[disagreeing], apart)
    new = tokens.flatten()
    old_log_prob, new_log_prob = (probs.gather(1, x[:, None])[:, 0].log() for x in (old, new))
    return Drawn(new, old_log_prob, new_log_prob, torch.special.entr(probs).sum(dim=1))
