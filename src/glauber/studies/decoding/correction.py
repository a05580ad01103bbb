"""What filling in few passes costs, and what correction buys back.

Some tokens of a text are hidden and filled in T passes, then revised by sweeps of Glauber redraws.

On a few tokens of each site every distribution is enumerated: how far what was written is from
filling one token at a time in the same order, and from the distribution that the sweeps lead to.
The conditionals of a masked LM agree on no joint distribution, so these two differ, and no number
of sweeps leads to the first.
On the whole vocabulary chains are drawn: how many tokens a sweep revised, how irreversible its
redraws were, and how many texts are in a trap, where every hidden token is the most probable.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Unpack

import numpy as np
import torch
from torch import Tensor

from glauber.dynamics.candidates import ORDERS
from glauber.dynamics.kernel import State, start
from glauber.dynamics.unmasking import Unmasking, unmask
from glauber.dynamics.unmasking import correction as sweep_kernel
from glauber.exact.space import Space
from glauber.exact.stationary import entropy_production, stationary, total_variation
from glauber.exact.transition import transition_matrix
from glauber.exact.unmasking import Procedure, correction_matrix, exact_law
from glauber.foundation.checks import OneOf, Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import (
    HiddenSites,
    ModelOrName,
    Seed,
    Temperature,
    Unknown,
    WhereAndDtype,
)
from glauber.foundation.progress import say, track
from glauber.foundation.statistics import Estimate, Floats, mean_over_chains
from glauber.foundation.study import Result, internal, needed, reported, study
from glauber.foundation.tables import table
from glauber.models.base import (
    Conditionals,
    check_temperature,
    mask_token_of,
    scores_alone,
)
from glauber.models.batching import in_parts
from glauber.models.table import Table
from glauber.sampling.generate import check_passes, open_masked
from glauber.studies.decoding.frontier import powers_of_two
from glauber.studies.decoding.parallel_cost import ZERO_COST
from glauber.texts.starts import read_sites, starts

MAX_PATHS = 2_000_000  # that are followed: seconds
DIGITS = 12  # of a total variation that float64 has
PLOTS = "glauber.interfaces.plots.generation"


@study
def correction(
    model: ModelOrName = "bundled:english",
    text: Annotated[str | None, "The text of which tokens are hidden."] = None,
    *,
    sites: HiddenSites = "",
    hide: Annotated[int, "Tokens hidden at random, if no sites are named.", Whole()] = 4,
    passes: Annotated[
        Sequence[int] | None,
        "Passes that fill them (default: 1, 2, 4, … up to one for each).",
        Whole(),
    ] = None,
    order: Annotated[str, f"Which is filled first: {', '.join(ORDERS)}.", OneOf(ORDERS)] = (
        "confidence"
    ),
    correct: Annotated[Sequence[int], "Sweeps of correction.", Whole(0)] = (0, 1, 2, 4),
    correct_block: Annotated[
        int | None, "Tokens redrawn at once in a sweep (default: 1).", Whole()
    ] = None,
    top: Annotated[int, "Most probable tokens of each site, for the exact distances.", Whole()] = 3,
    chains: Annotated[int, "Texts drawn for each number of passes.", Whole()] = 64,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
    unknown: Unknown = "error",
    **where: Unpack[WhereAndDtype],
) -> "CorrectionStudy":
    """Measure what filling hidden tokens in few passes costs, and what correction buys back.

    Distances are exact total variations over the most probable tokens of each site, from filling
    one token at a time and from the distribution that the sweeps lead to. Revised tokens, entropy
    production and traps are estimates from texts drawn on the whole vocabulary.
    """
    text = needed("text", text)
    check_temperature(temperature)
    sweeps, block, chosen = sorted({*correct}), correct_block or 1, read_sites(sites)
    loaded = open_masked(model, exact=True, **where)
    tokens, free = (
        part[0].to(loaded.state_device) for part in starts(loaded, [text], unknown=unknown)
    )
    columns = free.nonzero()[:, 0]
    numbers = _hidden_numbers(len(columns), chosen, hide, seed)
    hidden = columns[torch.tensor(numbers, device=columns.device)]
    schedules = powers_of_two(len(hidden)) if passes is None else list(passes)
    for number in schedules:
        check_passes(Unmasking(order, passes=number), len(hidden))
    conditionals, hidden_token = loaded.conditionals(), mask_token_of(loaded)
    exact = exact_distances(
        conditionals,
        tokens,
        hidden,
        order=order,
        passes=schedules,
        sweeps=sweeps,
        block=block,
        top=top,
        temperature=temperature,
    )
    cost = chains * sum(number + sweeps[-1] * len(hidden) for number in schedules)
    say(f"about {cost:,} rows through the model for {chains * len(schedules):,} texts")
    begin = torch.zeros_like(tokens, dtype=torch.bool)
    begin[hidden] = True
    state = start(
        tokens.masked_fill(begin, hidden_token).repeat(chains, 1),
        begin.repeat(chains, 1),
        temperature=temperature,
        device=tokens.device,
    )
    rows = []
    with track("schedules", len(schedules)) as advance:
        for number in schedules:
            how = Unmasking(order, passes=number)
            rows += draw_rows(
                conditionals, state, hidden, how, sweeps, block, hidden_token, seed, exact
            )
            advance()
    spell = loaded.vocabulary.spell
    return CorrectionStudy(
        model=loaded.name,
        text=text,
        hidden=[
            f"{number} {spell(int(tokens[site]))}"
            for number, site in zip(numbers, hidden, strict=True)
        ],
        order=order,
        block=block,
        rows=rows,
        exact=exact,
    )


def _hidden_numbers(n: int, chosen: list[int], hide: int, seed: int) -> list[int]:
    """The numbers of the hidden tokens of n, as people count them."""
    if chosen and chosen[-1] >= n:
        raise GlauberError(f"a site lies outside the text: its tokens are 0 to {n - 1}.")
    if hide > n and not chosen:
        raise GlauberError(f"{hide} tokens cannot be hidden: the text has {n}.")
    return chosen or sorted(np.random.default_rng(seed).permutation(n)[:hide].tolist())


# ---- exact, on a few tokens of each site


@dataclass(frozen=True, eq=False)
class ExactDistances:
    """Total variations by (passes, sweeps), from filling one by one and from the sweeps' limit."""

    distances: dict[tuple[int, int], tuple[float, float]]
    apart: float  # of these two distributions from each other: 0 where there is a joint one
    production: float  # nats a redraw of the single-site chain in the long run: 0 for a joint one
    mass: Floats  # (sites,) of the tokens tried, with everything hidden


