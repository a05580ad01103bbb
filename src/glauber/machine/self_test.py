"""Does this machine compute what it should? About ten seconds against what is known exactly.

Seeds are fixed and noise is a function of (seed, chain, step), so a sound machine gives the same
figures every time: a test that fails once has found something. Whatever goes wrong is a line.
"""

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from glauber.machine.facts import devices, reason, tidy
from glauber.progress import say, track

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

LEVEL = 1e-3  # of a chi-square; the seeds are fixed, so that a sound machine is never below it
EACH = 2000  # chains from each of the 27 states
MANY, LATE = 20_000, 60  # chains, and steps after which they have forgotten their start
LOG_PROB = 1e-3  # nats between a GPU and the CPU, in float32
SEED = 11
TEXT = "The old king walked slowly through the empty garden at night and thought of his son."


class Outcome(NamedTuple):
    """What a check found: a figure and its limit, in words."""

    passed: bool
    number: float
    limit: float
    said: str


class Check(NamedTuple):
    """One line of the self-test."""

    name: str
    device: str
    passed: bool
    number: float | None  # None: it did not come that far
    limit: float | None
    said: str
    seconds: float


Test = Callable[[], Outcome]


def self_test() -> list[Check]:
    """Every check on every device, in turn."""
    try:
        listed = [one for device in devices() for one in _tests(device)]
    except Exception as error:  # no torch, or one that cannot be asked
        return [Check("torch", "cpu", False, None, None, reason(error), 0.0)]
    say("a self-test of about ten seconds a device")
    done = []
    with track("checks", len(listed)) as advance:
        for name, device, test in listed:
            advance(0, note=name)
            done.append(_checked(name, device, test))
            advance()
    _model.cache_clear()
    return done


def _checked(name: str, device: str, test: Test) -> Check:
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            found = test()
        except Exception as error:
            seconds = time.perf_counter() - began
            return Check(name, device, False, None, None, reason(error), seconds)
    also = "".join(f"; {tidy(str(one.message))}" for one in heard[:1] if not found.passed)
    return Check(name, device, *found[:3], found.said + also, time.perf_counter() - began)


def _tests(device: str) -> Iterator[tuple[str, str, Test]]:
    """The checks of a device. On Apple's GPU chains live on the CPU and only the model is there."""
    if device != "mps":
        yield "one step from every state", device, partial(one_step, device)
        yield "the law in the long run", device, partial(long_run, device)
    yield "our forward pass", device, partial(forward_pass, device)
    if device == "cpu":
        yield "steps that ask ahead", device, asked_ahead
        yield "products of bytes", device, byte_products
        yield "batches of 1, 3 and all", device, batches
        yield "a run stopped and resumed", device, resumed
    else:
        yield "a run beside the CPU", device, partial(beside_cpu, device)


# ---- the engine against the exact chain


def one_step(device: str) -> Outcome:
    """Where chains from every state are after one step, beside the exact transition matrix."""
    import numpy as np

    from glauber.dynamics.glauber import glauber
    from glauber.dynamics.kernel import run

    table, space, matrix = _small()
    states = space.states().repeat_interleave(EACH, dim=0)
    *_, (last, _) = run(glauber(table), _begun(states, device), 1, seed=SEED)
    where = space.index(states) * space.size + space.index(last.tokens.cpu())
    seen = np.bincount(where.numpy(), minlength=space.size**2).astype(np.float64)
    due = EACH * matrix.ravel()
    if seen[due < 1e-12].any():
        return Outcome(False, 0.0, LEVEL, "a chain made a step that is impossible")
    return _chi_square(seen, due, space.size, f"{len(states):,} chains")


