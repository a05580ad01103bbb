"""The plan of a run: everything it needs, checked before anything is written."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack, get_args

import torch
from torch import Tensor

from glauber.dynamics.constrained import (
    Constrained,
    Limits,
    check_scan,
    constrained_kernel,
    tied_group,
)
from glauber.dynamics.draws import Fill, fill_named
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import Annealing, Kernel, start
from glauber.dynamics.scans import SCAN_HELP, Scan, Within, scan_named
from glauber.foundation.call import Call
from glauber.foundation.checks import OneOf, Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import Freeze, Length, Seed, Trust
from glauber.foundation.progress import check_memory
from glauber.foundation.study import Default, counted, defaults_of
from glauber.models.base import (
    PAD,
    Conditionals,
    Model,
    Restricted,
    check_temperature,
    mask_token_of,
)
from glauber.models.load import load
from glauber.models.weights import choose_dtype
from glauber.runs.log import bytes_needed
from glauber.runs.spec import Spec, versions
from glauber.texts.constraints import (
    Allow,
    Bias,
    Constraints,
    Tie,
    by_site,
    check_starts,
    read_constraints,
)
from glauber.texts.starts import named_starts, positions_of, read_sites

if TYPE_CHECKING:
    from glauber.dynamics.unmasking import Unmasking

Steps = Annotated[int, "Steps of every chain, in all.", Whole(0, 10**15)]
CHAIN_BYTES, SITE_BYTES = 2000, 40  # of memory that a chain and a site of it take, at least


@dataclass(frozen=True)
class Plan:
    """A run about to be made: the model, the spec, and where the chains begin."""

    model: Model
    spec: Spec
    tokens: Tensor  # (chains, length)
    free: Tensor  # (chains, length)
    others: tuple[Model, ...] = ()  # the same model on further devices
    call: Call | None = None  # that makes this run (default: that of the running study)
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
        """The column of site 0."""
        return positions_of(self.model.vocabulary.text, [0], prefix=self.spec.prefix)[0]

    @cached_property
    def conditionals(self) -> Conditionals:
        """What the run draws from: the tokens it may propose, and what each site allows."""
        model, spec, limits = self.model, self.spec, self.constraints
        vocabulary = model.vocabulary
        conditionals: Conditionals = model
        if not spec.special_tokens:
            conditionals = model.conditionals(standard_only=spec.standard_only, forbid=spec.forbid)
        elif spec.forbid:
            allowed = torch.ones(model.vocab_size, dtype=torch.bool)
            allowed[[vocabulary.token(name) for name in spec.forbid]] = False
            conditionals = Restricted(model, allowed.to(model.state_device))
        if limits.allowed or limits.bias:
            return by_site(limits, conditionals, vocabulary, self.first)
        return conditionals

    @cached_property
    def limits(self) -> Limits | None:
        """The budget and the ties of the chains, if there are any."""
        budget, tied, device = (
            self.constraints.budget,
            self.constraints.tied,
            self.model.state_device,
        )
        if budget is None and not tied:
            return None
        groups = []
        for group in tied:
            positions, name = tuple(self.first + site for site in group), "=".join(map(str, group))
            groups.append(tied_group(self.conditionals, positions, name, device=device))
        return Limits(self.tokens.to(device), budget, tuple(groups), self.model)

    @cached_property
    def unmasking(self) -> "Unmasking | None":
        """How hidden sites are filled, if the run is a generation."""
        parts = self.spec.unmasking
        if parts is None:
            return None
        from glauber.dynamics.unmasking import Unmasking

        return Unmasking(**{part.name: parts[part.name] for part in fields(Unmasking)})

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
        conditionals = self.conditionals
        if self.unmasking is not None:
            from glauber.dynamics.unmasking import unmasking

            hidden_token = mask_token_of(self.model)
            return unmasking(conditionals, self.unmasking, hidden_token=hidden_token, begin=free)
        scan, fill = self.scan, self.fill
        if self.limits is not None:
            return constrained_kernel(conditionals, self.limits, scan=scan, fill=fill)
        within: Any = self.spec.within
        return glauber(conditionals, scan=scan, fill=fill, within=within)

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


class ChainOptions(TypedDict, total=False):
    """How chains are begun and run; the parameters of `sample` that decide the trajectory."""

    steps: Annotated[Steps, Default(1000)]
    temperature: Annotated[
        float | Sequence[float],
        "Softmax temperature; 1 samples from the model as it is. Or one per chain.",
        Default(1.0),
    ]
    seed: Annotated[Seed, Default(0)]
    chains: Annotated[
        int | None,
        "Number of chains; they take the texts in turn.",
        Whole(1, 10**12),
        Default(None),
    ]
    length: Annotated[Length, Whole(), Default(None)]
    prefix: Annotated[str, "Text put before each start and never redrawn.", Default("")]
    freeze: Annotated[Freeze, Default("")]
    scan: Annotated[str, SCAN_HELP, Default("uniform")]
    within: Annotated[
        str | None,
        "Sites of one step: sequential, product or parallel (default: sequential; parallel for "
        "everywhere).",
        OneOf(get_args(Within)),
        Default(None),
    ]
    fill: Annotated[str, "inverse-cdf, gumbel-max or greedy.", Default("inverse-cdf")]
    forbid: Annotated[Sequence[str] | str, "Tokens never proposed, such as X,B,Z.", Default("")]
    allow: Annotated[Allow, "The tokens a site may have, such as 3:king|queen,5-7:ST.", Default("")]
    bias: Annotated[Bias, "Added to the scores of a site, such as 3:king=1|queen=-2.", Default("")]
    max_changes: Annotated[
        int | None, "Sites that may differ from a chain's own start.", Default(None)
    ]
    tie: Annotated[
        Tie, "Sites that always have the same token, such as 3=9,4-6=10-12.", Default("")
    ]
    special_tokens: Annotated[bool, "Let special and unused tokens be proposed.", Default(False)]
    device: Annotated[
        str, "auto, cpu, cuda or mps; cuda:0,cuda:1 share the chains.", Default("auto")
    ]
    dtype: Annotated[
        str | None,
        "float32 (default), bfloat16, float64, or int8: faster on a CPU, coarser.",
        Default(None),
    ]
    trust_remote_code: Annotated[Trust, Default(False)]


DEFAULTS: ChainOptions = defaults_of(ChainOptions)


def plan(
    model: str | Conditionals = "bundled:english",
    texts: str | Path | Sequence[str] | None = None,
    **options: Unpack[ChainOptions],
) -> Plan:
    """Everything a run needs, checked, before anything is written."""
    chosen: ChainOptions = {**DEFAULTS, **options}
    steps, seed, length = chosen["steps"], chosen["seed"], chosen["length"]
    prefix, trust_remote_code = chosen["prefix"], chosen["trust_remote_code"]
    temperatures = read_temperature(chosen["temperature"])
    n_temperatures = len(temperatures) if isinstance(temperatures, list) else None
    chains = n_temperatures if chosen["chains"] is None else chosen["chains"]
    check_chains(chains, length)
    if not isinstance(prefix, str):
        raise GlauberError(f"the prefix is {prefix!r}, but it must be one text.")
    scan, frozen = scan_named(chosen["scan"]), read_sites(chosen["freeze"])
    fill = fill_named(chosen["fill"]).name
    if n_temperatures not in (None, chains):
        raise GlauberError(
            f"there are {n_temperatures} temperatures, but {counted(chains or 0, 'chain')}."
        )
    limits = read_constraints(
        allow=chosen["allow"],
        bias=chosen["bias"],
        max_changes=chosen["max_changes"],
        tie=chosen["tie"],
    )
    if limits.budget is not None or limits.tied:
        check_scan(scan)
    if isinstance(model, Constrained):
        raise GlauberError(
            "a run records its constraints: give it the model itself, and allow, bias and "
            "max_changes."
        )
    loaded, others = open_model(model, chosen["device"], chosen["dtype"], trust_remote_code)
    chains = 8 if texts is None and chains is None else chains
    begin = named_starts(loaded, texts, chains=chains, length=length, prefix=prefix, freeze=frozen)
    spec = Spec(
        model=loaded.name,
        fingerprint=loaded.fingerprint,
        device=loaded.device.type,
        dtype=loaded.dtype,
        seed=seed,
        steps=steps,
        chains=len(begin.tokens),
        temperature=temperatures,
        scan=scan.name,
        within=chosen["within"] or scan.within,
        fill=fill,
        length=length,
        prefix=prefix,
        frozen=frozen,
        special_tokens=chosen["special_tokens"],
        trust_remote_code=trust_remote_code,
        versions=versions(),
        forbid=_as_list(chosen["forbid"]),
        standard_only=True,
        constraints=limits.to_dict() or None,
        names=[] if texts is None else begin.names,
        own=loaded.is_own,
    )
    planned = Plan(loaded, spec, begin.tokens, begin.free, others)
    _check_plan(planned)
    return planned


def read_temperature(temperature: Any) -> float | list[float]:
    """One temperature, or one of each chain; refuses what is none."""
    several = isinstance(temperature, Sequence) or getattr(temperature, "ndim", 0) == 1
    values = list(temperature) if several and not isinstance(temperature, str) else [temperature]
    try:
        numbers = [float(value) for value in values if not isinstance(value, bool | str)]
    except (TypeError, ValueError):
        numbers = []
    if not values or len(numbers) < len(values):
        raise GlauberError(f"the temperature is {temperature!r}, but it must be a number.")
    for value in set(numbers):
        check_temperature(value)
    return numbers if several else numbers[0]


def check_chains(chains: int | None, length: int | None = None) -> None:
    """Refuse chains that the machine has no memory for."""
    if chains is not None:
        needed = chains * (CHAIN_BYTES + SITE_BYTES * (length or 16))
        check_memory(needed, counted(chains, "chain"))


def _as_list(names: Sequence[str] | str) -> list[str]:
    listed = names.split(",") if isinstance(names, str) else list(names)
    return [name.strip() for name in listed if name.strip()]


def _check_plan(planned: Plan) -> None:
    """Refuse names that the model does not know, and starts that the run's rules do not allow."""
    spec, fewest = planned.spec, planned.scan.fewest
    temperatures = torch.tensor(spec.temperatures, dtype=torch.float64)
    start(planned.tokens, planned.free, temperature=temperatures)
    _ = planned.kernel  # refuses unknown names
    if planned.constraints:
        _check_constraints(planned)
    if int(planned.free.sum(dim=1).min()) < fewest:
        raise GlauberError(f"the scan {spec.scan} needs texts with at least {fewest} free sites.")
    check_chains(spec.chains, planned.tokens.shape[1])


