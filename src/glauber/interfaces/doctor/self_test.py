"""A self-test of about ten seconds: does this machine compute what is known exactly?

Seeds are fixed and noise is a function of (seed, chain, step), so a sound machine gives the same
numbers every time: a check that fails once has found an error. An exception is a line as well.
"""

import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaincc
from torch import Tensor

from glauber.dynamics import kernel
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import State, run
from glauber.dynamics.remembered import run_memoised
from glauber.exact.space import Space
from glauber.exact.stationary import stationary
from glauber.exact.transition import transition_matrix
from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import say, track
from glauber.foundation.threads import one_thread_each
from glauber.interfaces.doctor.doctor import Check, devices, reason, tidy
from glauber.models.base import log_probs
from glauber.models.forward.description import Affine
from glauber.models.forward.encoder_int8 import LEVELS, Product, check_machine
from glauber.models.forward.guard import TOLERANCE
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Table
from glauber.runs.run import Run
from glauber.sampling.sample import extend, sample

LEVEL = 1e-3  # of a chi-square; the seeds are fixed, so that a sound machine is never below it
CHAINS_PER_STATE = 2000  # of the 27 states
LONG_CHAINS, LONG_STEPS = 20_000, 60  # steps after which chains have forgotten their start
LOG_PROB = 1e-3  # nats between a GPU and the CPU, in float32
SEED = 11
TEXT = "The old king walked slowly through the empty garden at night and thought of his son."


class Outcome(NamedTuple):
    """What a check measured, its limit, and both in words."""

    passed: bool
    number: float
    limit: float
    result: str


Test = Callable[[], Outcome]


def self_test() -> list[Check]:
    """Every check on every device, in turn."""
    planned = [(name, device, test) for device in devices() for name, test in _tests(device)]
    say("a self-test of about ten seconds a device")
    checks = []
    with track("checks", len(planned)) as advance:
        for name, device, test in planned:
            advance(0, note=name)
            checks.append(_check(name, device, test))
            advance()
    _model.cache_clear()
    return checks


def _tests(device: str) -> list[tuple[str, Test]]:
    """The checks of a device. On Apple's GPU chains are on the CPU and only the model is there."""
    engine: list[tuple[str, Test]] = [
        ("one step from every state", partial(one_step, device)),
        ("stationary distribution", partial(long_run, device)),
    ]
    model: list[tuple[str, Test]] = [("our forward pass", partial(forward_pass, device))]
    if device != "cpu":
        model.append(("a run compared with the CPU", partial(compare_run, device)))
        return model if device == "mps" else engine + model
    return [
        *engine,
        *model,
        ("steps that look ahead", prefetched_steps),
        ("products of bytes", byte_products),
        ("batches of 1, 3 and all", batches),
        ("a run stopped and resumed", resumed_run),
    ]


def _check(name: str, device: str, test: Test) -> Check:
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome = test()
        except Exception as error:
            seconds = time.perf_counter() - start
            return Check(name, device, False, None, None, reason(error), seconds)
    warning = "" if outcome.passed or not caught else f"; {tidy(str(caught[0].message))}"
    seconds = time.perf_counter() - start
    return Check(name, device, *outcome[:3], outcome.result + warning, seconds)


# ---- the engine against the exact chain


def one_step(device: str) -> Outcome:
    """Where chains from every state are after one step, against the exact transition matrix."""
    table, space, matrix = _small_model()
    states = space.states().repeat_interleave(CHAINS_PER_STATE, dim=0)
    *_, (last, _) = run(glauber(table), _start(states, device), 1, seed=SEED)
    pairs = space.index(states) * space.size + space.index(last.tokens.cpu())
    counts = np.bincount(pairs.numpy(), minlength=space.size**2).astype(np.float64)
    expected = CHAINS_PER_STATE * matrix.ravel()
    if counts[expected < 1e-12].any():
        return Outcome(False, 0.0, LEVEL, "a chain made a step that is impossible")
    return _chi_square(counts, expected, space.size, f"{len(states):,} chains")