def exact_distances(
    conditionals: Conditionals,
    tokens: Tensor,
    hidden: Tensor,
    *,
    order: str,
    passes: Sequence[int],
    sweeps: Sequence[int],
    block: int,
    top: int,
    temperature: float,
) -> ExactDistances | None:
    """The distances, or None where there are too many fillings to follow."""
    n, v = len(hidden), min(top, conditionals.vocab_size)
    if n > 6 or v < 2 or math.factorial(n) * float(v) ** (2 * n) > MAX_PATHS:
        return None
    rule, mass = few_tokens(conditionals, tokens, hidden, v, temperature)
    empty, free = torch.zeros(n, dtype=torch.int64), torch.ones(n, dtype=torch.bool)

    def distribution(count: str, number: int | None) -> Floats:
        how = Procedure(order, count, number, temperature=temperature)
        return exact_law(rule, empty, free, how)

    corrected = Procedure(temperature=temperature, correct=1, correct_block=block)
    matrix = correction_matrix(rule, empty, free, corrected)
    one_by_one, limit = distribution("1", None), stationary(matrix)
    distances = {}
    for number in passes:
        begin = distribution("linear", number)
        for sweep in sweeps:
            after = begin @ np.linalg.matrix_power(matrix, sweep)
            distances[number, sweep] = (
                round(total_variation(after, one_by_one), DIGITS),
                round(total_variation(after, limit), DIGITS),
            )
    single = transition_matrix(rule, Space(v, n), temperature=temperature)
    apart = total_variation(one_by_one, limit)
    return ExactDistances(distances, apart, entropy_production(single), mass)


def few_tokens(
    conditionals: Conditionals, tokens: Tensor, hidden: Tensor, count: int, temperature: float
) -> tuple[Table, Floats]:
    """The conditionals of the hidden sites over their most probable tokens, and their mass (n,).

    Most probable with all of them hidden; each set of hidden sites is asked once, for all fillings
    of the others.
    """
    n, slot = len(hidden), torch.arange(len(hidden), device=tokens.device)
    scores = conditionals.scores(tokens[None], hidden[None])[0].double() / temperature
    top = scores.topk(count, dim=1).indices  # (n, count)
    mass = torch.softmax(scores, dim=1).gather(1, top).sum(dim=1)
    entries = torch.zeros(n, *(count + 1,) * n, count, dtype=torch.float64)
    for is_hidden in product((False, True), repeat=n):
        slots = [at for at in range(n) if is_hidden[at]]
        if not slots:
            continue
        choices = [[count] if is_hidden[at] else range(count) for at in range(n)]
        contexts = torch.tensor([*product(*choices)], device=tokens.device)
        rows = tokens.repeat(len(contexts), 1)
        rows[:, hidden] = top[slot, contexts.clamp(max=count - 1)]
        sites = hidden[slots].expand(len(contexts), -1).contiguous()
        wanted = top[slots].expand(len(contexts), -1, -1).contiguous()
        answers = conditionals.scores(rows, sites, wanted).double().cpu()
        for number, at in enumerate(slots):
            entries[at][contexts.cpu().unbind(dim=1)] = answers[:, number]
    return Table(entries), np.asarray(mass.cpu().numpy())


# ---- drawn, on the whole vocabulary