def _check_constraints(planned: Plan) -> None:
    constraints, vocabulary = planned.constraints, planned.model.vocabulary
    if constraints.tied and not planned.model.whole_vocabulary:
        raise GlauberError(
            f"tied sites need a model that scores its whole vocabulary at once, and "
            f"{planned.model.name} asks for each token by itself."
        )
    n_after = len(vocabulary.text.boundary_tokens[1])
    check_starts(
        constraints,
        planned.conditionals,
        vocabulary,
        planned.tokens,
        planned.free,
        first=planned.first,
        shortest=int((planned.tokens != PAD).sum(dim=1).min()) - n_after - planned.first,
    )


def open_model(
    model: str | Conditionals, device: str, dtype: str | None, trust_remote_code: bool
) -> tuple[Model, tuple[Model, ...]]:
    """The model on the first of the devices, and its copies on the others.

    A model object may be moved; another dtype than its own is refused.
    """
    first, *further = device.split(",")
    if isinstance(model, str):
        dtype = dtype or "float32"
        loaded = load(model, device=first, dtype=dtype, trust_remote_code=trust_remote_code)
    else:
        loaded = load(model, device=first, trust_remote_code=trust_remote_code)
        if dtype is not None and choose_dtype(dtype) and dtype != loaded.dtype:
            raise GlauberError(f"the model is in {loaded.dtype}, but {dtype} was requested.")
    return loaded, tuple(loaded.to(device=name) for name in further)
