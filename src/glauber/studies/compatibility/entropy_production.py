"""Entropy production of a run: how far from reversible its chain is, in nats per step.

A step a -> b at site i has forward/backward ratio pi_i(b) / pi_i(a) given the others. The
stationary mean of its logarithm is the entropy production, never negative, and zero exactly when
the chain is reversible, that is when the conditionals are those of a joint distribution. Averaged
over the redraw (Rao and Blackwell) a step contributes

    sum_b pi_i(b) log pi_i(b) - log pi_i(a) = -H(pi_i) - log pi_i(a),    a the old token,

and both terms are recorded with every event.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray

from glauber.dynamics.scans import scan_named
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import Trust
from glauber.foundation.progress import check_count
from glauber.foundation.statistics import (
    MIN_CHAINS,
    Estimate,
    clustered_mean,
    mean_over_chains,
    standard_error,
)
from glauber.foundation.study import Result, counted, reported, study
from glauber.models.vocabulary import RESIDUES
from glauber.models.weights import check_device
from glauber.runs.export import forced_steps
from glauber.runs.run import Run
from glauber.runs.spec import Spec, refuse_ties
from glauber.sampling.reopened import COARSE, drawn_from, evaluate_again

Floats = NDArray[np.float64]
BATCHES = 32  # of one or two chains together: a standard error good to about an eighth of itself
CHAIN_BATCHES = 8  # of one chain: long ones, which depend on each other least
NO_MOVEMENT = 1e-9  # nats: a standard error below this comes from chains that did not move


@study
def entropy_production(
    run: Annotated[Run | str | Path, "Folder of a run."],
    *,
    burn_in: Annotated[int | None, "Steps not counted (default: half)."] = None,
    device: Annotated[str | None, "For int8 and bfloat16 runs: where to evaluate again."] = None,
    trust_remote_code: Trust = False,
) -> "EntropyProduction":
    """Estimate a run's entropy production: zero exactly if a joint distribution exists.

    The mean of -H(pi_i) - log pi_i(old token) over the recorded steps of a random scan of single
    sites; other kernels are refused, because their reverse moves have a different probability. A
    run that was drawn in int8 or bfloat16 recorded rounded conditionals: those of the steps after
    the burn-in are evaluated again in float32.
    """
    check_device(device)
    stored_run = Run.of(run)
    check_kernel(stored_run.spec)
    if stored_run.steps == 0:
        raise GlauberError(
            f"the run {stored_run.name} has no steps yet: it recorded no conditional."
        )
    burn_in = check_burn_in(burn_in, stored_run.steps)
    log_prob_old, entropy = (
        stored_run.read(name)[:, :, 0].astype(np.float64) for name in ("log_prob_old", "entropy")
    )
    coarse = stored_run.spec.dtype in COARSE
    if coarse:
        model = drawn_from(stored_run, device=device, trust_remote_code=trust_remote_code)
        log_prob_old[:, burn_in:], entropy[:, burn_in:] = evaluate_again(
            stored_run, model.conditionals, burn_in
        )
    rows = _rows_by_chain(log_prob_old, entropy, burn_in, _first_clean_step(stored_run))
    temperatures = stored_run.temperatures
    return EntropyProduction(
        run=stored_run.name,
        total=production(list(rows.values()), burn_in),
        chains=tuple(
            ChainProduction(chain, float(temperatures[chain]), _chain_rate(row))
            for chain, row in rows.items()
        ),
        by_temperature={
            float(temperature): production(selected, burn_in)
            for temperature in np.unique(temperatures)
            if (selected := [row for c, row in rows.items() if temperatures[c] == temperature])
        },
        dtype=stored_run.spec.dtype,
        evaluated_again="float32" if coarse else None,
    )


@dataclass(frozen=True)
class Production:
    """An estimate in nats per step, with the error of chains; of one or two, that of batches.

    The latter is too small where a batch does not outlast the chain's memory: then no interval.
    """

    rate: Estimate  # nats per step; the interval begins at 0: the true rate is never negative
    burn_in: int
    n_chains: int  # that were counted
    n_steps: int  # counted, all chains together
    n_batches: int  # that the error comes from
    batch_steps: int  # of the shortest batch; with three chains or more, each is one batch

    def error(self) -> str:
        if self.rate.interval is None:
            return f"standard error of batches {self.rate.standard_error:.4f}"
        return "95% interval {:.4f} to {:.4f}".format(*self.rate.interval)


@dataclass(frozen=True)
class ChainProduction:
    """Mean of one chain, and the 95% interval of its batch means, for this chain alone."""

    chain: int
    temperature: float
    rate: Estimate


@dataclass(frozen=True)
class EntropyProduction(Result):
    """A run's entropy production, in total, by temperature and by chain, in nats per step."""

    run: str
    total: Production
    chains: tuple[ChainProduction, ...]  # those that were counted
    by_temperature: dict[float, Production]
    dtype: str  # that the run was drawn in
    evaluated_again: str | None  # the dtype, for a run drawn in int8 or bfloat16

    FIGURES = {
        "chains": ("glauber.interfaces.plots.compatibility:plot_production", "frame", "rate")
    }

    @property
    def rate(self) -> Estimate:
        """Entropy production of all counted chains."""
        return self.total.rate

    @reported
    def unit(self) -> str:
        """Unit of every rate."""
        return "nats per step"

    def lines(self) -> Iterable[str]:
        total = self.total
        yield (
            f"entropy production {self.rate.value:.4f} nats per step, {total.error()} "
            "(an estimate; 0 if the conditionals had a joint distribution)"
        )
        if self.rate.interval is None:
            yield f"no interval: {self.rate.reason}; the error of batches may be far too small"
        if (self.rate.standard_error or 0.0) < NO_MOVEMENT:
            yield "the counted steps hardly moved: that says nothing about a joint distribution"
        if len(self.by_temperature) > 1:
            yield "that is the mean over chains at several temperatures; at each of them:"
            for temperature, part in self.by_temperature.items():
                rate = f"{part.rate.value:.4f}, {part.error()}"
                yield f"  temperature {temperature:g}: {rate}, {counted(part.n_chains, 'chain')}"
        yield (
            f"{counted(total.n_chains, 'chain')}, {total.n_steps:,} steps counted after a burn-in "
            f"of {total.burn_in:,}; {total.n_batches} batches of at least {total.batch_steps:,} "
            "steps"
        )
        if self.evaluated_again:
            yield (
                f"drawn in {self.dtype}: the conditionals of these steps were evaluated again in "
                f"{self.evaluated_again}"
            )

    def table(self) -> Iterable[ChainProduction]:
        """One row per chain."""
        return self.chains


