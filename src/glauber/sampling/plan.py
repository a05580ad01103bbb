"""What will a run do? Everything it needs, checked before anything is written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from glauber.conditionals.base import Conditionals, Restricted
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.starts import starts
from glauber.dynamics.cuda import replayed
from glauber.dynamics.fills import fill_named
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import Kernel, start
from glauber.dynamics.scans import scan_named
from glauber.errors import GlauberError
from glauber.runs.run import Run
from glauber.runs.spec import Spec, versions

FEW = 256  # up to this many chains a CUDA step is bound by launches, and is replayed as a graph


@dataclass(frozen=True)
class Plan:
    """A run about to be made: the model, the spec, and where the chains begin."""

    model: MaskedLM
    spec: Spec
    tokens: Tensor  # (chains, length)
    free: Tensor  # (chains, length)
    others: tuple[MaskedLM, ...] = ()  # the same model on further devices

    @property
    def crews(self) -> "list[Plan]":
        """This plan on each of its devices."""
        return [replace(self, model=model, others=()) for model in (self.model, *self.others)]

    @property
    def on_cuda(self) -> bool:
        """Whether the model is on a CUDA device."""
        return self.model.device.type == "cuda"

    @property
    def laws(self) -> Conditionals:
        """The conditionals that the run draws from, over the tokens it may propose."""
        return _laws(self.model, self.spec)

    @property
    def kernel(self) -> Kernel:
        """The run's kernel; few chains on a CUDA device replay a recording of it."""
        kernel, scan = self.plain_kernel, scan_named(self.spec.scan)
        few = self.on_cuda and self.spec.chains <= FEW
        return replayed(kernel) if few and scan.can_be_recorded else kernel

    @property
    def plain_kernel(self) -> Kernel:
        """The kernel itself, not a recording."""
        scan, fill = scan_named(self.spec.scan), fill_named(self.spec.fill)
        return glauber(self.laws, scan=scan, fill=fill, within=self.spec.within)  # type: ignore[arg-type]

    @property
    def slots(self) -> int:
        """Sites redrawn in one step, at most."""
        return scan_named(self.spec.scan).sites_per_step(self.free)


def plan(
    model: str | MaskedLM = "bundled:english",
    texts: Sequence[str] | None = None,
    *,
    steps: int,
    temperature: float = 1.0,
    seed: int = 0,
    chains: int | None = None,
    length: int | None = None,
    prefix: str = "",
    frozen: Sequence[int] = (),
    scan: str = "uniform",
    within: str | None = None,
    fill: str = "inverse-cdf",
    special_tokens: bool = False,
    device: str = "auto",
    dtype: str = "float32",
    trust_remote_code: bool = False,
) -> Plan:
    """Everything a run needs, checked, before anything is written.

    chains      number of chains; they take the texts in turn (default: one per text)
    device      one, or several with commas (cuda:0,cuda:1): each takes a share of the chains
    length      tokens of each text without the special ones; shorter texts are left out
    prefix      text put before each start and never redrawn; it does not count in length
    frozen      further sites that are never redrawn, counted from 0 without the special tokens
    within      sequential, or parallel where the scan is everywhere, unless it is given
    """
    _check_numbers(steps, chains, length, seed)
    others: tuple[MaskedLM, ...] = ()
    if isinstance(model, str):
        model, others = _loaded(model, device, dtype, trust_remote_code)
    chains = 8 if texts is None and chains is None else chains
    tokens, free = starts(model, texts, chains=chains, length=length, prefix=prefix, freeze=frozen)
    spec = Spec(
        model=model.name,
        fingerprint=model.fingerprint,
        device=model.device.type,
        dtype=model.dtype,
        seed=seed,
        steps=steps,
        chains=len(tokens),
        temperature=temperature,
        scan=scan_named(scan).name,
        within=within or ("parallel" if scan == "everywhere" else "sequential"),
        fill=fill_named(fill).name,
        length=length,
        prefix=prefix,
        frozen=list(frozen),
        special_tokens=special_tokens,
        trust_remote_code=trust_remote_code,
        versions=versions(),
    )
    planned = Plan(model, spec, tokens, free, others)
    _check_plan(planned)
    return planned


def _check_numbers(steps: int, chains: int | None, length: int | None, seed: int) -> None:
    if steps < 0:
        raise GlauberError(f"the number of steps is {steps}, but it cannot be negative.")
    if chains is not None and chains < 1:
        raise GlauberError(f"the number of chains is {chains}, but it must be at least 1.")
    if length is not None and length < 1:
        raise GlauberError(f"the length is {length}, but it must be at least 1.")
    if not 0 <= seed < 2**63:
        raise GlauberError(f"the seed is {seed}, but it must be between 0 and 2^63 - 1.")


def _check_plan(planned: Plan) -> None:
    start(planned.tokens, planned.free, temperature=planned.spec.temperature)
    _ = planned.plain_kernel  # refuses unknown names
    fewest = scan_named(planned.spec.scan).fewest
    if int(planned.free.sum(dim=1).min()) < fewest:
        raise GlauberError(
            f"a block of {fewest} sites needs texts with at least {fewest} free sites."
        )


def reopen(run: Run, *, steps: int | None = None, device: str | None = None) -> Plan:
    """The plan of a stored run, with its model loaded and checked against the fingerprint."""
    spec = run.spec if steps is None else replace(run.spec, steps=steps)
    model, others = _loaded(spec.model, device or spec.device, spec.dtype, spec.trust_remote_code)
    _check_fingerprint(model, run)
    return Plan(model, spec, torch.from_numpy(run.tokens(0)), torch.from_numpy(run.free), others)


def model_of(
    run: Run | str | Path,
    *,
    device: str | None = None,
    dtype: str | None = None,
    trust_remote_code: bool = False,
) -> MaskedLM:
    """The model that made a stored run, checked against the run's fingerprint."""
    opened = Run.of(run)
    model, _ = _loaded(
        opened.spec.model,
        device or opened.spec.device,
        dtype or opened.spec.dtype,
        trust_remote_code or opened.spec.trust_remote_code,
    )
    _check_fingerprint(model, opened)
    return model


def _check_fingerprint(model: MaskedLM, run: Run) -> None:
    if model.fingerprint != run.spec.fingerprint:
        raise GlauberError(
            f"{run.spec.model} is not the model that made the run {run.folder}: its weights or its "
            "vocabulary have changed."
        )


def _loaded(
    name: str, device: str, dtype: str, trust_remote_code: bool
) -> tuple[MaskedLM, tuple[MaskedLM, ...]]:
    """The model on the first of the devices, and its copies on the others."""
    first, *further = device.split(",")
    model = MaskedLM.load(name, device=first, dtype=dtype, trust_remote_code=trust_remote_code)
    return model, tuple(model.on(one) for one in further)


def _laws(model: MaskedLM, spec: Spec) -> Conditionals:
    if spec.special_tokens:
        return model
    return Restricted(model, model.vocabulary.proposable().to(model.state_device))