def long_run(device: str) -> Outcome:
    """Where chains are after many steps, beside the exact stationary distribution."""
    import numpy as np

    from glauber.dynamics.glauber import glauber
    from glauber.dynamics.kernel import run
    from glauber.exact.stationary import stationary

    table, space, matrix = _small()
    states = space.states()[:1].repeat(MANY, 1)
    for last, _ in run(glauber(table), _begun(states, device), LATE, seed=SEED):
        tokens = last.tokens
    seen = np.bincount(space.index(tokens.cpu()).numpy(), minlength=space.size).astype(float)
    due = MANY * stationary(matrix)
    return _chi_square(seen, due, 1, f"{MANY:,} chains, {LATE} steps")


def _chi_square(
    seen: "NDArray[np.float64]", due: "NDArray[np.float64]", sums: int, of: str
) -> Outcome:
    """Pearson's chi-square of counts of which so many sums are given; rare cells are one cell."""
    import numpy as np
    from scipy.special import gammaincc

    often, rare = due >= 5, (due > 0) & (due < 5)
    seen, due = (np.append(part[often], part[rare].sum()) for part in (seen, due))
    statistic = float(((seen - due) ** 2 / np.maximum(due, 1e-12)).sum())
    freedom = int((due > 0).sum()) - sums
    p = float(gammaincc(freedom / 2, statistic / 2))
    said = f"chi-square {statistic:.1f} ({freedom} degrees of freedom), p = {p:.2g}, "
    said += f"at least {LEVEL:g} ({of})"
    return Outcome(p >= LEVEL, p, LEVEL, said)


@cache
def _small() -> tuple[Any, Any, Any]:
    """Conditionals of no joint law on three sites of three tokens, and their exact chain."""
    from glauber.conditionals.table import Table
    from glauber.exact.space import Space
    from glauber.exact.transition import transition_matrix

    table, space = Table.random(3, 3, seed=2, strength=2.0), Space(3, 3)
    return table, space, transition_matrix(table, space).toarray()


def _begun(tokens: "Tensor", device: str) -> Any:
    import torch

    from glauber.dynamics.kernel import start

    return start(tokens, torch.ones_like(tokens, dtype=torch.bool), device=device)


def asked_ahead() -> Outcome:
    """Chains that never ask twice and ask for several steps at once, beside the plain loop."""
    from glauber.dynamics.glauber import glauber
    from glauber.dynamics.kernel import run
    from glauber.dynamics.remembered import memoised

    table, space, _ = _small()
    begun = _begun(space.states(), "cpu")
    plain = [state.tokens for state, _ in run(glauber(table), begun, LATE, seed=SEED)]
    ahead = [state.tokens for state, _ in memoised(table, begun, LATE, seed=SEED, prefetch=2)]
    apart = sum(int((one != two).sum()) for one, two in zip(plain, ahead, strict=True))
    return _same(apart, f"the tokens of {len(plain)} steps of {space.size} chains")


# ---- the model in the box


@cache
def _model(device: str) -> Any:
    from glauber.conditionals.load import load

    return load("bundled:english", device=device)


def forward_pass(device: str) -> Outcome:
    """Our pass beside transformers' own, logits of all positions formed."""
    import torch

    from glauber.conditionals.forward.guard import TOLERANCE

    model, limit = _model(device), TOLERANCE[torch.float32]
    tokens = model.vocabulary.encode([TEXT])[0]
    sites = torch.arange(1, tokens.shape[1] - 1)[:, None]
    rows = tokens.repeat(len(sites), 1)
    ours = model.scores(rows.to(model.state_device), sites.to(model.state_device))[:, 0].cpu()
    asked = rows.scatter(1, sites, model.hidden_token).to(model.device)
    with torch.no_grad():
        logits = model.model(input_ids=asked).logits.cpu()
    theirs = logits[torch.arange(len(sites)), sites[:, 0]].double()
    apart = float((ours.double() - theirs).square().mean().sqrt() / theirs.std())
    if model.encoder is None:
        return Outcome(False, apart, limit, "our pass was refused, and transformers' is used")
    said = f"{apart:.1e} spreads of the scores from transformers', at most {limit:g}"
    return Outcome(apart <= limit, apart, limit, said)