def estimate(
    log_prob_old: ArrayLike,
    entropy: ArrayLike,
    *,
    burn_in: int | None = None,
    first: ArrayLike | None = None,
) -> Production:
    """The mean of -entropy - log_prob_old, both (chains, steps), of a random single-site scan.

    The first burn_in steps (default: half) are not counted; neither are those of a chain before
    its own `first` (chains,), and never those up to an old token of probability zero: such a token
    was a start outside the allowed vocabulary. A chain that this leaves with less than half of
    the steps after the burn-in is not counted at all, which depends on the scan alone.

    The error is that of chains, so it holds what chains from different starts still disagree
    about. What it does not hold: a start not yet forgotten. For compatible chains the sum over T
    steps is log p(end) - log p(start) on average, so such a bias falls as 1/T.
    """
    shape = np.shape(log_prob_old)
    burn_in = check_burn_in(burn_in, shape[1] if len(shape) == 2 and shape[1] else 1)
    return production(list(_rows_by_chain(log_prob_old, entropy, burn_in, first).values()), burn_in)


def _rows_by_chain(
    log_prob_old: ArrayLike, entropy: ArrayLike, burn_in: int, first: ArrayLike | None
) -> dict[int, Floats]:
    """The contributions of each chain that is counted, from where its counting begins."""
    values = _contributions(log_prob_old, entropy)
    n_steps = values.shape[1]
    begin = np.maximum(_after_last_zero(np.asarray(log_prob_old)), burn_in)
    if first is not None:
        begin = np.maximum(begin, np.asarray(first))
    enough = (n_steps - burn_in + 1) // 2
    rows = enumerate(zip(values, begin, strict=True))
    return {chain: row[at:] for chain, (row, at) in rows if n_steps - at >= enough}


def production(rows: list[Floats], burn_in: int) -> Production:
    """The estimate from the contributions of each chain, (steps,) each."""
    batches = rows if len(rows) >= MIN_CHAINS else _batches(rows)
    chain = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    rate = clustered_mean(np.concatenate(rows), chain, bounds=(0.0, np.inf))
    if rate.standard_error is None:
        error = standard_error(np.array([batch.mean() for batch in batches]))
        rate = replace(rate, standard_error=error)
    return Production(
        rate=rate,
        burn_in=burn_in,
        n_chains=len(rows),
        n_steps=sum(len(row) for row in rows),
        n_batches=len(batches),
        batch_steps=min(len(batch) for batch in batches),
    )