def long_run(device: str) -> Outcome:
    """Where chains are after many steps, against the exact stationary distribution."""
    table, space, matrix = _small_model()
    states = space.states()[:1].repeat(LONG_CHAINS, 1)
    for last, _ in run(glauber(table), _start(states, device), LONG_STEPS, seed=SEED):
        tokens = last.tokens
    counts = np.bincount(space.index(tokens.cpu()).numpy(), minlength=space.size).astype(float)
    expected = LONG_CHAINS * stationary(matrix)
    return _chi_square(counts, expected, 1, f"{LONG_CHAINS:,} chains, {LONG_STEPS} steps")


def _chi_square(
    counts: NDArray[np.float64], expected: NDArray[np.float64], n_sums: int, sample: str
) -> Outcome:
    """Pearson's chi-square of counts of which so many sums are fixed; rare cells are pooled."""
    often, rare = expected >= 5, (expected > 0) & (expected < 5)
    counts, expected = (
        np.append(values[often], values[rare].sum()) for values in (counts, expected)
    )
    statistic = float(((counts - expected) ** 2 / np.maximum(expected, 1e-12)).sum())
    freedom = int((expected > 0).sum()) - n_sums
    p = float(gammaincc(freedom / 2, statistic / 2))
    sentence = f"chi-square {statistic:.1f} ({freedom} degrees of freedom), p = {p:.2g}, "
    return Outcome(p >= LEVEL, p, LEVEL, sentence + f"at least {LEVEL:g} ({sample})")


@cache
def _small_model() -> tuple[Table, Space, NDArray[np.float64]]:
    """Incompatible conditionals on three sites of three tokens, and their exact chain."""
    table, space = Table.random(3, 3, seed=2, strength=2.0), Space(3, 3)
    return table, space, transition_matrix(table, space).toarray()


def _start(tokens: Tensor, device: str) -> State:
    return kernel.start(tokens, torch.ones_like(tokens, dtype=torch.bool), device=device)


def prefetched_steps() -> Outcome:
    """Memoised chains that evaluate several steps at once, against the plain loop."""
    table, space, _ = _small_model()
    begin = _start(space.states(), "cpu")
    plain = run(glauber(table), begin, LONG_STEPS, seed=SEED)
    ahead = run_memoised(glauber(table), begin, LONG_STEPS, seed=SEED, prefetch=2)
    pairs = zip(plain, ahead, strict=True)
    n_different = sum(int((left.tokens != right.tokens).sum()) for (left, _), (right, _) in pairs)
    return _equal(n_different, f"the tokens of {LONG_STEPS} steps of {space.size} chains")


# ---- the bundled model


@cache
def _model(device: str) -> MaskedLM:
    return MaskedLM.load("bundled:english", device=device)


def forward_pass(device: str) -> Outcome:
    """Our pass against transformers' own, logits of all positions formed."""
    model, limit = _model(device), TOLERANCE[torch.float32]
    tokens = model.vocabulary.encode([TEXT])[0]
    sites = torch.arange(1, tokens.shape[1] - 1)[:, None]
    rows = tokens.repeat(len(sites), 1)
    ours = model.scores(rows.to(model.state_device), sites.to(model.state_device))[:, 0].cpu()
    hidden = rows.scatter(1, sites, model.hidden_token).to(model.device)
    with torch.no_grad():
        logits = model.model(input_ids=hidden).logits.cpu()
    theirs = logits[torch.arange(len(sites)), sites[:, 0]].double()
    distance = float((ours.double() - theirs).square().mean().sqrt() / theirs.std())
    if model.encoder is None:
        sentence = "our pass was refused, and transformers' is used"
        return Outcome(False, distance, limit, sentence)
    sentence = f"{distance:.1e} spreads of the scores from transformers', at most {limit:g}"
    return Outcome(distance <= limit, distance, limit, sentence)