def byte_products() -> Outcome:
    """Products of random bytes beside whole numbers; nothing to test where int8 is not there."""
    import torch

    from glauber.conditionals.forward.description import Affine
    from glauber.conditionals.forward.encoder_int8 import LEVELS, Product, check_machine
    from glauber.errors import GlauberError

    try:
        check_machine()
    except GlauberError as error:
        return Outcome(True, 0.0, 0.0, f"nothing to test: {error}")
    generator = torch.Generator().manual_seed(SEED)
    weight = torch.randint(-LEVELS, LEVELS + 1, (96, 768), generator=generator)
    entering = torch.randint(-LEVELS, LEVELS + 1, (40, 768), generator=generator)
    weight[:, 0] = entering[:, 0] = LEVELS  # so that every scale is 1
    found = Product(Affine(weight.float(), None))(entering.float())
    return _same(int((found.long() != entering @ weight.T).sum()), "sums of 768 products")


def batches() -> Outcome:
    """The same events for batches of 1, 3 and all chains, and for one thread."""
    from glauber.threads import one_thread_each

    events = [_events(_sampled(steps=4, batch_size=size)) for size in (None, 3, 1)]
    with one_thread_each():
        events.append(_events(_sampled(steps=4)))
    apart = sum(int((one != events[0]).sum()) for one in events[1:])
    return _same(apart, f"of {len(events[0]):,} bytes of events and texts, three times")


def resumed() -> Outcome:
    """A run that was stopped, read and continued, beside one that was not."""
    from glauber.runs.run import Run
    from glauber.sampling.sample import extend

    with tempfile.TemporaryDirectory(prefix="glauber-doctor-") as place:
        whole = _sampled(steps=8, out=Path(place) / "whole")
        _sampled(steps=3, out=Path(place) / "parts")
        extend(Path(place) / "parts", steps=8, model=_model("cpu"))
        parts = Run(Path(place) / "parts")
        parts.verify()
        one, two = _events(whole), _events(parts)
    return _same(int((one != two).sum()), f"of {len(one):,} bytes of events and texts")


def beside_cpu(device: str) -> Outcome:
    """What a GPU's run wrote down of its draws, beside what the CPU says about the same texts."""
    import torch

    from glauber.conditionals.base import log_probs

    run = _sampled(steps=12, device=device)
    model, furthest = _model("cpu"), 0.0
    states = [torch.from_numpy(tokens) for _, tokens in run.states()]
    for step in range(run.steps):
        sites, drawn = (
            torch.from_numpy(run.read(name, step, step + 1)[:, 0].astype("int64"))
            for name in ("site", "token")
        )
        found = log_probs(model.conditionals(), states[step], sites).gather(2, drawn[..., None])
        told = torch.from_numpy(run.read("log_prob_new", step, step + 1)[:, 0])
        furthest = max(furthest, float((found[..., 0] - told).abs().max()))
    said = f"log-probabilities at most {furthest:.1e} nats apart, at most {LOG_PROB:g} allowed"
    return Outcome(furthest <= LOG_PROB, furthest, LOG_PROB, said)


def _sampled(*, steps: int, device: str = "cpu", **how: Any) -> Any:
    """A short run of seven chains, of lengths that differ."""
    from glauber.sampling.sample import sample

    words = TEXT.split()
    texts = [" ".join(words[: 6 + i]) for i in range(7)]
    return sample(_model(device), texts, steps=steps, seed=SEED, memo=0, **how)


def _events(run: Any) -> "NDArray[np.uint8]":
    """Every byte that a run wrote down of its events, and of its texts at the end."""
    import numpy as np

    parts = [run.read(name) for name in run.fields] + [run.tokens()]
    return np.concatenate([np.ascontiguousarray(part).view(np.uint8).ravel() for part in parts])


def _same(apart: int, of: str) -> Outcome:
    return Outcome(apart == 0, float(apart), 0.0, f"{apart} differ, 0 allowed ({of})")