def _chain_rate(row: Floats) -> Estimate:
    """The mean of one chain's contributions (steps,) and the t interval of its batch means."""
    batches = np.array_split(row, min(CHAIN_BATCHES, len(row)))
    over_batches = mean_over_chains([batch.mean() for batch in batches])
    return replace(over_batches, value=float(row.mean()))


def check_kernel(spec: Spec) -> None:
    """Refuses what is not a random scan of single sites, saying why."""
    refuse_ties(spec, "entropy production")
    if spec.fill == "greedy":
        raise GlauberError(
            "entropy production needs tokens drawn from the conditionals, but this run's fill is "
            "greedy, whose steps can never be undone."
        )
    scan = scan_named(spec.scan)
    if not scan.is_random_scan:
        raise GlauberError(
            f"entropy production is defined here for the scan uniform, but this run's is "
            f"{spec.scan}: {scan.irreversible}."
        )


def _contributions(log_prob_old: ArrayLike, entropy: ArrayLike) -> Floats:
    """-entropy - log_prob_old in float64, (chains, steps)."""
    old, spread = np.asarray(log_prob_old, np.float64), np.asarray(entropy, np.float64)
    if old.ndim != 2 or old.shape != spread.shape or old.size == 0:
        raise GlauberError(
            f"the log-probabilities have shape {old.shape} and the entropies {spread.shape}, "
            "but both must be (chains, steps), with at least one of each."
        )
    if np.isnan(old).any() or np.isnan(spread).any():
        raise GlauberError("some step has no recorded conditional, so nothing can be estimated.")
    return -spread - old


def check_burn_in(burn_in: int | None, n_steps: int) -> int:
    """The burn-in (default: half), if it leaves some of the steps."""
    burn_in = n_steps // 2 if burn_in is None else burn_in
    check_count("burn-in", burn_in, least=0, most=2**63)
    if not 0 <= burn_in < n_steps:
        raise GlauberError(
            f"the burn-in is {burn_in} steps, but it must leave some of the run's {n_steps}."
        )
    return burn_in


def _after_last_zero(log_prob_old: Floats) -> NDArray[np.int64]:
    """The step after the last old token of probability zero, (chains,); 0 where there is none."""
    zero = np.isneginf(log_prob_old)
    after = zero.shape[1] - zero[:, ::-1].argmax(axis=1)
    return np.where(zero.any(axis=1), after, 0)


def _batches(rows: list[Floats]) -> list[Floats]:
    """Each chain's steps cut into equally many pieces, as few as give BATCHES in all."""
    each = -(-BATCHES // max(1, len(rows)))
    each = min([each, *(len(row) for row in rows)])
    if len(rows) * each < 2:
        raise GlauberError(
            "too few steps are left to count for a standard error: make the run longer, or the "
            "burn-in shorter."
        )
    return [piece for row in rows for piece in np.array_split(row, each)]


def _first_clean_step(run: Run) -> NDArray[np.int64]:
    """The run's length for chains that still contain a start token that is never drawn, else 0.

    Sites that were redrawn need no look: their first event says whether the start had log 0.
    """
    wide = np.pad(run.free, [(0, 0), (0, 1)])  # one more, for forced sites: they keep their start
    sites = np.where(forced_steps(run), run.free.shape[1], run.read("site")[:, :, 0])
    wide[np.arange(run.n_chains)[:, None], sites] = False
    left = wide[:, :-1]
    if run.spec.special_tokens and not run.spec.forbid:
        left[:] = False
    tokens = run.tokens(0)
    never = [int(token) for token in np.unique(tokens[left]) if _never_drawn(run, int(token))]
    return np.where((left & np.isin(tokens, never)).any(axis=1), run.steps, 0)


def _never_drawn(run: Run, token: int) -> bool:
    """Whether a token is special or unused, or one that this run was told not to draw."""
    text, spelled = run.vocabulary, run.vocabulary.spell(token)
    if spelled in run.spec.forbid or run.spec.special_tokens:
        return spelled in run.spec.forbid
    odd = run.spec.standard_only and text.proteins and spelled not in RESIDUES
    return odd or token not in text.normal