def byte_products() -> Outcome:
    """Products of random bytes against whole numbers; nothing to test without int8."""
    try:
        check_machine()
    except GlauberError as error:
        return Outcome(True, 0.0, 0.0, f"nothing to test: {error}")
    generator = torch.Generator().manual_seed(SEED)
    weight = torch.randint(-LEVELS, LEVELS + 1, (96, 768), generator=generator)
    inputs = torch.randint(-LEVELS, LEVELS + 1, (40, 768), generator=generator)
    weight[:, 0] = inputs[:, 0] = LEVELS  # so that every scale is 1
    products = Product(Affine(weight.float(), None))(inputs.float())
    return _equal(int((products.long() != inputs @ weight.T).sum()), "sums of 768 products")


def batches() -> Outcome:
    """The same events for batches of 1, 3 and all chains, and for one thread."""
    events = [_events(_sample(steps=4, batch_size=size)) for size in (None, 3, 1)]
    with one_thread_each():
        events.append(_events(_sample(steps=4)))
    n_different = sum(int((other != events[0]).sum()) for other in events[1:])
    return _equal(n_different, f"of {len(events[0]):,} bytes of events and texts, three times")


def resumed_run() -> Outcome:
    """A run that was stopped, read and continued, against one that was not."""
    with tempfile.TemporaryDirectory(prefix="glauber-doctor-") as folder:
        uninterrupted = _events(_sample(steps=8, out=Path(folder) / "uninterrupted"))
        _sample(steps=3, out=Path(folder) / "resumed")
        extend(Path(folder) / "resumed", steps=8, model=_model("cpu"))
        resumed = Run(Path(folder) / "resumed")
        resumed.verify()
        n_different = int((_events(resumed) != uninterrupted).sum())
    return _equal(n_different, f"of {len(uninterrupted):,} bytes of events and texts")


def compare_run(device: str) -> Outcome:
    """What a GPU's run recorded of its draws, against what the CPU gives for the same texts."""
    chains = _sample(steps=12, device=device)
    conditionals, distance = _model("cpu").conditionals(), 0.0
    states = [torch.from_numpy(tokens) for _, tokens in chains.states()]
    for step in range(chains.steps):
        sites, drawn, recorded = (
            torch.from_numpy(chains.read(name, step, step + 1)[:, 0])
            for name in ("site", "token", "log_prob_new")
        )
        computed = log_probs(conditionals, states[step], sites.long())
        computed = computed.gather(2, drawn.long()[..., None])[..., 0]
        distance = max(distance, float((computed - recorded).abs().max()))
    sentence = f"log-probabilities at most {distance:.1e} nats apart, at most {LOG_PROB:g} allowed"
    return Outcome(distance <= LOG_PROB, distance, LOG_PROB, sentence)


def _sample(
    *,
    steps: int,
    device: str = "cpu",
    temperature: float = 1.0,
    batch_size: int | None = None,
    out: Path | None = None,
) -> Run:
    """A short run of seven chains, of different lengths."""
    text_words = TEXT.split()
    return sample(
        _model(device),
        [" ".join(text_words[: 6 + number]) for number in range(7)],
        steps=steps,
        temperature=temperature,
        seed=SEED,
        batch_size=batch_size,
        memo=0,
        out=out,
    )


def _events(chains: Run) -> NDArray[np.uint8]:
    """Every byte that a run recorded of its events, and of its texts at the end."""
    arrays = [chains.read(name) for name in chains.fields] + [chains.tokens()]
    return np.concatenate([np.ascontiguousarray(array).view(np.uint8).ravel() for array in arrays])


def _equal(n_different: int, values: str) -> Outcome:
    sentence = f"{n_different} differ, 0 allowed ({values})"
    return Outcome(n_different == 0, float(n_different), 0.0, sentence)
