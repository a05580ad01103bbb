"""How far from reversible is the chain that was run? One number for the incompatibility it met.

A step a -> b at site i has forward/backward ratio pi_i(b) / pi_i(a) given the rest. The stationary
mean of its logarithm is the entropy production, never negative, and zero exactly when the chain is
reversible, that is when one joint law owns the conditionals. Averaged over the redraw (Rao and
Blackwell) a step contributes
    sum_b pi_i(b) log pi_i(b) - log pi_i(a) = -H(pi_i) - log pi_i(a),    a the old token,
and both terms are recorded with every event.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from glauber.conditionals.vocabulary import UNUSED
from glauber.errors import GlauberError
from glauber.runs.run import Run
from glauber.runs.spec import Spec

BATCHES = 32  # in all, at least: enough for a standard error good to about an eighth of itself


@dataclass(frozen=True)
class EntropyProduction:
    """An estimate in nats per step, with its standard error."""

    rate: float
    standard_error: float  # of batch means: trustworthy if a batch outlasts the chain's memory
    burn_in: int
    n_chains: int  # that were counted
    n_steps: int  # counted, all chains together
    n_batches: int
    batch_steps: int  # of the shortest batch
    kind: str = "estimate"


def entropy_production(
    log_prob_old: ArrayLike,
    entropy: ArrayLike,
    *,
    burn_in: int | None = None,
    first: ArrayLike | None = None,
) -> EntropyProduction:
    """The mean of -entropy - log_prob_old, both (chains, steps), of a random single-site scan.

    The first burn_in steps (default: half) are not counted; neither are those of a chain before
    its own `first` (chains,), and never those up to an old token of probability zero: such a token
    was a start outside the allowed vocabulary. A chain that this leaves with less than half of
    the steps behind the burn-in is not counted at all, which depends on the scan alone.

    The standard error is that of the batch means of all chains about their common mean, so it
    holds what chains from different starts still disagree about. What it does not hold: a start
    not yet forgotten. For compatible chains the sum over T steps is log p(end) - log p(start) on
    average, so such a bias falls as 1/T.
    """
    values = _contributions(log_prob_old, entropy)
    n_steps = values.shape[1]
    burn_in = _check_burn_in(burn_in, n_steps)
    begin = np.maximum(_behind_last_zero(np.asarray(log_prob_old)), burn_in)
    if first is not None:
        begin = np.maximum(begin, np.asarray(first))
    enough = (n_steps - burn_in + 1) // 2
    counted = [row[at:] for row, at in zip(values, begin, strict=True) if n_steps - at >= enough]
    pieces = _batches(counted)
    means = np.array([piece.mean() for piece in pieces])
    return EntropyProduction(
        rate=float(np.concatenate(counted).mean()),
        standard_error=float(means.std(ddof=1) / np.sqrt(len(means))),
        burn_in=burn_in,
        n_chains=len(counted),
        n_steps=sum(len(row) for row in counted),
        n_batches=len(pieces),
        batch_steps=min(len(piece) for piece in pieces),
    )


def entropy_production_of_run(run: Run, *, burn_in: int | None = None) -> EntropyProduction:
    """The estimate from a stored run's events; refuses kernels for which it would be wrong."""
    check_kernel(run.spec)
    if run.steps == 0:
        raise GlauberError(f"the run {run.folder} has no steps yet, so it recorded no conditional.")
    old, entropy = run.read("log_prob_old")[:, :, 0], run.read("entropy")[:, :, 0]
    return entropy_production(old, entropy, burn_in=burn_in, first=_first_clean(run))


def check_kernel(spec: Spec) -> None:
    """Refuses what is not a random scan of single sites in full precision, saying why."""
    if spec.dtype == "int8":
        raise GlauberError(
            "entropy production needs the model's own conditionals, but this run was drawn in int8."
        )
    if spec.fill == "greedy":
        raise GlauberError(
            "entropy production needs tokens drawn from the conditionals, but this run's fill is "
            "greedy, whose steps can never be undone."
        )
    if spec.scan in ("uniform", "block:1"):
        return  # with one site a step, every `within` is the same kernel
    reasons = {
        "sweep": "undoing a step would need the sites in reverse order, so the figure would "
        "measure incompatibility but not this chain's entropy production",
        "block": "the chance of undoing the move of a whole block is not recorded",
        "everywhere": "all sites move at once, and the chance of undoing that is not recorded",
        "least-confident": "the choice of the site depends on the state, so its chance does not "
        "cancel between a step and its undoing",
    }
    why = reasons.get(spec.scan.partition(":")[0], "undoing a step has another chance there")
    raise GlauberError(
        f"entropy production is defined here for the scan uniform, but this run's is {spec.scan}: "
        f"{why}."
    )


def _contributions(log_prob_old: ArrayLike, entropy: ArrayLike) -> NDArray[np.float64]:
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


def _check_burn_in(burn_in: int | None, n_steps: int) -> int:
    burn_in = n_steps // 2 if burn_in is None else burn_in
    if not 0 <= burn_in < n_steps:
        raise GlauberError(
            f"the burn-in is {burn_in} steps, but it must leave some of the run's {n_steps}."
        )
    return burn_in


def _behind_last_zero(log_prob_old: NDArray[np.float64]) -> NDArray[np.int64]:
    """The step behind the last old token of probability zero, (chains,); 0 where there is none."""
    zero = np.isneginf(log_prob_old)
    behind = zero.shape[1] - zero[:, ::-1].argmax(axis=1)
    return np.where(zero.any(axis=1), behind, 0)


def _batches(rows: list[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """Each chain's steps cut into equally many pieces, as few as give BATCHES in all."""
    each = -(-BATCHES // max(1, len(rows)))
    each = min([each, *(len(row) for row in rows)])
    if len(rows) * each < 2:
        raise GlauberError(
            "too few steps are left to count for a standard error: make the run longer, or the "
            "burn-in shorter."
        )
    return [piece for row in rows for piece in np.array_split(row, each)]


def _first_clean(run: Run) -> NDArray[np.int64]:
    """The run's length for chains that still hold a start token that is never drawn, else 0.

    Sites that were redrawn need no look: their first event says whether the start had log 0.
    """
    left = run.free.copy()
    sites = run.read("site")[:, :, 0]
    left[np.arange(run.n_chains)[:, None], sites] = False
    if run.spec.special_tokens:
        left[:] = False
    tokens = run.tokens(0)
    never = [int(token) for token in np.unique(tokens[left]) if _never_drawn(run, int(token))]
    return np.where((left & np.isin(tokens, never)).any(axis=1), run.steps, 0)


def _never_drawn(run: Run, token: int) -> bool:
    """Whether a token is special or unused, so that a run draws it only if it was told to."""
    spelled = run.vocabulary.spell(token)
    return UNUSED.fullmatch(spelled) is not None or run.vocabulary.decode([token]) == ""
