"""What will a run do? Everything it needs, checked before anything is written."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from glauber.conditionals.base import (
    PAD,
    Conditionals,
    Model,
    Restricted,
    check_temperature,
    mask_token_of,
)
from glauber.conditionals.constraints import (
    Allow,
    Bias,
    Constraints,
    Tie,
    by_site,
    check_starts,
    read_constraints,
)
from glauber.conditionals.load import load
from glauber.conditionals.own import Own
from glauber.conditionals.starts import named_starts, positions_of, read_sites
from glauber.conditionals.weights import choose_dtype
from glauber.dynamics.constrained import Constrained, Limits, check_scan, constrained, tied_group
from glauber.dynamics.draws import Fill, fill_named
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import Annealing, Kernel, start
from glauber.dynamics.scans import Scan, Within, scan_named
from glauber.dynamics.unmasking import Unmasking, unmasking
from glauber.errors import GlauberError
from glauber.progress import check_count, check_memory, check_seed
from glauber.result import counted, one_of
from glauber.runs.log import bytes_needed
from glauber.runs.spec import Spec, versions

UNMASKING_PARTS = tuple(part.name for part in fields(Unmasking))
STEPS = 10**15  # no run is longer
CHAIN_BYTES, SITE_BYTES = 2000, 40  # of memory that a chain and a site of it take, at least


@dataclass(frozen=True)
class Plan:
    """A run about to be made: the model, the spec, and where the chains begin."""

    model: Model
    spec: Spec
    tokens: Tensor  # (chains, length)
    free: Tensor  # (chains, length)
    others: tuple[Model, ...] = ()  # the same model on further devices
    annealing: Annealing | None = None  # overrides the spec's temperature, step by step

    @property
    def per_device(self) -> "list[Plan]":
        """This plan on each of its devices."""
        return [replace(self, model=model, others=()) for model in (self.model, *self.others)]

    @property
    def on_cuda(self) -> bool:
        """Whether the model is on a CUDA device."""
        return bool(self.model.device.type == "cuda")

    @cached_property
    def scan(self) -> Scan:
        tied = max(map(len, self.constraints.tied), default=0)
        return scan_named(self.spec.scan)._replace(tied=tied)

    @cached_property
    def fill(self) -> Fill:
        return fill_named(self.spec.fill)

    @cached_property
    def constraints(self) -> Constraints:
        """What every chain keeps to."""
        return Constraints.from_dict(self.spec.constraints)

    @cached_property
    def first(self) -> int:
        """The column in which site 0 stands."""
        return positions_of(self.model.vocabulary.text, [0], prefix=self.spec.prefix)[0]

    @cached_property
    def conditionals(self) -> Conditionals:
        """What the run draws from: the tokens it may propose, and what each site allows."""
        asked, found = self.constraints, self._proposing
        if not (asked.allowed or asked.bias):
            return found
        return by_site(asked, found, self.model.vocabulary, self.first)

    @property
    def _proposing(self) -> Conditionals:
        model, spec = self.model, self.spec
        if not spec.special_tokens:
            found: Conditionals = model.conditionals(
                standard_only=spec.standard_only, forbid=spec.forbid
            )
            return found
        allowed = torch.ones(model.vocab_size, dtype=torch.bool)
        allowed[[model.vocabulary.token(name) for name in spec.forbid]] = False
        return Restricted(model, allowed.to(model.state_device)) if spec.forbid else model

    @cached_property
    def limits(self) -> Limits | None:
        """The budget and the ties of the chains, if there are any."""
        asked = self.constraints
        if asked.budget is None and not asked.tied:
            return None
        place = self.model.state_device
        groups = tuple(
            tied_group(
                self.conditionals,
                tuple(self.first + site for site in group),
                "=".join(map(str, group)),
                device=place,
            )
            for group in asked.tied
        )
        return Limits(self.tokens.to(place), asked.budget, groups, self.model)

    @cached_property
    def unmasking(self) -> Unmasking | None:
        """How hidden sites are filled, if the run is a generation."""
        parts = self.spec.unmasking
        return None if parts is None else Unmasking(**{k: parts[k] for k in UNMASKING_PARTS})

    @property
    def rejects(self) -> bool:
        """Whether a step may reject its proposal."""
        return self.unmasking is None and self.scan.rejects

    @property
    def can_be_recorded(self) -> bool:
        """Whether a CUDA graph can contain a step."""
        return self.unmasking is None and self.scan.can_be_recorded

    @property
    def kernel(self) -> Kernel:
        """The kernel of all chains."""
        return self.kernel_of(self.free)

    def kernel_of(self, free: Tensor) -> Kernel:
        """The kernel of chains with these free sites (chains, length)."""
        if self.unmasking is not None:
            hidden_token = mask_token_of(self.model)
            return unmasking(
                self.conditionals, self.unmasking, hidden_token=hidden_token, begin=free
            )
        if self.limits is not None:
            return constrained(self.conditionals, self.limits, scan=self.scan, fill=self.fill)
        return glauber(
            self.conditionals,
            scan=self.scan,
            fill=self.fill,
            within=self.spec.within,  # type: ignore[arg-type]
        )

    @property
    def slots(self) -> int:
        """Sites redrawn in one step, at most."""
        if self.unmasking is not None:
            return self.unmasking.slots(self.tokens.shape[1])
        return self.scan.sites_per_step(self.free)

    @property
    def size(self) -> int:
        """Bytes that the run takes on disk or in memory, at most."""
        length = self.tokens.shape[1]
        return bytes_needed(self.spec.chains, self.spec.steps, self.slots, length)


def plan(
    model: str | Conditionals = "bundled:english",
    texts: str | Path | Sequence[str] | None = None,
    *,
    steps: int,
    temperature: float | Sequence[float] = 1.0,
    seed: int = 0,
    chains: int | None = None,
    length: int | None = None,
    prefix: str = "",
    freeze: Sequence[int] | str = (),
    scan: str = "uniform",
    within: str | None = None,
    fill: str = "inverse-cdf",
    forbid: Sequence[str] | str = (),
    allow: Allow = "",
    bias: Bias = "",
    max_changes: int | None = None,
    tie: Tie = "",
    special_tokens: bool = False,
    device: str = "auto",
    dtype: str | None = None,
    trust_remote_code: bool = False,
) -> Plan:
    """Everything a run needs, checked, before anything is written; parameters as in `sample`."""
    temperatures = read_temperature(temperature)
    if isinstance(temperatures, list) and chains is None:
        chains = len(temperatures)
    steps, seed = _whole(steps), _whole(seed)
    check_numbers(steps, chains, length, seed)
    if not isinstance(prefix, str):
        raise GlauberError(f"the prefix is {prefix!r}, but it must be one text.")
    if within is not None:
        one_of("within", within, get_args(Within))
    scanned, filled, sites = scan_named(scan), fill_named(fill), read_sites(freeze)
    if isinstance(temperatures, list) and len(temperatures) != chains:
        raise GlauberError(
            f"there are {len(temperatures)} temperatures, but {counted(chains or 0, 'chain')}."
        )
    asked = read_constraints(allow=allow, bias=bias, max_changes=max_changes, tie=tie)
    if asked.budget is not None or asked.tied:
        check_scan(scanned)
    if isinstance(model, Constrained):
        raise GlauberError(
            "a run records its constraints: give it the model itself, and allow, bias and "
            "max_changes."
        )
    opened, others = open_model(model, device, dtype, trust_remote_code)
    chains = 8 if texts is None and chains is None else chains
    cut: dict[str, Any] = {"chains": chains, "length": length, "prefix": prefix, "freeze": sites}
    begun = named_starts(opened, texts, **cut)
    tokens, free = begun.tokens, begun.free
    spec = Spec(
        model=opened.name,
        fingerprint=opened.fingerprint,
        device=opened.device.type,
        dtype=opened.dtype,
        seed=seed,
        steps=steps,
        chains=len(tokens),
        temperature=temperatures,
        scan=scanned.name,
        within=within or scanned.within,
        fill=filled.name,
        length=length,
        prefix=prefix,
        frozen=sites,
        special_tokens=special_tokens,
        trust_remote_code=trust_remote_code,
        versions=versions(),
        forbid=_names(forbid),
        standard_only=True,
        constraints=asked.to_dict() or None,
        names=[] if texts is None else begun.names,
        own=isinstance(opened, Own),
    )
    planned = Plan(opened, spec, tokens, free, others)
    _check_plan(planned)
    return planned


def _whole(value: Any) -> Any:
    """numpy's whole numbers as Python's; everything else as it is."""
    return operator.index(value) if hasattr(value, "__index__") else value


def read_temperature(given: Any) -> float | list[float]:
    """One temperature, or one of each chain; refuses what is none."""
    several = isinstance(given, Sequence) or getattr(given, "ndim", 0) == 1
    values = list(given) if several and not isinstance(given, str) else [given]
    try:
        found = [float(value) for value in values if not isinstance(value, bool | str)]
    except (TypeError, ValueError):
        found = []
    if not values or len(found) < len(values):
        raise GlauberError(f"the temperature is {given!r}, but it must be a number.")
    for value in set(found):
        check_temperature(value)
    return found if several else found[0]


def check_numbers(steps: int, chains: int | None, length: int | None, seed: int) -> None:
    """Refuses counts that are none, and what no machine has room for."""
    check_count("number of steps", steps, least=0, most=STEPS)
    check_seed(seed)
    if length is not None:
        check_count("length", length)
    if chains is not None:
        check_count("number of chains", chains, most=10**12)
        needed = chains * (CHAIN_BYTES + SITE_BYTES * (length or 16))
        check_memory(needed, counted(chains, "chain"))


def _names(given: Sequence[str] | str) -> list[str]:
    listed = given.split(",") if isinstance(given, str) else list(given)
    return [name.strip() for name in listed if name.strip()]


def _check_plan(planned: Plan) -> None:
    spec = planned.spec
    temperatures = torch.tensor(spec.temperatures, dtype=torch.float64)
    start(planned.tokens, planned.free, temperature=temperatures)
    _ = planned.kernel  # refuses unknown names
    _check_constraints(planned)
    fewest = planned.scan.fewest
    if int(planned.free.sum(dim=1).min()) < fewest:
        raise GlauberError(
            f"a block of {fewest} sites needs texts with at least {fewest} free sites."
        )
    size = planned.tokens.shape[1]
    check_memory(
        spec.chains * (CHAIN_BYTES + SITE_BYTES * size),
        f"{counted(spec.chains, 'chain')} of {size} tokens",
    )


def _check_constraints(planned: Plan) -> None:
    """Refuses constraints that the starts break."""
    if not planned.constraints:
        return
    if planned.constraints.tied and not planned.model.whole_vocabulary:
        raise GlauberError(
            f"tied sites need a model that scores its whole vocabulary at once, and "
            f"{planned.model.name} asks for each token by itself."
        )
    around = sum(map(len, planned.model.vocabulary.text.around))
    prefix = planned.first - len(planned.model.vocabulary.text.around[0])
    shortest = int((planned.tokens != PAD).sum(dim=1).min()) - around - prefix
    check_starts(
        planned.constraints,
        planned.conditionals,
        planned.model.vocabulary,
        planned.tokens,
        planned.free,
        first=planned.first,
        shortest=shortest,
    )


def open_model(
    model: str | Conditionals, device: str, dtype: str | None, trust_remote_code: bool
) -> tuple[Model, tuple[Model, ...]]:
    """The model on the first of the devices, and its copies on the others.

    A model object may be moved; another dtype than its own is refused.
    """
    first, *further = device.split(",")
    if isinstance(model, str):
        found = load(
            model, device=first, dtype=dtype or "float32", trust_remote_code=trust_remote_code
        )
    else:
        found = load(model, device=first, trust_remote_code=trust_remote_code)
        if dtype is not None and choose_dtype(dtype) and dtype != found.dtype:
            raise GlauberError(f"the model is in {found.dtype}, but {dtype} was asked for.")
    return found, tuple(found.to(device=one) for one in further)