def draw_rows(
    conditionals: Conditionals,
    state: State,
    hidden: Tensor,
    how: Unmasking,
    sweeps: Sequence[int],
    block: int,
    hidden_token: int,
    seed: int,
    exact: ExactDistances | None,
) -> "list[CorrectionRow]":
    """Fills the chains of a state, revises them, and measures after so many sweeps each."""
    for after, _ in unmask(conditionals, state, how, hidden_token=hidden_token, seed=seed):
        state = after
    kernel = sweep_kernel(conditionals, block=block, hidden_token=hidden_token)
    seeds, first = torch.as_tensor(seed, device=hidden.device), state.tokens
    state, rows = state._replace(step=torch.zeros_like(state.step)), []
    production, revised = None, ZERO_COST
    assert how.passes is not None
    for number in range(max(sweeps) + 1):
        if number:
            state, info = kernel.step(state, kernel.draw(seeds, state))
            if block == 1:
                nats = (-info.entropy - info.log_prob_old)[:, hidden].mean(dim=1)
                production = mean_over_chains(nats.cpu().numpy())
            shares = (state.tokens != first)[:, hidden].double().mean(dim=1)
            revised = mean_over_chains(shares.cpu().numpy(), bounds=(0.0, 1.0))
        if number in sweeps:
            distances = None if exact is None else exact.distances[how.passes, number]
            rows.append(
                CorrectionRow(
                    passes=how.passes,
                    sweeps=number,
                    cost=how.passes + number * math.ceil(len(hidden) / block),
                    from_one_by_one=_exact(None if distances is None else distances[0]),
                    from_limit=_exact(None if distances is None else distances[1]),
                    revised=revised,
                    production=production,
                    traps=_share_in_traps(conditionals, state, hidden),
                )
            )
    return rows


def _exact(value: float | None) -> Estimate | None:
    return None if value is None else Estimate(value, None, "exact")


def _share_in_traps(conditionals: Conditionals, state: State, hidden: Tensor) -> Estimate:
    """The share of texts whose every hidden token is the most probable at its site."""
    trapped = []
    for rows in in_parts(state.tokens, 2 * len(hidden) * conditionals.vocab_size):
        scores, tokens = scores_alone(conditionals, rows, hidden), rows[:, hidden, None]
        others = scores.scatter(2, tokens, -torch.inf).amax(dim=2)
        trapped.append((scores.gather(2, tokens)[:, :, 0] > others).all(dim=1))
    return mean_over_chains(torch.cat(trapped).double().cpu().numpy(), bounds=(0.0, 1.0))


# ---- the result


@dataclass(frozen=True, kw_only=True)
class CorrectionRow:
    """What so many passes and sweeps gave."""

    passes: int
    sweeps: int
    cost: int  # rows of a text through the model. Exact
    from_one_by_one: Estimate | None  # total variation from filling one token at a time
    from_limit: Estimate | None  # and from the sweeps' limit
    revised: Estimate  # share of the tokens that the sweeps changed, by the end
    production: Estimate | None  # nats a redraw of the last sweep; of single sites only
    traps: Estimate  # share of texts


@dataclass(frozen=True, eq=False, kw_only=True)
class CorrectionStudy(Result):
    """What few passes cost on a text with hidden tokens, and what sweeps bought back."""

    model: str
    text: str
    hidden: list[str]
    order: str
    block: int  # sites that a sweep redraws together
    rows: list[CorrectionRow]
    exact: ExactDistances | None = internal()

    FIGURES = {"correction": f"{PLOTS}:plot_correction"}

    @reported
    def one_by_one_from_limit(self) -> Estimate | None:
        """Total variation of filling one by one from the sweeps' limit."""
        return _exact(None if self.exact is None else self.exact.apart)

    @reported
    def production(self) -> Estimate | None:
        """Nats a redraw of the single-site chain in the long run."""
        return _exact(None if self.exact is None else self.exact.production)

    @reported
    def mass(self) -> Floats | None:
        """Of the tokens tried at each site."""
        return None if self.exact is None else self.exact.mass

    def lines(self) -> Iterable[str]:
        yield f"hidden: {', '.join(self.hidden)}; filled by {self.order}"
        if self.exact is None:
            yield "no exact distances: too many fillings (fewer hidden tokens, or fewer tried)"
        else:
            yield (
                "distances are exact, over the most probable tokens of each site (at least "
                f"{self.exact.mass.min():.2f} of its mass); all else but costs are estimates"
            )
            yield (
                f"filling one by one and the limit of the sweeps are {self.exact.apart:.3f} apart, "
                f"and the chain produces {self.exact.production:.4f} nats a redraw (both exact; 0 "
                "where the conditionals have a joint distribution)"
            )
        yield from table(self.table())

    def table(self) -> list[dict[str, object]]:
        """One row for each number of passes and sweeps."""
        return [
            {
                "passes": row.passes,
                "sweeps": row.sweeps,
                "cost": row.cost,
                "TV from one by one": row.from_one_by_one and row.from_one_by_one.value,
                "TV from the sweeps' limit": row.from_limit and row.from_limit.value,
                "revised": row.revised.value,
                "nats a redraw": row.production and row.production.value,
                "in a trap": row.traps.value,
            }
            for row in self.rows
        ]
